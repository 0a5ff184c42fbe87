"""lgamma, digamma, polygamma for every real argument, in f64; f32 goes through f64.

Recurrence to an argument of about 10, the asymptotic series there, reflection for x <= 0. The
sums are pairs: their terms cancel near the zeros.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache
from typing import TypeVar

from rlx_py.passes.loops.math.arithmetic import (
    Pair,
    pair_add,
    pair_divide,
    pair_multiply,
    pair_select,
    polynomial,
    two_product,
    two_sum,
)
from rlx_py.passes.loops.math.coefficients import LGAMMA_F64
from rlx_py.passes.loops.math.logarithm import log, log_pair
from rlx_py.passes.loops.math.scalars import Scalars
from rlx_py.passes.loops.math.trigonometric import PI_PAIR, cos_pi_pair, sin_pi_pair

T = TypeVar("T")
F64 = "f64"
PI = PI_PAIR[F64]
ONE_LESS_EULER = (0.42278433509846713, 4.942915152430645e-18)
HALF_LOG_TWO_PI = (0.9189385332046728, -3.8782941580672414e-17)
LOG_PI = (1.1447298858494002, 1.0265951162707826e-17)
STEPS = 6
"""lgamma: unit steps from [1.5, 2.5) up to where Stirling's series takes over."""
SHIFT = 10
"""digamma and polygamma: the least argument of the asymptotic series, about."""


@cache
def bernoulli(count: int) -> tuple[Fraction, ...]:
    """B_2, B_4, …, B_2count from Σ_k C(m + 1, k) B_k = 0."""
    numbers = [Fraction(1)]
    for m in range(1, 2 * count + 1):
        total = sum((math.comb(m + 1, k) * b for k, b in enumerate(numbers)), Fraction(0))
        numbers.append(-total / (m + 1))
    return tuple(numbers[2::2])


def pair_const(s: Scalars[T], value: Pair[float]) -> Pair[T]:
    """A constant as high + low."""
    return s.const(value[0], F64), s.const(value[1], F64)


def pair_negate(s: Scalars[T], a: Pair[T]) -> Pair[T]:
    """-a."""
    return s.neg(a[0]), s.neg(a[1])


def widened(s: Scalars[T], x: T, dtype: str) -> T:
    """x in f64."""
    return x if dtype == F64 else s.cast(x, F64)


def narrowed(s: Scalars[T], x: T, dtype: str) -> T:
    """The f64 value x in the dtype."""
    return x if dtype == F64 else s.cast(x, dtype)


def lgamma_near(s: Scalars[T], w: T) -> Pair[T]:
    """lgamma(2 + w) for |w| <= ½."""
    high, low = two_product(s, w, s.const(ONE_LESS_EULER[0], F64))
    square = s.mul(w, w)
    tail = s.mul(square, polynomial(s, w, LGAMMA_F64, F64))
    total, rest = two_sum(s, high, tail)
    return total, s.add(rest, s.fma(w, s.const(ONE_LESS_EULER[1], F64), low))


def stirling(s: Scalars[T], a: T, log_a: Pair[T]) -> Pair[T]:
    """(a - ½) log a - a + ½ log 2π + Σ B_2k / (2k (2k-1) a^(2k-1)) for a >= 8."""
    inverse = s.div(s.const(1.0, F64), a)
    table = [float(b / (2 * k * (2 * k - 1))) for k, b in enumerate(bernoulli(10), 1)]
    series = s.mul(inverse, polynomial(s, s.mul(inverse, inverse), table, F64))
    product = pair_multiply(s, two_sum(s, a, s.const(-0.5, F64)), log_a)
    total = pair_add(s, product, (s.neg(a), series))
    return pair_add(s, total, pair_const(s, HALF_LOG_TWO_PI))


def lgamma_of_positive(s: Scalars[T], a: T, keep_log: T) -> Pair[T]:
    """lgamma a for 0 < a < 10^300; plus log a where a < ½ and not `keep_log`.

    Γ(a) is Γ(2 + w) times a factor q or divided by it; one logarithm serves every range.
    """
    one, half = s.const(1.0, F64), s.const(0.5, F64)
    large = s.ge(a, s.const(STEPS + 2.5, F64))
    w, q = s.sub(a, s.const(2.0, F64)), one
    for step in range(1, STEPS + 1):
        factor = s.sub(a, s.const(float(step), F64))
        taken = s.ge(factor, s.const(1.5, F64))
        q = s.select(taken, s.mul(q, factor), q)
        w = s.select(taken, s.sub(factor, s.const(2.0, F64)), w)
    below, tiny = s.lt(a, s.const(1.5, F64)), s.lt(a, half)
    after = s.add(a, one)
    q_below = s.select(tiny, s.select(keep_log, s.mul(a, after), after), a)
    w = s.select(tiny, a, s.select(below, s.sub(a, one), w))
    log_q = log_pair(s, s.select(large, a, s.select(below, q_below, q)))
    signed = pair_select(s, below, pair_negate(s, log_q), log_q)
    return pair_select(s, large, stirling(s, a, log_q), pair_add(s, signed, lgamma_near(s, w)))


