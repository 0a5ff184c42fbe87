"""Special functions as primitives: each family is closed under differentiation."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any

import numpy as np

from rlx_py.ir.base.errors import ArgumentError, DTypeError
from rlx_py.ir.base.types import TensorType, Type
from rlx_py.ir.nodes.node import Node, Op
from rlx_py.ir.ops.making.families import elementwise
from rlx_py.ir.ops.primitive.elementwise import (
    ABS,
    DIV,
    EXP,
    FMA,
    GUARDED_MUL,
    LOG,
    MAX,
    MIN,
    MUL,
    NEG,
    SIGN,
    SUB,
    fill,
    product_error,
)
from rlx_py.ir.ops.primitive.gamma import digamma, each, lgamma, polygamma

Array = Any  # NumPy's stubs give Any for most mixed expressions

# ---- error and logistic functions ------------------------------------------------------------


def _exp_times(factor: Array, x: Array, rest: Array) -> Array:
    if x.dtype == np.float32:
        return (factor * np.exp(x.astype(np.float64) + rest)).astype(np.float32)
    # By halves where the exponential itself is below the normal numbers.
    half = np.where(x < -700, x / 2, x)
    return factor * np.exp(half) * np.exp(rest) * np.exp(x - half)


# factor·exp(x + rest) for an x in two parts: rounding it to one costs |x|/2 ulp. For factors of a
# size within 2^±64, in f64 2^±512.
EXP_TIMES: Op = elementwise("exp_times", _exp_times, (
    lambda y, factor, x, rest: EXP_TIMES(fill(x, 1), x, rest),
    lambda y, factor, x, rest: y, lambda y, factor, x, rest: y))

# Beyond it exp(−x²/2) is 0 in every type, and no square overflows.
GAUSSIAN_ZERO = 39.5


def gaussian_times(factor: Node, x: Node, rate: float = 0.5) -> Node:
    """factor·exp(−rate·x²), rate a power of two."""
    inside = MAX(MIN(x, fill(x, GAUSSIAN_ZERO)), fill(x, -GAUSSIAN_ZERO))
    square, by = MUL(inside, inside), fill(x, -rate)
    rest = FMA(inside, inside, NEG(square))
    return EXP_TIMES(factor, MUL(square, by), MUL(rest, by))


def _bell(x: Node, factor: float) -> Node:
    return gaussian_times(fill(x, factor), x, 1.0)


ERF = elementwise("erf", each(math.erf), (lambda y, x: _bell(x, 2 / math.sqrt(math.pi)),))
ERFC = elementwise("erfc", each(math.erfc), (lambda y, x: _bell(x, -2 / math.sqrt(math.pi)),))

SQRT_HALF, SQRT_HALF_REST = 0.7071067811865476, -4.833646656726457e-17


def _ndtr(x: float) -> float:
    """erfc(−x/√2)/2, the argument in two parts: erfc(z + r) = erfc z − 2/√π·exp(−z²)·r."""
    x = min(max(x, -GAUSSIAN_ZERO), GAUSSIAN_ZERO)  # NaN stays
    z = -x * SQRT_HALF
    rest = -product_error(x, SQRT_HALF) - x * SQRT_HALF_REST
    return float(0.5 * (math.erfc(z) - 2 / math.sqrt(math.pi) * math.exp(-z * z) * rest))


def _normal_tail(x: float) -> float:
    """Φ(−|x|)·exp(x²/2), |x| at most GAUSSIAN_ZERO; beyond 4 by Laplace's continued fraction."""
    x = min(abs(x), GAUSSIAN_ZERO)
    if x <= 4:
        return _ndtr(-x) * math.exp(x * x / 2)
    rest = x
    for k in range(60, 0, -1):
        rest = x + k / rest
    return 1 / (rest * math.sqrt(2 * math.pi))


DENSITY = 1 / math.sqrt(2 * math.pi)  # of the normal distribution at 0

# Φ(−|x|)·exp(x²/2), smooth and, with a Gaussian, either half of the normal distribution.
NORMAL_TAIL = elementwise("normal_tail", each(_normal_tail), (
    lambda y, x: MUL(SIGN(x), SUB(MUL(ABS(x), y), fill(x, DENSITY))),))


def _erfinv(x: float) -> float:
    """The y with erf y = x, by Newton steps on whichever of erf and erfc is accurate there."""
    if not abs(x) < 1:
        return math.copysign(math.inf, x) if abs(x) == 1 else math.nan
    size = abs(x)
    y = NormalDist().inv_cdf(0.5 - size / 2) / -math.sqrt(2)
    for _ in range(2):
        error = math.erf(y) - size if size < 0.5 else (1 - size) - math.erfc(y)
        y -= error * math.sqrt(math.pi) / 2 * math.exp(y * y)
    return math.copysign(y, x)


