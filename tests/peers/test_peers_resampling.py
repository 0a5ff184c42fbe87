"""Adaptive pools, resampling, sampling at positions, patches and window folds against peers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from peers.peer import F64_F32, Function, Library, Row, check, jnp, lax, normal, row, torch

IMAGE, LINE, VOLUME = normal(2, 3, 7, 5), normal(2, 3, 11), normal(1, 2, 3, 5, 4)
TIES = np.random.default_rng(3).integers(0, 3, (2, 3, 7, 8)).astype(np.float64)
FUNCTIONAL = Library(torch.nn.functional)


def alike(name: str, f: Function, *arrays: Any, **options: Any) -> Row:
    """A row of which PyTorch's functional of the same name has the same arguments."""
    return row(name, f, *arrays, torch=lambda *x: f(FUNCTIONAL, *x), jax=None, **options)


def pooled(name: str, x: Any, size: Any) -> list[Row]:
    """An adaptive average and maximum, and where the maximum is."""
    rank = name[-2]
    return [
        alike(f"{name}_avg_{size}", lambda m, a: getattr(m, f"adaptive_avg_pool{rank}d")(a, size),
              x),
        alike(f"{name}_max_{size}", lambda m, a: getattr(m, f"adaptive_max_pool{rank}d")(a, size),
              x),
        row(f"{name}_where_{size}",
            lambda m, a: getattr(m, f"adaptive_max_pool{rank}d_with_indices")(a, size)[1], x,
            torch=lambda a: getattr(FUNCTIONAL, f"adaptive_max_pool{rank}d")(a, size, True)[1],
            jax=None),
    ]


def where(rank: int, x: Any, *args: Any) -> Row:
    name = f"max_pool{rank}d_with_indices"
    return alike(f"{name}_{args}", lambda m, a: getattr(m, name)(a, *args)[1], x)


POOLS = [
    *pooled("1d", LINE, 4), *pooled("1d", LINE, 15), *pooled("2d", TIES, (3, 5)),
    *pooled("2d", TIES, 1), *pooled("2d", TIES, (7, 4)), *pooled("2d", TIES[0], (None, 3)),
    *pooled("3d", VOLUME, (2, 4, 3)),
    where(1, LINE, 3, 2, 1), where(2, TIES, (3, 2), 2, (1, 0)), where(2, TIES, 2, 1, 0, (2, 3)),
    where(2, TIES, 3, 2, 1, 1, True), where(3, TIES[None], 2),
]


def resampled(x: Any, mode: str, **options: Any) -> Row:
    return alike(f"{mode}_{x.ndim - 2}_{'_'.join(map(str, options.values()))}",
                 lambda m, a: m.interpolate(a, mode=mode, **options), x)


RESAMPLED = [
    resampled(x, mode, **options) for x, mode in (
        (LINE, "linear"), (IMAGE, "bilinear"), (VOLUME, "trilinear"), (IMAGE, "nearest"),
        (LINE, "nearest-exact"), (VOLUME, "nearest"), (IMAGE, "nearest-exact"), (IMAGE, "area"))
    for options in ({"size": 4}, {"size": 13}, {"scale_factor": 2}, {"scale_factor": 1.7},
                    {"scale_factor": 0.6}, {"scale_factor": 1.3, "recompute_scale_factor": True})
] + [
    resampled(x, mode, align_corners=True, **options)
    for x, mode in ((LINE, "linear"), (IMAGE, "bilinear"), (VOLUME, "trilinear"))
    for options in ({"size": 4}, {"size": 13}, {"size": 1}, {"scale_factor": 1.7})
]

GRID = np.random.default_rng(8).uniform(-1.5, 1.5, (2, 3, 4, 2))
DEEP = np.random.default_rng(9).uniform(-1.5, 1.5, (1, 2, 3, 2, 3))


def sampled(x: Any, grid: Any, mode: str, padding: str, align: bool, order: int = 2) -> Row:
    return alike(f"grid_{x.ndim}_{mode}_{padding}_{align}_{grid.shape[1]}",
                 lambda m, a, g: m.grid_sample(a, g, mode, padding, align), x, grid, order=order,
                 tolerance=10)


