"""State-space models against loops in NumPy, written from their formulas; orders, vmap, errors."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx_py as rlx
from rlx_py import nn
from rlx_py.ir.graph.evaluate import evaluate
from rlx_py.ir.nodes.node import OPS, Node
from support.sweep import assert_near

Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng([seed, *shape]).standard_normal(shape)


def uniform(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng([seed, *shape]).uniform(0.1, 0.9, shape)


def silu(z: Array) -> Array:
    return np.asarray(z / (1 + np.exp(-z)))


def selective_loop(u: Array, delta: Array, A: Array, B: Array, C: Array, D: Array | None = None,
                   z: Array | None = None) -> Array:
    y = np.zeros_like(u)
    for row in range(u.shape[0]):
        for channel in range(u.shape[2]):
            h = np.zeros(A.shape[1])
            for t in range(u.shape[1]):
                step = delta[row, t, channel]
                h = np.exp(step * A[channel]) * h + step * u[row, t, channel] * B[row, t]
                y[row, t, channel] = h @ C[row, t]
    y = y if D is None else y + D * u
    return y if z is None else y * silu(z)


def dual_loop(x: Array, dt: Array, A: Array, B: Array, C: Array, D: Array | None = None,
              z: Array | None = None) -> Array:
    y = np.zeros_like(x)
    share = x.shape[2] // B.shape[2]
    for row in range(x.shape[0]):
        for head in range(x.shape[2]):
            s = np.zeros((x.shape[3], B.shape[3]))
            for t in range(x.shape[1]):
                step, group = dt[row, t, head], head // share
                s = np.exp(step * A[head]) * s + step * np.outer(x[row, t, head], B[row, t, group])
                y[row, t, head] = s @ C[row, t, group]
    y = y if D is None else y + D[:, None] * x
    return y if z is None else y * silu(z)


def delta_loop(q: Array, k: Array, v: Array, g: Array, beta: Array, scale: float | None = None
               ) -> Array:
    y = np.zeros_like(v)
    share = v.shape[2] // q.shape[2]
    factor = q.shape[3] ** -0.5 if scale is None else scale
    for row in range(v.shape[0]):
        for head in range(v.shape[2]):
            s = np.zeros((v.shape[3], q.shape[3]))
            for t in range(v.shape[1]):
                key, b = k[row, t, head // share], beta[row, t, head]
                s = np.exp(g[row, t, head]) * s @ (np.eye(len(key)) - b * np.outer(key, key))
                s = s + b * np.outer(v[row, t, head], key)
                y[row, t, head] = factor * s @ q[row, t, head // share]
    return y


def selective_arrays(b: int, s: int, d: int, n: int) -> Arrays:
    return {"u": normal(b, s, d), "delta": uniform(b, s, d), "A": -uniform(d, n),
            "B": normal(b, s, n), "C": normal(b, s, n, seed=1), "D": normal(d),
            "z": normal(b, s, d, seed=2)}


def dual_arrays(b: int, s: int, h: int, n: int) -> Arrays:
    return {"x": normal(b, s, h, 3), "dt": uniform(b, s, h), "A": -uniform(h),
            "B": normal(b, s, h // 2, n), "C": normal(b, s, h // 2, n, seed=1), "D": normal(h),
            "z": normal(b, s, h, 3, seed=2)}


def delta_arrays(b: int, s: int, h: int, n: int) -> Arrays:
    return {"q": normal(b, s, h // 2, n), "k": normal(b, s, h // 2, n, seed=1) / 2,
            "v": normal(b, s, h, 3), "g": -uniform(b, s, h), "beta": uniform(b, s, h, seed=1)}


Model = tuple[Callable[..., Node], Callable[..., Array], Callable[..., Arrays]]
MODELS: dict[str, Model] = {
    "selective_scan": (nn.selective_scan, selective_loop, selective_arrays),
    "mamba2_ssd": (nn.mamba2_ssd, dual_loop, dual_arrays),
    "gated_delta_net": (nn.gated_delta_net, delta_loop, delta_arrays)}
models = pytest.mark.parametrize("name", MODELS)


def graph_of(name: str, arrays: Arrays) -> rlx.Graph:
    g = rlx.Graph(name)
    y = MODELS[name][0](**{k: g.param(k, a.shape, rlx.f64) for k, a in arrays.items()})
    g.output("y", y)
    g.output("loss", (y * normal(*y.shape, seed=9)).sum() + (y ** 2).sum())
    return g


@models
@pytest.mark.parametrize("steps", [0, 1, 2, 5])
def test_a_model_is_its_loop(name: str, steps: int) -> None:
    _, loop, make = MODELS[name]
    arrays = make(2, steps, 4, 3)
    found = evaluate(graph_of(name, arrays), arrays)["y"]
    np.testing.assert_allclose(found, loop(**arrays), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", ["selective_scan", "mamba2_ssd"])
@pytest.mark.parametrize("left_out", [("D",), ("z",), ("D", "z")], ids=str)
def test_parts_may_be_left_out(name: str, left_out: tuple[str, ...]) -> None:
    _, loop, make = MODELS[name]
    arrays = {k: a for k, a in make(3, 2, 2, 2).items() if k not in left_out}
    found = evaluate(graph_of(name, arrays), arrays)["y"]
    np.testing.assert_allclose(found, loop(**arrays), rtol=1e-12, atol=1e-13)


@models
def test_four_orders_are_differences_of_the_order_below(name: str) -> None:
    arrays = MODELS[name][2](1, 2, 2, 1)
    g = graph_of(name, arrays)
    rlx.check_grads(g, arrays, of="loss", order=2)
    for order in (3, 4):
        slopes = rlx.grad(g, of="loss").outputs.values()
        g = g.derive({"loss": sum(((n * normal(*n.shape, seed=order + i)).sum()
                                   for i, n in enumerate(slopes)), rlx.constant(np.array(0.0)))})
        rlx.check_grads(g, arrays, of="loss", order=1)


@models
def test_the_backward_op_is_that_of_the_first_order(name: str) -> None:
    arrays = MODELS[name][2](2, 3, 2, 2)
    g = rlx.value_and_grad(graph_of(name, arrays), of="loss")
    names = {n.op.name for n in g.nodes}
    assert {name, f"{name}_backward"} <= names and "scan" not in names
    scans = [n for n in rlx.simplify(rlx.decompose(g)).nodes if n.op is OPS["scan"]]
    assert len(scans) == 2  # the backward pass reads what the forward one made
    assert all(n.attrs["length"] == 3 for n in scans)


@models
def test_vmap_is_a_loop(name: str) -> None:
    arrays = MODELS[name][2](2, 3, 2, 2)
    whole = rlx.value_and_grad(graph_of(name, arrays), of="loss")
    first, third = list(arrays)[0], list(arrays)[2]
    for axes in ({first: 0}, {third: 0}, dict.fromkeys(arrays, 0)):
        many = {k: np.stack([arrays[k], 0.5 * arrays[k]]) for k in axes}
        each = [evaluate(whole, {**arrays, **{k: v[i] for k, v in many.items()}}) for i in range(2)]
        batched = rlx.vmap(whole, axes, size=2)
        found = evaluate(batched, {**arrays, **many})
        assert_near(dict(rlx.compile(batched)(**{**arrays, **many})), found, "native code", 10)
        for key in each[0]:
            np.testing.assert_allclose(found[key], np.stack([e[key] for e in each]), rtol=1e-12,
                                       atol=1e-13)


@models
def test_long_sequences_are_the_oracle_in_native_code(name: str) -> None:
    arrays = MODELS[name][2](3, 150, 6, 20)
    if "k" in arrays:  # of length 1 and less, for which the rule does not grow
        arrays["k"] /= np.maximum(np.linalg.norm(arrays["k"], axis=-1, keepdims=True), 1)
    g = rlx.value_and_grad(graph_of(name, arrays), of="loss")
    wanted = evaluate(g, arrays)
    for threads in (1, 2):
        assert_near(dict(rlx.compile(g, threads=threads)(**arrays)), wanted, "native code", 100)


@models
def test_no_rows_are_the_oracle_in_native_code(name: str) -> None:
    """Stacks of several steps without elements."""
    arrays = MODELS[name][2](0, 3, 4, 2)
    g = rlx.value_and_grad(graph_of(name, arrays), of="loss")
    assert_near(dict(rlx.compile(g)(**arrays)), evaluate(g, arrays))


def test_heads_of_a_group_share_its_keys() -> None:
    """Groups written out for each head give the same."""
    arrays = dual_arrays(2, 4, 4, 3)
    wide = {**arrays, **{k: np.repeat(arrays[k], 2, axis=2) for k in ("B", "C")}}
    np.testing.assert_allclose(evaluate(graph_of("mamba2_ssd", arrays), arrays)["y"],
                               evaluate(graph_of("mamba2_ssd", wide), wide)["y"], rtol=1e-13)


def test_a_delta_net_without_correction_is_a_dual() -> None:
    """Orthogonal keys are never corrected: then both rules take up the same."""
    keys = np.eye(4)[None, :, None]
    q, v = normal(1, 4, 1, 4), normal(1, 4, 1, 3)
    g, beta = -uniform(1, 4, 1), uniform(1, 4, 1, seed=1)
    graph = rlx.Graph()
    graph.output("delta", nn.gated_delta_net(q, keys, v, g, beta, scale=1.0))
    graph.output("dual", nn.mamba2_ssd(v * (beta / -g)[..., None], -g, -np.ones(1), keys, q))
    found = evaluate(graph, {})
    np.testing.assert_allclose(found["delta"], found["dual"], rtol=1e-12)


ONES = np.ones
BAD = [
    (lambda: nn.selective_scan(ONES((2, 3)), 1.0, ONES((2, 2)), 1.0, 1.0), "u is [B, L, D]"),
    (lambda: nn.selective_scan(ONES((2, 3, 4)), ONES((2, 3, 4)), ONES(4), ONES((2, 3, 2)),
                               ONES((2, 3, 2))), "A is [D, N]"),
    (lambda: nn.selective_scan(ONES((2, 3, 4)), ONES((2, 3, 4)), ONES((4, 2)), ONES((2, 3, 3)),
                               ONES((2, 3, 2))), "B must have shape"),
    (lambda: nn.selective_scan(ONES((2, 3, 4)), ONES((2, 3, 4)), ONES((4, 2)), ONES((2, 3, 2)),
                               ONES((2, 3, 2)), ONES(3)), "d must have shape"),
    (lambda: nn.mamba2_ssd(ONES((2, 3, 4)), ONES((2, 3, 4)), ONES(4), ONES((2, 3, 1, 2)),
                           ONES((2, 3, 1, 2))), "x is [B, L, H, P]"),
    (lambda: nn.mamba2_ssd(ONES((2, 3, 4, 1)), ONES((2, 3, 4)), ONES(4), ONES((2, 3, 3, 2)),
                           ONES((2, 3, 3, 2))), "3 groups do not divide 4 heads"),
    (lambda: nn.mamba2_ssd(ONES((2, 3, 4, 1)), ONES((2, 3, 4)), ONES(4), ONES((2, 3, 2, 2)),
                           ONES((2, 3, 2, 2)), z=ONES((2, 3, 4))), "z must have shape"),
    (lambda: nn.gated_delta_net(ONES((2, 3, 2, 1)), ONES((2, 3, 1, 1)), ONES((2, 3, 2, 1)),
                                ONES((2, 3, 2)), ONES((2, 3, 2))), "k must have shape"),
    (lambda: nn.gated_delta_net(ONES((2, 3, 0, 1)), ONES((2, 3, 0, 1)), ONES((2, 3, 2, 1)),
                                ONES((2, 3, 2)), ONES((2, 3, 2))), "0 groups do not divide"),
]


@pytest.mark.parametrize("call,message", BAD)
def test_bad_shapes_are_refused_at_the_users_line(call: Any, message: str) -> None:
    with pytest.raises(rlx.ShapeError, match=re.escape(message)) as caught:
        call()
    assert __file__ in str(caught.value)


def test_bad_types_and_scales_are_refused() -> None:
    whole = ONES((1, 1, 1, 1), int)
    with pytest.raises(rlx.DTypeError):
        nn.gated_delta_net(whole, whole, whole, whole[0], whole[0], 1.0)
    with pytest.raises(rlx.ArgumentError, match="finite"):
        nn.gated_delta_net(ONES((1, 1, 1, 1)), ONES((1, 1, 1, 1)), ONES((1, 1, 1, 1)),
                           ONES((1, 1, 1)), ONES((1, 1, 1)), float("nan"))
