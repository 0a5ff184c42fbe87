"""Mamba-3 with R inputs and outputs a head, which share one state.

Operands are C, B, x, adt, dt, trap, angle, c_bias, b_bias, mimo_x, mimo_o, then d, z with mimo_z,
and the weight of the norm where present.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlx_py.ir.base.errors import ArgumentError, ShapeError
from rlx_py.ir.base.types import TensorType, TupleType, Type
from rlx_py.ir.graph.transforms import AD
from rlx_py.ir.nodes.node import Node
from rlx_py.ir.ops.control.batched import merge_rows
from rlx_py.ir.ops.making.arguments import real, require_floats, require_shape
from rlx_py.ir.ops.making.families import composite
from rlx_py.ir.ops.making.located import located
from rlx_py.ir.ops.making.rows import first_axis
from rlx_py.ir.ops.nn.norm.gated_norm import gate_of
from rlx_py.ir.ops.nn.norm.norm import check_norm_attributes, scaled, scaled_backward
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
from rlx_py.ir.ops.primitive.movement import spread
from rlx_py.ir.ops.primitive.reduce import REDUCE_SUM

# Of [Bt, L, H, R, P]: where x lies, and what belongs to the ranks of a head.
ALONE, RANKS = (0, 1, 2, 4), (2, 3, 4)
NORM: dict[str, Any] = {"over": (4,), "along": (2, 4), "weight": True, "bias": False}


def _check(name: str, types: Sequence[TensorType], has_d: bool, has_z: bool, has_norm: bool,
           eps: float, angles: str) -> None:
    require_floats(name, *types)
    check_norm_attributes(eps, has_norm, has_norm, False)
    if len(types) != 11 + has_d + 2 * has_z + has_norm:
        raise ShapeError(f"{len(types)} operands with has_d={has_d}, has_z={has_z}, "
                         f"has_norm={has_norm}")
    c, b, x, adt, dt, trap, angle, c_bias, b_bias, mimo_x, mimo_o, *rest = types
    if mimo_x.rank != 3:
        raise ShapeError(f"mimo_x is [H, R, P], not {mimo_x}")
    check_mixer(c, b, x, (adt, dt, trap), angle, (c_bias, b_bias), mimo_x.shape[1], angles)
    require_shape("c_bias", c_bias, (*mimo_x.shape[:2], c.shape[3]))
    require_shape("b_bias", b_bias, c_bias.shape)
    ranks = (x.shape[2], mimo_x.shape[1], x.shape[3])
    d, z, mimo_z, weight = taken(rest, has_d, has_z, has_z, has_norm)
    for what, t, shape in (("mimo_x", mimo_x, ranks), ("mimo_o", mimo_o, ranks),
                           ("d", d, ranks[:1]), ("z", z, x.shape), ("mimo_z", mimo_z, ranks),
                           ("norm_weight", weight, (ranks[0], ranks[2]))):
        if t is not None:
            require_shape(what, t, shape)


def _infer(*types: TensorType, has_d: bool, has_z: bool, has_norm: bool, eps: float, angles: str
           ) -> Type:
    _check("mamba3_mimo", types, has_d, has_z, has_norm, eps, angles)
    return types[2]


def _infer_backward(dy: TensorType, *types: TensorType, has_d: bool, has_z: bool, has_norm: bool,
                    eps: float, angles: str) -> Type:
    _check("mamba3_mimo_backward", types, has_d, has_z, has_norm, eps, angles)
    require_floats("mamba3_mimo_backward", types[0], dy)
    require_shape("dy", dy, types[2].shape)
    return TupleType(tuple(types))


class _Head:
    """The mixer of the operands, and what is around it, all as [Bt, L, H, R, P]."""

    def __init__(self, nodes: Sequence[Node], has_d: bool, has_z: bool, has_norm: bool, eps: float,
                 angles: str, state: Mamba3State | None = None) -> None:
        c, b, x, adt, dt, trap, angle, c_bias, b_bias, mimo_x, mimo_o, *rest = nodes
        self.shape = (*x.shape[:3], mimo_x.shape[1], x.shape[3])
        self.alone, self.mimo_x = spread(x, self.shape, ALONE), spread(mimo_x, self.shape, RANKS)
        self.x, self.out = self.alone * self.mimo_x, spread(mimo_o, self.shape, RANKS)
        self.mixer = Mixer(Operands(c, b, self.x, adt, dt, trap, angle, c_bias, b_bias), angles,
                           state)
        self.d, z, mimo_z, self.weight = taken(rest, has_d, has_z, has_z, has_norm)
        self.eps, self.gate = eps, None
        if has_z:
            self.z, self.mimo_z = spread(z, self.shape, ALONE), spread(mimo_z, self.shape, RANKS)
            self.gate = gate_of(self.z * self.mimo_z)
        self.after: Mamba3State | None = None
        if state is None:
            read = self.mixer.read()
        else:
            read, self.after = self.mixer.advanced()
        self.read = read if self.d is None else read + by_head(self.d, read) * self.x

    def normed(self) -> Node:
        """What each rank reads, normalised over P where asked."""
        if self.weight is None:
            return self.read
        return scaled(self.read, [self.weight], eps=self.eps, **NORM)

    def gated(self) -> Node:
        """That times its gate."""
        return self.normed() * self.gate[0] if self.gate else self.normed()


@in_compute_type
def _decompose(*nodes: Node, **attrs: Any) -> Node:
    head = _Head(nodes, **attrs)
    return REDUCE_SUM(head.gated() * head.out, axes=(3,))


@in_compute_type
def _decompose_backward(dy: Node, *nodes: Node, **attrs: Any) -> tuple[Node, ...]:
    """With n the normed reading, s = z·mimo_z and g = dy·mimo_o: dmimo_o = Σ dy·n·silu(s),
    ds = g·n·silu'(s), dn = g·silu(s); the norm's and the mixer's backward, of dn; a product gives
    each factor the other, summed over what it was spread along."""
    head = _Head(nodes, **attrs)
    wide = spread(dy, head.shape, ALONE)
    dmimo_o, g = REDUCE_SUM(wide * head.gated(), axes=(0, 1)), wide * head.out
    of_gate, of_norm, of_d = list[Node](), list[Node](), list[Node]()
    if head.gate:
        gate, slope = head.gate
        ds = g * head.normed() * slope
        of_gate = [REDUCE_SUM(ds * head.mimo_z, axes=(3,)), REDUCE_SUM(ds * head.z, axes=(0, 1))]
        g = g * gate
    if head.weight is not None:
        g, *of_norm = scaled_backward(g, head.read, [head.weight], eps=head.eps, **NORM)
    found = head.mixer.backward(g)
    dx = found.x
    if head.d is not None:
        dx, of_d = dx + by_head(head.d, g) * g, [d_gradient(g, head.x)]
    return (found.c, found.b, REDUCE_SUM(dx * head.mimo_x, axes=(3,)), found.adt, found.dt,
            found.trap, found.angle, found.c_bias, found.b_bias,
            REDUCE_SUM(dx * head.alone, axes=(0, 1)), dmimo_o, *of_d, *of_gate, *of_norm)


MAMBA3_MIMO_BACKWARD = composite("mamba3_mimo_backward", _infer_backward, _decompose_backward)


def _vjp(node: Node, ct: Node, ad: AD) -> Sequence[Node | None]:
    return list(MAMBA3_MIMO_BACKWARD(ct, *node.inputs, **node.attrs))


def _rows(node: Node) -> list[bool]:
    a = node.attrs
    return [*[True] * 7, *[False] * (4 + a["has_d"]), *[True, False] * a["has_z"],
            *[False] * a["has_norm"]]


MAMBA3_MIMO = composite("mamba3_mimo", _infer, _decompose, vjp=_vjp, batch=merge_rows(_rows),
                        rows=first_axis(_rows))


@located
def mamba3_mimo(C: Any, B: Any, x: Any, adt: Any, dt: Any, trap: Any, angle: Any, c_bias: Any,
                b_bias: Any, mimo_x: Any, mimo_o: Any, d: Any = None, z: Any = None,
                mimo_z: Any = None, norm_weight: Any = None, eps: float = 1e-5,
                angles: str = "identity", *, state: Any = None, return_state: bool = False) -> Any:
    """The mixer of Mamba-3 with R inputs and outputs of one state: h as in `mamba3_siso` with
    Σ_r (x·mimo_x[r]) k_rᵀ in the place of x kᵀ, o_r = h q_r + d·x·mimo_x[r], and
    y = Σ_r norm(o_r)·silu(z·mimo_z[r])·mimo_o[r].

    C, B [Bt, L, R·G, N], rank r of group g in row r·G + g; c_bias, b_bias [H, R, N]; mimo_x,
    mimo_z, mimo_o [H, R, P]; norm_weight[H, P] of an RMS norm over P; all else as `mamba3_siso`. d,
    z with mimo_z, and the norm where given. state and return_state as `mamba3_siso`. Raises
    ShapeError, DTypeError (not floats), ArgumentError (angles, eps, state, z without mimo_z).
    """
    if (z is None) != (mimo_z is None):
        raise ArgumentError("z and mimo_z come together")
    nodes = operands(C, B, x, adt, dt, trap, angle, c_bias, b_bias, mimo_x, mimo_o,
                     *(v for v in (d, z, mimo_z, norm_weight) if v is not None))
    whole = MAMBA3_MIMO(*nodes, has_d=d is not None, has_z=z is not None,
                        has_norm=norm_weight is not None, eps=real("eps", eps), angles=angles)
    if state is None and not return_state:
        return whole
    return advanced(whole, state, return_state, _advance)


def _advance(nodes: Sequence[Node], attrs: Mapping[str, Any], state: Mamba3State
             ) -> tuple[Node, Mamba3State]:
    head = _Head(nodes, **attrs, state=state)
    assert head.after is not None
    return REDUCE_SUM(head.gated() * head.out, axes=(3,)), head.after
