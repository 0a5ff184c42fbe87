"""Sums of many terms keep their digits, in one order: whatever the axis, the op, the machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import fsum, prod
from typing import Any

import numpy as np
import pytest

import rlx_py as rlx
from rlx_py.backends.llvm.backend import program_for
from rlx_py.backends.llvm.targets import host
from rlx_py.ir.base.types import DType
from rlx_py.ir.loops.copying import walk
from rlx_py.ir.loops.interpret import interpret
from rlx_py.ir.loops.kernel import Axis, For
from rlx_py.ir.loops.pairs import CHAIN, runs
from rlx_py.ir.loops.program import Program
from rlx_py.ir.nodes.node import Node
from rlx_py.passes.loops import pairs
from rlx_py.passes.loops.cpu_schedule import CpuTarget, schedule
from rlx_py.passes.loops.memory import plan_memory
from rlx_py.passes.loops.pairs import add_in_pairs, float_sums, terms
from rlx_py.passes.loops.plan_check import check_plan
from rlx_py.passes.lower.lower import lower
from rlx_py.passes.rewrite.decompose import decompose
from support.loop_programs import Array, plain_array, run_native, same_bits

Function = Callable[..., Any]
BACKENDS = pytest.mark.parametrize("backend", ("cpu", "reference"))
BOUND = {rlx.f32: 1e-6, rlx.f64: 1e-6 * 2.0**-29}
TENTH = float(np.float32(0.1))


def run(function: Function, *arrays: Array, backend: str = "cpu", wrt: tuple[int, ...] = (),
        ct: Array | None = None) -> Any:
    """The function of arrays, or its gradients by some of them."""
    graph = rlx.Graph("sums")
    names = [f"x{n}" for n in range(len(arrays))]
    graph.output("out", function(*(graph.input(name, a.shape, a.dtype)
                                   for name, a in zip(names, arrays, strict=True))))
    given = dict(zip(names, arrays, strict=True))
    if not wrt:
        return rlx.compile(graph, backend=backend)(**given)["out"]
    graph = rlx.vjp(graph, wrt=[names[n] for n in wrt])
    if "ct_out" in graph.inputs:
        assert ct is not None
        given["ct_out"] = ct
    found = rlx.compile(graph, backend=backend)(**{k: given[k] for k in graph.inputs})
    return tuple(found[f"grad_{names[n]}"] for n in wrt)


def error(found: Any, true: Any) -> float:
    """The largest relative error."""
    wide = np.asarray(true, np.longdouble)
    return float(np.max(np.abs(np.asarray(found).astype(np.longdouble) - wide) / np.abs(wide)))


# ---- the values that were seen ---------------------------------------------------------------


@BACKENDS
def test_a_running_sum_of_a_million_tenths(backend: str) -> None:
    x = np.full(1_000_000, 0.1, np.float32)
    found = run(lambda x: rlx.cumsum(x, axis=0), x, backend=backend)
    assert error(found, np.arange(1, 1_000_001) * TENTH) < 1e-6


@BACKENDS
def test_a_count_in_floats_goes_beyond_two_to_the_24(backend: str) -> None:
    x = np.ones(17_000_000, np.float32)
    assert run(lambda x: rlx.cumsum(x, axis=0), x, backend=backend)[-1] == 17_000_000
    assert run(lambda x: rlx.sum(x.reshape(8_500_000, 2), axis=0), x,
               backend=backend).tolist() == [8_500_000] * 2


@BACKENDS
def test_a_mean_over_the_first_axis(backend: str) -> None:
    x = np.full((1_000_000, 2), 0.1, np.float32)
    assert error(run(lambda x: rlx.mean(x, axis=0), x, backend=backend), TENTH) < 1e-6


# ---- folds over any axis ---------------------------------------------------------------------

AXES: dict[str, Callable[[int], tuple[tuple[int, ...], Any]]] = {
    "first": lambda n: ((n, 3), 0),
    "first of wide": lambda n: ((n, max(1, min(300, 3_000_000 // n))), 0),
    "middle": lambda n: ((2, n, 2), 1),
    "last": lambda n: ((3, n), 1),
    "two": lambda n: ((n, 2, 3), (0, 2)),
    "two inside": lambda n: ((2, n, 5), (1, 2)),
    "all": lambda n: ((n, 2), None),
}
SIZES = (1, 63, 64, 65, 1000, 100_000, 1_000_007)


def terms_of(kind: str, shape: tuple[int, ...], dtype: DType) -> Array:
    if kind == "equal":
        return np.full(shape, 0.01, dtype.numpy)
    return np.random.default_rng(0).random(shape).astype(dtype.numpy)


@pytest.mark.parametrize("kind", ("equal", "random"))
@pytest.mark.parametrize("dtype", (rlx.f32, rlx.f64), ids=str)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", AXES)
def test_folds_over_any_axis(name: str, size: int, dtype: DType, kind: str) -> None:
    shape, axis = AXES[name](size)
    x = terms_of(kind, shape, dtype)
    axes = range(len(shape)) if axis is None else np.atleast_1d(axis)
    kept = [i for i in range(len(shape)) if i not in axes]
    lines = x.transpose(*kept, *axes).reshape(*(shape[i] for i in kept), -1)
    if kind == "equal":
        true: Any = float(x.flat[0]) * np.longdouble(lines.shape[-1])
    else:
        lines = lines.reshape(-1, lines.shape[-1])[:3]
        true = [fsum(line.tolist()) for line in lines]
    for backend in ("cpu", "reference"):
        found = np.ravel(run(lambda x: rlx.sum(x, axis=axis), x, backend=backend))
        assert error(found if kind == "equal" else found[:3], true) <= BOUND[dtype]


@BACKENDS
@pytest.mark.parametrize("dtype", (rlx.f16, rlx.bf16), ids=str)
@pytest.mark.parametrize("size", (1000, 100_000))
def test_narrow_sums_are_held_wide(dtype: DType, size: int, backend: str) -> None:
    x = terms_of("equal", (size, 3), dtype)
    half_unit = 2.0**-11 if dtype is rlx.f16 else 2.0**-8
    for function, true in ((lambda x: rlx.sum(x, axis=0), size * float(x[0, 0])),
                           (lambda x: rlx.mean(x), float(x[0, 0])),
                           (lambda x: rlx.cumsum(x, axis=0)[size - 1], size * float(x[0, 0])),
                           (lambda x: x[:, 0] @ x[:, 1], size * float(x[0, 0]) ** 2)):
        assert error(run(function, x, backend=backend), true) <= half_unit + 1e-6


@BACKENDS
def test_ten_million_terms(backend: str) -> None:
    x = np.random.default_rng(0).random(10_000_000).astype(np.float32)
    assert error(run(rlx.sum, x, backend=backend), fsum(x.tolist())) < 1e-6
    x[:] = 0.1
    assert error(run(rlx.sum, x, backend=backend), TENTH * 10_000_000) < 1e-6
    assert error(run(lambda x: rlx.sum(x.reshape(5_000_000, 2), axis=0), x, backend=backend),
                 TENTH * 5_000_000) < 1e-6


# ---- sums inside of other functions -----------------------------------------------------------

N = 1_000_004
COLUMN = np.full((N, 2), 0.1, np.float32)
SIGNS = np.where(np.arange(N) % 2, 1, -1).astype(np.float32)[:, None]
MADE_OF_SUMS: dict[str, tuple[Function, float]] = {
    "softmax": (lambda x, _: rlx.nn.softmax(x, 0)[:3], 1 / N),
    "logsumexp": (lambda x, _: rlx.logsumexp(x, axis=0), TENTH + float(np.log(N))),
    "norm": (lambda x, _: rlx.norm(x, axis=0), TENTH * N**0.5),
    "row and column": (lambda x, _: (x * x.sum(1, keepdims=True)).sum(0), 2 * TENTH**2 * N),
    "two folds of a loop": (lambda x, _: x.sum(0) * x.max(0), TENTH**2 * N),
    "mean of a loss": (lambda x, _: rlx.nn.mse_loss(x, x * 0), TENTH**2),
    "variance": (lambda x, signs: rlx.var(x * signs, axis=0), TENTH**2),
    "deviation": (lambda x, signs: rlx.std(x * signs, axis=0), TENTH),
}


@BACKENDS
@pytest.mark.parametrize("name", MADE_OF_SUMS)
def test_functions_made_of_sums(name: str, backend: str) -> None:
    function, true = MADE_OF_SUMS[name]
    # A few roundings follow the sum.
    assert error(run(function, COLUMN, SIGNS, backend=backend), true) < 1.2e-6


@BACKENDS
def test_gradients_that_are_sums(backend: str) -> None:
    x, b, ct = COLUMN, np.zeros(2, np.float32), np.full((N, 2), 0.1, np.float32)
    bias, = run(lambda x, b: x + b, x, b, wrt=(1,), ct=ct, backend=backend)
    assert error(bias, TENTH * N) < 1e-6
    scale, = run(lambda x, b: x * b, x, b, wrt=(1,), ct=ct, backend=backend)
    assert error(scale, TENTH**2 * N) < 1e-6
    weight, offset = run(rlx.nn.linear, x, np.ones((3, 2), np.float32), np.zeros(3, np.float32),
                         wrt=(1, 2), ct=np.full((N, 3), 0.1, np.float32), backend=backend)
    assert max(error(weight, TENTH**2 * N), error(offset, TENTH * N)) < 1e-6
    line, = run(lambda x: rlx.cumsum(x, axis=0), x, wrt=(0,), ct=ct, backend=backend)
    assert error(line[:, 0], np.arange(N, 0, -1) * TENTH) < 1e-6


# ---- products --------------------------------------------------------------------------------

PRODUCTS = ((1, 1_000_003, 1), (3, 1_000_003, 1), (1, 1_000_003, 5), (5, 100_003, 70),
            (200, 20_000, 200), (64, 1025, 64), (64, 1024 + 512, 640))


@BACKENDS
@pytest.mark.parametrize("form", ("nn", "tn", "nt"))
@pytest.mark.parametrize("m, k, n", PRODUCTS, ids=str)
def test_products_over_long_axes(m: int, k: int, n: int, form: str, backend: str) -> None:
    a = np.full((k, m) if form == "tn" else (m, k), 0.1, np.float32)
    b = np.ones((n, k) if form == "nt" else (k, n), np.float32)

    def function(a: Node, b: Node) -> Node:
        return (a.T if form == "tn" else a) @ (b.T if form == "nt" else b)

    assert error(run(function, a, b, backend=backend), TENTH * k) < 1e-6


@BACKENDS
def test_gradients_of_convolution_weights(backend: str) -> None:
    x, w = np.full((4, 3, 150, 150), 0.1, np.float32), np.zeros((5, 3, 3, 3), np.float32)
    ct = np.ones((4, 5, 148, 148), np.float32)
    found, = run(lambda x, w: rlx.nn.conv2d(x, w), x, w, wrt=(1,), ct=ct, backend=backend)
    assert error(found, TENTH * 4 * 148 * 148) < 1e-6


# ---- running sums ----------------------------------------------------------------------------


@BACKENDS
@pytest.mark.parametrize("size", (1, 31, 32, 33, 65, 1000, 100_003))
@pytest.mark.parametrize("reverse", (False, True))
@pytest.mark.parametrize("exclusive", (False, True))
def test_running_sums(size: int, reverse: bool, exclusive: bool, backend: str) -> None:
    counts = np.arange(size) + (not exclusive)
    for shape, axis in (((size,), 0), ((size, 2), 0), ((3, size), 1)):
        x = np.full(shape, 0.1, np.float32)
        found = run(lambda x, axis=axis: rlx.cumsum(x, axis, exclusive, reverse), x,
                    backend=backend)
        line = np.moveaxis(found, axis, -1)[..., ::-1 if reverse else 1]
        want = np.broadcast_to(counts * TENTH, line.shape)
        np.testing.assert_allclose(line, want, rtol=1e-6, atol=0)


@BACKENDS
def test_a_running_sum_of_exponentials(backend: str) -> None:
    for size in (1, 33, 1000, 300_001):
        found = run(lambda x: rlx.cumlogsumexp(x, axis=0), np.full((size, 2), 100, np.float32),
                    backend=backend)
        assert error(found[:, 0], 100 + np.log(np.arange(1, size + 1))) < 1e-6


@BACKENDS
def test_infinities_and_nan_stay_where_they_are(backend: str) -> None:
    line = np.zeros(200, np.float32)
    for place, value in ((5, np.inf), (40, np.inf), (100, -np.inf), (40, np.nan)):
        x = line.copy()
        x[place] = value
        with np.errstate(invalid="ignore"):
            sums, logs = np.cumsum(x), np.logaddexp.accumulate(x)
        np.testing.assert_array_equal(
            run(lambda x: rlx.cumsum(x, axis=0), x, backend=backend), sums)
        np.testing.assert_allclose(
            run(lambda x: rlx.cumlogsumexp(x, axis=0), x, backend=backend), logs, rtol=1e-5)
    assert (run(lambda x: rlx.cumlogsumexp(x, axis=0), line - np.inf, backend=backend)
            == -np.inf).all()


# ---- one order -------------------------------------------------------------------------------


@pytest.mark.parametrize("extent", (0, 1, 31, 32, 33, 64, 1000, 99_991))
@pytest.mark.parametrize("most, unit", ((32, 1), (32, 8), (2048, 64), (1, 1)))
def test_runs_cover_a_loop_once_in_order(extent: int, most: int, unit: int) -> None:
    at = 0
    for start, run, depth in runs(extent, most, unit):
        assert start == at and 0 < run <= most
        at += run << depth
        assert run % unit == 0 or (at == extent and depth == 0)
    assert at == extent


ORDERS: dict[str, tuple[tuple[int, ...], Function]] = {
    "line": ((2000,), rlx.sum),
    "lines": ((3, 700), lambda x: rlx.sum(x, axis=1)),
    "columns": ((50, 3), lambda x: rlx.sum(x, axis=0)),
    "wide columns": ((70, 300), lambda x: rlx.sum(x * x, axis=0)),
    "around": ((30, 4, 9), lambda x: rlx.sum(x, axis=(0, 2))),
    "softmax": ((40, 5), lambda x: rlx.nn.softmax(x, 0)),
    "variance": ((41, 5), lambda x: rlx.var(x, axis=0) + rlx.max(x, axis=0)),
    "running": ((3, 50), lambda x: rlx.cumsum(x, axis=1)),
    "running down": ((50, 3), lambda x: rlx.cumlogsumexp(x, axis=0, reverse=True)),
    "pools": ((1, 2, 30, 30), lambda x: rlx.nn.avg_pool2d(x, 9)),
    "dot": ((2000,), lambda x: x @ x),
}


def lowered(shape: tuple[int, ...], function: Function, dtype: DType = rlx.f32) -> Program:
    graph = rlx.Graph("order")
    graph.output("out", function(graph.input("x", shape, dtype)))
    return lower(decompose(graph))


@pytest.mark.parametrize("dtype", (rlx.f32, rlx.bf16, rlx.f64), ids=str)
@pytest.mark.parametrize("name", ORDERS)
def test_neither_threads_nor_registers_change_a_bit(name: str, dtype: DType,
                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs, "CHAIN", 4)  # many runs, and the interpreter is slow
    shape, function = ORDERS[name]
    x = plain_array(dtype, prod(shape)).reshape(shape)
    graph = rlx.Graph("order")
    graph.output("out", function(graph.input("x", shape, dtype)))
    program = program_for(graph, host())
    want = interpret(program, {"x": x})["out"]
    for threads in (1, 2):
        assert same_bits(run_native(program, {"x": x}, threads=threads)["out"], want)
    if dtype is rlx.f32 and name != "dot":
        loops, widths = lowered(shape, function), []
        for vector_bytes in (16, 32, 64):
            done = schedule(loops, CpuTarget(vector_bytes))
            check_plan(plan_memory(done))
            widths.append(interpret(done, {"x": x})["out"])
        np.testing.assert_allclose(widths[0], want, rtol=1e-5)
        assert all(same_bits(found, widths[0]) for found in widths)


@pytest.mark.parametrize("name", ORDERS)
def test_runs_keep_exact_sums(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of small whole numbers, where no order rounds."""
    monkeypatch.setattr(pairs, "CHAIN", 4)
    shape, _ = ORDERS[name]
    x = np.random.default_rng(1).integers(-9, 9, shape).astype(np.float32)
    for axis in (*range(len(shape)), tuple(range(len(shape)))):
        loops = lowered(shape, lambda x, axis=axis: rlx.sum(x, axis=axis))
        done = interpret(schedule(loops, CpuTarget()), {"x": x})["out"]
        np.testing.assert_array_equal(done, x.sum(axis))


