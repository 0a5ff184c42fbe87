"""Column sums that stream: a block of columns is folded row by row, not each column on its own.

In lanes over columns around a loop over rows, every step goes down the whole matrix for one vector
of columns, with a cache line a row. Here a block of columns has its accumulators in a buffer that
stays in the first-level cache, and the loop over rows is outside. Each column still folds its rows
in order, so no bit changes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from rlx_py.ir.copying import Copier, indices, reads
from rlx_py.ir.index import Dynamic, Index, Var, as_index, atoms
from rlx_py.ir.kernel import (
    Alloc,
    Axis,
    Buffer,
    Const,
    For,
    Let,
    Load,
    Local,
    Read,
    Scope,
    Set,
    Stmt,
    Store,
)
from rlx_py.passes.transpose import cuts

BLOCK_BYTES = 4096  # of accumulators, and of a row that is read at once: a page
LEAST_BYTES = 1024  # of a block that is small so that there are BLOCKS of them for threads
BLOCKS = 4
AT_ONCE = 4  # rows folded between a load and a store of the accumulators
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
    starts = {s.local: s.value for s in fold.before if isinstance(s, Set)}
    buffers = {a: Buffer("sums", a.dtype, width, Scope.TILE) for a in starts}
    first, last = Var(fold.column.name, width), Var(fold.column.name, width)
    declare = tuple(Store(buffers[a], as_index(first), value) for a, value in starts.items())
    totals = {a: Local(a.dtype, "acc") for a in starts}
    loads = tuple(Let(new, Load(buffers[a], as_index(last))) for a, new in totals.items())
    rest = Copier({fold.column: start + as_index(last)}, totals).body(fold.after)
    together = AT_ONCE if len(fold.rows.body) <= MOST_COPIED else 1
    return (
        *map(Alloc, buffers.values()),
        For(first, declare, Axis.VECTOR),
        *(s for cut in cuts(fold.rows.var, together)
          for s in _rows(fold, start, width, buffers, cut)),
        For(last, (*loads, *rest), Axis.VECTOR),
    )


def _rows(fold: Fold, start: Index, width: int, buffers: dict[Local, Buffer],
          cut: tuple[Index, int, Var | None]) -> tuple[Stmt, ...]:
    """The folds of some rows at a time, in order: an accumulator is loaded and stored once."""
    row, together, steps = cut
    column = Var(fold.column.name, width)
    accumulators = {a: Local(a.dtype, "acc") for a in buffers}
    outside: list[Stmt] = []
    inside: list[Stmt] = []
    for a, acc in accumulators.items():
        old = Local(a.dtype)
        inside += [Let(old, Load(buffers[a], as_index(column))), Set(acc, Read(old))]
    common, lanes = _by_column(fold)
    for n in range(together):
        copier = Copier({fold.column: start + as_index(column), fold.rows.var: row + n},
                        accumulators)
        copies = copier.body((*common, *lanes))
        outside += copies[:len(common)]
        inside += copies[len(common):]
    inside += [Store(buffers[a], as_index(column), Read(acc)) for a, acc in accumulators.items()]
    body = (*outside, For(column, tuple(inside), Axis.VECTOR))
    return body if steps is None else (For(steps, body, Axis.SERIAL),)


def _by_column(fold: Fold) -> tuple[list[Stmt], list[Stmt]]:
    """The statements of a row that are the same for all columns, and the others."""
    common: list[Stmt] = []
    lanes: list[Stmt] = []
    varying: set[Local] = set()
    for s in fold.rows.body:
        used = [atom for i in indices(s) for atom in atoms(i)]
        known = {*reads(s), *(atom.local for atom in used if isinstance(atom, Dynamic))}
        if isinstance(s, Let) and varying.isdisjoint(known) and fold.column not in used:
            common.append(s)
            continue
        lanes.append(s)
        if isinstance(s, Let):
            varying.add(s.local)
    return common, lanes
