"""The gated delta rule: a memory that decays and is corrected toward each value, by the plain scan.

Formula: Yang, Kautz and Hatamizadeh 2024.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Any

from rlx_py.ir.base.errors import ArgumentError, ShapeError
from rlx_py.ir.base.types import TensorType, TupleType, Type
from rlx_py.ir.graph.transforms import AD
from rlx_py.ir.nodes.node import Node
from rlx_py.ir.ops.control.batched import merge_rows
from rlx_py.ir.ops.control.loops import scan
from rlx_py.ir.ops.making.arguments import real, require_floats, require_shape
from rlx_py.ir.ops.making.families import composite
from rlx_py.ir.ops.making.located import located
from rlx_py.ir.ops.making.rows import first_axis
from rlx_py.ir.ops.nn.state_space.outer_states import swapped
from rlx_py.ir.ops.nn.state_space.ssm import check_groups, state_of
from rlx_py.ir.ops.numpy.einsum import einsum
from rlx_py.ir.ops.operands.operand import convert, operands
from rlx_py.ir.ops.operands.precision import in_compute_type
from rlx_py.ir.ops.primitive.elementwise import EXP
from rlx_py.ir.ops.primitive.movement import filled, reshaped, spread
from rlx_py.ir.ops.primitive.reduce import REDUCE_SUM


def _check(name: str, q: TensorType, k: TensorType, v: TensorType, g: TensorType, beta: TensorType,
           scale: float) -> None:
    require_floats(name, q, k, v, g, beta)
    for what, t in (("q", q), ("v", v)):
        if t.rank != 4:
            raise ShapeError(f"{what} is [B, L, heads, width], not {t}")
    rows, steps, groups, _ = q.shape
    heads = v.shape[2]
    check_groups(heads, groups)
    require_shape("k", k, q.shape)
    require_shape("v", v, (rows, steps, *v.shape[2:]))
    require_shape("g", g, (rows, steps, heads))
    require_shape("beta", beta, g.shape)
    if not isfinite(scale):
        raise ArgumentError(f"scale must be finite, not {scale}")


def _infer(q: TensorType, k: TensorType, v: TensorType, g: TensorType, beta: TensorType, *,
           scale: float) -> Type:
    _check("gated_delta_net", q, k, v, g, beta, scale)
    return v


def _infer_backward(dy: TensorType, q: TensorType, k: TensorType, v: TensorType, g: TensorType,
                    beta: TensorType, *, scale: float) -> Type:
    _check("gated_delta_net_backward", q, k, v, g, beta, scale)
    require_floats("gated_delta_net_backward", q, dy)
    require_shape("dy", dy, v.shape)
    return TupleType((q, k, v, g, beta))


class _Steps:
    """The operands time first, heads by group: v [L, B, G, H, V], g and beta [L, B, G, H], q and k
    [L, B, G, K]; the state is S [B, G, H, V, K]."""

    def __init__(self, q: Node, k: Node, v: Node, g: Node, beta: Node) -> None:
        rows, steps, groups, _ = q.shape
        self.lead = (steps, rows, groups, v.shape[2] // groups)
        self.q, self.k = swapped(q), swapped(k)
        self.v, self.g, self.beta = self.by_group(v), self.by_group(g), self.by_group(beta)

    def by_group(self, x: Node) -> Node:
        """[B, L, heads, …] time first, heads by group."""
        return reshaped(swapped(x), (*self.lead, *x.shape[3:]))

    def read(self, first: Node | None = None) -> tuple[Node, Node, Node, Node]:
        """S_t q_t, α S_{t−1} and v_t − α S_{t−1} k_t of each step, and S after the last; the scan
        of both passes. first: S before the first step, 0 without one."""
        state = (*self.lead[1:], self.v.shape[-1], self.k.shape[-1])

        def body(s: Node, step: tuple[Node, ...]) -> tuple[Node, tuple[Node, Node, Node]]:
            q, k, v, g, beta = step
            kept = s * _wide(EXP(g), s)
            error = v - einsum("bghvk,bgk->bghv", kept, k)
            s = kept + _outer(error * _wide(beta, error), k)
            return s, (einsum("bghvk,bgk->bghv", s, q), kept, error)

        if first is None:
            first = filled(0, self.v.tensor.with_shape(state))
        last, found = scan(body, first, (self.q, self.k, self.v, self.g, self.beta))
        y, kept, error = found
        return y, kept, error, last


def _wide(x: Node, like: Node) -> Node:
    return spread(x, like.shape, tuple(range(x.rank)))


def _outer(x: Node, k: Node) -> Node:
    """x kᵀ of each head: [B, G, H, V, K]."""
    shape = (*x.shape, k.shape[-1])
    return spread(x, shape, (0, 1, 2, 3)) * spread(k, shape, (0, 1, 4))


@in_compute_type
def _decompose(q: Node, k: Node, v: Node, g: Node, beta: Node, *, scale: float) -> Node:
    y, *_ = _Steps(q, k, v, g, beta).read()
    return _by_rows(y, v) * scale


def _by_rows(n: Node, like: Node) -> Node:
    """Time first, as one of the op's operands."""
    return swapped(reshaped(n, (like.shape[1], like.shape[0], *like.shape[2:])))


