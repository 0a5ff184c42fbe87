"""Layers and losses as functions of arrays, for the tests of rlx_py.nn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlx_py import nn
from rlx_py.backends.llvm.backend import CpuBackend
from rlx_py.ir.graph.evaluate import evaluate
from rlx_py.ir.graph.graph import Graph
from rlx_py.ir.nodes.node import Node
from rlx_py.passes.derive.vjp import vjp

Array = np.ndarray[Any, Any]
Function = Callable[..., Node]
CPU = CpuBackend()


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng([seed, *shape]).standard_normal(shape)


def graph_of(function: Function, **arrays: Any) -> Graph:
    """A graph with the function's result as output y, over inputs like the arrays."""
    g = Graph()
    inputs = {k: g.input(k, np.shape(a), np.asarray(a).dtype) for k, a in arrays.items()}
    g.output("y", function(**inputs))
    return g


def run(g: Graph, arrays: dict[str, Any]) -> dict[str, Array]:
    """The outputs by the reference, which native code must equal."""
    found = evaluate(g, arrays)
    native = {k: np.empty(y.shape, y.dtype) for k, y in found.items()}
    CPU.compile(g, threads=1, fast_math=False).run(
        {k: np.asarray(a, order="C") for k, a in arrays.items()}, native)
    for name, y in found.items():
        # Narrow floats keep f32 between fused operations, where the reference rounds.
        eps = 1e-5 if y.dtype.itemsize == 4 else 1e-11 if y.dtype.itemsize == 8 else 2e-2
        wide = y.astype(np.float64)
        scale = np.max(np.abs(wide), initial=1, where=np.isfinite(wide))
        np.testing.assert_allclose(native[name].astype(np.float64), wide, rtol=eps,
                                   atol=eps * scale, err_msg=f"native {name}")
    return found


def value(function: Function, **arrays: Any) -> Array:
    return run(graph_of(function, **arrays), arrays)["y"]


def gradient(function: Function, wrt: str, ct: Any = 1.0, **arrays: Any) -> Array:
    """Gradient of Σ ct·function."""
    g = graph_of(function, **arrays)
    name = f"grad_{wrt}"
    shape = g.outputs["y"].shape
    seed = np.broadcast_to(ct, shape).astype(g.outputs["y"].dtype.numpy)
    return run(vjp(g, wrt), {**arrays, "ct_y": seed})[name]


def distinct(*shape: int) -> Array:
    """Values far apart, so that no maximum has a near tie."""
    size = int(np.prod(shape))
    return np.random.default_rng(1).permutation(size).reshape(shape) / 7 - size / 20


LABELS = np.array([2, 0, 4])
SOFT = np.array([[0, 1, 0, 0, 0], [0.5, 0.1, 0.2, 0.1, 0.1], [0, 0, 0.3, 0, 0.9]])

