"""Max and average pooling of trailing axes, with explicit adjoints."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import inf, prod
from typing import Any, TypedDict, Unpack

import numpy as np

from rlx_py.ir.errors import ArgumentError, ShapeError
from rlx_py.ir.node import Chain, Node, Op, require_float
from rlx_py.ir.ops.arguments import require_floats, require_shape
from rlx_py.ir.ops.choice import maximum, minimum
from rlx_py.ir.ops.compare import AND, EQ, NE, OR
from rlx_py.ir.ops.constant import iota
from rlx_py.ir.ops.elementwise import DIV, MUL, SELECT
from rlx_py.ir.ops.families import composite
from rlx_py.ir.ops.located import located
from rlx_py.ir.ops.movement import filled, reshaped, spread
from rlx_py.ir.ops.operand import as_node, convert
from rlx_py.ir.ops.precision import in_compute_type
from rlx_py.ir.ops.reduce import REDUCE_MAX, REDUCE_MIN, REDUCE_SUM
from rlx_py.ir.ops.spatial import (
    check_attributes,
    crop_trailing,
    fold_windows,
    pad_trailing,
    padding_pairs,
    per_axis,
)
from rlx_py.ir.ops.windows import WINDOWS, window_count
from rlx_py.ir.types import TensorType, Type, bool_, i32

Sizes = tuple[int, ...]
MOST_PADDED = 2**20  # windows beginning in padding; more would take long to check


# ---- windows of a padded tensor --------------------------------------------------------------


def _check_line(length: int, size: int, stride: int, low: int, high: int, dilation: int) -> int:
    """The number of windows of an axis, all of which hold an element of the input."""
    count = window_count(low + length + high, size, stride, dilation)
    # Only these begin in the padding; of the others the last begins last. Taps no further apart
    # than the axis is long can't step over it, so then the first of them decides.
    starts = range(-low, min(0, count * stride - low), stride)
    if dilation > length and starts[MOST_PADDED:]:
        raise ShapeError(f"padding {low} holds more than {MOST_PADDED} windows")
    early = np.array(starts if dilation > length else starts[:1], np.int64)
    first = early + -(early // dilation) * dilation
    late = (count - 1) * stride - low >= length
    if late or np.any((first > early + dilation * (size - 1)) | (first >= length)):
        raise ShapeError(f"padding ({low}, {high}) leaves a window of {size} taps (stride {stride},"
                         f" dilation {dilation}) without an element of the {length}")
    return count


def _output_type(x: TensorType, *, size: Sizes, stride: Sizes, low: Sizes, high: Sizes,
                 dilation: Sizes) -> TensorType:
    rank = len(size)
    if not 0 < rank <= x.rank:
        raise ShapeError(f"windows {size} do not fit {x}")
    check_attributes(rank, 1, size=size, stride=stride, dilation=dilation)
    check_attributes(rank, 0, low=low, high=high)
    lead = x.rank - rank
    counts = map(_check_line, x.shape[lead:], size, stride, low, high, dilation)
    return x.with_shape((*x.shape[:lead], *counts))


def _taps(windows: Node, rank: int) -> Sizes:
    return tuple(range(windows.rank - rank, windows.rank))


# ---- max -------------------------------------------------------------------------------------


class MaxAttributes(TypedDict):
    """What max pools carry."""

    size: Sizes
    stride: Sizes
    low: Sizes
    high: Sizes
    dilation: Sizes


def _infer_max(x: TensorType, **attrs: Unpack[MaxAttributes]) -> Type:
    require_float("max_pool", x.dtype)
    return _output_type(x, **attrs)


def _infer_max_backward(dy: TensorType, x: TensorType, y: TensorType,
                        **attrs: Unpack[MaxAttributes]) -> Type:
    require_floats("max_pool_backward", dy, x, y)
    shape = _output_type(x, **attrs).shape
    require_shape("dy", dy, shape)
    require_shape("y", y, shape)
    return x


def _infer_max_take(t: TensorType, x: TensorType, y: TensorType,
                    **attrs: Unpack[MaxAttributes]) -> Type:
    require_floats("max_pool_take", t, x, y)
    require_shape("t", t, x.shape)
    require_shape("y", y, _output_type(x, **attrs).shape)
    return y


def _windows(x: Node, fill: float, *, size: Sizes, stride: Sizes, low: Sizes, high: Sizes,
             dilation: Sizes) -> Node:
    return WINDOWS(pad_trailing(x, low, high, fill), size=size, stride=stride, dilation=dilation)


def _max_pool(x: Node, **attrs: Sizes) -> Node:
    windows = _windows(x, -inf, **attrs)
    return REDUCE_MAX(windows, axes=_taps(windows, len(attrs["size"])))


def _winner(x: Node, y: Node, **attrs: Sizes) -> Node:
    """Which tap of each window the maximum y is from: the first in row-major order, never padding
    (also where all is −inf), the first NaN if there is one. A bool for every tap."""
    size = attrs["size"]
    windows = _windows(x, -inf, **attrs)
    taps = _taps(windows, len(size))
    lead = tuple(range(y.rank))
    hit = OR(EQ(windows, spread(y, windows.shape, lead)), NE(windows, windows))
    if any(attrs["low"]) or any(attrs["high"]):
        inside = filled(True, x.tensor.with_dtype(bool_))
        hit = AND(hit, _windows(inside, False, **attrs))
    # A minimum of i32 and not an argmax, whose i64 would halve the lanes beside f32.
    order = spread(reshaped(iota(prod(size), 0, i32), size), windows.shape, taps)
    first = REDUCE_MIN(SELECT(hit, order, filled(prod(size), order.tensor)), axes=taps)
    return EQ(spread(first, windows.shape, lead), order)


def _max_pool_backward(dy: Node, x: Node, y: Node, **attrs: Sizes) -> Node:
    winner = _winner(x, y, **attrs)
    share = SELECT(winner, spread(dy, winner.shape, tuple(range(dy.rank))),
                   filled(0, dy.tensor.with_shape(winner.shape)))
    return _fold(share, x.shape, attrs["size"], attrs["stride"], attrs["low"], attrs["high"],
                 attrs["dilation"])


def _fold(windows: Node, shape: Sizes, size: Sizes, stride: Sizes, low: Sizes, high: Sizes,
          dilation: Sizes) -> Node:
    lengths = shape[len(shape) - len(size):]
    full = tuple(n + a + b for n, a, b in zip(lengths, low, high, strict=True))
    return crop_trailing(fold_windows(windows, full, size, stride, dilation), low, high)


def _max_pool_take(t: Node, x: Node, y: Node, **attrs: Sizes) -> Node:
    winner = _winner(x, y, **attrs)
    chosen = SELECT(winner, _windows(t, 0.0, **attrs),
                    filled(0, t.tensor.with_shape(winner.shape)))
    return REDUCE_SUM(chosen, axes=_taps(chosen, len(attrs["size"])))


def _max_vjp(node: Node, ct: Node, chain: Chain) -> Sequence[Node | None]:
    return (MAX_POOL_BACKWARD(ct, node.inputs[0], node, **node.attrs),)


def _max_jvp(node: Node, tangents: Sequence[Node | None], chain: Chain) -> Node | None:
    (t,) = tangents
    return None if t is None else MAX_POOL_TAKE(t, node.inputs[0], node, **node.attrs)


def _max_backward_vjp(node: Node, ct: Node, chain: Chain) -> Sequence[Node | None]:
    _, x, y = node.inputs
    return MAX_POOL_TAKE(ct, x, y, **node.attrs), None, None


def _max_take_vjp(node: Node, ct: Node, chain: Chain) -> Sequence[Node | None]:
    _, x, y = node.inputs
    return MAX_POOL_BACKWARD(ct, x, y, **node.attrs), None, None


def _first_jvp(node: Node, tangents: Sequence[Node | None], chain: Chain) -> Node | None:
    """Which element wins has no derivative: only the first input has a tangent."""
    return None if tangents[0] is None else node.op(tangents[0], *node.inputs[1:], **node.attrs)


MAX_POOL: Op = composite("max_pool", _infer_max, _max_pool, vjp=_max_vjp, jvp=_max_jvp)
MAX_POOL_BACKWARD: Op = composite("max_pool_backward", _infer_max_backward, _max_pool_backward,
                                  vjp=_max_backward_vjp, jvp=_first_jvp)
# The adjoint of max_pool_backward: of t, the elements at which x has its maxima y.
MAX_POOL_TAKE: Op = composite("max_pool_take", _infer_max_take, _max_pool_take,
                              vjp=_max_take_vjp, jvp=_first_jvp)

# ---- average ---------------------------------------------------------------------------------
#
# `extra` is padding at the end that ceil_mode adds: it never counts as part of a window.


def _average_type(x: TensorType, *, size: Sizes, stride: Sizes, low: Sizes, high: Sizes,
                  extra: Sizes, count_include_pad: bool, divisor: int | None) -> TensorType:
    check_attributes(len(size), 0, extra=extra, high=high)
    if divisor is not None and (isinstance(divisor, bool) or not isinstance(divisor, int)
                                or divisor == 0):
        raise ArgumentError(f"a divisor must be an integer other than 0, not {divisor!r}")
    return _output_type(x, size=size, stride=stride, low=low, high=_total(high, extra),
                        dilation=(1,) * len(size))


def _total(high: Sizes, extra: Sizes) -> Sizes:
    return tuple(a + b for a, b in zip(high, extra, strict=True))


class AverageAttributes(TypedDict):
    """What average pools carry."""

    size: Sizes
    stride: Sizes
    low: Sizes
    high: Sizes
    extra: Sizes
    count_include_pad: bool
    divisor: int | None


def _infer_average(x: TensorType, **attrs: Unpack[AverageAttributes]) -> Type:
    require_float("avg_pool", x.dtype)
    return _average_type(x, **attrs)


def _infer_average_backward(dy: TensorType, *, shape: Sizes,
                            **attrs: Unpack[AverageAttributes]) -> Type:
    require_float("avg_pool_backward", dy.dtype)
    lead = dy.rank - len(shape)
    if lead < 0:
        raise ShapeError(f"{dy} has no {len(shape)} pooled axes")
    x = dy.with_shape((*dy.shape[:lead], *shape))
    require_shape("dy", dy, _average_type(x, **attrs).shape)
    return x


def _line_divisor(count: int, length: int, size: int, stride: int, low: int, high: int,
                  include: bool) -> int | Node:
    """How many elements of an axis each of its windows counts: one number, or a line of them."""
    first, end = (-low, length + high) if include else (0, length)
    last = (count - 1) * stride - low
    if -low >= first and last + size <= end:
        return size
    start = iota(count, 0, i32) * stride - low
    return minimum(start + size, end) - maximum(start, first)


def _divided(y: Node, lengths: Sizes, *, size: Sizes, stride: Sizes, low: Sizes, high: Sizes,
             extra: Sizes, count_include_pad: bool, divisor: int | None) -> Node:
    """Each window's sum (or cotangent) over the number of its elements."""
    if divisor is not None:
        return DIV(y, filled(divisor, y.tensor))
    whole, lines = 1, []
    first = y.rank - len(size)
    for i, (n, k, s, a, b) in enumerate(zip(lengths, size, stride, low, high, strict=True), first):
        found = _line_divisor(y.shape[i], n, k, s, a, b, count_include_pad)
        if isinstance(found, Node):
            lines.append(spread(convert(found, y.dtype), y.shape, (i,)))
        else:
            whole *= found
    return DIV(y, reduce(MUL, lines, filled(whole, y.tensor)))


