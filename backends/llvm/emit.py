"""Statements of the loop language in LLVM IR."""

from __future__ import annotations

import llvmlite.ir as ll

from rlx_py.backends.llvm.address import element_pointer, index_value, lane_index, offsets
from rlx_py.backends.llvm.convert import bitcast, cast
from rlx_py.backends.llvm.frame import PTR, VOID, Frame, numbers
from rlx_py.backends.llvm.memory import load, store
from rlx_py.backends.llvm.outline import parallel_loop
from rlx_py.backends.llvm.scalars import I32, I64, aligned, apply, lanes_of, scalar_type, splat
from rlx_py.backends.llvm.tile import (
    CopySpec,
    DotSpec,
    TileSpec,
    copy_function,
    dot_function,
    tile_function,
)
from rlx_py.backends.llvm.vector import combine_into, vector_loop
from rlx_py.ir.base.errors import BackendError
from rlx_py.ir.base.types import i64
from rlx_py.ir.loops.index import Index
from rlx_py.ir.loops.kernel import (
    Alloc,
    Apply,
    Axis,
    Bitcast,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    For,
    Function,
    If,
    IndexValue,
    Invoke,
    Let,
    Load,
    Read,
    Scope,
    Set,
    Stmt,
    Store,
    Tile,
    While,
)
from rlx_py.ir.loops.lanes import index_varies


def emit_body(f: Frame, body: tuple[Stmt, ...]) -> None:
    """Emit statements in order."""
    for s in body:
        match s:
            case Let():
                f.values[s.local] = emit_expr(f, s.expr)
            case Set():
                emit_set(f, s)
            case Store():
                store(f, s)
            case For():
                emit_for(f, s)
            case While():
                emit_while(f, s)
            case If():
                with f.where(f.value(s.condition)):
                    emit_body(f, s.body)
            case Alloc(buffer):
                emit_alloc(f, buffer)
            case Call():
                emit_call(f, s)
            case Tile():
                emit_tile(f, s)
            case _:
                raise BackendError(f"no machine code for {type(s).__name__} statements on a CPU")


def emit_expr(f: Frame, expr: Expr) -> ll.Value:
    """The value of an expression: a scalar, or a vector where it varies between lanes."""
    match expr:
        case Const() | Read():
            return f.value(expr)
        case Load():
            return load(f, expr)
        case Apply(op, args):
            # Of select(condition, x, y) the chosen operands decide; elsewhere all are alike.
            values = [f.value(a) for a in args]
            return apply(f.b, op, args[-1].dtype, values, fma=f.unit.target.fma)
        case Invoke(function, args):
            return _invoke(f, function, [f.value(a) for a in args])
        case Cast(arg, dtype):
            return cast(f.b, f.value(arg), arg.dtype, dtype)
        case Bitcast(arg, dtype):
            return bitcast(f.b, f.value(arg), arg.dtype, dtype)
        case IndexValue():
            return _index_number(f, expr)


def _invoke(f: Frame, function: Function, args: list[ll.Value]) -> ll.Value:
    """A call of the function's one copy for this many lanes."""
    args = aligned(f.b, args)
    lanes = lanes_of(args[0])
    key = (function.name, lanes)
    code = f.unit.functions.get(key)
    if code is None:
        code = f.unit.functions[key] = _scalar_function(f, function, [a.type for a in args])
    return f.b.call(code, args)


def _scalar_function(f: Frame, function: Function, types: list[ll.Type]) -> ll.Function:
    vector = isinstance(types[0], ll.VectorType)
    scalar = scalar_type(function.result.dtype)
    result = ll.VectorType(scalar, types[0].count) if vector else scalar
    code = f.unit.function(function.name, ll.FunctionType(result, types))
    inner = Frame(f.unit, code)
    inner.values.update(zip(function.parameters, code.args, strict=True))
    for let in function.body:
        inner.values[let.local] = emit_expr(inner, let.expr)
    value = inner.value(function.result)
    inner.finish(splat(inner.b, value, types[0].count) if vector else value)
    return code


def _index_number(f: Frame, expr: IndexValue) -> ll.Value:
    lanes = f.lanes
    if lanes is None or not index_varies(expr.index, lanes.var, lanes.varying):
        return cast(f.b, index_value(f, expr.index), i64, expr.dtype)
    distances = offsets(f, expr.index)
    if distances is not None and expr.dtype is i64:
        base = splat(f.b, index_value(f, expr.index), lanes.count)
        return f.b.add(base, numbers(distances, I64))
    value, dtype = lane_index(f, expr.index)
    return cast(f.b, value, dtype, expr.dtype)


