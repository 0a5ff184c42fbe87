"""Losses: cross-entropy of logits with class or probability labels, squared error."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Any

import numpy as np

from rlx_py.ir.base.errors import ArgumentError, DTypeError, ShapeError
from rlx_py.ir.base.types import DType, TensorType, TupleType, Type, i32, i64, require_float
from rlx_py.ir.graph.transforms import AD
from rlx_py.ir.nodes.node import Node
from rlx_py.ir.ops.making.arguments import integer, real, require_floats, require_shape
from rlx_py.ir.ops.making.batching import unchanged
from rlx_py.ir.ops.making.constant import iota
from rlx_py.ir.ops.making.families import composite
from rlx_py.ir.ops.making.located import located
from rlx_py.ir.ops.making.rows import before_last, same_axes
from rlx_py.ir.ops.nn.norm.softmax import (
    normalised,
    row_sum,
    shifted_exponentials,
)
from rlx_py.ir.ops.numpy import folding
from rlx_py.ir.ops.numpy.statistics import log_of_sum
from rlx_py.ir.ops.operands.operand import as_node, convert, operands, ratio, together
from rlx_py.ir.ops.operands.precision import in_compute_type
from rlx_py.ir.ops.primitive.compare import EQ
from rlx_py.ir.ops.primitive.elementwise import (
    GUARDED_MUL,
    SELECT,
    SUB,
)
from rlx_py.ir.ops.primitive.movement import filled, permuted, reshaped, spread
from rlx_py.ir.ops.primitive.reduce import REDUCE_SUM, widened

Array = np.ndarray[Any, Any]
REDUCTIONS = ("none", "mean", "sum")

# ---- cross-entropy with class labels ---------------------------------------------------------


def _check_rows(logits: TensorType, smoothing: float) -> None:
    require_float("softmax_cross_entropy", logits.dtype)
    if logits.rank < 1 or not logits.shape[-1]:
        raise ShapeError(f"logits {logits} have no classes")
    if not (isfinite(smoothing) and 0 <= smoothing <= 1):
        raise ArgumentError(f"label_smoothing must lie in 0 … 1, not {smoothing}")


def require_classes(labels: TensorType, shape: tuple[int, ...]) -> None:
    """Refuse labels that are not integers of this shape."""
    if not labels.dtype.is_int:
        raise DTypeError(f"class labels must be integers, not {labels.dtype}")
    require_shape("labels", labels, shape)


def _infer_hard(logits: TensorType, labels: TensorType, *, smoothing: float,
                ignore: int | None) -> Type:
    _check_rows(logits, smoothing)
    require_classes(labels, logits.shape[:-1])
    return logits.with_shape(logits.shape[:-1])


def _infer_hard_backward(dloss: TensorType, logits: TensorType, labels: TensorType, *,
                         smoothing: float, ignore: int | None) -> Type:
    require_floats("softmax_cross_entropy_backward", dloss, logits)
    _infer_hard(logits, labels, smoothing=smoothing, ignore=ignore)
    require_shape("dloss", dloss, logits.shape[:-1])
    return logits


def hits(logits: Node, labels: Node) -> Node:
    """Where class = label. A comparison and not an index: a label that is no class matches none."""
    axis = logits.rank - 1
    if labels.dtype.bits < 32:  # too narrow to count classes in
        labels = convert(labels, i32)
    return EQ(widened(labels, logits, (axis,)), iota(logits.shape, axis, labels.dtype))


def _infer_labels(labels: TensorType, *, classes: int, ignore: int | None) -> Type:
    require_classes(labels, labels.shape)
    return labels


def _doubt(labels: Array, classes: int, ignore: int | None) -> str:
    """The first label that is no class and not the one to ignore."""
    wrong = (labels < 0) | (labels >= classes)
    if ignore is not None:
        wrong &= labels != ignore
    return f"label {labels[wrong][0]} is none of the {classes} classes" if wrong.any() else ""


# The labels themselves; it tells `check_inputs` which numbers are classes.
LABELS = composite("labels", _infer_labels, lambda labels, *, classes, ignore: labels,
                   batch=unchanged, rows=lambda node: [same_axes(node.rank)],
                   doubt=lambda labels, *, classes, ignore: _doubt(labels, classes, ignore))


def ignored(labels: Node, ignore: int) -> Node:
    """Where label = ignore."""
    if labels.dtype.bits < 64:  # ignore may not fit
        labels = convert(labels, i64)
    return EQ(labels, filled(ignore, labels.tensor))


@in_compute_type
def _hard(logits: Node, labels: Node, *, smoothing: float, ignore: int | None) -> Node:
    """log Σ exp(x) − (1 − ε)·x_label − ε·mean x, all measured from the row's maximum."""
    axis = logits.rank - 1
    z, e, sums, m = shifted_exponentials(logits, axis)
    own = SELECT(hits(logits, labels), logits, filled(0, logits.tensor))
    # m − x_label and not −z_label, which would depend on m where no class matches.
    behind = m - REDUCE_SUM(own, axes=(axis,))
    loss = log_of_sum(z, e, sums, (axis,)) + (behind * (1 - smoothing) if smoothing else behind)
    if smoothing:
        loss = loss - REDUCE_SUM(z, axes=(axis,)) * ratio(smoothing, logits.shape[axis], z.dtype)
    if ignore is None:
        return loss
    return SELECT(ignored(labels, ignore), filled(0, loss.tensor), loss)


