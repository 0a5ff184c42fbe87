"""Register tiles: the product, its bits, its bounds, and its registers."""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import llvmlite.binding as llvm
import llvmlite.ir as ll
import numpy as np
import pytest

from rlx_py.backends.llvm.targets import Target, host, machine, named
from rlx_py.backends.llvm.tile import (
    CopySpec,
    DotSpec,
    TileSpec,
    copy_function,
    dot_function,
    tile_function,
)
from rlx_py.ir.base.errors import ArgumentError, BackendError, DTypeError
from rlx_py.passes.loops.products.target import MAX_ROWS, choose_tile

Array = np.ndarray[Any, np.dtype[Any]]
Spec = TileSpec | DotSpec | CopySpec
X86 = "x86_64-unknown-linux-gnu"
NUMPY: dict[str, np.dtype[Any]] = {"f32": np.dtype(np.float32), "f64": np.dtype(np.float64)}


def runnable() -> list[Target]:
    here = host()
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return [here]
    levels = [named(here.triple, cpu) for cpu in ("x86-64", "x86-64-v3")]
    narrower = [t for t in levels if t.vector_bytes < here.vector_bytes or not t.fma]
    return [here, *narrower]


TARGETS = pytest.mark.parametrize("target", runnable(), ids=lambda t: t.cpu)
DTYPES = pytest.mark.parametrize("dtype", ["f32", "f64"])


def compiled(spec: Spec, target: Target) -> llvm.ModuleRef:
    module = ll.Module()
    module.triple = target.triple
    if isinstance(spec, TileSpec):
        tile_function(module, spec).linkage = "external"
    elif isinstance(spec, DotSpec):
        dot_function(module, spec).linkage = "external"
    else:
        copy_function(module, spec).linkage = "external"
    parsed = llvm.parse_assembly(str(module))
    parsed.verify()
    options = llvm.create_pipeline_tuning_options(2)
    options.loop_vectorization = options.slp_vectorization = options.loop_unrolling = False
    passes = llvm.create_pass_builder(machine(target), options)
    passes.getModulePassManager().run(parsed, passes)
    return parsed


@lru_cache(maxsize=512)
def native(spec: Spec, target: Target) -> tuple[llvm.ExecutionEngine, Callable[..., None]]:
    engine = llvm.create_mcjit_compiler(compiled(spec, target), machine(target))
    engine.finalize_object()
    count = {TileSpec: 8, DotSpec: 7, CopySpec: 5}[type(spec)]
    kind = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * count)
    return engine, kind(engine.get_function_address(spec.name))


def run(spec: Spec, target: Target, k: int, a: Array, b: Array, c: Array) -> None:
    """Run a tile on views: a[i, k]; b[k, j] (of a dot tile, b[j, k]); c[i, j]."""
    size = NUMPY[spec.dtype].itemsize
    a_row, a_col, b_row, c_row = (
        s // size for s in (a.strides[0], a.strides[1], b.strides[0], c.strides[0])
    )
    at_a, at_b, at_c = a.ctypes.data, b.ctypes.data, c.ctypes.data
    call = native(spec, target)[1]
    if isinstance(spec, TileSpec):
        call(k, at_a, a_row, a_col, at_b, b_row, at_c, c_row)
    else:
        call(k, at_a, a_row, at_b, b_row, at_c, c_row)


def framed(rows: int, columns: int, border: int, fill: float, dtype: str) -> tuple[Array, Array]:
    """A rows x columns view in the middle of a larger array of `fill`."""
    whole = np.full((rows + 2 * border, columns + 2 * border), fill, NUMPY[dtype])
    return whole, whole[border : border + rows, border : border + columns]


def random(shape: tuple[int, int], dtype: str, seed: int = 0) -> Array:
    values: Array = np.random.default_rng(seed).standard_normal(shape)
    return values.astype(NUMPY[dtype])


def tolerance(k: int, dtype: str) -> float:
    return 8.0 * (k + 4) * float(np.finfo(NUMPY[dtype]).eps)


def shapes(lanes: int) -> list[tuple[int, int]]:
    return [(1, 1), (3, lanes), (2, lanes + 1), (6, 2 * lanes), (5, 2 * lanes - 1), (8, 3)]


