"""Comparison, logic and choice for users, with NumPy's names and meaning.

Operands may be nodes, arrays or Python scalars, of one shape after broadcasting.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rlx_py.ir.base.types import bool_, u8
from rlx_py.ir.nodes.node import Node, Op
from rlx_py.ir.nodes.operators import OPERATORS
from rlx_py.ir.ops.making.constant import scalar_of
from rlx_py.ir.ops.making.located import located
from rlx_py.ir.ops.operands.operand import (
    as_node,
    broadcast_shape,
    broadcast_to,
    operands,
    together,
)
from rlx_py.ir.ops.primitive.compare import AND, EQ, GE, GT, LE, LT, NE, NOT, OR, SHL, SHR, XOR
from rlx_py.ir.ops.primitive.elementwise import ABS, MAX, MIN, SELECT, cast, fill
from rlx_py.ir.ops.primitive.movement import filled

# ---- comparison ------------------------------------------------------------------------------


@located
def equal(x1: Any, x2: Any) -> Node:
    """Whether x1 = x2."""
    return EQ(*together(x1, x2))


@located
def not_equal(x1: Any, x2: Any) -> Node:
    """Whether x1 ≠ x2; true of NaN."""
    return NE(*together(x1, x2))


def _ordered(op: Op, x1: Any, x2: Any) -> Node:
    a, b = together(x1, x2)
    return op(cast(a, u8), cast(b, u8)) if a.dtype is bool_ else op(a, b)


@located
def less(x1: Any, x2: Any) -> Node:
    """Whether x1 < x2."""
    return _ordered(LT, x1, x2)


@located
def less_equal(x1: Any, x2: Any) -> Node:
    """Whether x1 ≤ x2."""
    return _ordered(LE, x1, x2)


@located
def greater(x1: Any, x2: Any) -> Node:
    """Whether x1 > x2."""
    return _ordered(GT, x1, x2)


@located
def greater_equal(x1: Any, x2: Any) -> Node:
    """Whether x1 ≥ x2."""
    return _ordered(GE, x1, x2)


def _constant_truth(x: Node, value: bool) -> Node:
    return filled(value, x.tensor.with_dtype(bool_))


@located
def isnan(x: Any) -> Node:
    """Whether x is NaN."""
    node = as_node(x)
    return NE(node, node) if node.dtype.is_float else _constant_truth(node, False)


@located
def isinf(x: Any) -> Node:
    """Whether x is infinite."""
    node = as_node(x)
    if not node.dtype.is_float:
        return _constant_truth(node, False)
    return EQ(ABS(node), fill(node, math.inf))


@located
def isfinite(x: Any) -> Node:
    """Whether x is neither infinite nor NaN."""
    node = as_node(x)
    if not node.dtype.is_float:
        return _constant_truth(node, True)
    return LT(ABS(node), fill(node, math.inf))


# ---- logic -----------------------------------------------------------------------------------


def truth(x: Any) -> Node:
    """x as a bool node: x ≠ 0."""
    node = as_node(x)
    return node if node.dtype is bool_ else NE(node, fill(node, 0))


@located
def logical_and(x1: Any, x2: Any) -> Node:
    """Whether both are nonzero."""
    return AND(*together(truth(x1), truth(x2)))


@located
def logical_or(x1: Any, x2: Any) -> Node:
    """Whether one is nonzero."""
    return OR(*together(truth(x1), truth(x2)))


@located
def logical_xor(x1: Any, x2: Any) -> Node:
    """Whether just one is nonzero."""
    return XOR(*together(truth(x1), truth(x2)))


@located
def logical_not(x: Any) -> Node:
    """Whether x is 0."""
    return NOT(truth(x))


@located
def bitwise_and(x1: Any, x2: Any) -> Node:
    """x1 & x2, of bools or integers."""
    return AND(*together(x1, x2))


@located
def bitwise_or(x1: Any, x2: Any) -> Node:
    """x1 | x2, of bools or integers."""
    return OR(*together(x1, x2))


@located
def bitwise_xor(x1: Any, x2: Any) -> Node:
    """x1 ^ x2, of bools or integers."""
    return XOR(*together(x1, x2))


@located
def invert(x: Any) -> Node:
    """Every bit flipped; of a bool, its negation."""
    return NOT(as_node(x))


@located
def left_shift(x1: Any, x2: Any) -> Node:
    """x1·2^x2, of integers; 0 for a count outside 0 … bits − 1."""
    return SHL(*together(x1, x2))


@located
def right_shift(x1: Any, x2: Any) -> Node:
    """⌊x1/2^x2⌋, of integers; 0 or −1 for a count outside 0 … bits − 1."""
    return SHR(*together(x1, x2))


# ---- choice ----------------------------------------------------------------------------------


@located
def where(condition: Any, x: Any, y: Any) -> Node:
    """x where the condition holds, else y; what is not chosen gets no gradient, whatever it is."""
    cond, (a, b) = truth(condition), operands(x, y)
    shape = broadcast_shape(cond.shape, a.shape, b.shape)
    return SELECT(*(broadcast_to(n, shape) for n in (cond, a, b)))


@located
def maximum(x1: Any, x2: Any) -> Node:
    """The larger; NaN if either is. A tie gives half the gradient to each."""
    a, b = together(x1, x2)
    return OR(a, b) if a.dtype is bool_ else MAX(a, b)


@located
def minimum(x1: Any, x2: Any) -> Node:
    """The smaller; NaN if either is. A tie gives half the gradient to each."""
    a, b = together(x1, x2)
    return AND(a, b) if a.dtype is bool_ else MIN(a, b)


@located
def fmax(x1: Any, x2: Any) -> Node:
    """The larger, or the one that is not NaN."""
    a, b = together(x1, x2)
    return where(isnan(a), b, where(isnan(b), a, maximum(a, b)))


@located
def fmin(x1: Any, x2: Any) -> Node:
    """The smaller, or the one that is not NaN."""
    a, b = together(x1, x2)
    return where(isnan(a), b, where(isnan(b), a, minimum(a, b)))


@located
def clip(x: Any, lo: Any = None, hi: Any = None) -> Node:
    """x within [lo, hi]; None is no bound, and hi wins where lo > hi.

    The gradient passes to x at the bounds too.
    """
    bounds = [b for b in (lo, hi) if b is not None]
    node, *found = together(x, *bounds)
    if lo is not None:
        node = SELECT(_beyond(LT, node, found[0]), found[0], node)
    if hi is not None:
        node = SELECT(_beyond(GT, node, found[-1]), found[-1], node)
    return node


def _beyond(op: Op, x: Node, bound: Node) -> Node:
    """Whether x violates the bound; a NaN bound always counts, so that it propagates."""
    known = scalar_of(bound)
    if not x.dtype.is_float or (known is not None and known == known):
        return op(x, bound)
    return OR(op(x, bound), NE(bound, bound))


@located
def nan_to_num(x: Any, nan: float = 0.0, posinf: float | None = None,
               neginf: float | None = None) -> Node:
    """NaN and the infinities replaced (by default 0 and the largest finite numbers), without
    gradient there."""
    node = as_node(x)
    if not node.dtype.is_float:
        return node
    largest = float(np.nextafter(*np.array([math.inf, 0], node.dtype.numpy)))
    high = largest if posinf is None else posinf
    low = -largest if neginf is None else neginf
    finite = SELECT(EQ(node, fill(node, math.inf)), fill(node, high),
                    SELECT(EQ(node, fill(node, -math.inf)), fill(node, low), node))
    return SELECT(NE(node, node), fill(node, nan), finite)


OPERATORS.update({
    "bitwise_and": bitwise_and, "bitwise_or": bitwise_or, "bitwise_xor": bitwise_xor,
    "equal": equal, "greater": greater, "greater_equal": greater_equal, "invert": invert,
    "left_shift": left_shift, "less": less, "less_equal": less_equal, "not_equal": not_equal,
    "right_shift": right_shift,
})
