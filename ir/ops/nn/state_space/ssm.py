"""Selective state-space models: the scan of Mamba and the duality of Mamba-2, by the plain scan.

Formulas: Gu and Dao 2023; Dao and Gu 2024.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rlx_py.ir.base.errors import ShapeError
from rlx_py.ir.base.types import DType, TensorType, TupleType, Type
from rlx_py.ir.graph.transforms import AD
from rlx_py.ir.nodes.node import Node, Op
from rlx_py.ir.ops.control.batched import merge_rows
from rlx_py.ir.ops.control.loops import scan
from rlx_py.ir.ops.making.arguments import require_floats, require_shape
from rlx_py.ir.ops.making.families import composite
from rlx_py.ir.ops.making.located import located
from rlx_py.ir.ops.making.rows import first_axis
from rlx_py.ir.ops.nn.norm.gated_norm import gate_of
from rlx_py.ir.ops.nn.state_space.outer_states import (
    Outer,
    outer_advanced,
    outer_read,
    outer_read_backward,
    swapped,
)
from rlx_py.ir.ops.numpy.einsum import einsum
from rlx_py.ir.ops.operands.operand import as_node, convert, operands
from rlx_py.ir.ops.operands.precision import in_compute_type
from rlx_py.ir.ops.primitive.elementwise import EXP
from rlx_py.ir.ops.primitive.movement import filled, reshaped, spread
from rlx_py.ir.ops.primitive.reduce import REDUCE_SUM

# Both ops take (x, dt, a, b, c), then d and z where they have them.
Check = Callable[..., None]


def _infer(name: str, check: Check) -> Callable[..., Type]:
    def infer(*types: TensorType, has_d: bool, has_z: bool) -> Type:
        _check_operands(name, types, check, has_d, has_z)
        return types[0]

    return infer


def _infer_backward(name: str, check: Check) -> Callable[..., Type]:
    def infer(dy: TensorType, *types: TensorType, has_d: bool, has_z: bool) -> Type:
        _check_operands(f"{name}_backward", types, check, has_d, has_z)
        require_floats(name, types[0], dy)
        require_shape("dy", dy, types[0].shape)
        return TupleType(tuple(types))

    return infer


def _check_operands(name: str, types: Sequence[TensorType], check: Check, has_d: bool,
                    has_z: bool) -> None:
    require_floats(name, *types)
    if len(types) != 5 + has_d + has_z:
        raise ShapeError(f"{len(types)} operands with has_d={has_d}, has_z={has_z}")
    check(*types[:5])
    if has_d:
        require_shape("d", types[5], types[2].shape[:1])
    if has_z:
        require_shape("z", types[-1], types[0].shape)


def _rows(node: Node) -> tuple[bool, ...]:
    return (True, True, False, True, True, *[False] * node.attrs["has_d"],
            *[True] * node.attrs["has_z"])


def _gated(y: Node, x: Node, rest: Sequence[Node], has_d: bool, has_z: bool) -> Node:
    """(y + d·x)·silu(z), each where present; the channels of d are axis 2."""
    whole = y + spread(rest[0], x.shape, (2,)) * x if has_d else y
    return whole * gate_of(rest[-1])[0] if has_z else whole


def _gate_backward(dy: Node, y: Node, x: Node, rest: Sequence[Node], has_d: bool, has_z: bool
                   ) -> tuple[Node, Node | None, list[Node]]:
    """The cotangents of y, of x by way of d, and of d and z where present."""
    g, found = dy, list[Node]()
    if has_z:
        gate, slope = gate_of(rest[-1])
        g, found = dy * gate, [dy * _gated(y, x, rest, has_d, False) * slope]
    if not has_d:
        return g, None, found
    d = REDUCE_SUM(g * x, axes=(0, 1, *range(3, x.rank)))
    return g, g * spread(rest[0], x.shape, (2,)), [d, *found]


def _sum(a: Node, b: Node | None) -> Node:
    return a if b is None else a + b


def _op(name: str, check: Check, decompose: Callable[..., Any],
        decompose_backward: Callable[..., Any]) -> Op:
    """The op and its backward."""
    backward = composite(f"{name}_backward", _infer_backward(name, check),
                         in_compute_type(decompose_backward))

    def vjp(node: Node, ct: Node, ad: AD) -> Sequence[Node | None]:
        return list(backward(ct, *node.inputs, **node.attrs))

    return composite(name, _infer(name, check), in_compute_type(decompose), vjp=vjp,
                     batch=merge_rows(_rows), rows=first_axis(_rows))


# ---- Mamba -----------------------------------------------------------------------------------


def _check_selective(u: TensorType, dt: TensorType, a: TensorType, b: TensorType, c: TensorType
                     ) -> None:
    if u.rank != 3:
        raise ShapeError(f"u is [B, L, D], not {u}")
    if a.rank != 2:
        raise ShapeError(f"A is [D, N], not {a}")
    rows, steps, width = u.shape
    require_shape("delta", dt, u.shape)
    require_shape("A", a, (width, a.shape[1]))
    for name, t in (("B", b), ("C", c)):
        require_shape(name, t, (rows, steps, a.shape[1]))


def _decays(dt: Node, a: Node) -> Node:
    """exp(Δ A) of one step: [B, D, N]."""
    shape = (*dt.shape, a.shape[1])
    return EXP(spread(dt, shape, (0, 1)) * spread(a, shape, (1, 2)))


def _outer(x: Node, b: Node) -> Node:
    """x bᵀ of each row: [B, D, N]."""
    shape = (*x.shape, b.shape[1])
    return spread(x, shape, (0, 1)) * spread(b, shape, (0, 2))


def _selective_states(u: Node, dt: Node, a: Node, b: Node, c: Node, first: Node | None = None
                      ) -> tuple[Node, Node, Node]:
    """C h and exp(Δ A) h_{t−1} of each step, time first, and h after the last; the scan of both
    passes. first: h before the first step, 0 without one."""
    if first is None:
        first = filled(0, u.tensor.with_shape((u.shape[0], *a.shape)))

    def body(h: Node, step: tuple[Node, ...]) -> tuple[Node, tuple[Node, Node]]:
        u, dt, b, c = step
        kept = _decays(dt, a) * h
        h = kept + _outer(dt * u, b)
        return h, (einsum("bdn,bn->bd", h, c), kept)

    last, (y, kept) = scan(body, first, tuple(swapped(n) for n in (u, dt, b, c)))
    return y, kept, last


def _selective(u: Node, dt: Node, a: Node, b: Node, c: Node, *rest: Node, has_d: bool,
               has_z: bool) -> Node:
    y, _, _ = _selective_states(u, dt, a, b, c)
    return _gated(swapped(y), u, rest, has_d, has_z)


def _selective_backward(dy: Node, u: Node, dt: Node, a: Node, b: Node, c: Node, *rest: Node,
                        has_d: bool, has_z: bool) -> tuple[Node, ...]:
    """With dh = g cᵀ + Λ, g = dy·silu(z), and e = dh·exp(ΔA)·h_{t−1}: du = Δ·(dh b),
    dΔ = Σ_n e·A + u·(dh b), dA = Σ e·Δ, db = dhᵀ(Δ·u), dc = hᵀ g; Λ ← exp(ΔA)·dh."""
    y, kept, _ = _selective_states(u, dt, a, b, c)
    g, dx, of_rest = _gate_backward(dy, swapped(y), u, rest, has_d, has_z)

    def body(carry: tuple[Node, Node], step: tuple[Node, ...]) -> Any:
        later, da = carry
        g, u, dt, b, c, kept = step
        dh = later + _outer(g, c)
        over_b, e = einsum("bdn,bn->bd", dh, b), dh * kept
        # Not of h itself, which nothing else needs whole.
        own = REDUCE_SUM(dt * u * g, axes=(1,))
        dc = einsum("bdn,bd->bn", kept, g) + spread(own, b.shape, (0,)) * b
        db = einsum("bdn,bd->bn", dh, dt * u)
        ddt = einsum("bdn,dn->bd", e, a) + u * over_b
        da = da + einsum("bdn,bd->dn", e, dt)
        return (_decays(dt, a) * dh, da), (dt * over_b, ddt, db, dc)

    first = filled(0, kept.tensor.with_shape(kept.shape[1:])), filled(0, a.tensor)
    steps = (*(swapped(n) for n in (g, u, dt, b, c)), kept)
    (_, da), found = scan(body, first, steps, reverse=True)
    du, ddt, db, dc = (swapped(n) for n in found)
    return (_sum(du, dx), ddt, da, db, dc, *of_rest)


SELECTIVE_SCAN = _op("selective_scan", _check_selective, _selective, _selective_backward)

# ---- Mamba-2 ---------------------------------------------------------------------------------


def _check_dual(x: TensorType, dt: TensorType, a: TensorType, b: TensorType, c: TensorType) -> None:
    if x.rank != 4:
        raise ShapeError(f"x is [B, L, H, P], not {x}")
    rows, steps, heads, _ = x.shape
    require_shape("dt", dt, (rows, steps, heads))
    require_shape("A", a, (heads,))
    if b.rank != 4:
        raise ShapeError(f"B is [B, L, G, N], not {b}")
    check_groups(heads, b.shape[2])
    require_shape("B", b, (rows, steps, *b.shape[2:]))
    require_shape("C", c, b.shape)


def check_groups(heads: int, groups: int) -> None:
    """Refuse groups that do not divide the heads."""
    if groups < 1 or heads % groups:
        raise ShapeError(f"{groups} groups do not divide {heads} heads")


def _dual_operands(x: Node, dt: Node, a: Node, b: Node, c: Node) -> Outer:
    (rows, steps, heads, width), (groups, depth) = x.shape, b.shape[2:]
    step = reshaped(swapped(dt), (steps, rows, groups, heads // groups))
    rate = spread(reshaped(a, step.shape[2:]), step.shape, (2, 3))
    wide = reshaped(swapped(x), (*step.shape, 1, width))
    k, q = (reshaped(swapped(n), (steps, rows, groups, 1, depth)) for n in (b, c))
    return Outer(step * rate, step, step, wide, k, q)


def _dual(x: Node, dt: Node, a: Node, b: Node, c: Node, *rest: Node, has_d: bool,
          has_z: bool) -> Node:
    y = _by_rows(outer_read(_dual_operands(x, dt, a, b, c)), x)
    return _gated(y, x, rest, has_d, has_z)


def _by_rows(n: Node, like: Node) -> Node:
    """Time first, as one of the op's operands."""
    return swapped(reshaped(n, (like.shape[1], like.shape[0], *like.shape[2:])))