def long_chains(program: Program) -> Iterator[For]:
    """Loops that add more terms one after the other than a chain may have."""
    for s in (s for kernel in program.kernels for s in walk(kernel.body)):
        if isinstance(s, For):
            lanes = 64 if s.axis is Axis.VECTOR else 1
            each = max((terms(s.body, a) for a in float_sums(s)), default=0)
            if -(-s.var.extent // lanes) * each > CHAIN:
                yield s


@pytest.mark.parametrize("size", (100, 5000, 1_000_003))
@pytest.mark.parametrize("name", [*AXES, "variance", "loss"])
def test_no_chain_is_long(name: str, size: int) -> None:
    shape, axis = AXES.get(name, AXES["first"])(size)
    function = {"variance": lambda x: rlx.var(x, axis=0), "loss": lambda x: rlx.nn.mse_loss(x, -x)
                }.get(name, lambda x: rlx.sum(x, axis=axis))
    assert not any(long_chains(schedule(lowered(shape, function), CpuTarget())))


def test_a_long_chain_is_seen() -> None:
    assert any(long_chains(lowered((33, 3), lambda x: rlx.sum(x, axis=0))))
    assert not any(long_chains(lowered((32, 3), lambda x: rlx.sum(x, axis=0))))


def test_integers_stay_one_loop() -> None:
    loops = schedule(lowered((5000, 3), lambda x: rlx.sum(x, axis=0), rlx.i32), CpuTarget())
    kernels = [add_in_pairs(k.body) for k in loops.kernels]
    assert kernels == [k.body for k in loops.kernels]


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_gradients_of_running_products_keep_their_digits(backend: str) -> None:
    n = 20_000 if backend == "reference" else 1_000_000
    g = rlx.Graph()
    x = g.input("x", (n,))
    g.output("product", rlx.cumprod(x, axis=0).sum())
    x0 = np.ones(n, np.float32)
    places = np.arange(n, dtype=np.float64)
    found = rlx.compile(rlx.grad(g, of="product", wrt="x"), backend)(x=x0).grad_x
    np.testing.assert_allclose(found, n - places, rtol=1e-6)
    scaled = rlx.Graph()
    y = scaled.input("x", (n,))
    scaled.output("loss", (rlx.cumprod(y, axis=0) * np.float32(0.1)).sum())
    found = rlx.compile(rlx.grad(scaled, of="loss", wrt="x"), backend)(x=x0).grad_x
    np.testing.assert_allclose(found, np.float64(np.float32(0.1)) * (n - places), rtol=1e-6)
