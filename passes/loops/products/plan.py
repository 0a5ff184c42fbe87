"""How a product runs: which side holds the lanes, what is copied, and how it is cut into blocks."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil, prod

from rlx_py.ir.base.types import DType
from rlx_py.ir.loops.copying import walk
from rlx_py.ir.loops.index import Var, as_index
from rlx_py.ir.loops.kernel import Contract, Let, Load, Operand, Read, Store
from rlx_py.passes.loops.products.operand import copy_choice, plain_load
from rlx_py.passes.loops.products.shape import (
    Cut,
    body_indices,
    divides,
    divisors,
    extents,
    size,
    stride,
    unit_stride,
    whole,
)
from rlx_py.passes.loops.products.target import Limits, TileTarget


class Use(enum.Enum):
    """Where a tile reads an operand."""

    DIRECT = "direct"  # where it lies
    LOCAL = "local"  # in a copy made by the block that uses it
    SHARED = "shared"  # in a copy made before, since several blocks use it


@dataclass(frozen=True)
class Side:
    """One operand of the tiles. p_unit: its copy is contiguous along its row or column."""

    operand: Operand
    load: Load | None
    use: Use
    p_unit: bool = True
    stream: bool = False  # copied in panels as wide as the tile

    def widens(self, dtype: DType) -> bool:
        """Whether a copy of it takes more memory than what it is made of."""
        used = [s.expr.dtype.itemsize for s in walk(self.operand.body)
                if isinstance(s, Let) and isinstance(s.expr, Load)]
        return max(used, default=dtype.itemsize) < dtype.itemsize


@dataclass(frozen=True)
class Plan:
    """A product in blocks: rows x cols tiles; `parts` of k run in parallel and are added after."""

    contract: Contract
    dtype: DType
    m: Cut
    n: Cut
    k: Cut
    rows: int
    cols: int
    a: Side
    b: Side
    parts: int
    parallel: bool  # worth threads
    cycles: float


def swapped(c: Contract) -> Contract:
    """The transposed product: the same results, with A's rows as columns."""
    return replace(c, m=c.n, n=c.m, a=c.b, b=c.a)


def make_plan(c: Contract, target: TileTarget) -> Plan | None:
    """The faster of the two orientations; None where plain loops are better."""
    dtype = c.acc.dtype.compute
    limits = target.limits
    if not target.has_tile(dtype) or size(c.k) < limits.short or is_vector(c, limits):
        return None
    # Neither orientation changes a bit: k alone decides how a sum is taken.
    return min((oriented(side, dtype, target) for side in (c, swapped(c))), key=lambda p: p.cycles)


def is_vector(c: Contract, limits: Limits) -> bool:
    """Whether a matrix that is contiguous along k meets one vector: sums in lanes of k."""
    if min(size(c.m), size(c.n)) > 1 or c.k[-1].extent < limits.vector_depth:
        return False
    matrix, rows = (c.a, c.m) if size(c.n) == 1 else (c.b, c.n)
    used = body_indices(matrix.body)
    in_lanes = all(unit_stride(i, c.k[-1]) is not None for i in used)
    return in_lanes and not all(unit_stride(i, rows[-1]) == 1 for i in used)