def emit_set(f: Frame, stmt: Set) -> None:
    """Declare or change an accumulator."""
    value = f.value(stmt.value)
    if stmt.combine is not None:
        combine_into(f, stmt.local, stmt.combine, value)
        return
    cell = f.cells.get(stmt.local)
    if cell is None:
        cell = f.cells[stmt.local] = f.cell(f.cell_type(stmt.local))
    if isinstance(cell.allocated_type, ll.VectorType):
        value = f.wide(value)
    if value.type != cell.allocated_type:
        raise BackendError(f"{stmt.local} is set in lanes but declared outside of them")
    f.b.store(value, cell)


def emit_for(f: Frame, loop: For) -> None:
    """A loop on its axis; without iterations nothing."""
    extent = loop.var.extent
    if extent == 0:
        return
    if loop.axis is Axis.VECTOR:
        vector_loop(f, loop, emit_body)
    elif loop.axis is Axis.UNROLL or extent == 1:
        for i in range(extent):
            with f.scope():
                f.vars[loop.var] = i
                emit_body(f, loop.body)
    elif loop.axis is Axis.PARALLEL and f.thread is None:
        parallel_loop(f, loop, emit_body)
    elif loop.axis in (Axis.SERIAL, Axis.PARALLEL):
        with f.loop(extent) as i:
            f.vars[loop.var] = i
            emit_body(f, loop.body)
    else:
        raise BackendError(f"a CPU has no {loop.axis.value} loops")


def emit_while(f: Frame, loop: While) -> None:
    """Test, run, count."""
    b = f.b
    head, body, after = (b.append_basic_block(n) for n in ("head", "while", "after"))
    before = b.block
    b.branch(head)
    b.position_at_end(head)
    round = b.phi(I64)
    round.add_incoming(I64(0), before)
    goes_on = f.value(Read(loop.condition))
    if loop.bound is not None:
        goes_on = b.and_(goes_on, b.icmp_signed("<", round, I64(loop.bound)))
    b.cbranch(goes_on, body, after)
    b.position_at_end(body)
    with f.scope():
        emit_body(f, loop.body)
    round.add_incoming(b.add(round, I64(1)), b.block)
    b.branch(head)
    b.position_at_end(after)


def emit_alloc(f: Frame, buffer: Buffer) -> None:
    """A LOCAL buffer is an array on the stack; a TILE has its place in the plan."""
    if buffer.scope is Scope.LOCAL:
        f.buffers[buffer] = f.array(buffer.dtype, buffer.size)
    elif buffer.scope is not Scope.TILE:
        raise BackendError(f"a CPU has no {buffer.scope.value} memory ({buffer})")


def emit_call(f: Frame, stmt: Call) -> None:
    """void symbol(pointers …): integers are passed by their address."""
    args = [f.buffers[a] if isinstance(a, Buffer) else _by_address(f, a) for a in stmt.args]
    module = f.unit.module
    function = module.globals.get(stmt.symbol)
    if function is None:
        function = ll.Function(module, ll.FunctionType(VOID, [PTR] * len(args)), stmt.symbol)
    f.b.call(function, args)


def _by_address(f: Frame, index: Index) -> ll.Value:
    cell = f.cell(I32)
    f.b.store(f.b.trunc(index_value(f, index), I32), cell)
    return cell


def emit_tile(f: Frame, stmt: Tile) -> None:
    """A call of the register tile's function."""
    dtype = stmt.out.buffer.dtype.name
    a, b, out = (element_pointer(f, m.buffer, m.start) for m in (stmt.a, stmt.b, stmt.out))
    lanes = f.unit.target.lanes(dtype)
    if stmt.kind == "copy":
        copy = copy_function(f.unit.module, CopySpec(dtype, stmt.cols, lanes))
        f.b.call(copy, [I64(stmt.rows), a, I64(stmt.a.col), out, I64(stmt.out.row)])
        return
    depth = I64(stmt.depth)
    if stmt.kind == "outer":
        spec = TileSpec(dtype, stmt.rows, stmt.cols, lanes, stmt.accumulate, run=stmt.run,
                        fma=f.unit.target.fma)
        args = [depth, a, I64(stmt.a.row), I64(stmt.a.col), b, I64(stmt.b.row), out,
                I64(stmt.out.row)]
        f.b.call(tile_function(f.unit.module, spec), args)
        return
    dot = DotSpec(dtype, stmt.rows, stmt.cols, lanes, stmt.accumulate)
    args = [depth, a, I64(stmt.a.row), b, I64(stmt.b.col), out, I64(stmt.out.row)]
    f.b.call(dot_function(f.unit.module, dot), args)
