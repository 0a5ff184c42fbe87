"""Masks of cotangents handed into the bodies of ops that own functions, and out of them."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from rlx_py.ir.graph.transforms import AD
from rlx_py.ir.nodes.node import LEAF, Cotangent, Node, leaf, toposort
from rlx_py.ir.ops.control.masks import Mask, Masks, carried, common, either
from rlx_py.ir.ops.control.region import over


class Handed:
    """Masks from outside a body in terms of leaves that stand for them inside."""

    def __init__(self) -> None:
        self._leaves: dict[Node, Node] = {}

    @property
    def outside(self) -> dict[Node, Node]:
        """What each leaf stands for."""
        return {inner: outer for outer, inner in self._leaves.items()}

    def enter(self, masks: Masks) -> Masks:
        """The masks over leaves."""
        for m in masks:
            if m.node not in self._leaves:
                self._leaves[m.node] = leaf(f"live{len(self._leaves)}", "input", m.node.type)
        return tuple(Mask(self._leaves[m.node], m.axes) for m in masks)

    def leave(self, masks: Masks, values: Mapping[Node, Node]) -> Masks:
        """Those masks of a body that rest on leaves with known values, over these."""
        known = self.outside | dict(values)
        kept = [m for m in masks if rests_on(m.node, known)]
        nodes = over([m.node for m in kept], known)
        return tuple(Mask(n, m.axes) for n, m in zip(nodes, kept, strict=True))


def masks_here(ad: AD, ct: Cotangent) -> list[Masks]:
    """The masks of those results of the node whose rule is asked that have a cotangent."""
    return [ad.masks.get(k, ()) for k, c in enumerate(ct) if c is not None]


def rests_on(node: Node, known: Container[Node]) -> bool:
    """Whether a node needs no leaves but known ones."""
    return all(n.op is not LEAF or n in known for n in toposort([node]))


def loop_masks(outputs: Sequence[Node], carries: Sequence[Node], floats: Sequence[Node],
               fixed: Container[Node], roots: Mapping[int, Masks], ad: AD
               ) -> tuple[dict[int, Masks], dict[Node, Masks]]:
    """The masks of a body's results that hold at every step, given those of the whole loop's; and
    with them those of the leaves.

    fixed: the leaves that are the same at each step. What others say of a carry's cotangent they
    say one step late: it comes from the step behind.
    """
    current = dict(roots)
    while True:
        found = ad.masks_inside(outputs, floats, current)
        after = dict(current)
        for k, x in enumerate(carries):
            if x in found:
                same = tuple(m for m in found[x] if rests_on(m.node, fixed))
                after[k] = common(current[k], same) if k in current else same
        if all(k in current and len(current[k]) == len(m) for k, m in after.items()):
            return after, found
        current = after


def of_one_step(masks: Masks, rank: int) -> Masks:
    """The masks of a stacked result, at each of its steps."""
    return carried(masks, {a: a - 1 for a in range(1, rank)})


def of_all(masks: Sequence[Masks]) -> Masks:
    """What holds whichever of several bodies runs."""
    first, *rest = masks
    for more in rest:
        first = either(first, more)
    return first
