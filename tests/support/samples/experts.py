"""Samples of the mixture of experts: routing, plan, gather, combine and grouped products."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx_py.ir.nodes.node import OPS
from support.samples.sample import Sample, between, positions, reals, sample

# T, K, E and the features of a token.
MIXTURES = (("plain", 5, 2, 3, (4,)), ("empty_expert", 4, 3, 9, (2,)),
            ("one_choice", 6, 1, 2, (3,)), ("one_expert", 3, 2, 1, (2,)), ("vectors", 4, 2, 4, ()),
            ("images", 3, 2, 2, (2, 3)), ("no_tokens", 0, 2, 3, (4,)), ("square", 4, 4, 4, (4,)))
# Sizes of groups, N, K.
GROUPS = (("plain", (3, 5, 2), 4, 3), ("empty", (0, 7, 0, 0, 4, 0), 3, 5), ("one", (6,), 2, 3),
          ("single_rows", (1, 0, 1, 1), 3, 3), ("square", (2, 2), 2, 2), ("no_rows", (0, 0), 3, 2),
          ("uneven", (1, 29, 3), 5, 7), ("no_depth", (2, 3), 4, 0))


def op(name: str, case: str, *arrays: Any, smooth: bool = True, **attrs: Any) -> Sample:
    return sample(OPS[name], case, *arrays, smooth=smooth, **attrs)


def plan(experts: Any, count: int) -> tuple[Any, Any]:
    """(packed_slot, inverse) of choices."""
    slots = np.argsort(experts.ravel(), kind="stable").astype(np.int32)
    inverse = np.empty_like(slots)
    inverse[slots] = np.arange(slots.size, dtype=np.int32)
    return slots, inverse


def mixture_samples() -> list[Sample]:
    found = []
    for case, t, k, e, features in MIXTURES:
        idx = positions(0, e, t, k)
        slots, inverse = plan(idx, e)
        x, packed = reals(t, *features), reals(t * k, *features)
        p, w = between(0.1, 1.0, t, e), reals(t, k)
        # Equal choices have weights that depend on nothing, of which only rounding would be seen.
        varied = k > 1 and all(len(set(row)) > 1 for row in idx)
        found += [
            op("moe_route_weights", case, p, idx, smooth=varied),
            op("moe_route_weights_backward", case, w, p, idx, smooth=varied),
            op("expert_plan", case, idx, experts=e),
            op("expert_plan", f"{case}_i64", idx.astype(np.int64), experts=e + 1),
            op("counting_sort", case, idx.ravel(), size=e),
            op("moe_gather", case, x, slots, inverse),
            op("moe_gather_backward", case, packed, slots, inverse, tokens=t),
            op("moe_combine", case, packed, w, slots, inverse),
            op("moe_combine_backward", case, reals(t, *features, seed=1), packed, w, slots,
               inverse),
        ]
    found += [
        op("moe_route_weights", "deep", between(0.1, 1.0, 2, 3, 4), positions(0, 4, 2, 3, 2)),
        op("moe_route_weights", "no_weight", np.array([[0.0, 0.0, 1.0], [0.5, 0.0, 0.5]]),
           np.array([[0, 1], [0, 2]], np.int32), smooth=False)]
    return found


def grouped_samples() -> list[Sample]:
    found = []
    for case, sizes, n, k in GROUPS:
        for dtype in (np.int32, np.int64)[:1 + (case == "plain")]:
            offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(dtype)
            rows, e, name = int(offsets[-1]), len(sizes), f"{case}_{np.dtype(dtype).name}"
            x, w, dy = reals(rows, k), reals(e, n, k, seed=1), reals(rows, n, seed=2)
            found += [op("grouped_gemm_m", name, x, w, offsets),
                      op("grouped_gemm_m_backward_weight", name, dy, x, offsets, groups=e),
                      op("grouped_linear_m", name, x, w, offsets, reals(e, n, seed=3)),
                      op("grouped_linear_m", f"{name}_plain", x, w, offsets)]
    part = np.array([2, 5, 5, 8], np.int32)  # rows before and after every group
    x, w = reals(11, 3), reals(3, 4, 3, seed=1)
    found += [op("grouped_gemm_m", "uncovered", x, w, part),
              op("grouped_linear_m", "uncovered", x, w, part, reals(3, 4)),
              op("grouped_gemm_m_backward_weight", "uncovered", reals(11, 4), x, part, groups=3)]
    return found


SAMPLES = (*mixture_samples(), *grouped_samples())
