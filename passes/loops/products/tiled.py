"""The loops of a product in register tiles."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from math import prod

from rlx_py.ir.base.types import DType, bool_, i64
from rlx_py.ir.loops.index import ZERO, Index, Var, as_index, row_major, substitute, unravel
from rlx_py.ir.loops.kernel import (
    Alloc,
    Apply,
    Axis,
    Buffer,
    Const,
    For,
    If,
    IndexValue,
    Let,
    Load,
    Read,
    Scope,
    Stmt,
    Store,
    Strided,
    Tile,
)
from rlx_py.ir.loops.local import Local
from rlx_py.ir.loops.pairs import CHAIN
from rlx_py.passes.loops.products.epilogue import Sums, epilogue
from rlx_py.passes.loops.products.operand import (
    Block,
    Layout,
    Matrix,
    along_k,
    along_p,
    copy_block,
    nest,
    padded,
    panels,
)
from rlx_py.passes.loops.products.plan import Plan, Side, Use, destination, meeting
from rlx_py.passes.loops.products.shape import Binding, Body, Cut, extents, origin, size, stride
from rlx_py.passes.loops.products.target import TileTarget
from rlx_py.passes.lower.block import zero

RUN = 2 * CHAIN  # k of a chain where k is long: the next is a load, an add and a store away


@dataclass(frozen=True)
class Source:
    """Where blocks of an operand lie."""

    side: Side
    cut: Cut
    layout: Layout
    buffer: Buffer


@dataclass(frozen=True)
class Piece:
    """A kind of block along m or n: its number, and how many steps it has."""

    cut: Cut
    number: Index
    steps: int

    @property
    def size(self) -> int:
        """Positions in it."""
        return prod(self.shape)

    @property
    def shape(self) -> tuple[int, ...]:
        """Its extents."""
        return self.cut.shape(self.steps)


class Tiled:
    """Builds the loops of one plan; `alone` where no PARALLEL loop is around them."""

    def __init__(self, plan: Plan, target: TileTarget, alone: bool) -> None:
        self.plan, self.alone = plan, alone
        self.c = plan.contract
        self.lanes = target.lanes(plan.dtype)
        self.limits = target.limits
        self.scratch: list[Buffer] = []
        self.a = self._source(plan.a, plan.m, plan.rows)
        self.b = self._source(plan.b, plan.n, plan.cols)
        self.per_part = -(-plan.k.full // plan.parts)
        self.is_long = size(self.c.k) > self.limits.chain_depth
        self.is_blocked = self.is_long or self.per_part + (plan.k.rest > 0) > 1
        self.direct = self._direct()
        self.row = padded(plan.n.size, self.lanes)
        self.blocks = (size(self.c.batch), plan.n.count, plan.m.count)
        self.sums = self._sums_buffer()
        self.levels: list[Buffer] = []

    def body(self) -> Body:
        """Copies that blocks share, the blocks, and the sum of the parts of k."""
        plan = self.plan
        shared = [s for s in (self.a, self.b) if s.side.use is Use.SHARED]
        found: list[Stmt] = [self._copy_all(s) for s in shared]
        shape = (*self.blocks, plan.parts)
        var = Var("block", prod(shape))
        batch, n_at, m_at, part = unravel(as_index(var), shape)
        main = [s for m in pieces(plan.m, m_at) for n in pieces(plan.n, n_at)
                for s in self._guarded(m_at, n_at, m, n, self._block(batch, m, n, part))]
        found.append(For(var, (*map(Alloc, self.scratch), *main), self._axis(plan.parallel)))
        if plan.parts > 1:
            found.append(self._add_parts())
        if self.alone:
            return tuple(found)
        common = [s.buffer for s in shared] + [self.sums] * (plan.parts > 1)
        return (*map(Alloc, (b for b in common if b is not None)), *found)

    def _axis(self, parallel: bool) -> Axis:
        return Axis.PARALLEL if parallel and self.alone else Axis.SERIAL

    def _guarded(self, m_at: Index, n_at: Index, m: Piece, n: Piece, body: Body) -> Body:
        """The body, run only for the blocks of its kind."""
        for at, piece in ((m_at, m), (n_at, n)):
            if piece.cut.count == 1 or not piece.cut.rest:
                continue
            op = "eq" if piece.steps == piece.cut.rest else "lt"
            body = when(op, at, piece.cut.full, body)
        return body

    # ---- operands ------------------------------------------------------------------------------

    def _source(self, side: Side, cut: Cut, tile: int) -> Source:
        k = self.plan.k
        if side.use is Use.DIRECT:
            assert side.load is not None
            p_step, k_step = (stride(side.load.index, g.inside) for g in (cut, k))
            assert p_step is not None and k_step is not None
            return Source(side, cut, Layout(p_step, k_step), side.load.buffer)
        if side.stream:
            layout = panels(cut.size, k.size, tile)
        else:
            layout = (along_p if side.p_unit else along_k)(cut.size, k.size, self.lanes)
        if side.use is Use.LOCAL:
            return Source(side, cut, layout, self._tile("copy", layout.size))
        total = size(self.c.batch) * cut.count * k.count * layout.size
        return Source(side, cut, layout, self._common("copy", total))

    def _tile(self, name: str, elements: int) -> Buffer:
        buffer = Buffer(name, self.plan.dtype, elements, Scope.TILE)
        self.scratch.append(buffer)
        return buffer

    def _common(self, name: str, elements: int) -> Buffer:
        """Memory that all blocks see."""
        scope = Scope.ARENA if self.alone else Scope.TILE
        return Buffer(name, self.plan.dtype, elements, scope)

    def _bind(self, batch: Index) -> Binding:
        return dict(zip(self.c.batch, unravel(batch, extents(self.c.batch)), strict=True))

    def _matrix(self, source: Source, batch: Index, p: Piece, k: Piece) -> tuple[Body, Matrix]:
        """A block of an operand, and the loops that copy it."""
        if source.side.use is Use.DIRECT:
            assert source.side.load is not None
            binding = self._bind(batch) | origin(p.cut, p.number) | origin(k.cut, k.number)
            start = substitute(source.side.load.index, binding)
            return (), Matrix(source.buffer, start, source.layout)
        if source.side.use is Use.SHARED:
            block = (batch * p.cut.count + p.number) * k.cut.count + k.number
            return (), Matrix(source.buffer, block * source.layout.size, source.layout)
        to = Matrix(source.buffer, ZERO, source.layout)
        return self._copy(source, batch, p, k, to), to

    def _copy(self, source: Source, batch: Index, p: Piece, k: Piece, to: Matrix) -> Body:
        block = Block(p.shape, k.shape, lambda p_at, k_at: (
            self._bind(batch) | p.cut.bind(p.number, p_at) | k.cut.bind(k.number, k_at)))
        return copy_block(source.side.operand, block, to, self.lanes)

    def _copy_all(self, source: Source) -> For:
        cut, k_cut = source.cut, self.plan.k
        shape = (self.blocks[0], cut.count, k_cut.count)
        var = Var("copy", prod(shape))
        batch, p_at, k_at = unravel(as_index(var), shape)
        body: list[Stmt] = []
        for p in pieces(cut, p_at):
            for k in pieces(k_cut, k_at):
                _, to = self._matrix(source, batch, p, k)
                copy = self._copy(source, batch, p, k, to)
                body += self._guarded(p_at, k_at, p, k, copy)
        elements = shape[0] * cut.size * cut.count * size(self.c.k)
        return For(var, tuple(body), self._axis(elements >= 2 * self.limits.thread_cycles))

    # ---- results -------------------------------------------------------------------------------

    def _direct(self) -> tuple[Store, int] | None:
        """The store that tiles can make themselves, and its distance from row to row."""
        store = destination(self.c)
        if store is None or self.plan.parts > 1:
            return None
        row, col = (stride(store.index, cut.inside) for cut in (self.plan.m, self.plan.n))
        if row is None or (col != 1 and size(self.plan.n.inside) > 1):
            return None
        read = {self.a.buffer, self.b.buffer}
        return None if col is None or store.buffer in read else (store, row)

    def _sums_buffer(self) -> Buffer | None:
        plan = self.plan
        if self.direct is not None:
            return None
        if plan.parts > 1:
            return self._common("parts", prod(self.blocks) * plan.parts * plan.m.size * self.row)
        rows = plan.m.size if self.is_blocked else min(plan.rows, plan.m.size)
        return self._tile("sums", rows * self.row)

    def _out(self, batch: Index, m: Piece, n: Piece, part: Index) -> Strided:
        """Where the sums of a block go."""
        if self.direct is not None:
            store, row = self.direct
            binding = self._bind(batch) | origin(m.cut, m.number) | origin(n.cut, n.number)
            return Strided(store.buffer, substitute(store.index, binding), row, 1)
        assert self.sums is not None
        start = ZERO
        if self.plan.parts > 1:
            block = (batch * n.cut.count + n.number) * m.cut.count + m.number
            start = (block * self.plan.parts + part) * (self.plan.m.size * self.row)
        return Strided(self.sums, start, self.row, 1)

    def _add_parts(self) -> For:
        plan = self.plan
        shape = (*self.blocks, plan.m.size)
        var = Var("row", prod(shape))
        batch, n_at, m_at, row = unravel(as_index(var), shape)
        body: list[Stmt] = []
        for m in pieces(plan.m, m_at):
            for n in pieces(plan.n, n_at):
                out = self._out(batch, m, n, ZERO)
                sums = Sums(out, ZERO, plan.parts, plan.m.size * self.row)
                body += self._guarded(m_at, n_at, m, n, self._epilogue(batch, m, n, row, 1, sums))
        work = size(self.c.m) * size(self.c.n) * self.blocks[0] * plan.parts
        meet = meeting(self.c) & {*self.c.batch, *self.c.m}
        is_parallel = work >= 8 * self.limits.thread_cycles and not meet
        return For(var, tuple(body), self._axis(is_parallel))

    def _epilogue(self, batch: Index, m: Piece, n: Piece, first: Index, rows: int,
                  sums: Sums) -> Body:
        i = Var("i", rows)
        j = tuple(Var("j", e) for e in n.shape)
        here = first + as_index(i)
        binding = (self._bind(batch) | m.cut.bind(m.number, unravel(here, m.shape))
                   | n.cut.bind(n.number, tuple(map(as_index, j))))
        return epilogue(self.c, self.plan.dtype, binding, i, here, j, sums)

    # ---- blocks --------------------------------------------------------------------------------

    def _block(self, batch: Index, m: Piece, n: Piece, part: Index) -> Body:
        out = self._out(batch, m, n, part)
        body: list[Stmt] = []
        if self.is_blocked:
            body += fill(out, m.size, n.size, self.plan.dtype)
        body += self._depth(batch, m, n, part, out)
        if self.is_blocked and self.direct is None and self.plan.parts == 1:
            body += self._epilogue(batch, m, n, ZERO, m.size, Sums(out, ZERO))
        return tuple(body)

    def _depth(self, batch: Index, m: Piece, n: Piece, part: Index, out: Strided) -> Body:
        """The blocks of k of one part, in order."""
        plan, k = self.plan, self.plan.k
        depth = self._levels()
        halves = [Var("half", 2) for _ in range(depth)]
        run = -(-self.per_part // (1 << depth))
        first = row_major(map(as_index, halves), (2,) * depth) * run
        product = partial(self._blocks, batch, m, n, part, first, run)
        body = self._in_pairs(m, n, halves, product, out)
        if k.rest:
            last = partial(self._product, batch, m, n, Piece(k, Index(k.full), k.rest))
            inner = self._in_pairs(m, n, [], last, out)
            body += when("eq", part, plan.parts - 1, inner) if plan.parts > 1 else inner
        return body

    def _levels(self) -> int:
        """Levels of the tree in which runs of blocks are added."""
        if not self.is_long:
            return 0
        most = max(1, self.limits.chain_depth // self.plan.k.size)
        return max(-(-self.per_part // most) - 1, 0).bit_length()

    def _blocks(self, batch: Index, m: Piece, n: Piece, part: Index, first: Index, count: int,
                out: Strided) -> Body:
        """Some blocks of k of a part in order, those that there are."""
        k = self.plan.k
        var = Var("depth", count)
        place = first + as_index(var) if count > 1 else first
        number = part * self.per_part + place
        body = self._product(batch, m, n, Piece(k, number, k.step), out)
        if place.range[1] >= self.per_part:
            body = when("lt", place, self.per_part, body)
        if k.full < self.per_part * self.plan.parts:
            body = when("lt", number, k.full, body)
        return looped(var if count > 1 else None, body)

    def _in_pairs(self, m: Piece, n: Piece, halves: list[Var], product: Callable[[Strided], Body],
                  out: Strided) -> Body:
        """Products from nothing for each leaf of a binary tree, added in pairs and then to out; on
        out itself where no other is."""
        if not self.is_long or not (halves or self.plan.k.rest):
            return product(out)
        while len(self.levels) <= len(halves):
            self.levels.append(self._tile("pairs", self.plan.m.size * self.row))
        views = [Strided(b, ZERO, self.row, 1) for b in self.levels[:len(halves) + 1]]
        body = product(views[0])
        for own, outer, half in zip(views, (*views[1:], out), (*halves[::-1], None), strict=True):
            body = (*fill(own, m.size, n.size, self.plan.dtype), *body,
                    *add(own, outer, m.size, n.size))
            body = looped(half, body)
        return body

    def _product(self, batch: Index, m: Piece, n: Piece, k: Piece, out: Strided) -> Body:
        """One block of k: strips of rows, each a row of tiles."""
        a_copy, a = self._matrix(self.a, batch, m, k)
        b_copy, b = self._matrix(self.b, batch, n, k)
        body: list[Stmt] = [*a_copy, *b_copy]
        in_strips = self.direct is None and not self.is_blocked and self.plan.parts == 1
        for row, rows, loop in spread(m.size, self.plan.rows, "strip"):
            into = out if in_strips else Strided(
                out.buffer, out.start + row * out.row, out.row, 1)
            strip: list[Stmt] = []
            for col, cols, inner in spread(n.size, self.plan.cols, "tile"):
                to = Strided(into.buffer, into.start + col, into.row, 1)
                tile = Tile(rows, cols, k.size, a.rows(row), b.columns(col), to, self.is_blocked,
                            run=self._run(k.size))
                strip += looped(inner, (tile,))
            if in_strips:
                strip += self._epilogue(batch, m, n, row, rows, Sums(out, row))
            body += looped(loop, tuple(strip))
        return tuple(body)


    def _run(self, depth: int) -> int:
        """Steps of a chain in a block of k; 0 where all blocks go on with one."""
        return -(-depth // -(-depth // RUN)) if self.is_long else 0


# ---- pieces ------------------------------------------------------------------------------------


def pieces(cut: Cut, at: Index) -> Iterator[Piece]:
    """The kinds of blocks of a group: whole ones, numbered `at`, and the last, smaller one."""
    yield Piece(cut, at if cut.count > 1 else ZERO, cut.step)
    if cut.rest:
        yield Piece(cut, Index(cut.full), cut.rest)


def spread(total: int, step: int, name: str) -> Iterator[tuple[Index, int, Var | None]]:
    """(start, width, loop variable) of equal steps, then of what is left."""
    count = total // step
    if count:
        var = Var(name, count)
        yield (as_index(var) * step, step, var) if count > 1 else (ZERO, step, None)
    if total % step:
        yield Index(count * step), total % step, None


def looped(var: Var | None, body: Body) -> Body:
    """A loop, if there is a variable."""
    return body if var is None else (For(var, body),)


def when(op: str, index: Index, bound: int, body: Body) -> Body:
    """The body under a comparison of an index."""
    number, holds = Local(i64), Local(bool_)
    limit = Const(i64.numpy.type(bound), i64)
    test = Apply(op, (Read(number), limit), bool_)
    return (Let(number, IndexValue(index, i64)), Let(holds, test), If(Read(holds), body))


def fill(out: Strided, rows: int, cols: int, dtype: DType) -> Body:
    """Zeros where sums begin."""
    i, j = Var("i", rows), Var("j", cols)
    at = out.start + as_index(i) * out.row + as_index(j)
    return nest((i, j), (Store(out.buffer, at, zero(dtype)),))


def add(sums: Strided, out: Strided, rows: int, cols: int) -> Body:
    """Sums added to others."""
    i, j, value = Var("i", rows), Var("j", cols), Local(sums.buffer.dtype)
    at, to = (s.start + as_index(i) * s.row + as_index(j) for s in (sums, out))
    return nest((i, j), (Let(value, Load(sums.buffer, at)),
                         Store(out.buffer, to, Read(value), "add")))