@TARGETS
@DTYPES
@pytest.mark.parametrize("accumulate", [False, True])
def test_tile_is_the_product_and_writes_nothing_else(
    target: Target, dtype: str, accumulate: bool
) -> None:
    lanes = target.lanes(dtype)
    for mr, nr in shapes(lanes):
        spec = TileSpec(dtype, mr, nr, lanes, accumulate)
        for k in (0, 1, 2, 7, 33):
            for transposed in (False, True):
                _, a = framed(*((k, mr) if transposed else (mr, k)), 2, np.nan, dtype)
                _, b = framed(k, nr, 3, np.nan, dtype)
                whole, c = framed(mr, nr, lanes, 77.0, dtype)
                a[:], b[:], c[:] = random(a.shape, dtype), random(b.shape, dtype, 1), 0.5
                a = a.T if transposed else a
                wanted = a.astype(np.float64) @ b.astype(np.float64) + 0.5 * accumulate
                run(spec, target, k, a, b, c)
                np.testing.assert_allclose(c, wanted, rtol=0, atol=tolerance(k, dtype))
                c[:] = 77.0
                assert (whole == 77.0).all()


@TARGETS
@DTYPES
@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("chains", [1, 4])
def test_dot_tile_is_the_product_and_writes_nothing_else(
    target: Target, dtype: str, accumulate: bool, chains: int
) -> None:
    lanes = target.lanes(dtype)
    for mr, nr in [(1, 1), (1, 5), (3, 2)]:
        spec = DotSpec(dtype, mr, nr, lanes, accumulate, chains)
        for k in (0, 1, lanes - 1, lanes, 4 * lanes, 9 * lanes + 3):
            _, a = framed(mr, k, 2, np.nan, dtype)
            _, b = framed(nr, k, 3, np.nan, dtype)
            whole, c = framed(mr, nr, 4, 77.0, dtype)
            a[:], b[:], c[:] = random(a.shape, dtype), random(b.shape, dtype, 1), 0.5
            wanted = a.astype(np.float64) @ b.T.astype(np.float64) + 0.5 * accumulate
            run(spec, target, k, a, b, c)
            np.testing.assert_allclose(c, wanted, rtol=0, atol=tolerance(k, dtype))
            c[:] = 77.0
            assert (whole == 77.0).all()


