"""What Mamba-3 makes of one projection of its input: gate, values, keys, steps and decays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import isfinite, prod
from typing import Any, NamedTuple

from rlx_py.ir.base.errors import ArgumentError, ShapeError
from rlx_py.ir.base.types import TensorType, TupleType, Type
from rlx_py.ir.graph.transforms import AD, Batcher
from rlx_py.ir.nodes.node import Cotangent, Node, make
from rlx_py.ir.ops.control.batched import by_element
from rlx_py.ir.ops.control.region import filled_floats
from rlx_py.ir.ops.making.arguments import integer, real, require_floats, require_shape
from rlx_py.ir.ops.making.families import composite
from rlx_py.ir.ops.making.located import located
from rlx_py.ir.ops.making.rows import before_last
from rlx_py.ir.ops.nn.activation.activation import SOFTPLUS, SOFTPLUS_LINEAR
from rlx_py.ir.ops.nn.norm.norm import scaled, scaled_backward
from rlx_py.ir.ops.numpy.choice import clip
from rlx_py.ir.ops.numpy.shaping import window
from rlx_py.ir.ops.operands.operand import operands
from rlx_py.ir.ops.operands.precision import in_compute_type
from rlx_py.ir.ops.primitive.compare import GT, LT, OR
from rlx_py.ir.ops.primitive.elementwise import DIV, NEG, SELECT, fill
from rlx_py.ir.ops.primitive.movement import CONCAT, reshaped, spread
from rlx_py.ir.ops.primitive.reduce import total
from rlx_py.ir.ops.primitive.special import LOGISTIC

DECAYS = ("rational", "softplus")


@dataclass(frozen=True)
class Layout:
    """The attributes: H heads of width P, keys of R·G rows of N, A angles, and the bounds."""

    heads: int
    width: int
    rank: int
    groups: int
    depth: int
    angles: int
    dt_min: float
    dt_max: float
    floor: float
    eps: float
    decay: str

    def check(self) -> None:
        """Refuse what means nothing."""
        if min(self.heads, self.width, self.angles) < 0 or min(
                self.rank, self.groups, self.depth) < 1:
            raise ArgumentError("sizes must not be negative, and rank, groups and depth positive")
        if not 0 <= self.dt_min <= self.dt_max:
            raise ArgumentError(f"steps within [{self.dt_min}, {self.dt_max}]")
        if not (isfinite(self.floor) and self.floor >= 0):
            raise ArgumentError(f"floor must be finite and not negative, not {self.floor}")
        if not (isfinite(self.eps) and self.eps > 0):
            raise ArgumentError(f"eps must be positive and finite, not {self.eps}")
        if self.decay not in DECAYS:
            raise ArgumentError(f"decay={self.decay!r} is none of {', '.join(DECAYS)}")

    @property
    def parts(self) -> tuple[tuple[int, ...], ...]:
        """The shapes behind the rows of z, x, B, C, dd_dt, dd_A, trap and angle."""
        inner, keys = (self.heads, self.width), (self.rank * self.groups, self.depth)
        return (inner, inner, keys, keys, *[(self.heads,)] * 3, (self.angles,))

    @property
    def ends(self) -> list[int]:
        """Where each part ends along the last axis."""
        return list(accumulate(map(prod, self.parts)))

    def split(self, projected: Node) -> list[Node]:
        """The parts."""
        axis, lead, ends = projected.rank - 1, projected.shape[:-1], self.ends
        return [reshaped(window(projected, axis, a, b), (*lead, *shape))
                for a, b, shape in zip([0, *ends], ends, self.parts, strict=False)]


def _check(name: str, types: Sequence[TensorType], layout: Layout) -> None:
    layout.check()
    projected, bias = types
    require_floats(name, projected, bias)
    if not projected.rank or projected.shape[-1] != layout.ends[-1]:
        raise ShapeError(f"the last axis of {projected} does not hold 2·H·P + 2·R·G·N + 3·H + A = "
                         f"{layout.ends[-1]}")
    require_shape("dt_bias", bias, (layout.heads,))


def _results(projected: TensorType, layout: Layout) -> list[TensorType]:
    z, x, b, c, *small = (projected.with_shape((*projected.shape[:-1], *s)) for s in layout.parts)
    dt, adt, trap, angle = small
    return [x, z, b, c, dt, adt, trap, angle]


def _infer(*types: TensorType, heads: int, width: int, rank: int, groups: int, depth: int,
           angles: int, dt_min: float, dt_max: float, floor: float, eps: float, decay: str) -> Type:
    layout = Layout(heads, width, rank, groups, depth, angles, dt_min, dt_max, floor, eps, decay)
    _check("mamba3_preprocess", types, layout)
    return TupleType(tuple(_results(types[0], layout)))


def _infer_backward(*types: TensorType, heads: int, width: int, rank: int, groups: int, depth: int,
                    angles: int, dt_min: float, dt_max: float, floor: float, eps: float, decay: str
                    ) -> Type:
    layout = Layout(heads, width, rank, groups, depth, angles, dt_min, dt_max, floor, eps, decay)
    *cts, projected, bias = types
    _check("mamba3_preprocess_backward", (projected, bias), layout)
    for ct, y in zip(cts, _results(projected, layout), strict=True):
        if ct != y:
            raise ShapeError(f"a cotangent {ct} of a result {y}")
    return TupleType((projected, bias))


def _softplus(x: Node) -> Node:
    return SOFTPLUS(x, beta=1.0, threshold=SOFTPLUS_LINEAR)


def _rate(a: Node, decay: str) -> tuple[Node, Node]:
    """ht(a) = 1 + a where a ≥ 0, else 1/(1 − a), and its slope; or softplus and σ."""
    if decay == "softplus":
        return _softplus(a), LOGISTIC(a)
    low = LT(a, fill(a, 0))
    inverse = DIV(fill(a, 1), 1 - SELECT(low, a, fill(a, 0)))
    return SELECT(low, inverse, 1 + a), SELECT(low, inverse * inverse, fill(a, 1))


def _steps(dd_dt: Node, dd_a: Node, bias: Node, layout: Layout) -> tuple[Node, Node, Node]:
    """dt, A, and softplus(dd_dt + bias)."""
    raw = _softplus(dd_dt + spread(bias, dd_dt.shape, (dd_dt.rank - 1,)))
    a = clip(NEG(_rate(dd_a, layout.decay)[0]), None, -layout.floor)
    return clip(raw, layout.dt_min, layout.dt_max), a, raw


def _norm(layout: Layout, x: Node) -> dict[str, Any]:
    last = (x.rank - 1,)
    return {"over": last, "along": last, "eps": layout.eps, "weight": False, "bias": False}


@in_compute_type
def _decompose(projected: Node, bias: Node, **attrs: Any) -> tuple[Node, ...]:
    layout = Layout(**attrs)
    z, x, b, c, dd_dt, dd_a, trap, angle = layout.split(projected)
    dt, a, _ = _steps(dd_dt, dd_a, bias, layout)
    norm = _norm(layout, b)
    return x, z, scaled(b, (), **norm), scaled(c, (), **norm), dt, a * dt, trap, angle


@in_compute_type
def _decompose_backward(*nodes: Node, **attrs: Any) -> tuple[Node, ...]:
    """d(dd_dt) = (ddt + dadt·A)·σ(dd_dt + bias) within the bounds of dt, d(dd_A) = −dadt·dt·ht'
    above the floor, else 0; the RMS norm's backward for B and C; the sum over rows for the bias."""
    layout = Layout(**attrs)
    dx, dz, db, dc, ddt, dadt, dtrap, dangle, projected, bias = nodes
    _, _, b, c, dd_dt, dd_a, _, _ = layout.split(projected)
    dt, a, raw = _steps(dd_dt, dd_a, bias, layout)
    cut = OR(LT(raw, fill(raw, layout.dt_min)), GT(raw, fill(raw, layout.dt_max)))
    slope = LOGISTIC(dd_dt + spread(bias, dd_dt.shape, (dd_dt.rank - 1,)))
    of_step = SELECT(cut, fill(raw, 0), (ddt + dadt * a) * slope)
    rate, rise = _rate(dd_a, layout.decay)
    of_rate = SELECT(LT(rate, fill(rate, layout.floor)), fill(rate, 0), NEG(dadt * dt * rise))
    norm = _norm(layout, b)
    keys = [scaled_backward(d, n, (), **norm)[0] for d, n in ((db, b), (dc, c))]
    parts = [dz, dx, *keys, of_step, of_rate, dtrap, dangle]
    flat = [reshaped(p, (*projected.shape[:-1], end - start)) for p, start, end in
            zip(parts, [0, *layout.ends], layout.ends, strict=False)]
    return (CONCAT(*flat, axis=projected.rank - 1),
            total(of_step, tuple(range(of_step.rank - 1))))


