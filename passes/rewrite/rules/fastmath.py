"""Rules that change results in the last bits, at −0, or where a step overflows."""

from __future__ import annotations

from math import isfinite

from rlx_py.ir.nodes.node import Node
from rlx_py.ir.ops.primitive.elementwise import ADD, DIV, EXP, LOG, MUL, fill
from rlx_py.passes.rewrite.rules.rule import is_const, number_of, rule


@rule(LOG)
def log_exp(n: Node) -> Node | None:  # log(exp(x)) -> x
    x = n.inputs[0]
    return x.inputs[0] if x.op is EXP else None


@rule(EXP)
def exp_log(n: Node) -> Node | None:  # exp(log(x)) -> x
    x = n.inputs[0]
    return x.inputs[0] if x.op is LOG else None


@rule(ADD)
def add_plain_zero(n: Node) -> Node | None:  # x + 0 -> x
    return n.inputs[0] if is_const(n.inputs[1], 0) else None


@rule(MUL, ADD)
def merge_constants(n: Node) -> Node | None:  # (x ∘ c) ∘ d -> x ∘ (c ∘ d)
    x, d = n.inputs
    if x.op is not n.op or number_of(d) is None or number_of(x.inputs[1]) is None:
        return None
    return n.op(x.inputs[0], n.op(x.inputs[1], d))


@rule(DIV)
def div_constant(n: Node) -> Node | None:  # x / c -> x · (1/c)
    x, c = n.inputs
    value = number_of(c)
    if not value or not isfinite(1 / value):
        return None
    return MUL(x, fill(x, 1 / value))


RULES = (log_exp, exp_log, add_plain_zero, merge_constants, div_constant)
