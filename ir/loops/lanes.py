"""What a VECTOR loop means and when it can run in lanes; shared by interpreter and emitters."""

from __future__ import annotations

from math import gcd
from typing import Any

import numpy as np

from rlx_py.ir.base.errors import BackendError
from rlx_py.ir.base.types import DType
from rlx_py.ir.loops.index import Dynamic, Index, Quotient, Remainder, Var
from rlx_py.ir.loops.kernel import (
    Apply,
    Axis,
    Bitcast,
    Buffer,
    Cast,
    Expr,
    For,
    IndexValue,
    Invoke,
    Let,
    Load,
    Read,
    Set,
    Stmt,
    Store,
    Value,
)
from rlx_py.ir.loops.local import Local

PARTIALS = 64
"""Partial results of a combining Set in a VECTOR loop: a number of its own, so that the bits of a
sum depend neither on the width of a machine's registers nor on what else is in the loop."""


def partials(extent: int) -> int:
    """Partial results of a VECTOR loop of this extent: element j goes into number j mod partials.

    They are folded by halves: the upper onto the lower until one is left.
    """
    return min(PARTIALS, 1 << max(extent - 1, 0).bit_length())


def identity(combine: str, dtype: DType) -> Any:
    """The scalar that leaves every other unchanged under add, mul, max, min, and, or."""
    # −0 is the one float that leaves every sum as it is.
    zero, infinity = (-0.0, np.inf) if dtype.is_float else (0, greatest(dtype))
    values = {"add": zero, "mul": 1, "max": -np.inf if dtype.is_float else least(dtype),
              "min": infinity, "and": -1 if dtype.kind == "int" else infinity, "or": 0}
    if combine not in values:
        raise BackendError(f"{combine} is not a way to combine; use {', '.join(values)}")
    return np.asarray(values[combine]).astype(dtype.numpy)[()]


def least(dtype: DType) -> int:
    """The smallest integer of a type; false is 0."""
    return 0 if dtype.kind == "bool" else int(np.iinfo(dtype.numpy).min)


def greatest(dtype: DType) -> int:
    """The largest integer of a type; true is 1."""
    return 1 if dtype.kind == "bool" else int(np.iinfo(dtype.numpy).max)


def walk(body: tuple[Stmt, ...]) -> list[Stmt]:
    """Every statement of a body and of the loops in it, in order."""
    found: list[Stmt] = []
    work = list(reversed(body))
    while work:
        s = work.pop()
        found.append(s)
        if isinstance(s, For):
            work.extend(reversed(s.body))
    return found


def declared(body: tuple[Stmt, ...]) -> set[Local]:
    """Locals that belong to an iteration of the body: set by Let or first by a plain Set."""
    return {s.local for s in walk(body) if isinstance(s, Let) or
            (isinstance(s, Set) and s.combine is None)}


def reductions(loop: For) -> dict[Local, str]:
    """Outer locals that the loop combines into, and how."""
    inner = declared(loop.body)
    return {s.local: s.combine for s in walk(loop.body)
            if isinstance(s, Set) and s.combine is not None and s.local not in inner}


def reads(expr: Expr) -> list[Value]:
    """The values an expression reads, its guard included."""
    if isinstance(expr, Apply | Invoke):
        return list(expr.args)
    if isinstance(expr, Cast | Bitcast):
        return [expr.arg]
    if isinstance(expr, Load):
        return [expr.guard] if expr.guard is not None else []
    return [expr] if isinstance(expr, Read) else []


def index_varies(index: Index, var: Var, varying: set[Local]) -> bool:
    """Whether an index depends on the loop variable, by itself or through a local."""
    work = [index]
    while work:
        for atom, _ in work.pop().terms:
            if atom is var or (isinstance(atom, Dynamic) and atom.local in varying):
                return True
            if isinstance(atom, Quotient | Remainder):
                work.append(atom.of)
    return False


def varying_locals(loop: For) -> set[Local]:
    """Locals of the body whose value differs between iterations of the loop."""
    varying: set[Local] = set()
    statements = walk(loop.body)
    before = -1
    while before != len(varying):
        before = len(varying)
        for s in statements:
            given = s.expr if isinstance(s, Let) else s.value if isinstance(s, Set) else None
            if given is not None and _expr_varies(given, loop.var, varying):
                assert isinstance(s, Let | Set)
                varying.add(s.local)
    return varying


def _expr_varies(expr: Expr, var: Var, varying: set[Local]) -> bool:
    if isinstance(expr, Load | IndexValue) and index_varies(expr.index, var, varying):
        return True
    return any(isinstance(v, Read) and v.local in varying for v in reads(expr))


def runs_in_lanes(loop: For, varying: set[Local]) -> bool:
    """Whether lanes keep the meaning of the loop; where not, it runs one by one.

    Refused are loops with statements that have no lanes, with a loop in lanes inside, and stores
    whose elements may meet: every lane into one element, or combined at a computed place.
    """
    for s in walk(loop.body):
        if isinstance(s, For) and s.axis in (Axis.SERIAL, Axis.UNROLL):
            continue
        if not isinstance(s, Let | Set | Store):
            return False
        if isinstance(s, Store):
            if not index_varies(s.index, loop.var, varying):
                return False
            if s.combine is not None and not _distinct(s.index, loop.var, varying):
                return False
    return True


def _distinct(index: Index, var: Var, varying: set[Local]) -> bool:
    """Whether iterations certainly reach different elements."""
    rest = Index(index.const, tuple((a, c) for a, c in index.terms if a is not var))
    return index.coefficient(var) != 0 and not index_varies(rest, var, varying)


def buffers_of(loop: For) -> list[Buffer]:
    """Buffers that the body loads from or stores to."""
    found = []
    for s in walk(loop.body):
        if isinstance(s, Store):
            found.append(s.buffer)
        elif isinstance(s, Let) and isinstance(s.expr, Load):
            found.append(s.expr.buffer)
    return found


def lane_offsets(index: Index, var: Var, lanes: int, varying: set[Local]) -> tuple[int, ...] | None:
    """index(var = base + lane) − index(var = base) for every lane, for base a multiple of `lanes`.

    None if that depends on more than the lane.
    """
    total = [0] * lanes
    for atom, coefficient in index.terms:
        found: tuple[int, ...] | None
        if atom is var:
            found = tuple(range(lanes))
        elif isinstance(atom, Quotient | Remainder):
            found = _divided_offsets(atom, var, lanes, varying)
        elif isinstance(atom, Dynamic) and atom.local in varying:
            found = None
        else:
            continue
        if found is None:
            return None
        total = [t + coefficient * f for t, f in zip(total, found, strict=True)]
    return tuple(total)


def _divided_offsets(
    atom: Quotient | Remainder, var: Var, lanes: int, varying: set[Local]
) -> tuple[int, ...] | None:
    inner = lane_offsets(atom.of, var, lanes, varying)
    if inner is None:
        return None
    if not any(inner):
        return inner
    # of(base) = unit·k + r with r known; of(base + lane) = unit·k + r + inner[lane].
    unit = 0
    for a, c in atom.of.terms:
        unit = gcd(unit, c * lanes if a is var else c)
    r = atom.of.const % unit if unit else atom.of.const
    reached = [r + i for i in inner]
    by = atom.by
    if unit % by == 0:
        if isinstance(atom, Quotient):
            return tuple(n // by - r // by for n in reached)
        return tuple(n % by - r % by for n in reached)
    if by % unit == 0 and min(reached) >= 0 and max(reached) < unit:
        return inner if isinstance(atom, Remainder) else (0,) * lanes
    return None
