"""Folds over axes that leave NaN out, under their NumPy names.

`axis` is an int, several, or None for all. A NaN gets no gradient. Integers are folded as by the
functions without "nan".
"""

from __future__ import annotations

from math import inf, nan
from typing import Any

from rlx_py.ir.base.types import normalize_axes
from rlx_py.ir.nodes.node import Node
from rlx_py.ir.ops.making.located import located
from rlx_py.ir.ops.numpy import folding
from rlx_py.ir.ops.numpy.arithmetic import floating
from rlx_py.ir.ops.numpy.choice import isnan, logical_not
from rlx_py.ir.ops.numpy.shaping import squeeze
from rlx_py.ir.ops.operands.operand import as_node, broadcast_to
from rlx_py.ir.ops.primitive.elementwise import DIV, SELECT, SQRT, STOP_GRADIENT, cast, fill

Axis = Any  # an int, several, or None


def _without(x: Node, value: float) -> Node:
    """The array with a value in the place of NaN."""
    return SELECT(isnan(x), fill(x, value), x) if x.dtype.is_float else x


@located
def nansum(x: Any, axis: Axis = None, keepdims: bool = False) -> Node:
    """Σ over axes of what is not NaN; 0 where all is."""
    return folding.sum(_without(as_node(x), 0), axis, keepdims=keepdims)


@located
def nanprod(x: Any, axis: Axis = None, keepdims: bool = False) -> Node:
    """Π over axes of what is not NaN; 1 where all is."""
    return folding.prod(_without(as_node(x), 1), axis, keepdims=keepdims)


def _count(x: Node, axis: Axis) -> Node:
    """How many are not NaN, in the compute type, the axes kept."""
    return folding.sum(cast(logical_not(isnan(x)), x.dtype.compute), axis, keepdims=True)


def _mean(x: Node, axis: Axis) -> Node:
    """The mean of what is not NaN, in the compute type, the axes kept."""
    wide = cast(x, x.dtype.compute)
    return DIV(folding.sum(_without(wide, 0), axis, keepdims=True), _count(x, axis))


def _shown(found: Node, x: Node, axis: Axis, keepdims: bool) -> Node:
    found = cast(found, x.dtype)
    return found if keepdims else squeeze(found, normalize_axes(axis, x.rank))


@located
def nanmean(x: Any, axis: Axis = None, keepdims: bool = False) -> Node:
    """The mean over axes of what is not NaN; NaN where all is."""
    node = floating(x)
    return _shown(_mean(node, axis), node, axis, keepdims)


def _deviations(x: Node, axis: Axis) -> Node:
    """x − mean in the compute type, 0 for NaN. Counted from the smallest, which changes no
    derivative, so that what is constant has none."""
    wide = cast(x, x.dtype.compute)
    least = STOP_GRADIENT(nanmin(wide, axis, keepdims=True))
    shifted = wide - least
    centred = shifted - broadcast_to(_mean(shifted, axis), wide.shape)
    return SELECT(isnan(wide), fill(wide, 0), centred)


def _degrees(x: Node, axis: Axis, ddof: int) -> Node:
    left = _count(x, axis) - ddof
    return SELECT(left > 0, left, fill(left, nan))


@located
def nanvar(x: Any, axis: Axis = None, ddof: int = 0, keepdims: bool = False) -> Node:
    """Σ(x − mean)²/(n − ddof) over axes of the n that are not NaN; NaN where n ≤ ddof."""
    node = floating(x)
    away = _deviations(node, axis)
    squares = folding.sum(away * away, axis, keepdims=True)
    return _shown(DIV(squares, _degrees(node, axis, ddof)), node, axis, keepdims)


@located
def nanstd(x: Any, axis: Axis = None, ddof: int = 0, keepdims: bool = False) -> Node:
    """√nanvar; where it is 0 its gradient is 0."""
    node = floating(x)
    length = folding.norm(_deviations(node, axis), axis=axis, keepdims=True)
    found = DIV(length, SQRT(_degrees(node, axis, ddof)))
    return _shown(found, node, axis, keepdims)


def _extreme(fold: Any, x: Any, worst: float, axis: Axis, keepdims: bool) -> Node:
    node = as_node(x)
    found: Node = fold(_without(node, worst), axis, keepdims=keepdims)
    if not node.dtype.is_float:
        return found
    nothing = folding.all(isnan(node), axis, keepdims=keepdims)
    return SELECT(nothing, fill(found, nan), found)


@located
def nanmax(x: Any, axis: Axis = None, keepdims: bool = False) -> Node:
    """The maximum over axes of what is not NaN, NaN where all is; gradient as `max`."""
    return _extreme(folding.max, x, -inf, axis, keepdims)


@located
def nanmin(x: Any, axis: Axis = None, keepdims: bool = False) -> Node:
    """The minimum over axes of what is not NaN, NaN where all is; gradient as `min`."""
    return _extreme(folding.min, x, inf, axis, keepdims)
