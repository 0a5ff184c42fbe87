"""Batching rules: what an op does to values that carry one more axis.

A rule batch(node, inputs, batched, batcher) gives the node of the same op on `inputs`, of which
those marked in `batched` have the batch axis first and the others none. At least one has it, and so
has every result. Ops are looked up by name, since most files of ops import this one.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlx_py.ir.base.types import i64
from rlx_py.ir.graph.transforms import Batcher, Value
from rlx_py.ir.nodes.node import OPS, Node, make
from rlx_py.ir.ops.making.constant import constant

Flags = Sequence[bool]
Sizes = tuple[int, ...]


def up(axes: Sizes) -> Sizes:
    """Axes behind a new first one."""
    return tuple(a + 1 for a in axes)


def repeated(node: Node, size: int) -> Node:
    """The node for each element of a new first axis."""
    return make(OPS["broadcast"], (node,),
                {"shape": (size, *node.shape), "axes": up(tuple(range(node.rank)))})


def moved(node: Node, source: int, target: int) -> Node:
    """One axis moved to another place; the others keep their order."""
    if source == target:
        return node
    order = [a for a in range(node.rank) if a != source]
    order.insert(target, source)
    return make(OPS["transpose"], (node,), {"axes": tuple(order)})


def reshape(node: Node, shape: Sizes) -> Node:
    """RESHAPE, or the node itself where nothing changes."""
    return node if node.shape == shape else make(OPS["reshape"], (node,), {"shape": shape})


def size_of(inputs: Sequence[Node], batched: Flags) -> int:
    """The size of the batch axis."""
    return next(x.shape[0] for x, is_batched in zip(inputs, batched, strict=True) if is_batched)


def spread_out(value: Value, size: int) -> Node:
    """A value with the batch axis."""
    return value.node if value.batched else repeated(value.node, size)


def together(inputs: Sequence[Node], batched: Flags) -> list[Node]:
    """All inputs with the batch axis."""
    size = size_of(inputs, batched)
    return [x if is_batched else repeated(x, size)
            for x, is_batched in zip(inputs, batched, strict=True)]


def unchanged(node: Node, inputs: Sequence[Node], batched: Flags, batcher: Batcher) -> Node:
    """Of ops that treat leading axes alike: element-wise ones, and those of trailing axes."""
    return make(node.op, together(inputs, batched), node.attrs)


def along_axis(node: Node, inputs: Sequence[Node], batched: Flags, batcher: Batcher) -> Node:
    """Of ops along one axis, `axis`, of inputs with equal axes."""
    attrs = {**node.attrs, "axis": node.attrs["axis"] + 1}
    return make(node.op, together(inputs, batched), attrs)


def over_axes(node: Node, inputs: Sequence[Node], batched: Flags, batcher: Batcher) -> Node:
    """Of ops over several axes, `axes`, of inputs with equal axes."""
    return make(node.op, together(inputs, batched), {**node.attrs, "axes": up(node.attrs["axes"])})


def batch_solve(node: Node, inputs: Sequence[Node], batched: Flags, batcher: Batcher) -> Node:
    """Right-hand sides of one matrix become its columns, so that it is factorised once."""
    a, b = inputs
    if batched[0]:
        return unchanged(node, inputs, batched, batcher)
    beside = moved(b, 0, b.rank - 2)  # […, n, B, k]
    wide = (*beside.shape[:-2], beside.shape[-2] * beside.shape[-1])
    found = make(node.op, (a, reshape(beside, wide)), node.attrs)
    return moved(reshape(found, beside.shape), b.rank - 2, 0)


def filled(value: int, like: Node) -> Node:
    """An integer in the type and shape of a node."""
    return make(OPS["broadcast"], (constant(value, like.dtype),),
                {"shape": like.shape, "axes": ()})


def rows(like: Node, factor: int) -> Node:
    """factor · (position along the first axis), in the type and shape of a node."""
    line = make(OPS["iota"], (), {"shape": like.shape, "axis": 0, "dtype": like.dtype})
    return make(OPS["mul"], (line, filled(factor, line)), {})


def checked_positions(idx: Node, size: int, mode: str) -> Node:
    """Positions (i64) inside 0 … size − 1: clipped, or refused by mode "error" where that holds.

    Reading 0, 1, 2 … there has the meaning of the mode itself, in compiled code too.
    """
    line = make(OPS["iota"], (), {"shape": (size,), "axis": 0, "dtype": i64})
    return make(OPS["gather"], (line, idx), {"axis": 0, "mode": mode})
