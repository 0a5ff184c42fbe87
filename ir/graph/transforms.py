"""What rules are handed: the transform that asks them, as they see it. Passes implement these."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rlx_py.ir.graph.graph import Graph
from rlx_py.ir.nodes.node import Node


@dataclass(frozen=True, eq=False)
class Value:
    """What a node became for many elements, and whether it has the batch axis, its first one."""

    node: Node
    batched: bool


class Batcher(Protocol):
    """Batching, as the rules it asks see it."""

    def results(self, graph: Graph, leaves: Mapping[Node, Value], size: int) -> list[Value]:
        """The results of a body over other leaves, some of which have the batch axis."""


class AD(Protocol):
    """A derivative being taken, in either mode, as the rules it asks see it.

    An op that owns a body asks for the same derivative `inside` it, and takes over what was counted
    there.
    """

    singular: str  # how an exact 0 meets what is not finite: "zero", "ieee" or "report"
    counts: list[Node]  # of elements where that mattered, under "report"
    masks: Mapping[int, Any]  # of the node whose rule is asked: rows that have a cotangent
    batcher: Batcher

    def times(self, ct: Node, partial: Node) -> Node:
        """The chain rule's product of a cotangent, or tangent, and a partial derivative."""

    def inside(self) -> AD:
        """The same derivative inside a body, with counts of its own."""

    def prepared(self, graph: Graph, wrt: Iterable[Node], *, reverse: bool) -> Graph:
        """The simplified body, whose ops on the way from some leaves all have a rule of a mode."""

    def pull(self, seeds: Iterable[tuple[Node, Node]], wrt: list[Node],
             visit: Callable[[list[Node]], Iterable[Node]] = reversed, *,
             onto: Mapping[Node, Node] | None = None,
             given: Sequence[Any] | None = None) -> list[Node]:
        """The cotangents of `wrt`, given those of some nodes; zeros where nothing flows.

        visit: takes an order with inputs first and gives one with users first. onto: of nodes, what
        has reached them already, to which all else is added. given: the masks of the seeds.
        """

    def push(self, roots: list[Node], seeds: Mapping[Node, Node]) -> list[Node]:
        """The tangents of roots, given those of some nodes; zeros where nothing flows."""

    def masks_inside(self, outputs: Sequence[Node], wrt: Sequence[Node],
                     roots: Mapping[int, Any]) -> dict[Node, Any]:
        """The masks of those leaves of a body that cotangents of its results, by number, reach."""
