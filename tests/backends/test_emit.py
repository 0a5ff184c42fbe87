"""Compiled loop programs compute what the interpreter does, to the bit."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from rlx_py.backends.llvm.jit import compile_program
from rlx_py.backends.llvm.program import emit_module
from rlx_py.backends.llvm.targets import host, named
from rlx_py.ir.base.errors import BackendError
from rlx_py.ir.base.types import DTYPES, DType, bool_, f32, f64, i32, i64, u32
from rlx_py.ir.loops.index import Dynamic, Index, Var, as_index
from rlx_py.ir.loops.interpret import interpret
from rlx_py.ir.loops.kernel import (
    Alloc,
    Apply,
    Bitcast,
    Buffer,
    Cast,
    Expr,
    For,
    If,
    IndexValue,
    Kernel,
    Load,
    Read,
    Scope,
    Set,
    Stmt,
    Store,
    Strided,
    Tile,
    While,
)
from rlx_py.ir.loops.local import Local
from rlx_py.ir.loops.program import Port, Program
from rlx_py.passes.loops.expand_math import expand_math
from support.loop_programs import (
    EXTENTS,
    Axis,
    Maker,
    accumulator,
    arrays_of,
    check,
    copy_loop,
    let,
    literal,
    run_native,
    same_bits,
)

BINARY = {
    "float": ("add", "sub", "mul", "div", "min", "max", "rem", "guarded_mul"),
    "int": ("add", "sub", "mul", "int_div", "rem", "min", "max", "and", "or", "xor", "shl", "shr",
            "lshr"),
    "bool": ("and", "or", "xor"),
}
UNARY = {
    "float": ("neg", "abs", "sqrt", "rsqrt", "floor", "ceil", "round", "trunc", "sign"),
    "int": ("neg", "abs", "sign", "not"),
    "bool": ("not",),
}
LANED = (Axis.SERIAL, Axis.VECTOR)
each_axis = pytest.mark.parametrize("axis", LANED, ids=lambda a: a.value)
each_dtype = pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)


def scalar_program(dtype: DType, axis: Axis, size: int) -> Program:
    """Every scalar operation and conversion of a type, each into an output of its own."""
    kind = "int" if dtype.is_int else dtype.kind
    make, i, body = Maker(), Var("i", size), list[Stmt]()
    x, y = (let(body, Load(make.input(dtype, size), as_index(i))) for _ in range(2))
    exprs: list[Expr] = [Apply(op, (x, y), dtype) for op in BINARY[kind]]
    exprs += [Apply(op, (x,), dtype) for op in UNARY[kind]]
    tests = ("eq", "ne") if dtype is bool_ else ("eq", "ne", "lt", "le", "gt", "ge")
    exprs += [Apply(op, (x, y), bool_) for op in tests]
    if dtype.is_float:
        exprs.append(Apply("fma", (x, y, x), dtype))
    exprs.append(Apply("select", (let(body, Apply("ne", (x, y), bool_)), x, y), dtype))
    exprs += [Cast(x, other) for other in DTYPES.values()]
    exprs.append(IndexValue(as_index(i) * 3 + 1, dtype) if dtype is not bool_ else x)
    for expr in exprs:
        body.append(Store(make.output(expr.dtype, size), as_index(i), let(body, expr)))
    return make.program(For(i, tuple(body), axis))


@each_axis
@each_dtype
def test_scalar_operations(dtype: DType, axis: Axis) -> None:
    check(scalar_program(dtype, axis, 115))


@pytest.mark.skipif(not host().triple.startswith("x86_64"), reason="names x86-64 machines")
@pytest.mark.parametrize("cpu", ["x86-64", "x86-64-v3", "x86-64-v4"])
@each_dtype
def test_older_machines_give_the_same_bits(dtype: DType, cpu: str) -> None:
    target = named(host().triple, cpu)
    if target.vector_bytes > host().vector_bytes:
        pytest.skip(f"this machine can't run {cpu} code")
    program = expand_math(scalar_program(dtype, Axis.VECTOR, 37))
    arrays = arrays_of(program)
    want, got = interpret(program, arrays), run_native(program, arrays, target=target)
    assert all(same_bits(want[name], got[name]) for name in want)


@pytest.mark.skipif(not host().triple.startswith("x86_64"), reason="names x86-64 machines")
def test_narrower_vectors_give_the_same_bits() -> None:
    program = reduction_program(f32, "add", 131, Axis.VECTOR)
    arrays = arrays_of(program, special=False)
    want = run_native(program, arrays)
    for cpu in ("x86-64", "x86-64-v3"):
        got = run_native(program, arrays, target=named(host().triple, cpu))
        assert same_bits(got["out0"], want["out0"])


def test_unknown_operation_is_named() -> None:
    make, i, body = Maker(), Var("i", 3), list[Stmt]()
    x = let(body, Load(make.input(f32, 3), as_index(i)))
    body.append(Store(make.output(f32, 3), as_index(i), let(body, Apply("frobnicate", (x,), f32))))
    with pytest.raises(BackendError, match="frobnicate"):
        compile_program(make.program(For(i, tuple(body))))


@each_axis
@pytest.mark.parametrize(
    ("dtype", "extent"),
    [(d, n) for d in DTYPES.values() for n in (EXTENTS if d in (f32, i64, bool_) else (1, 17, 65))])
def test_extents(dtype: DType, extent: int, axis: Axis) -> None:
    make, i = Maker(), Var("i", extent)
    source, target = make.input(dtype, extent), make.output(dtype, extent)
    check(make.program(copy_loop(source, target, i, axis)))


def index_cases(i: Var, j: Var) -> dict[str, Index]:
    """Positions that vary with i (inner, in lanes) and j in every way that lowering makes."""
    a, b = as_index(i), as_index(j)
    n = i.extent
    return {
        "contiguous": b * n + a,
        "offset": b * n + a + 3,
        "strided": b * 3 * n + a * 3,
        "every second": b * 2 * n + a * 2 + 1,
        "reversed": b * n + a * -1 + (n - 1),
        "column": a * j.extent + b,
        "broadcast": b,
        "repeated": (b * n + a) // 4,
        "cycled": (b * n + a) % 4,
        "period 48": (b * n + a) % 48,
        "block 48": (b * n + a) // 48,
        "shifted period": (b * n + a + 5) % 12,
        "negative": (a - 7) % 9 + b,
        "negative quotient": (a - 7) // 3 + 5,
        "swapped": ((b * n + a) % 6) * 40 + (b * n + a) // 6,
    }


@pytest.mark.parametrize("dtype", [f32, f64, DTYPES["i8"], bool_], ids=str)
@pytest.mark.parametrize("extent", [5, 16, 48, 53])
@pytest.mark.parametrize("case", index_cases(Var("i", 5), Var("j", 3)))
def test_indices(case: str, extent: int, dtype: DType) -> None:
    make, i, j = Maker(), Var("i", extent), Var("j", 3)
    index = index_cases(i, j)[case]
    source = make.input(dtype, 1000)
    target = make.output(dtype, 3 * extent)
    flat = as_index(j) * extent + as_index(i)
    loop = copy_loop(source, target, i, Axis.VECTOR, index, flat)
    positions = make.output(i64, 3 * extent)
    body = list[Stmt]()
    body.append(Store(positions, flat, let(body, IndexValue(index, i64))))
    numbers = For(Var("unused", 1), (For(i, tuple(body), Axis.VECTOR),))
    scatter = make.output(dtype, 1000)
    back = copy_loop(source, scatter, i, Axis.VECTOR, flat, index)
    check(make.program(clear(scatter), For(j, (loop, numbers, back))))


def clear(buffer: Buffer) -> For:
    """buffer[…] = 0."""
    i = Var("z", buffer.size)
    return For(i, (Store(buffer, as_index(i), literal(0, buffer.dtype)),))


@each_axis
@pytest.mark.parametrize("dtype", [f32, i64, bool_], ids=str)
@pytest.mark.parametrize("index_type", [i64, i32, u32], ids=str)
def test_gather_and_scatter(index_type: DType, dtype: DType, axis: Axis) -> None:
    size = 53
    make, i, body = Maker(), Var("i", size), list[Stmt]()
    wanted = make.input(index_type, size)
    source, target, placed = make.input(dtype, 20), make.output(dtype, size), make.output(dtype, 20)
    at = let(body, Load(wanted, as_index(i)))
    low = let(body, Apply("max", (at, literal(0, index_type)), index_type))
    clamped = let(body, Apply("min", (low, literal(19, index_type)), index_type))
    where = as_index(Dynamic(clamped.local, 20))
    value = let(body, Load(source, where))
    body += [Store(target, as_index(i), value), Store(placed, where, value)]
    check(make.program(clear(placed), For(i, tuple(body), axis)))


@each_axis
def test_scatter_add_of_meeting_elements(axis: Axis) -> None:
    size = 40
    make, i, body = Maker(), Var("i", size), list[Stmt]()
    wanted, source, sums = make.input(i64, size), make.input(f32, size), make.output(f32, 4)
    at = let(body, Load(wanted, as_index(i)))
    value = let(body, Load(source, as_index(i)))
    body.append(Store(sums, as_index(Dynamic(at.local, 4)), value, "add"))
    body.append(Store(sums, Index(0), value, "max"))
    program = make.program(clear(sums), For(i, tuple(body), axis))
    check(program, arrays_of(program, special=False))


@each_axis
@pytest.mark.parametrize("combine", ["add", "max", None])
def test_combining_stores(combine: str | None, axis: Axis) -> None:
    size = 37
    make, i, body = Maker(), Var("i", size), list[Stmt]()
    target = make.output(f32, 2 * size)
    value = let(body, Load(make.input(f32, size), as_index(i)))
    body.append(Store(target, as_index(i) * 2 + 1, value, combine))
    check(make.program(clear(target), For(i, tuple(body), axis)))


@each_axis
@pytest.mark.parametrize("extent", [16, 21])
@pytest.mark.parametrize("stride", [-3, -1, 2, 4, 5])
@pytest.mark.parametrize("dtype", [f32, f64, bool_])
def test_stores_apart_leave_what_is_between(dtype: DType, stride: int, extent: int, axis: Axis
                                            ) -> None:
    make, i, j, body = Maker(), Var("i", extent), Var("j", 120), list[Stmt]()
    target, start = make.output(dtype, 120), -stride * extent if stride < 0 else 3
    value = let(body, Load(make.input(dtype, extent), as_index(i)))
    body.append(Store(target, as_index(i) * stride + start, value))
    filled = For(j, (Store(target, as_index(j), literal(1, dtype)),))
    check(make.program(filled, For(i, tuple(body), axis)))


@each_axis
@pytest.mark.parametrize("stride", [1, 2, 0])
def test_guards(stride: int, axis: Axis) -> None:
    """Guarded accesses never leave the buffer, whatever their index."""
    size = 45
    make, i, j, body = Maker(), Var("i", size), Var("j", 3), list[Stmt]()
    source, target = make.input(f32, 10), make.output(f32, 3 * size)
    index = as_index(i) * stride + as_index(j) * 40 - 20
    at = let(body, IndexValue(index, i64))
    inside = let(body, Apply("and", (
        let(body, Apply("ge", (at, literal(0, i64)), bool_)),
        let(body, Apply("lt", (at, literal(10, i64)), bool_))), bool_))
    value = let(body, Load(source, index, inside))
    body.append(Store(target, as_index(j) * size + as_index(i), value, guard=inside))
    body.append(Store(target, as_index(j) * size + as_index(i), value, "add"))
    check(make.program(clear(target), For(j, (For(i, tuple(body), axis),))))


@each_axis
@pytest.mark.parametrize("by", [1, 2, 3])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_guards_of_shared_elements(stride: int, by: int, axis: Axis) -> None:
    """Lanes that read one element, of which a guard lets some."""
    size = 45
    for rest in range(by):
        make, i, body = Maker(), Var("i", size), list[Stmt]()
        source, target = make.input(f32, stride * size), make.output(f32, size)
        at = let(body, IndexValue(as_index(i) % by, i64))
        here = let(body, Apply("eq", (at, literal(rest, i64)), bool_))
        value = let(body, Load(source, as_index(i) // by * stride, here))
        body.append(Store(target, as_index(i), value))
        check(make.program(For(i, tuple(body), axis)))


def reduction_program(dtype: DType, combine: str, extent: int, axis: Axis) -> Program:
    """A fold of each of two rows into an accumulator that starts as 1."""
    make, i, j = Maker(), Var("i", extent), Var("j", 2)
    source, target = make.input(dtype, 2 * extent), make.output(dtype, 2)
    outer, inner = list[Stmt](), list[Stmt]()
    acc = accumulator(outer, dtype, 1)
    value = let(inner, Load(source, as_index(j) * extent + as_index(i)))
    inner.append(Set(acc, value, combine))
    outer += [For(i, tuple(inner), axis), Store(target, as_index(j), Read(acc))]
    return make.program(For(j, tuple(outer)))


@each_axis
@pytest.mark.parametrize("extent", (*EXTENTS, 1000))
@pytest.mark.parametrize(
    ("dtype", "combine"),
    [(f32, "add"), (f32, "max"), (f64, "add"), (f64, "min"), (f32, "mul"), (i32, "add"),
     (i64, "max"), (DTYPES["u8"], "min"), (DTYPES["i8"], "mul"), (bool_, "and"), (bool_, "or")])
def test_reductions(dtype: DType, combine: str, extent: int, axis: Axis) -> None:
    program = reduction_program(dtype, combine, extent, axis)
    check(program, arrays_of(program, special=False))
    if extent in (17, 65):
        check(program)


@pytest.mark.parametrize("extent", [9, 100, 130, 1000])
def test_sums_do_not_depend_on_what_shares_the_loop(extent: int) -> None:
    """A wider type in the loop, a large body, a loop that can't run in lanes: the same bits."""
    alone = reduction_program(f32, "add", extent, Axis.VECTOR)
    arrays = arrays_of(alone, special=False)
    (outer,) = alone.kernels[0].body
    assert isinstance(outer, For)
    start, inner, end = outer.body
    assert isinstance(inner, For)
    i = as_index(inner.var)
    want = run_native(alone, arrays)["out0"]
    wide = Buffer("wide", i64, extent, Scope.EXTERNAL)
    body = list(inner.body)
    body.append(Store(wide, i, let(body, IndexValue(i, i64))))
    first = Buffer("first", f32, 1, Scope.EXTERNAL)
    serial = [*inner.body, Store(first, Index(0), inner.body[-1].value)]  # type: ignore[union-attr]
    copies = [s for n in range(12) for s in (Store(wide, i, literal(n, i64)),)]
    for changed, port in ((body, wide), ([*inner.body, *copies], wide), (serial, first)):
        loop = For(outer.var, (start, For(inner.var, tuple(changed), Axis.VECTOR), end))
        program = Program("shared", (Kernel("k", (loop,)),), alone.inputs,
                          (*alone.outputs, Port("more", port, (port.size,))))
        assert same_bits(run_native(program, arrays)["out0"], want)
        assert same_bits(interpret(program, arrays)["out0"], want)