@in_compute_type
def _hard_backward(dloss: Node, logits: Node, labels: Node, *, smoothing: float,
                   ignore: int | None) -> Node:
    """(softmax − (1 − ε)·onehot − ε/C)·dloss."""
    axis = logits.rank - 1
    _, e, sums, _ = shifted_exponentials(logits, axis)
    p = normalised(e, sums, axis)
    if smoothing:
        p = p - ratio(smoothing, logits.shape[axis], p.dtype)
    p = SELECT(hits(logits, labels), p - (1 - smoothing), p)
    found = p * widened(dloss, logits, (axis,))
    if ignore is None:
        return found
    skipped = widened(ignored(labels, ignore), logits, (axis,))
    return SELECT(skipped, filled(0, found.tensor), found)


SOFTMAX_CROSS_ENTROPY_BACKWARD = composite(
    "softmax_cross_entropy_backward", _infer_hard_backward, _hard_backward,
    batch=unchanged)


def _hard_vjp(node: Node, ct: Node, ad: AD) -> Sequence[Node | None]:
    return SOFTMAX_CROSS_ENTROPY_BACKWARD(ct, *node.inputs, **node.attrs), None


def _doubt_labels(logits: Array, labels: Array, *, smoothing: float, ignore: int | None) -> str:
    return _doubt(labels, logits.shape[-1], ignore)


SOFTMAX_CROSS_ENTROPY = composite("softmax_cross_entropy", _infer_hard, _hard, vjp=_hard_vjp,
                                  batch=unchanged, rows=before_last, doubt=_doubt_labels)

# ---- cross-entropy with probability labels ---------------------------------------------------


def _infer_soft(logits: TensorType, labels: TensorType, *, smoothing: float) -> Type:
    _check_rows(logits, smoothing)
    require_floats("soft_cross_entropy", logits, labels)
    require_shape("labels", labels, logits.shape)
    return logits.with_shape(logits.shape[:-1])


def _infer_soft_backward(dloss: TensorType, logits: TensorType, labels: TensorType, *,
                         smoothing: float) -> Type:
    require_floats("soft_cross_entropy_backward", dloss, logits, labels)
    _infer_soft(logits, labels, smoothing=smoothing)
    require_shape("dloss", dloss, logits.shape[:-1])
    return TupleType((logits, labels))


def _smoothed(labels: Node, smoothing: float) -> Node:
    if not smoothing:
        return labels
    smooth: Node = labels * (1 - smoothing) + ratio(smoothing, labels.shape[-1], labels.dtype)
    return smooth


