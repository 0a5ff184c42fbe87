"""Losses of real predictions, under their PyTorch names: absolute, Huber, Poisson, Gaussian, and
the divergence of distributions. Operands broadcast; f16 and bf16 compute in f32."""

from __future__ import annotations

from math import log, pi
from typing import Any

from rlx_py.ir.base.errors import ArgumentError, ShapeError
from rlx_py.ir.nodes.node import Node
from rlx_py.ir.ops.making.arguments import not_negative, positive
from rlx_py.ir.ops.making.located import located
from rlx_py.ir.ops.nn.loss.loss import averaged, each_weight, finished, in_one_type
from rlx_py.ir.ops.numpy.folding import sum
from rlx_py.ir.ops.numpy.shaping import expand_dims
from rlx_py.ir.ops.operands.operand import as_node, convert, together
from rlx_py.ir.ops.primitive.compare import GT, LE, LT
from rlx_py.ir.ops.primitive.elementwise import (
    ABS,
    DIV,
    EXP,
    GUARDED_MUL,
    LOG,
    MAX,
    SELECT,
    STOP_GRADIENT,
    SUB,
    fill,
)
from rlx_py.ir.ops.primitive.special import ENTR


@located
def l1_loss(input: Any, target: Any, reduction: str = "mean", weight: Any = None) -> Node:
    """|input − target|, with slope 0 at 0; weight as in `mse_loss`.

    Raises ShapeError, DTypeError (not floats), ArgumentError (reduction), as all here.
    """
    (a, b), dtype = in_one_type("l1_loss", input, target)
    return averaged(ABS(SUB(a, b)), weight, reduction, dtype)


@located
def smooth_l1_loss(input: Any, target: Any, reduction: str = "mean", beta: float = 1.0) -> Node:
    """d²/(2·beta) where |d| < beta, else |d| − beta/2; d = input − target. `l1_loss` for beta 0."""
    width = not_negative("beta", beta)
    if width == 0:
        return l1_loss(input, target, reduction)
    (a, b), dtype = in_one_type("smooth_l1_loss", input, target)
    d = SUB(a, b)
    size = ABS(d)
    loss = SELECT(LT(size, fill(d, width)), d * d * (0.5 / width), size - 0.5 * width)
    return finished(loss, None, reduction, dtype)


@located
def huber_loss(input: Any, target: Any, reduction: str = "mean", delta: float = 1.0,
               weight: Any = None) -> Node:
    """d²/2 where |d| ≤ delta, else delta·(|d| − delta/2); d = input − target (Huber 1964).

    A weight for each has the losses' shape; here the mean is that of weight·loss, as in PyTorch.
    Raises ArgumentError for a delta that is not positive.
    """
    width = positive("delta", delta)
    (a, b), dtype = in_one_type("huber_loss", input, target)
    d = SUB(a, b)
    size = ABS(d)
    loss = SELECT(LE(size, fill(d, width)), d * d * 0.5, (size - 0.5 * width) * width)
    weights = None if weight is None else each_weight(weight, loss)
    return finished(loss, weights, reduction, dtype)


@located
def kl_div(input: Any, target: Any, reduction: str = "mean", log_target: bool = False) -> Node:
    """q·(log q − input) for log-probabilities `input` and probabilities q = target, 0·log 0 = 0.

    log_target: target is log q. A q of 0 counts 0 even where input is −inf. "batchmean" sums and
    divides by the size of axis 0; "mean" divides by the number of elements.
    """
    (x, q), dtype = in_one_type("kl_div", input, target)
    loss = GUARDED_MUL(EXP(q), q - x) if log_target else -ENTR(q) - GUARDED_MUL(q, x)
    if reduction != "batchmean":
        return finished(loss, None, reduction, dtype)
    if not loss.rank:
        raise ArgumentError("batchmean needs an axis of examples")
    total = sum(loss)
    return convert(DIV(total, fill(total, loss.shape[0])), dtype)


@located
def poisson_nll_loss(input: Any, target: Any, log_input: bool = True, full: bool = False,
                     eps: float = 1e-8, reduction: str = "mean") -> Node:
    """exp(x) − y·x of log-rates x = input and counts y (log_input), else x − y·log(x + eps).

    full adds Stirling's y·log y − y + log(2πy)/2 where y > 1.
    """
    small = not_negative("eps", eps)
    (x, y), dtype = in_one_type("poisson_nll_loss", input, target)
    loss = EXP(x) - y * x if log_input else x - GUARDED_MUL(y, LOG(x + small))
    if full:
        many = GT(y, fill(y, 1))
        safe = SELECT(many, y, fill(y, 1))
        stirling = safe * LOG(safe) - safe + LOG(safe * (2 * pi)) * 0.5
        loss = loss + SELECT(many, stirling, fill(y, 0))
    return finished(loss, None, reduction, dtype)


@located
def gaussian_nll_loss(input: Any, target: Any, var: Any, full: bool = False, eps: float = 1e-6,
                      reduction: str = "mean") -> Node:
    """(log v + (input − target)²/v)/2, v = max(var, eps); full adds log(2π)/2.

    The gradient passes to var below eps too, so that it can leave. input and target broadcast; var,
    as in PyTorch, is one number, or one for each row of the last axis (that axis left out, or 1),
    or has their shape, with sizes of 1 where it is shared. Raises ShapeError for any other.
    """
    least = positive("eps", eps)
    x, y = together(input, target)
    v = as_node(var, x.dtype)
    if v.rank and v.shape == x.shape[:-1]:
        v = expand_dims(v, -1)
    elif v.rank and (v.rank != x.rank or any(n not in (1, m) for n, m in zip(
            v.shape, x.shape, strict=True))):
        raise ShapeError(f"var {v.type} is neither one for all, one for each row of {x.type}, nor "
                         "of its shape")
    (x, y, v), dtype = in_one_type("gaussian_nll_loss", x, y, v)
    v = v + STOP_GRADIENT(MAX(v, fill(v, least)) - v)
    d = x - y
    loss = (LOG(v) + DIV(d * d, v)) * 0.5
    return finished(loss + 0.5 * log(2 * pi) if full else loss, None, reduction, dtype)
