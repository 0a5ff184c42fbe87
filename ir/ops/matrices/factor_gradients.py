"""Derivatives of factorisations and solves, as expressions of themselves: any order follows.

Formulas: M. Giles, Collected matrix derivative results for forward and reverse mode algorithmic
differentiation (2008); S. Walter and L. Lehmann (2010) for QR; J. Townsend (2016) for the SVD.
Where eigenvalues or singular values coincide, single vectors have no derivative: their mutual
partials 1/(λⱼ − λᵢ) are infinite, and the chain rule's product says what comes of them. So they are
where values differ by no more than rounding, which turns vectors as it likes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx_py.ir.graph.transforms import AD
from rlx_py.ir.nodes.node import OPS, Node
from rlx_py.ir.ops.numpy.choice import where
from rlx_py.ir.ops.numpy.creation import eye, tril, triu
from rlx_py.ir.ops.numpy.folding import max as largest
from rlx_py.ir.ops.numpy.folding import sum as total
from rlx_py.ir.ops.numpy.products import matmul
from rlx_py.ir.ops.numpy.shaping import broadcast_to, expand_dims, swapaxes
from rlx_py.ir.ops.primitive.elementwise import ABS
from rlx_py.ir.ops.primitive.movement import filled

Results = Sequence[Node | None]
REPEATED = 8  # units in the last place of the largest value by which repeated ones come out apart


def turned(x: Node) -> Node:
    """xᵀ."""
    return swapaxes(x, -1, -2)


def _unit(like: Node) -> Node:
    """The unit matrix of the last axis, for each matrix."""
    n = like.shape[-1]
    return broadcast_to(eye(n, dtype=like.dtype), (*like.shape[:-2], n, n))


def diagonal_of(x: Node) -> Node:
    """The diagonals of square matrices."""
    return total(x * _unit(x), -1)


def columns_times(x: Node, factors: Node) -> Node:
    """x diag(factors)."""
    return x * expand_dims(factors, -2)


def rows_times(x: Node, factors: Node) -> Node:
    """diag(factors) x."""
    return x * expand_dims(factors, -1)


def diagonal_matrix(values: Node) -> Node:
    """diag(values)."""
    n = values.shape[-1]
    return eye(n, dtype=values.dtype) * expand_dims(values, -1)


def _halved(x: Node) -> Node:
    """Φ: the lower triangle with half the diagonal."""
    return tril(x) - 0.5 * x * _unit(x)


def mirrored(t: Node) -> Node:
    """The symmetric matrix whose lower triangle is that of t."""
    return tril(t) + turned(tril(t, -1))


def folded(s: Node) -> Node:
    """The adjoint of mirroring: what the upper triangle gets is added to the lower."""
    return tril(s + turned(s)) - s * _unit(s)


def _plus(terms: Sequence[Node | None]) -> Node | None:
    found: Node | None = None
    for t in terms:
        if t is not None:
            found = t if found is None else found + t
    return found


def _triangular(a: Node, b: Node, *, transpose: bool = False, lower: bool = True) -> Node:
    return OPS["triangular_solve"](a, b, lower=lower, transpose=transpose, unit=False)


def _solve(a: Node, b: Node) -> Node:
    return OPS["solve"](a, b)


def _right_divided(x: Node, r: Node) -> Node:
    """x R⁻¹ for an upper triangular R."""
    return turned(_triangular(r, turned(x), transpose=True, lower=False))


def _right_divided_transposed(x: Node, r: Node) -> Node:
    """x R⁻ᵀ for an upper triangular R."""
    return turned(_triangular(r, turned(x), lower=False))


# ---- Cholesky --------------------------------------------------------------------------------


def cholesky_vjp(node: Node, ct: Node, ad: AD) -> Results:
    """S = L⁻ᵀ Φ(Lᵀ L̄) L⁻¹."""
    inner = _halved(matmul(turned(node), tril(ct)))
    left = _triangular(node, inner, transpose=True)
    s = turned(_triangular(node, turned(left), transpose=True))
    return (folded(s),)


def cholesky_jvp(node: Node, tangents: Results, ad: AD) -> Node | None:
    """dL = L Φ(L⁻¹ dA L⁻ᵀ)."""
    (t,) = tangents
    if t is None:
        return None
    left = _triangular(node, mirrored(t))
    return matmul(node, _halved(turned(_triangular(node, turned(left)))))


# ---- solves ----------------------------------------------------------------------------------


def _part(x: Node, lower: bool, unit: bool) -> Node:
    """The entries that a triangular solve reads."""
    return tril(x, -int(unit)) if lower else triu(x, int(unit))


def triangular_vjp(node: Node, ct: Node, ad: AD) -> Results:
    """B̄ = A⁻ᵀ X̄, Ā = −B̄ Xᵀ (of A as it stands in the product)."""
    a, attrs = node.inputs[0], node.attrs
    db = OPS["triangular_solve"](a, ct, **{**attrs, "transpose": not attrs["transpose"]})
    left, right = (node, db) if attrs["transpose"] else (db, node)
    return (_part(-matmul(left, turned(right)), attrs["lower"], attrs["unit"]), db)


def triangular_jvp(node: Node, tangents: Results, ad: AD) -> Node | None:
    """dX = A⁻¹(dB − dA X)."""
    (ta, tb), attrs = tangents, node.attrs
    moved = None
    if ta is not None:
        part = _part(ta, attrs["lower"], attrs["unit"])
        moved = -matmul(turned(part) if attrs["transpose"] else part, node)
    right = _plus((tb, moved))
    return None if right is None else OPS["triangular_solve"](node.inputs[0], right, **attrs)


def solve_vjp(node: Node, ct: Node, ad: AD) -> Results:
    """B̄ = A⁻ᵀ X̄, Ā = −B̄ Xᵀ."""
    db = _solve(turned(node.inputs[0]), ct)
    return (-matmul(db, turned(node)), db)


def solve_jvp(node: Node, tangents: Results, ad: AD) -> Node | None:
    """dX = A⁻¹(dB − dA X)."""
    ta, tb = tangents
    right = _plus((tb, None if ta is None else -matmul(ta, node)))
    return None if right is None else _solve(node.inputs[0], right)


# ---- determinant -----------------------------------------------------------------------------


def slogdet_vjp(node: Node, ct: Any, ad: AD) -> Results:
    """Ā = ℓ̄ A⁻ᵀ; the sign is constant."""
    (a,), (_, size) = node.inputs, ct
    if size is None:
        return (None,)
    inverse = _solve(turned(a), _unit(a))
    return (ad.times(broadcast_to(expand_dims(size, (-2, -1)), a.shape), inverse),)


def slogdet_jvp(node: Node, tangents: Results, ad: AD) -> Any:
    """dℓ = tr(A⁻¹ dA)."""
    (t,) = tangents
    return None if t is None else (None, total(diagonal_of(_solve(node.inputs[0], t)), -1))


# ---- QR --------------------------------------------------------------------------------------


def qr_vjp(node: Node, ct: Any, ad: AD) -> Results:
    """Ā = (Q̄ + Q copyltu(R R̄ᵀ − Q̄ᵀ Q)) R⁻ᵀ; copyltu mirrors the lower triangle."""
    q, r = node[0], node[1]
    cq, cr = ct
    m = _plus((None if cr is None else matmul(r, turned(triu(cr))),
               None if cq is None else -matmul(turned(cq), q)))
    assert m is not None
    whole = _plus((cq, matmul(q, mirrored(m))))
    assert whole is not None
    return (_right_divided_transposed(whole, r),)


def qr_jvp(node: Node, tangents: Results, ad: AD) -> Any:
    """With C = Qᵀ dA R⁻¹ and Ω its strict lower triangle less the transpose of that:
    dR = (C − Ω) R, dQ = dA R⁻¹ − Q (C − Ω)."""
    (t,) = tangents
    if t is None:
        return None
    q, r = node[0], node[1]
    divided = _right_divided(t, r)
    c = matmul(turned(q), divided)
    upper = c - tril(c, -1) + turned(tril(c, -1))
    return (divided - matmul(q, upper), matmul(upper, r))


# ---- eigenvalues and singular values ---------------------------------------------------------


def largest_of(values: Node) -> Node:
    """The largest |value| of each matrix, along an axis of size 1."""
    if values.shape[-1] == 0:
        return filled(0, values.tensor.with_shape((*values.shape[:-1], 1)))
    return largest(ABS(values), -1, keepdims=True)


def _apart(x: Node, values: Node) -> Node:
    """What values or their differences are, 0 where that is but the rounding of the largest."""
    rounding = REPEATED * float(np.finfo(values.dtype.numpy).eps)
    noise = broadcast_to(rounding * expand_dims(largest_of(values), -1), x.shape)
    return where(ABS(x) <= noise, 0.0, x)


def _over_gaps(x: Node, values: Node, ad: AD, squared: bool = False) -> Node:
    """x[i, j]/(λⱼ − λᵢ), 0 on the diagonal; for λ = σ² given as σ.

    Of cotangents each [i, j] by itself: two that cancel at an infinite partial are not none.
    """
    unit = _unit(x) > 0
    left, right = expand_dims(values, -2), expand_dims(values, -1)
    gap = _apart(left - right, values)
    if squared:
        gap = gap * (left + right)
    return ad.times(where(unit, 0.0, x), 1 / where(unit, 1.0, gap))


def eigh_vjp(node: Node, ct: Any, ad: AD) -> Results:
    """S = V (diag(λ̄) + F ∘ Vᵀ V̄) Vᵀ, F = 1/(λⱼ − λᵢ)."""
    values, v = node[0], node[1]
    cw, cv = ct
    inner = _plus((None if cw is None else diagonal_matrix(cw),
                   None if cv is None else _over_gaps(matmul(turned(v), cv), values, ad)))
    assert inner is not None
    return (folded(matmul(matmul(v, inner), turned(v))),)


def eigh_jvp(node: Node, tangents: Results, ad: AD) -> Any:
    """C = Vᵀ dA V: dλ = diag C, dV = V (F ∘ C)."""
    (t,) = tangents
    if t is None:
        return None
    values, v = node[0], node[1]
    c = matmul(matmul(turned(v), mirrored(t)), v)
    return (diagonal_of(c), matmul(v, _over_gaps(c, values, ad)))


def _over_columns(x: Node, s: Node, ad: AD) -> Node:
    """x diag(1/σ)."""
    return ad.times(x, broadcast_to(1 / _apart(expand_dims(s, -2), s), x.shape))


def outside(x: Node, u: Node) -> Node:
    """(I − U Uᵀ) x."""
    return x - matmul(u, matmul(turned(u), x))


def svd_vjp(node: Node, ct: Any, ad: AD) -> Results:
    """Ā = U [(F∘(G − Gᵀ)) Σ + Σ (F∘(H − Hᵀ)) + diag σ̄] Vᵀ + (I − UUᵀ) Ū Σ⁻¹ Vᵀ
    + U Σ⁻¹ V̄ᵀ (I − VVᵀ) with G = Uᵀ Ū, H = Vᵀ V̄ and F = 1/(σⱼ² − σᵢ²)."""
    u, s, vt = node[0], node[1], node[2]
    cu, cs, cvt = ct
    inner: list[Node | None] = [None if cs is None else diagonal_matrix(cs)]
    outer: list[Node | None] = []
    if cu is not None:
        g = matmul(turned(u), cu)
        g = _over_gaps(g, s, ad, squared=True)
        inner.append(columns_times(g + turned(g), s))
        if u.shape[-2] > u.shape[-1]:
            outer.append(matmul(_over_columns(outside(cu, u), s, ad), vt))
    if cvt is not None:
        h = matmul(vt, turned(cvt))
        h = _over_gaps(h, s, ad, squared=True)
        inner.append(rows_times(h + turned(h), s))
        if vt.shape[-1] > vt.shape[-2]:
            rest = _over_columns(outside(turned(cvt), turned(vt)), s, ad)
            outer.append(matmul(u, turned(rest)))
    whole = _plus(inner)
    assert whole is not None
    return (_plus((matmul(matmul(u, whole), vt), *outer)),)


def svd_jvp(node: Node, tangents: Results, ad: AD) -> Any:
    """P = Uᵀ dA V: dσ = diag P, dU = U (F∘(PΣ + ΣPᵀ)) + (I − UUᵀ) dA V Σ⁻¹,
    dV = V (F∘(ΣP + PᵀΣ)) + (I − VVᵀ) dAᵀ U Σ⁻¹."""
    (t,) = tangents
    if t is None:
        return None
    u, s, vt = node[0], node[1], node[2]
    v = turned(vt)
    tv, tu = matmul(t, v), matmul(turned(t), u)
    p = matmul(turned(u), tv)
    left, right = columns_times(p, s), rows_times(p, s)
    du = matmul(u, _over_gaps(left + turned(left), s, ad, squared=True))
    dv = matmul(v, _over_gaps(right + turned(right), s, ad, squared=True))
    if u.shape[-2] > u.shape[-1]:
        du = du + _over_columns(outside(tv, u), s, ad)
    if v.shape[-2] > v.shape[-1]:
        dv = dv + _over_columns(outside(tu, v), s, ad)
    return (du, diagonal_of(p), turned(dv))
