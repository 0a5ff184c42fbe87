"""Cheaper graphs of the same meaning: rules, constant folding, CSE and DCE in one rebuild."""

from __future__ import annotations

from functools import cache

from rlx_py.ir.base.config import CONFIG, Config
from rlx_py.ir.base.errors import Undecided
from rlx_py.ir.graph.graph import Graph, Rewrite, rebuild
from rlx_py.ir.nodes.graph_base import require_graph
from rlx_py.ir.nodes.node import Node, Op
from rlx_py.passes.rewrite.fold import fold
from rlx_py.passes.rewrite.rules import (
    arithmetic,
    fastmath,
    logic,
    movement,
    pointwise,
    recognise,
    reduction,
    spectral,
    windows,
)
from rlx_py.passes.rewrite.rules.rule import Rule

SAFE: tuple[Rule, ...] = (*arithmetic.RULES, *logic.RULES, *movement.RULES, *reduction.RULES,
                          *pointwise.RULES, *windows.RULES)
BEFORE_DIFFERENTIATION = (*recognise.RULES, *spectral.RULES, *SAFE)
FAST = (*SAFE, *fastmath.RULES)
NAMES = ("fold", *dict.fromkeys(r.name for r in (*BEFORE_DIFFERENTIATION, *FAST)))


def simplify(graph: Graph, *, fast_math: bool = False, rules: tuple[Rule, ...] | None = None,
             config: Config = CONFIG) -> Graph:
    """Rewrite to a fixed point, fold constants, merge equal nodes and drop dead ones.

    Results keep their bits, but for the sign of a zero, the order of merged sums, √s·√s and k equal
    summands, where the new form is the more exact; `fast_math` allows more (rules/fastmath.py).
    """
    require_graph("simplify", graph)
    if "simplify" in config.disable:
        return rebuild(graph)
    if rules is None:
        rules = FAST if fast_math else SAFE
    return rebuild(graph, rewriter(rules, config.disable))


@cache
def rewriter(rules: tuple[Rule, ...], disable: frozenset[str]) -> Rewrite:
    """One rewrite of a node by the first rule that applies."""
    enabled = [r for r in rules if r.name not in disable]
    first: tuple[Rewrite, ...] = () if "fold" in disable else (fold,)
    table: dict[Op, tuple[Rewrite, ...]] = {}
    for op in dict.fromkeys(op for r in enabled for op in r.ops):
        table[op] = (*first, *(r.apply for r in enabled if op in r.ops or not r.ops))
    general = (*first, *(r.apply for r in enabled if not r.ops))

    def rewrite(node: Node) -> Node | None:
        for apply in table.get(node.op, general):
            better = _applied(apply, node)
            if better is not None:
                return better
        return None

    return rewrite


def _applied(apply: Rewrite, node: Node) -> Node | None:
    """What a rule makes of a node; None too where that depends on sizes of a dynamic graph."""
    try:
        return apply(node)
    except Undecided:
        return None


