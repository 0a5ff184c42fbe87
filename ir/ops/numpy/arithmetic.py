"""Arithmetic and rounding for users, with NumPy's names and meaning.

Operands may be nodes, arrays or Python scalars: they take one element type and one shape by the
rules of `rlx_py.ir.ops.operands.operand`, whose DTypeError and ShapeError every function may raise.
"""

from __future__ import annotations

from typing import Any

from rlx_py.ir.base.errors import ArgumentError
from rlx_py.ir.base.types import as_dtype, f32, i64
from rlx_py.ir.nodes.node import Node
from rlx_py.ir.nodes.operators import OPERATORS
from rlx_py.ir.ops.making.constant import scalar_of
from rlx_py.ir.ops.making.located import located
from rlx_py.ir.ops.operands.operand import as_node, convert, together
from rlx_py.ir.ops.primitive import elementwise as ew
from rlx_py.ir.ops.primitive.compare import AND, EQ, LT, NE, OR, SHR, XOR
from rlx_py.ir.ops.primitive.elementwise import SELECT, cast, fill

LARGEST_DECIMALS = 308


def floating(x: Any) -> Node:
    """The operand as a node of floats: integers and bools become f32."""
    node = as_node(x)
    return node if node.dtype.is_float else cast(node, f32)


def floats_together(*values: Any) -> list[Node]:
    """Operands of one float type and one shape."""
    return [floating(n) for n in together(*values)]


# ---- arithmetic ------------------------------------------------------------------------------


@located
def add(x1: Any, x2: Any) -> Node:
    """x1 + x2; of bools, their logical or."""
    a, b = together(x1, x2)
    return OR(a, b) if a.dtype.kind == "bool" else ew.ADD(a, b)


@located
def subtract(x1: Any, x2: Any) -> Node:
    """x1 − x2."""
    return ew.SUB(*together(x1, x2))


@located
def multiply(x1: Any, x2: Any) -> Node:
    """x1·x2; of bools, their logical and."""
    a, b = together(x1, x2)
    return AND(a, b) if a.dtype.kind == "bool" else ew.MUL(a, b)


@located
def divide(x1: Any, x2: Any) -> Node:
    """x1/x2; of integers in f32."""
    return ew.DIV(*floats_together(x1, x2))


@located
def floor_divide(x1: Any, x2: Any) -> Node:
    """⌊x1/x2⌋, of the exact quotient; 0 for an integer divided by 0. Its derivative is 0."""
    a, b = together(x1, x2)
    if not a.dtype.is_float:
        return ew.INT_DIV(a, b)
    zero, rest = fill(a, 0), fmod(a, b)
    quotient = ew.ROUND(ew.DIV(ew.SUB(a, rest), b))
    across = AND(NE(rest, zero), XOR(LT(rest, zero), LT(b, zero)))
    quotient = SELECT(across, ew.SUB(quotient, fill(a, 1)), quotient)
    return SELECT(EQ(b, zero), ew.FLOOR(ew.DIV(a, b)), quotient)


@located
def remainder(x1: Any, x2: Any) -> Node:
    """x1 − ⌊x1/x2⌋·x2, with the sign of x2; 0 for an integer divided by 0."""
    return ew.REM(*together(x1, x2))


@located
def fmod(x1: Any, x2: Any) -> Node:
    """The remainder of division towards 0, with the sign of x1; 0 for an integer divided by 0."""
    a, b = together(x1, x2)
    zero = fill(a, 0)
    if a.dtype.is_float:
        sign = SELECT(LT(a, zero), fill(a, -1), fill(a, 1))
        return ew.MUL(sign, ew.REM(ew.MUL(sign, a), ew.ABS(b)))
    rest = ew.REM(a, b)
    across = AND(NE(rest, zero), XOR(LT(rest, zero), LT(a, zero)))
    return SELECT(across, ew.SUB(rest, b), rest)


@located
def power(x1: Any, x2: Any) -> Node:
    """x1 to the power x2.

    Integers wrap around; an integer to a negative integer is truncated towards 0, and a Python
    integer as a negative exponent of integers an ArgumentError.
    """
    if isinstance(x2, int) and not isinstance(x2, bool):
        base = as_node(x1)
        if not base.dtype.is_float:
            return _integer_power(base, x2)
    a, b = together(x1, x2)
    if a.dtype.is_float:
        return ew.POW(a, b)
    known = scalar_of(b)
    return _dynamic_power(a, b) if known is None or known < 0 else _integer_power(a, int(known))


