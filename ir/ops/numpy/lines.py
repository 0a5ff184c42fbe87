"""Functions of lines of samples, under their NumPy names: differences, integrals, convolutions,
places in a sorted line and what lies between."""

from __future__ import annotations

from typing import Any

from rlx_py.ir.base.errors import ArgumentError, ShapeError
from rlx_py.ir.base.types import TensorType, bool_, i64, normalize_axis
from rlx_py.ir.nodes.node import Node
from rlx_py.ir.ops.making.located import located
from rlx_py.ir.ops.numpy.arithmetic import floating, floats_together, subtract
from rlx_py.ir.ops.numpy.choice import isnan, logical_and, logical_not, not_equal, where
from rlx_py.ir.ops.numpy.folding import sum as total
from rlx_py.ir.ops.numpy.products import matmul
from rlx_py.ir.ops.numpy.shaping import flip, moveaxis, window
from rlx_py.ir.ops.operands.operand import as_node, broadcast_to, operands
from rlx_py.ir.ops.operands.spatial import pad_trailing
from rlx_py.ir.ops.primitive.compare import LT, OR
from rlx_py.ir.ops.primitive.elementwise import ADD, SELECT, cast, fill
from rlx_py.ir.ops.primitive.index import GATHER
from rlx_py.ir.ops.primitive.movement import filled
from rlx_py.ir.ops.primitive.windows import WINDOWS

MODES = ("full", "same", "valid")


@located
def diff(x: Any, n: int = 1, axis: int = -1) -> Node:
    """x[i + 1] − x[i] along an axis, n times; of bools, whether they differ."""
    node = as_node(x)
    if n < 0:
        raise ArgumentError(f"differences are taken n ≥ 0 times, not {n}")
    if n and not node.rank:
        raise ShapeError(f"{node.type} has no axis to difference")
    place = normalize_axis(axis, node.rank) if n else 0
    for _ in range(min(n, node.shape[place]) if n else 0):
        size = node.shape[place]
        later, earlier = window(node, place, 1, size), window(node, place, 0, size - 1)
        node = not_equal(later, earlier) if node.dtype is bool_ else subtract(later, earlier)
    return node


@located
def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Node:
    """∫ y along an axis by the trapezoidal rule, at points x (a line, or of y's shape) or dx apart.

    Raises ShapeError, ArgumentError (no such axis).
    """
    node = as_node(y)
    place = normalize_axis(axis, node.rank)
    values, points = floats_together(node, 0.0 if x is None else _along(x, node, place))
    size = values.shape[place]
    later, earlier = (window(values, place, min(a, size), max(b, min(a, size)))
                      for a, b in ((1, size), (0, size - 1)))
    apart = as_node(dx, values.dtype) if x is None else diff(points, 1, place)
    return total(apart * (later + earlier) / 2, place)


def _along(x: Any, y: Node, place: int) -> Node:
    """Points in the shape of y."""
    points = as_node(x)
    if points.rank != 1:
        return broadcast_to(points, y.shape)
    return moveaxis(broadcast_to(points, (*moveaxis(y, place, -1).shape[:-1], y.shape[place])), -1,
                    place)


# ---- convolution -----------------------------------------------------------------------------


def _two_lines(a: Any, v: Any) -> tuple[Node, Node]:
    first, second = operands(a, v)
    for line in (first, second):
        if line.rank != 1 or not line.size:
            raise ShapeError(f"lines of one axis and one element at least, not {line.type}")
    return first, second


def _swept(line: Node, weights: Node, mode: str) -> Node:
    """Σ_j line[i + j]·weights[j] at every place; weights no longer than the line."""
    if mode not in MODES:
        raise ArgumentError(f"mode {mode!r} is not one of {', '.join(MODES)}")
    reach = weights.size - 1
    low, high = {"full": (reach, reach), "same": (reach - reach // 2, reach // 2),
                 "valid": (0, 0)}[mode]
    frames = WINDOWS(pad_trailing(line, (low,), (high,), 0), size=(weights.size,), stride=(1,),
                     dilation=(1,))
    return matmul(frames, weights)


@located
def convolve(a: Any, v: Any, mode: str = "full") -> Node:
    """Σ_j a[i − j]·v[j] of two lines of one axis.

    mode "full" has every overlap, "same" the middle of the longer line's size, "valid" whole
    overlaps alone. Raises ShapeError (rank, no elements), ArgumentError (mode).
    """
    first, second = _two_lines(a, v)
    if first.size < second.size:
        first, second = second, first
    return _swept(first, flip(second), mode)


@located
def correlate(a: Any, v: Any, mode: str = "valid") -> Node:
    """Σ_j a[i + j]·v[j] of two lines of one axis; modes and errors as `convolve`."""
    first, second = _two_lines(a, v)
    if first.size < second.size:
        return flip(_swept(second, first, mode))
    return _swept(first, second, mode)


# ---- sorted lines ----------------------------------------------------------------------------


def _before(a: Node, b: Node) -> Node:
    """a < b, NaN beyond all numbers."""
    return OR(LT(a, b), logical_and(logical_not(isnan(a)), isnan(b)))


@located
def searchsorted(a: Any, v: Any, side: str = "left") -> Node:
    """How many elements of the sorted line a[N] come before each of v (i64); with side "right", or
    are equal to it. NaN is beyond all numbers. By bisection, in log₂ N steps.

    Raises ShapeError (rank), DTypeError (bool), ArgumentError (side).
    """
    if side not in ("left", "right"):
        raise ArgumentError(f"side {side!r} is not left or right")
    line, values = operands(a, v)
    if line.rank != 1:
        raise ShapeError(f"the sorted line has one axis, not {line.type}")
    found = filled(0, TensorType(i64, values.shape))
    step = 1 << line.size.bit_length() >> 1
    while step:
        place = ADD(found, fill(found, step))
        probe = GATHER(line, place - 1, axis=0, mode="clip")
        behind = _before(probe, values) if side == "left" else logical_not(_before(values, probe))
        inside = place <= line.size
        found = SELECT(logical_and(inside, behind), place, found)
        step >>= 1
    return found


@located
def interp(x: Any, xp: Any, fp: Any) -> Node:
    """At each x the value on the lines between points (xp[i], fp[i]), xp increasing; beyond them
    that of the nearest point.

    The slope is that of the line to the right at a point, 0 from the last on. Raises ShapeError.
    """
    at, points, heights = map(floating, operands(x, xp, fp))
    if points.rank != 1 or points.shape != heights.shape or not points.size:
        raise ShapeError(f"points {points.type} and {heights.type} must be two lines of one size")
    last = points.size - 1
    if not last:
        return where(isnan(at), at, broadcast_to(heights, at.shape) if at.rank else heights[0])
    right = searchsorted(points, at, "right")
    low = cast(where(right < 1, 0, where(right > last, last - 1, right - 1)), i64)
    x0, x1, y0, y1 = (GATHER(line, place, axis=0, mode="clip") for line in (points, heights)
                      for place in (low, low + 1))
    between = y0 + (at - x0) / (x1 - x0) * (y1 - y0)
    found = where(at < points[0], heights[0], between)
    return where(at >= points[last], heights[last], found)
