"""Binary cross-entropy of probabilities and of logits, under their PyTorch names.

Derivatives are in closed form: σ(z) − y and 1/p − … would cancel where the loss is small.
"""

from __future__ import annotations

from typing import Any

from rlx_py.ir.nodes.node import Node
from rlx_py.ir.ops.making.families import closed, same_type
from rlx_py.ir.ops.making.located import located
from rlx_py.ir.ops.nn.activation.activation import smooth_softplus
from rlx_py.ir.ops.nn.loss.loss import finished, in_one_type
from rlx_py.ir.ops.operands.operand import as_node, convert, together
from rlx_py.ir.ops.operands.precision import in_compute_type
from rlx_py.ir.ops.primitive.compare import GT
from rlx_py.ir.ops.primitive.elementwise import (
    ABS,
    DIV,
    EXP,
    GUARDED_MUL,
    LOG,
    LOG1P,
    MAX,
    NEG,
    SELECT,
    SUB,
    fill,
)
from rlx_py.ir.ops.primitive.special import LOGISTIC

FLOAT = ("float",)

# ---- of probabilities ------------------------------------------------------------------------

# PyTorch's: the least logarithm, and the least p(1 − p) that the slope is divided by.
LEAST_LOG = -100.0
LEAST_SPREAD = 1e-12


def _logs(p: Node) -> tuple[Node, Node]:
    """log p and log(1 − p), at least −100."""
    least = fill(p, LEAST_LOG)
    return MAX(LOG(p), least), MAX(LOG1P(NEG(p)), least)


@in_compute_type
def _cross_entropy(p: Node, y: Node) -> Node:
    yes, no = _logs(p)
    return NEG(y * yes + (1 - y) * no)


def _by_label(p: Node) -> Node:
    yes, no = _logs(p)
    return SUB(no, yes)


def _spread(p: Node) -> Node:
    return p * (1 - p)


@in_compute_type
def _slope(p: Node, y: Node) -> Node:
    """(p − y)/max(p(1 − p), 1e-12)."""
    return DIV(SUB(p, y), MAX(_spread(p), fill(p, LEAST_SPREAD)))


def _slope_by_p(p: Node, y: Node) -> Node:
    """y/p² + (1 − y)/(1 − p)², or 1e12 where the slope's divisor is the least one."""
    free = GT(_spread(p), fill(p, LEAST_SPREAD))
    safe = SELECT(free, p, fill(p, 0.5))
    rest = 1 - safe
    return SELECT(free, DIV(DIV(y, safe), safe) + DIV(DIV(1 - y, rest), rest),
                  fill(p, 1 / LEAST_SPREAD))


def _slope_by_label(p: Node) -> Node:
    return DIV(fill(p, -1), MAX(_spread(p), fill(p, LEAST_SPREAD)))


CROSS_ENTROPY_SLOPE = closed(
    "binary_cross_entropy_slope", same_type("binary_cross_entropy_slope", FLOAT, None), _slope,
    (lambda s, p, y: _slope_by_p(p, y), lambda s, p, y: _slope_by_label(p)))
CROSS_ENTROPY = closed(
    "binary_cross_entropy", same_type("binary_cross_entropy", FLOAT, None), _cross_entropy,
    (lambda loss, p, y: CROSS_ENTROPY_SLOPE(p, y), lambda loss, p, y: _by_label(p)))


@located
def binary_cross_entropy(input: Any, target: Any, weight: Any = None,
                         reduction: str = "mean") -> Node:
    """−(y·log p + (1 − y)·log(1 − p)) of probabilities p and labels y, logarithms at least −100.

    The slope by p is (p − y)/max(p(1 − p), 1e-12), as in PyTorch. From logits use
    `binary_cross_entropy_with_logits`, which keeps its accuracy where p rounds to 0 or 1. Raises
    ShapeError, DTypeError (not floats).
    """
    (p, y), dtype = in_one_type("binary_cross_entropy", input, target)
    return finished(CROSS_ENTROPY(p, y), weight, reduction, dtype)


# ---- of logits -------------------------------------------------------------------------------


@in_compute_type
def _of_logits(z: Node, no: Node, yes: Node) -> Node:
    """no·softplus(z) + yes·softplus(−z): no term cancels another. With ⊳, as 0·∞ = 0."""
    zero = fill(z, 0)
    small = LOG1P(EXP(NEG(ABS(z))))
    return GUARDED_MUL(no, MAX(z, zero) + small) + GUARDED_MUL(yes, MAX(NEG(z), zero) + small)


def _logits_slope(z: Node, no: Node, yes: Node) -> Node:
    """no·σ(z) − yes·σ(−z)."""
    return no * LOGISTIC(z) - yes * LOGISTIC(NEG(z))


LOGITS_CROSS_ENTROPY = closed(
    "logits_cross_entropy", same_type("logits_cross_entropy", FLOAT, None), _of_logits,
    (lambda loss, z, no, yes: _logits_slope(z, no, yes),
     lambda loss, z, no, yes: smooth_softplus(z),
     lambda loss, z, no, yes: smooth_softplus(NEG(z))))


@located
def binary_cross_entropy_with_logits(input: Any, target: Any, weight: Any = None,
                                     reduction: str = "mean", pos_weight: Any = None) -> Node:
    """(1 − y)·log(1 + eᶻ) + y·log(1 + e⁻ᶻ) of logits z and labels y; pos_weight scales the part of
    label 1. Raises ShapeError, DTypeError (not floats)."""
    (z, y), dtype = in_one_type("binary_cross_entropy_with_logits", input, target)
    yes = y if pos_weight is None else y * convert(as_node(pos_weight), y.dtype)
    return finished(LOGITS_CROSS_ENTROPY(*together(z, 1 - y, yes)), weight, reduction, dtype)
