"""Where masks come from, and the masks of everything that a derivative flows through."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isinf

import numpy as np

from rlx_py.ir.base.errors import Undecided
from rlx_py.ir.base.types import TensorType, TupleType, bool_, f32
from rlx_py.ir.graph.transforms import AD
from rlx_py.ir.nodes.node import LEAF, PROJECT, TUPLE, Cotangent, Node, Op, make, origin
from rlx_py.ir.ops.control.masks import Axes, Masks, carried, either, everywhere, masked
from rlx_py.ir.ops.making.constant import constant, scalar_of
from rlx_py.ir.ops.nn.loss.loss import SOFTMAX_CROSS_ENTROPY, ignored
from rlx_py.ir.ops.primitive.compare import AND, EQ, GE, GT, LE, LT, NE, NOT, OR, XOR
from rlx_py.ir.ops.primitive.elementwise import CAST, GUARDED_MUL, MUL, SELECT, ZERO_MUL
from rlx_py.ir.ops.primitive.index import GATHER, GATHER_BACKWARD
from rlx_py.ir.ops.primitive.movement import BROADCAST, RESHAPE, SLICE, TRANSPOSE, filled, spread
from rlx_py.passes.derive.dead.handed import handed, put_back
from rlx_py.passes.derive.dead.zeros import PRODUCTS, zero_values

MOST_KNOWN = 4096  # positions of an axis of which it is said one by one which are read
COMPARISONS = (EQ, NE, LT, LE, GT, GE)


@dataclass(frozen=True)
class Found:
    """The masks of cotangents, by node and result; and of products whose value is 0 outside them,
    so that what does not come back to it need not be a number there."""

    masks: Mapping[tuple[Node, int], Masks] = field(default_factory=dict)
    zeros: Mapping[Node, Masks] = field(default_factory=dict)

    def of(self, node: Node) -> dict[int, Masks]:
        """The masks of those results of a node that have a cotangent, by number."""
        return masks_of(node, self.masks)

    def ready(self, node: Node, ct: Cotangent) -> Cotangent:
        """The cotangent of a node without what its operands take no part in."""
        if node not in self.zeros:
            return ct
        return SELECT(everywhere(self.zeros[node], ct.shape), ct, filled(0, ct.tensor))


def find_masks(order: Sequence[Node], depends: set[Node], wrt: Iterable[Node],
               roots: Iterable[tuple[Node, Masks]], ad: AD) -> Found:
    """What is known of each value that a derivative reaches, for an order with inputs first.

    depends: what derivatives flow through; roots: where cotangents enter, and their masks.
    """
    found: dict[tuple[Node, int], Masks] = {}
    zeros: dict[Node, Masks] = {}
    sources = Sources(order, wrt, ad)

    def enter(key: tuple[Node, int], masks: Masks) -> None:
        found[key] = either(found[key], masks) if key in found else masks

    for root, masks in roots:
        enter((root, 0), masks)
    for node in reversed(order):
        if node not in depends or depends.isdisjoint(node.inputs):
            continue
        here = masks_of(node, found)
        if not here:
            continue
        if node.op in PRODUCTS:
            zero = sources.zeros(node)
            here = {0: here[0] + zero}
            found[node, 0] = here[0]
            if zero:
                zeros[node] = zero
        if node.op is PROJECT:
            enter((node.inputs[0], node.attrs["index"]), here[0])
        elif node.op is TUPLE:
            for i, masks in here.items():
                enter((node.inputs[i], 0), masks)
        else:
            for x, masks in zip(node.inputs, sources.behind(node, here),
                                strict=True):
                if x in depends and not isinstance(x.type, TupleType):
                    enter((x, 0), masks)
    return Found(found, zeros)


def masks_of(node: Node, found: Mapping[tuple[Node, int], Masks]) -> dict[int, Masks]:
    """The masks of those results of a node that have a cotangent, by number."""
    count = len(node.type.elements) if isinstance(node.type, TupleType) else 1
    return {i: found[node, i] for i in range(count) if (node, i) in found}


class Sources:
    """The masks that ops of a graph bring, and those that they hand on to their inputs."""

    def __init__(self, order: Sequence[Node], wrt: Iterable[Node], ad: AD) -> None:
        self.order, self.wrt, self.ad = order, list(wrt), ad
        self._moved: set[Node] | None = None
        self._zeros: Mapping[Node, Masks] | None = None

    def behind(self, node: Node, here: Mapping[int, Masks]) -> Sequence[Masks]:
        """The masks of each input of a node, given those of its results that are reached."""
        brings, results = BRINGS.get(node.op), list(here.values())
        if brings is None and not any(results) and node.op.masks is None:
            return [()] * len(node.inputs)
        with origin(node):
            try:
                if node.op.masks is not None:
                    return node.op.masks(node, here, self.ad)
                found, *rest = (handed(node, masks) for masks in results)
                for more in rest:
                    found = [either(a, b) for a, b in zip(found, more, strict=True)]
                own = [()] * len(node.inputs) if brings is None else brings(self, node, results)
            except Undecided:  # sizes by name on which it depends
                return [()] * len(node.inputs)
        return [a + b for a, b in zip(found, own, strict=True)]

    def moves(self, node: Node) -> bool:
        """Whether a value changes with what is differentiated by, other than whether that is a
        number."""
        if self._moved is None:
            self._moved = set(self.wrt)
            for n in self.order:
                if not self._moved.isdisjoint(n.inputs) and not _asks_for_numbers(n):
                    self._moved.add(n)
        return node in self._moved

    def zeros(self, value: Node) -> Masks:
        """Where a value is 0 by construction."""
        if self._zeros is None:
            self._zeros = zero_values(self.order, lambda n: BRINGS[n.op](self, n, [()]))
        return self._zeros.get(value, ())

    def lies_along(self, condition: Node) -> tuple[Node, Axes] | None:
        """A condition as a bool along some axes, if it is a mask: it does not compare what is
        differentiated element by element, as the select inside relu does."""
        small, axes = narrowed(condition)
        wide = [i for i, n in enumerate(condition.shape) if n != 1]
        if set(axes).issuperset(wide) and self.moves(condition):
            return None
        return small, axes


def _asks_for_numbers(node: Node) -> bool:
    """x ≠ x, |x| < ∞ and their like."""
    if node.op not in COMPARISONS:
        return False
    if node.inputs[0] is node.inputs[1]:
        return True
    values = [scalar_of(x) for x in node.inputs]
    return any(v is not None and node.inputs[0].dtype.is_float and isinf(v) for v in values)


def narrowed(node: Node, depth: int = 8) -> tuple[Node, Axes]:
    """What an element-wise expression is along the axes on which it depends, and these."""
    whole = node, tuple(range(node.rank))
    if node.op is BROADCAST:
        inner, axes = narrowed(node.inputs[0], depth - 1) if depth else (node.inputs[0], None)
        outer = node.attrs["axes"]
        return inner, outer if axes is None else tuple(outer[a] for a in axes)
    if not depth or node.op not in (*COMPARISONS, AND, OR, XOR, NOT, CAST):
        return whole
    parts = [narrowed(x, depth - 1) for x in node.inputs]
    axes = tuple(sorted({a for _, own in parts for a in own}))
    if len(axes) == node.rank:
        return whole
    shape = tuple(node.shape[a] for a in axes)
    laid = [spread(x, shape, tuple(axes.index(a) for a in own)) for x, own in parts]
    return make(node.op, laid, node.attrs), axes


Brings = Callable[[Sources, Node, Sequence[Masks]], Sequence[Masks]]


def _of_select(s: Sources, node: Node, results: Sequence[Masks]) -> Sequence[Masks]:
    place = s.lies_along(node.inputs[0])
    if place is None:
        return (), (), ()
    small, axes = place
    return (), masked(small, axes), masked(NOT(small), axes)


def _of_mask(s: Sources, node: Node, results: Sequence[Masks]) -> Sequence[Masks]:
    a, b = node.inputs
    return _factor(s, b), _factor(s, a)


def _factor(s: Sources, factor: Node) -> Masks:
    """Where a factor of bools or integers as floats is not 0. Of floats nothing is said: a
    derivative by a weight that happens to be 0 may follow."""
    small = factor
    while small.op in (BROADCAST, RESHAPE, TRANSPOSE):
        small = small.inputs[0]
    if small.op is not CAST or small.inputs[0].dtype.is_float or s.moves(factor):
        return ()
    small, axes = narrowed(factor)
    return masked(NE(small, filled(0, small.tensor)), axes)


def _of_slice(s: Sources, node: Node, results: Sequence[Masks]) -> Sequence[Masks]:
    found: Masks = ()
    places = zip(*(node.attrs[k] for k in ("start", "stop", "step")), strict=True)
    for axis, (size, (start, stop, step)) in enumerate(
            zip(node.inputs[0].shape, places, strict=True)):
        if node.shape[axis] == size:
            continue
        if isinstance(size, int) and size <= MOST_KNOWN:
            read = np.zeros(size, np.bool_)
            read[start:stop:step] = True
            found += masked(constant(read), (axis,))
        else:
            line = filled(True, TensorType(bool_, (node.shape[axis],)))
            found += masked(put_back(line, 0, node, axis), (axis,))
    return (found,)


def _of_gather(s: Sources, node: Node, results: Sequence[Masks]) -> Sequence[Masks]:
    """The positions that an index that is read points to."""
    (x, idx), axis = node.inputs, node.attrs["axis"]
    if x.op is LEAF:
        return (), ()
    at = {axis + i: i for i in range(idx.rank)}
    ones = filled(1, TensorType(f32, idx.shape))
    read = carried(results[0], at)
    if read:
        ones = SELECT(everywhere(read, idx.shape), ones, filled(0, ones.tensor))
    count = GATHER_BACKWARD(idx, ones, axis=0, mode=node.attrs["mode"], size=x.shape[axis])
    return masked(NE(count, filled(0, count.tensor)), (axis,)), ()


def _of_loss(s: Sources, node: Node, results: Sequence[Masks]) -> Sequence[Masks]:
    labels, ignore = node.inputs[1], node.attrs["ignore"]
    if ignore is None:
        return (), ()
    return masked(NOT(ignored(labels, ignore)), range(labels.rank)), ()


BRINGS: dict[Op, Brings] = {
    SELECT: _of_select,
    **dict.fromkeys((MUL, GUARDED_MUL, ZERO_MUL), _of_mask),
    SLICE: _of_slice,
    GATHER: _of_gather,
    SOFTMAX_CROSS_ENTROPY: _of_loss,
}
