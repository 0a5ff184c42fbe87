"""A derivative in two halves: what depends on the point alone, and a linear map of tangents."""

from __future__ import annotations

from rlx_py.ir.graph.graph import Graph, inline
from rlx_py.ir.nodes.graph_base import require_graph
from rlx_py.ir.nodes.node import LEAF, Node, toposort
from rlx_py.ir.ops.primitive.movement import BROADCAST
from rlx_py.passes.derive.differentiate import fresh_prefix
from rlx_py.passes.derive.jvp import jvp
from rlx_py.passes.derive.vjp import Names
from rlx_py.passes.rewrite.simplify import simplify


def linearize(graph: Graph, wrt: Names = None, singular: str = "zero") -> tuple[Graph, Graph]:
    """The graph with what its derivative needs, and the derivative: (primal, tangent).

    primal has the graph's leaves and outputs, and outputs residual_<n> (residual2_<n> where that is
    taken). tangent has inputs residual_<n> and t_<name> and outputs t_<output>, named as those of
    `jvp` and with their values, linear in t; it computes nothing of the primal again, but the
    bodies of loops and of checkpointed regions. Run primal once, then tangent for each direction.
    `wrt`, `singular` and errors as in `jvp`.
    """
    require_graph("linearize", graph)
    both = jvp(graph.derive(graph.outputs, updates={}), wrt, singular)
    tangents = {n: k for k, n in both.inputs.items() if k not in graph.inputs}
    roots = {k: n for k, n in both.outputs.items() if k not in graph.outputs}
    kept = _frontier(list(roots.values()), set(tangents))
    prefix = fresh_prefix("residual", [str(i) for i in range(len(kept))],
                          {**both.leaves, **graph.outputs})
    linear = Graph(graph.name)
    names = {n: f"{prefix}{i}" for i, n in enumerate(kept)} | tangents
    found = inline(roots.values(), {n: linear.input(k, n.shape, n.dtype) for n, k in names.items()})
    outputs = {k: both.outputs[k] for k in graph.outputs}
    primal = graph.derive({**outputs, **{names[n]: n for n in kept}})
    return simplify(primal), simplify(linear.derive({k: found[n] for k, n in roots.items()}))


def _frontier(roots: list[Node], tangents: set[Node]) -> list[Node]:
    """The values that nodes resting on tangents take from those that do not.

    A broadcast is made again from what is smaller, and constants stay where they are used.
    """
    moves, fixed = set(tangents), set[Node]()
    wanted: list[Node] = []
    for node in toposort(roots):
        if node.op is not LEAF and fixed.issuperset(node.inputs):
            fixed.add(node)
        elif not moves.isdisjoint(node.inputs):
            moves.add(node)
            wanted += node.inputs
    found = dict[Node, None]()
    for node in (*wanted, *roots):
        while node.op is BROADCAST and node not in moves:
            node = node.inputs[0]
        if node not in moves and node not in fixed:
            found[node] = None
    return list(found)
