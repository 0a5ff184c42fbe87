"""Norms of images and sequences [N, C, …]: over groups of channels, each channel, or all of them.

Formulas: group norm, Wu and He 2018; instance norm, Ulyanov, Vedaldi and Lempitsky 2016.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from rlx_py.ir.base.dim import surely_less
from rlx_py.ir.base.errors import ShapeError
from rlx_py.ir.base.types import TensorType, TupleType, Type
from rlx_py.ir.nodes.node import Node
from rlx_py.ir.ops.making.arguments import integer, real, require_floats, require_shape
from rlx_py.ir.ops.making.families import composite
from rlx_py.ir.ops.making.located import located
from rlx_py.ir.ops.making.rows import leading
from rlx_py.ir.ops.nn.activation.activation import RELU
from rlx_py.ir.ops.nn.norm.batch_norm import batch_norm
from rlx_py.ir.ops.nn.norm.norm import (
    LAYER_NORM,
    affine,
    centred,
    check_norm_attributes,
    inverse_root,
    norm_vjp,
    spread_mean,
)
from rlx_py.ir.ops.operands.operand import operands
from rlx_py.ir.ops.operands.precision import in_compute_type
from rlx_py.ir.ops.primitive.elementwise import DIV, fill
from rlx_py.ir.ops.primitive.movement import reshaped
from rlx_py.ir.ops.primitive.reduce import REDUCE_SUM, total, widened

Sizes = tuple[int, ...]


def _check(op: str, x: TensorType, *params: TensorType, groups: int, eps: float, weight: bool,
           bias: bool) -> None:
    require_floats(op, x, *params)
    check_norm_attributes(eps, len(params), weight, bias)
    if x.rank < 2:
        raise ShapeError(f"{x} has no axis 1 of channels")
    if groups < 1 or x.shape[1] % groups:
        raise ShapeError(f"{groups} groups do not divide the {x.shape[1]} channels of {x}")
    for t in params:
        require_shape("weight or bias", t, (x.shape[1],))


def _infer(*types: TensorType, groups: int, eps: float, weight: bool, bias: bool) -> Type:
    _check("group_norm", *types, groups=groups, eps=eps, weight=weight, bias=bias)
    return types[0]


def _infer_backward(dy: TensorType, x: TensorType, *params: TensorType, groups: int, eps: float,
                    weight: bool, bias: bool) -> Type:
    require_shape("dy", dy, x.shape)
    _check("group_norm_backward", x, *params, dy.with_shape(x.shape[1:2]), groups=groups, eps=eps,
           weight=weight, bias=True)
    return TupleType((x, *(x.with_shape(x.shape[1:2]),) * (weight + bias)))


def _split(groups: int, channels: int) -> Callable[[Node], Node]:
    """Channels C, at axis 1 or alone, as (groups, C/groups)."""
    sizes = (groups, channels // groups)

    def split(node: Node) -> Node:
        lead = node.shape[:1] if node.rank > 1 else ()
        return reshaped(node, (*lead, *sizes, *node.shape[2:]))

    return split


def _axes(x: Node) -> dict[str, Any]:
    """Of [N, G, C/G, …]: moments over all of a group, parameters along channels."""
    return {"over": tuple(range(2, x.rank + 1)), "along": (1, 2)}


@in_compute_type
def _group_norm(x: Node, *params: Node, groups: int, **attrs: Any) -> Node:
    split = _split(groups, x.shape[1])
    return reshaped(centred(split(x), [*map(split, params)], **_axes(x), **attrs), x.shape)


@in_compute_type
def _group_norm_backward(dy: Node, x: Node, *params: Node, groups: int, **attrs: Any
                         ) -> tuple[Node, ...]:
    split = _split(groups, x.shape[1])
    dx, *sums = _gradients(split(dy), split(x), [*map(split, params)], **attrs)
    # Sums of [N, C], which do not merge with those of [N, G, C/G] into one over all of dy.
    rest = (REDUCE_SUM(reshaped(t, x.shape[:2]), axes=(0,)) for t in sums)
    return (reshaped(dx, x.shape), *rest)


def _gradients(dy: Node, x: Node, params: Sequence[Node], *, eps: float, weight: bool, bias: bool
               ) -> tuple[Node, ...]:
    """dx of [N, G, C/G, …], and the parts of dw and db that each image gives.

    As `centred_backward`, from s = Σ dy·xh and t = Σ dy over each channel of each image. They are
    those parts, and with g = dy·w they give the means over a group, mean g = Σ w·t/size and
    mean(g·xh) = Σ w·s/size. So nothing large is read again for dw and db.
    """
    group, channel = tuple(range(2, x.rank)), tuple(range(3, x.rank))
    deviation = x - spread_mean(x, group)
    r = inverse_root(deviation, group, eps)
    xh = deviation * r
    sums = [total(dy * xh, channel), total(dy, channel)]
    along = (1, 2)

    def mean(t: Node) -> Node:
        of_group = REDUCE_SUM(affine(t, params, along, weight, False), axes=(2,))
        return widened(DIV(of_group, fill(of_group, prod(x.shape[2:]))), x, group)

    of_gx, of_g = map(mean, sums)
    dx = r * (affine(dy, params, along, weight, False) - of_g - xh * of_gx)
    return (dx, *(t for t, present in zip(sums, (weight, bias), strict=True) if present))


GROUP_NORM_BACKWARD = composite("group_norm_backward", _infer_backward, _group_norm_backward)
GROUP_NORM = composite("group_norm", _infer, _group_norm, vjp=norm_vjp(GROUP_NORM_BACKWARD),
                       rows=leading(1))


@located
def group_norm(input: Any, num_groups: int, weight: Any = None, bias: Any = None,
               eps: float = 1e-5) -> Node:
    """Each group of channels of input[N, C, …] to mean 0 and variance 1, times weight[C] plus
    bias[C].

    Moments are over (C/num_groups, …), of the population. f16 and bf16 compute in f32. Raises
    ShapeError (rank below 2, groups that do not divide C, parameters), DTypeError (not floats),
    ArgumentError (eps not positive).
    """
    x, *params = operands(input, *(p for p in (weight, bias) if p is not None))
    return GROUP_NORM(x, *params, groups=integer("num_groups", num_groups), eps=real("eps", eps),
                      weight=weight is not None, bias=bias is not None)


@located
def instance_norm(input: Any, running_mean: Any = None, running_var: Any = None,
                  weight: Any = None, bias: Any = None, use_input_stats: bool = True,
                  momentum: float = 0.1, eps: float = 1e-5) -> Node:
    """Each channel of each instance of input[N, C, L…] to mean 0 and variance 1, times weight[C]
    plus bias[C]: `group_norm` with a channel a group.

    With use_input_stats=False the running statistics instead, as `batch_norm` in evaluation.
    momentum has no meaning here, as no running statistics are made. Raises ShapeError also for less
    than 2 elements a channel.
    """
    real("momentum", momentum)
    if not use_input_stats:
        return batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    x, *params = operands(input, *(p for p in (weight, bias) if p is not None))
    if x.rank < 3 or surely_less(prod(x.shape[2:]), 2):
        raise ShapeError(f"{x.type} has less than 2 elements in a channel of an instance")
    return GROUP_NORM(x, *params, groups=max(x.shape[1], 1), eps=real("eps", eps),
                      weight=weight is not None, bias=bias is not None)


def _over_channels(input: Any, weight: Any, bias: Any, eps: float) -> Node:
    x, *params = operands(input, *(p for p in (weight, bias) if p is not None))
    return LAYER_NORM(x, *params, axes=(1,), eps=real("eps", eps), weight=weight is not None,
                      bias=bias is not None)


@located
def channel_norm(input: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5,
                 relu: bool = False) -> Node:
    """The channels of input[B, C, T] at each (b, t) to mean 0 and variance 1, times weight[C] plus
    bias[C]; then, if asked, max(·, 0) with slope 0 at 0.

    Raises ShapeError (rank, parameters), DTypeError, ArgumentError (eps not positive).
    """
    y = _over_channels(input, weight, bias, eps)
    if y.rank != 3:
        raise ShapeError(f"input must be [B, C, T], not {y.type}")
    return RELU(y) if relu else y


@located
def layer_norm2d(input: Any, weight: Any = None, bias: Any = None, eps: float = 1e-6) -> Node:
    """`channel_norm` of images [N, C, H, W]: over the channels of each pixel."""
    y = _over_channels(input, weight, bias, eps)
    if y.rank != 4:
        raise ShapeError(f"input must be [N, C, H, W], not {y.type}")
    return y
