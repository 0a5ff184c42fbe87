"""Array functions that reduce or accumulate over axes, under their NumPy names.

Sums keep the element type (bool sums to i64); means of integers are f32. `axis` is an int, several,
or None for all.
"""

from __future__ import annotations

from math import inf
from math import prod as product
from typing import Any

from rlx_py.ir.base.errors import ArgumentError
from rlx_py.ir.base.types import as_dtype, bool_, f32, i64, normalize_axes, normalize_axis, u8
from rlx_py.ir.nodes.node import Node, Op
from rlx_py.ir.nodes.operators import OPERATORS
from rlx_py.ir.ops.making.located import located
from rlx_py.ir.ops.numpy.statistics import DEVIATION, LOGSUMEXP, NORM, VARIANCE, powers_root
from rlx_py.ir.ops.operands.operand import as_node, convert
from rlx_py.ir.ops.primitive.compare import NE
from rlx_py.ir.ops.primitive.cumulative import CUMPROD, CUMSUM
from rlx_py.ir.ops.primitive.elementwise import ABS, DIV, cast, fill, fill_root
from rlx_py.ir.ops.primitive.movement import reshaped
from rlx_py.ir.ops.primitive.reduce import (
    ALL,
    ANY,
    ARGMAX,
    ARGMIN,
    REDUCE_MAX,
    REDUCE_MIN,
    REDUCE_PROD,
    REDUCE_SUM,
    total,
)

Axis = Any  # an int, several, or None


def _counting(x: Any, dtype: Any = None) -> Node:
    """What is summed: bool counts in i64."""
    node = as_node(x)
    if dtype is not None:
        return convert(node, as_dtype(dtype))
    return cast(node, i64) if node.dtype is bool_ else node


def _floating(x: Any) -> Node:
    node = as_node(x)
    return node if node.dtype.is_float else cast(node, f32)


def _shown(node: Node, x: Node, axes: tuple[int, ...], keepdims: bool) -> Node:
    """The reduced node, with its axes put back at size 1 if asked."""
    if not keepdims:
        return node
    return reshaped(node, tuple(1 if i in axes else d for i, d in enumerate(x.shape)))


def _folded(op: Op, node: Node, axis: Axis, keepdims: bool, **attrs: Any) -> Node:
    axes = normalize_axes(axis, node.rank)
    return _shown(op(node, axes=axes, **attrs) if axes or attrs else node, node, axes, keepdims)


@located
def sum(x: Any, axis: Axis = None, dtype: Any = None, keepdims: bool = False) -> Node:
    """Σ over axes."""
    return _folded(REDUCE_SUM, _counting(x, dtype), axis, keepdims)


@located
def prod(x: Any, axis: Axis = None, dtype: Any = None, keepdims: bool = False) -> Node:
    """Π over axes; its gradient is exact at zeros."""
    return _folded(REDUCE_PROD, _counting(x, dtype), axis, keepdims)


@located
def mean(x: Any, axis: Axis = None, dtype: Any = None, keepdims: bool = False) -> Node:
    """Arithmetic mean over axes; NaN over nothing."""
    node = _floating(x) if dtype is None else convert(as_node(x), as_dtype(dtype))
    axes = normalize_axes(axis, node.rank)
    # A sum may outgrow f16 where its mean does not.
    found = total(cast(node, node.dtype.compute), axes)
    count = product(node.shape[a] for a in axes)
    return _shown(cast(DIV(found, fill(found, count)), node.dtype), node, axes, keepdims)


def _extreme(op: Op, x: Any, axis: Axis, keepdims: bool) -> Node:
    node = as_node(x)
    if node.dtype is bool_:
        return cast(_folded(op, cast(node, u8), axis, keepdims), bool_)
    return _folded(op, node, axis, keepdims)


@located
def max(x: Any, axis: Axis = None, keepdims: bool = False) -> Node:
    """Maximum over axes; NaN wins. The gradient is split evenly among ties."""
    return _extreme(REDUCE_MAX, x, axis, keepdims)


@located
def min(x: Any, axis: Axis = None, keepdims: bool = False) -> Node:
    """Minimum over axes; NaN wins. The gradient is split evenly among ties."""
    return _extreme(REDUCE_MIN, x, axis, keepdims)


amax, amin = max, min


def _position(op: Op, x: Any, axis: Axis, keepdims: bool) -> Node:
    node = as_node(x)
    node = cast(node, u8) if node.dtype is bool_ else node
    axes = normalize_axes(axis, node.rank)
    return _shown(op(node, axes=axes), node, axes, keepdims)


@located
def argmax(x: Any, axis: Axis = None, keepdims: bool = False) -> Node:
    """Position (i64, row-major over the axes) of the first maximum; the first NaN wins."""
    return _position(ARGMAX, x, axis, keepdims)


