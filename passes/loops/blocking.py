"""Loops that read along one axis and write along another, cut so that neither strides a page.

Where every store is contiguous in one loop and a load in another, whatever runs innermost leaves
one side with an element a cache line. In blocks of both loops a line is used whole: register tiles
transpose what is loaded, into the result itself or, where it is computed with, into a small buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from rlx_py.ir.base.types import f32, f64
from rlx_py.ir.loops.copying import Copier, indices
from rlx_py.ir.loops.index import (
    Dynamic,
    Index,
    Quotient,
    Remainder,
    Var,
    as_index,
    atoms,
    substitute,
)
from rlx_py.ir.loops.kernel import (
    Alloc,
    Axis,
    Buffer,
    For,
    Let,
    Load,
    Read,
    Scope,
    Stmt,
    Store,
    Strided,
    Tile,
)

ROWS = 128  # of a block: contiguous elements of what is loaded
MIN_ELEMENTS = 1 << 12  # of a plane from which blocks pay
SHORT = 4  # lines of a plane so short that lanes load or store it with a small stride; fewest lanes


@dataclass(frozen=True)
class Nest:
    """Independent loops, one directly inside the other, around straight-line code.

    row runs along what is loaded, column along what is stored, `outer` are the other loops.
    """

    outer: tuple[Var, ...]
    row: Var
    column: Var
    body: tuple[Stmt, ...]


def tile_transposes(stmt: Stmt, vector_bytes: int) -> tuple[Stmt, ...]:
    """The statement, or loops over blocks that do the same."""
    nest = _nest(stmt)
    if nest is None or nest.row.extent * nest.column.extent < MIN_ELEMENTS or \
            min(nest.row.extent, nest.column.extent) <= SHORT:
        return (stmt,)
    turned = _staged(nest)
    lanes = min((vector_bytes // _load(s).dtype.itemsize for s in turned), default=0)
    if lanes < SHORT:
        return (stmt,)
    return _blocks(nest, lanes, _copy_block if _is_copy(nest.body) else _staged_block)


def _nest(stmt: Stmt) -> Nest | None:
    loops: list[Var] = []
    body: tuple[Stmt, ...] = (stmt,)
    while len(body) == 1 and isinstance(body[0], For):
        if body[0].axis is not Axis.PARALLEL or body[0].var.extent == 0:
            return None
        loops.append(body[0].var)
        body = body[0].body
    stores = [s for s in body if isinstance(s, Store)]
    if not stores or any(s.combine for s in stores) or \
            not all(isinstance(s, Let | Store) for s in body):
        return None
    column = next((v for v in loops if all(s.index.coefficient(v) == 1 for s in stores)), None)
    row = None if column is None else next(
        (v for v in loops if any(_is_across(s, v, column) for s in body)
         and all(s.index.coefficient(v) > 1 for s in stores)), None)
    if row is None or column is None or not _is_affine(body, row, column):
        return None
    return Nest(tuple(v for v in loops if v is not row and v is not column), row, column, body)


def _is_across(s: Stmt, row: Var, column: Var) -> bool:
    """Whether a statement loads contiguously along the row and with a stride along the column."""
    return (isinstance(s, Let) and isinstance(s.expr, Load) and s.expr.guard is None
            and not any(isinstance(a, Dynamic) for a in atoms(s.expr.index))
            and s.expr.dtype in (f32, f64) and s.expr.index.coefficient(row) == 1
            and s.expr.index.coefficient(column) > 1)


def _is_affine(body: Iterable[Stmt], *loops: Var) -> bool:
    return not any(isinstance(a, Quotient | Remainder) and not a.of.variables().isdisjoint(loops)
                   for s in body for i in indices(s) for a in atoms(i))


def _is_copy(body: Sequence[Stmt]) -> bool:
    if len(body) != 2:
        return False
    let, store = body
    return isinstance(let, Let) and isinstance(store, Store) and store.guard is None and \
        store.value == Read(let.local) and isinstance(let.expr, Load) and \
        not any(isinstance(a, Dynamic) for a in atoms(store.index))


def _load(s: Stmt) -> Load:
    assert isinstance(s, Let) and isinstance(s.expr, Load)
    return s.expr


def _staged(nest: Nest) -> list[Let]:
    """The loads that are transposed before they are used."""
    written = {s.buffer for s in nest.body if isinstance(s, Store)}
    return [s for s in nest.body if isinstance(s, Let) and _is_across(s, nest.row, nest.column)
            and _load(s).buffer not in written]


@dataclass(frozen=True)
class _Block:
    """rows x columns elements of a nest from (row, column) on."""

    row: Index
    rows: int
    column: Index
    columns: int


_Make = Callable[[Nest, _Block], tuple[Stmt, ...]]


def _blocks(nest: Nest, lanes: int, make: _Make) -> tuple[Stmt, ...]:
    """Blocks of `lanes` columns inside blocks of rows inside the other loops."""
    body: list[Stmt] = []
    for row, rows, row_loop in cuts(nest.row, ROWS):
        inside: list[Stmt] = []
        for column, columns, column_loop in cuts(nest.column, lanes):
            made = make(nest, _Block(row, rows, column, columns))
            inside += made if column_loop is None else (For(column_loop, made),)
        body += inside if row_loop is None else (For(row_loop, tuple(inside), Axis.PARALLEL),)
    found = tuple(body)
    for var in reversed(nest.outer):
        found = (For(var, found, Axis.PARALLEL),)
    return found


def cuts(var: Var, size: int) -> Iterator[tuple[Index, int, Var | None]]:
    """(start, length, loop over starts) of whole pieces of a loop, then of what is left."""
    count, left = divmod(var.extent, size)
    if count:
        blocks = Var(f"{var.name}block", count)
        yield as_index(blocks) * size, size, blocks
    if left:
        yield Index(count * size), left, None


def _matrix(buffer: Buffer, index: Index, nest: Nest, block: _Block) -> Strided:
    start = substitute(index, {nest.row: block.row, nest.column: block.column})
    return Strided(buffer, start, index.coefficient(nest.row), index.coefficient(nest.column))


def _copy_block(nest: Nest, block: _Block) -> tuple[Stmt, ...]:
    load, store = _load(nest.body[0]), nest.body[1]
    assert isinstance(store, Store)
    source = _matrix(load.buffer, load.index, nest, block)
    out = _matrix(store.buffer, store.index, nest, block)
    return (Tile(block.rows, block.columns, 0, source, source, out, kind="copy"),)


def _staged_block(nest: Nest, block: _Block) -> tuple[Stmt, ...]:
    row, column = Var(nest.row.name, block.rows), Var(nest.column.name, block.columns)
    at = as_index(row) * block.columns + as_index(column)
    copies: list[Stmt] = []
    staged: dict[Stmt, Load] = {}
    for s in _staged(nest):
        load = _load(s)
        buffer = Buffer("turned", load.dtype, block.rows * block.columns, Scope.TILE)
        source = _matrix(load.buffer, load.index, nest, block)
        out = Strided(buffer, Index(0), block.columns, 1)
        copies += [Alloc(buffer), Tile(block.rows, block.columns, 0, source, source, out,
                                       kind="copy")]
        staged[s] = Load(buffer, at)
    copier = Copier({nest.row: block.row + as_index(row),
                     nest.column: block.column + as_index(column)})
    body = copier.body(nest.body)
    inside = tuple(Let(new.local, staged[old]) if old in staged and isinstance(new, Let) else new
                   for old, new in zip(nest.body, body, strict=True))
    return (*copies, For(row, (For(column, inside, Axis.PARALLEL),), Axis.SERIAL))



