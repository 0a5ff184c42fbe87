"""Counts of a program: arithmetic and traffic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod

from rlx_py.ir.loops.copying import walk
from rlx_py.ir.loops.index import Index, Var, substitute
from rlx_py.ir.loops.kernel import (
    Apply,
    Buffer,
    Const,
    Contract,
    For,
    If,
    IndexValue,
    Let,
    Load,
    Read,
    Scope,
    Set,
    Stmt,
    Store,
    Tile,
    Value,
)
from rlx_py.ir.loops.local import Local
from rlx_py.ir.loops.program import Program, times


def flops(program: Program) -> int:
    """Scalar arithmetic of one run; a multiply-add of a product counts two.

    What stands under a condition counts where that holds, or always if it depends on data; a loop
    counts the steps it may take, or one where nothing bounds it.
    """
    return sum(n * _flops(k.body, {}) for k, n in zip(program.kernels, times(program), strict=True))


def _flops(body: Iterable[Stmt], at: Mapping[Var, Index]) -> int:
    total = 0
    known: dict[Local, int] = {}
    for s in body:
        if isinstance(s, Let):
            _learn(known, s, at)
        if isinstance(s, For):
            if _asks_place(s.body):
                total += sum(_flops(s.body, {**at, s.var: Index(i)}) for i in range(s.var.extent))
            else:
                total += s.var.extent * _flops(s.body, at)
        elif isinstance(s, If):
            total += _flops(s.body, at) if _number(known, s.condition) != 0 else 0
        elif isinstance(s, Tile):
            total += 2 * s.rows * s.cols * s.depth
        elif isinstance(s, Contract):
            batch, m, n, k = (prod(v.extent for v in vars)
                              for vars in (s.batch, s.m, s.n, s.k))
            total += batch * (2 * m * n * k + m * k * _flops(s.a.body, at)
                              + k * n * _flops(s.b.body, at) + m * n * _flops(s.epilogue, at))
        elif (isinstance(s, Let) and isinstance(s.expr, Apply)) or (
                isinstance(s, Set) and s.combine):
            total += 1
    return total


def _asks_place(body: Iterable[Stmt]) -> bool:
    """Whether there is a condition that loop variables alone decide."""
    placed: set[Local] = set()
    for s in walk(body):
        if isinstance(s, If) and isinstance(s.condition, Read) and s.condition.local in placed:
            return True
        if isinstance(s, Let) and (isinstance(s.expr, IndexValue) or (
                isinstance(s.expr, Apply) and all(
                    isinstance(a, Const) or a.local in placed for a in s.expr.args))):
            placed.add(s.local)
    return False


def _learn(known: dict[Local, int], s: Let, at: Mapping[Var, Index]) -> None:
    """A local's value where loop variables give it: an index, or a comparison of two."""
    if isinstance(s.expr, IndexValue):
        index = substitute(s.expr.index, at)
        if not index.terms:
            known[s.local] = index.const
    elif isinstance(s.expr, Apply) and s.expr.op in ("lt", "eq"):
        a, b = (_number(known, x) for x in s.expr.args)
        if a is not None and b is not None:
            known[s.local] = a < b if s.expr.op == "lt" else a == b


def _number(known: Mapping[Local, int], value: Value) -> int | None:
    if not isinstance(value, Const):
        return known.get(value.local)
    return None if value.dtype.is_float else int(value.value)


def bytes_moved(program: Program) -> int:
    """Bytes of the buffers each kernel reads and writes, every buffer once a kernel."""
    total = 0
    for kernel, runs in zip(program.kernels, times(program), strict=True):
        seen: set[Buffer] = set()
        for s in walk(kernel.body):
            if isinstance(s, Store):
                seen.add(s.buffer)
            elif isinstance(s, Let) and isinstance(s.expr, Load):
                seen.add(s.expr.buffer)
            elif isinstance(s, Tile):
                seen.update((s.a.buffer, s.b.buffer, s.out.buffer))
        total += runs * sum(b.nbytes for b in seen if b.scope is not Scope.TILE)
    return total
