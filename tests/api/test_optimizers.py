"""Lion, LAMB, Adafactor and Muon by their published formulas; steps that accumulate gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx_py as rlx
from rlx_py import optim
from rlx_py.ir.base.types import DType
from rlx_py.ir.graph.evaluate import evaluate_all

Array = np.ndarray[Any, Any]
STEPS = 6
SHAPES = {"s": (), "b": (5,), "w": (4, 5), "tall": (7, 3), "k": (2, 3, 4)}


def network(dtype: DType = rlx.f64, names: Any = tuple(SHAPES)) -> tuple[rlx.Graph, dict[str, Any]]:
    """Σ of products of tanh: each gradient depends on the batch and on every param."""
    g = rlx.Graph("net")
    x = g.input("x", (3,), dtype)
    total = x.sum()
    for name in names:
        total = total + rlx.tanh(g.param(name, SHAPES[name], dtype) * x[0] + x[1]).sum() * 0.2
    g.output("loss", total * total * 0.1)
    rng = np.random.default_rng(2)
    return g, {k: rng.normal(0, 0.4, n.shape).astype(dtype.numpy) for k, n in g.params.items()}


def batches(dtype: DType = rlx.f64, count: int = STEPS) -> list[Array]:
    return list(np.random.default_rng(3).normal(size=(count, 3)).astype(dtype.numpy))


def run(step: rlx.Graph, params: dict[str, Any], inputs: list[Array],
        states: dict[str, Any] | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Params and states after a step for each input, on the oracle."""
    rlx.verify(step)
    kept = dict(states or {})
    for x in inputs:
        found = evaluate_all(step, {"x": x, **params, **kept})
        params, kept = {**params, **found.updates}, found.states
    return params, kept


def by_hand(rule: Callable[[int, Array, Array, dict[str, Any]], Array],
            params: dict[str, Any], g: rlx.Graph) -> dict[str, Any]:
    """Params after the steps of rule(t, w, gradient, memory), t from 1."""
    gradient = rlx.grad(g, of="loss")
    memory: dict[str, dict[str, Any]] = {k: {} for k in params}
    for t, x in enumerate(batches(), 1):
        grads = rlx.evaluate(gradient, {"x": x, **params})
        params = {k: rule(t, w, grads[f"grad_{k}"], memory[k]) for k, w in params.items()}
    return params


def norm(x: Array) -> float:
    return float(np.sqrt(np.sum(np.square(x))))


def lion(t: int, w: Array, g: Array, memory: dict[str, Any]) -> Array:
    m = memory.get("m", np.zeros_like(w))
    memory["m"] = 0.98 * m + 0.02 * g
    return w - 0.01 * (np.sign(0.95 * m + 0.05 * g) + 0.1 * w)


def lamb(t: int, w: Array, g: Array, memory: dict[str, Any]) -> Array:
    m = memory["m"] = 0.9 * memory.get("m", np.zeros_like(w)) + 0.1 * g
    v = memory["v"] = 0.99 * memory.get("v", np.zeros_like(w)) + 0.01 * g**2
    u = (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.99**t)) + 1e-6) + 0.01 * w
    return w - 0.1 * norm(w) / norm(u) * u


def adafactor(t: int, w: Array, g: Array, memory: dict[str, Any]) -> Array:
    beta, rms = 1 - t**-0.8, norm(w) / np.sqrt(w.size)
    alpha = max(1e-3, rms) * min(0.05, t**-0.5)
    if w.ndim > 1:
        for name, axis in (("r", -1), ("c", -2)):
            memory[name] = beta * memory.get(name, 0.0) + (1 - beta) * np.mean(g**2, axis)
        r, c = memory["r"], memory["c"]
        v = r[..., :, None] * c[..., None, :] / np.mean(r, -1)[..., None, None]
    else:
        v = memory["v"] = beta * memory.get("v", 0.0) + (1 - beta) * g**2
    u = g / np.sqrt(v)
    return w * (1 - 0.05 * 0.1) - alpha * u / max(1, norm(u) / np.sqrt(u.size))