ERFINV = elementwise("erfinv", each(_erfinv),
                     (lambda y, x: MUL(fill(y, math.sqrt(math.pi) / 2), EXP(MUL(y, y))),))


def _logistic(x: Array) -> Array:
    wide = np.asarray(x, np.float64)  # NumPy's exp of f32 errs by 2.5 ulp
    small = np.exp(-np.abs(wide))
    return (np.where(wide >= 0, 1, small) / (1 + small)).astype(x.dtype)


def _logistic_slope(y: Node, x: Node) -> Node:
    """σ(x)·σ(−x), which unlike σ(1 − σ) keeps its relative accuracy for large x."""
    return MUL(y, LOGISTIC(x.inputs[0] if x.op is NEG else NEG(x)))


LOGISTIC: Op = elementwise("logistic", _logistic, (_logistic_slope,))

# ---- log Γ and its derivatives ---------------------------------------------------------------


def _orders(name: str, least: int, most: int) -> Any:
    """Inference of a float function with a derivative order n."""

    def infer(x: TensorType, *, n: int) -> Type:
        if not x.dtype.is_float:
            raise DTypeError(f"{name} takes float, not {x.dtype}")
        if not least <= n <= most:
            raise ArgumentError(f"order {n} of {name} is not in {least} … {most}")
        return x

    return infer


LGAMMA = elementwise("lgamma", lgamma, (lambda y, x: DIGAMMA(x),))
DIGAMMA: Op = elementwise("digamma", digamma, (lambda y, x: POLYGAMMA(x, n=1),))
# n! leaves f64 beyond 170.
POLYGAMMA: Op = elementwise("polygamma", polygamma,
                            (lambda y, x: POLYGAMMA(x, n=y.attrs["n"] + 1),),
                            infer=_orders("polygamma", 1, 170))

# ---- sinc ------------------------------------------------------------------------------------


def sinc_derivative(x: Array, n: int) -> Array:
    """dⁿ/dxⁿ of sin(πx)/(πx), for every x and exact at 0.

    With z = πx it is πⁿ S_n, S_n = ∫₀¹ tⁿ cos(zt + nπ/2) dt: for |z| < n + 1 by partial integration
    without end, whose terms only decrease; else by S_k = (sin(z + kπ/2) − k S_{k−1})/z.
    """
    x = np.asarray(x, np.float64)
    z, turn = np.pi * x, x - 2 * np.rint(x / 2)
    sine, cosine = _sine_pi(turn), _sine_pi(0.5 - np.abs(turn))
    waves = (sine, cosine, -sine, -cosine)  # sin(z + kπ/2)
    near = np.abs(z) < n + 1
    safe = np.where(near, n + 1, z)
    far = sine / safe
    for k in range(1, n + 1):
        far = (waves[k % 4] - k * far) / safe
    return np.pi**n * np.where(near, _sinc_near(np.where(near, z, 0), n, waves), far)


def _sinc_near(z: Array, n: int, waves: tuple[Array, ...]) -> Array:
    """S_n = Σ_k z^k cos(z + (n − k)π/2) n!/(n + 1 + k)!."""
    term, total = np.full_like(z, 1 / (n + 1)), np.zeros_like(z)
    for k in range(30 + 2 * n):
        total = total + term * waves[(n - k + 1) % 4]
        term = term * z / (n + 2 + k)
    return total


def _sine_pi(x: Array) -> Array:
    """sin πx for |x| ≤ 1, its argument folded exactly: 0 at 0 and ±1."""
    return np.sin(np.pi * np.where(np.abs(x) > 0.5, np.copysign(1, x) - x, x))


SINC_DERIVATIVE: Op = elementwise(
    "sinc_derivative", sinc_derivative,
    (lambda y, x: SINC_DERIVATIVE(x, n=y.attrs["n"] + 1),),
    infer=_orders("sinc_derivative", 0, 100))

# ---- x log y ---------------------------------------------------------------------------------


def _xlogy(x: Array, y: Array) -> Array:
    return np.where((x == 0) & ~np.isnan(y), np.zeros_like(x), x * np.log(y))


def _entr(x: Array) -> Array:
    inside = np.where(x > 0, -x * np.log(x), np.where(x < 0, -np.inf, 0))
    return np.where(np.isnan(x), x, inside)


XLOGY = elementwise("xlogy", _xlogy, (
    lambda value, x, y: LOG(y),
    # ⊳, because x = 0 makes the function 0 for every y.
    lambda value, x, y: GUARDED_MUL(x, DIV(fill(y, 1), y)),
))
ENTR = elementwise("entr", _entr, (lambda y, x: SUB(fill(x, -1), LOG(x)),))
