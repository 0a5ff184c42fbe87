"""Sampling of images and volumes at run-time positions.

Formula: spatial transformers, Jaderberg et al. 2015.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Any

from rlx_py.ir.base.dim import surely_less
from rlx_py.ir.base.errors import ArgumentError, ShapeError
from rlx_py.ir.base.types import DType, TensorType, Type, i32, i64
from rlx_py.ir.nodes.node import Node
from rlx_py.ir.ops.making.arguments import require_floats
from rlx_py.ir.ops.making.families import composite
from rlx_py.ir.ops.making.located import located
from rlx_py.ir.ops.numpy.choice import clip, minimum
from rlx_py.ir.ops.numpy.shaping import concatenate
from rlx_py.ir.ops.operands.operand import operands, ratio
from rlx_py.ir.ops.operands.precision import in_compute_type
from rlx_py.ir.ops.primitive.compare import AND, GE, GT, LE, LT
from rlx_py.ir.ops.primitive.elementwise import FLOOR, ROUND, SELECT, STOP_GRADIENT, cast, fill
from rlx_py.ir.ops.primitive.index import TAKE_ALONG
from rlx_py.ir.ops.primitive.movement import reshaped, sliced, spread
from rlx_py.ir.ops.primitive.reduce import REDUCE_SUM

MODES = ("bilinear", "nearest")
PADDINGS = ("zeros", "border", "reflection")


def _infer(x: TensorType, grid: TensorType, *, mode: str, padding: str, align_corners: bool
           ) -> Type:
    require_floats("grid_sample", x, grid)
    rank = x.rank - 2
    if rank not in (2, 3) or grid.rank != x.rank or grid.shape[-1] != rank:
        raise ShapeError(f"input [N, C, H, W] takes a grid [N, Ho, Wo, 2], a volume one of 3: not "
                         f"{x} and {grid}")
    if x.shape[0] != grid.shape[0]:
        raise ShapeError(f"batches of {x} and {grid} differ")
    if not all(x.shape[2:]):
        raise ShapeError(f"{x} has no elements to sample")
    if mode not in MODES:
        raise ArgumentError(f"mode {mode!r} is not one of {', '.join(MODES)}")
    if padding not in PADDINGS:
        raise ArgumentError(f"padding_mode {padding!r} is not one of {', '.join(PADDINGS)}")
    return x.with_shape((*x.shape[:2], *grid.shape[1:-1]))


def _unnormalised(g: Node, size: int, align_corners: bool) -> Node:
    """−1 … 1 as positions: of the outermost centres, or of the outer edges."""
    return (g + 1) * ratio(size - 1, 2, g.dtype) if align_corners else ((g + 1) * size - 1) * 0.5


def _reflected(at: Node, low: float, span: float) -> Node:
    """A position folded back into low … low + span."""
    if span == 0:
        return fill(at, low)
    away = abs(at - low) % (2 * span)
    return minimum(away, 2 * span - away) + low


def _held(at: Node, size: int) -> Node:
    """A position moved to the nearest centre. At the outermost ones the slope is 0, so that what
    lies beyond them never counts."""
    inside = AND(GT(at, fill(at, 0)), LT(at, fill(at, size - 1)))
    return SELECT(inside, at, STOP_GRADIENT(clip(at, 0, size - 1)))


def _positions(grid: Node, size: int, entry: int, padding: str, align_corners: bool) -> Node:
    """[N, P]: where along one axis each output samples."""
    start, stop = (0,) * grid.rank, (*grid.shape[:-1], entry + 1)
    line = sliced(grid, (*start[:-1], entry), stop, (1,) * grid.rank)
    at = _unnormalised(reshaped(line, (grid.shape[0], prod(grid.shape[1:-1]))), size,
                       align_corners)
    if padding == "zeros":
        return at
    if padding == "reflection":
        at = (_reflected(at, 0, size - 1) if align_corners else _reflected(at, -0.5, size))
    return _held(at, size)


Tap = tuple[Node, Node, Node | None]  # element, whether it is one, weight (None: 1)


def _tap(place: Node, weight: Node | None, size: int, dtype: DType) -> Tap:
    inside = AND(GE(place, fill(place, 0)), LE(place, fill(place, size - 1)))
    return cast(clip(place, 0, size - 1), dtype), inside, weight


def _axis_taps(at: Node, size: int, mode: str, dtype: DType) -> list[Tap]:
    if mode == "nearest":
        return [_tap(ROUND(at), None, size, dtype)]
    low = FLOOR(at)
    high = at - low
    return [_tap(low, 1 - high, size, dtype), _tap(low + 1, high, size, dtype)]


def _corner(taps: Sequence[Tap], sizes: Sequence[int]) -> Tap:
    """The element of several axes, row-major, from one tap of each."""
    place, inside, weight = taps[0]
    for size, (p, i, w) in zip(sizes[1:], taps[1:], strict=True):
        place, inside = place * size + p, AND(inside, i)
        weight = w if weight is None or w is None else weight * w
    return place, inside, weight


@in_compute_type
def _grid_sample(x: Node, grid: Node, *, mode: str, padding: str, align_corners: bool) -> Node:
    n, c, *sizes = x.shape
    dtype = i32 if surely_less(prod(sizes), 2**31) else i64
    lines = [_axis_taps(_positions(grid, size, len(sizes) - 1 - i, padding, align_corners), size,
                        mode, dtype) for i, size in enumerate(sizes)]
    corners = [_corner(taps, sizes) for taps in product(*lines)]
    # All corners in one gather, whose adjoint is then one scatter.
    place = concatenate([SELECT(i, p, fill(p, -1)) for p, i, _ in corners], 1)
    whole = (n, c, place.shape[1])
    found = TAKE_ALONG(reshaped(x, (n, c, prod(sizes))), spread(place, whole, (0, 2)), axis=2,
                       mode="fill")
    weights = [SELECT(i, w, fill(w, 0)) for _, i, w in corners if w is not None]
    if weights:
        found = found * spread(concatenate(weights, 1), whole, (0, 2))
    split = reshaped(found, (n, c, len(corners), prod(grid.shape[1:-1])))
    return reshaped(REDUCE_SUM(split, axes=(2,)), (n, c, *grid.shape[1:-1]))


GRID_SAMPLE = composite("grid_sample", _infer, _grid_sample)


@located
def grid_sample(input: Any, grid: Any, mode: str = "bilinear", padding_mode: str = "zeros",
                align_corners: bool = False) -> Node:
    """input[N, C, H, W] at the positions grid[N, Ho, Wo, (x, y)], or a volume at (x, y, z).

    −1 and 1 are the outer edges of input, or with align_corners the centres of the outermost
    elements. "bilinear" weighs the nearest centres along each axis; "nearest" takes one (half to
    even). Outside: "zeros", "border" (the nearest element; slope 0 from there on) or "reflection".
    f16 and bf16 compute in f32. Raises ShapeError (ranks, sizes, no elements), DTypeError (not
    floats), ArgumentError (modes).
    """
    x, positions = operands(input, grid)
    return GRID_SAMPLE(x, positions, mode=mode, padding=padding_mode,
                       align_corners=bool(align_corners))
