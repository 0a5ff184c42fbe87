"""Derivatives to order 4 of what is made of Backward ops, each against the order below."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx_py as rlx

Array = np.ndarray[Any, Any]
Build = Callable[..., Any]

CASES: dict[str, tuple[dict[str, tuple[int, ...]], Build]] = {
    "layer_norm": ({"x": (2, 3), "w": (3,), "b": (3,)},
                   lambda x, w, b: rlx.nn.layer_norm(x, (3,), w, b)),
    "rms_norm": ({"x": (2, 3), "w": (3,)}, lambda x, w: rlx.nn.rms_norm(x, (3,), w)),
    "group_norm": ({"x": (2, 4, 2), "w": (4,), "b": (4,)},
                   lambda x, w, b: rlx.nn.group_norm(x, 2, w, b)),
    "attention": ({"q": (1, 1, 2, 2), "k": (1, 1, 3, 2), "v": (1, 1, 3, 2)},
                  lambda q, k, v: rlx.nn.scaled_dot_product_attention(q, k, v)),
    "conv": ({"x": (2, 2, 4), "w": (3, 2, 2)},
             lambda x, w: rlx.tanh(rlx.nn.conv1d(x, w, stride=2, padding=1))),
    "gelu": ({"x": (3,)}, lambda x: rlx.nn.gelu(x)),
    "gelu_tanh": ({"x": (3,)}, lambda x: rlx.nn.gelu(x, "tanh")),
    "mish": ({"x": (3,)}, lambda x: rlx.nn.mish(x)),
    "tanhshrink": ({"x": (3,)}, lambda x: rlx.nn.tanhshrink(x)),
    "celu": ({"x": (3,)}, lambda x: rlx.nn.celu(x, 1.5)),
    "bce": ({"p": (3,)}, lambda p: rlx.nn.binary_cross_entropy(
        rlx.sigmoid(p), rlx.constant([0.0, 1.0, 0.25]).astype(rlx.f64), reduction="none")),
    "logits": ({"z": (3,), "y": (3,)}, lambda z, y: rlx.nn.binary_cross_entropy_with_logits(
        z, y, reduction="none")),
    "softmax": ({"x": (2, 3)}, lambda x: rlx.nn.softmax(x, -1)),
    "scan": ({"x": (3, 2), "w": (2, 2)},
             lambda x, w: rlx.scan(lambda h, a: (rlx.tanh(h @ w + a),) * 2, rlx.zeros_like(x[0]),
                                   x)[1]),
    "while": ({"x": (2,)},
              lambda x: rlx.while_loop(lambda c: c.sum() < 20, lambda c: c * c + x, x * x + 1.5,
                                       max_steps=4)),
    "cond": ({"x": (2,)}, lambda x: rlx.cond(x.sum() > -9, rlx.sin, rlx.cos, x) * x),
}


@pytest.mark.parametrize("name", CASES)
def test_orders_one_to_four_agree_with_the_differences_of_the_order_below(name: str) -> None:
    shapes, build = CASES[name]
    rng = np.random.default_rng(3)
    g = rlx.Graph(name)
    nodes = {k: g.input(k, shape, rlx.f64) for k, shape in shapes.items()}
    out = build(*nodes.values())
    weight = rlx.constant(rng.normal(size=out.shape))
    g.output("y", (weight * out).sum())
    feed = {k: rng.normal(size=shape) for k, shape in shapes.items()}
    rlx.check_grads(g, feed, of="y", wrt=list(shapes), order=4, rtol=1e-4)


@pytest.mark.parametrize("name", ["layer_norm", "attention", "conv", "scan"])
def test_the_third_order_is_the_same_compiled(name: str) -> None:
    shapes, build = CASES[name]
    rng = np.random.default_rng(4)
    g = rlx.Graph(name)
    nodes = {k: g.input(k, shape, rlx.f64) for k, shape in shapes.items()}
    out = build(*nodes.values())
    g.output("y", (rlx.constant(rng.normal(size=out.shape)) * out).sum())
    first = next(iter(shapes))
    third = rlx.hvp(_squared(g, first), of="s", wrt=first)
    feed = {k: rng.normal(size=n.shape) for k, n in third.leaves.items()}
    want, got = rlx.evaluate(third, feed), rlx.compile(third)(**feed)
    for k, value in want.items():
        np.testing.assert_allclose(got[k], value, rtol=1e-9, atol=1e-9 * np.abs(value).max())


def _squared(g: rlx.Graph, wrt: str) -> rlx.Graph:
    """Σ (∂y/∂wrt)² as output s."""
    found = rlx.grad(g, of="y", wrt=wrt)
    slope = found.outputs[f"grad_{wrt}"]
    return found.derive({"s": (slope * slope).sum()})


def test_check_grads_takes_floats_of_any_width() -> None:
    g = rlx.Graph("cube")
    g.output("y", (g.input("x", (3,)) ** 3).sum())
    for dtype in (np.float64, np.float32, np.float16):
        rlx.check_grads(g, {"x": np.array([0.5, -1.0, 2.0], dtype)}, of="y", wrt="x")
    with pytest.raises(rlx.DTypeError, match="'x' takes"):
        rlx.check_grads(g, {"x": np.array([1, 2, 3])}, of="y", wrt="x")
