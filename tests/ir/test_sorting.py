"""Sorting: NumPy's order, stability, NaN, and gradients to the chosen elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx_py as rlx
from rlx_py.ir.ops.primitive.network import passes

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(4)
DTYPES = [rlx.f64, rlx.f32, rlx.f16, rlx.bf16, rlx.i64, rlx.i32, rlx.i8, rlx.u32, rlx.u8]


def both(function: Any, *arrays: Array) -> Array:
    """The value on the reference path, which native code must give to the bit."""
    g = rlx.Graph()
    nodes = [g.input(f"x{i}", a.shape, a.dtype) for i, a in enumerate(arrays)]
    g.output("y", function(*nodes))
    feed = {f"x{i}": a for i, a in enumerate(arrays)}
    expected, found = rlx.evaluate(g, feed)["y"], rlx.compile(g)(**feed).y
    assert found.dtype == expected.dtype and found.tobytes() == expected.tobytes()
    return found


def mixed(shape: Any, dtype: Any, seed: int = 0) -> Array:
    """Numbers with ties; for floats also both zeros, infinities and NaN."""
    rng = np.random.default_rng(seed)
    x = np.rint(rng.standard_normal(shape) * 20)
    if dtype.is_float:
        odd = rng.choice([0.0, -0.0, np.nan, np.inf, -np.inf, 1e-30], shape)
        x = np.where(rng.random(shape) < 0.3, odd, x)
    return (np.abs(x) if dtype.kind == "uint" else x).astype(dtype.numpy)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape,axis", [((200,), 0), ((3, 140), 1), ((140, 3), 0), ((2, 9, 5), 1),
                                        ((19, 21), 1), ((3, 33, 5), 1)])
def test_order_of_every_type(dtype: Any, shape: Any, axis: int) -> None:
    x = mixed(shape, dtype)
    wide = x.astype(np.float64) if dtype.is_float else x.astype(np.int64)
    places = both(lambda n: rlx.argsort(n, axis), x)
    np.testing.assert_array_equal(places, np.argsort(wide, axis, kind="stable"))
    values = both(lambda n: rlx.sort(n, axis), x)
    assert values.tobytes() == np.take_along_axis(x, places, axis).tobytes()
    down = both(lambda n: rlx.argsort(n, axis, descending=True), x)
    if dtype.is_float:  # NaN above inf, which -wide can't say
        top = np.nanmax(np.where(np.isinf(wide), 0, np.abs(wide))) + 2
        wide = np.where(np.isnan(wide), top + 1, np.clip(wide, -top, top))
    np.testing.assert_array_equal(down, np.argsort(-wide, axis, kind="stable"))


def network(x: Array) -> Array:
    """Lines in the order that the network's comparisons leave them in; beyond the end lies 2."""
    length = x.shape[-1]
    size = 1 << (length - 1).bit_length()
    lines = np.full((*x.shape[:-1], size), 2, x.dtype)
    lines[..., :length] = x
    for step in passes(length):
        for where in np.ndindex(step.extents):
            at = [offset + int(np.dot(coefficients, where))
                  for offset, coefficients in step.elements]
            for a, b in step.pairs:
                pair = lines[..., [at[a], at[b]]]
                lines[..., at[a]], lines[..., at[b]] = pair.min(-1), pair.max(-1)
    return lines[..., :length]


@pytest.mark.parametrize("length", [*range(1, 15), 16])
def test_a_network_sorts_every_line_of_zeros_and_ones(length: int) -> None:
    """And so every line (the 0-1 principle, Knuth 5.3.4)."""
    lines = (np.arange(1 << length)[:, None] >> np.arange(length) & 1).astype(np.int8)
    np.testing.assert_array_equal(network(lines), np.sort(lines))


@pytest.mark.parametrize("length", [17, 31, 33, 64, 65, 100, 129, 255, 600, 1023])
def test_networks_sort_steps_and_random_lines(length: int) -> None:
    steps = (np.arange(length)[None] >= np.arange(length + 1)[:, None]).astype(np.int8)
    lines = np.concatenate([steps[:, ::-1], RNG.permuted(steps, axis=1)])
    np.testing.assert_array_equal(network(lines), np.sort(lines))


@pytest.mark.parametrize("length", [1, 2, 7, 8, 9, 64, 100, 257, 1000, 1024, 1025])
def test_many_lines_of_any_length(length: int) -> None:
    x = np.rint(np.random.default_rng(length).standard_normal((17, length)) * 9).astype(np.float32)
    np.testing.assert_array_equal(both(rlx.argsort, x), np.argsort(x, kind="stable"))
    wide = x.astype(np.float64)
    np.testing.assert_array_equal(both(rlx.argsort, wide), np.argsort(x, kind="stable"))


@pytest.mark.parametrize("dtype", [rlx.f64, rlx.i64], ids=str)
def test_all_bits_of_wide_keys_count(dtype: Any) -> None:
    words = np.random.default_rng(1).integers(-(2**63), 2**63 - 1, 500, np.int64)
    x = words if dtype is rlx.i64 else np.where(np.isnan(words.view(np.float64)), 0.0,
                                                words.view(np.float64))
    np.testing.assert_array_equal(both(rlx.argsort, x), np.argsort(x, kind="stable"))


