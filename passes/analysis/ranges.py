"""Bounds on values that hold for every input: what makes a rewrite safe."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, isnan
from typing import Any
from weakref import ref

import ml_dtypes
import numpy as np

from rlx_py.ir.base.bounds import least, most
from rlx_py.ir.base.types import DType, TupleType
from rlx_py.ir.nodes.node import Node, Op
from rlx_py.ir.ops.making.constant import CONSTANT, IOTA, SIZE
from rlx_py.ir.ops.primitive.compare import EQ, GE, GT, LE, LT, NE
from rlx_py.ir.ops.primitive.elementwise import (
    ABS,
    ADD,
    CAST,
    COS,
    EXP,
    GUARDED_MUL,
    MAX,
    MIN,
    MUL,
    NEG,
    SELECT,
    SIN,
    SQRT,
    SUB,
    TANH,
)
from rlx_py.ir.ops.primitive.movement import BROADCAST, CONCAT, RESHAPE, REVERSE, SLICE, TRANSPOSE
from rlx_py.ir.ops.primitive.reduce import REDUCE_MAX, REDUCE_MIN, REDUCE_SUM


@dataclass(frozen=True)
class Range:
    """Every element lies in low … high, or is NaN where `nan` allows it."""

    low: float
    high: float
    nan: bool

    @property
    def finite(self) -> bool:
        """Whether no element can be NaN or infinite."""
        return not self.nan and -inf < self.low and self.high < inf

    @property
    def nonnegative(self) -> bool:
        """Whether every element is at least 0, or NaN."""
        return self.low >= 0


ANYTHING = Range(-inf, inf, True)
# By the node's id, as long as it lives: a WeakKeyDictionary would compare nodes.
_KNOWN: dict[int, tuple[Range, ref[Node]]] = {}


def range_of(node: Node) -> Range:
    """The bounds known of a node; each node is computed once, whatever its depth."""
    stack = [node]
    while stack:
        top = stack[-1]
        if id(top) in _KNOWN:
            stack.pop()
            continue
        inputs = top.inputs if top.op in RULES else ()
        waiting = [x for x in inputs if id(x) not in _KNOWN]
        if waiting:
            stack.extend(waiting)
            continue
        _remember(top, _within_dtype(top, [_KNOWN[id(x)][0] for x in inputs]))
        stack.pop()
    return _KNOWN[id(node)][0]


def _remember(node: Node, found: Range) -> None:
    key = id(node)
    _KNOWN[key] = found, ref(node, lambda _: _KNOWN.pop(key, None))


def _within_dtype(node: Node, inputs: list[Range]) -> Range:
    if isinstance(node.type, TupleType):
        return ANYTHING
    dtype = node.type.dtype
    if dtype.kind == "bool":
        return Range(0, 1, False)
    low, high = _limits(dtype)
    if node.op not in RULES:
        return ANYTHING if dtype.is_float else Range(low, high, False)
    found = RULES[node.op](node, *inputs)
    if not dtype.is_float:
        # Integers wrap around, so what leaves the type may be anywhere in it.
        return found if low <= found.low and found.high <= high else Range(low, high, False)
    # Half the largest number leaves room for what rounding adds to a sum.
    return Range(found.low if found.low >= low / 2 else -inf,
                 found.high if found.high <= high / 2 else inf, found.nan)


def _limits(dtype: DType) -> tuple[float, float]:
    finfo: Any = ml_dtypes.finfo
    info = finfo(dtype.numpy) if dtype.is_float else np.iinfo(dtype.numpy)
    return float(info.min), float(info.max)


def _constant(node: Node) -> Range:
    array = node.attrs["value"].array.astype(np.float64)
    if not array.size:
        return Range(0, 0, False)
    nan = bool(np.isnan(array).any())
    kept = array[~np.isnan(array)]
    return Range(float(kept.min()), float(kept.max()), nan) if kept.size else Range(0, 0, True)


def _iota(node: Node) -> Range:
    return Range(0, max(_most(node.shape[node.attrs["axis"]]) - 1, 0), False)


def _size(node: Node) -> Range:
    return Range(least(node.attrs["size"]) or 0, _most(node.attrs["size"]), False)


def _most(size: int) -> float:
    """A number that a size does not exceed."""
    found = most(size)
    return 2.0**63 if found is None else found


def _same(node: Node, x: Range, *rest: Range) -> Range:
    return x


def _union(node: Node, *parts: Range) -> Range:
    return Range(min(p.low for p in parts), max(p.high for p in parts), any(p.nan for p in parts))


def _select(node: Node, condition: Range, a: Range, b: Range) -> Range:
    return _union(node, a, b)


def _cast(node: Node, x: Range) -> Range:
    if node.inputs[0].dtype.is_float and not node.dtype.is_float:
        return Range(*_limits(node.dtype), False)
    return x


def _neg(node: Node, x: Range) -> Range:
    return Range(-x.high, -x.low, x.nan)


def _abs(node: Node, x: Range) -> Range:
    if x.low >= 0:
        return x
    return Range(max(0.0, -x.high), max(-x.low, x.high), x.nan)


def _add(node: Node, x: Range, y: Range) -> Range:
    nan = x.nan or y.nan or (x.low == -inf and y.high == inf) or (x.high == inf and y.low == -inf)
    low, high = x.low + y.low, x.high + y.high
    return Range(-inf if isnan(low) else low, inf if isnan(high) else high, nan)


def _sub(node: Node, x: Range, y: Range) -> Range:
    return _add(node, x, _neg(node, y))


def _mul(node: Node, x: Range, y: Range) -> Range:
    if node.inputs[0] is node.inputs[1]:
        big = max(abs(x.low), abs(x.high))
        return Range(0, big * big, x.nan)
    nan = x.nan or y.nan or (_has_zero(x) and _unbounded(y)) or (_has_zero(y) and _unbounded(x))
    ends = [_product(a, b) for a in (x.low, x.high) for b in (y.low, y.high)]
    return Range(min(ends), max(ends), nan)


def _guarded_mul(node: Node, x: Range, y: Range) -> Range:
    ends = [_product(a, b) for a in (x.low, x.high) for b in (y.low, y.high)]
    return Range(min(0.0, *ends), max(0.0, *ends), x.nan or y.nan or
                 (_has_zero(y) and _unbounded(x)))


def _product(a: float, b: float) -> float:
    return 0.0 if a == 0 or b == 0 else a * b


def _has_zero(x: Range) -> bool:
    return x.low <= 0 <= x.high


def _unbounded(x: Range) -> bool:
    return x.low == -inf or x.high == inf


def _bounded(low: float, high: float) -> Callable[..., Range]:
    """A function whose values lie in an interval; NaN where its input is NaN."""
    return lambda node, x: Range(low, high, x.nan)


def _wave(node: Node, x: Range) -> Range:
    return Range(-1, 1, not x.finite)


def _sqrt(node: Node, x: Range) -> Range:
    return Range(0, inf if x.high == inf else max(x.high, 0.0) ** 0.5, x.nan or x.low < 0)


def _extreme(pick: Callable[[float, float], float]) -> Callable[..., Range]:
    return lambda node, x, y: Range(pick(x.low, y.low), pick(x.high, y.high), x.nan or y.nan)


def _reduce_extreme(node: Node, x: Range) -> Range:
    return x if node.inputs[0].size else ANYTHING


def _reduce_sum(node: Node, x: Range) -> Range:
    count = _most(node.inputs[0].size // max(node.size, 1))
    nan = x.nan or (x.low == -inf and x.high == inf)
    return Range(min(_product(x.low, count), 0.0), max(_product(x.high, count), 0.0), nan)


RULES: dict[Op, Callable[..., Range]] = {
    CONSTANT: _constant,
    IOTA: _iota,
    SIZE: _size,
    **dict.fromkeys((RESHAPE, TRANSPOSE, BROADCAST, SLICE, REVERSE), _same),
    CONCAT: _union,
    SELECT: _select,
    CAST: _cast,
    NEG: _neg,
    ABS: _abs,
    ADD: _add,
    SUB: _sub,
    MUL: _mul,
    GUARDED_MUL: _guarded_mul,
    MAX: _extreme(max),
    MIN: _extreme(min),
    EXP: _bounded(0, inf),
    **dict.fromkeys((TANH,), _bounded(-1, 1)),
    **dict.fromkeys((SIN, COS), _wave),
    SQRT: _sqrt,
    **dict.fromkeys((EQ, NE, LT, LE, GT, GE), lambda node, x, y: Range(0, 1, False)),
    **dict.fromkeys((REDUCE_MAX, REDUCE_MIN), _reduce_extreme),
    REDUCE_SUM: _reduce_sum,
}
