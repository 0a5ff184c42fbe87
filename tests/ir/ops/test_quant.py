"""Simulated quantisation and flow matching: what the sweeps, which need slopes, can't see."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx_py as rlx
from rlx_py import nn
from rlx_py.ir.base.types import f16, f32
from rlx_py.ir.graph.evaluate import evaluate
from rlx_py.ir.nodes.node import Node
from rlx_py.passes.derive.jvp import jvp
from rlx_py.passes.derive.vjp import grad
from support.layers import gradient, graph_of, normal, run, value

Array = np.ndarray[Any, Any]
STEPS = {8: 127, 4: 7, 2: 1}
SLOPES = {
    "identity": lambda x, s, q: np.ones_like(x),
    "clipped_identity": lambda x, s, q: (np.abs(x) <= q * s) * 1.0,
    "tanh": lambda x, s, q: 1 - np.tanh(x / s) ** 2,
    "hard_tanh": lambda x, s, q: np.maximum(0, 1 - np.abs(x) / (q * s)),
}


def on_grid(x: Array, s: Array, q: int) -> Array:
    return np.asarray(np.clip(np.rint(x / s), -q, q) * s)


def scale_of(x: Array, q: int, axis: int | None) -> Array:
    others = tuple(i for i in range(x.ndim) if i != axis)
    return np.asarray(np.maximum(np.abs(x).max(others if axis is not None else None,
                                    keepdims=True) / q, 1e-12))


@pytest.mark.parametrize("bits", [8, 4, 2])
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_values_lie_on_the_grid_of_their_channel(bits: int, axis: int | None) -> None:
    x = normal(3, 4, 5)
    s = scale_of(x, STEPS[bits], None if axis is None else axis % 3)
    found = value(lambda x: nn.fake_quantize(x, bits, axis), x=x)
    np.testing.assert_allclose(found, on_grid(x, s, STEPS[bits]), rtol=1e-14)
    scale = value(lambda x: nn.quantize_scale(x, bits, axis), x=x)
    np.testing.assert_allclose(scale, s.squeeze())


@pytest.mark.parametrize("ste", SLOPES)
@pytest.mark.parametrize("mode", ["fixed", "per_batch"])
def test_each_estimator_has_its_slope_in_both_modes(ste: str, mode: str) -> None:
    x, ct = normal(3, 4), normal(3, 4, seed=1)
    s: Any = np.array([0.2, 0.1, 0.3, 0.15]) if mode == "fixed" else scale_of(x, 7, 1)[0]
    # |x| is compared with its own maximum: q·(max/q) may round below it.
    expected = SLOPES["identity" if (ste, mode) == ("clipped_identity", "per_batch") else ste](
        x, s, 7)
    scale = s if mode == "fixed" else None

    def quantized(x: Node) -> Node:
        found: Node = nn.fake_quantize(x, 4, 1, ste, mode, scale)
        return found

    np.testing.assert_allclose(gradient(quantized, "x", ct, x=x), ct * expected, atol=1e-15)
    pushed = evaluate(jvp(graph_of(quantized, x=x), "x"), {"x": x, "t_x": ct})["t_y"]
    np.testing.assert_allclose(pushed, ct * expected, atol=1e-15)


def test_the_largest_element_is_inside_its_own_grid() -> None:
    x = np.random.default_rng(0).standard_normal(4000).astype(np.float32)

    def quantized(x: Node) -> Node:
        found: Node = nn.fake_quantize(x, 8, 0, "clipped_identity")
        return found

    # Each element is the maximum of its channel.
    np.testing.assert_array_equal(gradient(quantized, "x", x=x), 1)


def test_a_channel_of_zeros_is_safe() -> None:
    for dtype in (np.float32, np.float16, np.float64):
        x = np.array([[0, 0, 0], [1, -2, 0.5]], dtype)
        for ste in SLOPES:
            def quantized(x: Node, ste: str = ste) -> Node:
                found: Node = nn.fake_quantize(x, 8, 0, ste)
                return found

            assert not value(quantized, x=x)[0].any()
            assert np.isfinite(gradient(quantized, "x", x=x).astype(np.float64)).all()


def test_halves_round_to_even() -> None:
    x = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 7.0])
    found = value(lambda x: nn.fake_quantize(x, 4), x=x)
    np.testing.assert_array_equal(found, [0, 2, 2, 0, -2, 7])


def test_the_running_scale_is_a_state() -> None:
    g = rlx.Graph()
    x, s = g.input("x", (6,)), g.state("s", (), init=0.0)
    y, after = nn.fake_quantize(x, 8, scale_mode="ema", scale=s, decay=0.75)
    g.next("s", after)
    g.output("y", y)
    g.output("scale", after)
    a = np.linspace(-1, 1, 6, dtype=np.float32)
    first = evaluate(g, {"x": a, "s": np.float32(0)})
    np.testing.assert_allclose(first["scale"], 1 / 127, rtol=1e-6)  # the first batch's own
    second = evaluate(g, {"x": 2 * a, "s": first["scale"]})
    np.testing.assert_allclose(second["scale"], 1.25 / 127, rtol=1e-6)
    np.testing.assert_allclose(second["y"], on_grid(2 * a, second["scale"], 127), rtol=1e-6)
    loss = g.derive({"loss": (y * y).sum()})
    found = evaluate(grad(loss, "loss", ["x"]), {"x": 2 * a, "s": first["scale"]})
    np.testing.assert_allclose(found["grad_x"], 2 * second["y"], rtol=1e-6)


def test_the_learned_step_has_the_gradient_of_the_paper() -> None:
    x, ct, s = normal(3, 4), normal(3, 4, seed=1), np.array([0.3, 0.1, 0.5, 0.2])
    u, q = x / s, 1
    slope = np.where(np.abs(u) < q, np.rint(u) - u, np.where(u < 0, -q, q))

    def quantized(x: Node, s: Node) -> Node:
        return nn.fake_quantize_lsq(x, s, 2, 1, grad_scale=None)

    np.testing.assert_allclose(value(quantized, x=x, s=s), on_grid(x, s, q))
    np.testing.assert_allclose(gradient(quantized, "x", ct, x=x, s=s), ct * (np.abs(u) < q))
    np.testing.assert_allclose(gradient(quantized, "s", ct, x=x, s=s),
                               (ct * slope).sum(0) / np.sqrt(3 * q))
    tangents = {"t_x": normal(3, 4, seed=2), "t_s": normal(4)}
    pushed = evaluate(jvp(graph_of(quantized, x=x, s=s), ["x", "s"]),
                      {"x": x, "s": s, **tangents})["t_y"]
    np.testing.assert_allclose(
        pushed, tangents["t_x"] * (np.abs(u) < q) + tangents["t_s"] / np.sqrt(3) * slope)
    assert np.isfinite(value(quantized, x=x, s=np.zeros(4))).all()


def test_a_narrow_tensor_has_a_wide_scale() -> None:
    g = rlx.Graph()
    x = g.input("x", (4,), f16)
    assert nn.quantize_scale(x).dtype is f32
    assert nn.fake_quantize(x).dtype is f16
    assert nn.fake_quantize_lsq(x, g.input("s", ())).dtype is f16


def test_what_quantisation_refuses() -> None:
    x = rlx.Graph().input("x", (3, 4))
    for bad in ({"bits": 3}, {"axis": 2}, {"ste": "Identity"}, {"scale_mode": "max"},
                {"scale": 1.0}, {"scale_mode": "fixed"},
                {"scale_mode": "ema", "scale": 1.0, "decay": 2.0}):
        with pytest.raises(rlx.ArgumentError):
            nn.fake_quantize(x, **bad)
    with pytest.raises(rlx.ShapeError, match="scale"):
        nn.fake_quantize(x, axis=1, scale_mode="fixed", scale=np.ones(3, np.float32))
    with pytest.raises(rlx.DTypeError):
        nn.fake_quantize(np.arange(3))


# ---- flow matching ---------------------------------------------------------------------------


@pytest.mark.parametrize("shape,t,place", [
    ((3, 3), 3, (3, 1)), ((3, 4), 3, (3, 1)), ((3, 4), 4, (1, 4)), ((3, 2, 3), 3, (3, 1, 1)),
    ((3, 4), 1, (1, 1)), ((1, 4), 4, (1, 4)), ((4,), 4, (4,)), ((3, 4), None, ()),
])
def test_a_time_for_each_of_the_batch_lies_along_it(shape: tuple[int, ...], t: int | None,
                                                    place: tuple[int, ...]) -> None:
    clean, noise, ct = normal(*shape), normal(*shape, seed=1), normal(*shape, seed=2)
    time = np.random.default_rng(1).random(() if t is None else (t,))
    wide = time.reshape(place)
    arrays = {"clean": clean, "noise": noise, "t": time}
    np.testing.assert_allclose(value(nn.flow_linear_state, **arrays),
                               (1 - wide) * clean + wide * noise)
    over = tuple(i for i, n in enumerate(np.broadcast_shapes(shape, place))
                 if i < len(shape) - len(place) or place[i - len(shape) + len(place)] == 1)
    expected = (ct * (noise - clean)).sum(over, keepdims=True).reshape(time.shape)
    np.testing.assert_allclose(gradient(nn.flow_linear_state, "t", ct, **arrays), expected)
    np.testing.assert_allclose(gradient(nn.flow_linear_state, "clean", ct, **arrays),
                               ct * (1 - wide))
    np.testing.assert_allclose(gradient(nn.flow_linear_state, "noise", ct, **arrays), ct * wide)


def test_a_path_ends_exactly_at_its_ends() -> None:
    clean, noise = normal(5).astype(np.float32), normal(5, seed=1).astype(np.float32) * 1e6
    for t, end in ((0.0, clean), (1.0, noise)):
        found = value(lambda c, n, t=t: nn.flow_linear_state(c, n, t), c=clean, n=noise)
        np.testing.assert_array_equal(found, end)


def test_velocity_and_steps() -> None:
    a, b = normal(2, 3), normal(2, 3, seed=1)
    np.testing.assert_array_equal(value(nn.flow_linear_velocity, clean=a, noise=b), b - a)
    np.testing.assert_array_equal(
        value(lambda s, v: nn.flow_euler_step(s, v, 0.25), s=a, v=b), a + 0.25 * b)
    np.testing.assert_array_equal(
        gradient(lambda s, v: nn.flow_euler_step(s, v, 0.25), "v", s=a, v=b), np.full((2, 3), 0.25))
    dt = np.array([0.5, 0.25])
    np.testing.assert_array_equal(value(nn.flow_euler_step, state=a, velocity=b, dt=dt),
                                  a + dt[:, None] * b)


def test_the_masked_error_counts_what_is_kept() -> None:
    p, y = normal(2, 3), normal(2, 3, seed=1)
    mask = np.array([True, False, True])
    p[:, 1] = np.nan

    def error(p: Node, y: Node) -> Node:
        return nn.flow_masked_mse(p, y, mask)

    d = np.where(mask, p - y, 0)
    np.testing.assert_allclose(value(error, p=p, y=y), (d ** 2).sum() / 4)
    np.testing.assert_allclose(gradient(error, "p", p=p, y=y), 2 * d / 4)
    assert not gradient(error, "y", p=p, y=y).any()
    assert value(lambda p: nn.flow_masked_mse(p, y, np.zeros(3)), p=p) == 0
    found = run(graph_of(lambda p: nn.flow_masked_mse(p, np.zeros(4000, np.float16), np.ones(4000)),
                         p=np.full(4000, 10, np.float16)), {"p": np.full(4000, 10, np.float16)})
    assert found["y"] == 100  # a sum of 4·10⁵ squares, beyond f16
    with pytest.raises(rlx.ShapeError):
        nn.flow_linear_state(p, y, np.ones(5))


@pytest.mark.parametrize("bits", [8, 4, 2])
@pytest.mark.parametrize("compiled", [False, True], ids=["reference", "compiled"])
@pytest.mark.parametrize("dtype", [rlx.f32, rlx.f64], ids=str)
def test_one_rule_for_the_largest_of_each_row(bits: int, compiled: bool, dtype: Any) -> None:
    """hard_tanh per batch: the slope of the slope at the largest is −dy·sign/max, whether q·(max/q)
    rounds to max, above it or below it."""
    q = {8: 127, 4: 7, 2: 1}[bits]
    rng = np.random.default_rng(bits)
    x = rng.normal(size=(200, 3)).astype(dtype.numpy)
    most = np.abs(x).max(1)
    steps = np.asarray(q, dtype.numpy)
    scale = most / steps * steps
    if bits != 2:
        assert (scale < most).any() and (scale >= most).any()
    g = rlx.Graph()
    g.output("s", nn.fake_quantize(g.input("x", x.shape, dtype), bits, 0, "hard_tanh").sum())
    first = rlx.grad(g, of="s", wrt=["x"])
    g2 = rlx.Graph()
    slope = g2.call(first, x=g2.input("x", x.shape, dtype)).grad_x
    g2.output("slope", slope)
    g2.output("s", slope.sum())
    second = rlx.value_and_grad(g2, of="s", wrt=["x"])
    run: Any = rlx.compile(second, threads=1) if compiled else (
        lambda **kw: rlx.evaluate(second, kw))
    found = run(x=x)
    eps = float(np.finfo(dtype.numpy).eps)
    np.testing.assert_allclose(found["grad_x"], -np.sign(x) / most[:, None], rtol=8 * eps)
    assert (found["slope"] >= 0).all()
    np.testing.assert_allclose(found["slope"], 1 - np.abs(x) / most[:, None], atol=4 * eps)
