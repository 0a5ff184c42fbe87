"""What a kernel reads and writes, and whether it writes all of a buffer, or one in another's place.

For the checker of memory plans. Where it can't be told, the answer is no.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from rlx_py.ir.loops.index import Dynamic, Index, Quotient, Remainder, Var, linear
from rlx_py.ir.loops.kernel import (
    Buffer,
    Call,
    For,
    If,
    Let,
    Load,
    Stmt,
    Store,
    Tile,
    children,
)

MOST = 1 << 22  # positions that are written out to see whether they are all
Array = np.ndarray[Any, Any]


Path = tuple[tuple[int, Stmt], ...]  # statements around, each with a number of its own


@dataclass(frozen=True)
class Access:
    """What a statement does to a buffer; index None: anywhere. always: under no guard."""

    buffer: Buffer
    index: Index | None
    path: Path
    read: bool
    write: bool
    always: bool = True


class Accesses:
    """The buffers of a body; `exposed` are those that it reads before it writes to them, in the
    order of the text, and `lent` those of them that a routine is handed first: it may read them, or
    take them for memory to work in."""

    def __init__(self, body: Sequence[Stmt]) -> None:
        reads: dict[Buffer, None] = {}
        writes: dict[Buffer, None] = {}
        exposed: dict[Buffer, bool] = {}
        for a in _all_accesses(body):
            if a.read:
                reads[a.buffer] = None
                if a.buffer not in writes:
                    exposed.setdefault(a.buffer, a.write and a.index is None)
            if a.write:
                writes[a.buffer] = None
        self.reads, self.writes, self.exposed = tuple(reads), tuple(writes), tuple(exposed)
        self.lent = tuple(b for b, by_routine in exposed.items() if by_routine)


def _all_accesses(body: Sequence[Stmt]) -> Iterator[Access]:
    """Every access in the order of the text."""
    stack: list[tuple[Stmt, Path]] = [(s, ()) for s in reversed(body)]
    number = 0
    while stack:
        s, path = stack.pop()
        yield from _accesses(s, path)
        number += 1
        inside = (*path, (number, s))
        for inner in reversed(children(s)):
            stack.extend((t, inside) for t in reversed(inner))


def _accesses(s: Stmt, path: Path) -> Iterator[Access]:
    """What a statement itself does, reads first."""
    if isinstance(s, Let):
        if isinstance(s.expr, Load):
            yield Access(s.expr.buffer, s.expr.index, path, True, False, s.expr.guard is None)
    elif isinstance(s, Store):
        yield Access(s.buffer, s.index, path, s.combine is not None, True, s.guard is None)
    elif isinstance(s, Tile):
        for m in (s.a, s.b):
            yield Access(m.buffer, None, path, True, False)
        rows, cols = Var("row", s.rows), Var("col", s.cols)
        place = linear(s.out.start.const, (*s.out.start.terms, (rows, s.out.row),
                                           (cols, s.out.col)))
        yield Access(s.out.buffer, place, path, s.accumulate, True)
    elif isinstance(s, Call):
        for a in s.args:
            if isinstance(a, Buffer):
                yield Access(a, None, path, True, True)


def fills(body: Sequence[Stmt], buffer: Buffer) -> bool:
    """Whether a kernel writes every element of a buffer."""
    seen = np.zeros(buffer.size, bool)
    for a in _all_accesses(body):
        if a.buffer is buffer and a.write and a.always and a.index is not None and all(
                isinstance(s, For) and s.var.extent for _, s in a.path):
            places = _positions(a.index)
            if places is not None:
                seen[places] = True
    return bool(seen.all())


def _positions(index: Index) -> Array | slice | None:
    """The elements that an index takes; None where they are not known or too many."""
    row = _run(index)
    if row is not None:
        return row
    variables = sorted(index.variables(), key=lambda v: v.serial)
    if prod(v.extent for v in variables) > MOST:
        return None
    grid = {v: np.arange(v.extent).reshape([-1 if u is v else 1 for u in variables])
            for v in variables}
    return _values(index, grid)


def _run(index: Index) -> slice | None:
    """The elements where they are plainly one run: each coefficient what those before span."""
    span = 1
    for atom, coefficient in sorted(index.terms, key=lambda t: t[1]):
        if not isinstance(atom, Var) or coefficient != span:
            return None
        span *= atom.extent
    return slice(index.const, index.const + span)


def _values(index: Index, grid: Mapping[Var, Array]) -> Array | None:
    total = np.full((1,) * len(grid), index.const)
    for atom, coefficient in index.terms:
        if isinstance(atom, Dynamic):
            return None
        value = grid[atom] if isinstance(atom, Var) else _values(atom.of, grid)
        if value is None:
            return None
        if isinstance(atom, Quotient):
            value = value // atom.by
        elif isinstance(atom, Remainder):
            value = value % atom.by
        total = total + coefficient * value
    return total


def replaces(body: Sequence[Stmt], old: Buffer, new: Buffer) -> bool:
    """Whether a kernel reads each element of `old` before it writes that of `new`, in the only
    iteration that touches either, so that both may be the same memory."""
    if old.dtype.itemsize != new.dtype.itemsize:
        return False
    found = [a for a in _all_accesses(body) if a.buffer in (old, new)]
    place = {(a.index, tuple(number for number, _ in a.path)) for a in found}
    index = found[0].index
    if len(place) != 1 or index is None:
        return False
    written = False
    for a in found:
        if a.read and (a.write or written is (a.buffer is old)):
            return False
        if a.write:
            if a.buffer is old:
                return False
            written = True
    return all(isinstance(s, For | If) for _, s in found[0].path) and _once(
        index, [s.var for _, s in found[0].path if isinstance(s, For)])


def _once(index: Index, loops: Sequence[Var]) -> bool:
    """Whether each setting of the loop variables has an element of its own."""
    moving = [v for v in loops if v.extent > 1]
    if not index.variables().issuperset(moving):
        return False
    span = 1
    for atom, coefficient in sorted(index.terms, key=lambda t: abs(t[1])):
        if not isinstance(atom, Var) or abs(coefficient) < span:
            break
        span += (atom.extent - 1) * abs(coefficient)
    else:
        return True
    places = _positions(index)
    return isinstance(places, np.ndarray) and len(np.unique(places)) == prod(
        v.extent for v in index.variables())
