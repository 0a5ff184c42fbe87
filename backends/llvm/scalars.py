"""Scalar operations in LLVM IR, for one value or for a vector of lanes.

No fast-math flags anywhere: what is computed is what was written. f16 and bf16 values are bits
(i16); only moving them is allowed here, arithmetic is expanded to f32 before (expand_math).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import llvmlite.ir as ll
import numpy as np

from rlx_py.ir.base.errors import BackendError
from rlx_py.ir.base.types import DType

Emit = Callable[..., ll.Value]

I1, I8, I16, I32, I64 = (ll.IntType(n) for n in (1, 8, 16, 32, 64))
_INT_BY_BITS = {8: I8, 16: I16, 32: I32, 64: I64}
_FLOAT_BY_BITS = {32: ll.FloatType(), 64: ll.DoubleType()}


class Literal(ll.Constant):  # type: ignore[misc]  # llvmlite is not annotated
    """A constant in LLVM's own words: llvmlite has none for NaN payloads and equal lanes."""

    def __init__(self, type: ll.Type, text: str) -> None:
        self.type, self.constant = type, text

    def _get_reference(self) -> str:
        text: str = self.constant
        return text


def scalar_type(dtype: DType) -> ll.Type:
    """The LLVM type of a value of `dtype`; bool is i1, f16 and bf16 are their bits."""
    if dtype.kind == "bool":
        return I1
    if dtype.is_float and dtype.bits in _FLOAT_BY_BITS:
        return _FLOAT_BY_BITS[dtype.bits]
    return _INT_BY_BITS[dtype.bits]


def memory_type(dtype: DType) -> ll.Type:
    """The LLVM type of an element in memory; bool is a byte, 0 or 1."""
    return I8 if dtype.kind == "bool" else scalar_type(dtype)


def constant(value: Any, dtype: DType) -> ll.Value:
    """A scalar constant with exactly the bits of `value` in `dtype`."""
    if dtype.kind == "bool":
        return I1(int(bool(value)))
    array = np.asarray(value).astype(dtype.numpy)
    unsigned = np.dtype(f"u{dtype.itemsize}")
    if dtype.is_float and dtype.bits in _FLOAT_BY_BITS:
        if np.isfinite(array):
            return _FLOAT_BY_BITS[dtype.bits](float(array))
        bits = int(array.view(unsigned))
        if dtype.bits == 32:
            # LLVM writes an f32 as the f64 of the same value, payload of a NaN included.
            bits = (bits >> 31) << 63 | 0x7FF << 52 | (bits & 0x7F_FFFF) << 29
        return Literal(_FLOAT_BY_BITS[dtype.bits], f"0x{bits:016X}")
    kind = _INT_BY_BITS[dtype.bits]
    return kind(int(array.view(unsigned) if dtype.is_float else array))


def lanes_of(value: ll.Value) -> int:
    """Lanes of a vector value, 0 for a scalar."""
    return value.type.count if isinstance(value.type, ll.VectorType) else 0


def element_of(type: ll.Type) -> ll.Type:
    """The element type of a vector type; a scalar type itself."""
    return type.element if isinstance(type, ll.VectorType) else type


def splat(b: ll.IRBuilder, value: ll.Value, lanes: int) -> ll.Value:
    """The scalar in every lane; a vector stays as it is."""
    if lanes_of(value):
        return value
    vector = ll.VectorType(value.type, lanes)
    if isinstance(value, ll.Constant):
        return everywhere(value, lanes)
    undefined = ll.Constant(vector, ll.Undefined)
    one = b.insert_element(undefined, value, I32(0))
    first = ll.Constant(ll.VectorType(I32, lanes), [I32(0)] * lanes)
    return b.shuffle_vector(one, undefined, first)


def everywhere(value: ll.Constant, lanes: int) -> ll.Constant:
    """A constant vector of equal lanes, in few letters."""
    vector = ll.VectorType(value.type, lanes)
    return Literal(vector, f"splat ({value.type} {value.get_reference()})")


def aligned(b: ll.IRBuilder, values: Sequence[ll.Value]) -> list[ll.Value]:
    """The values, scalars splatted if any is a vector."""
    lanes = max((lanes_of(v) for v in values), default=0)
    return [splat(b, v, lanes) for v in values] if lanes else list(values)