@located
def argmin(x: Any, axis: Axis = None, keepdims: bool = False) -> Node:
    """Position (i64, row-major over the axes) of the first minimum; the first NaN wins."""
    return _position(ARGMIN, x, axis, keepdims)


def _truth(x: Any) -> Node:
    node = as_node(x)
    return node if node.dtype is bool_ else NE(node, fill(node, 0))


@located
def any(x: Any, axis: Axis = None, keepdims: bool = False) -> Node:
    """Whether some element over axes is not 0."""
    return _folded(ANY, _truth(x), axis, keepdims)


@located
def all(x: Any, axis: Axis = None, keepdims: bool = False) -> Node:
    """Whether no element over axes is 0."""
    return _folded(ALL, _truth(x), axis, keepdims)


# ---- spread and size -------------------------------------------------------------------------


@located
def var(x: Any, axis: Axis = None, ddof: int = 0, keepdims: bool = False) -> Node:
    """Σ(x − mean)²/(n − ddof) over axes; exactly 0 over what is constant."""
    return _folded(VARIANCE, _floating(x), axis, keepdims, ddof=ddof)


@located
def std(x: Any, axis: Axis = None, ddof: int = 0, keepdims: bool = False) -> Node:
    """√var; where it is 0 its gradient is 0."""
    node = _floating(x)
    axes = normalize_axes(axis, node.rank)
    wide = cast(node, node.dtype.compute)
    length = NORM(DEVIATION(wide, axes=axes), axes=axes)
    degrees = product(node.shape[a] for a in axes) - ddof
    found = DIV(length, fill_root(length, degrees))
    return _shown(cast(found, node.dtype), node, axes, keepdims)


@located
def norm(x: Any, ord: Any = None, axis: Axis = None, keepdims: bool = False) -> Node:
    """Vector norm over axes: (Σ|x|^ord)^(1/ord), 2 by default; inf and −inf give extremes of |x|,
    0 counts. Its gradient at 0 is 0. Over two axes only the Frobenius norm (None, 2 or "fro").
    """
    node = _floating(x)
    axes = normalize_axes(axis, node.rank)
    if not isinstance(ord, int | float | str | None):
        raise ArgumentError(f"order {ord!r} is not a number")
    if ord in (None, 2, "fro"):
        return _shown(NORM(node, axes=axes), node, axes, keepdims)
    if len(axes) > 1 and not (axis is None and node.rank == 1):
        raise ArgumentError(f"order {ord!r} takes one axis, not {axes}")
    return _shown(_vector_norm(node, ord, axes), node, axes, keepdims)


def _vector_norm(node: Node, ord: Any, axes: tuple[int, ...]) -> Node:
    if not isinstance(ord, int | float):
        raise ArgumentError(f"order {ord!r} is not a number")
    size = ABS(node)
    if ord == inf:
        return REDUCE_MAX(size, axes=axes)
    if ord == -inf:
        return REDUCE_MIN(size, axes=axes)
    if ord == 0:
        return total(cast(_truth(node), node.dtype), axes)
    if ord == 1:
        return total(size, axes)
    return powers_root(node, ord, axes)


@located
def logsumexp(x: Any, axis: Axis = None, keepdims: bool = False) -> Node:
    """log Σ exp(x) over axes, without overflow; −inf with gradient 0 over a row of −inf."""
    node = _floating(x)
    axes = normalize_axes(axis, node.rank)
    return _shown(LOGSUMEXP(node, axes=axes), node, axes, keepdims)


# ---- cumulative ------------------------------------------------------------------------------


def _cumulative(op: Op, x: Any, axis: int | None, exclusive: bool, reverse: bool) -> Node:
    node = _counting(x)
    if axis is None:
        node, axis = reshaped(node, (node.size,)), 0
    return op(node, axis=normalize_axis(axis, node.rank), exclusive=exclusive, reverse=reverse)


@located
def cumsum(x: Any, axis: int | None = None, exclusive: bool = False,
           reverse: bool = False) -> Node:
    """Running sum along an axis (of the flattened array by default).

    exclusive: of what precedes each element; reverse: from the end.
    """
    return _cumulative(CUMSUM, x, axis, exclusive, reverse)


@located
def cumprod(x: Any, axis: int | None = None, exclusive: bool = False,
            reverse: bool = False) -> Node:
    """Running product along an axis (of the flattened array by default); exact gradient at zeros.

    exclusive: of what precedes each element; reverse: from the end.
    """
    return _cumulative(CUMPROD, x, axis, exclusive, reverse)


OPERATORS.update(sum=sum, prod=prod, mean=mean, max=max, min=min, argmax=argmax, argmin=argmin,
                 var=var, std=std, cumsum=cumsum)
