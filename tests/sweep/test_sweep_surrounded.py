"""Every op between others that fuse with it, compiled, forward and backward.

`make sweep` runs every sample in every element type; the suite a fixed tenth.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

from rlx_py.ir.base.types import DType, f32
from rlx_py.ir.graph.evaluate import evaluate
from support.samples import SAMPLES
from support.samples.sample import Sample
from support.surroundings import Surrounded
from support.sweep import assert_near, fresh, run_compiled, with_gradients

WHOLE = os.environ.get("SWEEP") == "whole"


def groups(first: int) -> dict[tuple[str, DType], list[Sample]]:
    """The samples by op and element type: in the suite a tenth, in f32 where they take it."""
    found: dict[tuple[str, DType], list[Sample]] = {}
    for s in SAMPLES if WHOLE else SAMPLES[first::10]:
        kinds = list(s.dtypes())
        for dtype in kinds if WHOLE else [f32 if f32 in kinds else kinds[0]]:
            found.setdefault((s.op.name, dtype), []).append(s)
    return found


GROUPS = groups(3)


@pytest.mark.parametrize("name,dtype", GROUPS, ids=str)
def test_native_code_is_the_oracle_between_others(name: str, dtype: DType) -> None:
    around = Surrounded(f"{name}_{dtype}")
    for s in GROUPS[name, dtype]:
        around.add(s, dtype)
    whole = with_gradients(around.graph)
    more = fresh(whole, around.graph, np.random.default_rng(3))
    values: dict[str, Any] = {**around.feed, **more}
    assert_near(run_compiled(whole, values), evaluate(whole, values), f"{name} {dtype}", factor=4)
