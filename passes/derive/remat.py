"""What a backward pass finds kept, where it may keep so many bytes: by minimum cuts.

Every value that the backward pass reads is kept, or computed again from others that are kept or
computed again; the arguments of the region are there for nothing. The kept bytes and w times the
work done again, together, are least where a cut is least: each value is two points of a network,
`again` and `there`. An edge from the source to `again` costs w times its work, one from `again` to
`there` its bytes, and there is no bound where something must not be: a value that is computed again
while an input is not there, one that is read and is not there.

The weight w goes along the convex hull of all choices to its two corners around the budget; between
them single values are kept, those that save most work a byte first. Equal ones are spread over the
region, so that the stretches between, which live while they are computed again, are short.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby
from math import prod

from rlx_py.ir.base.errors import ArgumentError
from rlx_py.ir.base.types import TensorType, TupleType
from rlx_py.ir.graph.body import Body, graph_of
from rlx_py.ir.graph.graph import Graph
from rlx_py.ir.graph.query import minimum_cut
from rlx_py.ir.graph.stored import ContractRule
from rlx_py.ir.nodes.node import LEAF, PROJECT, TUPLE, Node, at, toposort, user_location
from rlx_py.ir.ops.control.region import placeholders
from rlx_py.ir.ops.making.families import POLYNOMIAL
from rlx_py.passes.derive.derivation import Derivation
from rlx_py.passes.rewrite.simplify import simplify

_SOURCE, _SINK = "source", "sink"


@dataclass(frozen=True, eq=False)
class Choice:
    """Values to keep, the bytes they hold and the work that is done again."""

    kept: frozenset[Node]
    bytes: int
    work: int


def affordable(graph: Graph, most: int) -> list[Node]:
    """The intermediates of a prepared graph to keep for its backward pass, in their order, of no
    more than so many bytes together. Raises ArgumentError where sizes are not known."""
    if any(not isinstance(size, int) for n in graph.nodes for t in _types(n) for size in t.shape):
        raise ArgumentError("a budget of bytes needs sizes that are known" + at(user_location()))
    values, needed = _read_again(graph)
    search = _Search(values, needed)
    low, high = search.choice(()), search.cut(search.total + 1, 1)
    if high.bytes > most:
        while True:
            weight, scale = high.bytes - low.bytes, low.work - high.work
            middle = search.cut(weight, scale)
            if _score(middle, weight, scale) >= _score(low, weight, scale):
                break
            low, high = (middle, high) if middle.bytes <= most else (low, middle)
        high = search.filled(low, high, most)
    return [values[n] for n in search.order if n in high.kept]


def _score(choice: Choice, weight: int, scale: int) -> int:
    return choice.work * weight + choice.bytes * scale


def _types(node: Node) -> tuple[TensorType, ...]:
    return node.type.elements if isinstance(node.type, TupleType) else (node.type,)


def _read_again(graph: Graph) -> tuple[dict[Node, Node], list[Node]]:
    """Values of the forward pass as the simplified backward pass sees them, each with its node in
    the graph, and those that the backward pass reads."""
    results = [n for n in graph.outputs.values() if n.dtype.is_float]
    floats = [n for n in graph.inputs.values() if n.dtype.is_float]
    forward = [n for n in toposort(graph.outputs.values()) if n.op is not LEAF]
    cts = placeholders("ct", results)
    found = Derivation().pull(list(zip(results, cts, strict=True)), floats)
    both = simplify(graph.derive({str(i): n for i, n in enumerate([*found, *forward])}))
    roots = list(both.outputs.values())
    values: dict[Node, Node] = {}
    for image, node in zip(roots[len(found):], forward, strict=True):
        values.setdefault(image, node)
    backward, needed = set(cts), dict[Node, None]()
    for n in toposort(roots[:len(found)]):
        if not backward.isdisjoint(n.inputs):
            backward.add(n)
            needed |= dict.fromkeys(n.inputs)
    needed |= dict.fromkeys(roots[:len(found)])
    return values, [n for n in needed if n not in backward]


class _Search:
    """The network of a region, and choices in it."""

    def __init__(self, values: dict[Node, Node], needed: list[Node]) -> None:
        fixed = set[Node]()  # rests on no argument: computed anywhere for next to nothing
        self.order: list[Node] = []
        for n in toposort(needed):
            if n.op is not LEAF and fixed.issuperset(n.inputs):
                fixed.add(n)
            elif n.op is not LEAF:
                self.order.append(n)
        inside = set(self.order)
        self.needed = [n for n in needed if n in inside]
        self.inputs = {n: [x for x in n.inputs if x in inside] for n in self.order}
        # What the forward pass does not compute is computed once, wherever that is.
        self.work = {n: work_of(n) if n in values else 0 for n in self.order}
        self.bytes = {n: n.type.nbytes for n in self.order
                      if n in values and not isinstance(n.type, TupleType)}
        self.total = sum(self.bytes.values())

    def choice(self, kept: Iterable[Node]) -> Choice:
        """A choice without what it keeps for nothing."""
        allowed, used, again = frozenset(kept), set[Node](), set[Node]()
        stack = list(self.needed)
        while stack:
            n = stack.pop()
            if n in allowed:
                used.add(n)
            elif n not in again:
                again.add(n)
                stack += self.inputs[n]
        return Choice(frozenset(used), sum(self.bytes[n] for n in used),
                      sum(self.work[n] for n in again))

    def cut(self, weight: int, scale: int) -> Choice:
        """A choice for which weight·work + scale·bytes is least."""
        edges: list[tuple[object, object, int | None]] = [
            (("there", n), _SINK, None) for n in self.needed]
        for n in self.order:
            again, there = ("again", n), ("there", n)
            if self.work[n]:
                edges.append((_SOURCE, again, weight * self.work[n]))
            if n in self.bytes:
                edges.append((again, there, scale * self.bytes[n]))
            else:
                edges.append((again, there, None))
            edges += [(("there", x), again, None) for x in self.inputs[n]]
        side = minimum_cut(edges, _SOURCE, _SINK)
        return self.choice(n for n in self.bytes
                           if ("again", n) in side and ("there", n) not in side)

    def filled(self, low: Choice, high: Choice, most: int) -> Choice:
        """The lower choice and as many values of the higher one as the budget holds."""
        place = {n: i for i, n in enumerate(self.order)}

        def rank(n: Node) -> tuple[Fraction, int]:
            return (-Fraction(self.work[n], max(self.bytes[n], 1)), self.bytes[n])

        for (_, size), group in groupby(sorted(high.kept - low.kept, key=lambda n: (
                *rank(n), place[n])), key=rank):
            alike = list(group)
            for n in _spread(alike, (most - low.bytes) // max(size, 1)):
                better = self.choice((*low.kept, n))
                if better.work < low.work and better.bytes <= most:
                    low = better
        return low


def _spread(entries: Sequence[Node], count: int) -> list[Node]:
    """So many of them, at equal distances; all, if there are fewer."""
    if count >= len(entries):
        return list(entries)
    return [entries[(i + 1) * len(entries) // (count + 1)] for i in range(count)]


def work_of(node: Node) -> int:
    """Scalar operations, about, that it takes to compute a node from its inputs."""
    op = node.op
    if op in (LEAF, PROJECT, TUPLE) or not node.inputs:
        return 0
    size = sum(t.size for t in _types(node))
    if isinstance(op.kernel, ContractRule):
        axes = op.kernel.dims(node).a_contract
        return 2 * size * prod(node.inputs[0].shape[a] for a in axes)
    if op.element is not None:
        return op.cost * size
    if op.kernel is not None:
        return max(op.cost, 1) * max(size, *(n.size for n in node.inputs))
    bodies = [v for v in node.attrs.values() if isinstance(v, Body)]
    if bodies:
        steps = node.attrs.get("length") or 1
        return steps * sum(work_of(n) for b in bodies for n in graph_of(b).nodes)
    if op.decompose is not None:
        parts = op.decompose(*placeholders("x", node.inputs), **node.attrs)
        return sum(work_of(n) for n in toposort([parts] if isinstance(parts, Node) else parts))
    return POLYNOMIAL * size
