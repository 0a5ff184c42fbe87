"""Folds that a condition around them empties are not run.

Σ select(c, v, 0) with c known before the loop is Σ v where c holds, and else nothing: a sum that is
needed for a few rows alone, such as that of squares which overflowed, costs the others a test.
"""

from __future__ import annotations

from dataclasses import replace

from rlx_py.ir.loops.copying import reads, walk
from rlx_py.ir.loops.kernel import Apply, Axis, Const, For, If, Let, Read, Set, Stmt, Value, While
from rlx_py.ir.loops.lanes import reductions, varying_locals
from rlx_py.ir.loops.local import Local

LEAST_STEPS = 16  # of a loop: a shorter one costs less than a wrong guess of the branch


def skip_idle_folds(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """The statements of a scheduled kernel, sums of nothing but zeros skipped."""
    return tuple(t for s in body for t in _guarded(s))


def _guarded(s: Stmt) -> tuple[Stmt, ...]:
    if isinstance(s, For | While | If) and not _in_lanes(s):
        s = replace(s, body=skip_idle_folds(s.body))
    if not isinstance(s, For) or s.axis is Axis.PARALLEL or s.var.extent < LEAST_STEPS:
        return (s,)
    condition = _condition(s)
    if condition is None or condition in varying_locals(s):
        return (s,)
    # What the condition is made of goes before the loop.
    needed, before, inside = {condition}, list[Stmt](), list[Stmt]()
    for t in reversed(s.body):
        is_needed = isinstance(t, Let) and t.local in needed
        (before if is_needed else inside).append(t)
        if is_needed:
            needed.update(reads(t))
    loop = For(s.var, tuple(reversed(inside)), s.axis)
    return (*reversed(before), If(Read(condition), (loop,)))


def _in_lanes(s: Stmt) -> bool:
    return isinstance(s, For) and s.axis is Axis.VECTOR


def _condition(loop: For) -> Local | None:
    """What must hold for the loop to change anything; None if that is not known."""
    folds = reductions(loop)
    exprs = {s.local: s.expr for s in loop.body if isinstance(s, Let)}
    found: set[Value] = set()
    for s in walk(loop.body):
        if isinstance(s, Let):
            continue
        if not isinstance(s, Set) or s.combine != "add" or s.local not in folds:
            return None
        chosen = exprs.get(s.value.local) if isinstance(s.value, Read) else None
        if not isinstance(chosen, Apply) or chosen.op != "select" or not _is_zero(chosen.args[2]):
            return None
        found.add(chosen.args[0])
    (condition,) = found if len(found) == 1 else (None,)
    return condition.local if isinstance(condition, Read) else None


def _is_zero(value: Value) -> bool:
    return isinstance(value, Const) and value.value == 0
