"""Losses that pick or weigh rows: negative log-likelihood, masked cross-entropy, and the clipped
policy objective."""

from __future__ import annotations

from typing import Any

from rlx_py.ir.base.errors import ArgumentError, ShapeError
from rlx_py.ir.base.types import require_float
from rlx_py.ir.nodes.node import Node
from rlx_py.ir.ops.making.arguments import integer, not_negative, require_shape
from rlx_py.ir.ops.making.located import located
from rlx_py.ir.ops.nn.loss.loss import (
    LABELS,
    REDUCTIONS,
    classes_last,
    finished,
    hits,
    ignored,
    in_one_type,
    reduced_loss,
    require_classes,
    softmax_cross_entropy,
)
from rlx_py.ir.ops.numpy.choice import clip, truth
from rlx_py.ir.ops.numpy.folding import sum
from rlx_py.ir.ops.operands.operand import as_node, broadcast_to, convert
from rlx_py.ir.ops.primitive.compare import LT
from rlx_py.ir.ops.primitive.elementwise import (
    EXP,
    GUARDED_MUL,
    MAX,
    NEG,
    SELECT,
    STOP_GRADIENT,
    fill,
)
from rlx_py.ir.ops.primitive.movement import filled, spread
from rlx_py.ir.ops.primitive.reduce import REDUCE_SUM


@located
def nll_loss(input: Any, target: Any, weight: Any = None, ignore_index: int = -100,
             reduction: str = "mean") -> Node:
    """−w_y·x_y of log-probabilities x[N, C, …] (or [C]) and classes y[N, …].

    weight[C] holds w. "mean" divides by the summed weights of the rows that are not ignored. A
    label that is no class matches none and costs 0. Raises ShapeError, DTypeError, ArgumentError.
    """
    x, labels = classes_last(as_node(input)), as_node(target)
    require_float("nll_loss", x.dtype)
    if not x.rank or not x.shape[-1]:
        raise ShapeError(f"log-probabilities {x.type} have no classes")
    require_classes(labels.tensor, x.shape[:-1])
    dtype, axis, skip = x.dtype, x.rank - 1, integer("ignore_index", ignore_index)
    x, labels = convert(x, dtype.compute), LABELS(labels, classes=x.shape[-1], ignore=skip)
    own, zero, scale = hits(x, labels), fill(x, 0), fill(x, 1)
    if weight is not None:
        w = convert(as_node(weight, x.dtype), x.dtype)
        require_shape("weight", w.tensor, x.shape[-1:])
        scale = spread(w, x.shape, (axis,))
    skipped = ignored(labels, skip)
    none = filled(0, x.tensor.with_shape(labels.shape))
    share = SELECT(skipped, none, REDUCE_SUM(SELECT(own, scale, zero), axes=(axis,)))
    picked = SELECT(skipped, none, REDUCE_SUM(SELECT(own, x, zero), axes=(axis,)))
    loss = NEG(GUARDED_MUL(share, picked))
    if reduction != "mean":
        return finished(loss, None, reduction, dtype)
    return convert(sum(loss) / sum(share), dtype)


@located
def masked_cross_entropy(logits: Any, labels: Any, mask: Any, reduction: str = "mean",
                         label_smoothing: float = 0.0) -> Node:
    """`softmax_cross_entropy` of logits[…, C], weighted by mask, which broadcasts to […].

    A row of mask 0 has loss and gradient 0 whatever its logits hold. "mean" divides by
    max(Σ mask, 1). The mask (bool or numbers) is a constant to derivatives. Raises ShapeError,
    DTypeError, ArgumentError (reduction).
    """
    if reduction not in REDUCTIONS:
        raise ArgumentError(f"reduction {reduction!r} is not one of {', '.join(REDUCTIONS)}")
    x = as_node(logits)
    rows = x.shape[:-1]
    weight = STOP_GRADIENT(broadcast_to(convert(as_node(mask), x.dtype.compute), rows))
    # Logits of a masked row may be NaN, whose products with 0 are NaN.
    kept = truth(weight)
    safe = SELECT(spread(kept, x.shape, tuple(range(len(rows)))), x, fill(x, 0))
    loss = GUARDED_MUL(weight, convert(softmax_cross_entropy(safe, labels, label_smoothing),
                                       weight.dtype))
    if reduction != "mean":
        return convert(reduced_loss(loss, reduction), x.dtype)
    total = sum(weight)
    return convert(sum(loss) / MAX(total, fill(total, 1)), x.dtype)


@located
def ppo_clipped_policy_loss(log_probs: Any, old_log_probs: Any, advantages: Any,
                            clip_range: float = 0.2, reduction: str = "mean") -> Node:
    """−min(ρ·A, clip(ρ, 1 − c, 1 + c)·A), ρ = exp(log_probs − old_log_probs), c = clip_range.

    Schulman et al. 2017. Where the clipped term is the smaller, log_probs has no gradient. All
    broadcast. Raises ShapeError, DTypeError (not floats), ArgumentError (clip_range, reduction).
    """
    width = not_negative("clip_range", clip_range)
    (new, old, advantage), dtype = in_one_type(
        "ppo_clipped_policy_loss", log_probs, old_log_probs, advantages)
    ratio = EXP(new - old)
    plain = ratio * advantage
    clipped = STOP_GRADIENT(clip(ratio, 1 - width, 1 + width)) * advantage
    return finished(NEG(SELECT(LT(clipped, plain), clipped, plain)), None, reduction, dtype)
