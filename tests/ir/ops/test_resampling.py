"""Adaptive pools, resampling, sampling, patches and window folds: refusals, edges, meaning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx_py as rlx
from rlx_py import nn
from rlx_py.ir.base.types import TensorType, f32, i32
from rlx_py.ir.nodes import node
from rlx_py.ir.nodes.node import Node

Array = np.ndarray[Any, Any]
INF, NAN = np.inf, np.nan
X = np.random.default_rng(5).standard_normal((2, 3, 7, 5))


def leaf(*shape: int, dtype: Any = f32) -> Node:
    return node.leaf("x", "input", TensorType(dtype, shape))


def values(build: Callable[..., Any], *arrays: Any) -> list[Array]:
    """What compiled code gives: each node of the result."""
    g = rlx.Graph()
    found = build(*(g.input(f"x{i}", a.shape, a.dtype) for i, a in enumerate(arrays)))
    nodes = [found] if isinstance(found, Node) else found
    for i, n in enumerate(nodes):
        g.output(f"y{i}", n)
    out = rlx.compile(g)(**{f"x{i}": a for i, a in enumerate(arrays)})
    return [np.asarray(out[f"y{i}"]) for i in range(len(nodes))]


def gradient(build: Callable[[Node], Node], x: Array) -> Array:
    """Of the sum of the value."""
    g = rlx.Graph()
    g.output("y", build(g.input("x", x.shape, x.dtype)).sum())
    return np.asarray(rlx.compile(rlx.grad(g, of="y", wrt=["x"]))(x=x).grad_x)


IMAGE = leaf(2, 3, 4, 5)
REFUSED: list[tuple[type[Exception], str, Callable[[], Any]]] = [
    (rlx.ShapeError, "takes rank 3 or 4", lambda: nn.adaptive_avg_pool2d(leaf(4, 5), 2)),
    (rlx.ShapeError, "no elements", lambda: nn.adaptive_avg_pool2d(leaf(2, 3, 0, 5), 2)),
    (rlx.ShapeError, "no elements", lambda: nn.adaptive_max_pool2d(leaf(2, 3, 0, 5), 2)),
    (rlx.ArgumentError, "at least 1", lambda: nn.adaptive_avg_pool2d(IMAGE, 0)),
    (rlx.ArgumentError, "needs 2 entries", lambda: nn.adaptive_max_pool2d(IMAGE, (1, 2, 3))),
    (rlx.DTypeError, "float", lambda: nn.adaptive_avg_pool1d(leaf(2, 3, dtype=i32), 2)),
    (rlx.DTypeError, "float", lambda: nn.adaptive_max_pool1d(leaf(2, 3, dtype=i32), 2)),
    (rlx.ArgumentError, "one of them", lambda: nn.interpolate(IMAGE)),
    (rlx.ArgumentError, "one of them", lambda: nn.interpolate(IMAGE, 3, 2.0)),
    (rlx.ArgumentError, "'cubic' is not", lambda: nn.interpolate(IMAGE, 3, mode="cubic")),
    (rlx.ShapeError, "'trilinear' does not take", lambda: nn.interpolate(IMAGE, 3,
                                                                        mode="trilinear")),
    (rlx.ArgumentError, "no align_corners", lambda: nn.interpolate(IMAGE, 3, align_corners=True)),
    (rlx.ArgumentError, "positive numbers", lambda: nn.interpolate(IMAGE, scale_factor=-1.0)),
    (rlx.ArgumentError, "positive numbers", lambda: nn.interpolate(IMAGE, scale_factor=NAN)),
    (rlx.ArgumentError, "at least 1", lambda: nn.interpolate(IMAGE, scale_factor=0.01)),
    (rlx.ShapeError, "no elements", lambda: nn.interpolate(leaf(1, 1, 0), 3)),
    (rlx.DTypeError, "float", lambda: nn.interpolate(leaf(1, 1, 4, dtype=i32), 3)),
    (rlx.ShapeError, "takes a grid", lambda: nn.grid_sample(IMAGE, leaf(2, 3, 3, 3))),
    (rlx.ShapeError, "takes a grid", lambda: nn.grid_sample(leaf(2, 3, 4), leaf(2, 3, 1))),
    (rlx.ShapeError, "batches", lambda: nn.grid_sample(IMAGE, leaf(1, 3, 3, 2))),
    (rlx.ArgumentError, "'bicubic'", lambda: nn.grid_sample(IMAGE, leaf(2, 3, 3, 2), "bicubic")),
    (rlx.ArgumentError, "'wrap'", lambda: nn.grid_sample(IMAGE, leaf(2, 3, 3, 2), "nearest",
                                                        "wrap")),
    (rlx.ShapeError, "no elements", lambda: nn.grid_sample(leaf(2, 3, 0, 5), leaf(2, 3, 3, 2))),
    (rlx.ShapeError, "exceed", lambda: nn.im2col(IMAGE, 6)),
    (rlx.ShapeError, r"\[N, C, L", lambda: nn.im2col(leaf(3, 4), 2)),
    (rlx.ShapeError, "are not the", lambda: nn.col2im(leaf(12, 7), (2, 3, 4, 5), 2)),
    (rlx.ShapeError, "does not hold windows", lambda: nn.fold(leaf(2, 12, 5), (4, 5), 2)),
    (rlx.ShapeError, "takes rank 3 or 4", lambda: nn.unfold(leaf(3, 4), 2)),
    (rlx.ShapeError, "channels a pixel", lambda: nn.pixel_shuffle(IMAGE, 2)),
    (rlx.ShapeError, "squares", lambda: nn.pixel_unshuffle(IMAGE, 2)),
    (rlx.ArgumentError, "upscale_factor", lambda: nn.pixel_shuffle(IMAGE, 0)),
    (rlx.ArgumentError, "'mean' is not", lambda: nn.reduce_window(IMAGE, "mean", 2)),
    (rlx.ShapeError, "exceed", lambda: nn.reduce_window(IMAGE, "sum", (5, 5))),
    (rlx.ShapeError, "without an element",
     lambda: nn.reduce_window(leaf(3), "max", 1, padding=1)),
    (rlx.ShapeError, "without an element",
     lambda: nn.reduce_window(leaf(3, dtype=i32), "min", 1, padding=1)),
    (rlx.DTypeError, "bool", lambda: nn.reduce_window(IMAGE, "any", 2)),
    (rlx.ArgumentError, "fits no axes", lambda: nn.reduce_window(leaf(3), "sum", (1, 1))),
    (rlx.ArgumentError, "fits no axes", lambda: nn.reduce_window(IMAGE, "sum", 1, axes=(0, 0))),
    (rlx.ArgumentError, "at least 1", lambda: nn.reduce_window(IMAGE, "sum", 2, stride=0)),
    (rlx.ShapeError, "rank 3 or 4", lambda: nn.conv2d(leaf(5, 5), leaf(2, 3, 1, 1))),
]


@pytest.mark.parametrize("error,message,call", REFUSED, ids=range(len(REFUSED)))
def test_refusals_name_what_is_wrong_and_where(error: type[Exception], message: str,
                                               call: Callable[[], Any]) -> None:
    with pytest.raises(error, match=message) as caught:
        call()
    assert __file__ in str(caught.value)


# ---- pools -----------------------------------------------------------------------------------


def test_adaptive_pools_round_once_and_keep_nan_inside_its_places() -> None:
    x = np.ones((1, 4099), np.float16)
    (y,) = values(lambda x: nn.adaptive_avg_pool1d(x, 2), x * 3)
    np.testing.assert_array_equal(y, 3)
    line = np.array([[1, 2, NAN, 4, 5, 6, 7.0]])
    y, m = values(lambda x: (nn.adaptive_avg_pool1d(x, 3), nn.adaptive_max_pool1d(x, 3)), line)
    np.testing.assert_array_equal(np.isnan(y), [[True, True, False]])
    np.testing.assert_array_equal(np.isnan(m), [[True, True, False]])


@pytest.mark.parametrize("size", [2, 3])
def test_the_first_of_equal_maxima_takes_the_gradient(size: int) -> None:
    """Elements of −inf too: what a place does not cover never wins."""
    for fill in (1.0, -INF):
        x = np.full((1, 6 if size == 2 else 7), fill)
        y, place = values(lambda x: nn.adaptive_max_pool1d_with_indices(x, size), x)
        np.testing.assert_array_equal(y, np.full((1, size), fill))
        want = [[0, 3]] if size == 2 else [[0, 2, 4]]
        np.testing.assert_array_equal(place, want)
        slope = gradient(lambda x: nn.adaptive_max_pool1d(x, size), x)
        np.testing.assert_array_equal(np.flatnonzero(slope), want[0])


def test_positions_of_maxima_are_never_in_the_padding() -> None:
    x = np.full((1, 3, 4), -INF)
    x[0, 2, 3] = NAN
    y, place = values(lambda x: nn.max_pool2d_with_indices(x, (3, 2), 2, (1, 1)), x)
    np.testing.assert_array_equal(place, [[[0, 1, 3], [4, 5, 11]]])
    assert np.isnan(y[0, 1, 2])


# ---- resampling ------------------------------------------------------------------------------


@pytest.mark.parametrize("length,size", [(2, 98), (49, 7), (7, 3), (3, 7), (1, 5), (30, 41)])
def test_nearest_positions_are_exact(length: int, size: int) -> None:
    """⌊49·(2/98)⌋ in floats would be 0."""
    x = np.arange(length, dtype=np.float32).reshape(1, 1, -1)
    near, centre = values(lambda x: (nn.interpolate(x, size),
                                     nn.interpolate(x, size, mode="nearest-exact")), x)
    i = np.arange(size)
    np.testing.assert_array_equal(near[0, 0], i * length // size)
    np.testing.assert_array_equal(centre[0, 0], (2 * i + 1) * length // (2 * size))


def test_linear_resampling_of_a_line_is_a_line() -> None:
    x = np.linspace(-1, 3, 9).reshape(1, 1, -1)
    corners, centres, one = values(lambda x: (
        nn.interpolate(x, 33, mode="linear", align_corners=True),
        nn.interpolate(x, 33, mode="linear"),
        nn.interpolate(x, 1, mode="linear", align_corners=True)), x)
    np.testing.assert_allclose(corners[0, 0], np.linspace(-1, 3, 33), atol=1e-14)
    at = np.clip((np.arange(33) + 0.5) * 9 / 33 - 0.5, 0, 8)
    np.testing.assert_allclose(centres[0, 0], -1 + at / 2, atol=1e-14)
    np.testing.assert_array_equal(one, -1)


def test_what_keeps_its_size_keeps_its_bits() -> None:
    x = np.array([[[0.1, INF, -0.0, NAN, 3]]])
    for mode in ("linear", "nearest"):
        (y,) = values(lambda x, mode=mode: nn.interpolate(x, 5, mode=mode), x)
        np.testing.assert_array_equal(y, x)
        assert np.signbit(y[0, 0, 2])


def test_code_does_not_grow_with_sizes() -> None:
    def graph(n: int) -> rlx.Graph:
        g = rlx.Graph()
        x = g.input("x", (1, 2, n, n))
        y = nn.interpolate(x, 3 * n // 2 + 1, mode="bilinear")
        g.output("y", nn.adaptive_max_pool2d(nn.adaptive_avg_pool2d(y, n - 3), n // 3))
        return g

    assert len(graph(11).nodes) == len(graph(1001).nodes)
    assert len(str(rlx.decompose(graph(1001)))) < len(str(rlx.decompose(graph(11)))) * 1.2


def test_wild_positions_read_nothing() -> None:
    x = np.full((1, 1, 2, 2), 5.0)
    grid = np.array([NAN, 0, INF, 0, -INF, 0, 1e38, -1e38, 0, 0]).reshape(1, 1, 5, 2)
    for mode in ("bilinear", "nearest"):
        (y,) = values(lambda x, g, mode=mode: nn.grid_sample(x, g, mode), x, grid)
        np.testing.assert_array_equal(y[0, 0, 0], [0, 0, 0, 0, 5])
        (y,) = values(lambda x, g, mode=mode: nn.grid_sample(x, g, mode, "border"), x, grid)
        np.testing.assert_array_equal(y[0, 0, 0, 1:], 5)


# ---- patches ---------------------------------------------------------------------------------


@pytest.mark.parametrize("stride,padding,dilation", [(1, 0, 1), ((2, 1), (1, 0), (1, 2)),
                                                     ((1, 3), ((0, 1), (2, 0)), (2, 1))])
def test_a_convolution_is_a_product_of_patches(stride: Any, padding: Any, dilation: Any) -> None:
    w = np.random.default_rng(1).standard_normal((4, 3, 3, 2))
    y, rows, back = values(lambda x, w: (
        nn.conv2d(x, w, None, stride, padding, dilation),
        nn.im2col(x, (3, 2), stride, padding, dilation),
        nn.col2im(nn.im2col(x, (3, 2), stride, padding, dilation), x.shape, (3, 2), stride,
                  padding, dilation)), X, w)
    n, o, *places = y.shape
    product = (rows @ w.reshape(4, -1).T).reshape(n, *places, o)
    np.testing.assert_allclose(np.moveaxis(product, -1, 1), y, atol=1e-12)
    # ⟨rows, rows⟩ = ⟨col2im(rows), x⟩, as col2im is the adjoint.
    np.testing.assert_allclose((back * X).sum(), (rows * rows).sum())


def test_patches_of_any_rank_and_of_integers() -> None:
    x = np.arange(24, dtype=np.int32).reshape(2, 2, 6)
    rows, none = values(lambda x: (nn.im2col(x, 2, 2), nn.im2col(x[:0], 2, 2)), x)
    np.testing.assert_array_equal(rows[1], [2, 3, 8, 9])
    assert rows.shape == (6, 4) and none.shape == (0, 4) and rows.dtype == np.int32


def test_pixel_shuffles_undo_each_other() -> None:
    x = np.arange(2 * 8 * 3 * 2.0).reshape(2, 8, 3, 2)
    y, back = values(lambda x: (nn.pixel_shuffle(x, 2),
                                nn.pixel_unshuffle(nn.pixel_shuffle(x, 2), 2)), x)
    assert y[1, 1, 2 * 2 + 1, 1 * 2 + 0] == x[1, 1 * 4 + 1 * 2 + 0, 2, 1]
    np.testing.assert_array_equal(back, x)


# ---- window folds ----------------------------------------------------------------------------

NUMPY: dict[str, Callable[..., Any]] = {
    "sum": np.sum, "prod": np.prod, "max": np.max, "min": np.min,
    "logsumexp": lambda w, axis: np.log(np.sum(np.exp(w), axis)),
}


@pytest.mark.parametrize("monoid", NUMPY)
@pytest.mark.parametrize("dtype", [np.float64, np.int32])
def test_windows_fold_by_any_monoid(monoid: str, dtype: Any) -> None:
    if monoid == "logsumexp" and dtype is np.int32:
        return
    x = np.rint(3 * X).astype(dtype)
    (y,) = values(lambda x: nn.reduce_window(x, monoid, (2, 3), (1, 2), axes=(3, 1)), x)
    windows = np.lib.stride_tricks.sliding_window_view(x, (2, 3), (3, 1))[:, ::2]
    np.testing.assert_allclose(y, NUMPY[monoid](windows, axis=(-2, -1)), rtol=1e-12)
    assert y.dtype == dtype


def test_windows_of_bools() -> None:
    x = np.array([True, False, False, True])
    some, every, count, most = values(lambda x: tuple(
        nn.reduce_window(x, m, 2, padding=((0, 1),)) for m in ("any", "all", "sum", "max")), x)
    np.testing.assert_array_equal(some, [True, False, True, True])
    np.testing.assert_array_equal(every, [False, False, False, True])
    np.testing.assert_array_equal(count, [1, 0, 1, 1])
    assert count.dtype == np.int64 and most.dtype == np.bool_
    np.testing.assert_array_equal(most, some)


def test_padding_is_the_identity_and_never_wins() -> None:
    x = np.array([-INF, 3.0, 0.0, 2.0])
    total, product, least = values(lambda x: tuple(
        nn.reduce_window(x[1:], m, 1, padding=1) if m != "min" else
        nn.reduce_window(x, m, 2, padding=1) for m in ("sum", "prod", "min")), x)
    np.testing.assert_array_equal(total, [0, 3, 0, 2, 0])
    np.testing.assert_array_equal(product, [1, 3, 0, 2, 1])
    np.testing.assert_array_equal(least, [-INF, -INF, 0, 0, 2])
    most = gradient(lambda x: nn.reduce_window(x, "max", 2, padding=1), np.full(3, -INF))
    np.testing.assert_array_equal(most, [2, 1, 1])


def test_gradients_of_products_are_exact_at_zeros() -> None:
    x = np.array([2.0, 0, 3, 0])
    np.testing.assert_array_equal(gradient(lambda x: nn.reduce_window(x, "prod", 3), x),
                                  [0, 6, 0, 0])
    ties = np.array([1.0, 1, 0, 1])
    np.testing.assert_array_equal(gradient(lambda x: nn.reduce_window(x, "max", 2), ties),
                                  [1, 1, 0, 1])
    np.testing.assert_array_equal(gradient(lambda x: nn.reduce_window(x, "min", 2), -ties),
                                  [1, 1, 0, 1])