@each_axis
def test_nested_accumulators(axis: Axis) -> None:
    """An inner serial loop inside lanes carries a value a lane; its outer sum is uniform."""
    rows, cols = 7, 35
    make, i, j = Maker(), Var("i", rows), Var("j", cols)
    source, target, top = make.input(f32, rows * cols), make.output(f32, cols), make.output(f32, 1)
    all_, column, inner = list[Stmt](), list[Stmt](), list[Stmt]()
    total = accumulator(all_, f32, 0)
    acc = accumulator(column, f32, 0.5)
    inner.append(Set(acc, let(inner, Load(source, as_index(i) * cols + as_index(j))), "add"))
    twice = let(inner, Apply("mul", (Read(acc), literal(2, f32)), f32))
    inner.append(Set(total, twice, "max"))
    inner.append(Set(acc, let(inner, Apply("neg", (Read(acc),), f32))))
    column += [For(i, tuple(inner)), Store(target, as_index(j), Read(acc))]
    all_ += [For(j, tuple(column), axis), Store(top, Index(0), Read(total))]
    check(make.program(*all_))


def test_lanes_inside_lanes_run_one_by_one_outside() -> None:
    make, i, j = Maker(), Var("i", 5), Var("j", 70)
    source, target = make.input(f32, 350), make.output(f32, 1)
    body, inner = list[Stmt](), list[Stmt]()
    total = accumulator(body, f32, 0)
    inner.append(Set(total, let(inner, Load(source, as_index(i) * 70 + as_index(j))), "add"))
    body.append(For(i, (For(j, tuple(inner), Axis.VECTOR),), Axis.VECTOR))
    body.append(Store(target, Index(0), Read(total)))
    program = make.program(*body)
    check(program, arrays_of(program, special=False))


