"""The mixers of Mamba-3: a trapezoidal rule, rotated keys and queries, of one or several ranks.

    λ = σ(trap), α = exp(adt), β = (1 − λ)·dt·α, γ = λ·dt, θ_t = Σ_{s ≤ t} f(angle_s)·dt_s
    q = R(θ)(C + c_bias), k = R(θ)(B + b_bias)      R turns the pairs (2i, 2i + 1), i < A
    h_t = α_t h_{t−1} + β_t U_{t−1} + γ_t U_t, U = Σ_r x_r k_rᵀ;      y_r = h q_r + d·x_r

Each U is added when it comes, with what the step after will add: S_t = α_t S_{t−1} + w_t U_t, where
w_t = γ_t + (1 − λ_{t+1})·dt_{t+1}, and y_r = α_t S_{t−1} q_r + γ Σ_s (q_r·k_s) x_s + d·x_r.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import pi
from typing import Any, NamedTuple

from rlx_py.ir.base.errors import ArgumentError, ShapeError
from rlx_py.ir.base.types import DType, TensorType
from rlx_py.ir.nodes.node import Node
from rlx_py.ir.ops.making.arguments import require_shape
from rlx_py.ir.ops.nn.attention.rope import Pairs
from rlx_py.ir.ops.nn.state_space.outer_states import (
    Outer,
    outer_advanced,
    outer_read,
    outer_read_backward,
    swapped,
)
from rlx_py.ir.ops.nn.state_space.ssm import check_groups, state_of
from rlx_py.ir.ops.numpy.einsum import einsum
from rlx_py.ir.ops.operands.operand import convert
from rlx_py.ir.ops.primitive.cumulative import CUMSUM, shifted
from rlx_py.ir.ops.primitive.elementwise import COS, NEG, SIN, TANH
from rlx_py.ir.ops.primitive.movement import filled, permuted, reshaped, spread
from rlx_py.ir.ops.primitive.reduce import REDUCE_SUM, total
from rlx_py.ir.ops.primitive.special import LOGISTIC

ANGLES = ("identity", "pi_tanh")  # f


def check_mixer(c: TensorType, b: TensorType, x: TensorType, steps: Sequence[TensorType],
                angle: TensorType, biases: Sequence[TensorType], rank: int, angles: str) -> None:
    """Refuse operands that do not fit x[Bt, L, H, P]: steps are adt, dt and trap, biases have the
    shape [H, R, N], or [H, N] of rank 1."""
    if angles not in ANGLES:
        raise ArgumentError(f"angles={angles!r} is none of {', '.join(ANGLES)}")
    if x.rank != 4:
        raise ShapeError(f"x is [B, L, H, P], not {x}")
    if c.rank != 4:
        raise ShapeError(f"C is [B, L, R·G, N], not {c}")
    rows, length, heads, _ = x.shape
    if rank < 1 or c.shape[2] % rank:
        raise ShapeError(f"{c.shape[2]} rows of C are no groups of rank {rank}")
    check_groups(heads, c.shape[2] // rank)
    require_shape("C", c, (rows, length, *c.shape[2:]))
    require_shape("B", b, c.shape)
    for name, t in zip(("adt", "dt", "trap"), steps, strict=True):
        require_shape(name, t, (rows, length, heads))
    if angle.rank != 3 or 2 * angle.shape[2] > c.shape[3]:
        raise ShapeError(f"angle is [B, L, A] with 2A ≤ {c.shape[3]}, not {angle}")
    require_shape("angle", angle, (rows, length, angle.shape[2]))
    for name, t in zip(("c_bias", "b_bias"), biases, strict=True):
        ranks = () if t.rank == 2 and rank == 1 else (rank,)
        require_shape(name, t, (heads, *ranks, c.shape[3]))


@dataclass(frozen=True, eq=False)
class Operands:
    """C, B [Bt, L, R·G, N]; x[Bt, L, H, R, P]; adt, dt, trap [Bt, L, H]; angle[Bt, L, A]; c_bias,
    b_bias [H, R, N]; or their cotangents."""

    c: Node
    b: Node
    x: Node
    adt: Node
    dt: Node
    trap: Node
    angle: Node
    c_bias: Node
    b_bias: Node


class Mamba3State(NamedTuple):
    """What the steps of a mixer leave to those that follow, for each head: h[Bt, H, P, N], the
    last U = Σ_r x_r k_rᵀ, of the same shape, which the next step adds too, and θ[Bt, H, A]."""

    h: Any
    update: Any
    angle: Any


class Mixer:
    """y without d·x of operands, and its pullback. state: that before the first step, of which
    there is one at least; all 0 without it."""

    def __init__(self, given: Operands, angles: str, state: Mamba3State | None = None) -> None:
        self.given, self.angles = given, angles
        self.lam = LOGISTIC(given.trap)
        rest = given.dt * (1 - self.lam)
        gamma = given.dt * self.lam
        f = given.angle if angles == "identity" else TANH(given.angle) * pi
        self.shape = (*given.dt.shape, given.angle.shape[2])  # [Bt, L, H, A]
        self.rate = spread(f, self.shape, (0, 1, 3))
        turn = self.rate * spread(given.dt, self.shape, (0, 1, 2))
        theta = CUMSUM(turn, axis=1, exclusive=False, reverse=False)
        self.first = None
        if state is not None:
            theta = theta + spread(state.angle, self.shape, (0, 2, 3))
            self.first = state.h + spread(rest[:, 0], state.h.shape, (0, 1)) * state.update
        self.theta = theta
        self.cos, self.sin = COS(theta), SIN(theta)
        self.k = self._turned(self._by_head(given.b, given.b_bias))
        self.q = self._turned(self._by_head(given.c, given.c_bias))
        self.outer = Outer(
            self._time_first(given.adt), self._time_first(gamma + shifted(rest, 1, 0, True)),
            self._time_first(gamma), self._time_first(given.x), swapped(self.k), swapped(self.q))

    def _time_first(self, x: Node) -> Node:
        """[Bt, L, H, …] as [L, Bt, H, 1, …]: each head is a group of its own."""
        found = swapped(x)
        return reshaped(found, (*found.shape[:3], 1, *found.shape[3:]))

    def _rows_first(self, x: Node) -> Node:
        return swapped(reshaped(x, (*x.shape[:3], *x.shape[4:])))

    def _by_head(self, x: Node, bias: Node) -> Node:
        """Keys [Bt, L, R·G, N], row r·G + g, of each head of group g, with its bias:
        [Bt, L, H, R, N]."""
        rows, steps, both, depth = x.shape
        heads, rank, _ = bias.shape
        groups = both // rank
        x = permuted(reshaped(x, (rows, steps, rank, groups, depth)), (0, 1, 3, 2, 4))
        wide = spread(x, (rows, steps, groups, heads // groups, rank, depth), (0, 1, 2, 4, 5))
        found = reshaped(wide, (rows, steps, heads, rank, depth))
        return found + spread(bias, found.shape, (2, 3, 4))

    def _from_heads(self, dx: Node, like: Node) -> tuple[Node, Node]:
        """The transpose of `_by_head`: cotangents of the keys and of the bias."""
        rows, steps, heads, rank, depth = dx.shape
        groups = like.shape[2] // rank
        parts = reshaped(dx, (rows, steps, groups, heads // groups, rank, depth))
        summed = permuted(REDUCE_SUM(parts, axes=(3,)), (0, 1, 3, 2, 4))
        return reshaped(summed, like.shape), REDUCE_SUM(dx, axes=(0, 1))

    def _pairs(self, x: Node) -> Pairs:
        return Pairs(x, self.shape[3], (0, 1, 2), "gptj")

    def _turned(self, x: Node, back: bool = False) -> Node:
        return self._pairs(x).turned(x, self.cos, NEG(self.sin) if back else self.sin)

    def read(self) -> Node:
        """y[Bt, L, H, R, P]."""
        return self._rows_first(outer_read(self.outer))

    def advanced(self) -> tuple[Node, Mamba3State]:
        """y[Bt, L, H, R, P], and the state after the last step."""
        first = self.first
        if first is not None:
            first = reshaped(first, (*first.shape[:2], 1, *first.shape[2:]))
        y, last = outer_advanced(self.outer, first)
        h = reshaped(last, (*last.shape[:2], *last.shape[3:]))
        x, k, theta = (n[:, -1] for n in (self.given.x, self.k, self.theta))
        return self._rows_first(y), Mamba3State(h, einsum("bhrp,bhrn->bhpn", x, k), theta)

    def backward(self, dy: Node) -> Operands:
        """The cotangents. For each pair of turned keys dθ = −dq₀q₁ + dq₁q₀ − dk₀k₁ + dk₁k₀ and
        W_t = Σ_{s ≥ t} dθ_s; dangle = Σ_heads W·dt·f'; with dγ = dc + dw,
        ddt_t = dγ_t λ_t + dw_{t−1}(1 − λ_t) + Σ W·f and dλ_t = (dγ_t − dw_{t−1})·dt_t.
        """
        found = outer_read_backward(self._time_first(dy), self.outer)
        direct, weight = self._rows_first(found.direct), self._rows_first(found.weight)
        dgamma, before = direct + weight, shifted(weight, 1, 0, False)
        dq, dk = swapped(found.q), swapped(found.k)
        w = CUMSUM(self._slope(dq, self.q) + self._slope(dk, self.k), axis=1, exclusive=False,
                   reverse=True)
        given, lam = self.given, self.lam
        dangle = REDUCE_SUM(w * spread(given.dt, self.shape, (0, 1, 2)), axes=(2,))
        if self.angles == "pi_tanh":
            t = TANH(given.angle)
            dangle = dangle * ((1 - t * t) * pi)
        ddt = dgamma * lam + before * (1 - lam) + REDUCE_SUM(w * self.rate, axes=(3,))
        dtrap = (dgamma - before) * given.dt * lam * (1 - lam)
        c, c_bias = self._from_heads(self._turned(dq, True), given.c)
        b, b_bias = self._from_heads(self._turned(dk, True), given.b)
        return Operands(c, b, self._rows_first(found.x), self._rows_first(found.decay), ddt, dtrap,
                        dangle, c_bias, b_bias)

    def _slope(self, dx: Node, x: Node) -> Node:
        """What a turned key gives the angles: [Bt, L, H, A]."""
        pairs = self._pairs(x)
        return total(pairs.apart(dx) * pairs.crossed(pairs.apart(x)), (3, 5))


def by_head(d: Node, x: Node) -> Node:
    """d[H] at each element of x[Bt, L, H, …]."""
    return spread(d, x.shape, (2,))


def d_gradient(g: Node, x: Node) -> Node:
    """dd = Σ g·x of each head."""
    return REDUCE_SUM(g * x, axes=(0, 1, *range(3, x.rank)))


def taken(nodes: Sequence[Any], *present: bool) -> list[Any]:
    """The nodes in order at the places that are present, else None."""
    each = iter(nodes)
    return [next(each) if here else None for here in present]


Advance = Callable[[Sequence[Node], Mapping[str, Any], Mamba3State], tuple[Node, Mamba3State]]


def advanced(whole: Node, state: Any, return_state: bool, advance: Advance) -> Any:
    """The result of a mixer's op from a state, and that after the last step where asked, in the
    compute type. whole: the op's node, whose operands it takes; derivatives are those of the scan.

    Raises ArgumentError, ShapeError, DTypeError for a state that does not fit.
    """
    dtype, x, angle = whole.dtype.compute, whole.inputs[2], whole.inputs[6]
    h = (x.shape[0], *x.shape[2:], whole.inputs[0].shape[3])
    first = _first_state(state, h, (*h[:2], angle.shape[2]), dtype)
    y, after = whole, first
    if x.shape[1]:
        y, after = advance([convert(n, dtype) for n in whole.inputs], whole.attrs, first)
    y = convert(y, whole.dtype)
    return (y, after) if return_state else y


def _first_state(state: Any, h: tuple[int, ...], angle: tuple[int, ...], dtype: DType
                 ) -> Mamba3State:
    """A state that a user gave, in the compute type; zeros without one."""
    if state is None:
        zero = filled(0, TensorType(dtype, h))
        return Mamba3State(zero, zero, filled(0, TensorType(dtype, angle)))
    if not isinstance(state, tuple) or len(state) != 3:
        raise ArgumentError("state is what return_state=True gave: (h, update, angle)")
    parts = [state_of(v, f"state.{name}", shape, dtype)
             for v, name, shape in zip(state, Mamba3State._fields, (h, h, angle), strict=True)]
    if any(n is None for n in parts):
        raise ArgumentError("state is what return_state=True gave: (h, update, angle)")
    return Mamba3State(*parts)
