"""Attention against PyTorch and JAX: values, and gradients of a random combination of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from peers.peer import F64_F32, jax, jnp, torch
from rlx_py import nn
from rlx_py.ir.graph.evaluate import evaluate
from rlx_py.ir.graph.graph import Graph
from rlx_py.ir.nodes.node import Node
from rlx_py.passes.derive.vjp import vjp

Array = np.ndarray[Any, Any]
sdpa = torch.nn.functional.scaled_dot_product_attention


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng([seed, *shape]).standard_normal(shape)


def keep(*shape: int) -> Array:
    """Some keys of each query, and none of the first."""
    found = np.random.default_rng(1).random(shape) > 0.4
    found[..., -1] = True
    found[..., 0, :] = False
    return found


def ours(f: Callable[..., Node], arrays: list[Array], weights: Array) -> list[Array]:
    g = Graph("ours")
    y = f(*(g.input(f"x{i}", a.shape, a.dtype) for i, a in enumerate(arrays)))
    g.output("y", y)
    wrt = [f"x{i}" for i in range(len(arrays))]
    feed = dict(zip(wrt, arrays, strict=True))
    grads = evaluate(vjp(g, wrt), {**feed, "ct_y": weights})
    return [evaluate(g, feed)["y"], *(grads[f"grad_{k}"] for k in wrt)]


def by_torch(f: Callable[..., Any], arrays: list[Array], weights: Array) -> list[Array]:
    inputs = [torch.tensor(a, requires_grad=True) for a in arrays]
    y = f(*inputs)
    (y * torch.tensor(weights)).sum().backward()
    return [y.detach().numpy(), *(x.grad.numpy() for x in inputs)]


def by_jax(f: Callable[..., Any], arrays: list[Array], weights: Array) -> list[Array]:
    y, pull = jax.vjp(f, *map(jnp.asarray, arrays))
    return [np.asarray(y), *map(np.asarray, pull(jnp.asarray(weights)))]


def assert_near(found: list[Array], want: list[Array], dtype: Any) -> None:
    eps = 1e-11 if dtype is np.float64 else 2e-5
    for a, b in zip(found, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=eps, atol=eps)


# Shapes of query, key and value; attn_mask; options.
CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], Any, dict[str, Any]]] = {
    "heads": ((2, 3, 4, 5), (2, 3, 6, 5), (2, 3, 6, 2), None, {}),
    "scale": ((2, 3, 4, 5), (2, 3, 6, 5), (2, 3, 6, 2), None, {"scale": 0.3}),
    "matrix": ((4, 5), (6, 5), (6, 2), None, {}),
    "batch": ((2, 4, 5), (2, 6, 5), (2, 6, 2), None, {"is_causal": True}),
    "five": ((2, 3, 1, 4, 5), (2, 3, 1, 6, 5), (2, 3, 1, 6, 2), None, {}),
    "causal": ((2, 3, 4, 5), (2, 3, 4, 5), (2, 3, 4, 5), None, {"is_causal": True}),
    "causal_cross": ((2, 3, 6, 5), (2, 3, 4, 5), (2, 3, 4, 5), None, {"is_causal": True}),
    "gqa": ((2, 6, 4, 5), (2, 3, 6, 5), (2, 3, 6, 2), None, {"enable_gqa": True}),
    "mask": ((2, 3, 4, 5), (2, 3, 6, 5), (2, 3, 6, 2), keep(4, 6), {}),
    "mask_heads": ((2, 3, 4, 5), (2, 3, 6, 5), (2, 3, 6, 2), keep(3, 4, 6), {}),
    "mask_batch": ((2, 3, 4, 5), (2, 3, 6, 5), (2, 3, 6, 2), keep(2, 1, 4, 6), {}),
    "mask_five": ((2, 2, 3, 4, 5), (2, 2, 3, 6, 5), (2, 2, 3, 6, 2), keep(2, 1, 1, 4, 6), {}),
    "bias": ((2, 3, 4, 5), (2, 3, 6, 5), (2, 3, 6, 2), normal(3, 4, 6, seed=9), {}),
    "bias_three": ((2, 4, 5), (2, 6, 5), (2, 6, 2), normal(2, 4, 6, seed=9), {}),
    "bias_row": ((2, 4, 5), (2, 6, 5), (2, 6, 2), normal(6, seed=9), {}),
}


@F64_F32
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_scaled_dot_product_attention(case: Any, dtype: Any) -> None:
    q, k, v, mask, options = case
    arrays = [normal(*shape, seed=i).astype(dtype) for i, shape in enumerate((q, k, v))]
    if mask is not None and mask.dtype != bool:
        arrays.append(mask.astype(dtype))
        mask = None
    weights = normal(*q[:-1], v[-1], seed=8).astype(dtype)

    def a(q: Any, k: Any, v: Any, bias: Any = mask) -> Node:
        return nn.scaled_dot_product_attention(q, k, v, bias, **options)

    def b(q: Any, k: Any, v: Any, bias: Any = mask) -> Any:
        return sdpa(q, k, v, torch.tensor(bias) if bias is mask and mask is not None else bias,
                    **options)

    assert_near(ours(a, arrays, weights), by_torch(b, arrays, weights), dtype)


@pytest.mark.parametrize("left,options", [
    (None, {"mask": "causal"}), ((2, 0), {"mask": "sliding_window", "window": 3})])
def test_masks_by_rule(left: Any, options: dict[str, Any]) -> None:
    """JAX has the heads behind the positions, windows without the query itself, and f32 inside."""
    arrays = [normal(2, n, 5, 4, seed=i) for i, n in enumerate((4, 2, 2))]
    weights = normal(2, 4, 5, 4, seed=8)

    def theirs(*x: Any) -> Any:
        swapped = (jnp.swapaxes(a, 1, 2) for a in x)
        return jnp.swapaxes(jax.nn.dot_product_attention(
            *swapped, is_causal=left is None, local_window_size=left), 1, 2)

    assert_near(ours(lambda *x: nn.attention(*x, **options), arrays, weights),
                by_jax(theirs, arrays, weights), np.float32)


def test_batched_products() -> None:
    a, b, weights = normal(3, 4, 5), normal(3, 5, 2), normal(3, 4, 2)
    assert_near(ours(nn.bmm, [a, b], weights), by_torch(torch.bmm, [a, b], weights), np.float64)
