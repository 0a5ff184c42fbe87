"""How a product reads an operand: where it lies, or copied into blocks that suit the tile."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

from rlx_py.ir.base.types import DType
from rlx_py.ir.loops.copying import Copier, walk
from rlx_py.ir.loops.index import ZERO, Index, Var, as_index, row_major, substitute, unravel
from rlx_py.ir.loops.kernel import (
    Axis,
    Buffer,
    Cast,
    For,
    Let,
    Load,
    Operand,
    Read,
    Store,
    Strided,
    Tile,
)
from rlx_py.ir.loops.local import Local
from rlx_py.passes.loops.products.shape import (
    Binding,
    Body,
    body_indices,
    divides,
    extents,
    merged,
    unit_stride,
)

SHORT_STRIDE = 4  # elements apart that lanes still load as one window


@dataclass(frozen=True)
class Layout:
    """Element (p, k) of a block at p·p_step + k·k_step; p is a row of A or a column of B.

    Where `width` is not 0, each so many positions p lie `panel` elements after those before.
    """

    p: int
    k: int
    size: int = 0
    width: int = 0
    panel: int = 0

    def at(self, p: Index, k: Index) -> Index:
        """Offset of an element."""
        if not self.width:
            return p * self.p + k * self.k
        return (p // self.width) * self.panel + (p % self.width) * self.p + k * self.k


@dataclass(frozen=True)
class Matrix:
    """A block in memory."""

    buffer: Buffer
    start: Index
    layout: Layout

    def rows(self, p: Index) -> Strided:
        """As a tile's A from row p on."""
        at = self.start + self.layout.at(p, ZERO)
        return Strided(self.buffer, at, self.layout.p, self.layout.k)

    def columns(self, p: Index) -> Strided:
        """As a tile's B from column p on."""
        at = self.start + self.layout.at(p, ZERO)
        return Strided(self.buffer, at, self.layout.k, self.layout.p)


def plain_load(operand: Operand, dtype: DType) -> Load | None:
    """The load that an operand is, if nothing is done to it and it has the tile's type."""
    if len(operand.body) != 1 or not isinstance(operand.body[0], Let):
        return None
    let = operand.body[0]
    if not isinstance(let.expr, Load) or operand.value != Read(let.local):
        return None
    load = let.expr
    return load if load.guard is None and load.dtype is dtype else None


