"""Every op of the registry, compiled, in every element type it takes, forward and backward."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlx_py.ir.base.types import DType, bf16, f16, f32, f64
from rlx_py.ir.graph.evaluate import evaluate
from rlx_py.ir.graph.graph import Graph
from support.samples import SAMPLES
from support.samples.sample import Sample, add_sample
from support.sweep import assert_near, fresh, run_compiled, with_gradients

# Every how many samples of an op are compiled, and from which: each in f32, fewer in the rarer.
STRIDES = {f32: (0, 1), f64: (0, 2), f16: (0, 5), bf16: (2, 5)}


def groups() -> dict[tuple[str, DType], list[Sample]]:
    """The samples by op and element type: one graph each, because a compilation takes long."""
    found: dict[tuple[str, DType], list[Sample]] = {}
    for s in SAMPLES:
        for dtype in s.dtypes():
            found.setdefault((s.op.name, dtype), []).append(s)
    for (name, dtype), group in found.items():
        first, step = STRIDES.get(dtype, (0, 3))
        found[name, dtype] = group[min(first, len(group) - 1)::step]
    return found


GROUPS = groups()


@pytest.mark.parametrize("name,dtype", GROUPS, ids=str)
def test_native_code_is_the_oracle(name: str, dtype: DType) -> None:
    g, feed = Graph(f"{name}_{dtype}"), {}
    for s in GROUPS[name, dtype]:
        add_sample(g, s, dtype, f"{s.name}.")
        feed.update(s.feed(dtype, f"{s.name}."))
    whole = with_gradients(g)
    values: dict[str, Any] = {**feed, **fresh(whole, g, np.random.default_rng(3))}
    assert_near(run_compiled(whole, values), evaluate(whole, values), f"{name} {dtype}")
