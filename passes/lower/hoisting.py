"""Products that a loop makes of its slices alone, made for all steps at once before it."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from rlx_py.ir.graph.body import graph_of
from rlx_py.ir.graph.graph import Graph
from rlx_py.ir.graph.stored import ContractRule
from rlx_py.ir.graph.transforms import Value
from rlx_py.ir.nodes.node import PROJECT, Node, project, toposort
from rlx_py.ir.ops.control.region import body_graph, over, placeholders
from rlx_py.ir.ops.control.scan import bare_loop, loop_of
from rlx_py.ir.ops.control.scan_rules import SCAN
from rlx_py.ir.ops.making.constant import CONSTANT
from rlx_py.passes.batch.batched import batched_results
from rlx_py.passes.lower.dead_code import substituted

DEEP = 16  # terms from which on a product is worth more than writing and reading its result


def hoist_products(graph: Graph) -> Graph:
    """The same graph with such products outside of its loops."""
    nodes = graph.nodes
    better = {n: made for n in nodes if n.op is SCAN and (made := _hoisted(n)) is not None}
    if not better:
        return graph
    return substituted(graph, {p: project(better[p.inputs[0]], p.attrs["index"]) for p in nodes
                               if p.op is PROJECT and p.inputs[0] in better})


def _hoisted(node: Node) -> Node | None:
    """A loop without such products; None where it has none, or is to hold little memory."""
    loop = loop_of(node)
    if loop.keep != "steep" or loop.length is None or loop.length == 1 or loop.cond:
        return None
    count, first, given, shared = loop.split(node.inputs)
    carries, xs, consts = loop.leaves()
    outputs = list(graph_of(loop.body).outputs.values())
    found = _products(outputs, xs, consts)
    if not found:
        return None
    values = {x: Value(v, True) for x, v in zip(xs, given, strict=True)}
    values |= {x: Value(v, False) for x, v in zip(consts, shared, strict=True)}
    whole = batched_results(body_graph([*xs, *consts], found), values, loop.length)
    own = placeholders("y", found)
    results = over(outputs, dict(zip(found, own, strict=True)))
    used = set(toposort(results))
    moving = {x: v for x, v in zip(xs, given, strict=True) if x in used}
    moving |= {x: v.node for x, v in zip(own, whole, strict=True)}
    return bare_loop(count[0] if count else None, first, list(moving.values()), shared,
                     [*carries, *moving, *consts], results, length=loop.length,
                     reverse=loop.reverse, cond=None, keep=loop.keep)


def _products(roots: Sequence[Node], xs: Sequence[Node], consts: Sequence[Node]) -> list[Node]:
    """The outermost deep products that depend on slices, and on nothing that the loop carries."""
    free, moves = {*xs, *consts}, set(xs)
    order = toposort(roots)
    for node in order:
        if node.inputs and all(x in free or x.op is CONSTANT for x in node.inputs):
            free.add(node)
            if not moves.isdisjoint(node.inputs):
                moves.add(node)
    work = [r for r in roots if r in free]
    work += [x for node in order if node not in free for x in node.inputs if x in free]
    found: dict[Node, None] = {}
    seen: set[Node] = set()
    while work:
        node = work.pop()
        if node not in moves or node in seen:
            continue
        seen.add(node)
        if isinstance(node.op.kernel, ContractRule) and _depth(node) >= DEEP:
            found[node] = None
        else:
            work += node.inputs
    return list(found)


def _depth(node: Node) -> int:
    """The terms that an element of a product sums."""
    rule = node.op.kernel
    assert isinstance(rule, ContractRule)
    return prod(node.inputs[0].shape[axis] for axis in rule.dims(node).a_contract)
