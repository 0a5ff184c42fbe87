"""How loops run on a CPU: which merge, which are lanes, which are threads.

Independent loops come in as PARALLEL, ordered ones as SERIAL. Each step keeps the meaning; none
changes the order in which a sum is taken except VECTOR on a fold, whose order is defined, and the
parts of a long one, which its extent alone defines.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import inf

from rlx_py.ir.loops.copying import Copier, copied, indices, reads, walk
from rlx_py.ir.loops.index import Dynamic, Quotient, Remainder, Var, as_index, atoms
from rlx_py.ir.loops.kernel import (
    Alloc,
    Apply,
    Axis,
    Call,
    Contract,
    For,
    If,
    Let,
    Load,
    Set,
    Stmt,
    Store,
    Tile,
    While,
)
from rlx_py.ir.loops.lanes import varying_locals
from rlx_py.ir.loops.local import Local
from rlx_py.ir.loops.program import Program
from rlx_py.passes.loops.blocking import tile_transposes
from rlx_py.passes.loops.columns import stream_columns
from rlx_py.passes.loops.idle_folds import skip_idle_folds
from rlx_py.passes.loops.pairs import add_in_pairs
from rlx_py.passes.loops.partials import split_folds
from rlx_py.passes.loops.products.target import THREAD_CYCLES

MAX_UNROLL = 16  # copies of a short inner loop inside lanes
MAX_COPIES = 256  # statements of all copies
CHUNK = 256  # elements of a one-dimensional loop that one parallel step takes
CALL_CYCLES = 12  # estimated cycles of a function that expands into a polynomial
# Registers for which lanes are chosen, on every machine: whether a fold is in lanes decides the
# order of its sum.
PLANNED_BYTES = 64
SCATTER = 3  # times that a store in lanes to places far apart takes longer than one by one
SHORT_STRIDE = 4.0  # an access in lanes with a stride of 2 to 4, in contiguous ones
CHEAP = frozenset((
    "add", "sub", "mul", "neg", "fma", "abs", "min", "max", "eq", "ne", "lt", "le", "gt", "ge",
    "and", "or", "xor", "not", "select", "guarded_mul", "floor", "ceil", "round", "trunc", "sign",
    "copysign", "shl", "shr", "sar",
))


@dataclass(frozen=True)
class CpuTarget:
    """What scheduling asks of a processor: bytes in a vector register."""

    vector_bytes: int = 64


def schedule(program: Program, target: CpuTarget) -> Program:
    """The same program with its loops relabelled, merged and split for a CPU."""
    kernels = tuple(replace(k, body=schedule_body(k.body, target)) for k in program.kernels)
    return replace(program, kernels=kernels)


def schedule_body(body: tuple[Stmt, ...], target: CpuTarget) -> tuple[Stmt, ...]:
    """One kernel."""
    if any(isinstance(s, Contract) for s in body):
        return body  # expand_contract schedules what it makes
    merged = tuple(t for s in body for t in
                   tile_transposes(merge_loops(split_loops(s)), target.vector_bytes))
    lanes = tuple(choose_lanes(s) if isinstance(s, For) else s for s in merged)
    streamed = tuple(t for s in lanes for t in stream_columns(s))
    return skip_idle_folds(add_in_pairs(split_folds(parallelize(streamed))))


# ---- merging -----------------------------------------------------------------------------------


def merge_loops(stmt: Stmt) -> Stmt:
    """Two loops, one directly inside the other, become one where every index stays as simple."""
    if not isinstance(stmt, For):
        return stmt
    body = tuple(merge_loops(s) for s in stmt.body)
    loop = replace(stmt, body=body)
    if len(body) != 1 or not isinstance(body[0], For) or body[0].axis is not loop.axis:
        return loop
    inner = body[0]
    if loop.var.extent == 0 or inner.var.extent == 0:
        return loop
    var = Var(loop.var.name, loop.var.extent * inner.var.extent)
    flat = as_index(var)
    copier = Copier({loop.var: flat // inner.var.extent, inner.var: flat % inner.var.extent})
    candidate = copier.body(inner.body)
    if _splits(candidate, var):
        return loop
    return For(var, candidate, loop.axis)


def _splits(body: Iterable[Stmt], var: Var) -> bool:
    """Whether some index takes a quotient or remainder of the variable."""
    return any(
        isinstance(a, Quotient | Remainder) and var in a.of.variables()
        for s in walk(body) for i in indices(s) for a in atoms(i)
    )


# ---- splitting ---------------------------------------------------------------------------------


def split_loops(stmt: Stmt) -> Stmt:
    """A loop whose quotient and remainder by q are used becomes two, so that indices are affine."""
    if not isinstance(stmt, For):
        return stmt
    by = _divisor(stmt)
    if by is None:
        return replace(stmt, body=tuple(map(split_loops, stmt.body)))
    outer, inner = Var(stmt.var.name, stmt.var.extent // by), Var(stmt.var.name, by)
    body = copied(stmt.body, {stmt.var: as_index(outer) * by + as_index(inner)})
    return split_loops(For(outer, (For(inner, body, stmt.axis),), stmt.axis))


def _divisor(loop: For) -> int | None:
    """The smallest q that divides the extent, where v // q or v % q is used of the variable v."""
    alone = as_index(loop.var)
    found = {a.by for s in walk(loop.body) for i in indices(s) for a in atoms(i)
             if isinstance(a, Quotient | Remainder) and a.of == alone}
    return min((q for q in found if loop.var.extent % q == 0 and 1 < q < loop.var.extent),
               default=None)