def oriented(c: Contract, dtype: DType, target: TileTarget) -> Plan:
    """The plan with lanes along n."""
    lanes, limits = target.lanes(dtype), target.limits
    batch, m, n, k = map(size, (c.batch, c.m, c.n, c.k))
    work = batch * k * target.cycles(m, n, dtype)
    parts, meet = _parts(batch * m * n, k, limits), meeting(c)
    # Parts of k are cut from whole columns of A.
    a, m_from, a_from = _side(c.a, dtype, c.m, c.k, {*c.m} if parts > 1 else meet, lanes,
                              unit=False)
    b, n_from, b_from = _side(c.b, dtype, c.n, c.k, meet, lanes, unit=True)
    is_large = m >= limits.pack_rows and k * n * dtype.itemsize > limits.pack_bytes
    if is_large and _along(b, c.n):
        b = replace(b, use=Use.SHARED, stream=True)
    is_tall = n >= limits.pack_rows and k * m * dtype.itemsize > limits.pack_bytes
    if is_tall and _along(a, c.m):
        a = replace(a, use=Use.SHARED, stream=True)
    if parts > 1 or k > limits.chain_depth:
        # Where k is cut changes the sums, so it is no question of registers.
        a_from, b_from = (_depth_from(x, dtype, c.k) or 0 for x in (c.a, c.b))
    depth = limits.depth_bytes // dtype.itemsize
    k_cut = cut_depth(c.k, max(a_from, b_from), limits.part_depth if parts > 1 else depth)
    parts = ceil(k_cut.full / ceil(k_cut.full / parts))
    is_parallel = work >= limits.thread_cycles and not meet & {*c.batch}
    wanted = ceil(min(limits.blocks, work / limits.block_cycles) / (batch * parts))
    wanted = wanted if is_parallel else 1
    widest = max(1, min(1024, limits.block_bytes // (k_cut.size * dtype.itemsize)))
    least = max(4 * lanes, limits.repaid) if a.widens(dtype) else 4 * lanes
    n_cut = cut_wide(c.n, n_from, widest, wanted, lanes, least, meet)
    rows, _ = target.tile(m, n_cut.size, dtype)
    m_cut = whole(c.m) if parts > 1 else cut_wide(
        c.m, m_from, widest if a.widens(dtype) else m, ceil(wanted / n_cut.count), rows, rows, meet)
    rows, cols = target.tile(m_cut.size, n_cut.size, dtype)
    a, b = _shared(a, n_cut, dtype, limits), _shared(b, m_cut, dtype, limits)
    blocks = batch * m / m_cut.size * n / n_cut.size
    cycles = blocks * k * target.cycles(m_cut.size, n_cut.size, dtype)
    cycles += batch * k * (m * _copying(a, c.m, c.k, dtype, lanes)
                           + n * _copying(b, c.n, c.k, dtype, lanes))
    cycles += batch * m * n * _storing(c, lanes)
    return Plan(c, dtype, m_cut, n_cut, k_cut, rows, cols, a, b, parts, is_parallel, cycles)


def _side(operand: Operand, dtype: DType, p: tuple[Var, ...], k: tuple[Var, ...],
          uncut: set[Var], lanes: int, unit: bool) -> tuple[Side, int, int]:
    """An operand, and the first variables of p and k that a block may cover without a copy.

    It is read in place only where no block need be cut along a variable of `uncut`.
    """
    load, k_from = plain_load(operand, dtype), _depth_from(operand, dtype, k)
    if load is not None and k_from is not None:
        p_from = _reach(load, p, unit)
        if (size(p[p_from:]) >= min(size(p), 2 * lanes) and p_from < len(p)
                and not uncut & {*p[:p_from]}):
            return Side(operand, load, Use.DIRECT), p_from, k_from
    by_p, by_k = (copy_choice(operand, p, k, way, dtype, lanes)[0] for way in (True, False))
    p_unit = unit or by_p <= by_k
    return Side(operand, load, Use.LOCAL, p_unit), 0, 0


def _depth_from(operand: Operand, dtype: DType, k: tuple[Var, ...]) -> int | None:
    """The first variable of k that a block may cover without a copy, where that pays."""
    load = plain_load(operand, dtype)
    first = len(k) if load is None else _reach(load, k, False)
    return first if first < len(k) and size(k[first:]) >= min(size(k), 64) else None


def _along(side: Side, p: tuple[Var, ...]) -> bool:
    """Whether an operand read in place is contiguous along p, each step of k a jump."""
    return (side.use is Use.DIRECT and side.load is not None and len(p) == 1
            and stride(side.load.index, p) == 1)


def _reach(load: Load, vars: tuple[Var, ...], unit: bool) -> int:
    """The first variable from which the load is one stride (unit: 1) to the end of the group."""
    at = len(vars)
    while at:
        step = stride(load.index, vars[at - 1:])
        if step is None or (unit and step != 1 and size(vars[at - 1:]) > 1):
            break
        at -= 1
    return at


def _parts(outputs: int, depth: int, limits: Limits) -> int:
    """Parts of k that run in parallel; of the shape alone, since it changes the sums."""
    if outputs > limits.split_outputs or depth < limits.split_depth:
        return 1
    return min(limits.blocks, depth // limits.part_depth)


def _shared(side: Side, across: Cut, dtype: DType, limits: Limits) -> Side:
    """A copy that several blocks need is made once; one that widens, where there are too few
    products with each element for every block to make its own."""
    if side.use is not Use.LOCAL:
        return side
    widens = side.widens(dtype)
    is_shared = across.count > 1 and not (widens and across.size >= limits.repaid)
    return replace(side, use=Use.SHARED if is_shared else Use.LOCAL, stream=widens and side.p_unit)


def _copying(side: Side, p: tuple[Var, ...], k: tuple[Var, ...], dtype: DType, lanes: int
             ) -> float:
    """Estimated cycles of copying an element."""
    if side.use is Use.DIRECT:
        return 0.0
    return copy_choice(side.operand, p, k, side.p_unit, dtype, lanes)[0]


def _storing(c: Contract, lanes: int) -> float:
    """Estimated cycles of an epilogue's stores for a result."""
    lane = ceil(c.n[-1].extent / lanes) / c.n[-1].extent
    return sum(
        (4.0 if s.combine else 2.0) * (1.0 if unit_stride(s.index, c.n[-1]) is None else lane)
        for s in walk(c.epilogue) if isinstance(s, Store))


def destination(c: Contract) -> Store | None:
    """The store that the epilogue is, if it is one of the sum itself."""
    if len(c.epilogue) != 1 or not isinstance(c.epilogue[0], Store):
        return None
    store = c.epilogue[0]
    if store.combine or store.guard is not None or store.value != Read(c.acc):
        return None
    return store if store.buffer.dtype is c.acc.dtype else None


# ---- blocks ------------------------------------------------------------------------------------


def cut_depth(k: tuple[Var, ...], first: int, depth: int) -> Cut:
    """Blocks of k of about `depth`, as equal as can be."""
    if first == 0 and size(k) <= depth + depth // 4:
        return whole(k)
    axis = len(k) - 1
    while axis > first and size(k[axis:]) < depth:
        axis -= 1
    inner = size(k[axis + 1:])
    extent = k[axis].extent
    if axis == 0:
        return Cut(k, 0, ceil(extent / ceil(extent * inner / depth)))
    return Cut(k, axis, next(d for d in divisors(extent) if d * inner <= depth or d == 1))


def cut_wide(vars: tuple[Var, ...], first: int, widest: int, count: int, unit: int,
             least: int, meet: set[Var]) -> Cut:
    """Blocks of at most `widest` positions, at least `count` of them, that fill units of `unit`.

    No more than that many where they would have fewer than `least` positions; none that `meet`.
    """
    total = size(vars)
    least = min(least, total, widest)

    def whole_units(positions: int) -> int:
        return ceil(positions / unit) * unit

    def worth(cut: Cut) -> tuple[float, int]:
        rest = cut.rest * size(vars[1:])
        filled = total / (cut.full * whole_units(cut.size) + whole_units(rest))
        busy = min(1.0, total / cut.size / count) if cut.size >= least else 0.0
        fits = min(1.0, widest / cut.size)
        enough = min(1.0, cut.size / least)
        return filled * (0.25 + 0.75 * busy) * fits * enough, cut.size

    return max((c for c in _cuts(vars, first, unit) if not meet & {*_across(c)}), key=worth)


def _across(cut: Cut) -> tuple[Var, ...]:
    """The variables that differ between blocks."""
    return cut.vars[: cut.axis + (cut.count > prod(extents(cut.vars[: cut.axis])))]


def meeting(c: Contract) -> set[Var]:
    """Variables of whose values two may reach one element of a store that combines."""
    found: set[Var] = set()
    for s in walk(c.epilogue):
        if isinstance(s, Store) and s.combine:
            for v in (v for v in (*c.batch, *c.m, *c.n) if v.extent > 1):
                rest = s.index - as_index(v) * s.index.coefficient(v)
                low, high = rest.range
                if divides(s.index, v) or high - low >= abs(s.index.coefficient(v)):
                    found.add(v)
    return found


def _cuts(vars: tuple[Var, ...], first: int, unit: int) -> Iterator[Cut]:
    for axis in range(first, len(vars)):
        extent, inner = vars[axis].extent, size(vars[axis + 1:])
        yield Cut(vars, axis, extent)
        if axis:
            steps = divisors(extent)
        elif inner == 1:
            steps = [min(extent, unit * q) for q in range(1, ceil(extent / unit) + 1)]
        else:
            steps = [ceil(extent / q) for q in range(1, min(extent, 64) + 1)]
        yield from (Cut(vars, axis, s) for s in dict.fromkeys(steps))
