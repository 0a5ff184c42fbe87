"""Straight-line scalar code as statements of the loop language."""

from __future__ import annotations

import numpy as np

from rlx_py.ir.base.types import DTYPES, bool_, u16
from rlx_py.ir.loops.kernel import Apply, Bitcast, Cast, Const, Expr, Let, Read, Stmt, Value
from rlx_py.ir.loops.local import Local

_DTYPES = {**DTYPES, "u16": u16}


class Recorder:
    """A `Scalars` builder whose operations become Let statements, appended to `body`."""

    def __init__(self, body: list[Stmt]) -> None:
        self.body = body

    def let(self, expr: Expr) -> Value:
        """A new local with the value of an expression."""
        if isinstance(expr, Const | Read):
            return expr
        local = Local(expr.dtype)
        self.body.append(Let(local, expr))
        return Read(local)

    @property
    def lets(self) -> tuple[Let, ...]:
        """What was recorded, of which every statement is a Let."""
        return tuple(s for s in self.body if isinstance(s, Let))

    def _like(self, op: str, *args: Value) -> Value:
        return self.let(Apply(op, args, args[-1].dtype))

    def _test(self, op: str, *args: Value) -> Value:
        return self.let(Apply(op, args, bool_))

    def const(self, value: float | int | bool, dtype: str, /) -> Value:
        """A constant of the dtype, rounded to nearest; integers wrap."""
        kind = _DTYPES[dtype]
        if kind.is_int:
            value = int(value) & ((1 << kind.bits) - 1)
            unsigned = np.dtype(f"u{kind.itemsize}")
            return Const(np.asarray(value, unsigned).view(kind.numpy)[()], kind)
        with np.errstate(all="ignore"):
            return Const(np.asarray(value).astype(kind.numpy)[()], kind)

    def add(self, a: Value, b: Value, /) -> Value:
        """a + b."""
        return self._like("add", a, b)

    def sub(self, a: Value, b: Value, /) -> Value:
        """a − b."""
        return self._like("sub", a, b)

    def mul(self, a: Value, b: Value, /) -> Value:
        """a b."""
        return self._like("mul", a, b)

    def div(self, a: Value, b: Value, /) -> Value:
        """a / b."""
        return self._like("div", a, b)

    def neg(self, a: Value, /) -> Value:
        """−a."""
        return self._like("neg", a)

    def fma(self, a: Value, b: Value, c: Value, /) -> Value:
        """a b + c, rounded once."""
        return self._like("fma", a, b, c)

    def sqrt(self, a: Value, /) -> Value:
        """The square root."""
        return self._like("sqrt", a)

    def abs(self, a: Value, /) -> Value:
        """|a|."""
        return self._like("abs", a)

    def floor(self, a: Value, /) -> Value:
        """The largest integral value not above a."""
        return self._like("floor", a)

    def round(self, a: Value, /) -> Value:
        """The nearest integral value, ties to even."""
        return self._like("round", a)

    def trunc(self, a: Value, /) -> Value:
        """The integral part."""
        return self._like("trunc", a)

    def min(self, a: Value, b: Value, /) -> Value:
        """a if a < b else b: one instruction, where the IEEE minimum takes several."""
        return self.select(self.lt(a, b), a, b)

    def max(self, a: Value, b: Value, /) -> Value:
        """a if a > b else b."""
        return self.select(self.gt(a, b), a, b)

    def copysign(self, a: Value, b: Value, /) -> Value:
        """|a| with the sign of b."""
        return self._like("copysign", a, b)

    def eq(self, a: Value, b: Value, /) -> Value:
        """a = b."""
        return self._test("eq", a, b)

    def ne(self, a: Value, b: Value, /) -> Value:
        """a ≠ b."""
        return self._test("ne", a, b)

    def lt(self, a: Value, b: Value, /) -> Value:
        """a < b."""
        return self._test("lt", a, b)

    def le(self, a: Value, b: Value, /) -> Value:
        """a ≤ b."""
        return self._test("le", a, b)

    def gt(self, a: Value, b: Value, /) -> Value:
        """a > b."""
        return self._test("gt", a, b)

    def ge(self, a: Value, b: Value, /) -> Value:
        """a ≥ b."""
        return self._test("ge", a, b)

    def and_(self, a: Value, b: Value, /) -> Value:
        """Both."""
        return self._test("and", a, b)

    def or_(self, a: Value, b: Value, /) -> Value:
        """Either."""
        return self._test("or", a, b)

    def not_(self, a: Value, /) -> Value:
        """The contrary."""
        return self._test("not", a)

    def select(self, condition: Value, a: Value, b: Value, /) -> Value:
        """a where the condition holds, else b."""
        return self._like("select", condition, a, b)

    def cast(self, a: Value, dtype: str, /) -> Value:
        """The same value in another dtype."""
        return self.let(Cast(a, _DTYPES[dtype]))

    def bitcast(self, a: Value, dtype: str, /) -> Value:
        """The same bits in another dtype of the same width."""
        return self.let(Bitcast(a, _DTYPES[dtype]))

    def bit_and(self, a: Value, b: Value, /) -> Value:
        """Bitwise and."""
        return self._like("and", a, b)

    def bit_or(self, a: Value, b: Value, /) -> Value:
        """Bitwise or."""
        return self._like("or", a, b)

    def bit_xor(self, a: Value, b: Value, /) -> Value:
        """Bitwise exclusive or."""
        return self._like("xor", a, b)

    def shl(self, a: Value, b: Value, /) -> Value:
        """a << b."""
        return self._like("shl", a, b)

    def shr(self, a: Value, b: Value, /) -> Value:
        """a >> b filling with zeros."""
        return self._like("lshr", a, b)

    def sar(self, a: Value, b: Value, /) -> Value:
        """a >> b filling with the sign bit."""
        return self._like("shr", a, b)
