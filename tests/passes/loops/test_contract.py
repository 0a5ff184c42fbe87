"""Products in loops and tiles: the same numbers as the Contract statement, on every shape."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlx_py.backends.llvm.jit import compile_program
from rlx_py.backends.llvm.targets import host, named, tile_target
from rlx_py.ir.base.types import bf16, f16, f32, f64, i8, i32, i64
from rlx_py.ir.graph.graph import Graph
from rlx_py.ir.loops.copying import walk
from rlx_py.ir.loops.index import Var, as_index
from rlx_py.ir.loops.interpret import interpret
from rlx_py.ir.loops.kernel import Alloc, Axis, Contract, For, Kernel, Read, Scope, Store, Tile
from rlx_py.ir.loops.local import Local
from rlx_py.ir.loops.program import Program
from rlx_py.ir.ops.nn.conv.conv import CONV, CONV_BACKWARD_INPUT, CONV_BACKWARD_WEIGHT
from rlx_py.passes.loops.cpu_schedule import CpuTarget, schedule
from rlx_py.passes.loops.expand_math import expand_math
from rlx_py.passes.loops.memory import plan_memory
from rlx_py.passes.loops.plan_check import check_plan
from rlx_py.passes.loops.products import TileTarget, expand_contract, tiled
from rlx_py.passes.loops.products.target import Limits
from rlx_py.passes.lower.lower import lower
from rlx_py.passes.rewrite.decompose import decompose
from support.products import Array, Case, arrays, build, loaded, port, sizes, wanted

# Everything large happens at once: threads, blocks of every dimension, copies.
SMALL = Limits(thread_cycles=1, block_cycles=64, blocks=6, depth_bytes=40, block_bytes=400,
               pack_rows=8, pack_bytes=64, repaid=4, split_depth=1 << 30, vector_depth=1 << 30,
               short=2)
TARGET = TileTarget(vector_bytes=16, registers=16, limits=SMALL)
SPLIT = replace(TARGET, limits=replace(SMALL, split_depth=16, part_depth=8))
# Sums over more than 4 of k are chains of at most 3, added in pairs behind 4 of k.
LONG = [replace(SMALL, chain_depth=4, depth_bytes=8), replace(SPLIT.limits, chain_depth=4),
        replace(SMALL, chain_depth=20, depth_bytes=12)]

FORMS = [
    Case("nn", sizes(m=9, n=13, k=22), ("", "m", "n", "k"), "mk", "kn", "mn"),
    Case("tn", sizes(m=9, n=13, k=22), ("", "m", "n", "k"), "km", "kn", "mn"),
    Case("nt", sizes(m=9, n=13, k=22), ("", "m", "n", "k"), "mk", "nk", "mn"),
    Case("out_t", sizes(m=9, n=13, k=22), ("", "m", "n", "k"), "mk", "kn", "nm"),
    Case("row", sizes(n=13, k=22), ("", "", "n", "k"), "k", "kn", "n"),
    Case("column", sizes(m=13, k=22), ("", "m", "", "k"), "mk", "k", "m"),
    Case("dot", sizes(k=22), ("", "", "", "k"), "k", "k", ""),
    Case("outer", sizes(m=5, n=6), ("", "m", "n", ""), "m", "n", "mn"),
    Case("batched", sizes(b=3, m=5, n=6, k=7), ("b", "m", "n", "k"), "bmk", "bnk", "bmn"),
    Case("batch_last", sizes(b=3, m=5, n=6, k=7), ("b", "m", "n", "k"), "mkb", "knb", "mnb"),
    Case("heads", sizes(b=2, h=3, m=5, n=6, k=4), ("bh", "m", "n", "k"), "bmhk", "bnhk", "bhmn"),
    Case("groups", sizes(m=2, p=5, n=3, q=4, k=2, r=5), ("", "mp", "nq", "kr"), "mkpr", "rkqn",
         "mnpq"),
    Case("collapse", sizes(m=2, p=5, n=3, q=4, k=2, r=5), ("", "mp", "nq", "kr"), "mpkr", "krnq",
         "mpnq"),
    Case("units", sizes(a=1, m=5, n=6, k=7, z=1), ("a", "m", "n", "kz"), "amzk", "kzn", "amn"),
]
FORM = pytest.mark.parametrize("case", FORMS, ids=lambda c: c.name)
TAIL = pytest.mark.parametrize("tail", ["store", "relu"])


def expanded(program: Program, target: TileTarget) -> Program:
    """The program in loops, planned and checked."""
    loops = plan_memory(expand_contract(program, target))
    assert not any(isinstance(s, Contract) for k in loops.kernels for s in walk(k.body))
    check_plan(loops)
    return loops


def close(result: Array, expected: Array, depth: int, eps: float = 2.0**-23) -> None:
    np.testing.assert_allclose(result, expected, rtol=0, atol=8 * (depth + 4) * eps)


def same_bits(case: Case, target: TileTarget) -> None:
    program = build(case)
    values = arrays(program)
    result = interpret(expanded(program, target), values)["out"]
    assert result.tobytes() == interpret(program, values)["out"].tobytes()


@FORM
@TAIL
@pytest.mark.parametrize("limits", [SMALL, Limits()], ids=["small", "usual"])
def test_loops_keep_every_bit(case: Case, tail: str, limits: Limits) -> None:
    same_bits(replace(case, tail=tail), replace(TARGET, limits=limits))


@FORM
@TAIL
def test_machine_code_is_the_product(case: Case, tail: str) -> None:
    case = replace(case, tail=tail)
    program = build(case)
    values = arrays(program)
    depth = prod(case.sizes[x] for x in case.groups[3])
    for limits in (SMALL, Limits()):
        target = replace(tile_target(host()), limits=limits)
        native = compile_program(expanded(program, target), threads=2)
        out = np.full(program.outputs[0].shape, np.nan, np.float32)
        native.run(values, {"out": out})
        close(out, wanted(case, values), depth)


LETTERS = st.integers(0, 2)


@st.composite
def products(draw: st.DrawFn) -> Case:
    """A product of any groups of axes, in any layout."""
    names = iter("abcdefghij")
    groups = ["".join(next(names) for _ in range(draw(LETTERS))) for _ in range(4)]
    extents = {x: draw(st.integers(1, 7)) for g in groups for x in g}
    batch, m, n, k = groups

    def shuffled(letters: str) -> str:
        return "".join(draw(st.permutations(letters)))

    return Case("random", extents, (batch, m, n, k), shuffled(batch + m + k),
                shuffled(batch + k + n), shuffled(batch + m + n),
                draw(st.sampled_from(["store", "relu"])))


@settings(max_examples=60, deadline=None)
@given(products(), st.integers(1, 6), st.sampled_from([16, 40, 64]), st.sampled_from([100, 400]))
def test_random_products_keep_every_bit(case: Case, blocks: int, depth: int, block: int) -> None:
    limits = replace(SMALL, blocks=blocks, depth_bytes=depth, block_bytes=block)
    same_bits(case, replace(TARGET, limits=limits))


@TAIL
@pytest.mark.parametrize("k", [33, 64, 71])
def test_parts_of_a_long_sum_are_added(tail: str, k: int) -> None:
    case = Case("long", sizes(m=5, n=6, k=k), ("", "m", "n", "k"), "mk", "kn", "mn", tail)
    program = build(case)
    loops = expanded(program, SPLIT)
    assert sum(isinstance(s, For) for s in loops.kernels[0].body) == 2
    values = arrays(program)
    close(interpret(loops, values)["out"], wanted(case, values), k)


@FORM
@pytest.mark.parametrize("repaid", [4, 1000])
def test_copies_that_widen_keep_every_bit(case: Case, repaid: int) -> None:
    same_bits(replace(case, dtype=bf16, tail="relu"),
              replace(TARGET, limits=replace(SMALL, repaid=repaid)))


DEEP = [*FORMS, Case("deep", sizes(m=3, n=20, k=90), ("", "m", "n", "k"), "km", "kn", "mn"),
        Case("deep groups", sizes(m=5, n=18, k=3, r=70), ("", "m", "n", "kr"), "mkr", "rkn", "mn"),
        Case("deep f64", sizes(m=3, n=10, k=67), ("", "m", "n", "k"), "mk", "nk", "mn", dtype=f64)]


@pytest.mark.parametrize("case", DEEP, ids=lambda c: c.name)
@pytest.mark.parametrize("limits", LONG, ids=["runs", "parts", "blocks"])
def test_long_sums_are_cut_by_k_alone(case: Case, limits: Limits, monkeypatch: pytest.MonkeyPatch
                                      ) -> None:
    """The same bits for registers of every width and number, and in machine code."""
    monkeypatch.setattr(tiled, "RUN", 3)
    program = build(case)
    depth = prod(case.sizes[x] for x in case.groups[3])
    close(one_of_all_registers(program, limits), wanted(case, arrays(program)), depth)


def one_of_all_registers(program: Program, limits: Limits) -> Array:
    """The result, after a check that registers of any kind and machine code give the same bits."""
    values = arrays(program)
    found = [interpret(expanded(program, TileTarget(width, registers, limits)), values)["out"]
             for width, registers in ((16, 16), (32, 16), (64, 32))]
    target = replace(tile_target(host()), limits=limits)
    native = compile_program(expanded(program, target), threads=2)
    out = np.full(program.outputs[0].shape, np.nan, found[0].dtype)
    native.run(values, {"out": out})
    assert len({x.tobytes() for x in found}) == 1
    if host().fma:
        assert out.tobytes() == found[0].tobytes()
    else:  # products and sums round each
        np.testing.assert_allclose(out, found[0], rtol=0, atol=1e-3)
    return found[0]


@pytest.mark.parametrize("dtype", [f64, f16, bf16, i32, i64])
@TAIL
def test_every_element_type(dtype: object, tail: str) -> None:
    case = Case("types", sizes(m=5, n=6, k=7), ("", "m", "n", "k"), "mk", "nk", "mn", tail,
                dtype=dtype)  # type: ignore[arg-type]
    same_bits(case, TARGET)


def test_narrow_integers_are_summed_wide() -> None:
    case = Case("i8", sizes(m=5, n=6, k=300), ("", "m", "n", "k"), "mk", "kn", "mn", "store", i8,
                i32)
    program = build(case)
    values = arrays(program)
    values["a"][:] = values["b"][:] = 100
    result = interpret(expanded(program, TARGET), values)["out"]
    assert (result == 300 * 100 * 100).all()


@pytest.mark.parametrize("zero", ["b", "m", "n", "k"])
def test_empty_dimensions(zero: str) -> None:
    extents = sizes(b=2, m=3, n=4, k=5) | {zero: 0}
    case = Case("empty", extents, ("b", "m", "n", "k"), "bmk", "bkn", "bmn", "relu")
    program = build(case)
    values = arrays(program)
    result = interpret(expanded(program, TARGET), values)["out"]
    close(result, wanted(case, values), 1)
    assert result.shape == (extents["b"], 3 if zero != "m" else 0, 4 if zero != "n" else 0)


@pytest.mark.parametrize("axis", [Axis.PARALLEL, Axis.SERIAL])
def test_inside_another_loop(axis: Axis) -> None:
    case = Case("nt", sizes(m=9, n=13, k=22), ("", "m", "n", "k"), "mk", "nk", "mn", "relu")
    program = build(case)
    (kernel,) = program.kernels
    twice = For(Var("t", 2), kernel.body, axis)
    around = replace(program, kernels=(replace(kernel, body=(twice,)),))
    loops = expanded(around, TARGET)
    statements = list(walk(loops.kernels[0].body))
    parallel = [s for s in statements if isinstance(s, For) and s.axis is Axis.PARALLEL]
    assert len(parallel) == 1 if axis is Axis.PARALLEL else parallel
    if axis is Axis.PARALLEL:
        assert all(s.buffer.scope is not Scope.ARENA for s in statements
                   if isinstance(s, Store | Alloc))
    values = arrays(program)
    assert interpret(loops, values)["out"].tobytes() == interpret(program, values)["out"].tobytes()


@pytest.mark.parametrize("k", [5, 300])
def test_sums_may_be_added_where_windows_overlap(k: int) -> None:
    images, channels, taps, places = 3, 4, 3, 6
    n, c, t, p, q = (Var(x, e) for x, e in zip("nctpk", (images, channels, taps, places, k),
                                               strict=True))
    a, b, out = (port(x, f32, shape) for x, shape in (
        ("a", (k, channels, taps)), ("b", (images, k, places)),
        ("out", (images, channels, taps + places - 1))))
    acc = Local(f32)
    place = as_index(n) * (channels * out.shape[2]) + as_index(c) * out.shape[2] + as_index(
        t) + as_index(p)
    contract = Contract(
        (), (c, t), (n, p), (q,),
        loaded(a.buffer, as_index(q) * (channels * taps) + as_index(c) * taps + as_index(t), f32),
        loaded(b.buffer, as_index(n) * (k * places) + as_index(q) * places + as_index(p), f32),
        acc, (Store(out.buffer, place, Read(acc), "add"),))
    program = Program("overlap", (Kernel("k", (contract,)),), (a, b), (out,))
    values = arrays(program)
    expected = np.zeros(out.shape)
    for tap in range(taps):
        expected[:, :, tap: tap + places] += np.einsum(
            "kc,nkp->ncp", values["a"][:, :, tap].astype(np.float64), values["b"])
    for target in (TARGET, SPLIT, tile_target(host())):
        loops = expanded(program, target)
        close(interpret(loops, values)["out"], expected, 3 * k)
        result = np.zeros(out.shape, np.float32)
        compile_program(loops, threads=3).run(values, {"out": result})
        close(result, expected, 3 * k)
    (loop,) = (s for s in expanded(program, TARGET).kernels[0].body
               if isinstance(s, For) and s.axis is Axis.PARALLEL)
    assert 1 < loop.var.extent <= images * channels


def convolution(kind: str, batch: int, inputs: int, outputs: int, side: int, taps: int, pad: int,
                stride: int, dilation: int, groups: int) -> Program:
    y = (side + 2 * pad - dilation * (taps - 1) - 1) // stride + 1
    line: dict[str, Any] = {"stride": (stride, stride), "low": (pad, pad), "high": (pad, pad),
                            "dilation": (dilation, dilation), "groups": groups}
    shapes = {"x": (batch, inputs, side, side), "w": (outputs, inputs // groups, taps, taps),
              "y": (batch, outputs, y, y)}
    graph = Graph(kind)
    if kind == "forward":
        out = CONV(graph.input("a", shapes["x"]), graph.input("b", shapes["w"]), **line)
    elif kind == "weight":
        out = CONV_BACKWARD_WEIGHT(graph.input("a", shapes["x"]), graph.input("b", shapes["y"]),
                                   size=(taps, taps), **line)
    else:
        out = CONV_BACKWARD_INPUT(graph.input("a", shapes["y"]), graph.input("b", shapes["w"]),
                                  shape=(side, side), **line)
    graph.output("out", out)
    return schedule(lower(decompose(graph)), CpuTarget(64))


@pytest.mark.parametrize("kind", ["forward", "weight", "input"])
@pytest.mark.parametrize("shape", [
    (2, 3, 4, 6, 3, 1, 1, 1, 1), (2, 2, 4, 7, 3, 0, 2, 1, 1), (3, 2, 3, 5, 2, 0, 1, 2, 1),
    (2, 4, 4, 5, 3, 1, 1, 1, 2), (4, 3, 5, 4, 1, 0, 1, 1, 1)])
def test_convolutions_keep_every_bit(kind: str, shape: tuple[int, ...]) -> None:
    program = convolution(kind, *shape)
    values = arrays(program)
    result, plain = (interpret(p, values)["out"] for p in (expanded(program, TARGET), program))
    if any(isinstance(s, Contract) and any(isinstance(e, Store) and e.combine for e in s.epilogue)
           for k in program.kernels for s in k.body):
        close(result, plain, 100)  # sums into shared elements follow the order of the tiles
    else:
        assert result.tobytes() == plain.tobytes()
    target = host()
    native = compile_program(plan_memory(expand_math(expand_contract(
        program, tile_target(target)))), target=target, threads=2)
    out = np.full(program.outputs[0].shape, np.nan, np.float32)
    native.run(values, {"out": out})
    close(out, result, 100)


@pytest.mark.parametrize("kind", ["forward", "weight"])
@pytest.mark.parametrize("limits", LONG, ids=["runs", "parts", "blocks"])
def test_long_sums_of_convolutions(kind: str, limits: Limits, monkeypatch: pytest.MonkeyPatch
                                   ) -> None:
    monkeypatch.setattr(tiled, "RUN", 3)
    for shape in ((2, 3, 2, 6, 3, 1, 1, 1, 1), (1, 1, 2, 66, 1, 0, 1, 1, 1)):
        one_of_all_registers(convolution(kind, *shape), limits)


@pytest.mark.parametrize("shape", [(64, 100, 300), (300, 700, 1100), (17, 33, 5000), (1, 500, 700),
                                   (500, 1, 700), (300, 300, 3)])
@TAIL
def test_threads_change_no_bit(shape: tuple[int, int, int], tail: str) -> None:
    for a, b in (("mk", "kn"), ("km", "kn"), ("mk", "nk")):
        case = Case("large", dict(zip("mnk", shape, strict=True)), ("", "m", "n", "k"), a, b, "mn",
                    tail)
        program = build(case)
        values = arrays(program)
        loops = expanded(program, tile_target(host()))
        results = []
        for threads in (1, 2, 3):
            out = np.full(program.outputs[0].shape, np.nan, np.float32)
            compile_program(loops, threads=threads).run(values, {"out": out})
            results.append(out)
        assert len({r.tobytes() for r in results}) == 1
        np.testing.assert_allclose(results[0], wanted(case, values), rtol=0,
                                   atol=2e-6 * shape[2] ** 0.5 * 8)


@pytest.mark.parametrize("cpu", ["x86-64", "x86-64-v3", "x86-64-v4"])
def test_code_does_not_grow_with_sizes(cpu: str) -> None:
    target = tile_target(named("x86_64-unknown-linux-gnu", cpu))
    for a, b in (("mk", "kn"), ("km", "nk")):
        for n in (100, 1000, 10_000):
            case = Case("grow", sizes(m=n + 1, n=n + 3, k=n + 7), ("", "m", "n", "k"), a, b, "mn")
            body = expand_contract(build(case), target).kernels[0].body
            tiles = {(s.rows, s.cols) for s in walk(body)
                     if isinstance(s, Tile) and s.kind == "outer"}
            assert len(tiles) <= 6
            assert sum(1 for _ in walk(body)) < 250
