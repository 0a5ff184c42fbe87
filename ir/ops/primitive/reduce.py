"""Folds over axes: sum, product, extremes, their positions, any and all. Reduced axes go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from rlx_py.ir.base.errors import ArgumentError, DTypeError, ShapeError
from rlx_py.ir.base.types import DType, TensorType, Type, bool_, i32, i64
from rlx_py.ir.graph.stored import ReduceRule
from rlx_py.ir.graph.transforms import AD
from rlx_py.ir.loops import pairs
from rlx_py.ir.nodes.node import Node, Op, register
from rlx_py.ir.ops.making.batching import over_axes
from rlx_py.ir.ops.making.constant import iota
from rlx_py.ir.ops.making.families import NUMERIC, Array, linear, quiet
from rlx_py.ir.ops.primitive.compare import EQ, NE, OR
from rlx_py.ir.ops.primitive.cumulative import CUMPROD
from rlx_py.ir.ops.primitive.elementwise import DIV, MUL, SELECT, cast
from rlx_py.ir.ops.primitive.movement import filled, inverse, permuted, reshaped, spread

Sizes = tuple[int, ...]


def kept_axes(rank: int, axes: Sizes) -> Sizes:
    """The axes that a reduction leaves."""
    return tuple(i for i in range(rank) if i not in axes)


def reduced(name: str, kinds: Sequence[str], *, empty: bool, result: DType | None = None
            ) -> Callable[..., Type]:
    """Inference of a fold; `empty`: whether a fold over nothing has a value."""

    def infer(x: TensorType, *, axes: Sizes) -> Type:
        if list(axes) != sorted(set(axes)) or any(not 0 <= a < x.rank for a in axes):
            raise ArgumentError(f"axes {axes} are not increasing axes of rank {x.rank}")
        if x.dtype.kind not in kinds:
            raise DTypeError(f"{name} takes {' or '.join(kinds)}, not {x.dtype}")
        found = TensorType(result or x.dtype, tuple(x.shape[i] for i in kept_axes(x.rank, axes)))
        if not empty and found.size and not x.size:
            raise ShapeError(f"{name} of no elements (axes {axes} of {x}) has no value")
        return found

    return infer


def widened(node: Node, like: Node, axes: Sizes) -> Node:
    """A reduced value spread back over the axes it was reduced over."""
    return spread(node, like.shape, kept_axes(like.rank, axes))


def total(node: Node, axes: Sizes) -> Node:
    """REDUCE_SUM, or the node itself without axes."""
    return REDUCE_SUM(node, axes=axes) if axes else node


def lowest(dtype: DType) -> Any:
    """The identity of max."""
    value = -np.inf if dtype.is_float else np.iinfo(dtype.numpy).min
    return np.asarray(value).astype(dtype.numpy)[()]


def highest(dtype: DType) -> Any:
    """The identity of min."""
    value = np.inf if dtype.is_float else np.iinfo(dtype.numpy).max
    return np.asarray(value).astype(dtype.numpy)[()]


def _literal(value: int) -> Callable[[DType], Any]:
    return lambda dtype: np.asarray(value).astype(dtype.numpy)[()]


# ---- sum and product -------------------------------------------------------------------------


REDUCE_SUM = linear(
    "reduce_sum", reduced("sum", NUMERIC, empty=True),
    quiet(lambda x, *, axes: pairs.total(x, axes)),
    lambda node, ct: widened(ct, node.inputs[0], node.attrs["axes"]),
    kernel=ReduceRule("add", _literal(0)), batch=over_axes)


def _other_factors(x: Node, axes: Sizes) -> Node:
    """For each element the product of all others: those before times those after, never x / y."""
    order = (*kept_axes(x.rank, axes), *axes)
    line = permuted(x, order)
    lead = line.shape[:x.rank - len(axes)]
    flat = reshaped(line, (*lead, prod(x.shape[a] for a in axes)))
    before = CUMPROD(flat, axis=len(lead), exclusive=True, reverse=False)
    after = CUMPROD(flat, axis=len(lead), exclusive=True, reverse=True)
    return permuted(reshaped(MUL(before, after), line.shape), inverse(order))


def _prod_vjp(node: Node, ct: Node, ad: AD) -> Sequence[Node | None]:
    (x,), axes = node.inputs, node.attrs["axes"]
    return (ad.times(widened(ct, x, axes), _other_factors(x, axes)),)


def _prod_jvp(node: Node, tangents: Sequence[Node | None], ad: AD) -> Node | None:
    ((x,), (t,), axes) = (node.inputs, tangents, node.attrs["axes"])
    return None if t is None else total(ad.times(t, _other_factors(x, axes)), axes)


REDUCE_PROD = register(Op(
    "reduce_prod", reduced("prod", NUMERIC, empty=True),
    quiet(lambda x, *, axes: np.prod(x, axis=axes, dtype=x.dtype)), _prod_vjp, _prod_jvp,
    kernel=ReduceRule("mul", _literal(1)), batch=over_axes))

# ---- extremes --------------------------------------------------------------------------------


def _extreme_eval(ufunc: np.ufunc, identity: Callable[[DType], Any]) -> Callable[..., Any]:

    def eval(x: Array, *, axes: Sizes) -> Any:
        if x.size:
            return ufunc.reduce(x, axis=axes)
        return np.zeros([x.shape[i] for i in kept_axes(x.ndim, axes)], x.dtype)

    return quiet(eval)


def _ties(node: Node) -> tuple[Node, Node]:
    """Where the extreme is taken (at the NaNs if it is NaN), and at how many places (i64)."""
    (x,), axes = node.inputs, node.attrs["axes"]
    where = OR(EQ(x, widened(node, x, axes)), NE(x, x))
    return where, total(cast(where, i64), axes)


def _share(ct: Node, count: Node) -> Node:
    """ct / count, in f32 for narrow floats because a count outgrows them."""
    wide = ct.dtype.compute
    return cast(DIV(cast(ct, wide), cast(count, wide)), ct.dtype)


def _extreme_vjp(node: Node, ct: Node, ad: AD) -> Sequence[Node | None]:
    (x,), axes = node.inputs, node.attrs["axes"]
    where, count = _ties(node)
    return (SELECT(where, widened(_share(ct, count), x, axes), filled(0, x.tensor)),)


def _extreme_jvp(node: Node, tangents: Sequence[Node | None], ad: AD) -> Node | None:
    (t,) = tangents
    if t is None:
        return None
    where, count = _ties(node)
    return _share(total(SELECT(where, t, filled(0, t.tensor)), node.attrs["axes"]), count)


def _extreme(name: str, combine: str, ufunc: np.ufunc, identity: Callable[[DType], Any]) -> Op:
    return register(Op(
        f"reduce_{name}", reduced(name, NUMERIC, empty=False), _extreme_eval(ufunc, identity),
        _extreme_vjp, _extreme_jvp, kernel=ReduceRule(combine, identity),
        batch=over_axes))


REDUCE_MAX = _extreme("max", "max", np.maximum, lowest)
REDUCE_MIN = _extreme("min", "min", np.minimum, highest)


def _positions(x: Array, axes: Sizes, find: Callable[..., Any]) -> Any:
    """Positions, row-major over the reduced axes: of the first NaN, else of the first extreme."""
    kept = kept_axes(x.ndim, axes)
    lead = [x.shape[i] for i in kept]
    if not x.size:
        return np.zeros(lead, np.int64)
    return find(np.transpose(x, (*kept, *axes)).reshape(*lead, -1), axis=-1)


def _position(name: str, extreme: Op, find: Callable[..., Any]) -> Op:

    def decompose(x: Node, *, axes: Sizes) -> Node:
        """The least position at which there is the extreme, or a NaN. Both folds run in lanes,
        which a fold of pairs does not."""
        size = prod(x.shape[a] for a in axes)
        # Positions of i64 would halve the lanes beside f32.
        order = iota((size,), 0, i32 if size < 2**31 else i64)
        places = spread(reshaped(order, tuple(x.shape[a] for a in axes)), x.shape, axes)
        where = OR(EQ(x, widened(extreme(x, axes=axes), x, axes)), NE(x, x))
        found = SELECT(where, places, filled(max(size - 1, 0), places.tensor))
        return cast(REDUCE_MIN(found, axes=axes), i64)

    return register(Op(
        name, reduced(name, NUMERIC, empty=False, result=i64),
        quiet(lambda x, *, axes: _positions(x, axes, find)), decompose=decompose,
        batch=over_axes, differentiable=False))


ARGMAX = _position("argmax", REDUCE_MAX, np.argmax)
ARGMIN = _position("argmin", REDUCE_MIN, np.argmin)

# ---- logic -----------------------------------------------------------------------------------


ANY = register(Op(
    "any", reduced("any", ("bool",), empty=True, result=bool_),
    lambda x, *, axes: np.any(x, axis=axes), kernel=ReduceRule("or", _literal(0)),
    batch=over_axes, differentiable=False))
ALL = register(Op(
    "all", reduced("all", ("bool",), empty=True, result=bool_),
    lambda x, *, axes: np.all(x, axis=axes), kernel=ReduceRule("and", _literal(1)),
    batch=over_axes, differentiable=False))
