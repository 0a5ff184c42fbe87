"""Batching rules of ops at run-time positions.

Positions that every element of the batch shares leave the op as it is. Positions of their own
become those of each line where an op for that exists, else positions among the rows of all.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod

from rlx_py.ir.base.types import i64
from rlx_py.ir.graph.transforms import Batcher
from rlx_py.ir.nodes.node import OPS, Node, make
from rlx_py.ir.ops.making.batching import (
    Flags,
    checked_positions,
    filled,
    moved,
    repeated,
    reshape,
    rows,
    size_of,
    together,
)


def _lines(idx: Node, like: Node, axis: int) -> Node:
    """Positions of each batch element, [B, …], for each line of `like` along an axis."""
    count = prod(idx.shape[1:])
    shape = (*like.shape[:axis], count, *like.shape[axis + 1:])
    flat = reshape(idx, (idx.shape[0], count))
    return make(OPS["broadcast"], (flat,), {"shape": shape, "axes": (0, axis)})


def batch_gather(node: Node, inputs: Sequence[Node], batched: Flags, batcher: Batcher) -> Node:
    """One table and many positions stay one gather."""
    (x, idx), axis = inputs, node.attrs["axis"]
    if not batched[0]:
        return moved(make(node.op, (x, idx), node.attrs), axis, 0)
    attrs = {**node.attrs, "axis": axis + 1}
    if not batched[1]:
        return make(node.op, (x, idx), attrs)
    found = make(OPS["take_along"], (x, _lines(idx, x, axis + 1)), attrs)
    return reshape(found, (x.shape[0], *node.shape))


def batch_scatter_add(node: Node, inputs: Sequence[Node], batched: Flags, batcher: Batcher) -> Node:
    """Terms of each line add up in the order of their positions, as without the batch."""
    if not batched[1]:
        return _shared(node, inputs, batched, batcher)
    (x, idx, u), axis = together(inputs, batched), node.attrs["axis"] + 1
    lines = _lines(idx, x, axis)
    return make(OPS["scatter_add_along"], (x, lines, reshape(u, lines.shape)),
                {**node.attrs, "axis": axis})


def batch_scatter(node: Node, inputs: Sequence[Node], batched: Flags, batcher: Batcher) -> Node:
    """Row i of batch element b is row b·n + i of all."""
    if not batched[1]:
        return _shared(node, inputs, batched, batcher)
    (x, idx, u), axis = together(inputs, batched), node.attrs["axis"] + 1
    if not x.size or not u.size:
        return x
    size, mode, rank = x.shape[axis], node.attrs["mode"], idx.rank - 1
    front = moved(x, axis, 1)
    flat = reshape(front, (x.shape[0] * size, *front.shape[2:]))
    for i in range(rank):
        u = moved(u, axis + i, 1 + i)
    place, mode = _among_all(idx, size, mode)
    found = make(node.op, (flat, place, u), {"axis": 0, "mode": mode})
    return moved(reshape(found, front.shape), 1, axis)


def _shared(node: Node, inputs: Sequence[Node], batched: Flags, batcher: Batcher) -> Node:
    """The same positions for all."""
    (x, idx, u), size = inputs, size_of(inputs, batched)
    x, u = (v if is_batched else repeated(v, size) for v, is_batched in
            ((x, batched[0]), (u, batched[2])))
    return make(node.op, (x, idx, u), {**node.attrs, "axis": node.attrs["axis"] + 1})


def _among_all(idx: Node, size: int, mode: str) -> tuple[Node, str]:
    """Positions among the rows of all batch elements, and the mode that keeps their meaning."""
    if mode != "fill":
        place = checked_positions(idx, size, mode)
        return make(OPS["add"], (place, rows(place, size)), {}), "clip"
    wide = idx if idx.dtype is i64 else make(OPS["cast"], (idx,), {"dtype": i64})
    inside = make(OPS["and"], (make(OPS["ge"], (wide, filled(0, wide)), {}),
                               make(OPS["lt"], (wide, filled(size, wide)), {})), {})
    flat = make(OPS["add"], (wide, rows(wide, size)), {})
    return make(OPS["select"], (inside, flat, filled(-1, wide)), {}), mode


def batch_counting_sort(node: Node, inputs: Sequence[Node], batched: Flags, batcher: Batcher
                        ) -> Node:
    """Key e of batch element b is key b·n + e of all; rows count from each element's first."""
    (keys,), size = inputs, node.attrs["size"]
    batch, count = keys.shape
    if not keys.size or not size:
        return repeated(filled(0, node), batch)
    place = checked_positions(keys, size, "error")
    flat = make(OPS["add"], (place, rows(place, size)), {})
    found = make(node.op, (reshape(flat, (batch * count,)),), {"size": batch * size})
    cuts = (0, batch * size, batch * (size + count))
    ends, order = (make(OPS["slice"], (found,), {"start": (a,), "stop": (b,), "step": (1,)})
                   for a, b in pairwise(cuts))
    both = make(OPS["concat"], (reshape(ends, (batch, size)), reshape(order, (batch, count))),
                {"axis": 1})
    both = make(OPS["sub"], (both, rows(both, count)), {})
    return both if both.dtype is node.dtype else make(OPS["cast"], (both,), {"dtype": node.dtype})