def like(value: ll.Value, number: float | int) -> ll.Constant:
    """A constant of the type of `value`, in every lane."""
    element = element_of(value.type)
    one = ll.Constant(element, number)
    lanes = lanes_of(value)
    return everywhere(one, lanes) if lanes else one


def suffix(type: ll.Type) -> str:
    """How intrinsics name a type: f32, i64, v16f32 …"""
    if isinstance(type, ll.VectorType):
        return f"v{type.count}{suffix(type.element)}"
    if isinstance(type, ll.IntType):
        return f"i{type.width}"
    return "f64" if isinstance(type, ll.DoubleType) else "f32"


def intrinsic(b: ll.IRBuilder, name: str, result: ll.Type, args: Sequence[ll.Value]) -> ll.Value:
    """A call of an LLVM intrinsic (or C function) by its whole name."""
    module = b.module
    function = module.globals.get(name)
    if function is None:
        kind = ll.FunctionType(result, [a.type for a in args])
        function = ll.Function(module, kind, name)
    return b.call(function, args)


def _same(name: str) -> Emit:
    """An overloaded intrinsic whose result has the type of its operands."""

    def emit(b: ll.IRBuilder, *args: ll.Value) -> ll.Value:
        return intrinsic(b, f"llvm.{name}.{suffix(args[0].type)}", args[0].type, args)

    return emit


def _ordered(sign: str) -> Emit:
    return lambda b, x, y: b.fcmp_ordered(sign, x, y)


def _signed(sign: str) -> Emit:
    return lambda b, x, y: b.icmp_signed(sign, x, y)


def _unsigned(sign: str) -> Emit:
    return lambda b, x, y: b.icmp_unsigned(sign, x, y)


# ---- floats ----------------------------------------------------------------------------------


def _float_sign(b: ll.IRBuilder, x: ll.Value) -> ll.Value:
    # As NumPy: NaN stays NaN, both zeros give +0.
    zero = like(x, 0.0)
    rest = b.select(b.fcmp_ordered("==", x, zero), zero, x)
    negative = b.select(b.fcmp_ordered("<", x, zero), like(x, -1.0), rest)
    return b.select(b.fcmp_ordered(">", x, zero), like(x, 1.0), negative)


def _guarded_mul(b: ll.IRBuilder, x: ll.Value, y: ll.Value) -> ll.Value:
    zero = like(x, 0.0)
    return b.select(b.fcmp_ordered("==", x, zero), zero, b.fmul(x, y))


def _float_rem(b: ll.IRBuilder, x: ll.Value, y: ll.Value) -> ll.Value:
    """x − ⌊x/y⌋·y with the sign of y; NaN for y = 0."""
    zero = like(x, 0.0)
    m = b.frem(x, y)
    wrong = b.xor(b.fcmp_ordered("<", y, zero), b.fcmp_ordered("<", m, zero))
    moved = b.select(wrong, b.fadd(m, y), m)
    signed_zero = _same("copysign")(b, zero, y)
    return b.select(b.fcmp_ordered("==", m, zero), signed_zero, moved)


def _stepwise_fma(b: ll.IRBuilder, x: ll.Value, y: ll.Value, z: ll.Value) -> ll.Value:
    """x·y + z where no instruction is that: the product is exact, the sum may round twice.

    f32 in f64. f64 by Dekker's product (Numerische Mathematik 18, 1971) and Knuth's sum, whose
    rests are 0 where they overflow.
    """
    lanes, single, double = lanes_of(x), ll.FloatType(), ll.DoubleType()
    if isinstance(element_of(x.type), ll.FloatType):
        narrow, wide = (ll.VectorType(t, lanes) if lanes else t for t in (single, double))
        x, y, z = (b.fpext(v, wide) for v in (x, y, z))
        return b.fptrunc(b.fadd(b.fmul(x, y), z), narrow)

    def halves(v: ll.Value) -> tuple[ll.Value, ll.Value]:
        scaled = b.fmul(v, like(v, 2.0**27 + 1))
        high = b.fsub(scaled, b.fsub(scaled, v))
        return high, b.fsub(v, high)

    product = b.fmul(x, y)
    (x_high, x_low), (y_high, y_low) = halves(x), halves(y)
    rest = b.fsub(b.fmul(x_high, y_high), product)
    for pair in ((x_high, y_low), (x_low, y_high), (x_low, y_low)):
        rest = b.fadd(rest, b.fmul(*pair))
    total = b.fadd(product, z)
    moved = b.fsub(total, product)
    lost = b.fadd(b.fsub(product, b.fsub(total, moved)), b.fsub(z, moved))
    rest = b.fadd(rest, lost)
    size = _same("fabs")(b, rest)
    # A rest of 0 would make +0 of -0.
    is_some = b.and_(b.fcmp_ordered(">", size, like(rest, 0.0)),
                     b.fcmp_ordered("<", size, like(rest, float(np.inf))))
    return b.select(is_some, b.fadd(total, rest), total)


