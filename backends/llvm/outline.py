"""PARALLEL loops: the body as a function of its own, run in blocks by `parallel_for`."""

from __future__ import annotations

from collections.abc import Callable

import llvmlite.ir as ll

from rlx_py.backends.llvm.address import byte_offset
from rlx_py.backends.llvm.frame import PTR, VOID, Frame
from rlx_py.backends.llvm.layout import body_type, parallel_for_place, parallel_for_type
from rlx_py.backends.llvm.scalars import I32, I64
from rlx_py.ir.base.errors import BackendError
from rlx_py.ir.loops.canonical import Canonical
from rlx_py.ir.loops.index import Var
from rlx_py.ir.loops.kernel import Buffer, For, Scope, Stmt
from rlx_py.ir.loops.local import Local

EmitBody = Callable[[Frame, tuple[Stmt, ...]], None]
SLOT = 8


def parallel_loop(f: Frame, loop: For, emit_body: EmitBody) -> None:
    """Outline the body and run it over 0 … extent − 1, through the step's parallel_for if given."""
    captured = _capture(f, loop)
    values = list(captured.values())
    b = f.b
    context = f.cell(ll.ArrayType(I64, max(len(values), 1)))
    for n, value in enumerate(values):
        b.store(value, byte_offset(f, context, n * SLOT))
    worker = _worker(f, loop, captured, emit_body)
    thunk = _thunk(f, worker, [v.type for v in values])
    place = byte_offset(f, f.step, parallel_for_place(f.unit.program))
    runner = b.load(place, typ=PTR)
    serial, team, after = (b.append_basic_block(n) for n in ("serial", "team", "joined"))
    extent = I64(loop.var.extent)
    b.cbranch(b.icmp_unsigned("==", runner, ll.Constant(PTR, None)), serial, team)
    b.position_at_end(serial)
    b.call(thunk, [context, I64(0), extent, I32(0)])
    b.branch(after)
    b.position_at_end(team)
    call_through(b, runner, parallel_for_type(), [thunk, context, extent])
    b.branch(after)
    b.position_at_end(after)


def call_through(b: ll.IRBuilder, pointer: ll.Value, kind: ll.FunctionType,
                 args: list[ll.Value]) -> ll.Value:
    """A call of a function pointer."""
    return b.call(_Pointee(pointer, kind), args)


class _Pointee:
    """What llvmlite wants of a callee: with opaque pointers a loaded one does not have it."""

    calling_convention = ""

    def __init__(self, pointer: ll.Value, kind: ll.FunctionType) -> None:
        self.pointer, self.function_type = pointer, kind
        self.type = pointer.type

    def get_reference(self) -> str:
        reference: str = self.pointer.get_reference()
        return reference


def _capture(f: Frame, loop: For) -> dict[Buffer | Var | Local, ll.Value]:
    """Values of the surrounding function that the body uses."""
    used = Canonical((loop,))
    found: dict[Buffer | Var | Local, ll.Value] = {}
    for buffer in used.buffers:
        if buffer in f.buffers:
            found[buffer] = f.buffers[buffer]
    for var in used.vars:
        value = f.vars.get(var)
        if isinstance(value, ll.Value):
            found[var] = value
    for local in used.locals:
        if local in f.cells:
            cell = f.cells[local]
            found[local] = f.b.load(cell, typ=cell.allocated_type)
        elif local in f.values:
            found[local] = f.values[local]
    return found


def _worker(f: Frame, loop: For, captured: dict[Buffer | Var | Local, ll.Value],
            emit_body: EmitBody) -> ll.Function:
    """void(captured …, begin, end, thread): the loop over a block."""
    types = [v.type for v in captured.values()]
    kind = ll.FunctionType(VOID, [*types, I64, I64, I64])
    function = f.unit.function(f"{f.function.name}_worker", kind)
    inner = Frame(f.unit, function)
    *values, begin, end, inner.thread = function.args
    inner.vars.update((v, i) for v, i in f.vars.items() if isinstance(i, int))
    for what, argument, outside in zip(captured, values, captured.values(), strict=True):
        if isinstance(what, Buffer):
            inner.buffers[what] = own_copy(inner, what, argument)
            if isinstance(outside, ll.Argument) and "noalias" in outside.attributes:
                argument.add_attribute("noalias")
        elif isinstance(what, Var):
            inner.vars[what] = argument
        else:
            inner.values[what] = argument
    with inner.loop(end, begin) as i:
        inner.vars[loop.var] = i
        emit_body(inner, loop.body)
    inner.finish()
    return function


def own_copy(f: Frame, buffer: Buffer, base: ll.Value) -> ll.Value:
    """A TILE buffer of this thread; any other buffer is shared."""
    if buffer.scope is not Scope.TILE:
        return base
    if f.thread is None:
        raise BackendError(f"{buffer} has no thread")
    return byte_offset(f, base, f.b.mul(f.thread, I64(f.unit.program.scratch)))


def _thunk(f: Frame, worker: ll.Function, types: list[ll.Type]) -> ll.Function:
    """The worker behind the C signature: void(context, begin, end, thread)."""
    function = f.unit.function(f"{worker.name}_body", body_type())
    context, begin, end, thread = function.args
    b = ll.IRBuilder(function.append_basic_block("entry"))
    values = [
        b.load(b.gep(context, [I64(n)], source_etype=I64), typ=kind)
        for n, kind in enumerate(types)
    ]
    b.call(worker, [*values, begin, end, b.sext(thread, I64)])
    b.ret_void()
    return function
