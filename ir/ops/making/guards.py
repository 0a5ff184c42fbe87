"""Conditions on indices: boolean expression trees that lower flattens."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx_py.ir.base.types import DType, bool_, i64
from rlx_py.ir.graph.stored import Emitter
from rlx_py.ir.loops.index import Index
from rlx_py.ir.loops.kernel import Apply, Bitcast, Cast, Const, Expr, IndexValue, Read, Value
from rlx_py.ir.loops.local import Local


def number(value: int) -> Const:
    """An i64 literal."""
    return Const(np.int64(value), i64)


def scalar(value: Any, dtype: DType) -> Const:
    """A literal of an element type."""
    return Const(np.asarray(value).astype(dtype.numpy)[()], dtype)


def apply(op: str, dtype: DType, *args: Any) -> Expr:
    """A scalar operation on expressions, nested as they are."""
    return Apply(op, args, dtype)


def in_type(value: Any, dtype: DType) -> Expr:
    """An expression, nested as it is, in another element type."""
    return Cast(value, dtype)


def both(a: Expr | None, b: Expr | None) -> Expr | None:
    """The conjunction; None is true."""
    if a is None or b is None:
        return b if a is None else a
    return apply("and", bool_, a, b)


def within(index: Index, low: int, high: int) -> Expr | None:
    """low <= index < high; None where the range of the index already says so."""
    smallest, largest = index.range
    at_least = None if smallest >= low else apply(
        "ge", bool_, IndexValue(index, i64), number(low))
    below = None if largest < high else apply("lt", bool_, IndexValue(index, i64), number(high))
    return both(at_least, below)


def divides(index: Index, by: int) -> Expr | None:
    """index mod by = 0; None where that is plain."""
    rest = index % by
    if rest.range == (0, 0):
        return None
    return apply("eq", bool_, IndexValue(rest, i64), number(0))


def never(index: Index, low: int, high: int) -> bool:
    """Whether no value of the index lies in low … high − 1."""
    smallest, largest = index.range
    return largest < low or smallest >= high


def choose(guard: Expr | None, yes: Expr, no: Expr, dtype: DType) -> Expr:
    """yes where the guard holds, else no."""
    return yes if guard is None else apply("select", dtype, guard, yes, no)


def settle(emit: Emitter, expr: Expr) -> Value:
    """The tree as one-level statements of an emitter; its value."""
    if isinstance(expr, Const | Read):
        return expr
    if isinstance(expr, Apply):
        args = tuple(settle(emit, a) for a in expr.args)
        return emit.let(Apply(expr.op, args, expr.dtype, expr.attrs))
    if isinstance(expr, Cast | Bitcast):
        return emit.let(type(expr)(settle(emit, expr.arg), expr.dtype))
    return emit.let(expr)


def settled(emit: Emitter, guard: Expr | None) -> Value | None:
    """The guard as a value; None stays true."""
    return None if guard is None else settle(emit, guard)


def chosen(emit: Emitter, position: int, index: tuple[Index, ...], guard: Value | None) -> Value:
    """The value of an input where the guard holds, else 0."""
    value = emit.ask(position, index, guard)
    if guard is None:
        return value
    # What is fused into the ask may turn the 0 of a guarded load into something else.
    return emit.let(Apply("select", (guard, value, scalar(0, value.dtype)), value.dtype))


def converted(emit: Emitter, value: Value, dtype: DType) -> Value:
    """The value in another element type."""
    return value if value.dtype is dtype else emit.let(Cast(value, dtype))


def read(local: Local) -> Read:
    """The current value of an accumulator."""
    return Read(local)
