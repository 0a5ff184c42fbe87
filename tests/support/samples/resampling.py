"""Samples of adaptive pools, resampling and sampling at positions."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx_py.ir.nodes.node import OPS
from support.samples.sample import Array, Sample, between, hostile, reals, sample


def op(name: str, case: str, *arrays: Array, smooth: bool = True, **attrs: Any) -> Sample:
    return sample(OPS[name], case, *arrays, smooth=smooth, **attrs)


ADAPTIVE: list[tuple[str, tuple[int, ...], tuple[int, ...]]] = [
    ("whole", (2, 3, 6, 4), (3, 2)), ("broken", (2, 3, 7, 5), (3, 2)), ("more", (2, 5, 3), (7, 8)),
    ("copies", (2, 2, 3), (4, 9)), ("one", (2, 5, 7), (1, 1)), ("line", (3, 11), (4,)),
    ("same", (2, 5), (5,)), ("volume", (1, 2, 3, 5, 4), (2, 4, 4)), ("no_rows", (0, 7), (3,)),
    ("even_rest", (2, 10), (4,)),
]


def adaptive_samples() -> list[Sample]:
    found = []
    for case, shape, output in ADAPTIVE:
        lead = shape[:len(shape) - len(output)]
        name = "adaptive_avg_pool"
        found += [op(name, case, reals(*shape), output=output),
                  op(f"{name}_backward", case, reals(*lead, *output, seed=1), output=output,
                     shape=shape[len(lead):])]
    return [*found, op("adaptive_avg_pool", "special", hostile(3, 7), smooth=False, output=(3,))]


BASE: dict[str, Any] = {"mode": "linear", "align_corners": False}
RESAMPLED: list[tuple[str, tuple[int, ...], dict[str, Any]]] = [
    ("up", (2, 3, 4), {"size": (5, 7), "step": ((3, 5), (4, 7))}),
    ("down", (2, 7, 5), {"size": (3, 2), "step": ((7, 3), (5, 2))}),
    ("twice", (2, 3, 2), {"size": (6, 4), "step": ((1, 2), (1, 2))}),
    ("line", (3, 5), {"size": (8,), "step": ((10, 17),)}),
    ("same", (3, 5), {"size": (5,), "step": ((1, 1),)}),
    ("beyond", (2, 3), {"size": (6,), "step": ((4, 1),)}),
    ("one", (2, 4, 1), {"size": (1, 3), "step": ((4, 1), (1, 3))}),
    ("volume", (1, 2, 3, 2), {"size": (3, 2, 3), "step": ((2, 3), (3, 2), (2, 3))}),
    ("no_rows", (0, 3), {"size": (5,), "step": ((3, 5),)}),
]


def resample_samples() -> list[Sample]:
    found = []
    for name, shape, given in RESAMPLED:
        for mode, align in (("nearest", False), ("nearest-exact", False), ("linear", False),
                            ("linear", True)):
            attrs = {**given, "mode": mode, "align_corners": align}
            case = f"{name}_{mode}{'_corners' * align}"
            lead = shape[:len(shape) - len(attrs["size"])]
            found += [op("resample", case, reals(*shape), **attrs),
                      op("resample_backward", case, reals(*lead, *attrs["size"], seed=1),
                         shape=shape[len(lead):], **attrs)]
    return [*found, op("resample", "special", hostile(3, 5), smooth=False, size=(7,),
                       step=((5, 7),), mode="nearest", align_corners=False)]


def grid(n: int, *shape: int) -> Array:
    """Positions in and around the input, those of two axes or three."""
    return between(-1.4, 1.4, n, *shape)


def grid_samples() -> list[Sample]:
    found = []
    for mode in ("bilinear", "nearest"):
        for padding in ("zeros", "border", "reflection"):
            for align in (False, True):
                attrs: dict[str, Any] = {"mode": mode, "padding": padding, "align_corners": align}
                case = f"{mode}_{padding}{'_corners' * align}"
                found += [op("grid_sample", case, reals(2, 3, 4, 5), grid(2, 3, 2, 2), **attrs),
                          op("grid_sample", f"{case}_volume", reals(1, 2, 3, 2, 3),
                             grid(1, 2, 1, 3, 3), **attrs)]
    plain: dict[str, Any] = {"mode": "bilinear", "padding": "zeros", "align_corners": False}
    wild = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, 0.1, -0.3, 0.2]).reshape(1, 2, 2, 2)
    return [*found, op("grid_sample", "wild", reals(1, 2, 3, 4), wild, smooth=False, **plain),
            op("grid_sample", "wild_border", reals(1, 2, 3, 4), wild, smooth=False,
               **{**plain, "padding": "border"}),
            op("grid_sample", "no_rows", reals(0, 2, 3, 4), grid(0, 2, 2, 2), **plain),
            op("grid_sample", "one_element", reals(2, 2, 1, 1), grid(2, 2, 2, 2), **plain)]


SAMPLES = [*adaptive_samples(), *resample_samples(), *grid_samples()]
