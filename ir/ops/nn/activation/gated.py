"""Gated activations: one tensor times a function of another, or of its own other half."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlx_py.ir.base.errors import ShapeError
from rlx_py.ir.base.types import TensorType, Type, normalize_axis, require_float
from rlx_py.ir.nodes.node import Node, Op
from rlx_py.ir.ops.making.arguments import require_floats, require_shape
from rlx_py.ir.ops.making.families import composite
from rlx_py.ir.ops.making.located import located
from rlx_py.ir.ops.numpy.shaping import window
from rlx_py.ir.ops.operands.operand import as_node, operands, together
from rlx_py.ir.ops.operands.precision import in_compute_type
from rlx_py.ir.ops.primitive.compare import GT
from rlx_py.ir.ops.primitive.elementwise import MUL, SELECT, fill
from rlx_py.ir.ops.primitive.movement import spread
from rlx_py.ir.ops.primitive.special import LOGISTIC


def _halved(name: str, decompose: Callable[[Node, Node], Node]) -> Op:
    """A composite of the two halves of an axis."""

    def infer(x: TensorType, *, axis: int) -> Type:
        require_float(name, x.dtype)
        if not 0 <= axis < x.rank:
            raise ShapeError(f"{x} has no axis {axis}")
        if x.shape[axis] % 2:
            raise ShapeError(f"axis {axis} of {x} has no two halves")
        return x.with_shape((*x.shape[:axis], x.shape[axis] // 2, *x.shape[axis + 1:]))

    def halves(x: Node, *, axis: int) -> Node:
        half = x.shape[axis] // 2
        return decompose(window(x, axis, 0, half), window(x, axis, half, 2 * half))

    return composite(name, infer, in_compute_type(halves))


def _silu_times(a: Node, b: Node) -> Node:
    return MUL(MUL(a, LOGISTIC(a)), b)


GLU = _halved("glu", lambda a, b: MUL(a, LOGISTIC(b)))
SWIGLU = _halved("swiglu", _silu_times)


def _infer_silu_mul(gate: TensorType, up: TensorType) -> Type:
    require_floats("silu_mul", gate, up)
    require_shape("up", up, gate.shape)
    return gate


SILU_MUL = composite("silu_mul", _infer_silu_mul, in_compute_type(_silu_times))


def _infer_prelu(x: TensorType, weight: TensorType) -> Type:
    require_floats("prelu", x, weight)
    if weight.shape != (1,) and (x.rank < 2 or weight.shape != x.shape[1:2]):
        raise ShapeError(f"weight {weight} must hold one slope, or one for each channel of {x}")
    return x


@in_compute_type
def _prelu(x: Node, weight: Node) -> Node:
    if weight.shape != x.shape[1:2]:  # one slope for all
        weight = weight.reshape(())
    slope = spread(weight, x.shape, (1,) if weight.rank else ())
    return SELECT(GT(x, fill(x, 0)), x, x * slope)


PRELU = composite("prelu", _infer_prelu, _prelu)


@located
def glu(input: Any, dim: int = -1) -> Node:
    """a·σ(b) of the two halves of an axis (Dauphin et al. 2017). Raises ShapeError (an odd size),
    DTypeError (not a float), ArgumentError (no such axis)."""
    x = as_node(input)
    return GLU(x, axis=normalize_axis(dim, x.rank))


@located
def swiglu(input: Any, dim: int = -1) -> Node:
    """a·σ(a)·b of the two halves of an axis (Shazeer 2020). Errors as `glu`."""
    x = as_node(input)
    return SWIGLU(x, axis=normalize_axis(dim, x.rank))


@located
def silu_mul(gate: Any, up: Any) -> Node:
    """gate·σ(gate)·up; both broadcast. Raises ShapeError, DTypeError (not floats)."""
    return SILU_MUL(*together(gate, up))


@located
def prelu(input: Any, weight: Any) -> Node:
    """x where x > 0, else weight·x; weight[1], or [C] along axis 1. At 0 the slope is the weight's.

    Raises ShapeError, DTypeError (not floats).
    """
    x, w = operands(input, weight)
    return PRELU(x, w.reshape((1,)) if not w.rank else w)
