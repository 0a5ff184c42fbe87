"""Reverse mode: graph to graph, of any order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from rlx_py.ir.base.errors import DTypeError, ShapeError, VerifyError
from rlx_py.ir.base.types import TupleType
from rlx_py.ir.graph.graph import Graph, require_graph
from rlx_py.ir.nodes.node import Chain, Cotangent, Node, Op, at, origin, toposort
from rlx_py.ir.ops.primitive.elementwise import ADD
from rlx_py.ir.ops.primitive.movement import filled
from rlx_py.passes.analysis.activity import dependents
from rlx_py.passes.derive.dead.asked import ask_at_rows
from rlx_py.passes.derive.dead.mask import Masks
from rlx_py.passes.derive.dead.sources import Found, find_masks
from rlx_py.passes.derive.differentiate import (
    ChainRule,
    fresh_prefix,
    guards,
    leaves_of,
    no_rule,
    prepared,
    zeros,
)
from rlx_py.passes.rewrite.simplify import simplify

Names = str | Iterable[str] | None


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
    chain = ChainRule(singular)
    found = pullback(seeds, list(leaves.values()), chain)
    outputs = {f"grad_{k}": g for k, g in zip(leaves, found, strict=True)}
    return simplify(fresh.derive({**outputs, **chain.outputs(outputs)}))


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
    target, chain = primal.outputs[of], ChainRule(singular)
    with origin(target):
        one = filled(1, target.tensor)
    found = pullback([(target, one)], list(leaves.values()), chain)
    values = {k: primal.outputs[k] for k in keep}
    prefix = fresh_prefix("grad", list(leaves), values)
    outputs = {prefix + k: g for k, g in zip(leaves, found, strict=True)}
    return {**outputs, **chain.outputs({**values, **outputs})}, values, primal


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


def lacks_vjp(op: Op) -> bool:
    """Whether reverse mode needs the op's decomposition."""
    return op.vjp is None


def pullback(seeds: Iterable[tuple[Node, Node]], wrt: list[Node], chain: Chain,
             visit: Callable[[list[Node]], Iterable[Node]] = reversed,
             ran: Callable[[Node], None] = lambda node: None,
             onto: Mapping[Node, Node] | None = None,
             given: Sequence[Masks] | None = None) -> list[Node]:
    """The cotangents of `wrt`, given those of some tensor nodes; zeros where nothing flows.

    Each op that is reached must have a vjp. What is made for a node carries its source line.
    `visit` takes an order with inputs first and gives one with users first; `ran` is told each node
    whose vjp has been asked. onto: of tensor nodes, what has reached them already, to which all
    else is added. given: the masks of the seeds' cotangents.
    """
    cotangents = Cotangents()
    for x, ct in (onto or {}).items():
        cotangents.add(x, 0, ct)
    roots = []
    for node, ct in seeds:
        roots.append(node)
        cotangents.add(node, 0, ct)
    given = [()] * len(roots) if given is None else given
    order = toposort(roots)
    depends = dependents(order, wrt)
    dead = find_masks(order, depends, wrt, zip(roots, given, strict=True)) if guards(chain) else \
        Found()
    for node in visit(order):
        if node not in depends or depends.isdisjoint(node.inputs) or not cotangents.reached(node):
            continue
        if node.op.vjp is None:
            raise no_rule(node, "reverse-mode")
        with origin(node):
            ct = dead.ready(node, cotangents.of(node))
            so_far = None if node.op.onto is None else cotangents.take(node.inputs)
            found = _asked(node, ct, chain, so_far, dead.of(node))
            for x, part in zip(node.inputs, found, strict=True):
                if part is not None and x in depends:
                    cotangents.receive(node, x, part)
        ran(node)
    return [cotangents.table[x, 0] if cotangents.reached(x) else zeros(x) for x in wrt]


def _asked(node: Node, ct: Cotangent, chain: Chain, so_far: Sequence[Node | None] | None,
           masks: Mapping[int, Masks]) -> Sequence[Node | None]:
    """What the rule of a node gives, at rows that have a cotangent."""
    vjp, onto = node.op.vjp, node.op.onto
    assert vjp is not None
    counts = None
    if isinstance(chain, ChainRule):
        chain.masks = masks
        counts = chain.counts if chain.singular == "report" else None
    if onto is not None:
        return onto(node, ct, chain, so_far)
    return ask_at_rows(node, masks, counts, lambda n: vjp(n, ct, chain))


class Cotangents:
    """What has reached each (node, result index); absent is zero."""

    def __init__(self) -> None:
        self.table: dict[tuple[Node, int], Node] = {}

    def reached(self, node: Node) -> bool:
        """Whether any result of the node has a cotangent."""
        if isinstance(node.type, TupleType):
            return any((node, i) in self.table for i in range(len(node.type.elements)))
        return (node, 0) in self.table

    def of(self, node: Node) -> Cotangent:
        """A node, or for several results a tuple with None for each zero."""
        if isinstance(node.type, TupleType):
            return tuple(self.table.get((node, i)) for i in range(len(node.type.elements)))
        return self.table[node, 0]

    def take(self, nodes: Sequence[Node]) -> list[Node | None]:
        """What has reached tensor nodes, which is then forgotten; once where a node is repeated."""
        return [self.table.pop((x, 0), None) for x in reversed(nodes)][::-1]

    def receive(self, user: Node, x: Node, ct: Cotangent) -> None:
        """Add what `user` gives its input x."""
        parts: Iterable[Node | None] = ct if isinstance(x.type, TupleType) else (ct,)
        types = x.type.elements if isinstance(x.type, TupleType) else (x.type,)
        for i, (part, type) in enumerate(zip(parts, types, strict=True)):
            if part is None:
                continue
            if not isinstance(part, Node):
                raise VerifyError(f"the vjp of {user.op.name} gives a {part.__class__.__name__}, "
                                  "which records nothing, not a node" + at(user.loc))
            if part.type != type:
                raise VerifyError(f"the vjp of {user.op.name} gives {part.type} for an input of "
                                  f"type {type}" + at(user.loc))
            self.add(x, i, part)

    def add(self, x: Node, index: int, ct: Node) -> None:
        """Accumulate at one result."""
        old = self.table.get((x, index))
        self.table[x, index] = ct if old is None else ADD(old, ct)
