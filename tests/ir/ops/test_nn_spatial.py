"""Convolution, pooling, linear layers and embeddings at their edges; typed errors of all layers."""

from __future__ import annotations

from math import inf, nan
from typing import Any

import numpy as np
import pytest

from rlx_py import nn
from rlx_py.ir.base.errors import ArgumentError, DTypeError, RLXError, ShapeError
from rlx_py.ir.base.types import f64
from rlx_py.ir.graph.evaluate import evaluate
from rlx_py.ir.graph.graph import Graph
from rlx_py.ir.ops.nn.conv.conv import CONV, CONV_BACKWARD_INPUT, CONV_BACKWARD_WEIGHT
from rlx_py.passes.derive.jvp import jvp
from support.layers import LABELS, Array, Function, gradient, graph_of, normal, value

# ---- convolution and pooling -----------------------------------------------------------------


def test_forward_mode_through_a_linear_layer() -> None:  # C58
    x, w, b = normal(2, 3), normal(4, 3), normal(4)
    g = jvp(graph_of(nn.linear, input=x, weight=w, bias=b), ["input", "weight", "bias"])
    t = {"t_input": normal(2, 3, seed=1), "t_weight": normal(4, 3, seed=2), "t_bias": b}
    found = evaluate(g, {"input": x, "weight": w, "bias": b, **t})["t_y"]
    np.testing.assert_allclose(found, t["t_input"] @ w.T + x @ t["t_weight"].T + b)