def muon(t: int, w: Array, g: Array, memory: dict[str, Any]) -> Array:
    b = memory["b"] = 0.9 * memory.get("b", np.zeros_like(w)) + 0.1 * g
    if w.ndim != 2:
        return w - 0.3 * b
    # The iteration acts on singular values alone.
    left, values, right = np.linalg.svd(0.9 * b + 0.1 * g, full_matrices=False)
    values = values / norm(values)
    for _ in range(5):
        values = 3.4445 * values - 4.775 * values**3 + 2.0315 * values**5
    scale = np.sqrt(max(1, w.shape[0] / w.shape[1]))
    return w * (1 - 0.02 * 0.1) - 0.02 * scale * (left * values) @ right


RULES: list[tuple[Any, Any]] = [
    (optim.lion(0.01, 0.95, 0.98, 0.1), lion),
    (optim.lamb(0.1, b2=0.99), lamb),
    (optim.adafactor(0.05, weight_decay=0.1), adafactor),
    (optim.muon(0.02, 0.9, fallback=optim.sgd(0.03, 0.9)), muon),
]


@pytest.mark.parametrize(("optimizer", "rule"), RULES, ids=["lion", "lamb", "adafactor", "muon"])
def test_steps_are_those_of_the_formula(optimizer: Any, rule: Any) -> None:
    g, params = network()
    if rule is muon:  # sgd keeps the sum b/0.1 of what the rule keeps the mean of
        assert optimizer.fallback.lr == pytest.approx(0.3 * 0.1)
    found, _ = run(rlx.train_step(g, "loss", optimizer), params, batches())
    for name, want in by_hand(rule, params, g).items():
        # An iteration of degree 5 multiplies errors by 3.4 a round.
        tolerance = 1e-12 if rule is muon else 4e-15
        np.testing.assert_allclose(found[name], want, rtol=tolerance, atol=tolerance, err_msg=name)


TORCH: list[tuple[Any, Callable[..., Any], tuple[str, ...], float]] = [
    (optim.adafactor(), lambda t, ps: t.Adafactor(ps), tuple(SHAPES), 1e-14),
    (optim.adafactor(0.1, -0.5, 1e-3, 0.01, 1.2, 0.1),
     lambda t, ps: t.Adafactor(ps, 0.1, -0.5, (1e-3, 0.01), 1.2, 0.1), tuple(SHAPES), 1e-14),
    # PyTorch iterates in bf16.
    (optim.muon(1e-3), lambda t, ps: t.Muon(ps), ("w", "tall"), 1e-4),
    (optim.muon(1e-3, adjust="match_rms_adamw", nesterov=False),
     lambda t, ps: t.Muon(ps, nesterov=False, adjust_lr_fn="match_rms_adamw"), ("w", "tall"), 1e-4),
]


@pytest.mark.parametrize(("optimizer", "make", "names", "tolerance"), TORCH)
def test_steps_and_defaults_are_those_of_pytorch(
        optimizer: Any, make: Callable[..., Any], names: tuple[str, ...], tolerance: float) -> None:
    torch = pytest.importorskip("torch")
    g, params = network(names=names)
    found, _ = run(rlx.train_step(g, "loss", optimizer), params, batches())
    tensors = {k: torch.tensor(v, requires_grad=True) for k, v in params.items()}
    other = make(torch.optim, list(tensors.values()))
    for x in map(torch.tensor, batches()):
        other.zero_grad()
        total = sum((0.2 * torch.tanh(w * x[0] + x[1]).sum() for w in tensors.values()), x.sum())
        (total * total * 0.1).backward()
        other.step()
    for name, tensor in tensors.items():
        moved = np.abs(found[name] - params[name]).max()
        error = np.abs(found[name] - tensor.detach().numpy()).max()
        allowed = tolerance * (1 if tolerance < 1e-12 else max(1, moved / 0.01))
        assert error <= allowed, (name, error)
        assert moved > 30 * error


@pytest.mark.parametrize("dtype", [rlx.f64, rlx.f32, rlx.f16, rlx.bf16], ids=str)
@pytest.mark.parametrize("optimizer", [r[0] for r in RULES], ids=["lion", "lamb", "adafactor",
                                                                 "muon"])
