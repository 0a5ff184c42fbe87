"""Loops on their way to code: what nobody reads dropped, what does not change moved out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rlx_py.ir.base.types import TupleType, bool_
from rlx_py.ir.graph.body import graph_of
from rlx_py.ir.graph.graph import Graph
from rlx_py.ir.graph.stored import BodyEmitter, BodyRule, ContractRule
from rlx_py.ir.loops.kernel import Buffer, Scope
from rlx_py.ir.loops.program import Loop as LoopRegion
from rlx_py.ir.loops.program import Slice
from rlx_py.ir.nodes.graph_base import State
from rlx_py.ir.nodes.node import PROJECT, Node, leaf, make, project, toposort
from rlx_py.ir.ops.control.region import over, placeholders
from rlx_py.ir.ops.control.scan import Loop, bare_loop, loop_of
from rlx_py.ir.ops.making.constant import CONSTANT
from rlx_py.ir.ops.primitive.movement import BROADCAST, TRANSPOSE, filled

SMALL = 64  # elements that are always worth keeping from step to step


def prune_loop(node: Node, asked: Mapping[int, Node]) -> dict[int, Node]:
    """For each result asked for, a node of a loop that computes no more than those."""
    return _Pruning(node).results(asked)


class _Pruning:
    """What a new body reads, while it is written."""

    def __init__(self, node: Node) -> None:
        self.node, self.loop = node, loop_of(node)
        self.carries, self.xs, self.consts = self.loop.leaves()
        count, self.first, given, shared = self.loop.split(node.inputs)
        self.count = count[0] if count else None
        self.sliced = frozenset(self.xs)
        self.outside = dict(zip([*self.xs, *self.consts], [*given, *shared], strict=True))
        self.outputs = list(graph_of(self.loop.body).outputs.values())
        self.test = condition(self.loop)
        self.slices: dict[Node, Node] = {}  # leaves of the new body, and what they are outside
        self.fixed: dict[Node, Node] = {}

    def results(self, asked: Mapping[int, Node]) -> dict[int, Node]:
        """The results asked for."""
        n, steps = self.loop.carries, len(self.node) - 1
        if self.loop.length == 0 and self.test is None:
            return {k: self.first[k] if k < n else filled(0, old.tensor)
                    for k, old in asked.items()}
        found: dict[int, Node] = {}
        live = self._live(asked)
        for k in list(live):
            if self.outputs[k] is self.carries[k]:
                self.outside[self.carries[k]] = self.first[k]
                live.remove(k)
        found |= {k: self.first[k] for k in asked if k < n and k not in live}
        stacked = [k for k in asked if n <= k < len(self.outputs)]
        whole = self.count is None and self.test is None
        for k in list(stacked):
            if whole and self.outputs[k] in self.sliced:
                found[k] = self.outside[self.outputs[k]]
                stacked.remove(k)
        if whole and not live and not stacked:
            return found
        made = self._made(live, stacked)
        at = {k: i for i, k in enumerate((*live, *stacked))}
        if self.test is not None:
            at[steps] = len(made) - 1
        return found | {k: project(made, at[k]) for k in asked if k not in found}

    def _live(self, asked: Mapping[int, Node]) -> list[int]:
        """The carries that are asked for, or that those rest on."""
        live = {k for k in asked if k < self.loop.carries}
        while True:
            roots = [self.outputs[k] for k in {*live, *asked} if k < len(self.outputs)]
            reached = set(toposort([*roots, *([] if self.test is None else [self.test])]))
            more = {k for k, x in enumerate(self.carries) if x in reached} - live
            if not more:
                return sorted(live)
            live |= more

    def _made(self, live: Sequence[int], stacked: Sequence[int]) -> Node:
        moving = {self.carries[k]: leaf(f"s{k}", "input", self.carries[k].type) for k in live}
        values = dict(moving)
        for x in self.outside:
            values[x] = self._slice(x) if x in self.sliced else self._local(self.outside[x])
        roots = [self.outputs[k] for k in (*live, *stacked)]
        tested = [] if self.test is None else [self.test]
        written = self._hoisted(over([*roots, *tested], values))
        reached = set(toposort(written))
        slices = {x: v for x, v in self.slices.items() if x in reached}
        fixed = {x: v for x, v in self.fixed.items() if x in reached}
        cond = ([*moving.values(), *fixed], written[-1]) if tested else None
        return bare_loop(self.count, [self.first[k] for k in live], list(slices.values()),
                         list(fixed.values()), [*moving.values(), *slices, *fixed],
                         written[:len(roots)], length=self.loop.length,
                         reverse=self.loop.reverse, cond=cond, keep=self.loop.keep)

    def _slice(self, x: Node) -> Node:
        """What stands for a slice: a new leaf, or a value that is the same at each step."""
        sequence = self.outside[x]
        if sequence.op is BROADCAST and 0 not in sequence.attrs["axes"]:
            axes = tuple(a - 1 for a in sequence.attrs["axes"])
            return make(BROADCAST, [self._local(sequence.inputs[0])],
                        {"shape": x.shape, "axes": axes})
        (own,) = placeholders(f"x{len(self.slices)}_", [x])
        self.slices[own] = sequence
        return own

    def _local(self, outer: Node) -> Node:
        """What stands for a value from outside: a new leaf, but numbers are written inside."""
        if outer.op is CONSTANT and not outer.rank:
            return outer
        if outer.op is BROADCAST:
            return make(BROADCAST, [self._local(outer.inputs[0])], outer.attrs)
        for own, value in self.fixed.items():
            if value is outer:
                return own
        (own,) = placeholders(f"c{len(self.fixed)}_", [outer])
        self.fixed[own] = outer
        return own

    def _hoisted(self, roots: Sequence[Node]) -> list[Node]:
        """The roots, in which what is the same at each step and dear is read from outside."""
        still = set(self.fixed)
        taken: dict[Node, None] = {}
        order = toposort(roots)
        for node in order:
            if node.inputs and all(x in still or x.op is CONSTANT for x in node.inputs):
                still.add(node)
        work = [(x, node) for node in order if node not in still for x in node.inputs]
        while work:
            node, user = work.pop()
            if node in still and node not in self.fixed and node not in taken:
                if _worth(node, user):
                    taken[node] = None
                else:
                    work += [(x, node) for x in node.inputs]
        own = dict(zip(taken, placeholders("h", taken), strict=True))
        values = dict(zip(own, over(list(own), self.fixed), strict=True))
        self.fixed |= {own[node]: value for node, value in values.items()}
        return over(roots, own)


def _worth(node: Node, user: Node) -> bool:
    """Whether a value is better read than computed at each step."""
    if node.op is PROJECT:
        return True
    if node.op is CONSTANT or isinstance(node.type, TupleType):
        return False
    if node.size > max([SMALL, *(x.size for x in node.inputs)]):
        return False
    return (node.op.cost > 0 or node.op.element is None
            or (node.op is TRANSPOSE and isinstance(user.op.kernel, ContractRule)))


def condition(loop: Loop) -> Node | None:
    """The condition of a loop over the leaves of its body."""
    if not loop.cond:
        return None
    graph = graph_of(loop.cond)
    carries, _, consts = loop.leaves()
    own = dict(zip(graph.inputs.values(), [*carries, *consts], strict=True))
    return over(list(graph.outputs.values()), own)[0]


# ---- code --------------------------------------------------------------------------------------


def build_loop(node: Node, e: BodyEmitter) -> None:
    """Carries are states of the body, updated in place; slices move along the stacks."""
    loop, graph = loop_of(node), graph_of(node.attrs["body"])
    n, names, outputs = loop.carries, list(graph.inputs), list(graph.outputs.values())
    counted = int(loop.counted)
    for k in range(n):
        e.copy(e.result(k), counted + k)
    for k in range(n, len(outputs)):
        if loop.counted or loop.cond:
            e.clear(e.result(k))
    place, first, slices = e.open(), e.here(), dict[Buffer, Slice]()

    def part(of: Buffer, like: Node, stride: int, start: int) -> Buffer:
        found = Buffer("slice", like.dtype, like.size, Scope.SLICE)
        slices[found] = Slice(of, stride, start)
        return found

    buffers = {name: e.result(k) for k, name in enumerate(names[:n])}
    for k, (name, x) in enumerate(list(graph.inputs.items())[n:], counted + n):
        held, start = e.held(k)
        moves = k < counted + n + loop.xs
        still = not moves and start == 0 and held.size == x.size
        buffers[name] = held if still else part(held, x, x.size if moves else 0, start)
    results = {f"y{k}": part(e.result(k), y, y.size, 0) for k, y in enumerate(outputs) if k >= n}
    held_condition = None
    if loop.cond:
        held_condition = e.buffer(bool_, 1)
        tested = graph_of(loop.cond)
        told = [*names[:n], *names[n + loop.xs:]]
        e.run(tested, {a: buffers[b] for a, b in zip(tested.inputs, told, strict=True)},
              {"y0": held_condition})
    test = e.here()
    e.run(_stateful(graph, n), buffers, results)
    e.close(place, LoopRegion(
        first, e.here(), loop.length, loop.reverse, slices,
        e.held(0)[0] if loop.counted else None, held_condition, test,
        e.result(len(node) - 1) if loop.cond else None))


def _stateful(graph: Graph, carries: int) -> Graph:
    """The body with its carries as states."""
    names, results = list(graph.inputs), list(graph.outputs.items())
    found = Graph("body")
    found.inputs = {k: graph.inputs[k] for k in names[carries:]}
    found.states = {k: State(graph.inputs[k], 0, y)
                    for k, (_, y) in zip(names[:carries], results, strict=False)}
    found.outputs = dict(results[carries:])
    return found


def _reads(node: Node) -> Sequence[int]:
    loop = loop_of(node)
    first = int(loop.counted) + loop.carries
    return [*range(int(loop.counted)), *range(first, len(node.inputs))]


LOOP_PROGRAM = BodyRule(build_loop, prune_loop, _reads)
