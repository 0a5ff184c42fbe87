"""Samples of Mamba-3: mixers of one and of several ranks."""

from __future__ import annotations

from typing import Any

from rlx_py.ir.nodes.node import OPS
from rlx_py.ir.ops.nn.state_space.mamba3_inputs import Layout
from support.samples.sample import Sample, between, reals, sample
from support.samples.state_spaces import both

# Rows, steps, heads, groups, P, N, A.
SIZES: dict[str, tuple[int, ...]] = {
    "plain": (2, 3, 4, 2, 2, 5, 2), "narrow": (1, 2, 2, 1, 3, 2, 1),
    "unturned": (1, 2, 2, 2, 1, 3, 0),
    "one_step": (2, 1, 2, 1, 2, 4, 2), "no_steps": (2, 0, 2, 1, 2, 4, 1),
    "no_rows": (0, 2, 2, 1, 2, 4, 1)}
# Case, d, z, f.
ONE_RANK = (("plain", True, True, "identity"), ("plain", True, False, "pi_tanh"),
            ("narrow", False, True, "pi_tanh"), ("unturned", False, False, "identity"),
            ("one_step", True, True, "pi_tanh"), ("no_steps", True, True, "identity"),
            ("no_rows", False, True, "identity"))
# Case, R, d, z, norm, eps, f.
RANKS = (("plain", 2, True, True, True, 1e-5, "identity"),
         ("narrow", 3, False, True, False, 1e-5, "pi_tanh"),
         ("unturned", 1, True, False, True, 0.1, "identity"),
         ("one_step", 2, False, False, False, 1e-5, "pi_tanh"),
         ("no_steps", 2, True, True, True, 1e-5, "identity"))


def mixed(case: str, rank: int) -> list[Any]:
    """C, B, x, adt, dt, trap, angle."""
    b, s, h, g, p, n, a = SIZES[case]
    return [reals(b, s, rank * g, n), reals(b, s, rank * g, n, seed=1), reals(b, s, h, p, seed=2),
            -between(0.1, 1.0, b, s, h), between(0.1, 0.9, b, s, h, seed=1),
            reals(b, s, h, seed=3), reals(b, s, a, seed=4)]


def one_rank(case: str, d: bool, z: bool, angles: str) -> list[Sample]:
    b, s, h, _, p, n, _ = SIZES[case]
    rest = [*([reals(h, seed=7)] if d else []), *([reals(b, s, h, p, seed=8)] if z else [])]
    return both("mamba3_siso", f"{case}-{d}-{z}-{angles}", reals(b, s, h, p, seed=9),
                *mixed(case, 1), reals(h, n, seed=5), reals(h, n, seed=6), *rest, has_d=d, has_z=z,
                angles=angles)


def ranks(case: str, rank: int, d: bool, z: bool, norm: bool, eps: float, angles: str
          ) -> list[Sample]:
    b, s, h, _, p, n, _ = SIZES[case]
    rest = [*([reals(h, seed=7)] if d else []),
            *([reals(b, s, h, p, seed=8), reals(h, rank, p, seed=10)] if z else []),
            *([reals(h, p, seed=11)] if norm else [])]
    return both("mamba3_mimo", f"{case}-{rank}", reals(b, s, h, p, seed=9), *mixed(case, rank),
                reals(h, rank, n, seed=5), reals(h, rank, n, seed=6), reals(h, rank, p, seed=12),
                reals(h, rank, p, seed=13), *rest, has_d=d, has_z=z, has_norm=norm, eps=eps,
                angles=angles)


# Lead, H, P, R, G, N, A; bounds of dt, floor, eps, decay.
PROJECTIONS: tuple[tuple[str, tuple[int, ...], tuple[int, ...], tuple[float, ...], str], ...] = (
    ("plain", (2, 3), (2, 3, 2, 1, 3, 2), (0.5, 1.5, 0.9, 1e-5), "rational"),
    ("row", (), (1, 2, 1, 2, 2, 0), (0.0, float("inf"), 1e-4, 0.1), "softplus"),
    ("rows", (4,), (3, 1, 1, 1, 2, 1), (0.0, 0.8, 0.5, 1e-3), "softplus"),
    ("no_rows", (0,), (2, 2, 1, 1, 2, 1), (0.1, 1.0, 0.0, 1e-5), "rational"))


def projections() -> list[Sample]:
    found = []
    for case, lead, sizes, bounds, decay in PROJECTIONS:
        attrs = {**dict(zip(("heads", "width", "rank", "groups", "depth", "angles"), sizes,
                            strict=True)),
                 **dict(zip(("dt_min", "dt_max", "floor", "eps"), bounds, strict=True)),
                 "decay": decay}
        layout = Layout(**attrs)
        arrays = [reals(*lead, layout.ends[-1]), reals(layout.heads, seed=1)]
        shapes = [layout.parts[k] for k in (1, 0, 2, 3, 4, 5, 6, 7)]
        cts = [reals(*lead, *shape, seed=2 + k) for k, shape in enumerate(shapes)]
        found += [sample(OPS["mamba3_preprocess"], case, *arrays, **attrs),
                  sample(OPS["mamba3_preprocess_backward"], case, *cts, *arrays, **attrs)]
    return found


SAMPLES = (*projections(), *(s for case in ONE_RANK for s in one_rank(*case)),
           *(s for case in RANKS for s in ranks(*case)))
