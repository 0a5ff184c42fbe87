"""Composite ops replaced by what they are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from rlx_py.ir.base.errors import ArgumentError
from rlx_py.ir.graph.activity import carries_derivative
from rlx_py.ir.graph.graph import Graph, rebuild
from rlx_py.ir.nodes.graph_base import require_graph
from rlx_py.ir.nodes.node import OPS, Node, Op, pack


def decompose(graph: Graph, keep: Iterable[Op | str] = ()) -> Graph:
    """Expand composite ops until only primitives and the ops to keep remain."""
    require_graph("decompose", graph)
    kept = frozenset(named_op(k) for k in keep)
    return rebuild(graph, lambda n: None if n.op in kept else expanded(n))


def expanded(node: Node) -> Node | None:
    """The decomposition of a node; None of a primitive."""
    if node.op.decompose is None:
        return None
    parts = node.op.decompose(*node.inputs, **node.attrs)
    return parts if isinstance(parts, Node) else pack(parts)


def expand_active(graph: Graph, wrt: Iterable[Node], lacks_rule: Callable[[Op], bool]) -> Graph:
    """Expand the composites that depend on `wrt` and whose op lacks a derivative rule."""
    depends = set(wrt)

    def expand(node: Node) -> Node | None:
        if depends.isdisjoint(node.inputs) or not carries_derivative(node):
            return None
        better = expanded(node) if lacks_rule(node.op) else None
        if better is None:
            depends.add(node)
        return better

    return rebuild(graph, expand)


def named_op(name: Op | str) -> Op:
    """The op of a name, or a typed error."""
    if isinstance(name, Op):
        return name
    if name not in OPS:
        raise ArgumentError(f"no op {name!r} to keep")
    return OPS[name]
