"""A state that decays and takes up outer products, read by queries: what the state-space models
with one decay a head share.

    S_t = exp(a_t) S_{t−1} + w_t Σ_r x_{t,r} k_{t,r}ᵀ
    y_{t,r} = exp(a_t) S_{t−1} q_{t,r} + c_t Σ_s (q_{t,r}·k_{t,s}) x_{t,s}

With w = c that is S_t q_t. Time is the first axis: a, w, c [L, B, G, H], x [L, B, G, H, R, P], and
k, q [L, B, G, R, N], which the H heads of a group share; S [B, G, H, P, N].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlx_py.ir.base.types import TensorType
from rlx_py.ir.nodes.node import Node
from rlx_py.ir.ops.control.loops import scan
from rlx_py.ir.ops.numpy.einsum import einsum
from rlx_py.ir.ops.primitive.elementwise import EXP
from rlx_py.ir.ops.primitive.movement import filled, permuted, spread
from rlx_py.ir.ops.primitive.reduce import REDUCE_SUM


@dataclass(frozen=True, eq=False)
class Outer:
    """The operands, or their cotangents."""

    decay: Node
    weight: Node
    direct: Node
    x: Node
    k: Node
    q: Node


def swapped(x: Node) -> Node:
    """[B, L, …] as [L, B, …], and back."""
    return permuted(x, (1, 0, *range(2, x.rank)))


def _widened(x: Node, like: Node) -> Node:
    """Spread over the last axes of another node."""
    return spread(x, like.shape, tuple(range(x.rank)))


def _states(s: Outer, first: Node | None = None) -> tuple[Node, Node, Node]:
    """exp(a_t) S_{t−1} q_t, and exp(a_t) S_{t−1}, of each step, and S after the last; the scan of
    both passes. first: S before the first step, 0 without one."""
    _, b, g, h, _, p = s.x.shape
    if first is None:
        first = filled(0, TensorType(s.x.dtype, (b, g, h, p, s.k.shape[-1])))

    def body(state: Node, step: tuple[Node, ...]) -> tuple[Node, tuple[Node, Node]]:
        decay, weight, x, k, q = step
        kept = state * _widened(EXP(decay), state)
        read = einsum("bghpn,bgrn->bghrp", kept, q)
        taken = einsum("bghrp,bgrn->bghpn", x * _widened(weight, x), k)
        return kept + taken, (read, kept)

    last, (read, kept) = scan(body, first, (s.decay, s.weight, s.x, s.k, s.q))
    return read, kept, last


def outer_read(s: Outer) -> Node:
    """y [L, B, G, H, R, P]."""
    return outer_advanced(s, None)[0]


def outer_advanced(s: Outer, first: Node | None) -> tuple[Node, Node]:
    """y, and S [B, G, H, P, N] after the last step; first: S before the first one."""
    read, _, last = _states(s, first)
    near = einsum("lbgrn,lbgsn->lbgrs", s.q, s.k)
    return read + einsum("lbgrs,lbghsp->lbghrp", near, s.x * _widened(s.direct, s.x)), last


def outer_read_backward(dy: Node, s: Outer) -> Outer:
    """With Λ = dL/dS from later steps, T = Σ_r dy_r q_rᵀ + Λ and u_rs = ⟨dy_r, x_s⟩:

    da = ⟨T, αS_{t−1}⟩; dw = Σ_s ⟨x_s, Λ k_s⟩; dc = Σ u_rs (q_r·k_s);
    dx_s = w Λ k_s + c Σ_r (q_r·k_s) dy_r; dk_s = w Λᵀ x_s + c Σ_r u_rs q_r;
    dq_r = (αS_{t−1})ᵀ dy_r + c Σ_s u_rs k_s, over the heads of a group; Λ ← αT.
    """
    _, kept, _ = _states(s)

    def body(later: Node, step: tuple[Node, ...]) -> Any:
        dy, decay, weight, x, k, q, kept = step
        whole = later + einsum("bghrp,bgrn->bghpn", dy, q)
        over_k = einsum("bghpn,bgrn->bghrp", later, k)
        dk = einsum("bghpn,bghrp->bgrn", later, x * _widened(weight, x))
        dq = einsum("bghpn,bghrp->bgrn", kept, dy)
        before = whole * _widened(EXP(decay), whole)
        return before, (REDUCE_SUM(whole * kept, axes=(3, 4)), over_k, dk, dq)

    steps = (dy, s.decay, s.weight, s.x, s.k, s.q, kept)
    _, (decay, over_k, dk, dq) = scan(body, filled(0, kept.tensor.with_shape(kept.shape[1:])),
                                      steps, reverse=True)
    near = einsum("lbgrn,lbgsn->lbgrs", s.q, s.k)
    u = einsum("lbghrp,lbghsp->lbghrs", dy, s.x)
    across = REDUCE_SUM(u * _widened(s.direct, u), axes=(3,))
    back = einsum("lbgrs,lbghrp->lbghsp", near, dy)
    return Outer(
        decay, weight=REDUCE_SUM(s.x * over_k, axes=(4, 5)),
        direct=einsum("lbghrs,lbgrs->lbgh", u, near),
        x=over_k * _widened(s.weight, s.x) + back * _widened(s.direct, s.x),
        k=dk + einsum("lbgrs,lbgrn->lbgsn", across, s.q),
        q=dq + einsum("lbgrs,lbgsn->lbgrn", across, s.k))
