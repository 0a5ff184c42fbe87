"""A residual network on 3×32×32 images, batch 16: a stem, three stages of a block, linear.

A block is two 3×3 convolutions with group norm around a skip; stages have 32, 64 and 128 channels,
and the last two halve the image: the skip is then a 1×1 convolution of the same stride.
"""

from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.case import Arrays, Data, JaxStep, RlxStep, TorchStep, he_normal
from benchmarks.mlp import jax_cross_entropy
from benchmarks.sgd import RATE, jax_sgd, torch_sgd

BATCH, CLASSES, GROUPS, EPS = 16, 10, 8, 1e-5
CHANNELS = (32, 64, 128)


def data() -> Data:
    """Kernels [out, in, k, k], scales and shifts [C], images [16, 3, 32, 32] and labels."""
    rng = np.random.default_rng(0)
    params: Arrays = {}

    def layer(name: str, inner: int, outer: int) -> None:
        params[f"{name}.k"] = he_normal(rng, (outer, inner, 3, 3), 9 * inner)
        params[f"{name}.w"] = np.ones(outer, np.float32)
        params[f"{name}.b"] = np.zeros(outer, np.float32)

    layer("stem", 3, CHANNELS[0])
    before = CHANNELS[0]
    for stage, channels in enumerate(CHANNELS):
        layer(f"s{stage}.a", before, channels)
        layer(f"s{stage}.b", channels, channels)
        if channels != before:
            params[f"s{stage}.skip"] = he_normal(rng, (channels, before, 1, 1), before)
        before = channels
    params["head.w"] = he_normal(rng, (before, CLASSES), before)
    params["head.b"] = np.zeros(CLASSES, np.float32)
    x = rng.standard_normal((BATCH, 3, 32, 32)).astype(np.float32)
    y = rng.integers(0, CLASSES, BATCH).astype(np.int32)
    return Data(params, {"x": x, "y": y})


def rlx_step(rlx: ModuleType, data: Data) -> RlxStep:
    """The loss as a graph."""
    g = rlx.Graph("resnet")
    x = g.input("x", data.batch["x"].shape)
    y = g.input("y", data.batch["y"].shape, rlx.i32)
    p = {name: g.param(name, value.shape) for name, value in data.params.items()}

    def layer(h: Any, name: str, stride: int = 1) -> Any:
        h = rlx.nn.conv2d(h, p[f"{name}.k"], stride=stride, padding=1)
        return rlx.nn.group_norm(h, GROUPS, p[f"{name}.w"], p[f"{name}.b"], EPS)

    h = rlx.relu(layer(x, "stem"))
    for stage in range(len(CHANNELS)):
        stride = 2 if stage else 1
        skip = rlx.nn.conv2d(h, p[f"s{stage}.skip"], stride=stride) if stage else h
        h = rlx.relu(layer(h, f"s{stage}.a", stride))
        h = rlx.relu(layer(h, f"s{stage}.b") + skip)
    logits = h.mean((2, 3)) @ p["head.w"] + p["head.b"]
    g.output("loss", rlx.softmax_cross_entropy(logits, y).mean())
    return RlxStep(g, rlx.optim.sgd(RATE))


def jax_step(jax: ModuleType, data: Data) -> JaxStep:
    """The same loss and SGD step in JAX, in the NHWC layout that XLA's CPU convolution prefers."""

    def conv(h: Any, k: Any, stride: int, padding: int) -> Any:
        return jax.lax.conv_general_dilated(
            h,
            k.transpose(2, 3, 1, 0),
            (stride, stride),
            [(padding, padding)] * 2,
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )

    def layer(p: dict[str, Any], h: Any, name: str, stride: int = 1) -> Any:
        h = conv(h, p[f"{name}.k"], stride, 1)
        groups = h.reshape(*h.shape[:3], GROUPS, -1)
        mean = groups.mean((1, 2, 4), keepdims=True)
        variance = groups.var((1, 2, 4), keepdims=True)
        h = ((groups - mean) * jax.lax.rsqrt(variance + EPS)).reshape(h.shape)
        return h * p[f"{name}.w"] + p[f"{name}.b"]

    def loss(p: dict[str, Any], x: Any, y: Any) -> Any:
        h = jax.nn.relu(layer(p, x.transpose(0, 2, 3, 1), "stem"))
        for stage in range(len(CHANNELS)):
            stride = 2 if stage else 1
            skip = conv(h, p[f"s{stage}.skip"], stride, 0) if stage else h
            h = jax.nn.relu(layer(p, h, f"s{stage}.a", stride))
            h = jax.nn.relu(layer(p, h, f"s{stage}.b") + skip)
        return jax_cross_entropy(jax, h.mean((1, 2)) @ p["head.w"] + p["head.b"], y)

    return jax_sgd(jax, loss, data)


def torch_step(torch: ModuleType, data: Data, functional: bool) -> TorchStep:
    """The same loss and SGD step in PyTorch, channels last in memory, which is a tenth faster."""
    F = torch.nn.functional

    def layer(p: dict[str, Any], h: Any, name: str, stride: int = 1) -> Any:
        h = F.conv2d(h, p[f"{name}.k"], stride=stride, padding=1)
        return F.group_norm(h, GROUPS, p[f"{name}.w"], p[f"{name}.b"], EPS)

    def loss(p: dict[str, Any], x: Any, y: Any) -> Any:
        h = torch.relu(layer(p, x, "stem"))
        for stage in range(len(CHANNELS)):
            stride = 2 if stage else 1
            skip = F.conv2d(h, p[f"s{stage}.skip"], stride=stride) if stage else h
            h = torch.relu(layer(p, h, f"s{stage}.a", stride))
            h = torch.relu(layer(p, h, f"s{stage}.b") + skip)
        return F.cross_entropy(torch.addmm(p["head.b"], h.mean((2, 3)), p["head.w"]), y)

    step = torch_sgd(torch, loss, data, functional)
    layout = torch.channels_last
    step.batch["x"] = step.batch["x"].to(memory_format=layout)
    for p in step.params.values():
        if p.ndim == 4:
            p.data = p.data.to(memory_format=layout)
    return step
