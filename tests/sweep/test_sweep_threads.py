"""Same inputs, same bits: one thread or two, one run or another, on work large enough to share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx_py as rlx
from rlx_py import nn
from rlx_py.backends.llvm.backend import program_for
from rlx_py.backends.llvm.targets import host
from rlx_py.ir.graph.evaluate import evaluate
from rlx_py.ir.graph.graph import Graph
from rlx_py.ir.loops.listing import show
from support.samples.sample import positions
from support.sweep import assert_near, fresh, run_compiled, same_bits, with_gradients

Array = np.ndarray[Any, Any]


def f32(*shape: int) -> Array:
    return np.random.default_rng(list(shape)).standard_normal(shape).astype(np.float32)


LABELS = positions(0, 100, 4096)
ROWS = positions(0, 500, 3000)

# Function, arrays.
CASES: dict[str, tuple[Callable[..., rlx.Node], tuple[Array, ...]]] = {
    "elementwise": (lambda x: rlx.tanh(x) * rlx.exp(-x * x), (f32(700, 1000),)),
    "sum_all": (lambda x: (x * x).sum(), (f32(700, 1000),)),
    "sum_rows": (lambda x: rlx.exp(x).sum(1), (f32(1000, 700),)),
    "sum_columns": (lambda x: rlx.exp(x).sum(0), (f32(1000, 700),)),
    "max": (lambda x: x.max(0), (f32(1000, 700),)),
    "matmul": (rlx.matmul, (f32(301, 257), f32(257, 310))),
    "batched": (rlx.matmul, (f32(32, 65, 70), f32(32, 70, 66))),
    "deep_product": (rlx.matmul, (f32(24, 20000), f32(20000, 24))),
    "linear": (lambda x, w, b: nn.relu(nn.linear(x, w, b)), (f32(512, 300), f32(200, 300),
                                                             f32(200))),
    "conv": (lambda x, w: nn.conv2d(x, w, None, 1, 1), (f32(8, 8, 32, 32), f32(16, 8, 3, 3))),
    "depthwise": (lambda x, w: nn.conv2d(x, w, None, 1, 1, 1, 32),
                  (f32(8, 32, 40, 40), f32(32, 1, 3, 3))),
    "max_pool": (lambda x: nn.max_pool2d(x, 2), (f32(16, 16, 64, 64),)),
    "softmax": (nn.softmax, (f32(2000, 300),)),
    "layer_norm": (lambda x, w, b: nn.layer_norm(x, 300, w, b), (f32(2000, 300), f32(300),
                                                                 f32(300))),
    "cross_entropy": (lambda x: nn.softmax_cross_entropy(x, LABELS).mean(), (f32(4096, 100),)),
    "gather": (lambda x: rlx.take(x, ROWS, 0), (f32(500, 256),)),
    "cumsum": (lambda x: rlx.cumsum(x, 1), (f32(1000, 600),)),
    "transpose": (lambda x: rlx.transpose(x) * 2, (f32(1100, 700),)),
}


@pytest.mark.parametrize("name", CASES)
def test_threads_change_no_bit(name: str) -> None:
    function, arrays = CASES[name]
    g = Graph(name)
    g.output("y", function(*[g.input(f"x{i}", a.shape) for i, a in enumerate(arrays)]))
    whole = with_gradients(g)
    feed = {f"x{i}": a for i, a in enumerate(arrays)}
    feed.update(fresh(whole, g, np.random.default_rng(1)))
    assert "parallel" in show(program_for(whole, host())).lower(), "nothing here is shared"
    one, two = run_compiled(whole, feed, threads=1), run_compiled(whole, feed, threads=2)
    same_bits(one, two)
    assert_near(two, evaluate(whole, feed), name, factor=20)
