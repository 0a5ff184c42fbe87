"""What users pass becomes nodes of one type: scalars, arrays, promotion, broadcasting."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx_py.ir.base.dim import Dim
from rlx_py.ir.base.errors import ArgumentError, DTypeError, ShapeError
from rlx_py.ir.base.types import DType, as_dtype, as_shape, i64, promote
from rlx_py.ir.nodes.node import Node
from rlx_py.ir.ops.making.beside import Array, beside, promoted, taken
from rlx_py.ir.ops.making.constant import constant
from rlx_py.ir.ops.primitive.elementwise import cast
from rlx_py.ir.ops.primitive.movement import BROADCAST, RESHAPE

Scalar = bool | int | float | Dim
F16_MAX = 65504.0  # what every float holds


def as_node(value: Any, like: DType | None = None) -> Node:
    """A node from a node, an array, or a Python scalar, which takes the type `like` where it can.

    A float beside integers makes f32; a bool or int scalar beside anything takes its type, and an
    array that of its kind. Raises ArgumentError, DTypeError (of a number that does not fit).
    """
    if isinstance(value, Node):
        return value
    if not is_scalar(value):
        array = array_of(value)
        own = as_dtype(array.dtype)
        follows = like is not None and (own.is_float or (own.is_int and like.is_int))
        return constant(taken(array, beside(like, own)) if follows else array)
    own = i64 if isinstance(value, Dim) else as_dtype(type(value))
    if like is None or (isinstance(value, float) and not like.is_float):
        return constant(value, own)
    if like.kind == "bool" and not isinstance(value, bool):
        return constant(value, own)
    found = constant(value, like)
    if like.is_float and not isinstance(value, Dim) and abs(value) > F16_MAX:
        taken(np.asarray(float(value)), like)  # refuses what becomes infinite
    return found


def is_scalar(value: Any) -> bool:
    """Whether a value is Python's own number, which never decides on an element type, or a size."""
    return isinstance(value, Scalar) and not isinstance(value, np.generic)


def array_of(value: Any) -> Array:
    """An array of numbers. Raises ArgumentError, DTypeError (of a type that there is none for)."""
    try:
        array = np.asarray(value)
        as_dtype(array.dtype)
    except (DTypeError, ValueError) as error:
        if isinstance(error, DTypeError) and array.dtype.kind in "iufc":
            raise
        raise ArgumentError(
            f"not a node, array or number: {type(value).__name__}") from error
    return array


def operands(*values: Any) -> list[Node]:
    """Nodes of one element type, not yet of one shape.

    Nodes promote among themselves, arrays follow them as `beside` says, and Python scalars never
    widen.
    """
    given = [v if isinstance(v, Node) or is_scalar(v) else array_of(v) for v in values]
    common = promoted([v.dtype for v in given if isinstance(v, Node)])
    arrays = promoted([as_dtype(v.dtype) for v in given if isinstance(v, np.ndarray)])
    if arrays is not None:
        common = beside(common, arrays)
    for v in given:
        if is_scalar(v):
            own = as_node(v, common).dtype
            common = own if common is None else promote(common, own)
    assert common is not None
    return [_operand(v, common) for v in given]


def _operand(value: Any, dtype: DType) -> Node:
    if isinstance(value, np.ndarray):
        return constant(taken(value, dtype))
    return convert(as_node(value, dtype), dtype)


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
