"""A LeNet-like network on 1×28×28 images, batch 32: two of conv 5×5, relu, max pool 2×2; linear."""

from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.case import Data, JaxStep, RlxStep, TorchStep, he_normal
from benchmarks.mlp import jax_cross_entropy
from benchmarks.sgd import RATE, jax_sgd, torch_sgd

BATCH = 32


def data() -> Data:
    """Kernels [out, in, 5, 5], the linear layer [512, 10], images [32, 1, 28, 28] and labels."""
    rng = np.random.default_rng(0)
    params = {
        "k1": he_normal(rng, (16, 1, 5, 5), 25),
        "b1": np.zeros(16, np.float32),
        "k2": he_normal(rng, (32, 16, 5, 5), 400),
        "b2": np.zeros(32, np.float32),
        "w3": he_normal(rng, (512, 10), 512),
        "b3": np.zeros(10, np.float32),
    }
    x = rng.standard_normal((BATCH, 1, 28, 28)).astype(np.float32)
    y = rng.integers(0, 10, BATCH).astype(np.int32)
    return Data(params, {"x": x, "y": y})


def rlx_step(rlx: ModuleType, data: Data) -> RlxStep:
    """The loss as a graph."""
    g = rlx.Graph("cnn")
    x = g.input("x", data.batch["x"].shape)
    y = g.input("y", data.batch["y"].shape, rlx.i32)
    p = {name: g.param(name, value.shape) for name, value in data.params.items()}
    h = rlx.nn.max_pool2d(rlx.relu(rlx.nn.conv2d(x, p["k1"], p["b1"])), 2)
    h = rlx.nn.max_pool2d(rlx.relu(rlx.nn.conv2d(h, p["k2"], p["b2"])), 2)
    logits = h.reshape(BATCH, 512) @ p["w3"] + p["b3"]
    g.output("loss", rlx.softmax_cross_entropy(logits, y).mean())
    return RlxStep(g, rlx.optim.sgd(RATE))


def jax_step(jax: ModuleType, data: Data) -> JaxStep:
    """The same loss and SGD step in JAX, in the NHWC layout that XLA's CPU convolution prefers."""

    def layer(h: Any, k: Any, b: Any) -> Any:
        kernel = k.transpose(2, 3, 1, 0)
        h = jax.lax.conv_general_dilated(
            h, kernel, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        h = jax.nn.relu(h + b)
        # XLA's reduce_window has a slow gradient on the CPU; a maximum over a reshape is faster.
        # Its gradient differs from max pooling's at ties only, which here are zeros of the relu.
        n, height, width, channels = h.shape
        return h.reshape(n, height // 2, 2, width // 2, 2, channels).max(axis=(2, 4))

    def loss(p: dict[str, Any], x: Any, y: Any) -> Any:
        h = layer(x.transpose(0, 2, 3, 1), p["k1"], p["b1"])
        h = layer(h, p["k2"], p["b2"]).transpose(0, 3, 1, 2).reshape(BATCH, 512)
        return jax_cross_entropy(jax, h @ p["w3"] + p["b3"], y)

    return jax_sgd(jax, loss, data)


def torch_step(torch: ModuleType, data: Data, functional: bool) -> TorchStep:
    """The same loss and SGD step in PyTorch."""
    F = torch.nn.functional

    def loss(p: dict[str, Any], x: Any, y: Any) -> Any:
        h = F.max_pool2d(torch.relu(F.conv2d(x, p["k1"], p["b1"])), 2)
        h = F.max_pool2d(torch.relu(F.conv2d(h, p["k2"], p["b2"])), 2)
        return F.cross_entropy(torch.addmm(p["b3"], h.reshape(BATCH, 512), p["w3"]), y)

    return torch_sgd(torch, loss, data, functional)
