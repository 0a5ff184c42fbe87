"""Loads and stores in LLVM IR: of one element, and of a vector of lanes."""

from __future__ import annotations

from collections.abc import Callable

import llvmlite.ir as ll

from rlx_py.backends.llvm.address import element_pointer, lane_pointers, offsets
from rlx_py.backends.llvm.convert import from_memory, to_memory
from rlx_py.backends.llvm.frame import VOID, Frame, numbers
from rlx_py.backends.llvm.scalars import (
    I32,
    Literal,
    apply,
    intrinsic,
    lanes_of,
    like,
    memory_type,
    splat,
    suffix,
)
from rlx_py.ir.loops.index import Index
from rlx_py.ir.loops.kernel import Buffer, Load, Store
from rlx_py.ir.loops.lanes import index_varies

# A window wider than this many vectors is gathered or scattered instead.
WINDOW = 4
# Registers from which machines have loads under a mask.
MASKED_BYTES = 32
I1 = ll.IntType(1)


def load(f: Frame, expr: Load) -> ll.Value:
    """The loaded value; 0 where the guard is false, without touching memory."""
    guard = f.value(expr.guard) if expr.guard is not None else None
    lanes = f.lanes
    if lanes is not None and (
        index_varies(expr.index, lanes.var, lanes.varying)
        or (guard is not None and lanes_of(guard))
    ):
        raw = _load_lanes(f, expr.buffer, expr.index, guard)
    elif guard is None:
        raw = _load_one(f, expr.buffer, expr.index)
    else:
        raw = _where(f, guard, lambda: _load_one(f, expr.buffer, expr.index))
    return from_memory(f.b, raw, expr.dtype)


def _load_one(f: Frame, buffer: Buffer, index: Index) -> ll.Value:
    pointer = element_pointer(f, buffer, index)
    kind = memory_type(buffer.dtype)
    return f.b.load(pointer, typ=kind, align=buffer.dtype.itemsize)


def _where(f: Frame, guard: ll.Value, load: Callable[[], ll.Value]) -> ll.Value:
    """What `load` gives; 0 where the guard is false, without touching memory."""
    b, before = f.b, f.b.block
    with f.where(guard):
        loaded = load()
        inside = b.block
    value = b.phi(loaded.type)
    value.add_incoming(like(loaded, 0), before)
    value.add_incoming(loaded, inside)
    return value


def _mask(f: Frame, guard: ll.Value | None) -> ll.Value | None:
    """The lanes that run; None is all."""
    assert f.lanes is not None
    if guard is None:
        return f.lanes.mask
    guard = splat(f.b, guard, f.lanes.count)
    return guard if f.lanes.mask is None else f.b.and_(guard, f.lanes.mask)


def _load_lanes(f: Frame, buffer: Buffer, index: Index, guard: ll.Value | None) -> ll.Value:
    assert f.lanes is not None
    b, count = f.b, f.lanes.count
    element = memory_type(buffer.dtype)
    kind = ll.VectorType(element, count)
    align = buffer.dtype.itemsize
    distances = offsets(f, index)
    mask = _mask(f, guard)
    if distances == tuple(range(count)):
        pointer = element_pointer(f, buffer, index)
        if mask is None:
            return b.load(pointer, typ=kind, align=align)
        name = f"llvm.masked.load.{suffix(kind)}.p0"
        return intrinsic(b, name, kind, [pointer, I32(align), mask, _zeros(kind)])
    if distances is not None:
        window = _load_window(f, buffer, index, distances, guard)
        if window is not None:
            return window
    pointers = lane_pointers(f, buffer, index)
    name = f"llvm.masked.gather.{suffix(kind)}.v{count}p0"
    every = mask if mask is not None else f.mask(count)
    return intrinsic(b, name, kind, [pointers, I32(align), every, _zeros(kind)])


