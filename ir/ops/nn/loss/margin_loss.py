"""Losses of margins, under their PyTorch names: hinges, rankings, and distances of embeddings.

A hinge max(z, 0) passes its gradient at z = 0, as `clip` does at its bounds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlx_py.ir.base.errors import ArgumentError, ShapeError
from rlx_py.ir.base.types import require_float
from rlx_py.ir.nodes.node import Node
from rlx_py.ir.ops.making.arguments import integer, real, require_shape
from rlx_py.ir.ops.making.located import located
from rlx_py.ir.ops.nn.activation.activation import smooth_softplus
from rlx_py.ir.ops.nn.loss.binary_loss import LOGITS_CROSS_ENTROPY
from rlx_py.ir.ops.nn.loss.distance import pairwise_distance
from rlx_py.ir.ops.nn.loss.loss import LABELS, finished, hits, in_one_type, require_classes
from rlx_py.ir.ops.numpy.choice import clip
from rlx_py.ir.ops.numpy.folding import mean
from rlx_py.ir.ops.operands.operand import as_node, convert, operands, together
from rlx_py.ir.ops.primitive.compare import EQ, GT
from rlx_py.ir.ops.primitive.elementwise import ABS, DIV, MAX, RSQRT, SELECT, STOP_GRADIENT, fill
from rlx_py.ir.ops.primitive.movement import filled, spread
from rlx_py.ir.ops.primitive.reduce import REDUCE_MAX, REDUCE_SUM, widened


def _hinge(z: Node) -> Node:
    return clip(z, 0.0)


@located
def hinge_loss(input: Any, target: Any, margin: float = 1.0, reduction: str = "mean") -> Node:
    """max(0, margin − target·input) of scores and labels ±1. Raises ShapeError, DTypeError (not
    floats), ArgumentError (reduction), as all here."""
    (x, y), dtype = in_one_type("hinge_loss", input, target)
    return finished(_hinge(real("margin", margin) - x * y), None, reduction, dtype)


@located
def hinge_embedding_loss(input: Any, target: Any, margin: float = 1.0,
                         reduction: str = "mean") -> Node:
    """The distance x = input where target = 1, max(0, margin − x) where it is −1."""
    (x, y), dtype = in_one_type("hinge_embedding_loss", input, target)
    zero, one = fill(x, 0), fill(x, 1)
    far = SELECT(EQ(y, one), zero, _hinge(real("margin", margin) - x))
    near = SELECT(EQ(y, fill(x, -1)), zero, x)
    return finished(far + near, None, reduction, dtype)


@located
def margin_ranking_loss(input1: Any, input2: Any, target: Any, margin: float = 0.0,
                        reduction: str = "mean") -> Node:
    """max(0, margin − target·(input1 − input2)); target 1 ranks input1 higher, −1 lower."""
    (a, b, y), dtype = in_one_type("margin_ranking_loss", input1, input2, target)
    return finished(_hinge(real("margin", margin) - y * (a - b)), None, reduction, dtype)


@located
def soft_margin_loss(input: Any, target: Any, reduction: str = "mean") -> Node:
    """log(1 + exp(−target·input)) of scores and labels ±1."""
    (x, y), dtype = in_one_type("soft_margin_loss", input, target)
    return finished(smooth_softplus(-(x * y)), None, reduction, dtype)


@located
def multilabel_soft_margin_loss(input: Any, target: Any, weight: Any = None,
                                reduction: str = "mean") -> Node:
    """−(y·log σ(x) + (1 − y)·log σ(−x)), weighted, averaged over the last axis (the classes)."""
    scores = as_node(input)
    (x, y), dtype = in_one_type("multilabel_soft_margin_loss", scores, target)
    if not x.rank:
        raise ShapeError(f"{x.type} has no axis of classes")
    loss = LOGITS_CROSS_ENTROPY(x, 1 - y, y)
    if weight is not None:
        loss = loss * convert(as_node(weight, x.dtype), x.dtype)
    if loss.rank != scores.rank or loss.shape[-1:] != scores.shape[-1:]:
        raise ShapeError(f"labels and weights of {scores.type} have its classes, and no more axes, "
                         f"not the joint shape {loss.shape}")
    return finished(mean(loss, -1), None, reduction, dtype)


@located
def multi_margin_loss(input: Any, target: Any, p: int = 1, margin: float = 1.0,
                      weight: Any = None, reduction: str = "mean") -> Node:
    """Σ_{j ≠ y} max(0, margin − x_y + x_j)^p/C of scores x[N, C] (or [C]) and classes y[N].

    p is 1 or 2; weight[C] scales the rows of each class. A label that is no class matches none and
    costs 0. At a margin kept exactly the slope is 0, as in PyTorch.
    """
    x, labels = as_node(input), as_node(target)
    require_float("multi_margin_loss", x.dtype)
    if integer("p", p) not in (1, 2):
        raise ArgumentError(f"p must be 1 or 2, not {p}")
    if x.rank not in (1, 2) or not x.shape[-1]:
        raise ShapeError(f"scores must be [N, C] or [C], not {x.type}")
    require_classes(labels.tensor, x.shape[:-1])
    dtype, axis = x.dtype, x.rank - 1
    x, labels = convert(x, dtype.compute), LABELS(labels, classes=x.shape[-1], ignore=None)
    own, zero = hits(x, labels), fill(x, 0)
    score = REDUCE_SUM(SELECT(own, x, zero), axes=(axis,))
    z = x - widened(score, x, (axis,)) + real("margin", margin)
    counts = SELECT(own, zero, SELECT(GT(z, zero), z if p == 1 else z * z, zero))
    row = DIV(REDUCE_SUM(counts, axes=(axis,)), filled(x.shape[axis], score.tensor))
    scale = fill(x, 1)
    if weight is not None:
        w = convert(as_node(weight, x.dtype), x.dtype)
        require_shape("weight", w.tensor, x.shape[-1:])
        scale = spread(w, x.shape, (axis,))
    row = row * REDUCE_SUM(SELECT(own, scale, zero), axes=(axis,))
    return finished(row, None, reduction, dtype)


# ---- of embeddings ---------------------------------------------------------------------------


@located
def cosine_embedding_loss(input1: Any, input2: Any, target: Any, margin: float = 0.0,
                          reduction: str = "mean") -> Node:
    """1 − cos where target = 1, max(0, cos − margin) where it is −1, of vectors of the last axis.

    cos = x1·x2/√((x1² + ε)(x2² + ε)), ε = 1e-12. target has the shape of the other axes.
    """
    first, second = as_node(input1), as_node(input2)
    if first.shape[-1:] != second.shape[-1:]:
        raise ShapeError(f"{first.type} and {second.type} differ in the axis of features")
    (a, b), dtype = in_one_type("cosine_embedding_loss", first, second)
    if not a.rank:
        raise ShapeError(f"{a.type} has no axis of features")
    labels = as_node(target, dtype)
    if labels.rank >= a.rank:
        raise ShapeError(f"target {labels.type} has a label for each vector of {a.type}, so fewer "
                         "axes")
    axes = (a.rank - 1,)
    u, v = (_unit(n, axes) for n in (a, b))
    cos = REDUCE_SUM(u * v, axes=axes)
    cos, y = together(cos, convert(labels, cos.dtype))
    zero, one = fill(cos, 0), fill(cos, 1)
    same = SELECT(EQ(y, one), 1 - cos, zero)
    other = SELECT(EQ(y, fill(y, -1)), _hinge(cos - real("margin", margin)), zero)
    return finished(same + other, None, reduction, dtype)


def _unit(x: Node, axes: tuple[int, ...]) -> Node:
    """x/√(Σx² + 1e-12). Scaled first by the largest above 1, so that no square overflows; the value
    is that for any scale, so the scale is a constant to derivatives."""
    if not x.size:
        return x
    largest = REDUCE_MAX(ABS(x), axes=axes)
    s = STOP_GRADIENT(MAX(largest, fill(largest, 1)))
    scaled = DIV(x, widened(s, x, axes))
    r = RSQRT(REDUCE_SUM(scaled * scaled, axes=axes) + 1e-12 / s / s)
    return scaled * widened(r, x, axes)


@located
def triplet_margin_loss(anchor: Any, positive: Any, negative: Any, margin: float = 1.0,
                        p: float = 2.0, eps: float = 1e-6, swap: bool = False,
                        reduction: str = "mean") -> Node:
    """max(0, margin + d(anchor, positive) − d(anchor, negative)), d as `pairwise_distance`.

    swap: the negative's distance to the positive counts where it is smaller (Balntas et al. 2016).
    """
    return triplet_margin_with_distance_loss(
        anchor, positive, negative, margin=margin, swap=swap, reduction=reduction,
        distance_function=lambda a, b: pairwise_distance(a, b, p, eps))


@located
def triplet_margin_with_distance_loss(
        anchor: Any, positive: Any, negative: Any, *,
        distance_function: Callable[[Node, Node], Node] | None = None, margin: float = 1.0,
        swap: bool = False, reduction: str = "mean") -> Node:
    """`triplet_margin_loss` with a distance of one's own (by default `pairwise_distance`)."""
    # Of one type but not of one shape: each pair broadcasts by itself, as in PyTorch.
    given = operands(anchor, positive, negative)
    dtype = given[0].dtype
    require_float("triplet_margin_loss", dtype)
    a, b, c = (convert(n, dtype.compute) for n in given)
    between = pairwise_distance if distance_function is None else distance_function
    if not callable(between):
        raise ArgumentError(f"distance_function is a function of two nodes, not {between!r}")
    far = between(a, c)
    if swap:
        far = -MAX(-far, -between(b, c))
    return finished(_hinge(between(a, b) - far + real("margin", margin)), None, reduction, dtype)
