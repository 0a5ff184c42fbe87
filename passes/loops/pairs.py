"""Loops that add many floats, as runs of few steps whose sums are added in pairs.

The order is stated in `ir/loops/pairs.py`.

The steps run in the order they did; extents alone decide where runs begin.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from rlx_py.ir.loops.copying import copied, reads, walk
from rlx_py.ir.loops.index import Index, Var, as_index
from rlx_py.ir.loops.kernel import Axis, Const, For, If, Read, Set, Stmt, While
from rlx_py.ir.loops.lanes import PARTIALS, identity, reductions
from rlx_py.ir.loops.local import Local
from rlx_py.ir.loops.pairs import CHAIN, runs

MOST_EACH = 4  # terms of a step beyond which a step has a part of its own
UNIT = 8  # steps of which a serial run is a multiple, so that rows run together


def add_in_pairs(body: Iterable[Stmt]) -> tuple[Stmt, ...]:
    """The statements of a kernel whose lanes are chosen, their long sums in parts."""
    found: list[Stmt] = []
    for s in body:
        if isinstance(s, For):
            found += loop_in_pairs(replace(s, body=add_in_pairs(s.body)))
        elif isinstance(s, While | If):
            found.append(replace(s, body=add_in_pairs(s.body)))
        else:
            found.append(s)
    return tuple(found)


def loop_in_pairs(loop: For) -> tuple[Stmt, ...]:
    """A loop, of whose sums those inside it are in parts already."""
    sums = float_sums(loop)
    if not sums:
        return (loop,)
    each = max(terms(loop.body, a) for a in sums)
    lanes = PARTIALS if loop.axis is Axis.VECTOR else 1
    if -(-loop.var.extent // lanes) * each <= CHAIN:
        return (loop,)
    if each > MOST_EACH:
        own = {a: Local(a.dtype, "part") for a in sums}
        body = (*_starts(own), *copied(loop.body, {}, own), *_adds(own, {a: a for a in sums}))
        loop, each = replace(loop, body=body), 1
        if -(-loop.var.extent // lanes) <= CHAIN:
            return (loop,)
    unit = lanes if lanes > 1 else UNIT if CHAIN // each > 2 * UNIT else 1
    return _parts(loop, sums, CHAIN // each * lanes, unit)


def float_sums(loop: For) -> tuple[Local, ...]:
    """Outer accumulators of floats that the loop adds to and does not read."""
    read = {local for s in walk(loop.body) for local in reads(s)}
    return tuple(a for a, how in reductions(loop).items()
                 if how == "add" and a.dtype.is_float and a not in read)


def terms(body: Iterable[Stmt], a: Local) -> int:
    """How many terms, one after the other, a body adds to an accumulator."""
    total = 0
    for s in body:
        if isinstance(s, Set) and s.local is a:
            total += 1
        elif isinstance(s, For):
            inside = terms(s.body, a)
            total += min(inside, 1) if s.axis is Axis.VECTOR else s.var.extent * inside
    return total


def _parts(loop: For, sums: tuple[Local, ...], most: int, unit: int) -> tuple[Stmt, ...]:
    """Runs of at most `most` steps."""
    found: list[Stmt] = []
    levels: list[Mapping[Local, Local]] = [{a: a for a in sums}]
    for start, run, depth in runs(loop.var.extent, most, unit):
        while len(levels) < depth + 2:
            levels.append({a: Local(a.dtype, "part") for a in sums})
        found += _tree(loop, start, run, levels[depth + 1::-1])
    return tuple(found)


def _tree(loop: For, start: int, run: int, levels: list[Mapping[Local, Local]]
          ) -> tuple[Stmt, ...]:
    """A run for each leaf of a binary tree; levels are its accumulators, those of leaves first."""
    steps = Var(loop.var.name, run)
    halves = [Var("half", 2) for _ in levels[2:]]
    at: Index = as_index(steps) + start
    for k, half in enumerate(halves):
        at = at + as_index(half) * (run << k)
    body: tuple[Stmt, ...] = (
        For(steps, copied(loop.body, {loop.var: at}, levels[0]), loop.axis),)
    for k, (own, outer) in enumerate(zip(levels, levels[1:], strict=False)):
        body = (*_starts(own), *body, *_adds(own, outer))
        if k < len(halves):
            body = (For(halves[k], body),)
    return body


def _starts(own: Mapping[Local, Local]) -> tuple[Stmt, ...]:
    return tuple(Set(p, Const(identity("add", p.dtype), p.dtype)) for p in own.values())


def _adds(own: Mapping[Local, Local], outer: Mapping[Local, Local]) -> tuple[Stmt, ...]:
    return tuple(Set(outer[a], Read(p), "add") for a, p in own.items())
