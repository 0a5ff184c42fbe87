"""The scalar operations that an approximation is written in, and their NumPy meaning.

A value carries its own dtype: "f32", "f64", "i32", "i64", "u32", "u16" or "bool". All operands
of an operation have one dtype; `cast` and `bitcast` are the only ways from one to another.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np

T = TypeVar("T")


class Scalars(Protocol[T]):
    """Straight-line scalar code: every method makes one value out of others."""

    def const(self, value: float | int | bool, dtype: str, /) -> T:
        """A constant of the dtype, rounded to nearest."""

    def add(self, a: T, b: T, /) -> T:
        """a + b (integers wrap)."""

    def sub(self, a: T, b: T, /) -> T:
        """a - b (integers wrap)."""

    def mul(self, a: T, b: T, /) -> T:
        """a b (integers wrap)."""

    def div(self, a: T, b: T, /) -> T:
        """a / b, floats only."""

    def neg(self, a: T, /) -> T:
        """-a, floats only: flips the sign bit."""

    def fma(self, a: T, b: T, c: T, /) -> T:
        """a b + c rounded once."""

    def sqrt(self, a: T, /) -> T:
        """The square root, correctly rounded."""

    def abs(self, a: T, /) -> T:
        """|a|, floats only: clears the sign bit."""

    def floor(self, a: T, /) -> T:
        """The largest integral value not above a."""

    def round(self, a: T, /) -> T:
        """The nearest integral value, ties to even."""

    def trunc(self, a: T, /) -> T:
        """The integral part."""

    def min(self, a: T, b: T, /) -> T:
        """`a if a < b else b`: a NaN in b is passed on (approximations rely on that alone)."""

    def max(self, a: T, b: T, /) -> T:
        """`a if a > b else b`: a NaN in b is passed on (approximations rely on that alone)."""

    def copysign(self, a: T, b: T, /) -> T:
        """|a| with the sign bit of b."""

    def eq(self, a: T, b: T, /) -> T:
        """a = b; False for a NaN."""

    def ne(self, a: T, b: T, /) -> T:
        """a ≠ b; True for a NaN."""

    def lt(self, a: T, b: T, /) -> T:
        """a < b; False for a NaN."""

    def le(self, a: T, b: T, /) -> T:
        """a ≤ b; False for a NaN."""

    def gt(self, a: T, b: T, /) -> T:
        """a > b; False for a NaN."""

    def ge(self, a: T, b: T, /) -> T:
        """a ≥ b; False for a NaN."""

    def and_(self, a: T, b: T, /) -> T:
        """Logical and of booleans."""

    def or_(self, a: T, b: T, /) -> T:
        """Logical or of booleans."""

    def not_(self, a: T, /) -> T:
        """Logical not of a boolean."""

    def select(self, condition: T, a: T, b: T, /) -> T:
        """a where the condition holds, else b."""

    def cast(self, a: T, dtype: str, /) -> T:
        """The same value in another dtype; a float out of an integer's range gives any value."""

    def bitcast(self, a: T, dtype: str, /) -> T:
        """The same bits in another dtype of the same width."""

    def bit_and(self, a: T, b: T, /) -> T:
        """Bitwise and of integers."""

    def bit_or(self, a: T, b: T, /) -> T:
        """Bitwise or of integers."""

    def bit_xor(self, a: T, b: T, /) -> T:
        """Bitwise exclusive or of integers."""

    def shl(self, a: T, b: T, /) -> T:
        """a << b, 0 ≤ b < width."""

    def shr(self, a: T, b: T, /) -> T:
        """a >> b filling with zeros, 0 ≤ b < width."""

    def sar(self, a: T, b: T, /) -> T:
        """a >> b filling with the sign bit, 0 ≤ b < width."""


Array: TypeAlias = Any
"""A NumPy array or scalar: NumPy's own stubs give `Any` for most mixed expressions."""

NUMPY_DTYPES: dict[str, Any] = {
    "f32": np.float32,
    "f64": np.float64,
    "i32": np.int32,
    "i64": np.int64,
    "u32": np.uint32,
    "u16": np.uint16,
    "bool": np.bool_,
}
UNSIGNED = {np.dtype(np.int32): np.uint32, np.dtype(np.int64): np.uint64}


def two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """(s, e) with s = a + b rounded and s + e = a + b exactly."""
    s = a + b
    v = s - a
    return s, (a - (s - v)) + (b - v)


def to_odd(value: Array, error: Array) -> Array:
    """Turn f64 `value`, nearest to value + error, into the neighbour with an odd last bit."""
    even = (value.view(np.int64) & 1) == 0
    inexact = np.isfinite(value) & (error != 0) & ~np.isnan(error)
    return np.where(even & inexact, np.nextafter(value, np.copysign(np.inf, error)), value)


