"""Whole training steps in compiled code against PyTorch and JAX, from the same parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx_py as rlx
from peers.peer import Array, jax, jnp, lax, torch
from rlx_py import init, nn, optim
from rlx_py.passes.train import Optimizer

F = torch.nn.functional
Arrays = dict[str, Array]

# ---- optimisers ----------------------------------------------------------------------------------

STEPS = 10
Make = Callable[[list[Any]], Any]
OPTIMISERS: list[tuple[str, Optimizer, Make]] = [
    ("sgd", optim.sgd(0.01), lambda ps: torch.optim.SGD(ps, 0.01)),
    ("sgd_decay", optim.sgd(0.01, weight_decay=0.1),
     lambda ps: torch.optim.SGD(ps, 0.01, weight_decay=0.1)),
    ("momentum", optim.momentum(0.01), lambda ps: torch.optim.SGD(ps, 0.01, momentum=0.9)),
    ("momentum_decay", optim.sgd(0.01, 0.8, weight_decay=0.05),
     lambda ps: torch.optim.SGD(ps, 0.01, momentum=0.8, weight_decay=0.05)),
    ("nesterov", optim.momentum(0.01, 0.7, nesterov=True, weight_decay=0.1),
     lambda ps: torch.optim.SGD(ps, 0.01, momentum=0.7, nesterov=True, weight_decay=0.1)),
    ("adam", optim.adam(0.01), lambda ps: torch.optim.Adam(ps, 0.01)),
    ("adam_decay", optim.adam(0.01, 0.8, 0.99, 1e-3, 0.1),
     lambda ps: torch.optim.Adam(ps, 0.01, (0.8, 0.99), 1e-3, 0.1)),
    ("adamw", optim.adamw(0.01), lambda ps: torch.optim.AdamW(ps, 0.01)),
    ("adamw_decay", optim.adamw(0.02, 0.85, 0.98, 1e-4, 0.3),
     lambda ps: torch.optim.AdamW(ps, 0.02, (0.85, 0.98), 1e-4, 0.3)),
]


def regression(dtype: Any) -> tuple[rlx.Graph, Arrays, list[Array]]:
    """A graph, its params and a batch for each step; param u never changes the loss."""
    g = rlx.Graph("regression")
    x = g.input("x", (6, 4), dtype)
    w, b, _ = g.param("w", (4, 5), dtype), g.param("b", (5,), dtype), g.param("u", (2,), dtype)
    g.output("loss", rlx.sum(rlx.square(rlx.tanh(x @ w + b))))
    rng = np.random.default_rng(1)
    params = {k: rng.normal(size=p.shape).astype(dtype) for k, p in g.params.items()}
    return g, params, [rng.normal(size=(6, 4)).astype(dtype) for _ in range(STEPS)]


@pytest.mark.parametrize("clip", [None, 0.5, 1e6])
@pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=["f64", "f32"])
@pytest.mark.parametrize(("name", "optimizer", "make"), OPTIMISERS, ids=[o[0] for o in OPTIMISERS])
def test_optimisers(name: str, optimizer: Optimizer, make: Make, dtype: Any,
                    clip: float | None) -> None:
    g, params, batches = regression(dtype)
    exe = rlx.compile(rlx.train_step(g, of="loss", optimizer=optimizer, clip_norm=clip), threads=1)
    state = exe.init(params)
    theirs = {k: torch.tensor(a, requires_grad=True) for k, a in params.items()}
    other = make(list(theirs.values()))
    for x in batches:
        loss = exe.step(state, x=x).loss
        other.zero_grad()
        wanted = (torch.tanh(torch.tensor(x) @ theirs["w"] + theirs["b"])**2).sum()
        wanted = wanted + 0 * theirs["u"].sum()
        wanted.backward()
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(list(theirs.values()), clip)
        other.step()
        np.testing.assert_allclose(loss, wanted.numpy(force=True), rtol=1e-5)
    # Rates and bias corrections are computed in f32.
    for k, p in theirs.items():
        np.testing.assert_allclose(state.params[k], p.numpy(force=True), rtol=2e-5, atol=2e-6,
                                   err_msg=k)


# ---- first values ----------------------------------------------------------------------------

SHAPES = {"linear": (300, 200), "conv": (64, 32, 3, 3)}
SCHEMES: list[tuple[str, Callable[..., Arrays], Callable[[Any], Any]]] = [
    ("kaiming_uniform", init.kaiming_uniform,
     lambda w: torch.nn.init.kaiming_uniform_(w, nonlinearity="relu")),
    ("kaiming_normal", init.kaiming_normal,
     lambda w: torch.nn.init.kaiming_normal_(w, nonlinearity="relu")),
    ("xavier_uniform", init.xavier_uniform, torch.nn.init.xavier_uniform_),
    ("xavier_normal", init.xavier_normal, torch.nn.init.xavier_normal_),
    ("normal", init.normal, lambda w: torch.nn.init.normal_(w, std=0.02)),
    ("zeros", init.zeros, torch.nn.init.zeros_),
]


@pytest.mark.parametrize(("name", "ours", "theirs"), SCHEMES, ids=[s[0] for s in SCHEMES])
def test_first_values_have_the_statistics_of_pytorch(
        name: str, ours: Callable[..., Arrays], theirs: Callable[[Any], Any]) -> None:
    torch.manual_seed(0)
    g = rlx.Graph()
    for k, shape in SHAPES.items():
        g.param(k, shape)
    found = ours(g, seed=1)
    for k, shape in SHAPES.items():
        a, b = found[k], theirs(torch.empty(shape)).numpy()
        spread = float(b.std())
        assert a.shape == b.shape and a.dtype == b.dtype
        assert abs(a.mean() - b.mean()) <= 0.03 * spread
        np.testing.assert_allclose(a.std(), spread, rtol=0.02)
        if "uniform" in name:  # the bounds, and the mass between them
            np.testing.assert_allclose([a.min(), a.max()], [b.min(), b.max()], rtol=1e-3)
        quantiles = np.linspace(0.05, 0.95, 19)
        np.testing.assert_allclose(np.quantile(a, quantiles), np.quantile(b, quantiles),
                                   atol=0.03 * spread)


# ---- networks --------------------------------------------------------------------------------

RUN, RATE = 20, 0.1


def digits(seed: int) -> tuple[Array, Array]:
    """Images of four classes, each a pattern in noise, and their labels."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 4, 16).astype(np.int32)
    patterns = np.random.default_rng(0).normal(size=(4, 1, 8, 8))
    return (patterns[labels] + 0.3 * rng.normal(size=(16, 1, 8, 8))).astype(np.float32), labels


