"""Mixture of experts: routing weights, the plan that sorts slots by expert, gather and combine.

T tokens each choose K of E experts, idx[T, K]. Slot t·K + k is token t's k-th choice. The plan
packs the slots by expert, in their order within each: row r of the packed array is slot
packed_slot[r], slot s is row inverse[s], and expert e has rows offsets[e] … offsets[e + 1] − 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from rlx_py.ir.base.dim import surely_less
from rlx_py.ir.base.errors import ArgumentError, DTypeError, ShapeError
from rlx_py.ir.base.types import DType, TensorType, TupleType, Type, i32, i64, require_float
from rlx_py.ir.graph.stored import Emitter, LoopRule
from rlx_py.ir.graph.transforms import AD
from rlx_py.ir.loops.kernel import Apply
from rlx_py.ir.nodes.node import Node, Op, register
from rlx_py.ir.ops.making.arguments import integer, require_floats, require_shape
from rlx_py.ir.ops.making.batch_index import batch_counting_sort
from rlx_py.ir.ops.making.constant import constant, iota
from rlx_py.ir.ops.making.families import Array, composite
from rlx_py.ir.ops.making.guards import converted, read, scalar
from rlx_py.ir.ops.making.located import located
from rlx_py.ir.ops.numpy.scatter import SCATTER_SET
from rlx_py.ir.ops.numpy.shaping import window
from rlx_py.ir.ops.operands.operand import as_node, operands
from rlx_py.ir.ops.operands.precision import in_compute_type
from rlx_py.ir.ops.primitive.compare import GT
from rlx_py.ir.ops.primitive.elementwise import DIV, INT_DIV, SELECT, fill
from rlx_py.ir.ops.primitive.index import GATHER, TAKE_ALONG, TAKE_ALONG_BACKWARD
from rlx_py.ir.ops.primitive.movement import filled, padded, reshaped, spread
from rlx_py.ir.ops.primitive.reduce import REDUCE_SUM, total, widened

# ---- routing weights -------------------------------------------------------------------------


def _infer_route(p: TensorType, idx: TensorType) -> Type:
    require_float("moe_route_weights", p.dtype)
    if not idx.dtype.is_int:
        raise DTypeError(f"experts must be integers, not {idx.dtype}")
    if p.rank < 1 or idx.rank != p.rank or idx.shape[:-1] != p.shape[:-1]:
        raise ShapeError(f"experts {idx} must choose among the last axis of {p}")
    return p.with_shape(idx.shape)


def _infer_route_backward(dw: TensorType, p: TensorType, idx: TensorType) -> Type:
    require_floats("moe_route_weights_backward", dw, p)
    _infer_route(p, idx)
    require_shape("dw", dw, idx.shape)
    return p


def _route_parts(p: Node, idx: Node) -> tuple[Node, Node, Node]:
    """The chosen probabilities, their sum where it is positive (else 1), and where it is."""
    axis = p.rank - 1
    chosen = TAKE_ALONG(p, idx, axis=axis, mode="error")
    d = REDUCE_SUM(chosen, axes=(axis,))
    some = GT(d, fill(d, 0))
    return chosen, widened(SELECT(some, d, fill(d, 1)), chosen, (axis,)), widened(
        some, chosen, (axis,))


@in_compute_type
def _route(p: Node, idx: Node) -> Node:
    """W = P[idx]/d, d the sum of a token's choices; 0 where d ≤ 0."""
    chosen, d, some = _route_parts(p, idx)
    return SELECT(some, DIV(chosen, d), fill(chosen, 0))


@in_compute_type
def _route_backward(dw: Node, p: Node, idx: Node) -> Node:
    """dP[t, e] = Σ_{k: idx = e} (dW − Σ_j dW·W)/d."""
    axis = p.rank - 1
    chosen, d, some = _route_parts(p, idx)
    mean = REDUCE_SUM(dw * DIV(chosen, d), axes=(axis,))
    dchosen = SELECT(some, DIV(dw - widened(mean, dw, (axis,)), d), fill(dw, 0))
    return TAKE_ALONG_BACKWARD(idx, dchosen, size=p.shape[axis], axis=axis, mode="error")


MOE_ROUTE_WEIGHTS_BACKWARD = composite(
    "moe_route_weights_backward", _infer_route_backward, _route_backward)


