"""The time of each kernel of a compiled program, on real values."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from rlx_py.backends.base import Array, KernelTime
from rlx_py.backends.llvm.jit import CompiledProgram, new_engine
from rlx_py.backends.llvm.program import emit_pieces
from rlx_py.backends.llvm.targets import host
from rlx_py.passes.cost import bytes_moved, flops

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
    engine = new_engine(str(emit_pieces(program, host())), host())
    kind = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)
    pieces = [kind(engine.get_function_address(f"piece{n}"))
              for n in range(len(program.kernels) + 1)]
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
        KernelTime(k.name, max(t - nothing, 0) * 1e-9, k.sources,
                   flops(alone := replace(program, kernels=(k,))), bytes_moved(alone))
        for k, t in zip(program.kernels, spent, strict=True))


def _clock(threads: int) -> Callable[[], int]:
    if threads == 1 and time.get_clock_info("thread_time").resolution <= RESOLUTION:
        return time.thread_time_ns
    return time.perf_counter_ns
