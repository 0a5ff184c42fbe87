"""Loops that run over the same steps become one, where the one reads what the other stacks.

So forward mode through a loop holds no stack, and kernels of both may share memory traffic.
"""

from __future__ import annotations

from collections.abc import Collection

from rlx_py.ir.graph.body import graph_of
from rlx_py.ir.graph.graph import Graph
from rlx_py.ir.nodes.node import PROJECT, Node, project, toposort
from rlx_py.ir.ops.control.region import over, placeholders
from rlx_py.ir.ops.control.scan import bare_loop, loop_of
from rlx_py.ir.ops.control.scan_rules import SCAN
from rlx_py.passes.lower.dead_code import prune, substituted


def join_loops(graph: Graph) -> Graph:
    """The same graph with such loops joined."""
    while True:
        pair = _pair(graph)
        if pair is None:
            return graph
        graph = prune(_joined(graph, *pair))


def _pair(graph: Graph) -> tuple[Node, Node] | None:
    """A loop, and one behind it that may run along with it."""
    loops = dict.fromkeys(n for n in graph.nodes if n.op is SCAN and not n.attrs["cond"])
    for late in loops:
        for x in dict.fromkeys(late.inputs):
            if x.op is PROJECT and x.inputs[0] in loops and _along(x.inputs[0], late):
                return x.inputs[0], late
    return None


def _along(early: Node, late: Node) -> bool:
    """Whether each step of the late loop needs no more of the early one than the same step gave."""
    a, b = loop_of(early), loop_of(late)
    if (a.length, a.reverse, a.counted) != (b.length, b.reverse, b.counted):
        return False
    if a.counted and early.inputs[0] is not late.inputs[0]:
        return False
    _, first, given, shared = b.split(late.inputs)
    rest = [*first, *shared, *(x for x in given if not _is_stack(x, early))]
    return early not in set(toposort(rest))


def _is_stack(x: Node, of: Node) -> bool:
    return (x.op is PROJECT and x.inputs[0] is of
            and loop_of(of).carries <= x.attrs["index"])


def _joined(graph: Graph, early: Node, late: Node) -> Graph:
    a, b = loop_of(early), loop_of(late)
    count, a_first, a_given, a_shared = a.split(early.inputs)
    _, b_first, b_given, b_shared = b.split(late.inputs)
    a_outputs = list(graph_of(a.body).outputs.values())
    b_carries, b_xs, b_consts = b.leaves()
    own = {x: new for part in (b_carries, b_xs, b_consts)
           for x, new in zip(part, placeholders("b", part), strict=True)}
    values, kept = dict(own), list[tuple[Node, Node]]()
    for x, given in zip(b_xs, b_given, strict=True):
        if _is_stack(given, early):
            values[x] = a_outputs[given.attrs["index"]]
        else:
            kept.append((own[x], given))
    b_outputs = over(list(graph_of(b.body).outputs.values()), values)
    a_carries, a_xs, a_consts = a.leaves()
    n, m = a.carries, b.carries
    results = [*a_outputs[:n], *b_outputs[:m], *a_outputs[n:], *b_outputs[m:]]
    keep = a.keep if a.keep == b.keep else "carries"
    made = bare_loop(
        count[0] if count else None, [*a_first, *b_first], [*a_given, *(v for _, v in kept)],
        [*a_shared, *b_shared],
        [*a_carries, *(own[x] for x in b_carries), *a_xs, *(x for x, _ in kept), *a_consts,
         *(own[x] for x in b_consts)],
        results, length=a.length, reverse=a.reverse, cond=None, keep=keep)
    places = {early: [*range(n), *range(n + m, n + m + len(a_outputs) - n)],
              late: [*range(n, n + m), *range(m + len(a_outputs), len(results))]}
    return substituted(graph, {p: project(made, places[p.inputs[0]][p.attrs["index"]])
                               for p in _projections(graph, {early, late})})


def _projections(graph: Graph, loops: Collection[Node]) -> list[Node]:
    return [n for n in graph.nodes if n.op is PROJECT and n.inputs[0] in loops]
