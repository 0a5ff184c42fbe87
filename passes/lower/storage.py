"""Choose what is stored: which values get memory, and which are computed where they are asked."""

from __future__ import annotations

from math import prod

from rlx_py.ir.base.types import TupleType
from rlx_py.ir.graph.graph import Graph
from rlx_py.ir.graph.stored import BodyRule, ContractRule, LoopRule, kernel_of
from rlx_py.ir.loops.index import Var, atoms, row_major
from rlx_py.ir.loops.kernel import Read
from rlx_py.ir.loops.local import Local
from rlx_py.ir.nodes.node import LEAF, PROJECT, TUPLE, Node
from rlx_py.ir.ops.making.constant import CONSTANT
from rlx_py.ir.ops.primitive.movement import RESHAPE, SLICE
from rlx_py.passes.lower.block import Place, domain_vars, place

SHARED_COST = 8  # scalar operations from which a value used twice is stored
SPREAD_COST = 4  # the same for a value that is repeated along an axis
INLINE_LIMIT = 200  # operations computed on the spot before a value is named


def inline_scalar(node: Node) -> bool:
    """Whether a node is a constant that is written as a number."""
    return node.op is CONSTANT and node.size == 1 and node.rank == 0


def is_result(node: Node) -> bool:
    """Whether a node is one result of an op that writes several."""
    return node.op is PROJECT and isinstance(kernel_of(node.inputs[0]), LoopRule | BodyRule)


def contiguous(node: Node) -> tuple[Node, int] | None:
    """The input whose elements those of a node are, in their order, and the first of them."""
    if node.op is RESHAPE:
        return node.inputs[0], 0
    if node.op is SLICE and all(s == 1 for s in node.attrs["step"]):
        (x,) = node.inputs
        if node.rank and node.shape[1:] == x.shape[1:]:
            return x, node.attrs["start"][0] * prod(x.shape[1:])
    return None


class Storage:
    """The nodes of a primitive graph that are stored: products, reductions, loops, roots, and what
    is dearer to compute again."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes = graph.nodes
        self.roots = set(graph.roots)
        self.users: dict[Node, list[Node]] = {n: [] for n in self.nodes}
        for n in self.nodes:
            for i in dict.fromkeys(n.inputs):
                self.users[i].append(n)
        self.last: dict[Node, Node] = {}
        for n in reversed(self.nodes):
            follower = self._follower(n)
            self.last[n] = n if follower is None else self.last[follower]
        self.stored: set[Node] = set()
        self.inline_cost: dict[Node, int] = {}
        self._choose_stored()

    @staticmethod
    def external(node: Node) -> bool:
        """Whether memory holds the node before any kernel runs."""
        return node.op is LEAF or node.op is CONSTANT

    def _choose_stored(self) -> None:
        for n in self.nodes:
            if n.op is TUPLE or n.op is PROJECT:
                if is_result(n):
                    self.stored.add(n)
                continue
            if self.external(n):
                if not inline_scalar(n):
                    self.stored.add(n)
                continue
            if isinstance(n.op.kernel, ContractRule):
                for operand in n.inputs:
                    self._store_operand(operand)
            elif isinstance(kernel_of(n), LoopRule):
                for operand in n.inputs:
                    if self.inline_cost.get(operand, 0) >= SHARED_COST:
                        self.stored.add(operand)
            elif isinstance(n.op.kernel, BodyRule):
                for k in n.op.kernel.reads(n):
                    self._store_whole(n.inputs[k])
            if kernel_of(n) is not None or n in self.roots or self._worth_storing(n):
                self.stored.add(n)
            if isinstance(n.op.kernel, ContractRule):
                # Of the nodes that follow one by one the last: storing it spares the plain product.
                self.stored.add(self.last[n])

    def _store_whole(self, node: Node) -> None:
        """Store what a node is a contiguous part of."""
        while node not in self.stored and (part := contiguous(node)) is not None:
            node = part[0]
        if not inline_scalar(node):
            self.stored.add(node)

    def _follower(self, node: Node) -> Node | None:
        """The element-wise node of the same size that is the only user of a node."""
        users = self.users[node]
        if len(users) != 1 or node in self.roots or isinstance(node.type, TupleType):
            return None
        (user,) = users
        if user.op.element is None or user.op is PROJECT or user.size != node.size:
            return None
        return user

    def _worth_storing(self, node: Node) -> bool:
        cost = node.op.cost + sum(
            0 if i in self.stored else self.inline_cost.get(i, 0) for i in node.inputs)
        self.inline_cost[node] = cost
        if cost >= INLINE_LIMIT:
            return True
        users = self.users[node]
        if cost >= SPREAD_COST and any(u.op.cost == 0 and u.op.element and u.size > node.size
                                       for u in users):
            return True
        return cost >= SHARED_COST and len(users) > 1

    def _store_operand(self, operand: Node) -> None:
        """Store the deepest value that a contract can read through an affine index into memory."""
        node, index = operand, place(domain_vars(operand.shape))
        best = operand
        while not inline_scalar(node):
            if all(isinstance(a, Var) for a in atoms(row_major(index, node.shape))):
                best = node
            if node in self.stored:
                break
            pushed = push(node, index)
            if pushed is None:
                break
            node, index = pushed
        if not inline_scalar(best):
            self.stored.add(best)


def push(node: Node, index: Place) -> tuple[Node, Place] | None:
    """One step down through pure, unguarded movement; None where that is not what it is."""
    if node.op.element is None or node.op.cost or not node.inputs or not node.size:
        return None
    steps = node.op.element(node, index)
    try:
        ask = next(steps)
    except StopIteration:
        return None
    if isinstance(ask[0], str) or (len(ask) == 3 and ask[2] is not None):
        return None
    marker = Read(Local(node.dtype))
    try:
        steps.send(marker)
    except StopIteration as stop:
        if stop.value is marker:
            return node.inputs[ask[0]], ask[1]
    return None
