"""Checks of the arguments and operands of layers."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from rlx_py.ir.base.dim import Dim
from rlx_py.ir.base.errors import ArgumentError, DTypeError, ShapeError
from rlx_py.ir.base.types import TensorType, listed, require_float

MOST_HELD = 2**24  # numbers that a graph holds
MOST_PARTS = 2**16  # nodes that one call makes of one node


def integer(name: str, value: Any) -> int:
    """An integer, or a size of a dynamic graph, given for an attribute."""
    if isinstance(value, Dim):
        size: Any = value
        return cast(int, size)
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
        raise ArgumentError(f"{name} takes integers, not {value!r}")
    if not -2**63 <= value < 2**63:
        raise ArgumentError(f"{name} is beyond 64 bits: {value!r}")
    return int(value)


def real(name: str, value: Any) -> float:
    """A number given for an attribute."""
    if isinstance(value, float | np.floating):
        return float(value)
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise ArgumentError(f"{name} must be a number, not {value!r}")
    return float(integer(name, value))


def number(name: str, value: Any) -> int | float:
    """A number given for an argument; an integer stays one."""
    whole = isinstance(value, int | np.integer | Dim)
    return integer(name, value) if whole else real(name, value)


def integers(name: str, value: Any) -> tuple[int, ...]:
    """One integer, or several, given for an argument."""
    if isinstance(value, int | np.integer | Dim):
        return (integer(name, value),)
    return tuple(integer(name, v) for v in listed(value, name))


def check_held(what: str, count: int) -> None:
    """Refuse numbers that the graph would hold one by one where they are too many."""
    if count > MOST_HELD:
        raise ShapeError(f"{what} of {count} numbers, more than {MOST_HELD}, is not held in the "
                         "graph; make it from iota")


def not_negative(name: str, value: Any) -> float:
    """A number ≥ 0 given for an argument."""
    found = real(name, value)
    if not found >= 0:
        raise ArgumentError(f"{name} must not be negative, not {found}")
    return found


def positive(name: str, value: Any) -> float:
    """A number > 0 given for an argument."""
    found = real(name, value)
    if not found > 0:
        raise ArgumentError(f"{name} must be positive, not {found}")
    return found


def check_axis(axis: int, x: TensorType) -> None:
    """Refuse an attribute that is no axis, counted from the first."""
    if not 0 <= axis < x.rank:
        raise ArgumentError(f"axis {axis} is out of range for rank {x.rank}")


def require_floats(op: str, *types: TensorType) -> None:
    """Refuse operands that are not all of one float type."""
    for t in types:
        require_float(op, t.dtype)
        if t.dtype is not types[0].dtype:
            raise DTypeError(f"operands differ in element type: {types[0]} and {t}")


def require_shape(what: str, type: TensorType, shape: tuple[int, ...]) -> None:
    """Refuse another shape."""
    if type.shape != shape:
        raise ShapeError(f"{what} must have shape {shape}, not {type}")
