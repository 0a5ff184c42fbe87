"""The relu MLP classifier that several cases share; its sizes come from the parameters."""

from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.case import Data, JaxStep, RlxStep, TorchStep, he_normal
from benchmarks.sgd import RATE, Loss, jax_sgd, torch_sgd


def mlp_data(sizes: tuple[int, ...], batch: int, seed: int = 0) -> Data:
    """Weights `w1 [in, out]`, biases `b1 [out]`, …; inputs `x [batch, in]`, labels `y [batch]`."""
    rng = np.random.default_rng(seed)
    params = {}
    for i, (n, m) in enumerate(zip(sizes, sizes[1:], strict=False), start=1):
        params[f"w{i}"] = he_normal(rng, (n, m), n)
        params[f"b{i}"] = np.zeros(m, np.float32)
    x = rng.standard_normal((batch, sizes[0])).astype(np.float32)
    y = rng.integers(0, sizes[-1], batch).astype(np.int32)
    return Data(params, {"x": x, "y": y})


def rlx_step(rlx: ModuleType, data: Data) -> RlxStep:
    """Mean softmax cross-entropy of the MLP as a graph."""
    g = rlx.Graph("mlp")
    x = g.input("x", data.batch["x"].shape)
    y = g.input("y", data.batch["y"].shape, rlx.i32)
    p = {name: g.param(name, value.shape) for name, value in data.params.items()}
    depth = len(p) // 2
    h = x
    for i in range(1, depth):
        h = rlx.relu(h @ p[f"w{i}"] + p[f"b{i}"])
    logits = h @ p[f"w{depth}"] + p[f"b{depth}"]
    g.output("loss", rlx.softmax_cross_entropy(logits, y).mean())
    return RlxStep(g, rlx.optim.sgd(RATE))


def jax_step(jax: ModuleType, data: Data) -> JaxStep:
    """The same loss and SGD step in JAX."""
    return jax_sgd(jax, jax_loss(jax, len(data.params) // 2), data)


def jax_loss(jax: ModuleType, depth: int) -> Loss:
    """The loss of params and a batch in JAX."""
    def loss(p: dict[str, Any], x: Any, y: Any) -> Any:
        h = x
        for i in range(1, depth):
            h = jax.nn.relu(h @ p[f"w{i}"] + p[f"b{i}"])
        return jax_cross_entropy(jax, h @ p[f"w{depth}"] + p[f"b{depth}"], y)

    return loss


def torch_step(torch: ModuleType, data: Data, functional: bool) -> TorchStep:
    """The same loss and SGD step in PyTorch."""
    return torch_sgd(torch, torch_loss(torch, len(data.params) // 2), data, functional)


def torch_loss(torch: ModuleType, depth: int) -> Loss:
    """The loss of params and a batch in PyTorch."""
    def loss(p: dict[str, Any], x: Any, y: Any) -> Any:
        h = x
        for i in range(1, depth):
            h = torch.relu(torch.addmm(p[f"b{i}"], h, p[f"w{i}"]))
        logits = torch.addmm(p[f"b{depth}"], h, p[f"w{depth}"])
        return torch.nn.functional.cross_entropy(logits, y)

    return loss


def jax_cross_entropy(jax: ModuleType, logits: Any, labels: Any) -> Any:
    """Mean of −log softmax(logits)[label] over the rows of `logits [N, C]`."""
    log_p = jax.nn.log_softmax(logits)
    return -jax.numpy.take_along_axis(log_p, labels[:, None], axis=1).mean()
