"""Activations: composites of element-wise primitives, named so that programs stay readable."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from rlx_py.ir.base.errors import ArgumentError
from rlx_py.ir.base.types import TensorType, Type, require_float
from rlx_py.ir.nodes.node import Node, Op
from rlx_py.ir.ops.making.arguments import real
from rlx_py.ir.ops.making.batching import unchanged
from rlx_py.ir.ops.making.families import closed, composite
from rlx_py.ir.ops.making.located import located
from rlx_py.ir.ops.making.rows import of_elements
from rlx_py.ir.ops.operands.operand import as_node
from rlx_py.ir.ops.operands.precision import in_compute_type
from rlx_py.ir.ops.primitive.compare import GT, LE
from rlx_py.ir.ops.primitive.elementwise import (
    ABS,
    DIV,
    EXP,
    EXPM1,
    FMA,
    GUARDED_MUL,
    LOG1P,
    MUL,
    NEG,
    SELECT,
    TANH,
    fill,
)
from rlx_py.ir.ops.primitive.movement import filled
from rlx_py.ir.ops.primitive.special import LOGISTIC


def activation(name: str, decompose: Callable[..., Node],
               partial: Callable[..., Node] | None = None,
               check: Callable[..., None] | None = None) -> Op:
    """A composite from one float tensor to another of its type, computed in the compute type.

    partial(x, **attrs): its slope in closed form, where that of the decomposition cancels.
    check(**attrs) refuses attributes that do not go together.
    """

    def infer(x: TensorType, **attrs: Any) -> Type:
        require_float(name, x.dtype)
        if not all(math.isfinite(v) for v in attrs.values() if isinstance(v, float)):
            raise ArgumentError(f"{attrs} must be finite")
        if check is not None:
            check(**attrs)
        return x

    if partial is None:
        return composite(name, infer, in_compute_type(decompose), batch=unchanged,
                         rows=of_elements)
    return closed(name, infer, in_compute_type(decompose), (
        lambda y, x: in_compute_type(partial)(x, **y.attrs),))


def _relu(x: Node) -> Node:
    """0 where x ≤ 0, so the slope at 0 is 0 and NaN stays."""
    zero = filled(0, x.tensor)
    return SELECT(LE(x, zero), zero, x)


def _leaky_relu(x: Node, *, slope: float) -> Node:
    return SELECT(GT(x, filled(0, x.tensor)), x, x * slope)


def _silu(x: Node) -> Node:
    return MUL(x, LOGISTIC(x))


# Above it log(1 + eˣ) rounds to x in every type, and far below it eˣ overflows in none.
SOFTPLUS_LINEAR = 40.0
LARGEST = 1e30  # no threshold


def _softplus(x: Node, *, beta: float, threshold: float) -> Node:
    """log(1 + exp(βx))/β; x where βx exceeds the threshold."""
    z, rest = _scaled(x, beta)
    large = GT(z, fill(x, min(threshold, SOFTPLUS_LINEAR)))
    inner = SELECT(large, fill(x, 0), z)
    y = LOG1P(EXP(inner))
    if rest is not None:
        y = FMA(SELECT(large, fill(x, 0), rest), LOGISTIC(inner), y)
    return SELECT(large, x, y / beta)


def _scaled(x: Node, beta: float) -> tuple[Node, Node | None]:
    """βx in two parts, the second None if it is 0: rounding alone would cost |βx|/2 ulp of eᵝˣ."""
    if abs(math.frexp(beta)[0]) == 0.5:  # a power of two
        return x * beta, None
    z = x * beta
    return z, FMA(x, fill(x, beta), NEG(z))


def _softplus_slope(x: Node, *, beta: float, threshold: float) -> Node:
    """σ(βx); 1 where βx exceeds the threshold."""
    z, rest = _scaled(x, beta)
    large = GT(z, fill(x, threshold))
    inner = SELECT(large, fill(x, 0), z)
    y = LOGISTIC(inner)
    if rest is not None:
        low = MUL(SELECT(large, fill(x, 0), rest), LOGISTIC(NEG(inner)))
        y = FMA(y, low, y)
    return SELECT(large, fill(x, 1), y)


def _logsigmoid(x: Node) -> Node:
    return NEG(_softplus(NEG(x), beta=1.0, threshold=SOFTPLUS_LINEAR))


def _logsigmoid_slope(x: Node) -> Node:
    return LOGISTIC(NEG(x))


def _elu(x: Node, *, alpha: float) -> Node:
    """α(eˣ − 1) where x ≤ 0, so the slope at 0 is α."""
    low = LE(x, fill(x, 0))
    return SELECT(low, EXPM1(SELECT(low, x, fill(x, 0))) * alpha, x)


def _celu(x: Node, *, alpha: float) -> Node:
    """α(exp(x/α) − 1) where x ≤ 0: once differentiable at 0."""
    low = LE(x, fill(x, 0))
    return SELECT(low, EXPM1(_over(SELECT(low, x, fill(x, 0)), alpha)[0]) * alpha, x)


def _over(x: Node, alpha: float) -> tuple[Node, Node]:
    """x/α in two parts."""
    by = fill(x, alpha)
    q = DIV(x, by)
    return q, DIV(FMA(NEG(q), by, x), by)


def _exp_over(x: Node, alpha: float) -> Node:
    """exp(x/α), of which x/α rounded alone would cost |x/2α| ulp."""
    q, rest = _over(x, alpha)
    y = EXP(q)
    return FMA(y, rest, y)


def _celu_slope(x: Node, *, alpha: float) -> Node:
    """exp(x/α) where x ≤ 0, else 1."""
    low = LE(x, fill(x, 0))
    return SELECT(low, _exp_over(SELECT(low, x, fill(x, 0)), alpha), fill(x, 1))


def _celu_curve(x: Node, *, alpha: float) -> Node:
    low = LE(x, fill(x, 0))
    return SELECT(low, _exp_over(SELECT(low, x, fill(x, 0)), alpha) / alpha, fill(x, 0))


# Klambauer et al. 2017: the fixed point of mean 0 and variance 1.
SELU_ALPHA, SELU_SCALE = 1.6732632423543772, 1.0507009873554805


def _selu(x: Node) -> Node:
    return _elu(x, alpha=SELU_ALPHA) * SELU_SCALE


# Above it tanh(softplus(x)) rounds to 1 in every type, as does the slope of mish.
MISH_LINEAR = 24.0


def _mish_parts(x: Node) -> tuple[Node, Node, Node]:
    """Where x is large, and e = eˣ and n = e(e + 2) elsewhere: tanh(log(1 + e)) = n/(n + 2)."""
    large = GT(x, fill(x, MISH_LINEAR))
    e = EXP(SELECT(large, fill(x, 0), x))
    return large, e, e * (e + 2)


def _mish(x: Node) -> Node:
    large, _, n = _mish_parts(x)
    return SELECT(large, x, GUARDED_MUL(DIV(n, n + 2), x))


def _mish_slope(x: Node) -> Node:
    """n/(n + 2) + 4x·e(1 + e)/(n + 2)², with ⊳ so that −∞ has value and slope 0."""
    large, e, n = _mish_parts(x)
    d = n + 2
    slope = DIV(n, d) + GUARDED_MUL(DIV(e * (e + 1), d), DIV(x * 4, d))
    return SELECT(large, fill(x, 1), slope)


def _mish_curve(x: Node) -> Node:
    """2t′ + x·t″ of t = tanh(log(1 + e)): t′ = 4e(1 + e)/d², t″ = 4e(2 + 2e − 3e² − 2e³)/d³; for
    x > 0 in w = 1/e, which keeps what e would hide."""
    up, one = GT(x, fill(x, 0)), fill(x, 1)
    w = EXP(SELECT(up, NEG(x), x))
    d = SELECT(up, FMA(w * 2 + 2, w, one), (w + 2) * w + 2)
    bend = SELECT(up, FMA(FMA(w * 2 + 2, w, fill(x, -3)), w, fill(x, -2)),
                  FMA(FMA(w * -2 - 3, w, fill(x, 2)), w, fill(x, 2)))
    share = DIV(DIV(w * 4, d), d)
    return GUARDED_MUL(share, FMA(x, DIV(bend, d), w * 2 + 2)) * SELECT(up, w, one)


def _softsign(x: Node) -> Node:
    return DIV(x, ABS(x) + 1)


def _softsign_slope(x: Node) -> Node:
    r = DIV(fill(x, 1), ABS(x) + 1)
    return r * r


# r/(1 + r) = s·A/B, the tenth convergent, where tanh x = x/(1 + r), r = s/(3 + s/(5 + …)), s = x².
SHRINK_A = (4583103525, 349188840, 6891885, 42900, 65)
SHRINK_B = (13749310575, 6547290750, 413513100, 7567560, 45045, 66)
# Above it the difference itself loses nothing.
SHRINK_FAR = 1.5


def _tanhshrink(x: Node) -> Node:
    """x·r/(1 + r) near 0, a quotient of sums of positive terms."""
    far = GT(ABS(x), fill(x, SHRINK_FAR))
    near = SELECT(far, fill(x, 0), x)
    s = near * near
    ratio = DIV(s * _horner(s, SHRINK_A), _horner(s, SHRINK_B))
    return SELECT(far, x - TANH(x), near * ratio)


def _horner(x: Node, coefficients: Sequence[int]) -> Node:
    """Σ c_k·xᵏ/B(0)."""
    found = fill(x, coefficients[-1] / SHRINK_B[0])
    for c in reversed(coefficients[:-1]):
        found = FMA(found, x, fill(x, c / SHRINK_B[0]))
    return found


def _tanhshrink_slope(x: Node) -> Node:
    return TANH(x) * TANH(x)


def _tanhshrink_curve(x: Node) -> Node:
    """2·tanh x·sech² x, sech² x = 4·σ(2x)·σ(−2x)."""
    return TANH(x) * LOGISTIC(x * 2) * LOGISTIC(x * -2) * 8


RELU = activation("relu", _relu)
LEAKY_RELU = activation("leaky_relu", _leaky_relu)
SILU = activation("silu", _silu)
SOFTPLUS = activation("softplus", _softplus, _softplus_slope)
LOGSIGMOID = activation("logsigmoid", _logsigmoid, _logsigmoid_slope)
ELU = activation("elu", _elu)
CELU_SLOPE = activation("celu_slope", _celu_slope, _celu_curve)
CELU = activation("celu", _celu, CELU_SLOPE)
SELU = activation("selu", _selu)
MISH_SLOPE = activation("mish_slope", _mish_slope, _mish_curve)
MISH = activation("mish", _mish, MISH_SLOPE)
SOFTSIGN = activation("softsign", _softsign, _softsign_slope)
TANHSHRINK_SLOPE = activation("tanhshrink_slope", _tanhshrink_slope, _tanhshrink_curve)
TANHSHRINK = activation("tanhshrink", _tanhshrink, TANHSHRINK_SLOPE)


def smooth_softplus(x: Node) -> Node:
    """log(1 + eˣ), linear only where that rounds to x."""
    return SOFTPLUS(x, beta=1.0, threshold=LARGEST)


@located
def relu(input: Any) -> Node:
    """max(x, 0), with slope 0 at 0. Raises DTypeError for anything but floats, as all here."""
    return RELU(as_node(input))


@located
def leaky_relu(input: Any, negative_slope: float = 0.01) -> Node:
    """x where x > 0, else negative_slope·x; the slope at 0 is negative_slope."""
    return LEAKY_RELU(as_node(input), slope=real("negative_slope", negative_slope))


@located
def silu(input: Any) -> Node:
    """x·σ(x)."""
    return SILU(as_node(input))


@located
def softplus(input: Any, beta: float = 1.0, threshold: float = 20.0) -> Node:
    """log(1 + exp(beta·x))/beta, or x where beta·x > threshold. Raises ArgumentError (beta 0)."""
    slope, linear = real("beta", beta), real("threshold", threshold)
    if slope == 0:
        raise ArgumentError("softplus needs a beta other than 0")
    return SOFTPLUS(as_node(input), beta=slope, threshold=linear)


@located
def logsigmoid(input: Any) -> Node:
    """log σ(x), accurate at both ends."""
    return LOGSIGMOID(as_node(input))


@located
def elu(input: Any, alpha: float = 1.0) -> Node:
    """x where x > 0, else alpha·(eˣ − 1); the slope at 0 is alpha (Clevert et al. 2016)."""
    return ELU(as_node(input), alpha=real("alpha", alpha))


@located
def celu(input: Any, alpha: float = 1.0) -> Node:
    """x where x > 0, else alpha·(exp(x/alpha) − 1); the slope at 0 is 1. Raises ArgumentError
    (alpha 0)."""
    size = real("alpha", alpha)
    if size == 0:
        raise ArgumentError("celu needs an alpha other than 0")
    return CELU(as_node(input), alpha=size)


@located
def selu(input: Any) -> Node:
    """elu with alpha 1.6733, times 1.0507; the slope at 0 is 1.7581 (Klambauer et al. 2017)."""
    return SELU(as_node(input))


@located
def mish(input: Any) -> Node:
    """x·tanh(softplus(x)) (Misra 2019)."""
    return MISH(as_node(input))


@located
def softsign(input: Any) -> Node:
    """x/(1 + |x|), with slope 1 at 0; NaN at the infinities."""
    return SOFTSIGN(as_node(input))


@located
def tanhshrink(input: Any) -> Node:
    """x − tanh x."""
    return TANHSHRINK(as_node(input))
