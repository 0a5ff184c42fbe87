"""The optimiser inside the graph, against PyTorch's, and schedules and first values."""

from __future__ import annotations

from collections.abc import Callable
from math import cos, pi, sqrt
from typing import Any

import numpy as np
import pytest

import rlx_py.ir.ops.numpy.arrays as a
import rlx_py.ir.ops.numpy.pointwise as p
from rlx_py import init, optim
from rlx_py.ir.base.errors import ArgumentError
from rlx_py.ir.base.types import DType, bf16, f32, f64, i64
from rlx_py.ir.graph.evaluate import evaluate, evaluate_all
from rlx_py.ir.graph.graph import Graph
from rlx_py.ir.nodes.node import Node
from rlx_py.ir.nodes.verify import verify
from rlx_py.passes.train import Optimizer, train_step

STEPS = 6


def network(dtype: DType = f64) -> tuple[Graph, dict[str, Any]]:
    g = Graph("net")
    x, w, b = g.input("x", (8, 4), dtype), g.param("w", (4, 5), dtype), g.param("b", (5,), dtype)
    g.output("loss", a.sum(p.square(p.tanh(p.add(x @ w, b)))))
    rng = np.random.default_rng(1)
    return g, {k: rng.normal(size=n.shape).astype(dtype.numpy) for k, n in g.leaves.items()}


def run(step: Graph, values: dict[str, Any], steps: int = STEPS) -> dict[str, Any]:
    """The params after some steps."""
    verify(step)
    params = {k: values[k] for k in step.params}
    states: dict[str, Any] = {}
    for _ in range(steps):
        found = evaluate_all(step, {"x": values["x"], **params, **states})
        params = {**params, **found.updates}
        states = found.states
    assert states["step"] == steps
    return params


TORCH: list[tuple[str, Optimizer, Callable[[Any, Any], Any]]] = [
    ("sgd", optim.sgd(0.01), lambda t, ps: t.SGD(ps, lr=0.01)),
    ("decay", optim.sgd(0.01, weight_decay=0.1), lambda t, ps: t.SGD(ps, 0.01, weight_decay=0.1)),
    ("momentum", optim.momentum(0.01), lambda t, ps: t.SGD(ps, 0.01, momentum=0.9)),
    ("nesterov", optim.sgd(0.01, 0.9, True, 0.1),
     lambda t, ps: t.SGD(ps, 0.01, momentum=0.9, nesterov=True, weight_decay=0.1)),
    ("adam", optim.adam(0.01), lambda t, ps: t.Adam(ps, 0.01)),
    ("adam_l2", optim.adam(0.01, 0.8, 0.99, 1e-3, 0.1),
     lambda t, ps: t.Adam(ps, 0.01, betas=(0.8, 0.99), eps=1e-3, weight_decay=0.1)),
    ("adamw", optim.adamw(0.01), lambda t, ps: t.AdamW(ps, 0.01)),
]


