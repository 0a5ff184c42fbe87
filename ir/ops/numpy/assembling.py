"""Arrays put together of others, and folds made of folds, under their NumPy names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx_py.ir.base.errors import ArgumentError, ShapeError
from rlx_py.ir.base.types import i64, normalize_axes, normalize_axis
from rlx_py.ir.nodes.node import Node
from rlx_py.ir.ops.making.arguments import check_held
from rlx_py.ir.ops.making.constant import constant
from rlx_py.ir.ops.making.located import located
from rlx_py.ir.ops.numpy import folding
from rlx_py.ir.ops.numpy.arithmetic import floating, floats_together, multiply, subtract
from rlx_py.ir.ops.numpy.choice import truth
from rlx_py.ir.ops.numpy.shaping import concatenate, flip, moveaxis, stack, swapaxes
from rlx_py.ir.ops.operands.operand import as_node, broadcast_shape, broadcast_to, operands
from rlx_py.ir.ops.primitive.elementwise import cast
from rlx_py.ir.ops.primitive.movement import reshaped

Axis = Any  # an int, several, or None

# ---- joining and turning ---------------------------------------------------------------------


@located
def hstack(arrays: Sequence[Any]) -> Node:
    """Arrays joined along their second axis; lines along their only one."""
    parts = [_of_rank(p, 1) for p in (operands(*arrays) if arrays else [])]
    return concatenate(parts, 1 if parts and parts[0].rank > 1 else 0)


@located
def vstack(arrays: Sequence[Any]) -> Node:
    """Arrays joined along their first axis; a line is a row."""
    return concatenate([_of_rank(p, 2) for p in (operands(*arrays) if arrays else [])], 0)


def _of_rank(x: Node, least: int) -> Node:
    return reshaped(x, (*(1,) * (least - x.rank), *x.shape))


@located
def flipud(x: Any) -> Node:
    """The order of the first axis reversed."""
    return flip(x, 0)


@located
def fliplr(x: Any) -> Node:
    """The order of the second axis reversed."""
    return flip(x, 1)


@located
def rot90(x: Any, k: int = 1, axes: Any = (0, 1)) -> Node:
    """The plane of two axes turned k times by a quarter, from the first axis towards the second."""
    node = as_node(x)
    if len(normalize_axes(axes, node.rank)) != 2:
        raise ArgumentError(f"a plane has two axes, not {axes!r}")
    first, second = (normalize_axis(a, node.rank) for a in axes)
    if k % 4 == 2:
        return flip(node, (first, second))
    if k % 2:
        node = flip(node, second) if k % 4 == 1 else node
        node = swapaxes(node, first, second)
        return node if k % 4 == 1 else flip(node, second)
    return node


@located
def tril_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Node, Node]:
    """Rows and columns (i64) of the places at and below diagonal k of an n × m matrix."""
    return _triangle(np.tril_indices, n, k, m)


@located
def triu_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Node, Node]:
    """Rows and columns (i64) of the places at and above diagonal k of an n × m matrix."""
    return _triangle(np.triu_indices, n, k, m)


def _triangle(function: Any, n: int, k: int, m: int | None) -> tuple[Node, Node]:
    width = n if m is None else m
    if n < 0 or width < 0:
        raise ShapeError(f"negative size in ({n}, {width})")
    check_held("a triangle", n * width)
    rows, columns = function(n, max(min(k, width), -n), width)
    return constant(rows, i64), constant(columns, i64)


# ---- products --------------------------------------------------------------------------------


@located
def kron(a: Any, b: Any) -> Node:
    """The Kronecker product: every element of a times the whole of b, laid out as a is."""
    x, y = operands(a, b)
    rank = max(x.rank, y.rank)
    x, y = _of_rank(x, rank), _of_rank(y, rank)
    wide = reshaped(x, tuple(d for size in x.shape for d in (size, 1)))
    inner = reshaped(y, tuple(d for size in y.shape for d in (1, size)))
    return reshaped(multiply(wide, inner),
                    tuple(p * q for p, q in zip(x.shape, y.shape, strict=True)))


@located
def cross(a: Any, b: Any, axis: int = -1) -> Node:
    """The vector product of vectors of three along an axis; the other axes broadcast."""
    x, y = (moveaxis(n, normalize_axis(axis, n.rank), -1) for n in operands(a, b))
    if x.shape[-1] != 3 or y.shape[-1] != 3:
        raise ShapeError(f"vectors have three elements, not those of {x.type} and {y.type}")
    shape = broadcast_shape(x.shape, y.shape)
    x, y = broadcast_to(x, shape), broadcast_to(y, shape)
    u, v = ([n[..., i] for i in range(3)] for n in (x, y))
    parts = [subtract(u[(i + 1) % 3] * v[(i + 2) % 3], u[(i + 2) % 3] * v[(i + 1) % 3])
             for i in range(3)]
    return stack(parts, normalize_axis(axis, len(shape)))


# ---- folds -----------------------------------------------------------------------------------


@located
def count_nonzero(x: Any, axis: Axis = None, keepdims: bool = False) -> Node:
    """How many elements over axes are not 0 (i64)."""
    return folding.sum(cast(truth(as_node(x)), i64), axis, keepdims=keepdims)


@located
def ptp(x: Any, axis: Axis = None, keepdims: bool = False) -> Node:
    """The largest element over axes less the smallest."""
    node = as_node(x)
    return subtract(folding.max(node, axis, keepdims), folding.min(node, axis, keepdims))


@located
def average(x: Any, axis: Axis = None, weights: Any = None, keepdims: bool = False) -> Node:
    """Σ w·x / Σ w over axes; the mean without weights. Weights have the shape of x, or of one axis
    its size. NaN or infinite where the weights add up to 0. Raises ShapeError."""
    node = floating(x)
    if weights is None:
        return folding.mean(node, axis, keepdims=keepdims)
    values, w = floats_together(node, _laid(as_node(weights), node, axis))
    wide, heavy = (cast(n, values.dtype.compute) for n in (values, w))
    found = (folding.sum(wide * heavy, axis, keepdims=keepdims)
             / folding.sum(heavy, axis, keepdims=keepdims))
    return cast(found, values.dtype)


def _laid(weights: Node, x: Node, axis: Axis) -> Node:
    """Weights in the shape of x."""
    if weights.shape == x.shape:
        return weights
    axes = normalize_axes(axis, x.rank)
    if len(axes) != 1 or weights.shape != (x.shape[axes[0]],):
        raise ShapeError(f"{weights.type} are no weights of {x.type} over axes {axes}")
    sizes = tuple(d if i in axes else 1 for i, d in enumerate(x.shape))
    return broadcast_to(reshaped(weights, sizes), x.shape)
