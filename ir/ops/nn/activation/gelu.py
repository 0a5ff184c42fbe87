"""gelu, exact and by tanh, with derivatives in closed form that keep their accuracy in the tails.

Hendrycks and Gimpel 2016. With v = 2√(2/π)(x + 0.044715 x³), (1 + tanh(v/2))/2 is σ(v).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx_py.ir.base.errors import ArgumentError
from rlx_py.ir.nodes.node import Node
from rlx_py.ir.ops.making.located import located
from rlx_py.ir.ops.nn.activation.activation import activation
from rlx_py.ir.ops.operands.operand import as_node
from rlx_py.ir.ops.primitive.compare import LT
from rlx_py.ir.ops.primitive.elementwise import DIV, FMA, MAX, MIN, MUL, NEG, SELECT, SUB, fill
from rlx_py.ir.ops.primitive.special import (
    DENSITY,
    EXP_TIMES,
    GAUSSIAN_ZERO,
    NORMAL_TAIL,
    gaussian_times,
)

# ---- exact -----------------------------------------------------------------------------------


def _size(x: Node, most: float) -> tuple[Node, Node]:
    """Whether x < 0, and |x| up to a bound, by a choice that is smooth to derivatives at 0."""
    low = LT(x, fill(x, 0))
    return low, MIN(SELECT(low, NEG(x), x), fill(x, most))


def _gelu(x: Node) -> Node:
    """max(x, 0) − |x|·Φ(−|x|)."""
    _, a = _size(x, GAUSSIAN_ZERO)
    return SUB(MAX(x, fill(x, 0)), gaussian_times(a * NORMAL_TAIL(x), x))


def _gelu_slope(x: Node) -> Node:
    """Φ(x) + x·φ(x): s = Φ(−a) − a·φ(a), a = |x|, for x < 0, else 1 − s."""
    low, a = _size(x, GAUSSIAN_ZERO)
    s = gaussian_times(FMA(NEG(a), fill(x, DENSITY), NORMAL_TAIL(x)), x)
    return SELECT(low, s, SUB(fill(x, 1), s))


def _gelu_curve(x: Node) -> Node:
    """φ(x)·(2 − x²)."""
    inside = MAX(MIN(x, fill(x, GAUSSIAN_ZERO)), fill(x, -GAUSSIAN_ZERO))
    return gaussian_times(FMA(NEG(inside), inside, fill(x, 2)) * DENSITY, x)


GELU_SLOPE = activation("gelu_slope", _gelu_slope, partial=_gelu_curve)
GELU = activation("gelu", _gelu, partial=GELU_SLOPE)

# ---- by tanh ---------------------------------------------------------------------------------

# v/x = LINEAR + CUBIC·x², each in two parts.
LINEAR = (1.5957691216057308, -9.96930880911092e-17)
CUBIC = (0.07135481627260025, -6.175149918155315e-19)
# Beyond it σ(−|v|) is 0 in every type, and no power overflows.
TANH_ONE = 30.0


def _parts(like: Node, number: tuple[float, float]) -> tuple[Node, Node]:
    """A number of twice f64's precision as two of the element type."""
    high = float(np.asarray(number[0]).astype(like.dtype.numpy))
    return fill(like, high), fill(like, (number[0] - high) + number[1])


def _argument(x: Node) -> tuple[Node, Node]:
    """v in two parts, for |x| ≤ TANH_ONE: one rounded alone would cost |v|/2 ulp of exp(v)."""
    (linear, linear_rest), (cubic, cubic_rest) = _parts(x, LINEAR), _parts(x, CUBIC)
    square = x * x
    square_rest = FMA(x, x, NEG(square))
    bend = cubic * square
    bend_rest = FMA(cubic, square, NEG(bend)) + FMA(cubic, square_rest, cubic_rest * square)
    factor = linear + bend
    back = factor - linear
    lost = (linear - (factor - back)) + (bend - back)
    rest = lost + (linear_rest + bend_rest)
    v = x * factor
    return v, FMA(x, factor, NEG(v)) + x * rest


# What e is multiplied by until the end, so that nothing before is below the normal range.
RAISED = 2.0**64


def _upper(x: Node) -> tuple[Node, Node, Node, Node]:
    """x < 0, a = |x| up to the bound, e·RAISED of e = exp(−v(a)), and 1 + e."""
    low, a = _size(x, TANH_ONE)
    v, rest = _argument(a)
    raised = EXP_TIMES(fill(x, RAISED), NEG(v), NEG(rest))
    return low, a, raised, FMA(raised, fill(x, 1 / RAISED), fill(x, 1))


def _inverse(whole: Node, raised: Node) -> Node:
    """1/(1 + e) = σ(v(a)); what 1 + e and the quotient rounded off is put back."""
    one = fill(whole, 1)
    d = DIV(one, whole)
    rest = FMA(raised, fill(whole, 1 / RAISED), SUB(one, whole))
    return FMA(d, FMA(NEG(d), rest, FMA(NEG(d), whole, one)), d)


def _gelu_tanh(x: Node) -> Node:
    """max(x, 0) − |x|·σ(−v(|x|))."""
    _, a, raised, whole = _upper(x)
    return FMA(MUL(DIV(a, whole), raised), fill(x, -1 / RAISED), MAX(x, fill(x, 0)))


def _rates(x: Node) -> tuple[Node, Node]:
    """v′ and v″."""
    linear, cubic = LINEAR[0], CUBIC[0]
    return FMA(x * x, fill(x, 3 * cubic), fill(x, linear)), x * (6 * cubic)


def _gelu_tanh_slope(x: Node) -> Node:
    """σ + x·σ(v)σ(−v)·v′: s = σ(−v)·(1 − a·σ(v)·v′) at a = |x| for x < 0, else 1 − s."""
    low, a, raised, whole = _upper(x)
    d, one = _inverse(whole, raised), fill(x, 1)
    s = MUL(d * FMA(NEG(a) * d, _rates(a)[0], one), raised) * (1 / RAISED)
    return SELECT(low, s, SUB(one, s))


def _gelu_tanh_curve(x: Node) -> Node:
    """σ(v)σ(−v)·(2v′ + x·v″ − x·v′²·(2σ(v) − 1))."""
    _, a, raised, whole = _upper(x)
    d = DIV(fill(x, 1), whole)
    first, second = _rates(a)
    tilt = MUL(FMA(raised, fill(x, -1 / RAISED), fill(x, 1)), d)
    terms = FMA(a, second, first * 2) - a * first * first * tilt
    return MUL(MUL(d * d, terms), raised) * (1 / RAISED)


GELU_TANH_SLOPE = activation("gelu_tanh_slope", _gelu_tanh_slope, partial=_gelu_tanh_curve)
GELU_TANH = activation("gelu_tanh", _gelu_tanh, partial=GELU_TANH_SLOPE)


@located
def gelu(input: Any, approximate: str = "none") -> Node:
    """x·Φ(x) ("none"), or its approximation by "tanh"; 0 at −∞. Raises DTypeError (not a float),
    ArgumentError (approximate)."""
    if approximate not in ("none", "tanh"):
        raise ArgumentError(f"approximate {approximate!r} is neither 'none' nor 'tanh'")
    return (GELU if approximate == "none" else GELU_TANH)(as_node(input))
