"""Activations: composites of element-wise primitives, named so that programs stay readable."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from rlx_py.ir.errors import ArgumentError
from rlx_py.ir.node import Chain, Node, Op, VJPRule
from rlx_py.ir.ops.arguments import real, require_floats, require_shape
from rlx_py.ir.ops.batching import unchanged
from rlx_py.ir.ops.compare import GT, LE
from rlx_py.ir.ops.elementwise import (
    ABS,
    DIV,
    EXP,
    EXPM1,
    GUARDED_MUL,
    LOG1P,
    MUL,
    NEG,
    SELECT,
    TANH,
    fill,
)
from rlx_py.ir.ops.families import composite
from rlx_py.ir.ops.located import located
from rlx_py.ir.ops.movement import filled
from rlx_py.ir.ops.operand import as_node
from rlx_py.ir.ops.precision import in_compute_type
from rlx_py.ir.ops.rows import of_elements
from rlx_py.ir.ops.special import ERF, LOGISTIC
from rlx_py.ir.types import TensorType, Type, require_float


def activation(name: str, decompose: Callable[..., Node], vjp: VJPRule | None = None,
               check: Callable[..., None] | None = None) -> Op:
    """A composite from one float tensor to another of its type, computed in the compute type.

    check(**attrs) refuses attributes that do not go together.
    """

    def infer(x: TensorType, **attrs: Any) -> Type:
        require_float(name, x.dtype)
        if not all(math.isfinite(v) for v in attrs.values() if isinstance(v, float)):
            raise ArgumentError(f"{attrs} must be finite")
        if check is not None:
            check(**attrs)
        return x

    return composite(name, infer, in_compute_type(decompose), vjp=vjp, batch=unchanged,
                     rows=of_elements)


def _backward(name: str, slope: Callable[[Node], Node]) -> VJPRule:
    """The rule of an activation whose slope in closed form does not cancel as that of its
    decomposition does: dx = dy·slope(x), an op of its own."""

    def infer(dy: TensorType, x: TensorType) -> Type:
        require_floats(name, dy, x)
        require_shape("dy", dy, x.shape)
        return x

    @in_compute_type
    def decompose(dy: Node, x: Node) -> Node:
        return MUL(dy, slope(x))

    op = composite(name, infer, decompose, batch=unchanged)

    def vjp(node: Node, ct: Node, chain: Chain) -> Sequence[Node | None]:
        return (op(ct, *node.inputs),)

    return vjp


def _relu(x: Node) -> Node:
    """0 where x ≤ 0, so the slope at 0 is 0 and NaN stays."""
    zero = filled(0, x.tensor)
    return SELECT(LE(x, zero), zero, x)


def _leaky_relu(x: Node, *, slope: float) -> Node:
    return SELECT(GT(x, filled(0, x.tensor)), x, x * slope)


def _gelu(x: Node) -> Node:
    """x·Φ(x), Φ the normal distribution function."""
    return x * 0.5 * (ERF(x * math.sqrt(0.5)) + 1)


def _gelu_tanh(x: Node) -> Node:
    """x/2·(1 + tanh(√(2/π)(x + 0.044715 x³))), Hendrycks and Gimpel 2016."""
    inner = (x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)
    return x * 0.5 * (TANH(inner) + 1)


def _silu(x: Node) -> Node:
    return MUL(x, LOGISTIC(x))


# Above it log(1 + eˣ) rounds to x in every type, and far below it eˣ overflows in none.
SOFTPLUS_LINEAR = 40.0


def _softplus(x: Node, *, beta: float, threshold: float) -> Node:
    """log(1 + exp(βx))/β; x where βx exceeds the threshold. Without |x|, whose derivatives at 0
    would be lost."""
    z = x * beta
    limit = filled(min(threshold, SOFTPLUS_LINEAR), x.tensor)
    large = GT(z, limit)
    inner = SELECT(large, filled(0, x.tensor), z)
    return SELECT(large, x, LOG1P(EXP(inner)) / beta)


def _logsigmoid(x: Node) -> Node:
    return NEG(_softplus(NEG(x), beta=1.0, threshold=SOFTPLUS_LINEAR))


def _elu(x: Node, *, alpha: float) -> Node:
    """α(eˣ − 1) where x ≤ 0, so the slope at 0 is α."""
    low = LE(x, fill(x, 0))
    return SELECT(low, EXPM1(SELECT(low, x, fill(x, 0))) * alpha, x)


def _celu(x: Node, *, alpha: float) -> Node:
    """α(exp(x/α) − 1) where x ≤ 0: once differentiable at 0."""
    low = LE(x, fill(x, 0))
    return SELECT(low, EXPM1(SELECT(low, x, fill(x, 0)) / alpha) * alpha, x)


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


def _softsign(x: Node) -> Node:
    return DIV(x, ABS(x) + 1)


def _softsign_slope(x: Node) -> Node:
    r = DIV(fill(x, 1), ABS(x) + 1)
    return r * r


def _tanhshrink(x: Node) -> Node:
    return x - TANH(x)


def _tanhshrink_slope(x: Node) -> Node:
    return TANH(x) * TANH(x)


RELU = activation("relu", _relu)
LEAKY_RELU = activation("leaky_relu", _leaky_relu)
GELU = activation("gelu", _gelu)
GELU_TANH = activation("gelu_tanh", _gelu_tanh)
SILU = activation("silu", _silu)
SOFTPLUS = activation("softplus", _softplus)
LOGSIGMOID = activation("logsigmoid", _logsigmoid)
ELU = activation("elu", _elu)
CELU = activation("celu", _celu)
SELU = activation("selu", _selu)
MISH = activation("mish", _mish, _backward("mish_backward", _mish_slope))
SOFTSIGN = activation("softsign", _softsign, _backward("softsign_backward", _softsign_slope))
TANHSHRINK = activation("tanhshrink", _tanhshrink,
                        _backward("tanhshrink_backward", _tanhshrink_slope))


@located
def relu(input: Any) -> Node:
    """max(x, 0), with slope 0 at 0. Raises DTypeError for anything but floats, as all here."""
    return RELU(as_node(input))


@located
def leaky_relu(input: Any, negative_slope: float = 0.01) -> Node:
    """x where x > 0, else negative_slope·x; the slope at 0 is negative_slope."""
    return LEAKY_RELU(as_node(input), slope=real("negative_slope", negative_slope))


@located
def gelu(input: Any, approximate: str = "none") -> Node:
    """x·Φ(x) ("none"), or its approximation by "tanh"."""
    if approximate not in ("none", "tanh"):
        raise ArgumentError(f"approximate {approximate!r} is neither 'none' nor 'tanh'"
                           )
    return (GELU if approximate == "none" else GELU_TANH)(as_node(input))


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
