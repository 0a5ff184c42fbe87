"""Special functions as primitives: each family is closed under differentiation."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any

import numpy as np

from rlx_py.ir.errors import ArgumentError, DTypeError
from rlx_py.ir.node import Node, Op
from rlx_py.ir.ops.elementwise import DIV, EXP, GUARDED_MUL, LOG, MUL, NEG, SUB, fill
from rlx_py.ir.ops.families import elementwise
from rlx_py.ir.ops.gamma import digamma, each, lgamma, polygamma
from rlx_py.ir.types import TensorType, Type

Array = Any  # NumPy's stubs give Any for most mixed expressions

# ---- error and logistic functions ------------------------------------------------------------


def _gaussian(x: Node, factor: float) -> Node:
    """factor·exp(−x²)."""
    return MUL(fill(x, factor), EXP(NEG(MUL(x, x))))


ERF = elementwise("erf", each(math.erf),
                  (lambda y, x: _gaussian(x, 2 / math.sqrt(math.pi)),))
ERFC = elementwise("erfc", each(math.erfc),
                   (lambda y, x: _gaussian(x, -2 / math.sqrt(math.pi)),))


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
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, small) / (1 + small)


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
