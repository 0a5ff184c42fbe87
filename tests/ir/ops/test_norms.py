"""Batch, group, instance, channel and gated norms: refusals, edges, running statistics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx_py as rlx
from rlx_py import nn
from rlx_py.ir.base.types import TensorType, f16, f32, f64, i32
from rlx_py.ir.nodes import node
from rlx_py.ir.nodes.node import Node

Array = np.ndarray[Any, Any]
X = np.random.default_rng(5).standard_normal((4, 6, 3, 5))


def run(build: Callable[..., Node], *arrays: Array) -> tuple[Array, ...]:
    """The value, and the gradients of a weighted sum of it by each array, of compiled code."""
    g = rlx.Graph()
    inputs = [g.input(f"x{i}", a.shape, a.dtype) for i, a in enumerate(arrays)]
    y = g.output("y", build(*inputs))
    weights = np.random.default_rng(6).standard_normal(y.shape).astype(y.dtype.numpy)
    g.output("loss", (y * rlx.constant(weights)).sum())
    whole = rlx.value_and_grad(g, of="loss", wrt=[f"x{i}" for i in range(len(arrays))])
    out = rlx.compile(whole)(**{f"x{i}": a for i, a in enumerate(arrays)})
    return out.y, *(out[f"grad_x{i}"] for i in range(len(arrays)))


def leaf(*shape: int, dtype: Any = f32) -> Node:
    return node.leaf("x", "input", TensorType(dtype, shape))


REFUSED: list[tuple[type[Exception], str, Callable[[], Any]]] = [
    (rlx.ShapeError, "3 groups do not divide", lambda: nn.group_norm(leaf(2, 4, 5), 3)),
    (rlx.ShapeError, "0 groups", lambda: nn.group_norm(leaf(2, 4, 5), 0)),
    (rlx.ShapeError, "no axis 1", lambda: nn.group_norm(leaf(4), 2)),
    (rlx.ShapeError, r"shape \(4,\)", lambda: nn.group_norm(leaf(2, 4), 2, leaf(3))),
    (rlx.ArgumentError, "eps", lambda: nn.group_norm(leaf(2, 4), 2, eps=0.0)),
    (rlx.ArgumentError, "integers", lambda: nn.group_norm(leaf(2, 4), 2.0)),  # type: ignore[arg-type]
    (rlx.DTypeError, "float", lambda: nn.group_norm(leaf(2, 4, dtype=i32), 2)),
    (rlx.ShapeError, "1 elements a channel",
     lambda: nn.batch_norm(leaf(1, 4), training=True)),
    (rlx.ShapeError, "0 elements", lambda: nn.batch_norm(leaf(0, 4), training=True)),
    (rlx.ShapeError, "1 elements a channel",
     lambda: nn.batch_norm_statistics(leaf(1, 4, 1), leaf(4), leaf(4))),
    (rlx.ArgumentError, "both running statistics", lambda: nn.batch_norm(leaf(2, 4), leaf(4))),
    (rlx.ShapeError, "running statistics", lambda: nn.batch_norm(leaf(2, 4), leaf(3), leaf(3))),
    (rlx.DTypeError, "running statistics",
     lambda: nn.batch_norm(leaf(2, 4), leaf(4, dtype=i32), leaf(4, dtype=i32))),
    (rlx.ShapeError, "no axis 1", lambda: nn.batch_norm(leaf(4), leaf(4), leaf(4))),
    (rlx.ArgumentError, "momentum", lambda: nn.batch_norm(leaf(2, 4), training=True,
                                                          momentum=None)),  # type: ignore[arg-type]
    (rlx.ShapeError, "less than 2", lambda: nn.instance_norm(leaf(3, 4, 1))),
    (rlx.ShapeError, "less than 2", lambda: nn.instance_norm(leaf(3, 4))),
    (rlx.ShapeError, "B, C, T", lambda: nn.channel_norm(leaf(2, 3, 4, 5))),
    (rlx.ShapeError, "N, C, H, W", lambda: nn.layer_norm2d(leaf(2, 3, 4))),
    (rlx.ShapeError, "group_size 4", lambda: nn.rms_norm_gated(leaf(2, 6), leaf(2, 6),
                                                              group_size=4)),
    (rlx.ShapeError, "gate", lambda: nn.rms_norm_gated(leaf(2, 6), leaf(6))),
    (rlx.ShapeError, "divide the 3 rows",
     lambda: nn.rms_norm_gated(leaf(3, 6), leaf(3, 6), leaf(2, 6))),
    (rlx.ShapeError, "must be", lambda: nn.rms_norm_gated(leaf(3, 6), leaf(3, 6), leaf(5))),
    (rlx.ShapeError, "weight or bias",
     lambda: nn.rms_norm_gated(leaf(2, 6), leaf(2, 6), leaf(2, 6), leaf(6))),
    (rlx.ShapeError, "scalar", lambda: nn.rms_norm_gated(leaf(), leaf())),
]


@pytest.mark.parametrize("error,message,call", REFUSED, ids=[r[1] for r in REFUSED])
def test_refusals_name_what_is_wrong_and_where(error: type[Exception], message: str,
                                               call: Callable[[], Any]) -> None:
    with pytest.raises(error, match=message) as caught:
        call()
    assert __file__ in str(caught.value)


def test_parameter_gradients_are_sums_over_axes() -> None:
    """With N > 1 a reshape of [N, C, HW] to [C, N·HW] would mix channels."""
    w, b = X[0, :, 0, 0].copy(), X[0, :, 1, 1].copy()
    y, dx, dw, db = run(lambda x, w, b: nn.group_norm(x, 3, w, b), X, w, b)
    dy = np.random.default_rng(6).standard_normal(X.shape)
    rows = X.reshape(4, 3, -1)
    xh = (rows - rows.mean(2, keepdims=True)) / np.sqrt(rows.var(2, keepdims=True) + 1e-5)
    xh = xh.reshape(X.shape)
    np.testing.assert_allclose(y, xh * w[:, None, None] + b[:, None, None], atol=1e-12)
    np.testing.assert_allclose(dw, (dy * xh).sum((0, 2, 3)), atol=1e-12)
    np.testing.assert_allclose(db, dy.sum((0, 2, 3)), atol=1e-12)
    np.testing.assert_allclose(dx.reshape(4, 3, -1).sum(2), 0, atol=1e-12)


def test_large_means_cost_no_digits() -> None:
    """E[x²] − E[x]² would have none left in f32."""
    x = (X + 3000).astype(np.float32)
    for y in (run(lambda x: nn.batch_norm(x, training=True), x)[0],
              run(lambda x: nn.group_norm(x, 2), x)[0],
              run(lambda x: nn.layer_norm2d(x), x)[0]):
        assert abs(float(y.std()) - 1) < 2e-3


def test_constant_channels_give_the_bias_and_no_nan() -> None:
    x, b = np.full((3, 2, 5), 7.0), np.array([1.0, -2.0])
    for f in (lambda x, b: nn.batch_norm(x, None, None, None, b, True),
              lambda x, b: nn.instance_norm(x, bias=b)):
        y, dx, _ = run(f, x, b)
        np.testing.assert_array_equal(y, np.broadcast_to(b[:, None], y.shape))
        assert np.isfinite(dx).all()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_running_statistics_are_explicit_values(dtype: Any) -> None:
    x = X.astype(dtype)
    wide = np.float32 if dtype is np.float16 else dtype
    mean, var = np.linspace(-1, 1, 6).astype(wide), np.linspace(0.5, 2, 6).astype(wide)
    g = rlx.Graph()
    nodes = [g.input(k, a.shape, a.dtype) for k, a in (("x", x), ("m", mean), ("v", var))]
    a, m, v = nodes
    for k, n in zip(("mean", "var"), nn.batch_norm_statistics(a, m, v, 0.3), strict=True):
        g.output(k, n)
    g.output("loss", g.outputs["mean"].sum() + g.outputs["var"].sum())
    whole = rlx.value_and_grad(g, of="loss", wrt=["x", "m", "v"])
    out = rlx.compile(whole)(x=x, m=mean, v=var)
    exact = x.astype(np.float64)
    tolerance = 1e-12 if dtype is np.float64 else 1e-6
    assert out.mean.dtype == wide
    np.testing.assert_allclose(out.mean, 0.7 * mean + 0.3 * exact.mean((0, 2, 3)), rtol=tolerance,
                               atol=tolerance)
    np.testing.assert_allclose(out.var, 0.7 * var + 0.3 * exact.var((0, 2, 3), ddof=1),
                               rtol=tolerance)
    assert not any(np.any(out[f"grad_{k}"]) for k in "xmv"), "running statistics have no gradient"


def test_given_statistics_get_no_gradient() -> None:
    mean, var = np.linspace(-1, 1, 6), np.linspace(0.5, 2, 6)
    y, dx, dmean, dvar = run(nn.batch_norm, X, mean, var)
    want = (X - mean[:, None, None]) / np.sqrt(var + 1e-5)[:, None, None]
    np.testing.assert_allclose(y, want, atol=1e-12)
    assert np.any(dx) and not np.any(dmean) and not np.any(dvar)


def test_statistics_wider_than_the_input_stay_so() -> None:
    g = rlx.Graph()
    x = g.input("x", (2, 3), f16)
    y = nn.batch_norm(x, g.input("m", (3,)), g.input("v", (3,)))
    assert y.dtype is f16
    g.output("y", y)
    m = np.array([2049.0, 0, 1], np.float32)  # not a number of f16
    out = rlx.compile(g)(x=np.full((2, 3), 2048, np.float16), m=m, v=np.ones(3, np.float32))
    np.testing.assert_allclose(out.y[0, 0], -1, atol=1e-3)


def test_a_training_step_moves_the_state_and_evaluation_reads_it() -> None:
    g = rlx.Graph()
    x = g.input("x", X.shape, f64)
    w = g.param("w", (6,), f64)
    y = nn.batch_norm_with_state(g, "norm", x, w)
    g.output("loss", (y * y * rlx.arange(5, dtype=f64)).mean())
    exe = rlx.compile(rlx.train_step(g, of="loss", optimizer=rlx.optim.sgd(0.0)))
    state = exe.init({"w": np.ones(6)})
    for _ in range(3):
        exe.step(state, x=X)
    left = 0.9**3
    np.testing.assert_allclose(state.states["norm.running_mean"], (1 - left) * X.mean((0, 2, 3)))
    np.testing.assert_allclose(state.states["norm.running_var"],
                               left + (1 - left) * X.var((0, 2, 3), ddof=1))
    ev = rlx.Graph()
    ev.output("y", nn.batch_norm_with_state(ev, "norm", ev.input("x", X.shape, f64),
                                            training=False))
    assert set(ev.states) == {"norm.running_mean", "norm.running_var"}
    out = rlx.compile(ev)(x=X, **{k: state.states[k] for k in ev.states})
    mean, var = (state.states[f"norm.running_{k}"][:, None, None] for k in ("mean", "var"))
    np.testing.assert_allclose(out.y, (X - mean) / np.sqrt(var + 1e-5))


def test_channel_norm_with_relu_stops_where_it_is_zero() -> None:
    x = X[:, :, 0].copy()
    y, dx = run(lambda x: nn.channel_norm(x, relu=True), x)
    plain, _ = run(lambda x: nn.channel_norm(x), x)
    np.testing.assert_array_equal(y, np.maximum(plain, 0))
    np.testing.assert_allclose(dx.sum(1), 0, atol=1e-12)
    wide = run(lambda x: nn.layer_norm2d(x, eps=1e-5), x[..., None])[0][..., 0]
    np.testing.assert_array_equal(wide, plain)


def test_gated_norm_orders() -> None:
    x, z = X[:, :, 0], X[:, :, 1]
    silu = z / (1 + np.exp(-z))

    def rms(u: Array) -> Array:
        groups = u.reshape(4, 6, 1, 5)
        found = groups / np.sqrt((groups**2).mean(-1, keepdims=True) + 1e-5)
        return np.asarray(found.reshape(u.shape))

    first = run(lambda x, z: nn.rms_norm_gated(x, z, norm_before_gate=True), x, z)[0]
    then = run(nn.rms_norm_gated, x, z)[0]
    np.testing.assert_allclose(first, rms(x) * silu, atol=1e-12)
    np.testing.assert_allclose(then, rms(x * silu), atol=1e-12)


def test_gated_norm_row_i_takes_affine_group_i_mod_g() -> None:
    x = X.reshape(12, 3, 10)
    w = X[:2, :5, 0, :2].reshape(2, 10)
    found = run(lambda x, w: nn.rms_norm_gated(x, x, w, group_size=5), x, w)[0].reshape(36, 10)
    plain = run(lambda x: nn.rms_norm_gated(x, x, group_size=5), x)[0].reshape(36, 10)
    for i in range(36):
        np.testing.assert_allclose(found[i], plain[i] * w[i % 2], atol=1e-12)
