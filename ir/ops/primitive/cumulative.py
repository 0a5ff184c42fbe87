"""Cumulative sum and product, and the linear recurrence in which their gradients close."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from rlx_py.ir.base.errors import DTypeError, ShapeError
from rlx_py.ir.base.types import TensorType, Type, f64
from rlx_py.ir.graph.stored import Emitter, LoopRule
from rlx_py.ir.graph.transforms import AD
from rlx_py.ir.loops.index import Index, as_index
from rlx_py.ir.loops.kernel import Apply, Const, Value
from rlx_py.ir.loops.local import Local
from rlx_py.ir.loops.pairs import CHAIN, running, runs, wide
from rlx_py.ir.nodes.node import Node, Op, register
from rlx_py.ir.ops.making.arguments import check_axis
from rlx_py.ir.ops.making.batching import along_axis
from rlx_py.ir.ops.making.constant import constant
from rlx_py.ir.ops.making.families import Array, add_all, composite, linear, quiet
from rlx_py.ir.ops.making.guards import converted, read, scalar
from rlx_py.ir.ops.making.rows import beside_axis
from rlx_py.ir.ops.primitive.elementwise import MUL
from rlx_py.ir.ops.primitive.movement import padded


def _infer_cumulative(x: TensorType, *, axis: int, exclusive: bool, reverse: bool) -> Type:
    check_line(x, axis)
    return x


def check_line(x: TensorType, axis: int) -> None:
    """Refuse what does not accumulate along this axis."""
    check_axis(axis, x)
    if x.dtype.kind == "bool":
        raise DTypeError("cumulative ops take numbers, not bool")


def shifted(node: Node, axis: int, fill: float, reverse: bool) -> Node:
    """Each element moved one step on along the axis (back if reverse); `fill` enters."""
    low = tuple((-1 if reverse else 1) if i == axis else 0 for i in range(node.rank))
    return padded(node, constant(fill, node.dtype), low, tuple(-a for a in low), (0,) * node.rank)


Accumulate = Callable[[Array], Array]  # along the last axis


def along(accumulate: Accumulate, x: Array, axis: int, reverse: bool) -> Array:
    """A line accumulated along an axis, from its end if reverse."""
    line = np.moveaxis(x, axis, -1)
    found = accumulate(line[..., ::-1])[..., ::-1] if reverse else accumulate(line)
    return np.moveaxis(found, -1, axis)


def _accumulated(accumulate: Accumulate, identity: int) -> Callable[..., Any]:

    def eval(x: Array, *, axis: int, exclusive: bool, reverse: bool) -> Any:

        def line(x: Array) -> Array:
            found = accumulate(x)
            if exclusive:
                found[..., 1:] = found[..., :-1].copy()
                found[..., :1] = identity
            return found

        return along(line, x, axis, reverse)

    return quiet(eval)


@contextmanager
def others(node: Node, emit: Emitter, axis: int) -> Iterator[Callable[[Index], tuple[Index, ...]]]:
    """Independent loops over every other axis; gives the full index at a position of `axis`."""
    with ExitStack() as loops:
        outer = [loops.enter_context(emit.loop(n, independent=True))
                 for i, n in enumerate(node.shape) if i != axis]
        yield lambda i: (*outer[:axis], i, *outer[axis:])


def step(i: Index, size: int, reverse: bool) -> Index:
    """Position of step i along an axis."""
    return i * -1 + (size - 1) if reverse else i


State = tuple[Value, ...]
Join = Callable[[State, State], State]


class Running:
    """Loops over the steps of a line that join to a state, from `start`, what each step brings.

    In runs of at most `most` steps behind what all runs before hold, which is joined in pairs.
    `put` is handed the state before a step if exclusive, else behind it.
    """

    def __init__(self, emit: Emitter, start: Sequence[Const], join: Join,
                 take: Callable[[Index], State], put: Callable[[Index, State], None],
                 exclusive: bool = False) -> None:
        self.emit, self.start, self.join = emit, start, join
        self.take, self.put, self.exclusive = take, put, exclusive

    def line(self, size: int, most: int) -> None:
        """All steps."""
        before: State | None = None
        for start, run, depth in runs(size, most):
            before = self._behind(before, self._tree(as_index(start), run, depth, before))

    def _behind(self, before: State | None, state: State) -> State:
        return state if before is None else self.join(before, state)

    def _declared(self) -> tuple[Local, ...]:
        return tuple(self.emit.declare(s.dtype, s) for s in self.start)

    def _set(self, held: tuple[Local, ...], state: State) -> None:
        for local, value in zip(held, state, strict=True):
            self.emit.set(local, value)

    def _tree(self, at: Index, run: int, depth: int, before: State | None) -> State:
        """Runs behind what is before them; what they hold."""
        held = self._declared()
        state: State = tuple(map(read, held))
        if depth:
            with self.emit.loop(2, independent=False) as half:
                inside = self._tree(at + half * (run << depth - 1), run, depth - 1,
                                    self._behind(before, state))
                self._set(held, self.join(state, inside))
            return state
        with self.emit.loop(run, independent=False) as i:
            step = self.take(at + i)
            if self.exclusive:
                self.put(at + i, self._behind(before, state))
            self._set(held, self.join(state, step))
            if not self.exclusive:
                self.put(at + i, self._behind(before, state))
        return state


def _cumulative_loops(combine: str, identity: int) -> LoopRule:

    def build(node: Node, emit: Emitter) -> None:
        axis, acc, size = node.attrs["axis"], node.dtype.compute, node.shape[node.attrs["axis"]]
        # A product loses as many roundings in any order, and in runs it may overflow.
        most = CHAIN if combine == "add" and acc.is_float else size

        def join(a: State, b: State) -> State:
            return (emit.let(Apply(combine, (*a, *b), acc)),)

        with others(node, emit, axis) as at:

            def where(i: Index) -> tuple[Index, ...]:
                return at(step(i, size, node.attrs["reverse"]))

            Running(
                emit, (scalar(identity, acc),), join,
                lambda i: (converted(emit, emit.ask(0, where(i)), acc),),
                lambda i, state: emit.store(where(i), converted(emit, state[0], node.dtype)),
                node.attrs["exclusive"],
            ).line(size, most)

    return LoopRule(build)


# ---- cumulative sum --------------------------------------------------------------------------


def _cumsum_backward(ct: Node, *, axis: int, exclusive: bool, reverse: bool) -> Node:
    return CUMSUM(ct, axis=axis, exclusive=exclusive, reverse=not reverse)


CUMSUM_BACKWARD = composite("cumsum_backward", _infer_cumulative, _cumsum_backward)
CUMSUM = linear("cumsum", _infer_cumulative, _accumulated(lambda x: running(np.add, x, 0), 0),
                lambda node, ct: CUMSUM_BACKWARD(ct, **node.attrs),
                kernel=_cumulative_loops("add", 0), batch=along_axis)

# ---- linear recurrence -----------------------------------------------------------------------


def _infer_recurrence(a: TensorType, b: TensorType, *, axis: int, reverse: bool) -> Type:
    if a != b:
        raise ShapeError(f"factors {a} and terms {b} differ")
    check_line(b, axis)
    return b


def _eval_recurrence(a: Array, b: Array, *, axis: int, reverse: bool) -> Array:
    dtype = b.dtype
    a, b = (np.moveaxis(x, axis, 0) for x in (a, b))
    if dtype.kind not in "biu":
        a, b = a.astype(np.float64), b.astype(np.float64)
    found = np.array(b)
    order = range(len(b))[::-1] if reverse else range(len(b))
    for done, i in enumerate(order):
        # The first state is the first term: what a multiplies there does not exist.
        if done:
            found[i] = a[i] * found[order[done - 1]] + b[i]
    return np.moveaxis(found, 0, axis).astype(dtype, copy=False)


def _recurrence_loops(node: Node, emit: Emitter) -> None:
    """The state is f64: of factors near 1 it is a long sum, which f32 in one chain gets wrong."""
    axis, reverse = node.attrs["axis"], node.attrs["reverse"]
    acc = f64 if node.dtype.is_float else node.dtype.compute
    size = node.shape[axis]
    if not size:
        return

    def ask(position: int, where: tuple[Index, ...]) -> Value:
        return converted(emit, emit.ask(position, where), acc)

    with others(node, emit, axis) as at:
        first = at(step(as_index(0), size, reverse))
        state = emit.declare(acc, ask(1, first))
        emit.store(first, converted(emit, read(state), node.dtype))
        with emit.loop(size - 1, independent=False) as i:
            where = at(step(i + 1, size, reverse))
            factor, term = ask(0, where), ask(1, where)
            kept = emit.let(Apply("mul", (factor, read(state)), acc))
            emit.set(state, emit.let(Apply("add", (kept, term), acc)))
            emit.store(where, converted(emit, read(state), node.dtype))


def _recurrence_vjp(node: Node, ct: Node, ad: AD) -> Sequence[Node | None]:
    """r_t = ct_t + a_{t+1} r_{t+1}; db = r, da_t = r_t s_{t-1}."""
    (a, _), axis, reverse = node.inputs, node.attrs["axis"], node.attrs["reverse"]
    later = shifted(a, axis, 0, not reverse)
    db = LINEAR_RECURRENCE(later, ct, axis=axis, reverse=not reverse)
    return (MUL(db, shifted(node, axis, 0, reverse)), db)


def _recurrence_jvp(node: Node, tangents: Sequence[Node | None], ad: AD) -> Node | None:
    """ds_t = a_t ds_{t-1} + (da_t s_{t-1} + db_t)."""
    (a, _), (ta, tb) = node.inputs, tangents
    before = shifted(node, node.attrs["axis"], 0, node.attrs["reverse"])
    term = add_all([None if ta is None else MUL(ta, before), tb])
    return None if term is None else LINEAR_RECURRENCE(a, term, **node.attrs)


LINEAR_RECURRENCE = register(Op(
    "linear_recurrence", _infer_recurrence, quiet(_eval_recurrence), _recurrence_vjp,
    _recurrence_jvp, kernel=LoopRule(_recurrence_loops), batch=along_axis,
    rows=beside_axis))

# ---- cumulative product ----------------------------------------------------------------------


def _before(node: Node) -> Node:
    """The product of what precedes each element."""
    (x,), axis, reverse = node.inputs, node.attrs["axis"], node.attrs["reverse"]
    return node if node.attrs["exclusive"] else CUMPROD(
        x, axis=axis, exclusive=True, reverse=reverse)


def _cumprod_vjp(node: Node, ct: Node, ad: AD) -> Sequence[Node | None]:
    """dx_s = P_{s-1} r_s, r_s = ct_s + x_{s+1} r_{s+1}: exact at zeros, nothing is divided."""
    (x,), axis, reverse = node.inputs, node.attrs["axis"], node.attrs["reverse"]
    inclusive = shifted(ct, axis, 0, not reverse) if node.attrs["exclusive"] else ct
    tail = LINEAR_RECURRENCE(shifted(x, axis, 0, not reverse), inclusive, axis=axis,
                             reverse=not reverse)
    return (MUL(tail, _before(node)),)


def _cumprod_jvp(node: Node, tangents: Sequence[Node | None], ad: AD) -> Node | None:
    """dy_t = x_t dy_{t-1} + P_{t-1} dx_t."""
    (x,), (t,) = node.inputs, tangents
    if t is None:
        return None
    axis, reverse = node.attrs["axis"], node.attrs["reverse"]
    found = LINEAR_RECURRENCE(x, MUL(t, _before(node)), axis=axis, reverse=reverse)
    return shifted(found, axis, 0, reverse) if node.attrs["exclusive"] else found


def _running_product(x: Array) -> Array:
    return np.multiply.accumulate(wide(x), axis=-1).astype(x.dtype, copy=False)


CUMPROD = register(Op(
    "cumprod", _infer_cumulative, _accumulated(_running_product, 1), _cumprod_vjp, _cumprod_jvp,
    kernel=_cumulative_loops("mul", 1), batch=along_axis, rows=beside_axis))
