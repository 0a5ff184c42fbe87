"""Forward mode, and forward over reverse."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rlx_py.ir.base.errors import VerifyError
from rlx_py.ir.base.types import TupleType
from rlx_py.ir.graph.graph import Graph, require_graph
from rlx_py.ir.nodes.node import Chain, Node, Op, at, origin, toposort
from rlx_py.passes.analysis.activity import dependents
from rlx_py.passes.derive.differentiate import (
    ChainRule,
    fresh_prefix,
    leaves_of,
    no_rule,
    prepared,
    zeros,
)
from rlx_py.passes.derive.vjp import Names, grad
from rlx_py.passes.rewrite.simplify import simplify

Tangent = Any  # Node, None (zero), or a tuple of these for a tuple-typed node


def jvp(graph: Graph, wrt: Names = None, singular: str = "zero") -> Graph:
    """The graph with tangents: new inputs t_<name>, outputs <output> and t_<output> of each float.

    `wrt` and `singular` as in `vjp` and `grad`. Where a name is taken the prefix becomes t2_, and
    so on. Raises ArgumentError, DTypeError, NotDifferentiable.
    """
    require_graph("jvp", graph)
    leaves = leaves_of(graph, wrt)
    primal = prepared(graph, leaves.values(), lacks_jvp)
    prefix = fresh_prefix("t", list(leaves), primal.leaves)
    fresh, found, counts = _tangents(primal, leaves, prefix, singular)
    out = fresh_prefix("t", list(found), primal.outputs)
    outputs = {**primal.outputs, **{out + k: t for k, t in found.items()}}
    return simplify(fresh.derive({**outputs, **counts.outputs(outputs)}))


def hvp(graph: Graph, of: str, wrt: Names = None) -> Graph:
    """Hessian times vector of a scalar output: new inputs v_<name>, outputs hvp_<name>.

    Forward over reverse. hvp_<a> = Σ_b ∂²of/∂a∂b · v_<b>, over all names of `wrt`.
    """
    require_graph("hvp", graph)
    leaves = leaves_of(graph, wrt)
    primal = prepared(grad(graph, of, list(leaves)), leaves.values(), lacks_jvp)
    prefix = fresh_prefix("v", list(leaves), primal.leaves)
    fresh, found, _ = _tangents(primal, leaves, prefix, "zero")
    return simplify(fresh.derive({f"hvp_{k}": found[f"grad_{k}"] for k in leaves}))


def _tangents(primal: Graph, leaves: Mapping[str, Node], prefix: str,
              singular: str) -> tuple[Graph, dict[str, Node], ChainRule]:
    fresh = primal.derive(primal.outputs)
    seeds = {n: fresh.input(prefix + k, n.shape, n.dtype) for k, n in leaves.items()}
    targets = {k: n for k, n in primal.outputs.items() if n.dtype.is_float}
    chain = ChainRule(singular)
    found = pushforward(list(targets.values()), seeds, chain)
    return fresh, dict(zip(targets, found, strict=True)), chain


def lacks_jvp(op: Op) -> bool:
    """Whether forward mode needs the op's decomposition."""
    return op.jvp is None


def pushforward(roots: list[Node], seeds: Mapping[Node, Node], chain: Chain) -> list[Node]:
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
            found = node.op.jvp(node, inputs, chain)
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