@pytest.mark.parametrize("length", [5, 8])
@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("s", [1, 2, 3])
@pytest.mark.parametrize("p", [0, 1, 3])
@pytest.mark.parametrize("d", [1, 2])
def test_convolution_and_its_adjoints(length: int, k: int, s: int, p: int, d: int) -> None:
    """⟨Ax, y⟩ = ⟨x, Aᵀy⟩ = ⟨w, ∂y⟩ (C35)."""
    attrs: dict[str, Any] = {"stride": (s,), "low": (p,), "high": (p,), "dilation": (d,),
                             "groups": 2}
    g = Graph()
    x, w = g.input("x", (2, 4, length), f64), g.input("w", (6, 2, k), f64)
    y = g.output("y", CONV(x, w, **attrs))
    dy = g.input("dy", y.shape, f64)
    g.output("dx", CONV_BACKWARD_INPUT(dy, w, shape=(length,), **attrs))
    g.output("dw", CONV_BACKWARD_WEIGHT(x, dy, size=(k,), **attrs))
    arrays = {n: normal(*node.shape, seed=i) for i, (n, node) in enumerate(g.inputs.items())}
    out = evaluate(g, arrays)
    inner = np.vdot(out["y"], arrays["dy"])
    np.testing.assert_allclose(np.vdot(out["dx"], arrays["x"]), inner, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(np.vdot(out["dw"], arrays["w"]), inner, rtol=1e-12, atol=1e-12)


def test_transposed_convolution_sizes() -> None:  # C34
    g = Graph()
    x, w = g.input("x", (1, 1, 50)), g.input("w", (1, 1, 3))
    assert nn.conv_transpose1d(x, w, None, 2, 4, 0, 1, 3).shape == (1, 1, 2 * 49 + 7 - 8)
    assert nn.conv_transpose1d(x, w, None, 2, 4, 2, 1, 3).shape == (1, 1, 2 * 49 + 9 - 8)


def test_the_first_maximum_wins_and_padding_never() -> None:
    x = np.zeros((1, 3, 3))
    found = gradient(lambda x: nn.max_pool2d(x, 2, 1), "x", x=x)
    np.testing.assert_array_equal(found, [[[1, 1, 0], [1, 1, 0], [0, 0, 0]]])
    x = np.full((1, 2, 2), -inf)
    padded = gradient(lambda x: nn.max_pool2d(x, 2, 2, 1), "x", x=x)
    np.testing.assert_array_equal(padded, np.ones((1, 2, 2)))
    x = np.full((1, 2, 2), -5.0)
    np.testing.assert_array_equal(value(lambda x: nn.max_pool2d(x, 2, 2, 1), x=x), x)


def test_nan_wins_a_maximum() -> None:
    x = np.array([[1.0, nan, nan, 3.0]])
    np.testing.assert_array_equal(value(lambda x: nn.max_pool1d(x, 2), x=x), [[nan, nan]])
    np.testing.assert_array_equal(gradient(lambda x: nn.max_pool1d(x, 4), "x", x=x), [[0, 1, 0, 0]])


def test_overlapping_maxima_add() -> None:  # C14
    x = np.zeros((1, 3, 3))
    x[0, 1, 1] = 1
    assert gradient(lambda x: nn.max_pool2d(x, 2, 1), "x", x=x)[0, 1, 1] == 4


def test_types_of_long_axes_cost_nothing() -> None:
    g = Graph()
    x = g.input("x", (1, 10**12))
    assert nn.max_pool1d(x, 3, 2, 1).shape == (1, 5 * 10**11)
    assert nn.avg_pool1d(x, 3, 2, 1, count_include_pad=False).shape == (1, 5 * 10**11)


def test_empty_batch() -> None:
    x, image = np.zeros((0, 5)), np.zeros((0, 2, 4, 4))
    w, k = normal(5), normal(3, 2, 3, 3)
    assert value(lambda x: nn.softmax(x), x=x).shape == (0, 5)
    np.testing.assert_array_equal(
        gradient(lambda x, w: nn.layer_norm(x, 5, w), "w", x=x, w=w), np.zeros(5))
    np.testing.assert_array_equal(
        gradient(lambda x, w: nn.rms_norm(x, 5, w), "w", x=x, w=w), np.zeros(5))
    np.testing.assert_array_equal(
        gradient(lambda x, k: nn.conv2d(x, k, None, 1, 1), "k", x=image, k=k), np.zeros(k.shape))
    assert gradient(lambda x, k: nn.conv2d(x, k, None, 2), "x", x=image, k=k).shape == image.shape
    assert gradient(lambda x: nn.max_pool2d(x, 2), "x", x=image).shape == image.shape
    assert gradient(lambda x: nn.avg_pool2d(x, 2), "x", x=image).shape == image.shape
    labels = np.zeros(0, np.int64)
    assert gradient(lambda x, t: nn.softmax_cross_entropy(x, t), "x", x=x,
                    t=labels).shape == (0, 5)


def test_embedding_adds_repeated_rows_and_spares_padding() -> None:
    idx = np.array([[1, 1], [2, 0]])
    found = gradient(lambda w: nn.embedding(idx, w), "w", ct=normal(2, 2, 3), w=normal(4, 3))
    ct = normal(2, 2, 3)
    np.testing.assert_allclose(found, [ct[1, 1], ct[0, 0] + ct[0, 1], ct[1, 0], np.zeros(3)])
    found = gradient(lambda w: nn.embedding(idx, w, -3), "w", w=normal(4, 3))
    assert not found[1].any() and found[2].all()
    with pytest.raises(ArgumentError):
        value(lambda w: nn.embedding(np.array([4]), w), w=normal(4, 3))

# ---- errors ----------------------------------------------------------------------------------

X, W = normal(2, 4, 5, 6), normal(6, 4, 3, 3)
FLOAT: Any = 2.0  # where the type says int
TEXT: Any = "small"
INTS = np.ones((2, 4, 5, 6), np.int64)
ERRORS: dict[str, tuple[type[RLXError], Function, dict[str, Array]]] = {
    "stride 0": (ArgumentError, lambda x, w: nn.conv2d(x, w, None, 0), {"x": X, "w": W}),
    "negative padding": (ArgumentError, lambda x, w: nn.conv2d(x, w, None, 1, -1),
                         {"x": X, "w": W}),
    "padding of three": (ArgumentError, lambda x, w: nn.conv2d(x, w, None, 1, (1, 1, 1)),
                         {"x": X, "w": W}),
    "same with stride": (ArgumentError, lambda x, w: nn.conv2d(x, w, None, 2, "same"),
                         {"x": X, "w": W}),
    "unknown padding": (ArgumentError, lambda x, w: nn.conv2d(x, w, None, 1, "reflect"),
                        {"x": X, "w": W}),
    "dilation 0": (ArgumentError, lambda x, w: nn.conv2d(x, w, None, 1, 0, 0), {"x": X, "w": W}),
    "float stride": (ArgumentError, lambda x, w: nn.conv2d(x, w, None, 1.5), {"x": X, "w": W}),
    "groups": (ShapeError, lambda x, w: nn.conv2d(x, w, groups=3), {"x": X, "w": W}),
    "float groups": (ArgumentError, lambda x, w: nn.conv2d(x, w, groups=FLOAT), {"x": X, "w": W}),
    "groups 0": (ArgumentError, lambda x, w: nn.conv2d(x, w, groups=0), {"x": X, "w": W}),
    "channels": (ShapeError, lambda x, w: nn.conv2d(x, w), {"x": X[:, :3], "w": W}),
    "kernel too large": (ShapeError, lambda x, w: nn.conv2d(x, w), {"x": X[:, :, :2], "w": W}),
    "rank of image": (ShapeError, lambda x, w: nn.conv2d(x, w), {"x": X[0, 0], "w": W}),
    "rank of kernel": (ShapeError, lambda x, w: nn.conv1d(x, w), {"x": X[0], "w": W}),
    "bias": (ShapeError, lambda x, w, b: nn.conv2d(x, w, b), {"x": X, "w": W, "b": normal(5)}),
    "integer image": (DTypeError, lambda x, w: nn.conv2d(x, w), {"x": INTS, "w": INTS}),
    "output padding": (ArgumentError, lambda x, w: nn.conv_transpose2d(x, w, None, 2, 0, 2),
                       {"x": X[:, :, :3, :3], "w": W[:4]}),
    "pool stride": (ArgumentError, lambda x: nn.max_pool2d(x, 2, 0), {"x": X}),
    "pool in padding": (ShapeError, lambda x: nn.max_pool2d(x, 2, 1, 2), {"x": X}),
    "mean in padding": (ShapeError, lambda x: nn.avg_pool2d(x, 1, 1, 1), {"x": X}),
    "pool between": (ShapeError, lambda x: nn.max_pool1d(x, 2, 1, 2, 4), {"x": X[0, :, 0, :1]}),
    "pool kernel": (ShapeError, lambda x: nn.max_pool2d(x, 9), {"x": X}),
    "pool rank": (ShapeError, lambda x: nn.avg_pool2d(x, 2), {"x": X[0, 0]}),
    "integer pool": (DTypeError, lambda x: nn.max_pool2d(x, 2), {"x": INTS}),
    "divisor 0": (ArgumentError, lambda x: nn.avg_pool2d(x, 2, divisor_override=0), {"x": X}),
    "eps 0": (ArgumentError, lambda x: nn.layer_norm(x, 6, eps=0.0), {"x": X}),
    "eps text": (ArgumentError, lambda x: nn.layer_norm(x, 6, eps=TEXT), {"x": X}),
    "eps nan": (ArgumentError, lambda x: nn.rms_norm(x, 6, eps=nan), {"x": X}),
    "norm shape": (ShapeError, lambda x: nn.layer_norm(x, 5), {"x": X}),
    "norm axes": (ArgumentError, lambda x: nn.layer_norm(x, axes=(1, 1)), {"x": X}),
    "norm of nothing": (ArgumentError, lambda x: nn.layer_norm(x, axes=()), {"x": X}),
    "norm weight": (ShapeError, lambda x, w: nn.layer_norm(x, 6, w), {"x": X, "w": X[0, 0, 0, :5]}),
    "integer norm": (DTypeError, lambda x: nn.rms_norm(x, 6), {"x": INTS}),
    "softmax axis": (ArgumentError, lambda x: nn.softmax(x, 4), {"x": X}),
    "integer logits": (DTypeError, lambda x: nn.softmax_cross_entropy(x, LABELS),
                       {"x": INTS[0, :3, 0]}),
    "no classes": (ShapeError, lambda x: nn.softmax_cross_entropy(x, LABELS),
                   {"x": np.zeros((3, 0))}),
    "float ignored": (ArgumentError, lambda x: nn.softmax_cross_entropy(x, LABELS, 0.0, FLOAT),
                      {"x": X[0, :3, 0]}),
    "bool labels": (DTypeError, lambda x: nn.softmax_cross_entropy(x, LABELS > 0),
                    {"x": X[0, :3, 0]}),
    "labels": (ShapeError, lambda x: nn.softmax_cross_entropy(x, LABELS), {"x": X[0, :2, 0]}),
    "smoothing": (ArgumentError, lambda x: nn.softmax_cross_entropy(x, LABELS, 1.5),
                  {"x": X[0, :3, 0]}),
    "reduction": (ArgumentError, lambda x: nn.mse_loss(x, x, "max"), {"x": X}),
    "linear": (ShapeError, nn.linear, {"input": X, "weight": normal(3, 5)}),
    "embedding": (DTypeError, nn.embedding, {"input": X, "weight": normal(3, 5)}),
    "integer relu": (DTypeError, nn.relu, {"input": INTS}),
    "gelu": (ArgumentError, lambda x: nn.gelu(x, "fast"), {"x": X}),
    "beta 0": (ArgumentError, lambda x: nn.softplus(x, 0.0), {"x": X}),
}


@pytest.mark.parametrize("name", ERRORS)
def test_typed_errors_name_the_line_of_the_user(name: str) -> None:
    error, function, arrays = ERRORS[name]
    with pytest.raises(error, match=r"test_nn_spatial\.py|layers\.py"):
        graph_of(function, **arrays)