def _route_vjp(node: Node, ct: Node, ad: AD) -> Sequence[Node | None]:
    return MOE_ROUTE_WEIGHTS_BACKWARD(ct, *node.inputs), None


MOE_ROUTE_WEIGHTS = composite("moe_route_weights", _infer_route, _route, vjp=_route_vjp)

# ---- plan ------------------------------------------------------------------------------------


def _infer_counting_sort(keys: TensorType, *, size: int) -> Type:
    if not keys.dtype.is_int:
        raise DTypeError(f"experts must be integers, not {keys.dtype}")
    if keys.rank != 1:
        raise ShapeError(f"keys to count must be a vector, not {keys}")
    if size < (1 if keys.size else 0):
        raise ArgumentError(f"{size} experts for {keys.size} choices")
    return TensorType(_row_type(keys), (size + keys.size,))


def _row_type(keys: TensorType) -> DType:
    return i32 if keys.dtype is i32 and not surely_less(2**31 - 1, keys.size) else i64


def _eval_counting_sort(keys: Array, *, size: int) -> Array:
    wide = keys.astype(np.int64)
    outside = (wide < 0) | (wide >= size)
    if outside.any():
        raise ArgumentError(f"expert {wide[outside].flat[0]} is out of range for {size}")
    rows = np.empty(wide.size, np.int64)
    rows[np.argsort(wide, kind="stable")] = np.arange(wide.size)
    ends = np.cumsum(np.bincount(wide, minlength=size))
    kept = np.int32 if keys.dtype == np.int32 and keys.size < 2**31 else np.int64
    return np.concatenate([ends, rows]).astype(kept)


def _counting_sort_loops(node: Node, emit: Emitter) -> None:
    """Count each key, turn the counts into first rows, and hand the rows out in order. The counters
    are the first elements of the result, and end as the row after each key's last."""
    (keys,), size, dtype = node.inputs, node.attrs["size"], node.dtype
    with emit.loop(size, independent=True) as e:
        emit.store((e,), scalar(0, dtype))
    with emit.loop(keys.size, independent=False) as s:
        key = emit.dynamic(converted(emit, emit.ask(0, (s,)), i64), size)
        emit.store((key,), scalar(1, dtype), combine="add")
    start = emit.declare(dtype, scalar(0, dtype))
    with emit.loop(size, independent=False) as e:
        count = emit.load((e,))
        emit.store((e,), read(start))
        emit.set(start, count, "add")
    with emit.loop(keys.size, independent=False) as s:
        key = emit.dynamic(converted(emit, emit.ask(0, (s,)), i64), size)
        row = emit.load((key,))
        emit.store((s + size,), row)
        emit.store((key,), emit.let(Apply("add", (row, scalar(1, dtype)), dtype)))


# Of keys in 0 … size − 1: where each key's rows end, then the row of each element, equal keys in
# their order. Linear in time and memory, whatever the number of keys.
COUNTING_SORT = register(Op("counting_sort", _infer_counting_sort, _eval_counting_sort,
                            kernel=LoopRule(_counting_sort_loops), batch=batch_counting_sort,
                            differentiable=False))


def _infer_plan(idx: TensorType, *, experts: int) -> Type:
    flat = idx.with_shape((idx.size,))
    _infer_counting_sort(flat, size=experts)
    rows = flat.with_dtype(_row_type(flat))
    return TupleType((rows, rows, rows.with_shape((experts + 1,))))


def _plan(idx: Node, *, experts: int) -> tuple[Node, Node, Node]:
    found = COUNTING_SORT(reshaped(idx, (idx.size,)), size=experts)
    inverse = window(found, 0, experts, experts + idx.size)
    slots = iota((idx.size,), 0, found.dtype)
    packed_slot = SCATTER_SET(filled(0, slots.tensor), inverse, slots, axis=0, mode="error")
    ends = window(found, 0, 0, experts)
    return inverse, packed_slot, padded(ends, constant(0, ends.dtype), (1,), (0,), (0,))


EXPERT_PLAN = register(Op("expert_plan", _infer_plan, decompose=_plan, differentiable=False))


class ExpertPlan(NamedTuple):
    """Where each slot goes; what `expert_plan` gives."""

    inverse: Node  # [T·K], the row of each slot
    packed_slot: Node  # [T·K], the slot of each row
    offsets: Node  # [E + 1], the first row of each expert, and the number of rows