@in_compute_type
def _soft(logits: Node, labels: Node, *, smoothing: float) -> Node:
    """−Σ q·log p, with ⊳ for the product: a class of weight 0 counts 0 even where log p = −inf."""
    axis = logits.rank - 1
    z, e, sums, _ = shifted_exponentials(logits, axis)
    surprise = widened(log_of_sum(z, e, sums, (axis,)), logits, (axis,)) - z
    return REDUCE_SUM(GUARDED_MUL(_smoothed(labels, smoothing), surprise), axes=(axis,))


@in_compute_type
def _soft_backward(dloss: Node, logits: Node, labels: Node, *, smoothing: float
                   ) -> tuple[Node, Node]:
    """dlogits = (softmax·Σq − q)·dloss, dq = −log p·dloss."""
    axis = logits.rank - 1
    z, e, sums, _ = shifted_exponentials(logits, axis)
    q, ct = _smoothed(labels, smoothing), widened(dloss, logits, (axis,))
    p = normalised(e, sums, axis)
    dq = GUARDED_MUL(ct, widened(log_of_sum(z, e, sums, (axis,)), logits, (axis,)) - z)
    return (p * row_sum(q, axis) - q) * ct, dq * (1 - smoothing) if smoothing else dq


SOFT_CROSS_ENTROPY_BACKWARD = composite(
    "soft_cross_entropy_backward", _infer_soft_backward, _soft_backward, batch=unchanged)


def _soft_vjp(node: Node, ct: Node, ad: AD) -> Sequence[Node | None]:
    return list(SOFT_CROSS_ENTROPY_BACKWARD(ct, *node.inputs, **node.attrs))


SOFT_CROSS_ENTROPY = composite("soft_cross_entropy", _infer_soft, _soft, vjp=_soft_vjp,
                               batch=unchanged, rows=lambda node: [same_axes(node.rank)] * 2)

# ---- public ----------------------------------------------------------------------------------


@located
def softmax_cross_entropy(logits: Any, labels: Any, label_smoothing: float = 0.0,
                          ignore_index: int | None = None) -> Node:
    """The loss of each row of logits[…, C].

    labels: classes, integers […] or […, 1]; or probabilities, floats […, C], whose zeros count 0
    even at a logit of −inf. Rows of class `ignore_index` have loss and gradient 0. A label that is
    no class matches none: its loss is log Σ exp(logits), and nothing is read out of bounds. Raises
    ShapeError, DTypeError, ArgumentError.
    """
    x, q, smoothing = as_node(logits), as_node(labels), real("label_smoothing", label_smoothing)
    if q.dtype.is_float:
        if ignore_index is not None:
            raise ArgumentError("ignore_index is for class labels, not probabilities"
                               )
        return SOFT_CROSS_ENTROPY(*operands(x, q), smoothing=smoothing)
    if q.shape == (*x.shape[:-1], 1):
        q = reshaped(q, x.shape[:-1])
    ignore = None if ignore_index is None else integer("ignore_index", ignore_index)
    return SOFTMAX_CROSS_ENTROPY(x, q, smoothing=smoothing, ignore=ignore)


def reduced_loss(loss: Node, reduction: str) -> Node:
    """The losses themselves ("none"), their "mean", or their "sum"."""
    if reduction not in REDUCTIONS:
        raise ArgumentError(f"reduction {reduction!r} is not one of {', '.join(REDUCTIONS)}"
                           )
    if reduction == "none":
        return loss
    return folding.mean(loss) if reduction == "mean" else folding.sum(loss)


def classes_last(x: Node) -> Node:
    """Axis 1 (the only axis of a vector) moved to the end."""
    return x if x.rank < 3 else permuted(x, (0, *range(2, x.rank), 1))


