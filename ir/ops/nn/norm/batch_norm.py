"""Batch normalisation over all axes but channels, and its running statistics as explicit values.

Formula: Ioffe and Szegedy 2015.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from rlx_py.ir.base.dim import surely_less
from rlx_py.ir.base.errors import ArgumentError, DTypeError, ShapeError
from rlx_py.ir.base.types import TensorType, TupleType, Type
from rlx_py.ir.graph.graph import Graph
from rlx_py.ir.graph.transforms import AD
from rlx_py.ir.nodes.node import Node
from rlx_py.ir.ops.making.arguments import real, require_floats, require_shape
from rlx_py.ir.ops.making.families import composite
from rlx_py.ir.ops.making.located import located
from rlx_py.ir.ops.making.rows import of_elements
from rlx_py.ir.ops.nn.norm.norm import (
    affine,
    affine_gradients,
    centred,
    centred_backward,
    check_norm_attributes,
    norm_vjp,
    row_mean,
    spread_mean,
)
from rlx_py.ir.ops.operands.operand import as_node, convert, operands
from rlx_py.ir.ops.operands.precision import in_compute_type
from rlx_py.ir.ops.primitive.elementwise import RSQRT, STOP_GRADIENT
from rlx_py.ir.ops.primitive.movement import spread
from rlx_py.ir.ops.primitive.reduce import total

Sizes = tuple[int, ...]
CHANNELS = (1,)


def _rows(rank: int) -> Sizes:
    """All axes but that of the channels."""
    return (0, *range(2, rank))


def _check(op: str, x: TensorType, *params: TensorType, eps: float, weight: bool, bias: bool
           ) -> None:
    require_floats(op, x, *params)
    check_norm_attributes(eps, len(params), weight, bias)
    if x.rank < 2:
        raise ShapeError(f"{x} has no axis 1 of channels")
    for t in params:
        require_shape("statistics, weight or bias", t, x.shape[1:2])


# ---- by the statistics of the batch ----------------------------------------------------------


def _check_count(x: TensorType) -> None:
    count = prod(x.shape[a] for a in _rows(x.rank))
    if surely_less(count, 2):
        raise ShapeError(f"{x} has {count} elements a channel; training needs at least 2")


def _infer(*types: TensorType, eps: float, weight: bool, bias: bool) -> Type:
    _check("batch_norm", *types, eps=eps, weight=weight, bias=bias)
    _check_count(types[0])
    return types[0]


def _infer_backward(dy: TensorType, x: TensorType, *params: TensorType, eps: float, weight: bool,
                    bias: bool) -> Type:
    require_shape("dy", dy, x.shape)
    _check("batch_norm_backward", x, *params, dy.with_shape(x.shape[1:2]), eps=eps, weight=weight,
           bias=True)
    _check_count(x)
    return TupleType((x, *(x.with_shape(x.shape[1:2]),) * (weight + bias)))


@in_compute_type
def _batch_norm(x: Node, *params: Node, **attrs: Any) -> Node:
    return centred(x, params, over=_rows(x.rank), along=CHANNELS, **attrs)


@in_compute_type
def _batch_norm_backward(dy: Node, x: Node, *params: Node, **attrs: Any) -> tuple[Node, ...]:
    return centred_backward(dy, x, params, over=_rows(x.rank), along=CHANNELS, **attrs)


BATCH_NORM_BACKWARD = composite("batch_norm_backward", _infer_backward, _batch_norm_backward)
BATCH_NORM = composite("batch_norm", _infer, _batch_norm, vjp=norm_vjp(BATCH_NORM_BACKWARD))

# ---- by given statistics ---------------------------------------------------------------------


def _infer_given(x: TensorType, mean: TensorType, var: TensorType, *params: TensorType,
                 eps: float, weight: bool, bias: bool) -> Type:
    _check("batch_norm_given", x, *params, eps=eps, weight=weight, bias=bias)
    _check("batch_norm_given", x, mean, var, eps=eps, weight=True, bias=True)
    return x


def _infer_given_backward(dy: TensorType, x: TensorType, mean: TensorType, var: TensorType,
                          *params: TensorType, eps: float, weight: bool, bias: bool) -> Type:
    require_shape("dy", dy, x.shape)
    _check("batch_norm_given_backward", x, *params, dy.with_shape(x.shape[1:2]), eps=eps,
           weight=weight, bias=True)
    _check("batch_norm_given_backward", x, mean, var, eps=eps, weight=True, bias=True)
    return TupleType((x, *(mean,) * (2 + weight + bias)))


def _standard(x: Node, mean: Node, var: Node, eps: float) -> tuple[Node, Node]:
    """(x − mean)·r and r = 1/√(var + eps), which has the shape of x too."""
    r = spread(RSQRT(var + eps), x.shape, CHANNELS)
    return (x - spread(mean, x.shape, CHANNELS)) * r, r


@in_compute_type
def _batch_norm_given(x: Node, mean: Node, var: Node, *params: Node, eps: float, weight: bool,
                      bias: bool) -> Node:
    return affine(_standard(x, mean, var, eps)[0], params, CHANNELS, weight, bias)


@in_compute_type
def _batch_norm_given_backward(dy: Node, x: Node, mean: Node, var: Node, *params: Node,
                               eps: float, weight: bool, bias: bool) -> tuple[Node, ...]:
    """dx = g·r, dmean = −Σ g·r, dvar = −½ Σ g·xh·r², g = dy·w; then dw and db."""
    xh, r = _standard(x, mean, var, eps)
    dx = affine(dy, params, CHANNELS, weight, False) * r
    rows = _rows(x.rank)
    return (dx, -total(dx, rows), total(dx * xh * r, rows) * -0.5,
            *affine_gradients(dy, xh, CHANNELS, weight, bias))


BATCH_NORM_GIVEN_BACKWARD = composite(
    "batch_norm_given_backward", _infer_given_backward, _batch_norm_given_backward)


def _given_vjp(node: Node, ct: Node, ad: AD) -> Sequence[Node | None]:
    # The bias, last, does not enter its own gradient.
    return list(BATCH_NORM_GIVEN_BACKWARD(ct, *node.inputs[:3 + node.attrs["weight"]],
                                          **node.attrs))


BATCH_NORM_GIVEN = composite("batch_norm_given", _infer_given, _batch_norm_given, vjp=_given_vjp,
                             rows=of_elements)

# ---- public ----------------------------------------------------------------------------------


def _statistics(x: Node, running_mean: Any, running_var: Any) -> tuple[Node, Node]:
    """The running statistics as nodes, in the element type of x or a wider float."""
    if running_mean is None or running_var is None:
        raise ArgumentError("both running statistics are needed")
    found = as_node(running_mean, x.dtype), as_node(running_var, x.dtype)
    for node in found:
        require_shape("running statistics", node.tensor, x.shape[1:2])
        if not node.dtype.is_float:
            raise DTypeError(f"running statistics must be floats, not {node.type}")
    return found


def _normalised(x: Node, params: Sequence[Node], statistics: tuple[Node, Node] | None,
                **attrs: Any) -> Node:
    if statistics is None:
        return BATCH_NORM(x, *params, **attrs)
    # In the wider of the types, rounded once, because statistics are kept wider than f16.
    wide = operands(x, *statistics, *params)
    mean, var = (STOP_GRADIENT(n) for n in wide[1:3])
    return convert(BATCH_NORM_GIVEN(wide[0], mean, var, *wide[3:], **attrs), x.dtype)


def _operands(input: Any, weight: Any, bias: Any, eps: float
              ) -> tuple[Node, list[Node], dict[str, Any]]:
    x, *params = operands(input, *(p for p in (weight, bias) if p is not None))
    return x, params, {"eps": real("eps", eps), "weight": weight is not None,
                       "bias": bias is not None}


@located
def batch_norm(input: Any, running_mean: Any = None, running_var: Any = None, weight: Any = None,
               bias: Any = None, training: bool = False, momentum: float = 0.1,
               eps: float = 1e-5) -> Node:
    """Each channel of input[N, C, …] to mean 0 and variance 1, times weight[C] plus bias[C].

    training: by the mean and population variance of the batch; else by the running statistics [C],
    which get no gradient. What they become is in `batch_norm_statistics`, the only one to use
    momentum. f16 and bf16 compute in f32. Raises ShapeError (rank below 2, parameters, one element
    a channel in training), DTypeError (not floats), ArgumentError (eps, statistics missing).
    """
    real("momentum", momentum)
    x, params, attrs = _operands(input, weight, bias, eps)
    if training:
        return _normalised(x, params, None, **attrs)
    if x.rank < 2:
        raise ShapeError(f"{x.type} has no axis 1 of channels")
    return _normalised(x, params, _statistics(x, running_mean, running_var), **attrs)


@located
def batch_norm_statistics(input: Any, running_mean: Any, running_var: Any, momentum: float = 0.1
                          ) -> tuple[Node, Node]:
    """The running statistics after a batch: old·(1 − momentum) + new·momentum, without gradient.

    New are the mean of input[N, C, …] over all but C, and the variance with M − 1 in place of the
    number M of elements. In the types of the old. Raises as `batch_norm` in training.
    """
    x = as_node(input)
    require_floats("batch_norm_statistics", x.tensor)
    if x.rank < 2:
        raise ShapeError(f"{x.type} has no axis 1 of channels")
    _check_count(x.tensor)
    share, old = real("momentum", momentum), _statistics(x, running_mean, running_var)
    wide, rows = convert(x, x.dtype.compute), _rows(x.rank)
    count = prod(x.shape[a] for a in rows)
    deviation = wide - spread_mean(wide, rows)
    unbiased = row_mean(deviation * deviation, rows) * (count / (count - 1))
    found = []
    for before, now in zip(old, (row_mean(wide, rows), unbiased), strict=True):
        mixed = (convert(before, before.dtype.compute) * (1 - share)
                 + convert(now, before.dtype.compute) * share)
        found.append(STOP_GRADIENT(convert(mixed, before.dtype)))
    return found[0], found[1]


@located
def batch_norm_with_state(graph: Graph, name: str, input: Any, weight: Any = None,
                          bias: Any = None, training: bool = True, momentum: float = 0.1,
                          eps: float = 1e-5) -> Node:
    """`batch_norm` whose running statistics are states of the graph.

    They are <name>.running_mean, from 0, and <name>.running_var, from 1, in f32 (f64 for an input
    in f64). In training a step replaces them; otherwise it reads them. Raises as `batch_norm`, and
    ArgumentError where the names are taken.
    """
    x, params, attrs = _operands(input, weight, bias, eps)
    if x.rank < 2:
        raise ShapeError(f"{x.type} has no axis 1 of channels")
    names = f"{name}.running_mean", f"{name}.running_var"
    y = BATCH_NORM(x, *params, **attrs) if training else None
    mean, var = (graph.state(n, x.shape[1:2], x.dtype.compute, init)
                 for n, init in zip(names, (0.0, 1.0), strict=True))
    if y is None:
        return _normalised(x, params, (mean, var), **attrs)
    for n, value in zip(names, batch_norm_statistics(x, mean, var, momentum), strict=True):
        graph.next(n, value)
    return y
