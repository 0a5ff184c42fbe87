"""Arrays in other element types; floats are rounded once to nearest, ties to even."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx_py.ir.base.types import DType, bf16

Array = np.ndarray[Any, Any]


def rounded(x: Array, dtype: DType) -> Array:
    """An array of numbers in a float type; beyond its range infinite, without warnings.

    NumPy's way from f64 to bf16 leads through f32 and rounds twice. Of the two f32 beside a number
    that is none, the one with an odd last bit rounds as the number itself does (Boldo and
    Melquiond 2008).
    """
    with np.errstate(all="ignore"):
        if dtype is not bf16 or x.dtype != np.float64:
            return np.asarray(x.astype(dtype.numpy))
        near = x.astype(np.float32)
        other = np.nextafter(near, np.where(near < x, np.float32(np.inf), np.float32(-np.inf)))
        even = near.view(np.uint32) % 2 == 0
        between = np.isfinite(near) & (near != x)
        return np.asarray(np.where(between & even, other, near).astype(dtype.numpy))


def convert_array(x: Any, dtype: DType) -> Array:
    """An array in another element type: float → int truncates and saturates, NaN gives 0; int → int
    wraps; anything → bool is `!= 0`."""
    x = np.asarray(x)
    with np.errstate(all="ignore"):
        if dtype.kind == "bool":
            return np.asarray(x != 0)
        if x.dtype.kind in "biu" or not dtype.is_int:
            return rounded(x, dtype)
        # f64 holds every narrower float, and the bounds below are powers of two.
        limits, whole = np.iinfo(dtype.numpy), np.trunc(x.astype(np.float64))
        low, high = float(limits.min), float(limits.max // 2 + 1) * 2
        inside = np.where((whole > low) & (whole < high), whole, 0).astype(dtype.numpy)
        edge = np.where(whole >= high, limits.max, np.where(whole <= low, limits.min, inside))
        return np.asarray(edge.astype(dtype.numpy))
