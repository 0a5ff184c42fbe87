"""Functions that no machine has become polynomials; f16 and bf16 become integers and f32.

Runs last before code generation. A value of a narrow type is held as an f32 that the narrow type
can represent: every operation computes in f32 and rounds once, so that bits do not depend on what
was stored and what was fused.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from rlx_py.ir.base.errors import DTypeError
from rlx_py.ir.base.types import DType, bf16, bool_, f16, f32, f64, u16
from rlx_py.ir.loops.kernel import (
    Apply,
    Bitcast,
    Cast,
    Const,
    Contract,
    Expr,
    For,
    Function,
    If,
    IndexValue,
    Invoke,
    Let,
    Load,
    Operand,
    Read,
    Set,
    Stmt,
    Store,
    Value,
    While,
)
from rlx_py.ir.loops.local import Local
from rlx_py.ir.loops.program import Program
from rlx_py.passes.loops.math import APPROXIMATIONS
from rlx_py.passes.loops.math.builder import Recorder
from rlx_py.passes.loops.math.low_precision import narrow, round_to, to_odd, widen

Attrs = tuple[tuple[str, Any], ...]
LARGE = 48  # statements from which a function is called, so that code stays small
COPIES = 1024  # statements of functions that a kernel holds before it calls them

# Results of these are representable where the operands are.
EXACT = frozenset(("neg", "abs", "min", "max", "select", "copysign", "floor", "ceil", "round",
                   "trunc", "sign"))


def expand_math(program: Program) -> Program:
    """The same program in operations that a machine has; bits of results stay as defined."""
    kernels = tuple(replace(k, body=_Expander().body(k.body)) for k in program.kernels)
    return replace(program, kernels=kernels)


@cache
def function_of(op: str, dtype: DType, attrs: Attrs, arity: int) -> Function:
    """The polynomial of a function, once for all that call it."""
    parameters = tuple(Local(dtype, "x") for _ in range(arity))
    record = Recorder([])
    result = APPROXIMATIONS[op](record, *map(Read, parameters), dtype.name, **dict(attrs))
    tail = "".join(f"_{value}" for _, value in attrs)
    return Function(f"{op}{tail}_{dtype}", parameters, record.lets, result)


def is_narrow(dtype: DType) -> bool:
    """Whether arithmetic on the type is done in f32."""
    return dtype is f16 or dtype is bf16


class _Expander:
    """The statements of one kernel, rewritten in order.

    A narrow local has an f32 form and a form as bits; either is made where it is first wanted and
    kept for the rest of that body and the bodies in it.
    """

    def __init__(self) -> None:
        self.record = Recorder([])
        self.wide: list[dict[Local, Value]] = [{}]
        self.bits: list[dict[Local, Value]] = [{}]
        self.accumulators: dict[Local, Local] = {}
        self.copied = 0  # statements of functions written out in this kernel

    def body(self, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        """The statements of a body of its own."""
        outer, self.record.body = self.record.body, []
        self.wide.append({})
        self.bits.append({})
        for s in body:
            self.statement(s)
        self.wide.pop()
        self.bits.pop()
        done, self.record.body = self.record.body, outer
        return tuple(done)

    def emit(self, s: Stmt) -> None:
        """Append a statement."""
        self.record.body.append(s)

    # ---- statements ----------------------------------------------------------------------------

    def statement(self, s: Stmt) -> None:
        """Append what a statement becomes."""
        match s:
            case Let():
                self.let(s)
            case Set():
                self.set(s)
            case Store():
                self.store(s)
            case For() | While() | If():
                self.emit(replace(s, body=self.body(s.body)))
            case Contract():
                self.contract(s)
            case _:
                self.emit(s)

    def let(self, s: Let) -> None:
        """A narrow local gets a form; any other its value."""
        if not is_narrow(s.local.dtype):
            self.emit(Let(s.local, self.plain(s.expr)))
            return
        form, value = self.narrow_value(s.expr)
        (self.wide if form is f32 else self.bits)[-1][s.local] = value

    def set(self, s: Set) -> None:
        """Accumulators of a narrow type are f32 and rounded where they are read."""
        if not is_narrow(s.local.dtype):
            self.emit(s)
            return
        held = self.accumulators.setdefault(s.local, Local(f32, "acc"))
        self.emit(Set(held, self.widened(s.value), s.combine))

    def store(self, s: Store) -> None:
        """Narrow values are stored as their bits, combined in f32."""
        if not is_narrow(s.buffer.dtype):
            self.emit(s)
            return
        value = s.value
        if s.combine is None:
            bits = self.as_bits(value)
        else:
            old = self.from_bits(self.record.let(Load(s.buffer, s.index, s.guard)))
            new = self.record.let(Apply(s.combine, (old, self.widened(value)), f32))
            bits = self.to_bits(new, s.buffer.dtype)
        self.emit(replace(s, value=bits, combine=None))

    def contract(self, s: Contract) -> None:
        """Operands in f32 or wider; the epilogue as any body."""
        if is_narrow(s.acc.dtype):
            raise DTypeError(f"a contract accumulates in f32, not {s.acc.dtype}")
        a, b = self.operand(s.a), self.operand(s.b)
        self.emit(replace(s, a=a, b=b, epilogue=self.body(s.epilogue)))

    def operand(self, operand: Operand) -> Operand:
        """An operand whose value is not narrow."""
        outer, self.record.body = self.record.body, []
        self.wide.append({})
        self.bits.append({})
        for s in operand.body:
            self.statement(s)
        value = self.widened(operand.value)
        self.wide.pop()
        self.bits.pop()
        done, self.record.body = self.record.body, outer
        return Operand(tuple(done), value)

    # ---- expressions ---------------------------------------------------------------------------

    def plain(self, expr: Expr) -> Expr:
        """An expression whose value is not narrow; its operands may be."""
        match expr:
            case Apply(op, args, _, attrs):
                wide = tuple(self.widened(a) for a in args)
                return self.function(op, wide, attrs) or replace(expr, args=wide)
            case Cast(arg) if is_narrow(arg.dtype):
                return Cast(self.widened(arg), expr.dtype)
            case Bitcast(arg) if is_narrow(arg.dtype):
                bits = Bitcast(self.as_bits(arg), u16)
                return Bitcast(self.record.let(bits), expr.dtype)
        return expr

    def function(self, op: str, args: tuple[Value, ...], attrs: Attrs) -> Value | None:
        """The polynomial of a function in f32 or f64; None for what machines have."""
        approximation = APPROXIMATIONS.get(op)
        if approximation is None:
            return None
        dtype = args[-1].dtype
        if dtype not in (f32, f64):
            raise DTypeError(f"{op} takes a float, not {dtype}")
        shared = function_of(op, dtype, attrs, len(args))
        self.copied += len(shared.body)
        if len(shared.body) > LARGE or self.copied > COPIES:
            return self.record.let(Invoke(shared, args))
        value: Value = approximation(self.record, *args, dtype.name, **dict(attrs))
        return value

    def narrow_value(self, expr: Expr) -> tuple[DType, Value]:
        """(f32, value) or (narrow, bits) of an expression of a narrow type."""
        dtype, s = expr.dtype, self.record
        match expr:
            case Const() | Read():
                return f32, self.widened(expr)
            case Load():
                return dtype, s.let(expr)
            case Bitcast(arg):
                bits = self.as_bits(arg) if is_narrow(arg.dtype) else arg
                return dtype, s.let(Bitcast(s.let(Bitcast(bits, u16)), dtype))
            case IndexValue():
                return f32, round_to(s, s.let(replace(expr, dtype=f32)), dtype.name)
            case Invoke(function):
                raise DTypeError(f"{function} computes in f32, not {dtype}")
            case Cast(arg):
                return f32, self.converted(arg, dtype)
            case Apply("select", (condition, a, b)) if self.has_bits(a) and self.has_bits(b):
                chosen = (condition, self.as_bits(a), self.as_bits(b))
                return dtype, s.let(Apply("select", chosen, dtype))
            case Apply(op, args, _, attrs):
                wide = tuple(self.widened(a) for a in args)
                value = self.function(op, wide, attrs) or s.let(Apply(op, wide, f32, attrs))
                return f32, value if op in EXACT else round_to(s, value, dtype.name)

    def converted(self, arg: Value, dtype: DType) -> Value:
        """A number as the nearest of a narrow type, held in f32."""
        s = self.record
        value = self.widened(arg)
        if value.dtype is f64:
            return round_to(s, to_odd(s, value), dtype.name)
        if value.dtype is not f32:
            value = s.let(Cast(value, f32))
        return value if arg.dtype in (dtype, bool_) else round_to(s, value, dtype.name)

    # ---- forms of narrow values ----------------------------------------------------------------

    def widened(self, value: Value) -> Value:
        """A narrow value as f32; any other as it is."""
        if not is_narrow(value.dtype):
            return value
        if isinstance(value, Const):
            return self.record.const(float(value.value), "f32")
        held = self.accumulators.get(value.local)
        if held is not None:
            return round_to(self.record, Read(held), value.dtype.name)
        known = _find(self.wide, value.local)
        if known is None:
            bits = _find(self.bits, value.local)
            assert bits is not None, f"{value} is read before it is set"
            known = self.wide[-1][value.local] = self.from_bits(bits)
        return known

    def has_bits(self, value: Value) -> bool:
        """Whether the bits of a narrow value are at hand."""
        return isinstance(value, Const) or _find(self.bits, value.local) is not None

    def as_bits(self, value: Value) -> Value:
        """A narrow value in its own type, which machines only move."""
        if isinstance(value, Const):
            return value
        known = _find(self.bits, value.local)
        if known is None:
            bits = self.to_bits(self.widened(value), value.dtype)
            if value.local in self.accumulators:
                return bits
            known = self.bits[-1][value.local] = bits
        return known

    def from_bits(self, bits: Value) -> Value:
        """The f32 of a narrow value."""
        return widen(self.record, self.record.bitcast(bits, "u16"), bits.dtype.name)

    def to_bits(self, value: Value, dtype: DType) -> Value:
        """The nearest narrow value of an f32."""
        return self.record.let(Bitcast(narrow(self.record, value, dtype.name), dtype))


def _find(scopes: list[dict[Local, Value]], local: Local) -> Value | None:
    for scope in reversed(scopes):
        if local in scope:
            return scope[local]
    return None