@located
def cross_entropy(input: Any, target: Any, weight: Any = None, ignore_index: int = -100,
                  reduction: str = "mean", label_smoothing: float = 0.0) -> Node:
    """Cross-entropy of logits[N, C, …] (or [C]) with classes[N, …] or probabilities[N, C, …].

    weight[C] scales each class. "mean" divides by the summed weights of the rows that are not
    ignored; with probabilities by the number of rows. Otherwise as `softmax_cross_entropy`.
    """
    x, q = classes_last(as_node(input)), as_node(target)
    label_smoothing = real("label_smoothing", label_smoothing)
    _check_rows(x.tensor, label_smoothing)
    if q.dtype.is_float:
        q = _smoothed(convert(classes_last(q), x.dtype), label_smoothing)
        loss = softmax_cross_entropy(x, q if weight is None else q * _class_weights(x, weight))
        return reduced_loss(loss, reduction)
    if weight is None:
        loss = softmax_cross_entropy(x, q, label_smoothing, ignore_index)
        counted = filled(1, loss.tensor.with_dtype(x.dtype.compute))
    else:
        scale = _class_weights(x, weight)
        q = LABELS(q, classes=x.shape[-1], ignore=ignore_index)
        own = SELECT(hits(x, q), scale, filled(0, x.tensor))
        # The weights of a row that is ignored are 0, so its loss and gradient are.
        skipped = widened(ignored(q, ignore_index), x, (x.rank - 1,))
        each = ratio(label_smoothing, x.shape[-1], scale.dtype)
        rows = SELECT(skipped, filled(0, x.tensor), own * (1 - label_smoothing) + scale * each)
        loss = softmax_cross_entropy(x, rows)
        loss = SELECT(ignored(q, ignore_index), filled(0, loss.tensor), loss)
        counted = REDUCE_SUM(convert(own, x.dtype.compute), axes=(x.rank - 1,))
    if reduction != "mean":
        return reduced_loss(loss, reduction)
    counted = SELECT(ignored(q, ignore_index), filled(0, counted.tensor), counted)
    # Counts and sums of narrow floats overflow in their own type.
    mean = folding.sum(convert(loss, counted.dtype)) / folding.sum(counted)
    return convert(mean, loss.dtype)


def _class_weights(x: Node, weight: Any) -> Node:
    w = convert(as_node(weight, x.dtype), x.dtype)
    if w.shape != x.shape[-1:]:
        raise ShapeError(f"weight {w.type} must hold one number for each of {x.shape[-1]} classes"
                        )
    return spread(w, x.shape, (x.rank - 1,))


def in_one_type(name: str, *values: Any) -> tuple[list[Node], DType]:
    """Float operands of one shape in their compute type, and the type of the result."""
    nodes = together(*values)
    require_float(name, nodes[0].dtype)
    return [convert(n, n.dtype.compute) for n in nodes], nodes[0].dtype


def finished(loss: Node, weight: Any, reduction: str, dtype: DType) -> Node:
    """The weighted losses, reduced, in the type of the result."""
    return convert(reduced_loss(loss if weight is None else loss * weight, reduction), dtype)


def each_weight(weight: Any, loss: Node) -> Node:
    """A weight for each loss, in its type."""
    node = as_node(weight)
    require_float("a weight", node.dtype)
    require_shape("weight", node.tensor, loss.shape)
    return convert(node, loss.dtype)


def averaged(loss: Node, weight: Any, reduction: str, dtype: DType) -> Node:
    """Losses with a weight each, where given; their mean is Σ weight·loss / Σ weight."""
    if weight is None:
        return finished(loss, None, reduction, dtype)
    weights = each_weight(weight, loss)
    if reduction == "mean":
        return convert(folding.sum(loss * weights) / folding.sum(weights), dtype)
    return finished(loss, weights, reduction, dtype)


@located
def mse_loss(input: Any, target: Any, reduction: str = "mean", weight: Any = None) -> Node:
    """(input − target)², reduced. Both broadcast; with a weight for each, of the losses' shape, the
    mean is Σ weight·loss / Σ weight. Raises ShapeError, DTypeError (not floats)."""
    (a, b), dtype = in_one_type("mse_loss", input, target)
    d = SUB(a, b)
    return averaged(d * d, weight, reduction, dtype)
