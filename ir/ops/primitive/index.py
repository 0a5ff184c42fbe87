"""Elements at run-time positions: gather along an axis, and its transpose, which adds.

Modes say what a position outside 0 … n − 1 means. "clip": the nearest end. "fill": reads 0, writes
nothing. "error": ArgumentError on the reference path, and "clip" in compiled code, which never
touches memory outside its buffers.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack
from math import prod
from typing import Any

import numpy as np

from rlx_py.ir.base.errors import ArgumentError, DTypeError, ShapeError
from rlx_py.ir.base.types import TensorType, Type, as_shape, bool_, i64
from rlx_py.ir.graph.stored import Emitter, LoopRule
from rlx_py.ir.graph.transforms import AD
from rlx_py.ir.loops.index import Index
from rlx_py.ir.loops.kernel import Expr, Value
from rlx_py.ir.nodes.node import Ask, Node, Op, register
from rlx_py.ir.ops.making.arguments import check_axis
from rlx_py.ir.ops.making.batch_index import batch_gather, batch_scatter_add
from rlx_py.ir.ops.making.batching import along_axis
from rlx_py.ir.ops.making.families import Array, composite, narrow
from rlx_py.ir.ops.making.guards import (
    apply,
    both,
    choose,
    chosen,
    converted,
    in_type,
    number,
    scalar,
    settle,
)
from rlx_py.ir.ops.making.rows import beside_axis
from rlx_py.ir.ops.primitive.elementwise import cast
from rlx_py.ir.ops.primitive.movement import filled

Asked = Generator[Ask, Any, Expr]
MODES = ("clip", "fill", "error")


def _check(x: TensorType, idx: TensorType, axis: int, mode: str, read: bool) -> None:
    check_axis(axis, x)
    if not idx.dtype.is_int:
        raise DTypeError(f"positions must be integers, not {idx.dtype}")
    if mode not in MODES:
        raise ArgumentError(f"mode {mode!r} is not one of {', '.join(MODES)}")
    if read and mode != "fill" and not x.shape[axis] and idx.size:
        raise ShapeError(f"axis {axis} of {x} has no element to take")


def _positions(idx: Array, size: int, mode: str) -> tuple[Array, Array]:
    """Positions inside the axis, and where they were so from the start."""
    wide = idx.astype(np.int64)
    inside = (wide >= 0) & (wide < size)
    if mode == "error" and not inside.all():
        raise ArgumentError(f"index {wide[~inside].flat[0]} is out of range for size {size}")
    return np.clip(wide, 0, max(size - 1, 0)), inside


def _inside(value: Expr, size: int) -> Expr:
    """0 <= value < size, in i64."""
    found = both(apply("ge", bool_, value, number(0)), apply("lt", bool_, value, number(size)))
    assert found is not None
    return found


def _at_position(x: Node, where: tuple[Index, ...], axis: int, value: Expr, mode: str) -> Asked:
    """The element of input 0 at a run-time position of one axis."""
    wide = in_type(value, i64)
    size = x.shape[axis]
    place = yield ("dynamic", wide, size)
    found = (*where[:axis], place, *where[axis:])
    if mode != "fill":
        return (yield (0, found))  # type: ignore[no-any-return]
    guard = _inside(wide, size)
    return choose(guard, (yield (0, found, guard)), scalar(0, x.dtype), x.dtype)


def _place(emit: Emitter, value: Value, size: int, mode: str) -> tuple[Index, Value | None]:
    """A run-time position as an index, and the guard under which it counts."""
    wide = converted(emit, value, i64)
    guard = settle(emit, _inside(wide, size)) if mode == "fill" else None
    return emit.dynamic(wide, size), guard


def _copy(node: Node, emit: Emitter) -> None:
    """The result starts as input 0."""
    with ExitStack() as loops:
        where = tuple(loops.enter_context(emit.loop(n, independent=True)) for n in node.shape)
        emit.store(where, emit.ask(0, where))


def _accumulator(like: TensorType) -> Node:
    """Zeros to add into: of f32 for narrow floats, so that many duplicates do not round away."""
    return filled(0, like.with_dtype(like.dtype.compute))


def _zeros(node: Node) -> Node:
    return filled(0, node.tensor)


# ---- gather ----------------------------------------------------------------------------------


def _infer_gather(x: TensorType, idx: TensorType, *, axis: int, mode: str) -> Type:
    _check(x, idx, axis, mode, True)
    return x.with_shape((*x.shape[:axis], *idx.shape, *x.shape[axis + 1:]))


def _masked(found: Array, inside: Array, axis: int) -> Array:
    """0 where a position was outside; the position's axes start at `axis`."""
    shape = (1,) * axis + inside.shape + (1,) * (found.ndim - axis - inside.ndim)
    return np.where(inside.reshape(shape), found, np.zeros((), found.dtype))


