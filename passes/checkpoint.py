"""Regions whose intermediates are computed again in the backward pass instead of kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rlx_py.ir.body import Body, graph_of
from rlx_py.ir.errors import ArgumentError, ShapeError
from rlx_py.ir.graph import Graph
from rlx_py.ir.node import (
    Chain,
    Cotangent,
    Node,
    Op,
    at,
    project,
    register,
    toposort,
    user_location,
)
from rlx_py.ir.ops.barrier import BARRIER
from rlx_py.ir.ops.batching import by_element
from rlx_py.ir.stored import ContractRule
from rlx_py.ir.types import TensorType, TupleType, Type
from rlx_py.passes.differentiate import prepared
from rlx_py.passes.jvp import lacks_jvp, pushforward
from rlx_py.passes.region import (
    Arguments,
    BodyChain,
    Function,
    applied,
    body_graph,
    captured,
    over,
    parts,
    placeholders,
    result_types,
    results_of,
)
from rlx_py.passes.vjp import lacks_vjp, pullback

Policy = str | Callable[[Node], bool]


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
    are kept nevertheless: "nothing", "products" (of matrices and convolutions), or a predicate of
    nodes. Gradients keep their bits, and forward mode and higher orders do as they would without.
    Raises ArgumentError for another policy.
    """
    keeps = POLICIES.get(policy) if isinstance(policy, str) else policy
    if keeps is None or not callable(keeps):
        raise ArgumentError(f"policy {policy!r} is none of {', '.join(POLICIES)}, nor a predicate"
                            + at(user_location()))
    if isinstance(region, Graph):
        return _checkpointed_graph(region, keeps)

    def call(*args: Any) -> Any:
        arguments = Arguments(args)
        leaves = placeholders("x", arguments.nodes)
        results, tree = results_of(region(*arguments.with_nodes(leaves)))
        return tree.build(_region(leaves, arguments.nodes, results, keeps))

    return call


def _checkpointed_graph(graph: Graph, keeps: Callable[[Node], bool]) -> Graph:
    leaves = list(graph.leaves.values())
    inner = [n for n in dict.fromkeys(graph.roots) if n not in leaves]
    own = placeholders("x", leaves)
    results = over(inner, dict(zip(leaves, own, strict=True)))
    made = dict(zip(inner, _region(own, leaves, results, keeps), strict=True))
    return graph.map_roots(lambda n: made.get(n, n))


def _region(leaves: list[Node], arguments: list[Node], results: list[Node],
            keeps: Callable[[Node], bool]) -> list[Node]:
    """Results over leaves, as those of one op on the arguments."""
    depends = set(leaves)
    kept = []
    for n in toposort(results):
        if not depends.isdisjoint(n.inputs):
            depends.add(n)
            if not isinstance(n.type, TupleType) and n not in results and keeps(n):
                kept.append(n)
    taken, found = captured(leaves, [*results, *kept])
    body = Body.of(body_graph([*leaves, *taken.values()], found))
    node = CHECKPOINT(*arguments, *taken, body=body, kept=tuple(range(len(results), len(found))))
    return parts(node)[: len(results)]


def _infer(*types: TensorType, body: str, kept: tuple[int, ...]) -> Type:
    results = result_types(body, types)
    if not all(0 <= k < len(results) for k in kept):
        raise ShapeError(f"its function has {len(results)} results; it can't keep {kept}")
    return TupleType(tuple(results))


def _decompose(*inputs: Node, body: str, kept: tuple[int, ...]) -> tuple[Node, ...]:
    return tuple(applied(body, inputs))


def _vjp(node: Node, ct: Cotangent, chain: Chain) -> Sequence[Node | None]:
    graph = graph_of(node.attrs["body"])
    leaves = list(graph.inputs.values())
    floats = [x for x in leaves if x.dtype.is_float]
    outputs = list(prepared(graph, floats, lacks_vjp).outputs.values())
    given = [c for c in ct if c is not None]
    # After the cotangents, so that nothing is computed again before it is needed.
    values = {x: BARRIER(y, *given) for x, y in zip(leaves, node.inputs, strict=True)}
    values |= {outputs[k]: project(node, k) for k in node.attrs["kept"] if outputs[k] not in leaves}
    seeds = list(zip((y for y, c in zip(outputs, ct, strict=True) if c is not None),
                     placeholders("ct", given), strict=True))
    values |= {seed: c for (_, seed), c in zip(seeds, given, strict=True)}
    inside = BodyChain(chain)
    found = iter(inside.over(pullback(seeds, floats, inside), values))
    return [next(found) if x.dtype.is_float else None for x in leaves]


def _jvp(node: Node, tangents: Sequence[Node | None], chain: Chain) -> Any:
    """Tangents are a region too, so that reverse over forward keeps no more."""
    graph = graph_of(node.attrs["body"])
    leaves = list(graph.inputs.values())
    active = [x for x, t in zip(leaves, tangents, strict=True) if t is not None]
    given = [t for t in tangents if t is not None]
    outputs = list(prepared(graph, active, lacks_jvp).outputs.values())
    seeds = dict(zip(active, placeholders("t", given), strict=True))
    floats = [i for i, y in enumerate(outputs) if y.dtype.is_float]
    inside = BodyChain(chain)
    found = pushforward([outputs[i] for i in floats], seeds, inside)
    inputs = [*node.inputs, *given]
    inner = [*leaves, *seeds.values()]
    inside.over([], dict(zip(inner, inputs, strict=True)))
    own = placeholders("x", inputs)
    results = over([*outputs, *found], dict(zip(inner, own, strict=True)))
    place = {i: len(outputs) + p for p, i in enumerate(floats)}
    kept = node.attrs["kept"]
    made = CHECKPOINT(*inputs, body=Body.of(body_graph(own, results)),
                      kept=(*kept, *(place[k] for k in kept if k in place)))
    return tuple(project(made, place[i]) if i in place else None for i in range(len(outputs)))


# Of the results, `kept` are intermediates that the backward takes as they are.
CHECKPOINT = register(Op("checkpoint", _infer, vjp=_vjp, jvp=_jvp, decompose=_decompose,
                         batch=by_element))
