"""Activations: composites of element-wise primitives, named so that programs stay readable."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from rlx_py.ir.errors import ArgumentError
from rlx_py.ir.node import Node, Op, require_float
from rlx_py.ir.ops.arguments import real
from rlx_py.ir.ops.compare import GT, LE
from rlx_py.ir.ops.elementwise import EXP, LOG1P, MUL, SELECT, TANH
from rlx_py.ir.ops.families import composite
from rlx_py.ir.ops.located import located
from rlx_py.ir.ops.movement import filled
from rlx_py.ir.ops.operand import as_node
from rlx_py.ir.ops.precision import in_compute_type
from rlx_py.ir.ops.special import ERF, LOGISTIC
from rlx_py.ir.types import TensorType, Type


def activation(name: str, decompose: Callable[..., Node]) -> Op:
    """A composite from one float tensor to another of its type, computed in the compute type."""

    def infer(x: TensorType, **attrs: Any) -> Type:
        require_float(name, x.dtype)
        if not all(math.isfinite(v) for v in attrs.values() if isinstance(v, float)):
            raise ArgumentError(f"{attrs} must be finite")
        return x

    return composite(name, infer, in_compute_type(decompose))


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


RELU = activation("relu", _relu)
LEAKY_RELU = activation("leaky_relu", _leaky_relu)
GELU = activation("gelu", _gelu)
GELU_TANH = activation("gelu_tanh", _gelu_tanh)
SILU = activation("silu", _silu)
SOFTPLUS = activation("softplus", _softplus)


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
