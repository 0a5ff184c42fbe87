"""A derivative being taken, as rules are handed it (`AD` in `ir/graph/transforms.py`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlx_py.ir.base.errors import ArgumentError
from rlx_py.ir.base.types import i64
from rlx_py.ir.graph.activity import dependents
from rlx_py.ir.graph.graph import Graph
from rlx_py.ir.graph.transforms import Batcher
from rlx_py.ir.nodes.node import Node, toposort
from rlx_py.ir.ops.control.masks import Masks
from rlx_py.ir.ops.primitive.compare import AND, EQ, LT, NOT
from rlx_py.ir.ops.primitive.elementwise import ABS, CAST, GUARDED_MUL, MUL
from rlx_py.ir.ops.primitive.movement import filled
from rlx_py.ir.ops.primitive.reduce import REDUCE_SUM
from rlx_py.passes.analysis.ranges import range_of
from rlx_py.passes.batch.batched import Batching
from rlx_py.passes.derive.dead.sources import find_masks
from rlx_py.passes.derive.differentiate import fresh_prefix, prepared
from rlx_py.passes.derive.pullback import lacks_vjp, pullback
from rlx_py.passes.derive.pushforward import lacks_jvp, pushforward

SINGULAR = ("zero", "ieee", "report")


@dataclass(eq=False)
class Derivation:
    """One derivative, under a mode of singular points.

    "zero": an exact 0 contributes 0 whatever the partial is; "ieee": the plain product; "report":
    as "zero", and counts the elements where it mattered.
    """

    singular: str = "zero"
    counts: list[Node] = field(default_factory=list)
    masks: Mapping[int, Masks] = field(default_factory=dict)  # of the node whose rule is asked
    batcher: Batcher = field(default_factory=Batching)

    def __post_init__(self) -> None:
        if self.singular not in SINGULAR:
            raise ArgumentError(f"singular={self.singular!r} is not one of {', '.join(SINGULAR)}")

    def times(self, ct: Node, partial: Node) -> Node:
        """The chain rule's product under the mode of singular points."""
        if self.singular == "ieee" or range_of(partial).finite:
            return MUL(ct, partial)
        if self.singular == "report":
            self.counts.append(_singular_count(ct, partial))
        return GUARDED_MUL(ct, partial)

    def inside(self) -> Derivation:
        """The same derivative inside a body, with counts of its own."""
        return Derivation(self.singular)

    def prepared(self, graph: Graph, wrt: Iterable[Node], *, reverse: bool) -> Graph:
        """The simplified body, whose ops on the way from some leaves all have a rule of a mode."""
        return prepared(graph, wrt, lacks_vjp if reverse else lacks_jvp)

    def pull(self, seeds: Iterable[tuple[Node, Node]], wrt: list[Node],
             visit: Callable[[list[Node]], Iterable[Node]] = reversed, *,
             onto: Mapping[Node, Node] | None = None,
             given: Sequence[Masks] | None = None) -> list[Node]:
        """The cotangents of `wrt`, as `pullback`."""
        return pullback(seeds, wrt, self, visit, onto=onto, given=given)

    def push(self, roots: list[Node], seeds: Mapping[Node, Node]) -> list[Node]:
        """The tangents of roots, as `pushforward`."""
        return pushforward(roots, seeds, self)

    def masks_inside(self, outputs: Sequence[Node], wrt: Sequence[Node],
                     roots: Mapping[int, Masks]) -> dict[Node, Masks]:
        """The masks of those leaves of a body that cotangents of its results, by number, reach."""
        order = toposort(outputs)
        found = find_masks(order, dependents(order, wrt), wrt,
                           [(outputs[k], masks) for k, masks in roots.items()], self)
        return {x: found.masks[x, 0] for x in wrt if (x, 0) in found.masks}

    def outputs(self, taken: Mapping[str, Any]) -> dict[str, Node]:
        """The counts by output name."""
        prefix = fresh_prefix("singular", [str(i) for i in range(len(self.counts))], taken)
        return {f"{prefix}{i}": count for i, count in enumerate(self.counts)}


def _singular_count(ct: Node, partial: Node) -> Node:
    infinity = filled(float("inf"), partial.tensor)
    at_zero = EQ(ct, filled(0, ct.tensor))
    hits = CAST(AND(at_zero, NOT(LT(ABS(partial), infinity))), dtype=i64)
    return REDUCE_SUM(hits, axes=tuple(range(hits.rank)))
