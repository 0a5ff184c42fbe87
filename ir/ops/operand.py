"""What users pass becomes nodes of one type: scalars, arrays, promotion, broadcasting."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx_py.ir.dim import Dim
from rlx_py.ir.errors import ArgumentError, DTypeError, ShapeError
from rlx_py.ir.node import Node
from rlx_py.ir.ops.constant import constant
from rlx_py.ir.ops.elementwise import cast
from rlx_py.ir.ops.movement import BROADCAST, RESHAPE
from rlx_py.ir.types import DType, as_dtype, as_shape, i64, promote

Scalar = bool | int | float | Dim


def as_node(value: Any, like: DType | None = None) -> Node:
    """A node from a node, an array, or a Python scalar, which takes the type `like` where it can.

    A float scalar beside integers makes f32; a bool or int scalar beside anything takes its type.
    """
    if isinstance(value, Node):
        return value
    if isinstance(value, Scalar) and not isinstance(value, np.generic):
        own = i64 if isinstance(value, Dim) else as_dtype(type(value))
        if like is None or (isinstance(value, float) and not like.is_float):
            return constant(value, own)
        if like.kind == "bool" and not isinstance(value, bool):
            return constant(value, own)
        return constant(value, like)
    try:
        return constant(np.asarray(value))
    except (DTypeError, ValueError) as error:
        raise ArgumentError(
            f"not a node, array or number: {type(value).__name__}") from error


def operands(*values: Any) -> list[Node]:
    """Nodes of one promoted element type (Python scalars never widen it), not yet of one shape."""
    arrays = [v for v in values if not isinstance(v, Scalar) or isinstance(v, np.generic)]
    nodes = [as_node(v) for v in arrays]
    common: DType | None = None
    for n in nodes:
        common = n.dtype if common is None else promote(common, n.dtype)
    for v in values:
        if isinstance(v, Scalar) and not isinstance(v, np.generic):
            common = as_node(v, common).dtype if common is None else promote(
                common, as_node(v, common).dtype)
    assert common is not None
    return [convert(as_node(v, common), common) for v in values]


def ratio(a: Any, b: Any, dtype: DType) -> Any:
    """a/b: a number, or where one is a size of a dynamic graph, a scalar node."""
    if isinstance(a, Dim) or isinstance(b, Dim):
        return constant(a, dtype) / constant(b, dtype)
    return a / b


def convert(node: Node, dtype: DType) -> Node:
    """The node in another element type; itself where it has it."""
    return node if node.dtype is dtype else cast(node, dtype)


def broadcast_shape(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """NumPy's rule: aligned at the last axis, a size 1 stretches."""
    rank = max(map(len, shapes), default=0)
    result = []
    for position in range(-rank, 0):
        sizes = {s[position] for s in shapes if len(s) >= -position} - {1}
        if len(sizes) > 1:
            raise ShapeError(f"shapes {' and '.join(map(str, shapes))} do not broadcast")
        result.append(sizes.pop() if sizes else 1)
    return tuple(result)


def broadcast_to(node: Node, shape: Any) -> Node:
    """The node stretched to a shape by NumPy's rule."""
    target = as_shape(shape)
    if node.shape == target:
        return node
    if broadcast_shape(node.shape, target) != target:
        raise ShapeError(f"{node.type} does not broadcast to {target}")
    offset = len(target) - node.rank
    kept = [i for i, d in enumerate(node.shape) if d == target[i + offset]]
    squeezed = tuple(node.shape[i] for i in kept)
    if squeezed != node.shape:
        node = RESHAPE(node, shape=squeezed)
    if squeezed == target:
        return node
    return BROADCAST(node, shape=target, axes=tuple(i + offset for i in kept))


def together(*values: Any) -> list[Node]:
    """Operands of an element-wise op: one element type, one shape."""
    nodes = operands(*values)
    try:
        shape = broadcast_shape(*(n.shape for n in nodes))
    except ShapeError:
        raise ShapeError(f"operands {' and '.join(str(n.type) for n in nodes)} do not broadcast"
                         ) from None
    return [broadcast_to(n, shape) for n in nodes]