def test_bool_flat_and_negative_axes() -> None:
    x = np.random.default_rng(0).random((4, 5)) < 0.5
    np.testing.assert_array_equal(both(rlx.sort, x), np.sort(x))
    np.testing.assert_array_equal(both(lambda n: rlx.argsort(n, axis=None), x),
                                  np.argsort(x, None, kind="stable"))
    y = np.random.default_rng(0).standard_normal((4, 5))
    np.testing.assert_array_equal(both(lambda n: rlx.sort(n, -2), y), np.sort(y, -2))


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 3), (1,), (1, 1)])
def test_small_and_empty(shape: Any) -> None:
    x = np.ones(shape, np.float32)
    np.testing.assert_array_equal(both(rlx.sort, x), np.sort(x))
    assert both(lambda n: rlx.top_k(n, min(1, shape[-1]))[1], x).dtype == np.int64


def test_threads_change_no_bit() -> None:
    for shape in ((600, 200), (3000, 40), (200_000,)):
        x = RNG.standard_normal(shape).astype(np.float32)
        g = rlx.Graph()
        g.output("y", rlx.argsort(g.input("x", shape)))
        one, two = (rlx.compile(g, threads=n)(x=x).y for n in (1, 2))
        np.testing.assert_array_equal(one, two)
        np.testing.assert_array_equal(one, np.argsort(x, kind="stable"))


def test_top_k() -> None:
    x = np.array([[1, 5, np.nan, 5, 2], [0, -0.0, -1, 7, 7]], np.float32)
    assert both(lambda n: rlx.top_k(n, 3)[1], x).tolist() == [[2, 1, 3], [3, 4, 0]]
    assert both(lambda n: rlx.top_k(n, 2, largest=False)[1], x).tolist() == [[0, 4], [2, 0]]
    values = both(lambda n: rlx.top_k(n, 2, axis=0)[0], x)
    np.testing.assert_array_equal(values[0], [1, 5, np.nan, 7, 7])


def graph(function: Any, values: list[float]) -> tuple[rlx.Graph, dict[str, Array]]:
    g = rlx.Graph()
    g.output("y", function(g.param("x", (len(values),), rlx.f64)))
    return g, {"x": np.array(values, np.float64)}


def test_the_gradient_goes_to_the_chosen() -> None:
    g, point = graph(lambda x: rlx.top_k(x, 2)[0].sum(), [1, 2, 6, 4, 5])
    exe = rlx.compile(rlx.grad(g, of="y"))
    assert exe(**point).grad_x.tolist() == [0, 0, 1, 0, 1]
    g, point = graph(lambda x: (rlx.top_k(x, 2)[0] ** 2).sum(), [1, 3, 2])
    exe = rlx.compile(rlx.hvp(g, of="y", wrt=["x"]))
    rows = [exe(**point, v_x=row).hvp_x for row in np.eye(3)]
    np.testing.assert_array_equal(rows, np.diag([0.0, 2, 2]))


@pytest.mark.parametrize("function", [
    lambda x: (rlx.sort(x) * np.arange(1.0, 8)).sum(),
    lambda x: (rlx.sort(x, descending=True) ** 2 * np.arange(1.0, 8)).sum(),
    lambda x: rlx.median(x) ** 2, lambda x: rlx.quantile(x, 0.3) ** 3,
])
def test_derivatives(function: Any) -> None:
    g, point = graph(function, [3.0, -1, 0.5, 2, 7, -4, 1.25])
    rlx.check_grads(g, point, order=2)


@pytest.mark.parametrize("q", [0, 0.1, 0.5, 0.77, 1])
@pytest.mark.parametrize("axis", [None, 0, 1, (0, 2), -1])
def test_quantiles(q: float, axis: Any) -> None:
    x = np.random.default_rng(0).standard_normal((4, 3, 5))
    found = both(lambda n: rlx.quantile(n, q, axis), x)
    np.testing.assert_allclose(found, np.quantile(x, q, axis), rtol=1e-13)
    kept = both(lambda n: rlx.quantile(n, q, axis, True), x)
    np.testing.assert_allclose(kept, np.quantile(x, q, axis, keepdims=True), rtol=1e-13)
    x[0, 0, 0], x[1, 1, 1] = np.inf, np.nan
    found = both(lambda n: rlx.median(n, axis), x)
    np.testing.assert_allclose(found, np.median(x, axis), rtol=1e-13)


@pytest.mark.parametrize("call", [
    lambda x: rlx.sort(x, 2), lambda x: rlx.top_k(x, 4), lambda x: rlx.top_k(x, -1),
    lambda x: rlx.quantile(x, 1.5), lambda x: rlx.median(rlx.ones((0,))),
    lambda x: rlx.argsort(x, -3),
])
def test_wrong_use_is_refused(call: Any) -> None:
    with pytest.raises(rlx.RLXError):
        call(rlx.ones((2, 3)))