def lgamma(s: Scalars[T], x: T, dtype: str) -> T:
    """log |Γ(x)|; +inf at the poles 0, -1, -2… and at ±inf.

    For x < 0, with a = -x: log π - log |a sin πa| - lgamma a.
    Measured for x > 0: 0.5 ulp in f32, 1.4 in f64; for x < 0 the same of max(1, |result|).
    """
    x = widened(s, x, dtype)
    a = s.abs(x)
    zero, one, inf = s.const(0.0, F64), s.const(1.0, F64), s.const(math.inf, F64)
    negative = s.lt(x, zero)
    y = lgamma_of_positive(s, a, s.not_(negative))
    sine, _ = sin_pi_pair(s, a, F64)
    sine = s.abs(sine)
    sine = s.select(s.lt(a, s.const(0.5, F64)), sine, s.mul(a, sine))
    reflected = pair_add(s, pair_negate(s, log_pair(s, sine)), pair_const(s, LOG_PI))
    y = pair_select(s, negative, pair_add(s, reflected, pair_negate(s, y)), y)
    value = s.add(y[0], y[1])
    # Beyond the precise ranges lgamma x is -log |x|, or x log x - x, to within an ulp.
    log_a = log(s, a, F64)
    value = s.select(s.lt(a, s.const(2.0**-70, F64)), s.neg(log_a), value)
    value = s.select(s.gt(x, s.const(1e300, F64)), s.mul(a, s.sub(log_a, one)), value)
    pole = s.and_(s.le(x, zero), s.eq(s.floor(x), x))
    value = s.select(s.or_(pole, s.eq(a, inf)), inf, value)
    return narrowed(s, s.select(s.ne(x, x), x, value), dtype)


def reflect_argument(s: Scalars[T], x: T) -> tuple[T, Pair[T]]:
    """(x <= 0, v) with v = 1 - x there and x elsewhere."""
    low_side = s.le(x, s.const(0.0, F64))
    flipped = two_sum(s, s.const(1.0, F64), s.neg(x))
    return low_side, pair_select(s, low_side, flipped, (x, s.const(0.0, F64)))


def shifted_inverses(
    s: Scalars[T], v: Pair[T], steps: int
) -> tuple[list[tuple[T, Pair[T]]], Pair[T]]:
    """([(v + k < steps, 1/(v + k))…], the first v + k >= steps)."""
    one = pair_const(s, (1.0, 0.0))
    terms: list[tuple[T, Pair[T]]] = []
    final = v
    for k in range(steps):
        here = pair_add(s, v, pair_const(s, (float(k), 0.0))) if k else v
        taken = s.lt(here[0], s.const(float(steps), F64))
        terms.append((taken, pair_divide(s, one, here)))
        after = pair_add(s, v, pair_const(s, (k + 1.0, 0.0)))
        final = pair_select(s, taken, after, final)
    return terms, final


def digamma(s: Scalars[T], x: T, dtype: str) -> T:
    """d lgamma/dx; ∓inf at ±0, NaN at -1, -2…, as SciPy.

    For x <= 0: ψ(1 - x) - π cot πx.
    Measured: 0.5 ulp in f32, 1.0 in f64, of 1 for f64 next to a zero.
    """
    x = widened(s, x, dtype)
    zero, inf, nan = (s.const(c, F64) for c in (0.0, math.inf, math.nan))
    low_side, v = reflect_argument(s, x)
    terms, large = shifted_inverses(s, v, SHIFT)
    total = pair_const(s, (0.0, 0.0))
    for taken, inverse in reversed(terms):
        total = pair_select(s, taken, pair_add(s, total, inverse), total)
    inverse = pair_divide(s, pair_const(s, (1.0, 0.0)), large)
    square = s.mul(inverse[0], inverse[0])
    table = [float(-b / (2 * k)) for k, b in enumerate(bernoulli(11), 1)]
    series = s.mul(square, polynomial(s, square, table, F64))
    y = pair_add(s, log_pair(s, large[0]), (s.mul(s.const(-0.5, F64), inverse[0]), series))
    # log(high + low) = log high + low / high, and the rounding of 1 / X.
    small = s.fma(large[1], inverse[0], s.mul(s.const(-0.5, F64), inverse[1]))
    y = pair_add(s, y, (small, zero))
    y = pair_add(s, y, pair_negate(s, total))
    cotangent = pair_divide(s, cos_pi_pair(s, x, F64), sin_pi_pair(s, x, F64))
    other = pair_multiply(s, cotangent, pair_const(s, (-PI[0], -PI[1])))
    y = pair_select(s, low_side, pair_add(s, y, other), y)
    value = s.add(y[0], y[1])
    close = s.lt(s.abs(x), s.const(2.0**-70, F64))
    value = s.select(close, s.div(s.const(-1.0, F64), x), value)
    pole = s.and_(s.lt(x, zero), s.eq(s.floor(x), x))
    value = s.select(s.or_(pole, s.ne(x, x)), nan, value)
    return narrowed(s, s.select(s.eq(x, inf), inf, value), dtype)
