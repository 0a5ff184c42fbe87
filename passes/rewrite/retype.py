"""A graph in another float type."""

from __future__ import annotations

from typing import Any

from rlx_py.ir.base.errors import DTypeError
from rlx_py.ir.base.literal import Literal
from rlx_py.ir.base.types import DType, TensorType, as_dtype
from rlx_py.ir.graph.body import Body, graph_of, is_body
from rlx_py.ir.graph.graph import Graph
from rlx_py.ir.nodes.graph_base import State, require_graph
from rlx_py.ir.nodes.node import LEAF, Node, leaf
from rlx_py.passes.analysis.steps import watched


@watched
def retype(graph: Graph, dtype: Any) -> Graph:
    """The graph with every float leaf, constant and cast in one float type; integers stay."""
    require_graph("retype", graph)
    target = as_dtype(dtype)
    if not target.is_float:
        raise DTypeError(f"a graph is retyped to a float, not {target}")
    done: dict[Node, Node] = {}
    for node in graph.nodes:
        if node.op is LEAF:
            type = node.tensor.with_dtype(_converted(node.dtype, target))
            done[node] = leaf(node.attrs["name"], node.attrs["kind"], type)
            continue
        inputs = tuple(done[x] for x in node.inputs)
        attrs = {k: _converted(v, target) for k, v in node.attrs.items()}
        found = node.op.infer(*[x.type for x in inputs], **attrs)
        done[node] = Node(node.op, inputs, attrs, found, node.loc, node.origin)
    fresh = Graph(graph.name)
    fresh.inputs = {k: done[n] for k, n in graph.inputs.items()}
    fresh.params = {k: done[n] for k, n in graph.params.items()}
    fresh.states = {k: State(done[s.node], s.init, None if s.next is None else done[s.next])
                    for k, s in graph.states.items()}
    fresh.outputs = {k: done[n] for k, n in graph.outputs.items()}
    fresh.updates = {k: done[n] for k, n in graph.updates.items()}
    return fresh


def _converted(value: Any, target: DType) -> Any:
    """An attribute value (or what it holds) with floats in the target type."""
    if isinstance(value, DType):
        return target if value.is_float else value
    if isinstance(value, TensorType):
        return value.with_dtype(_converted(value.dtype, target))
    if isinstance(value, Literal) and as_dtype(value.array.dtype).is_float:
        return Literal(value.array.astype(target.numpy))
    if is_body(value):
        return Body.of(retype(graph_of(value), target))
    if isinstance(value, tuple):
        return tuple(_converted(v, target) for v in value)
    return value