def _dual_backward(dy: Node, x: Node, dt: Node, a: Node, b: Node, c: Node, *rest: Node,
                   has_d: bool, has_z: bool) -> tuple[Node, ...]:
    """That of the states, with decay dt·a and weights dt: ddt = da·a + dw + dc, dA = Σ da·dt."""
    s = _dual_operands(x, dt, a, b, c)
    y = _by_rows(outer_read(s), x)
    g, dx, of_rest = _gate_backward(dy, y, x, rest, has_d, has_z)
    found = outer_read_backward(reshaped(swapped(g), s.x.shape), s)
    decay = _by_rows(found.decay, dt)
    ddt = decay * spread(a, dt.shape, (2,)) + _by_rows(found.weight + found.direct, dt)
    return (_sum(_by_rows(found.x, x), dx), ddt, REDUCE_SUM(decay * dt, axes=(0, 1)),
            _by_rows(found.k, b), _by_rows(found.q, c), *of_rest)


MAMBA2_SSD = _op("mamba2_ssd", _check_dual, _dual, _dual_backward)

# ---- public ----------------------------------------------------------------------------------


def _given(op: Op, *values: Any, D: Any, z: Any) -> Node:
    nodes = operands(*values, *(v for v in (D, z) if v is not None))
    return op(*nodes, has_d=D is not None, has_z=z is not None)