FLOAT: dict[str, Emit] = {
    "add": lambda b, x, y: b.fadd(x, y),
    "sub": lambda b, x, y: b.fsub(x, y),
    "mul": lambda b, x, y: b.fmul(x, y),
    "div": lambda b, x, y: b.fdiv(x, y),
    "neg": lambda b, x: b.fneg(x),
    "fma": _same("fma"),
    "abs": _same("fabs"),
    "sqrt": _same("sqrt"),
    "rsqrt": lambda b, x: b.fdiv(like(x, 1.0), _same("sqrt")(b, x)),
    "floor": _same("floor"),
    "ceil": _same("ceil"),
    "round": _same("rint"),
    "trunc": _same("trunc"),
    "min": _same("minimum"),
    "max": _same("maximum"),
    "copysign": _same("copysign"),
    "sign": _float_sign,
    "rem": _float_rem,
    "guarded_mul": _guarded_mul,
    "eq": _ordered("=="),
    "ne": lambda b, x, y: b.fcmp_unordered("!=", x, y),
    "lt": _ordered("<"),
    "le": _ordered("<="),
    "gt": _ordered(">"),
    "ge": _ordered(">="),
    "select": lambda b, c, x, y: b.select(c, x, y),
}

# ---- integers --------------------------------------------------------------------------------


def _width(x: ll.Value) -> int:
    width = element_of(x.type).width
    assert isinstance(width, int)
    return width


def _signed_divmod(b: ll.IRBuilder, x: ll.Value, y: ll.Value) -> tuple[ll.Value, ll.Value]:
    """(⌊x/y⌋, x mod y) as NumPy: 0 for y = 0, wrapping for INT_MIN / −1; never traps."""
    zero, one = like(x, 0), like(x, 1)
    is_zero = b.icmp_signed("==", y, zero)
    is_minus = b.icmp_signed("==", y, like(x, -1))
    safe = b.select(b.or_(is_zero, is_minus), one, y)
    q, r = b.sdiv(x, safe), b.srem(x, safe)
    inexact = b.icmp_signed("!=", r, zero)
    down = b.and_(inexact, b.icmp_signed("<", b.xor(r, safe), zero))
    q = b.select(down, b.sub(q, one), q)
    r = b.select(down, b.add(r, safe), r)
    q = b.select(is_minus, b.sub(zero, x), q)
    return b.select(is_zero, zero, q), r


def _unsigned_floor_div(b: ll.IRBuilder, x: ll.Value, y: ll.Value) -> ll.Value:
    is_zero = b.icmp_unsigned("==", y, like(x, 0))
    q = b.udiv(x, b.select(is_zero, like(x, 1), y))
    return b.select(is_zero, like(x, 0), q)


def _unsigned_rem(b: ll.IRBuilder, x: ll.Value, y: ll.Value) -> ll.Value:
    return b.urem(x, b.select(b.icmp_unsigned("==", y, like(x, 0)), like(x, 1), y))


def _shift(emit: Emit, beyond: Emit) -> Emit:
    """A shift whose amount may be out of 0 … width − 1; LLVM's own is undefined there."""

    def checked(b: ll.IRBuilder, x: ll.Value, y: ll.Value) -> ll.Value:
        inside = b.icmp_unsigned("<", y, like(y, _width(y)))
        amount = b.select(inside, y, like(y, 0))
        return b.select(inside, emit(b, x, amount), beyond(b, x))

    return checked


def _no_bits(b: ll.IRBuilder, x: ll.Value) -> ll.Value:
    return like(x, 0)


def _sign_bits(b: ll.IRBuilder, x: ll.Value) -> ll.Value:
    return b.ashr(x, like(x, _width(x) - 1))


def _int_abs(b: ll.IRBuilder, x: ll.Value) -> ll.Value:
    return b.select(b.icmp_signed("<", x, like(x, 0)), b.sub(like(x, 0), x), x)


