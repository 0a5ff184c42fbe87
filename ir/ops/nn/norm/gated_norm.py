"""RMS normalisation gated by silu, of the last axis in groups, in either order.

Formula: Mamba-2, Dao and Gu 2024; RMS norm, Zhang and Sennrich 2019.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypedDict, Unpack

from rlx_py.ir.base.errors import ShapeError
from rlx_py.ir.base.types import TensorType, TupleType, Type
from rlx_py.ir.graph.transforms import AD
from rlx_py.ir.nodes.node import Node
from rlx_py.ir.ops.making.arguments import integer, real, require_floats, require_shape
from rlx_py.ir.ops.making.families import composite
from rlx_py.ir.ops.making.located import located
from rlx_py.ir.ops.making.rows import Rows, same_axes
from rlx_py.ir.ops.nn.norm.norm import check_norm_attributes, scaled, scaled_backward
from rlx_py.ir.ops.operands.operand import operands
from rlx_py.ir.ops.operands.precision import in_compute_type
from rlx_py.ir.ops.primitive.movement import reshaped
from rlx_py.ir.ops.primitive.special import LOGISTIC

Sizes = tuple[int, ...]


class Attributes(TypedDict):
    """What the norm carries."""

    group_size: int
    norm_before_gate: bool
    eps: float
    weight: bool
    bias: bool


def _check(x: TensorType, z: TensorType, *params: TensorType, group_size: int,
           norm_before_gate: bool, eps: float, weight: bool, bias: bool) -> None:
    require_floats("rms_norm_gated", x, z, *params)
    require_shape("gate", z, x.shape)
    check_norm_attributes(eps, len(params), weight, bias)
    if not x.rank:
        raise ShapeError(f"{x} has no axis to normalise over")
    if group_size < 1 or x.shape[-1] % group_size:
        raise ShapeError(f"group_size {group_size} does not divide the last axis of {x}")
    for t in params:
        require_shape("weight or bias", t, params[0].shape)
        groups, rows = prod(t.shape[:-1]), prod(x.shape[:-1])
        if t.shape[-1:] != x.shape[-1:] or not groups or rows % groups:
            raise ShapeError(f"weight or bias {t} must be [{x.shape[-1]}], or hold that for "
                             f"groups that divide the {rows} rows of {x}")


def _infer(*types: TensorType, **attrs: Unpack[Attributes]) -> Type:
    _check(*types, **attrs)
    return types[0]


def _infer_backward(dy: TensorType, x: TensorType, z: TensorType, *params: TensorType,
                    **attrs: Unpack[Attributes]) -> Type:
    require_shape("dy", dy, x.shape)
    _check(x, z, *params, **attrs)
    return TupleType((x, x, *params))


@dataclass(frozen=True)
class _Layout:
    """The last axis in groups, and the rows so that parameters lie along whole trailing axes."""

    shape: Sizes
    params: Sizes  # shape of a parameter, its last axis in groups

    @property
    def along(self) -> Sizes:
        """The axes of the parameters."""
        rank = len(self.shape)
        return tuple(range(rank - len(self.params), rank))

    @property
    def over(self) -> Sizes:
        """The axis of a group."""
        return (len(self.shape) - 1,)


def _layout(x: Sizes, param: Sizes, group_size: int) -> _Layout:
    """Row i takes the parameters of group i mod G, the leading axes of `param` holding G."""
    last = (x[-1] // group_size, group_size)
    rows, groups = x[:-1], param[:-1]
    if groups and rows[len(rows) - len(groups):] != groups:
        rows = (prod(rows) // prod(groups), *groups)
    return _Layout((*rows, *last), (*groups, *last))


def gate_of(z: Node) -> tuple[Node, Node]:
    """silu(z) and its slope σ + z·σ·(1 − σ)."""
    s = LOGISTIC(z)
    return z * s, s * (z * (1 - s) + 1)


def _grouped(x: Node, z: Node, params: Sequence[Node], group_size: int
             ) -> tuple[_Layout, Node, Node, list[Node]]:
    """The layout, and all operands in it."""
    lay = _layout(x.shape, params[0].shape if params else x.shape[-1:], group_size)
    return (lay, reshaped(x, lay.shape), reshaped(z, lay.shape),
            [reshaped(p, lay.params) for p in params])


@in_compute_type
def _rms_norm_gated(x: Node, z: Node, *params: Node, group_size: int, norm_before_gate: bool,
                    **attrs: Any) -> Node:
    lay, u, v, affine_params = _grouped(x, z, params, group_size)
    gate, _ = gate_of(v)
    y = scaled(u if norm_before_gate else u * gate, affine_params, over=lay.over, along=lay.along,
               **attrs)
    return reshaped(y * gate if norm_before_gate else y, x.shape)


@in_compute_type
def _rms_norm_gated_backward(dy: Node, x: Node, z: Node, *params: Node, group_size: int,
                             norm_before_gate: bool, **attrs: Any) -> tuple[Node, ...]:
    """Norm first, y = m·silu(z): dm = dy·silu(z), dz = dy·m·silu'(z). Gate first, u = x·silu(z):
    dx = du·silu(z), dz = du·x·silu'(z). dx of dm, or du of dy, is that of the norm."""
    lay, u, v, affine_params = _grouped(x, z, params, group_size)
    g = reshaped(dy, lay.shape)
    gate, slope = gate_of(v)
    norm = {"over": lay.over, "along": lay.along, **attrs}
    if norm_before_gate:
        dx, *rest = scaled_backward(g * gate, u, affine_params, **norm)
        dz = g * scaled(u, affine_params, **norm) * slope
    else:
        du, *rest = scaled_backward(g, u * gate, affine_params, **norm)
        dx, dz = du * gate, du * u * slope
    return (reshaped(dx, x.shape), reshaped(dz, x.shape),
            *(reshaped(t, p.shape) for t, p in zip(rest, params, strict=True)))


