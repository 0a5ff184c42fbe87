"""Mamba-3 with one input and output a head.

Operands are C, B, x, adt, dt, trap, angle, c_bias, b_bias, then d and z where present.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlx_py.ir.base.errors import ShapeError
from rlx_py.ir.base.types import TensorType, TupleType, Type
from rlx_py.ir.graph.transforms import AD
from rlx_py.ir.nodes.node import Node
from rlx_py.ir.ops.control.batched import merge_rows
from rlx_py.ir.ops.making.arguments import require_floats, require_shape
from rlx_py.ir.ops.making.families import composite
from rlx_py.ir.ops.making.located import located
from rlx_py.ir.ops.making.rows import first_axis
from rlx_py.ir.ops.nn.norm.gated_norm import gate_of
from rlx_py.ir.ops.nn.state_space.mamba3 import (
    Mamba3State,
    Mixer,
    Operands,
    advanced,
    by_head,
    check_mixer,
    d_gradient,
    taken,
)
from rlx_py.ir.ops.operands.operand import operands
from rlx_py.ir.ops.operands.precision import in_compute_type
from rlx_py.ir.ops.primitive.movement import reshaped


def _check(name: str, types: Sequence[TensorType], has_d: bool, has_z: bool, angles: str) -> None:
    require_floats(name, *types)
    if len(types) != 9 + has_d + has_z:
        raise ShapeError(f"{len(types)} operands with has_d={has_d}, has_z={has_z}")
    c, b, x, adt, dt, trap, angle, *rest = types
    check_mixer(c, b, x, (adt, dt, trap), angle, rest[:2], 1, angles)
    if has_d:
        require_shape("d", rest[2], x.shape[2:3])
    if has_z:
        require_shape("z", rest[-1], x.shape)


def _infer(*types: TensorType, has_d: bool, has_z: bool, angles: str) -> Type:
    _check("mamba3_siso", types, has_d, has_z, angles)
    return types[2]


def _infer_backward(dy: TensorType, *types: TensorType, has_d: bool, has_z: bool, angles: str
                    ) -> Type:
    _check("mamba3_siso_backward", types, has_d, has_z, angles)
    require_floats("mamba3_siso_backward", types[0], dy)
    require_shape("dy", dy, types[2].shape)
    return TupleType(tuple(types))


def _one_rank(x: Node) -> Node:
    """[…, P] as […, 1, P]."""
    return reshaped(x, (*x.shape[:-1], 1, x.shape[-1]))


class _Head:
    """The mixer of the operands, and what is beside it."""

    def __init__(self, nodes: Sequence[Node], has_d: bool, has_z: bool, angles: str,
                 state: Mamba3State | None = None) -> None:
        c, b, self.x, adt, dt, trap, angle, c_bias, b_bias, *rest = nodes
        self.mixer = Mixer(Operands(c, b, _one_rank(self.x), adt, dt, trap, angle,
                                    _one_rank(c_bias), _one_rank(b_bias)), angles, state)
        self.d, self.z = taken(rest, has_d, has_z)

    def before_gate(self) -> Node:
        return self.beside(self.mixer.read())

    def beside(self, read: Node) -> Node:
        """What the mixer reads, and d·x."""
        y = reshaped(read, self.x.shape)
        return y if self.d is None else y + by_head(self.d, y) * self.x


@in_compute_type
def _decompose(*nodes: Node, has_d: bool, has_z: bool, angles: str) -> Node:
    head = _Head(nodes, has_d, has_z, angles)
    y = head.before_gate()
    return y * gate_of(head.z)[0] if has_z else y


@in_compute_type
def _decompose_backward(dy: Node, *nodes: Node, has_d: bool, has_z: bool, angles: str
                        ) -> tuple[Node, ...]:
    """g = dy·silu(z), dz = dy·(y before the gate)·silu'(z); the rest is the mixer's, of g."""
    head, g, dz = _Head(nodes, has_d, has_z, angles), dy, list[Node]()
    if has_z:
        gate, slope = gate_of(head.z)
        g, dz = dy * gate, [dy * head.before_gate() * slope]
    found = head.mixer.backward(_one_rank(g))
    dx, dd = reshaped(found.x, head.x.shape), list[Node]()
    if has_d:
        dx, dd = dx + by_head(head.d, g) * g, [d_gradient(g, head.x)]
    shape = nodes[7].shape
    return (found.c, found.b, dx, found.adt, found.dt, found.trap, found.angle,
            reshaped(found.c_bias, shape), reshaped(found.b_bias, shape), *dd, *dz)


MAMBA3_SISO_BACKWARD = composite("mamba3_siso_backward", _infer_backward, _decompose_backward)


def _vjp(node: Node, ct: Node, ad: AD) -> Sequence[Node | None]:
    return list(MAMBA3_SISO_BACKWARD(ct, *node.inputs, **node.attrs))


def _rows(node: Node) -> list[bool]:
    return [True] * 7 + [False] * (2 + node.attrs["has_d"]) + [True] * node.attrs["has_z"]


MAMBA3_SISO = composite("mamba3_siso", _infer, _decompose, vjp=_vjp, batch=merge_rows(_rows),
                        rows=first_axis(_rows))


@located
def mamba3_siso(C: Any, B: Any, x: Any, adt: Any, dt: Any, trap: Any, angle: Any, c_bias: Any,
                b_bias: Any, d: Any = None, z: Any = None, angles: str = "identity", *,
                state: Any = None, return_state: bool = False) -> Any:
    """The mixer of Mamba-3: y_t = (h_t q_t + d·x_t)·silu(z_t), where, for each head,
    h_t = α_t h_{t−1} + β_t x_{t−1} k_{t−1}ᵀ + γ_t x_t k_tᵀ, h_{−1} = 0 without a state.

    α = exp(adt), λ = σ(trap), β = (1 − λ)·dt·α, γ = λ·dt. q and k are C + c_bias and B + b_bias
    with the pairs (2i, 2i + 1), i < A, turned by θ_t = Σ_{s ≤ t} f(angle_s)·dt_s; angles: f is
    "identity", or "pi_tanh", π·tanh. C, B [Bt, L, G, N], head h using group h // (H/G); x, z
    [Bt, L, H, P]; adt, dt, trap [Bt, L, H]; angle[Bt, L, A], 2A ≤ N; c_bias, b_bias [H, N]; d[H].
    d and z where given. L may be 0. f16 and bf16 compute in f32. return_state gives (y, state), a
    `Mamba3State` to go on from, of f32 for f16 and bf16. Raises ShapeError, DTypeError (not
    floats), ArgumentError (angles, state).
    """
    nodes = operands(C, B, x, adt, dt, trap, angle, c_bias, b_bias,
                     *(v for v in (d, z) if v is not None))
    whole = MAMBA3_SISO(*nodes, has_d=d is not None, has_z=z is not None, angles=angles)
    if state is None and not return_state:
        return whole
    return advanced(whole, state, return_state, _advance)


def _advance(nodes: Sequence[Node], attrs: Mapping[str, Any], state: Mamba3State
             ) -> tuple[Node, Mamba3State]:
    head = _Head(nodes, **attrs, state=state)
    read, after = head.mixer.advanced()
    y = head.beside(read)
    return (y * gate_of(head.z)[0] if attrs["has_z"] else y), after
