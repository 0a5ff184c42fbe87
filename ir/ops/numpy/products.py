"""Matrix and tensor products under their NumPy names, each one CONTRACT."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx_py.ir.base.errors import ArgumentError, ShapeError
from rlx_py.ir.base.types import listed, normalize_axis
from rlx_py.ir.nodes.node import Node
from rlx_py.ir.nodes.operators import OPERATORS
from rlx_py.ir.ops.making.arguments import integers
from rlx_py.ir.ops.making.constant import constant
from rlx_py.ir.ops.making.located import located
from rlx_py.ir.ops.numpy.folding import sum
from rlx_py.ir.ops.numpy.shaping import moveaxis
from rlx_py.ir.ops.operands.operand import as_node, operands, together
from rlx_py.ir.ops.primitive.contract import CONTRACT
from rlx_py.ir.ops.primitive.elementwise import MUL
from rlx_py.ir.ops.primitive.movement import padded, permuted, reshaped, sliced

NO_AXES: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())


def contracted(a: Node, b: Node, left: Sequence[int], right: Sequence[int]) -> Node:
    """Σ over paired axes, no batch."""
    return CONTRACT(a, b, batch=NO_AXES, contract=(tuple(left), tuple(right)))


@located
def matmul(a: Any, b: Any) -> Node:
    """Matrix product of the last two axes; leading axes broadcast, rank 1 is a row or a column.

    A leading axis that only one operand has is a free axis of it: nothing is copied.
    """
    x, y = operands(a, b)
    if not x.rank or not y.rank:
        raise ShapeError(f"matmul takes no scalars: {x.type} @ {y.type}")
    if x.shape[-1] != y.shape[max(y.rank - 2, 0)]:
        raise ShapeError(f"inner sizes differ: {x.type} @ {y.type}")
    if x.rank == 1 or y.rank <= 2:
        # Only one operand has leading axes.
        return contracted(x, y, (x.rank - 1,), (max(y.rank - 2, 0),))
    return _batched(x, y)


def _batched(x: Node, y: Node) -> Node:
    """Axes of size 1 that the other operand stretches are dropped, and free axes put back."""
    lead = max(x.rank, y.rank) - 2
    sizes = [_lead_sizes(n, lead) for n in (x, y)]
    for a, b in zip(*sizes, strict=True):
        if a != b and 1 not in (a, b):
            raise ShapeError(f"leading axes do not broadcast: {x.type} @ {y.type}")
    shared = [i for i in range(lead) if sizes[0][i] == sizes[1][i]]
    own = [[i for i in range(lead) if i not in shared and s[i] != 1] for s in sizes]
    left = reshaped(x, (*(sizes[0][i] for i in range(lead) if i in shared or i in own[0]),
                        *x.shape[-2:]))
    right = reshaped(y, (*(sizes[1][i] for i in range(lead) if i in shared or i in own[1]),
                         *y.shape[-2:]))
    batch = tuple(
        tuple(j for j, i in enumerate(sorted([*shared, *mine])) if i in shared) for mine in own)
    found = CONTRACT(left, right, batch=batch,
                     contract=((left.rank - 1,), (right.rank - 2,)))
    # The product has the shared axes, x's own, rows, y's own, columns.
    layout = [*shared, *own[0], lead, *own[1], lead + 1]
    return permuted(found, tuple(layout.index(i) for i in range(lead + 2)))


def _lead_sizes(node: Node, lead: int) -> tuple[int, ...]:
    return (1,) * (lead + 2 - node.rank) + node.shape[:-2]


@located
def dot(a: Any, b: Any) -> Node:
    """Σ over the last axis of a and the second last (or only) of b; a product with a scalar."""
    x, y = operands(a, b)
    if not x.rank or not y.rank:
        return MUL(*together(x, y))
    return contracted(x, y, (x.rank - 1,), (max(y.rank - 2, 0),))


@located
def inner(a: Any, b: Any) -> Node:
    """Σ over the last axes of both; a product with a scalar."""
    x, y = operands(a, b)
    if not x.rank or not y.rank:
        return MUL(*together(x, y))
    return contracted(x, y, (x.rank - 1,), (y.rank - 1,))


@located
def vdot(a: Any, b: Any) -> Node:
    """Σ of the products of all elements."""
    x, y = (reshaped(n, (n.size,)) for n in operands(a, b))
    return contracted(x, y, (0,), (0,))


@located
def outer(a: Any, b: Any) -> Node:
    """Every product of an element of a with one of b, both flattened."""
    x, y = (reshaped(n, (n.size,)) for n in operands(a, b))
    return contracted(x, y, (), ())


@located
def tensordot(a: Any, b: Any, axes: Any = 2) -> Node:
    """Σ over the last `axes` axes of a and the first of b, or over two lists of axes in pairs."""
    x, y = operands(a, b)
    if isinstance(axes, int | np.integer):
        if not 0 <= axes <= min(x.rank, y.rank):
            raise ArgumentError(f"{axes} axes of {x.type} and {y.type}")
        return contracted(x, y, range(x.rank - int(axes), x.rank), range(int(axes)))
    parts = listed(axes, "axes")
    if len(parts) != 2:
        raise ArgumentError(f"axes are a number, or two lists, not {axes!r}")
    left, right = (integers("axes", part) for part in parts)
    if len(left) != len(right):
        raise ArgumentError(f"{len(left)} axes against {len(right)}")
    return contracted(x, y, [normalize_axis(i, x.rank) for i in left],
                      [normalize_axis(i, y.rank) for i in right])


# ---- diagonals -------------------------------------------------------------------------------


@located
def diagonal(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Node:
    """The elements at (i, i + offset) of two axes, as the last axis."""
    node = as_node(x)
    if node.rank < 2:
        raise ShapeError(f"{node.type} has no diagonal")
    node = moveaxis(node, (axis1, axis2), (-2, -1))
    lead, (n, m) = node.shape[:-2], node.shape[-2:]
    count = max(0, min(n, m - offset) if offset >= 0 else min(n + offset, m))
    start = (offset if offset >= 0 else -offset * m) if count else 0
    stop = start + (count - 1) * (m + 1) + 1 if count else 0
    flat = reshaped(node, (*lead, n * m))
    # One step of m + 1 in the flattened rows goes down the diagonal.
    return sliced(flat, (*(0 for _ in lead), start), (*lead, stop), (*(1 for _ in lead), m + 1))


@located
def diag(x: Any, k: int = 0) -> Node:
    """Diagonal k of a matrix, or the matrix that has a vector there and zeros elsewhere."""
    node = as_node(x)
    if node.rank == 2:
        return diagonal(node, k)
    if node.rank != 1:
        raise ShapeError(f"diag takes a vector or a matrix, not {node.type}")
    n = node.size + abs(k)
    start = k if k >= 0 else -k * n
    used = start + (node.size - 1) * (n + 1) + 1 if node.size else start
    flat = padded(node, constant(0, node.dtype), (start,), (n * n - used,), (n,))
    return reshaped(flat, (n, n))


@located
def trace(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Node:
    """The sum of a diagonal."""
    return sum(diagonal(x, offset, axis1, axis2), -1)


OPERATORS.update(matmul=matmul)