RMS_NORM_GATED_BACKWARD = composite(
    "rms_norm_gated_backward", _infer_backward, _rms_norm_gated_backward)


def _vjp(node: Node, ct: Node, ad: AD) -> Sequence[Node | None]:
    return list(RMS_NORM_GATED_BACKWARD(ct, *node.inputs, **node.attrs))


def _rows(node: Node) -> Sequence[Rows]:
    """Input and gate; every row takes the same parameters or those of its group."""
    apart = same_axes(node.rank - 1)
    return [apart, apart, *({} for _ in node.inputs[2:])]


RMS_NORM_GATED = composite("rms_norm_gated", _infer, _rms_norm_gated, vjp=_vjp, rows=_rows)


@located
def rms_norm_gated(input: Any, gate: Any, weight: Any = None, bias: Any = None,
                   eps: float = 1e-5, group_size: int | None = None,
                   norm_before_gate: bool = False) -> Node:
    """RMS norm of input[…, D] times silu(gate): of the product, or with norm_before_gate before it.

    Each group of group_size elements of the last axis (all of it by default) has a mean square of
    its own. weight and bias are [D], or [G…, D] with G groups: row i of input then takes those of
    group i mod G. The gate has the shape of input. f16 and bf16 compute in f32. Raises ShapeError
    (shapes, sizes that do not divide), DTypeError (not floats), ArgumentError (eps not positive).
    """
    x, z, *params = operands(input, gate, *(p for p in (weight, bias) if p is not None))
    if not x.rank:
        raise ShapeError("a scalar has no axis to normalise over")
    size = max(x.shape[-1], 1) if group_size is None else integer("group_size", group_size)
    return RMS_NORM_GATED(x, z, *params, group_size=size, norm_before_gate=bool(norm_before_gate),
                          eps=real("eps", eps), weight=weight is not None, bias=bias is not None)