@each_axis
def test_unroll_inside(axis: Axis) -> None:
    make, i, j = Maker(), Var("i", 21), Var("j", 3)
    source, target = make.input(f32, 63), make.output(f32, 63)
    index = as_index(i) * 3 + as_index(j)
    inner = copy_loop(source, target, j, Axis.UNROLL, index, index * -1 + 62)
    check(make.program(For(i, (inner,), axis)))


def test_while_counts_and_stops() -> None:
    make, body, step = Maker(), list[Stmt](), list[Stmt]()
    limit, target = make.input(i64, 1), make.output(i64, 2)
    n, goes_on = accumulator(body, i64, 0), accumulator(body, bool_, True)
    top = let(body, Load(limit, Index(0)))
    step.append(Set(n, let(step, Apply("add", (Read(n), literal(1, i64)), i64))))
    step.append(Set(goes_on, let(step, Apply("lt", (Read(n), top), bool_))))
    body.append(While(goes_on, tuple(step), bound=10))
    stopped = let(body, Apply("not", (Read(goes_on),), bool_))
    body += [Store(target, Index(0), Read(n)),
             If(Read(goes_on), (Store(target, Index(1), literal(5, i64)),)),
             If(stopped, (Store(target, Index(1), literal(6, i64)),))]
    program = make.program(*body)
    for bound in (-3, 4, 100):
        check(program, {"in0": np.array([bound], np.int64)})