@pytest.mark.parametrize("clip", [None, 0.5, 1e6])
@pytest.mark.parametrize(("name", "optimizer", "make"), TORCH, ids=[t[0] for t in TORCH])
def test_steps_are_those_of_pytorch(name: str, optimizer: Optimizer,
                                    make: Callable[[Any, Any], Any], clip: float | None) -> None:
    torch = pytest.importorskip("torch")
    g, values = network()
    found = run(train_step(g, "loss", optimizer, clip_norm=clip), values)
    x, w, b = (torch.tensor(values[k]) for k in "xwb")
    w.requires_grad_()
    b.requires_grad_()
    other = make(torch.optim, [w, b])
    for _ in range(STEPS):
        other.zero_grad()
        (torch.tanh(x @ w + b)**2).sum().backward()
        if clip is not None:
            torch.nn.utils.clip_grad_norm_([w, b], clip)
        other.step()
    np.testing.assert_allclose(found["w"], w.detach().numpy(), rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(found["b"], b.detach().numpy(), rtol=1e-13, atol=1e-14)


def test_adam_by_hand() -> None:
    g = Graph()
    x, w = g.input("x", (), f64), g.param("w", (), f64)
    g.output("loss", p.multiply(x, w))
    step = train_step(g, "loss", optim.adam(0.1, 0.5, 0.75, 0.0))
    values: dict[str, Any] = {"w": np.float64(1)}
    m = v = 0.0
    want = 1.0
    states: dict[str, Any] = {}
    for t, gradient in enumerate([2.0, -1.0, 4.0], 1):
        m, v = 0.5 * m + 0.5 * gradient, 0.75 * v + 0.25 * gradient**2
        want -= 0.1 * (m / (1 - 0.5**t)) / sqrt(v / (1 - 0.75**t))
        found = evaluate_all(step, {"x": np.float64(gradient), **values, **states})
        values, states = found.updates, found.states
        np.testing.assert_allclose(values["w"], want, rtol=1e-15)


def test_outputs_states_and_names() -> None:
    g, values = network(f32)
    step = train_step(g, "loss", optim.adam(1e-3))
    assert list(step.outputs) == ["loss"] and list(step.updates) == ["w", "b"]
    assert set(step.states) == {"step", "w.m", "w.v", "b.m", "b.v"}
    assert step.states["step"].node.dtype is i64
    np.testing.assert_array_equal(evaluate(step, values)["loss"], evaluate(g, values)["loss"])
    assert not g.states and not g.updates


def test_frozen_params_and_groups() -> None:
    g, values = network()
    found = run(train_step(g, "loss", optim.sgd(0.1), frozen=["b"]), values)
    np.testing.assert_array_equal(found["b"], values["b"])
    assert (found["w"] != values["w"]).any()
    grouped = train_step(g, "loss", optim.sgd(0.0), groups={"b*": optim.sgd(0.1)})
    found = run(grouped, values)
    np.testing.assert_array_equal(found["w"], values["w"])
    assert (found["b"] != values["b"]).any()


@pytest.mark.parametrize("kwargs", [
    {"frozen": ["nothing"]}, {"groups": {"q": optim.sgd(1.0)}}, {"clip_norm": 0.0},
    {"frozen": ["*"]}, {"of": "lost"}, {"optimizer": "fast"},
])
def test_wrong_arguments(kwargs: dict[str, Any]) -> None:
    g, _ = network()
    with pytest.raises(ArgumentError):
        train_step(g, **{"of": "loss", "optimizer": optim.sgd(0.1), **kwargs})


def test_a_user_state_named_step_stays_the_users() -> None:
    g, _ = network()
    g.next("step", p.add(g.state("step", (), f64), 2.0))
    step = train_step(g, "loss", optim.sgd(0.1))
    assert set(step.states) == {"step", "optimizer_step"}


def test_narrow_params_keep_wide_moments() -> None:
    g, values = network(bf16)
    step = train_step(g, "loss", optim.adamw(1e-2), clip_norm=1.0)
    assert step.states["w.m"].node.dtype is f32
    assert run(step, values)["w"].dtype == bf16.numpy


def test_a_step_lowers_the_loss() -> None:
    g, values = network()
    before = evaluate(g, values)["loss"]
    after = evaluate(g, {**values, **run(train_step(g, "loss", optim.adam(0.05)), values, 20)})
    assert after["loss"] < 0.7 * before


def test_a_rate_is_that_of_the_params_type() -> None:
    g = Graph()
    g.output("loss", p.add(g.param("w", (), f64), p.astype(g.param("v", (), f32), f64)))
    values = {"w": np.float64(1), "v": np.float32(1)}
    found = evaluate_all(train_step(g, "loss", optim.sgd(0.1)), values).updates
    assert found["w"] == 1 - 0.1
    assert found["v"] == np.float32(1) - np.float32(0.1)
    assert evaluate_all(train_step(g, "loss", optim.adamw(0.1, eps=0.0)), values).updates[
        "w"] == pytest.approx(1 - 0.1 * 0.01 - 0.1, rel=2e-16)


def test_a_schedule_of_ones_own_has_the_params_type() -> None:
    g = Graph()
    g.output("loss", g.param("w", (), f64) * 1.0)
    for schedule in (lambda step: 0.1 / (1.0 + step), lambda step: optim.constant(0.2)(step) * 0.5):
        step = train_step(g, "loss", optim.sgd(schedule))
        assert evaluate_all(step, {"w": np.float64(1)}).updates["w"] == 1 - 0.1
    narrow = Graph()
    narrow.output("loss", narrow.param("w", (), bf16) * 1.0)
    seen: list[DType] = []
    train_step(narrow, "loss", optim.sgd(lambda step: seen.append(step.dtype) or step * 0.1))
    assert seen == [f32]


SCHEDULES: list[tuple[Callable[[Node], Node], Callable[[int], float]]] = [
    (optim.constant(0.3), lambda s: 0.3),
    (optim.linear(1.0, 0.2, 10), lambda s: 1 - 0.8 * min(s / 10, 1)),
    (optim.warmup_cosine(2.0, 4, 20, 0.1), lambda s: 2 * (s + 1) / 4 if s < 4 else
     0.1 + 1.9 * 0.5 * (1 + cos(pi * min((s - 4) / 16, 1)))),
    (optim.warmup_cosine(2.0, 0, 8), lambda s: 1 + cos(pi * min(s / 8, 1))),
    (optim.exponential_decay(0.5, 0.9, 3), lambda s: 0.5 * 0.9**(s / 3)),
    (optim.step_decay(0.5, 0.1, 4), lambda s: 0.5 * 0.1**(s // 4)),
]


@pytest.mark.parametrize(("schedule", "want"), SCHEDULES, ids=[str(s[0]) for s in SCHEDULES])
def test_schedules(schedule: Callable[[Node], Node], want: Callable[[int], float]) -> None:
    g = Graph()
    g.output("rate", schedule(g.input("step", (), i64)))
    g.output("wide", optim.rate_at(schedule, g.leaves["step"], f64))
    assert g.outputs["rate"].dtype is f32 and g.outputs["wide"].dtype is f64
    for s in (0, 1, 3, 4, 5, 8, 19, 20, 50):
        found = evaluate(g, {"step": np.int64(s)})
        np.testing.assert_allclose(found["rate"], want(s), rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(found["wide"], want(s), rtol=2e-15, atol=1e-16)


def test_schedules_refuse_what_has_no_meaning() -> None:
    for make in (lambda: optim.warmup_cosine(1.0, 5, 5), lambda: optim.step_decay(1.0, 0.1, 0),
                 lambda: optim.linear(1.0, 0.0, 0), lambda: optim.exponential_decay(1.0, -1.0)):
        with pytest.raises(ArgumentError):
            make()


def test_first_values_follow_the_use_of_a_matrix() -> None:
    g = Graph()
    x = g.input("x", (2, 900))
    into, torch_like = g.param("a", (900, 100)), g.param("b", (100, 900))
    scale, bias = g.param("norm.weight", (100,)), g.param("bias", (100,))
    g.param("k", (50, 20, 3, 3))
    y = p.add(p.multiply(p.add(x @ into, x @ torch_like.T), scale), bias)
    g.output("y", y)
    found = init.kaiming_normal(g, seed=3)
    assert all(v.dtype == np.float32 for v in found.values())
    for name, fan in (("a", 900), ("b", 900), ("k", 180)):
        np.testing.assert_allclose(found[name].std(), sqrt(2 / fan), rtol=0.05)
    assert (found["norm.weight"] == 1).all() and (found["bias"] == 0).all()
    bound = sqrt(6 / 1000)
    uniform = init.xavier_uniform(g)["a"]
    assert np.abs(uniform).max() <= bound and np.abs(uniform).max() > 0.99 * bound
    for draw in (init.kaiming_uniform, init.xavier_normal, init.normal, init.zeros):
        first, again, other = draw(g, 1), draw(g, 1), draw(g, 2)
        np.testing.assert_array_equal(first["a"], again["a"])
        assert draw is init.zeros or (first["a"] != other["a"]).any()
