"""The time of each kernel of a compiled program, on real values."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from rlx_py.backends.base import Array, KernelTime
from rlx_py.backends.llvm.jit import Code, CompiledProgram
from rlx_py.backends.llvm.program import emit_pieces
from rlx_py.backends.llvm.targets import host
from rlx_py.ir.loops.program import Program, items, part_of
from rlx_py.ir.nodes.node import Location
from rlx_py.passes.analysis.cost import bytes_moved, flops

SECONDS = 0.5
ROUNDS = 5
# A coarser clock than this, as Windows has for threads, does not see a kernel.
RESOLUTION = 1e-6


def kernel_times(compiled: CompiledProgram, arrays: dict[str, Array], out: dict[str, Array]
                 ) -> tuple[KernelTime, ...]:
    """Run the program's kernels one by one for about half a second; the least time of each.

    Every round starts from the same values, so updates in place do not add up. What a call of no
    kernel takes is subtracted. One thread is measured in its CPU time, a team by the clock. The
    arrays that the program updates are changed as by one run.
    """
    program = compiled.program
    held: dict[str, Array] = {}
    code = Code(str(emit_pieces(program, host(), held)), host(), held)
    kind = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)
    found = pieces_of(program)
    pieces = [kind(code.engine.get_function_address(f"piece{n}")) for n in range(len(found) + 1)]
    bound = compiled.step.bind(arrays, out)
    first = {p.name: arrays[p.name].copy() for p in program.updates}
    clock = _clock(compiled.threads)
    least = [2**63] * len(pieces)
    rounds, end = 0, time.perf_counter() + SECONDS
    while rounds < ROUNDS or time.perf_counter() < end:
        for name, value in first.items():
            np.copyto(arrays[name], value)
        for n, piece in enumerate(pieces):
            start = clock()
            piece(bound.address)
            least[n] = min(least[n], clock() - start)
        rounds += 1
    *spent, nothing = least
    return tuple(
        KernelTime(name, max(t - nothing, 0) * 1e-9, sources, flops(alone), bytes_moved(alone))
        for (name, sources, alone), t in zip(found, spent, strict=True))


def pieces_of(program: Program) -> list[tuple[str, tuple[Location, ...], Program]]:
    """The name, the user's lines and the program of each outermost kernel or region."""
    found = []
    for item in items(program):
        if isinstance(item, int):
            kernel = program.kernels[item]
            alone = replace(program, kernels=(kernel,), regions=())
            found.append((kernel.name, kernel.sources, alone))
            continue
        region = item[0]
        kernels = program.kernels[region.first:region.last]
        lines = tuple(dict.fromkeys(line for k in kernels for line in k.sources))
        name = f"{type(region).__name__.lower()}_{kernels[0].name}"
        found.append((name, lines, part_of(program, region.first, region.last)))
    return found


def _clock(threads: int) -> Callable[[], int]:
    if threads == 1 and time.get_clock_info("thread_time").resolution <= RESOLUTION:
        return time.thread_time_ns
    return time.perf_counter_ns
