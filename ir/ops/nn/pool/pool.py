"""Windows of a padded tensor, and max pooling of trailing axes with explicit adjoints."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod
from typing import Any, TypedDict, Unpack

import numpy as np

from rlx_py.ir.base.errors import ShapeError
from rlx_py.ir.base.types import TensorType, Type, bool_, check_size, i32, i64, require_float
from rlx_py.ir.graph.transforms import AD
from rlx_py.ir.nodes.node import Node, Op
from rlx_py.ir.ops.making.arguments import require_floats, require_shape
from rlx_py.ir.ops.making.batching import unchanged
from rlx_py.ir.ops.making.constant import iota
from rlx_py.ir.ops.making.families import composite
from rlx_py.ir.ops.making.located import located
from rlx_py.ir.ops.making.rows import before_places
from rlx_py.ir.ops.operands.operand import as_node, convert
from rlx_py.ir.ops.operands.spatial import (
    check_attributes,
    crop_trailing,
    fold_windows,
    pad_trailing,
    padding_pairs,
    per_axis,
)
from rlx_py.ir.ops.primitive.compare import AND, EQ, NE, OR
from rlx_py.ir.ops.primitive.elementwise import SELECT
from rlx_py.ir.ops.primitive.movement import filled, reshaped, spread
from rlx_py.ir.ops.primitive.reduce import REDUCE_MAX, REDUCE_MIN, REDUCE_SUM
from rlx_py.ir.ops.primitive.windows import WINDOWS, window_count

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
    if (late or np.any(first > early + dilation * (size - 1))
            or int(first.max(initial=-1)) >= length):
        raise ShapeError(f"padding ({low}, {high}) leaves a window of {size} taps (stride {stride},"
                         f" dilation {dilation}) without an element of the {length}")
    return count


def pooled_type(x: TensorType, *, size: Sizes, stride: Sizes, low: Sizes, high: Sizes,
                dilation: Sizes) -> TensorType:
    """The type of pools of the trailing axes. Raises ShapeError for a window without an element."""
    rank = len(size)
    if not 0 < rank <= x.rank:
        raise ShapeError(f"windows {size} do not fit {x}")
    check_attributes(rank, 1, size=size, stride=stride, dilation=dilation)
    check_attributes(rank, 0, low=low, high=high)
    lead = x.rank - rank
    counts = tuple(map(_check_line, x.shape[lead:], size, stride, low, high, dilation))
    found = x.with_shape((*x.shape[:lead], *counts))
    check_size((*found.shape, *size))
    return found


def tap_axes(windows: Node, rank: int) -> Sizes:
    """The axes of the taps of windows over `rank` axes."""
    return tuple(range(windows.rank - rank, windows.rank))


def padded_windows(x: Node, fill: Any, *, size: Sizes, stride: Sizes, low: Sizes, high: Sizes,
                   dilation: Sizes) -> Node:
    """WINDOWS of x with a value around it."""
    return WINDOWS(pad_trailing(x, low, high, fill), size=size, stride=stride, dilation=dilation)


def folded_windows(windows: Node, shape: Sizes, *, size: Sizes, stride: Sizes, low: Sizes,
                   high: Sizes, dilation: Sizes) -> Node:
    """The adjoint of `padded_windows` with zeros, of x whose last axes are the last of a shape."""
    lengths = shape[len(shape) - len(size):]
    full = tuple(n + a + b for n, a, b in zip(lengths, low, high, strict=True))
    return crop_trailing(fold_windows(windows, full, size, stride, dilation), low, high)


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
    return pooled_type(x, **attrs)


def _infer_max_backward(dy: TensorType, x: TensorType, y: TensorType,
                        **attrs: Unpack[MaxAttributes]) -> Type:
    require_floats("max_pool_backward", dy, x, y)
    shape = pooled_type(x, **attrs).shape
    require_shape("dy", dy, shape)
    require_shape("y", y, shape)
    return x


def _infer_max_take(t: TensorType, x: TensorType, y: TensorType,
                    **attrs: Unpack[MaxAttributes]) -> Type:
    require_floats("max_pool_take", t, x, y)
    require_shape("t", t, x.shape)
    require_shape("y", y, pooled_type(x, **attrs).shape)
    return y


def _max_pool(x: Node, **attrs: Sizes) -> Node:
    windows = padded_windows(x, -inf, **attrs)
    return REDUCE_MAX(windows, axes=tap_axes(windows, len(attrs["size"])))


def _first(x: Node, y: Node, **attrs: Sizes) -> tuple[Node, Node]:
    """Which tap of each window the maximum y is from: the first in row-major order, never padding
    (also where all is −inf), the first NaN if there is one. And the numbers of all taps."""
    size = attrs["size"]
    windows = padded_windows(x, -inf, **attrs)
    taps = tap_axes(windows, len(size))
    hit = OR(EQ(windows, spread(y, windows.shape, tuple(range(y.rank)))), NE(windows, windows))
    if any(attrs["low"]) or any(attrs["high"]):
        inside = filled(True, x.tensor.with_dtype(bool_))
        hit = AND(hit, padded_windows(inside, False, **attrs))
    # A minimum of i32 and not an argmax, whose i64 would halve the lanes beside f32.
    order = spread(reshaped(iota(prod(size), 0, i32), size), windows.shape, taps)
    return REDUCE_MIN(SELECT(hit, order, filled(prod(size), order.tensor)), axes=taps), order


def _winner(x: Node, y: Node, **attrs: Sizes) -> Node:
    """A bool for every tap of every window: whether the maximum is from it."""
    first, order = _first(x, y, **attrs)
    return EQ(spread(first, order.shape, tuple(range(y.rank))), order)


def _max_pool_backward(dy: Node, x: Node, y: Node, **attrs: Sizes) -> Node:
    winner = _winner(x, y, **attrs)
    share = SELECT(winner, spread(dy, winner.shape, tuple(range(dy.rank))),
                   filled(0, dy.tensor.with_shape(winner.shape)))
    return folded_windows(share, x.shape, **attrs)


def _max_pool_take(t: Node, x: Node, y: Node, **attrs: Sizes) -> Node:
    winner = _winner(x, y, **attrs)
    chosen = SELECT(winner, padded_windows(t, 0.0, **attrs),
                    filled(0, t.tensor.with_shape(winner.shape)))
    return REDUCE_SUM(chosen, axes=tap_axes(chosen, len(attrs["size"])))


def _max_vjp(node: Node, ct: Node, ad: AD) -> Sequence[Node | None]:
    return (MAX_POOL_BACKWARD(ct, node.inputs[0], node, **node.attrs),)


def _max_jvp(node: Node, tangents: Sequence[Node | None], ad: AD) -> Node | None:
    (t,) = tangents
    return None if t is None else MAX_POOL_TAKE(t, node.inputs[0], node, **node.attrs)


def _max_backward_vjp(node: Node, ct: Node, ad: AD) -> Sequence[Node | None]:
    _, x, y = node.inputs
    return MAX_POOL_TAKE(ct, x, y, **node.attrs), None, None


def _max_take_vjp(node: Node, ct: Node, ad: AD) -> Sequence[Node | None]:
    _, x, y = node.inputs
    return MAX_POOL_BACKWARD(ct, x, y, **node.attrs), None, None


def _first_jvp(node: Node, tangents: Sequence[Node | None], ad: AD) -> Node | None:
    """Which element wins has no derivative: only the first input has a tangent."""
    return None if tangents[0] is None else node.op(tangents[0], *node.inputs[1:], **node.attrs)


MAX_POOL: Op = composite("max_pool", _infer_max, _max_pool, vjp=_max_vjp, jvp=_max_jvp,
                         batch=unchanged, rows=before_places("size"))
MAX_POOL_BACKWARD: Op = composite("max_pool_backward", _infer_max_backward, _max_pool_backward,
                                  vjp=_max_backward_vjp, jvp=_first_jvp, batch=unchanged)
# The adjoint of max_pool_backward: of t, the elements at which x has its maxima y.
MAX_POOL_TAKE: Op = composite("max_pool_take", _infer_max_take, _max_pool_take,
                              vjp=_max_take_vjp, jvp=_first_jvp, batch=unchanged)

# ---- public ----------------------------------------------------------------------------------


def ceil_padding(lengths: Sizes, size: Sizes, stride: Sizes, low: Sizes, high: Sizes,
                 dilation: Sizes) -> Sizes:
    """What completes a last window that starts before the right padding."""
    found = []
    for n, k, s, a, b, d in zip(lengths, size, stride, low, high, dilation, strict=True):
        reach = d * (k - 1) + 1
        rest = -(n + a + b - reach) % s
        last = n + a + b + rest - reach  # start of the last window, from the left padding's
        found.append(rest if last < n + a else 0)
    return tuple(found)


def total_padding(high: Sizes, extra: Sizes) -> Sizes:
    """Padding at the end, with what ceil_mode adds."""
    return tuple(a + b for a, b in zip(high, extra, strict=True))


def prepared(rank: int, name: str, input: Any, kernel_size: Any, stride: Any, padding: Any
             ) -> tuple[Node, dict[str, Sizes]]:
    """The input, and the attributes of pools from the arguments that all pools share."""
    x = as_node(input)
    if x.rank not in (rank + 1, rank + 2):
        raise ShapeError(f"{name} takes rank {rank + 1} or {rank + 2}, not {x.type}")
    size = per_axis("kernel_size", kernel_size, rank, 1)
    low, high = padding_pairs(padding, rank)
    stride = size if stride is None else per_axis("stride", stride, rank, 1)
    return x, {"size": size, "stride": stride, "low": low, "high": high}


def _max_pooled(rank: int, input: Any, kernel_size: Any, stride: Any, padding: Any, dilation: Any,
                ceil_mode: bool) -> Node:
    x, attrs = prepared(rank, f"max_pool{rank}d", input, kernel_size, stride, padding)
    attrs["dilation"] = per_axis("dilation", dilation, rank, 1)
    if ceil_mode:
        extra = ceil_padding(x.shape[-rank:], **attrs)
        attrs["high"] = total_padding(attrs["high"], extra)
    return MAX_POOL(x, **attrs)


def max_positions(y: Node) -> Node:
    """Where the maxima y of MAX_POOL are: i64, row-major over the pooled axes."""
    (x,), attrs = y.inputs, y.attrs
    rank = len(attrs["size"])
    tap, taps = convert(_first(x, y, **attrs)[0], i64), prod(attrs["size"])
    found = filled(0, tap.tensor)
    for i in range(rank):
        axis, size = y.rank - rank + i, attrs["size"][i]
        taps //= size
        start = iota(y.shape, axis, i64) * attrs["stride"][i] - attrs["low"][i]
        found = found * x.shape[axis] + start + tap // taps % size * attrs["dilation"][i]
    return found


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
def max_pool1d_with_indices(input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0,
                            dilation: Any = 1, ceil_mode: bool = False) -> tuple[Node, Node]:
    """`max_pool1d`, and where each maximum is: i64, row-major over the pooled axes."""
    y = _max_pooled(1, input, kernel_size, stride, padding, dilation, ceil_mode)
    return y, max_positions(y)


@located
def max_pool2d_with_indices(input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0,
                            dilation: Any = 1, ceil_mode: bool = False) -> tuple[Node, Node]:
    """`max_pool2d`, and where each maximum is: i64, row-major over the pooled axes."""
    y = _max_pooled(2, input, kernel_size, stride, padding, dilation, ceil_mode)
    return y, max_positions(y)


@located
def max_pool3d_with_indices(input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0,
                            dilation: Any = 1, ceil_mode: bool = False) -> tuple[Node, Node]:
    """`max_pool3d`, and where each maximum is: i64, row-major over the pooled axes."""
    y = _max_pooled(3, input, kernel_size, stride, padding, dilation, ceil_mode)
    return y, max_positions(y)