def _int_sign(b: ll.IRBuilder, x: ll.Value) -> ll.Value:
    zero, one = like(x, 0), like(x, 1)
    negative = b.select(b.icmp_signed("<", x, zero), like(x, -1), zero)
    return b.select(b.icmp_signed(">", x, zero), one, negative)


BITS: dict[str, Emit] = {
    "add": lambda b, x, y: b.add(x, y),
    "sub": lambda b, x, y: b.sub(x, y),
    "mul": lambda b, x, y: b.mul(x, y),
    "fma": lambda b, x, y, z: b.add(b.mul(x, y), z),
    "guarded_mul": lambda b, x, y: b.mul(x, y),
    "neg": lambda b, x: b.sub(like(x, 0), x),
    "and": lambda b, x, y: b.and_(x, y),
    "or": lambda b, x, y: b.or_(x, y),
    "xor": lambda b, x, y: b.xor(x, y),
    "not": lambda b, x: b.xor(x, like(x, -1)),
    "shl": _shift(lambda b, x, y: b.shl(x, y), _no_bits),
    "lshr": _shift(lambda b, x, y: b.lshr(x, y), _no_bits),
    "eq": _signed("=="),
    "ne": _signed("!="),
    "select": lambda b, c, x, y: b.select(c, x, y),
}

SIGNED: dict[str, Emit] = {
    **BITS,
    "shr": _shift(lambda b, x, y: b.ashr(x, y), _sign_bits),
    "abs": _int_abs,
    "sign": _int_sign,
    "int_div": lambda b, x, y: _signed_divmod(b, x, y)[0],
    "rem": lambda b, x, y: _signed_divmod(b, x, y)[1],
    "min": _same("smin"),
    "max": _same("smax"),
    "lt": _signed("<"),
    "le": _signed("<="),
    "gt": _signed(">"),
    "ge": _signed(">="),
}

UNSIGNED: dict[str, Emit] = {
    **BITS,
    "shr": BITS["lshr"],
    "abs": lambda b, x: x,
    "sign": lambda b, x: b.select(b.icmp_unsigned("!=", x, like(x, 0)), like(x, 1), like(x, 0)),
    "int_div": _unsigned_floor_div,
    "rem": _unsigned_rem,
    "min": _same("umin"),
    "max": _same("umax"),
    "lt": _unsigned("<"),
    "le": _unsigned("<="),
    "gt": _unsigned(">"),
    "ge": _unsigned(">="),
}

# As NumPy's: a sum of booleans is "or", a product is "and"; false < true.
BOOL: dict[str, Emit] = {
    "add": lambda b, x, y: b.or_(x, y),
    "mul": lambda b, x, y: b.and_(x, y),
    "and": lambda b, x, y: b.and_(x, y),
    "or": lambda b, x, y: b.or_(x, y),
    "xor": lambda b, x, y: b.xor(x, y),
    "not": lambda b, x: b.xor(x, like(x, 1)),
    "min": lambda b, x, y: b.and_(x, y),
    "max": lambda b, x, y: b.or_(x, y),
    "eq": _unsigned("=="),
    "ne": _unsigned("!="),
    "lt": _unsigned("<"),
    "le": _unsigned("<="),
    "gt": _unsigned(">"),
    "ge": _unsigned(">="),
    "select": lambda b, c, x, y: b.select(c, x, y),
}

UNFUSED: dict[str, Emit] = {**FLOAT, "fma": _stepwise_fma}

# Only what moves bits.
NARROW: dict[str, Emit] = {"select": FLOAT["select"]}

def table(dtype: DType, fma: bool = True) -> dict[str, Emit]:
    """The operations on values of an element type; fma: whether the machine has that one."""
    if dtype.is_float:
        return NARROW if dtype.bits == 16 else FLOAT if fma else UNFUSED
    if dtype.kind == "bool":
        return BOOL
    return SIGNED if dtype.kind == "int" else UNSIGNED


def apply(b: ll.IRBuilder, op: str, dtype: DType, args: Sequence[ll.Value], *,
          fma: bool = True) -> ll.Value:
    """op(args) on operands of `dtype` (of the chosen ones, for select); vectors if any is one."""
    emit = table(dtype, fma).get(op)
    if emit is None:
        raise BackendError(f"no machine code for {op} on {dtype}")
    return emit(b, *aligned(b, args))