def _avg_pool_windows(x: Node, size: Sizes, stride: Sizes, low: Sizes, high: Sizes) -> Node:
    return _windows(x, 0.0, size=size, stride=stride, low=low, high=high,
                    dilation=(1,) * len(size))


@in_compute_type
def _avg_pool(x: Node, **attrs: Any) -> Node:
    size = attrs["size"]
    windows = _avg_pool_windows(x, size, attrs["stride"], attrs["low"],
                                _total(attrs["high"], attrs["extra"]))
    sums = REDUCE_SUM(windows, axes=_taps(windows, len(size)))
    return _divided(sums, x.shape[x.rank - len(size):], **attrs)


@in_compute_type
def _avg_pool_backward(dy: Node, *, shape: Sizes, **attrs: Any) -> Node:
    size = attrs["size"]
    share = _divided(dy, shape, **attrs)
    windows = spread(share, (*share.shape, *size), tuple(range(share.rank)))
    return _fold(windows, shape, size, attrs["stride"], attrs["low"],
                 _total(attrs["high"], attrs["extra"]), (1,) * len(size))


def _average_vjp(node: Node, ct: Node, chain: Chain) -> Sequence[Node | None]:
    (x,) = node.inputs
    return (AVG_POOL_BACKWARD(ct, shape=x.shape[x.rank - len(node.attrs["size"]):],
                              **node.attrs),)


