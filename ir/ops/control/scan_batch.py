"""Loops over elements that are batched: one loop for all, some of which may end before others."""

from __future__ import annotations

from collections.abc import Sequence

from rlx_py.ir.base.types import TensorType, i64
from rlx_py.ir.graph.body import graph_of
from rlx_py.ir.graph.transforms import Batcher, Value
from rlx_py.ir.nodes.node import Node, leaf, pack, project
from rlx_py.ir.ops.control.scan import loop_node, loop_of
from rlx_py.ir.ops.making.batching import moved, repeated, size_of, spread_out
from rlx_py.ir.ops.making.constant import IOTA
from rlx_py.ir.ops.primitive.compare import LT
from rlx_py.ir.ops.primitive.elementwise import ADD, SELECT, cast
from rlx_py.ir.ops.primitive.movement import filled, spread
from rlx_py.ir.ops.primitive.reduce import ANY, REDUCE_MAX


def batch_loop(node: Node, inputs: Sequence[Node], batched: Sequence[bool], batcher: Batcher
               ) -> Node:
    """The loop for every element of a new first axis of some inputs.

    Where elements differ in their number of steps, all run as many as the longest, and those that
    have ended keep their carries and give zeros.
    """
    return pack(_Elements(node, inputs, batched, batcher).results())