def test_compiled_steps_of_every_type(optimizer: Any, dtype: DType) -> None:
    g, params = network(dtype)
    step = rlx.train_step(g, "loss", optimizer, clip_norm=1.0)
    kept_in = {s.node.dtype for k, s in step.states.items() if k != "step"}
    assert kept_in == {dtype.compute}
    found, kept = run(step, params, batches(dtype, 3))
    exe = rlx.compile(step, threads=1)
    state = exe.init(params)
    for x in batches(dtype, 3):
        exe.step(state, x=x)
    scale = {"f64": 1e-13, "f32": 1e-5, "f16": 2e-3, "bf16": 1.6e-2}[dtype.name]
    for name, want in found.items():
        assert state.params[name].dtype == dtype.numpy
        np.testing.assert_allclose(state.params[name].astype("f8"), want.astype("f8"),
                                   rtol=scale, atol=scale)
    assert state.states["step"] == kept["step"] == 3


def test_what_is_kept() -> None:
    g, _ = network()
    kept = {k: s.node.shape for k, s in rlx.train_step(g, "loss", optim.adafactor()).states.items()}
    assert kept == {"step": (), "s.v": (), "b.v": (5,), "w.row": (4, 1), "w.col": (1, 5),
                    "tall.row": (7, 1), "tall.col": (1, 3), "k.row": (2, 3, 1), "k.col": (2, 1, 4)}
    assert set(rlx.train_step(g, "loss", optim.muon(0.1)).states) == {
        "step", "w.momentum", "tall.momentum", *(f"{k}.{m}" for k in "sbk" for m in "mv")}
    grouped = rlx.train_step(g, "loss", optim.muon(0.1), frozen=["s", "k"],
                             groups={"t*": optim.lion(0.1)})
    assert set(grouped.states) == {"step", "w.momentum", "tall.m", "b.m", "b.v"}


@pytest.mark.parametrize("optimizer", [r[0] for r in RULES], ids=["lion", "lamb", "adafactor",
                                                                 "muon"])
def test_zero_params_and_gradients_stay_finite(optimizer: Any) -> None:
    g = rlx.Graph()
    x = g.input("x", (3,), rlx.f64)
    total = x[0] * 0.0
    for name, shape in (("w", (2, 3)), ("e", (0, 3)), ("v", (2,))):
        total = total + (g.param(name, shape, rlx.f64) * x[0]).sum()
    g.output("loss", total)
    params = {k: np.zeros(n.shape) for k, n in g.params.items()}
    still, _ = run(rlx.train_step(g, "loss", optimizer), params, [np.zeros(3)] * 2)
    for value in still.values():
        np.testing.assert_array_equal(value, 0)
    moved, _ = run(rlx.train_step(g, "loss", optimizer), params, [np.ones(3)] * 2)
    assert all(np.isfinite(v).all() and (v != 0).all() for v in moved.values())


@pytest.mark.parametrize("make", [
    lambda: optim.lion(0.1, b1=1.0), lambda: optim.lamb(0.1, b2=-0.1),
    lambda: optim.adafactor(decay=0.5), lambda: optim.adafactor(clip=0.0),
    lambda: optim.adafactor(eps=0.0), lambda: optim.muon(0.1, momentum=1.0),
    lambda: optim.muon(0.1, rounds=0), lambda: optim.muon(0.1, adjust="none"),  # type: ignore[arg-type]
])
def test_settings_without_meaning(make: Callable[[], Any]) -> None:
    with pytest.raises(rlx.ArgumentError, match=r"test_optimizers.py:"):
        make()


# ---- accumulation --------------------------------------------------------------------------------


def regression(rows: int, dtype: DType = rlx.f64) -> rlx.Graph:
    g = rlx.Graph("regression")
    x = g.input("x", (rows, 3), dtype)
    g.output("loss", rlx.square(rlx.tanh(x @ g.param("w", (3,), dtype)) - 0.3).mean())
    m = g.state("seen", (), dtype)
    g.next("seen", m + x.sum())
    return g


SAMPLES = np.random.default_rng(5).normal(size=(24, 3))
START = {"w": np.array([0.5, -1.0, 2.0])}


@pytest.mark.parametrize("optimizer", [
    optim.sgd(0.5, 0.9), optim.adamw(optim.warmup_cosine(0.1, 1, 4)), optim.adafactor()], ids=str)
