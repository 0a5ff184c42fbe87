"""GPU kernels as text: golden files, and a compiler's opinion where there is one."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from rlx_py.backends.source.dialects import CUDA
from rlx_py.backends.source.emit import Source, emit_kernel
from rlx_py.ir.base.errors import BackendError
from rlx_py.ir.base.types import DTYPES, DType, bool_, f32, i32, i64
from rlx_py.ir.loops.index import Var, as_index
from rlx_py.ir.loops.interpret import interpret
from rlx_py.ir.loops.kernel import (
    Alloc,
    Apply,
    Barrier,
    Buffer,
    Cast,
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
)
from rlx_py.ir.loops.program import Program
from rlx_py.passes.loops.expand_math import expand_math
from support.loop_programs import Axis, Maker, accumulator, arrays_of, let, literal, same_bits

GOLDEN = Path(__file__).parents[1] / "golden"
THREADS = 256


def elementwise(size: int, function: str) -> Program:
    """y = f(x)·x + a row's value, one element a thread, the last block partial."""
    make, g, t, body = Maker(), Var("g", -(-size // THREADS)), Var("t", THREADS), list[Stmt]()
    source, row, target = make.input(f32, size), make.input(f32, 10), make.output(f32, size)
    at = as_index(g) * THREADS + as_index(t)
    number = let(body, IndexValue(at, i64))
    inside = let(body, Apply("lt", (number, literal(size, i64)), bool_))
    work = list[Stmt]()
    x = let(work, Load(source, at))
    y = let(work, Apply(function, (x,), f32))
    z = let(work, Apply("fma", (y, x, let(work, Load(row, at % 10))), f32))
    work.append(Store(target, at, z))
    body.append(If(inside, tuple(work)))
    return make.program(For(g, (For(t, tuple(body), Axis.BLOCK),), Axis.GRID))


def tree_sum(rows: int, columns: int) -> Program:
    """The sum of each row: a partial sum a thread, then halves in shared memory."""
    make, g, t, k = Maker(), Var("g", rows), Var("t", THREADS), Var("k", -(-columns // THREADS))
    source, target = make.input(f32, rows * columns), make.output(f32, rows)
    shared = Buffer("shared", f32, THREADS, Scope.SHARED)
    body, inner, last = list[Stmt](), list[Stmt](), list[Stmt]()
    here = let(body, IndexValue(as_index(t), i64))
    acc = accumulator(body, f32, 0)
    column = as_index(k) * THREADS + as_index(t)
    number = let(inner, IndexValue(column, i64))
    inside = let(inner, Apply("lt", (number, literal(columns, i64)), bool_))
    x = let(inner, Load(source, as_index(g) * columns + column, inside))
    inner.append(Set(acc, x, "add"))
    body += [For(k, tuple(inner)), Store(shared, as_index(t), Read(acc)), Barrier()]
    half = THREADS // 2
    while half:
        lower = let(body, Apply("lt", (here, literal(half, i64)), bool_))
        step = list[Stmt]()
        step.append(Store(shared, as_index(t), let(step, Load(shared, as_index(t) + half)), "add"))
        body += [If(lower, tuple(step)), Barrier()]
        half //= 2
    first = let(body, Apply("eq", (here, literal(0, i64)), bool_))
    last.append(Store(target, as_index(g), let(last, Load(shared, as_index(0)))))
    body.append(If(first, tuple(last)))
    return make.program(For(g, (Alloc(shared), For(t, tuple(body), Axis.BLOCK)), Axis.GRID))


def source_of(program: Program, name: str) -> Source:
    """CUDA text of a program's only kernel."""
    (kernel,) = expand_math(program).kernels
    return emit_kernel(Kernel(name, kernel.body), CUDA)


def conversions(dtype: DType) -> Program:
    """Casts between a type and every other, and comparisons."""
    make, t, body = Maker(), Var("t", 32), list[Stmt]()
    x = let(body, Load(make.input(dtype, 32), as_index(t)))
    for other in DTYPES.values():
        body.append(Store(make.output(other, 32), as_index(t), let(body, Cast(x, other))))
    largest = let(body, Apply("max", (x, x), dtype))
    body.append(Store(make.output(dtype, 32), as_index(t), largest))
    return make.program(For(t, tuple(body), Axis.BLOCK))


GOLDEN_CASES = {"elementwise": elementwise(1000, "floor"), "tree_sum": tree_sum(7, 1000)}
CASES = {**GOLDEN_CASES, "exp": elementwise(1000, "exp"), "sin": elementwise(1000, "sin")}

# Just enough of the language for a C++ compiler: threads are threads, a barrier is a barrier.
SHIM = """
#include <barrier>
#include <cmath>
#include <cstring>
#include <thread>
#include <vector>
using std::signbit;
struct Place { unsigned x, y, z; };
static thread_local Place blockIdx, threadIdx;
static std::barrier<> *meeting;
static void __syncthreads() { meeting->arrive_and_wait(); }
template <class To, class From> static To bits(From x) { To y; memcpy(&y, &x, sizeof y); return y; }
#define __global__
#define __shared__ static
#define __restrict__
#define __fadd_rn(a, b) ((float)(a) + (float)(b))
#define __fsub_rn(a, b) ((float)(a) - (float)(b))
#define __fmul_rn(a, b) ((float)(a) * (float)(b))
#define __fdiv_rn(a, b) ((float)(a) / (float)(b))
#define __fmaf_rn(a, b, c) fmaf(a, b, c)
#define __dadd_rn(a, b) ((a) + (b))
#define __dsub_rn(a, b) ((a) - (b))
#define __dmul_rn(a, b) ((a) * (b))
#define __fma_rn(a, b, c) fma(a, b, c)
#define __float_as_uint(x) bits<unsigned>((float)(x))
#define __uint_as_float(x) bits<float>((unsigned)(x))
#define __float_as_int(x) bits<int>((float)(x))
#define __int_as_float(x) bits<float>((int)(x))
#define __longlong_as_double(x) bits<double>((long long)(x))
"""
LAUNCH = """
extern "C" void launch(void **p) {{
    for (unsigned g = 0; g < {grid}; ++g) {{
        std::barrier<> all({block});
        meeting = &all;
        std::vector<std::thread> threads;
        for (unsigned t = 0; t < {block}; ++t)
            threads.emplace_back([=] {{
                blockIdx = {{g, 0, 0}};
                threadIdx = {{t, 0, 0}};
                {name}({arguments});
            }});
        for (auto &thread : threads) thread.join();
    }}
}}
"""


@pytest.mark.parametrize("name", GOLDEN_CASES)
def test_text_is_the_golden_one(name: str, request: pytest.FixtureRequest) -> None:
    path = GOLDEN / f"{name}.cu"
    text = source_of(CASES[name], name).text
    if request.config.getoption("--update-golden", default=False):
        path.write_text(text)
    assert text == path.read_text()


def test_launch_sizes() -> None:
    found = source_of(CASES["tree_sum"], "tree_sum")
    assert (found.grid, found.block) == ((7,), (THREADS,))
    assert [b.size for b in found.buffers] == [7000, 7]


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
@pytest.mark.parametrize("name", [*CASES, *DTYPES])
def test_text_compiles(name: str, tmp_path: Path) -> None:
    program = CASES[name] if name in CASES else conversions(DTYPES[name])
    path = tmp_path / "kernel.cu"
    path.write_text(source_of(program, f"kernel_{name}").text)
    subprocess.run(["nvcc", "-ptx", "--std=c++17", "-Werror", "all-warnings", "-o",
                    str(tmp_path / "kernel.ptx"), str(path)], check=True, capture_output=True)


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
@pytest.mark.parametrize("name", CASES)
def test_text_computes_what_the_interpreter_does(name: str, tmp_path: Path) -> None:
    """The kernel's text with every thread of a block as a thread of this machine."""
    program = CASES[name]
    source = source_of(program, f"kernel_{name}")
    (grid,), (block,) = source.grid, source.block
    arguments = ", ".join(f"(float *)p[{n}]" for n in range(len(source.buffers)))
    launch = LAUNCH.format(grid=grid, block=block, name=source.name, arguments=arguments)
    path = tmp_path / "kernel.cpp"
    path.write_text(SHIM + source.text + launch)
    subprocess.run(["g++", "-std=c++20", "-O1", "-ffp-contract=off", "-pthread", "-shared", "-fPIC",
                    "-o", str(tmp_path / "kernel.so"), str(path)], check=True)
    arrays = arrays_of(program, special=name != "tree_sum")
    want = interpret(expand_math(program), arrays)
    out = {p.name: np.zeros(p.shape, np.float32) for p in program.outputs}
    places = {p.buffer: {**arrays, **out}[p.name] for p in (*program.inputs, *program.outputs)}
    pointers = (ctypes.c_void_p * len(source.buffers))(
        *(places[b].ctypes.data for b in source.buffers))
    ctypes.CDLL(str(tmp_path / "kernel.so")).launch(pointers)
    assert all(same_bits(out[n], want[n]) for n in want)


def test_lanes_inside_a_thread_are_refused() -> None:
    make, t = Maker(), Var("t", 8)
    loop = For(t, (Store(make.output(i32, 8), as_index(t), literal(1, i32)),), Axis.VECTOR)
    with pytest.raises(BackendError, match="vector"):
        emit_kernel(Kernel("k", (loop,)), CUDA)