class _Elements:
    def __init__(self, node: Node, inputs: Sequence[Node], batched: Sequence[bool],
                 batcher: Batcher) -> None:
        self.node, self.loop, self.batcher = node, loop_of(node), batcher
        self.size = size_of(inputs, batched)
        self.count, self.first, self.given, self.shared = self.loop.split(inputs)
        count, first, given, shared = self.loop.split(batched)
        self.carries, self.xs, self.consts = self.loop.leaves()
        self.marked = {x for x, b in zip([*self.carries, *self.xs, *self.consts],
                                         [*first, *given, *shared], strict=True) if b}
        self.uneven = any(count) or self._condition_differs()
        if self.uneven:
            self.marked |= set(self.carries)
        self.results_in = self._closure()

    def _condition_differs(self) -> bool:
        if not self.loop.cond:
            return False
        self._closure()
        return self._conditions(self.leaves).batched

    def _closure(self) -> list[Value]:
        """The body's results, when every carry that comes to differ between elements is marked."""
        while True:
            self.leaves = self._stand_ins([*self.carries, *self.xs, *self.consts])
            found = self.batcher.results(graph_of(self.loop.body), self.leaves, self.size)
            fresh = {x for x, y in zip(self.carries, found, strict=False) if y.batched}
            if fresh <= self.marked:
                return found
            self.marked |= fresh

    def _stand_ins(self, leaves: Sequence[Node]) -> dict[Node, Value]:
        """For each leaf one of the new body, with the batch axis where it differs."""
        found = {}
        for i, x in enumerate(leaves):
            shape = (self.size, *x.shape) if x in self.marked else x.shape
            fresh = leaf(f"b{i}", "input", x.tensor.with_shape(shape))
            found[x] = Value(fresh, x in self.marked)
        return found

    def _conditions(self, leaves: dict[Node, Value]) -> Value:
        """Which elements go on."""
        graph = graph_of(self.loop.cond)
        read = [leaves[x] for x in (*self.carries, *self.consts)]
        given = dict(zip(graph.inputs.values(), read, strict=True))
        return self.batcher.results(graph, given, self.size)[0]

    def results(self) -> list[Node]:
        """The results of the loop for all elements, the batch axis first."""
        n = self.loop.carries
        carries = [self._outside(x, v) for x, v in zip(self.carries, self.first, strict=True)]
        xs = [moved(v, 0, 1) if x in self.marked else v
              for x, v in zip(self.xs, self.given, strict=True)]
        leaves = [v.node for v in self.leaves.values()]
        after = [spread_out(y, self.size) if x in self.marked else y.node
                 for x, y in zip(self.carries, self.results_in, strict=False)]
        ys = [y.node for y in self.results_in[n:]]
        flags = [y.batched for y in self.results_in[n:]]
        if self.uneven:
            made = self._uneven(carries, xs, leaves, after)
            flags = [True] * len(ys)
        else:
            cond = None
            if self.loop.cond:
                tested = self._stand_ins([*self.carries, *self.consts])
                cond = [v.node for v in tested.values()], self._conditions(tested).node
            whole = loop_node(self.count[0] if self.count else None, carries, xs, self.shared,
                              leaves, [*after, *ys], length=self.loop.length,
                              reverse=self.loop.reverse, cond=cond, keep=self.loop.keep)
            made = [project(whole, k) for k in range(n + len(ys))]
            if self.loop.cond:
                made.append(project(whole, len(whole) - 1))
        finals = [v if x in self.marked else repeated(v, self.size)
                  for x, v in zip(self.carries, made, strict=False)]
        stacks = [moved(v, 1, 0) if b else repeated(v, self.size)
                  for v, b in zip(made[n:], flags, strict=False)]
        steps = [v if self.uneven else repeated(v, self.size) for v in made[n + len(ys):]]
        return [*finals, *stacks, *steps]

    def _outside(self, x: Node, value: Node) -> Node:
        same = value.shape == ((self.size, *x.shape) if x in self.marked else x.shape)
        return value if same else repeated(value, self.size)

    def _uneven(self, carries: list[Node], xs: list[Node], leaves: list[Node],
                after: list[Node]) -> list[Node]:
        """Carries, stacks and, under a condition, the steps each element took."""
        n, length = self.loop.carries, self.loop.length
        old, rest = leaves[:n], leaves[n:]
        slices, consts = rest[:len(xs)], rest[len(xs):]
        steps = TensorType(i64, (self.size,))
        cond: tuple[list[Node], Node] | None = None
        count: Node | None = None
        extra: list[tuple[Node, Node, Node]] = []  # further carries: leaf, first value, next one
        if self.loop.cond:
            alive = self._conditions(self.leaves).node
            taken = leaf("taken", "input", steps)
            extra = [(taken, filled(0, steps), ADD(taken, cast(alive, i64)))]
            tested = self._stand_ins([*self.carries, *self.consts])
            goes_on = ANY(self._conditions(tested).node, axes=(0,))
            own = [v.node for v in tested.values()]
            cond = [*own[:n], leaf("taken", "input", steps), *own[n:]], goes_on
        else:
            position, each = leaf("position", "input", TensorType(i64, ())), self.count[0]
            bound = leaf("bound", "input", each.tensor)
            alive = LT(spread(position, (self.size,), ()), bound)
            slices, consts = [*slices, position], [*consts, bound]
            xs = [*xs, IOTA(shape=(length,), axis=0, dtype=i64)]
            count = REDUCE_MAX(each, axes=(0,))
        results = [_where(alive, a, b) for a, b in zip(after, old, strict=True)]
        results += [a for _, _, a in extra]
        for value in self.results_in[n:]:
            wide = spread_out(value, self.size)
            results.append(_where(alive, wide, filled(0, wide.tensor)))
        fixed = self.shared if self.loop.cond else [*self.shared, self.count[0]]
        made = loop_node(count, [*carries, *(f for _, f, _ in extra)], xs, fixed,
                         [*old, *(x for x, _, _ in extra), *slices, *consts], results,
                         length=length, reverse=self.loop.reverse, cond=cond, keep=self.loop.keep)
        found = [project(made, k) for k in range(len(results))]
        return [*found[:n], *found[n + len(extra):], *found[n:n + len(extra)]]


def _where(alive: Node, a: Node, b: Node) -> Node:
    """a where an element goes on, else b."""
    return SELECT(spread(alive, a.shape, (0,)), a, b)
