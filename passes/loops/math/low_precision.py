"""f16 and bf16 in integer operations: to f32, and back with one rounding to nearest, ties to even.

x is f32; bits are the narrow format's 16, as u16. |x| as an integer orders like |x|.
"""

from __future__ import annotations

from typing import TypeVar

from rlx_py.passes.loops.math.scalars import Scalars

T = TypeVar("T")

SIGN, INFINITY, QUIET = 0x8000_0000, 0x7F80_0000, 0x0040_0000
F16_MIN_NORMAL = 0x3880_0000  # 2^-14
F16_BEYOND = 0x4780_0000  # 2^16: f16 ends below, at 65504
F16_REBIAS = 0x3800_0000  # (127 − 15) << 23
F16_INFINITY = 0x0F80_0000  # the f16 exponent of infinity, shifted to f32's place
HALF = 0x3F00_0000  # 0.5, whose ulp in f32 is 2^-24, the spacing of f16 below 2^-14


def widen(s: Scalars[T], bits: T, dtype: str) -> T:
    """The f32 value of f16 or bf16 bits, exactly."""
    wide = s.cast(bits, "u32")
    if dtype == "bf16":
        return s.bitcast(s.shl(wide, _u32(s, 16)), "f32")
    sign = s.shl(s.bit_and(wide, _u32(s, 0x8000)), _u32(s, 16))
    magnitude = s.shl(s.bit_and(wide, _u32(s, 0x7FFF)), _u32(s, 13))
    # Scaling by 2^112 moves the exponent, subnormal or not.
    scaled = s.mul(s.bitcast(magnitude, "f32"), s.const(2.0**112, "f32"))
    special = s.bit_or(magnitude, _u32(s, INFINITY))
    is_finite = s.lt(magnitude, _u32(s, F16_INFINITY))
    value = s.select(is_finite, s.bitcast(scaled, "u32"), special)
    return s.bitcast(s.bit_or(value, sign), "f32")


def round_to(s: Scalars[T], x: T, dtype: str) -> T:
    """The f32 value that is nearest to x among those of f16 or bf16."""
    bits = s.bitcast(x, "u32")
    if dtype == "bf16":
        return s.bitcast(_round_bf16(s, bits), "f32")
    magnitude = s.bit_and(bits, _u32(s, SIGN - 1))
    sign = s.bit_xor(bits, magnitude)
    drop = (1 << 13) - 1
    rounded = s.bit_and(_half_up(s, magnitude, 13), _u32(s, ~drop))
    top = s.select(s.ge(rounded, _u32(s, F16_BEYOND)), _u32(s, INFINITY), rounded)
    half = s.const(0.5, "f32")
    small = s.bitcast(s.sub(s.add(s.bitcast(magnitude, "f32"), half), half), "u32")
    value = s.select(s.lt(magnitude, _u32(s, F16_MIN_NORMAL)), small, top)
    nan = s.bit_and(s.bit_or(magnitude, _u32(s, QUIET)), _u32(s, ~drop))
    value = s.select(s.gt(magnitude, _u32(s, INFINITY)), nan, value)
    return s.bitcast(s.bit_or(value, sign), "f32")


def narrow(s: Scalars[T], x: T, dtype: str) -> T:
    """The f16 or bf16 bits of the value nearest to x."""
    bits = s.bitcast(x, "u32")
    if dtype == "bf16":
        return s.cast(s.shr(_round_bf16(s, bits), _u32(s, 16)), "u16")
    magnitude = s.bit_and(bits, _u32(s, SIGN - 1))
    sign = s.shr(s.bit_xor(bits, magnitude), _u32(s, 16))
    # Rounding may carry into the exponent: that is how 65520 becomes infinite.
    normal = s.shr(s.sub(_half_up(s, magnitude, 13), _u32(s, F16_REBIAS)), _u32(s, 13))
    sum = s.add(s.bitcast(magnitude, "f32"), s.const(0.5, "f32"))
    small = s.sub(s.bitcast(sum, "u32"), _u32(s, HALF))
    value = s.select(s.lt(magnitude, _u32(s, F16_MIN_NORMAL)), small, normal)
    value = s.select(s.ge(magnitude, _u32(s, F16_BEYOND)), _u32(s, 0x7C00), value)
    value = s.select(s.gt(magnitude, _u32(s, INFINITY)), _u32(s, 0x7E00), value)
    return s.cast(s.bit_or(value, sign), "u16")


def to_odd(s: Scalars[T], x: T) -> T:
    """An f64 as f32 for a second rounding: where inexact, the neighbour with an odd last bit.

    Rounding that to f16 or bf16 gives what one rounding of x would.
    """
    near = s.cast(x, "f32")
    back = s.cast(near, "f64")
    bits = s.bitcast(near, "u32")
    one = _u32(s, 1)
    is_even = s.eq(s.bit_and(bits, one), _u32(s, 0))
    below, above = s.lt(s.abs(back), s.abs(x)), s.gt(s.abs(back), s.abs(x))
    moved = s.select(below, s.add(bits, one), s.select(above, s.sub(bits, one), bits))
    return s.bitcast(s.select(is_even, moved, bits), "f32")


def _half_up(s: Scalars[T], bits: T, dropped: int) -> T:
    """bits + half of the last kept place, less one where that place is even."""
    last = s.bit_and(s.shr(bits, _u32(s, dropped)), _u32(s, 1))
    return s.add(s.add(bits, _u32(s, (1 << (dropped - 1)) - 1)), last)


def _round_bf16(s: Scalars[T], bits: T) -> T:
    """f32 bits rounded to their upper half."""
    is_nan = s.gt(s.bit_and(bits, _u32(s, SIGN - 1)), _u32(s, INFINITY))
    quiet = s.bit_or(bits, _u32(s, QUIET))
    return s.bit_and(s.select(is_nan, quiet, _half_up(s, bits, 16)), _u32(s, 0xFFFF_0000))


def _u32(s: Scalars[T], value: int) -> T:
    return s.const(value & 0xFFFF_FFFF, "u32")
