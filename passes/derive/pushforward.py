"""Forward mode through nodes: what tangents become on the way from leaves to results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rlx_py.ir.base.errors import VerifyError
from rlx_py.ir.base.types import TupleType
from rlx_py.ir.graph.activity import dependents
from rlx_py.ir.graph.transforms import AD
from rlx_py.ir.nodes.node import Node, Op, at, origin, toposort
from rlx_py.ir.ops.control.region import zeros
from rlx_py.passes.derive.differentiate import no_rule

Tangent = Any  # Node, None (zero), or a tuple of these for a tuple-typed node


def lacks_jvp(op: Op) -> bool:
    """Whether forward mode needs the op's decomposition."""
    return op.jvp is None


def pushforward(roots: list[Node], seeds: Mapping[Node, Node], ad: AD) -> list[Node]:
    """The tangents of roots, given those of some tensor nodes; zeros where nothing flows."""
    tangents: dict[Node, Tangent] = dict(seeds)
    order = toposort(roots)
    depends = dependents(order, seeds)
    for node in order:
        if node in tangents or node not in depends:
            continue
        inputs = [tangents.get(x) for x in node.inputs]
        if all(t is None for t in inputs):
            continue
        if node.op.jvp is None:
            raise no_rule(node, "forward-mode")
        with origin(node):
            found = node.op.jvp(node, inputs, ad)
        if found is not None:
            _check(node, found)
            tangents[node] = found
    return [zeros(r) if tangents.get(r) is None else tangents[r] for r in roots]


def _check(node: Node, tangent: Tangent) -> None:
    parts: Iterable[Node | None] = tangent if isinstance(node.type, TupleType) else (tangent,)
    types = node.type.elements if isinstance(node.type, TupleType) else (node.type,)
    for part, type in zip(parts, types, strict=True):
        if part is not None and part.type != type:
            raise VerifyError(f"the jvp of {node.op.name} gives {part.type} for a result of type "
                              f"{type}" + at(node.loc))
