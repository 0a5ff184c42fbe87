"""Choose which stored values share a kernel."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

from rlx_py.ir.graph.graph import Graph
from rlx_py.ir.graph.stored import BodyRule, ContractRule, LoopRule, ReduceRule, kernel_of
from rlx_py.ir.loops.index import Var, substitute
from rlx_py.ir.loops.kernel import Read, Value
from rlx_py.ir.loops.local import Local
from rlx_py.ir.nodes.node import Node
from rlx_py.passes.lower.block import Block, Place, domain_vars, place
from rlx_py.passes.lower.invert import invert
from rlx_py.passes.lower.order import freeing_first
from rlx_py.passes.lower.storage import Storage, is_result

KERNEL_LIMIT = 600  # operations in one kernel, since compilers are not linear
ROW_ELEMENTS = 1 << 16  # elements a row may hold for its intermediates to stay in cache
MIN_ROWS = 8  # rows below which fusing a large row would leave cores idle
SMALL_WORK = 1 << 14  # elements below which idle cores do not matter


@dataclass(eq=False)
class Nest:
    """Members that share all their loops; `domain` is the rows and what is inside them."""

    domain: tuple[int, ...]
    outer: int | None  # axes before the reduced ones; None while no member reduces
    members: dict[Node, None]  # in order


@dataclass(eq=False)
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
    is_read: bool = False  # whether another group depends on it

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


class Fusion(Storage):
    """Stored nodes of a primitive graph and their groups, in an order in which they can run."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self._frontiers: dict[Node, Set[Node]] = {}
        self.groups: list[Group] = []
        self.group_of: dict[Node, Group] = {}
        self.reads: dict[Node, list[tuple[Node, Place]]] = {}
        self.vars: dict[Node, tuple[Var, ...]] = {}
        self.row_readers: dict[Node, list[Group]] = {}  # kernels that read a value row by row
        self.folds_of: dict[Node, list[Node]] = {}  # folds that read a value
        for n in self.nodes:
            if n in self.stored and not self.external(n):
                self._place(n)

    # ---- what shares a kernel ------------------------------------------------------------------

    def _place(self, node: Node) -> None:
        if is_result(node):
            group = self.group_of[node.inputs[0]]
            group.places[node] = ()
            self._enter(node, group)
            return
        rule = kernel_of(node)
        if isinstance(rule, ContractRule | LoopRule | BodyRule):
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
        siblings += self._twins(node)
        self._merge_sources(node, _latest_first(sources))
        sources = [self.group_of[p] for p, _ in self.reads[node] if p in self.group_of]
        for group in (*_latest_first(sources), *_latest_first(siblings)):
            if self._independent(node, group) and group.cost < KERNEL_LIMIT:
                join = self._join_rows if group.contract is None else self._join_epilogue
                if join(node, group):
                    self._note_reader(node, group)
                    return
        group = self._new_group(node)
        group.rows = extents[:outer]
        group.nests.append(Nest(extents, outer, {node: None}))
        self._note_reader(node, group)

    def _twins(self, node: Node) -> list[Group]:
        """Kernels of a fold over the same loops that reads an element where this one does."""
        if not isinstance(node.op.kernel, ReduceRule):
            return []
        found: list[Group] = []
        for p, index in self.reads[node]:
            for m in self.folds_of.get(p, ())[-2:]:
                if domain(m) == domain(node):
                    binding = dict(zip(self.vars[m], place(self.vars[node]), strict=True))
                    if any(q is p and tuple(substitute(i, binding) for i in where) == index
                           for q, where in self.reads[m]):
                        found.append(self.group_of[m])
        return found

    @staticmethod
    def _leads(index: Place, vars: tuple[Var, ...]) -> bool:
        """Whether a read follows the outermost loop, so that sharing that loop shares the row."""
        return bool(index) and bool(vars) and vars[0].extent > 1 and index[0] == place(vars)[0]

    def _note_reader(self, node: Node, group: Group) -> None:
        if group.contract is None:
            for p, index in self.reads[node]:
                if isinstance(node.op.kernel, ReduceRule):
                    self.folds_of.setdefault(p, []).append(node)
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
        elif isinstance(kernel_of(node), LoopRule | BodyRule):
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
            source = self.group_of.get(p, group)
            if source is not group:
                above |= source.above
                source.is_read = True
        if not group.is_read:
            group.above = above
        elif above != group.above:
            for other in self.groups:
                if other.above & group.bit:
                    other.above |= above

    def frontier(self, node: Node) -> Set[Node]:
        """The stored nodes a stored node reads, in order."""
        known = self._frontiers.get(node)
        if known is None:
            known = self._frontiers[node] = self._frontier(node)
        return known

    def _frontier(self, node: Node) -> Set[Node]:
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
        return found.keys()

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

    def _independent(self, node: Node, group: Group, but: Group | None = None) -> bool:
        """Whether no path leads from the group to the node through another group."""
        return not any(
            self.group_of[p].above & group.bit
            for p in self.frontier(node)
            if p in self.group_of and self.group_of[p] not in (group, but)
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
                nest.members[node] = None
                nest.outer = outer if nest.outer is None else nest.outer
                return
        group.nests.append(Nest(extents, outer, {node: None}))

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

    def _merge_sources(self, node: Node, sources: Sequence[Group]) -> None:
        """Make one kernel of those row kernels of the same rows that the node reads row by row."""
        full = place(self.vars[node])
        rows = [g for g in sources if g.rows and all(
            i[:len(g.rows)] == full[:len(g.rows)]
            for p, i in self.reads[node] if self.group_of.get(p) is g)]
        for late, early in zip(rows, rows[1:], strict=False):
            if late.rows == early.rows and self._mergeable(late, early):
                self._merge(late, early)
                return

    def _mergeable(self, late: Group, early: Group) -> bool:
        if late.cost + early.cost > KERNEL_LIMIT or prod(late.rows) < MIN_ROWS:
            return False
        depth = len(late.rows)
        for group, other in ((late, early), (early, late)):
            for m in group.members:
                if not self._independent(m, other, but=group):
                    return False
                full = place(self.vars[m])
                inside = [i for p, i in self.reads[m] if self.group_of.get(p) is other]
                if inside and (other is late or any(i[:depth] != full[:depth] for i in inside)):
                    return False
        return True

    def _merge(self, late: Group, early: Group) -> None:
        """Move everything of the later kernel, which may read the earlier one, behind it."""
        for m in late.members:
            self.group_of[m] = early
        early.nests += late.nests
        early.cost += late.cost
        early.above |= late.above
        early.is_read = True
        late.nests = []
        for group in self.groups:
            if group.above & (early.bit | late.bit):
                group.above |= early.above
        for readers in self.row_readers.values():
            readers[:] = dict.fromkeys(early if g is late else g for g in readers)

    def _join_scatter(self, node: Node) -> bool:
        (source,) = node.inputs
        group = self.group_of.get(source)
        if group is None or group.contract is None or group.scatter is not None:
            return False
        if len(self.users[source]) != 1 or source in self.roots:
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
        for root in (g for g in self.groups if g.members):
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
        return self._freeing_first(order, waits)

    def _freeing_first(self, order: list[Group], waits: dict[int, set[int]]) -> list[Group]:
        reads: dict[int, dict[int, int]] = {}
        for g in order:
            reads[g.number] = {
                id(p): _bytes(p) for m in g.members for p in self.frontier(m)
                if p in self.group_of and self.group_of[p] is not g and p not in self.roots}
        wanted = {p for found in reads.values() for p in found}
        writes = {g.number: sum(_bytes(m) for m in g.members if id(m) in wanted) for g in order}
        numbers = freeing_first([g.number for g in order], waits, reads, writes)
        return [self.groups[n] for n in numbers]


def _bytes(node: Node) -> int:
    return node.size * node.dtype.numpy.itemsize


def _latest_first(groups: Iterable[Group]) -> list[Group]:
    return sorted({g.number: g for g in groups}.values(), key=lambda g: -g.number)
