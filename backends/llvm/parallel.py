"""Threads for compiled programs: the OpenMP runtime of this process, if there is one.

A parallel loop is one fork and join of the runtime's own team, which it shares with every other
library; Python is never called from its threads.
"""

from __future__ import annotations

import ctypes
import os
import sys
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import llvmlite.binding as llvm
import llvmlite.ir as ll

from rlx_py.backends.llvm.frame import PTR, VOID
from rlx_py.backends.llvm.layout import body_type, parallel_for_type
from rlx_py.backends.llvm.outline import call_through
from rlx_py.backends.llvm.scalars import I32, I64
from rlx_py.backends.llvm.targets import host, machine

NAMES = {
    "linux": ("libgomp.so.1", "libomp.so", "libomp.so.5", "libiomp5.so"),
    "darwin": ("libomp.dylib", "/opt/homebrew/opt/libomp/lib/libomp.dylib",
               "/usr/local/opt/libomp/lib/libomp.dylib", "libiomp5.dylib"),
    "win32": ("libiomp5md.dll", "libomp140.x86_64.dll", "libomp.dll"),
}
RUNTIMES = ("libgomp", "libomp", "libiomp5")


@dataclass(frozen=True)
class OpenMP:
    """Addresses of a runtime's functions; all of them export the entry points of libgomp."""

    path: str
    parallel: int  # void GOMP_parallel(void (*)(void*), void*, unsigned threads, unsigned flags)
    thread: int  # int omp_get_thread_num(void)
    team: int  # int omp_get_num_threads(void)
    processors: int  # what omp_get_max_threads says at first


class _Process:
    """Whether threads of the runtime can still be used."""

    forked = False


def _after_fork() -> None:
    # libgomp waits for ever for a team that the child does not have.
    _Process.forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def loaded_libraries() -> list[str]:
    """Paths of OpenMP runtimes that some library of this process has already loaded."""
    maps = Path("/proc/self/maps")
    if not maps.exists():
        return []
    found = {
        line.split(None, 5)[-1] for line in maps.read_text().splitlines() if "/" in line
    }
    return sorted(p for p in found if Path(p).name.startswith(RUNTIMES))


def candidates() -> Iterable[str]:
    """Runtimes to try: one that is loaded first, since two in one process fight over the cores."""
    yield from loaded_libraries()
    yield from NAMES.get(sys.platform, NAMES["linux"])


@cache
def openmp() -> OpenMP | None:
    """The runtime of this process; None, said once as a warning, if there is none."""
    for path in candidates():
        found = _open(path)
        if found is not None:
            return found
    warnings.warn("no OpenMP runtime found (libgomp, libomp, libiomp5): compiled programs run on "
                  "one thread", RuntimeWarning, stacklevel=2)
    return None


def _open(path: str) -> OpenMP | None:
    try:
        library = ctypes.CDLL(path)
        parallel, thread, team = (
            ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0
            for name in ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")
        )
        processors = int(library.omp_get_max_threads())
    except (OSError, AttributeError):
        return None
    return OpenMP(path, parallel, thread, team, processors)


def team_size(threads: int | None) -> int:
    """Threads to use: as many as asked for (None: as the runtime offers); 1 without one."""
    if threads == 1 or _Process.forked:
        return 1
    runtime = openmp()
    if runtime is None:
        return 1
    return runtime.processors if threads is None else threads


def parallel_for(threads: int) -> int:
    """The address of a parallel_for on at most that many threads; 0, for serial, if that is 1."""
    if threads <= 1 or _Process.forked:
        return 0
    runtime = openmp()
    return _compiled(runtime, threads)[1] if runtime else 0


def may_use_threads() -> bool:
    """False in a child of fork, where the runtime's team is gone."""
    return not _Process.forked


@cache
def _compiled(runtime: OpenMP, threads: int) -> tuple[llvm.ExecutionEngine, int]:
    module = llvm.parse_assembly(str(emit_parallel_for(runtime, threads)))
    module.verify()
    engine = llvm.create_mcjit_compiler(module, machine(host()))
    engine.finalize_object()
    return engine, engine.get_function_address("parallel_for")


def emit_parallel_for(runtime: OpenMP, threads: int) -> ll.Module:
    """void parallel_for(body, context, blocks): blocks split evenly over the team, in order.

    Which thread runs a block changes no result: blocks are cut by the program, not by the team.
    """
    module = ll.Module("parallel_for")
    module.triple = host().triple
    work = ll.Function(module, ll.FunctionType(VOID, [PTR]), "work")
    work.linkage = "internal"
    _emit_work(work, runtime)
    function = ll.Function(module, parallel_for_type(), "parallel_for")
    body, context, blocks = function.args
    b = ll.IRBuilder(function.append_basic_block("entry"))
    job = b.alloca(ll.ArrayType(I64, 3))
    job.type = PTR
    for n, value in enumerate((body, context, blocks)):
        b.store(value, b.gep(job, [I64(n)], source_etype=I64))
    most = I64(threads)
    team = b.select(b.icmp_signed("<", blocks, most), blocks, most)
    kind = ll.FunctionType(VOID, [PTR, PTR, I32, I32])
    call_through(b, _address(runtime.parallel), kind, [work, job, b.trunc(team, I32), I32(0)])
    b.ret_void()
    return module


def _emit_work(work: ll.Function, runtime: OpenMP) -> None:
    b = ll.IRBuilder(work.append_basic_block("entry"))
    (job,) = work.args
    body, context, blocks = (
        b.load(b.gep(job, [I64(n)], source_etype=I64), typ=kind)
        for n, kind in enumerate((PTR, PTR, I64))
    )
    query = ll.FunctionType(I32, [])
    thread = call_through(b, _address(runtime.thread), query, [])
    team = b.sext(call_through(b, _address(runtime.team), query, []), I64)
    first = b.sext(thread, I64)
    begin = b.udiv(b.mul(blocks, first), team)
    end = b.udiv(b.mul(blocks, b.add(first, I64(1))), team)
    call_through(b, body, body_type(), [context, begin, end, thread])
    b.ret_void()


def _address(value: int) -> ll.Value:
    return I64(value).inttoptr(PTR)
