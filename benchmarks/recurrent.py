"""A classifier of sequences by the last state of one recurrent layer, which several cases share.

Every system has the gates of the inputs for all steps from one product, and PyTorch its own layer.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.case import Data, JaxStep, RlxStep, TorchStep
from benchmarks.mlp import jax_cross_entropy
from benchmarks.sgd import RATE, jax_sgd, torch_sgd

STEPS, BATCH, INPUTS, WIDTH, CLASSES = 64, 32, 64, 128, 10
GATES = {"gru": 3, "lstm": 4}
Cell = Callable[[Any, Any, Any, Any], Any]


def recurrent_data(kind: str) -> Data:
    """Weights `wi [G·H, I]`, `wh [G·H, H]`, biases `bi`, `bh`, the last layer's `w`, `b`; inputs
    `x [T, B, I]`, labels `y [B]`."""
    rng, gates = np.random.default_rng(0), GATES[kind] * WIDTH
    bound = WIDTH**-0.5

    def uniform(*shape: int) -> Any:
        return rng.uniform(-bound, bound, shape).astype(np.float32)

    params = {"wi": uniform(gates, INPUTS), "wh": uniform(gates, WIDTH), "bi": uniform(gates),
              "bh": uniform(gates), "w": uniform(WIDTH, CLASSES), "b": uniform(CLASSES)}
    x = rng.standard_normal((STEPS, BATCH, INPUTS)).astype(np.float32)
    return Data(params, {"x": x, "y": rng.integers(0, CLASSES, BATCH).astype(np.int32)})


def rlx_recurrent(rlx: ModuleType, data: Data, kind: str) -> RlxStep:
    """Mean softmax cross-entropy as a graph."""
    g = rlx.Graph(kind)
    x = g.input("x", data.batch["x"].shape)
    y = g.input("y", data.batch["y"].shape, rlx.i32)
    p = {name: g.param(name, value.shape) for name, value in data.params.items()}
    layer = [p[k] for k in ("wi", "wh", "bi", "bh")]
    _, state = getattr(rlx.nn, kind)(x, None, [layer])
    h = state[0] if kind == "lstm" else state
    g.output("loss", rlx.softmax_cross_entropy(h[0] @ p["w"] + p["b"], y).mean())
    return RlxStep(g, rlx.optim.sgd(RATE))


def _jax_gru(jax: ModuleType, state: Any, gi: Any, gh: Any) -> Any:
    (ir, iz, ic), (hr, hz, hc) = (jax.numpy.split(g, 3, -1) for g in (gi, gh))
    r, z = jax.nn.sigmoid(ir + hr), jax.nn.sigmoid(iz + hz)
    return ((1 - z) * jax.numpy.tanh(ic + r * hc) + z * state[0],)


def _jax_lstm(jax: ModuleType, state: Any, gi: Any, gh: Any) -> Any:
    i, f, g, o = jax.numpy.split(gi + gh, 4, -1)
    c = jax.nn.sigmoid(f) * state[1] + jax.nn.sigmoid(i) * jax.numpy.tanh(g)
    return jax.nn.sigmoid(o) * jax.numpy.tanh(c), c


JAX: dict[str, tuple[int, Cell]] = {"gru": (1, _jax_gru), "lstm": (2, _jax_lstm)}


def jax_recurrent(jax: ModuleType, data: Data, kind: str) -> JaxStep:
    """The same loss and SGD step in JAX, by `lax.scan`."""
    states, cell = JAX[kind]

    def loss(p: dict[str, Any], x: Any, y: Any) -> Any:
        flat = x.reshape(STEPS * BATCH, INPUTS)
        gates = (flat @ p["wi"].T + p["bi"]).reshape(STEPS, BATCH, -1)

        def step(state: Any, gi: Any) -> Any:
            return cell(jax, state, gi, state[0] @ p["wh"].T + p["bh"]), None

        first = (jax.numpy.zeros((BATCH, WIDTH), np.float32),) * states
        state, _ = jax.lax.scan(step, first, gates)
        return jax_cross_entropy(jax, state[0] @ p["w"] + p["b"], y)

    return jax_sgd(jax, loss, data)


def torch_recurrent(torch: ModuleType, data: Data, functional: bool, kind: str) -> TorchStep:
    """The same loss and SGD step by PyTorch's own layer."""

    def loss(p: dict[str, Any], x: Any, y: Any) -> Any:
        first = torch.zeros(1, BATCH, WIDTH)
        weights = [p[k] for k in ("wi", "wh", "bi", "bh")]
        state = (first, first) if kind == "lstm" else first
        found = getattr(torch, kind)(x, state, weights, True, 1, 0.0, True, False, False)
        return torch.nn.functional.cross_entropy(
            torch.addmm(p["b"], found[1][0], p["w"]), y)

    return torch_sgd(torch, loss, data, functional)
