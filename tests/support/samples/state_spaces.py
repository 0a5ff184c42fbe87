"""Samples of state-space models: Mamba, Mamba-2 and the gated delta rule."""

from __future__ import annotations

from typing import Any

from rlx_py.ir.nodes.node import OPS
from support.samples.sample import Sample, between, reals, sample

# Rows, steps, heads (or channels), groups, P, N; d, z.
CASES: tuple[tuple[str, tuple[int, ...], bool, bool], ...] = (
    ("plain", (2, 3, 4, 2, 2, 3), True, True), ("bare", (1, 2, 2, 1, 3, 2), False, False),
    ("with_d", (2, 5, 2, 2, 1, 2), True, False), ("with_z", (1, 1, 2, 1, 2, 1), False, True),
    ("no_steps", (2, 0, 2, 1, 2, 2), True, True), ("no_rows", (0, 2, 2, 1, 2, 2), False, True))


def both(name: str, case: str, dy: Any, *arrays: Any, **attrs: Any) -> list[Sample]:
    """An op and its backward."""
    return [sample(OPS[name], case, *arrays, **attrs),
            sample(OPS[f"{name}_backward"], case, dy, *arrays, **attrs)]


def selective(case: str, sizes: tuple[int, ...], d: bool, z: bool) -> list[Sample]:
    b, s, w, _, _, n = sizes
    u = reals(b, s, w)
    rest = [*([reals(w, seed=5)] if d else []), *([reals(b, s, w, seed=6)] if z else [])]
    return both("selective_scan", case, reals(b, s, w, seed=7), u, between(0.1, 0.9, b, s, w),
                -between(0.2, 1.5, w, n), reals(b, s, n, seed=3), reals(b, s, n, seed=4), *rest,
                has_d=d, has_z=z)


def dual(case: str, sizes: tuple[int, ...], d: bool, z: bool) -> list[Sample]:
    b, s, h, g, p, n = sizes
    rest = [*([reals(h, seed=5)] if d else []), *([reals(b, s, h, p, seed=6)] if z else [])]
    return both("mamba2_ssd", case, reals(b, s, h, p, seed=7), reals(b, s, h, p),
                between(0.1, 0.9, b, s, h), -between(0.2, 1.5, h), reals(b, s, g, n, seed=3),
                reals(b, s, g, n, seed=4), *rest, has_d=d, has_z=z)


def delta(case: str, sizes: tuple[int, ...], scale: float) -> list[Sample]:
    b, s, h, g, p, n = sizes
    return both("gated_delta_net", case, reals(b, s, h, p, seed=7), reals(b, s, g, n),
                reals(b, s, g, n, seed=1) / 2, reals(b, s, h, p, seed=2),
                -between(0.1, 1.0, b, s, h), between(0.1, 0.9, b, s, h, seed=3), scale=scale)


SAMPLES = (*(s for case in CASES for s in selective(*case)),
           *(s for case in CASES for s in dual(*case)),
           *(s for k, (case, sizes, _, _) in enumerate(CASES)
             for s in delta(case, sizes, 0.5 + k / 4)))
