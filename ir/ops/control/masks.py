"""Masks of a cotangent: bools along some of its axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from rlx_py.ir.base.errors import Undecided
from rlx_py.ir.nodes.node import LEAF, Node
from rlx_py.ir.ops.making.constant import CONSTANT, constant
from rlx_py.ir.ops.making.rows import Rows
from rlx_py.ir.ops.primitive.compare import AND, OR
from rlx_py.ir.ops.primitive.movement import RESHAPE, permuted, reshape_groups, reshaped, spread
from rlx_py.ir.ops.primitive.reduce import ANY

Axes = tuple[int, ...]
MOST_PAIRS = 4  # masks of two users that are joined one by one; of more, only the common ones stay


@dataclass(frozen=True, eq=False)
class Mask:
    """Where `node`, a bool that lies along `axes` (increasing) of a value, is false, the value's
    cotangent is 0."""

    node: Node
    axes: Axes

    def same(self, other: Mask) -> bool:
        """Whether both say the same."""
        return self.axes == other.axes and alike(self.node, other.node)

    @property
    def needless(self) -> bool:
        """Whether it is known to leave nothing out."""
        return self.node.op is CONSTANT and bool(self.node.attrs["value"].array.all())


Masks = tuple[Mask, ...]  # each of which leaves something out; none: nothing is known to be 0


def alike(a: Node, b: Node, depth: int = 6) -> bool:
    """Whether two nodes are seen to be the same computation."""
    if a is b:
        return True
    if not depth or a.op is not b.op or len(a.inputs) != len(b.inputs) or a.op is LEAF:
        return False
    return a.key[2] == b.key[2] and all(
        alike(x, y, depth - 1) for x, y in zip(a.inputs, b.inputs, strict=True))


def masked(node: Node, axes: Sequence[int]) -> Masks:
    """The mask of a bool along axes in any order, without those of size 1, if it leaves out any."""
    order = tuple(sorted(range(node.rank), key=lambda i: axes[i]))
    node = permuted(node, order)
    kept = [i for i in range(node.rank) if node.shape[i] != 1]
    small = reshaped(node, tuple(node.shape[i] for i in kept))
    mask = Mask(small, tuple(sorted(axes)[i] for i in kept))
    return () if mask.needless else (mask,)


def carried(masks: Masks, rows: Rows) -> Masks:
    """What masks say along some axes, renamed by `rows`: a row is left out where all of it is."""
    found: Masks = ()
    for m in masks:
        gone = tuple(i for i, a in enumerate(m.axes) if a not in rows)
        if gone and len(gone) == len(m.axes):
            continue
        found += masked(some(m.node, gone), [rows[a] for a in m.axes if a in rows])
    return found


def some(node: Node, axes: Axes) -> Node:
    """ANY over axes."""
    if not axes:
        return node
    if node.op is CONSTANT:
        return constant(node.attrs["value"].array.any(axis=axes))
    return ANY(node, axes=axes)


def either(a: Masks, b: Masks) -> Masks:
    """The masks of a value whose cotangent is the sum of two."""
    both = common(a, b)
    left, right = ([m for m in side if not any(m.same(n) for n in both)] for side in (a, b))
    if len(left) * len(right) > MOST_PAIRS:
        return both
    return both + tuple(m for p in left for q in right for m in _either(p, q))


def common(a: Masks, b: Masks) -> Masks:
    """The masks that are in both."""
    return tuple(m for m in a if any(m.same(n) for n in b))


def _either(p: Mask, q: Mask) -> Masks:
    for less, more in ((p, q), (q, p)):
        if _is_any_of(more, less):
            return (more,)  # x ∨ any(x)
    axes = tuple(sorted({*p.axes, *q.axes}))
    if p.axes == q.axes and p.node.op is CONSTANT and q.node.op is CONSTANT:
        values = [m.node.attrs["value"].array for m in (p, q)]
        return masked(constant(values[0] | values[1]), axes)
    sizes = {a: n for m in (p, q) for a, n in zip(m.axes, m.node.shape, strict=True)}
    return masked(OR(*(_along(m, axes, sizes) for m in (p, q))), axes)


def _is_any_of(more: Mask, less: Mask) -> bool:
    """Whether a mask is ANY of another over some of its axes, and lies along all others of them."""
    if more.node.op is not ANY or not alike(more.node.inputs[0], less.node):
        return False
    gone = more.node.attrs["axes"]
    return more.axes == tuple(a for i, a in enumerate(less.axes) if i not in gone)


def _along(mask: Mask, axes: Axes, sizes: Mapping[int, int]) -> Node:
    return spread(mask.node, tuple(sizes[a] for a in axes),
                  tuple(axes.index(a) for a in mask.axes))


def everywhere(masks: Masks, shape: Axes) -> Node:
    """Where none of the masks (at least one) leaves anything out, at each element of a value."""
    axes = tuple(sorted({a for m in masks for a in m.axes}))
    sizes = {a: shape[a] for a in axes}
    whole, *rest = (_along(m, axes, sizes) for m in masks)
    for node in rest:
        whole = AND(whole, node)
    return spread(whole, shape, axes)


def regrouped(masks: Masks, shape: Axes, target: Axes) -> Masks:
    """Masks of a value (with elements) after a RESHAPE, along all axes of each run of axes that
    stays together."""
    runs = _runs(shape, target)
    found: Masks = ()
    for m in masks:
        touched = [(left, right) for left, right in runs if not set(left).isdisjoint(m.axes)]
        before = tuple(i for left, _ in touched for i in left)
        after = tuple(i for _, right in touched for i in right)
        wide = _along(m, before, {a: shape[a] for a in before})
        found += masked(_as(wide, tuple(target[i] for i in after)), after)
    return found


def _runs(a: Axes, b: Axes) -> list[tuple[list[int], list[int]]]:
    """`reshape_groups`; where sizes by name don't tell which product is the larger, by trying all.
    """
    try:
        return reshape_groups(a, b)
    except Undecided:
        found, i, j = [], 0, 0
        while i < len(a) or j < len(b):
            ends = ((p, q) for p in range(i, len(a) + 1) for q in range(j, len(b) + 1))
            p, q = min(((p, q) for p, q in ends
                        if p + q > i + j and prod(a[i:p]) == prod(b[j:q])), key=sum)
            found.append(([*range(i, p)], [*range(j, q)]))
            i, j = p, q
        return found


def _as(node: Node, shape: Axes) -> Node:
    """RESHAPE; one that undoes another is what was there before."""
    if node.op is RESHAPE and node.inputs[0].shape == shape:
        return node.inputs[0]
    return reshaped(node, shape)
