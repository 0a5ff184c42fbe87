"""Element-wise primitives of arithmetic and elementary functions, with their partial derivatives.

Integers wrap around as NumPy's do; integer division and remainder by zero give 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from typing import Any

import numpy as np

from rlx_py.ir.base.dim import larger
from rlx_py.ir.base.errors import DTypeError, ShapeError
from rlx_py.ir.base.rounding import convert_array
from rlx_py.ir.base.types import DType, TensorType, Type
from rlx_py.ir.graph.transforms import AD
from rlx_py.ir.loops.index import Index
from rlx_py.ir.loops.kernel import Bitcast, Cast, Expr
from rlx_py.ir.nodes.node import Ask, Node, Op, register
from rlx_py.ir.ops.making.batching import unchanged
from rlx_py.ir.ops.making.constant import constant, scalar_of
from rlx_py.ir.ops.making.families import (
    NUMERIC,
    add_all,
    composite,
    elementwise,
    quiet,
    same_type,
    scalar_element,
)
from rlx_py.ir.ops.primitive.compare import AND, EQ, GE, GT, LT, NOT, OR
from rlx_py.ir.ops.primitive.movement import filled, spread


def fill(like: Node, value: float) -> Node:
    """A constant in the element type and shape of `like`."""
    return filled(value, like.tensor)


def fill_root(like: Node, size: Any) -> Node:
    """√size, of what is negative 0, in the element type and shape of `like`."""
    if isinstance(size, int):
        return fill(like, math.sqrt(max(size, 0)))
    root = SQRT(constant(larger(size, 0), like.dtype.compute))
    return spread(cast(root, like.dtype), like.shape, ())


# ---- choosing and converting -----------------------------------------------------------------


def _infer_select(cond: TensorType, a: TensorType, b: TensorType) -> Type:
    if cond.dtype.kind != "bool":
        raise DTypeError(f"the condition must be bool, not {cond}")
    if not cond.shape == a.shape == b.shape:
        raise ShapeError(f"operands differ in shape: {cond}, {a} and {b}")
    if a.dtype is not b.dtype:
        raise DTypeError(f"branches differ in element type: {a} and {b}")
    return a


def _select_vjp(node: Node, ct: Node, ad: AD) -> Sequence[Node | None]:
    cond, zero = node.inputs[0], fill(ct, 0)
    return None, SELECT(cond, ct, zero), SELECT(cond, zero, ct)


def _select_jvp(node: Node, tangents: Sequence[Node | None], ad: AD) -> Node | None:
    _, a, b = tangents
    if a is None and b is None:
        return None
    zero = fill(node, 0)
    return SELECT(node.inputs[0], zero if a is None else a, zero if b is None else b)


SELECT = register(Op("select", _infer_select, eval=np.where, vjp=_select_vjp, jvp=_select_jvp,
                     element=scalar_element, batch=unchanged))


def _infer_cast(x: TensorType, *, dtype: DType) -> Type:
    return x.with_dtype(dtype)


def _cast_vjp(node: Node, ct: Node, ad: AD) -> Sequence[Node | None]:
    (x,) = node.inputs
    return (cast(ct, x.dtype) if node.dtype.is_float and x.dtype.is_float else None,)


def _cast_jvp(node: Node, tangents: Sequence[Node | None], ad: AD) -> Node | None:
    (t,) = tangents
    return None if t is None or not node.dtype.is_float else cast(t, node.dtype)


def _cast_element(node: Node, index: tuple[Index, ...]) -> Generator[Ask, Any, Expr]:
    return Cast((yield (0, index)), node.dtype)


CAST = register(Op("cast", _infer_cast, lambda x, *, dtype: convert_array(x, dtype),
                   _cast_vjp, _cast_jvp, element=_cast_element, batch=unchanged))


def cast(node: Node, dtype: DType) -> Node:
    """The node in another element type, by CAST; itself where it has it."""
    return node if node.dtype is dtype else CAST(node, dtype=dtype)


def _infer_bitcast(x: TensorType, *, dtype: DType) -> Type:
    if "bool" in (x.dtype.kind, dtype.kind) or x.dtype.bits != dtype.bits:
        raise DTypeError(f"the bits of {x.dtype} are not those of a {dtype}")
    return x.with_dtype(dtype)


def _bitcast_element(node: Node, index: tuple[Index, ...]) -> Generator[Ask, Any, Expr]:
    return Bitcast((yield (0, index)), node.dtype)


BITCAST = register(Op("bitcast", _infer_bitcast,
                      lambda x, *, dtype: np.asarray(x).view(dtype.numpy),
                      element=_bitcast_element, batch=unchanged, differentiable=False))


def _identity_element(node: Node, index: tuple[Index, ...]) -> Generator[Ask, Expr, Expr]:
    return (yield (0, index))


STOP_GRADIENT = register(Op("stop_gradient", lambda x: x, lambda x: x, element=_identity_element,
                            batch=unchanged, differentiable=False))

# ---- arithmetic ------------------------------------------------------------------------------

ADD = elementwise("add", np.add, (lambda y, a, b: 1, lambda y, a, b: 1), kinds=NUMERIC)
SUB = elementwise("sub", np.subtract, (lambda y, a, b: 1, lambda y, a, b: -1), kinds=NUMERIC)
MUL = elementwise("mul", np.multiply, (lambda y, a, b: b, lambda y, a, b: a), kinds=NUMERIC)
NEG = elementwise("neg", np.negative, (lambda y, x: -1,), kinds=NUMERIC)
DIV: Op = elementwise("div", np.divide, (
    lambda y, a, b: DIV(fill(b, 1), b),
    lambda y, a, b: NEG(DIV(y, b)),
))
INT_DIV = elementwise("int_div", np.floor_divide, None, kinds=("int", "uint"))


def _either_is_zero(a: Node, b: Node) -> Node:
    return SELECT(EQ(b, fill(b, 0)), fill(b, 0), GUARDED_MUL(a, b))


def _zero_mul_vjp(node: Node, ct: Node, ad: AD) -> Sequence[Node | None]:
    a, b = node.inputs
    return ZERO_MUL(b, ct), ZERO_MUL(a, ct)


def _zero_mul_jvp(node: Node, tangents: Sequence[Node | None], ad: AD) -> Node | None:
    (a, b), (ta, tb) = node.inputs, tangents
    return add_all([None if ta is None else ZERO_MUL(b, ta),
                    None if tb is None else ZERO_MUL(a, tb)])


def _guarded_vjp(node: Node, ct: Node, ad: AD) -> Sequence[Node | None]:
    a, b = node.inputs
    return ad.times(ct, b), ZERO_MUL(a, ct)


def _guarded_jvp(node: Node, tangents: Sequence[Node | None], ad: AD) -> Node | None:
    (a, b), (ta, tb) = node.inputs, tangents
    return add_all([None if ta is None else ad.times(ta, b),
                    None if tb is None else ZERO_MUL(a, tb)])


# a ⊳ b, the product of the chain rule: no cotangent, no contribution, whatever the partial. Where a
# is 0 it does not change with b, so neither do the derivatives of b, infinite as they may be.
GUARDED_MUL: Op = register(Op(
    "guarded_mul", same_type("guarded_mul", ("float",), None),
    quiet(lambda a, b: np.where(a == 0, np.zeros_like(a), a * b)), _guarded_vjp, _guarded_jvp,
    element=scalar_element, batch=unchanged, cost=1))
# a · b, and 0 where either is.
ZERO_MUL: Op = composite("zero_mul", same_type("zero_mul", ("float",), None), _either_is_zero,
                         vjp=_zero_mul_vjp, jvp=_zero_mul_jvp, batch=unchanged)


def _quotient(y: Node, a: Node, b: Node) -> Node:
    """−(a − y)/b, a whole number: floor(a/b) would be off by one where the division rounds up.
    For an infinite b it is 1 where y is b (the signs differ), else 0."""
    beyond = SELECT(EQ(y, b), fill(b, 1), fill(b, 0))
    return SELECT(EQ(ABS(b), fill(b, math.inf)), beyond, NEG(ROUND(DIV(SUB(a, y), b))))


REM = elementwise("rem", np.remainder, (lambda y, a, b: 1, _quotient), kinds=NUMERIC)


def _fma(a: Any, b: Any, c: Any) -> Any:
    """a·b + c with one rounding: by f64 for f32; by an error-free product and sum for f64."""
    if a.dtype != np.float64:
        return (a.astype(np.float64) * b + c).astype(a.dtype)
    product, error = a * b, product_error(a, b)
    total = product + c
    part = total - product
    rest = (product - (total - part)) + (c - part)
    exact = total + (rest + error)
    return np.where(np.isfinite(exact), exact, total)


def product_error(a: Any, b: Any) -> Any:
    """a·b − fl(a·b), exactly, where nothing overflows (Dekker's product)."""
    split = 2.0**27 + 1
    a1, b1 = split * a - (split * a - a), split * b - (split * b - b)
    a2, b2 = a - a1, b - b1
    return ((a1 * b1 - a * b) + a1 * b2 + a2 * b1) + a2 * b2


FMA = elementwise("fma", _fma, (lambda y, a, b, c: b, lambda y, a, b, c: a, lambda y, a, b, c: 1),
                  cost=1)


Route = Callable[..., Node]


def piecewise(name: str, eval: Callable[..., Any], routes: Sequence[Route]) -> Op:
    """An op linear in pieces: routes[i](g, *inputs) is what a cotangent or tangent g at input i
    becomes.

    It selects and never multiplies by 0, so an infinite g leaves what is not chosen at 0.
    """

    def vjp(node: Node, ct: Node, ad: AD) -> Sequence[Node | None]:
        return [route(ct, *node.inputs) for route in routes]

    def jvp(node: Node, tangents: Sequence[Node | None], ad: AD) -> Node | None:
        pairs = zip(routes, tangents, strict=True)
        return add_all([None if t is None else route(t, *node.inputs) for route, t in pairs])

    return register(Op(name, same_type(name, NUMERIC, None), quiet(eval), vjp, jvp,
                       element=scalar_element, batch=unchanged))


def _winner(g: Node, mine: Node, other: Node, losing: Op) -> Node:
    """g where mine wins, 0 where it loses, half at a tie; g to both where either is NaN."""
    kept = SELECT(losing(mine, other), fill(g, 0), g)
    return SELECT(EQ(mine, other), MUL(g, fill(g, 0.5)), kept)


def _abs_route(g: Node, x: Node) -> Node:
    zero = fill(x, 0)
    return SELECT(LT(x, zero), NEG(g), SELECT(EQ(x, zero), fill(g, 0), g))


MAX = piecewise("max", np.maximum, (lambda g, a, b: _winner(g, a, b, LT),
                                    lambda g, a, b: _winner(g, b, a, LT)))
MIN = piecewise("min", np.minimum, (lambda g, a, b: _winner(g, a, b, GT),
                                    lambda g, a, b: _winner(g, b, a, GT)))
ABS = piecewise("abs", np.abs, (_abs_route,))
SIGN = elementwise("sign", np.sign, None, kinds=NUMERIC)
FLOOR = elementwise("floor", np.floor, None, cost=1)
CEIL = elementwise("ceil", np.ceil, None, cost=1)
ROUND = elementwise("round", np.rint, None, cost=1)  # half to even
TRUNC = elementwise("trunc", np.trunc, None, cost=1)

# ---- powers, exponentials and logarithms -----------------------------------------------------


def _pow_base(y: Node, x: Node, p: Node) -> Node | int | None:
    """p·x^(p−1), which stays differentiable in p; 0 at p = 0 for x = 0 and NaN too, by a base 1."""
    power = scalar_of(p)
    if power is None:
        singular = AND(NOT(GT(ABS(x), fill(x, 0))), EQ(p, fill(p, 0)))
        return MUL(p, POW(SELECT(singular, fill(x, 1), x), SUB(p, fill(p, 1))))
    if power == 0:
        return None
    if power == 1:
        return 1
    return MUL(p, x if power == 2 else POW(x, fill(p, float(power) - 1)))


def _pow_exponent(y: Node, x: Node, p: Node) -> Node | None:
    """x^p·log x; 0 at x = 0 for p ≥ 0. None for a constant p, of which no derivative is asked."""
    if scalar_of(p) is not None:
        return None
    flat = AND(EQ(x, fill(x, 0)), GE(p, fill(p, 0)))
    return MUL(y, LOG(SELECT(flat, fill(x, 1), x)))


POW = elementwise("pow", np.power, (_pow_base, _pow_exponent))
EXP = elementwise("exp", np.exp, (lambda y, x: y,))
EXP2 = elementwise("exp2", np.exp2, (lambda y, x: MUL(y, fill(y, math.log(2))),))
EXPM1 = elementwise("expm1", np.expm1, (lambda y, x: EXP(x),))
LOG = elementwise("log", np.log, (lambda y, x: DIV(fill(x, 1), x),))
LOG1P = elementwise("log1p", np.log1p, (lambda y, x: DIV(fill(x, 1), ADD(fill(x, 1), x)),))
SQRT = elementwise("sqrt", np.sqrt, (lambda y, x: DIV(fill(y, 0.5), y),))
RSQRT = elementwise("rsqrt", lambda x: 1 / np.sqrt(x),
                    (lambda y, x: MUL(fill(y, -0.5), DIV(y, x)),))

# ---- trigonometric and hyperbolic ------------------------------------------------------------


def _one_minus_square(x: Node) -> Node:
    """1 − x², rounded once: exact near ±1, and its own derivative does not cancel near 0."""
    return FMA(NEG(x), x, fill(x, 1))


def _one_plus_square(x: Node) -> Node:
    return ADD(fill(x, 1), MUL(x, x))


SIN = elementwise("sin", np.sin, (lambda y, x: COS(x),))
COS: Op = elementwise("cos", np.cos, (lambda y, x: NEG(SIN(x)),))
TAN = elementwise("tan", np.tan, (lambda y, x: _one_plus_square(y),))
ASIN = elementwise("asin", np.arcsin, (lambda y, x: RSQRT(_one_minus_square(x)),))
ACOS: Op = elementwise("acos", np.arccos, (lambda y, x: NEG(RSQRT(_one_minus_square(x))),))
ATAN = elementwise("atan", np.arctan, (lambda y, x: DIV(fill(x, 1), _one_plus_square(x)),))


def _over_square_radius(part: Node, y: Node, x: Node) -> Node:
    """part/(x² + y²), 0 at the origin and at infinity.

    Both are scaled by the larger, so that squares neither overflow nor vanish. The value is that
    for any scale, so the scale is a constant to derivatives.
    """
    scale = STOP_GRADIENT(MAX(ABS(x), ABS(y)))
    u, v = DIV(x, scale), DIV(y, scale)
    ratio = DIV(DIV(DIV(part, scale), ADD(MUL(u, u), MUL(v, v))), scale)
    singular = OR(EQ(scale, fill(x, 0)), EQ(scale, fill(x, math.inf)))
    return SELECT(singular, fill(x, 0), ratio)


ATAN2 = elementwise("atan2", np.arctan2, (
    lambda angle, y, x: _over_square_radius(x, y, x),
    lambda angle, y, x: NEG(_over_square_radius(y, y, x)),
))
SINH = elementwise("sinh", np.sinh, (lambda y, x: COSH(x),))
COSH: Op = elementwise("cosh", np.cosh, (lambda y, x: SINH(x),))
TANH = elementwise("tanh", np.tanh, (lambda y, x: SUB(fill(y, 1), MUL(y, y)),))
ASINH = elementwise("asinh", np.arcsinh, (lambda y, x: RSQRT(_one_plus_square(x)),))
# Two roots, because (x − 1)(x + 1) is positive below −1, where the function has no value.
ACOSH = elementwise("acosh", np.arccosh, (
    lambda y, x: MUL(RSQRT(SUB(x, fill(x, 1))), RSQRT(ADD(x, fill(x, 1)))),
))
ATANH = elementwise("atanh", np.arctanh, (lambda y, x: DIV(fill(x, 1), _one_minus_square(x)),))