# The very positions of the elements, where a bilinear sample has a kink.
CORNERS = np.stack(np.meshgrid(np.linspace(-1, 1, 5), np.linspace(-1, 1, 7)), -1)[None].repeat(2, 0)
GRIDS = [
    *[sampled(IMAGE, GRID, mode, padding, align) for mode in ("bilinear", "nearest")
      for padding in ("zeros", "border", "reflection") for align in (False, True)],
    *[sampled(VOLUME, DEEP, mode, padding, True, order=1) for mode in ("bilinear", "nearest")
      for padding in ("zeros", "border", "reflection")],
]

PATCHES = [
    alike("unfold", lambda m, x: m.unfold(x, (3, 2), 2, (1, 0), (1, 2)), IMAGE),
    alike("unfold_single", lambda m, x: m.unfold(x, 2), IMAGE[0]),
    alike("fold", lambda m, x: m.fold(x, (7, 6), (3, 2), 1, 1, (2, 1)), normal(2, 12, 28)),
    alike("fold_single", lambda m, x: m.fold(x, 4, 2), normal(12, 9)),
    alike("pixel_shuffle", lambda m, x: m.pixel_shuffle(x, 2), normal(2, 12, 2, 3)),
    alike("pixel_shuffle_deep", lambda m, x: m.pixel_shuffle(x, 3), normal(2, 2, 9, 2, 3)),
    alike("pixel_unshuffle", lambda m, x: m.pixel_unshuffle(x, 2), normal(3, 4, 6)),
    alike("conv1d_single", lambda m, x, w, b: m.conv1d(x, w, b, 2, 1), LINE[0], normal(4, 3, 3),
          normal(4)),
    alike("conv2d_single", lambda m, x, w: m.conv2d(x, w), IMAGE[0], normal(4, 3, 3, 2)),
    alike("conv3d_single", lambda m, x, w: m.conv3d(x, w), VOLUME[0], normal(3, 2, 2, 2, 2)),
    alike("conv_transpose2d_single", lambda m, x, w, b: m.conv_transpose2d(x, w, b, 2), IMAGE[0],
          normal(3, 2, 3, 2), normal(2)),
]

# ---- window folds, of JAX --------------------------------------------------------------------

COMPUTED = {"sum": (0.0, lax.add), "max": (-np.inf, lax.max), "min": (np.inf, lax.min),
            "prod": (1.0, lax.mul)}
WINDOW: dict[str, Any] = {"window": (3, 2), "stride": (2, 1), "padding": ((1, 0), (0, 1))}


def windowed(monoid: str, x: Any, dilation: tuple[int, int], order: int) -> Row:
    def by_jax(a: Any) -> Any:
        first, combine = COMPUTED[monoid]
        return lax.reduce_window(
            a, jnp.asarray(first, a.dtype), combine, (1, *WINDOW["window"]),
            (1, *WINDOW["stride"]), ((0, 0), *WINDOW["padding"]), window_dilation=(1, *dilation))

    return row(f"reduce_window_{monoid}_{dilation}",
               lambda m, a: m.reduce_window(a, monoid, dilation=dilation, **WINDOW), x,
               torch=None, jax=by_jax, order=order)


# JAX has no gradient of a product, nor of extremes with dilation.
WINDOWS = [windowed("sum", IMAGE[0], (1, 2), 2), windowed("prod", IMAGE[0], (1, 2), 0),
           *(windowed(monoid, x, dilation, order) for monoid in ("max", "min")
             for x, dilation, order in ((IMAGE[0], (1, 2), 0), (IMAGE[1], (1, 1), 1)))]


@pytest.mark.parametrize("case", [*POOLS, *PATCHES, *WINDOWS], ids=str)
@F64_F32
def test_pools_and_patches_equal_peers(case: Row, dtype: Any) -> None:
    check(case, dtype)


@pytest.mark.parametrize("case", RESAMPLED, ids=str)
def test_resampling_equals_pytorch(case: Row) -> None:
    check(case, np.float64)


@pytest.mark.parametrize("case", GRIDS, ids=str)
def test_sampling_at_positions_equals_pytorch(case: Row) -> None:
    check(case, np.float64)


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_sampling_at_the_elements_themselves_equals_pytorch(padding: str) -> None:
    check(sampled(IMAGE, CORNERS, "bilinear", padding, True), np.float64)
