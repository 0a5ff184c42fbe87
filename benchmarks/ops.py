"""`python -m benchmarks.ops [part of a name …]`: single operations against NumPy, PyTorch and JAX.

The systems take turns in short rounds in one process, so that slow spells of the machine hit all
alike; a ratio is the median over the rounds of rlx's time over that of the best peer (below 1:
faster). Every result is checked against the first peer's before it is timed. On a busy machine use
`--cpu-time --threads 1`: the processor time of the whole process, which other work does not
lengthen.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import operator
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

import rlx_py as rlx
from benchmarks.machine import available_cpus, bind_to_cpus, restart_without_overrides
from benchmarks.row import Row
from benchmarks.rows import rows

PEERS = ("numpy", "torch", "jax")
Run = Callable[[], Any]
Clock = Callable[[], float]
SLOW = 1.0  # seconds of a call that is timed once
Results = tuple[np.ndarray[Any, Any], ...]


def rlx_run(row: Row, threads: int) -> Run:
    """A call of the row's graph; it gives a tuple of arrays."""
    graph = rlx.Graph("row")
    nodes = {name: graph.input(name, array.shape, array.dtype)
             for name, array in row.arrays.items() if name != "ct_out"}
    graph.output("out", row.rlx(*nodes.values()))
    names = ["out"]
    if row.wrt:
        graph = rlx.vjp(graph, wrt=row.wrt)
        names = [f"grad_{name}" for name in row.wrt]
    exe = rlx.compile(graph, threads=threads)
    given = {name: row.arrays[name] for name in graph.inputs}
    return lambda: operator.itemgetter(*names)(exe(**given))


def peer_run(row: Row, peer: str) -> Run | None:
    """A call of the row in a peer; None where the peer has no such operation."""
    make = getattr(row, peer)
    if make is None:
        return None
    module = importlib.import_module(peer)
    function = make(module)
    if peer == "numpy":
        return lambda: function(*row.arrays.values())
    if peer == "torch":
        tensors = [module.from_numpy(x) for x in row.arrays.values()]
        return lambda: function(*tensors)
    jitted = module.jit(function)
    arrays = [module.numpy.asarray(x) for x in row.arrays.values()]
    return lambda: module.block_until_ready(jitted(*arrays))


def results(value: Any) -> Results:
    """What a call gave, as NumPy arrays."""
    several = value if isinstance(value, tuple | list) else (value,)
    return tuple(np.asarray(v.numpy() if hasattr(v, "numpy") else v) for v in several)


def check(row: Row, system: str, got: Results, want: Results) -> None:
    """Raise ValueError where two systems differ by more than 1e-4 of the greatest element."""
    for x, y in zip(got, want, strict=True):
        scale = float(np.abs(y).max(initial=0))
        if x.shape != y.shape or not np.allclose(x, y, rtol=0, atol=1e-4 * scale):
            raise ValueError(f"{row.name}: {system} differs from the first peer")


def seconds(call: Run, times: int, clock: Clock) -> float:
    """Mean time of a call."""
    start = clock()
    for _ in range(times):
        call()
    return (clock() - start) / times


def warm_seconds(call: Run, times: int, clock: Clock) -> float:
    """`seconds` after a call that brings the arrays back into the caches."""
    call()
    return seconds(call, times, clock)


def measure(row: Row, peers: Iterable[str], options: argparse.Namespace) -> str:
    """A line of the table: best µs of each system, and the ratio to the best peer."""
    found = {peer: peer_run(row, peer) for peer in peers}
    runs = {"rlx": rlx_run(row, options.threads)} | {
        peer: run for peer, run in found.items() if run is not None}
    answers = {name: results(run()) for name, run in runs.items()}
    if len(answers) > 1:
        want = next(answer for name, answer in answers.items() if name != "rlx")
        for name, answer in answers.items():
            check(row, name, answer, want)
    clock = time.process_time if options.cpu_time else time.perf_counter
    once = {name: max(seconds(run, 1, clock), 1e-6) for name, run in runs.items()}
    times = {name: max(1, int(options.seconds / s)) for name, s in once.items()}
    longest = max((s for s in once.values() if s < SLOW), default=SLOW)
    rounds = max(1, min(options.rounds, int(20 * options.seconds * options.rounds / longest)))
    turns = [{name: once[name] if once[name] >= SLOW else warm_seconds(run, times[name], clock)
              for name, run in runs.items()} for _ in range(rounds)]
    best = {name: min(turn[name] for turn in turns) for name in runs}
    line = f"{row.name:22}" + "".join(
        f" {best[name] * 1e6:11.1f}" if name in best else f" {'-':>11}"
        for name in ("rlx", *PEERS))
    if len(best) == 1:
        return line
    peer = min((name for name in best if name != "rlx"), key=best.__getitem__)
    ratio = sorted(turn["rlx"] / turn[peer] for turn in turns)[len(turns) // 2]
    return f"{line} {ratio:7.2f} of {peer}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ops", description=__doc__)
    parser.add_argument("names", nargs="*", help="parts of names of rows; none is all")
    parser.add_argument("--threads", type=int, default=2, help="threads per system (2)")
    parser.add_argument("--rounds", type=int, default=15, help="turns per system (15)")
    parser.add_argument("--seconds", type=float, default=0.01, help="length of a turn (0.01)")
    parser.add_argument("--cpu-time", action="store_true", help="processor time, not wall clock")
    parser.add_argument("--peers", default=",".join(PEERS), help="which of " + ",".join(PEERS))
    options = parser.parse_args(arguments)
    restart_without_overrides()
    options.threads = min(options.threads, available_cpus())
    bind_to_cpus(options.threads)
    peers = [p for p in options.peers.split(",") if p]
    if unknown := set(peers) - set(PEERS):
        parser.error(f"unknown peers {sorted(unknown)}; there are {', '.join(PEERS)}")
    peers = [p for p in peers if importlib.util.find_spec(p) is not None]
    if "torch" in peers:
        importlib.import_module("torch").set_num_threads(options.threads)
    print(f"{'operation, best us':22}" + "".join(f" {s:>11}" for s in ("rlx", *PEERS))
          + "   ratio")
    for row in rows():
        if not options.names or any(part in row.name for part in options.names):
            print(measure(row, peers, options), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
