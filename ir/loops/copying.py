"""Copies of loop bodies with loop variables replaced and locals renamed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from rlx_py.ir.loops.index import Index, Var, substitute
from rlx_py.ir.loops.kernel import (
    Alloc,
    Apply,
    Bitcast,
    Buffer,
    Call,
    Cast,
    Contract,
    Expr,
    For,
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
    Strided,
    Tile,
    Value,
    While,
    children,
)
from rlx_py.ir.loops.local import Local


class Copier:
    """Copies bodies under one binding of loop variables and one renaming of locals.

    Locals that a copied body declares get fresh names; others keep theirs unless `locals` says
    more.
    """

    def __init__(self, binding: Mapping[Var, Index],
                 locals: Mapping[Local, Local | Value] | None = None) -> None:
        self.binding = binding
        self.values: dict[Local, Value] = {}
        self.locals: dict[Local, Local] = {}
        for old, new in (locals or {}).items():
            self.values[old] = Read(new) if isinstance(new, Local) else new
            if isinstance(new, Local):
                self.locals[old] = new

    def body(self, body: Iterable[Stmt]) -> tuple[Stmt, ...]:
        """A copy of statements."""
        body = tuple(body)
        for local in declared(body):
            if local not in self.locals:
                self.locals[local] = Local(local.dtype)
                self.values[local] = Read(self.locals[local])
        return self._body(body)

    def _body(self, body: Iterable[Stmt]) -> tuple[Stmt, ...]:
        return tuple(map(self.stmt, body))

    def index(self, index: Index) -> Index:
        """An index under the binding."""
        return substitute(index, self.binding, self.locals)

    def value(self, value: Value) -> Value:
        """A renamed value."""
        return self.values.get(value.local, value) if isinstance(value, Read) else value

    def _guard(self, value: Value | None) -> Value | None:
        return None if value is None else self.value(value)

    def _renamed(self, local: Local) -> Local:
        return self.locals.get(local, local)

    def expr(self, e: Expr) -> Expr:
        """A copied expression."""
        if isinstance(e, Load):
            return Load(e.buffer, self.index(e.index), self._guard(e.guard))
        if isinstance(e, Apply):
            return Apply(e.op, tuple(map(self.value, e.args)), e.dtype, e.attrs)
        if isinstance(e, Invoke):
            return Invoke(e.function, tuple(map(self.value, e.args)))
        if isinstance(e, Cast | Bitcast):
            return type(e)(self.value(e.arg), e.dtype)
        if isinstance(e, IndexValue):
            return IndexValue(self.index(e.index), e.dtype)
        return self.value(e)

    def _strided(self, s: Strided) -> Strided:
        return replace(s, start=self.index(s.start))

    def stmt(self, s: Stmt) -> Stmt:
        """A copied statement."""
        match s:
            case Let(local, expr):
                copied = self.expr(expr)
                return Let(self._renamed(local), copied)
            case Set(local, value, combine):
                copied_value = self.value(value)
                return Set(self._renamed(local), copied_value, combine)
            case Store(buffer, index, value, combine, guard):
                return Store(buffer, self.index(index), self.value(value), combine,
                             self._guard(guard))
            case For(var, inner, axis):
                fresh = Var(var.name, var.extent)
                nested = Copier({**self.binding, var: Index(0, ((fresh, 1),))})
                nested.values, nested.locals = self.values, self.locals
                return For(fresh, nested._body(inner), axis)
            case While(condition, inner, bound):
                return While(self._renamed(condition), self._body(inner), bound)
            case If(condition, inner):
                return If(self.value(condition), self._body(inner))
            case Contract():
                return replace(
                    s, a=Operand(self._body(s.a.body), self.value(s.a.value)),
                    b=Operand(self._body(s.b.body), self.value(s.b.value)),
                    epilogue=self._body(s.epilogue))
            case Tile():
                return replace(s, a=self._strided(s.a), b=self._strided(s.b),
                               out=self._strided(s.out))
            case _:
                return s


def with_buffers(body: Iterable[Stmt], buffers: Mapping[Buffer, Buffer]) -> tuple[Stmt, ...]:
    """The same statements on other memory; variables and locals stay."""

    def strided(s: Strided) -> Strided:
        return replace(s, buffer=buffers.get(s.buffer, s.buffer))

    def change(s: Stmt) -> tuple[Stmt]:
        match s:
            case Let(local, Load(buffer, index, guard)) if buffer in buffers:
                return (Let(local, Load(buffers[buffer], index, guard)),)
            case Store(buffer) | Alloc(buffer) if buffer in buffers:
                return (replace(s, buffer=buffers[buffer]),)
            case Tile():
                return (replace(s, a=strided(s.a), b=strided(s.b), out=strided(s.out)),)
            case Call():
                args = tuple(buffers.get(a, a) if isinstance(a, Buffer) else a for a in s.args)
                return (replace(s, args=args),)
        return (s,)

    return mapped(body, change)


def declared(body: Iterable[Stmt]) -> set[Local]:
    """The locals a body declares: by Let, or by a plain Set before anything reads them."""
    inside: set[Local] = set()
    outside: set[Local] = set()
    for s in walk(body):
        outside.update(r for r in reads(s) if r not in inside)
        if isinstance(s, Let):
            inside.add(s.local)
        elif isinstance(s, Set) and s.local not in outside | inside:
            (outside if s.combine else inside).add(s.local)
    return inside - outside


def copied(body: Iterable[Stmt], binding: Mapping[Var, Index],
           locals: Mapping[Local, Local | Value] | None = None) -> tuple[Stmt, ...]:
    """A copy of a body with loop variables replaced and its own locals renamed."""
    return Copier(binding, locals).body(body)


def walk(body: Iterable[Stmt]) -> Iterator[Stmt]:
    """Every statement inside, outermost first."""
    stack = list(body)[::-1]
    while stack:
        s = stack.pop()
        yield s
        for inner in reversed(children(s)):
            stack.extend(reversed(inner))


def mapped(body: Iterable[Stmt], change: Callable[[Stmt], Iterable[Stmt]]) -> tuple[Stmt, ...]:
    """A body with each statement, innermost first, replaced by any number of others."""
    found: list[Stmt] = []
    for s in body:
        if isinstance(s, For | While | If):
            s = replace(s, body=mapped(s.body, change))
        found.extend(change(s))
    return tuple(found)


def indices(s: Stmt) -> list[Index]:
    """The indices a statement itself uses."""
    if isinstance(s, Store):
        return [s.index]
    if isinstance(s, Let) and isinstance(s.expr, Load | IndexValue):
        return [s.expr.index]
    if isinstance(s, Tile):
        return [s.a.start, s.b.start, s.out.start]
    return []


def reads(s: Stmt) -> list[Local]:
    """The locals a statement itself reads as values (those inside indices excepted)."""
    values: list[Value | None] = []
    if isinstance(s, Let):
        e = s.expr
        if isinstance(e, Apply | Invoke):
            values += e.args
        elif isinstance(e, Cast | Bitcast):
            values.append(e.arg)
        elif isinstance(e, Load):
            values.append(e.guard)
        elif isinstance(e, Read):
            values.append(e)
    elif isinstance(s, Set):
        values.append(s.value)
    elif isinstance(s, Store):
        values += [s.value, s.guard]
    elif isinstance(s, If):
        values.append(s.condition)
    return [v.local for v in values if isinstance(v, Read)]