def _eval_gather(x: Array, idx: Array, *, axis: int, mode: str) -> Array:
    place, inside = _positions(np.asarray(idx), x.shape[axis], mode)
    if not x.shape[axis]:
        return np.zeros((*x.shape[:axis], *place.shape, *x.shape[axis + 1:]), x.dtype)
    found = np.take(x, place, axis)
    return _masked(found, inside, axis) if mode == "fill" else found


def _gather_element(node: Node, index: tuple[Index, ...]) -> Asked:
    (x, idx), axis = node.inputs, node.attrs["axis"]
    value = yield (1, index[axis:axis + idx.rank])
    where = (*index[:axis], *index[axis + idx.rank:])
    return (yield from _at_position(x, where, axis, value, node.attrs["mode"]))


def _gather_vjp(node: Node, ct: Node, ad: AD) -> Sequence[Node | None]:
    x, idx = node.inputs
    return (GATHER_BACKWARD(idx, ct, size=x.shape[node.attrs["axis"]], **node.attrs), None)


def _gather_jvp(node: Node, tangents: Sequence[Node | None], ad: AD) -> Node | None:
    t, _ = tangents
    return None if t is None else GATHER(t, node.inputs[1], **node.attrs)


GATHER = register(Op("gather", _infer_gather, _eval_gather, _gather_vjp, _gather_jvp,
                     element=_gather_element, batch=batch_gather))


def _gathered(idx: TensorType, ct: TensorType, axis: int, size: int) -> TensorType:
    """The type of what was gathered from."""
    if axis < 0 or idx.rank + axis > ct.rank or ct.shape[axis:axis + idx.rank] != idx.shape:
        raise ShapeError(f"{ct} is not gathered by {idx} at axis {axis}")
    return ct.with_shape((*ct.shape[:axis], *as_shape(size), *ct.shape[axis + idx.rank:]))


def _infer_gather_backward(idx: TensorType, ct: TensorType, *, axis: int, mode: str,
                           size: int) -> Type:
    _check_numbers(ct)
    found = _gathered(idx, ct, axis, size)
    _check(found, idx, axis, mode, True)
    return found


def _gather_backward(idx: Node, ct: Node, *, axis: int, mode: str, size: int) -> Node:
    zeros = _accumulator(_gathered(idx.tensor, ct.tensor, axis, size))
    return cast(SCATTER_ADD(zeros, idx, cast(ct, zeros.dtype), axis=axis, mode=mode), ct.dtype)


GATHER_BACKWARD = composite("gather_backward", _infer_gather_backward, _gather_backward)

# ---- scatter ---------------------------------------------------------------------------------


def infer_scatter(x: TensorType, idx: TensorType, u: TensorType, *, axis: int, mode: str) -> Type:
    """The type of x with u[…] laid at positions of one axis."""
    _check(x, idx, axis, mode, False)
    expected = x.with_shape((*x.shape[:axis], *idx.shape, *x.shape[axis + 1:]))
    _check_update(x, u, expected, mode)
    return x


def _check_update(x: TensorType, u: TensorType, expected: TensorType, mode: str) -> None:
    if u != expected:
        raise ShapeError(f"the update must be {expected}, not {u}")
    if mode != "fill" and u.size and not x.size:
        raise ShapeError(f"{x} has no element to add to")


