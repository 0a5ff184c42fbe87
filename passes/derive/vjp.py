"""Reverse mode: graph to graph, of any order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rlx_py.ir.base.errors import DTypeError, ShapeError
from rlx_py.ir.graph.graph import Graph
from rlx_py.ir.nodes.graph_base import require_graph
from rlx_py.ir.nodes.node import Node, at, origin
from rlx_py.ir.ops.primitive.movement import filled
from rlx_py.passes.analysis.steps import watched
from rlx_py.passes.derive.derivation import Derivation
from rlx_py.passes.derive.differentiate import (
    fresh_prefix,
    leaves_of,
    prepared,
)
from rlx_py.passes.derive.pullback import lacks_vjp, pullback
from rlx_py.passes.rewrite.simplify import simplify

Names = str | Iterable[str] | None


@watched
def vjp(graph: Graph, wrt: Names = None, singular: str = "zero") -> Graph:
    """The graph of cotangents: new inputs ct_<output>, outputs grad_<name> = Σ ctᵀ ∂output/∂name.

    `wrt` names inputs, params or states (None: every param); integer outputs have no cotangent.
    Where ct_<output> is taken the prefix becomes ct2_, and so on. Raises ArgumentError, DTypeError,
    NotDifferentiable.
    """
    require_graph("vjp", graph)
    leaves = leaves_of(graph, wrt)
    primal = prepared(graph, leaves.values(), lacks_vjp)
    targets = {k: n for k, n in primal.outputs.items() if n.dtype.is_float}
    fresh = primal.derive({})
    prefix = fresh_prefix("ct", list(targets), primal.leaves)
    seeds = [(n, fresh.input(prefix + k, n.shape, n.dtype)) for k, n in targets.items()]
    ad = Derivation(singular)
    found = pullback(seeds, list(leaves.values()), ad)
    outputs = {f"grad_{k}": g for k, g in zip(leaves, found, strict=True)}
    return simplify(fresh.derive({**outputs, **ad.outputs(outputs)}))


@watched
def grad(graph: Graph, of: str, wrt: Names = None, singular: str = "zero") -> Graph:
    """The graph of gradients of a scalar output: outputs grad_<name>, each of its name's type.

    `wrt` as in `vjp`; one that is not used gets zeros. singular="zero": a cotangent that is exactly
    0 contributes 0 even where the partial is not finite; "ieee": the plain product; "report": as
    "zero", with outputs singular_<n> for `singular_report`. Raises ArgumentError (unknown names),
    ShapeError (not a scalar), DTypeError (not a float), NotDifferentiable.
    """
    require_graph("grad", graph)
    outputs, _, primal = _gradients(graph, of, wrt, singular, keep=())
    return simplify(primal.derive(outputs))


@watched
def value_and_grad(graph: Graph, of: str, wrt: Names = None, singular: str = "zero") -> Graph:
    """The graph's own outputs, and the gradients as `grad` (grad2_<name> where that is taken)."""
    require_graph("value_and_grad", graph)
    outputs, values, primal = _gradients(graph, of, wrt, singular, keep=tuple(graph.outputs))
    return simplify(primal.derive({**values, **outputs}))


def _gradients(graph: Graph, of: str, wrt: Names, singular: str,
               keep: tuple[str, ...]) -> tuple[dict[str, Node], Mapping[str, Node], Graph]:
    scalar_output(graph, of)
    leaves = leaves_of(graph, wrt)
    wanted = {k: graph.outputs[k] for k in dict.fromkeys((*keep, of))}
    primal = prepared(graph.derive(wanted), leaves.values(), lacks_vjp)
    target, ad = primal.outputs[of], Derivation(singular)
    with origin(target):
        one = filled(1, target.tensor)
    found = pullback([(target, one)], list(leaves.values()), ad)
    values = {k: primal.outputs[k] for k in keep}
    prefix = fresh_prefix("grad", list(leaves), values)
    outputs = {prefix + k: g for k, g in zip(leaves, found, strict=True)}
    return {**outputs, **ad.outputs({**values, **outputs})}, values, primal


def scalar_output(graph: Graph, of: str) -> Node:
    """The output of that name, a float scalar; else ArgumentError, ShapeError or DTypeError."""
    target = graph.find_output(of)
    if target.rank:
        raise ShapeError(f"the output {of!r} to differentiate is {target.type}, not a scalar"
                         + at(target.loc))
    if not target.dtype.is_float:
        raise DTypeError(f"the output {of!r} to differentiate is {target.type}, not a float"
                         + at(target.loc))
    return target
