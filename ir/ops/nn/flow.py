"""Flow matching on straight paths from a clean sample to noise (Lipman et al. 2023): the state at a
time, the velocity, an Euler step, and the masked squared error of a predicted velocity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlx_py.ir.base.errors import ShapeError
from rlx_py.ir.base.types import TensorType, TupleType, Type, require_float
from rlx_py.ir.graph.transforms import AD
from rlx_py.ir.nodes.node import Node
from rlx_py.ir.ops.making.arguments import require_floats, require_shape
from rlx_py.ir.ops.making.families import composite
from rlx_py.ir.ops.making.located import located
from rlx_py.ir.ops.operands.operand import (
    as_node,
    broadcast_shape,
    broadcast_to,
    convert,
    operands,
    together,
)
from rlx_py.ir.ops.operands.precision import in_compute_type
from rlx_py.ir.ops.primitive.elementwise import (
    ADD,
    DIV,
    GUARDED_MUL,
    MAX,
    MUL,
    STOP_GRADIENT,
    SUB,
    fill,
)
from rlx_py.ir.ops.primitive.movement import reshaped, spread
from rlx_py.ir.ops.primitive.reduce import total


def _same(name: str, first: TensorType, *rest: TensorType) -> TensorType:
    require_floats(name, first, *rest)
    for t in rest:
        require_shape(f"an operand of {name}", t, first.shape)
    return first


# ---- state -----------------------------------------------------------------------------------


def _infer_state(clean: TensorType, noise: TensorType, t: TensorType) -> Type:
    return _same("flow_linear_state", clean, noise, t)


def _infer_state_backward(dy: TensorType, clean: TensorType, noise: TensorType,
                          t: TensorType) -> Type:
    found = _same("flow_linear_state_backward", dy, clean, noise, t)
    return TupleType((found,) * 3)


@in_compute_type
def _state(clean: Node, noise: Node, t: Node) -> Node:
    """(1 − t)·clean + t·noise: exact at both ends."""
    return ADD(MUL(1 - t, clean), MUL(t, noise))


@in_compute_type
def _state_backward(dy: Node, clean: Node, noise: Node, t: Node) -> tuple[Node, ...]:
    """(1 − t)dy, t·dy, dy·(noise − clean)."""
    return MUL(dy, 1 - t), MUL(dy, t), MUL(dy, SUB(noise, clean))


FLOW_LINEAR_STATE_BACKWARD = composite(
    "flow_linear_state_backward", _infer_state_backward, _state_backward)


def _state_vjp(node: Node, ct: Node, ad: AD) -> Sequence[Node | None]:
    return list(FLOW_LINEAR_STATE_BACKWARD(ct, *node.inputs))


FLOW_LINEAR_STATE = composite("flow_linear_state", _infer_state, _state, vjp=_state_vjp)

# ---- velocity, step --------------------------------------------------------------------------


def _infer_velocity(clean: TensorType, noise: TensorType) -> Type:
    return _same("flow_linear_velocity", clean, noise)


FLOW_LINEAR_VELOCITY = composite(
    "flow_linear_velocity", _infer_velocity, lambda clean, noise: SUB(noise, clean))


def _infer_step(state: TensorType, velocity: TensorType, dt: TensorType) -> Type:
    return _same("flow_euler_step", state, velocity, dt)


@in_compute_type
def _step(state: Node, velocity: Node, dt: Node) -> Node:
    return ADD(state, MUL(dt, velocity))


FLOW_EULER_STEP = composite("flow_euler_step", _infer_step, _step)

# ---- masked error ----------------------------------------------------------------------------


def _infer_mse(prediction: TensorType, target: TensorType, mask: TensorType) -> Type:
    return _same("flow_masked_mse", prediction, target, mask).with_shape(())


def _infer_mse_backward(dy: TensorType, prediction: TensorType, target: TensorType,
                        mask: TensorType) -> Type:
    require_floats("flow_masked_mse_backward", dy, prediction)
    require_shape("dy", dy, ())
    return _same("flow_masked_mse_backward", prediction, target, mask)


def _counted(mask: Node) -> Node:
    sums = total(mask, tuple(range(mask.rank)))
    return MAX(sums, fill(sums, 1))


@in_compute_type
def _mse(prediction: Node, target: Node, mask: Node) -> Node:
    """Σ m ⊳ (p − y)²/max(Σ m, 1); ⊳ so that what is masked may be NaN."""
    m = STOP_GRADIENT(mask)
    d = SUB(prediction, STOP_GRADIENT(target))
    return DIV(total(GUARDED_MUL(m, MUL(d, d)), tuple(range(d.rank))), _counted(m))


@in_compute_type
def _mse_backward(dy: Node, prediction: Node, target: Node, mask: Node) -> Node:
    """dy·2m ⊳ (p − y)/max(Σ m, 1)."""
    m = STOP_GRADIENT(mask)
    d = SUB(prediction, STOP_GRADIENT(target))
    share = spread(DIV(MUL(dy, fill(dy, 2)), _counted(m)), d.shape, ())
    return GUARDED_MUL(MUL(m, share), d)


FLOW_MASKED_MSE_BACKWARD = composite(
    "flow_masked_mse_backward", _infer_mse_backward, _mse_backward)


def _mse_vjp(node: Node, ct: Node, ad: AD) -> Sequence[Node | None]:
    return FLOW_MASKED_MSE_BACKWARD(ct, *node.inputs), None, None


FLOW_MASKED_MSE = composite("flow_masked_mse", _infer_mse, _mse, vjp=_mse_vjp)

# ---- public ----------------------------------------------------------------------------------


def _over_state(t: Node, shape: tuple[int, ...]) -> Node:
    """A time spread over a state. A rank-1 time as long as the first axis is one for each of the
    batch, however long the last axis is; else NumPy's rule."""
    if t.rank == 1 and len(shape) > 1 and t.size != 1 and t.size == shape[0]:
        t = reshaped(t, (t.size, *(1,) * (len(shape) - 1)))
    if broadcast_shape(t.shape, shape) != shape:
        raise ShapeError(f"a time {t.type} does not fit a state of shape {shape}")
    return broadcast_to(t, shape)