@in_compute_type
def _decompose_backward(dy: Node, q: Node, k: Node, v: Node, g: Node, beta: Node, *, scale: float
                        ) -> tuple[Node, ...]:
    """With P = αS_{t−1}, e = v − P k, S = P + β e kᵀ and Λ = dL/dS from later steps:

    T = dy qᵀ + Λ; dq = Sᵀ dy; dβ = ⟨T k, e⟩; dv = β T k; dk = β Tᵀe − Pᵀ dv; dP = T − dv kᵀ;
    dg = ⟨dP, P⟩; Λ ← α dP. All dy times the scale.
    """
    s = _Steps(q, k, v, g, beta)
    _, kept, error, _ = s.read()

    def body(later: Node, step: tuple[Node, ...]) -> Any:
        dy, q, k, g, beta, kept, error = step
        moved = error * _wide(beta, error)
        whole = later + _outer(dy, q)
        # Not of S itself, which nothing else needs whole.
        own = einsum("bghv,bghv->bg", moved, dy)
        dq = einsum("bghvk,bghv->bgk", kept, dy) + _wide(own, k) * k
        over_k = einsum("bghvk,bgk->bghv", whole, k)
        dv = over_k * _wide(beta, over_k)
        dk = einsum("bghvk,bghv->bgk", whole, moved) - einsum("bghvk,bghv->bgk", kept, dv)
        dkept = whole - _outer(dv, k)
        dg = REDUCE_SUM(dkept * kept, axes=(3, 4))
        dbeta = REDUCE_SUM(over_k * error, axes=(3,))
        return dkept * _wide(EXP(g), dkept), (dq, dk, dv, dg, dbeta)

    first = filled(0, kept.tensor.with_shape(kept.shape[1:]))
    steps = (s.by_group(dy) * scale, s.q, s.k, s.g, s.beta, kept, error)
    _, found = scan(body, first, steps, reverse=True)
    return tuple(_by_rows(n, x) for n, x in zip(found, (q, k, v, g, beta), strict=True))


GATED_DELTA_NET_BACKWARD = composite("gated_delta_net_backward", _infer_backward,
                                     _decompose_backward)


def _vjp(node: Node, ct: Node, ad: AD) -> Sequence[Node | None]:
    return list(GATED_DELTA_NET_BACKWARD(ct, *node.inputs, **node.attrs))


def _rows(node: Node) -> list[bool]:
    return [True] * len(node.inputs)


GATED_DELTA_NET = composite("gated_delta_net", _infer, _decompose, vjp=_vjp,
                            batch=merge_rows(_rows), rows=first_axis(_rows))


@located
def gated_delta_net(q: Any, k: Any, v: Any, g: Any, beta: Any, scale: float | None = None, *,
                    state: Any = None, return_state: bool = False) -> Any:
    """The gated delta rule (Yang et al. 2024): y_t = scale·S_t q_t, where
    S_t = α_t S_{t−1}(I − β_t k_t k_tᵀ) + β_t v_t k_tᵀ, α_t = exp(g_t), S_{−1} = state, 0 without
    one, for each head.

    q, k [B, L, G, K]; v[B, L, H, V], head h using q and k of group h // (H/G); g (the logarithm of
    the decay) and beta [B, L, H]; state[B, H, V, K]. scale None is 1/√K. return_state gives (y, S
    after the last step), of f32 for f16 and bf16, which compute in it. L may be 0. Raises
    ShapeError, DTypeError (not floats), ArgumentError (scale).
    """
    nodes = operands(q, k, v, g, beta)
    if scale is None:
        scale = nodes[0].shape[-1] ** -0.5 if nodes[0].size and nodes[0].rank else 1.0
    whole = GATED_DELTA_NET(*nodes, scale=real("scale", scale))
    if state is None and not return_state:
        return whole
    dtype = whole.dtype
    rows, _, heads, width = whole.shape
    groups, depth = nodes[0].shape[2:]
    shape = (rows, heads, width, depth)
    first = state_of(state, "state", shape, dtype.compute)
    if first is not None:
        first = reshaped(first, (rows, groups, heads // groups, width, depth))
    wide = [convert(n, dtype.compute) for n in nodes]
    y, _, _, last = _Steps(*wide).read(first)
    found = convert(_by_rows(y, wide[2]) * whole.attrs["scale"], dtype)
    return (found, reshaped(last, shape)) if return_state else found
