"""Second-order MAML on sines (Finn et al., 2017): 16 tasks, a 1-40-40-1 tanh MLP, 5 inner steps.

Each task adapts the shared parameters by 5 SGD steps on its 10 support points; the outer loss is
the adapted networks' mean squared error on 10 query points each.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.case import Data, JaxStep, RlxStep, TorchStep
from benchmarks.sgd import RATE, jax_sgd, torch_sgd

TASKS, SHOTS, INNER_STEPS, INNER_RATE = 16, 10, 5, 0.01
SIZES = (1, 40, 40, 1)


def data() -> Data:
    """Shared parameters; support and query points [tasks, shots, 1] of sines A·sin(x + φ)."""
    rng = np.random.default_rng(0)
    params = {}
    for i, (n, m) in enumerate(zip(SIZES, SIZES[1:], strict=False), start=1):
        params[f"w{i}"] = (rng.standard_normal((n, m)) / np.sqrt(n)).astype(np.float32)
        params[f"b{i}"] = np.zeros(m, np.float32)
    amplitude = rng.uniform(0.1, 5.0, (TASKS, 1, 1))
    phase = rng.uniform(0.0, np.pi, (TASKS, 1, 1))
    batch = {}
    for role in ("support", "query"):
        x = rng.uniform(-5.0, 5.0, (TASKS, SHOTS, 1))
        batch[f"{role}_x"] = x.astype(np.float32)
        batch[f"{role}_y"] = (amplitude * np.sin(x + phase)).astype(np.float32)
    return Data(params, batch)


def network(tanh: Callable[[Any], Any], p: dict[str, Any], x: Any) -> Any:
    """The MLP; with a leading task axis on both, every product is a batched one."""
    h = tanh(x @ p["w1"] + p["b1"])
    h = tanh(h @ p["w2"] + p["b2"])
    return h @ p["w3"] + p["b3"]


def task_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a parameter with one copy per task, aligned to [task, shot, unit]."""
    return (TASKS, *(1,) * (2 - len(shape)), *shape)


def rlx_step(rlx: ModuleType, data: Data) -> RlxStep:
    """The outer loss as a graph; the inner gradient is a graph of its own, called 5 times."""
    inner = rlx.Graph("inner")
    x, y = (inner.input(name, (TASKS, SHOTS, 1)) for name in ("x", "y"))
    p = {name: inner.param(name, task_shape(value.shape)) for name, value in data.params.items()}
    error = network(rlx.tanh, p, x) - y
    # Summed over the tasks: each task's copy then gets the gradient of its own mean.
    inner.output("loss", (error * error).mean(axis=(1, 2)).sum())
    inner_grad = rlx.grad(inner, of="loss")

    g = rlx.Graph("maml")
    batch = {name: g.input(name, value.shape) for name, value in data.batch.items()}
    adapted = {
        name: rlx.broadcast_to(g.param(name, value.shape), task_shape(value.shape))
        for name, value in data.params.items()
    }
    for _ in range(INNER_STEPS):
        grads = g.call(inner_grad, x=batch["support_x"], y=batch["support_y"], **adapted)
        adapted = {name: w - INNER_RATE * grads[f"grad_{name}"] for name, w in adapted.items()}
    error = network(rlx.tanh, adapted, batch["query_x"]) - batch["query_y"]
    g.output("loss", (error * error).mean())
    return RlxStep(g, rlx.optim.sgd(RATE))


def jax_step(jax: ModuleType, data: Data) -> JaxStep:
    """The same outer loss and SGD step in JAX: one task's adaptation under vmap."""

    def task_loss(p: dict[str, Any], x: Any, y: Any) -> Any:
        error = network(jax.numpy.tanh, p, x) - y
        return (error * error).mean()

    def adapted_loss(p: dict[str, Any], sx: Any, sy: Any, qx: Any, qy: Any) -> Any:
        for _ in range(INNER_STEPS):
            grads = jax.grad(task_loss)(p, sx, sy)
            p = jax.tree.map(lambda w, g: w - INNER_RATE * g, p, grads)
        return task_loss(p, qx, qy)

    def loss(p: dict[str, Any], support_x: Any, support_y: Any, query_x: Any, query_y: Any) -> Any:
        over_tasks = jax.vmap(adapted_loss, in_axes=(None, 0, 0, 0, 0))
        return over_tasks(p, support_x, support_y, query_x, query_y).mean()

    return jax_sgd(jax, loss, data)


def torch_step(torch: ModuleType, data: Data, functional: bool) -> TorchStep:
    """The same outer loss and SGD step in PyTorch, its tasks batched by hand.

    baddbmm makes fewer operations than `@` and `+`, and eager steps cost by the operation.
    """

    def predict(p: dict[str, Any], x: Any) -> Any:
        if functional:
            return network(torch.tanh, p, x)
        h = torch.tanh(torch.baddbmm(p["b1"], x, p["w1"]))
        h = torch.tanh(torch.baddbmm(p["b2"], h, p["w2"]))
        return torch.baddbmm(p["b3"], h, p["w3"])

    def inner_loss(p: dict[str, Any], x: Any, y: Any) -> Any:
        return (predict(p, x) - y).square().mean(dim=(1, 2)).sum()

    def inner_grads(p: dict[str, Any], x: Any, y: Any) -> dict[str, Any]:
        if functional:
            grads: dict[str, Any] = torch.func.grad(inner_loss)(p, x, y)
            return grads
        value = inner_loss(p, x, y)
        return dict(
            zip(p, torch.autograd.grad(value, list(p.values()), create_graph=True), strict=True)
        )

    def loss(p: dict[str, Any], support_x: Any, support_y: Any, query_x: Any, query_y: Any) -> Any:
        adapted = {name: w.expand(task_shape(w.shape)) for name, w in p.items()}
        for _ in range(INNER_STEPS):
            grads = inner_grads(adapted, support_x, support_y)
            adapted = {name: w - INNER_RATE * grads[name] for name, w in adapted.items()}
        return (predict(adapted, query_x) - query_y).square().mean()

    return torch_sgd(torch, loss, data, functional)
