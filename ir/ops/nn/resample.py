"""Resampling of trailing axes to other sizes: nearest neighbour, and linear along each axis.

Positions are exact: an output i of an axis lies at a fraction of integers, never at a rounded
float. Each axis is a linear map with at most two taps.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import isfinite
from typing import Any, TypedDict, Unpack

from rlx_py.ir.base.dim import surely_less
from rlx_py.ir.base.errors import ArgumentError, ShapeError
from rlx_py.ir.base.types import DType, TensorType, Type, i32, i64, require_float
from rlx_py.ir.graph.transforms import AD
from rlx_py.ir.nodes.node import Node, Op
from rlx_py.ir.ops.making.arguments import real, require_shape
from rlx_py.ir.ops.making.constant import iota
from rlx_py.ir.ops.making.families import composite
from rlx_py.ir.ops.making.located import located
from rlx_py.ir.ops.making.rows import before_places
from rlx_py.ir.ops.nn.pool.adaptive_pool import ADAPTIVE_AVG_POOL
from rlx_py.ir.ops.numpy.choice import clip
from rlx_py.ir.ops.operands.operand import as_node
from rlx_py.ir.ops.operands.precision import in_compute_type
from rlx_py.ir.ops.operands.spatial import check_attributes, per_axis
from rlx_py.ir.ops.primitive.elementwise import INT_DIV, cast, fill
from rlx_py.ir.ops.primitive.index import GATHER, SCATTER_ADD
from rlx_py.ir.ops.primitive.movement import filled, reshaped, spread
from rlx_py.ir.ops.primitive.reduce import REDUCE_SUM

Sizes = tuple[int, ...]
Ratio = tuple[int, int]
MODES = ("nearest", "nearest-exact", "linear")
LARGEST_DENOMINATOR = 2**20


class Attributes(TypedDict):
    """What resampling carries: output sizes, and for each axis the step of the input that an output
    makes, as a fraction."""

    size: Sizes
    step: tuple[Ratio, ...]
    mode: str
    align_corners: bool


def _resampled(x: TensorType, *, size: Sizes, step: tuple[Ratio, ...], mode: str,
               align_corners: bool) -> TensorType:
    rank = len(size)
    check_attributes(rank, 1, size=size)
    check_attributes(2 * rank, 0, step=tuple(v for pair in step for v in pair))
    if any(den < 1 for _, den in step):
        raise ArgumentError(f"step {step} has a denominator below 1")
    if mode not in MODES:
        raise ArgumentError(f"mode {mode!r} is not one of {', '.join(MODES)}")
    lead = x.rank - rank
    if lead < 0 or not all(x.shape[lead:]):
        raise ShapeError(f"{x} has no elements of {rank} axes to resample")
    return x.with_shape((*x.shape[:lead], *size))


def _infer(x: TensorType, **attrs: Unpack[Attributes]) -> Type:
    require_float("resample", x.dtype)
    return _resampled(x, **attrs)


def _infer_backward(dy: TensorType, *, shape: Sizes, **attrs: Unpack[Attributes]) -> Type:
    require_float("resample_backward", dy.dtype)
    if len(shape) != len(attrs["size"]) or dy.rank < len(shape):
        raise ShapeError(f"{dy} is not {shape} resampled to {attrs['size']}")
    x = dy.with_shape((*dy.shape[:dy.rank - len(shape)], *shape))
    require_shape("dy", dy, _resampled(x, **attrs).shape)
    return x


# ---- one axis --------------------------------------------------------------------------------


def _places(count: int, factor: int, offset: int, largest: int) -> Node:
    """i·factor + offset for each i, in a type that also holds another number."""
    fits = all(surely_less(n, 2**31) for n in (count * factor + abs(offset), largest))
    dtype = i32 if fits else i64
    return iota(count, 0, dtype) * factor + offset


def _nearest(length: int, count: int, step: Ratio, exact: bool) -> Node:
    """⌊i·step⌋, or with exact the element under the centre of i: ⌊(i + ½)·step⌋."""
    num, den = step
    by = 2 * den if exact else den
    at = _places(count, 2 * num if exact else num, num if exact else 0, max(by, length))
    return clip(INT_DIV(at, fill(at, by)), None, length - 1)


def _linear(length: int, count: int, step: Ratio, align_corners: bool, dtype: DType
            ) -> list[tuple[Node, Node]]:
    """The two elements around position i·step, or (i + ½)·step − ½ cut at 0, and their weights."""
    num, den = step
    by = den if align_corners else 2 * den
    last = (length - 1) * by
    at = _places(count, num if align_corners else 2 * num, 0 if align_corners else num - den,
                 last + by)
    at = clip(at, 0, last)
    low = INT_DIV(at, fill(at, by))
    high = cast(at - low * by, dtype) / by
    return [(low, 1 - high), (clip(low + 1, None, length - 1), high)]


def _same(length: int, count: int, step: Ratio) -> bool:
    return length == count and step[0] == step[1]


def _repeats(length: int, count: int, step: Ratio) -> bool:
    """Whether nearest outputs are whole copies of each element."""
    return count == length * step[1] and step[0] == 1


def _taps(length: int, count: int, step: Ratio, mode: str, align_corners: bool, dtype: DType
          ) -> list[tuple[Node, Node | None]]:
    """Elements and weights (None: 1) of each output."""
    if mode == "linear":
        return [*_linear(length, count, step, align_corners, dtype)]
    return [(_nearest(length, count, step, mode == "nearest-exact"), None)]


def _weighted(x: Node, weight: Node | None, axis: int) -> Node:
    return x if weight is None else x * spread(weight, x.shape, (axis,))


@in_compute_type
def _resample(x: Node, *, size: Sizes, step: tuple[Ratio, ...], mode: str, align_corners: bool
              ) -> Node:
    for axis, (count, s) in enumerate(zip(size, step, strict=True), x.rank - len(size)):
        length = x.shape[axis]
        if _same(length, count, s):
            continue
        if mode != "linear" and _repeats(length, count, s):
            copies = (*x.shape[:axis + 1], s[1], *x.shape[axis + 1:])
            kept = tuple(i for i in range(len(copies)) if i != axis + 1)
            x = reshaped(spread(x, copies, kept), (*x.shape[:axis], count, *x.shape[axis + 1:]))
            continue
        parts = [_weighted(GATHER(x, place, axis=axis, mode="clip"), weight, axis)
                 for place, weight in _taps(length, count, s, mode, align_corners, x.dtype)]
        x = parts[0] if len(parts) == 1 else parts[0] + parts[1]
    return x


@in_compute_type
def _resample_backward(dy: Node, *, shape: Sizes, size: Sizes, step: tuple[Ratio, ...], mode: str,
                       align_corners: bool) -> Node:
    first = dy.rank - len(size)
    for axis, (length, count, s) in enumerate(zip(shape, size, step, strict=True), first):
        if _same(length, count, s):
            continue
        wanted = (*dy.shape[:axis], length, *dy.shape[axis + 1:])
        if mode != "linear" and _repeats(length, count, s):
            split = (*dy.shape[:axis], length, s[1], *dy.shape[axis + 1:])
            dy = REDUCE_SUM(reshaped(dy, split), axes=(axis + 1,))
            continue
        dx = filled(0, dy.tensor.with_shape(wanted))
        for place, weight in _taps(length, count, s, mode, align_corners, dy.dtype):
            dx = SCATTER_ADD(dx, place, _weighted(dy, weight, axis), axis=axis, mode="clip")
        dy = dx
    return dy


def _vjp(node: Node, ct: Node, ad: AD) -> Sequence[Node | None]:
    (x,), size = node.inputs, node.attrs["size"]
    return (RESAMPLE_BACKWARD(ct, shape=x.shape[x.rank - len(size):], **node.attrs),)


def _backward_vjp(node: Node, ct: Node, ad: AD) -> Sequence[Node | None]:
    return (RESAMPLE(ct, **{k: v for k, v in node.attrs.items() if k != "shape"}),)


def _linear_jvp(node: Node, tangents: Sequence[Node | None], ad: AD) -> Node | None:
    (t,) = tangents
    return None if t is None else node.op(t, **node.attrs)


RESAMPLE: Op = composite("resample", _infer, _resample, vjp=_vjp, jvp=_linear_jvp,
                         rows=before_places("size"))
RESAMPLE_BACKWARD: Op = composite("resample_backward", _infer_backward, _resample_backward,
                                  vjp=_backward_vjp, jvp=_linear_jvp)

# ---- public ----------------------------------------------------------------------------------

RANKS = {"linear": 1, "bilinear": 2, "trilinear": 3}


def _fraction(scale: float) -> Fraction:
    """The simplest fraction that rounds to this float, so that 0.1 is a tenth."""
    for limit in (2**6, 2**12, LARGEST_DENOMINATOR):
        found = Fraction(scale).limit_denominator(limit)
        if float(found) == scale:
            return found
    return Fraction(scale).limit_denominator(LARGEST_DENOMINATOR)


def _scales(scale_factor: Any, rank: int) -> list[Fraction]:
    given = scale_factor if isinstance(scale_factor, Sequence) else (scale_factor,) * rank
    values = [real("scale_factor", v) for v in given]
    if len(values) != rank or not all(isfinite(v) and v > 0 for v in values):
        raise ArgumentError(f"scale_factor {scale_factor!r} must be {rank} positive numbers")
    return [_fraction(v) for v in values]


def _step(length: int, count: int, scale: Fraction | None, align_corners: bool) -> Ratio:
    """The step of the input: between corners, or by the scale given, or by the sizes."""
    if align_corners:
        step = Fraction(length - 1, count - 1) if count > 1 else Fraction(0)
    else:
        step = Fraction(length, count) if scale is None else 1 / scale
    return step.numerator, step.denominator


@located
def interpolate(input: Any, size: Any = None,
                scale_factor: float | Sequence[float] | None = None, mode: str = "nearest",
                align_corners: bool | None = None,
                recompute_scale_factor: bool | None = None) -> Node:
    """input[N, C, L…] resampled to a size, or by scale_factor to ⌊L·scale⌋.

    mode "nearest": element ⌊i·step⌋; "nearest-exact": ⌊(i + ½)·step⌋; "linear" (any number of
    axes), "bilinear", "trilinear": between the two nearest along each axis, at (i + ½)·step − ½
    within the input, or with align_corners at i·(L − 1)/(size − 1); "area": means as
    `adaptive_avg_pool2d`. step is L/size, or 1/scale_factor where that is given, unless
    recompute_scale_factor. f16 and bf16 compute in f32. Raises ShapeError (rank, no elements),
    DTypeError (not a float), ArgumentError (arguments that exclude each other, sizes below 1).
    """
    x = as_node(input)
    rank = x.rank - 2
    if rank < 1 or rank != RANKS.get(mode, rank) and mode != "linear":
        raise ShapeError(f"mode {mode!r} does not take {x.type}")
    if (size is None) == (scale_factor is None):
        raise ArgumentError("give size or scale_factor, one of them")
    kind = "linear" if mode in RANKS else mode
    if kind not in (*MODES, "area"):
        raise ArgumentError(f"mode {mode!r} is not one of {', '.join((*MODES, *RANKS, 'area'))}")
    if align_corners is not None and kind != "linear":
        raise ArgumentError(f"mode {mode!r} has no align_corners")
    scales: list[Fraction | None] = [None] * rank
    if scale_factor is None:
        sizes = per_axis("size", size, rank, 1)
    else:
        given = _scales(scale_factor, rank)
        sizes = tuple(n * s.numerator // s.denominator
                      for n, s in zip(x.shape[2:], given, strict=True))
        scales = scales if recompute_scale_factor else [*given]
    if kind == "area":
        return ADAPTIVE_AVG_POOL(x, output=sizes)
    steps = tuple(_step(n, o, s, bool(align_corners))
                  for n, o, s in zip(x.shape[2:], sizes, scales, strict=True))
    return RESAMPLE(x, size=sizes, step=steps, mode=kind, align_corners=bool(align_corners))


@located
def upsample(input: Any, size: Any = None,
                scale_factor: float | Sequence[float] | None = None, mode: str = "nearest",
             align_corners: bool | None = None) -> Node:
    """`interpolate`, under its older name."""
    return interpolate(input, size, scale_factor, mode, align_corners)
