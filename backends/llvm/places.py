"""Where the elements of arrays lie, asked of all arrays of a call at once.

NumPy's own way to an address takes longer than a small step, and an address that was kept may be
stale: `resize`, `__setstate__` and assignments to an array's attributes move or re-shape it in
place. So each call reads the arrays' C structures (PyArrayObject, fixed by NumPy's C interface),
and compares them with what the compiled code was made for, in native code that holds the
interpreter's lock.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from operator import itemgetter
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from rlx_py.backends.llvm.targets import host, machine
from rlx_py.ir.base.types import TensorType

Array = np.ndarray[Any, Any]
C_CONTIGUOUS, ALIGNED, WRITEABLE = 0x1, 0x100, 0x400  # of numpy/ndarraytypes.h
SWAPPED = ">" if sys.byteorder == "little" else "<"
HEADER = object.__basicsize__  # of every object: its type comes last
ITEMS = tuple.__basicsize__  # where those of a tuple begin


class _ArrayFields(ctypes.Structure):
    """PyArrayObject after the object's header."""

    _fields_ = (("data", ctypes.c_void_p), ("rank", ctypes.c_int), ("shape", ctypes.c_void_p),
                ("strides", ctypes.c_void_p), ("base", ctypes.c_void_p),
                ("descr", ctypes.c_void_p), ("flags", ctypes.c_int))


class _DescrFields(ctypes.Structure):
    """PyArray_Descr after the object's header, as far as all versions of NumPy agree."""

    _fields_ = (("scalar", ctypes.c_void_p), ("kind", ctypes.c_char), ("type", ctypes.c_char),
                ("byteorder", ctypes.c_char), ("flags", ctypes.c_char), ("number", ctypes.c_int))


# The table has for each array: the number of its element type, its rank, the flags it must have,
# the slot for its address, and its sizes.
SOURCE = """
; frame: the table, the number of arrays, the slots
define i64 @find(ptr %arrays, ptr %frame) {{
entry:
  %table = load ptr, ptr %frame
  %count.at = getelementptr i64, ptr %frame, i64 1
  %count = load i64, ptr %count.at
  %slots.at = getelementptr i64, ptr %frame, i64 2
  %slots = load ptr, ptr %slots.at
  br label %next
next:
  %n = phi i64 [ 0, %entry ], [ %after, %found ]
  %row = phi ptr [ %table, %entry ], [ %row.after, %found ]
  %all = icmp eq i64 %n, %count
  br i1 %all, label %fit, label %check
check:
  %item = getelementptr ptr, ptr %arrays, i64 %n
  %array = load ptr, ptr %item
  %class.at = getelementptr i8, ptr %array, i64 {class_at}
  %class = load i64, ptr %class.at
  %is.array = icmp eq i64 %class, {array_class}
  br i1 %is.array, label %element, label %misfit
element:
  %descr.at = getelementptr i8, ptr %array, i64 {descr_at}
  %descr = load ptr, ptr %descr.at
  %number.at = getelementptr i8, ptr %descr, i64 {number_at}
  %number = load i32, ptr %number.at
  %order.at = getelementptr i8, ptr %descr, i64 {order_at}
  %order = load i8, ptr %order.at
  %number.wide = sext i32 %number to i64
  %number.wanted = load i64, ptr %row
  %is.number = icmp eq i64 %number.wide, %number.wanted
  %is.native = icmp ne i8 %order, {swapped}
  %is.type = and i1 %is.number, %is.native
  %rank.at = getelementptr i8, ptr %array, i64 {rank_at}
  %rank = load i32, ptr %rank.at
  %rank.wide = sext i32 %rank to i64
  %rank.row = getelementptr i64, ptr %row, i64 1
  %rank.wanted = load i64, ptr %rank.row
  %is.rank = icmp eq i64 %rank.wide, %rank.wanted
  %flags.at = getelementptr i8, ptr %array, i64 {flags_at}
  %flags = load i32, ptr %flags.at
  %flags.wide = zext i32 %flags to i64
  %flags.row = getelementptr i64, ptr %row, i64 2
  %flags.wanted = load i64, ptr %flags.row
  %flags.had = and i64 %flags.wide, %flags.wanted
  %has.flags = icmp eq i64 %flags.had, %flags.wanted
  %is.both = and i1 %is.type, %is.rank
  %is.like = and i1 %is.both, %has.flags
  %shape.at = getelementptr i8, ptr %array, i64 {shape_at}
  %shape = load ptr, ptr %shape.at
  %sizes = getelementptr i64, ptr %row, i64 4
  br i1 %is.like, label %axis, label %misfit
axis:
  %a = phi i64 [ 0, %element ], [ %a.after, %size ]
  %is.shape = icmp eq i64 %a, %rank.wanted
  br i1 %is.shape, label %found, label %size
size:
  %size.at = getelementptr i64, ptr %shape, i64 %a
  %size.is = load i64, ptr %size.at
  %size.row = getelementptr i64, ptr %sizes, i64 %a
  %size.wanted = load i64, ptr %size.row
  %a.after = add i64 %a, 1
  %is.size = icmp eq i64 %size.is, %size.wanted
  br i1 %is.size, label %axis, label %misfit
found:
  %data.at = getelementptr i8, ptr %array, i64 {data_at}
  %data = load i64, ptr %data.at
  %slot.row = getelementptr i64, ptr %row, i64 3
  %slot = load i64, ptr %slot.row
  %slot.at = getelementptr i64, ptr %slots, i64 %slot
  store i64 %data, ptr %slot.at
  %row.after = getelementptr i64, ptr %sizes, i64 %rank.wanted
  %after = add i64 %n, 1
  br label %next
fit:
  ret i64 -1
misfit:
  ret i64 %n
}}
"""


