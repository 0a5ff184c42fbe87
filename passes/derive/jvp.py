"""Forward mode, and forward over reverse."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlx_py.ir.graph.graph import Graph
from rlx_py.ir.nodes.graph_base import require_graph
from rlx_py.ir.nodes.node import Node
from rlx_py.passes.analysis.steps import watched
from rlx_py.passes.derive.derivation import Derivation
from rlx_py.passes.derive.differentiate import (
    fresh_prefix,
    leaves_of,
    prepared,
)
from rlx_py.passes.derive.pushforward import lacks_jvp, pushforward
from rlx_py.passes.derive.vjp import Names, grad
from rlx_py.passes.rewrite.simplify import simplify

Tangent = Any  # Node, None (zero), or a tuple of these for a tuple-typed node


@watched
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


@watched
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
              singular: str) -> tuple[Graph, dict[str, Node], Derivation]:
    fresh = primal.derive(primal.outputs)
    seeds = {n: fresh.input(prefix + k, n.shape, n.dtype) for k, n in leaves.items()}
    targets = {k: n for k, n in primal.outputs.items() if n.dtype.is_float}
    ad = Derivation(singular)
    found = pushforward(list(targets.values()), seeds, ad)
    return fresh, dict(zip(targets, found, strict=True)), ad
