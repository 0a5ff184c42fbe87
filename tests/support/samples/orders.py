"""Samples of sorting: ties, NaN, both zeros, every axis, lines short and long."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx_py.ir.nodes.node import OPS
from support.samples.sample import Sample, apart, hostile, sample, ties


def op(case: str, x: Any, axis: int, descending: bool = False) -> Sample:
    return sample(OPS["argsort"], case, x, smooth=False, axis=axis, descending=descending)


SAMPLES = [
    op("line", apart(37), 0), op("line_down", apart(37), 0, True),
    op("rows", ties(3, 18), 1), op("columns_down", ties(18, 3), 0, True),
    op("special", hostile(2, 40, 2), 1), op("special_down", hostile(2, 40, 2), 1, True),
    op("long", ties(300), 0), op("long_rows", hostile(3, 150), 1),
    op("long_columns_down", hostile(150, 3), 0, True), op("long_apart", apart(257), 0, True),
    op("one", np.array([2.5]), 0), op("none", np.zeros((0, 3)), 0),
    op("no_rows", np.zeros((0, 3)), 1),
]
