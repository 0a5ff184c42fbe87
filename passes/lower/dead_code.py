"""Loops and branches without what nobody reads: results, carries, inputs and whole steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from rlx_py.ir.graph.graph import Graph
from rlx_py.ir.graph.stored import BodyRule
from rlx_py.ir.nodes.node import PROJECT, Node, replaced


def pruned(graph: Graph, primitive: Callable[[Graph], Graph]) -> Graph:
    """A primitive graph without what nobody reads. What comes out of bodies (steps of loops of one
    step, values that are the same at each) may be composite or hold loops, and is made primitive
    and pruned too."""
    while True:
        before, better = _extent(graph), prune(graph)
        if better is graph:
            return graph
        graph = primitive(better)
        if _extent(graph) == before:
            return graph


def _extent(graph: Graph) -> list[tuple[int, int]]:
    """How much the ops with bodies take and give."""
    return [(len(n.inputs), len(n)) for n in graph.nodes if isinstance(n.op.kernel, BodyRule)]


def prune(graph: Graph) -> Graph:
    """The same graph whose ops with bodies compute only what is read of their results."""
    nodes = graph.nodes
    if not any(isinstance(n.op.kernel, BodyRule) for n in nodes):
        return graph
    known, live = set(nodes), set(graph.roots)
    asked: dict[Node, dict[int, Node]] = {}
    better: dict[Node, Node] = {}
    for node in reversed(nodes):
        if node not in live:
            continue
        rule = node.op.kernel
        if node.op is PROJECT and isinstance(node.inputs[0].op.kernel, BodyRule):
            asked.setdefault(node.inputs[0], {})[node.attrs["index"]] = node
            live.add(node.inputs[0])
        elif isinstance(rule, BodyRule):
            found = rule.prune(node, asked[node])
            better |= {asked[node][k]: n for k, n in found.items()}
            live |= _reached(found.values(), known)
        else:
            live.update(node.inputs)
    return substituted(graph, better)


def substituted(graph: Graph, better: Mapping[Node, Node]) -> Graph:
    """The graph with other nodes in the place of some; those others may rest on such too."""
    return graph.map_roots(_Substitution(better).node)


def _reached(roots: Iterable[Node], known: set[Node]) -> set[Node]:
    """The known nodes that new ones rest on."""
    found, work, seen = set[Node](), list(roots), set[Node]()
    while work:
        node = work.pop()
        if node in known:
            found.add(node)
        elif node not in seen:
            seen.add(node)
            work += node.inputs
    return found


class _Substitution:
    def __init__(self, better: Mapping[Node, Node]) -> None:
        self.better = better
        self.done: dict[Node, Node] = {}

    def node(self, root: Node) -> Node:
        stack = [root]
        while stack:
            node = stack[-1]
            if node in self.done:
                stack.pop()
                continue
            target = self.better.get(node)
            before = node.inputs if target is None else (target,)
            waiting = [x for x in before if x not in self.done]
            if waiting:
                stack += waiting
            elif target is not None:
                self.done[node] = self.done[target]
            else:
                self.done[node] = replaced(node, tuple(self.done[x] for x in node.inputs))
        return self.done[root]