CASES: dict[str, tuple[Function, dict[str, Array]]] = {
    "relu": (nn.relu, {"input": distinct(3, 4) + 0.01}),
    "leaky_relu": (lambda x: nn.leaky_relu(x, 0.2), {"x": distinct(3, 4) + 0.01}),
    "gelu": (nn.gelu, {"input": normal(3, 4)}),
    "gelu_tanh": (lambda x: nn.gelu(x, "tanh"), {"x": normal(3, 4)}),
    "silu": (nn.silu, {"input": normal(3, 4)}),
    "sigmoid": (nn.sigmoid, {"x": normal(3, 4)}),
    "tanh": (nn.tanh, {"x": normal(3, 4)}),
    "softplus": (nn.softplus, {"input": np.array([-40, -1.5, 0, 0.3, 19.0, 25.0])}),
    "softplus_beta": (lambda x: nn.softplus(x, 2.5, 8.0), {"x": normal(3, 4)}),
    "softmax": (nn.softmax, {"input": normal(3, 5)}),
    "softmax_square": (nn.softmax, {"input": normal(4, 4)}),
    "softmax_axis": (lambda x: nn.softmax(x, 1), {"x": normal(2, 3, 4)}),
    "log_softmax": (nn.log_softmax, {"input": normal(3, 5)}),
    "log_softmax_axis": (lambda x: nn.log_softmax(x, 0), {"x": normal(3, 2, 2)}),
    "layer_norm": (lambda x, w, b: nn.layer_norm(x, 5, w, b),
                   {"x": normal(3, 5), "w": normal(5, seed=1), "b": normal(5, seed=2)}),
    "layer_norm_square": (lambda x, w, b: nn.layer_norm(x, (4,), w, b),
                          {"x": normal(4, 4), "w": normal(4, seed=1), "b": normal(4, seed=2)}),
    "layer_norm_plain": (lambda x: nn.layer_norm(x, (3, 2)), {"x": normal(2, 3, 2)}),
    "layer_norm_bias": (lambda x, b: nn.layer_norm(x, 2, bias=b),  # C43
                        {"x": normal(3, 2), "b": normal(2)}),
    "layer_norm_middle": (lambda x, w, b: nn.layer_norm(x, None, w, b, axes=1),
                          {"x": normal(2, 4, 3), "w": normal(4, seed=1), "b": normal(4, seed=2)}),
    "layer_norm_two_axes": (lambda x, w: nn.layer_norm(x, None, w, axes=(-1, 0)),
                            {"x": normal(2, 2, 3), "w": normal(2, 3, seed=1)}),
    "rms_norm": (lambda x, w: nn.rms_norm(x, 5, w, 1e-5), {"x": normal(3, 5), "w": normal(5)}),
    "rms_norm_bias": (lambda x, w, b: nn.rms_norm(x, 5, w, 1e-3, b),
                      {"x": normal(2, 5), "w": normal(5, seed=1), "b": normal(5, seed=2)}),
    "rms_norm_first": (lambda x, b: nn.rms_norm(x, bias=b, axes=0),
                       {"x": normal(4, 3), "b": normal(4)}),
    "linear": (nn.linear, {"input": normal(2, 3, 4), "weight": normal(5, 4), "bias": normal(5)}),
    "linear_vector": (nn.linear, {"input": normal(4), "weight": normal(4, 4)}),
    "embedding": (lambda w: nn.embedding(np.array([[1, 0, 1], [3, 1, 3]]), w) ** 2,
                  {"w": normal(4, 3)}),
    "conv1d": (lambda x, w, b: nn.conv1d(x, w, b, 2, 1),
               {"x": normal(2, 3, 8), "w": normal(4, 3, 3), "b": normal(4)}),
    "conv1d_dilated": (lambda x, w: nn.conv1d(x, w, None, 2, 1, 2),  # C34
                       {"x": normal(1, 2, 5), "w": normal(1, 2, 2)}),
    "conv2d": (lambda x, w: nn.conv2d(x, w), {"x": normal(2, 3, 5, 4), "w": normal(4, 3, 3, 2)}),
    "conv2d_same": (lambda x, w: nn.conv2d(x, w, None, 1, "same", (1, 2)),
                    {"x": normal(2, 2, 4, 5), "w": normal(3, 2, 2, 3)}),
    "conv2d_strided": (lambda x, w: nn.conv2d(x, w, None, (2, 3), ((1, 0), (2, 1)), (2, 1)),
                       {"x": normal(2, 2, 6, 7), "w": normal(3, 2, 2, 3)}),
    "conv2d_groups": (lambda x, w, b: nn.conv2d(x, w, b, 1, (1, 0), 1, 2),
                      {"x": normal(2, 4, 4, 3), "w": normal(6, 2, 3, 2), "b": normal(6)}),
    "conv2d_groups_strided": (lambda x, w: nn.conv2d(x, w, None, 2, 1, 1, 3),
                              {"x": normal(2, 3, 5, 6), "w": normal(6, 1, 3, 2)}),
    "conv2d_depthwise": (lambda x, w: nn.conv2d(x, w, None, 1, 1, 1, 3),
                         {"x": normal(2, 3, 4, 3), "w": normal(6, 1, 3, 2)}),
    "conv2d_depthwise_strided": (lambda x, w: nn.conv2d(x, w, None, 2, 1, 1, 2),
                                 {"x": normal(2, 2, 5, 4), "w": normal(2, 1, 3, 3)}),
    "conv2d_many_outputs": (lambda x, w: nn.conv2d(x, w, None, 2, 1, 1, 2),
                            {"x": normal(1, 2, 3, 4), "w": normal(12, 1, 2, 2)}),
    "conv2d_crop": (lambda x, w: nn.conv2d(x, w, None, 1, 3),  # padding beyond the kernel's reach
                    {"x": normal(1, 2, 3, 2), "w": normal(2, 2, 2, 1)}),
    "conv2d_pointwise": (lambda x, w: nn.conv2d(x, w, None, 2),
                         {"x": normal(2, 3, 4, 5), "w": normal(4, 3, 1, 1)}),
    "conv3d": (lambda x, w: nn.conv3d(x, w, None, (1, 2, 1), 1, 1, 2),
               {"x": normal(1, 2, 3, 3, 2), "w": normal(2, 1, 2, 3, 2)}),
    "conv_transpose1d": (lambda x, w: nn.conv_transpose1d(x, w, None, 2, 1, 2, 1, 3),
                         {"x": normal(2, 3, 4), "w": normal(3, 2, 3)}),
    "conv_transpose2d": (lambda x, w, b: nn.conv_transpose2d(x, w, b, 2, 1, 1),  # C32
                         {"x": normal(1, 4, 3, 3), "w": normal(4, 2, 3, 3), "b": normal(2)}),
    "conv_transpose2d_groups": (lambda x, w: nn.conv_transpose2d(x, w, None, 1, 0, 0, 2),
                                {"x": normal(2, 4, 3, 2), "w": normal(4, 3, 2, 2)}),
    "max_pool1d": (lambda x: nn.max_pool1d(x, 3, 2, 1, 2), {"x": distinct(2, 2, 9)}),
    "max_pool2d": (lambda x: nn.max_pool2d(x, (2, 3), None, (1, 0)), {"x": distinct(2, 2, 5, 7)}),
    "max_pool2d_overlap": (lambda x: nn.max_pool2d(x, 2, 1), {"x": distinct(10, 10)[None]}),  # C14
    "max_pool2d_ceil": (lambda x: nn.max_pool2d(x, 3, 2, 1, 1, True), {"x": distinct(1, 2, 6, 5)}),
    "max_pool3d": (lambda x: nn.max_pool3d(x, 2), {"x": distinct(1, 2, 3, 4)}),
    "avg_pool1d": (lambda x: nn.avg_pool1d(x, 3, 2, 1), {"x": normal(2, 2, 8)}),
    "avg_pool2d": (lambda x: nn.avg_pool2d(x, (2, 3), (1, 2), (1, 0)), {"x": normal(2, 2, 5, 7)}),
    "avg_pool2d_inside": (lambda x: nn.avg_pool2d(x, 3, 2, 1, True, False),
                          {"x": normal(1, 2, 6, 5)}),
    "avg_pool2d_divisor": (lambda x: nn.avg_pool2d(x, 2, divisor_override=3),
                           {"x": normal(2, 5, 4)}),
    "avg_pool3d": (lambda x: nn.avg_pool3d(x, 2, 1), {"x": normal(1, 3, 2, 3)}),
    "cross_entropy_rows": (lambda x: nn.softmax_cross_entropy(x, LABELS), {"x": normal(3, 5)}),
    "cross_entropy_smooth": (lambda x: nn.softmax_cross_entropy(x, LABELS[:, None], 0.2, 0),
                             {"x": normal(3, 5)}),
    "cross_entropy_soft": (lambda x, q: nn.softmax_cross_entropy(x, q, 0.1),
                           {"x": normal(3, 5), "q": SOFT}),
    "cross_entropy": (lambda x: nn.cross_entropy(
        x, LABELS, np.array([1, 2, 0.5, 1, 3]), 0, label_smoothing=0.1), {"x": normal(3, 5)}),
    "mse_loss": (nn.mse_loss, {"input": normal(3, 4), "target": normal(3, 4, seed=1)}),
    "binary_cross_entropy": (lambda p: nn.binary_cross_entropy(p, np.array([0.0, 1, 0.3])),
                             {"p": np.array([0.2, 0.7, 0.4])}),
    "bce_with_logits": (lambda z, y: nn.binary_cross_entropy_with_logits(
        z, y, reduction="sum", pos_weight=2.0), {"z": normal(4), "y": normal(4, seed=1)}),
}