Advance = Callable[[Sequence[Node], Node | None], tuple[Node, Node]]


def _advanced(whole: Node, advance: Advance, shape: tuple[int, ...], state: Any,
              return_state: bool) -> Any:
    """The result of an op from another state than 0, or with the state after the last step, of a
    shape and the compute type. whole: the op's node, whose operands it takes; derivatives are those
    of the scan.
    """
    dtype = whole.dtype
    wide = [convert(n, dtype.compute) for n in whole.inputs]
    y, last = advance(wide, state_of(state, "state", shape, dtype.compute))
    a = whole.attrs
    found = convert(_gated(y, wide[0], wide[5:], a["has_d"], a["has_z"]), dtype)
    return (found, last) if return_state else found


def state_of(value: Any, name: str, shape: tuple[int, ...], dtype: DType) -> Node | None:
    """A state that a user gave, in the compute type; None where there is none."""
    if value is None:
        return None
    node = as_node(value, dtype)
    require_floats(name, node.tensor)
    require_shape(name, node.tensor, shape)
    return convert(node, dtype)


@located
def selective_scan(u: Any, delta: Any, A: Any, B: Any, C: Any, D: Any = None, z: Any = None, *,
                   state: Any = None, return_state: bool = False) -> Any:
    """The selective scan of Mamba (Gu and Dao 2023): y_t = (h_t C_t + D·u_t)·silu(z_t), where
    h_t = exp(Δ_t A)·h_{t−1} + (Δ_t·u_t) B_tᵀ, h_{−1} = state, 0 without one.

    u, delta, z [B, L, D]; A[D, N]; B, C [B, L, N]; D[D]; D and z where given; state[B, D, N].
    return_state gives (y, h after the last step), of f32 for f16 and bf16, which compute in it, so
    that a sequence can be run piece by piece. L may be 0. Raises ShapeError, DTypeError (not
    floats).
    """
    whole = _given(SELECTIVE_SCAN, u, delta, A, B, C, D=D, z=z)
    if state is None and not return_state:
        return whole

    def advance(nodes: Sequence[Node], first: Node | None) -> tuple[Node, Node]:
        u, dt, a, b, c = nodes[:5]
        y, _, last = _selective_states(u, dt, a, b, c, first)
        return swapped(y), last

    shape = (whole.shape[0], *whole.inputs[2].shape)
    return _advanced(whole, advance, shape, state, return_state)