# ---- gather ----------------------------------------------------------------------------------


def _check_rows(name: str, slots: TensorType, inverse: TensorType) -> None:
    for t in (slots, inverse):
        if not t.dtype.is_int:
            raise DTypeError(f"{name}: rows and slots must be integers, not {t.dtype}")
    if slots.rank != 1 or inverse.shape != slots.shape:
        raise ShapeError(f"{name}: packed_slot {slots} and inverse {inverse} must be vectors of "
                         "one length")


def _choices(tokens: int, rows: int) -> int:
    """K, how many slots each token has."""
    if tokens < 0 or (rows % tokens if tokens else rows):
        raise ShapeError(f"{rows} rows are no whole number of choices for {tokens} tokens")
    return rows // tokens if rows else 1


def _infer_gather(x: TensorType, packed_slot: TensorType, inverse: TensorType) -> Type:
    _check_rows("moe_gather", packed_slot, inverse)
    if not x.rank:
        raise ShapeError(f"moe_gather: {x} has no axis of tokens")
    _choices(x.shape[0], packed_slot.size)
    return x.with_shape((packed_slot.size, *x.shape[1:]))


def _infer_gather_backward(dy: TensorType, packed_slot: TensorType, inverse: TensorType, *,
                           tokens: int) -> Type:
    require_float("moe_gather_backward", dy.dtype)
    _check_rows("moe_gather_backward", packed_slot, inverse)
    if dy.shape[:1] != packed_slot.shape:
        raise ShapeError(f"{dy} does not have the {packed_slot.size} packed rows")
    _choices(tokens, packed_slot.size)
    return dy.with_shape((tokens, *dy.shape[1:]))


def _tokens_of(packed_slot: Node, choices: int) -> Node:
    return INT_DIV(packed_slot, fill(packed_slot, choices)) if choices > 1 else packed_slot


def _gather(x: Node, packed_slot: Node, inverse: Node) -> Node:
    choices = _choices(x.shape[0], packed_slot.size)
    return GATHER(x, _tokens_of(packed_slot, choices), axis=0, mode="error")


def _by_token(packed: Node, inverse: Node, tokens: int, choices: int) -> Node:
    """The packed rows of each token: [T, K, …]."""
    return GATHER(packed, reshaped(inverse, (tokens, choices)), axis=0, mode="error")


@in_compute_type
def _gather_backward(dy: Node, packed_slot: Node, inverse: Node, *, tokens: int) -> Node:
    """dX[t] = Σ_k dY[inverse[t·K + k]], in the order of k."""
    choices = inverse.size // tokens if tokens else 0
    return REDUCE_SUM(_by_token(dy, inverse, tokens, choices), axes=(1,))


def _gather_vjp(node: Node, ct: Node, ad: AD) -> Sequence[Node | None]:
    x, *plan = node.inputs
    return MOE_GATHER_BACKWARD(ct, *plan, tokens=x.shape[0]), None, None


def _gather_backward_vjp(node: Node, ct: Node, ad: AD) -> Sequence[Node | None]:
    return MOE_GATHER(ct, *node.inputs[1:]), None, None


def _first_jvp(node: Node, tangents: Sequence[Node | None], ad: AD) -> Node | None:
    return None if tangents[0] is None else node.op(tangents[0], *node.inputs[1:], **node.attrs)


MOE_GATHER: Op = composite("moe_gather", _infer_gather, _gather, vjp=_gather_vjp, jvp=_first_jvp)
MOE_GATHER_BACKWARD: Op = composite("moe_gather_backward", _infer_gather_backward,
                                    _gather_backward, vjp=_gather_backward_vjp, jvp=_first_jvp)

# ---- combine ---------------------------------------------------------------------------------


def _infer_combine(packed: TensorType, gates: TensorType, packed_slot: TensorType,
                   inverse: TensorType) -> Type:
    require_floats("moe_combine", packed, gates)
    _check_rows("moe_combine", packed_slot, inverse)
    if gates.rank != 2 or packed.shape[:1] != packed_slot.shape or gates.size != packed_slot.size:
        raise ShapeError(f"moe_combine: gates {gates} must hold one weight for each of the "
                         f"{packed_slot.size} slots, and {packed} a row")
    return packed.with_shape((gates.shape[0], *packed.shape[1:]))


