"""Index arithmetic in LLVM IR: for one iteration, and for every lane of a VECTOR loop."""

from __future__ import annotations

import llvmlite.ir as ll

from rlx_py.backends.llvm.convert import cast
from rlx_py.backends.llvm.frame import PTR, Frame, numbers
from rlx_py.backends.llvm.scalars import I8, I32, I64, like, memory_type, splat
from rlx_py.ir.base.types import DType, i32, i64
from rlx_py.ir.loops.index import Atom, Dynamic, Index, Quotient, Remainder, Var, atoms
from rlx_py.ir.loops.kernel import Buffer, Read
from rlx_py.ir.loops.lanes import index_varies, lane_offsets


def scalar_index(f: Frame, index: Index) -> ll.Value | int:
    """The index as i64, or as a number where it is one; in lanes: that of the first lane."""
    for known in reversed(f.indices):
        if index in known:
            return known[index]
    number, parts = index.const, []
    for atom, coefficient in index.terms:
        value = _scalar_atom(f, atom)
        if isinstance(value, int):
            number += value * coefficient
        elif coefficient == 1:
            parts.append(value)
        else:
            parts.append(f.b.mul(value, I64(coefficient), flags=("nsw",)))
    result: ll.Value | int = number
    if parts:
        total = parts[0]
        for part in parts[1:]:
            total = f.b.add(total, part, flags=("nsw",))
        result = f.b.add(total, I64(number), flags=("nsw",)) if number else total
    # A run-time integer may be an accumulator, whose value changes.
    if not any(isinstance(a, Dynamic) for a in atoms(index)):
        f.indices[-1][index] = result
    return result


def index_value(f: Frame, index: Index) -> ll.Value:
    """The index as an i64 value."""
    found = scalar_index(f, index)
    return I64(found) if isinstance(found, int) else found


def _scalar_atom(f: Frame, atom: Atom) -> ll.Value | int:
    if isinstance(atom, Var):
        return f.vars[atom]
    if isinstance(atom, Dynamic):
        return cast(f.b, f.value(Read(atom.local)), atom.local.dtype, i64)
    value = scalar_index(f, atom.of)
    if isinstance(value, int):
        return value // atom.by if isinstance(atom, Quotient) else value % atom.by
    return _divide(f, atom, value)


def _divide(f: Frame, atom: Quotient | Remainder, value: ll.Value) -> ll.Value:
    """⌊value / by⌋ or value mod by, without signs: what may be negative is shifted up first."""
    by = like(value, atom.by)
    shift = max(0, -(atom.of.range[0] // atom.by))
    if shift:
        value = f.b.add(value, like(value, shift * atom.by))
    if isinstance(atom, Remainder):
        return f.b.urem(value, by)
    quotient = f.b.udiv(value, by)
    return f.b.sub(quotient, like(value, shift)) if shift else quotient


def element_pointer(f: Frame, buffer: Buffer, index: Index) -> ll.Value:
    """The address of an element; in lanes: that of the first lane."""
    base = f.buffers[buffer]
    offset = scalar_index(f, index)
    if isinstance(offset, int):
        offset = I64(offset)
    return f.b.gep(base, [offset], source_etype=memory_type(buffer.dtype))


# ---- lanes -----------------------------------------------------------------------------------


def offsets(f: Frame, index: Index) -> tuple[int, ...] | None:
    """Distances of the lanes from the first; None if they are known only at run time."""
    assert f.lanes is not None
    return lane_offsets(index, f.lanes.var, f.lanes.count, f.lanes.varying)


def lane_index(f: Frame, index: Index) -> tuple[ll.Value, DType]:
    """The index of every lane, in i32 where every value on the way fits, else in i64."""
    kind, dtype = (I32, i32) if _fits(index) else (I64, i64)
    return _lane_sum(f, index, kind), dtype


def _fits(index: Index) -> bool:
    bounds = [index.range]
    for atom in atoms(index):
        if isinstance(atom, Quotient | Remainder):
            low, high = atom.of.range
            shift = max(0, -(low // atom.by)) * atom.by
            bounds.append((low, high + shift))
        else:
            bounds.append(atom.range)
    return all(low >= -(2**31) and high < 2**31 for low, high in bounds)


def _lane_sum(f: Frame, index: Index, kind: ll.IntType) -> ll.Value:
    assert f.lanes is not None
    lanes = f.lanes
    steady = Index(index.const, tuple(
        (a, c) for a, c in index.terms if not index_varies(Index(0, ((a, c),)), lanes.var,
                                                            lanes.varying)))
    total = splat(f.b, _narrow(f, scalar_index(f, steady), kind), lanes.count)
    for atom, coefficient in index.terms:
        if (atom, coefficient) not in steady.terms:
            part = _lane_atom(f, atom, kind)
            total = f.b.add(total, f.b.mul(part, like(part, coefficient)))
    return total


def _narrow(f: Frame, value: ll.Value | int, kind: ll.IntType) -> ll.Value:
    if isinstance(value, int):
        return kind(value)
    return value if kind == value.type else f.b.trunc(value, kind)


def _lane_atom(f: Frame, atom: Atom, kind: ll.IntType) -> ll.Value:
    assert f.lanes is not None
    count = f.lanes.count
    if isinstance(atom, Var):
        base = splat(f.b, _narrow(f, f.vars[atom], kind), count)
        return f.b.add(base, numbers(list(range(count)), kind))
    if isinstance(atom, Dynamic):
        value = f.value(Read(atom.local))
        return splat(f.b, cast(f.b, value, atom.local.dtype, i32 if kind == I32 else i64), count)
    return _divide(f, atom, _lane_sum(f, atom.of, kind))


def lane_pointers(f: Frame, buffer: Buffer, index: Index) -> ll.Value:
    """The address of every lane's element."""
    assert f.lanes is not None
    found, _ = lane_index(f, index)
    pointers = f.b.gep(f.buffers[buffer], [found], source_etype=memory_type(buffer.dtype))
    # llvmlite types every gep as one pointer; with a vector of indices LLVM gives a vector.
    pointers.type = ll.VectorType(PTR, f.lanes.count)
    return pointers


def byte_offset(f: Frame, base: ll.Value, nbytes: ll.Value | int) -> ll.Value:
    """A pointer some bytes on."""
    offset = I64(nbytes) if isinstance(nbytes, int) else nbytes
    return f.b.gep(base, [offset], source_etype=I8)
