"""Where cotangents among the values of a graph, one that has been differentiated, are zero.

Zero times what is not finite is NaN, of which nothing is said here: a value is 0, or NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rlx_py.ir.base.errors import Undecided
from rlx_py.ir.nodes.node import Node, Op, origin
from rlx_py.ir.ops.control.masks import Masks, carried, either, regrouped
from rlx_py.ir.ops.making.constant import scalar_of
from rlx_py.ir.ops.making.rows import reduced_axes, same_axes
from rlx_py.ir.ops.nn.conv.conv import CONV, CONV_BACKWARD_INPUT
from rlx_py.ir.ops.primitive.contract import CONTRACT
from rlx_py.ir.ops.primitive.cumulative import CUMSUM
from rlx_py.ir.ops.primitive.elementwise import (
    ADD,
    CAST,
    DIV,
    GUARDED_MUL,
    MUL,
    NEG,
    SELECT,
    SUB,
    ZERO_MUL,
)
from rlx_py.ir.ops.primitive.index import GATHER, GATHER_BACKWARD, SCATTER_ADD
from rlx_py.ir.ops.primitive.movement import BROADCAST, CONCAT, PAD, RESHAPE, SLICE, TRANSPOSE
from rlx_py.ir.ops.primitive.reduce import REDUCE_SUM

Inputs = Sequence[Masks]
Brings = Callable[[Node], Sequence[Masks]]  # what an op's inputs are masked by, as `BRINGS` says


def zero_values(order: Sequence[Node], brings: Brings) -> Mapping[Node, Masks]:
    """The masks outside which values of an order, inputs first, are zero. They begin where a
    derivative put something beside zeros: by selects, paddings, products with masks, sums of lines.
    """
    found: dict[Node, Masks] = {}
    for node in order:
        inputs = [found.get(x, ()) for x in node.inputs]
        starts = node.op in STARTS and node.origin is not None
        if not starts and not (node.op in RULES and any(inputs)):
            continue
        with origin(node):
            try:
                masks = RULES[node.op](node, inputs) if any(inputs) and node.op in RULES else ()
                if starts:
                    masks += STARTS[node.op](node, inputs, brings)
            except Undecided:  # sizes by name on which it depends
                continue
        if masks:
            found[node] = masks
    return found


def _chosen(node: Node, inputs: Inputs, brings: Brings) -> Masks:
    _, a, b = node.inputs
    if scalar_of(b) == 0:
        return brings(node)[1]
    return brings(node)[2] if scalar_of(a) == 0 else ()


def _selected(node: Node, inputs: Inputs) -> Masks:
    _, a, b = node.inputs
    if scalar_of(b) == 0:
        return inputs[1]
    return inputs[2] if scalar_of(a) == 0 else either(inputs[1], inputs[2])


def _times_mask(node: Node, inputs: Inputs, brings: Brings) -> Masks:
    return tuple(m for masks in brings(node) for m in masks)


def _beside_zeros(node: Node, inputs: Inputs, brings: Brings) -> Masks:
    """A padded value is what is read again of the result."""
    x, fill = node.inputs
    attrs = node.attrs
    if scalar_of(fill) != 0 or min(*attrs["low"], *attrs["high"], 0) < 0:
        return ()
    stop = tuple(n - b for n, b in zip(node.shape, attrs["high"], strict=True))
    step = tuple(i + 1 for i in attrs["interior"])
    return brings(SLICE(node, start=attrs["low"], stop=stop, step=step))[0]


def _added_lines(node: Node, inputs: Inputs, brings: Brings) -> Masks:
    """Lines added to zeros are what is gathered of the result."""
    x, idx, _ = node.inputs
    return brings(GATHER(node, idx, **node.attrs))[0] if scalar_of(x) == 0 else ()


def _first(node: Node, inputs: Inputs) -> Masks:
    return inputs[0]


def _factors(node: Node, inputs: Inputs) -> Masks:
    return inputs[0] + inputs[1]


def _terms(node: Node, inputs: Inputs) -> Masks:
    return either(inputs[0], inputs[1])


def _broadcast(node: Node, inputs: Inputs) -> Masks:
    return carried(inputs[0], dict(enumerate(node.attrs["axes"])))


def _transposed(node: Node, inputs: Inputs) -> Masks:
    return carried(inputs[0], {a: i for i, a in enumerate(node.attrs["axes"])})


def _reshaped(node: Node, inputs: Inputs) -> Masks:
    return regrouped(inputs[0], node.inputs[0].shape, node.shape) if node.size else ()


def _reduced(node: Node, inputs: Inputs) -> Masks:
    (rows,) = reduced_axes(node)
    return carried(inputs[0], {a: i for i, a in rows.items()})


def _product(node: Node, inputs: Inputs) -> Masks:
    assert node.op.rows is not None
    pairs = zip(inputs, node.op.rows(node), strict=True)
    return tuple(m for masks, rows in pairs
                 for m in carried(masks, {a: i for i, a in rows.items()}))


def _put_back_lines(node: Node, inputs: Inputs, brings: Brings) -> Masks:
    attrs = {k: node.attrs[k] for k in ("axis", "mode")}
    return brings(GATHER(node, node.inputs[0], **attrs))[0]


def _padded(node: Node, inputs: Inputs) -> Masks:
    """Along the axes that are not padded."""
    keys = ("low", "high", "interior")
    same = {a: a for a in range(node.rank) if not any(node.attrs[k][a] for k in keys)}
    return carried(inputs[0], same) if scalar_of(node.inputs[1]) == 0 else ()


def _sliced(node: Node, inputs: Inputs) -> Masks:
    """Along the axes of which all is read."""
    whole = node.inputs[0].shape
    return carried(inputs[0], {a: a for a, n in enumerate(node.shape) if n == whole[a]})


def _joined(node: Node, inputs: Inputs) -> Masks:
    """Along the other axes, where all parts are zero."""
    rows = same_axes(node.rank, (node.attrs["axis"],))
    found, *rest = (carried(masks, rows) for masks in inputs)
    for masks in rest:
        found = either(found, masks)
    return found


def _beside(node: Node, inputs: Inputs) -> Masks:
    return carried(inputs[0], same_axes(node.rank, (node.attrs["axis"],)))


STARTS: dict[Op, Callable[[Node, Inputs, Brings], Masks]] = {
    SELECT: _chosen,
    **dict.fromkeys((MUL, GUARDED_MUL, ZERO_MUL), _times_mask),
    PAD: _beside_zeros,
    SCATTER_ADD: _added_lines,
    GATHER_BACKWARD: _put_back_lines,
}
# Of which a cotangent that is not finite would spoil what the operand that is 0 contributes to.
PRODUCTS = (MUL, GUARDED_MUL, ZERO_MUL, CONTRACT, CONV, CONV_BACKWARD_INPUT)
RULES: dict[Op, Callable[[Node, Inputs], Masks]] = {
    **dict.fromkeys((NEG, CAST, DIV), _first),
    **dict.fromkeys((MUL, GUARDED_MUL, ZERO_MUL), _factors),
    **dict.fromkeys((ADD, SUB), _terms),
    **dict.fromkeys((CONTRACT, CONV, CONV_BACKWARD_INPUT), _product),
    BROADCAST: _broadcast,
    TRANSPOSE: _transposed,
    RESHAPE: _reshaped,
    REDUCE_SUM: _reduced,
    PAD: _padded,
    SLICE: _sliced,
    CONCAT: _joined,
    CUMSUM: _beside,
    SELECT: _selected,
}
