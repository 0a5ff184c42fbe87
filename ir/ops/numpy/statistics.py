"""Composites over axes with rules of their own at singular points: variance, norm, logsumexp."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, prod

from rlx_py.ir.base.types import TensorType, Type, f32, f64
from rlx_py.ir.graph.transforms import AD
from rlx_py.ir.nodes.node import Node, Op, register
from rlx_py.ir.ops.making.batching import over_axes
from rlx_py.ir.ops.making.families import add_all, composite
from rlx_py.ir.ops.making.rows import beside_axes, reduced_axes
from rlx_py.ir.ops.operands.precision import in_compute_type
from rlx_py.ir.ops.primitive.compare import AND, EQ, GE, LT, NOT, OR
from rlx_py.ir.ops.primitive.elementwise import (
    ABS,
    ADD,
    CAST,
    DIV,
    EXP,
    LOG,
    LOG1P,
    MUL,
    POW,
    SELECT,
    SQRT,
    STOP_GRADIENT,
    SUB,
    fill,
)
from rlx_py.ir.ops.primitive.movement import reshaped, sliced
from rlx_py.ir.ops.primitive.reduce import (
    REDUCE_MAX,
    REDUCE_MIN,
    Sizes,
    kept_axes,
    reduced,
    total,
    widened,
)

FLOAT = ("float",)


def _count(x: Node, axes: Sizes) -> int:
    return prod(x.shape[a] for a in axes)


# ---- deviation and variance ------------------------------------------------------------------


def _infer_deviation(x: TensorType, *, axes: Sizes) -> Type:
    reduced("deviation", FLOAT, empty=True)(x, axes=axes)
    return x


@in_compute_type
def _deviation(x: Node, *, axes: Sizes) -> Node:
    """d − mean d with d = x − x₀, so that what is constant along the axes deviates by exactly 0."""
    if not x.size:
        return x
    stop = tuple(1 if i in axes else d for i, d in enumerate(x.shape))
    first = sliced(x, (0,) * x.rank, stop, (1,) * x.rank)
    first = reshaped(first, tuple(x.shape[i] for i in kept_axes(x.rank, axes)))
    d = SUB(x, widened(first, x, axes))
    sum_d = total(d, axes)
    return SUB(d, widened(DIV(sum_d, fill(sum_d, _count(x, axes))), x, axes))


def _deviation_vjp(node: Node, ct: Node, ad: AD) -> Sequence[Node | None]:
    """x − mean x is linear and symmetric."""
    return (DEVIATION(ct, **node.attrs),)


def _deviation_jvp(node: Node, tangents: Sequence[Node | None], ad: AD) -> Node | None:
    (t,) = tangents
    return None if t is None else DEVIATION(t, **node.attrs)


DEVIATION = composite("deviation", _infer_deviation, _deviation, vjp=_deviation_vjp,
                      jvp=_deviation_jvp, batch=over_axes, rows=beside_axes)


def _infer_variance(x: TensorType, *, axes: Sizes, ddof: int) -> Type:
    return reduced("variance", FLOAT, empty=True)(x, axes=axes)


@in_compute_type
def _variance(x: Node, *, axes: Sizes, ddof: int) -> Node:
    d = DEVIATION(x, axes=axes)
    squares = total(MUL(d, d), axes)
    return DIV(squares, fill(squares, max(_count(x, axes) - ddof, 0)))


def _variance_partial(node: Node) -> Node:
    """2(x − mean x)/(n − ddof)."""
    (x,), axes = node.inputs, node.attrs["axes"]
    d = DEVIATION(x, axes=axes)
    return DIV(ADD(d, d), fill(d, max(_count(x, axes) - node.attrs["ddof"], 0)))


def over_rows(name: str, infer: Callable[..., Type], decompose: Callable[..., Node],
              partial: Callable[[Node], Node]) -> Op:
    """A composite over axes whose element's partial derivative is `partial(node)`."""

    def vjp(node: Node, ct: Node, ad: AD) -> Sequence[Node | None]:
        (x,) = node.inputs
        return (ad.times(widened(ct, x, node.attrs["axes"]), partial(node)),)

    def jvp(node: Node, tangents: Sequence[Node | None], ad: AD) -> Node | None:
        (t,) = tangents
        return None if t is None else total(ad.times(t, partial(node)), node.attrs["axes"])

    return register(Op(name, infer, None, vjp, jvp, decompose=decompose, batch=over_axes,
                       rows=reduced_axes))


VARIANCE = over_rows("variance", _infer_variance, _variance, _variance_partial)

# ---- norm ------------------------------------------------------------------------------------


# Of f32 and f64: powers of two that bring the squares of the largest and of the least numbers into
# range, and the sum of squares below which lost ones count.
SCALES = {f32: (2.0**-80, 2.0**96, 2.0**-100), f64: (2.0**-600, 2.0**600, 2.0**-900)}