@located
def mamba2_ssd(x: Any, dt: Any, A: Any, B: Any, C: Any, D: Any = None, z: Any = None, *,
               state: Any = None, return_state: bool = False) -> Any:
    """The state-space dual of Mamba-2 (Dao and Gu 2024): y_t = (S_t C_t + D x_t)·silu(z_t), where
    S_t = exp(dt_t A) S_{t−1} + dt_t x_t B_tᵀ, S_{−1} = state, 0 without one, for each head.

    x, z [B, L, H, P]; dt[B, L, H]; A[H]; B, C [B, L, G, N], head h using group h // (H/G); D[H]; D
    and z where given; state[B, H, P, N]. return_state gives (y, S after the last step), of f32 for
    f16 and bf16, which compute in it. L may be 0. Raises ShapeError, DTypeError (not floats).
    """
    whole = _given(MAMBA2_SSD, x, dt, A, B, C, D=D, z=z)
    if state is None and not return_state:
        return whole
    rows, _, heads, width = whole.shape
    groups, depth = whole.inputs[3].shape[2:]
    shape = (rows, heads, width, depth)

    def advance(nodes: Sequence[Node], first: Node | None) -> tuple[Node, Node]:
        apart = (rows, groups, heads // groups, width, depth)
        y, last = outer_advanced(_dual_operands(*nodes[:5]),
                                 None if first is None else reshaped(first, apart))
        return _by_rows(y, nodes[0]), reshaped(last, shape)

    return _advanced(whole, advance, shape, state, return_state)