# ---- lanes -------------------------------------------------------------------------------------


def choose_lanes(loop: For) -> For:
    """The nest with its lanes chosen; loops inside lanes become serial or unrolled."""
    if not any(isinstance(s, For) for s in loop.body):
        return replace(loop, axis=Axis.VECTOR) if _gain(loop) > 0 else loop
    here = _gain(loop)
    if here > 0 and here >= max(_best_inside(s) for s in loop.body):
        return replace(loop, axis=Axis.VECTOR, body=tuple(map(_in_lanes, loop.body)))
    return replace(loop, body=tuple(
        choose_lanes(s) if isinstance(s, For) else s for s in loop.body))


def _best_inside(stmt: Stmt) -> float:
    if not isinstance(stmt, For):
        return 0.0
    return max([_gain(stmt), *(_best_inside(s) for s in stmt.body)])


def _gain(loop: For) -> float:
    """How many times faster lanes make an element of the loop; 0 where they can't be used."""
    if loop.var.extent < 2 or not can_vectorize(loop):
        return 0.0
    accesses = [a for a in map(_access, walk(loop.body)) if a is not None]
    size = max((a.buffer.dtype.itemsize for a in accesses), default=4)
    width = PLANNED_BYTES // max(size, 4)
    filled = loop.var.extent / -(-loop.var.extent // width)
    if not accesses:
        return filled
    varying = varying_locals(loop)
    cost = sum(_lane_cost(a, loop.var, varying, width) for a in accesses)
    gain = filled * len(accesses) / cost
    return gain if gain > 1 or loop.axis is Axis.SERIAL else 0.0


def _access(stmt: Stmt) -> Load | Store | None:
    if isinstance(stmt, Store):
        return stmt
    return stmt.expr if isinstance(stmt, Let) and isinstance(stmt.expr, Load) else None


def _lane_cost(access: Load | Store, var: Var, varying: set[Local], width: int) -> float:
    """Scalar accesses that one access in lanes is worth: 1 contiguous, a few for a short stride."""
    index = access.index
    stride = index.coefficient(var)
    far = width * (SCATTER if isinstance(access, Store) else 1)
    for a in atoms(index):
        if isinstance(a, Quotient | Remainder) and var in a.of.variables():
            return far
        if isinstance(a, Dynamic) and a.local in varying:
            return far
    if stride in (0, 1):
        return 1.0
    return SHORT_STRIDE if 2 <= stride <= 4 else far


def can_vectorize(loop: For) -> bool:
    """Whether the steps of a loop may run in lanes."""
    own = {s.local for s in loop.body if isinstance(s, Set) and s.combine is None}
    declared = {s.local for s in walk(loop.body) if isinstance(s, Set) and s.combine is None}
    for s in walk(loop.body):
        if isinstance(s, If | While | Call | Tile | Contract | Alloc):
            return False
        if isinstance(s, For) and s.axis is not Axis.PARALLEL and s.axis is not Axis.SERIAL:
            return False
        if isinstance(s, Set) and s.combine and s.local not in declared and loop.axis is not \
                Axis.SERIAL:
            return False
        if isinstance(s, Store) and s.combine and loop.var not in s.index.variables():
            return False
    if loop.axis is Axis.PARALLEL:
        return True
    # A fold: nothing but combining changes what was declared outside.
    if any(isinstance(s, For) for s in loop.body) or own:
        return False
    folded = {s.local for s in loop.body if isinstance(s, Set)}
    return bool(folded) and not any(folded & set(reads(s)) for s in loop.body)


def _in_lanes(stmt: Stmt) -> Stmt:
    """Loops inside lanes run in order; short ones are copied out, with those inside them."""
    if not isinstance(stmt, For):
        return stmt
    body = tuple(map(_in_lanes, stmt.body))
    loop = replace(stmt, axis=Axis.UNROLL, body=body)
    short = stmt.var.extent <= MAX_UNROLL and _copies(loop) <= MAX_COPIES
    return loop if short else replace(loop, axis=Axis.SERIAL)


def _copies(stmt: Stmt) -> float:
    """Statements that one becomes where loops are copied out; infinite where one stays a loop."""
    if not isinstance(stmt, For):
        return 1
    return stmt.var.extent * sum(map(_copies, stmt.body)) if stmt.axis is Axis.UNROLL else inf


# ---- threads -----------------------------------------------------------------------------------


def cycles(body: Iterable[Stmt]) -> float:
    """A rough count of cycles, to tell small work from large."""
    total = 0.0
    for s in body:
        if isinstance(s, For):
            lanes = 8 if s.axis is Axis.VECTOR else 1
            total += max(s.var.extent / lanes, 1.0) * cycles(s.body)
        elif isinstance(s, While | If):
            total += cycles(s.body)
        elif isinstance(s, Let) and isinstance(s.expr, Apply) and s.expr.op not in CHEAP:
            total += CALL_CYCLES
        elif isinstance(s, Tile):
            total += s.rows * s.cols * max(s.depth, 4) / 16
        else:
            total += 1
    return total


def parallelize(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """Outermost independent loops become threads where the work pays; the rest runs in order."""
    outside = [s for s in body if isinstance(s, Let)]
    found: list[Stmt] = []
    for s in body:
        if not isinstance(s, For) or cycles((s,)) < THREAD_CYCLES:
            found.append(serial(s))
        elif s.axis is Axis.VECTOR and is_independent(s):
            found.extend(_sunk(outside, loop) for loop in chunked(s))
        elif s.axis is Axis.PARALLEL:
            merged = merge_outer(s)
            found.append(_sunk(outside, replace(merged, body=tuple(map(serial, merged.body)))))
        else:
            found.append(serial(s))
    return tuple(found)


def is_independent(loop: For) -> bool:
    """Whether a VECTOR loop folds nothing into what is outside it."""
    declared = {s.local for s in walk(loop.body) if isinstance(s, Set) and s.combine is None}
    return all(s.local in declared for s in walk(loop.body) if isinstance(s, Set) and s.combine)


def serial(stmt: Stmt) -> Stmt:
    """A statement whose independent loops run in order."""
    if not isinstance(stmt, For):
        return stmt
    axis = Axis.SERIAL if stmt.axis is Axis.PARALLEL else stmt.axis
    return replace(stmt, axis=axis, body=tuple(map(serial, stmt.body)))


def merge_outer(loop: For) -> For:
    """Two nested parallel loops become one, so that few rows do not leave threads idle."""
    while len(loop.body) == 1 and isinstance(loop.body[0], For):
        inner = loop.body[0]
        if inner.axis is not Axis.PARALLEL or loop.var.extent >= 64:
            break
        var = Var(loop.var.name, loop.var.extent * inner.var.extent)
        flat = as_index(var)
        binding = {loop.var: flat // inner.var.extent, inner.var: flat % inner.var.extent}
        loop = For(var, copied(inner.body, binding), Axis.PARALLEL)
    return loop


def chunked(loop: For) -> list[For]:
    """A VECTOR loop as parallel chunks of lanes, and what is left over."""
    count, left = divmod(loop.var.extent, CHUNK)
    if count < 2:
        return [loop]
    outer, inner = Var(loop.var.name, count), Var(loop.var.name, CHUNK)
    here = as_index(outer) * CHUNK + as_index(inner)
    body = copied(loop.body, {loop.var: here})
    found = [For(outer, (For(inner, body, Axis.VECTOR),), Axis.PARALLEL)]
    if left:
        tail = Var(loop.var.name, left)
        rest = copied(loop.body, {loop.var: as_index(tail) + count * CHUNK})
        found.append(For(tail, rest, Axis.VECTOR))
    return found


def _sunk(outside: list[Let], loop: For) -> For:
    """The loop with the invariants it uses computed inside, so that it stands alone."""
    if loop.axis is not Axis.PARALLEL or not outside:
        return loop
    return replace(loop, body=(*copied(outside, {}, {s.local: s.local for s in outside}),
                               *loop.body))


