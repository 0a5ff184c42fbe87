"""Nodes batched one by one, by the rules of their ops."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rlx_py.ir.base.errors import ArgumentError, VerifyError
from rlx_py.ir.base.types import TupleType, Type
from rlx_py.ir.graph.graph import Graph, rebuild
from rlx_py.ir.graph.transforms import Value
from rlx_py.ir.nodes.node import (
    PROJECT,
    TUPLE,
    Node,
    at,
    origin,
    replaced,
    toposort,
)
from rlx_py.ir.ops.control.region import parts
from rlx_py.passes.rewrite.decompose import expanded

Found = Value | tuple[Value, ...]  # several for a tuple-typed node


def single(found: Found) -> Value:
    """The value of a tensor node."""
    assert isinstance(found, Value), "only tuple and project meet tuples"
    return found


def expand_batched(graph: Graph, leaves: Iterable[Node]) -> Graph:
    """Expand the composites that depend on batched leaves and bring no rule."""
    depends = set(leaves)

    def expand(node: Node) -> Node | None:
        if depends.isdisjoint(node.inputs):
            return None
        better = expanded(node) if node.op.batch is None else None
        if better is None:
            depends.add(node)
        return better

    return rebuild(graph, expand)


def batch_nodes(roots: Iterable[Node], given: Mapping[Node, Found], size: int) -> dict[Node, Found]:
    """What every node that the roots reach becomes, given the leaves. ArgumentError for an op that
    has no rule."""
    found = dict(given)
    for node in toposort(roots):
        if node not in found:
            found[node] = _batch(node, found, size)
    return found


def batched_results(graph: Graph, leaves: Mapping[Node, Value], size: int) -> list[Value]:
    """The results of a graph over other leaves, some with the batch axis."""
    source = expand_batched(graph, [x for x, v in leaves.items() if v.batched])
    found = batch_nodes(source.outputs.values(), dict(leaves), size)
    return [single(found[r]) for r in source.outputs.values()]


class Batching:
    """Batching, as rules are handed it (`Batcher` in `ir/graph/transforms.py`)."""

    def results(self, graph: Graph, leaves: Mapping[Node, Value], size: int) -> list[Value]:
        """The results of a body over other leaves, some of which have the batch axis."""
        return batched_results(graph, leaves, size)


def _batch(node: Node, found: Mapping[Node, Found], size: int) -> Found:
    if node.op is PROJECT:
        several = found[node.inputs[0]]
        assert isinstance(several, tuple)
        part: Value = several[node.attrs["index"]]
        return part
    values = [single(found[x]) for x in node.inputs]
    if node.op is TUPLE:
        return tuple(values)
    inputs = tuple(v.node for v in values)
    if not any(v.batched for v in values):
        return _results(replaced(node, inputs), False)
    if node.op.batch is None:
        raise ArgumentError(f"vmap: {node.op.name} {node.type} has no batching rule" + at(node.loc))
    with origin(node if node.origin is None else node.origin):
        result = node.op.batch(node, inputs, [v.batched for v in values], Batching())
    if result.type != _with_axis(node.type, size):
        raise VerifyError(f"the batching of {node.op.name} gives {result.type} for elements of "
                          f"type {node.type}" + at(node.loc))
    return _results(result, True)


def _results(node: Node, batched: bool) -> Found:
    if isinstance(node.type, TupleType):
        return tuple(Value(part, batched) for part in parts(node))
    return Value(node, batched)


def _with_axis(type: Type, size: int) -> Type:
    if isinstance(type, TupleType):
        return TupleType(tuple(t.with_shape((size, *t.shape)) for t in type.elements))
    return type.with_shape((size, *type.shape))
