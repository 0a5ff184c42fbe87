"""Softmax of scaled and masked scores, with an explicit backward op."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isfinite
from typing import Any

from rlx_py.ir.base.errors import ArgumentError, ShapeError
from rlx_py.ir.base.types import TensorType, Type
from rlx_py.ir.graph.transforms import AD
from rlx_py.ir.nodes.node import Node
from rlx_py.ir.ops.making.arguments import real, require_floats, require_shape
from rlx_py.ir.ops.making.families import composite
from rlx_py.ir.ops.making.located import located
from rlx_py.ir.ops.making.rows import before_last
from rlx_py.ir.ops.nn.norm.softmax import normalised, row_sum, shifted_exponentials
from rlx_py.ir.ops.operands.operand import as_node, broadcast_shape, broadcast_to, convert
from rlx_py.ir.ops.operands.precision import in_compute_type
from rlx_py.ir.ops.primitive.elementwise import SELECT, STOP_GRADIENT
from rlx_py.ir.ops.primitive.movement import filled


def _check(op: str, z: TensorType, scale: float, *rest: TensorType) -> None:
    require_floats(op, z, *rest)
    if not z.rank:
        raise ShapeError(f"{op} needs an axis to sum over, not {z}")
    if not isfinite(scale):
        raise ArgumentError(f"scale must be finite, not {scale}")


def _infer(z: TensorType, *mask: TensorType, scale: float) -> Type:
    _check("softmax_scaled_masked", z, scale, *mask)
    if len(mask) > 1:
        raise ArgumentError(f"{len(mask)} masks")
    for m in mask:
        if m.rank > z.rank or broadcast_shape(m.shape, z.shape) != z.shape:
            raise ShapeError(f"the mask {m} does not broadcast to {z}")
    return z


def _infer_backward(dy: TensorType, y: TensorType, *, scale: float) -> Type:
    _check("softmax_scaled_masked_backward", y, scale, dy)
    require_shape("dy", dy, y.shape)
    return y


@in_compute_type
def _softmax_scaled_masked(z: Node, *mask: Node, scale: float) -> Node:
    if not z.size:  # a maximum of nothing has no value
        return z
    s = z * scale
    for m in mask:
        s = s + broadcast_to(STOP_GRADIENT(m), s.shape)
    _, e, sums, _ = shifted_exponentials(s, s.rank - 1)
    return normalised(e, sums, s.rank - 1)


@in_compute_type
def _softmax_scaled_masked_backward(dy: Node, y: Node, *, scale: float) -> Node:
    """dz = scale·P·(dy − Σ dy·P)."""
    return y * (dy - row_sum(dy * y, y.rank - 1)) * scale


SOFTMAX_SCALED_MASKED_BACKWARD = composite(
    "softmax_scaled_masked_backward", _infer_backward, _softmax_scaled_masked_backward)


def _vjp(node: Node, ct: Node, ad: AD) -> Sequence[Node | None]:
    dz = SOFTMAX_SCALED_MASKED_BACKWARD(ct, node, **node.attrs)
    return (dz, *(None for _ in node.inputs[1:]))


def _jvp(node: Node, tangents: Sequence[Node | None], ad: AD) -> Node | None:
    # The Jacobian is symmetric, and the mask has no derivative.
    t = tangents[0]
    return None if t is None else SOFTMAX_SCALED_MASKED_BACKWARD(t, node, **node.attrs)


SOFTMAX_SCALED_MASKED = composite(
    "softmax_scaled_masked", _infer, _softmax_scaled_masked, vjp=_vjp, jvp=_jvp,
    rows=before_last)


@located
def softmax_scaled_masked(input: Any, mask: Any = None, scale: float = 1.0) -> Node:
    """softmax(scale·z + mask) over the last axis; a row without weight gives 0.

    mask: added, without gradient; or bool, true where an element takes part. It broadcasts. f16 and
    bf16 compute in f32. Raises ShapeError, DTypeError, ArgumentError.
    """
    z = as_node(input)
    attrs = {"scale": real("scale", scale)}
    if mask is None:
        return SOFTMAX_SCALED_MASKED(z, **attrs)
    m = as_node(mask, z.dtype)
    if m.dtype.kind == "bool":
        kept = z.tensor.with_shape(m.shape)
        m = SELECT(m, filled(0, kept), filled(-inf, kept))
    return SOFTMAX_SCALED_MASKED(z, convert(m, z.dtype), **attrs)