@pytest.mark.parametrize("threads", [1, 2, 3, None])
def test_parallel_rows_with_scratch(threads: int | None) -> None:
    """Values, variables and buffers of the surroundings are captured; each thread has a TILE."""
    rows, cols = 11, 37
    make, g, i, j, k = Maker(), Var("g", 2), Var("i", rows), Var("j", cols), Var("k", cols)
    source, target = make.input(f32, 2 * rows * cols), make.output(f32, 2 * rows * cols)
    tile = make.tile(f32, cols)
    outer, row, first, second = list[Stmt](), list[Stmt](), list[Stmt](), list[Stmt]()
    scale = let(outer, Load(source, as_index(g)))
    held = accumulator(outer, f32, 3)
    row.append(Alloc(tile))
    top = accumulator(row, f32, -5)
    at = (as_index(g) * rows + as_index(i)) * cols
    x = let(first, Load(source, at + as_index(j)))
    y = let(first, Apply("fma", (x, scale, Read(held)), f32))
    first += [Store(tile, as_index(j), y), Set(top, y, "max")]
    z = let(second, Apply("sub", (let(second, Load(tile, as_index(k))), Read(top)), f32))
    second.append(Store(target, at + as_index(k), z))
    row += [For(j, tuple(first), Axis.VECTOR), For(k, tuple(second), Axis.VECTOR)]
    outer.append(For(i, tuple(row), Axis.PARALLEL))
    program = make.program(For(g, tuple(outer)))
    check(program, arrays_of(program, special=False), threads=threads)


