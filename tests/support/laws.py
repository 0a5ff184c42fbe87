"""The laws that every differentiable op obeys, checked on a function of nodes and its arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlx_py.ir.graph.evaluate import evaluate
from rlx_py.ir.graph.graph import Graph
from rlx_py.ir.nodes.node import Node
from rlx_py.passes.derive.jvp import hvp, jvp
from rlx_py.passes.derive.vjp import grad, vjp

Array = np.ndarray[Any, Any]
Function = Callable[..., Node]


def graph_of(function: Function, arrays: Sequence[Array]) -> Graph:
    """One output y of inputs x0, x1 …"""
    g = Graph("law")
    nodes = [g.input(f"x{i}", a.shape, a.dtype) for i, a in enumerate(arrays)]
    g.output("y", function(*nodes))
    return g


def value(function: Function, *arrays: Array) -> Array:
    """The function's value on arrays."""
    return evaluate(graph_of(function, arrays), named(arrays))["y"]


def named(arrays: Sequence[Array], prefix: str = "x") -> dict[str, Array]:
    """Arrays by the names of their leaves."""
    return {f"{prefix}{i}": a for i, a in enumerate(arrays)}


def floats(arrays: Sequence[Array]) -> list[str]:
    """The names of the leaves that have a gradient."""
    return [f"x{i}" for i, a in enumerate(arrays) if a.dtype.kind == "f"]


def inner(a: dict[str, Array], b: dict[str, Any]) -> float:
    """Σ a·b over matching names, in f64."""
    return float(sum(np.sum(a[k].astype(np.float64) * b[k]) for k in a))


def check_transpose(function: Function, arrays: Sequence[Array], rng: np.random.Generator,
                    tolerance: float = 1e-10) -> None:
    """⟨ct, J t⟩ = ⟨Jᵀ ct, t⟩."""
    g, wrt, feed = graph_of(function, arrays), floats(arrays), named(arrays)
    y = g.outputs["y"]
    t = {k: rng.standard_normal(feed[k].shape) for k in wrt}
    ct = rng.standard_normal(y.shape)
    forward = evaluate(jvp(g, wrt), {**feed, **{f"t_{k}": v for k, v in t.items()}})["t_y"]
    back = evaluate(vjp(g, wrt), {**feed, "ct_y": ct})
    left = float(np.sum(ct * forward))
    right = inner({k: back[f"grad_{k}"] for k in wrt}, t)
    np.testing.assert_allclose(left, right, rtol=tolerance, atol=tolerance)


def weighted(function: Function, arrays: Sequence[Array], weights: Array) -> Graph:
    """A scalar of the function: Σ weights·y."""
    g = graph_of(function, arrays)
    from_y = g.outputs["y"]
    g.output("loss", (from_y * weights).sum())
    return g


def check_gradient(function: Function, arrays: Sequence[Array], rng: np.random.Generator,
                   step: float = 1e-6, tolerance: float = 1e-6) -> None:
    """The gradient of Σ weights·y along a direction is the central difference there."""
    weights = rng.standard_normal(graph_of(function, arrays).outputs["y"].shape)
    g, wrt, feed = weighted(function, arrays, weights), floats(arrays), named(arrays)
    t = {k: rng.standard_normal(feed[k].shape) for k in wrt}
    found = evaluate(grad(g, "loss", wrt), feed)
    ends = [evaluate(g, {**feed, **{k: feed[k] + s * t[k] for k in wrt}})["loss"]
            for s in (step, -step)]
    np.testing.assert_allclose(inner({k: found[f"grad_{k}"] for k in wrt}, t),
                               (ends[0] - ends[1]) / (2 * step), rtol=tolerance, atol=tolerance)


def check_second_order(function: Function, arrays: Sequence[Array], rng: np.random.Generator,
                       step: float = 1e-6, tolerance: float = 1e-5) -> None:
    """The Hessian of Σ weights·y² times a vector is the central difference of the gradient."""
    weights = rng.standard_normal(graph_of(function, arrays).outputs["y"].shape)

    def squared(*nodes: Node) -> Node:
        y = function(*nodes)
        return y * y

    g, wrt, feed = weighted(squared, arrays, weights), floats(arrays), named(arrays)
    v = {k: rng.standard_normal(feed[k].shape) for k in wrt}
    found = evaluate(hvp(g, "loss", wrt), {**feed, **{f"v_{k}": a for k, a in v.items()}})
    first = grad(g, "loss", wrt)
    ends = [evaluate(first, {**feed, **{k: feed[k] + s * v[k] for k in wrt}})
            for s in (step, -step)]
    for k in wrt:
        slope = (ends[0][f"grad_{k}"] - ends[1][f"grad_{k}"]) / (2 * step)
        np.testing.assert_allclose(found[f"hvp_{k}"], slope, rtol=tolerance, atol=tolerance)
