"""Regions whose intermediates are recomputed in the backward pass instead of kept."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rlx_py.ir.base.errors import ShapeError
from rlx_py.ir.base.types import TensorType, TupleType, Type
from rlx_py.ir.graph.body import Body, graph_of
from rlx_py.ir.graph.evaluate import toposort_from
from rlx_py.ir.graph.graph import Graph
from rlx_py.ir.graph.transforms import AD
from rlx_py.ir.nodes.node import (
    LEAF,
    Cotangent,
    Node,
    Op,
    project,
    register,
    replaced,
    toposort,
)
from rlx_py.ir.ops.control.batched import by_element
from rlx_py.ir.ops.control.dead_rows import Handed, masks_here
from rlx_py.ir.ops.control.masks import Masks
from rlx_py.ir.ops.control.region import (
    applied,
    body_graph,
    captured,
    outward,
    over,
    parts,
    placeholders,
    result_types,
)
from rlx_py.ir.ops.primitive.barrier import BARRIER

# The graph of a region as its op holds it, and the intermediates to keep.
Choose = Callable[[Graph], tuple[Graph, list[Node]]]


def checkpointed(leaves: list[Node], arguments: list[Node], results: list[Node],
                 choose: Choose) -> list[Node]:
    """Results over leaves, as those of one op on the arguments."""
    taken, found = captured(leaves, results)
    graph, kept = choose(body_graph([*leaves, *taken.values()], found))
    outputs = [*graph.outputs.values(), *kept]
    body = Body.of(body_graph(list(graph.inputs.values()), outputs))
    node = CHECKPOINT(*arguments, *taken, body=body, kept=tuple(range(len(results), len(outputs))))
    return parts(node)[: len(results)]


def _infer(*types: TensorType, body: str, kept: tuple[int, ...]) -> Type:
    results = result_types(body, types)
    if not all(0 <= k < len(results) for k in kept):
        raise ShapeError(f"its function has {len(results)} results; it can't keep {kept}")
    return TupleType(tuple(results))


def _decompose(*inputs: Node, body: str, kept: tuple[int, ...]) -> tuple[Node, ...]:
    return tuple(applied(body, inputs))


def _vjp(node: Node, ct: Cotangent, ad: AD) -> Sequence[Node | None]:
    graph = graph_of(node.attrs["body"])
    leaves = list(graph.inputs.values())
    floats = [x for x in leaves if x.dtype.is_float]
    outputs = list(ad.prepared(graph, floats, reverse=True).outputs.values())
    given = [c for c in ct if c is not None]
    seeds = list(zip((y for y, c in zip(outputs, ct, strict=True) if c is not None),
                     placeholders("ct", given), strict=True))
    kept = {outputs[k]: project(node, k) for k in node.attrs["kept"]
            if outputs[k].op is not LEAF}
    order = toposort(outputs)
    stops = [n for n in order if n in kept and n.dtype.is_float]
    inside, masks = ad.inside(), Handed()
    own = [masks.enter(found) for found in masks_here(ad, ct)]
    found = inside.pull(seeds, [*floats, *stops], given=own)
    # After the cotangents, so that nothing is computed again before it is needed.
    values = {x: BARRIER(y, *given) for x, y in zip(leaves, node.inputs, strict=True)} | kept
    values |= masks.outside | dict(zip((seed for _, seed in seeds), given, strict=True))
    base = dict(zip(leaves, node.inputs, strict=True)) | kept
    stages = list(zip(stops, found[len(floats):], strict=True))
    _compute_again(order, base, stages, [*found[:len(floats)], *inside.counts], given, values)
    gradients = iter(outward(ad, inside, found[:len(floats)], values))
    return [next(gradients) if x.dtype.is_float else None for x in leaves]


def _masks(node: Node, here: Mapping[int, Masks], ad: AD) -> Sequence[Masks]:
    graph, masks = graph_of(node.attrs["body"]), Handed()
    leaves = list(graph.inputs.values())
    floats = [x for x in leaves if x.dtype.is_float]
    outputs = list(ad.prepared(graph, floats, reverse=True).outputs.values())
    found = ad.masks_inside(outputs, floats, {k: masks.enter(m) for k, m in here.items()})
    values = dict(zip(leaves, node.inputs, strict=True))
    return [masks.leave(found.get(x, ()), values) for x in leaves]


def _compute_again(order: list[Node], base: dict[Node, Node], stages: list[tuple[Node, Node]],
                   roots: list[Node], given: list[Node], values: dict[Node, Node]) -> None:
    """Enter in `values` the nodes of a body that `roots` read and that are not among the base.

    What the rule of a node reads is computed again once the cotangent is there of the first kept
    value (of `stages`, with their cotangents) behind that node. No such cotangent waits for what
    waits for it: it comes from rules of nodes further behind.
    """
    place = {n: i for i, n in enumerate(order)}
    bounds = [place[stop] for stop, _ in stages]
    need: dict[Node, int] = {}

    def read(nodes: Iterable[Node], stage: int) -> None:
        for x in nodes:
            if x in place and x not in base:
                need[x] = max(need.get(x, 0), stage)

    read(roots, len(stages))
    for n in toposort_from(roots, place):
        # Nodes of rules inside rules have an origin elsewhere.
        at_place = place.get(n.origin) if n.origin is not None else None
        read(n.inputs, len(stages) if at_place is None else bisect_left(bounds, at_place))
    for n in reversed(order):
        if n in need:
            read(n.inputs, need[n])
    after = given
    for stage in reversed(range(len(stages) + 1)):
        if stage < len(stages):
            ct = stages[stage][1]
            for n in toposort_from([ct], values):
                values[n] = replaced(n, tuple(values[x] for x in n.inputs))
            after = [values[ct]]
        late: dict[Node, Node] = {}
        for n in order:
            if need.get(n) == stage:
                late |= {x: BARRIER(base[x], *after) for x in n.inputs
                         if x in base and x not in late}
                values[n] = replaced(n, tuple(late[x] if x in late else values[x]
                                              for x in n.inputs))


def _jvp(node: Node, tangents: Sequence[Node | None], ad: AD) -> Any:
    """Tangents are a region too, so that reverse over forward keeps no more."""
    graph = graph_of(node.attrs["body"])
    leaves = list(graph.inputs.values())
    active = [x for x, t in zip(leaves, tangents, strict=True) if t is not None]
    given = [t for t in tangents if t is not None]
    outputs = list(ad.prepared(graph, active, reverse=False).outputs.values())
    seeds = dict(zip(active, placeholders("t", given), strict=True))
    floats = [i for i, y in enumerate(outputs) if y.dtype.is_float]
    inside = ad.inside()
    found = inside.push([outputs[i] for i in floats], seeds)
    inputs = [*node.inputs, *given]
    inner = [*leaves, *seeds.values()]
    outward(ad, inside, [], dict(zip(inner, inputs, strict=True)))
    own = placeholders("x", inputs)
    results = over([*outputs, *found], dict(zip(inner, own, strict=True)))
    place = {i: len(outputs) + p for p, i in enumerate(floats)}
    kept = node.attrs["kept"]
    made = CHECKPOINT(*inputs, body=Body.of(body_graph(own, results)),
                      kept=(*kept, *(place[k] for k in kept if k in place)))
    return tuple(project(made, place[i]) if i in place else None for i in range(len(outputs)))


# Of the results, `kept` are intermediates that the backward takes as they are.
CHECKPOINT = register(Op("checkpoint", _infer, vjp=_vjp, jvp=_jvp, decompose=_decompose,
                         batch=by_element, masks=_masks))
