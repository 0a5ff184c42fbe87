"""Dropout: elements kept with probability 1 − p and scaled by 1/(1 − p)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlx_py.ir.base.errors import ArgumentError, DTypeError, ShapeError
from rlx_py.ir.base.types import TensorType, Type, require_float, u32
from rlx_py.ir.graph.transforms import AD
from rlx_py.ir.nodes.node import Node
from rlx_py.ir.ops.making.beside import Key
from rlx_py.ir.ops.making.families import composite
from rlx_py.ir.ops.making.located import located
from rlx_py.ir.ops.making.rows import of_elements
from rlx_py.ir.ops.operands.operand import as_node
from rlx_py.ir.ops.primitive.compare import GE
from rlx_py.ir.ops.primitive.elementwise import MUL, SELECT, fill
from rlx_py.ir.ops.primitive.movement import spread
from rlx_py.ir.ops.primitive.random import RANDOM_BITS


def _infer(x: TensorType, key: TensorType, *, p: float, shared: tuple[int, ...]) -> Type:
    require_float("dropout", x.dtype)
    if key.dtype is not u32 or key.shape != (2,):
        raise DTypeError(f"a key is u32[2], not {key}")
    if not 0 <= p <= 1:
        raise ArgumentError(f"a probability is in 0 … 1, not {p}")
    if any(not 0 <= a < x.rank for a in shared):
        raise ArgumentError(f"{x} has no axes {shared}")
    return x


def _decompose(x: Node, key: Node, *, p: float, shared: tuple[int, ...]) -> Node:
    if p == 0:
        return x
    zero = fill(x, 0)
    dropped = round(p * 2**32)
    if p == 1 or dropped >= 2**32:
        return zero
    axes = tuple(a for a in range(x.rank) if a not in shared)
    bits = RANDOM_BITS(key, shape=tuple(x.shape[a] for a in axes), dtype=u32)
    # A whole-number comparison: one mask for every element type.
    kept = spread(GE(bits, fill(bits, dropped)), x.shape, axes)
    return SELECT(kept, MUL(x, fill(x, 1 / (1 - p))), zero)


def _vjp(node: Node, ct: Node, ad: AD) -> Sequence[Node | None]:
    """Linear and symmetric: the same mask, made again from the key or shared with the forward."""
    return (DROPOUT(ct, node.inputs[1], **node.attrs), None)


def _jvp(node: Node, tangents: Sequence[Node | None], ad: AD) -> Node | None:
    t, _ = tangents
    return None if t is None else DROPOUT(t, node.inputs[1], **node.attrs)


DROPOUT = composite("dropout", _infer, _decompose, vjp=_vjp, jvp=_jvp, rows=of_elements)


def _dropped(x: Any, p: float, training: bool, key: Key, channels: int | None) -> Node:
    node = as_node(x)
    if channels is not None and node.rank != channels + 2:
        raise ShapeError(f"channels with {channels} spatial axes have rank {channels + 2}, "
                         f"not {node.type}")
    if not training:
        return node
    if key is None:
        raise ArgumentError("training needs a key: rlx.random.key(seed), or rlx.random.key_state")
    shared = () if channels is None else tuple(range(2, node.rank))
    return DROPOUT(node, as_node(key, u32), p=float(p), shared=shared)


@located
def dropout(x: Any, p: float = 0.5, training: bool = True, *, key: Key = None) -> Node:
    """x with elements dropped (0) with probability p and the others scaled by 1/(1 − p).

    key: a u32[2] of its own for each call (rlx.random.split). The gradient has the same mask. Not
    in training, x itself.
    """
    return _dropped(x, p, training, key, None)


@located
def dropout1d(x: Any, p: float = 0.5, training: bool = True, *, key: Key = None) -> Node:
    """Whole channels of x[N, C, L] dropped with probability p."""
    return _dropped(x, p, training, key, 1)


@located
def dropout2d(x: Any, p: float = 0.5, training: bool = True, *, key: Key = None) -> Node:
    """Whole channels of x[N, C, H, W] dropped with probability p."""
    return _dropped(x, p, training, key, 2)


@located
def dropout3d(x: Any, p: float = 0.5, training: bool = True, *, key: Key = None) -> Node:
    """Whole channels of x[N, C, D, H, W] dropped with probability p."""
    return _dropped(x, p, training, key, 3)
