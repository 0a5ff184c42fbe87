"""The register tile in a plain blocked product, one thread, against `torch.mm`.

Run `python -m benchmarks.tiles`. Measures what the tile can give before any compiler pass is
involved; shapes, blocks and tiles are constants of the generated loops.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import llvmlite.binding as llvm
import llvmlite.ir as ll
import numpy as np
import torch

from rlx_py.backends.llvm.targets import Target, host, machine
from rlx_py.backends.llvm.tile import TileSpec, tile_function
from rlx_py.passes.loops.products.target import choose_tile

I64, F32, PTR = ll.IntType(64), ll.FloatType(), ll.PointerType()
SHAPES = ((64, 256, 784), (256, 256, 256), (512, 1024, 784), (1024, 1024, 1024))
ROUNDS = 15


@dataclass(frozen=True)
class Blocking:
    """Tile, depth and width of a block of B, and whether B is packed (worth it from m = 256)."""

    mr: int
    nr: int
    kc: int
    nc: int
    pack: bool


def choose_blocking(m: int, n: int, k: int, target: Target) -> Blocking:
    """What was measured best: blocks of B of 1 MiB at most, packed when they are reused enough."""
    mr, nr = choose_tile(m, n, target.lanes("f32"), target.registers)
    reused = m >= 256 and k * n * 4 > 512 * 1024
    return Blocking(mr, nr, min(k, 512), min(n, max(nr, 512 // nr * nr)), reused)


def pieces(total: int, size: int) -> list[tuple[int, int]]:
    """(start, width) of the blocks of `total`; only the last is narrower."""
    return [(start, min(size, total - start)) for start in range(0, total, size)]


def loop(build: ll.IRBuilder, total: int, size: int, body: Callable[[ll.Value, int], None]) -> None:
    """body(start, width) over blocks of `total`: a loop over the full ones, then the rest."""
    if total >= size:
        before, block = build.block, build.append_basic_block()
        build.branch(block)
        build.position_at_end(block)
        start = build.phi(I64)
        start.add_incoming(I64(0), before)
        body(start, size)
        following = build.add(start, I64(size))
        start.add_incoming(following, build.block)
        after = build.append_basic_block()
        more = build.icmp_signed("<", following, I64(total - total % size))
        build.cbranch(more, block, after)
        build.position_at_end(after)
    if total % size:
        body(I64(total - total % size), total % size)


def emit_product(module: ll.Module, m: int, n: int, k: int, cut: Blocking, lanes: int) -> None:
    """product(a, b, c, packed): c = a @ b, row-major, in the blocks of `cut`."""
    function = ll.Function(module, ll.FunctionType(ll.VoidType(), [PTR] * 4), "product")
    a, b, c, packed = function.args
    build = ll.IRBuilder(function.append_basic_block())

    def at(base: ll.Value, row: ll.Value, width: int, column: ll.Value) -> ll.Value:
        offset = build.add(build.mul(row, I64(width)), column)
        return build.gep(base, [offset], source_etype=F32)

    def copy_rows(j: ll.Value, width: int, p: ll.Value, depth: int, first: ll.Value) -> None:
        def row(q: ll.Value, _: int) -> None:
            source, to = at(b, build.add(p, q), n, first), at(packed, j, depth, I64(0))
            kind = ll.VectorType(F32, width)
            value = build.load(source, typ=kind, align=4)
            build.store(value, at(to, q, -(-width // lanes) * lanes, I64(0)), align=4)

        loop(build, depth, 1, row)

    def block(j0: ll.Value, columns: int, p: ll.Value, depth: int, accumulate: bool) -> None:
        if cut.pack:
            loop(
                build,
                columns,
                cut.nr,
                lambda j, width: copy_rows(j, width, p, depth, build.add(j0, j)),
            )

        def tiles(i: ll.Value, rows: int) -> None:
            def tile(j: ll.Value, width: int) -> None:
                spec = TileSpec("f32", rows, width, lanes, accumulate, cut.pack)
                if cut.pack:
                    right, stride = at(packed, j, depth, I64(0)), -(-width // lanes) * lanes
                else:
                    right, stride = at(b, p, n, build.add(j0, j)), n
                left, into = at(a, i, k, p), at(c, i, n, build.add(j0, j))
                strides = I64(k), I64(1), I64(stride), I64(n)
                build.call(
                    tile_function(module, spec),
                    [I64(depth), left, *strides[:2], right, strides[2], into, strides[3]],
                )

            loop(build, columns, cut.nr, tile)

        loop(build, m, cut.mr, tiles)

    for p, depth in pieces(k, cut.kc):
        for j0, columns in pieces(n, cut.nc):
            block(I64(j0), columns, I64(p), depth, p > 0)
    build.ret_void()


def compile_product(m: int, n: int, k: int, cut: Blocking, target: Target) -> Any:
    """The native product, and the engine that owns its code."""
    module = ll.Module()
    module.triple = target.triple
    emit_product(module, m, n, k, cut, target.lanes("f32"))
    parsed = llvm.parse_assembly(str(module))
    options = llvm.create_pipeline_tuning_options(2)
    options.loop_vectorization = options.slp_vectorization = options.loop_unrolling = False
    passes = llvm.create_pass_builder(machine(target), options)
    passes.getModulePassManager().run(parsed, passes)
    engine = llvm.create_mcjit_compiler(parsed, machine(target))
    engine.finalize_object()
    kind = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4)
    return kind(engine.get_function_address("product")), engine


def aligned(*shape: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Zeros that start on a page."""
    size = int(np.prod(shape)) * 4
    raw = np.zeros(size + 4096, np.uint8)
    start = -raw.ctypes.data % 4096
    return raw[start : start + size].view(np.float32).reshape(shape)


def seconds(call: Callable[[], object], times: int) -> float:
    """Mean time of a call."""
    start = time.perf_counter()
    for _ in range(times):
        call()
    return (time.perf_counter() - start) / times


def compare(m: int, n: int, k: int, target: Target) -> str:
    """A line of GFLOP/s, the best of interleaved rounds, after a check of the result."""
    random = np.random.default_rng(0)
    a, b, c = aligned(m, k), aligned(k, n), aligned(m, n)
    a[:], b[:] = random.standard_normal((m, k)), random.standard_normal((k, n))
    cut = choose_blocking(m, n, k, target)
    packed = aligned(k, n + cut.nr + 64)
    native, engine = compile_product(m, n, k, cut, target)
    pointers = [x.ctypes.data for x in (a, b, c, packed)]
    left, right, out = torch.from_numpy(a), torch.from_numpy(b), torch.empty(m, n)
    native(*pointers)
    np.testing.assert_allclose(c, a.astype(np.float64) @ b, rtol=0, atol=k * 1e-5)
    work = 2e-9 * m * n * k
    times = max(1, int(1 / work))
    pairs = [
        (
            seconds(lambda: native(*pointers), times),
            seconds(lambda: torch.mm(left, right, out=out), times),
        )
        for _ in range(ROUNDS)
    ]
    ours, theirs = (min(column) for column in zip(*pairs, strict=True))
    engine.close()
    ratio = sorted(t / o for o, t in pairs)[ROUNDS // 2]
    return (
        f"{m}x{n}x{k}: tile {work / ours:.1f} GFLOP/s, torch {work / theirs:.1f}, "
        f"median ratio {ratio:.2f}   {cut}"
    )


def main() -> None:
    """Print a line for each shape."""
    torch.set_num_threads(1)
    target = host()
    for shape in SHAPES:
        print(compare(*shape, target), flush=True)


if __name__ == "__main__":
    main()
