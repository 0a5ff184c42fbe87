"""Known hard cases of differentiation for structural ops, each with its whole kind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from laws import check_second_order, check_transpose, graph_of, named

import rlx_py.ir.ops.arrays as rnp
from rlx_py.ir.evaluate import evaluate
from rlx_py.ir.node import Node
from rlx_py.ir.ops.pointwise import sqrt
from rlx_py.passes.jvp import hvp
from rlx_py.passes.vjp import grad, vjp

Array = np.ndarray[Any, Any]


def gradients(function: Any, *arrays: Any) -> list[Array]:
    """Gradients of a scalar function at f64 arrays."""
    values = [np.asarray(a, np.float64) for a in arrays]
    g = graph_of(function, values)
    found = evaluate(grad(g, "y", list(g.inputs)), named(values))
    return [found[f"grad_x{i}"] for i in range(len(values))]


def hessian(function: Any, x: Any) -> Array:
    """The Hessian of a scalar function of one vector, a column a unit vector."""
    x = np.asarray(x, np.float64)
    product = hvp(graph_of(function, [x]), "y", ["x0"])
    return np.stack([evaluate(product, {"x0": x, "v_x0": e})["hvp_x0"] for e in np.eye(x.size)], 1)


@pytest.mark.parametrize("length", [
    lambda x: sqrt((x * x).sum()), lambda x: sqrt((x**2).sum()), rnp.norm,
    lambda x: rnp.norm(x, 3), lambda x: rnp.norm(x, 1), rnp.std])
def test_c01_a_norm_has_gradient_0_at_0(length: Any) -> None:
    np.testing.assert_array_equal(gradients(length, np.zeros(3))[0], np.zeros(3))


@pytest.mark.parametrize("square", [
    lambda x: rnp.norm(x) ** 2, lambda x: rnp.norm(x) * rnp.norm(x),
    lambda x: sqrt((x * x).sum()) ** 2])
@pytest.mark.parametrize("at", [(0.0, 0.0), (1.0, -2.0)])
def test_c02_a_squared_norm_is_smooth_at_0(square: Any, at: Any) -> None:
    np.testing.assert_allclose(gradients(square, at)[0], 2 * np.array(at), atol=1e-15)
    np.testing.assert_allclose(hessian(square, at), 2 * np.eye(2), atol=1e-12)


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


@pytest.mark.parametrize(("x", "weights"), [
    ((1, 2, 2, 2), (0, 1 / 3, 1 / 3, 1 / 3)), ((5, 5), (0.5, 0.5)), ((3,), (1,)),
    ((1, np.nan, 2, np.nan), (0, 0.5, 0, 0.5)), ((-np.inf, -np.inf), (0.5, 0.5)),
    ((0.0, -0.0), (0.5, 0.5))])
def test_c11_ties_share_the_gradient_of_an_extreme(x: Any, weights: Any) -> None:
    np.testing.assert_allclose(gradients(rnp.max, x)[0], weights)
    np.testing.assert_allclose(gradients(rnp.min, -np.array(x))[0], weights)


def test_many_ties_share_in_f16() -> None:
    x = np.zeros(70000, np.float16)
    g = graph_of(rnp.max, [x])
    found = evaluate(vjp(g, ["x0"]), {"x0": x, "ct_y": np.float16(1)})["grad_x0"]
    np.testing.assert_allclose(found, np.float16(1 / 70000))


def cumprod_gradient(x: Array) -> Array:
    """d Σ cumprod(x), by the definition."""
    found = np.zeros_like(x)
    for s in range(len(x)):
        for t in range(s, len(x)):
            found[s] += np.prod(np.delete(x[:t + 1], s))
    return found


@pytest.mark.parametrize("x", [(2, 0, 3, 0, 5), (0, 0, 0), (0, 2, 3), (4,), (2, 3, 0)])
def test_c16_cumprod_is_exact_at_zeros(x: Any) -> None:
    found = gradients(lambda n: rnp.cumprod(n).sum(), x)[0]
    np.testing.assert_array_equal(found, cumprod_gradient(np.array(x, np.float64)))
    if x == (2, 0, 3, 0, 5):
        np.testing.assert_array_equal(found, (1, 8, 0, 0, 0))


@pytest.mark.parametrize(("x", "expected"), [
    ((2, 0, 3, 4), (0, 24, 0, 0)), ((0, 0, 3), (0, 0, 0)), ((2, 0, 3), (0, 6, 0)), ((0,), (1,)),
    ((2, 3), (3, 2))])
def test_c17_prod_is_exact_at_zeros(x: Any, expected: Any) -> None:
    np.testing.assert_array_equal(gradients(rnp.prod, x)[0], expected)
    column = np.stack([x, np.ones(len(x))], 1)
    along = gradients(lambda n: rnp.prod(n, 0).sum(), column)[0]
    np.testing.assert_array_equal(along, np.stack([expected, np.ones(len(x))], 1))


@pytest.mark.parametrize("function", [
    lambda x: rnp.prod(x), lambda x: rnp.cumprod(x), lambda x: rnp.cumprod(x, reverse=True),
    lambda x: rnp.cumprod(x, exclusive=True)])
@pytest.mark.parametrize("x", [(2.0, 0.0, 3.0, 4.0), (0.0, 0.0, 3.0), (0.0, 1.5, 0.0, 0.0, 2.0)])
def test_products_at_zeros_differentiate_again(function: Any, x: Any) -> None:
    rng = np.random.default_rng(3)
    check_transpose(function, [np.array(x)], rng)
    check_second_order(function, [np.array(x)], rng)


def test_the_hessian_of_prod_at_two_zeros() -> None:
    expected = np.zeros((3, 3))
    expected[0, 1] = expected[1, 0] = 3  # ∂²/∂x₀∂x₁ of x₀x₁x₂ at (0, 0, 3)
    np.testing.assert_array_equal(hessian(rnp.prod, (0, 0, 3)), expected)


@pytest.mark.parametrize("gather", [
    lambda x, i: rnp.take(x, i, 0), lambda x, i: x[i], lambda x, i: rnp.take_along_axis(x, i, 0)])
def test_c25_duplicate_positions_add(gather: Any) -> None:
    x, idx = np.array([0.1]), np.array([0, 0])

    def weighted(n: Node) -> Node:
        found: Node = gather(n, idx)
        return (found * np.array([0.2, 0.3])).sum()

    np.testing.assert_allclose(gradients(weighted, x)[0], [0.5])


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


def test_c37_equal_rows_contribute_nothing_to_a_distance() -> None:
    def distances(a: Node, b: Node) -> Node:
        return rnp.norm(rnp.expand_dims(a, 1) - rnp.expand_dims(b, 0), axis=-1).sum()

    a, b = np.array([[1.0, 2.0], [0.0, 3.0]]), np.array([[1.0, 2.0], [4.0, -1.0]])
    da, db = gradients(distances, a, b)
    assert np.isfinite(da).all() and np.isfinite(db).all()
    delta = a[:, None] - b[None]
    length = np.linalg.norm(delta, axis=-1, keepdims=True)
    unit = np.divide(delta, length, where=length > 0, out=np.zeros_like(delta))
    np.testing.assert_allclose(da, unit.sum(1))
    np.testing.assert_allclose(db, -unit.sum(0))


@pytest.mark.parametrize("mode", ["zero", "ieee"])
def test_norm_needs_no_convention(mode: str) -> None:
    x = np.zeros(2)
    g = graph_of(rnp.norm, [x])
    assert (evaluate(grad(g, "y", ["x0"], singular=mode), {"x0": x})["grad_x0"] == 0).all()


@pytest.mark.parametrize(("x", "value", "gradient"), [
    ((-np.inf, -np.inf), -np.inf, (0, 0)), ((-np.inf, 1.0), 1.0, (0, 1)),
    ((1000.0, 1000.0), 1000 + np.log(2), (0.5, 0.5))])
def test_c20_logsumexp_guards_rows_of_minus_infinity(x: Any, value: float, gradient: Any) -> None:
    array = np.array(x)
    assert evaluate(graph_of(rnp.logsumexp, [array]), {"x0": array})["y"] == pytest.approx(value)
    np.testing.assert_allclose(gradients(rnp.logsumexp, x)[0], gradient)
    assert np.isfinite(hessian(rnp.logsumexp, x)).all()


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