def fma32(a: Array, b: Array, c: Array) -> Array:
    """a b + c rounded once to f32: the product is exact in f64, the sum is rounded to odd."""
    product = np.asarray(np.multiply(a, b, dtype=np.float64))
    total, error = two_sum(product, np.asarray(c, dtype=np.float64))
    return to_odd(np.asarray(total), error).astype(np.float32)


def split(a: Array) -> tuple[Array, Array]:
    """Two numbers of at most 26 bits with sum a."""
    scaled = a * 134217729.0
    high = scaled - (scaled - a)
    return high, a - high


def fma64(a: Array, b: Array, c: Array) -> Array:
    """a b + c rounded once to f64 (results below the normal range may be rounded twice)."""
    a, b, c = np.broadcast_arrays(
        np.asarray(a, np.float64), np.asarray(b, np.float64), np.asarray(c, np.float64)
    )
    (am, ae), (bm, be), (cm, ce) = np.frexp(a), np.frexp(b), np.frexp(c)
    exponent = ae + be
    c_scaled = np.ldexp(cm, np.clip(ce - exponent, -200, 200))
    product = am * bm
    (ah, al), (bh, bl) = split(am), split(bm)
    product_error = ((ah * bh - product) + ah * bl + al * bh) + al * bl
    u, u_error = two_sum(c_scaled, product_error)
    t, t_error = two_sum(product, u)
    result = np.ldexp(t + to_odd(*two_sum(t_error, u_error)), exponent)
    result = np.where((ce - exponent > 200) & (c != 0), c, result)
    plain = ~np.isfinite(a) | ~np.isfinite(b) | ~np.isfinite(c) | (a == 0) | (b == 0)
    return np.where(plain, a * b + c, result)


def logical_shift(a: Array, b: Array) -> Array:
    """a >> b filling with zeros."""
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype not in UNSIGNED:
        return a >> b
    unsigned = UNSIGNED[a.dtype]
    return (a.view(unsigned) >> b.view(unsigned)).view(a.dtype)


class NumpyScalars:
    """`Scalars` on NumPy arrays, for tests. Wrap calls in `np.errstate(all="ignore")`."""

    add = staticmethod(np.add)
    sub = staticmethod(np.subtract)
    mul = staticmethod(np.multiply)
    div = staticmethod(np.divide)
    neg = staticmethod(np.negative)
    sqrt = staticmethod(np.sqrt)
    abs = staticmethod(np.abs)
    floor = staticmethod(np.floor)
    round = staticmethod(np.rint)
    trunc = staticmethod(np.trunc)
    copysign = staticmethod(np.copysign)
    eq = staticmethod(np.equal)
    ne = staticmethod(np.not_equal)
    lt = staticmethod(np.less)
    le = staticmethod(np.less_equal)
    gt = staticmethod(np.greater)
    ge = staticmethod(np.greater_equal)
    and_ = staticmethod(np.logical_and)
    or_ = staticmethod(np.logical_or)
    not_ = staticmethod(np.logical_not)
    bit_and = staticmethod(np.bitwise_and)
    bit_or = staticmethod(np.bitwise_or)
    bit_xor = staticmethod(np.bitwise_xor)
    shl = staticmethod(np.left_shift)
    sar = staticmethod(np.right_shift)
    shr = staticmethod(logical_shift)

    def const(self, value: float | int | bool, dtype: str) -> Array:
        """A NumPy scalar."""
        return NUMPY_DTYPES[dtype](value)

    def fma(self, a: Array, b: Array, c: Array) -> Array:
        """a b + c rounded once, which NumPy lacks."""
        return fma32(a, b, c) if np.asarray(a).dtype == np.float32 else fma64(a, b, c)

    def min(self, a: Array, b: Array) -> Array:
        """`a if a < b else b`."""
        return np.where(a < b, a, b)

    def max(self, a: Array, b: Array) -> Array:
        """`a if a > b else b`."""
        return np.where(a > b, a, b)

    def select(self, condition: Array, a: Array, b: Array) -> Array:
        """a where the condition holds, else b."""
        return np.where(condition, a, b)

    def cast(self, a: Array, dtype: str) -> Array:
        """The same value in another dtype."""
        return np.asarray(a).astype(NUMPY_DTYPES[dtype])

    def bitcast(self, a: Array, dtype: str) -> Array:
        """The same bits in another dtype."""
        return np.asarray(a).view(NUMPY_DTYPES[dtype])
