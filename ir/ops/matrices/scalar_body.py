"""Functions of numbers that ops own: their derivatives, and their values element by element.

A body here takes scalars (x, then parameters) to one scalar.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from rlx_py.ir.base.errors import ShapeError
from rlx_py.ir.base.types import TensorType
from rlx_py.ir.graph.body import Body, graph_of
from rlx_py.ir.graph.graph import Graph, inline
from rlx_py.ir.nodes.node import LEAF, Node, leaf, make, toposort
from rlx_py.ir.ops.operands.operand import broadcast_shape, broadcast_to
from rlx_py.ir.ops.primitive.elementwise import ADD, GUARDED_MUL, fill


def scalar_body(leaves: Sequence[Node], value: Node) -> Body:
    """The function that takes scalar leaves, of distinct names, to a scalar."""
    graph = Graph("function")
    graph.inputs = {n.attrs["name"]: n for n in leaves}
    graph.outputs = {"y": value}
    return Body.of(graph)


def opened(body: str) -> tuple[list[Node], Node]:
    """The leaves of a body and its value."""
    graph = graph_of(body)
    (value,) = graph.outputs.values()
    return list(graph.inputs.values()), value


def check_scalar_body(body: str) -> list[TensorType]:
    """The types of what a body takes; ShapeError where it is no function of scalars to one of the
    type of the first."""
    graph = graph_of(body)
    leaves, values = [n.tensor for n in graph.inputs.values()], list(graph.outputs.values())
    if not leaves or len(values) != 1 or values[0].type != leaves[0] or any(
            t.rank for t in leaves) or graph.params or graph.states:
        raise ShapeError("its function is none of scalars to one like the first")
    return leaves


def inlined(body: str, values: Sequence[Node]) -> Node:
    """The body's value over other scalars."""
    leaves, y = opened(body)
    return inline([y], dict(zip(leaves, values, strict=True)))[y]


def elementwise_value(body: str, values: Sequence[Node]) -> Node:
    """The body at every element of nodes that broadcast."""
    leaves, y = opened(body)
    shape = broadcast_shape(*(v.shape for v in values))
    done = {at: broadcast_to(v, shape) for at, v in zip(leaves, values, strict=True)}
    for node in toposort([y]):
        if node in done:
            continue
        if node.inputs:
            done[node] = make(node.op, [done[x] for x in node.inputs], node.attrs)
        else:
            done[node] = broadcast_to(node, shape)
    return done[y]


@lru_cache(maxsize=1024)
def partial(body: str, position: int) -> Body:
    """The derivative by one input, as a function of the same inputs."""
    leaves, y = opened(body)
    return scalar_body(leaves, _gradients(leaves, y)[position])


@lru_cache(maxsize=1024)
def along(body: str, positions: tuple[int, ...]) -> Body:
    """Σ ∂/∂input·t over some inputs: a function of all inputs and then of the t."""
    leaves, y = opened(body)
    found = _gradients(leaves, y)
    names = {n.attrs["name"] for n in leaves}
    taken = len(names)
    tangents = [leaf(f"t{taken + i}", "input", leaves[p].tensor) for i, p in enumerate(positions)]
    terms = [GUARDED_MUL(t, found[p]) for t, p in zip(tangents, positions, strict=True)]
    value = terms[0]
    for term in terms[1:]:
        value = ADD(value, term)
    return scalar_body([*leaves, *tangents], value)


class _Slopes:
    """What rules are handed here, which take products alone; the first factor, 1, is left out."""

    def __init__(self, one: Node) -> None:
        self.one = one

    def times(self, ct: Node, slope: Node) -> Node:
        """ct · slope."""
        return slope if ct is self.one else GUARDED_MUL(ct, slope)


def _gradients(leaves: Sequence[Node], y: Node) -> list[Node]:
    """∂y by each leaf, zero where nothing flows."""
    one = fill(y, 1)
    cotangents: dict[Node, Node] = {y: one}

    ad = _Slopes(one)
    pending = toposort([y])
    while pending:
        node = pending.pop()
        ct = cotangents.get(node)
        if ct is None or node.op is LEAF or not node.op.differentiable:
            continue
        if node.op.vjp is None:
            # What it is made of comes next, in its place.
            inner = node.op.decompose(*node.inputs, **node.attrs)  # type: ignore[misc]
            known = set(pending)
            pending += [n for n in toposort([inner]) if n not in known]
            cotangents[inner] = ct if inner not in cotangents else ADD(cotangents[inner], ct)
            continue
        for x, part in zip(node.inputs, node.op.vjp(node, ct, ad), strict=True):
            if part is not None:
                cotangents[x] = part if x not in cotangents else ADD(cotangents[x], part)
    return [cotangents[n] if n in cotangents else fill(n, 0) for n in leaves]