def _integer_power(base: Node, exponent: int) -> Node:
    if exponent < 0:
        raise ArgumentError(f"{base.type} to the power {exponent}: integers have no negative "
                            "powers; make the base a float")
    base = cast(base, i64) if base.dtype.kind == "bool" else base
    result: Node | None = None
    while exponent:
        if exponent & 1:
            result = base if result is None else ew.MUL(result, base)
        exponent >>= 1
        base = ew.MUL(base, base) if exponent else base
    return fill(base, 1) if result is None else result


def _dynamic_power(base: Node, exponent: Node) -> Node:
    """By the bits of the exponent, all but the sign."""
    one, zero = fill(base, 1), fill(base, 0)
    result, square_, signed = one, base, base.dtype.kind == "int"
    for bit in range(base.dtype.bits - signed):
        odd = NE(AND(SHR(exponent, fill(base, bit)), one), zero)
        result = SELECT(odd, ew.MUL(result, square_), result)
        square_ = ew.MUL(square_, square_)
    if not signed:
        return result
    # Of a negative exponent only the parity matters, and only to ±1; every other power is below 1.
    vanishes = AND(LT(exponent, zero), NE(ew.MUL(base, base), one))
    return SELECT(vanishes, zero, result)


@located
def negative(x: Any) -> Node:
    """−x."""
    return ew.NEG(as_node(x))


@located
def abs(x: Any) -> Node:
    """|x|, with derivative 0 at 0."""
    return ew.ABS(as_node(x))


@located
def sign(x: Any) -> Node:
    """−1, 0 or 1; NaN of NaN."""
    return ew.SIGN(as_node(x))


@located
def square(x: Any) -> Node:
    """x·x."""
    node = as_node(x)
    return ew.MUL(node, node)


@located
def reciprocal(x: Any) -> Node:
    """1/x, of floats."""
    node = floating(x)
    return ew.DIV(fill(node, 1), node)


@located
def fma(x1: Any, x2: Any, x3: Any) -> Node:
    """x1·x2 + x3, of floats rounded once."""
    a, b, c = together(x1, x2, x3)
    return ew.FMA(a, b, c) if a.dtype.is_float else ew.ADD(ew.MUL(a, b), c)


# ---- rounding --------------------------------------------------------------------------------


@located
def floor(x: Any) -> Node:
    """The largest whole number not above x."""
    node = as_node(x)
    return ew.FLOOR(node) if node.dtype.is_float else node


@located
def ceil(x: Any) -> Node:
    """The smallest whole number not below x."""
    node = as_node(x)
    return ew.CEIL(node) if node.dtype.is_float else node


@located
def trunc(x: Any) -> Node:
    """x without its fraction."""
    node = as_node(x)
    return ew.TRUNC(node) if node.dtype.is_float else node


@located
def rint(x: Any) -> Node:
    """The nearest whole number, half to even."""
    node = as_node(x)
    return ew.ROUND(node) if node.dtype.is_float else node


@located
def round(x: Any, decimals: int = 0) -> Node:
    """x rounded half to even at a decimal; ArgumentError for decimals < 0 of integers."""
    node = as_node(x)
    if not node.dtype.is_float and decimals < 0:
        raise ArgumentError(f"{node.type} rounds at decimals ≥ 0, not {decimals}")
    if not decimals or not node.dtype.is_float:
        return rint(node)
    if not -LARGEST_DECIMALS <= decimals <= LARGEST_DECIMALS:
        raise ArgumentError(f"10 to the power {decimals} is no float")
    scale = fill(node, 10.0 ** (decimals if decimals > 0 else -decimals))
    into, back = (ew.MUL, ew.DIV) if decimals > 0 else (ew.DIV, ew.MUL)
    return back(ew.ROUND(into(node, scale)), scale)


# ---- derivative and type ---------------------------------------------------------------------


@located
def stop_gradient(x: Any) -> Node:
    """x itself, a constant to every derivative."""
    return ew.STOP_GRADIENT(as_node(x))


@located
def astype(x: Any, dtype: Any) -> Node:
    """x in another element type: float → int truncates and saturates (NaN gives 0), int wraps."""
    return convert(as_node(x), as_dtype(dtype))


OPERATORS.update({
    "abs": abs, "add": add, "astype": astype, "divide": divide, "floor_divide": floor_divide,
    "multiply": multiply, "negative": negative, "power": power, "remainder": remainder,
    "subtract": subtract,
})