MAMBA3_PREPROCESS_BACKWARD = composite("mamba3_preprocess_backward", _infer_backward,
                                       _decompose_backward)


def _vjp(node: Node, ct: Cotangent, ad: AD) -> Sequence[Node | None]:
    cts = filled_floats(ct, node)
    return list(MAMBA3_PREPROCESS_BACKWARD(*cts, *node.inputs, **node.attrs))


def _batch(node: Node, inputs: Sequence[Node], batched: Sequence[bool], batcher: Batcher) -> Node:
    """The batch axis is one more of rows, unless each has its own bias."""
    if batched[1]:
        return by_element(node, inputs, batched, batcher)
    return make(node.op, inputs, node.attrs)


MAMBA3_PREPROCESS = composite("mamba3_preprocess", _infer, _decompose, vjp=_vjp, batch=_batch,
                              rows=before_last)


class Mamba3Inputs(NamedTuple):
    """What `mamba3_preprocess` gives, over the rows of the projection."""

    x: Node  # […, H, P]
    z: Node  # […, H, P]
    B: Node  # […, R·G, N]
    C: Node  # […, R·G, N]
    dt: Node  # […, H]
    adt: Node  # […, H]
    trap: Node  # […, H]
    angle: Node  # […, A]


@located
def mamba3_preprocess(projected: Any, dt_bias: Any, *, heads: int, width: int, depth: int,
                      angles: int, rank: int = 1, groups: int = 1, dt_min: float = 0.0,
                      dt_max: float = float("inf"), floor: float = 1e-4, eps: float = 1e-5,
                      decay: str = "rational") -> Mamba3Inputs:
    """The operands of Mamba-3's mixers from projected[…, 2·H·P + 2·R·G·N + 3·H + A], which holds
    z, x, B, C, dd_dt, dd_A, trap and angle one after another.

    B and C are RMS-normed over N; dt = softplus(dd_dt + dt_bias[H]) within [dt_min, dt_max];
    A = min(−ht(dd_A), −floor), ht(a) = 1 + a where a ≥ 0, else 1/(1 − a) ("rational"), or
    "softplus"; adt = A·dt. Gradients pass at the bounds too. Raises ShapeError, DTypeError (not
    floats), ArgumentError (sizes, bounds, eps, decay).
    """
    node, bias = operands(projected, dt_bias)
    sizes = {"heads": heads, "width": width, "rank": rank, "groups": groups, "depth": depth,
             "angles": angles}
    bounds = {"dt_min": dt_min, "dt_max": dt_max, "floor": floor, "eps": eps}
    return Mamba3Inputs(*MAMBA3_PREPROCESS(
        node, bias, **{k: integer(k, v) for k, v in sizes.items()},
        **{k: real(k, v) for k, v in bounds.items()}, decay=decay))
