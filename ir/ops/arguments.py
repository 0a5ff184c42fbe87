"""Checks of the arguments and operands of layers."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx_py.ir.errors import ArgumentError, DTypeError, ShapeError
from rlx_py.ir.node import require_float
from rlx_py.ir.types import TensorType


def integer(name: str, value: Any) -> int:
    """An integer given for an attribute."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
        raise ArgumentError(f"{name} takes integers, not {value!r}")
    return int(value)


def real(name: str, value: Any) -> float:
    """A number given for an attribute."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise ArgumentError(f"{name} must be a number, not {value!r}")
    return float(value)


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
