"""Conversions of values in LLVM IR: between element types, and to and from memory."""

from __future__ import annotations

import llvmlite.ir as ll
import numpy as np

from rlx_py.backends.llvm.scalars import I8, I32, lanes_of, like, scalar_type
from rlx_py.ir.base.errors import BackendError
from rlx_py.ir.base.types import DType


def _shaped(value: ll.Value, element: ll.Type) -> ll.Type:
    lanes = lanes_of(value)
    return ll.VectorType(element, lanes) if lanes else element


def cast(b: ll.IRBuilder, value: ll.Value, source: DType, target: DType) -> ll.Value:
    """The same number in another element type; float to integer truncates, saturates, NaN is 0."""
    if source is target:
        return value
    if 16 in (source.bits * source.is_float, target.bits * target.is_float):
        raise BackendError(f"cast {source} to {target} must be expanded before code generation")
    result = _shaped(value, scalar_type(target))
    if target.kind == "bool":
        if source.is_float:
            return b.fcmp_unordered("!=", value, like(value, 0.0))
        return b.icmp_signed("!=", value, like(value, 0))
    if source.is_float and target.is_float:
        return b.fptrunc(value, result) if target.bits < source.bits else b.fpext(value, result)
    if source.is_float:
        return _float_to_int(b, value, target, result)
    if target.is_float:
        return b.sitofp(value, result) if source.kind == "int" else b.uitofp(value, result)
    if target.bits < source.bits:
        return b.trunc(value, result)
    if target.bits == source.bits:
        return value
    return b.sext(value, result) if source.kind == "int" else b.zext(value, result)


def _float_to_int(b: ll.IRBuilder, x: ll.Value, target: DType, result: ll.Type) -> ll.Value:
    """Truncate and saturate; NaN is 0. LLVM's own saturating conversion leaves vectors on x86."""
    low, high = int(np.iinfo(target.numpy).min), int(np.iinfo(target.numpy).max)
    bottom, beyond = like(x, float(low)), like(x, float(high // 2 + 1) * 2)
    is_low, is_high = b.fcmp_ordered("<", x, bottom), b.fcmp_ordered(">=", x, beyond)
    is_inside = b.and_(b.fcmp_ordered(">=", x, bottom), b.fcmp_ordered("<", x, beyond))
    inside = b.select(is_inside, x, like(x, 0.0))
    if target.bits < 32:
        whole = b.trunc(b.fptosi(inside, _shaped(x, I32)), result)
    else:
        whole = (b.fptosi if target.kind == "int" else b.fptoui)(inside, result)
    whole = b.select(is_low, like(whole, low), whole)
    return b.select(is_high, like(whole, high), whole)


def bitcast(b: ll.IRBuilder, value: ll.Value, source: DType, target: DType) -> ll.Value:
    """The same bits under another element type of the same width."""
    if source.bits != target.bits:
        raise BackendError(f"bitcast {source} to {target}: the widths differ")
    result = _shaped(value, scalar_type(target))
    return value if result == value.type else b.bitcast(value, result)


def to_memory(b: ll.IRBuilder, value: ll.Value, dtype: DType) -> ll.Value:
    """A value as it is stored."""
    return b.zext(value, _shaped(value, I8)) if dtype.kind == "bool" else value


def from_memory(b: ll.IRBuilder, value: ll.Value, dtype: DType) -> ll.Value:
    """A value from what was loaded."""
    return b.icmp_unsigned("!=", value, like(value, 0)) if dtype.kind == "bool" else value
