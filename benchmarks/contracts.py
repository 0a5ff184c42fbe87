"""Products as the compiler cuts them, against torch on as many threads.

Run `python -m benchmarks.contracts [--threads N] [part of a name ...]`. Each line is one compiled
graph with a single product: matrix products in the three transpositions, convolutions and their
gradients, batched products. Calls alternate in short rounds, so that noise falls on both alike; one
thread is timed by its processor, so that a busy machine does not matter.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn import grad as gradients

from rlx_py.backends.llvm.backend import program_for
from rlx_py.backends.llvm.jit import compile_program
from rlx_py.backends.llvm.targets import host
from rlx_py.ir.graph.graph import Graph
from rlx_py.ir.nodes.node import Node
from rlx_py.ir.ops.nn.conv.conv import CONV, CONV_BACKWARD_INPUT, CONV_BACKWARD_WEIGHT
from rlx_py.ir.ops.primitive.contract import CONTRACT

ROUNDS = 25
ROUND_SECONDS = 4e-3

Tensor = Any
weight_gradient: Callable[..., Tensor] = gradients.conv2d_weight
input_gradient: Callable[..., Tensor] = gradients.conv2d_input
Run = Callable[[], object]
Clock = Callable[[], float]


@dataclass(frozen=True)
class Case:
    """A product of two inputs, in the graph and in torch."""

    name: str
    shapes: tuple[tuple[int, ...], tuple[int, ...]]
    node: Callable[[Node, Node], Node]
    torch: Callable[[Tensor, Tensor], Tensor]


def matrix(m: int, n: int, k: int, form: str) -> Case:
    """An m x n product over k; form: 'nn', 'tn' or 'nt', t where an operand lies transposed."""
    left, right = (m, k) if form[0] == "n" else (k, m), (k, n) if form[1] == "n" else (n, k)
    axes = (1,) if form[0] == "n" else (0,), (0,) if form[1] == "n" else (1,)

    def product(a: Tensor, b: Tensor) -> Tensor:
        return torch.mm(a if form[0] == "n" else a.T, b if form[1] == "n" else b.T)

    return Case(f"mm {form} {m}x{n}x{k}", (left, right),
                lambda a, b: CONTRACT(a, b, batch=((), ()), contract=axes), product)


def batched(batch: int, m: int, n: int, k: int, form: str) -> Case:
    """`batch` products of m x n over k."""
    right = (batch, k, n) if form == "nn" else (batch, n, k)
    axes = (2,), (1,) if form == "nn" else (2,)

    def product(a: Tensor, b: Tensor) -> Tensor:
        return torch.bmm(a, b if form == "nn" else b.mT)

    return Case(f"bmm {form} {batch} {m}x{n}x{k}", ((batch, m, k), right),
                lambda a, b: CONTRACT(a, b, batch=((0,), (0,)), contract=axes), product)


def convolutions(batch: int, inputs: int, outputs: int, side: int, taps: int, pad: int
                 ) -> Iterator[Case]:
    """A convolution and its two gradients."""
    x, w = (batch, inputs, side, side), (outputs, inputs, taps, taps)
    y = (batch, outputs, *[side + 2 * pad - taps + 1] * 2)
    line: dict[str, Any] = {"stride": (1, 1), "low": (pad, pad), "high": (pad, pad),
                            "dilation": (1, 1), "groups": 1}
    name = f"{inputs}->{outputs} {taps}x{taps} on {side}, batch {batch}"
    yield Case(f"conv {name}", (x, w), lambda a, b: CONV(a, b, **line),
               lambda a, b: torch.conv2d(a, b, padding=pad))
    yield Case(f"conv dW {name}", (x, y),
               lambda a, b: CONV_BACKWARD_WEIGHT(a, b, size=w[2:], **line),
               lambda a, b: weight_gradient(a, w, b, padding=pad))
    yield Case(f"conv dX {name}", (y, w),
               lambda a, b: CONV_BACKWARD_INPUT(a, b, shape=x[2:], **line),
               lambda a, b: input_gradient(x, b, a, padding=pad))


def cases() -> Iterator[Case]:
    """Every line of the table."""
    for form in ("nn", "tn", "nt"):
        for m, n, k in ((64, 256, 784), (784, 256, 64), (64, 784, 256), (64, 10, 256),
                        (512, 1024, 784), (1024, 1024, 512), (1, 1024, 1024)):
            yield matrix(m, n, k, form)
    for layer in ((32, 1, 16, 28, 5, 0), (32, 16, 32, 12, 5, 0), (16, 32, 32, 32, 3, 1),
                  (16, 64, 64, 16, 3, 1)):
        yield from convolutions(*layer)
    for form in ("nn", "nt"):
        yield batched(16, 10, 40, 40, form)
        yield batched(32, 64, 64, 32, form)


def compiled(case: Case, arrays: list[np.ndarray[Any, Any]], threads: int
             ) -> tuple[Run, np.ndarray[Any, Any]]:
    """A call of the compiled product, and the array it fills."""
    graph = Graph("product")
    a, b = (graph.input(name, shape) for name, shape in zip("ab", case.shapes, strict=True))
    graph.output("out", case.node(a, b))
    program = program_for(graph, host())
    native = compile_program(program, threads=threads)
    out = np.zeros(program.outputs[0].shape, np.float32)
    given, taken = dict(zip("ab", arrays, strict=True)), {"out": out}
    return lambda: native.run(given, taken), out


def seconds(call: Run, times: int, clock: Clock) -> float:
    """Mean time of a call."""
    start = clock()
    for _ in range(times):
        call()
    return (clock() - start) / times


def compare(case: Case, threads: int) -> str:
    """A line of the table: µs of both, and the median of the rounds' ratios (below 1: faster)."""
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(s).astype(np.float32) for s in case.shapes]
    ours, out = compiled(case, arrays, threads)
    tensors = [torch.from_numpy(x) for x in arrays]

    def theirs() -> object:
        return case.torch(*tensors)

    ours()
    wanted = case.torch(*tensors).numpy()
    np.testing.assert_allclose(out, wanted, rtol=0, atol=2e-5 * float(np.abs(wanted).max()))
    clock = time.thread_time if threads == 1 else time.perf_counter
    times = max(1, int(ROUND_SECONDS / max(seconds(theirs, 3, clock), 1e-6)))
    pairs = [(seconds(ours, times, clock), seconds(theirs, times, clock)) for _ in range(ROUNDS)]
    best = [min(side) * 1e6 for side in zip(*pairs, strict=True)]
    ratio = sorted(a / b for a, b in pairs)[ROUNDS // 2]
    return f"{case.name:42} {best[0]:9.1f} {best[1]:9.1f} {ratio:6.2f}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("names", nargs="*")
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    print(f"{'product':42} {'ours us':>9} {'torch us':>9} {'ratio':>6}")
    for case in cases():
        if not chosen.names or any(part in case.name for part in chosen.names):
            print(compare(case, chosen.threads), flush=True)


if __name__ == "__main__":
    main()
