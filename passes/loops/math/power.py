"""pow: e^(y log |x|) with the logarithm to more bits than the format, and the cases of C99."""

from __future__ import annotations

import math
from typing import TypeVar

from rlx_py.passes.loops.math.arithmetic import two_product
from rlx_py.passes.loops.math.exponential import clamp, exp, exp_pair
from rlx_py.passes.loops.math.logarithm import log, log_pair
from rlx_py.passes.loops.math.scalars import Scalars

T = TypeVar("T")


def power_f32(s: Scalars[T], a: T, y: T) -> T:
    """a^y for 0 < a < inf, in f64: 53 bits of log a leave 2^-45 of the largest result."""
    # Beyond 2^40 no result is finite and other than 0 or 1; infinity times log 1 would be NaN.
    y = clamp(s, y, -(2.0**40), 2.0**40, "f32")
    exponent = s.mul(s.cast(y, "f64"), log(s, s.cast(a, "f64"), "f64"))
    return s.cast(exp(s, exponent, "f64"), "f32")


def power_f64(s: Scalars[T], a: T, y: T) -> T:
    """a^y for 0 < a < inf: the exponent is a pair, exact to 2^-64 of itself."""
    high_log, low_log = log_pair(s, a)
    # No result is finite and other than 0 or 1 beyond: |log a| is 0 or at least 2^-53.
    y = clamp(s, y, -(2.0**66), 2.0**66, "f64")
    high, low = two_product(s, y, high_log)
    low = s.fma(y, low_log, low)
    in_range = s.lt(s.abs(high), s.const(1000.0, "f64"))
    p, scale = exp_pair(s, (high, s.select(in_range, low, s.const(0.0, "f64"))), "f64")
    return s.mul(s.mul(s.add(p[0], p[1]), scale), scale)


def pow(s: Scalars[T], x: T, y: T, dtype: str) -> T:
    """x^y, with the special cases of C99 (and of NumPy).

    Measured: 0.51 ulp in f32, 0.9 in f64.
    """
    a = s.abs(x)
    z = power_f32(s, a, y) if dtype == "f32" else power_f64(s, a, y)
    zero, one, inf, nan = (s.const(v, dtype) for v in (0.0, 1.0, math.inf, math.nan))
    extreme = s.or_(s.eq(a, zero), s.eq(a, inf))
    # 0 to a negative power and inf to a positive one.
    grows = s.select(s.gt(a, one), s.gt(y, zero), s.lt(y, zero))
    z = s.select(extreme, s.select(grows, inf, zero), z)
    half = s.mul(y, s.const(0.5, dtype))
    whole = s.eq(s.floor(y), y)
    odd = s.and_(whole, s.ne(s.floor(half), half))
    z = s.select(odd, s.copysign(z, x), z)
    undefined = s.and_(s.and_(s.lt(x, zero), s.gt(x, s.neg(inf))), s.not_(whole))
    undefined = s.or_(undefined, s.or_(s.ne(x, x), s.ne(y, y)))
    z = s.select(undefined, nan, z)
    return s.select(s.or_(s.eq(x, one), s.eq(y, zero)), one, z)
