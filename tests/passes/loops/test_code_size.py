"""Code stays as long however large the arrays: kernels and statements of values and gradients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

import rlx_py as rlx
from rlx_py.backends.llvm.backend import program_for
from rlx_py.backends.llvm.program import emit_module
from rlx_py.backends.llvm.targets import host
from rlx_py.ir.graph.graph import Graph
from rlx_py.ir.loops.copying import walk

MOST_LINES = 4000  # of LLVM IR: what compiles in a fraction of a second

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Growth:
    """A function of one array, of i32 positions where there are any, at two sizes."""

    function: Callable[..., rlx.Node]
    sizes: tuple[Shape, Shape]
    positions: tuple[Shape, Shape] | None = None
    gradient: bool = True
    most: float = 1.3  # of what is left over from whole vectors and blocks the sizes differ


GROWTHS = {
    # A sum that gets long becomes runs, a tree of loops over them, and runs of what is left over.
    "cumsum": Growth(lambda x: rlx.cumsum(x, axis=0), ((100_001,), (1_000_000,)), most=1.5),
    "cumprod": Growth(lambda x: rlx.cumprod(x, axis=0), ((100_001,), (1_000_000,))),
    "cummax": Growth(lambda x: rlx.cummax(x, axis=0), ((100_001,), (1_000_000,))),
    "gather": Growth(lambda x, i: rlx.take(x, i, axis=0), ((4000, 64), (100_000, 64)),
                     ((4000,), (50_000,))),
    "max_pool": Growth(lambda x: rlx.nn.max_pool2d(x, 3, 2, 1),
                       ((8, 16, 56, 56), (64, 64, 112, 112))),
    "avg_pool": Growth(lambda x: rlx.nn.avg_pool2d(x, 3, 2, 1),
                       ((8, 16, 56, 56), (64, 64, 112, 112))),
    "cross_entropy": Growth(lambda x, y: rlx.softmax_cross_entropy(x, y).mean(),
                            ((64, 1024), (64, 50_000)), ((64,), (64,)), most=2),
    "softmax": Growth(lambda x: rlx.nn.softmax(x), ((64, 1024), (64, 50_000)), most=2.5),
    "sort": Growth(lambda x: rlx.sort(x), ((100_001,), (1_000_000,)), gradient=False),
    "convolution": Growth(lambda x: rlx.nn.conv2d(x, rlx.ones((16, x.shape[1], 3, 3))),
                          ((8, 16, 58, 58), (32, 64, 114, 114))),
}


def graph_of(growth: Growth, at: int) -> Graph:
    graph = Graph("growth")
    nodes = [graph.input("x", growth.sizes[at])]
    if growth.positions is not None:
        nodes.append(graph.input("i", growth.positions[at], rlx.i32))
    graph.output("y", growth.function(*nodes))
    return rlx.vjp(graph, wrt="x") if growth.gradient else graph


@pytest.mark.parametrize("axis", (0, 1))
def test_code_of_a_very_long_sum_stays_small(axis: int) -> None:
    """It grows with the logarithm: levels of a tree, and what is left over."""
    shape = (4, 10**9) if axis else (10**9, 4)
    growth = Growth(lambda x: rlx.sum(x, axis=axis), (shape, shape), gradient=False)
    program = program_for(graph_of(growth, 0), host())
    assert sum(1 for k in program.kernels for _ in walk(k.body)) <= 500


@pytest.mark.parametrize("name", GROWTHS)
def test_code_does_not_grow_with_sizes(name: str) -> None:
    statements, lines, kernels = [], [], []
    for at in (0, 1):
        program = program_for(graph_of(GROWTHS[name], at), host())
        kernels.append(len(program.kernels))
        statements.append(sum(1 for k in program.kernels for _ in walk(k.body)))
        lines.append(str(emit_module(program, host())).count("\n"))
    assert kernels[1] == kernels[0]
    most = GROWTHS[name].most
    assert statements[1] <= most * statements[0]
    assert lines[1] <= most * lines[0] and lines[1] <= MOST_LINES
