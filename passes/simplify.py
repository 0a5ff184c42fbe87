"""Cheaper graphs of the same meaning: rules, constant folding, CSE and DCE in one rebuild."""

from __future__ import annotations

from collections.abc import Iterable

from rlx_py.ir.config import CONFIG, Config
from rlx_py.ir.graph import Graph, Rewrite, rebuild
from rlx_py.ir.node import Node, Op
from rlx_py.passes.fold import fold
from rlx_py.passes.rules import arithmetic
from rlx_py.passes.rules.rule import Rule

SAFE: tuple[Rule, ...] = (*arithmetic.RULES,)


def simplify(graph: Graph, *, config: Config = CONFIG) -> Graph:
    """Rewrite to a fixed point, fold constants, merge equal nodes and drop dead ones."""
    if "simplify" in config.disable:
        return rebuild(graph)
    return rebuild(graph, rewriter(SAFE, config))


def rewriter(rules: Iterable[Rule], config: Config) -> Rewrite:
    """One rewrite of a node by the first rule that applies."""
    table: dict[Op, list[Rule]] = {}
    for rule in rules:
        if rule.name not in config.disable:
            for op in rule.ops:
                table.setdefault(op, []).append(rule)
    folds = "fold" not in config.disable

    def rewrite(node: Node) -> Node | None:
        folded = fold(node) if folds else None
        if folded is not None:
            return folded
        for rule in table.get(node.op, ()):
            better = rule.apply(node)
            if better is not None:
                return better
        return None

    return rewrite
