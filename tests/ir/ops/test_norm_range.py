"""Norms, and what divides by them, where squares overflow or vanish: f(s·x) = sᵏ·f(x)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx_py as rlx
from rlx_py import nn, optim
from rlx_py.ir.base.types import DType
from rlx_py.ir.graph.evaluate import evaluate_all

Array = np.ndarray[Any, Any]
X = np.array([[3.0, 0.0, -4.0, 1.5, 2.5], [0.5, 2.0, 1.0, -3.0, 0.25], [1.0, 2.5, 1.0, -1.0, 2.0]])
Y = np.array([[1.0, -2.0, 0.5, 3.0, 2.0], [2.0, -1.0, 4.0, 0.0, 1.0], [3.0, 1.0, -1.0, 2.0, 2.5]])
# Powers of two near 1e±30 and 1e±198: scaling by them rounds nothing.
FAR = {"f32": 2.0**100, "f64": 2.0**660}
TINY = 1e-20

Function = Callable[[Any, Any], Any]
BOTH_ENDS: dict[str, tuple[int, Function]] = {
    "norm": (1, lambda x, y: rlx.norm(x)),
    "norm of rows": (1, lambda x, y: rlx.norm(x, axis=1)),
    "norm of columns": (1, lambda x, y: rlx.norm(x, 2, axis=0)),
    "√Σx²": (1, lambda x, y: rlx.sqrt((x * x).sum())),
    "norm 3": (1, lambda x, y: rlx.norm(x, 3, axis=1)),
    "norm 1.5": (1, lambda x, y: rlx.norm(x, 1.5, axis=0)),
    "norm -2": (1, lambda x, y: rlx.norm(y + 7.0 * rlx.stop_gradient(rlx.norm(y)), -2, axis=1)),
    "linalg.norm": (1, lambda x, y: rlx.linalg.norm(x)),
    "linalg.norm fro": (1, lambda x, y: rlx.linalg.norm(x, "fro")),
    "std": (1, lambda x, y: rlx.std(x, axis=1)),
    "nanstd": (1, lambda x, y: rlx.nanstd(x, axis=1)),
    "hypot": (1, rlx.hypot),
    "pairwise_distance": (1, lambda x, y: nn.pairwise_distance(x, y, eps=0.0)),
    "pairwise_distance 3": (1, lambda x, y: nn.pairwise_distance(x, y, 3.0, eps=0.0)),
    "triplet_margin_loss": (1, lambda x, y: nn.triplet_margin_loss(
        x, y, x * 0.75, 0.0, eps=0.0)),
    "normalize": (0, lambda x, y: nn.normalize(x, eps=1e-300 if x.dtype is rlx.f64 else 1e-38)),
    "normalize 3": (0, lambda x, y: nn.normalize(x, 3.0, eps=1e-300 if x.dtype is rlx.f64 else
                                                 1e-38)),
    "cosine_similarity": (0, lambda x, y: nn.cosine_similarity(
        x, y, eps=1e-300 if x.dtype is rlx.f64 else 1e-38)),
}
LARGE: dict[str, tuple[int, Function]] = {
    "cosine_embedding_loss": (0, lambda x, y: nn.cosine_embedding_loss(
        x * 2.0**10, y * 2.0**10, rlx.constant([1, -1, 1]), -1.0)),
    "layer_norm": (0, lambda x, y: nn.layer_norm(x, 5, eps=TINY)),
    "rms_norm": (0, lambda x, y: nn.rms_norm(x, 5, eps=TINY)),
    "rms_norm_gated": (0, lambda x, y: nn.rms_norm_gated(
        x, rlx.constant(Y).astype(x.dtype), eps=TINY)),
    "batch_norm": (0, lambda x, y: nn.batch_norm(x, eps=TINY, training=True)),
    "group_norm": (0, lambda x, y: nn.group_norm(x[:, :4], 1, eps=TINY)),
    "instance_norm": (0, lambda x, y: nn.instance_norm(x[None], eps=TINY)),
    "channel_norm": (0, lambda x, y: nn.channel_norm(x[None], eps=TINY)),
}
CASES = [(name, *case, ends) for table, ends in ((BOTH_ENDS, (1, -1)), (LARGE, (1,)))
         for name, case in table.items()]


def graph_of(f: Function, dtype: DType) -> rlx.Graph:
    """The value, and Σ of it times a weight of its own for each element."""
    g = rlx.Graph("range")
    found = f(g.input("x", X.shape, dtype), g.input("y", Y.shape, dtype))
    weights = rlx.cos(rlx.arange(found.size, dtype=dtype)).reshape(found.shape)
    g.output("value", found)
    g.output("loss", (found * weights).sum())
    return g


def results(f: Function, dtype: DType, scale: float, compiled: bool) -> dict[str, Any]:
    """Value, gradients and a derivative along (x, y) cubed, of arguments times a scale."""
    g = graph_of(f, dtype)
    values = {k: (v * scale).astype(dtype.numpy) for k, v in (("x", X), ("y", Y))}
    tangents = {f"t_{k}": v**3 for k, v in (("x", X), ("y", Y))}
    tangents = {k: v.astype(dtype.numpy) for k, v in tangents.items()}
    run: Any = (lambda h, **kw: rlx.compile(h, threads=1)(**kw)) if compiled else (
        lambda h, **kw: rlx.evaluate(h, kw))
    back = run(rlx.value_and_grad(g, of="loss", wrt=["x", "y"]), **values)
    forth = run(rlx.jvp(g, wrt=["x", "y"]), **values, **tangents)
    return {"value": back["value"], "x": back["grad_x"], "y": back["grad_y"],
            "slope": forth["t_value"]}


@pytest.mark.parametrize("compiled", [False, True], ids=["reference", "compiled"])
@pytest.mark.parametrize("dtype", [rlx.f32, rlx.f64], ids=str)
@pytest.mark.parametrize(("name", "degree", "f", "ends"), CASES, ids=[c[0] for c in CASES])
def test_any_scale(name: str, degree: int, f: Function, ends: tuple[int, ...], dtype: DType,
                   compiled: bool) -> None:
    usual = results(f, dtype, 1.0, compiled)
    for end in ends:
        scale = FAR[dtype.name]**end
        found = results(f, dtype, scale, compiled)
        for key, want in usual.items():
            power = degree - (key != "value")
            got = found[key].astype(np.float64) / scale**power
            unit = np.abs(want).max()
            assert unit > 0 or key in ("x", "y"), key
            np.testing.assert_allclose(got, want, rtol=0, atol=40 * unit * np.finfo(
                dtype.numpy).eps, err_msg=f"{key} at {scale}")


@pytest.mark.parametrize("compiled", [False, True], ids=["reference", "compiled"])
@pytest.mark.parametrize(("gradient", "clip", "want"), [
    ((3e30, 0.0, 4e30), 1.0, (-0.6, 0.0, -0.8)),
    ((3e38, 0.0, 3e38), 1.0, (-0.5**0.5, 0.0, -0.5**0.5)),  # a norm beyond f32
    ((3e-30, 0.0, 4e-30), 1.0, (-3e-30, 0.0, -4e-30)),
    ((3e30, 0.0, 4e30), 1e31, (-3e30, 0.0, -4e30)),
    ((3e30, 0.0, 4e30), 1e-20, (-6e-21, 0.0, -8e-21)),
    ((3.0, 0.0, 4.0), 1.0, (-0.6 / 1.0000002, 0.0, -0.8 / 1.0000002)),
])
def test_clipping(gradient: tuple[float, ...], clip: float, want: tuple[float, ...],
                  compiled: bool) -> None:
    g = rlx.Graph()
    parts = [g.param(f"w{i}", (), rlx.f32) * np.float32(v) for i, v in enumerate(gradient[:2])]
    parts.append((g.param("w2", (1,), rlx.f32) * np.float32(gradient[2])).sum())
    g.output("loss", parts[0] + parts[1] + parts[2])
    step = rlx.train_step(g, of="loss", optimizer=optim.sgd(1.0), clip_norm=clip)
    start = {k: np.zeros(n.shape, np.float32) for k, n in g.params.items()}
    if compiled:
        exe = rlx.compile(step)
        state = exe.init(start)
        exe.step(state)
        found = dict(state.params)
    else:
        found = evaluate_all(step, start).updates
    moved = [found[k].astype(np.float64).sum() for k in start]
    np.testing.assert_allclose(moved, want, rtol=1e-6)


def test_gradients_of_two_types_are_clipped_in_the_wider() -> None:
    g = rlx.Graph()
    g.output("loss", g.param("w", (), rlx.f64) * 3.0 + (
        g.param("v", (), rlx.f32) * 4.0).astype(rlx.f64))
    step = rlx.train_step(g, of="loss", optimizer=optim.sgd(1.0), clip_norm=1.0)
    found = evaluate_all(step, {"w": np.float64(0), "v": np.float32(0)}).updates
    assert found["w"] == pytest.approx(-3 / (5 + 1e-6), rel=1e-15)


@pytest.mark.parametrize("end", [1, -1])
@pytest.mark.parametrize(("optimizer", "degree"), [
    # LAMB moves by ‖w‖/‖u‖·u, Adafactor by RMS(w)·(…), Muon by what is orthogonal.
    (optim.lamb(0.1, eps=1e-30, weight_decay=0.0), 1),
    (optim.adafactor(0.1, floor=1e-38, eps=1e-30), 1),
    (optim.muon(0.1, weight_decay=0.0, eps=1e-35), 0),
], ids=["lamb", "adafactor", "muon"])
def test_updates_of_large_and_small_params(optimizer: Any, degree: int, end: int) -> None:
    """Params (Muon: gradients) times a scale move by what it says; the rest stays of size 1."""
    def moved(scale: float) -> Array:
        g = rlx.Graph()
        w = g.param("w", (3, 5), rlx.f32)
        factor = 1.0 if degree else scale
        g.output("loss", (w * (Y * factor).astype(np.float32)).sum())
        start = (X * (scale if degree else 1.0)).astype(np.float32)
        step = rlx.train_step(g, of="loss", optimizer=optimizer)
        after = evaluate_all(step, {"w": start}).updates["w"]
        return np.asarray((after - start).astype(np.float64) / scale**degree)

    want = moved(1.0)
    np.testing.assert_allclose(moved(FAR["f32"]**end), want, atol=1e-5 * np.abs(want).max())
