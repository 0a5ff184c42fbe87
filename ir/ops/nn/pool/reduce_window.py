"""Folds of sliding windows by any monoid."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import inf
from typing import Any

from rlx_py.ir.base.errors import ArgumentError
from rlx_py.ir.base.types import DType, bool_, i64, listed, normalize_axis, u8
from rlx_py.ir.nodes.node import Node, Op
from rlx_py.ir.ops.making.arguments import integers
from rlx_py.ir.ops.making.located import located
from rlx_py.ir.ops.nn.pool.pool import MAX_POOL, padded_windows, pooled_type, tap_axes
from rlx_py.ir.ops.numpy.statistics import LOGSUMEXP
from rlx_py.ir.ops.operands.operand import as_node
from rlx_py.ir.ops.operands.spatial import padding_pairs, per_axis
from rlx_py.ir.ops.primitive.elementwise import NEG, cast
from rlx_py.ir.ops.primitive.movement import inverse, permuted
from rlx_py.ir.ops.primitive.reduce import (
    ALL,
    ANY,
    REDUCE_MAX,
    REDUCE_MIN,
    REDUCE_PROD,
    REDUCE_SUM,
    highest,
    kept_axes,
    lowest,
)


@dataclass(frozen=True)
class Monoid:
    """A reduction, and the value that changes nothing in it."""

    reduce: Op
    identity: Callable[[DType], Any]


MONOIDS = {
    "sum": Monoid(REDUCE_SUM, lambda dtype: 0),
    "prod": Monoid(REDUCE_PROD, lambda dtype: 1),
    "max": Monoid(REDUCE_MAX, lowest),
    "min": Monoid(REDUCE_MIN, highest),
    "any": Monoid(ANY, lambda dtype: False),
    "all": Monoid(ALL, lambda dtype: True),
    "logsumexp": Monoid(LOGSUMEXP, lambda dtype: -inf),
}
EXTREMES = ("max", "min")


def _folded(x: Node, monoid: str, **line: Any) -> Node:
    """Over the last axes of x."""
    if monoid in EXTREMES and x.dtype is bool_:
        return cast(_folded(cast(x, u8), monoid, **line), bool_)
    if monoid in EXTREMES and x.dtype.is_float:
        # Pools give the gradient to one winner, which is never padding.
        return MAX_POOL(x, **line) if monoid == "max" else NEG(MAX_POOL(NEG(x), **line))
    if monoid in EXTREMES:
        pooled_type(x.tensor, **line)
    if monoid in ("sum", "prod") and x.dtype is bool_:
        x = cast(x, i64)
    fold = MONOIDS[monoid]
    windows = padded_windows(x, fold.identity(x.dtype), **line)
    return fold.reduce(windows, axes=tap_axes(windows, len(line["size"])))


@located
def reduce_window(x: Any, monoid: str, window: Any, stride: Any = 1, padding: Any = 0,
                  dilation: Any = 1, axes: int | Iterable[int] | None = None) -> Node:
    """Windows of some axes folded by "sum", "prod", "max", "min", "any", "all" or "logsumexp".

    window, stride and dilation are an int or one int an axis, padding also a pair (low, high) an
    axis; axes are the last len(window) ones, or all for an int. Padding counts as nothing: a window
    of padding alone gives the identity. For max and min it is a ShapeError, NaN wins, and the
    gradient goes to the first of equals in row-major order. The product's gradient is exact at
    zeros. bool sums to i64. Raises ShapeError (window beyond the padded axis), DTypeError ("any"
    and "all" take bool, "logsumexp" floats), ArgumentError (no such monoid, stride 0, …).
    """
    node = as_node(x)
    if monoid not in MONOIDS:
        raise ArgumentError(f"monoid {monoid!r} is not one of {', '.join(MONOIDS)}")
    if axes is None:
        count = node.rank if isinstance(window, int) else len(listed(window, "window"))
        found = list(range(node.rank - count, node.rank)) if count <= node.rank else []
    else:
        found = [normalize_axis(a, node.rank) for a in integers("axes", axes)]
    if not found or len(set(found)) != len(found):
        raise ArgumentError(f"window {window!r} fits no axes of {node.type}")
    rank = len(found)
    low, high = padding_pairs(padding, rank)
    order = (*kept_axes(node.rank, tuple(found)), *found)
    y = _folded(permuted(node, order), monoid, size=per_axis("window", window, rank, 1),
                stride=per_axis("stride", stride, rank, 1), low=low, high=high,
                dilation=per_axis("dilation", dilation, rank, 1))
    return permuted(y, inverse(order))
