"""Samples of batch, group and gated norms, and their backwards."""

from __future__ import annotations

from typing import Any

from rlx_py.ir.nodes.node import OPS
from support.samples.sample import Array, Sample, between, hostile, reals, sample


def op(name: str, case: str, *arrays: Array, smooth: bool = True, **attrs: Any) -> Sample:
    return sample(OPS[name], case, *arrays, smooth=smooth, **attrs)


BASE: dict[str, Any] = {"eps": 1e-3, "weight": True, "bias": True}
VARIED: list[tuple[str, tuple[int, ...], dict[str, Any]]] = [
    ("image", (2, 4, 3, 5), {}), ("line", (3, 2, 7), {}), ("volume", (2, 2, 2, 3, 2), {}),
    ("rows", (5, 4), {}), ("channels_are_rows", (4, 4, 4), {}), ("eps", (2, 4, 3, 2), {"eps": 0.5}),
    ("no_weight", (3, 4, 3), {"weight": False}), ("no_bias", (3, 4, 3), {"bias": False}),
    ("plain", (3, 4, 5), {"weight": False, "bias": False}),
]


def params(shape: tuple[int, ...], attrs: dict[str, Any]) -> tuple[list[Array], list[Array]]:
    """The weight and the bias, where there is one."""
    return [reals(*shape, seed=2)] * attrs["weight"], [reals(*shape, seed=3)] * attrs["bias"]


def batch_samples() -> list[Sample]:
    found = []
    for case, shape, given in [*VARIED, ("no_channels", (2, 0, 3), {})]:
        attrs = {**BASE, **given}
        w, b = params(shape[1:2], attrs)
        x, dy = reals(*shape), reals(*shape, seed=1)
        found += [op("batch_norm", case, x, *w, *b, **attrs),
                  op("batch_norm_backward", case, dy, x, *w, **attrs)]
    for case, shape, given in [*VARIED, ("no_rows", (0, 4, 3), {}), ("one_row", (1, 3), {})]:
        attrs = {**BASE, **given}
        w, b = params(shape[1:2], attrs)
        moments = reals(shape[1], seed=4), between(0.3, 2, shape[1])
        x, dy = reals(*shape), reals(*shape, seed=1)
        found += [op("batch_norm_given", case, x, *moments, *w, *b, **attrs),
                  op("batch_norm_given_backward", case, dy, x, *moments, *w, **attrs)]
    plain = {"eps": 1e-3, "weight": False, "bias": False}
    return [*found, op("batch_norm", "special", hostile(6, 5), smooth=False, **plain)]


GROUPED: list[tuple[str, tuple[int, ...], dict[str, Any]]] = [
    *VARIED, ("groups_of_one", (2, 4, 3), {"groups": 4}), ("one_group", (2, 4, 3), {"groups": 1}),
    ("no_rows", (0, 4, 3), {}), ("no_places", (2, 4, 0), {}),
]


def group_samples() -> list[Sample]:
    found = []
    for case, shape, given in GROUPED:
        attrs = {"groups": 2, **BASE, **given}
        w, b = params(shape[1:2], attrs)
        x, dy = reals(*shape), reals(*shape, seed=1)
        found += [op("group_norm", case, x, *w, *b, **attrs),
                  op("group_norm_backward", case, dy, x, *w, **attrs)]
    return [*found, op("group_norm", "special", hostile(3, 4, 5), smooth=False, groups=2, eps=1e-3,
                       weight=False, bias=False)]


GATED: list[tuple[str, tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ("rows", (3, 6), (6,), {}), ("groups", (3, 6), (6,), {"group_size": 2}),
    ("vector", (6,), (6,), {"group_size": 3}), ("deep", (2, 3, 4), (4,), {"group_size": 2}),
    ("affine_heads", (2, 3, 4), (3, 4), {"group_size": 4}),
    ("affine_groups", (6, 4), (2, 4), {"group_size": 2}),
    ("affine_modulo", (2, 3, 4), (2, 4), {"group_size": 2}),
    ("affine_deep", (2, 3, 2, 4), (3, 2, 4), {"group_size": 2}),
    ("rows_are_features", (4, 4), (4,), {"eps": 0.5}),
    ("no_weight", (3, 6), (6,), {"weight": False}), ("no_bias", (3, 6), (6,), {"bias": False}),
    ("plain", (3, 6), (6,), {"weight": False, "bias": False, "group_size": 3}),
    ("no_rows", (0, 6), (6,), {}), ("long_rows", (2, 37), (37,), {"group_size": 37}),
]


def gated_samples() -> list[Sample]:
    found = []
    for first in (True, False):
        for name, shape, affine, given in GATED:
            case = f"{name}{'_norm_first' * first}"
            attrs = {"group_size": 6, "norm_before_gate": first, **BASE, **given}
            if attrs["group_size"] == 6 and shape[-1] == 4:
                attrs["group_size"] = 4
            w, b = params(affine, attrs)
            x, z, dy = reals(*shape), reals(*shape, seed=5), reals(*shape, seed=1)
            found += [op("rms_norm_gated", case, x, z, *w, *b, **attrs),
                      op("rms_norm_gated_backward", case, dy, x, z, *w, *b, **attrs)]
    return found


SAMPLES = [*batch_samples(), *group_samples(), *gated_samples()]
