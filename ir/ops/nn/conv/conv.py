"""Convolution (cross-correlation) of any spatial rank, and its two adjoints.

The three ops are the partial maps of one trilinear form Σ dy·w·x, so each one's derivatives are
the other two and they are closed under differentiation.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, TypedDict, Unpack

from rlx_py.ir.base.errors import ArgumentError, ShapeError
from rlx_py.ir.base.types import Precision, TensorType, Type, require_rank
from rlx_py.ir.graph.transforms import AD
from rlx_py.ir.nodes.node import Node, Op, make
from rlx_py.ir.ops.making.arguments import require_floats, require_shape
from rlx_py.ir.ops.making.families import add_all, composite
from rlx_py.ir.ops.making.located import located
from rlx_py.ir.ops.making.rows import Rows
from rlx_py.ir.ops.nn.conv.depthwise import (
    depthwise,
    depthwise_backward_weight,
    depthwise_columns,
    depthwise_over_outputs,
    depthwise_over_taps,
)
from rlx_py.ir.ops.operands.operand import operands
from rlx_py.ir.ops.operands.spatial import (
    check_attributes,
    crop_trailing,
    fold_windows,
    pad_trailing,
    padding_pairs,
    per_axis,
)
from rlx_py.ir.ops.primitive.contract import CONTRACT
from rlx_py.ir.ops.primitive.movement import REVERSE, permuted, reshaped, spread
from rlx_py.ir.ops.primitive.windows import WINDOWS, window_count

Sizes = tuple[int, ...]
MOST_PADDED = 1.3  # products of a padded correlation to useful ones up to which it is faster


# ---- types -----------------------------------------------------------------------------------


def _output_type(x: TensorType, w: TensorType, *, stride: Sizes, low: Sizes, high: Sizes,
                 dilation: Sizes, groups: int) -> TensorType:
    """Type of the convolution of x[N, C, L…] by w[O, C/groups, K…]."""
    require_floats("conv", x, w)
    rank = len(stride)
    for t in (x, w):
        require_rank("conv", t, rank + 2)
    check_attributes(rank, 1, stride=stride, dilation=dilation, size=w.shape[2:])
    if len(low) != rank or len(high) != rank:
        raise ArgumentError(f"low {low} and high {high} need {rank} entries")
    if groups < 1:
        raise ArgumentError(f"groups must be positive, not {groups}")
    if x.shape[1] % groups or w.shape[0] % groups:
        raise ShapeError(f"{groups} groups do not divide {x.shape[1]} input and {w.shape[0]} "
                         "output channels")
    if w.shape[1] * groups != x.shape[1]:
        raise ShapeError(f"{groups} groups of {w.shape[1]} channels in {w} do not make the "
                         f"{x.shape[1]} channels of {x}")
    padded = tuple(n + a + b for n, a, b in zip(x.shape[2:], low, high, strict=True))
    counts = tuple(map(window_count, padded, w.shape[2:], stride, dilation))
    return x.with_shape((x.shape[0], w.shape[0], *counts))


class Attributes(TypedDict):
    """What all convolutions carry, besides groups."""

    stride: Sizes
    low: Sizes
    high: Sizes
    dilation: Sizes


class GroupedAttributes(Attributes):
    """With groups."""

    groups: int


def _infer_conv(x: TensorType, w: TensorType, **attrs: Unpack[GroupedAttributes]) -> Type:
    return _output_type(x, w, **attrs)


def _infer_backward_input(dy: TensorType, w: TensorType, *, shape: Sizes, groups: int,
                          **attrs: Unpack[Attributes]) -> Type:
    require_rank("conv_backward_input", dy, len(shape) + 2)
    require_rank("conv_backward_input", w, len(shape) + 2)
    x = dy.with_shape((dy.shape[0], w.shape[1] * groups, *shape))
    require_shape("dy", dy, _output_type(x, w, groups=groups, **attrs).shape)
    return x


def _infer_backward_weight(x: TensorType, dy: TensorType, *, size: Sizes, groups: int,
                           **attrs: Unpack[Attributes]) -> Type:
    require_rank("conv_backward_weight", x, len(size) + 2)
    require_rank("conv_backward_weight", dy, len(size) + 2)
    if groups < 1 or x.shape[1] % groups:
        raise ShapeError(f"{groups} groups do not divide {x.shape[1]} channels")
    w = dy.with_shape((dy.shape[1], x.shape[1] // groups, *size))
    require_floats("conv_backward_weight", x, dy)
    require_shape("dy", dy, _output_type(x, w, groups=groups, **attrs).shape)
    return w


# ---- products --------------------------------------------------------------------------------


def _split(node: Node, axis: int, groups: int) -> Node:
    """Axis C as (groups, C/groups); nothing for one group, so that no batch axis of 1 appears."""
    if groups == 1:
        return node
    shape = node.shape
    return reshaped(node, (*shape[:axis], groups, shape[axis] // groups, *shape[axis + 1:]))


def _product(a: Node, b: Node, groups: int, a_axes: Sizes, b_axes: Sizes) -> Node:
    """Contraction within each group: axis 0 of a and axis 1 of b hold the groups, if several.

    Axes are those of the unsplit operands' last form: [channels of a group first].
    """
    s = int(groups > 1)
    batch = ((0,), (1,)) if s else ((), ())
    return CONTRACT(a, b, batch=batch, contract=(tuple(i + s for i in a_axes),
                                                 tuple(i + s for i in b_axes)))


def _channels_second(y: Node, groups: int, moved: int) -> Node:
    """[(G,) c, t…, n, p…] with `moved` axes t → [n, G·c, p…, t…]."""
    s = int(groups > 1)
    batch = s + 1 + moved
    order = (batch, *range(s + 1), *range(batch + 1, y.rank), *range(s + 1, batch))
    y = permuted(y, order)
    if not s:
        return y
    return reshaped(y, (y.shape[0], y.shape[1] * y.shape[2], *y.shape[3:]))


def _correlate(w: Node, windows: Node, groups: int, over: int) -> Node:
    """Σ over axis `over` of w[O, C/groups, K…] and its taps of windows[N, ·, P…, K…]."""
    d = w.rank - 2
    taps, places = tuple(range(2, 2 + d)), tuple(range(2 + d, 2 + 2 * d))
    product = _product(_split(w, 0, groups), _split(windows, 1, groups), groups,
                       (over, *taps), (1, *places))
    return _channels_second(product, groups, 0)


def _padded_windows(x: Node, size: Sizes, stride: Sizes, low: Sizes, high: Sizes, dilation: Sizes
                    ) -> Node:
    return WINDOWS(pad_trailing(x, low, high), size=size, stride=stride, dilation=dilation)


def _conv(x: Node, w: Node, *, groups: int, **line: Sizes) -> Node:
    if depthwise(w.shape, groups):
        return depthwise_over_taps(_padded_windows(x, w.shape[2:], **line), w)
    return _correlate(w, _padded_windows(x, w.shape[2:], **line), groups, 1)


def _conv_backward_input(dy: Node, w: Node, *, shape: Sizes, stride: Sizes, low: Sizes,
                         high: Sizes, dilation: Sizes, groups: int) -> Node:
    """dy correlated with the flipped kernel where few of the products are with padding. Else fold,
    where none is with padding, nor with the zeros that a stride puts between elements of dy."""
    d, size = len(stride), w.shape[2:]
    direct = depthwise(w.shape, groups)
    little_padding = prod(shape) <= MOST_PADDED * prod(dy.shape[2:])
    if all(s == 1 for s in stride) and (little_padding or direct):
        reach = tuple(a * (k - 1) for a, k in zip(dilation, size, strict=True))
        before, after = (tuple(r - p for r, p in zip(reach, line, strict=True))
                         for line in (low, high))
        windows = _padded_windows(dy, size, stride, before, after, dilation)
        flipped = REVERSE(w, axes=tuple(range(2, 2 + d)))
        if direct:
            return depthwise_over_outputs(windows, flipped, groups=groups)
        return _correlate(flipped, windows, groups, 0)
    if direct:
        columns = depthwise_columns(dy, w, groups=groups)
    else:
        columns = _channels_second(
            _product(_split(w, 0, groups), _split(dy, 1, groups), groups, (0,), (1,)), groups, d)
    full = tuple(n + a + b for n, a, b in zip(shape, low, high, strict=True))
    return crop_trailing(fold_windows(columns, full, size, stride, dilation), low, high)


def _conv_backward_weight(x: Node, dy: Node, *, size: Sizes, groups: int, **line: Sizes) -> Node:
    shape = (dy.shape[1], x.shape[1] // groups, *size)
    windows = _padded_windows(x, size, **line)
    if depthwise(shape, groups):
        return depthwise_backward_weight(windows, dy)
    d, s = len(size), int(groups > 1)
    places = tuple(range(2 + s, 2 + s + d))
    batch = ((1,), (1,)) if s else ((), ())
    product = CONTRACT(_split(dy, 1, groups), _split(windows, 1, groups), batch=batch,
                       contract=((0, *places), (0, *places)))
    return reshaped(product, shape)


# ---- derivatives -----------------------------------------------------------------------------


def _shared(node: Node) -> dict[str, Any]:
    return {k: node.attrs[k] for k in ("stride", "low", "high", "dilation", "groups")}


def _conv_vjp(node: Node, ct: Node, ad: AD) -> Sequence[Node | None]:
    x, w = node.inputs
    return (CONV_BACKWARD_INPUT(ct, w, shape=x.shape[2:], **_shared(node)),
            CONV_BACKWARD_WEIGHT(x, ct, size=w.shape[2:], **_shared(node)))


def _backward_input_vjp(node: Node, ct: Node, ad: AD) -> Sequence[Node | None]:
    dy, w = node.inputs
    return (CONV(ct, w, **_shared(node)),
            CONV_BACKWARD_WEIGHT(ct, dy, size=w.shape[2:], **_shared(node)))


def _backward_weight_vjp(node: Node, ct: Node, ad: AD) -> Sequence[Node | None]:
    x, dy = node.inputs
    return (CONV_BACKWARD_INPUT(dy, ct, shape=x.shape[2:], **_shared(node)),
            CONV(x, ct, **_shared(node)))


def _bilinear_jvp(node: Node, tangents: Sequence[Node | None], ad: AD) -> Node | None:
    """f(ta, b) + f(a, tb)."""
    (a, b), (ta, tb) = node.inputs, tangents
    return add_all([None if ta is None else make(node.op, (ta, b), node.attrs),
                    None if tb is None else make(node.op, (a, tb), node.attrs)])


def _backward_input_rows(node: Node) -> Sequence[Rows]:
    """Samples; channels of the result, where groups do not share an axis of the weight."""
    return ({0: 0}, {1: 1} if node.attrs["groups"] == 1 else {})


# Products, whatever loops compute them: those of depthwise convolution hold no CONTRACT.
CONV: Op = composite("conv", _infer_conv, _conv, vjp=_conv_vjp, jvp=_bilinear_jvp,
                     precision=Precision.NARROW, rows=lambda node: ({0: 0}, {1: 0}))
CONV_BACKWARD_INPUT: Op = composite(
    "conv_backward_input", _infer_backward_input, _conv_backward_input, vjp=_backward_input_vjp,
    jvp=_bilinear_jvp, precision=Precision.NARROW, rows=_backward_input_rows)
CONV_BACKWARD_WEIGHT: Op = composite(
    "conv_backward_weight", _infer_backward_weight, _conv_backward_weight,
    vjp=_backward_weight_vjp, jvp=_bilinear_jvp, precision=Precision.NARROW)


# ---- public ----------------------------------------------------------------------------------


def _add_bias(y: Node, bias: Node | None) -> Node:
    if bias is None:
        return y
    if bias.shape != (y.shape[1],):
        raise ShapeError(f"bias {bias.type} must hold one number for each of {y.shape[1]} channels"
                        )
    return y + spread(bias, y.shape, (1,))


def _operands(rank: int, name: str, x: Any, w: Any, bias: Any
              ) -> tuple[Node, Node, Node | None, bool]:
    """The operands, the input with a batch axis, and whether it lacked one."""
    x, w, *rest = operands(x, w, *(() if bias is None else (bias,)))
    if w.rank != rank + 2 or x.rank not in (rank + 1, rank + 2):
        raise ShapeError(f"{name} takes input of rank {rank + 1} or {rank + 2} and weight of rank "
                         f"{rank + 2}, not {x.type} and {w.type}")
    single = x.rank == rank + 1
    return reshaped(x, (1, *x.shape)) if single else x, w, rest[0] if rest else None, single


def _result(y: Node, bias: Node | None, single: bool) -> Node:
    """With the bias, and without a batch axis that was not given."""
    y = _add_bias(y, bias)
    return reshaped(y, y.shape[1:]) if single else y


def _same_padding(size: Sizes, stride: Sizes, dilation: Sizes) -> tuple[Sizes, Sizes]:
    if any(s != 1 for s in stride):
        raise ArgumentError(f"padding 'same' needs stride 1, not {stride}")
    total = tuple(a * (k - 1) for a, k in zip(dilation, size, strict=True))
    low = tuple(t // 2 for t in total)
    return low, tuple(t - a for t, a in zip(total, low, strict=True))


def _convolve(rank: int, input: Any, weight: Any, bias: Any, stride: Any, padding: Any,
              dilation: Any, groups: int) -> Node:
    x, w, b, single = _operands(rank, f"conv{rank}d", input, weight, bias)
    stride, dilation = per_axis("stride", stride, rank, 1), per_axis("dilation", dilation, rank, 1)
    if isinstance(padding, str) and padding.lower() == "same":
        low, high = _same_padding(w.shape[2:], stride, dilation)
    elif isinstance(padding, str) and padding.lower() != "valid":
        raise ArgumentError(f"padding {padding!r} is neither 'same' nor 'valid', nor integers")
    else:
        low, high = padding_pairs(0 if isinstance(padding, str) else padding, rank)
    y = CONV(x, w, stride=stride, low=low, high=high, dilation=dilation,
             groups=per_axis("groups", groups, 1, 1)[0])
    return _result(y, b, single)


@located
def conv1d(input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0,
           dilation: Any = 1, groups: int = 1) -> Node:
    """Cross-correlation of input[N, C, L] with weight[O, C/groups, K], plus bias[O].

    Arguments as `conv2d`.
    """
    return _convolve(1, input, weight, bias, stride, padding, dilation, groups)


@located
def conv2d(input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0,
           dilation: Any = 1, groups: int = 1) -> Node:
    """Cross-correlation of input[N, C, H, W] with weight[O, C/groups, Kh, Kw], plus bias[O].

    The input, and then the result, may lack N. stride and dilation are one integer or one an axis;
    padding also a (low, high) pair an axis, "valid", or "same" (stride 1). L becomes
    ⌊(L + low + high − dilation·(K−1) − 1)/stride⌋ + 1. Raises ShapeError (rank, channels,
    groups that do not divide, kernel beyond the padded input), DTypeError (not floats),
    ArgumentError (stride 0, negative padding, …).
    """
    return _convolve(2, input, weight, bias, stride, padding, dilation, groups)


@located
def conv3d(input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0,
           dilation: Any = 1, groups: int = 1) -> Node:
    """Cross-correlation of input[N, C, D, H, W] with weight[O, C/groups, Kd, Kh, Kw] + bias[O].

    Arguments as `conv2d`.
    """
    return _convolve(3, input, weight, bias, stride, padding, dilation, groups)


def _transposed(rank: int, input: Any, weight: Any, bias: Any, stride: Any, padding: Any,
                output_padding: Any, groups: int, dilation: Any) -> Node:
    x, w, b, single = _operands(rank, f"conv_transpose{rank}d", input, weight, bias)
    stride, dilation = per_axis("stride", stride, rank, 1), per_axis("dilation", dilation, rank, 1)
    low, high = padding_pairs(padding, rank)
    added = per_axis("output_padding", output_padding, rank, 0)
    if any(o >= max(s, d) for o, s, d in zip(added, stride, dilation, strict=True)):
        raise ArgumentError(f"output_padding {added} must be below stride {stride} or dilation "
                            f"{dilation}")
    shape = tuple(
        (n - 1) * s - a - b + d * (k - 1) + o + 1 for n, s, a, b, d, k, o in zip(
            x.shape[2:], stride, low, high, dilation, w.shape[2:], added, strict=True))
    if any(n < 1 for n in shape):
        raise ShapeError(f"padding {padding!r} leaves nothing of {x.type}")
    # With the padding that the output's last elements lack, dy has exactly the size of x.
    high = tuple(b - o for b, o in zip(high, added, strict=True))
    y = CONV_BACKWARD_INPUT(x, w, shape=shape, stride=stride, low=low, high=high,
                            dilation=dilation, groups=per_axis("groups", groups, 1, 1)[0])
    return _result(y, b, single)


@located
def conv_transpose1d(input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0,
                     output_padding: Any = 0, groups: int = 1, dilation: Any = 1) -> Node:
    """The adjoint of `conv1d` applied to input[N, C, L]; arguments as `conv_transpose2d`."""
    return _transposed(1, input, weight, bias, stride, padding, output_padding, groups, dilation)


@located
def conv_transpose2d(input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0,
                     output_padding: Any = 0, groups: int = 1, dilation: Any = 1) -> Node:
    """The adjoint of `conv2d` by weight[C, O/groups, Kh, Kw], applied to input[N, C, H, W].

    bias[O] is added. L becomes (L−1)·stride − low − high + dilation·(K−1) + output_padding + 1,
    with output_padding < max(stride, dilation). Otherwise as `conv2d`.
    """
    return _transposed(2, input, weight, bias, stride, padding, output_padding, groups, dilation)


@located
def conv_transpose3d(input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0,
                     output_padding: Any = 0, groups: int = 1, dilation: Any = 1) -> Node:
    """The adjoint of `conv3d` applied to input[N, C, D, H, W]; arguments as `conv_transpose2d`."""
    return _transposed(3, input, weight, bias, stride, padding, output_padding, groups, dilation)