def mlp(g: rlx.Graph, x: rlx.Node) -> rlx.Node:
    h = rlx.relu(rlx.reshape(x, (16, 64)) @ g.param("w1", (64, 32)) + g.param("b1", (32,)))
    return nn.gelu(h @ g.param("w2", (32, 16))) @ g.param("w3", (16, 4)) + g.param("b3", (4,))


def torch_mlp(p: dict[str, Any], x: Any) -> Any:
    h = F.relu(x.reshape(16, 64) @ p["w1"] + p["b1"])
    return F.gelu(h @ p["w2"]) @ p["w3"] + p["b3"]


def jax_mlp(p: dict[str, Any], x: Any) -> Any:
    h = jax.nn.relu(x.reshape(16, 64) @ p["w1"] + p["b1"])
    return jax.nn.gelu(h @ p["w2"], approximate=False) @ p["w3"] + p["b3"]


def cnn(g: rlx.Graph, x: rlx.Node) -> rlx.Node:
    h = nn.conv2d(x, g.param("k1", (6, 1, 3, 3)), g.param("c1", (6,)), stride=1, padding=1)
    h = nn.max_pool2d(nn.silu(h), 2)
    h = nn.relu(nn.conv2d(h, g.param("k2", (8, 3, 2, 3)), None, stride=(1, 2), padding=1, groups=2))
    h = nn.layer_norm(h.reshape(16, -1), 80, g.param("norm.weight", (80,)), g.param("n", (80,)))
    return h @ g.param("w", (80, 4))


