"""Samples of gather and scatter: duplicates, every mode, positions of any rank and outside."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx_py.ir.nodes.node import OPS
from support.samples.sample import Array, Sample, apart, hostile, positions, reals, sample, ties

WILD = np.array([5, -1, 2, -(2**31), 2**31 - 1, 0], np.int32)
ALONG = positions(0, 3, 2, 5)


def op(name: str, case: str, *arrays: Any, smooth: bool = True, **attrs: Any) -> Sample:
    return sample(OPS[name], case, *arrays, smooth=smooth, **attrs)


def updates(name: str, smooth: bool = True) -> list[Sample]:
    """A scatter along either axis, with duplicates, of nothing, and outside."""
    def u(*shape: int) -> Array:
        return apart(*shape, seed=4) + 0.01

    return [
        op(name, "first", apart(5, 18), positions(0, 5, 3), u(3, 18), axis=0, mode="error",
           smooth=smooth),
        op(name, "last", apart(3, 4), positions(0, 4, 2, 3), u(3, 2, 3), axis=1, mode="error",
           smooth=smooth),
        op(name, "middle", apart(2, 5, 3), positions(0, 5, 4), u(2, 4, 3), axis=1, mode="error",
           smooth=smooth),
        op(name, "duplicates", apart(2, 3), np.array([1, 1, 1, 0], np.int32), u(4, 3), axis=0,
           mode="error", smooth=smooth),
        op(name, "one_place", apart(4, 3), np.asarray(2, np.int32), u(3), axis=0, mode="error",
           smooth=smooth),
        op(name, "no_positions", apart(4, 3), np.zeros(0, np.int32), u(0, 3), axis=0, mode="error",
           smooth=smooth),
        op(name, "no_columns", apart(4, 0), np.array([1, 3], np.int32), u(2, 0), axis=0,
           mode="error", smooth=smooth),
        op(name, "clip", apart(4, 3), WILD, u(6, 3), axis=0, mode="clip", smooth=smooth),
        op(name, "fill", apart(4, 3), WILD, u(6, 3), axis=0, mode="fill", smooth=smooth),
        op(name, "ties", ties(3, 4), positions(0, 3, 6), ties(6, 4, seed=1), axis=0, mode="error",
           smooth=False),
        op(name, "special", hostile(3, 4), positions(0, 3, 6), hostile(6, 4, seed=1), axis=0,
           mode="error", smooth=False),
    ]


SAMPLES = [
    op("gather", "first", reals(5, 18), positions(0, 5, 3), axis=0, mode="error"),
    op("gather", "last", reals(3, 4), positions(0, 4, 2, 3), axis=1, mode="error"),
    op("gather", "middle", reals(2, 5, 3), positions(0, 5, 7), axis=1, mode="error"),
    op("gather", "one", reals(4, 3), np.asarray(2, np.int32), axis=0, mode="error"),
    op("gather", "nothing", reals(4, 3), np.zeros((2, 0), np.int32), axis=0, mode="error"),
    op("gather", "clip", reals(4, 3), WILD, axis=0, mode="clip"),
    op("gather", "fill", reals(4, 3), WILD, axis=0, mode="fill"),
    op("gather", "fill_from_nothing", reals(0, 3), WILD, axis=0, mode="fill"),
    op("gather_backward", "first", positions(0, 5, 3), reals(3, 18), axis=0, mode="error", size=5),
    op("gather_backward", "last", positions(0, 4, 2, 3), reals(3, 2, 3), axis=1, mode="error",
       size=4),
    op("gather_backward", "duplicates", np.array([1, 1, 1, 0], np.int32), reals(4, 3), axis=0,
       mode="error", size=2),
    op("gather_backward", "clip", WILD, reals(6, 3), axis=0, mode="clip", size=4),
    op("gather_backward", "fill", WILD, reals(6, 3), axis=0, mode="fill", size=4),
    op("take_along", "last", reals(2, 3), ALONG, axis=1, mode="error"),
    op("take_along", "first", reals(3, 4), positions(0, 3, 5, 4), axis=0, mode="error"),
    op("take_along", "nothing", reals(2, 3), np.zeros((2, 0), np.int32), axis=1, mode="error"),
    op("take_along", "clip", reals(1, 4), WILD[None], axis=1, mode="clip"),
    op("take_along", "fill", reals(1, 4), WILD[None], axis=1, mode="fill"),
    op("take_along_backward", "last", ALONG, reals(2, 5), axis=1, mode="error", size=3),
    op("take_along_backward", "first", positions(0, 3, 5, 4), reals(5, 4), axis=0, mode="error",
       size=3),
    op("take_along_backward", "clip", WILD[None], reals(1, 6), axis=1, mode="clip", size=4),
    op("take_along_backward", "fill", WILD[None], reals(1, 6), axis=1, mode="fill", size=4),
    op("scatter_add_along", "last", reals(2, 3), ALONG, reals(2, 5), axis=1, mode="error"),
    op("scatter_add_along", "first", reals(3, 4), positions(0, 3, 5, 4), reals(5, 4), axis=0,
       mode="error"),
    op("scatter_add_along", "clip", reals(1, 4), WILD[None], reals(1, 6), axis=1, mode="clip"),
    op("scatter_add_along", "fill", reals(1, 4), WILD[None], reals(1, 6), axis=1, mode="fill"),
    op("scatter_add_along", "nothing", reals(2, 3), np.zeros((2, 0), np.int32), np.zeros((2, 0)),
       axis=1, mode="error"),
    *updates("scatter_add"), *updates("scatter_set"), *updates("scatter_max"),
    *updates("scatter_min"),
]
