"""Linear algebra over the last two axes, under NumPy's names; f32 and f64, batches of any rank.

Compiled on a CPU, factorisations and solves call LAPACK, which SciPy brings. Singular matrices give
NaN where they have no result.
"""

from __future__ import annotations

from math import inf
from typing import Any

from rlx_py.ir.base.errors import ArgumentError, ShapeError
from rlx_py.ir.base.types import normalize_axes
from rlx_py.ir.nodes.node import Node
from rlx_py.ir.ops.making.located import located
from rlx_py.ir.ops.matrices.determinant import DET
from rlx_py.ir.ops.matrices.factor import (
    CHOLESKY,
    EIGH,
    QR,
    SLOGDET,
    SOLVE,
    SVD,
    TRIANGULAR_SOLVE,
    check_matrix,
)
from rlx_py.ir.ops.matrices.factor_gradients import turned
from rlx_py.ir.ops.numpy.creation import eye
from rlx_py.ir.ops.numpy.folding import max as largest
from rlx_py.ir.ops.numpy.folding import min as smallest
from rlx_py.ir.ops.numpy.folding import norm as vector_norm
from rlx_py.ir.ops.numpy.folding import sum as total
from rlx_py.ir.ops.numpy.products import matmul
from rlx_py.ir.ops.numpy.shaping import concatenate, expand_dims, moveaxis, squeeze, window
from rlx_py.ir.ops.operands.operand import as_node, broadcast_shape, broadcast_to, operands
from rlx_py.ir.ops.primitive.elementwise import ABS


def _symmetric(a: Node) -> Node:
    check_matrix(a.tensor, square=True)
    return 0.5 * (a + turned(a))


@located
def cholesky(a: Any) -> Node:
    """The lower triangular L with L Lᵀ = (a + aᵀ)/2, NaN where that is not positive definite."""
    return CHOLESKY(_symmetric(as_node(a)))


def _sides(a: Any, b: Any) -> tuple[Node, Node, bool]:
    """A matrix and right-hand sides of one batch shape; whether b was one vector."""
    left, right = operands(a, b)
    check_matrix(left.tensor)
    vector = right.rank == 1
    right = expand_dims(right, -1) if vector else right
    check_matrix(right.tensor)
    batch = broadcast_shape(left.shape[:-2], right.shape[:-2])
    return (broadcast_to(left, (*batch, *left.shape[-2:])),
            broadcast_to(right, (*batch, *right.shape[-2:])), vector)


def _shown(x: Node, vector: bool) -> Node:
    return squeeze(x, -1) if vector else x


@located
def solve(a: Any, b: Any) -> Node:
    """x with a x = b, for a vector b[n] or matrices b[…, n, k]; NaN where a is singular."""
    left, right, vector = _sides(a, b)
    return _shown(SOLVE(left, right), vector)


@located
def triangular_solve(a: Any, b: Any, lower: bool = False, trans: bool = False,
                     unit_diagonal: bool = False) -> Node:
    """x with a x = b (aᵀ x = b if trans), reading only one triangle of a; of unit_diagonal not even
    the diagonal, which counts as 1. Arguments as scipy.linalg.solve_triangular."""
    left, right, vector = _sides(a, b)
    found = TRIANGULAR_SOLVE(left, right, lower=bool(lower), transpose=bool(trans),
                             unit=bool(unit_diagonal))
    return _shown(found, vector)


def _unit(a: Node) -> Node:
    n = a.shape[-1]
    return broadcast_to(eye(n, dtype=a.dtype), (*a.shape[:-2], n, n))


@located
def inv(a: Any) -> Node:
    """The inverse; NaN where a is singular."""
    node = as_node(a)
    check_matrix(node.tensor, square=True)
    return SOLVE(node, _unit(node))


@located
def slogdet(a: Any) -> tuple[Node, Node]:
    """The sign of the determinant and the logarithm of its size: (0, −inf) where a is singular."""
    found = SLOGDET(as_node(a))
    return found[0], found[1]


@located
def det(a: Any) -> Node:
    """The determinant, with derivatives at every rank: the gradient is the matrix of cofactors."""
    return DET(as_node(a))


