"""The state of the process and machine that all systems share: environment, CPUs, description."""

import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

# Settings that pin NumPy's BLAS to the kernels or cache size of another machine.
OVERRIDES = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")


def restart_without_overrides() -> None:
    """Start the same command again without `OVERRIDES` if any is set.

    OpenBLAS reads them when NumPy loads, so to delete them from `os.environ` comes too late.
    """
    if not any(name in os.environ for name in OVERRIDES):
        return
    clean = {name: value for name, value in os.environ.items() if name not in OVERRIDES}
    sys.stdout.flush()
    os.execve(sys.executable, sys.orig_argv, clean)


def bind_to_cpus(count: int) -> bool:
    """Bind this process and its children to `count` CPUs, on as many cores as there are.

    JAX has no setting for its number of threads, but takes one per CPU that it may use. Returns
    False where the system cannot bind processes.
    """
    if not hasattr(os, "sched_setaffinity"):
        return False
    cpus = sorted(os.sched_getaffinity(0))
    first_of_core = [cpu for cpu in cpus if cpu == min(_siblings(cpu) & set(cpus))]
    others = [cpu for cpu in cpus if cpu not in first_of_core]
    os.sched_setaffinity(0, (first_of_core + others)[:count])
    return True


def _siblings(cpu: int) -> set[int]:
    listing = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
    if not listing.exists():
        return {cpu}
    siblings = {cpu}
    for part in listing.read_text().strip().split(","):
        low, _, high = part.partition("-")
        siblings.update(range(int(low), int(high or low) + 1))
    return siblings


def available_cpus() -> int:
    """The number of CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def is_busy() -> bool:
    """Whether other work runs here; threads that share a CPU with it hold up every barrier."""
    return hasattr(os, "getloadavg") and os.getloadavg()[0] > available_cpus() / 4


def describe(threads: int) -> dict[str, str | int]:
    """CPU, threads and versions, for the head of a report."""
    machine: dict[str, str | int] = {"cpu": _cpu_name(), "threads": threads}
    machine["python"] = platform.python_version()
    for package in ("rlx-py", "jax", "torch"):
        try:
            machine[package] = version(package)
        except PackageNotFoundError:
            continue
    return machine


def _cpu_name() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
