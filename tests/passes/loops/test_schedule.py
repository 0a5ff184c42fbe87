"""Loops cut for memory keep their meaning: interpreted before and after, and compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from typing import Any

import numpy as np
import pytest

import rlx_py as rlx
from rlx_py.backends.llvm.backend import program_for
from rlx_py.backends.llvm.targets import host
from rlx_py.ir.base.types import DType
from rlx_py.ir.loops.copying import walk
from rlx_py.ir.loops.interpret import interpret
from rlx_py.ir.loops.kernel import Alloc, Axis, For, If, Let, Load, Stmt, Store, Tile
from rlx_py.ir.loops.program import Program
from rlx_py.ir.nodes.node import Node
from rlx_py.passes.loops import columns, pairs, partials
from rlx_py.passes.loops.cpu_schedule import CpuTarget, schedule
from rlx_py.passes.loops.memory import plan_memory
from rlx_py.passes.loops.plan_check import check_plan
from rlx_py.passes.lower.lower import lower
from rlx_py.passes.rewrite.decompose import decompose
from support.loop_programs import Array, plain_array, random_array, run_native, same_bits

Function = Callable[[Node], Node]


def graph_of(shape: tuple[int, ...], function: Function, dtype: DType = rlx.f32) -> rlx.Graph:
    """A graph of one function of one input."""
    graph = rlx.Graph("cut")
    graph.output("out", function(graph.input("x", shape, dtype)))
    return graph


def lowered(graph: rlx.Graph) -> Program:
    """Its loops before any is cut."""
    return lower(decompose(graph))


def statements(program: Program) -> Iterator[Stmt]:
    """All statements of a program."""
    for kernel in program.kernels:
        yield from walk(kernel.body)


def unchanged(graph: rlx.Graph, x: Array, vector_bytes: int = 64, before: Program | None = None
              ) -> Program:
    """The scheduled program, after a check that it and its machine code give the same bits."""
    after = schedule(lowered(graph), CpuTarget(vector_bytes))
    check_plan(plan_memory(after))
    want = interpret(before or lowered(graph), {"x": x})["out"]
    assert same_bits(interpret(after, {"x": x})["out"], want)
    native = program_for(graph, host())
    for threads in (1, 2):
        assert same_bits(run_native(native, {"x": x}, threads=threads)["out"], want)
    return after


TRANSPOSES: dict[str, tuple[tuple[int, ...], Function]] = {
    "matrix": ((64, 64), lambda x: x.T),
    "rest in both": ((67, 75), lambda x: x.T),
    "few rows": ((5, 1000), lambda x: x.T),
    "few columns": ((1000, 5), lambda x: x.T),
    "channels last": ((2, 17, 9, 31), lambda x: x.transpose(0, 2, 3, 1)),
    "channels first": ((2, 9, 31, 17), lambda x: x.transpose(0, 3, 1, 2)),
    "computed": ((67, 75), lambda x: rlx.maximum(x.T, 1) + rlx.astype(rlx.arange(67), x.dtype)),
    "both ways": ((70, 70), lambda x: x.T + x),
    "twice": ((3, 40, 43), lambda x: x.transpose(0, 2, 1) * x[::-1].transpose(0, 2, 1)),
    "reversed": ((67, 75), lambda x: x[::-1].T),
    "padded": ((67, 75), lambda x: rlx.pad(x, ((1, 2), (3, 0))).T),
}


@pytest.mark.parametrize("name", TRANSPOSES)
@pytest.mark.parametrize("dtype", (rlx.f32, rlx.f64, rlx.bf16, rlx.i32), ids=str)
def test_transposes_in_blocks(name: str, dtype: DType) -> None:
    shape, function = TRANSPOSES[name]
    x = random_array(dtype, int(np.prod(shape))).reshape(shape)
    unchanged(graph_of(shape, function, dtype), x)


@pytest.mark.parametrize("vector_bytes", (8, 16, 32, 64))
def test_blocks_of_every_register(vector_bytes: int) -> None:
    shape, function = TRANSPOSES["computed"]
    unchanged(graph_of(shape, function), plain_array(rlx.f32, 67 * 75).reshape(shape), vector_bytes)


def test_a_transpose_is_a_register_tile() -> None:
    graph = graph_of((67, 75), lambda x: x.T)
    tiles = [s for s in statements(schedule(lowered(graph), CpuTarget())) if isinstance(s, Tile)]
    assert {s.kind for s in tiles} == {"copy"}
    assert sum(s.rows * s.cols for s in tiles) < 67 * 75  # code that loops, not a copy an element


@pytest.mark.parametrize("shape", ((0, 70), (70, 0), (3, 2000), (8, 8)))
def test_small_and_short_planes_stay(shape: tuple[int, ...]) -> None:
    graph = graph_of(shape, lambda x: x.T)
    after = unchanged(graph, plain_array(rlx.f32, int(np.prod(shape))).reshape(shape))
    assert not any(isinstance(s, Tile | Alloc) for s in statements(after))


def test_a_gather_inside_a_transpose_stays() -> None:
    graph = rlx.Graph("gather")
    x, i = graph.input("x", (70, 3, 80)), graph.input("i", (70,), rlx.i32)
    graph.output("out", rlx.take_along_axis(x, rlx.broadcast_to(
        i.reshape(70, 1, 1), (70, 1, 80)), axis=1).reshape(70, 80).T)
    arrays = {"x": plain_array(rlx.f32, 70 * 240).reshape(70, 3, 80),
              "i": (np.arange(70) % 3).astype(np.int32)}
    before = lowered(graph)
    want = interpret(before, arrays)["out"]
    assert same_bits(interpret(schedule(before, CpuTarget()), arrays)["out"], want)
    assert same_bits(run_native(program_for(graph, host()), arrays)["out"], want)


COLUMNS: dict[str, tuple[tuple[int, ...], Function]] = {
    "sum": ((32, 1100), lambda x: x.sum(0)),
    "one block": ((200, 200), lambda x: x.sum(0)),
    "in planes": ((2, 128, 300), lambda x: x.sum(1)),
    "two axes": ((8, 16, 300), lambda x: x.sum((0, 1))),
    "max": ((130, 257), lambda x: rlx.max(x, axis=0)),
    "weighted": ((64, 700), lambda x: (x * rlx.astype(rlx.arange(64), x.dtype).reshape(64, 1))
                 .sum(0) * 2),
    "gathered": ((64, 700), lambda x: rlx.take(x, rlx.arange(63, -1, -1), axis=0).sum(0)),
}


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("dtype, chain", (
    (rlx.f32, 1000), (rlx.f64, 1000), (rlx.bf16, 1000), (rlx.i64, 1000), (rlx.f32, 8),
    (rlx.bf16, 8)), ids=str)
def test_columns_in_blocks(name: str, dtype: DType, chain: int, monkeypatch: pytest.MonkeyPatch
                           ) -> None:
    """The same bits as of columns each on its own; without runs as of the loops as lowered."""
    monkeypatch.setattr(pairs, "CHAIN", chain)
    shape, function = COLUMNS[name]
    graph, x = graph_of(shape, function, dtype), random_array(dtype, prod(shape)).reshape(shape)
    with monkeypatch.context() as patch:
        patch.setattr(columns, "MIN_ROWS", 1 << 30)
        alone = schedule(lowered(graph), CpuTarget())
    unchanged(graph, x, before=alone if chain < 1000 else lowered(graph))


def test_large_column_sums_stream() -> None:
    after = schedule(lowered(graph_of((128, 2048), lambda x: x.sum(0))), CpuTarget())
    sums = {s.buffer for s in statements(after) if isinstance(s, Alloc)}
    assert sums and all(b.nbytes <= 4096 for b in sums)
    after = schedule(lowered(graph_of((128, 8), lambda x: x.sum(0))), CpuTarget())
    assert not any(isinstance(s, Alloc) for s in statements(after))


def test_long_folds_run_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partials, "PART", 64)  # the interpreter is slow
    for size in (255, 256, 300, 64 * 7 + 1):
        for dtype in (rlx.f32, rlx.f64, rlx.bf16, rlx.i32):
            for fold in (rlx.sum, rlx.max, lambda x: rlx.sum(x * x) / 3 + rlx.min(x)):
                graph = graph_of((size,), fold, dtype)
                x = plain_array(dtype, size)
                program = program_for(graph, host())
                check_plan(program)
                want = interpret(program, {"x": x})["out"]
                for threads in (1, 2):
                    assert same_bits(run_native(program, {"x": x}, threads=threads)["out"], want)
                before = interpret(lowered(graph), {"x": x})["out"]
                np.testing.assert_allclose(want.astype(float), before.astype(float), rtol=3e-2)


def test_parts_do_not_depend_on_threads() -> None:
    x = random_array(rlx.f32, 200_000)
    x[~np.isfinite(x)] = 1
    program = program_for(graph_of(x.shape, rlx.sum), host())
    one, two = (run_native(program, {"x": x}, threads=n)["out"] for n in (1, 2))
    assert same_bits(one, two)
    np.testing.assert_allclose(one, x.sum(dtype=np.float64), rtol=1e-4)
    assert any(isinstance(s, For) and s.axis is Axis.PARALLEL for s in statements(program))


def test_lanes_never_store_far_apart() -> None:
    """Adding at positions of the last axis: lanes over the lines would scatter."""
    graph = graph_of((64, 300), lambda x: rlx.take(x, np.arange(700) % 300, axis=1))
    back = rlx.vjp(graph, wrt="x")
    program = schedule(lowered(back), CpuTarget())
    for loop in statements(program):
        if isinstance(loop, For) and loop.axis is Axis.VECTOR:
            assert all(s.index.coefficient(loop.var) == 1 for s in walk(loop.body)
                       if isinstance(s, Store))
    ct = plain_array(rlx.f32, 64 * 700).reshape(64, 700)
    want = interpret(lowered(back), {"x": np.zeros((64, 300), np.float32), "ct_out": ct})
    got = run_native(program_for(back, host()), {"x": np.zeros((64, 300), np.float32),
                                                 "ct_out": ct}, threads=2)
    assert same_bits(got["grad_x"], want["grad_x"])


@pytest.mark.parametrize("axes", [0, 1, (0, 2)], ids=str)
def test_folds_over_the_same_loops_read_an_element_once(axes: int | tuple[int, ...]) -> None:
    def both(x: Node) -> Node:
        return rlx.sum(x, axis=axes) * rlx.max(x * x + 1, axis=axes)

    program = lowered(graph_of((20, 9, 50), both))
    loads = [s for s in statements(program) if isinstance(s, Let) and isinstance(s.expr, Load)
             and s.expr.buffer.name == "x"]
    assert len(loads) == 1 and len(program.kernels) == 1
    unchanged(graph_of((20, 9, 50), both), random_array(rlx.f32, 9000).reshape(20, 9, 50))


def test_no_sum_depends_on_the_width_of_registers() -> None:
    for function in (lambda x: rlx.nn.avg_pool2d(x, 3, 2, 1), lambda x: rlx.sum(x, axis=(1, 3))):
        program = lowered(graph_of((2, 3, 9, 29), function))
        x = plain_array(rlx.f32, 2 * 3 * 9 * 29).reshape(2, 3, 9, 29)
        wide, *narrow = [interpret(schedule(program, CpuTarget(n)), {"x": x})["out"]
                         for n in (64, 32, 16)]
        assert all(same_bits(y, wide) for y in narrow)


# ---- sums under a condition ----------------------------------------------------------------------


def whole_numbers(shape: tuple[int, ...]) -> Array:
    """Small integers, whose sums are exact in any order."""
    return np.random.default_rng(0).integers(-3, 4, shape).astype(np.float32)


def _under_condition(axes: int | tuple[int, ...] | None, combine: Function) -> Function:
    def f(x: Node) -> Node:
        is_large = rlx.sum(x, axis=axes, keepdims=True) > 0
        return combine(rlx.where(is_large, x * x, 0.0).sum(axis=axes))

    return f


@pytest.mark.parametrize(("name", "shape", "axes", "is_skipped"), [
    ("rows", (40, 33), 1, True), ("rows of few", (40, 7), 1, False),
    ("rows of two axes", (9, 5, 33), (1, 2), True), ("all", (37, 41), None, True),
    ("all of many", (1 << 18,), None, True), ("columns in lanes", (40, 64), 0, False),
])
def test_sums_of_zeros_are_skipped(name: str, shape: tuple[int, ...], axes: Any,
                                   is_skipped: bool) -> None:
    x = whole_numbers(shape)
    after = unchanged(graph_of(shape, _under_condition(axes, lambda y: y + 1.0)), x)
    inside = {id(t) for s in statements(after) if isinstance(s, If) for t in walk(s.body)}
    assert bool(inside) == is_skipped
    for s in statements(after):
        if isinstance(s, For) and s.axis is Axis.VECTOR:
            assert not any(isinstance(t, If) for t in walk(s.body))
    cost = rlx.compile(graph_of(shape, _under_condition(axes, lambda y: y))).cost()
    assert cost.flops >= 3 * x.size


def test_a_sum_under_a_condition_of_its_own_elements_is_taken() -> None:
    x = whole_numbers((40, 33))
    after = unchanged(graph_of((40, 33), lambda x: rlx.where(x > 0, x, 0.0).sum(axis=1)), x)
    assert not any(isinstance(s, If) for s in statements(after))
    # What is not 0 elsewhere is added there.
    after = unchanged(graph_of((40, 33), lambda x: rlx.where(
        x.sum(axis=1, keepdims=True) > 0, x, 1.0).sum(axis=1)), x)
    assert not any(isinstance(s, If) for s in statements(after))
