"""Writing at run-time positions of an axis: set, max, min; and the scatters users call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx_py.ir.base.errors import DTypeError
from rlx_py.ir.base.types import TensorType, Type, i64, normalize_axis
from rlx_py.ir.graph.transforms import AD
from rlx_py.ir.nodes.node import Node, Op, register
from rlx_py.ir.ops.making.batch_index import batch_scatter
from rlx_py.ir.ops.making.constant import iota
from rlx_py.ir.ops.making.families import Array, add_all
from rlx_py.ir.ops.making.located import located
from rlx_py.ir.ops.numpy.indexing import placed
from rlx_py.ir.ops.operands.operand import as_node, convert
from rlx_py.ir.ops.operands.operand import broadcast_to as stretched
from rlx_py.ir.ops.primitive.compare import EQ, GE
from rlx_py.ir.ops.primitive.elementwise import DIV, MUL, SELECT, cast, fill
from rlx_py.ir.ops.primitive.index import (
    GATHER,
    SCATTER_ADD,
    eval_scatter,
    infer_scatter,
    scatter_loops,
)
from rlx_py.ir.ops.primitive.movement import filled, reshaped, spread


def _put(result: Array, where: Any, lines: Array) -> None:
    result[where] = lines


def _zeros_or(node: Node, tangent: Node | None) -> Node:
    return filled(0, node.tensor) if tangent is None else tangent


# ---- set: the last of duplicates stays -------------------------------------------------------


def _last_writer(node: Node) -> tuple[Node, Node]:
    """For each place of the axis, and for each update, whether the update stays there.

    The first is which update it is, −1 for none.
    """
    (x, idx, _), axis = node.inputs, node.attrs["axis"]
    order = reshaped(iota((idx.size,), 0, i64), idx.shape)
    nobody = filled(-1, TensorType(i64, (x.shape[axis],)))
    writer = SCATTER_SET(nobody, idx, order, axis=0, mode=node.attrs["mode"])
    return writer, EQ(GATHER(writer, idx, axis=0, mode=node.attrs["mode"]), order)


def _set_vjp(node: Node, ct: Node, ad: AD) -> Sequence[Node | None]:
    (x, idx, u), axis = node.inputs, node.attrs["axis"]
    writer, stays = _last_writer(node)
    written = spread(GE(writer, fill(writer, 0)), x.shape, (axis,))
    kept = spread(stays, u.shape, tuple(range(axis, axis + idx.rank)))
    read = GATHER(ct, idx, **node.attrs)
    return (SELECT(written, filled(0, ct.tensor), ct), None,
            SELECT(kept, read, filled(0, read.tensor)))


def _set_jvp(node: Node, tangents: Sequence[Node | None], ad: AD) -> Node | None:
    (x, idx, u), (tx, _, tu) = node.inputs, tangents
    if tx is None and tu is None:
        return None
    return SCATTER_SET(_zeros_or(x, tx), idx, _zeros_or(u, tu), **node.attrs)


SCATTER_SET = register(Op("scatter_set", infer_scatter, eval_scatter(_put), _set_vjp, _set_jvp,
                          kernel=scatter_loops(None), batch=batch_scatter))

# ---- max and min: ties share the gradient evenly ---------------------------------------------


def _infer_extreme(x: TensorType, idx: TensorType, u: TensorType, **attrs: Any) -> Type:
    if x.dtype.kind == "bool":
        raise DTypeError("scatter compares numbers, not bool")
    return infer_scatter(x, idx, u, **attrs)


def _shares(node: Node) -> tuple[Node, Node]:
    """The part of each element of x and of u in the result: 1/ties where it is the extreme."""
    x, idx, u = node.inputs
    at = GATHER(node, idx, **node.attrs)
    dtype = x.dtype.compute
    mine, theirs = cast(EQ(x, node), dtype), cast(EQ(u, at), dtype)
    ties = SCATTER_ADD(mine, idx, theirs, **node.attrs)
    return (cast(DIV(mine, _or_one(ties)), x.dtype),
            cast(DIV(theirs, _or_one(GATHER(ties, idx, **node.attrs))), x.dtype))


def _or_one(count: Node) -> Node:
    """No ties where NaN won, which nothing equals, and where nothing was written."""
    return SELECT(EQ(count, fill(count, 0)), fill(count, 1), count)


def _extreme_vjp(node: Node, ct: Node, ad: AD) -> Sequence[Node | None]:
    mine, theirs = _shares(node)
    return (MUL(ct, mine), None, MUL(GATHER(ct, node.inputs[1], **node.attrs), theirs))


def _extreme_jvp(node: Node, tangents: Sequence[Node | None], ad: AD) -> Node | None:
    (x, idx, _), (tx, _, tu) = node.inputs, tangents
    if tx is None and tu is None:
        return None
    mine, theirs = _shares(node)
    own = None if tx is None else MUL(tx, mine)
    given = None if tu is None else SCATTER_ADD(
        filled(0, x.tensor), idx, MUL(tu, theirs), **node.attrs)
    return add_all([own, given])


SCATTER_MAX = register(Op("scatter_max", _infer_extreme, eval_scatter(np.maximum.at), _extreme_vjp,
                          _extreme_jvp, kernel=scatter_loops("max"), batch=batch_scatter))
SCATTER_MIN = register(Op("scatter_min", _infer_extreme, eval_scatter(np.minimum.at), _extreme_vjp,
                          _extreme_jvp, kernel=scatter_loops("min"), batch=batch_scatter))

# ---- as users call them ----------------------------------------------------------------------


def _scatter(op: Op, x: Any, indices: Any, updates: Any, axis: int, mode: str) -> Node:
    node = as_node(x)
    place = normalize_axis(axis, node.rank)
    idx, mode = placed(indices, node.shape[place], mode)
    value = convert(as_node(updates, node.dtype), node.dtype)
    shape = (*node.shape[:place], *idx.shape, *node.shape[place + 1:])
    return op(node, idx, stretched(value, shape), axis=place, mode=mode)


@located
def scatter_add(x: Any, indices: Any, updates: Any, axis: int = 0, mode: str = "error") -> Node:
    """x with updates added at positions of an axis; duplicates add up. The updates broadcast to
    x[:axis] + indices.shape + x[axis + 1:]; modes as in take.
    """
    return _scatter(SCATTER_ADD, x, indices, updates, axis, mode)


@located
def scatter_set(x: Any, indices: Any, updates: Any, axis: int = 0, mode: str = "error") -> Node:
    """x with updates in place of the elements at positions of an axis; the last duplicate stays.
    Shapes and modes as in scatter_add.
    """
    return _scatter(SCATTER_SET, x, indices, updates, axis, mode)


@located
def scatter_max(x: Any, indices: Any, updates: Any, axis: int = 0, mode: str = "error") -> Node:
    """The maximum of x and the updates at positions of an axis; ties share the gradient evenly.
    Shapes and modes as in scatter_add.
    """
    return _scatter(SCATTER_MAX, x, indices, updates, axis, mode)


@located
def scatter_min(x: Any, indices: Any, updates: Any, axis: int = 0, mode: str = "error") -> Node:
    """The minimum of x and the updates at positions of an axis; ties share the gradient evenly.
    Shapes and modes as in scatter_add.
    """
    return _scatter(SCATTER_MIN, x, indices, updates, axis, mode)
