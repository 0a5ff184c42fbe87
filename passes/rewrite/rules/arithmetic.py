"""Identities of arithmetic that hold for every input, NaN, infinities and −0 included.

So x + 0 stays (−0 + 0 is 0) and x · 0 stays (NaN, ∞); x − 0 and x + −0 go. The powers are the
exception: as NumPy has it, x ** 0.5 is sqrt(x), so it is NaN at −∞ and −0 at −0, and x ** −0.5
is its reciprocal.
"""

from __future__ import annotations

from math import frexp

from rlx_py.ir.nodes.node import Node
from rlx_py.ir.ops.primitive.compare import AND, EQ, NE, OR, XOR
from rlx_py.ir.ops.primitive.elementwise import (
    ABS,
    ADD,
    DIV,
    FLOOR,
    GUARDED_MUL,
    MAX,
    MIN,
    MUL,
    NEG,
    POW,
    RSQRT,
    SQRT,
    SUB,
    ZERO_MUL,
    fill,
)
from rlx_py.passes.analysis.ranges import range_of
from rlx_py.passes.rewrite.rules.rule import is_const, number_of, rule


@rule(ADD, MUL, MAX, MIN, AND, OR, XOR, EQ, NE)
def constant_right(n: Node) -> Node | None:  # c ∘ x -> x ∘ c
    a, b = n.inputs
    if number_of(a) is not None and number_of(b) is None:
        return n.op(b, a)
    return None


@rule(ADD)
def add_zero(n: Node) -> Node | None:  # x + −0 -> x; of integers also x + 0 -> x
    x, c = n.inputs
    return x if is_const(c, -0.0 if n.dtype.is_float else 0) else None


@rule(SUB)
def sub_zero(n: Node) -> Node | None:  # x − 0 -> x
    x, c = n.inputs
    return x if is_const(c, 0) else None


@rule(MUL)
def mul_one(n: Node) -> Node | None:  # x · 1 -> x; x · −1 -> −x
    x, c = n.inputs
    if is_const(c, 1):
        return x
    return NEG(x) if is_const(c, -1) else None


@rule(MUL)
def mul_zero(n: Node) -> Node | None:  # of integers: x · 0 -> 0
    return n.inputs[1] if not n.dtype.is_float and is_const(n.inputs[1], 0) else None


@rule(DIV)
def div_power_of_two(n: Node) -> Node | None:  # x / ±2^k -> x · ±2^−k, both normal
    x, c = n.inputs
    value = number_of(c)
    if not value or abs(frexp(value)[0]) != 0.5 or not 2.0**-14 <= abs(value) <= 2.0**14:
        return None
    return MUL(x, fill(x, 1 / value))


@rule(NEG)
def double_neg(n: Node) -> Node | None:  # −(−x) -> x
    x = n.inputs[0]
    return x.inputs[0] if x.op is NEG else None


@rule(NEG)
def neg_of_scaled(n: Node) -> Node | None:  # −(x · c) -> x · −c
    x = n.inputs[0]
    if x.op is not MUL or not n.dtype.is_float:
        return None
    c = number_of(x.inputs[1])
    return None if c is None else MUL(x.inputs[0], fill(n, -c))


@rule(ADD)
def add_neg(n: Node) -> Node | None:  # a + −b -> a − b; −a + b -> b − a
    a, b = n.inputs
    if b.op is NEG:
        return SUB(a, b.inputs[0])
    return SUB(b, a.inputs[0]) if a.op is NEG else None


@rule(SUB)
def sub_neg(n: Node) -> Node | None:  # a − −b -> a + b
    a, b = n.inputs
    return ADD(a, b.inputs[0]) if b.op is NEG else None


@rule(MUL, DIV)
def mul_of_negs(n: Node) -> Node | None:  # −a · −b -> a · b; −a · c -> a · −c (and /)
    a, b = n.inputs
    if a.op is not NEG:
        return None
    if b.op is NEG:
        return n.op(a.inputs[0], b.inputs[0])
    c = number_of(b)
    if c is None or not n.dtype.is_float:
        return None
    return n.op(a.inputs[0], fill(n, -c))


@rule(MAX, MIN, AND, OR)
def idempotent(n: Node) -> Node | None:  # x ∘ x -> x
    a, b = n.inputs
    return a if a is b else None


@rule(ABS)
def abs_nonnegative(n: Node) -> Node | None:  # |−x| -> |x|; |x| -> x where x > 0
    x = n.inputs[0]
    if x.op is NEG:
        return ABS(x.inputs[0])
    return x if range_of(x).low > 0 or x.op is ABS else None


@rule(POW)
def pow_constant(n: Node) -> Node | None:  # x⁰ 1, x¹ x, x² x·x, x³, x⁴, x^½ √x, x⁻¹ 1/x, x^−½
    x, c = n.inputs
    match number_of(c):
        case 0:
            return fill(n, 1)
        case 1:
            return x
        case 2:
            return MUL(x, x)
        case 3:
            return MUL(MUL(x, x), x)
        case 4:
            square = MUL(x, x)
            return MUL(square, square)
        case 0.5:
            return SQRT(x)
        case -1:
            return DIV(fill(n, 1), x)
        case -0.5:
            return RSQRT(x)
    return None


@rule(MUL)
def sqrt_squared(n: Node) -> Node | None:  # √s · √s -> s for s ≥ 0 (a NaN stays one)
    a, b = n.inputs
    if a is b and a.op is SQRT and range_of(a.inputs[0]).nonnegative:
        return a.inputs[0]
    return None


@rule(MUL)
def abs_squared(n: Node) -> Node | None:  # |x| · |x| -> x · x
    a, b = n.inputs
    return MUL(a.inputs[0], a.inputs[0]) if a is b and a.op is ABS else None


@rule(FLOOR)
def floor_of_floor(n: Node) -> Node | None:  # ⌊⌊x⌋⌋ -> ⌊x⌋
    return n.inputs[0] if n.inputs[0].op is FLOOR else None


@rule(GUARDED_MUL)
def guarded_finite(n: Node) -> Node | None:  # a ⊳ b -> a · b for finite b
    a, b = n.inputs
    return MUL(a, b) if range_of(b).finite else None


@rule(GUARDED_MUL)
def guarded_constant(n: Node) -> Node | None:  # c ⊳ b -> b · c for c ≠ 0; 0 ⊳ b -> 0
    a, b = n.inputs
    c = number_of(a)
    if c is None:
        return None
    return MUL(b, a) if c else fill(n, 0)


@rule(ZERO_MUL)
def zero_mul_finite(n: Node) -> Node | None:  # 0-safe a · b -> a · b, a ⊳ b for finite b, b ⊳ a
    a, b = n.inputs
    if range_of(a).finite:
        return MUL(a, b) if range_of(b).finite else GUARDED_MUL(a, b)
    return GUARDED_MUL(b, a) if range_of(b).finite else None


RULES = (
    constant_right, add_zero, sub_zero, mul_one, mul_zero, div_power_of_two, double_neg,
    neg_of_scaled, add_neg, sub_neg, mul_of_negs, idempotent, abs_nonnegative, pow_constant,
    sqrt_squared, abs_squared, floor_of_floor, guarded_finite, guarded_constant, zero_mul_finite,
)
