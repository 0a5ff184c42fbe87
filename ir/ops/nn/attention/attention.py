"""Attention ops: plain, whose backward pass reads the probabilities of the forward pass, and flash,
whose backward pass computes them again from the logarithm of each row's sum.

Formulas: Vaswani et al. 2017; Dao et al. 2022.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

from rlx_py.ir.base.types import Precision, TensorType, TupleType, Type
from rlx_py.ir.graph.transforms import AD
from rlx_py.ir.nodes.node import Node
from rlx_py.ir.ops.making.arguments import require_floats, require_shape
from rlx_py.ir.ops.making.families import composite
from rlx_py.ir.ops.making.rows import Rows, same_axes
from rlx_py.ir.ops.nn.attention.scores import (
    KEYS_FIRST,
    QUERIES_FIRST,
    Order,
    Scoring,
    bias_gradient,
    check_operands,
    dropped,
    grouped,
    merged,
    scores,
)
from rlx_py.ir.ops.nn.norm.softmax import normalised, shifted_exponentials
from rlx_py.ir.ops.operands.operand import convert
from rlx_py.ir.ops.operands.precision import in_compute_type
from rlx_py.ir.ops.primitive.compare import EQ
from rlx_py.ir.ops.primitive.elementwise import EXP, LOG, NEG, SELECT, fill
from rlx_py.ir.ops.primitive.movement import filled
from rlx_py.ir.ops.primitive.reduce import REDUCE_MAX, REDUCE_SUM

# ---- types -----------------------------------------------------------------------------------


def _infer(q: TensorType, k: TensorType, v: TensorType, *rest: TensorType, mask: str,
           window: int | None, causal_align: str, scale: float, softcap: float | None,
           dropout: float) -> Type:
    scoring = Scoring(mask, window, causal_align, scale, softcap, dropout)
    return q.with_shape(check_operands("attention", q, k, v, rest, scoring))


def _infer_backward(dy: TensorType, y: TensorType, q: TensorType, k: TensorType, v: TensorType,
                    *rest: TensorType, mask: str, window: int | None, causal_align: str,
                    scale: float, softcap: float | None, dropout: float) -> Type:
    scoring = Scoring(mask, window, causal_align, scale, softcap, dropout)
    shape = check_operands("attention_backward", q, k, v, rest, scoring)
    require_floats("attention_backward", q, dy, y)
    for name, t in (("dy", dy), ("y", y)):
        require_shape(name, t, shape)
    _, bias, _ = scoring.split(rest)
    return TupleType((q, k, v, *(() if bias is None else (bias,))))


def _infer_flash(q: TensorType, k: TensorType, v: TensorType, *rest: TensorType, mask: str,
                 window: int | None, causal_align: str, scale: float, softcap: float | None,
                 dropout: float) -> Type:
    scoring = Scoring(mask, window, causal_align, scale, softcap, dropout)
    shape = check_operands("flash_attention", q, k, v, rest, scoring)
    return TupleType((q.with_shape(shape), TensorType(q.dtype.compute, shape[:3])))


def _infer_flash_backward(dy: TensorType, dlse: TensorType, y: TensorType, lse: TensorType,
                          q: TensorType, k: TensorType, v: TensorType, *rest: TensorType,
                          mask: str, window: int | None, causal_align: str, scale: float,
                          softcap: float | None, dropout: float) -> Type:
    for name, t in (("dlse", dlse), ("lse", lse)):
        require_floats(name, t, TensorType(q.dtype.compute, ()))
        require_shape(name, t, q.shape[:3])
    return _infer_backward(dy, y, q, k, v, *rest, mask=mask, window=window,
                           causal_align=causal_align, scale=scale, softcap=softcap,
                           dropout=dropout)


# ---- what they are made of -------------------------------------------------------------------


def _probabilities(q: Node, k: Node, rest: Sequence[Node], scoring: Scoring
                   ) -> tuple[Node, Node | None, Node]:
    """P, the slope of the cap, and log Σ exp(s); a row without weight has P = 0 and −∞."""
    s, slope = scores(q, k, rest, scoring, QUERIES_FIRST)
    if not s.size:  # a maximum of nothing has no value
        return s, slope, filled(-inf, s.tensor.with_shape(s.shape[:4]))
    _, e, sums, shift = shifted_exponentials(s, 4)
    largest = REDUCE_MAX(s, axes=(4,))
    is_dark = EQ(largest, fill(largest, -inf))
    lse = SELECT(is_dark, fill(largest, -inf), shift + LOG(sums))
    return normalised(e, sums, 4), slope, lse


@in_compute_type
def _attention(q: Node, k: Node, v: Node, *rest: Node, **attrs: Any) -> Node:
    scoring = Scoring(**attrs)
    p, _, _ = _probabilities(grouped(q, k.shape[1]), k, rest, scoring)
    _, _, key = scoring.split(rest)
    return merged(QUERIES_FIRST.over_keys(dropped(p, key, scoring, QUERIES_FIRST), v))


@in_compute_type
def _attention_backward(dy: Node, y: Node, q: Node, k: Node, v: Node, *rest: Node,
                        **attrs: Any) -> tuple[Node, ...]:
    """P is that of the forward pass: equal computations are one."""
    scoring, delta = Scoring(**attrs), REDUCE_SUM(dy * y, axes=(3,))
    p, slope, _ = _probabilities(grouped(q, k.shape[1]), k, rest, scoring)
    return _gradients(p, slope, dy, delta, q, k, v, rest, scoring, QUERIES_FIRST)


def _gradients(p: Node, slope: Node | None, dy: Node, delta: Node, q: Node, k: Node, v: Node,
               rest: Sequence[Node], scoring: Scoring, order: Order) -> tuple[Node, ...]:
    """dS = P·(dO Vᵀ − δ), δ = Σ dO·O; dZ = scale·dS·slope; dQ = dZ K, dK = dZᵀ Q, dV = Pᵀ dO.

    Dropout applies alike to dO Vᵀ and to the P of dV. −dS is computed: with δ on the left it comes
    before the product, whose epilogue can take it in.
    """
    _, bias, key = scoring.split(rest)
    dy, delta, q = (grouped(n, k.shape[1]) for n in (dy, delta, q))
    dp = dropped(order.product(dy, v), key, scoring, order)
    negative = p * (order.along_queries(delta, p) - dp)
    dz = (negative if slope is None else negative * slope) * -scoring.scale
    dv = order.over_queries(dropped(p, key, scoring, order), dy)
    found = (merged(order.over_keys(dz, k)), order.over_queries(dz, q), dv)
    if bias is None:
        return found
    return (*found, NEG(bias_gradient(negative, bias.shape, order)))


def _flash(q: Node, k: Node, v: Node, *rest: Node, **attrs: Any) -> tuple[Node, Node]:
    scoring, dtype = Scoring(**attrs), q.dtype
    q, k, v, *rest_wide = (convert(n, n.dtype.compute) for n in (q, k, v, *rest))
    _, _, key = scoring.split(rest_wide)
    p, _, lse = _probabilities(grouped(q, k.shape[1]), k, rest_wide, scoring)
    y = QUERIES_FIRST.over_keys(dropped(p, key, scoring, QUERIES_FIRST), v)
    return convert(merged(y), dtype), merged(lse)


@in_compute_type
def _flash_backward(dy: Node, dlse: Node, y: Node, lse: Node, q: Node, k: Node, v: Node,
                    *rest: Node, **attrs: Any) -> tuple[Node, ...]:
    """P = exp(s − LSE), 0 where LSE = −∞; ∂LSE/∂s = P joins δ.

    With the keys first the scores are other nodes than those of the forward pass, which would else
    be kept for the backward pass.
    """
    scoring, order = Scoring(**attrs), KEYS_FIRST
    delta = REDUCE_SUM(dy * y, axes=(3,)) - dlse
    s, slope = scores(grouped(q, k.shape[1]), k, rest, scoring, order)
    shift = SELECT(EQ(lse, fill(lse, -inf)), fill(lse, 0), lse)
    p = EXP(s - order.along_queries(grouped(shift, k.shape[1]), s))
    return _gradients(p, slope, dy, delta, q, k, v, rest, scoring, order)


# ---- ops -------------------------------------------------------------------------------------

ATTENTION_BACKWARD = composite("attention_backward", _infer_backward, _attention_backward)
FLASH_ATTENTION_BACKWARD = composite(
    "flash_attention_backward", _infer_flash_backward, _flash_backward)


def _for_inputs(node: Node, found: Node) -> Sequence[Node | None]:
    """The gradients of q, k, v and of a bias; a custom mask and a key have none."""
    _, bias, _ = Scoring(**node.attrs).split(node.inputs[3:])
    return [*(found[i] for i in range(3)),
            *(found[3] if x is bias else None for x in node.inputs[3:])]


def _vjp(node: Node, ct: Node, ad: AD) -> Sequence[Node | None]:
    return _for_inputs(node, ATTENTION_BACKWARD(ct, node, *node.inputs, **node.attrs))


def _flash_vjp(node: Node, ct: Sequence[Node | None], ad: AD) -> Sequence[Node | None]:
    y, lse = node
    dy, dlse = (filled(0, n.tensor) if c is None else c
                for n, c in zip((y, lse), ct, strict=True))
    return _for_inputs(node, FLASH_ATTENTION_BACKWARD(dy, dlse, y, lse, *node.inputs,
                                                      **node.attrs))


# Inside, scores and softmax are computed in the compute type.
def _rows(node: Node) -> Sequence[Rows]:
    """Queries [B, H, Sq]; of keys and values the batch, since every query may see every key."""
    return [same_axes(3), {0: 0}, {0: 0}, *({} for _ in node.inputs[3:])]


ATTENTION = composite("attention", _infer, _attention, vjp=_vjp, precision=Precision.NARROW,
                      rows=_rows)
FLASH_ATTENTION = composite("flash_attention", _infer_flash, _flash, vjp=_flash_vjp,
                            precision=Precision.NARROW, rows=_rows)
