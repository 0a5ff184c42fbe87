"""Samples of the random primitives and of dropout."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx_py.ir.base.types import i64, u32
from rlx_py.ir.nodes.node import OPS
from support.samples.sample import Sample, apart, reals, sample

KEY = np.array([0x13198A2E, 0x03707344], np.uint32)
COUNTERS = np.arange(6, dtype=np.uint32).reshape(2, 3) * np.uint32(0x2468ACE1)


def op(name: str, case: str, *arrays: Any, smooth: bool = False, **attrs: Any) -> Sample:
    return sample(OPS[name], case, *arrays, smooth=smooth, **attrs)


SAMPLES = [
    op("random_bits", "words", KEY, shape=(3, 37), dtype=u32),
    op("random_bits", "wide", KEY, shape=(3, 37), dtype=i64),
    op("random_bits", "one", KEY, shape=(), dtype=u32),
    op("random_bits", "none", KEY, shape=(2, 0), dtype=i64),
    op("random_keys", "several", KEY, COUNTERS),
    op("random_keys", "one", KEY, np.asarray(7, np.uint32)),
    op("dropout", "half", reals(5, 37), KEY, smooth=True, p=0.5, shared=()),
    op("dropout", "few", reals(4, 3, 7), KEY, smooth=True, p=0.1, shared=()),
    op("dropout", "channels", reals(4, 3, 7), KEY, smooth=True, p=0.5, shared=(2,)),
    op("dropout", "nothing", apart(4, 3), KEY, smooth=True, p=0.0, shared=()),
    op("dropout", "everything", apart(4, 3), KEY, smooth=True, p=1.0, shared=()),
]
