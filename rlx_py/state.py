"""What a step keeps: the arrays that it updates in place."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx_py.backends.base import Array
from rlx_py.ir.base.arrays import described
from rlx_py.ir.base.errors import ArgumentError, DTypeError, ShapeError
from rlx_py.ir.base.types import TensorType


class State:
    """Arrays that a step updates in place: `params`, `states` (optimiser moments, averages …).

    copy.copy and copy.deepcopy copy the arrays; a pickle holds them.
    """

    def __init__(self, params: dict[str, Array], states: dict[str, Array]) -> None:
        self.params, self.states = params, states

    def __copy__(self) -> State:
        return State({k: v.copy() for k, v in self.params.items()},
                     {k: v.copy() for k, v in self.states.items()})

    def __repr__(self) -> str:
        return f"State(params={list(self.params)}, states={list(self.states)})"


def as_held(what: str, array: Any, type: TensorType, written: bool) -> Array:
    """An array as it lies in memory, which must be of its type exactly.

    Raises ShapeError, DTypeError, ArgumentError (no array, another layout, read-only where it is
    written).
    """
    if not isinstance(array, np.ndarray):
        raise ArgumentError(f"{what} is {array.__class__.__name__}, not an array of {type}")
    if array.shape != type.shape or array.dtype != type.dtype.numpy:
        error = ShapeError if array.shape != type.shape else DTypeError
        raise error(f"{what} must be {type}, not {described(array)}; what is in place is never "
                    f"converted: .astype({type.dtype.numpy.name!r}) or exe.init makes a copy")
    if not array.flags.c_contiguous or not array.flags.aligned:
        raise ArgumentError(f"{what} is used in place and must be C-contiguous and aligned: "
                            f".copy() makes an array that is")
    if written and not array.flags.writeable:
        raise ArgumentError(f"{what} is read-only, and the call writes it: give a .copy()")
    return np.asarray(array).view(type.dtype.numpy)


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes of memory, and whether they are written."""

    start: int
    size: int
    name: str
    written: bool


class Apart:
    """Spans of which none that is written shares memory with another."""

    def __init__(self, spans: Iterable[Span]) -> None:
        """Raises ArgumentError where two share memory."""
        self.starts: list[int] = []
        self.ends: list[int] = []
        last = last_written = (0, "")
        for s in sorted((s for s in spans if s.size), key=lambda s: s.start):
            other = last if s.written else last_written
            if s.start < other[0]:
                raise ArgumentError(f"{other[1]} and {s.name} share memory, which the call writes: "
                                    f"give each an array of its own, such as a .copy()")
            end = s.start + s.size
            last = max(last, (end, s.name))
            if s.written:
                last_written = max(last_written, (end, s.name))
                self.starts.append(s.start)
                self.ends.append(end)

    def touches(self, start: int, size: int) -> bool:
        """Whether memory is shared with a span that is written."""
        n = bisect_left(self.starts, start + size) - 1
        return n >= 0 and size > 0 and self.ends[n] > start
