"""Choose what is stored, and which stored values share a kernel."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

from rlx_py.ir.graph import Graph
from rlx_py.ir.index import Index, Var, atoms, row_major, substitute
from rlx_py.ir.kernel import Local, Read, Value
from rlx_py.ir.node import LEAF, PROJECT, TUPLE, Node
from rlx_py.ir.ops.constant import CONSTANT
from rlx_py.ir.stored import ContractRule, LoopRule, ReduceRule, kernel_of
from rlx_py.passes.block import Block, Place, domain_vars, place

SHARED_COST = 8  # scalar operations from which a value used twice is stored
SPREAD_COST = 4  # the same for a value that is repeated along an axis
INLINE_LIMIT = 200  # operations computed on the spot before a value is named
KERNEL_LIMIT = 600  # operations in one kernel, since compilers are not linear
ROW_ELEMENTS = 1 << 16  # elements a row may hold for its intermediates to stay in cache
MIN_ROWS = 8  # rows below which fusing a large row would leave cores idle
SMALL_WORK = 1 << 14  # elements below which idle cores do not matter


@dataclass
class Nest:
    """Members that share all their loops; `domain` is the rows and what is inside them."""

    domain: tuple[int, ...]
    outer: int | None  # axes before the reduced ones; None while no member reduces
    members: list[Node] = field(default_factory=list)


@dataclass
class Group:
    """Stored nodes computed by one kernel, in loops over common rows or behind one contract."""

    number: int
    rows: tuple[int, ...] = ()
    nests: list[Nest] = field(default_factory=list)
    contract: Node | None = None
    loops: Node | None = None
    places: dict[Node, Place] = field(default_factory=dict)  # of epilogue members, by contract vars
    scatter: Node | None = None  # the member that adds into its result; its place is its input's
    vars: tuple[Var, ...] = ()
    cost: int = 0
    above: int = 0  # bit set of the groups it depends on, itself included

    @cached_property
    def bit(self) -> int:
        """Its bit in a set of groups."""
        return 1 << self.number

    @property
    def members(self) -> list[Node]:
        """Every node it computes, in order."""
        head = [n for n in (self.contract, self.loops) if n is not None]
        return head + list(self.places)[len(head):] + [m for n in self.nests for m in n.members]


def domain(node: Node) -> tuple[tuple[int, ...], int | None]:
    """(loop extents, number of outer ones if it reduces) of an element-wise or reduce node."""
    if not isinstance(node.op.kernel, ReduceRule):
        return node.shape, None
    axes = node.attrs["axes"]
    return node.shape + tuple(node.inputs[0].shape[a] for a in axes), node.rank


def reduce_place(node: Node, index: Place) -> Place:
    """Where a reduction reads its input, given its domain index."""
    axes = node.attrs["axes"]
    kept, reduced = iter(index[: node.rank]), iter(index[node.rank:])
    return tuple(next(reduced) if a in axes else next(kept)
                 for a in range(node.inputs[0].rank))


def inline_scalar(node: Node) -> bool:
    """Whether a node is a constant that is written as a number."""
    return node.op is CONSTANT and node.size == 1 and node.rank == 0


def is_result(node: Node) -> bool:
    """Whether a node is one result of an op that writes several."""
    return node.op is PROJECT and isinstance(kernel_of(node.inputs[0]), LoopRule)


class Fusion:
    """Stored nodes of a primitive graph and their groups, in an order in which they can run."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes = graph.nodes
        self.roots = set(graph.roots)
        self.users: dict[Node, list[Node]] = {n: [] for n in self.nodes}
        for n in self.nodes:
            for i in dict.fromkeys(n.inputs):
                self.users[i].append(n)
        self.stored: set[Node] = set()
        self.inline_cost: dict[Node, int] = {}
        self._choose_stored()
        self._frontiers: dict[Node, list[Node]] = {}
        self.groups: list[Group] = []
        self.group_of: dict[Node, Group] = {}
        self.reads: dict[Node, list[tuple[Node, Place]]] = {}
        self.vars: dict[Node, tuple[Var, ...]] = {}
        self.row_readers: dict[Node, list[Group]] = {}  # kernels that read a value row by row
        for n in self.nodes:
            if n in self.stored and not self.external(n):
                self._place(n)

    # ---- what is stored ------------------------------------------------------------------------

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
            if kernel_of(n) is not None or n in self.roots or self._worth_storing(n):
                self.stored.add(n)
            if isinstance(n.op.kernel, ContractRule):
                self.stored.add(self._sink(n))

    def _sink(self, contract: Node) -> Node:
        """The last of the element-wise nodes that follow a contract one by one, each the only user:
        storing it spares the plain product."""
        node = contract
        while len(self.users[node]) == 1 and node not in self.roots:
            (user,) = self.users[node]
            if user.op.element is None or user.size != node.size or user.op is PROJECT:
                break
            node = user
        return node

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

    # ---- what shares a kernel ------------------------------------------------------------------

    def _place(self, node: Node) -> None:
        if is_result(node):
            group = self.group_of[node.inputs[0]]
            group.places[node] = ()
            self._enter(node, group)
            return
        rule = kernel_of(node)
        if isinstance(rule, ContractRule | LoopRule):
            if not (isinstance(rule, LoopRule) and rule.scatter and self._join_scatter(node)):
                self._new_group(node)
            return
        extents, outer = domain(node)
        vars = domain_vars(extents)
        self.vars[node] = vars
        self.reads[node] = self._dry_reads(node, vars)
        sources = [self.group_of[p] for p, _ in self.reads[node] if p in self.group_of]
        siblings = [g for p, i in self.reads[node] if self._leads(i, vars)
                    for g in self.row_readers.get(p, ())[-2:]]
        for group in (*_latest_first(sources), *_latest_first(siblings)):
            if self._independent(node, group) and group.cost < KERNEL_LIMIT:
                join = self._join_rows if group.contract is None else self._join_epilogue
                if join(node, group):
                    self._note_reader(node, group)
                    return
        group = self._new_group(node)
        group.rows = extents[:outer]
        group.nests.append(Nest(extents, outer, [node]))
        self._note_reader(node, group)

    @staticmethod
    def _leads(index: Place, vars: tuple[Var, ...]) -> bool:
        """Whether a read follows the outermost loop, so that sharing that loop shares the row."""
        return bool(index) and bool(vars) and vars[0].extent > 1 and index[0] == place(vars)[0]

    def _note_reader(self, node: Node, group: Group) -> None:
        if group.contract is None:
            for p, index in self.reads[node]:
                readers = self.row_readers.setdefault(p, [])
                if self._leads(index, self.vars[node]) and group not in readers:
                    readers.append(group)

    def _new_group(self, node: Node) -> Group:
        group = Group(len(self.groups))
        self.groups.append(group)
        if isinstance(node.op.kernel, ContractRule):
            group.contract = node
            group.vars = domain_vars(node.shape, "o")
            group.places[node] = place(group.vars)
        elif isinstance(kernel_of(node), LoopRule):
            group.loops = node
            group.places[node] = ()
        group.above = group.bit
        self._enter(node, group)
        return group

    def _enter(self, node: Node, group: Group) -> None:
        self.group_of[node] = group
        group.cost += 1 + self.inline_cost.get(node, 0)
        above = group.above
        for p in self.frontier(node):
            if p in self.group_of:
                above |= self.group_of[p].above
        if above != group.above:
            for other in self.groups:
                if other.above & group.bit:
                    other.above |= above

    def frontier(self, node: Node) -> list[Node]:
        """The stored nodes a stored node reads."""
        known = self._frontiers.get(node)
        if known is None:
            known = self._frontiers[node] = self._frontier(node)
        return known

    def _frontier(self, node: Node) -> list[Node]:
        found: dict[Node, None] = {}
        seen: set[Node] = set()
        work = list(node.inputs)
        while work:
            n = work.pop()
            if n in seen:
                continue
            seen.add(n)
            if n in self.stored:
                found[n] = None
            else:
                work.extend(n.inputs)
        return list(found)

    def _dry_reads(self, node: Node, vars: tuple[Var, ...]) -> list[tuple[Node, Place]]:
        """Which stored elements the node reads at its domain index."""
        found: list[tuple[Node, Place]] = []

        def record(block: Block, n: Node, index: Place, guard: Value | None) -> Value | None:
            if n not in self.stored:
                return None
            found.append((n, index))
            return Read(Local(n.dtype))

        block = Block(record)
        if isinstance(node.op.kernel, ReduceRule):
            block.value(node.inputs[0], reduce_place(node, place(vars)))
        else:
            block.compute(node, place(vars))
        return found

    def _independent(self, node: Node, group: Group) -> bool:
        """Whether no path leads from the group to the node through another group."""
        return not any(
            self.group_of[p].above & group.bit
            for p in self.frontier(node)
            if p in self.group_of and self.group_of[p] is not group
        )

    def _join_rows(self, node: Node, group: Group) -> bool:
        extents, outer = domain(node)
        if group.loops is not None:
            return False
        inside = [(p, i) for p, i in self.reads[node] if self.group_of.get(p) is group]
        full = place(self.vars[node])
        limit = min(len(group.rows), len(extents) if outer is None else outer)
        depth = 0
        while depth < limit and extents[depth] == group.rows[depth] and all(
            i[depth] == full[depth] for _, i in inside
        ):
            depth += 1
        if depth == 0 and (extents or group.rows):
            return False
        domains = [extents, *(n.domain for n in group.nests)]
        if depth < len(group.rows) or depth < len(extents):
            work = max(prod(d) for d in domains)
            if prod(extents[:depth]) < MIN_ROWS and work > SMALL_WORK:
                return False
            if any(prod(d[depth:]) > ROW_ELEMENTS for d in domains):
                return False
        self._enter_nest(node, group, inside, extents, outer)
        group.rows = group.rows[:depth]
        self._enter(node, group)
        return True

    def _enter_nest(self, node: Node, group: Group, inside: Sequence[tuple[Node, Place]],
                    extents: tuple[int, ...], outer: int | None) -> None:
        full = place(self.vars[node])
        first = 0
        for k, nest in enumerate(group.nests):
            for p, index in inside:
                if p in nest.members:
                    same = index == full and domain(p)[1] is None
                    first = max(first, k if same else k + 1)
        for nest in group.nests[first:]:
            if nest.domain == extents and (outer is None or nest.outer in (None, outer)):
                nest.members.append(node)
                nest.outer = outer if nest.outer is None else nest.outer
                return
        group.nests.append(Nest(extents, outer, [node]))

    def _join_epilogue(self, node: Node, group: Group) -> bool:
        if isinstance(node.op.kernel, ReduceRule):
            return False
        assert group.contract is not None
        if node.size != group.contract.size or node.size == 0:
            return False
        if any(p is group.scatter for p, _ in self.reads[node]):
            return False
        mine: Place | None = None
        for p, index in self.reads[node]:
            if self.group_of.get(p) is group:
                found = invert(index, self.vars[node], group.places[p])
                if found is None or (mine is not None and mine != found):
                    return False
                mine = found
        assert mine is not None
        group.places[node] = mine
        self._enter(node, group)
        return True

    def _join_scatter(self, node: Node) -> bool:
        (source,) = node.inputs
        group = self.group_of.get(source)
        if group is None or group.contract is None or group.scatter is not None:
            return False
        if self.users[source] != [node] or source in self.roots:
            return False
        if node.dtype.compute is not node.dtype or not self._independent(node, group):
            return False
        self.vars[node] = domain_vars(source.shape)
        self.reads[node] = [(source, place(self.vars[node]))]
        group.places[node] = group.places[source]
        group.scatter = node
        self._enter(node, group)
        return True

    # ---- order ---------------------------------------------------------------------------------

    def ordered(self, before: Iterable[tuple[Group, Group]] = ()) -> list[Group]:
        """The groups, each after those it reads and after those that must come before it."""
        waits: dict[int, set[int]] = {g.number: set() for g in self.groups}
        for g in self.groups:
            for m in g.members:
                for p in self.frontier(m):
                    if p in self.group_of and self.group_of[p] is not g:
                        waits[g.number].add(self.group_of[p].number)
        for first, second in before:
            waits[second.number].add(first.number)
        order: list[Group] = []
        done: set[int] = set()
        for root in self.groups:
            stack = [root.number]
            while stack:
                top = stack[-1]
                missing = sorted(w for w in waits[top] if w not in done)
                if top in done:
                    stack.pop()
                elif missing:
                    stack.extend(reversed(missing))
                else:
                    done.add(top)
                    order.append(self.groups[stack.pop()])
        return order


def _latest_first(groups: Iterable[Group]) -> list[Group]:
    return sorted({g.number: g for g in groups}.values(), key=lambda g: -g.number)


def push(node: Node, index: Place) -> tuple[Node, Place] | None:
    """One step down through pure, unguarded movement; None where that is not what it is."""
    if node.op.element is None or node.op.cost or not node.inputs:
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


def invert(index: Place, vars: tuple[Var, ...], target: Place) -> Place | None:
    """The values of `vars` at which `index` equals `target`, if each element is met once."""
    found: dict[Var, Index] = {v: Index(0) for v in vars if v.extent == 1}
    for component, wanted in zip(index, target, strict=True):
        for atom, stride in component.terms:
            if not isinstance(atom, Var) or stride < 1 or (atom in found and atom.extent != 1):
                return None
            found[atom] = (wanted // stride) % atom.extent
    if len(found) != len(vars):
        return None
    if any(substitute(c, found) != w for c, w in zip(index, target, strict=True)):
        return None
    return tuple(found[v] for v in vars)