@located
def qr(a: Any) -> tuple[Node, Node]:
    """Q, with orthonormal columns, and R, upper triangular: a = Q R with min(m, n) columns of Q."""
    node = as_node(a)
    rows, columns = check_matrix(node.tensor)
    if rows >= columns:
        found = QR(node)
        return found[0], found[1]
    axis = node.rank - 1
    square = QR(window(node, axis, 0, rows))
    rest = matmul(turned(square[0]), window(node, axis, rows, columns))
    return square[0], concatenate([square[1], rest], -1)


@located
def eigh(a: Any) -> tuple[Node, Node]:
    """Eigenvalues, ascending, and eigenvectors (columns) of (a + aᵀ)/2.

    Where eigenvalues coincide the gradient of single vectors is not defined, and their mutual terms
    count as 0.
    """
    found = EIGH(_symmetric(as_node(a)))
    return found[0], found[1]


@located
def eigvalsh(a: Any) -> Node:
    """Eigenvalues, ascending, of (a + aᵀ)/2."""
    return EIGH(_symmetric(as_node(a)))[0]


@located
def svd(a: Any) -> tuple[Node, Node, Node]:
    """U, σ (descending) and Vᵀ with a = U diag(σ) Vᵀ and min(m, n) singular values.

    Where singular values coincide or vanish, gradients of single vectors are as in eigh.
    """
    found = SVD(as_node(a))
    return found[0], found[1], found[2]


@located
def svdvals(a: Any) -> Node:
    """Singular values, descending."""
    return SVD(as_node(a))[1]


@located
def lstsq(a: Any, b: Any) -> Node:
    """The x of least Σ(a x − b)², of least size where several are, for a of full rank: by QR.

    NaN or very large numbers where the rank is not full.
    """
    left, right, vector = _sides(a, b)
    rows, columns = left.shape[-2:]
    if right.shape[-2] != rows:
        raise ShapeError(f"{right.type} is no right-hand side of {left.type}")
    attrs = {"lower": False, "unit": False}
    if rows >= columns:
        q, r = qr(left)
        found = TRIANGULAR_SOLVE(r, matmul(turned(q), right), transpose=False, **attrs)
    else:
        q, r = qr(turned(left))
        found = matmul(q, TRIANGULAR_SOLVE(r, right, transpose=True, **attrs))
    return _shown(found, vector)


@located
def pinv(a: Any) -> Node:
    """The pseudo-inverse of matrices of full rank."""
    node = as_node(a)
    rows, _ = check_matrix(node.tensor)
    return lstsq(node, broadcast_to(eye(rows, dtype=node.dtype), (*node.shape[:-2], rows, rows)))


@located
def matrix_power(a: Any, n: int) -> Node:
    """aⁿ for an integer n, by repeated squaring; of the inverse for n < 0."""
    node = as_node(a)
    check_matrix(node.tensor, square=True)
    if isinstance(n, bool) or not isinstance(n, int):
        raise ArgumentError(f"an exponent is an integer, not {n!r}")
    if n == 0:
        return _unit(node)
    base, left, found = inv(node) if n < 0 else node, abs(n), None
    while left:
        if left & 1:
            found = base if found is None else matmul(found, base)
        left >>= 1
        base = matmul(base, base) if left else base
    assert found is not None
    return found


@located
def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Node:
    """A vector norm over one axis, or a matrix norm over two: "fro", "nuc", 2 and −2 (singular
    values), 1 and −1 (columns), inf and −inf (rows). Without ord, √Σx² over all axes given."""
    node = as_node(x)
    axes = normalize_axes(axis, node.rank)
    if not isinstance(ord, int | float | str) or ord == "fro" or len(axes) != 2:
        return vector_norm(node, ord, axis, keepdims)
    rows, columns = axes if axis is None else (a % node.rank for a in axis)
    matrix = moveaxis(node, (rows, columns), (-2, -1))
    found = _matrix_norm(matrix, ord)
    return expand_dims(found, tuple(sorted(axes))) if keepdims else found


def _matrix_norm(matrix: Node, ord: Any) -> Node:
    if ord == "nuc":
        return total(svdvals(matrix), -1)
    if ord in (2, -2):
        return (largest if ord == 2 else smallest)(svdvals(matrix), -1)
    if ord in (1, -1, inf, -inf):
        sums = total(ABS(matrix), -2 if abs(ord) == 1 else -1)
        return (largest if ord > 0 else smallest)(sums, -1)
    raise ArgumentError(f"no matrix norm of order {ord!r}")
