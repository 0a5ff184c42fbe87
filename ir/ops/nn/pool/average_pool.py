"""Average pooling of trailing axes, with an explicit adjoint.

`extra` is padding at the end that ceil_mode adds: it never counts as part of a window.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any, TypedDict, Unpack

from rlx_py.ir.base.errors import ArgumentError, ShapeError
from rlx_py.ir.base.types import TensorType, Type, i32, require_float
from rlx_py.ir.graph.transforms import AD
from rlx_py.ir.nodes.node import Node, Op
from rlx_py.ir.ops.making.arguments import require_shape
from rlx_py.ir.ops.making.constant import iota
from rlx_py.ir.ops.making.families import composite
from rlx_py.ir.ops.making.located import located
from rlx_py.ir.ops.making.rows import before_places
from rlx_py.ir.ops.nn.pool.pool import (
    ceil_padding,
    folded_windows,
    padded_windows,
    pooled_type,
    prepared,
    tap_axes,
    total_padding,
)
from rlx_py.ir.ops.numpy.choice import maximum, minimum
from rlx_py.ir.ops.operands.operand import convert
from rlx_py.ir.ops.operands.precision import in_compute_type
from rlx_py.ir.ops.operands.spatial import check_attributes
from rlx_py.ir.ops.primitive.elementwise import DIV, MUL
from rlx_py.ir.ops.primitive.movement import filled, spread
from rlx_py.ir.ops.primitive.reduce import REDUCE_SUM

Sizes = tuple[int, ...]


def _average_type(x: TensorType, *, size: Sizes, stride: Sizes, low: Sizes, high: Sizes,
                  extra: Sizes, count_include_pad: bool, divisor: int | None) -> TensorType:
    check_attributes(len(size), 0, extra=extra, high=high)
    if divisor is not None and (isinstance(divisor, bool) or not isinstance(divisor, int)
                                or divisor == 0):
        raise ArgumentError(f"a divisor must be an integer other than 0, not {divisor!r}")
    return pooled_type(x, size=size, stride=stride, low=low, high=total_padding(high, extra),
                        dilation=(1,) * len(size))


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
    return padded_windows(x, 0.0, size=size, stride=stride, low=low, high=high,
                          dilation=(1,) * len(size))


@in_compute_type
def _avg_pool(x: Node, **attrs: Any) -> Node:
    size = attrs["size"]
    windows = _avg_pool_windows(x, size, attrs["stride"], attrs["low"],
                                total_padding(attrs["high"], attrs["extra"]))
    sums = REDUCE_SUM(windows, axes=tap_axes(windows, len(size)))
    return _divided(sums, x.shape[x.rank - len(size):], **attrs)


@in_compute_type
def _avg_pool_backward(dy: Node, *, shape: Sizes, **attrs: Any) -> Node:
    size = attrs["size"]
    share = _divided(dy, shape, **attrs)
    windows = spread(share, (*share.shape, *size), tuple(range(share.rank)))
    return folded_windows(
        windows, shape, size=size, stride=attrs["stride"], low=attrs["low"],
        high=total_padding(attrs["high"], attrs["extra"]), dilation=(1,) * len(size))


def _average_vjp(node: Node, ct: Node, ad: AD) -> Sequence[Node | None]:
    (x,) = node.inputs
    return (AVG_POOL_BACKWARD(ct, shape=x.shape[x.rank - len(node.attrs["size"]):],
                              **node.attrs),)


def _average_backward_vjp(node: Node, ct: Node, ad: AD) -> Sequence[Node | None]:
    return (AVG_POOL(ct, **{k: v for k, v in node.attrs.items() if k != "shape"}),)


def _linear_jvp(node: Node, tangents: Sequence[Node | None], ad: AD) -> Node | None:
    (t,) = tangents
    return None if t is None else node.op(t, **node.attrs)


AVG_POOL: Op = composite("avg_pool", _infer_average, _avg_pool, vjp=_average_vjp, jvp=_linear_jvp,
                         rows=before_places("size"))
AVG_POOL_BACKWARD: Op = composite("avg_pool_backward", _infer_average_backward,
                                  _avg_pool_backward, vjp=_average_backward_vjp, jvp=_linear_jvp)

# ---- public ----------------------------------------------------------------------------------


def _average_pooled(rank: int, input: Any, kernel_size: Any, stride: Any, padding: Any,
                    ceil_mode: bool, count_include_pad: bool, divisor: int | None) -> Node:
    x, attrs = prepared(rank, f"avg_pool{rank}d", input, kernel_size, stride, padding)
    extra = (0,) * rank
    if ceil_mode:
        extra = ceil_padding(x.shape[-rank:], **attrs, dilation=(1,) * rank)
    return AVG_POOL(x, **attrs, extra=extra, count_include_pad=bool(count_include_pad),
                    divisor=divisor)


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
