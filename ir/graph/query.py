"""Questions about the shape of a graph: the one user of networkx."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import networkx as nx

from rlx_py.ir.nodes.graph_base import GraphBase
from rlx_py.ir.nodes.node import Node

_OUTSIDE = -1  # where every path begins or ends

def as_digraph(graph: GraphBase) -> nx.MultiDiGraph[Node]:
    """The graph's nodes, an edge from input to user for each operand (`position`): x*x has two."""
    found: nx.MultiDiGraph[Node] = nx.MultiDiGraph(name=graph.name)
    nodes = graph.nodes
    found.add_nodes_from(nodes)
    found.add_edges_from((x, n, {"position": i}) for n in nodes for i, x in enumerate(n.inputs))
    return found


def stages(graph: GraphBase) -> list[list[Node]]:
    """Nodes by the length of the longest path to them: each stage needs only earlier ones."""
    return [list(s) for s in nx.topological_generations(as_digraph(graph))]


def critical_path(graph: GraphBase, cost: Callable[[Node], float]) -> list[Node]:
    """The costliest chain of nodes each of which waits for the one before; [] of no nodes."""
    number = _numbers(graph)
    chains: nx.DiGraph[int] = nx.DiGraph()
    # A node's cost stands on its edges in; a first node pays on an edge from outside.
    for n, i in number.items():
        before = [number[x] for x in n.inputs] or [_OUTSIDE]
        chains.add_edges_from((x, i, {"weight": cost(n)}) for x in before)
    path = nx.dag_longest_path(chains, weight="weight")
    return [graph.nodes[i] for i in path if i != _OUTSIDE]


def post_dominators(graph: GraphBase) -> dict[Node, Node | None]:
    """For each node that a root reaches the next one that every path from it to a root crosses.

    None where there is no such node, as for a root whose value nothing else uses.
    """
    number = _numbers(graph)
    flow: nx.DiGraph[int] = nx.DiGraph()
    flow.add_node(_OUTSIDE)
    flow.add_edges_from((_OUTSIDE, number[root]) for root in graph.roots)
    flow.add_edges_from((i, number[x]) for n, i in number.items() for x in n.inputs)
    found = nx.immediate_dominators(flow, _OUTSIDE)
    nexts = {n: found[i] for n, i in number.items() if i in found}
    return {n: None if i in (None, _OUTSIDE) else graph.nodes[i] for n, i in nexts.items()}


def _numbers(graph: GraphBase) -> dict[Node, int]:
    """The place of each node, since networkx compares what it is given."""
    return {n: i for i, n in enumerate(graph.nodes)}


def minimum_cut(edges: Iterable[tuple[object, object, int | None]], source: object,
                sink: object) -> set[object]:
    """What stays on the source's side where the cut edges from that side have the least capacity in
    all; an edge of capacity None is never cut."""
    network: nx.DiGraph[object] = nx.DiGraph()
    network.add_nodes_from((source, sink))
    for a, b, capacity in edges:
        network.add_edge(a, b, **({} if capacity is None else {"capacity": capacity}))
    _, (side, _) = nx.minimum_cut(network, source, sink)
    return set(side)
