"""Long folds into a scalar as parts that threads take; the parts' results are folded in order.

Where the parts begin is fixed by the extent alone: results do not depend on the number of threads.
"""

from __future__ import annotations

from rlx_py.ir.loops.copying import copied, indices, reads
from rlx_py.ir.loops.index import Dynamic, Var, as_index, atoms
from rlx_py.ir.loops.kernel import (
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
from rlx_py.ir.loops.lanes import identity, reductions
from rlx_py.ir.loops.local import Local

PART = 1 << 15  # elements of a part
MIN_PARTS = 4  # from which a second thread pays


def split_folds(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """The statements of a kernel, its long folds in parts."""
    return tuple(t for s in body for t in (_parts(s) if _is_long(s) else (s,)))


def _is_long(s: Stmt) -> bool:
    """Whether a statement is a long fold that reads no local from outside."""
    if not isinstance(s, For) or s.axis is not Axis.VECTOR or \
            s.var.extent < MIN_PARTS * PART or not reductions(s):
        return False
    if not all(isinstance(t, Let) or isinstance(t, Set) and t.combine for t in s.body):
        return False
    used = {local for t in s.body for local in reads(t)} | {
        a.local for t in s.body for i in indices(t) for a in atoms(i) if isinstance(a, Dynamic)}
    return used <= {t.local for t in s.body if isinstance(t, Let)}


def _parts(stmt: Stmt) -> tuple[Stmt, ...]:
    assert isinstance(stmt, For)
    count, left = divmod(stmt.var.extent, PART)
    part, element, again = Var("part", count), Var(stmt.var.name, PART), Var("part", count)
    at = as_index(part) * PART + as_index(element)
    folds = reductions(stmt)
    buffers = {a: Buffer("parts", a.dtype, count, Scope.ARENA) for a in folds}
    own = {a: Local(a.dtype, "acc") for a in folds}
    starts = tuple(Set(own[a], Const(identity(combine, a.dtype), a.dtype))
                   for a, combine in folds.items())
    loop = For(element, copied(stmt.body, {stmt.var: at}, own), Axis.VECTOR)
    stores = tuple(Store(buffers[a], as_index(part), Read(own[a])) for a in folds)
    gathered: list[Stmt] = []
    for a, combine in folds.items():
        total = Local(a.dtype)
        gathered += [Let(total, Load(buffers[a], as_index(again))), Set(a, Read(total), combine)]
    found: list[Stmt] = [For(part, (*starts, loop, *stores), Axis.PARALLEL),
                         For(again, tuple(gathered), Axis.VECTOR)]
    if left:
        rest = Var(stmt.var.name, left)
        found.append(For(rest, copied(stmt.body, {stmt.var: as_index(rest) + count * PART}),
                         Axis.VECTOR))
    return tuple(found)
