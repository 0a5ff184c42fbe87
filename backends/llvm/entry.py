"""The exported functions of a program: they check what C gives, then run the step."""

from __future__ import annotations

from collections.abc import Iterable

import llvmlite.ir as ll
import numpy as np

from rlx_py.backends.llvm.frame import PTR, VOID, bytes_constant
from rlx_py.backends.llvm.header import Field
from rlx_py.backends.llvm.layout import arena_place, parallel_for_place, ports
from rlx_py.backends.llvm.native import ALIGN, Array
from rlx_py.backends.llvm.scalars import I8, I32, I64, intrinsic
from rlx_py.ir.graph.interface import Interface
from rlx_py.ir.loops.program import Program

I1 = ll.IntType(1)
NULL = ll.Constant(PTR, None)
OK, NULL_STEP, NULL_ARRAY, MISALIGNED_ARRAY, BAD_ARENA, BAD_THREADS = range(6)


def add_constant(module: ll.Module, name: str, content: bytes, *, public: bool = False,
                 align: int = 1) -> ll.GlobalVariable:
    """Bytes of the module."""
    value = bytes_constant(content)
    variable = ll.GlobalVariable(module, value.type, name)
    variable.global_constant, variable.align, variable.initializer = True, align, value
    if not public:
        variable.linkage = "internal"
    variable.type = PTR  # llvmlite gives it a typed pointer, which fits no other call
    return variable


def add_run(module: ll.Module, program: Program, symbol: str, fields: tuple[Field, ...]) -> None:
    """int32_t NAME_run(NAME_step *): the program's entry behind a checked, typed struct.

    The entry becomes internal; its struct has a slot of 8 bytes for each port (see layout).
    """
    entry = module.globals[f"{symbol}_entry"]
    entry.linkage = "internal"
    b, step = _open(module, f"{symbol}_run")
    values = [_field(b, step, n) for n in range(len(fields) + 3)]
    arena, parallel_for, count = values[len(fields):]
    threads = b.ptrtoint(count, I64)
    serial = b.icmp_unsigned("==", parallel_for, NULL)
    bad_threads = b.and_(b.not_(serial), b.icmp_signed("<", threads, I64(1)))
    bad_arena = I1(0)
    if program.arena or program.scratch:
        bad_arena = b.or_(b.icmp_unsigned("==", arena, NULL), _misaligned(b, arena, ALIGN))
    _refuse(b, [(BAD_THREADS, bad_threads), (BAD_ARENA, bad_arena),
                *_array_faults(b, zip(fields, values, strict=False))])
    slots = b.alloca(ll.ArrayType(I64, len(ports(program)) + 3))
    slots.type, slots.align = PTR, 8
    places = [*range(0, 8 * len(fields), 8), arena_place(program), parallel_for_place(program)]
    for place, value in zip(places, values, strict=False):
        b.store(value, b.gep(slots, [I64(place)], source_etype=I8))
    last = b.gep(slots, [I64(parallel_for_place(program) + 8)], source_etype=I8)
    b.store(b.select(serial, I64(1), threads), last)
    b.ret(b.call(entry, [slots]))


def add_init(module: ll.Module, symbol: str, fields: tuple[Field, ...],
             interface: Interface) -> None:
    """int32_t NAME_init(NAME_step *): initial values into the arrays of states."""
    b, step = _open(module, f"{symbol}_init")
    states = [(f, _field(b, step, n)) for n, f in enumerate(fields) if f.kind == "state"]
    _refuse(b, _array_faults(b, states))
    for field, pointer in states:
        if field.type.size:
            _fill(module, b, pointer, interface.defaults[field.name], f"{symbol}_first")
    b.ret(I32(OK))


def _open(module: ll.Module, name: str) -> tuple[ll.IRBuilder, ll.Value]:
    """A public function of a struct that is refused if NULL."""
    function = ll.Function(module, ll.FunctionType(I32, [PTR]), name)
    function.attributes.add("nounwind")
    b = ll.IRBuilder(function.append_basic_block("entry"))
    step = function.args[0]
    _refuse(b, [(NULL_STEP, b.icmp_unsigned("==", step, NULL))])
    return b, step


def _field(b: ll.IRBuilder, step: ll.Value, n: int) -> ll.Value:
    """Every field of the struct has the size of a pointer."""
    return b.load(b.gep(step, [I64(n)], source_etype=PTR), typ=PTR)


def _misaligned(b: ll.IRBuilder, pointer: ll.Value, align: int) -> ll.Value:
    low = b.and_(b.ptrtoint(pointer, I64), I64(align - 1))
    return b.icmp_unsigned("!=", low, I64(0))


def _array_faults(b: ll.IRBuilder, arrays: Iterable[tuple[Field, ll.Value]]
                  ) -> list[tuple[int, ll.Value]]:
    """Whether any array with elements is misaligned, and whether any is NULL."""
    null, misaligned = I1(0), I1(0)
    for field, pointer in arrays:
        if field.type.size:
            null = b.or_(null, b.icmp_unsigned("==", pointer, NULL))
            misaligned = b.or_(misaligned, _misaligned(b, pointer, field.type.dtype.itemsize))
    return [(MISALIGNED_ARRAY, misaligned), (NULL_ARRAY, null)]


def _refuse(b: ll.IRBuilder, faults: list[tuple[int, ll.Value]]) -> None:
    """Return the code of the last fault that holds, or go on."""
    code: ll.Value = I32(OK)
    for number, holds in faults:
        code = b.select(holds, I32(number), code)
    refused, fine = (b.append_basic_block(n) for n in ("refused", "fine"))
    b.cbranch(b.icmp_unsigned("!=", code, I32(OK)), refused, fine)
    b.position_at_end(refused)
    b.ret(code)
    b.position_at_end(fine)


def _fill(module: ll.Module, b: ll.IRBuilder, pointer: ll.Value, value: Array, name: str) -> None:
    """Store an array's bits: one value over and over if all are equal, else a copy."""
    content = np.ascontiguousarray(value).tobytes()
    size = value.dtype.itemsize
    if content == content[:1] * len(content):
        args = [pointer, I8(content[0]), I64(len(content)), I1(0)]
        intrinsic(b, "llvm.memset.p0.i64", VOID, args)
    elif content == content[:size] * (len(content) // size):
        _repeat(b, pointer, ll.IntType(8 * size)(int(value.reshape(-1)[:1].view(f"u{size}")[0])),
                value.size)
    else:
        source = add_constant(module, module.get_unique_name(name), content, align=ALIGN)
        args = [pointer, source, I64(len(content)), I1(0)]
        intrinsic(b, "llvm.memcpy.p0.p0.i64", VOID, args)


def _repeat(b: ll.IRBuilder, pointer: ll.Value, value: ll.Constant, count: int) -> None:
    before = b.block
    body, after = (b.append_basic_block(n) for n in ("fill", "filled"))
    b.branch(body)
    b.position_at_end(body)
    i = b.phi(I64)
    b.store(value, b.gep(pointer, [i], source_etype=value.type))
    following = b.add(i, I64(1))
    i.add_incoming(I64(0), before)
    i.add_incoming(following, body)
    b.cbranch(b.icmp_unsigned("<", following, I64(count)), body, after)
    b.position_at_end(after)
