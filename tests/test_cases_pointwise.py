"""Hard cases of differentiation in element-wise programs, and the threads that saw them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rlx_py.ir.evaluate import evaluate
from rlx_py.ir.graph import Graph
from rlx_py.ir.node import Node
from rlx_py.ir.ops import pointwise as pw
from rlx_py.ir.ops.reduce import REDUCE_MAX, REDUCE_SUM
from rlx_py.ir.types import f64
from rlx_py.passes.jvp import jvp
from rlx_py.passes.vjp import grad

Function = Callable[..., Node]
INF = np.inf


def total(x: Node) -> Node:
    return REDUCE_SUM(x, axes=tuple(range(x.rank))) if x.rank else x


def gradient(f: Function, *xs: Any, orders: tuple[int, ...] = (0,)) -> Any:
    """Σ f differentiated by one argument after the other."""
    arrays = [np.asarray(x, np.float64) for x in xs]
    g = Graph()
    leaves = [g.input(f"x{i}", a.shape, f64) for i, a in enumerate(arrays)]
    g.output("y", total(f(*leaves)))
    for position in orders:
        g = grad(g, of="y", wrt=[f"x{position}"])
        (node,) = g.outputs.values()
        g = g.derive({"y": total(node)})
    return evaluate(g.derive({"y": node}), {f"x{i}": a for i, a in enumerate(arrays)})["y"]


def tangent(f: Function, *xs: Any) -> Any:
    """Σ over the arguments of the derivatives, by forward mode."""
    arrays = [np.asarray(x, np.float64) for x in xs]
    g = Graph()
    leaves = [g.input(f"x{i}", a.shape, f64) for i, a in enumerate(arrays)]
    g.output("y", f(*leaves))
    values = {f"x{i}": a for i, a in enumerate(arrays)}
    seeds = {f"t_{k}": np.ones_like(a) for k, a in values.items()}
    return evaluate(jvp(g, wrt=list(values)), {**values, **seeds})["t_y"]


ONE_ARGUMENT: list[tuple[str, Function, Any, Any]] = [
    # pytorch 187297, tinygrad 12409
    ("C04", lambda x: pw.where(x > 0, pw.sqrt(x), x), [-1.0, -4.0], [1, 1]),
    # pytorch 18287
    ("C05", lambda x: pw.where(x < 1, pw.cos(x), 0), [0.0, INF], [0, 0]),
    # pytorch 156212
    ("C06", lambda x: pw.where(x <= 10, pw.exp(x), 1), 1e10, 0),
    ("C06", lambda x: pw.where(x > 2, pw.log2(x), 2 * x), 0.0, 2),
    # jax 13600
    ("C08", lambda x: pw.maximum(pw.sqrt(x), 1), [0.0, 4.0], [0, 0.25]),
    ("C08", lambda x: pw.minimum(1 / x, 1), [0.0, 2.0], [0, -0.25]),
    ("C08", lambda x: pw.sqrt(pw.maximum(x, -1) + 1), [-3.0, 0.0], [0, 0.5]),
    ("C08", lambda x: pw.sqrt(pw.abs(x)), [0.0, -4.0], [0, -0.25]),
    ("C08", lambda x: pw.clip(pw.log(x), -1, 1), [0.0, 1.0, 9.0], [0, 1, 0]),
    # clip passes the gradient at its bounds
    ("clip", lambda x: pw.clip(x, -1, 1), [-1.0, 1.0, 2.0, -2.0], [1, 1, 0, 0]),
    # pytorch 89757
    ("C23", lambda x: x**0, 0.0, 0),
    ("C23", lambda x: x**0.0, [0.0, -3.0], [0, 0]),
    # jax 764
    ("C38", pw.tanh, [1e3, INF, -INF], [0, 0, 0]),
    ("abs", pw.abs, [0.0, -2.0], [0, -1]),
    ("nan", pw.nan_to_num, [np.nan, INF, 2.0], [0, 0, 1]),
    ("rem", lambda x: pw.fmod(x, 3), [-7.0, 0.0, 7.0], [1, 1, 1]),
]


@pytest.mark.parametrize("name,f,x,want", ONE_ARGUMENT, ids=[c[0] for c in ONE_ARGUMENT])
def test_gradient(name: str, f: Function, x: Any, want: Any) -> None:
    np.testing.assert_allclose(gradient(f, x), want, rtol=1e-14)
    np.testing.assert_allclose(tangent(f, x), want, rtol=1e-14)


def test_c07_the_dead_branch_divides_by_zero() -> None:  # pytorch 36923
    assert gradient(lambda x, t: pw.where(x >= t, x, t * (x / t)), 1.0, 0.0) == 1


def test_c08_reduced_maximum_with_an_infinite_partial() -> None:
    def largest(x: Node) -> Node:
        return REDUCE_MAX(pw.sqrt(x), axes=(0,))

    np.testing.assert_array_equal(gradient(largest, [0.0, 4.0, 1.0]), [0, 0.25, 0])


def test_c10_angle_at_the_origin() -> None:
    for position in (0, 1):
        assert gradient(pw.arctan2, 0.0, 0.0, orders=(position,)) == 0
        assert gradient(pw.hypot, 0.0, 0.0, orders=(position,)) == 0


def test_c13_a_tie_is_shared() -> None:  # pytorch 56734
    for f in (pw.maximum, pw.minimum):
        assert [gradient(f, 2.0, 2.0, orders=(i,)) for i in (0, 1)] == [0.5, 0.5]


def test_c22_power_at_zero_to_one() -> None:  # pytorch 27134
    assert gradient(pw.power, 0.0, 1.0, orders=(0,)) == 1
    assert gradient(pw.power, 0.0, 1.0, orders=(1,)) == 0
    assert gradient(pw.power, 0.0, -1.0, orders=(1,)) == -INF
    assert gradient(pw.power, 0.0, 0.0, orders=(1,)) == 0
    assert gradient(pw.power, 4.0, 0.0, orders=(0, 1)) == 0.25
    assert gradient(pw.power, 4.0, 0.0, orders=(1, 0)) == 0.25


def test_c23_fourth_mixed_derivative_of_a_product_of_powers() -> None:  # pytorch 89757
    def known(a: Node, b: Node, c: Node, d: Node, p: Node) -> Node:
        return a**1 * b**1 * c**1 * d**1

    def given(a: Node, b: Node, c: Node, d: Node, p: Node) -> Node:
        return a**p * b**p * c**p * d**p

    for f in (known, given):
        assert gradient(f, 0.0, 0.0, 0.0, 0.0, 1.0, orders=(0, 1, 2, 3)) == 1


def test_c24_second_derivative_of_sinc() -> None:  # jax 1722
    np.testing.assert_allclose(gradient(pw.sinc, 0.0, orders=(0, 0)), -np.pi**2 / 3, rtol=1e-15)


def test_c56_binary_cross_entropy_of_a_logistic() -> None:  # pytorch 18945
    def loss(x: Node, t: Node) -> Node:
        p = pw.logistic(x)
        return -(pw.xlogy(t, p) + pw.xlogy(1 - t, 1 - p))

    for x, t in ((0.3, 0.25), (-3.0, 1.0), (5.0, 0.5), (30.0, 1.0), (-30.0, 0.0)):
        p = 1 / (1 + np.exp(-x))
        q = 1 / (1 + np.exp(x))
        np.testing.assert_allclose(gradient(loss, x, t, orders=(0, 0)), p * q, rtol=1e-9)


def test_logaddexp_is_smooth_at_ties_and_silent_at_minus_infinity() -> None:
    for a, b in ((0.0, 0.0), (3.0, 3.0), (1.0, 3.0), (3.0, 1.0), (-40.0, 2.0)):
        s = 1 / (1 + np.exp(b - a))
        got = [gradient(pw.logaddexp, a, b, orders=o) for o in ((0,), (1,), (0, 0), (0, 1))]
        np.testing.assert_allclose(got, [s, 1 - s, s * (1 - s), -s * (1 - s)], rtol=1e-12)
        third = gradient(pw.logaddexp, a, b, orders=(0, 0, 0))
        np.testing.assert_allclose(third, s * (1 - s) * (1 - 2 * s), rtol=1e-12, atol=1e-15)
    for a, b in ((-INF, -INF), (-INF, 1.0), (1.0, -INF)):
        got = [gradient(pw.logaddexp, a, b, orders=(i,)) for i in (0, 1)]
        np.testing.assert_array_equal(got, [float(a == 1), float(b == 1)])