def eval_scatter(combine: Callable[[Array, Any, Array], None]) -> Callable[..., Array]:
    """NumPy's meaning, given how lines u are put into result at positions."""

    def eval(x: Array, idx: Array, u: Array, *, axis: int, mode: str) -> Array:
        place, inside = _positions(np.asarray(idx), x.shape[axis], mode)
        before, after = prod(x.shape[:axis]), prod(x.shape[axis + 1:])
        result = np.array(narrow(x)).reshape(before, x.shape[axis], after)
        lines = narrow(u).reshape(before, place.size, after)
        counted = inside.ravel() if mode == "fill" else np.ones(place.size, np.bool_)
        where: Any = (slice(None), place.ravel()[counted])
        if x.size:
            with np.errstate(all="ignore"):
                combine(result, where, lines[:, counted])
        return result.reshape(x.shape).astype(x.dtype)

    return eval


def scatter_loops(combine: str | None) -> LoopRule:
    """Positions in order, so that duplicates meet in one order; all other axes are independent."""

    def build(node: Node, emit: Emitter) -> None:
        (x, idx, _), axis, mode = node.inputs, node.attrs["axis"], node.attrs["mode"]
        _copy(node, emit)
        with ExitStack() as loops:
            lead = [loops.enter_context(emit.loop(n, independent=True)) for n in x.shape[:axis]]
            at = [loops.enter_context(emit.loop(n, independent=False)) for n in idx.shape]
            place, guard = _place(emit, emit.ask(1, tuple(at)), x.shape[axis], mode)
            rest = [loops.enter_context(emit.loop(n, independent=True))
                    for n in x.shape[axis + 1:]]
            value = chosen(emit, 2, (*lead, *at, *rest), guard)
            emit.store((*lead, place, *rest), value, combine=combine, guard=guard)

    return LoopRule(build)


def _infer_scatter_add(x: TensorType, idx: TensorType, u: TensorType, **attrs: Any) -> Type:
    _check_numbers(x)
    return infer_scatter(x, idx, u, **attrs)


def _check_numbers(x: TensorType) -> None:
    if x.dtype.kind == "bool":
        raise DTypeError("scatter adds numbers, not bool")


def _scatter_vjp(node: Node, ct: Node, ad: AD) -> Sequence[Node | None]:
    return (ct, None, GATHER(ct, node.inputs[1], **node.attrs))


def _scatter_jvp(node: Node, tangents: Sequence[Node | None], ad: AD) -> Node | None:
    tx, _, tu = tangents
    x, idx, _ = node.inputs
    return tx if tu is None else SCATTER_ADD(_zeros(x) if tx is None else tx, idx, tu, **node.attrs)


SCATTER_ADD = register(Op("scatter_add", _infer_scatter_add, eval_scatter(np.add.at), _scatter_vjp,
                          _scatter_jvp, kernel=scatter_loops("add"), batch=batch_scatter_add))

# ---- along an axis, at positions of their own for each line ----------------------------------


def _check_along(x: TensorType, idx: TensorType, axis: int) -> None:
    if x.rank != idx.rank or any(
            a != b for i, (a, b) in enumerate(zip(x.shape, idx.shape, strict=True)) if i != axis):
        raise ShapeError(f"{x} and positions {idx} differ beside axis {axis}")


def _infer_take_along(x: TensorType, idx: TensorType, *, axis: int, mode: str) -> Type:
    _check(x, idx, axis, mode, True)
    _check_along(x, idx, axis)
    return x.with_shape(idx.shape)


def _eval_take_along(x: Array, idx: Array, *, axis: int, mode: str) -> Array:
    place, inside = _positions(idx, x.shape[axis], mode)
    if not x.shape[axis]:
        return np.zeros(idx.shape, x.dtype)
    found = np.take_along_axis(x, place, axis)
    return _masked(found, inside, 0) if mode == "fill" else found


def _take_along_element(node: Node, index: tuple[Index, ...]) -> Asked:
    axis = node.attrs["axis"]
    value = yield (1, index)
    where = (*index[:axis], *index[axis + 1:])
    return (yield from _at_position(node.inputs[0], where, axis, value, node.attrs["mode"]))


