"""Layer and RMS normalisation over any axes, with explicit backward ops.

Formulas: layer norm, Ba, Kiros and Hinton 2016; RMS norm, Zhang and Sennrich 2019.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import inf, isfinite, prod
from typing import Any

import numpy as np

from rlx_py.ir.base.errors import ArgumentError, ShapeError
from rlx_py.ir.base.types import (
    TensorType,
    TupleType,
    Type,
    as_shape,
    normalize_axes,
    require_float,
)
from rlx_py.ir.graph.transforms import AD
from rlx_py.ir.nodes.node import Node, Op, VJPRule
from rlx_py.ir.ops.making.arguments import real, require_floats, require_shape
from rlx_py.ir.ops.making.batching import over_axes
from rlx_py.ir.ops.making.families import composite
from rlx_py.ir.ops.making.located import located
from rlx_py.ir.ops.making.rows import beside_axes
from rlx_py.ir.ops.numpy.statistics import SCALES, far_squares, over_rows
from rlx_py.ir.ops.operands.operand import operands
from rlx_py.ir.ops.operands.precision import in_compute_type
from rlx_py.ir.ops.primitive.compare import LT, NOT
from rlx_py.ir.ops.primitive.elementwise import DIV, RSQRT, SELECT, fill
from rlx_py.ir.ops.primitive.movement import spread
from rlx_py.ir.ops.primitive.reduce import REDUCE_SUM, kept_axes, reduced, total, widened

Axes = tuple[int, ...]


def _affine_shape(x: TensorType, axes: Axes) -> tuple[int, ...]:
    return tuple(x.shape[a] for a in axes)


def _check_norm(op: str, x: TensorType, *rest: TensorType, axes: Axes, eps: float, weight: bool,
                bias: bool) -> None:
    require_floats(op, x, *rest)
    if not axes:
        raise ArgumentError("no axes to normalise over")
    if normalize_axes(axes, x.rank) != axes:
        raise ArgumentError(f"axes {axes} must be sorted, distinct and not negative")
    check_norm_attributes(eps, len(rest), weight, bias)
    for t in rest:
        require_shape("weight or bias", t, _affine_shape(x, axes))


def check_norm_attributes(eps: float, count: int, weight: bool, bias: bool) -> None:
    """Refuse an eps that is not positive and finite, or another number of parameters."""
    if not (isfinite(eps) and eps > 0):
        raise ArgumentError(f"eps must be positive and finite, not {eps}")
    if count != weight + bias:
        raise ArgumentError(f"{count} parameters with weight={weight}, bias={bias}")


def _norm_infer(op: str) -> Callable[..., Type]:
    def infer(*types: TensorType, axes: Axes, eps: float, weight: bool, bias: bool) -> Type:
        _check_norm(op, *types, axes=axes, eps=eps, weight=weight, bias=bias)
        return types[0]

    return infer


def _norm_backward_infer(op: str) -> Callable[..., Type]:
    def infer(dy: TensorType, x: TensorType, *rest: TensorType, axes: Axes, eps: float,
              weight: bool, bias: bool) -> Type:
        require_floats(op, dy, x)
        require_shape("dy", dy, x.shape)
        _check_norm(op, x, *rest, axes=axes, eps=eps, weight=weight, bias=False)
        return TupleType((x, *(x.with_shape(_affine_shape(x, axes)),) * (weight + bias)))

    return infer


def affine(y: Node, params: Sequence[Node], axes: Axes, weight: bool, bias: bool) -> Node:
    """y · w + b, each where present, laid along axes."""
    if weight:
        y = y * spread(params[0], y.shape, axes)
    return y + spread(params[-1], y.shape, axes) if bias else y


def affine_gradients(dy: Node, xh: Node, axes: Axes, weight: bool, bias: bool) -> list[Node]:
    """dw = Σ dy·xh and db = Σ dy, over all axes but those that w and b lie along."""
    rest = kept_axes(dy.rank, axes)
    return [total(t, rest) for t in ([dy * xh] if weight else []) + ([dy] if bias else [])]


def row_mean(x: Node, axes: Axes) -> Node:
    """The mean over axes, without them."""
    sums = REDUCE_SUM(x, axes=axes)
    return DIV(sums, fill(sums, prod(_affine_shape(x.tensor, axes))))


def spread_mean(x: Node, axes: Axes) -> Node:
    """The mean over axes, spread back over them."""
    return widened(row_mean(x, axes), x, axes)


def _infer_inverse_root(x: TensorType, *, axes: Axes, eps: float) -> Type:
    return reduced("inverse_root", ("float",), empty=True)(x, axes=axes)


@in_compute_type
def _inverse_root(x: Node, *, axes: Axes, eps: float) -> Node:
    """By squares of x, where they overflow by those of x times a power of two."""
    down = SCALES[x.dtype][0]
    plain = row_mean(x * x, axes)
    is_far = NOT(LT(plain, fill(plain, inf)))
    again = row_mean(far_squares(x, is_far, fill(x, down), axes), axes)
    return SELECT(is_far, RSQRT(again + eps * down * down) * down, RSQRT(plain + eps))


def _inverse_root_partial(node: Node) -> Node:
    """−r³·x/n."""
    (x,), axes = node.inputs, node.attrs["axes"]
    count = fill(node, prod(_affine_shape(x.tensor, axes)))
    return x * widened(node, x, axes) * widened(-node * DIV(node, count), x, axes)


INVERSE_ROOT = over_rows("inverse_root", _infer_inverse_root, _inverse_root, _inverse_root_partial)


def inverse_root(x: Node, axes: Axes, eps: float) -> Node:
    """1/√(mean x² + eps), spread over the axes."""
    return widened(INVERSE_ROOT(x, axes=axes, eps=eps), x, axes)


def _infer_standardised(x: TensorType, *, axes: Axes, eps: float) -> Type:
    _infer_inverse_root(x, axes=axes, eps=eps)
    return x


@in_compute_type
def _standardised(x: Node, *, axes: Axes, eps: float) -> Node:
    return x * inverse_root(x, axes, eps)


def _tangent(node: Node, t: Node) -> Node:
    """r(t − xh·mean(t·xh)), xh the node: linear and symmetric in t. Not by the slope of r, which
    for large x is below every number."""
    (x,), axes = node.inputs, node.attrs["axes"]
    return inverse_root(x, **node.attrs) * (t - node * spread_mean(t * node, axes))


def _standardised_vjp(node: Node, ct: Node, ad: AD) -> Sequence[Node | None]:
    return (_tangent(node, ct),)


def _standardised_jvp(node: Node, tangents: Sequence[Node | None], ad: AD) -> Node | None:
    (t,) = tangents
    return None if t is None else _tangent(node, t)


# x/√(mean x² + eps)
STANDARDISED = composite("standardised", _infer_standardised, _standardised,
                         vjp=_standardised_vjp, jvp=_standardised_jvp, batch=over_axes,
                         rows=beside_axes)


def centred(x: Node, params: Sequence[Node], *, over: Axes, along: Axes, eps: float, weight: bool,
            bias: bool) -> Node:
    """(x − μ)/√(σ² + eps)·w + b: moments over some axes, w and b along some."""
    deviation = x - spread_mean(x, over)
    return affine(STANDARDISED(deviation, axes=over, eps=eps), params, along, weight, bias)


def centred_backward(dy: Node, x: Node, params: Sequence[Node], *, over: Axes, along: Axes,
                     eps: float, weight: bool, bias: bool) -> tuple[Node, ...]:
    """dx = r(g − mean g − xh·mean(g·xh)), g = dy·w; then dw and db."""
    deviation = x - spread_mean(x, over)
    r = inverse_root(deviation, over, eps)
    xh, g = deviation * r, affine(dy, params, along, weight, False)
    dx = r * (g - spread_mean(g, over) - xh * spread_mean(g * xh, over))
    return (dx, *affine_gradients(dy, xh, along, weight, bias))


def scaled(x: Node, params: Sequence[Node], *, over: Axes, along: Axes, eps: float, weight: bool,
           bias: bool) -> Node:
    """x/√(mean x² + eps)·w + b, as `centred` without the centring."""
    return affine(STANDARDISED(x, axes=over, eps=eps), params, along, weight, bias)


def scaled_backward(dy: Node, x: Node, params: Sequence[Node], *, over: Axes, along: Axes,
                    eps: float, weight: bool, bias: bool) -> tuple[Node, ...]:
    """dx = r(g − xh·mean(g·xh)), xh = x·r, g = dy·w; then dw and db."""
    r = inverse_root(x, over, eps)
    xh, g = x * r, affine(dy, params, along, weight, False)
    return (r * (g - xh * spread_mean(g * xh, over)),
            *affine_gradients(dy, xh, along, weight, bias))


@in_compute_type
def _layer_norm(x: Node, *params: Node, axes: Axes, **attrs: Any) -> Node:
    return centred(x, params, over=axes, along=axes, **attrs)


@in_compute_type
def _layer_norm_backward(dy: Node, x: Node, *params: Node, axes: Axes, **attrs: Any
                         ) -> tuple[Node, ...]:
    return centred_backward(dy, x, params, over=axes, along=axes, **attrs)


@in_compute_type
def _rms_norm(x: Node, *params: Node, axes: Axes, **attrs: Any) -> Node:
    return scaled(x, params, over=axes, along=axes, **attrs)


@in_compute_type
def _rms_norm_backward(dy: Node, x: Node, *params: Node, axes: Axes, **attrs: Any
                       ) -> tuple[Node, ...]:
    return scaled_backward(dy, x, params, over=axes, along=axes, **attrs)


LAYER_NORM_BACKWARD = composite(
    "layer_norm_backward", _norm_backward_infer("layer_norm_backward"), _layer_norm_backward)
RMS_NORM_BACKWARD = composite(
    "rms_norm_backward", _norm_backward_infer("rms_norm_backward"), _rms_norm_backward)


def norm_vjp(backward: Op) -> VJPRule:
    """The rule of a norm of (x, w, b), each parameter where present: backward(dy, x, w)."""

    def vjp(node: Node, ct: Node, ad: AD) -> Sequence[Node | None]:
        # The bias, last, does not enter its own gradient.
        return list(backward(ct, *node.inputs[:1 + node.attrs["weight"]], **node.attrs))

    return vjp


LAYER_NORM = composite("layer_norm", _norm_infer("layer_norm"), _layer_norm,
                       vjp=norm_vjp(LAYER_NORM_BACKWARD), rows=beside_axes)
RMS_NORM = composite("rms_norm", _norm_infer("rms_norm"), _rms_norm,
                     vjp=norm_vjp(RMS_NORM_BACKWARD), rows=beside_axes)


def _normalised_axes(x: Node, shape: Any, axes: int | Iterable[int] | None) -> Axes:
    """The axes named, or the last ones that a normalised shape covers; both must agree."""
    if shape is None and axes is None:
        raise ArgumentError("give normalized_shape or axes")
    sizes = None if shape is None else as_shape(shape)
    if axes is not None:
        found = normalize_axes(axes, x.rank)
    elif sizes is not None and len(sizes) <= x.rank:
        found = tuple(range(x.rank - len(sizes), x.rank))
    else:
        raise ShapeError(f"{x.type} has no trailing shape {shape}")
    if sizes is not None and sizes != _affine_shape(x.tensor, found):
        raise ShapeError(f"axes {found} of {x.type} do not have the normalised shape {sizes}"
                        )
    return found


@located
def layer_norm(input: Any, normalized_shape: Any = None, weight: Any = None, bias: Any = None,
               eps: float = 1e-5, *, axes: int | Iterable[int] | None = None) -> Node:
    """(x − μ)/√(σ² + eps)·w + b, with population variance over the normalised axes.

    These are the last ones, of shape `normalized_shape`, or any `axes`. weight and bias have the
    shape of those axes. f16 and bf16 compute in f32. Raises ShapeError, DTypeError (not a float),
    ArgumentError (eps not positive).
    """
    return _normalise(LAYER_NORM, input, normalized_shape, weight, bias, eps, axes)


@located
def rms_norm(input: Any, normalized_shape: Any = None, weight: Any = None,
             eps: float | None = None, bias: Any = None, *,
             axes: int | Iterable[int] | None = None) -> Node:
    """x/√(mean x² + eps)·w + b over the normalised axes, as `layer_norm` without the centring.

    eps None is the spacing of the compute type at 1 (f32's for f16 and bf16).
    """
    return _normalise(RMS_NORM, input, normalized_shape, weight, bias, eps, axes)


def _normalise(op: Op, x: Any, shape: Any, weight: Any, bias: Any, eps: float | None,
               axes: int | Iterable[int] | None) -> Node:
    x, *params = operands(x, *(p for p in (weight, bias) if p is not None))
    if eps is None:
        require_float(op.name, x.dtype)
        eps = float(np.finfo(x.dtype.compute.numpy).eps)
    return op(x, *params, axes=_normalised_axes(x, shape, axes), eps=real("eps", eps),
              weight=weight is not None, bias=bias is not None)
