"""Lengths and distances of vectors along an axis, under their PyTorch names."""

from __future__ import annotations

from math import inf
from typing import Any

from rlx_py.ir.base.errors import ShapeError
from rlx_py.ir.base.types import normalize_axis, require_float
from rlx_py.ir.nodes.node import Node
from rlx_py.ir.ops.making.arguments import not_negative, positive
from rlx_py.ir.ops.making.located import located
from rlx_py.ir.ops.nn.loss.loss import in_one_type
from rlx_py.ir.ops.numpy.shaping import expand_dims
from rlx_py.ir.ops.numpy.statistics import NORM, powers_root
from rlx_py.ir.ops.operands.operand import as_node, convert
from rlx_py.ir.ops.primitive.compare import LT
from rlx_py.ir.ops.primitive.elementwise import ABS, DIV, MUL, SELECT, SUB, fill
from rlx_py.ir.ops.primitive.reduce import REDUCE_MAX, REDUCE_SUM, widened


@located
def cosine_similarity(x1: Any, x2: Any, dim: int = 1, eps: float = 1e-8) -> Node:
    """Σ x1·x2/(max(‖x1‖, eps)·max(‖x2‖, eps)) along an axis; both broadcast.

    The gradient of a norm below eps, and so of a zero vector's, is 0.
    """
    least = positive("eps", eps)
    (a, b), dtype = in_one_type("cosine_similarity", x1, x2)
    axis = normalize_axis(dim, a.rank)
    # Each is scaled to a unit vector first: a product of norms overflows where they do not.
    u, v = (DIV(n, widened(_at_least(NORM(n, axes=(axis,)), least), n, (axis,))) for n in (a, b))
    return convert(REDUCE_SUM(MUL(u, v), axes=(axis,)), dtype)


def _at_least(norm: Node, least: float) -> Node:
    return SELECT(LT(norm, fill(norm, least)), fill(norm, least), norm)


@located
def normalize(input: Any, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Node:
    """x/max(‖x‖_p, eps) along an axis; what is shorter than eps has the gradient of x/eps."""
    order, least = positive("p", p), positive("eps", eps)
    x = as_node(input)
    require_float("normalize", x.dtype)
    axis = normalize_axis(dim, x.rank)
    wide = convert(x, x.dtype.compute)
    length = _at_least(_length(wide, order, axis), least)
    return convert(DIV(wide, widened(length, wide, (axis,))), x.dtype)


@located
def pairwise_distance(x1: Any, x2: Any, p: float = 2.0, eps: float = 1e-6,
                      keepdim: bool = False) -> Node:
    """The p-norm of x1 − x2 + eps along the last axis; both broadcast. p > 0, also inf."""
    order, shift = positive("p", p), not_negative("eps", eps)
    (a, b), dtype = in_one_type("pairwise_distance", x1, x2)
    if not a.rank:
        raise ShapeError(f"{a.type} has no axis to measure along")
    found = convert(_length(SUB(a, b) + shift, order, a.rank - 1), dtype)
    return expand_dims(found, -1) if keepdim else found


def _length(d: Node, p: float, axis: int) -> Node:
    axes = (axis,)
    if p == 2:
        return NORM(d, axes=axes)
    if p == inf:
        return REDUCE_MAX(ABS(d), axes=axes)
    if p == 1:
        return REDUCE_SUM(ABS(d), axes=axes)
    return powers_root(d, p, axes)
