"""Integers that compare as the elements of a line do, for sorting."""

from __future__ import annotations

from rlx_py.ir.base.types import DType, bool_, i32, i64, u32
from rlx_py.ir.graph.stored import Emitter
from rlx_py.ir.loops.kernel import Bitcast, Cast, Expr, Value
from rlx_py.ir.ops.making.guards import apply, choose, converted, scalar, settle


def key_type(dtype: DType) -> DType:
    """Keys of 64-bit types are i64 in signed order, of others u32 in unsigned order."""
    return i64 if dtype.bits == 64 else u32


def sort_key(emit: Emitter, value: Value, descending: bool) -> Value:
    """An integer that compares as the value does."""
    wanted = key_type(value.dtype)
    if value.dtype.is_float:
        key = _float_key(converted(emit, value, value.dtype.compute), wanted)
    elif wanted is u32 and value.dtype.kind == "int":
        wide = Bitcast(converted(emit, value, i32), u32)
        key = apply("xor", u32, wide, scalar(1 << 31, u32))
    else:
        key = Cast(value, wanted) if value.dtype is not wanted else value
    return settle(emit, apply("not", wanted, key) if descending else key)


def _float_key(x: Value, wanted: DType) -> Expr:
    """The bits in the order of the numbers: those of negative ones turned round."""
    bits = Bitcast(x, wanted)
    if wanted is i64:
        negative = apply("lt", bool_, bits, scalar(0, i64))
        turned = apply("xor", i64, bits, scalar(2**63 - 1, i64))
        key, zero, last = choose(negative, turned, bits, i64), 0, 2**63 - 1
    else:
        negative = apply("ge", bool_, bits, scalar(1 << 31, u32))
        positive = apply("xor", u32, bits, scalar(1 << 31, u32))
        key = choose(negative, apply("not", u32, bits), positive, u32)
        zero, last = 1 << 31, 2**32 - 1
    is_zero = apply("eq", bool_, x, scalar(0, x.dtype))
    is_nan = apply("ne", bool_, x, x)
    key = choose(is_zero, scalar(zero, wanted), key, wanted)
    return choose(is_nan, scalar(last, wanted), key, wanted)
