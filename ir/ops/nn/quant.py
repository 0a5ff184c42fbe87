"""Simulated quantisation: values on the grid of few bits, with straight-through gradients.

Rounding has slope 0, so each kind of straight-through estimator puts another slope in its place, of
u = x/s, with q = 2^(bits−1) − 1 steps on each side:

  identity            1
  clipped_identity    1 where |x| ≤ q·s, else 0
  tanh                1 − tanh²(u)
  hard_tanh           max(0, 1 − |u|/q), whose own slope at |u| = q is −sign(x)/(q·s)

The scale s is a constant to derivatives, except that of `fake_quantize_lsq`, which is learned.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite, prod, sqrt
from typing import Any

from rlx_py.ir.base.errors import ArgumentError, DTypeError
from rlx_py.ir.base.types import TensorType, TupleType, Type, normalize_axis, require_float
from rlx_py.ir.graph.transforms import AD
from rlx_py.ir.nodes.node import Node, Op, register
from rlx_py.ir.ops.control.batched import by_element
from rlx_py.ir.ops.making.arguments import integer, real, require_floats, require_shape
from rlx_py.ir.ops.making.families import composite
from rlx_py.ir.ops.making.located import located
from rlx_py.ir.ops.operands.operand import as_node, convert
from rlx_py.ir.ops.operands.precision import in_compute_type
from rlx_py.ir.ops.primitive.compare import EQ, LE, LT
from rlx_py.ir.ops.primitive.elementwise import (
    ABS,
    DIV,
    MAX,
    MIN,
    MUL,
    ROUND,
    SELECT,
    STOP_GRADIENT,
    SUB,
    TANH,
    fill,
)
from rlx_py.ir.ops.primitive.movement import spread
from rlx_py.ir.ops.primitive.reduce import REDUCE_MAX, kept_axes, total

STEPS = {8: 127, 4: 7, 2: 1}
ESTIMATORS = ("identity", "clipped_identity", "tanh", "hard_tanh")
SCALE_MODES = ("per_batch", "ema", "fixed")
SMALLEST = 1e-12  # a scale; a channel of zeros would divide by 0


def _channel_axes(axis: int | None) -> tuple[int, ...]:
    return () if axis is None else (axis,)


def _check(x: TensorType, bits: int, axis: int | None) -> TensorType:
    """The type of the scale: one, or one for each position of the axis, in the compute type."""
    require_float("fake_quantize", x.dtype)
    if bits not in STEPS:
        raise ArgumentError(f"bits must be 8, 4 or 2, not {bits}")
    if axis is not None and not 0 <= axis < x.rank:
        raise ArgumentError(f"axis {axis} is out of range for rank {x.rank}")
    return TensorType(x.dtype.compute, () if axis is None else (x.shape[axis],))


def _check_scale(x: TensorType, scale: TensorType, bits: int, axis: int | None) -> None:
    expected = _check(x, bits, axis)
    if scale.dtype is not expected.dtype:
        raise DTypeError(f"the scale of {x} is {expected}, not {scale}")
    require_shape("scale", scale, expected.shape)


def _on_grid(x: Node, s: Node, q: int) -> Node:
    """clip(round(x/s), −q, q)·s, halves to even."""
    steps = MIN(MAX(ROUND(DIV(x, s)), fill(x, -q)), fill(x, q))
    return MUL(steps, s)


# ---- scale -----------------------------------------------------------------------------------


def _infer_scale(x: TensorType, *, bits: int, axis: int | None) -> Type:
    return _check(x, bits, axis)


def _scale(x: Node, *, bits: int, axis: int | None) -> Node:
    """max(max |x|/q, 1e-12) over every axis but that of the channel."""
    x = STOP_GRADIENT(convert(x, x.dtype.compute))
    reduced = kept_axes(x.rank, _channel_axes(axis))
    if not prod(x.shape[a] for a in reduced):  # nothing to measure
        return spread(as_node(SMALLEST, x.dtype), () if axis is None else (x.shape[axis],), ())
    largest = REDUCE_MAX(ABS(x), axes=reduced) if reduced else ABS(x)
    return MAX(DIV(largest, fill(largest, STEPS[bits])), fill(largest, SMALLEST))


# What the batch at hand would be quantised with; no derivative passes through it.
QUANTIZE_SCALE = register(Op("quantize_scale", _infer_scale, decompose=_scale,
                                    differentiable=False))

# ---- quantisation ----------------------------------------------------------------------------


def _infer(x: TensorType, scale: TensorType, *, bits: int, axis: int | None, ste: str,
           covered: bool) -> Type:
    if ste not in ESTIMATORS:
        raise ArgumentError(f"ste {ste!r} is not one of {', '.join(ESTIMATORS)}")
    _check_scale(x, scale, bits, axis)
    return x


def _infer_backward(dy: TensorType, x: TensorType, scale: TensorType, **attrs: Any) -> Type:
    require_floats("fake_quantize_backward", dy, x)
    require_shape("dy", dy, x.shape)
    return _infer(x, scale, **attrs)


@in_compute_type
def _quantised(x: Node, scale: Node, *, bits: int, axis: int | None, ste: str,
               covered: bool) -> Node:
    return _on_grid(x, spread(scale, x.shape, _channel_axes(axis)), STEPS[bits])


@in_compute_type
def _quantised_backward(dy: Node, x: Node, scale: Node, *, bits: int, axis: int | None, ste: str,
                        covered: bool) -> Node:
    """dy times the slope of the estimator. covered: the scale is that of x itself, so no |x| is
    beyond q·s, though q·(max/q) may round below the maximum, which then stands in its place."""
    s, q, zero = STOP_GRADIENT(spread(scale, x.shape, _channel_axes(axis))), STEPS[bits], fill(x, 0)
    if ste == "identity":
        return dy
    if ste == "clipped_identity":
        inside = EQ(x, x) if covered else LE(ABS(x), s * q)
        return SELECT(inside, dy, zero)
    if ste == "tanh":
        t = TANH(DIV(x, s))
        return dy * (1 - t * t)
    end = STOP_GRADIENT(MAX(ABS(x), s * q)) if covered else s * q
    rest = 1 - DIV(ABS(x), end)
    return dy * SELECT(LT(rest, zero), zero, rest)


FAKE_QUANTIZE_BACKWARD = composite("fake_quantize_backward", _infer_backward, _quantised_backward)


def _vjp(node: Node, ct: Node, ad: AD) -> Sequence[Node | None]:
    return FAKE_QUANTIZE_BACKWARD(ct, *node.inputs, **node.attrs), None


def _jvp(node: Node, tangents: Sequence[Node | None], ad: AD) -> Node | None:
    """Each element's slope is its own, so the rule serves both modes."""
    t = tangents[0]
    return None if t is None else FAKE_QUANTIZE_BACKWARD(t, *node.inputs, **node.attrs)