def padded(count: int, lanes: int) -> int:
    """Elements from one row to the next: whole vectors, an odd number of them where many rows would
    else share one set of the cache."""
    vectors = -(-count // lanes)
    return (vectors | 1 if vectors >= 4 else vectors) * lanes


def along_p(p: int, k: int, lanes: int) -> Layout:
    """Rows of k, contiguous in p."""
    row = padded(p, lanes)
    return Layout(1, row, row * k)


def along_k(p: int, k: int, lanes: int) -> Layout:
    """Rows of p, contiguous in k."""
    row = padded(k, lanes)
    return Layout(row, 1, row * p)


def panels(p: int, k: int, width: int) -> Layout:
    """Panels of `width` positions p, each k after k: what a tile reads is one stream."""
    return Layout(1, width, -(-p // width) * width * k, width, width * k)


# ---- copying -----------------------------------------------------------------------------------


class Way(enum.Enum):
    """How a block is copied."""

    ALONG_P = "along p"  # in lanes of p
    ALONG_K = "along k"  # in lanes of k
    TRANSPOSE = "transpose"  # read along k, written along p, turned in registers


def copy_choice(operand: Operand, p: Sequence[Var], k: Sequence[Var], p_unit: bool,
                dtype: DType, lanes: int) -> tuple[float, Way]:
    """(estimated cycles an element, way) of the best copy; p_unit: the copy is contiguous in p."""
    used = body_indices(operand.body)
    (p, p_change), (k, k_change) = merged(p, used), merged(k, used)
    copier = Copier({**p_change, **k_change})
    loads = [copier.index(i) for i in used]
    is_plain = plain_load(operand, dtype) is not None
    return _choice(loads, p[-1:], k[-1:], p_unit, is_plain, lanes)


def _choice(loads: Sequence[Index], p: Sequence[Var], k: Sequence[Var], p_unit: bool,
            is_plain: bool, lanes: int) -> tuple[float, Way]:
    ways = [(_in_lanes(loads, v, p_unit, lanes), Way.ALONG_P) for v in p]
    ways += [(_in_lanes(loads, v, not p_unit, lanes), Way.ALONG_K) for v in k]
    if is_plain and p_unit and p and k and unit_stride(loads[0], k[0]) == 1:
        steps = -(-k[0].extent // lanes) * -(-p[0].extent // lanes)
        if not divides(loads[0], p[0]):
            ways.append((6.0 * lanes * steps / (k[0].extent * p[0].extent), Way.TRANSPOSE))
    return min(ways, key=lambda w: w[0], default=(1.0, Way.ALONG_P))


def _in_lanes(loads: Sequence[Index], var: Var, is_stored: bool, lanes: int) -> float:
    lane = -(-var.extent // lanes) / max(var.extent, 1)

    def move(index: Index) -> float:
        if unit_stride(index, var) is not None:
            return 1.5 * lane
        step = index.coefficient(var)
        # A window of so many vectors, and its shuffle.
        is_near = 2 <= step <= SHORT_STRIDE and not divides(index, var)
        return (1.5 + step) * lane if is_near else 1.5

    return sum(map(move, loads)) + (2.0 * lane if is_stored else 1.5) + lane


@dataclass(frozen=True)
class Block:
    """A block of an operand: its shape along p and k, and the variables at a place inside."""

    p: tuple[int, ...]
    k: tuple[int, ...]
    bind: Callable[[Sequence[Index], Sequence[Index]], Binding]


def copy_block(operand: Operand, block: Block, to: Matrix, lanes: int) -> Body:
    """Loops that copy a block of an operand."""
    width = to.layout.width
    if not width:
        return _copy(operand, block, to, lanes, tuple(Var("p", e) for e in block.p), ZERO)
    total = prod(block.p)
    body: Body = ()
    if total >= width:
        vars = (Var("panel", total // width), Var("p", width))
        body += _copy(operand, block, to, lanes, vars, ZERO)
    if total % width:
        body += _copy(operand, block, to, lanes, (Var("p", total % width),),
                      Index(total // width * width))
    return body


def _copy(operand: Operand, block: Block, to: Matrix, lanes: int, p: tuple[Var, ...],
          first: Index) -> Body:
    k = tuple(Var("k", e) for e in block.k)
    flat = first + row_major(map(as_index, p), extents(p))
    copier = Copier(block.bind(unravel(flat, block.p), tuple(map(as_index, k))))
    body = list(copier.body(operand.body))
    value = copier.value(operand.value)
    dtype = to.buffer.dtype
    if value.dtype is not dtype:
        local = Local(dtype)
        body.append(Let(local, Cast(value, dtype)))
        value = Read(local)
    at = to.start + to.layout.at(flat, row_major(map(as_index, k), extents(k)))
    body.append(Store(to.buffer, at, value))
    used = body_indices(tuple(body))
    (p, p_change), (k, k_change) = merged(p, used), merged(k, used)
    copy = Copier({**p_change, **k_change}).body(body)
    loads = [s.expr.index for s in walk(copy) if isinstance(s, Let) and isinstance(s.expr, Load)]
    is_plain = plain_load(operand, dtype) is not None
    _, way = _choice(loads, p[-1:], k[-1:], to.layout.p == 1, is_plain, lanes)
    if way is Way.TRANSPOSE:
        return _transposing(copy, p, k, lanes)
    return nest((*k, *p) if way is Way.ALONG_P else (*p, *k), copy)


def _transposing(copy: Body, p: tuple[Var, ...], k: tuple[Var, ...], lanes: int) -> Body:
    """The copy of a plain load, a vector of columns p at a time."""
    let, store = copy
    assert isinstance(let, Let) and isinstance(let.expr, Load) and isinstance(store, Store)
    load, (*p_outer, column), (*k_outer, row) = let.expr, p, k
    body: Body = ()
    count, rest = divmod(column.extent, lanes)
    group = Var("columns", count)
    for first, width in ((as_index(group) * lanes, lanes), (Index(count * lanes), rest)):
        here = {column: first, row: ZERO}
        source = Strided(load.buffer, substitute(load.index, here), 1,
                         load.index.coefficient(column))
        out = Strided(store.buffer, substitute(store.index, here), store.index.coefficient(row), 1)
        tile = Tile(row.extent, width, 0, source, source, out, kind="copy")
        if width == lanes and count:
            body += (For(group, (tile,)),)
        elif width and width != lanes:
            body += (tile,)
    return nest((*p_outer, *k_outer), body, Axis.SERIAL)


def nest(vars: Sequence[Var], body: Body, last: Axis = Axis.VECTOR) -> Body:
    """Loops over variables, outermost first, the last on its own axis."""
    for n, var in enumerate(reversed(vars)):
        body = (For(var, body, Axis.SERIAL if n else last),)
    return body


