"""Softmax and log-softmax along an axis, with explicit backward ops.

A row that is −inf throughout is a row without weight: softmax 0, log-softmax −inf, no NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import Any

from rlx_py.ir.base.types import TensorType, Type, normalize_axis, require_float
from rlx_py.ir.graph.transforms import AD
from rlx_py.ir.nodes.node import Node
from rlx_py.ir.ops.making.arguments import check_axis, require_floats, require_shape
from rlx_py.ir.ops.making.batching import along_axis
from rlx_py.ir.ops.making.families import composite
from rlx_py.ir.ops.making.located import located
from rlx_py.ir.ops.making.rows import beside_axis
from rlx_py.ir.ops.numpy.statistics import log_of_sum
from rlx_py.ir.ops.operands.operand import as_node
from rlx_py.ir.ops.operands.precision import in_compute_type
from rlx_py.ir.ops.primitive.compare import EQ, LT
from rlx_py.ir.ops.primitive.elementwise import (
    ABS,
    DIV,
    EXP,
    SELECT,
    STOP_GRADIENT,
    fill,
)
from rlx_py.ir.ops.primitive.reduce import REDUCE_MAX, REDUCE_SUM, widened


def shifted_exponentials(x: Node, axis: int) -> tuple[Node, Node, Node, Node]:
    """(x − m, exp(x − m), Σ exp(x − m), m) for the maximum m of each row.

    Sum and m lack the axis. m is 0 where the maximum is infinite, and the sum of a row of −inf is
    1, so neither makes NaN. m is a constant to derivatives, because what is made of these does not
    depend on the shift.
    """
    largest = REDUCE_MAX(x, axes=(axis,))
    finite = LT(ABS(largest), fill(largest, inf))
    m = STOP_GRADIENT(SELECT(finite, largest, fill(largest, 0)))
    z = x - widened(m, x, (axis,))
    e = EXP(z)
    sums = REDUCE_SUM(e, axes=(axis,))
    return z, e, SELECT(EQ(sums, fill(sums, 0)), fill(sums, 1), sums), m


def normalised(e: Node, sums: Node, axis: int) -> Node:
    """e / sums, by one division a row: a product costs a fraction of a quotient."""
    return e * widened(DIV(fill(sums, 1), sums), e, (axis,))


def row_sum(x: Node, axis: int) -> Node:
    """The sum along an axis, spread back over it."""
    return widened(REDUCE_SUM(x, axes=(axis,)), x, (axis,))


@in_compute_type
def _softmax(x: Node, *, axis: int) -> Node:
    if not x.size:  # a maximum of nothing has no value
        return x
    _, e, sums, _ = shifted_exponentials(x, axis)
    return normalised(e, sums, axis)


@in_compute_type
def _softmax_backward(dy: Node, y: Node, *, axis: int) -> Node:
    """dx = y(dy − Σ dy·y)."""
    return y * (dy - row_sum(dy * y, axis))


@in_compute_type
def _log_softmax(x: Node, *, axis: int) -> Node:
    if not x.size:
        return x
    z, e, sums, _ = shifted_exponentials(x, axis)
    return z - widened(log_of_sum(z, e, sums, (axis,)), x, (axis,))


@in_compute_type
def _log_softmax_backward(dy: Node, y: Node, *, axis: int) -> Node:
    """dx = dy − exp(y)·Σ dy."""
    return dy - EXP(y) * row_sum(dy, axis)


def _infer(op: str) -> Callable[..., Type]:
    def infer(x: TensorType, *, axis: int) -> Type:
        require_float(op, x.dtype)
        check_axis(axis, x)
        return x

    return infer


def _infer_backward(op: str) -> Callable[..., Type]:
    def infer(dy: TensorType, y: TensorType, *, axis: int) -> Type:
        require_floats(op, dy, y)
        require_shape("dy", dy, y.shape)
        check_axis(axis, y)
        return y

    return infer


SOFTMAX_BACKWARD = composite("softmax_backward", _infer_backward("softmax_backward"),
                             _softmax_backward, batch=along_axis)
LOG_SOFTMAX_BACKWARD = composite(
    "log_softmax_backward", _infer_backward("log_softmax_backward"), _log_softmax_backward,
    batch=along_axis)


def _softmax_vjp(node: Node, ct: Node, ad: AD) -> Sequence[Node | None]:
    return (SOFTMAX_BACKWARD(ct, node, **node.attrs),)


def _softmax_jvp(node: Node, tangents: Sequence[Node | None], ad: AD) -> Node | None:
    (t,) = tangents
    # The Jacobian diag(y) − y yᵀ is symmetric.
    return None if t is None else SOFTMAX_BACKWARD(t, node, **node.attrs)


def _log_softmax_vjp(node: Node, ct: Node, ad: AD) -> Sequence[Node | None]:
    return (LOG_SOFTMAX_BACKWARD(ct, node, **node.attrs),)


SOFTMAX = composite("softmax", _infer("softmax"), _softmax, vjp=_softmax_vjp, jvp=_softmax_jvp,
                    batch=along_axis, rows=beside_axis)
LOG_SOFTMAX = composite("log_softmax", _infer("log_softmax"), _log_softmax, vjp=_log_softmax_vjp,
                        batch=along_axis, rows=beside_axis)


@located
def softmax(input: Any, dim: int = -1) -> Node:
    """exp(x)/Σ exp(x) along an axis, shifted by the maximum so that it never overflows.

    f16 and bf16 compute in f32. Raises DTypeError (not a float), ArgumentError (no such axis).
    """
    x = as_node(input)
    return SOFTMAX(x, axis=normalize_axis(dim, x.rank))


@located
def log_softmax(input: Any, dim: int = -1) -> Node:
    """x − log Σ exp(x) along an axis; otherwise as `softmax`."""
    x = as_node(input)
    return LOG_SOFTMAX(x, axis=normalize_axis(dim, x.rank))


@located
def softmin(input: Any, dim: int = -1) -> Node:
    """`softmax` of −input."""
    return softmax(-as_node(input), dim)