def _take_along_vjp(node: Node, ct: Node, ad: AD) -> Sequence[Node | None]:
    x, idx = node.inputs
    return (TAKE_ALONG_BACKWARD(idx, ct, size=x.shape[node.attrs["axis"]], **node.attrs), None)


def _take_along_jvp(node: Node, tangents: Sequence[Node | None], ad: AD) -> Node | None:
    t, _ = tangents
    return None if t is None else TAKE_ALONG(t, node.inputs[1], **node.attrs)


TAKE_ALONG = register(Op("take_along", _infer_take_along, _eval_take_along, _take_along_vjp,
                         _take_along_jvp, element=_take_along_element, batch=along_axis,
                         rows=beside_axis))


def _taken(ct: TensorType, axis: int, size: int) -> TensorType:
    check_axis(axis, ct)
    return ct.with_shape((*ct.shape[:axis], *as_shape(size), *ct.shape[axis + 1:]))


def _infer_take_along_backward(idx: TensorType, ct: TensorType, *, axis: int, mode: str,
                               size: int) -> Type:
    _check_numbers(ct)
    if idx.shape != ct.shape:
        raise ShapeError(f"{ct} is not taken at {idx}")
    _check(_taken(ct, axis, size), idx, axis, mode, True)
    return _taken(ct, axis, size)


def _take_along_backward(idx: Node, ct: Node, *, axis: int, mode: str, size: int) -> Node:
    zeros = _accumulator(_taken(ct.tensor, axis, size))
    return cast(SCATTER_ADD_ALONG(zeros, idx, cast(ct, zeros.dtype), axis=axis, mode=mode),
                ct.dtype)


TAKE_ALONG_BACKWARD = composite(
    "take_along_backward", _infer_take_along_backward, _take_along_backward)


def _infer_scatter_along(x: TensorType, idx: TensorType, u: TensorType, *, axis: int,
                         mode: str) -> Type:
    _check_numbers(x)
    _check(x, idx, axis, mode, False)
    _check_along(x, idx, axis)
    _check_update(x, u, x.with_shape(idx.shape), mode)
    return x


def _eval_scatter_along(x: Array, idx: Array, u: Array, *, axis: int, mode: str) -> Array:
    place, inside = _positions(idx, x.shape[axis], mode)
    result = np.array(narrow(x))
    where: list[Any] = list(np.indices(idx.shape, sparse=True))
    where[axis] = place
    update = narrow(u)
    if mode == "fill":
        update = np.where(inside, update, np.zeros((), update.dtype))
    if x.size:
        with np.errstate(all="ignore"):
            np.add.at(result, tuple(where), update)
    return result.astype(x.dtype)


def _scatter_along_loops(node: Node, emit: Emitter) -> None:
    (x, idx, _), axis, mode = node.inputs, node.attrs["axis"], node.attrs["mode"]
    _copy(node, emit)
    with ExitStack() as loops:
        outer = [loops.enter_context(emit.loop(n, independent=True))
                 for i, n in enumerate(idx.shape) if i != axis]
        i = loops.enter_context(emit.loop(idx.shape[axis], independent=False))
        at = (*outer[:axis], i, *outer[axis:])
        place, guard = _place(emit, emit.ask(1, at), x.shape[axis], mode)
        emit.store((*outer[:axis], place, *outer[axis:]), chosen(emit, 2, at, guard),
                   combine="add", guard=guard)


def _scatter_along_vjp(node: Node, ct: Node, ad: AD) -> Sequence[Node | None]:
    return (ct, None, TAKE_ALONG(ct, node.inputs[1], **node.attrs))


def _scatter_along_jvp(node: Node, tangents: Sequence[Node | None], ad: AD) -> Node | None:
    tx, _, tu = tangents
    x, idx, _ = node.inputs
    return tx if tu is None else SCATTER_ADD_ALONG(
        _zeros(x) if tx is None else tx, idx, tu, **node.attrs)


SCATTER_ADD_ALONG = register(Op(
    "scatter_add_along", _infer_scatter_along, _eval_scatter_along, _scatter_along_vjp,
    _scatter_along_jvp, kernel=LoopRule(_scatter_along_loops), batch=along_axis))
