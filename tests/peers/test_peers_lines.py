"""Functions made of other functions under NumPy's names, against PyTorch, JAX and NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx_py as rlx
from peers.peer import F64_F32, Array, Row, call, calls, check, normal, row, torch

NAN, INF = np.nan, np.inf
X, LINE, SHORT = normal(3, 4), normal(7), normal(4, seed=1)
HOLES = np.array([[1.0, NAN, 3, -2], [NAN, NAN, 5, 5], [0.5, 4, 1, -7]])
SORTED = np.array([-1.0, 0, 0, 0.5, 2, 2, 2, 7])
PLACES = np.array([[-3.0, -1, 0], [0.25, 2, 9]])
VECTORS = normal(2, 4, 3)


# PyTorch has few of them. A NaN that is left out has gradient 0 in JAX too.
ROWS: list[Row] = [
    *(row(f"{n}_{axis}", lambda m, x, f=f, axis=axis: f(m, x, axis=axis), HOLES,
          torch=getattr(torch, n) if n in ("nansum", "nanmean") and axis is None else None)
      for n, f in calls("nansum nanprod nanmean nanmax nanmin") for axis in (None, 0, 1)),
    *(row(f"{n}_keepdims", lambda m, x, f=f: f(m, x, axis=1, keepdims=True), HOLES, torch=None)
      for n, f in calls("nansum nanprod nanmean nanmax nanmin")),
    *(row(f"{n}_{ddof}", lambda m, x, f=f, ddof=ddof: f(m, x, axis=1, ddof=ddof), HOLES[[0, 2]],
          torch=None) for n, f in calls("nanvar nanstd") for ddof in (0, 1)),
    *(row(f"diff_{n}_{axis}", lambda m, x, n=n, axis=axis: m.diff(x, n, axis), X)
      for n, axis in ((1, -1), (2, 0), (0, 1), (3, 1))),
    row("trapezoid", call("trapezoid"), X),
    row("trapezoid_axis", lambda m, x: m.trapezoid(x, dx=0.5, axis=0), X,
        torch=lambda x: torch.trapezoid(x, dx=0.5, dim=0)),
    row("trapezoid_points", call("trapezoid"), X, SHORT),
    *(row(f"{n}_{mode}_{k}", lambda m, a, v, f=f, mode=mode: f(m, a, v, mode=mode), LINE,
          normal(k, seed=2), torch=None)
      for n, f in calls("convolve correlate") for mode in ("full", "same", "valid")
      for k in (1, 3, 4, 7, 9)),
    *(row(f"searchsorted_{side}", lambda m, a, v, side=side: m.searchsorted(a, v, side=side),
          SORTED, PLACES) for side in ("left", "right")),
    row("interp", call("interp"), PLACES[:, :2] + 0.3, np.array([-3.0, -1, 0, 2, 5]), normal(5),
        torch=None),
    row("average", call("average"), X, torch=torch.mean),
    row("average_weights", lambda m, x, w: m.average(x, axis=1, weights=w), X, SHORT + 3,
        torch=None),
    row("average_whole", lambda m, x, w: m.average(x, axis=(0, 1), weights=w), X, X * X,
        torch=None),
    row("count_nonzero", lambda m, x: m.count_nonzero(x, axis=1), np.array([[0, 1, 2], [0, 0, 3]]),
        torch=lambda x: torch.count_nonzero(x, dim=1)),
    row("ptp", lambda m, x: m.ptp(x, axis=1), X, torch=None),
    row("cross", call("cross"), VECTORS, normal(3),
        torch=lambda x, y: torch.linalg.cross(x, y.expand(2, 4, 3))),
    row("cross_axis", lambda m, x, y: m.cross(x, y, axis=1), normal(2, 3), normal(2, 3, seed=1),
        torch=lambda x, y: torch.linalg.cross(x, y, dim=1)),
    row("kron", call("kron"), X, normal(2, 3)),
    row("kron_ranks", call("kron"), VECTORS, SHORT),
    row("hstack", lambda m, x, y: m.hstack([x, y]), X, normal(3, 2)),
    row("hstack_lines", lambda m, x, y: m.hstack([x, y]), LINE, SHORT),
    row("vstack", lambda m, x, y: m.vstack([x, y]), X, SHORT),
    *(row(n, f, X) for n, f in calls("fliplr flipud")),
    *(row(f"rot90_{k}", lambda m, x, k=k: m.rot90(x, k, (1, 2)), VECTORS) for k in range(-1, 4)),
    row("tril_indices", lambda m, x: x[m.tril_indices(3, -1, 4)], X,
        torch=lambda x: x[tuple(torch.tril_indices(3, 4, -1))]),
    row("triu_indices", lambda m, x: x[m.triu_indices(3, 1, 4)], X,
        torch=lambda x: x[tuple(torch.triu_indices(3, 4, 1))]),
]


@pytest.mark.parametrize("case", ROWS, ids=str)
@F64_F32
def test_peers_agree(case: Row, dtype: Any) -> None:
    check(case, dtype)


def value(function: Callable[..., Any], *arrays: Array) -> Array:
    g = rlx.Graph()
    g.output("y", function(*(g.input(f"x{i}", a.shape, a.dtype) for i, a in enumerate(arrays))))
    return rlx.compile(g)(**{f"x{i}": a for i, a in enumerate(arrays)}).y


def test_a_sorted_line_of_any_length_with_nan() -> None:
    rng = np.random.default_rng(0)
    places = np.concatenate([rng.integers(-2, 12, 30) / 2, [NAN, INF, -INF]])
    for size in (0, 1, 2, 3, 7, 8, 9, 65):
        line = np.sort(np.concatenate([rng.integers(0, 10, size) / 2, [NAN] * (size > 5)]))
        for side in ("left", "right"):
            found = value(lambda a, v, s=side: rlx.searchsorted(a, v, s), line, places)
            np.testing.assert_array_equal(found, np.searchsorted(line, places, side))


def test_values_beyond_points_are_those_of_the_nearest() -> None:
    points, heights = np.array([0.0, 1, 2.5]), np.array([3.0, -1, 4])
    at = np.array([-5.0, 0, 0.5, 1, 2.5, 9, NAN])
    np.testing.assert_allclose(value(rlx.interp, at, points, heights),
                               np.interp(at, points, heights), rtol=1e-15)
    alone = value(rlx.interp, at[:3], points[:1], heights[:1])
    np.testing.assert_array_equal(alone, [3, 3, 3])


def test_a_line_of_nan_has_no_mean_and_a_constant_one_no_deviation() -> None:
    holes = np.array([[NAN, NAN, NAN], [0.1, 0.1, NAN]])
    for name, want in (("nanmean", 0.1), ("nanstd", 0), ("nanvar", 0), ("nanmax", 0.1)):
        found = value(lambda x, n=name: getattr(rlx, n)(x, 1), holes)
        np.testing.assert_allclose(found, [NAN, want], rtol=1e-15)
    g = rlx.Graph()
    g.output("y", rlx.nanstd(g.input("x", (3,), rlx.f64)))
    found = rlx.compile(rlx.grad(g, of="y", wrt="x"))(x=holes[1]).grad_x
    np.testing.assert_array_equal(found, [0, 0, 0])
