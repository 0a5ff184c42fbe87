"""Reverse mode through nodes: what cotangents become on the way from results to leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from rlx_py.ir.base.errors import VerifyError
from rlx_py.ir.base.types import TupleType
from rlx_py.ir.graph.activity import dependents
from rlx_py.ir.graph.transforms import AD
from rlx_py.ir.nodes.node import Cotangent, Node, Op, at, origin, toposort
from rlx_py.ir.ops.control.masks import Masks
from rlx_py.ir.ops.control.region import zeros
from rlx_py.ir.ops.primitive.elementwise import ADD
from rlx_py.passes.derive.dead.asked import ask_at_rows
from rlx_py.passes.derive.dead.sources import Found, find_masks
from rlx_py.passes.derive.differentiate import no_rule


def lacks_vjp(op: Op) -> bool:
    """Whether reverse mode needs the op's decomposition."""
    return op.vjp is None


def pullback(seeds: Iterable[tuple[Node, Node]], wrt: list[Node], ad: AD,
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
    dead = Found() if ad.singular == "ieee" else find_masks(
        order, depends, wrt, zip(roots, given, strict=True), ad)
    for node in visit(order):
        if node not in depends or depends.isdisjoint(node.inputs) or not cotangents.reached(node):
            continue
        if node.op.vjp is None:
            raise no_rule(node, "reverse-mode")
        with origin(node):
            ct = dead.ready(node, cotangents.of(node))
            so_far = None if node.op.onto is None else cotangents.take(node.inputs)
            found = _asked(node, ct, ad, so_far, dead.of(node))
            for x, part in zip(node.inputs, found, strict=True):
                if part is not None and x in depends:
                    cotangents.receive(node, x, part)
        ran(node)
    return [cotangents.table[x, 0] if cotangents.reached(x) else zeros(x) for x in wrt]


def _asked(node: Node, ct: Cotangent, ad: AD, so_far: Sequence[Node | None] | None,
           masks: Mapping[int, Masks]) -> Sequence[Node | None]:
    """What the rule of a node gives, at rows that have a cotangent."""
    vjp, onto = node.op.vjp, node.op.onto
    assert vjp is not None
    ad.masks = masks
    if onto is not None:
        return onto(node, ct, ad, so_far)
    counts = ad.counts if ad.singular == "report" else None
    return ask_at_rows(node, masks, counts, lambda n: vjp(n, ct, ad))


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
