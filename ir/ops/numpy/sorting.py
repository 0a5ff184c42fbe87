"""Sorting and what rests on it, under NumPy's and PyTorch's names.

Order is stable; NaN is larger than any number, so it comes last, and first in descending order. A
gradient goes to the chosen elements; positions have none.
"""

from __future__ import annotations

from math import floor
from typing import Any

from rlx_py.ir.base.errors import ArgumentError, ShapeError
from rlx_py.ir.base.types import normalize_axes, normalize_axis
from rlx_py.ir.nodes.node import Node
from rlx_py.ir.ops.making.located import located
from rlx_py.ir.ops.numpy.arithmetic import floating
from rlx_py.ir.ops.numpy.choice import isnan, where
from rlx_py.ir.ops.numpy.folding import any as any_of
from rlx_py.ir.ops.numpy.shaping import window
from rlx_py.ir.ops.operands.operand import as_node
from rlx_py.ir.ops.primitive.elementwise import cast
from rlx_py.ir.ops.primitive.index import TAKE_ALONG
from rlx_py.ir.ops.primitive.movement import permuted, reshaped
from rlx_py.ir.ops.primitive.order import ARGSORT


def _line(x: Any, axis: int | None) -> tuple[Node, int]:
    """The array and the axis to sort along; flat for None."""
    node = as_node(x)
    if axis is None:
        return reshaped(node, (node.size,)), 0
    return node, normalize_axis(axis, node.rank)


def _chosen(node: Node, places: Node, axis: int) -> Node:
    # Positions come from a sort, so none is outside.
    return TAKE_ALONG(node, places, axis=axis, mode="clip") if node.size else node


@located
def argsort(x: Any, axis: int | None = -1, descending: bool = False) -> Node:
    """Positions (i64) that sort along an axis (None: of the flattened array), stable."""
    node, at = _line(x, axis)
    return ARGSORT(node, axis=at, descending=bool(descending))


@located
def sort(x: Any, axis: int | None = -1, descending: bool = False) -> Node:
    """The elements in order along an axis (None: of the flattened array)."""
    node, at = _line(x, axis)
    return _chosen(node, ARGSORT(node, axis=at, descending=bool(descending)), at)


@located
def top_k(x: Any, k: int, axis: int = -1, largest: bool = True) -> tuple[Node, Node]:
    """The k largest (or smallest) elements along an axis in order, and their positions (i64).

    Of equal elements the first comes first. Raises ArgumentError where there are fewer than k.
    """
    node, at = _line(x, axis)
    if isinstance(k, bool) or not isinstance(k, int) or not 0 <= k <= node.shape[at]:
        raise ArgumentError(f"{node.type} has no {k!r} elements to take along axis {at}")
    places = window(ARGSORT(node, axis=at, descending=bool(largest)), at, 0, k)
    if not places.size:
        return window(node, at, 0, k), places
    return _chosen(node, places, at), places


@located
def quantile(x: Any, q: float, axis: Any = None, keepdims: bool = False) -> Node:
    """The value below which a fraction q of the elements over axes lie, between the two nearest
    linearly; NaN where one is NaN."""
    if isinstance(q, bool) or not isinstance(q, int | float) or not 0 <= q <= 1:
        raise ArgumentError(f"a quantile is a number in 0 … 1, not {q!r}")
    node = floating(x)
    axes = normalize_axes(axis, node.rank)
    kept = tuple(i for i in range(node.rank) if i not in axes)
    shape = tuple(node.shape[i] for i in kept)
    size = 1
    for a in axes:
        size *= node.shape[a]
    if not size:
        raise ShapeError(f"{node.type} has no elements over axes {axes}")
    flat = reshaped(permuted(node, (*kept, *axes)), (*shape, size))
    ordered = sort(cast(flat, flat.dtype.compute))
    below = min(floor(q * (size - 1)), size - 1)
    weight = q * (size - 1) - below
    found = _element(ordered, below, shape)
    if weight:
        above = _element(ordered, below + 1, shape)
        # Not found + weight·(above − found): the difference of equal infinities is NaN.
        found = (1 - weight) * found + weight * above
    found = where(any_of(isnan(flat), -1), float("nan"), found)
    whole = tuple(1 if i in axes else d for i, d in enumerate(node.shape))
    return reshaped(cast(found, node.dtype), whole if keepdims else shape)


def _element(ordered: Node, position: int, shape: tuple[int, ...]) -> Node:
    axis = ordered.rank - 1
    return reshaped(window(ordered, axis, position, position + 1), shape)


@located
def percentile(x: Any, q: float, axis: Any = None, keepdims: bool = False) -> Node:
    """`quantile` of q/100."""
    return quantile(x, q / 100, axis, keepdims)


@located
def median(x: Any, axis: Any = None, keepdims: bool = False) -> Node:
    """The middle element over axes, or the mean of the middle two; NaN where one is NaN."""
    return quantile(x, 0.5, axis, keepdims)
