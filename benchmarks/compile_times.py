"""`python -m benchmarks.compile_times`: how long large loops compile, in rlx and in JAX.

Each row is the best of some cold compilations, from building the graph (tracing it, in JAX) to
machine code. Code must not grow with sizes: the small row before each large one has equal loops.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

import rlx_py as rlx
from benchmarks.machine import restart_without_overrides

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Compilation:
    """A function of arrays of given shapes; with `wrt` its gradients by the first so many.

    Integer arrays are named by their shapes in `positions`, and come after the others.
    """

    name: str
    shapes: tuple[Shape, ...]
    rlx: Callable[..., Any]
    jax: Callable[[ModuleType], Callable[..., Any]]
    positions: tuple[Shape, ...] = ()
    gradient: bool = True


def compilations() -> Iterator[Compilation]:
    """Every row: an operation on small arrays, then on large ones."""
    for size in (1000, 1_000_000):
        yield Compilation(f"cumsum {size}", ((size,),), lambda x: rlx.cumsum(x, axis=0),
                          lambda j: j.numpy.cumsum)
    for rows, count in ((100, 50), (100_000, 50_000)):
        yield Compilation(f"gather {count} of {rows}", ((rows, 64),),
                          lambda x, i: rlx.take(x, i, axis=0),
                          lambda j: lambda x, i: j.numpy.take(x, i, axis=0), ((count,),))

    def pool(j: ModuleType) -> Callable[..., Any]:
        return lambda x: j.lax.reduce_window(
            x, -j.numpy.inf, j.lax.max, (1, 1, 3, 3), (1, 1, 2, 2),
            ((0, 0), (0, 0), (1, 1), (1, 1)))

    def entropy(j: ModuleType) -> Callable[..., Any]:
        def loss(x: Any, y: Any) -> Any:
            picked = j.numpy.take_along_axis(j.nn.log_softmax(x), y[:, None], 1)
            return -picked.mean()
        return loss

    for shape in ((2, 4, 16, 16), (64, 64, 112, 112)):
        yield Compilation(f"max-pool {'x'.join(map(str, shape))}", (shape,),
                          lambda x: rlx.nn.max_pool2d(x, 3, 2, 1), pool)
    for classes in (50, 50_000):
        yield Compilation(f"cross-entropy {classes}", ((64, classes),),
                          lambda x, y: rlx.softmax_cross_entropy(x, y).mean(), entropy, ((64,),))
    for steps in (20, 100, 300):
        yield Compilation(f"chain of {steps} steps", ((8, 16), (16, 16)),
                          chain(rlx.tanh, steps),
                          lambda j, steps=steps: chain(j.numpy.tanh, steps))  # type: ignore[misc]
    yield Compilation("3000 small ops", ((16, 16),), small_ops(rlx.tanh, 1500),
                      lambda j: small_ops(j.numpy.tanh, 1500))
    for size in (1000, 5_000_000):
        table = np.random.default_rng(0).standard_normal(size).astype(np.float32)
        yield Compilation(f"constant of {size}", ((size,),),
                          lambda x, table=table: x * rlx.constant(table),
                          lambda j, table=table: lambda x: x * table)  # type: ignore[misc]
    for size in (1000, 1_000_000):
        yield Compilation(f"sort {size}", ((size,),), rlx.sort, lambda j: j.numpy.sort,
                          gradient=False)


def chain(tanh: Callable[[Any], Any], steps: int) -> Callable[..., Any]:
    """So many steps x ← tanh(x·w + x) one by one, without a loop."""
    def function(x: Any, w: Any) -> Any:
        for _ in range(steps):
            x = tanh(x @ w + x)
        return x.sum()
    return function


def small_ops(tanh: Callable[[Any], Any], pairs: int) -> Callable[..., Any]:
    """So many pairs of operations on elements."""
    def function(x: Any) -> Any:
        y = x
        for _ in range(pairs):
            y = tanh(y) * x
        return y.sum()
    return function


def rlx_graph(row: Compilation) -> rlx.Graph:
    """The function's graph, or that of its value and gradient."""
    graph = rlx.Graph("row")
    nodes = [graph.input(f"x{n}", shape) for n, shape in enumerate(row.shapes)]
    places = [graph.input(f"i{n}", shape, rlx.i32) for n, shape in enumerate(row.positions)]
    graph.output("out", row.rlx(*nodes, *places))
    return rlx.vjp(graph, wrt="x0") if row.gradient else graph


def rlx_compile(row: Compilation) -> None:
    """Build, differentiate and compile, with no code of an earlier time."""
    rlx.compile(rlx_graph(row), cache=False)


def jax_compile(row: Compilation, jax: ModuleType) -> None:
    """The same in JAX, on shapes alone."""
    function = row.jax(jax)

    def value_and_gradient(ct: Any, x: Any, *rest: Any) -> Any:
        value, back = jax.vjp(lambda x: function(x, *rest), x)
        return value, back(ct)

    f32, i32 = jax.numpy.float32, jax.numpy.int32
    types = [*(jax.ShapeDtypeStruct(s, f32) for s in row.shapes),
             *(jax.ShapeDtypeStruct(s, i32) for s in row.positions)]
    if row.gradient:
        jax.jit(value_and_gradient).lower(jax.eval_shape(function, *types), *types).compile()
    else:
        # A new function each time: JAX keeps what it compiled.
        jax.jit(lambda *args: function(*args)).lower(*types).compile()


def best(compile: Callable[[], None], times: int) -> float:
    """The shortest of some times, in seconds."""
    found = []
    for _ in range(times):
        start = time.perf_counter()
        compile()
        found.append(time.perf_counter() - start)
    return min(found)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compile_times",
                                     description=__doc__)
    parser.add_argument("--times", type=int, default=3, help="compilations of each (3)")
    times = parser.parse_args(arguments).times
    restart_without_overrides()
    jax = importlib.import_module("jax") if importlib.util.find_spec("jax") else None
    print(f"{'with gradient, best ms':26} {'rlx':>9} {'jax':>9}")
    for row in compilations():
        ours = best(lambda row=row: rlx_compile(row), times)  # type: ignore[misc]
        theirs = None if jax is None else best(
            lambda row=row: jax_compile(row, jax), times)  # type: ignore[misc]
        print(f"{row.name:26} {ours * 1e3:9.1f}"
              + (f" {'-':>9}" if theirs is None else f" {theirs * 1e3:9.1f}"), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