def test_parallel_inside_parallel_keeps_the_thread() -> None:
    make, i, j, k = Maker(), Var("i", 6), Var("j", 5), Var("k", 9)
    source, target, tile = make.input(f32, 270), make.output(f32, 270), make.tile(f32, 9)
    at = (as_index(i) * 5 + as_index(j)) * 9 + as_index(k)
    k2 = Var("k2", 9)
    at2 = (as_index(i) * 5 + as_index(j)) * 9 + as_index(k2)
    body = (Alloc(tile), copy_loop(source, tile, k, Axis.VECTOR, at, as_index(k)),
            copy_loop(tile, target, k2, Axis.VECTOR, as_index(k2), at2))
    nest = For(i, (For(j, body, Axis.PARALLEL),), Axis.PARALLEL)
    check(make.program(nest), threads=3)


def test_calls_from_many_threads_do_not_share_an_arena() -> None:
    make, i, j = Maker(), Var("i", 5000), Var("j", 5000)
    source, target, tile = make.input(f64, 5000), make.output(f64, 5000), make.tile(f64, 5000)
    program = make.program(Alloc(tile), copy_loop(source, tile, i, Axis.VECTOR),
                           copy_loop(tile, target, j, Axis.VECTOR))
    compiled = compile_program(program, threads=1)

    def call(value: int) -> bool:
        out = np.zeros(5000)
        compiled.run({"in0": np.full(5000, float(value))}, {"out0": out})
        return bool((out == value).all())

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(call, range(200)))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_of_fork_runs_serially() -> None:
    make, i = Maker(), Var("i", 64)
    source, target = make.input(f32, 64), make.output(f32, 64)
    compiled = compile_program(make.program(copy_loop(source, target, i, Axis.PARALLEL)), threads=2)
    x, y = np.ones(64, np.float32), np.zeros(64, np.float32)
    compiled.run({"in0": x}, {"out0": y})
    child = os.fork()
    if child == 0:
        compiled.run({"in0": x * 2}, {"out0": y})
        os._exit(0 if (y == 2).all() else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_equal_kernels_share_a_function() -> None:
    ports, kernels = [], []
    for n in range(4):
        i = Var("i", 100)
        source, target = (Buffer(f"{k}{n}", f32, 100, Scope.EXTERNAL) for k in "xy")
        ports.append((Port(source.name, source, (100,)), Port(target.name, target, (100,))))
        kernels.append(Kernel(f"k{n}", (copy_loop(source, target, i, Axis.VECTOR),)))
    program = Program("equal", tuple(kernels), tuple(p[0] for p in ports),
                      tuple(p[1] for p in ports))
    text = str(emit_module(program, host()))
    assert text.count("define internal") == 1
    check(program)


def test_an_update_in_place_changes_the_input() -> None:
    i, w = Var("i", 50), Buffer("w", f32, 50, Scope.EXTERNAL)
    body = list[Stmt]()
    half = let(body, Apply("mul", (let(body, Load(w, as_index(i))), literal(0.5, f32)), f32))
    body.append(Store(w, as_index(i), half))
    port = Port("w", w, (50,))
    program = Program("sgd", (Kernel("k", (For(i, tuple(body), Axis.VECTOR),)),), (port,), (),
                      (port,))
    x = np.ones(50, np.float32)
    compile_program(program).run({"w": x}, {})
    assert (x == 0.5).all()


def test_buffers_in_one_place_are_not_called_apart() -> None:
    """y = x shifted, planned onto x itself: the copy runs forwards, element by element."""
    i, j, k = Var("i", 40), Var("j", 39), Var("k", 40)
    source, target = Buffer("s", f32, 40, Scope.EXTERNAL), Buffer("t", f32, 40, Scope.EXTERNAL)
    x, y = Buffer("x", f32, 40, Scope.ARENA), Buffer("y", f32, 40, Scope.ARENA)
    kernels = (
        Kernel("a", (copy_loop(source, x, i, Axis.VECTOR),)),
        Kernel("b", (copy_loop(x, y, j, Axis.SERIAL, as_index(j), as_index(j) + 1),)),
        Kernel("c", (copy_loop(y, target, k, Axis.VECTOR),)),
    )
    program = Program("alias", kernels, (Port("s", source, (40,)),), (Port("t", target, (40,)),),
                      offsets={x: 0, y: 0}, arena=160)
    out = run_native(program, {"s": np.arange(40, dtype=np.float32)})
    assert (out["t"] == 0).all()


@each_dtype
def test_constants_keep_their_bits(dtype: DType) -> None:
    make, body = Maker(), list[Stmt]()
    values = [0, 1, 3, -1] if dtype.kind != "uint" else [0, 1, 3, 200]
    if dtype.is_float:
        values = [0.0, -0.0, np.inf, -np.inf, np.nan, 0.1, 1e-40, 1.5]  # type: ignore[list-item]
    target, more = make.output(dtype, len(values)), make.output(dtype, 6)
    for n, value in enumerate(values):
        body.append(Store(target, Index(n), literal(value, dtype)))
    i = Var("i", 6)
    held = Buffer("c", dtype, 6, Scope.CONSTANT, np.arange(6).astype(dtype.numpy))
    body.append(copy_loop(held, more, i, Axis.VECTOR, as_index(i) * -1 + 5))
    check(make.program(*body))


@pytest.mark.parametrize("kind, accumulate, run", [
    ("outer", False, 0), ("outer", True, 0), ("outer", True, 6), ("outer", True, 19),
    ("dot", False, 0), ("dot", True, 0)])
@pytest.mark.parametrize("dtype", [f32, f64], ids=str)
def test_register_tiles(dtype: DType, kind: str, accumulate: bool, run: int) -> None:
    rows, cols, depth = 3, 21 if kind == "outer" else 2, 19
    make, i = Maker(), Var("i", 2)
    a, b = make.input(dtype, 100), make.input(dtype, 21 * 20)
    out = make.output(dtype, 2 * rows * cols)
    at = as_index(i) * (rows * cols)
    right = (cols, 1) if kind == "outer" else (1, depth)
    tile = Tile(rows, cols, depth, Strided(a, as_index(i), depth, 1), Strided(b, Index(0), *right),
                Strided(out, at, cols, 1), accumulate, kind, run)
    program = make.program(clear(out), For(i, (tile,)))
    arrays = arrays_of(program, special=False)
    want, got = interpret(program, arrays), run_native(program, arrays)
    np.testing.assert_allclose(got["out0"], want["out0"], rtol=1e-5, atol=1e-5)
    if kind == "outer":
        assert same_bits(got["out0"], want["out0"])


def test_local_arrays_belong_to_an_iteration() -> None:
    make, i, j, k = Maker(), Var("i", 9), Var("j", 5), Var("k", 5)
    source, target = make.input(f32, 45), make.output(f32, 45)
    held = Buffer("held", f32, 5, Scope.LOCAL)
    at = as_index(i) * 5
    body = (Alloc(held), copy_loop(source, held, j, Axis.SERIAL, at + as_index(j)),
            copy_loop(held, target, k, Axis.SERIAL, as_index(k) * -1 + 4, at + as_index(k)))
    for axis in (*LANED, Axis.PARALLEL):
        check(make.program(For(i, body, axis)), threads=2)


def test_bitcasts() -> None:
    make, i, body = Maker(), Var("i", 33), list[Stmt]()
    x = let(body, Load(make.input(f32, 33), as_index(i)))
    bits = let(body, Bitcast(x, u32))
    flipped = let(body, Apply("xor", (bits, literal(0x8000_0000, u32)), u32))
    body.append(Store(make.output(f32, 33), as_index(i), let(body, Bitcast(flipped, f32))))
    check(make.program(For(i, tuple(body), Axis.VECTOR)))


def test_setting_an_outer_local_in_lanes_is_refused() -> None:
    make, i, body, inner = Maker(), Var("i", 33), list[Stmt](), list[Stmt]()
    acc = accumulator(body, f32, 0)
    inner.append(Set(acc, let(inner, Load(make.input(f32, 33), as_index(i)))))
    with pytest.raises(BackendError, match="lanes"):
        compile_program(make.program(*body, For(i, tuple(inner), Axis.VECTOR)))


def test_a_local_read_before_it_is_set_is_refused() -> None:
    make, x = Maker(), Local(f32)
    with pytest.raises(BackendError, match="before it is set"):
        compile_program(make.program(Store(make.output(f32, 1), Index(0), Read(x))))


