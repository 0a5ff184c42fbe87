"""The determinant as what it is, a polynomial: all derivatives exist, whatever the rank.

With A = U Σ Vᵀ its gradient, the matrix of cofactors, is det(U) det(V) U diag(Πⱼ≠ᵢ σⱼ) Vᵀ, and the
higher derivatives are sums of minors of the directions times products of the other singular values.
Nothing is divided and nothing solved.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, permutations

from rlx_py.ir.base.types import TensorType, Type, i64
from rlx_py.ir.graph.transforms import AD
from rlx_py.ir.nodes.node import Node
from rlx_py.ir.ops.making.batching import unchanged
from rlx_py.ir.ops.making.constant import IOTA
from rlx_py.ir.ops.making.families import composite
from rlx_py.ir.ops.matrices.factor import SLOGDET, SVD, check_matrix
from rlx_py.ir.ops.matrices.factor_gradients import diagonal_matrix, diagonal_of, turned
from rlx_py.ir.ops.matrices.spectral import check_parts, field
from rlx_py.ir.ops.numpy.choice import equal, logical_or, where
from rlx_py.ir.ops.numpy.folding import sum as total
from rlx_py.ir.ops.numpy.products import matmul
from rlx_py.ir.ops.numpy.shaping import broadcast_to, expand_dims
from rlx_py.ir.ops.primitive.elementwise import EXP, LOG, MUL
from rlx_py.ir.ops.primitive.movement import reshaped


def _infer_cofactors(*types: TensorType, order: int) -> Type:
    n, _ = check_matrix(types[0], square=True)
    check_parts(types, [(n, n), (n,), (n, n)], order)
    return types[0]


def _cofactors(a: Node, u: Node, s: Node, vt: Node, *directions: Node, order: int) -> Node:
    """∂ᵏ⁺¹det by all directions and, open, one more.

    In the basis of U and V, at (e, π(e)): Σ over distinct i₁ … iₖ, e of
    Π_{l∉i,e} σₗ Σ_π sgn(π) Πⱼ Tⱼ[iⱼ, i_π(j)].
    """
    moved = [matmul(turned(u), matmul(t, turned(vt))) for t in directions]
    rest = _products_of_others(s, order + 1)
    inner: Node | None = None
    for places in permutations(range(order + 1)):
        part = _minor(rest, moved, places)
        inner = part if inner is None else inner + part
    assert inner is not None
    sign = SLOGDET(u)[0] * SLOGDET(vt)[0]
    return expand_dims(sign, (-2, -1)) * matmul(u, matmul(inner, vt))


def _products_of_others(s: Node, rank: int) -> Node:
    """Π σₗ over l outside i₁ … i_rank, along an axis each; 0 where two of these are equal.

    By logarithms, so that no product in between overflows.
    """
    n = s.shape[-1]
    axes = [IOTA(shape=tuple(n if i == axis else 1 for i in range(rank + 1)), axis=axis, dtype=i64)
            for axis in range(rank + 1)]
    *chosen, each = axes
    left_out = equal(chosen[0], each)
    for i in chosen[1:]:
        left_out = logical_or(left_out, equal(i, each))
    logs = reshaped(LOG(s), (*s.shape[:-1], *[1] * rank, n))
    found = EXP(total(where(left_out, 0.0, logs), -1))
    for a, b in combinations(chosen, 2):
        found = where(total(equal(a, b), -1), 0.0, found)
    return found


def _minor(rest: Node, moved: Sequence[Node], places: tuple[int, ...]) -> Node:
    """One permutation's term, a matrix: of the open direction row e and column i_π(e)."""
    rank, lead = len(places), rest.rank - len(places)
    product = rest
    for axis, (t, target) in enumerate(zip(moved, places, strict=False)):
        if target == axis:
            factor, kept = diagonal_of(t), {axis}
        else:
            factor, kept = (t if axis < target else turned(t)), {axis, target}
        product = product * reshaped(factor, (
            *factor.shape[:-len(kept)],
            *(rest.shape[lead + i] if i in kept else 1 for i in range(rank))))
    last = rank - 1
    open_axes = {last, places[last]}
    summed = tuple(lead + i for i in range(rank) if i not in open_axes)
    found = total(product, summed) if summed else product
    found = diagonal_matrix(found) if len(open_axes) == 1 else turned(found)
    return -found if _odd(places) else found


def _odd(places: tuple[int, ...]) -> bool:
    return sum(a > b for a, b in combinations(places, 2)) % 2 == 1


# Inputs: A, its singular value decomposition, directions.
COFACTORS = field("cofactors", 3, _infer_cofactors, _cofactors)


def _infer_det(a: TensorType) -> Type:
    check_matrix(a, square=True)
    return a.with_shape(a.shape[:-2])


def _det(a: Node) -> Node:
    found = SLOGDET(a)
    return MUL(found[0], EXP(found[1]))


def _gradient(a: Node) -> Node:
    found = SVD(a)
    return COFACTORS(a, found[0], found[1], found[2], order=0)


def _det_vjp(node: Node, ct: Node, ad: AD) -> Sequence[Node | None]:
    (a,) = node.inputs
    return (ad.times(broadcast_to(expand_dims(ct, (-2, -1)), a.shape), _gradient(a)),)


def _det_jvp(node: Node, tangents: Sequence[Node | None], ad: AD) -> Node | None:
    (t,) = tangents
    return None if t is None else total(_gradient(node.inputs[0]) * t, (-2, -1))


DET = composite("det", _infer_det, _det, vjp=_det_vjp, jvp=_det_jvp, batch=unchanged)
