"""Arrays by name on their way into compiled code: checked, and converted where they may be."""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Mapping
from typing import Any, cast

import numpy as np

from rlx_py.backends.base import Array
from rlx_py.backends.llvm.places import Place, Places, picker
from rlx_py.ir.base.arrays import as_array
from rlx_py.ir.base.errors import ArgumentError
from rlx_py.ir.base.types import TensorType
from rlx_py.state import as_held

Buffers = list[tuple[str, Array]]


class Slots:
    """Addresses of the arrays of one call at a time."""

    def __init__(self, places: Places) -> None:
        self.found = (ctypes.c_uint64 * places.count)()
        self.frame = places.frame(ctypes.addressof(self.found))
        self.address = ctypes.addressof(self.frame)


class Intake:
    """What a function takes by name.

    held: names of arrays that are used as they lie in memory and never converted, which messages
    name as in `held_as`; written: those of them that are written. Others are converted into buffers
    that are used again; as many are kept as calls ran at once.
    """

    def __init__(self, types: Mapping[str, TensorType], *, strict: bool,
                 held: Collection[str] = (), written: Collection[str] = (),
                 held_as: str = "{!r} of the state") -> None:
        self.types, self.strict, self.held, self.written = types, strict, held, written
        self.held_as = held_as
        self.sizes = [t.nbytes for t in types.values()]
        self._pick = picker(types)
        self._places = Places([Place(t, n, k in written)
                               for n, (k, t) in enumerate(types.items())])
        self._free: list[Slots] = []
        self._spare: dict[str, list[Array]] = {k: [] for k in types}

    def take(self, given: dict[str, Any]) -> tuple[dict[str, Array], bytes, Buffers]:
        """The arrays of a call that gives all names, which may be `given` itself; their addresses;
        the buffers that some were converted into. Raises as `as_array` and `as_held`."""
        values, lent = self._pick(given), cast(Buffers, [])
        slots = self._free.pop() if self._free else Slots(self._places)
        if self._places.find(values, slots.address) < 0:
            arrays = (given if len(given) == len(values)
                      else dict(zip(self.types, values, strict=True)))
        else:
            values = tuple(self._fitting(name, value, lent)
                           for name, value in zip(self.types, values, strict=True))
            misfit = self._places.find(values, slots.address)
            if misfit >= 0:
                raise ArgumentError(f"{list(self.types)[misfit]!r} was changed while it was read")
            arrays = dict(zip(self.types, values, strict=True))
        addresses = bytes(slots.found)
        self._free.append(slots)
        return arrays, addresses, lent

    def give_back(self, lent: Buffers) -> None:
        """Let later calls convert into the buffers of one that is over."""
        for name, buffer in lent:
            self._spare[name].append(buffer)

    def _fitting(self, name: str, value: Any, lent: Buffers) -> Array:
        type = self.types[name]
        if name in self.held:
            return as_held(self.held_as.format(name), value, type, name in self.written)

        def buffer() -> Array:
            try:
                found = self._spare[name].pop()
            except IndexError:
                found = np.empty(type.shape, type.dtype.numpy)
            lent.append((name, found))
            return found

        return as_array(name, value, type, strict=self.strict, into=buffer)
