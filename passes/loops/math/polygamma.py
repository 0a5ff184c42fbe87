"""The derivatives of digamma, in f64; f32 goes through f64."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TypeVar

from rlx_py.passes.loops.math.arithmetic import (
    Pair,
    exact_pair,
    pair_add,
    pair_divide,
    pair_multiply,
    pair_select,
    polynomial,
)
from rlx_py.passes.loops.math.gamma import (
    F64,
    PI,
    SHIFT,
    bernoulli,
    digamma,
    narrowed,
    pair_const,
    pair_negate,
    reflect_argument,
    shifted_inverses,
    widened,
)
from rlx_py.passes.loops.math.scalars import Scalars
from rlx_py.passes.loops.math.trigonometric import cos_pi_pair, sin_pi_pair

T = TypeVar("T")


def pair_power(s: Scalars[T], a: Pair[T], exponent: int) -> Pair[T]:
    """a^exponent for exponent >= 1, by squaring."""
    if exponent == 1:
        return a
    root = pair_power(s, a, exponent // 2)
    square = pair_multiply(s, root, root)
    return pair_multiply(s, square, a) if exponent % 2 else square


def scaled_pair(s: Scalars[T], a: Pair[T], factor: Fraction) -> Pair[T]:
    """a times a rational number."""
    return pair_multiply(s, a, pair_const(s, exact_pair(factor)))


def cotangent_derivative(n: int) -> list[int]:
    """The coefficients of Q_n with dⁿ/duⁿ cot u = Q_n(cot u): Q' gives -(1 + c²) Q'."""
    table = [0, 1]
    for _ in range(n):
        slope = [k * c for k, c in enumerate(table)][1:]
        table = [0] * (len(slope) + 2)
        for k, c in enumerate(slope):
            table[k] -= c
            table[k + 2] -= c
    return table


def reflection_term(s: Scalars[T], n: int, x: T) -> Pair[T]:
    """-π dⁿ/dxⁿ cot πx."""
    cotangent = pair_divide(s, cos_pi_pair(s, x, F64), sin_pi_pair(s, x, F64))
    table = cotangent_derivative(n)
    total = pair_const(s, (float(table[-1]), 0.0))
    for c in reversed(table[:-1]):
        total = pair_multiply(s, total, cotangent)
        if c:
            total = pair_add(s, total, pair_const(s, (float(c), 0.0)))
    pi_power = pair_power(s, pair_const(s, PI), n + 1)
    return pair_negate(s, pair_multiply(s, total, pi_power))


def hurwitz(s: Scalars[T], n: int, v: Pair[T]) -> Pair[T]:
    """Σ_k n! / (v + k)^(n+1) for v > 0: |ψ⁽ⁿ⁾(v)|."""
    steps = SHIFT + n
    terms, large = shifted_inverses(s, v, steps)
    inverse = pair_divide(s, pair_const(s, (1.0, 0.0)), large)
    square = s.mul(inverse[0], inverse[0])
    power = pair_power(s, inverse, n)
    # Euler and Maclaurin, over (n-1)! / Xⁿ: 1 + n/(2X) + Σ B_2k (2k+n-1)! / ((2k)! (n-1)! X^2k).
    table = [
        float(b * math.factorial(2 * k + n - 1) / (math.factorial(2 * k) * math.factorial(n - 1)))
        for k, b in enumerate(bernoulli(12), 1)
    ]
    series = (s.mul(square, polynomial(s, square, table, F64)), s.const(0.0, F64))
    bracket = pair_add(s, scaled_pair(s, inverse, Fraction(n, 2)), series)
    bracket = pair_add(s, pair_const(s, (1.0, 0.0)), bracket)
    total = pair_multiply(s, bracket, scaled_pair(s, power, Fraction(math.factorial(n - 1))))
    factorial = Fraction(math.factorial(n))
    for taken, term in reversed(terms):
        scaled = scaled_pair(s, pair_power(s, term, n + 1), factorial)
        total = pair_select(s, taken, pair_add(s, total, scaled), total)
    return total


def polygamma(s: Scalars[T], x: T, dtype: str, n: int) -> T:
    """The n-th derivative of digamma, n >= 0.

    At the poles 0, -1, -2… (-1)^(n+1) inf as SciPy, for n >= 1; NaN at -inf.
    For x <= 0: (-1)ⁿ ψ⁽ⁿ⁾(1 - x) - π dⁿ/dxⁿ cot πx.
    Measured, n <= 3: 0.5 ulp in f32; in f64 0.5 for x > 0, 1.3 for x < 0 away from zeros.
    """
    if n == 0:
        return digamma(s, x, dtype)
    x = widened(s, x, dtype)
    zero, inf = s.const(0.0, F64), s.const(math.inf, F64)
    low_side, v = reflect_argument(s, x)
    y = hurwitz(s, n, v)
    mirrored = pair_negate(s, y)
    y = y if n % 2 else mirrored
    reflected = pair_add(s, mirrored, reflection_term(s, n, x))
    y = pair_select(s, low_side, reflected, y)
    value = s.add(y[0], y[1])
    # Next to the pole at 0 the pairs overflow (to NaN) before the first term, n!/x^(n+1), does.
    sign = 1.0 if n % 2 else -1.0
    inverse = s.div(s.const(1.0, F64), x)
    first = s.const(sign * math.factorial(n), F64)
    for _ in range(n + 1):
        first = s.mul(first, inverse)
    value = s.select(s.lt(s.abs(value), inf), value, first)
    pole = s.and_(s.le(x, zero), s.eq(s.floor(x), x))
    value = s.select(pole, s.const(sign * math.inf, F64), value)
    value = s.select(s.eq(x, s.neg(inf)), s.const(math.nan, F64), value)
    value = s.select(s.eq(x, inf), s.const(math.copysign(0.0, sign), F64), value)
    return narrowed(s, value, dtype)