def _load_window(
    f: Frame, buffer: Buffer, index: Index, distances: tuple[int, ...], guard: ll.Value | None
) -> ll.Value | None:
    """All elements from the least to the greatest that the lanes want, and a shuffle.

    Those between belong to the buffer too, since the outer ones do; under a guard that differs
    between lanes only those are touched that a lane wants.
    """
    assert f.lanes is not None
    b, count = f.b, f.lanes.count
    lane_of = {d: n for n, (d, on) in enumerate(zip(distances, _active(f), strict=True)) if on}
    low, high = min(lane_of), max(lane_of)
    wanted = guard if guard is not None and lanes_of(guard) else None
    # An element that several lanes want has no one lane whose guard is its own.
    is_shared = len(lane_of) < sum(_active(f))
    if high - low >= WINDOW * count or (wanted is not None and (
            is_shared or f.unit.target.vector_bytes < MASKED_BYTES)):
        return None
    element = memory_type(buffer.dtype)
    wide = high - low + 1 if wanted is None else -(-(high - low + 1) // count) * count
    kind = ll.VectorType(element, wide)

    def window() -> ll.Value:
        pointer = element_pointer(f, buffer, index)
        if low:
            pointer = b.gep(pointer, [I32(low)], source_etype=element)
        if wanted is None:
            return b.load(pointer, typ=kind, align=buffer.dtype.itemsize)
        places = numbers([lane_of.get(low + p, count) for p in range(wide)])
        mask = b.shuffle_vector(wanted, _zeros(wanted.type), places)
        name = f"llvm.masked.load.{suffix(kind)}.p0"
        return intrinsic(b, name, kind, [pointer, I32(buffer.dtype.itemsize), mask, _zeros(kind)])

    loaded = window() if guard is None or wanted is not None else _where(f, guard, window)
    if high == low:
        return splat(b, b.extract_element(loaded, I32(0)), count)
    chosen = numbers([min(max(d - low, 0), high - low) for d in distances])
    return b.shuffle_vector(loaded, ll.Constant(kind, ll.Undefined), chosen)


def _active(f: Frame) -> list[bool]:
    """Which lanes run where no guard is."""
    assert f.lanes is not None
    if f.lanes.mask is None:
        return [True] * f.lanes.count
    return [bool(bit.constant) for bit in f.lanes.mask.constant]


def _zeros(kind: ll.VectorType) -> ll.Constant:
    return Literal(kind, "zeroinitializer")


def store(f: Frame, stmt: Store) -> None:
    """Write the value, or combine it into what is there; not at all where the guard is false."""
    guard = f.value(stmt.guard) if stmt.guard is not None else None
    if f.lanes is not None:
        _store_lanes(f, stmt, guard)
    elif guard is None:
        _store_one(f, stmt)
    else:
        with f.where(guard):
            _store_one(f, stmt)


def _store_one(f: Frame, stmt: Store) -> None:
    value, dtype = f.value(stmt.value), stmt.buffer.dtype
    if stmt.combine is not None:
        old = from_memory(f.b, _load_one(f, stmt.buffer, stmt.index), dtype)
        value = apply(f.b, stmt.combine, dtype, [old, value])
    pointer = element_pointer(f, stmt.buffer, stmt.index)
    f.b.store(to_memory(f.b, value, dtype), pointer, align=dtype.itemsize)


def _store_window(f: Frame, stmt: Store, value: ll.Value) -> bool:
    """Lanes that go near each other, by a masked store; whether they do.

    A scatter writes them one by one.
    """
    assert f.lanes is not None
    distances = offsets(f, stmt.index)
    if distances is None:
        return False
    lane_of = {d: n for n, (d, on) in enumerate(zip(distances, _active(f), strict=True)) if on}
    low, high = min(lane_of), max(lane_of)
    if high - low >= WINDOW * f.lanes.count or len(set(distances)) < f.lanes.count:
        return False
    b, element, places = f.b, value.type.element, range(low, high + 1)
    wide = b.shuffle_vector(value, ll.Constant(value.type, ll.Undefined),
                            numbers([lane_of.get(p, 0) for p in places]))
    wanted = ll.Constant(ll.VectorType(I1, len(places)), [I1(int(p in lane_of)) for p in places])
    pointer = element_pointer(f, stmt.buffer, stmt.index)
    if low:
        pointer = b.gep(pointer, [I32(low)], source_etype=element)
    intrinsic(b, f"llvm.masked.store.{suffix(wide.type)}.p0", VOID,
              [wide, pointer, I32(stmt.buffer.dtype.itemsize), wanted])
    return True


def _store_lanes(f: Frame, stmt: Store, guard: ll.Value | None) -> None:
    assert f.lanes is not None
    b, count, dtype = f.b, f.lanes.count, stmt.buffer.dtype
    value = f.wide(f.value(stmt.value))
    if stmt.combine is not None:
        old = from_memory(b, _load_lanes(f, stmt.buffer, stmt.index, guard), dtype)
        value = apply(b, stmt.combine, dtype, [old, value])
    value = to_memory(b, value, dtype)
    mask = _mask(f, guard)
    align = dtype.itemsize
    if offsets(f, stmt.index) == tuple(range(count)):
        pointer = element_pointer(f, stmt.buffer, stmt.index)
        if mask is None:
            b.store(value, pointer, align=align)
            return
        name = f"llvm.masked.store.{suffix(value.type)}.p0"
        intrinsic(b, name, VOID, [value, pointer, I32(align), mask])
        return
    if guard is None and _store_window(f, stmt, value):
        return
    pointers = lane_pointers(f, stmt.buffer, stmt.index)
    name = f"llvm.masked.scatter.{suffix(value.type)}.v{count}p0"
    every = mask if mask is not None else f.mask(count)
    intrinsic(b, name, VOID, [value, pointers, I32(align), every])