FAKE_QUANTIZE = composite("fake_quantize", _infer, _quantised, vjp=_vjp, jvp=_jvp,
                          batch=by_element)

# ---- learned step ----------------------------------------------------------------------------


def _infer_lsq(x: TensorType, step: TensorType, *, bits: int, axis: int | None,
               gradient_scale: float) -> Type:
    _check_scale(x, step, bits, axis)
    if not isfinite(gradient_scale):
        raise ArgumentError(f"grad_scale must be finite, not {gradient_scale}")
    return x


def _infer_lsq_backward(dy: TensorType, x: TensorType, step: TensorType, **attrs: Any) -> Type:
    require_floats("fake_quantize_lsq_backward", dy, x)
    require_shape("dy", dy, x.shape)
    _infer_lsq(x, step, **attrs)
    return TupleType((x, step))


def _lsq_step(x: Node, step: Node, axis: int | None) -> Node:
    return spread(MAX(step, fill(step, SMALLEST)), x.shape, _channel_axes(axis))


@in_compute_type
def _lsq(x: Node, step: Node, *, bits: int, axis: int | None, gradient_scale: float) -> Node:
    return _on_grid(x, _lsq_step(x, step, axis), STEPS[bits])


def _lsq_slopes(x: Node, step: Node, bits: int, axis: int | None) -> tuple[Node, Node]:
    """Where x lies inside the grid, and the slope by the step: round(u) − u there, ±q outside."""
    u = DIV(x, _lsq_step(x, step, axis))
    q = fill(u, STEPS[bits])
    inside = LT(ABS(u), q)
    end = SELECT(LT(u, fill(u, 0)), -q, q)
    return inside, SELECT(inside, SUB(ROUND(u), u), end)


def _lsq_backward(dy: Node, x: Node, step: Node, *, bits: int, axis: int | None,
                  gradient_scale: float) -> tuple[Node, Node]:
    """dx = dy where |x/s| < q; ds = Σ dy·slope, over all axes but the channel's."""
    dtype = x.dtype
    dy, x = convert(dy, dtype.compute), convert(x, dtype.compute)
    inside, slope = _lsq_slopes(x, step, bits, axis)
    ds = total(dy * slope, kept_axes(x.rank, _channel_axes(axis))) * gradient_scale
    return convert(SELECT(inside, dy, fill(dy, 0)), dtype), ds


FAKE_QUANTIZE_LSQ_BACKWARD = composite(
    "fake_quantize_lsq_backward", _infer_lsq_backward, _lsq_backward)


def _lsq_vjp(node: Node, ct: Node, ad: AD) -> Sequence[Node | None]:
    return list(FAKE_QUANTIZE_LSQ_BACKWARD(ct, *node.inputs, **node.attrs))


def _lsq_jvp(node: Node, tangents: Sequence[Node | None], ad: AD) -> Node | None:
    """The transpose of the backward, its scale of the step's gradient included."""
    (x, step), (tx, ts) = node.inputs, tangents
    bits, axis = node.attrs["bits"], node.attrs["axis"]
    wide = convert(x, x.dtype.compute)
    inside, slope = _lsq_slopes(wide, step, bits, axis)
    found = fill(wide, 0) if tx is None else SELECT(
        inside, convert(tx, wide.dtype), fill(wide, 0))
    if ts is not None:
        moved = spread(ts * node.attrs["gradient_scale"], x.shape, _channel_axes(axis))
        found = found + moved * slope
    return None if tx is None and ts is None else convert(found, x.dtype)


