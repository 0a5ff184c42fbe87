"""Calls of a compiled step: argument structs, arenas and threads of concurrent callers."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any
from weakref import ref

import numpy as np

from rlx_py.backends.llvm.parallel import may_use_threads
from rlx_py.ir.errors import BackendError

Array = np.ndarray[Any, Any]
ALIGN = 64


class NativeStep:
    """The entry point of a step at an address, with what its argument struct holds (see layout).

    inputs: names read, in order; written: names of what follows them, each with whether it is an
    update in place, for which no array is given. `keep` is what the code lives in.
    """

    def __init__(self, name: str, address: int, inputs: Sequence[str],
                 written: Sequence[tuple[str, bool]], arena_bytes: int, parallel_for: int,
                 threads: int, keep: object) -> None:
        self.name, self.arena_bytes, self.threads = name, arena_bytes, threads
        self.parallel_for = parallel_for
        self.count = len(inputs) + len(written)
        self.entry = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(address)
        self._inputs, self._keep = inputs, keep
        self._out = [(len(inputs) + n, name) for n, (name, in_place) in enumerate(written)
                     if not in_place]
        self._free: list[Call] = []

    def run(self, arrays: dict[str, Array], out: dict[str, Array]) -> None:
        """Fill `out` from `arrays`, both C-contiguous, of the right types and shapes."""
        # No lock: a list gives an element to one thread alone, and in a child of fork none is held.
        try:
            call = self._free.pop()
        except IndexError:
            call = Call(self)
        slots = call.slots
        if not may_use_threads():
            slots[self.count + 1] = 0
        seen = call.seen
        for n, name in enumerate(self._inputs):
            array = arrays[name]
            if seen[n]() is not array:
                # Asking NumPy for an address takes longer than all else here. An array that has a
                # weak reference can't be resized, so the address stays its own.
                seen[n] = ref(array)
                slots[n] = address_of(array)
        for n, name in self._out:
            slots[n] = address_of(out[name])
        status = self.entry(call.address)
        self._free.append(call)
        if status:
            raise BackendError(f"{self.name}: the compiled step stopped with {status}")

    def bind(self, arrays: dict[str, Array], out: dict[str, Array]) -> Call:
        """An argument struct and arena apart from those of `run`. It keeps no array alive."""
        call = Call(self)
        if not may_use_threads():
            call.slots[self.count + 1] = 0
        for n, name in enumerate(self._inputs):
            call.slots[n] = address_of(arrays[name])
        for n, name in self._out:
            call.slots[n] = address_of(out[name])
        return call


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
        self.seen: list[Callable[[], Array | None]] = [_nothing] * step.count


def address_of(array: Array) -> int:
    """Where the elements of an array start."""
    address: int = array.__array_interface__["data"][0]
    return address


def _nothing() -> None:
    """A reference to no array."""
