"""The masks of what an op reads, given those of what it gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rlx_py.ir.nodes.node import Node, Op
from rlx_py.ir.ops.control.masks import Masks, carried, masked, regrouped
from rlx_py.ir.ops.making.constant import constant
from rlx_py.ir.ops.making.families import scalar_element
from rlx_py.ir.ops.making.rows import beside_axis, reduced_axes, same_axes
from rlx_py.ir.ops.primitive.barrier import BARRIER, IN_MEMORY
from rlx_py.ir.ops.primitive.cumulative import CUMSUM
from rlx_py.ir.ops.primitive.elementwise import CAST, ZERO_MUL
from rlx_py.ir.ops.primitive.index import GATHER
from rlx_py.ir.ops.primitive.movement import (
    BROADCAST,
    CONCAT,
    PAD,
    RESHAPE,
    REVERSE,
    SLICE,
    TRANSPOSE,
    filled,
    padded,
    sliced,
)
from rlx_py.ir.ops.primitive.reduce import REDUCE_MAX, REDUCE_MIN, REDUCE_PROD, REDUCE_SUM


def handed(node: Node, masks: Masks) -> Sequence[Masks]:
    """The masks of each input that follow from those of one result."""
    none: list[Masks] = [()] * len(node.inputs)
    if not masks:
        return none
    if node.op in HANDS_ON:
        return [*HANDS_ON[node.op](node, masks), *none[1:]][:len(none)]
    if node.op is CONCAT:
        return _of_parts(node, masks)
    if node.op.rows is not None:
        return [carried(masks, rows) for rows in node.op.rows(node)]
    is_elementwise = node.op.element is scalar_element or node.op is ZERO_MUL
    return [masks] * len(node.inputs) if is_elementwise else none


def _beside(node: Node, masks: Masks) -> Sequence[Masks]:
    return [carried(masks, rows) for rows in beside_axis(node)]


def _unchanged(node: Node, masks: Masks) -> Sequence[Masks]:
    return [masks]


def _reduced(node: Node, masks: Masks) -> Sequence[Masks]:
    return [carried(masks, rows) for rows in reduced_axes(node)]


def _broadcast(node: Node, masks: Masks) -> Sequence[Masks]:
    return [carried(masks, {a: i for i, a in enumerate(node.attrs["axes"])})]


def _transposed(node: Node, masks: Masks) -> Sequence[Masks]:
    return [carried(masks, dict(enumerate(node.attrs["axes"])))]


def _reshape(node: Node, masks: Masks) -> Sequence[Masks]:
    return [regrouped(masks, node.shape, node.inputs[0].shape) if node.size else ()]


def _sliced(node: Node, masks: Masks) -> Sequence[Masks]:
    found: Masks = ()
    for m in masks:
        line = m.node
        for place, axis in enumerate(m.axes):
            if node.shape[axis] != node.inputs[0].shape[axis]:
                line = put_back(line, place, node, axis)
        found += masked(line, m.axes)
    return [found]


def put_back(line: Node, place: int, node: Node, axis: int) -> Node:
    """A mask's axis, at `place`, with what a slice left out of one of its own, which is false."""
    size, start, step = node.inputs[0].shape[axis], node.attrs["start"][axis], \
        node.attrs["step"][axis]
    count = node.shape[axis]
    if count == 0:
        return filled(False, line.tensor.with_shape(
            (*line.shape[:place], size, *line.shape[place + 1:])))
    low, high, inner = ([v if i == place else 0 for i in range(line.rank)] for v in (
        start, size - start - (count - 1) * step - 1, step - 1))
    return padded(line, constant(False), tuple(low), tuple(high), tuple(inner))


def _padded(node: Node, masks: Masks) -> Sequence[Masks]:
    """Masks along axes that are not padded, or only outwards."""
    found: Masks = ()
    for m in masks:
        low, high, inner = ([node.attrs[k][a] for a in m.axes]
                            for k in ("low", "high", "interior"))
        if all(i == 0 for i in inner) and all(n >= 0 for n in (*low, *high)):
            stop = tuple(n - b for n, b in zip(m.node.shape, high, strict=True))
            found += masked(sliced(m.node, tuple(low), stop, (1,) * m.node.rank), m.axes)
    return [found]


def _reversed(node: Node, masks: Masks) -> Sequence[Masks]:
    found: Masks = ()
    for m in masks:
        axes = tuple(i for i, a in enumerate(m.axes) if a in node.attrs["axes"])
        found += masked(REVERSE(m.node, axes=axes) if axes else m.node, m.axes)
    return [found]


def _gathered(node: Node, masks: Masks) -> Sequence[Masks]:
    (x, idx), axis = node.inputs, node.attrs["axis"]
    rows = {a if a < axis else a + idx.rank - 1: a for a in same_axes(x.rank, (axis,))}
    return [carried(masks, rows)]


def _of_parts(node: Node, masks: Masks) -> Sequence[Masks]:
    axis, offset, found = node.attrs["axis"], 0, []
    for x in node.inputs:
        part: Masks = ()
        for m in masks:
            if axis not in m.axes:
                part += (m,)
                continue
            at = m.axes.index(axis)
            start = tuple(offset if i == at else 0 for i in range(m.node.rank))
            stop = tuple(offset + x.shape[axis] if i == at else n
                         for i, n in enumerate(m.node.shape))
            part += masked(sliced(m.node, start, stop, (1,) * m.node.rank), m.axes)
        found.append(part)
        offset += x.shape[axis]
    return found


# Masks of the first input. What else an op reads is no part of its rows.
HANDS_ON: dict[Op, Callable[[Node, Masks], Sequence[Masks]]] = {
    **dict.fromkeys((CAST, BARRIER, IN_MEMORY), _unchanged),
    **dict.fromkeys((REDUCE_SUM, REDUCE_PROD, REDUCE_MAX, REDUCE_MIN), _reduced),
    CUMSUM: _beside,
    BROADCAST: _broadcast,
    TRANSPOSE: _transposed,
    RESHAPE: _reshape,
    SLICE: _sliced,
    PAD: _padded,
    REVERSE: _reversed,
    GATHER: _gathered,
}