def _infer_combine_backward(dy: TensorType, packed: TensorType, gates: TensorType,
                            packed_slot: TensorType, inverse: TensorType) -> Type:
    require_floats("moe_combine_backward", dy, packed, gates)
    found = _infer_combine(packed, gates, packed_slot, inverse)
    assert isinstance(found, TensorType)
    require_shape("dy", dy, found.shape)
    return TupleType((packed, gates))


@in_compute_type
def _combine(packed: Node, gates: Node, packed_slot: Node, inverse: Node) -> Node:
    """y[t] = Σ_k gates[t, k]·packed[inverse[t·K + k]], in the order of k."""
    rows = _by_token(packed, inverse, *gates.shape)
    return REDUCE_SUM(rows * spread(gates, rows.shape, (0, 1)), axes=(1,))


@in_compute_type
def _combine_backward(dy: Node, packed: Node, gates: Node, packed_slot: Node, inverse: Node
                      ) -> tuple[Node, Node]:
    """dpacked[row] = gate·dy of the row's token; dgates[t, k] = ⟨dy[t], packed[…]⟩."""
    tokens, choices = gates.shape
    own = GATHER(dy, _tokens_of(packed_slot, choices), axis=0, mode="error")
    gate = GATHER(reshaped(gates, (gates.size,)), packed_slot, axis=0, mode="error")
    rows = _by_token(packed, inverse, tokens, choices)
    across = rows * spread(dy, rows.shape, (0, *range(2, rows.rank)))
    return own * spread(gate, own.shape, (0,)), total(across, tuple(range(2, rows.rank)))


MOE_COMBINE_BACKWARD = composite(
    "moe_combine_backward", _infer_combine_backward, _combine_backward)


def _combine_vjp(node: Node, ct: Node, ad: AD) -> Sequence[Node | None]:
    return [*MOE_COMBINE_BACKWARD(ct, *node.inputs), None, None]


MOE_COMBINE = composite("moe_combine", _infer_combine, _combine, vjp=_combine_vjp)

# ---- public ----------------------------------------------------------------------------------


@located
def moe_route_weights(probabilities: Any, experts: Any) -> Node:
    """The weights of the chosen experts: P[t, idx[t, k]] over their sum d_t; 0 where d_t ≤ 0.

    probabilities P[…, E] and experts idx[…, K], integers. A choice outside 0 … E − 1 is an
    ArgumentError on the reference backend and the nearest expert in compiled code. Raises
    ShapeError, DTypeError.
    """
    return MOE_ROUTE_WEIGHTS(as_node(probabilities), as_node(experts))


@located
def expert_plan(experts: Any, num_experts: int) -> ExpertPlan:
    """The slots sorted by expert, in their order within each: (inverse, packed_slot, offsets).

    experts: idx[T, K] (any shape), integers; i32 ones give i32 results, others i64. A stable
    counting sort in linear time and memory. A choice outside 0 … num_experts − 1 is an
    ArgumentError on the reference backend and the nearest expert in compiled code. Raises
    DTypeError, ArgumentError (no experts).
    """
    return ExpertPlan(*EXPERT_PLAN(as_node(experts), experts=integer("num_experts", num_experts)))


@located
def moe_gather(x: Any, packed_slot: Any, inverse: Any) -> Node:
    """Rows of tokens x[T, …] packed by expert: y[row] = x[packed_slot[row] // K], K = rows // T.

    packed_slot and inverse are those of one `expert_plan`: the gradient of token t sums the rows of
    its slots, in the order of k, and so needs the inverse. Raises ShapeError, DTypeError.
    """
    return MOE_GATHER(as_node(x), as_node(packed_slot), as_node(inverse))


@located
def moe_combine(packed: Any, gates: Any, packed_slot: Any, inverse: Any) -> Node:
    """y[t] = Σ_k gates[t, k]·packed[inverse[t·K + k]] of packed[T·K, …] and gates[T, K].

    packed_slot and inverse as in `moe_gather`. Raises ShapeError, DTypeError (not floats).
    """
    rows, weights = operands(packed, gates)
    return MOE_COMBINE(rows, weights, as_node(packed_slot), as_node(inverse))