def torch_cnn(p: dict[str, Any], x: Any) -> Any:
    h = F.max_pool2d(F.silu(F.conv2d(x, p["k1"], p["c1"], padding=1)), 2)
    h = F.relu(F.conv2d(h, p["k2"], stride=(1, 2), padding=1, groups=2)).reshape(16, -1)
    return F.layer_norm(h, (80,), p["norm.weight"], p["n"]) @ p["w"]


def jax_cnn(p: dict[str, Any], x: Any) -> Any:
    def conv(h: Any, w: Any, stride: Any, groups: int) -> Any:
        return lax.conv_general_dilated(h, w, stride, [(1, 1), (1, 1)],
                                        dimension_numbers=("NCHW", "OIHW", "NCHW"),
                                        feature_group_count=groups)

    h = jax.nn.silu(conv(x, p["k1"], (1, 1), 1) + p["c1"][:, None, None])
    h = lax.reduce_window(h, -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
    h = jax.nn.relu(conv(h, p["k2"], (1, 2), 2)).reshape(16, -1)
    centred = h - h.mean(-1, keepdims=True)
    xh = centred * lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5)
    return (xh * p["norm.weight"] + p["n"]) @ p["w"]


NETWORKS = {"mlp": (mlp, torch_mlp, jax_mlp), "cnn": (cnn, torch_cnn, jax_cnn)}


def train_torch(network: Any, params: Arrays, batches: list[tuple[Array, Array]]) -> list[float]:
    """The loss of each step of SGD."""
    p = {k: torch.tensor(a, requires_grad=True) for k, a in params.items()}
    optimizer, losses = torch.optim.SGD(list(p.values()), RATE, momentum=0.9), []
    for x, y in batches:
        optimizer.zero_grad()
        loss = F.cross_entropy(network(p, torch.tensor(x)), torch.tensor(y).long())
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def train_jax(network: Any, params: Arrays, batches: list[tuple[Array, Array]]) -> list[float]:
    """The loss of each step of SGD."""

    def loss(p: dict[str, Any], x: Any, y: Any) -> Any:
        return -jax.nn.log_softmax(network(p, x))[jnp.arange(16), y].mean()

    both = jax.jit(jax.value_and_grad(loss))
    p, b = {k: jnp.asarray(a) for k, a in params.items()}, dict.fromkeys(params, 0.0)
    losses = []
    for x, y in batches:
        value, grads = both(p, x, y)
        b = {k: 0.9 * b[k] + g for k, g in grads.items()}
        p = {k: p[k] - RATE * b[k] for k in p}
        losses.append(float(value))
    return losses


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("threads", [1, 2])
def test_a_trained_network_has_the_losses_of_its_peers(name: str, threads: int) -> None:
    ours, by_torch, by_jax = NETWORKS[name]
    g = rlx.Graph(name)
    x, y = g.input("x", (16, 1, 8, 8)), g.input("y", (16,), rlx.i32)
    g.output("loss", rlx.mean(rlx.softmax_cross_entropy(ours(g, x), y)))
    params = init.kaiming_uniform(g, seed=2)
    batches = [digits(seed) for seed in range(1, RUN + 1)]
    step = rlx.train_step(g, of="loss", optimizer=optim.momentum(RATE, 0.9))
    exe = rlx.compile(step, threads=threads)
    state = exe.init(params)
    losses = [float(exe.step(state, x=x, y=y).loss) for x, y in batches]
    assert losses[-1] < 0.3 * losses[0]
    np.testing.assert_allclose(losses, train_torch(by_torch, params, batches), rtol=1e-4, atol=1e-4)
    if threads == 1:
        np.testing.assert_allclose(losses, train_jax(by_jax, params, batches), rtol=1e-4, atol=1e-4)
