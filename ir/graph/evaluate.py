"""The NumPy meaning of a graph: the oracle that every pass and backend is compared with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx_py.ir.base.arrays import as_array
from rlx_py.ir.base.errors import ArgumentError, ShapeError, VerifyError
from rlx_py.ir.base.rounding import rounded
from rlx_py.ir.base.types import TensorType, TupleType, Type
from rlx_py.ir.graph.bind import sized
from rlx_py.ir.graph.graph import Graph
from rlx_py.ir.nodes.graph_base import require_graph
from rlx_py.ir.nodes.node import LEAF, Node, at, leaf, origin, toposort

Array = np.ndarray[Any, Any]
Value = Any  # an array, or a tuple of arrays for a tuple-typed node


@dataclass(frozen=True)
class Evaluation:
    """Everything one call of a graph gives."""

    outputs: dict[str, Array]
    states: dict[str, Array]  # next values; a state without one keeps its current value
    updates: dict[str, Array]  # next values of params


def evaluate(graph: Graph, inputs: Mapping[str, Any]) -> dict[str, Array]:
    """The outputs by name. States not given take their initial value.

    Raises ArgumentError (a name that is missing or unknown), ShapeError, DTypeError.
    """
    require_graph("evaluate", graph)
    graph = sized(graph, shapes_of(inputs))
    found = evaluate_nodes(graph.outputs.values(), leaf_values(graph, inputs))
    return dict(zip(graph.outputs, found, strict=True))


def evaluate_all(graph: Graph, inputs: Mapping[str, Any]) -> Evaluation:
    """Outputs, next states and param updates by name; errors as `evaluate`."""
    graph = sized(graph, shapes_of(inputs))
    values = leaf_values(graph, inputs)
    states = {k: s.node if s.next is None else s.next for k, s in graph.states.items()}
    tables = (graph.outputs, states, graph.updates)
    found = iter(evaluate_nodes([n for t in tables for n in t.values()], values))
    outputs, nexts, updates = ({k: next(found) for k in table} for table in tables)
    return Evaluation(outputs, nexts, updates)


def shapes_of(inputs: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """The shapes of what a caller gives."""
    return {k: np.shape(v) for k, v in inputs.items()}


def leaf_values(graph: Graph, inputs: Mapping[str, Any]) -> dict[Node, Array]:
    """The checked array of every leaf of a graph without dynamic sizes."""
    leaves = graph.leaves
    unknown = [n for n in inputs if n not in leaves]
    if unknown:
        raise ArgumentError(f"graph {graph.name!r} has no input, param or state named "
                            f"{', '.join(map(repr, unknown))}; it has {list(leaves)}")
    missing = [n for n in leaves if n not in inputs and n not in graph.states]
    if missing:
        raise ArgumentError(f"graph {graph.name!r}: no value for {', '.join(map(repr, missing))}")
    values = {}
    for name, node in leaves.items():
        if name in inputs:
            values[node] = as_array(name, inputs[name], node.tensor)
        else:
            values[node] = initial(name, graph.states[name].init, node.tensor)
    return values


def initial(name: str, init: Any, type: TensorType) -> Array:
    """The first value of a state: a number for every element, or an array of its shape."""
    array = np.asarray(init)
    if array.shape not in ((), type.shape):
        raise ShapeError(f"the initial value of state {name!r} has shape {array.shape}, "
                         f"not {type.shape}")
    return np.broadcast_to(array.astype(type.dtype.numpy), type.shape).copy()


def evaluate_nodes(nodes: Iterable[Node], values: Mapping[Node, Value]) -> list[Value]:
    """The values of nodes, given those of the leaves (or of any nodes) they rest on."""
    roots = list(nodes)
    order = toposort_from(roots, values)
    uses = Counter(roots)  # a root is never freed
    for node in order:
        uses.update(node.inputs)
    done: dict[Node, Value] = dict(values)
    for node in order:
        done[node] = evaluate_node(node, [done[i] for i in node.inputs])
        for used in node.inputs:
            uses[used] -= 1
            if not uses[used]:
                del done[used]
    return [done[r] for r in roots]


def toposort_from(roots: Sequence[Node], given: Mapping[Node, Any]) -> list[Node]:
    """What the roots reach without going beyond the given nodes, inputs before users."""
    if all(node.op is LEAF for node in given):
        return [n for n in toposort(roots) if n not in given]
    order: list[Node] = []
    seen = set(given)
    stack = [(r, False) for r in reversed(roots)]
    while stack:
        node, expanded = stack.pop()
        if expanded:
            order.append(node)
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            stack.extend((i, False) for i in reversed(node.inputs) if i not in seen)
    return order


_DOUBTING = ContextVar("doubting", default=False)


@contextmanager
def doubting() -> Iterator[None]:
    """Values that an operation computes on without meaning are an ArgumentError inside, those in
    loops and branches too."""
    token = _DOUBTING.set(True)
    try:
        yield
    finally:
        _DOUBTING.reset(token)


def evaluate_node(node: Node, arrays: Sequence[Value]) -> Value:
    """One operation on arrays; a composite without NumPy meaning evaluates its decomposition."""
    if node.op is LEAF:
        raise ArgumentError(f"no value for {node.attrs['kind']} {node.attrs['name']!r}")
    if node.op.doubt is not None and _DOUBTING.get():
        doubt = node.op.doubt(*arrays, **node.attrs)
        if doubt:
            raise ArgumentError(f"{node.op.name}: {doubt}{at(node.loc)}")
    if node.op.eval is not None:
        return checked(node, node.op.eval(*arrays, **node.attrs))
    if node.op.decompose is None:
        raise VerifyError(f"{node.op.name} has neither a NumPy meaning nor a decomposition")
    inputs = [leaf(f"x{i}", "input", n.type) for i, n in enumerate(node.inputs)]
    with origin(node):
        parts = node.op.decompose(*inputs, **node.attrs)
    values = dict(zip(inputs, arrays, strict=True))
    if isinstance(parts, tuple | list):
        return checked(node, tuple(evaluate_nodes(parts, values)))
    return checked(node, evaluate_nodes([parts], values)[0])


def checked(node: Node, value: Value) -> Value:
    """A result in the node's element types; another shape is an error of the op itself."""
    return _checked(node, value, node.type)


def _checked(node: Node, value: Value, type: Type) -> Value:
    if isinstance(type, TupleType):
        if not isinstance(value, tuple | list) or len(value) != len(type.elements):
            raise VerifyError(f"{node.op.name} evaluates to {value!r}, not {type}" + at(node.loc))
        return tuple(_checked(node, v, t) for v, t in zip(value, type.elements, strict=True))
    array = np.asarray(value)
    if array.shape != type.shape:
        raise VerifyError(f"{node.op.name} is inferred as {type} but evaluates to shape "
                          f"{array.shape}" + at(node.loc))
    if array.dtype == type.dtype.numpy:
        return array
    return rounded(array, type.dtype)
