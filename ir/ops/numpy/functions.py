"""Elementary and special functions for users, with NumPy's and SciPy's names and meaning.

Operands may be nodes, arrays or Python scalars; integers and bools are computed in f32.
"""

from __future__ import annotations

import math
from typing import Any

from rlx_py.ir.nodes.node import Node
from rlx_py.ir.ops.making.located import located
from rlx_py.ir.ops.numpy.arithmetic import floating, floats_together
from rlx_py.ir.ops.primitive import elementwise as ew
from rlx_py.ir.ops.primitive import special
from rlx_py.ir.ops.primitive.compare import AND, EQ, GE, OR
from rlx_py.ir.ops.primitive.elementwise import SELECT, fill

# ---- exponentials, logarithms, roots ---------------------------------------------------------


@located
def exp(x: Any) -> Node:
    """e to the power x."""
    return ew.EXP(floating(x))


@located
def exp2(x: Any) -> Node:
    """2 to the power x."""
    return ew.EXP2(floating(x))


@located
def expm1(x: Any) -> Node:
    """eˣ − 1, accurate near 0."""
    return ew.EXPM1(floating(x))


@located
def log(x: Any) -> Node:
    """The natural logarithm."""
    return ew.LOG(floating(x))


@located
def log2(x: Any) -> Node:
    """The logarithm to base 2, as log x·(1/log 2)."""
    node = floating(x)
    return ew.MUL(ew.LOG(node), fill(node, 1 / math.log(2)))


@located
def log10(x: Any) -> Node:
    """The logarithm to base 10, as log x·(1/log 10)."""
    node = floating(x)
    return ew.MUL(ew.LOG(node), fill(node, 1 / math.log(10)))


@located
def log1p(x: Any) -> Node:
    """log(1 + x), accurate near 0."""
    return ew.LOG1P(floating(x))


@located
def logaddexp(x1: Any, x2: Any) -> Node:
    """log(e^x1 + e^x2); −inf and without gradient where both are −inf.

    hi + log1p(exp(lo − hi)) is one smooth function whichever is called hi, so every derivative is
    right at a tie too. Softplus is logaddexp(x, 0).
    """
    a, b = floats_together(x1, x2)
    first = GE(a, b)
    hi, lo = SELECT(first, a, b), SELECT(first, b, a)
    # Only equal infinities have no difference; a NaN, or a lone infinity above, is in every slope.
    same = AND(EQ(hi, lo), EQ(ew.ABS(lo), fill(a, math.inf)))
    shift = SELECT(same, fill(a, 0), hi)
    bottom = fill(a, -math.inf)
    top = SELECT(EQ(hi, bottom), bottom, hi)
    return ew.ADD(top, ew.LOG1P(ew.EXP(ew.SUB(lo, shift))))


@located
def sqrt(x: Any) -> Node:
    """The square root."""
    return ew.SQRT(floating(x))


@located
def rsqrt(x: Any) -> Node:
    """1/√x."""
    return ew.RSQRT(floating(x))


@located
def hypot(x1: Any, x2: Any) -> Node:
    """√(x1² + x2²) without overflow, with gradient 0 at the origin and at infinity; infinite where
    one side is, even beside NaN, as IEEE has it.

    Both are scaled by the larger. The value is that for any scale, so the scale is a constant to
    derivatives.
    """
    a, b = floats_together(x1, x2)
    zero, one = fill(a, 0), fill(a, 1)
    larger = ew.MAX(ew.ABS(a), ew.ABS(b))
    origin, infinity = EQ(larger, zero), fill(a, math.inf)
    beyond = OR(EQ(ew.ABS(a), infinity), EQ(ew.ABS(b), infinity))
    unscaled = OR(origin, beyond)
    scale = ew.STOP_GRADIENT(SELECT(unscaled, one, larger))
    u, v = ew.DIV(a, scale), ew.DIV(b, scale)
    squares = ew.ADD(ew.MUL(u, u), ew.MUL(v, v))
    root = SELECT(origin, zero, ew.SQRT(SELECT(origin, one, squares)))
    return SELECT(beyond, infinity, ew.MUL(scale, root))


