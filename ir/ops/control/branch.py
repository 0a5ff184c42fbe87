"""cond: one of two functions, chosen when the program runs; only the chosen one is computed.

A derivative is another choice, between the derivatives of the two, which computes again what it
needs of the branch that was taken.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rlx_py.ir.base.errors import ShapeError
from rlx_py.ir.base.types import TensorType, TupleType, Type, bool_
from rlx_py.ir.graph.body import Body, graph_of
from rlx_py.ir.graph.evaluate import evaluate_nodes
from rlx_py.ir.graph.stored import BodyEmitter, BodyRule
from rlx_py.ir.graph.transforms import AD, Batcher, Value
from rlx_py.ir.loops.program import Branch
from rlx_py.ir.nodes.node import (
    Cotangent,
    Node,
    Op,
    make,
    pack,
    project,
    register,
    toposort,
)
from rlx_py.ir.ops.control.region import (
    Arguments,
    body_graph,
    captured,
    over,
    parts,
    placeholders,
    result_types,
    results_of,
    same_results,
    traced,
    zeros,
)
from rlx_py.ir.ops.making.batching import size_of, spread_out
from rlx_py.ir.ops.making.beside import Nested
from rlx_py.ir.ops.making.located import located
from rlx_py.ir.ops.operands.operand import as_node
from rlx_py.ir.ops.primitive.elementwise import SELECT
from rlx_py.ir.ops.primitive.movement import spread

Array = np.ndarray[Any, Any]
Results = tuple[Sequence[Node], Sequence[Node]]  # leaves, and what a branch makes of them


@located
def cond(pred: Any, then: Callable[..., Any], orelse: Callable[..., Any], *args: Nested) -> Any:
    """then(*args) where pred, a bool scalar, is true, else orelse(*args); as jax.lax.cond.

    Arguments and results nest as they like, those of the two alike; both functions may use nodes
    from outside, are called once while the graph is built, and only the chosen one is computed.
    Raises ShapeError (pred is no bool scalar, results of different types), ArgumentError.
    """
    chosen = as_node(pred)
    if chosen.type != TensorType(bool_, ()):
        raise ShapeError(f"pred is one bool, not {chosen.type}")
    arguments = Arguments(args)
    leaves = placeholders("x", arguments.nodes)
    with traced("cond's functions", leaves, arguments.nodes):
        first, tree = results_of(then(*arguments.with_nodes(leaves)))
        second, nesting = results_of(orelse(*arguments.with_nodes(leaves)))
        same_results("orelse", second, nesting, "then", first, tree)
    taken, found = captured(leaves, [*first, *second])
    own = [*leaves, *taken.values()]
    node = _node(chosen, [*arguments.nodes, *taken], (own, found[:len(first)]),
                 (own, found[len(first):]))
    return tree.build(parts(node))


def _node(pred: Node, inputs: Sequence[Node], then: Results, orelse: Results) -> Node:
    return make(COND, [pred, *inputs], {"then": _body(*then), "orelse": _body(*orelse)})


def _body(leaves: Sequence[Node], results: Sequence[Node]) -> Body:
    own = placeholders("x", leaves)
    return Body.of(body_graph(own, over(results, dict(zip(leaves, own, strict=True)))))


def _infer(pred: TensorType, *types: TensorType, then: str, orelse: str) -> Type:
    if pred != TensorType(bool_, ()):
        raise ShapeError(f"the choice is one bool, not {pred}")
    first, second = result_types(then, types), result_types(orelse, types)
    if first != second:
        raise ShapeError(f"one branch gives ({', '.join(map(str, first))}), the other "
                         f"({', '.join(map(str, second))})")
    return TupleType(tuple(first))


def _evaluate(pred: Array, *arrays: Array, then: str, orelse: str) -> tuple[Array, ...]:
    graph = graph_of(then if pred else orelse)
    values = dict(zip(graph.inputs.values(), arrays, strict=True))
    return tuple(evaluate_nodes(graph.outputs.values(), values))


class _Branch:
    """One branch under differentiation: its leaves, its results, and the derivative inside it."""

    def __init__(self, text: str, ad: AD, *, reverse: bool) -> None:
        graph = graph_of(text)
        self.leaves = list(graph.inputs.values())
        self.floats = [x for x in self.leaves if x.dtype.is_float]
        self.outputs = list(ad.prepared(graph, self.floats, reverse=reverse).outputs.values())
        self.ad = ad.inside()

    def pulled(self, seeds: Sequence[Node | None]) -> Results:
        """The cotangents of the float leaves, given those of results."""
        given = [(y, c) for y, c in zip(self.outputs, seeds, strict=True) if c is not None]
        found = self.ad.pull(given, self.floats)
        return [*self.leaves, *(c for _, c in given)], found

    def pushed(self, tangents: Sequence[Node | None]) -> Results:
        """The tangents of the float results, given those of leaves."""
        seeds = {x: t for x, t in zip(self.leaves, tangents, strict=True) if t is not None}
        floats = [y for y in self.outputs if y.dtype.is_float]
        return [*self.leaves, *seeds.values()], self.ad.push(floats, seeds)


def _chosen(node: Node, further: Sequence[Node], branches: Sequence[_Branch],
            made: Sequence[Results], ad: AD) -> list[Node]:
    """The results of a choice between what was made for each branch; counts of singular points go
    on to the outer derivative."""
    counts = [b.ad.counts for b in branches]
    padded = ([*counts[0], *map(zeros, counts[1])], [*map(zeros, counts[0]), *counts[1]])
    first, second = ((leaves, [*found, *extra])
                     for (leaves, found), extra in zip(made, padded, strict=True))
    result = parts(_node(node.inputs[0], [*node.inputs[1:], *further], first, second))
    own = len(made[0][1])
    ad.counts += result[own:]
    return result[:own]


def _vjp(node: Node, ct: Cotangent, ad: AD) -> Sequence[Node | None]:
    branches = [_Branch(node.attrs[k], ad, reverse=True) for k in ("then", "orelse")]
    given = [c for c in ct if c is not None]
    made = []
    for b in branches:
        seeds = iter(placeholders("ct", given))
        made.append(b.pulled([None if c is None else next(seeds) for c in ct]))
    found = iter(_chosen(node, given, branches, made, ad))
    return [None, *(next(found) if x.dtype.is_float else None for x in node.inputs[1:])]


def _jvp(node: Node, tangents: Sequence[Node | None], ad: AD) -> Any:
    branches = [_Branch(node.attrs[k], ad, reverse=False) for k in ("then", "orelse")]
    given = [t for t in tangents if t is not None]
    made = []
    for b in branches:
        seeds = iter(placeholders("t", given))
        made.append(b.pushed([None if t is None else next(seeds) for t in tangents[1:]]))
    found = iter(_chosen(node, given, branches, made, ad))
    return tuple(next(found) if y.dtype.is_float else None for y in branches[0].outputs)


def _batch(node: Node, inputs: Sequence[Node], batched: Sequence[bool], batcher: Batcher) -> Node:
    """Where the choice differs between elements, both are computed and each takes its own."""
    size = size_of(inputs, batched)
    found = [_batched(node.attrs[k], inputs[1:], batched[1:], size, batcher)
             for k in ("then", "orelse")]
    if not batched[0]:
        wide = [(leaves, [spread_out(v, size) for v in values]) for leaves, values in found]
        return _node(inputs[0], inputs[1:], wide[0], wide[1])
    pairs = zip(*(over([spread_out(v, size) for v in values],
                       dict(zip(leaves, inputs[1:], strict=True))) for leaves, values in found),
                strict=True)
    return pack(SELECT(spread(inputs[0], a.shape, (0,)), a, b) for a, b in pairs)


def _batched(text: str, inputs: Sequence[Node], batched: Sequence[bool], size: int,
             batcher: Batcher) -> tuple[list[Node], list[Value]]:
    """A branch for all elements: its leaves and results."""
    graph = graph_of(text)
    leaves = placeholders("b", inputs)
    given = {x: Value(v, b) for x, v, b in zip(graph.inputs.values(), leaves, batched, strict=True)}
    return leaves, batcher.results(graph, given, size)


# ---- code --------------------------------------------------------------------------------------


def _prune(node: Node, asked: Mapping[int, Node]) -> dict[int, Node]:
    """The choice between what is read of the two."""
    chosen, made = list(asked), list[Results]()
    for k in ("then", "orelse"):
        graph = graph_of(node.attrs[k])
        outputs = list(graph.outputs.values())
        made.append((list(graph.inputs.values()), [outputs[i] for i in chosen]))
    used = [set(toposort(results)) for _, results in made]
    places = [i for i in range(len(node.inputs) - 1)
              if any(leaves[i] in u for (leaves, _), u in zip(made, used, strict=True))]
    then, orelse = (([leaves[i] for i in places], results) for leaves, results in made)
    fresh = _node(node.inputs[0], [node.inputs[1 + i] for i in places], then, orelse)
    return {k: project(fresh, i) for i, k in enumerate(chosen)}


def _build(node: Node, e: BodyEmitter) -> None:
    chosen, _ = e.held(0)
    place, first, middle = e.open(), e.here(), 0
    for k in ("then", "orelse"):
        middle = e.here()
        graph = graph_of(node.attrs[k])
        buffers = {name: e.whole(i) for i, name in enumerate(graph.inputs, 1)}
        e.run(graph, buffers, {f"y{i}": e.result(i) for i in range(len(node))})
    e.close(place, Branch(first, middle, e.here(), chosen))


COND: Op = register(Op("cond", _infer, _evaluate, _vjp, _jvp, batch=_batch, kernel=BodyRule(
    _build, _prune, lambda node: range(len(node.inputs)))))