def transpose(target: Target, a: Array, c: Array, dtype: str) -> None:
    """c = a of as many rows, where a is contiguous along its first axis."""
    size = NUMPY[dtype].itemsize
    call = native(CopySpec(dtype, c.shape[1], target.lanes(dtype)), target)[1]
    call(len(a), a.ctypes.data, a.strides[1] // size, c.ctypes.data, c.strides[0] // size)


@TARGETS
@DTYPES
def test_copy_is_the_transpose_and_writes_nothing_else(target: Target, dtype: str) -> None:
    lanes = target.lanes(dtype)
    for columns in {1, lanes // 2 + 1, lanes}:
        for rows in (0, 1, lanes - 1, lanes, 3 * lanes + 2):
            _, a = framed(columns, rows, 2, np.nan, dtype)
            a[:] = random(a.shape, dtype)
            whole, c = framed(rows, columns, 3, 77.0, dtype)
            transpose(target, a.T, c, dtype)
            np.testing.assert_array_equal(c, a.T)
            c[:] = 77.0
            assert (whole == 77.0).all()


@TARGETS
@DTYPES
def test_negative_and_zero_strides(target: Target, dtype: str) -> None:
    lanes = target.lanes(dtype)
    a, b = random((4, 9), dtype), random((9, lanes), dtype, 1)
    spec = TileSpec(dtype, 4, lanes, lanes, False)
    for view in (a[::-1], a[:, ::-1], np.broadcast_to(a[:1], a.shape)):
        c = np.empty((4, lanes), NUMPY[dtype])
        run(spec, target, 9, view, b[::-1], c)
        wanted = view.astype(np.float64) @ b[::-1].astype(np.float64)
        np.testing.assert_allclose(c, wanted, rtol=0, atol=tolerance(9, dtype))


@TARGETS
@DTYPES
def test_bits_depend_neither_on_the_tile_nor_on_blocks_of_k(target: Target, dtype: str) -> None:
    lanes = target.lanes(dtype)
    m, n, k = 6, 2 * lanes, 50
    a, b = random((m, k), dtype), random((k, n), dtype, 1)
    results = []
    for mr, nr, block in [(6, n, k), (1, 1, k), (3, lanes, 7), (2, n, 1), (6, lanes // 2, 49)]:
        c = np.full((m, n), np.nan, NUMPY[dtype])
        for start in range(0, k, block):
            spec = TileSpec(dtype, mr, nr, lanes, accumulate=start > 0)
            for i in range(0, m, mr):
                for j in range(0, n, nr):
                    size = min(block, k - start)
                    run(spec, target, size, a[i:, start:], b[start:, j:], c[i:, j:])
        results.append(c.tobytes())
    assert len(set(results)) == 1


@TARGETS
def test_multiply_and_add_round_once(target: Target) -> None:
    lanes, x = target.lanes("f32"), np.float32(1 + 2**-12)
    a, b = np.full((1, 1), x), np.full((1, lanes), x)
    c = np.full((1, lanes), -np.float32(x * x))
    run(TileSpec("f32", 1, lanes, lanes, True), target, 1, a, b, c)
    assert (c == np.float32(2**-24)).all()


@TARGETS
def test_nan_and_infinity_follow_ieee(target: Target) -> None:
    lanes = target.lanes("f32")
    a = np.array([[np.inf, 0.0], [1.0, np.nan], [np.inf, -np.inf]], np.float32)
    b = np.array([[1.0, 0.0], [2.0, 1.0]], np.float32)
    tile, dot = np.zeros((3, 2), np.float32), np.zeros((3, 2), np.float32)
    run(TileSpec("f32", 3, 2, lanes, False), target, 2, a, b, tile)
    run(DotSpec("f32", 3, 2, lanes, False), target, 2, a, b.T.copy(), dot)
    wanted = [[np.inf, np.nan], [np.nan, np.nan], [np.nan, np.nan]]
    np.testing.assert_array_equal(tile, wanted)
    np.testing.assert_array_equal(dot, wanted)


@TARGETS
def test_padded_rows_of_b_give_the_same_bits(target: Target) -> None:
    lanes = target.lanes("f32")
    b = np.zeros((9, 2 * lanes), np.float32)
    b[:, : lanes + 3] = random((9, lanes + 3), "f32")
    a, results = random((3, 9), "f32", 1), []
    for padded in (False, True):
        c = np.zeros((3, lanes + 3), np.float32)
        run(TileSpec("f32", 3, lanes + 3, lanes, False, padded), target, 9, a, b, c)
        results.append(c.tobytes())
    assert results[0] == results[1]


@pytest.mark.skipif(os.name != "posix", reason="page protection by mprotect")
@TARGETS
@DTYPES
@pytest.mark.parametrize("at_end", [False, True])
def test_nothing_outside_the_operands_is_touched(target: Target, dtype: str, at_end: bool) -> None:
    lanes = target.lanes(dtype)
    for mr, nr, k in [(3, lanes + 1, 5), (2, lanes - 1, lanes + 3), (1, 2 * lanes, 1)]:
        with Fenced(dtype, at_end) as fenced:
            a, b, c = fenced.array(mr, k), fenced.array(k, nr), fenced.array(mr, nr)
            run(TileSpec(dtype, mr, nr, lanes, True), target, k, a, b, c)
            run(DotSpec(dtype, mr, nr, lanes, True, 2), target, k, a, fenced.array(nr, k), c)
            assert (c == 0).all()
            columns = min(nr, lanes)
            a, c = fenced.array(columns, k), fenced.array(k, columns)
            transpose(target, a.T, c, dtype)
            del a, b, c


class Fenced:
    """Arrays of zeros that touch an unreadable page, at their end or at their start."""

    def __init__(self, dtype: str, at_end: bool) -> None:
        self.dtype, self.at_end = NUMPY[dtype], at_end
        self.maps: list[tuple[mmap.mmap, int]] = []

    def __enter__(self) -> Fenced:
        return self

    def __exit__(self, *error: object) -> None:
        for fence, address in self.maps:
            protect(address, 3 * mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE)
            del fence

    def array(self, rows: int, columns: int) -> Array:
        page, size = mmap.PAGESIZE, rows * columns * self.dtype.itemsize
        fence = mmap.mmap(-1, 3 * page)
        address = ctypes.addressof(ctypes.c_char.from_buffer(fence))
        start = 2 * page - size if self.at_end else page
        whole = np.frombuffer(fence, np.uint8)
        for outside in (address, address + 2 * page):
            protect(outside, page, 0)
        self.maps.append((fence, address))
        values: Array = whole[start : start + size].view(self.dtype)
        return values.reshape(rows, columns)


def protect(address: int, size: int, access: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    failed = libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(size), access)
    assert failed == 0, os.strerror(ctypes.get_errno())


def inner_loops(assembly: str) -> Sequence[str]:
    """The bodies of loops: from a label to a conditional jump back to it."""
    found = re.finditer(r"^(\.LBB\w+):(?:(?!^\.LBB)[\s\S])*?\tj[a-z]+\t\1\n", assembly, re.M)
    return [match.group(0) for match in found]


@pytest.mark.parametrize("cpu", ["x86-64-v3", "x86-64-v4"])
@DTYPES
def test_sums_stay_in_registers(cpu: str, dtype: str) -> None:
    target = named(X86, cpu)
    lanes = target.lanes(dtype)
    chosen = {
        choose_tile(m, n * lanes, lanes, target.registers)
        for m in (1, 2, 3, 5, 7, 16, 64)
        for n in (1, 2, 3, 4, 5, 8, 64)
    }
    for mr, nr in sorted(chosen):
        module = compiled(TileSpec(dtype, mr, nr, lanes, True), target)
        loops = inner_loops(machine(target, "pic", "small").emit_assembly(module))
        assert [len(re.findall("vfmadd", loop)) for loop in loops] == [mr * nr // lanes]
        assert "(%rsp)" not in loops[0], f"{mr}x{nr} spills:\n{loops[0]}"


@pytest.mark.parametrize(
    "triple", [X86, "aarch64-unknown-linux-gnu", "riscv64-unknown-linux-gnu", "wasm32-unknown-wasi"]
)
def test_tiles_compile_for_other_machines(triple: str) -> None:
    target = named(triple)
    lanes = target.lanes("f32")
    for spec in (TileSpec("f32", 3, lanes + 1, lanes, True), DotSpec("f32", 2, 2, lanes, True)):
        assert machine(target, "pic", "small").emit_object(compiled(spec, target))


@pytest.mark.parametrize("lanes, registers", [(16, 32), (8, 16), (4, 32), (4, 16), (4, 8)])
def test_chosen_tiles_fit(lanes: int, registers: int) -> None:
    for m in (0, 1, 2, 3, 7, 8, 9, 64, 1000):
        for n in (0, 1, 10, lanes, lanes + 1, 3 * lanes, 100, 1024):
            mr, nr = choose_tile(m, n, lanes, registers)
            assert 1 <= mr <= min(MAX_ROWS, max(m, 1))
            assert nr % lanes == 0
            assert nr <= max(n + lanes - 1, lanes)
            assert (mr + 1) * nr // lanes + 1 <= registers


def test_large_products_get_full_tiles() -> None:
    mr, nr = choose_tile(1024, 1024, 16, 32)
    assert mr * nr // 16 >= 24
    assert choose_tile(1, 1024, 16, 32)[0] == 1
    assert choose_tile(1024, 10, 16, 32) == (8, 16)


def test_equal_specs_share_a_function() -> None:
    module = ll.Module()
    spec = TileSpec("f32", 4, 16, 16, True)
    assert tile_function(module, spec) is tile_function(module, TileSpec("f32", 4, 16, 16, True))
    assert tile_function(module, spec) is not tile_function(
        module, TileSpec("f32", 4, 16, 16, False)
    )
    dot = DotSpec("f64", 2, 2, 8, True)
    assert dot_function(module, dot) is dot_function(module, DotSpec("f64", 2, 2, 8, True))


def test_impossible_tiles_are_refused() -> None:
    module = ll.Module()
    with pytest.raises(DTypeError, match="i32"):
        tile_function(module, TileSpec("i32", 4, 16, 16, True))
    with pytest.raises(ArgumentError, match="0x16"):
        tile_function(module, TileSpec("f32", 0, 16, 16, True))
    with pytest.raises(ArgumentError, match="17 columns"):
        copy_function(module, CopySpec("f32", 17, 16))
    with pytest.raises(ArgumentError, match="lanes"):
        dot_function(module, DotSpec("f32", 1, 1, 3, True))
    with pytest.raises(ArgumentError, match="chains"):
        dot_function(module, DotSpec("f32", 1, 1, 4, True, 3))


def test_unknown_machines_are_refused() -> None:
    with pytest.raises(BackendError, match="nonsense"):
        named("nonsense-unknown-unknown")
    with pytest.raises(BackendError, match="nonsense"):
        named(X86, "nonsense")
    with pytest.raises(BackendError, match="nonsense"):
        named(X86, "x86-64-v3", "+nonsense")


def test_machines_report_their_registers() -> None:
    sizes = {cpu: named(X86, cpu) for cpu in ("x86-64", "x86-64-v3", "skylake-avx512", "znver4")}
    assert [(t.lanes("f32"), t.registers, t.fma) for t in sizes.values()] == [
        (4, 16, False),
        (8, 16, True),
        (16, 32, True),
        (16, 32, True),
    ]
    assert named("aarch64-unknown-linux-gnu").lanes("f64") == 2
