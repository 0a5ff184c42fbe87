"""Which nodes a derivative flows through."""

from __future__ import annotations

from collections.abc import Iterable

from rlx_py.ir.base.types import TupleType
from rlx_py.ir.nodes.node import Node


def carries_derivative(node: Node) -> bool:
    """Whether a change of the inputs can show, to first order, in a float result."""
    if isinstance(node.type, TupleType):
        return node.op.differentiable and any(t.dtype.is_float for t in node.type.elements)
    return node.op.differentiable and node.type.dtype.is_float


def dependents(order: Iterable[Node], wrt: Iterable[Node]) -> set[Node]:
    """The nodes of an order (inputs first) through which a derivative by `wrt` flows."""
    depends = set(wrt)
    for node in order:
        if not depends.isdisjoint(node.inputs) and carries_derivative(node):
            depends.add(node)
    return depends