FAKE_QUANTIZE_LSQ = composite("fake_quantize_lsq", _infer_lsq, _lsq, vjp=_lsq_vjp, jvp=_lsq_jvp,
                              batch=by_element)

# ---- public ----------------------------------------------------------------------------------


def _axis(x: Node, axis: int | None) -> int | None:
    return None if axis is None else normalize_axis(axis, x.rank)


def _given_scale(x: Node, scale: Any) -> Node:
    node = as_node(scale, x.dtype.compute)
    return convert(node, x.dtype.compute) if node.dtype.is_float else node


@located
def quantize_scale(input: Any, bits: int = 8, axis: int | None = None) -> Node:
    """max(max |x|/q, 1e-12) of the batch, over every axis but `axis`: the per_batch scale.

    A scalar, or one number for each position of `axis`, in f32 for narrow floats; a constant to
    derivatives. Raises DTypeError (not a float), ArgumentError (bits, axis).
    """
    x = as_node(input)
    require_float("quantize_scale", x.dtype)
    return QUANTIZE_SCALE(x, bits=integer("bits", bits), axis=_axis(x, axis))


@located
def fake_quantize(input: Any, bits: int = 8, axis: int | None = None, ste: str = "identity",
                  scale_mode: str = "per_batch", scale: Any = None, decay: float = 0.99) -> Any:
    """clip(round(x/s), −q, q)·s, q = 127, 7, 1 for 8, 4, 2 bits; halves round to even.

    axis: a scale for each position of it (a channel), else one for all. scale_mode:
    "per_batch", s of x itself (`quantize_scale`); "fixed", the given scale; "ema",
    s' = decay·scale + (1 − decay)·s of x, or s of x where scale is not positive yet, and the result
    is the pair (y, s'): keep s' as the next scale, a state of the graph. scale has the type of
    `quantize_scale`. ste: "identity", "clipped_identity", "tanh" or "hard_tanh", the slope in place
    of rounding's. Raises DTypeError, ShapeError, ArgumentError.
    """
    x = as_node(input)
    if scale_mode not in SCALE_MODES:
        raise ArgumentError(f"scale_mode {scale_mode!r} is not one of {', '.join(SCALE_MODES)}")
    if (scale is None) != (scale_mode == "per_batch"):
        raise ArgumentError(f"scale_mode {scale_mode!r} takes {'no' if scale is not None else 'a'} "
                            "scale")
    width, place = integer("bits", bits), _axis(x, axis)
    attrs = {"bits": width, "axis": place, "ste": ste, "covered": scale_mode == "per_batch"}
    if scale_mode == "fixed":
        s = _given_scale(x, scale)
        _check_scale(x.tensor, s.tensor, width, place)
        return FAKE_QUANTIZE(x, MAX(s, fill(s, SMALLEST)), **attrs)
    batch = quantize_scale(x, bits, axis)
    if scale_mode == "per_batch":
        return FAKE_QUANTIZE(x, batch, **attrs)
    rate = real("decay", decay)
    if not 0 <= rate <= 1:
        raise ArgumentError(f"decay must lie in 0 … 1, not {rate}")
    before = STOP_GRADIENT(_given_scale(x, scale))
    _check_scale(x.tensor, before.tensor, width, place)
    mixed = before * rate + batch * (1 - rate)
    fresh = SELECT(LE(before, fill(before, 0)), batch, MAX(mixed, fill(mixed, SMALLEST)))
    return FAKE_QUANTIZE(x, fresh, **attrs), fresh


@located
def fake_quantize_lsq(input: Any, step: Any, bits: int = 8, axis: int | None = None,
                      grad_scale: float | None = 1.0) -> Node:
    """clip(round(x/s), −q, q)·s with a learned step s (Esser et al. 2020).

    dx = dy where |x/s| < q, else 0; ds = grad_scale·Σ dy·(round(x/s) − x/s, or ±q outside).
    grad_scale None is the paper's 1/√(N·q), N the elements a step has. step: a scalar, or one for
    each position of `axis`, in f32 for narrow floats; below 1e-12 it counts as that. Raises
    DTypeError, ShapeError, ArgumentError.
    """
    x = as_node(input)
    place, count = _axis(x, axis), x.size
    s = _given_scale(x, step)
    _check_scale(x.tensor, s.tensor, integer("bits", bits), place)
    if place is not None:
        count //= max(x.shape[place], 1)
    factor = 1 / sqrt(max(count, 1) * STEPS[bits]) if grad_scale is None else real(
        "grad_scale", grad_scale)
    return FAKE_QUANTIZE_LSQ(x, s, bits=int(bits), axis=place, gradient_scale=factor)
