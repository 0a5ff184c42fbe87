"""Products without tiles: loops with one accumulator, in lanes of n, of m or of k."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from rlx_py.ir.base.types import DType
from rlx_py.ir.loops.copying import Copier, walk
from rlx_py.ir.loops.index import Var, as_index, unravel
from rlx_py.ir.loops.kernel import (
    Apply,
    Axis,
    Cast,
    Contract,
    For,
    Let,
    Operand,
    Read,
    Set,
    Stmt,
    Store,
    Value,
)
from rlx_py.ir.loops.local import Local
from rlx_py.passes.loops.pairs import add_in_pairs
from rlx_py.passes.loops.products.operand import nest
from rlx_py.passes.loops.products.plan import is_vector, meeting
from rlx_py.passes.loops.products.shape import Body, body_indices, extents, size, unit_stride
from rlx_py.passes.loops.products.target import TileTarget
from rlx_py.passes.lower.block import zero


def plain_loops(c: Contract, target: TileTarget, alone: bool) -> Body:
    """The product of any element type as loops; parallel where the work pays."""
    limits = target.limits
    results = tuple(v for v in (*c.batch, *c.m, *c.n) if v.extent != 1)
    if is_vector(c, limits):
        lanes: Var | None = None
        body = element(c, target.fma, in_lanes=True)
    else:
        lanes = lane_variable(c)
        body = element(c, target.fma, in_lanes=False)
    outer = tuple(v for v in results if v is not lanes)
    if lanes is not None:
        body = (For(lanes, body, Axis.VECTOR),)
    cycles = prod(map(size, (c.batch, c.m, c.n, c.k))) // 8
    if not alone or cycles < limits.thread_cycles or not outer or meeting(c):
        return nest(outer, body, Axis.SERIAL)
    return blocks(outer, body, max(cycles // limits.block_cycles, 1))


def lane_variable(c: Contract) -> Var | None:
    """The result's variable along which most loads and stores are contiguous."""
    used = [*body_indices(c.a.body), *body_indices(c.b.body),
            *(s.index for s in walk(c.epilogue) if isinstance(s, Store))]
    ends = [g[-1] for g in (c.n, c.m, c.batch) if g[-1].extent > 1]
    return max(ends, key=lambda v: sum(unit_stride(i, v) is not None for i in used), default=None)


def blocks(outer: tuple[Var, ...], body: Body, most: int) -> Body:
    """Loops over results in parallel blocks, about `most` of them."""
    count = size(outer)
    each = max(1, count // most)
    each = next(d for d in range(each, 0, -1) if count % d == 0)
    block, inside = Var("block", count // each), Var("row", each)
    place = unravel(as_index(block) * each + as_index(inside), extents(outer))
    copy = Copier(dict(zip(outer, place, strict=True))).body(body)
    return (For(block, (For(inside, copy),), Axis.PARALLEL),)


def element(c: Contract, fma: bool, in_lanes: bool) -> Body:
    """One result: the sum over k, then the epilogue. in_lanes: partial sums in lanes of k."""
    dtype = c.acc.dtype.compute
    total = Local(dtype, "acc")
    a, a_value = converted(c.a, dtype)
    b, b_value = converted(c.b, dtype)
    step: list[Stmt] = [*a, *b]
    if in_lanes:
        product = Local(dtype)
        step += [Let(product, Apply("mul", (a_value, b_value), dtype)),
                 Set(total, Read(product), "add")]
    elif fma:
        grown = Local(dtype)
        step += [Let(grown, Apply("fma", (a_value, b_value, Read(total)), dtype)),
                 Set(total, Read(grown))]
    else:
        product, grown = Local(dtype), Local(dtype)
        step += [Let(product, Apply("mul", (a_value, b_value), dtype)),
                 Let(grown, Apply("add", (Read(product), Read(total)), dtype)),
                 Set(total, Read(grown))]
    k = tuple(v for v in c.k if v.extent != 1)
    sums = add_in_pairs(nest(k, tuple(step), Axis.VECTOR if in_lanes else Axis.SERIAL))
    tail: list[Stmt] = [Set(total, zero(dtype)), *sums]
    if c.acc.dtype is dtype:
        return (*tail, *Copier({}, {c.acc: total}).body(c.epilogue))
    narrow = Local(c.acc.dtype)
    tail.append(Let(narrow, Cast(Read(total), c.acc.dtype)))
    return (*tail, *Copier({}, {c.acc: narrow}).body(c.epilogue))


def converted(operand: Operand, dtype: DType) -> tuple[Body, Value]:
    """The operand's statements, and its value in the type of the sum."""
    if operand.value.dtype is dtype:
        return operand.body, operand.value
    wide = Local(dtype)
    return (*operand.body, Let(wide, Cast(operand.value, dtype))), Read(wide)


def without_sum(c: Contract) -> Contract:
    """The contract over an empty k, as one step that adds 0."""
    nothing = Operand((), zero(c.acc.dtype.compute))
    return replace(c, k=(), a=nothing, b=nothing)
