"""VECTOR loops: lanes, the masked last step, and partial results of what a loop combines into."""

from __future__ import annotations

from collections.abc import Callable

import llvmlite.ir as ll

from rlx_py.backends.llvm.frame import Frame, Lanes, numbers
from rlx_py.backends.llvm.scalars import (
    I32,
    I64,
    apply,
    constant,
    lanes_of,
    scalar_type,
    splat,
)
from rlx_py.ir.base.errors import BackendError
from rlx_py.ir.loops.kernel import For, IndexValue, Let, Stmt
from rlx_py.ir.loops.lanes import (
    PARTIALS,
    buffers_of,
    identity,
    partials,
    reductions,
    runs_in_lanes,
    varying_locals,
    walk,
)
from rlx_py.ir.loops.local import Local

EmitBody = Callable[[Frame, tuple[Stmt, ...]], None]

# Bytes of the vectors of a loop that combines: on every machine, so that few chains are left.
REDUCTION_BYTES = 64
# A body of at most so many statements is copied out, one copy a chain.
SMALL = 12


def combine_into(f: Frame, local: Local, combine: str, value: ll.Value) -> None:
    """local = combine(local, value), in the lanes' partial results where there are any."""
    b = f.b
    if f.lanes is not None and local in f.lanes.partials:
        cell = f.lanes.partials[local][0]
        old = b.load(cell, typ=cell.allocated_type)
        new = apply(b, combine, local.dtype, [old, f.wide(value)])
        b.store(new if f.lanes.mask is None else b.select(f.lanes.mask, new, old), cell)
        return
    if local in f.partials:
        array, place = f.partials[local]
        pointer = b.gep(array, [place], source_etype=scalar_type(local.dtype))
        old = b.load(pointer, typ=scalar_type(local.dtype))
        b.store(apply(b, combine, local.dtype, [old, value]), pointer)
        return
    cell = f.cells.get(local)
    if cell is None:
        raise BackendError(f"{local} is combined into before it is set")
    old = b.load(cell, typ=cell.allocated_type)
    new = apply(b, combine, local.dtype, [old, value])
    if new.type != cell.allocated_type:
        raise BackendError(f"{local} varies between lanes but is declared outside of them")
    b.store(new, cell)


def vector_loop(f: Frame, loop: For, emit_body: EmitBody) -> None:
    """A VECTOR loop: in lanes where that keeps its meaning, else one by one; same bits."""
    varying = varying_locals(loop)
    combined = reductions(loop)
    count = _lane_count(f, loop, varying, bool(combined))
    if count == 1 or f.lanes is not None or not runs_in_lanes(loop, varying):
        _one_by_one(f, loop, combined, emit_body)
    else:
        _in_lanes(f, loop, Lanes(loop.var, count, varying, {}), combined, emit_body)


def _lane_count(f: Frame, loop: For, varying: set[Local], combines: bool) -> int:
    # Positions are wide but few: they may take two registers where the values fill one.
    positions = {s.local for s in walk(loop.body)
                 if isinstance(s, Let) and isinstance(s.expr, IndexValue)}
    sizes = [x.dtype.itemsize for x in varying - positions]
    sizes += [b.dtype.itemsize for b in buffers_of(loop)]
    width = REDUCTION_BYTES if combines else f.unit.target.vector_bytes
    most = 1 << (loop.var.extent - 1).bit_length()
    return max(1, min(width // max(sizes, default=1), most, PARTIALS))


def _one_by_one(f: Frame, loop: For, combined: dict[Local, str], emit_body: EmitBody) -> None:
    extent, b = loop.var.extent, f.b
    count = partials(extent)
    arrays: dict[Local, ll.Value] = {}
    for local, combine in combined.items():
        kind = ll.ArrayType(scalar_type(local.dtype), count)
        arrays[local] = f.cell(kind)
        one = constant(identity(combine, local.dtype), local.dtype)
        b.store(ll.Constant(kind, [one] * count), arrays[local])
    outer = dict(f.partials)
    with f.loop(extent) as i:
        f.vars[loop.var] = i
        place = b.urem(i, I64(count)) if combined else i
        f.partials.update({local: (array, place) for local, array in arrays.items()})
        emit_body(f, loop.body)
    f.partials = outer
    for local, combine in combined.items():
        kind = scalar_type(local.dtype)
        values = [
            b.load(b.gep(arrays[local], [I64(n)], source_etype=kind), typ=kind)
            for n in range(count)
        ]
        combine_into(f, local, combine, _fold(f, combine, local, values))


def _in_lanes(f: Frame, loop: For, lanes: Lanes, combined: dict[Local, str],
              emit_body: EmitBody) -> None:
    extent, b = loop.var.extent, f.b
    chains = max(1, partials(extent) // lanes.count) if combined else 1
    for local, combine in combined.items():
        start = splat(b, constant(identity(combine, local.dtype), local.dtype), lanes.count)
        cells = lanes.partials[local] = [f.cell(start.type) for _ in range(chains)]
        for cell in cells:
            b.store(start, cell)
    full, rest = divmod(extent, lanes.count)
    f.lanes = lanes

    def step(base: ll.Value | int) -> None:
        with f.scope():
            f.vars[loop.var] = base
            emit_body(f, loop.body)
        if copies == 1 and isinstance(base, ll.Value):
            _rotate(f, lanes)
            return
        for cells in lanes.partials.values():
            cells.append(cells.pop(0))

    is_small = len(walk(loop.body)) <= SMALL and not any(isinstance(s, For) for s in loop.body)
    copies = chains if is_small else 1
    rounds, left = divmod(full, copies)
    if rounds > 1:
        with f.loop(rounds * copies * lanes.count, step=copies * lanes.count) as i:
            for copy in range(copies):
                step(b.add(i, I64(copy * lanes.count), flags=("nsw",)) if copy else i)
    else:
        left = full
    for n in range(full - left, full):
        step(n * lanes.count)
    if rest:
        lanes.mask = f.mask(rest)
        step(full * lanes.count)
    f.lanes = None
    turned = (full + (1 if rest else 0)) % chains
    for local, combine in combined.items():
        cells = lanes.partials[local]
        # After that many turns chain c is in cell c − turned.
        vectors = [b.load(cells[(c - turned) % chains], typ=cells[0].allocated_type)
                   for c in range(chains)]
        combine_into(f, local, combine, _fold(f, combine, local, vectors))


def _rotate(f: Frame, lanes: Lanes) -> None:
    """Give the next step the next chain; registers turn, no code is copied."""
    for cells in lanes.partials.values():
        values = [f.b.load(c, typ=c.allocated_type) for c in cells]
        for cell, value in zip(cells, values[1:] + values[:1], strict=True):
            f.b.store(value, cell)


def _fold(f: Frame, combine: str, local: Local, values: list[ll.Value]) -> ll.Value:
    """All partial results into one, by halves: the upper onto the lower."""
    b, dtype = f.b, local.dtype
    while len(values) > 1:
        half = len(values) // 2
        values = [apply(b, combine, dtype, [values[n], values[n + half]]) for n in range(half)]
    (value,) = values
    width = lanes_of(value)
    while width > 1:
        width //= 2
        low = b.shuffle_vector(value, value, numbers(list(range(width))))
        high = b.shuffle_vector(value, value, numbers(list(range(width, 2 * width))))
        value = apply(b, combine, dtype, [low, high])
    return b.extract_element(value, I32(0)) if lanes_of(value) else value
