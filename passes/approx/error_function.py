"""erf and erfc.

erfc x = exp(-x²) P(t) / (1 + 2x) for x >= 0 with t = (x - c) / (x + c), which maps the half-line
to a bounded interval where (1 + 2x) exp(x²) erfc x is smooth (Shepherd and Laframboise, 1981).
"""

from __future__ import annotations

from typing import TypeVar

from rlx_py.passes.approx.arithmetic import (
    fast_two_sum,
    pair_divide,
    pair_multiply,
    polynomial,
    two_product,
    two_sum,
)
from rlx_py.passes.approx.builder import Scalars
from rlx_py.passes.approx.coefficients import ERF_F32, ERF_F64, ERF_OUTER_F32, ERFC_F32, ERFC_F64
from rlx_py.passes.approx.exponential import exp_pair

T = TypeVar("T")
ERF = {"f32": ERF_F32, "f64": ERF_F64}
ERFC = {"f32": ERFC_F32, "f64": ERFC_F64}
CENTRE = {"f32": 2.0, "f64": 4.0}
ERF_ONE = 3.92
"""Where erf rounds to 1 in f32."""
ERFC_ZERO = {"f32": 10.5, "f64": 28.0}
"""Where erfc underflows to 0."""


def erfc_of_positive(s: Scalars[T], x: T, dtype: str) -> T:
    """erfc x for x >= 0; NaN stays."""
    x = s.min(s.const(ERFC_ZERO[dtype], dtype), x)
    centre, one = s.const(CENTRE[dtype], dtype), s.const(1.0, dtype)
    t = s.div(s.sub(x, centre), s.add(x, centre))
    table = ERFC[dtype]
    tail = s.mul(t, polynomial(s, t, table[1:], dtype))
    numerator = fast_two_sum(s, s.const(table[0], dtype), tail)
    scaled = pair_divide(s, numerator, two_sum(s, one, s.add(x, x)))
    high, low = two_product(s, x, x)
    p, scale = exp_pair(s, (s.neg(high), s.neg(low)), dtype)
    high, low = pair_multiply(s, p, scaled)
    return s.mul(s.mul(s.add(high, low), scale), scale)


def erf_near(s: Scalars[T], a: T, dtype: str) -> T:
    """erf a for |a| <= 1."""
    return s.fma(a, polynomial(s, s.mul(a, a), ERF[dtype], dtype), a)


def erf(s: Scalars[T], x: T, dtype: str) -> T:
    """The error function; in f32 two polynomials and no exponential.

    Measured: 1.4 ulp in f32, 1.0 in f64.
    """
    a = s.abs(x)
    near = erf_near(s, a, dtype)
    if dtype == "f32":
        far = polynomial(s, s.sub(a, s.const(2.5, dtype)), ERF_OUTER_F32, dtype)
        far = s.select(s.gt(a, s.const(ERF_ONE, dtype)), s.const(1.0, dtype), far)
    else:
        far = s.sub(s.const(1.0, dtype), erfc_of_positive(s, a, dtype))
    return s.copysign(s.select(s.lt(a, s.const(1.0, dtype)), near, far), x)


def erfc(s: Scalars[T], x: T, dtype: str) -> T:
    """The complementary error function, relatively accurate until it underflows.

    Measured: 1.4 ulp in f32, 1.5 in f64.
    """
    a = s.abs(x)
    y = erfc_of_positive(s, a, dtype)
    y = s.select(s.lt(x, s.const(0.0, dtype)), s.sub(s.const(2.0, dtype), y), y)
    near = s.sub(s.const(1.0, dtype), erf_near(s, x, dtype))
    return s.select(s.lt(a, s.const(0.45, dtype)), near, y)
