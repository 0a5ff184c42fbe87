"""Formulas known by a composite op that is differentiable where the formula is not.

Applied before differentiation only: a backend expands the composites again.
"""

from __future__ import annotations

from math import prod, sqrt

from rlx_py.ir.nodes.node import Node
from rlx_py.ir.ops.making.constant import size_of
from rlx_py.ir.ops.numpy.statistics import DEVIATION, NORM, VARIANCE
from rlx_py.ir.ops.primitive.elementwise import ABS, DIV, MUL, SQRT, fill, fill_root
from rlx_py.ir.ops.primitive.movement import BROADCAST, RESHAPE, spread
from rlx_py.ir.ops.primitive.reduce import REDUCE_SUM
from rlx_py.passes.rewrite.rules.rule import number_of, rule


def _squared(n: Node) -> Node | None:
    return n.inputs[0] if n.op is MUL and n.inputs[0] is n.inputs[1] else None


def _sum_of_squares(n: Node) -> tuple[Node, tuple[int, ...]] | None:
    x = _squared(n.inputs[0]) if n.op is REDUCE_SUM else None
    return None if x is None else (x, n.attrs["axes"])


@rule(SQRT)
def norm_of_squares(n: Node) -> Node | None:  # √Σx² -> ‖x‖
    found = _sum_of_squares(n.inputs[0])
    return None if found is None else NORM(found[0], axes=found[1])


@rule(SQRT)
def norm_of_mean_square(n: Node) -> Node | None:  # √(Σx²·c) -> ‖x‖·√c; √(Σx²/c) -> ‖x‖/√c
    x = n.inputs[0]
    if x.op not in (MUL, DIV):
        return None
    found, c = _sum_of_squares(x.inputs[0]), number_of(x.inputs[1])
    size = size_of(x.inputs[1])
    if found is None or (size is None and (not c or c < 0)):
        return None
    root = fill(n, sqrt(c or 0)) if size is None else fill_root(n, size)
    return x.op(NORM(found[0], axes=found[1]), root)


@rule(SQRT)
def std_of_variance(n: Node) -> Node | None:  # √var(x) -> ‖x − mean x‖ / √(n − ddof)
    variance = n.inputs[0]
    if variance.op is not VARIANCE:
        return None
    (x,), axes = variance.inputs, variance.attrs["axes"]
    freedom = prod(x.shape[a] for a in axes) - variance.attrs["ddof"]
    if freedom < 0 or freedom == 0:
        return None
    return DIV(NORM(DEVIATION(x, axes=axes), axes=axes), fill_root(n, freedom))


@rule(SQRT)
def sqrt_of_square(n: Node) -> Node | None:  # √(x·x) -> |x|
    x = _squared(n.inputs[0])
    return None if x is None else ABS(x)


def _scale(n: Node, like: Node) -> Node | None:
    """The number, or root of a size, that all elements are, in another shape; else None."""
    number = number_of(n)
    if number is not None:
        return fill(like, number)
    while n.op is BROADCAST:
        n = n.inputs[0]
    is_root = n.op is SQRT and size_of(n.inputs[0]) is not None
    return spread(n, like.shape, ()) if is_root else None


@rule(MUL)
def norm_squared(n: Node) -> Node | None:  # (‖x‖·c)² -> Σ(x·c)², reshaped or repeated alike
    y = _squared(n)
    if y is None:
        return None
    moves: list[Node] = []
    scales: list[Node] = []
    while y.op is not NORM:
        if y.op not in (MUL, DIV, RESHAPE, BROADCAST):
            return None
        (moves if y.op in (RESHAPE, BROADCAST) else scales).append(y)
        y = y.inputs[0]
    x, axes = y.inputs[0], y.attrs["axes"]
    for scaled in reversed(scales):
        c = _scale(scaled.inputs[1], x)
        if c is None:
            return None
        x = scaled.op(x, c)  # inside the sum: it may be what keeps the squares in range
    found = REDUCE_SUM(MUL(x, x), axes=axes)
    for moved in reversed(moves):
        found = moved.op(found, **moved.attrs)
    return found


RULES = (norm_of_squares, norm_of_mean_square, std_of_variance, sqrt_of_square, norm_squared)