def _timed(a: Any, b: Any, t: Any) -> tuple[Node, Node, Node]:
    """Two states broadcast together, and a time over them; all of one type."""
    first, second, time = operands(a, b, t)
    shape = broadcast_shape(first.shape, second.shape)
    return broadcast_to(first, shape), broadcast_to(second, shape), _over_state(time, shape)


@located
def flow_linear_state(clean: Any, noise: Any, t: Any) -> Node:
    """(1 − t)·clean + t·noise.

    t: a scalar; [B], one for each of axis 0 of a state of rank > 1 with B ≠ 1, even if the last
    axis is as long; or what broadcasts to the state. Raises ShapeError, DTypeError (not floats).
    """
    return FLOW_LINEAR_STATE(*_timed(clean, noise, t))


@located
def flow_linear_velocity(clean: Any, noise: Any) -> Node:
    """noise − clean, the velocity of `flow_linear_state`. Raises ShapeError, DTypeError."""
    return FLOW_LINEAR_VELOCITY(*together(clean, noise))


@located
def flow_euler_step(state: Any, velocity: Any, dt: Any) -> Node:
    """state + dt·velocity; dt a number, or a node as the time of `flow_linear_state`."""
    return FLOW_EULER_STEP(*_timed(state, velocity, dt))


@located
def flow_masked_mse(prediction: Any, target: Any, mask: Any) -> Node:
    """Σ m(p − y)²/max(Σ m, 1) over all elements, m the mask broadcast to the prediction.

    The mask (bool or numbers) and the target are constants to derivatives; what has mask 0 counts 0
    whatever it holds. Raises ShapeError, DTypeError (prediction or target not floats).
    """
    p, y = together(prediction, target)
    require_float("flow_masked_mse", p.dtype)
    # A sum of many ones needs more than a narrow float, whose result is rounded at the end.
    wide = p.dtype.compute
    m = broadcast_to(convert(as_node(mask, wide), wide), p.shape)
    return convert(FLOW_MASKED_MSE(convert(p, wide), convert(y, wide), m), p.dtype)