def _average_backward_vjp(node: Node, ct: Node, chain: Chain) -> Sequence[Node | None]:
    return (AVG_POOL(ct, **{k: v for k, v in node.attrs.items() if k != "shape"}),)


def _linear_jvp(node: Node, tangents: Sequence[Node | None], chain: Chain) -> Node | None:
    (t,) = tangents
    return None if t is None else node.op(t, **node.attrs)


AVG_POOL: Op = composite("avg_pool", _infer_average, _avg_pool, vjp=_average_vjp, jvp=_linear_jvp)
AVG_POOL_BACKWARD: Op = composite("avg_pool_backward", _infer_average_backward,
                                  _avg_pool_backward, vjp=_average_backward_vjp, jvp=_linear_jvp)

# ---- public ----------------------------------------------------------------------------------


def _ceil_padding(lengths: Sizes, size: Sizes, stride: Sizes, low: Sizes, high: Sizes,
                  dilation: Sizes) -> Sizes:
    """What completes a last window that starts before the right padding."""
    found = []
    for n, k, s, a, b, d in zip(lengths, size, stride, low, high, dilation, strict=True):
        reach = d * (k - 1) + 1
        rest = -(n + a + b - reach) % s
        last = n + a + b + rest - reach  # start of the last window, from the left padding's
        found.append(rest if last < n + a else 0)
    return tuple(found)


