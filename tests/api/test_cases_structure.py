"""Hard cases of structural ops that need more than a row of test_cases: each with its kind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx_py.ir.ops.numpy.arrays as rnp
from rlx_py.ir.graph.evaluate import evaluate
from rlx_py.ir.nodes.node import Node
from rlx_py.passes.derive.vjp import grad, vjp
from support.laws import check_second_order, check_transpose, graph_of, named

Array = np.ndarray[Any, Any]


def gradients(function: Any, *arrays: Any) -> list[Array]:
    """Gradients of a scalar function at f64 arrays."""
    values = [np.asarray(a, np.float64) for a in arrays]
    g = graph_of(function, values)
    found = evaluate(grad(g, "y", list(g.inputs)), named(values))
    return [found[f"grad_x{i}"] for i in range(len(values))]


@pytest.mark.parametrize("spread", [rnp.std, rnp.var])
def test_a_constant_row_deviates_by_exactly_0(spread: Any) -> None:
    x = np.array([[0.1] * 7, [1e8, 1e8 + 1, 0, 3, 4, 5, 6]], np.float32)
    g = graph_of(lambda n: spread(n, 1), [x])
    found = evaluate(g, named([x]))["y"]
    assert found[0] == 0
    np.testing.assert_allclose(found[1], getattr(np, spread.__name__)(x[1].astype(np.float64)),
                               rtol=1e-6)
    back = evaluate(vjp(g, ["x0"]), {**named([x]), "ct_y": np.ones(2, np.float32)})["grad_x0"]
    np.testing.assert_array_equal(back[0], np.zeros(7))
    assert np.isfinite(back).all()


def test_many_ties_share_in_f16() -> None:
    x = np.zeros(70000, np.float16)
    g = graph_of(rnp.max, [x])
    found = evaluate(vjp(g, ["x0"]), {"x0": x, "ct_y": np.float16(1)})["grad_x0"]
    np.testing.assert_allclose(found, np.float16(1 / 70000))


@pytest.mark.parametrize("function", [
    lambda x: rnp.prod(x), lambda x: rnp.cumprod(x), lambda x: rnp.cumprod(x, reverse=True),
    lambda x: rnp.cumprod(x, exclusive=True)])
@pytest.mark.parametrize("x", [(2.0, 0.0, 3.0, 4.0), (0.0, 0.0, 3.0), (0.0, 1.5, 0.0, 0.0, 2.0)])
def test_products_at_zeros_differentiate_again(function: Any, x: Any) -> None:
    rng = np.random.default_rng(3)
    check_transpose(function, [np.array(x)], rng)
    check_second_order(function, [np.array(x)], rng)


@pytest.mark.parametrize("scatter", [rnp.scatter_set, rnp.scatter_add])
def test_c27_scatter_of_one_and_of_nothing(scatter: Any) -> None:
    x, source = np.zeros(4), np.array([1.0, 2.0, 3.0])
    one = gradients(lambda n, u: scatter(n, [2], u[:1]).sum(), x, source)
    np.testing.assert_array_equal(one[1], (1, 0, 0))
    none = gradients(lambda n, u: scatter(n, [], u[:0]).sum(), x, source)
    np.testing.assert_array_equal(none[1], np.zeros(3))
    np.testing.assert_array_equal(none[0], np.ones(4))


def test_c29_scatter_max_reads_where_it_wrote() -> None:
    operand, update = gradients(
        lambda n, u: rnp.scatter_max(n, [99], u, mode="clip").sum(), (1, 2, 3), [5])
    np.testing.assert_array_equal(operand, (1, 1, 0))
    np.testing.assert_array_equal(update, [1])


def test_scatter_ties_share_and_the_last_write_stays() -> None:
    shared = gradients(lambda n, u: rnp.scatter_max(n, [0, 0, 1], u).sum(), (5, 1), (5, 5, 0))
    np.testing.assert_allclose(shared[0], (1 / 3, 1))
    np.testing.assert_allclose(shared[1], (1 / 3, 1 / 3, 0))
    last = gradients(lambda n, u: rnp.scatter_set(n, [0, 0], u).sum(), (5, 1), (7, 8))
    np.testing.assert_array_equal(last[0], (0, 1))
    np.testing.assert_array_equal(last[1], (0, 1))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_many_duplicates_keep_their_sum(dtype: str) -> None:
    x, idx = np.ones(1, dtype), np.zeros(4096, np.int32)
    g = graph_of(lambda n, i: rnp.take(n, i, 0), [x, idx])
    found = evaluate(vjp(g, ["x0"]), {"x0": x, "x1": idx, "ct_y": np.ones(4096, dtype)})
    assert found["grad_x0"].dtype == dtype and found["grad_x0"] == 4096


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("x", [
    (-np.inf, -np.inf, 1.0, 2.0), (-np.inf,), (3.0, -np.inf, 1000.0, -1000.0)])
def test_running_logsumexp_is_the_logsumexp_of_each_prefix(x: Any, reverse: bool) -> None:
    weights = np.arange(1.0, 1 + len(x))

    def running(n: Node) -> Node:
        return (rnp.cumlogsumexp(n, reverse=reverse)[finite] * weights[finite]).sum()

    def prefixes(n: Node) -> Node:
        parts = [rnp.logsumexp(n[i:] if reverse else n[:i + 1]) for i in finite]
        return (rnp.stack(parts) * weights[finite]).sum()

    line = x[::-1] if reverse else x
    alive = [i for i in range(len(x)) if max(line[:i + 1]) > -np.inf]
    finite = [len(x) - 1 - i for i in alive] if reverse else alive
    if finite:
        np.testing.assert_allclose(gradients(running, x)[0], gradients(prefixes, x)[0])
    else:
        np.testing.assert_array_equal(
            gradients(lambda n: rnp.cumlogsumexp(n).sum(), x)[0], np.zeros(len(x)))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("x", [(1, 3, 3, 2, 5), (2, np.nan, 9, np.nan), (-np.inf, -np.inf, 0)])
def test_a_running_extreme_pays_its_first_holder(x: Any, reverse: bool) -> None:
    array = np.array(x, np.float64)
    line = array[::-1] if reverse else array
    expected, first = np.zeros(len(x)), 0
    for i in range(len(x)):
        if line[i] > line[first] or (line[i] != line[i] and line[first] == line[first]):
            first = i
        expected[first] += 1
    expected = expected[::-1] if reverse else expected
    for function, values in ((rnp.cummax, array), (rnp.cummin, -array)):
        found = gradients(lambda n, f=function: f(n, reverse=reverse).sum(), values)[0]
        np.testing.assert_array_equal(found, expected)
