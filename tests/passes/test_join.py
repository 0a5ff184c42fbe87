"""Loops joined with those they read, and products of slices made before them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx_py as rlx
from rlx_py.backends.llvm.backend import program_for
from rlx_py.backends.llvm.targets import host
from rlx_py.ir.loops.program import Program, items
from rlx_py.passes.lower.dead_code import prune
from rlx_py.passes.lower.hoisting import hoist_products
from rlx_py.passes.lower.loop_fusion import join_loops
from rlx_py.passes.rewrite.decompose import decompose
from rlx_py.passes.rewrite.simplify import simplify

Array = np.ndarray[Any, Any]


def layer(steps: int = 50, width: int = 32, **options: Any) -> rlx.Graph:
    g = rlx.Graph("layer")
    x, w, u = g.input("x", (steps, 4, width)), g.param("w", (width, width)), g.param(
        "u", (width, width))
    h, ys = rlx.scan(lambda h, a: (rlx.tanh(a @ w + h @ u),) * 2, rlx.zeros((4, width)), x,
                     **options)
    g.output("y", (ys * ys).mean() + h.sum())
    return g


def feed(g: rlx.Graph) -> dict[str, Array]:
    rng = np.random.default_rng(0)
    return {k: rng.normal(0, 0.2, n.shape).astype(np.float32) for k, n in g.leaves.items()}


def loops(program: Program) -> int:
    return sum(not isinstance(item, int) for item in items(program))


def scans(g: rlx.Graph) -> int:
    return sum(n.op.name == "scan" for n in g.nodes)


def lowered(g: rlx.Graph) -> rlx.Graph:
    return prune(simplify(decompose(simplify(g))))


def test_forward_mode_runs_along_and_stacks_nothing() -> None:
    g = rlx.Graph("steps")
    x, a = g.input("x", (10_000,)), g.param("a", ())
    g.output("y", rlx.scan(lambda c, v: (rlx.sin(c * a + v), None), 0.0, x)[0])
    forward, backward = rlx.jvp(g), rlx.grad(g, of="y")
    assert loops(program_for(forward, host())) == 1
    assert rlx.compile(forward).cost().arena_bytes < 1000
    assert loops(program_for(backward, host())) == 2
    assert rlx.compile(backward).cost().arena_bytes > 10_000


@pytest.mark.parametrize("derive", [lambda g: rlx.jvp(g), lambda g: rlx.hvp(g, of="y")],
                         ids=["jvp", "hvp"])
def test_joined_loops_give_the_same_numbers(derive: Any) -> None:
    g = lowered(derive(layer(7, 5)))
    joined = join_loops(g)
    assert scans(joined) < scans(g)
    want, got = rlx.evaluate(g, feed(g)), rlx.evaluate(joined, feed(g))
    for k, value in want.items():
        np.testing.assert_allclose(got[k], value, rtol=1e-5, atol=1e-6)


def test_loops_of_other_lengths_or_directions_stay_apart() -> None:
    g = rlx.Graph("apart")
    x = g.input("x", (6,))
    _, a = rlx.scan(lambda c, v: (c + v, c * v), 0.0, x)
    _, b = rlx.scan(lambda c, v: (c * 0.5 + v, c), 0.0, a, reverse=True)
    _, c = rlx.scan(lambda c, v: (c * 0.5 + v, c), 0.0, a[:5])
    last, d = rlx.scan(lambda c, v: (c * 0.5 + v, c), 0.0, a)
    _, e = rlx.scan(lambda c, v: (c - v, c), last, d)
    for name, y in zip("abcde", (a, b, c, d, e), strict=True):
        g.output(name, y)
    joined = join_loops(lowered(g))
    # Only a and d run along: e begins with what d ends with.
    assert (scans(lowered(g)), scans(joined)) == (5, 4)
    arrays = feed(g)
    want, got = rlx.evaluate(g, arrays), rlx.compile(g)(**arrays)
    for k, value in want.items():
        np.testing.assert_allclose(got[k], value, rtol=1e-5, atol=1e-6)


def test_a_product_of_slices_is_made_once_for_all_steps() -> None:
    g = lowered(layer())
    hoisted = hoist_products(g)
    products = [n for n in hoisted.nodes if n.op.name == "contract"]
    assert [n.shape for n in products] == [(50, 4, 32)]
    # In f64: NumPy adds the terms of one large product in another order than those of small ones.
    arrays = {k: a.astype(np.float64) for k, a in feed(g).items()}
    np.testing.assert_allclose(*(rlx.evaluate(rlx.retype(made, rlx.f64), arrays)["y"]
                                 for made in (hoisted, g)), rtol=1e-12)


@pytest.mark.parametrize("g", [layer(checkpoint=rlx.every(1)), layer(width=4)],
                         ids=["that holds little memory", "of few terms"])
def test_other_products_stay_inside(g: rlx.Graph) -> None:
    found = lowered(g)
    assert hoist_products(found) is found