@dataclass(frozen=True)
class Place:
    """An array of a call: its type, whether the call writes it, and the slot of its address."""

    type: TensorType
    slot: int
    written: bool = False


class Places:
    """The arrays of a call, checked and found."""

    def __init__(self, places: Sequence[Place]) -> None:
        rows = [n for p in places for n in (
            p.type.dtype.numpy.num, p.type.rank,
            C_CONTIGUOUS | ALIGNED | (WRITEABLE if p.written else 0), p.slot, *p.type.shape)]
        self.count, self._find = len(places), _finder()
        self._table = (ctypes.c_int64 * len(rows))(*rows)

    def frame(self, slots: int) -> ctypes.Array[ctypes.c_uint64]:
        """What `find` works in, for slots at an address; for one caller at a time."""
        return (ctypes.c_uint64 * 3)(ctypes.addressof(self._table), self.count, slots)

    def find(self, arrays: tuple[Any, ...], frame: int) -> int:
        """Put the address of each array into its slot. Returns the first that is no array of its
        type, dense, aligned, and writable where it is written; -1 where there is none.

        frame: the address of one that `frame` made.
        """
        assert len(arrays) == self.count
        return self._find(id(arrays) + ITEMS, frame)


@cache
def _finder() -> Callable[[int, int], int]:
    """`find` of the source; its code stays until the process ends."""
    module = llvm.parse_assembly(SOURCE.format(
        class_at=HEADER - ctypes.sizeof(ctypes.c_void_p), array_class=id(np.ndarray),
        **{f"{k}_at": HEADER + getattr(_ArrayFields, k).offset
           for k in ("data", "rank", "shape", "descr", "flags")},
        number_at=HEADER + _DescrFields.number.offset,
        order_at=HEADER + _DescrFields.byteorder.offset, swapped=ord(SWAPPED)))
    module.verify()
    engine = llvm.create_mcjit_compiler(module, machine(host()))
    engine.finalize_object()
    address = engine.get_function_address("find")
    engine.detach()
    # Not CFUNCTYPE, which gives up the interpreter's lock: other threads could change the arrays.
    return ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)(address)


def picker(names: Iterable[str]) -> Callable[[Mapping[str, Any]], tuple[Any, ...]]:
    """What takes the values of some names out of a mapping, as a tuple."""
    wanted = tuple(names)
    if len(wanted) > 1:
        return itemgetter(*wanted)
    return lambda values: tuple(values[name] for name in wanted)
