"""A derivative in two halves is the whole one, linear, and computes nothing twice."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx_py as rlx
from support.samples import SAMPLES
from support.samples.sample import Sample
from support.sweep import assert_near, float_inputs, fresh

Array = np.ndarray[Any, Any]


def halves(g: rlx.Graph, feed: dict[str, Array], tangents: dict[str, Array],
           wrt: Any = None) -> dict[str, Array]:
    primal, tangent = rlx.linearize(g, wrt)
    assert list(primal.leaves) == list(g.leaves)
    values = rlx.evaluate(primal, feed)
    residuals = {k: values.pop(k) for k in list(values) if k in tangent.inputs}
    assert set(tangent.inputs) == set(residuals) | set(tangents)
    return {**values, **rlx.evaluate(tangent, {**residuals, **tangents})}


@pytest.mark.parametrize("s", [s for s in SAMPLES if s.op.differentiable], ids=str)
def test_the_halves_of_each_op_are_its_jvp(s: Sample) -> None:
    g, feed = s.graph(rlx.f64), s.feed(rlx.f64)
    wrt = float_inputs(g)
    whole = rlx.jvp(g, wrt)
    tangents = fresh(whole, g, np.random.default_rng(0))
    assert_near(halves(g, feed, tangents, wrt), rlx.evaluate(whole, {**feed, **tangents}))


def network() -> tuple[rlx.Graph, dict[str, Array]]:
    g = rlx.Graph("net")
    x, w, b = g.input("x", (8, 4)), g.param("w", (4, 3)), g.param("b", (3,))
    m = g.state("m", (3,), init=0.5)
    h = rlx.tanh(x @ w + b)
    g.output("loss", rlx.softmax_cross_entropy(h * m, rlx.argmax(x, axis=1) % 3).mean())
    g.output("h", h)
    g.next("m", m * 0.9)
    g.update("b", b * 0.5)
    rng = np.random.default_rng(0)
    return g, {k: rng.standard_normal(n.shape, np.float32) for k, n in g.leaves.items()}


def test_a_network_keeps_its_steps_and_computes_nothing_again() -> None:
    g, feed = network()
    primal, tangent = rlx.linearize(g)
    assert list(primal.outputs)[:2] == ["loss", "h"]
    assert list(primal.updates) == ["b"] and primal.states["m"].next is not None
    assert not tangent.params and not tangent.states and not tangent.updates
    assert list(tangent.outputs) == ["t_loss", "t_h"]
    assert list(tangent.inputs)[-2:] == ["t_w", "t_b"]
    used = {n.op.name for n in tangent.nodes}
    assert not used & {"tanh", "exp", "log", "softmax", "argmax", "reduce_max"}, used
    first, second = rlx.compile(primal), rlx.compile(tangent)
    out = first(**feed, discard_updates=True)
    residuals = {k: out[k] for k in tangent.inputs if k in out}
    whole = rlx.compile(rlx.jvp(g))
    assert second.cost().flops < whole.cost().flops
    rng = np.random.default_rng(1)
    directions = [{k: rng.standard_normal(feed[k[2:]].shape, np.float32) for k in ("t_w", "t_b")}
                  for _ in range(2)]
    found = [second(**residuals, **t) for t in directions]
    for t, got in zip(directions, found, strict=True):
        want = whole(**feed, **t, discard_updates=True)
        np.testing.assert_allclose(got.t_h, want.t_h, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(got.t_loss, want.t_loss, rtol=1e-5, atol=1e-6)
    mixed = second(**residuals, **{k: 2 * directions[0][k] - 3 * directions[1][k]
                                   for k in directions[0]})
    np.testing.assert_allclose(mixed.t_h, 2 * found[0].t_h - 3 * found[1].t_h, rtol=1e-4, atol=1e-5)


def test_both_halves_differentiate_and_are_linear_where_they_say_so() -> None:
    g, feed = network()
    wide = {k: v.astype(np.float64) for k, v in feed.items()}
    primal, tangent = rlx.linearize(rlx.retype(g, rlx.f64), ["x", "w"])
    rlx.check_grads(primal, wide, of="loss", wrt=["w"])
    back = rlx.vjp(tangent, wrt=["t_x", "t_w"])  # its transpose is the gradient
    values = rlx.evaluate(primal, wide)
    zero = {k: np.zeros(n.shape) for k, n in tangent.inputs.items() if k not in values}
    given = {k: v for k, v in values.items() if k in back.inputs} | {
        k: v for k, v in zero.items() if k in back.inputs}
    cts = {"ct_t_loss": np.array(1.0), "ct_t_h": np.zeros((8, 3))}
    found = rlx.evaluate(back, given | cts)
    want = rlx.evaluate(rlx.grad(rlx.retype(g, rlx.f64), of="loss", wrt=["x", "w"]), wide)
    for name in "xw":
        np.testing.assert_allclose(found[f"grad_t_{name}"], want[f"grad_{name}"], rtol=1e-10)


def test_broadcasts_are_no_residuals() -> None:
    g = rlx.Graph()
    x, s = g.param("x", (100,)), g.input("s", ())
    g.output("y", x * rlx.exp(s) + 1.0)
    primal, tangent = rlx.linearize(g)
    assert [n.shape for k, n in tangent.inputs.items() if k != "t_x"] == [()]
    assert list(primal.outputs) == ["y", "residual_0"]


def test_names_that_are_taken_and_wrong_ones() -> None:
    g = rlx.Graph()
    x = g.param("residual_0", (2,))
    g.output("residual2_0", rlx.exp(x) * x)
    primal, tangent = rlx.linearize(g)
    assert "residual3_0" in primal.outputs and "residual3_0" in tangent.inputs
    feed = {"residual_0": np.array([1.0, 2.0], np.float32)}
    out = rlx.evaluate(primal, feed)
    residuals = {k: out[k] for k in tangent.inputs if k in out}
    moved = rlx.evaluate(tangent, {**residuals, "t_residual_0": np.ones(2, np.float32)})
    np.testing.assert_allclose(moved["t_residual2_0"], np.exp([1.0, 2]) * [2, 3], rtol=1e-6)
    with pytest.raises(rlx.ArgumentError, match="no input, param or state 'y'"):
        rlx.linearize(g, "y")


def test_constant_tangents_and_reports() -> None:
    g = rlx.Graph()
    x, c = g.param("x", (2,), rlx.f64), g.input("c", (2,), rlx.f64)
    g.output("free", rlx.exp(c))
    g.output("root", rlx.sqrt(x))
    primal, tangent = rlx.linearize(g, singular="report")
    assert list(tangent.outputs)[:2] == ["t_free", "t_root"] and len(tangent.outputs) == 3
    out = rlx.evaluate(primal, {"x": np.array([0.0, 4.0]), "c": np.zeros(2)})
    found = rlx.evaluate(tangent, {**{k: out[k] for k in tangent.inputs if k in out},
                                   "t_x": np.array([0.0, 1.0])})
    np.testing.assert_array_equal(found["t_free"], [0, 0])
    np.testing.assert_array_equal(found["t_root"], [0, 0.25])
    assert found["singular_0"] == 1


def test_names_of_outputs_can_be_asked_for() -> None:
    g, feed = network()
    out = rlx.compile(g)(**feed, discard_updates=True)
    assert "loss" in out and "t_w" not in out
    outer = rlx.Graph()
    called = outer.call(g, x=outer.input("x", (8, 4)))
    assert "loss" in called and "t_w" not in called


def test_loops_branches_regions_and_sizes_by_name() -> None:
    g = rlx.Graph()
    x, w = g.input("x", (rlx.dim("B"), 3), rlx.f64), g.param("w", (3,), rlx.f64)
    h, _ = rlx.scan(lambda c, s: (rlx.sin(c) * s + w, None), w * 2.0, length=3,
                    xs=rlx.constant(np.arange(9.0).reshape(3, 3)))
    h = rlx.cond(h.sum() > 0.0, rlx.exp, rlx.square, h)
    h = rlx.while_loop(lambda a: a.sum() < 50.0, lambda a: a * 1.5 + w, h, max_steps=30)
    g.output("y", rlx.checkpoint(lambda h: rlx.tanh(x @ h).mean())(h * 0.01))
    feed = {"x": np.linspace(-1, 1, 12).reshape(4, 3), "w": np.array([0.5, 0.2, 0.1])}
    tangents = {"t_w": np.array([1.0, -2.0, 3.0])}
    primal, tangent = (rlx.bind(h, {"B": 4}) for h in rlx.linearize(g))
    values = rlx.evaluate(primal, feed)
    residuals = {k: values[k] for k in tangent.inputs if k in values}
    found = rlx.evaluate(tangent, {**residuals, **tangents})
    want = rlx.evaluate(rlx.bind(rlx.jvp(g), {"B": 4}), {**feed, **tangents})
    np.testing.assert_allclose(found["t_y"], want["t_y"], rtol=1e-12)


def test_values_are_those_of_jax_linearize() -> None:
    jax = pytest.importorskip("jax")
    jnp = jax.numpy
    g = rlx.Graph()
    x, w = g.param("x", (5, 4)), g.param("w", (4, 3))
    g.output("y", rlx.logsumexp(rlx.tanh(x @ w), axis=1) * rlx.sin(x)[:, 0])
    rng = np.random.default_rng(0)
    feed = {k: rng.standard_normal(n.shape, np.float32) for k, n in g.params.items()}
    want, push = jax.linearize(
        lambda x, w: jax.nn.logsumexp(jnp.tanh(x @ w), axis=1) * jnp.sin(x)[:, 0], *feed.values())
    primal, tangent = (rlx.compile(h) for h in rlx.linearize(g))
    out = primal(**feed)
    np.testing.assert_allclose(out.y, want, rtol=1e-5)
    residuals = {k: out[k] for k in tangent.interface.inputs if k in out}
    for _ in range(2):
        t = {f"t_{k}": rng.standard_normal(a.shape, np.float32) for k, a in feed.items()}
        np.testing.assert_allclose(tangent(**residuals, **t).t_y, push(*t.values()), rtol=1e-4,
                                   atol=1e-5)
