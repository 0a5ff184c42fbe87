"""Selections, casts and boolean logic."""

from __future__ import annotations

from rlx_py.ir.base.types import DType
from rlx_py.ir.nodes.node import Node
from rlx_py.ir.ops.primitive.compare import AND, EQ, NE, NOT, OR
from rlx_py.ir.ops.primitive.elementwise import CAST, SELECT, fill
from rlx_py.passes.rewrite.rules.rule import is_const, largest_exact, number_of, rule


@rule(SELECT)
def select_constant(n: Node) -> Node | None:  # select(true, a, b) -> a; select(false, a, b) -> b
    condition = number_of(n.inputs[0])
    if condition is None:
        return None
    return n.inputs[1] if condition else n.inputs[2]


@rule(SELECT)
def select_equal(n: Node) -> Node | None:  # select(c, a, a) -> a
    return n.inputs[1] if n.inputs[1] is n.inputs[2] else None


@rule(SELECT)
def select_not(n: Node) -> Node | None:  # select(!c, a, b) -> select(c, b, a)
    c, a, b = n.inputs
    return SELECT(c.inputs[0], b, a) if c.op is NOT else None


@rule(SELECT)
def select_again(n: Node) -> Node | None:  # select(c, select(c, a, _), b) -> select(c, a, b)
    c, a, b = n.inputs
    if a.op is SELECT and a.inputs[0] is c:
        return SELECT(c, a.inputs[1], b)
    if b.op is SELECT and b.inputs[0] is c:
        return SELECT(c, a, b.inputs[2])
    return None


@rule(CAST)
def cast_same(n: Node) -> Node | None:  # cast(x: t) to t -> x
    return n.inputs[0] if n.dtype is n.inputs[0].dtype else None


@rule(CAST)
def cast_chain(n: Node) -> Node | None:  # cast(cast(x) to a) to b -> cast(x) to b, a holding all x
    middle = n.inputs[0]
    if middle.op is not CAST or not holds_all(middle.dtype, middle.inputs[0].dtype):
        return None
    return CAST(middle.inputs[0], dtype=n.dtype)


def holds_all(wide: DType, narrow: DType) -> bool:
    """Whether every value of one type is a value of another."""
    if wide is narrow or narrow.kind == "bool":
        return True
    if wide.is_float and narrow.is_float:
        return wide.bits > narrow.bits
    if wide.is_float:
        return largest_exact(narrow) <= largest_exact(wide)
    if wide.kind == narrow.kind:
        return wide.bits > narrow.bits
    return wide.kind == "int" and narrow.kind == "uint" and wide.bits > narrow.bits


@rule(NOT)
def double_not(n: Node) -> Node | None:  # !!x -> x
    x = n.inputs[0]
    return x.inputs[0] if x.op is NOT else None


@rule(NOT)
def not_equal(n: Node) -> Node | None:  # !(a = b) -> a ≠ b; !(a ≠ b) -> a = b
    x = n.inputs[0]
    if n.dtype.kind != "bool" or x.op not in (EQ, NE):
        return None
    return (NE if x.op is EQ else EQ)(*x.inputs)


@rule(AND, OR)
def logic_constant(n: Node) -> Node | None:  # x & true -> x; x & false -> false; and so for |
    x, c = n.inputs
    if n.dtype.kind != "bool" or number_of(c) is None:
        return None
    absorbs = is_const(c, 0) if n.op is AND else is_const(c, 1)
    return fill(n, n.op is OR) if absorbs else x


RULES = (select_constant, select_equal, select_not, select_again, cast_same, cast_chain, double_not,
         not_equal, logic_constant)
