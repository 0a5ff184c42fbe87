"""Column sums that stream: a block of columns is folded row by row, not each column on its own.

In lanes over columns around a loop over rows, every step goes down the whole matrix for one vector
of columns, with a cache line a row. Here a block of columns has its accumulators in a buffer that
stays in the first-level cache, and the loop over rows is outside. Each column folds its rows as it
would on its own, long ones in parts, so no bit changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby

from rlx_py.ir.loops.copying import Copier, indices, reads, walk
from rlx_py.ir.loops.index import Dynamic, Index, Var, as_index, atoms
from rlx_py.ir.loops.kernel import (
    Alloc,
    Axis,
    Buffer,
    Const,
    For,
    Let,
    Load,
    Read,
    Scope,
    Set,
    Stmt,
    Store,
)
from rlx_py.ir.loops.local import Local
from rlx_py.passes.loops.blocking import cuts
from rlx_py.passes.loops.pairs import loop_in_pairs

BLOCK_BYTES = 4096  # of accumulators, and of a row that is read at once: a page
LEAST_BYTES = 1024  # of a block that is small so that there are BLOCKS of them for threads
BLOCKS = 4
# Rows folded between a load and a store of the accumulators: no more than a first-level cache has
# ways, since rows a power of two apart share one set of it.
AT_ONCE = 8
MOST_COPIED = 12  # statements of a row of which there are so many copies
MIN_ROWS = 16  # from which the accumulators' loads and stores pay
MIN_BYTES = 1 << 15  # of a matrix: a smaller one lies in the first-level cache, whatever the order
MIN_STRIDE = 256  # bytes from row to row; below it a row has too few independent sums


@dataclass(frozen=True)
class Fold:
    """Lanes over columns whose body is: declarations, one loop over rows that folds, the rest."""

    column: Var
    before: tuple[Stmt, ...]
    rows: For
    after: tuple[Stmt, ...]


def stream_columns(stmt: Stmt) -> tuple[Stmt, ...]:
    """The nest with its large column folds in blocks; lanes must have been chosen."""
    if not isinstance(stmt, For):
        return (stmt,)
    fold = _fold(stmt) if stmt.axis is Axis.VECTOR else None
    if fold is None:
        body = tuple(t for s in stmt.body for t in stream_columns(s))
        return (replace(stmt, body=body),)
    return _streamed(fold)


def _fold(loop: For) -> Fold | None:
    inner = [n for n, s in enumerate(loop.body) if isinstance(s, For)]
    if len(inner) != 1:
        return None
    at = inner[0]
    rows = loop.body[at]
    assert isinstance(rows, For)
    fold = Fold(loop.var, loop.body[:at], rows, loop.body[at + 1:])
    return fold if _is_plain(fold) and _is_large(fold) else None


def _is_plain(fold: Fold) -> bool:
    """Whether nothing but folding into accumulators of constant start leaves the loop over rows."""
    accumulators = _accumulators(fold)
    if not accumulators or fold.rows.axis is not Axis.SERIAL:
        return False
    if not all(isinstance(s, Set) and s.combine is None and isinstance(s.value, Const)
               for s in fold.before) or not all(isinstance(s, Let | Store) for s in fold.after):
        return False
    for s in fold.rows.body:
        folds = isinstance(s, Set) and s.combine is not None and s.local in accumulators
        if not (isinstance(s, Let) or folds) or accumulators & set(reads(s)):
            return False
    return True


def _accumulators(fold: Fold) -> set[Local]:
    return {s.local for s in fold.before if isinstance(s, Set)}


def _is_large(fold: Fold) -> bool:
    row, column = fold.rows.var, fold.column
    across = [s.expr for s in fold.rows.body if isinstance(s, Let) and isinstance(s.expr, Load)
              and s.expr.index.coefficient(column) == 1]
    return row.extent >= MIN_ROWS and any(
        load.index.coefficient(row) * load.dtype.itemsize >= MIN_STRIDE
        and column.extent * load.dtype.itemsize >= MIN_STRIDE
        and row.extent * column.extent * load.dtype.itemsize >= MIN_BYTES for load in across)


def _streamed(fold: Fold) -> tuple[Stmt, ...]:
    itemsize = max(a.dtype.itemsize for a in _accumulators(fold))
    size = BLOCK_BYTES // itemsize
    while size * itemsize > LEAST_BYTES and fold.column.extent < BLOCKS * size:
        size //= 2
    found: list[Stmt] = []
    for start, width, blocks in cuts(fold.column, size):
        body = _block(fold, start, width)
        found += body if blocks is None else (For(blocks, body, Axis.PARALLEL),)
    return tuple(found)


def _block(fold: Fold, start: Index, width: int) -> tuple[Stmt, ...]:
    """`width` columns from `start` on."""
    sums = (*fold.before, *loop_in_pairs(fold.rows))
    block = _Block(fold.column, start, width, {
        s.local: Buffer("sums", s.local.dtype, width, Scope.TILE)
        for s in walk(sums) if isinstance(s, Set) and s.combine is None})
    return (*map(Alloc, block.buffers.values()), *block.spread(sums), *block.lanes(fold.after))


@dataclass(frozen=True)
class _Block:
    """Columns whose accumulators lie in buffers."""

    column: Var
    start: Index
    width: int
    buffers: dict[Local, Buffer]

    def spread(self, body: Iterable[Stmt]) -> Iterator[Stmt]:
        """The statements with a loop over columns around what is between loops, and in these."""
        for is_loop, run in groupby(body, lambda s: isinstance(s, For)):
            if not is_loop:
                yield from self.lanes(tuple(run))
                continue
            for loop in run:
                assert isinstance(loop, For)
                if all(isinstance(s, For | Set) for s in loop.body):
                    yield replace(loop, body=tuple(self.spread(loop.body)))
                else:
                    yield from self.rows(loop)

    def rows(self, loop: For) -> Iterator[Stmt]:
        """The folds of some rows at a time, in order: an accumulator is loaded and stored once."""
        common, lanes = _by_column(self.column, loop.body)
        together = AT_ONCE if len(loop.body) <= MOST_COPIED else 1
        for row, count, steps in cuts(loop.var, together):
            rows = [Copier({loop.var: row + n}).body((*common, *lanes)) for n in range(count)]
            outside = [s for copy in rows for s in copy[:len(common)]]
            inside = tuple(s for copy in rows for s in copy[len(common):])
            body = (*outside, *self.lanes(inside))
            yield from body if steps is None else (For(steps, body),)

    def lanes(self, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        """Statements for all columns; the accumulators they use are loaded before them, those they
        change are stored behind them."""
        column = Var(self.column.name, self.width)
        at = as_index(column)
        own: dict[Local, Local] = {}
        loads: list[Stmt] = []
        changed = {s.local for s in body if isinstance(s, Set)}
        for s in body:
            used = [*reads(s), *([s.local] if isinstance(s, Set) else [])]
            for a in used:
                if a not in self.buffers or a in own:
                    continue
                own[a] = Local(a.dtype, "acc")
                if isinstance(s, Set) and s.local is a and s.combine is None:
                    continue
                old = Local(a.dtype) if a in changed else own[a]
                loads.append(Let(old, Load(self.buffers[a], at)))
                if a in changed:
                    loads.append(Set(own[a], Read(old)))
        work = Copier({self.column: self.start + at}, own).body(body)
        stores = [Store(self.buffers[a], at, Read(own[a])) for a in own if a in changed]
        return (For(column, (*loads, *work, *stores), Axis.VECTOR),) if body else ()


def _by_column(column: Var, row: tuple[Stmt, ...]) -> tuple[list[Stmt], list[Stmt]]:
    """The statements of a row that are the same for all columns, and the others."""
    common: list[Stmt] = []
    lanes: list[Stmt] = []
    varying: set[Local] = set()
    for s in row:
        used = [atom for i in indices(s) for atom in atoms(i)]
        known = {*reads(s), *(atom.local for atom in used if isinstance(atom, Dynamic))}
        if isinstance(s, Let) and varying.isdisjoint(known) and column not in used:
            common.append(s)
            continue
        lanes.append(s)
        if isinstance(s, Let):
            varying.add(s.local)
    return common, lanes
