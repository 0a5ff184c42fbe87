"""Arrays beside memory that may not be touched, and an arena full of rubbish."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from rlx_py.backends.llvm.jit import CompiledProgram
from rlx_py.backends.llvm.native import ALIGN

Array = np.ndarray[Any, Any]
PAGE = mmap.PAGESIZE
NONE, READ_WRITE = 0, mmap.PROT_READ | mmap.PROT_WRITE


class Guarded:
    """Memory between two pages that may not be touched.

    at: "end", where the first byte behind the array is forbidden, or "start", where the last one
    before it is.
    """

    def __init__(self, at: str) -> None:
        self.at = at
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.closed: list[int] = []

    def array(self, like: Array) -> Array:
        """A copy of an array."""
        made = self.memory(like.nbytes, like.dtype.itemsize).view(like.dtype).reshape(like.shape)
        made[...] = like
        return made

    def memory(self, size: int, alignment: int) -> Array:
        """So many bytes, aligned, as near to the forbidden page as that allows."""
        pages = -(-size // PAGE) or 1
        region = mmap.mmap(-1, (pages + 2) * PAGE)
        base = ctypes.addressof(ctypes.c_char.from_buffer(region))
        for place in (base, base + (pages + 1) * PAGE):
            self._protect(place, NONE)
            self.closed.append(place)
        offset = PAGE
        if self.at == "end":
            offset += (pages * PAGE - size) // alignment * alignment
        return np.frombuffer(region, np.uint8, size, offset)

    def _protect(self, place: int, rights: int) -> None:
        if self.libc.mprotect(ctypes.c_void_p(place), ctypes.c_size_t(PAGE), rights):
            raise OSError(ctypes.get_errno(), "mprotect")


@contextmanager
def guarded(at: str) -> Iterator[Guarded]:
    """Guarded memory whose pages are opened again at the end, so that nothing trips later."""
    made = Guarded(at)
    try:
        yield made
    finally:
        for place in made.closed:
            made._protect(place, READ_WRITE)


def run_guarded(compiled: CompiledProgram, feed: dict[str, Array], at: str,
                rubbish: int) -> dict[str, Array]:
    """The outputs of a program whose arrays and arena are guarded, and start as this byte."""
    step = compiled.step
    with guarded(at) as memory:
        arrays = {k: memory.array(a) for k, a in feed.items()}
        out = {p.name: memory.array(np.full(p.buffer.nbytes, rubbish, np.uint8).view(
            p.buffer.dtype.numpy).reshape(p.shape)) for p in compiled.program.outputs}
        call = step.bind(arrays, out)
        arena = memory.memory(-(-step.arena_bytes // ALIGN) * ALIGN, ALIGN)
        arena[...] = rubbish
        call.slots[step.count] = arena.ctypes.data
        assert step.entry(call.address) == 0
        for name, array in arrays.items():
            assert array.tobytes() == feed[name].tobytes(), f"{name} was written"
        return {k: a.copy() for k, a in out.items()}
