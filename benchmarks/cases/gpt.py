"""A decoder-only transformer: 2 layers, width 128, 4 heads, 64 tokens, batch 8, vocabulary 512.

Pre-norm blocks, causal attention, an MLP of 4 × the width with gelu (tanh), learned positions, and
the embedding's transpose as the last layer.
"""

from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.case import Arrays, Data, JaxStep, RlxStep, TorchStep
from benchmarks.mlp import jax_cross_entropy
from benchmarks.sgd import RATE, jax_sgd, torch_sgd

LAYERS, WIDTH, HEADS, TOKENS, BATCH, VOCABULARY = 2, 128, 4, 64, 8, 512
EPS = 1e-5


def data() -> Data:
    """Tables [V, D], [T, D], weights [in, out], biases, norms [D]; tokens and labels [8, 64]."""
    rng = np.random.default_rng(0)
    params: Arrays = {}

    def normal(*shape: int) -> Any:
        return rng.normal(0, 0.1, shape).astype(np.float32)

    def norm(name: str) -> None:
        params[f"{name}.w"] = np.ones(WIDTH, np.float32)
        params[f"{name}.b"] = np.zeros(WIDTH, np.float32)

    def linear(name: str, inner: int, outer: int) -> None:
        params[f"{name}.w"] = normal(inner, outer)
        params[f"{name}.b"] = np.zeros(outer, np.float32)

    params["embed"] = normal(VOCABULARY, WIDTH)
    params["places"] = normal(TOKENS, WIDTH)
    for n in range(LAYERS):
        norm(f"l{n}.norm1")
        linear(f"l{n}.qkv", WIDTH, 3 * WIDTH)
        linear(f"l{n}.out", WIDTH, WIDTH)
        norm(f"l{n}.norm2")
        linear(f"l{n}.up", WIDTH, 4 * WIDTH)
        linear(f"l{n}.down", 4 * WIDTH, WIDTH)
    norm("norm")
    tokens = rng.integers(0, VOCABULARY, (BATCH, TOKENS + 1)).astype(np.int32)
    x, y = np.ascontiguousarray(tokens[:, :-1]), np.ascontiguousarray(tokens[:, 1:])
    return Data(params, {"x": x, "y": y})


def rlx_step(rlx: ModuleType, data: Data) -> RlxStep:
    """The loss as a graph."""
    g = rlx.Graph("gpt")
    x = g.input("x", data.batch["x"].shape, rlx.i32)
    y = g.input("y", data.batch["y"].shape, rlx.i32)
    p = {name: g.param(name, value.shape) for name, value in data.params.items()}

    def norm(h: Any, name: str) -> Any:
        return rlx.nn.layer_norm(h, (WIDTH,), p[f"{name}.w"], p[f"{name}.b"], EPS)

    def linear(h: Any, name: str) -> Any:
        return h @ p[f"{name}.w"] + p[f"{name}.b"]

    h = rlx.nn.embedding(x, p["embed"]) + p["places"]
    for n in range(LAYERS):
        qkv = linear(norm(h, f"l{n}.norm1"), f"l{n}.qkv")
        q, k, v = (qkv[:, :, i * WIDTH : (i + 1) * WIDTH] for i in range(3))
        h = h + linear(rlx.nn.attention(q, k, v, mask="causal", num_heads=HEADS), f"l{n}.out")
        up = rlx.nn.gelu(linear(norm(h, f"l{n}.norm2"), f"l{n}.up"), "tanh")
        h = h + linear(up, f"l{n}.down")
    logits = norm(h, "norm") @ p["embed"].T
    g.output("loss", rlx.softmax_cross_entropy(logits, y).mean())
    return RlxStep(g, rlx.optim.sgd(RATE))


def jax_step(jax: ModuleType, data: Data) -> JaxStep:
    """The same loss and SGD step in JAX."""
    jnp = jax.numpy

    def norm(p: dict[str, Any], h: Any, name: str) -> Any:
        mean, variance = h.mean(-1, keepdims=True), h.var(-1, keepdims=True)
        return (h - mean) * jax.lax.rsqrt(variance + EPS) * p[f"{name}.w"] + p[f"{name}.b"]

    def linear(p: dict[str, Any], h: Any, name: str) -> Any:
        return h @ p[f"{name}.w"] + p[f"{name}.b"]

    def attention(qkv: Any) -> Any:
        q, k, v = qkv.reshape(BATCH, TOKENS, 3, HEADS, -1).transpose(2, 0, 3, 1, 4)
        scores = q @ k.swapaxes(-1, -2) / np.float32(np.sqrt(WIDTH // HEADS))
        seen = jnp.tril(jnp.ones((TOKENS, TOKENS), bool))
        weights = jax.nn.softmax(jnp.where(seen, scores, -jnp.inf))
        return (weights @ v).transpose(0, 2, 1, 3).reshape(BATCH * TOKENS, WIDTH)

    def loss(p: dict[str, Any], x: Any, y: Any) -> Any:
        # XLA's CPU products of rank 2 are the fast ones, so batch and tokens are one axis.
        h = (p["embed"][x] + p["places"]).reshape(BATCH * TOKENS, WIDTH)
        for n in range(LAYERS):
            mixed = attention(linear(p, norm(p, h, f"l{n}.norm1"), f"l{n}.qkv"))
            h = h + linear(p, mixed, f"l{n}.out")
            up = jax.nn.gelu(linear(p, norm(p, h, f"l{n}.norm2"), f"l{n}.up"), approximate=True)
            h = h + linear(p, up, f"l{n}.down")
        return jax_cross_entropy(jax, norm(p, h, "norm") @ p["embed"].T, y.reshape(-1))

    return jax_sgd(jax, loss, data)


def torch_step(torch: ModuleType, data: Data, functional: bool) -> TorchStep:
    """The same loss and SGD step in PyTorch."""
    F = torch.nn.functional

    def norm(p: dict[str, Any], h: Any, name: str) -> Any:
        return F.layer_norm(h, (WIDTH,), p[f"{name}.w"], p[f"{name}.b"], EPS)

    def linear(p: dict[str, Any], h: Any, name: str) -> Any:
        return torch.addmm(p[f"{name}.b"], h, p[f"{name}.w"])

    def attention(qkv: Any) -> Any:
        q, k, v = qkv.view(BATCH, TOKENS, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return mixed.transpose(1, 2).reshape(BATCH * TOKENS, WIDTH)

    def loss(p: dict[str, Any], x: Any, y: Any) -> Any:
        h = (F.embedding(x, p["embed"]) + p["places"]).view(BATCH * TOKENS, WIDTH)
        for n in range(LAYERS):
            mixed = attention(linear(p, norm(p, h, f"l{n}.norm1"), f"l{n}.qkv"))
            h = h + linear(p, mixed, f"l{n}.out")
            up = F.gelu(linear(p, norm(p, h, f"l{n}.norm2"), f"l{n}.up"), approximate="tanh")
            h = h + linear(p, up, f"l{n}.down")
        return F.cross_entropy(norm(p, h, "norm") @ p["embed"].T, y.view(-1))

    return torch_sgd(torch, loss, data, functional)
