"""What every approximation is made of: float formats, Horner's rule and unevaluated sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeVar

from rlx_py.passes.loops.math.scalars import Scalars

T = TypeVar("T")
Pair = tuple[T, T]
"""(high, low): the unevaluated sum high + low, |low| about half an ulp of high or less."""


@dataclass(frozen=True)
class Format:
    """An IEEE binary format and the integer of its width."""

    dtype: str
    integer: str
    mantissa: int
    bias: int

    @property
    def width(self) -> int:
        """Bits in all."""
        return self.mantissa + self.bias.bit_length() + 2

    @property
    def smallest_normal(self) -> float:
        """The least positive normal number."""
        return 2.0 ** (1 - self.bias)


FORMATS = {"f32": Format("f32", "i32", 23, 127), "f64": Format("f64", "i64", 52, 1023)}


def polynomial(s: Scalars[T], x: T, coefficients: Sequence[float], dtype: str) -> T:
    """Σ c_k x^k by Horner's rule, one fma a degree."""
    total = s.const(coefficients[-1], dtype)
    for c in reversed(coefficients[:-1]):
        total = s.fma(total, x, s.const(c, dtype))
    return total


def exact_pair(value: Fraction) -> Pair[float]:
    """A rational number as high + low in f64."""
    high = float(value)
    return high, float(value - Fraction(high))


def fast_two_sum(s: Scalars[T], a: T, b: T) -> Pair[T]:
    """a + b exactly, for |a| >= |b| or a = 0."""
    high = s.add(a, b)
    return high, s.sub(b, s.sub(high, a))


def two_sum(s: Scalars[T], a: T, b: T) -> Pair[T]:
    """a + b exactly (Knuth)."""
    high = s.add(a, b)
    v = s.sub(high, a)
    return high, s.add(s.sub(a, s.sub(high, v)), s.sub(b, v))


def two_product(s: Scalars[T], a: T, b: T) -> Pair[T]:
    """a b exactly, barring underflow."""
    high = s.mul(a, b)
    return high, s.fma(a, b, s.neg(high))


def pair_add(s: Scalars[T], a: Pair[T], b: Pair[T]) -> Pair[T]:
    """a + b to about twice the precision, when it does not cancel."""
    high, low = two_sum(s, a[0], b[0])
    return fast_two_sum(s, high, s.add(low, s.add(a[1], b[1])))


def pair_multiply(s: Scalars[T], a: Pair[T], b: Pair[T]) -> Pair[T]:
    """a b to about twice the precision."""
    high, low = two_product(s, a[0], b[0])
    return fast_two_sum(s, high, s.fma(a[0], b[1], s.fma(a[1], b[0], low)))


def pair_divide(s: Scalars[T], a: Pair[T], b: Pair[T]) -> Pair[T]:
    """a / b to about twice the precision."""
    high = s.div(a[0], b[0])
    rest = s.fma(s.neg(high), b[1], s.add(s.fma(s.neg(high), b[0], a[0]), a[1]))
    return fast_two_sum(s, high, s.div(rest, b[0]))


def pair_select(s: Scalars[T], condition: T, a: Pair[T], b: Pair[T]) -> Pair[T]:
    """a where the condition holds, else b."""
    return s.select(condition, a[0], b[0]), s.select(condition, a[1], b[1])


def power_of_two(s: Scalars[T], exponent: T, form: Format) -> T:
    """2^exponent for an integer of the format's width, the result normal."""
    biased = s.add(exponent, s.const(form.bias, form.integer))
    return s.bitcast(s.shl(biased, s.const(form.mantissa, form.integer)), form.dtype)


def flip_sign(s: Scalars[T], x: T, sign: T, form: Format) -> T:
    """x with its sign changed where the integer `sign` has its top bit set (other bits ignored)."""
    top = s.bit_and(sign, s.const(-1 << (form.width - 1), form.integer))
    return s.bitcast(s.bit_xor(s.bitcast(x, form.integer), top), form.dtype)
