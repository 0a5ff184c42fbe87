"""Whole Jacobians and Hessians: one derivative for all directions at once, batched over a basis."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod

from rlx_py.ir.base.errors import ArgumentError, DTypeError
from rlx_py.ir.graph.graph import Graph
from rlx_py.ir.nodes.graph_base import require_graph
from rlx_py.ir.nodes.node import Node, at, user_location
from rlx_py.ir.ops.control.region import over
from rlx_py.ir.ops.numpy.creation import eye
from rlx_py.passes.analysis.steps import watched
from rlx_py.passes.batch.vmap import vmap
from rlx_py.passes.derive.differentiate import leaves_of
from rlx_py.passes.derive.jvp import jvp
from rlx_py.passes.derive.vjp import Names, grad, vjp
from rlx_py.passes.rewrite.simplify import simplify


@watched
def jacfwd(graph: Graph, of: str | Iterable[str], wrt: Names = None) -> Graph:
    """Jacobians by forward mode: outputs jac_<output>_<name> of shape output.shape + name.shape.

    `of` names float outputs of any shape, `wrt` leaves as in `vjp`. One pass is batched over all
    elements of each leaf, so this is for fewer inputs than outputs; it holds as many tangents of
    every intermediate. Raises ArgumentError, DTypeError, NotDifferentiable.
    """
    require_graph("jacfwd", graph)
    targets, leaves = _targets(graph, of), leaves_of(graph, wrt)
    found: dict[tuple[str, str], Node] = {}
    for name, leaf in leaves.items():
        forward = jvp(graph.derive(targets, updates={}), [name])
        columns = _batched(forward, graph, leaf, -1)
        made = [k for k in forward.outputs if k not in targets]
        for key, out in zip(targets, made, strict=True):
            found[key, name] = columns[out].reshape((*targets[key].shape, *leaf.shape))
    return _named(graph, "jac", {(k, n): found[k, n] for k in targets for n in leaves})


@watched
def jacrev(graph: Graph, of: str | Iterable[str], wrt: Names = None) -> Graph:
    """Jacobians by reverse mode: as `jacfwd`, batched over all elements of each output, so for
    fewer outputs than inputs."""
    require_graph("jacrev", graph)
    targets, leaves = _targets(graph, of), leaves_of(graph, wrt)
    found: dict[tuple[str, str], Node] = {}
    for key, target in targets.items():
        backward = vjp(graph.derive({key: target}, updates={}), list(leaves))
        rows = _batched(backward, graph, target, 0)
        for name, out in zip(leaves, backward.outputs, strict=True):
            found[key, name] = rows[out].reshape((*target.shape, *leaves[name].shape))
    return _named(graph, "jac", found)


@watched
def hessian(graph: Graph, of: str, wrt: Names = None) -> Graph:
    """Hessians of a scalar output: outputs hess_<a>_<b> of shape a.shape + b.shape for each pair.

    Forward mode over the gradient, batched over all elements of b; a product with one direction is
    `hvp`, at a small part of the cost. Errors as `grad`.
    """
    require_graph("hessian", graph)
    leaves = leaves_of(graph, wrt)
    gradient = grad(graph, of, list(leaves))
    whole = jacfwd(gradient, list(gradient.outputs), list(leaves))
    pairs = [(a, b) for a in leaves for b in leaves]
    return graph.derive({f"hess_{a}_{b}": n for (a, b), n in zip(
        pairs, whole.outputs.values(), strict=True)})


def _targets(graph: Graph, of: str | Iterable[str]) -> dict[str, Node]:
    names = [of] if isinstance(of, str) else list(of)
    targets = {k: graph.find_output(k) for k in names}
    if len(targets) != len(names) or not names:
        raise ArgumentError(f"of names each output once, not {names}" + at(user_location()))
    for key, node in targets.items():
        if not node.dtype.is_float:
            raise DTypeError(f"the output {key!r} to differentiate is {node.type}, not a float"
                             + at(node.loc))
    return targets


def _batched(derived: Graph, graph: Graph, like: Node, axis: int) -> Mapping[str, Node]:
    """The outputs of a derivative for every unit vector of its new input, counted by an axis."""
    (name,) = (k for k in derived.inputs if k not in graph.inputs)
    size = prod(like.shape)
    many = vmap(derived, {name: (0, size)}, axis)
    basis = eye(size, dtype=like.dtype).reshape((size, *like.shape))
    outputs = many.outputs
    found = over(list(outputs.values()), {many.inputs[name]: basis})
    return dict(zip(outputs, found, strict=True))


def _named(graph: Graph, prefix: str, found: Mapping[tuple[str, str], Node]) -> Graph:
    return simplify(graph.derive({f"{prefix}_{k}_{n}": node for (k, n), node in found.items()}))
