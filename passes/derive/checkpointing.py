"""rlx.checkpoint: which intermediates of a region are kept, and which are recomputed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlx_py.ir.base.errors import ArgumentError
from rlx_py.ir.base.types import TupleType
from rlx_py.ir.graph.graph import Graph
from rlx_py.ir.graph.stored import ContractRule
from rlx_py.ir.nodes.node import LEAF, Node, at, toposort, user_location
from rlx_py.ir.ops.control.checkpoint import Choose, checkpointed
from rlx_py.ir.ops.control.region import (
    Arguments,
    Function,
    over,
    placeholders,
    results_of,
    traced,
)
from rlx_py.ir.ops.making.checkpoints import budget
from rlx_py.passes.derive.differentiate import prepared
from rlx_py.passes.derive.pullback import lacks_vjp
from rlx_py.passes.derive.remat import affordable

Policy = str | budget | Callable[[Node], bool]


def _is_product(node: Node) -> bool:
    return isinstance(node.op.kernel, ContractRule)


POLICIES: dict[str, Callable[[Node], bool]] = {
    "nothing": lambda node: False,
    "products": _is_product,
}


def checkpoint(region: Graph | Function, policy: Policy = "nothing") -> Any:
    """A function, or a graph, whose intermediates the backward pass computes again.

    The arguments of a function nest as they like; it may use nodes from outside. A graph keeps its
    leaves and names: differentiate it, or inline it with `Graph.call`. policy: which intermediates
    are kept nevertheless: "nothing", "products" (of matrices and convolutions), a predicate of
    nodes, or budget(bytes): those, of so many bytes in all, without which least is computed again
    (`remat`). What is computed again takes memory besides, while it is used. Gradients keep their
    bits, and forward mode and higher orders do as they would without. Raises ArgumentError for
    another policy, and for a budget where a size is not known.
    """
    choose = _choice_of(policy)
    if isinstance(region, Graph):
        return _checkpointed_graph(region, choose)
    if not callable(region):
        raise ArgumentError(f"checkpoint takes a function or a graph, not {type(region).__name__}"
                            + at(user_location()))

    def call(*args: Any) -> Any:
        arguments = Arguments(args)
        leaves = placeholders("x", arguments.nodes)
        with traced("checkpoint's function", leaves, arguments.nodes):
            results, tree = results_of(region(*arguments.with_nodes(leaves)))
            made = checkpointed(leaves, arguments.nodes, results, choose)
        return tree.build(made)

    return call


def _choice_of(policy: Policy) -> Choose:
    if isinstance(policy, budget):
        return lambda graph: _within(graph, policy.bytes)
    keeps = POLICIES.get(policy) if isinstance(policy, str) else policy
    if keeps is None or not callable(keeps):
        raise ArgumentError(f"policy {policy!r} is none of {', '.join(POLICIES)}, nor a predicate "
                            "or budget(bytes)" + at(user_location()))
    return lambda graph: (graph, [n for n in _intermediates(graph) if keeps(n)])


def _within(graph: Graph, most: int) -> tuple[Graph, list[Node]]:
    floats = [n for n in graph.inputs.values() if n.dtype.is_float]
    primal = prepared(graph, floats, lacks_vjp)
    return primal, affordable(primal, most)


def _intermediates(graph: Graph) -> list[Node]:
    depends = set(graph.inputs.values())
    found = []
    for n in toposort(graph.outputs.values()):
        if not depends.isdisjoint(n.inputs):
            depends.add(n)
            if not isinstance(n.type, TupleType):
                found.append(n)
    return found


def _checkpointed_graph(graph: Graph, choose: Choose) -> Graph:
    leaves = list(graph.leaves.values())
    inner = list(dict.fromkeys(n for n in graph.roots if n.op is not LEAF))
    own = placeholders("x", leaves)
    results = over(inner, dict(zip(leaves, own, strict=True)))
    made = dict(zip(inner, checkpointed(own, leaves, results, choose), strict=True))
    return graph.map_roots(lambda n: made.get(n, n))