def scaled_root(parts: Sequence[tuple[Node, Sizes]]) -> tuple[Node, Node]:
    """(c·√Σx², c) over axes of each x, summed; c a power of two by which no square is lost.

    Mostly c = 1, and the second sum, of (cx)², is 0 without its loop being run.
    """
    plain = _joint_sum([total(MUL(x, x), axes) for x, axes in parts])
    down, up, least = SCALES[plain.dtype]
    is_low, is_high = LT(plain, fill(plain, least)), NOT(LT(plain, fill(plain, inf)))
    is_far = OR(is_low, is_high)
    c = SELECT(is_far, SELECT(is_low, fill(plain, up), fill(plain, down)), fill(plain, 1))
    again = _joint_sum([total(far_squares(x, is_far, widened(c, x, axes), axes), axes)
                        for x, axes in parts])
    return SQRT(SELECT(is_far, again, plain)), c


def _joint_sum(sums: Sequence[Node]) -> Node:
    found = add_all(sums)
    assert found is not None
    return found


def far_squares(x: Node, is_far: Node, scale: Node, axes: Sizes) -> Node:
    """(x·scale)² in rows that are far, else 0."""
    scaled = MUL(x, scale)
    return SELECT(widened(is_far, x, axes), MUL(scaled, scaled), fill(x, 0))


@in_compute_type
def _norm(x: Node, *, axes: Sizes) -> Node:
    return DIV(*scaled_root([(x, axes)]))


def _direction(node: Node) -> Node:
    """x/‖x‖; at x = 0 it is 0, by a division by infinity that is smooth to derivatives."""
    (x,) = node.inputs
    length = SELECT(EQ(node, fill(node, 0)), fill(node, inf), node)
    return DIV(x, widened(length, x, node.attrs["axes"]))


NORM = over_rows("norm", reduced("norm", FLOAT, empty=True), _norm, _direction)


def powers_root(x: Node, p: float, axes: Sizes) -> Node:
    """(Σ|x|^p)^(1/p), p not 0; 0 with gradient 0 where it is 0, for p < 0 where one x is.

    |x| is scaled by its largest, for p < 0 by its least, so that the powers neither overflow nor
    vanish. The value is that for any scale, so the scale is a constant to derivatives.
    """
    size = ABS(x)
    if not x.size:
        sums = total(size, axes)
        return fill(sums, 0 if p > 0 else inf)
    extreme = (REDUCE_MAX if p > 0 else REDUCE_MIN)(size, axes=axes) if axes else size
    zero, one = fill(extreme, 0), fill(extreme, 1)
    is_zero = EQ(extreme, zero)
    usable = AND(NOT(is_zero), LT(extreme, fill(extreme, inf)))
    scale = STOP_GRADIENT(SELECT(usable, extreme, one))
    sums = total(POW(DIV(size, widened(scale, x, axes)), fill(x, p)), axes)
    # The root has an infinite slope at 0.
    root = POW(SELECT(is_zero, one, sums), fill(sums, 1 / p))
    return SELECT(is_zero, zero, MUL(scale, root))


# ---- logsumexp -------------------------------------------------------------------------------


@in_compute_type
def _logsumexp(x: Node, *, axes: Sizes) -> Node:
    largest = REDUCE_MAX(x, axes=axes) if axes else x
    finite = LT(ABS(largest), fill(largest, inf))
    shift = STOP_GRADIENT(SELECT(finite, largest, fill(largest, 0)))
    z = SUB(x, widened(shift, x, axes))
    e = EXP(z)
    return ADD(log_of_sum(z, e, total(e, axes), axes), shift)


def log_of_sum(z: Node, e: Node, sums: Node, axes: Sizes) -> Node:
    """log of `sums`, those of e = exp(z) over axes, for z whose largest is 0.

    Below 1.5 one e is 1 and the others are summed apart: log(1 + r) = log1p(r) keeps the digits of
    r that 1 + r rounds away, so that a loss of 1e−9 is not 0.
    """
    top = CAST(EQ(z, fill(z, 0)), dtype=z.dtype)
    rest = total(SUB(e, top), axes)
    alone = AND(GE(sums, fill(sums, 1)), LT(sums, fill(sums, 1.5)))
    return SELECT(alone, LOG1P(rest), LOG(sums))


def _softmax(node: Node) -> Node:
    """exp(x − y); 0 over a row that is −inf everywhere."""
    (x,) = node.inputs
    safe = SELECT(EQ(node, fill(node, -inf)), fill(node, inf), node)
    return EXP(SUB(x, widened(safe, x, node.attrs["axes"])))


LOGSUMEXP = over_rows("logsumexp", reduced("logsumexp", FLOAT, empty=False), _logsumexp, _softmax)
