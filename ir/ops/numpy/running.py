"""Running extremes and running logsumexp along an axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import Any

import numpy as np

from rlx_py.ir.base.errors import DTypeError
from rlx_py.ir.base.types import TensorType, Type, bool_, f32, i64, normalize_axis, require_float
from rlx_py.ir.graph.stored import Emitter, LoopRule
from rlx_py.ir.graph.transforms import AD
from rlx_py.ir.loops.index import Index
from rlx_py.ir.loops.kernel import Apply, Expr, IndexValue
from rlx_py.ir.loops.pairs import CHAIN, running
from rlx_py.ir.nodes.node import Node, Op, register
from rlx_py.ir.ops.making.batching import along_axis
from rlx_py.ir.ops.making.families import Array, quiet
from rlx_py.ir.ops.making.guards import apply, converted, number, read, scalar, settle
from rlx_py.ir.ops.making.located import located
from rlx_py.ir.ops.making.rows import beside_axis
from rlx_py.ir.ops.operands.operand import as_node
from rlx_py.ir.ops.primitive.compare import EQ
from rlx_py.ir.ops.primitive.cumulative import (
    LINEAR_RECURRENCE,
    Running,
    State,
    along,
    check_line,
    others,
    shifted,
    step,
)
from rlx_py.ir.ops.primitive.elementwise import EXP, SELECT, SUB, cast, fill
from rlx_py.ir.ops.primitive.index import TAKE_ALONG
from rlx_py.ir.ops.primitive.movement import reshaped
from rlx_py.ir.ops.primitive.reduce import highest, lowest

# ---- positions of running extremes -----------------------------------------------------------


def _infer_position(x: TensorType, *, axis: int, reverse: bool) -> Type:
    check_line(x, axis)
    return x.with_dtype(i64)


def _eval_position(ufunc: np.ufunc) -> Callable[..., Any]:

    def eval(x: Array, *, axis: int, reverse: bool) -> Any:
        line = np.flip(x, axis) if reverse else x
        best = ufunc.accumulate(line, axis=axis)
        # A position starts where the running extreme changes (a NaN, once there, stays).
        before = np.roll(best, 1, axis)
        same = (best == before) | ((best != best) & (before != before))
        size = x.shape[axis]
        place = np.arange(size).reshape([-1 if i == axis else 1 for i in range(x.ndim)])
        found = np.maximum.accumulate(np.where(same & (place > 0), 0, place), axis=axis)
        return size - 1 - np.flip(found, axis) if reverse else found

    return quiet(eval)


def _position_loops(better: str) -> LoopRule:

    def build(node: Node, emit: Emitter) -> None:
        axis, reverse, dtype = node.attrs["axis"], node.attrs["reverse"], node.inputs[0].dtype
        size = node.shape[axis]
        start = (lowest if better == "gt" else highest)(dtype)
        with others(node, emit, axis) as at:
            best = emit.declare(dtype, scalar(start, dtype))
            place = emit.declare(i64, number(size - 1 if reverse else 0))
            with emit.loop(size, independent=False) as i:
                here: Index = step(i, size, reverse)
                value = emit.ask(0, at(here))
                wins: Expr = apply(better, bool_, value, read(best))
                if dtype.is_float:
                    first_nan = apply("and", bool_, apply("ne", bool_, value, value),
                                      apply("eq", bool_, read(best), read(best)))
                    wins = apply("or", bool_, wins, first_nan)
                won = settle(emit, wins)
                index = emit.let(IndexValue(here, i64))
                emit.set(place, emit.let(Apply("select", (won, index, read(place)), i64)))
                emit.set(best, emit.let(Apply("select", (won, value, read(best)), dtype)))
                emit.store(at(here), read(place))

    return LoopRule(build)


CUMARGMAX = register(Op("cumargmax", _infer_position, _eval_position(np.maximum),
                        kernel=_position_loops("gt"), batch=along_axis, differentiable=False))
CUMARGMIN = register(Op("cumargmin", _infer_position, _eval_position(np.minimum),
                        kernel=_position_loops("lt"), batch=along_axis, differentiable=False))

# ---- running logsumexp -----------------------------------------------------------------------


def _infer_logsumexp(x: TensorType, *, axis: int, reverse: bool) -> Type:
    require_float("cumlogsumexp", x.dtype)
    check_line(x, axis)
    return x


def _eval_logsumexp(x: Array, *, axis: int, reverse: bool) -> Any:
    return along(lambda line: running(np.logaddexp, line, -inf), x, axis, reverse)


def _logsumexp_loops(node: Node, emit: Emitter) -> None:
    """The state is (M, Σ exp(x − M)), M the largest x so far; y = M + log of the sum."""
    axis, reverse, acc = node.attrs["axis"], node.attrs["reverse"], node.dtype.compute
    size = node.shape[axis]

    def join(a: State, b: State) -> State:
        """The sum under the smaller M is scaled; equal ones stay, infinite too."""
        (m, s), (n, t) = a, b
        apart = apply("neg", acc, apply("abs", acc, apply("sub", acc, m, n)))
        apart = apply("select", acc, apply("eq", bool_, m, n), scalar(0, acc), apart)
        scale = settle(emit, apply("exp", acc, apart))
        first, second = (apply("mul", acc, v, scale) for v in (s, t))
        found = apply("select", acc, apply("lt", bool_, m, n),
                      apply("add", acc, first, t), apply("add", acc, s, second))
        return settle(emit, apply("max", acc, m, n)), settle(emit, found)

    with others(node, emit, axis) as at:

        def where(i: Index) -> tuple[Index, ...]:
            return at(step(i, size, reverse))

        def put(i: Index, state: State) -> None:
            m, s = state
            value = settle(emit, apply("add", acc, m, apply("log", acc, s)))
            emit.store(where(i), converted(emit, value, node.dtype))

        Running(emit, (scalar(-inf, acc), scalar(0, acc)), join,
                lambda i: (converted(emit, emit.ask(0, where(i)), acc), scalar(1, acc)),
                put).line(size, CHAIN)


def _decay(later: Node, earlier: Node) -> Node:
    """exp(earlier − later); 0 where the later is −inf."""
    safe = SELECT(EQ(later, fill(later, -inf)), fill(later, inf), later)
    return EXP(SUB(earlier, safe))


def _logsumexp_vjp(node: Node, ct: Node, ad: AD) -> Sequence[Node | None]:
    """r_t = ct_t + exp(y_t − y_{t+1}) r_{t+1}; dx_t = r_t exp(x_t − y_t)."""
    (x,), axis, reverse = node.inputs, node.attrs["axis"], node.attrs["reverse"]
    following = shifted(node, axis, inf, not reverse)
    r = LINEAR_RECURRENCE(_decay(following, node), ct, axis=axis, reverse=not reverse)
    return (ad.times(r, _decay(node, x)),)


def _logsumexp_jvp(node: Node, tangents: Sequence[Node | None], ad: AD) -> Node | None:
    """dy_t = exp(y_{t−1} − y_t) dy_{t−1} + exp(x_t − y_t) dx_t."""
    (x,), (t,) = node.inputs, tangents
    if t is None:
        return None
    before = shifted(node, node.attrs["axis"], -inf, node.attrs["reverse"])
    return LINEAR_RECURRENCE(_decay(node, before), ad.times(t, _decay(node, x)), **node.attrs)


CUMLOGSUMEXP = register(Op("cumlogsumexp", _infer_logsumexp, quiet(_eval_logsumexp),
                           _logsumexp_vjp, _logsumexp_jvp, kernel=LoopRule(_logsumexp_loops),
                           batch=along_axis, rows=beside_axis))

# ---- as users call them ----------------------------------------------------------------------


def _line(x: Any, axis: int | None) -> tuple[Node, int]:
    node = as_node(x)
    if node.dtype is bool_:
        raise DTypeError("running extremes take numbers, not bool")
    if axis is None:
        return reshaped(node, (node.size,)), 0
    return node, normalize_axis(axis, node.rank)


def _extreme(op: Op, x: Any, axis: int | None, reverse: bool) -> Node:
    node, place = _line(x, axis)
    return TAKE_ALONG(node, op(node, axis=place, reverse=reverse), axis=place, mode="clip")


@located
def cummax(x: Any, axis: int | None = None, reverse: bool = False) -> Node:
    """Running maximum along an axis (of the flattened array by default); NaN wins from there on.
    The gradient goes to the first element that holds each maximum. reverse: from the end.
    """
    return _extreme(CUMARGMAX, x, axis, reverse)


@located
def cummin(x: Any, axis: int | None = None, reverse: bool = False) -> Node:
    """Running minimum along an axis (of the flattened array by default); NaN wins from there on.
    The gradient goes to the first element that holds each minimum. reverse: from the end.
    """
    return _extreme(CUMARGMIN, x, axis, reverse)


@located
def cumlogsumexp(x: Any, axis: int | None = None, exclusive: bool = False,
                 reverse: bool = False) -> Node:
    """log of the running sum of exp(x) along an axis, without overflow; −inf has gradient 0.

    exclusive: of what precedes each element; reverse: from the end.
    """
    node, place = _line(x, axis)
    node = node if node.dtype.is_float else cast(node, f32)
    found = CUMLOGSUMEXP(node, axis=place, reverse=reverse)
    return shifted(found, place, -inf, reverse) if exclusive else found