def _prepared(rank: int, name: str, input: Any, kernel_size: Any, stride: Any, padding: Any
              ) -> tuple[Node, dict[str, Sizes]]:
    x = as_node(input)
    if x.rank not in (rank + 1, rank + 2):
        raise ShapeError(f"{name} takes rank {rank + 1} or {rank + 2}, not {x.type}"
                        )
    size = per_axis("kernel_size", kernel_size, rank, 1)
    low, high = padding_pairs(padding, rank)
    stride = size if stride is None else per_axis("stride", stride, rank, 1)
    return x, {"size": size, "stride": stride, "low": low, "high": high}


def _max_pooled(rank: int, input: Any, kernel_size: Any, stride: Any, padding: Any, dilation: Any,
                ceil_mode: bool) -> Node:
    x, attrs = _prepared(rank, f"max_pool{rank}d", input, kernel_size, stride, padding)
    attrs["dilation"] = per_axis("dilation", dilation, rank, 1)
    if ceil_mode:
        extra = _ceil_padding(x.shape[-rank:], **attrs)
        attrs["high"] = _total(attrs["high"], extra)
    return MAX_POOL(x, **attrs)


def _average_pooled(rank: int, input: Any, kernel_size: Any, stride: Any, padding: Any,
                    ceil_mode: bool, count_include_pad: bool, divisor: int | None) -> Node:
    x, attrs = _prepared(rank, f"avg_pool{rank}d", input, kernel_size, stride, padding)
    extra = (0,) * rank
    if ceil_mode:
        extra = _ceil_padding(x.shape[-rank:], **attrs, dilation=(1,) * rank)
    return AVG_POOL(x, **attrs, extra=extra, count_include_pad=bool(count_include_pad),
                    divisor=divisor)


@located
def max_pool1d(input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0,
               dilation: Any = 1, ceil_mode: bool = False) -> Node:
    """Maxima of windows of the last axis of [N, C, L] or [C, L]; arguments as `max_pool2d`."""
    return _max_pooled(1, input, kernel_size, stride, padding, dilation, ceil_mode)


@located
def max_pool2d(input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0,
               dilation: Any = 1, ceil_mode: bool = False) -> Node:
    """Maxima of windows of the last two axes of [N, C, H, W] or [C, H, W].

    stride None is the kernel size; padding as `conv2d`, which never wins; NaN does. The gradient
    goes to the first maximum of a window in row-major order. ceil_mode keeps a last partial window.
    Raises ShapeError (rank, kernel beyond the padded input, a window wholly in padding),
    DTypeError (not a float), ArgumentError (stride 0, negative padding, …).
    """
    return _max_pooled(2, input, kernel_size, stride, padding, dilation, ceil_mode)


@located
def max_pool3d(input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0,
               dilation: Any = 1, ceil_mode: bool = False) -> Node:
    """Maxima of windows of the last three axes; arguments as `max_pool2d`."""
    return _max_pooled(3, input, kernel_size, stride, padding, dilation, ceil_mode)


@located
def avg_pool1d(input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0,
               ceil_mode: bool = False, count_include_pad: bool = True) -> Node:
    """Means of windows of the last axis of [N, C, L] or [C, L]; arguments as `avg_pool2d`."""
    return _average_pooled(1, input, kernel_size, stride, padding, ceil_mode, count_include_pad,
                           None)


@located
def avg_pool2d(input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0,
               ceil_mode: bool = False, count_include_pad: bool = True,
               divisor_override: int | None = None) -> Node:
    """Means of windows of the last two axes of [N, C, H, W] or [C, H, W].

    Padding counts as zeros, or with count_include_pad=False not at all; divisor_override replaces
    the number of elements. Otherwise as `max_pool2d`.
    """
    return _average_pooled(2, input, kernel_size, stride, padding, ceil_mode, count_include_pad,
                           divisor_override)


@located
def avg_pool3d(input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0,
               ceil_mode: bool = False, count_include_pad: bool = True,
               divisor_override: int | None = None) -> Node:
    """Means of windows of the last three axes; arguments as `avg_pool2d`."""
    return _average_pooled(3, input, kernel_size, stride, padding, ceil_mode, count_include_pad,
                           divisor_override)