@pytest.mark.parametrize("clip", [None, 0.05])
def test_k_small_batches_are_one_large(optimizer: Any, clip: float | None) -> None:
    large, kept = run(rlx.train_step(regression(8), "loss", optimizer, clip_norm=clip), START,
                      list(SAMPLES.reshape(3, 8, 3)))
    small, others = run(rlx.train_step(regression(2), "loss", optimizer, clip_norm=clip,
                                       accumulate=4), START, list(SAMPLES.reshape(12, 2, 3)))
    assert kept["step"] == others["step"] == 3 and others["micro_step"] == 0
    np.testing.assert_allclose(small["w"], large["w"], rtol=1e-6)
    np.testing.assert_array_equal(others["w.gradient"], 0)
    np.testing.assert_allclose(others["seen"], SAMPLES.sum())


def test_params_move_at_each_kth_step_only() -> None:
    step = rlx.train_step(regression(2), "loss", optim.adam(0.1), accumulate=3)
    exe = rlx.compile(step, threads=1)
    state = exe.init(START)
    moved = []
    for i, x in enumerate(SAMPLES.reshape(12, 2, 3)[:7]):
        before = state.params["w"].copy()
        exe.step(state, x=x)
        moved.append(bool((state.params["w"] != before).any()))
        assert state.states["micro_step"] == (i + 1) % 3 and state.states["step"] == (i + 1) // 3
        assert (state.states["w.m"] != 0).all() == (i >= 2)
    assert moved == [False, False, True, False, False, True, False]


def test_narrow_gradients_are_added_up_wide() -> None:
    step = rlx.train_step(regression(2, rlx.bf16), "loss", optim.sgd(0.1), accumulate=4)
    assert step.states["w.gradient"].node.dtype is rlx.f32
    values = {"w": START["w"].astype(rlx.bf16.numpy)}
    inputs = list(SAMPLES.reshape(12, 2, 3)[:4].astype(rlx.bf16.numpy))
    found, _ = run(step, values, inputs)
    assert found["w"].dtype == rlx.bf16.numpy and (found["w"] != values["w"]).any()


def test_accumulation_with_a_loss_scale() -> None:
    scale = optim.dynamic_loss_scale(init=8.0, growth_interval=2)
    step = rlx.train_step(regression(2), "loss", optim.sgd(0.1, 0.9), accumulate=2,
                          loss_scale=scale)
    good = list(SAMPLES.reshape(12, 2, 3))
    plain, _ = run(rlx.train_step(regression(2), "loss", optim.sgd(0.1, 0.9), accumulate=2), START,
                   good[:4])
    found, kept = run(step, START, good[:3])
    assert (kept["step"], kept["micro_step"]) == (1, 1)
    assert (kept["loss_scale"], kept["good_steps"]) == (8, 1)
    found, kept = run(step, found, good[3:4], kept)
    assert (kept["step"], kept["loss_scale"], kept["good_steps"]) == (2, 16, 0)
    np.testing.assert_allclose(found["w"], plain["w"], rtol=1e-6)
    # One that is not finite spoils its whole update, and nothing after it.
    bad = np.full((2, 3), np.nan)
    same, spoilt = run(step, found, [bad], kept)
    assert (spoilt["step"], spoilt["loss_scale"]) == (2, 16)
    same, spoilt = run(step, same, good[5:6], spoilt)
    np.testing.assert_array_equal(same["w"], found["w"])
    assert (spoilt["step"], spoilt["loss_scale"], spoilt["micro_step"]) == (2, 8, 0)
    np.testing.assert_array_equal(spoilt["w.gradient"], 0)
    moved, after = run(step, same, good[6:8], spoilt)
    assert after["step"] == 3 and (moved["w"] != same["w"]).all()


def test_names_that_are_taken_and_wrong_counts() -> None:
    g = regression(2)
    g.next("micro_step", g.state("micro_step", (), rlx.f64) + 1.0)
    step = rlx.train_step(g, "loss", optim.sgd(0.1), accumulate=2)
    assert set(step.states) == {"seen", "micro_step", "step", "optimizer_micro_step", "w.gradient"}
    assert rlx.train_step(g, "loss", optim.sgd(0.1), accumulate=1).states.keys() == {
        "seen", "micro_step", "step"}
    wrong: Any
    for wrong in (0, -1, 2.0, True, "2"):
        with pytest.raises(rlx.ArgumentError, match="accumulate must be an int"):
            rlx.train_step(g, "loss", optim.sgd(0.1), accumulate=wrong)
