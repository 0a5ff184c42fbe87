"""The NumPy meaning of log Γ and its derivatives, in f64 and to a few ulp."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

Array = Any  # NumPy's stubs give Any for most mixed expressions

# B_2, B_4 … B_24.
BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510,
             43867 / 798, -174611 / 330, 854513 / 138, -236364091 / 2730)
ONE_MINUS_EULER = 0.42278433509846714
# The zero of ψ on x > 0, in two parts because x − ROOT must be exact near it.
ROOT, ROOT_REST = 1.4616321449683622, 9.549995429965697e-17


def hurwitz_zeta(s: int, x: Array) -> Array:
    """Σ_{k≥0} (x + k)^−s for x > 0 and s ≥ 2, by Euler and Maclaurin's formula."""
    terms = 12 + s
    far = x + terms
    total = far ** (1 - s) / (s - 1) + 0.5 * far**-s
    factor: Array = s * far ** (-s - 1)
    for j, b in enumerate(BERNOULLI, 1):
        total = total + b / math.factorial(2 * j) * factor
        factor = factor * (s + 2 * j - 1) * (s + 2 * j) / far**2
    for k in range(terms - 1, -1, -1):
        total = total + (x + k) ** float(-s)
    return total


def _horner(coefficients: list[float], x: Array) -> Array:
    total: Array = 0.0
    for c in reversed(coefficients):
        total = total * x + c
    return total


# log Γ(2 + z) = z (1 − γ + z Σ_{k≥0} c_k z^k).
_LGAMMA_AT_2 = [(-1.0) ** k * float(hurwitz_zeta(k, 2.0)) / k for k in range(2, 48)]
# ψ(ROOT + h) = h Σ_{k≥0} c_k h^k.
_DIGAMMA_AT_ROOT = [(-1.0) ** k * float(hurwitz_zeta(k + 2, ROOT)) for k in range(90)]


def _lgamma_scalar(x: float) -> float:
    if not math.isfinite(x):
        return abs(x)
    if x <= 0 and x == math.floor(x):
        return math.inf
    if 0.5 <= x < 1.25:
        return _lgamma_from_2(x - 1) - math.log1p(x - 1)
    if 1.25 <= x < 8:
        whole = max(round(x), 2)
        steps = math.prod(x - k for k in range(1, whole - 1))
        return _lgamma_from_2(x - whole) + math.log(steps)
    try:
        return math.lgamma(x)
    except OverflowError:
        return math.inf


def _lgamma_from_2(z: float) -> float:
    return z * (ONE_MINUS_EULER + z * float(_horner(_LGAMMA_AT_2, z)))


def each(function: Any) -> Any:
    """A function of floats as one of arrays, in f64."""
    ufunc = np.frompyfunc(function, 1, 1)
    return lambda x: np.asarray(ufunc(np.asarray(x, np.float64))).astype(np.float64)


lgamma = each(_lgamma_scalar)


def _digamma_positive(x: Array) -> Array:
    """ψ for x > 0: the asymptotic series, or below 12 steps to the Taylor series about its zero."""
    inverse = 1 / (x * x)
    tail = inverse * _horner([b / (2 * j) for j, b in enumerate(BERNOULLI, 1)], inverse)
    steps, near = np.where(x < 0.6, -1 / x, 0), np.where(x < 0.6, x + 1, x)
    for _ in range(10):
        above = near > 2.3
        near = np.where(above, near - 1, near)
        steps = np.where(above, steps + 1 / near, steps)
    h = np.where(x < 12, (near - ROOT) - ROOT_REST, 0)
    return np.where(x < 12, h * _horner(_DIGAMMA_AT_ROOT, h) + steps, np.log(x) - (0.5 / x + tail))


def cotangent_pi(x: Array) -> Array:
    """cot πx, its argument reduced exactly."""
    turn = x - np.rint(x)
    return np.where(np.abs(turn) > 0.25, np.tan(np.pi * (np.copysign(0.5, turn) - turn)),
                    1 / np.tan(np.pi * turn))


def digamma(x: Array) -> Array:
    """ψ(x); −inf at +0, +inf at −0, NaN at negative integers."""
    x = np.asarray(x, np.float64)
    below = x <= 0
    value = _digamma_positive(np.where(below, 1 - x, x))
    value = np.where(below, value - np.pi * cotangent_pi(x), value)
    value = np.where(below & (x == np.floor(x)), np.nan, value)
    value = np.where(x == 0, -np.copysign(np.inf, x), value)
    return np.where(x == np.inf, np.inf, value)


def polygamma(x: Array, n: int) -> Array:
    """The n-th derivative of ψ, n ≥ 1; at 0, −1, … (−1)^(n+1)·inf; NaN at −inf.

    For x ≤ 0 by ψⁿ(x) = (−1)ⁿ ψⁿ(1 − x) − dⁿ/dxⁿ π cot πx, a polynomial of cot πx.
    """
    x = np.asarray(x, np.float64)
    below, sign = x <= 0, (-1.0) ** (n + 1)
    value = sign * math.factorial(n) * hurwitz_zeta(n + 1, np.where(below, 1 - x, x))
    # Near 0 the cotangent overflows: what is 0 times an infinity stays 0 of a finite number.
    largest = np.finfo(np.float64).max
    cotangent = np.clip(cotangent_pi(x), -largest, largest)
    reflected = -sign * value - np.pi ** (n + 1) * _horner(_cotangent(n), cotangent)
    value = np.where(below, reflected, value)
    value = np.where(below & (x == np.floor(x)), sign * np.inf, value)
    return np.where(np.isinf(x), np.where(x > 0, sign * 0.0, np.nan), value)


def _cotangent(n: int) -> list[float]:
    """Coefficients of dⁿ/dzⁿ cot z in powers of c = cot z, since c′ = −(1 + c²)."""
    p = [0.0, 1.0]
    for _ in range(n):
        slope = [k * a for k, a in enumerate(p)][1:]
        p = [-(a + b) for a, b in zip([*slope, 0.0, 0.0], [0.0, 0.0, *slope], strict=True)]
    return p