# ---- trigonometric and hyperbolic ------------------------------------------------------------


@located
def sin(x: Any) -> Node:
    """The sine of x radians."""
    return ew.SIN(floating(x))


@located
def cos(x: Any) -> Node:
    """The cosine of x radians."""
    return ew.COS(floating(x))


@located
def tan(x: Any) -> Node:
    """The tangent of x radians."""
    return ew.TAN(floating(x))


@located
def arcsin(x: Any) -> Node:
    """The angle in [−π/2, π/2] of sine x."""
    return ew.ASIN(floating(x))


@located
def arccos(x: Any) -> Node:
    """The angle in [0, π] of cosine x."""
    return ew.ACOS(floating(x))


@located
def arctan(x: Any) -> Node:
    """The angle in [−π/2, π/2] of tangent x."""
    return ew.ATAN(floating(x))


@located
def arctan2(x1: Any, x2: Any) -> Node:
    """The angle of the point (x2, x1) in [−π, π], with gradient 0 at the origin."""
    return ew.ATAN2(*floats_together(x1, x2))


@located
def sinh(x: Any) -> Node:
    """The hyperbolic sine."""
    return ew.SINH(floating(x))


@located
def cosh(x: Any) -> Node:
    """The hyperbolic cosine."""
    return ew.COSH(floating(x))


@located
def tanh(x: Any) -> Node:
    """The hyperbolic tangent."""
    return ew.TANH(floating(x))


@located
def arcsinh(x: Any) -> Node:
    """The inverse of sinh."""
    return ew.ASINH(floating(x))


@located
def arccosh(x: Any) -> Node:
    """The inverse of cosh on x ≥ 1."""
    return ew.ACOSH(floating(x))


@located
def arctanh(x: Any) -> Node:
    """The inverse of tanh on [−1, 1]."""
    return ew.ATANH(floating(x))


@located
def deg2rad(x: Any) -> Node:
    """Degrees to radians."""
    node = floating(x)
    return ew.MUL(node, fill(node, math.pi / 180))


@located
def rad2deg(x: Any) -> Node:
    """Radians to degrees."""
    node = floating(x)
    return ew.MUL(node, fill(node, 180 / math.pi))


# ---- special functions -----------------------------------------------------------------------


@located
def erf(x: Any) -> Node:
    """2/√π·∫₀ˣ exp(−t²) dt."""
    return special.ERF(floating(x))


@located
def erfc(x: Any) -> Node:
    """1 − erf x, accurate for large x."""
    return special.ERFC(floating(x))


@located
def erfinv(x: Any) -> Node:
    """The y with erf y = x: ±inf at ±1, NaN beyond."""
    return special.ERFINV(floating(x))


@located
def lgamma(x: Any) -> Node:
    """log |Γ(x)|."""
    return special.LGAMMA(floating(x))


@located
def digamma(x: Any) -> Node:
    """The derivative of log Γ."""
    return special.DIGAMMA(floating(x))


@located
def polygamma(n: int, x: Any) -> Node:
    """The n-th derivative of digamma; n is a Python integer in 0 … 170, else an ArgumentError."""
    return digamma(x) if n == 0 else special.POLYGAMMA(floating(x), n=n)


@located
def sinc(x: Any) -> Node:
    """sin(πx)/(πx), 1 at 0."""
    return special.SINC_DERIVATIVE(floating(x), n=0)


@located
def logistic(x: Any) -> Node:
    """1/(1 + exp(−x))."""
    return special.LOGISTIC(floating(x))


@located
def xlogy(x1: Any, x2: Any) -> Node:
    """x1·log x2, 0 where x1 = 0."""
    return special.XLOGY(*floats_together(x1, x2))


@located
def entr(x: Any) -> Node:
    """−x·log x, 0 at 0 and −inf below."""
    return special.ENTR(floating(x))
