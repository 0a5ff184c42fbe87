"""Attribute values as keys: arrays, and numbers that Python would take for equal."""

from __future__ import annotations

from typing import Any

import numpy as np


class Literal:
    """An immutable array as an attribute value, compared by its bytes."""

    __slots__ = ("array", "key")

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        # A copy, because a view of a caller's array could change after interning.
        self.array = np.array(array, order="C", copy=True)
        self.array.setflags(write=False)
        self.key = (self.array.dtype.str, self.array.dtype.name, self.array.shape,
                    self.array.tobytes())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Literal) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        return f"Literal({self.array!r})"


def attr_key(value: Any) -> Any:
    """A hashable key under which equal attribute values meet, and 0.0, -0.0 and 0 do not."""
    if isinstance(value, float):
        return ("float", value.hex())
    if isinstance(value, bool | int):
        return (type(value).__name__, value)
    if isinstance(value, tuple):
        return tuple(attr_key(v) for v in value)
    return value
