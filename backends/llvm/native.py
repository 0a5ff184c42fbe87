"""Calls of a compiled step: argument structs, arenas and threads of concurrent callers."""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from rlx_py.backends.llvm.parallel import may_use_threads
from rlx_py.backends.llvm.places import Place, Places, picker
from rlx_py.ir.base.errors import ArgumentError, BackendError
from rlx_py.ir.base.types import TensorType

Array = np.ndarray[Any, Any]
ALIGN = 64


class NativeStep:
    """The entry point of a step at an address, with what its argument struct holds (see layout).

    inputs: types of what is read, by name, in order; changed: those of them that are written too.
    written: names and types of what follows, None where that is an input's own array. `keep` is
    what the code lives in.
    """

    def __init__(self, name: str, address: int, inputs: Mapping[str, TensorType],
                 changed: Collection[str], written: Sequence[tuple[str, TensorType] | None],
                 arena_bytes: int, parallel_for: int, threads: int, keep: object) -> None:
        self.name, self.arena_bytes, self.threads = name, arena_bytes, threads
        self.parallel_for = parallel_for
        self.count = len(inputs) + len(written)
        self.entry = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(address)
        self._keep = keep
        out = [(n, *w) for n, w in enumerate(written, len(inputs)) if w is not None]
        self._names = [*inputs, *(name for _, name, _ in out)]
        self._inputs, self._out = picker(inputs), picker(self._names[len(inputs):])
        self.places = Places([
            *(Place(t, n, k in changed) for n, (k, t) in enumerate(inputs.items())),
            *(Place(t, n, True) for n, _, t in out)])
        self._free: list[Call] = []

    def run(self, arrays: dict[str, Array], out: dict[str, Array]) -> None:
        """Fill `out` from `arrays`, both C-contiguous, of the right types and shapes."""
        # No lock: a list gives an element to one thread alone, and in a child of fork none is held.
        try:
            call = self._free.pop()
        except IndexError:
            call = Call(self)
        self._fill(call, arrays, out)
        status = self.entry(call.address)
        self._free.append(call)
        if status:
            raise BackendError(f"{self.name}: the compiled step stopped with {status}")

    def bind(self, arrays: dict[str, Array], out: dict[str, Array]) -> Call:
        """An argument struct and arena apart from those of `run`. It keeps no array alive."""
        call = Call(self)
        self._fill(call, arrays, out)
        return call

    def _fill(self, call: Call, arrays: dict[str, Array], out: dict[str, Array]) -> None:
        if not may_use_threads():
            call.slots[self.count + 1] = 0
        # What was checked before may have been changed by another thread since.
        misfit = self.places.find((*self._inputs(arrays), *self._out(out)), call.frame_address)
        if misfit >= 0:
            raise ArgumentError(f"{self.name}: {self._names[misfit]!r} is not the array that the "
                                f"step was compiled for")


class Call:
    """Arena and argument struct of one caller at a time."""

    def __init__(self, step: NativeStep) -> None:
        self.memory = np.empty(step.arena_bytes + ALIGN, np.uint8)
        self.slots = (ctypes.c_uint64 * (step.count + 3))()
        base = self.memory.ctypes.data
        self.slots[step.count] = base + -base % ALIGN
        self.slots[step.count + 1] = step.parallel_for
        self.slots[step.count + 2] = step.threads
        self.address = ctypes.addressof(self.slots)
        self.frame = step.places.frame(self.address)
        self.frame_address = ctypes.addressof(self.frame)
