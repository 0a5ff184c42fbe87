"""Samples of the element-wise ops: each in its domain, and at its edges."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx_py.ir.base.types import DTYPES, bf16, bool_, f32, i8, i32, i64, u8, u32
from rlx_py.ir.nodes.node import OPS
from support.samples.sample import Array, Sample, apart, between, hostile, reals, sample, ties

INF, NAN = np.inf, np.nan
WIDE = (2, 37)  # longer than a vector of any type here, with a remainder
EDGES = np.array([0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -3.0, INF, -INF, NAN, 1e-30, -1e-30, 1e30,
                  -1e30, 88.5, -104.0, 1e-3, 3.25, 710.0, -7.0, 1e5, -2.5, 100.25])

# Where an op is smooth and finite.
DOMAINS: dict[str, tuple[float, float]] = {
    "neg": (-2, 2), "exp": (-3, 3), "exp2": (-3, 3), "expm1": (-1, 2), "log": (0.1, 5),
    "log1p": (-0.8, 4), "sqrt": (0.1, 5), "rsqrt": (0.1, 5), "sin": (-9, 9), "cos": (-9, 9),
    "tan": (-1.3, 1.3), "asin": (-0.9, 0.9), "acos": (-0.9, 0.9), "atan": (-4, 4),
    "sinh": (-3, 3), "cosh": (-3, 3), "tanh": (-3, 3), "asinh": (-4, 4), "acosh": (1.2, 9),
    "atanh": (-0.9, 0.9), "erf": (-2.5, 2.5), "erfc": (-2.5, 2.5), "erfinv": (-0.9, 0.9),
    "logistic": (-6, 6),
    "lgamma": (0.2, 9), "digamma": (0.3, 9), "entr": (0.1, 4), "silu": (-5, 5), "gelu": (-4, 4),
    "gelu_tanh": (-4, 4), "gelu_slope": (-4, 4), "gelu_tanh_slope": (-4, 4),
    "normal_tail": (0.2, 6), "mish_slope": (-4, 4), "tanhshrink_slope": (-4, 4),
}
KINKED = ("abs", "relu")  # smooth away from 0
STEPS = ("sign", "floor", "ceil", "round", "trunc")
PAIRED = ("add", "sub", "mul", "guarded_mul", "zero_mul", "max", "min")
COMPARED = ("eq", "ne", "lt", "le", "gt", "ge")
LOGICAL = ("and", "or", "xor")


def op(name: str, case: str, *arrays: Any, smooth: bool = True, **attrs: Any) -> Sample:
    return sample(OPS[name], case, *(np.asarray(a) for a in arrays), smooth=smooth, **attrs)


def unary(name: str, inside: Array, edges: Array = EDGES, **attrs: Any) -> list[Sample]:
    """A sample inside the domain, one at the edges, a scalar and an empty one."""
    tag = "".join(f"{k}{v}_" for k, v in attrs.items())
    smooth = OPS[name].differentiable
    return [op(name, f"{tag}inside", inside, smooth=smooth, **attrs),
            op(name, f"{tag}edges", edges, smooth=False, **attrs),
            op(name, f"{tag}scalar", inside.flat[3], smooth=smooth, **attrs),
            op(name, f"{tag}empty", np.zeros((3, 0)), smooth=smooth, **attrs)]


def pairs(a: Array, b: Array) -> tuple[Array, Array]:
    """Every element of a with every one of b."""
    x, y = np.meshgrid(a, b)
    return x.ravel(), y.ravel()


SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, 0.5, 2.0, -3.0, INF, -INF, NAN, 1e30, 1e-30])
LINE = [s for name, (low, high) in DOMAINS.items() for s in unary(name, between(low, high, *WIDE))]
KINKS = [s for name in KINKED for s in unary(name, apart(*WIDE))]
STEPPED = [s for name in STEPS for s in unary(name, between(-3, 3, *WIDE))]
PAIRS = [s for name in PAIRED for s in (
    op(name, "inside", apart(*WIDE), apart(*WIDE, seed=1)),
    op(name, "ties", *pairs(SPECIAL, SPECIAL), smooth=False),
    op(name, "scalar", 0.3, -1.2), op(name, "empty", np.zeros((0, 4)), np.zeros((0, 4))))]
COMPARISONS = [s for name in COMPARED for s in (
    op(name, "ties", ties(*WIDE), ties(*WIDE, seed=1)),
    op(name, "special", *pairs(SPECIAL, SPECIAL)),
    op(name, "empty", np.zeros((0, 4)), np.zeros((0, 4))))]
LOGIC = [s for name in LOGICAL for s in (
    op(name, "ties", ties(*WIDE), ties(*WIDE, seed=1)), op(name, "scalar", 1.0, -2.0))]
OTHERS = [
    op("not", "ties", ties(*WIDE)), op("not", "empty", np.zeros((2, 0))),
    op("shl", "counts", ties(5, 8), between(0, 2, 5, 8)),
    op("shl", "out_of_range", ties(5, 8), between(-30, 30, 5, 8)),
    op("shr", "counts", reals(5, 8) * 9, between(0, 2, 5, 8)),
    op("shr", "out_of_range", reals(5, 8) * 9, between(-30, 30, 5, 8)),
    op("select", "inside", reals(*WIDE) > 0, reals(*WIDE, seed=1), reals(*WIDE, seed=2)),
    op("select", "hostile", reals(*WIDE) > 0, hostile(*WIDE), hostile(*WIDE, seed=1),
       smooth=False),
    op("select", "scalar", np.bool_(True), 1.5, NAN, smooth=False),
    op("stop_gradient", "inside", reals(3, 5), smooth=False),
    op("div", "inside", reals(*WIDE), apart(*WIDE)),
    op("div", "special", *pairs(SPECIAL, SPECIAL), smooth=False),
    op("int_div", "inside", reals(*WIDE) * 5, apart(*WIDE) * 2),
    op("int_div", "zero", ties(5, 5), ties(5, 5, seed=1)),
    op("rem", "inside", between(3.1, 3.9, *WIDE), between(0.8, 1.0, *WIDE, seed=1)),
    op("rem", "signs", apart(5, 8) * 9, apart(5, 8, seed=1) * 2, smooth=False),
    op("rem", "special", *pairs(SPECIAL, SPECIAL), smooth=False),
    op("fma", "inside", reals(*WIDE), reals(*WIDE, seed=1), reals(*WIDE, seed=2)),
    op("fma", "special", *pairs(SPECIAL, SPECIAL), np.tile(SPECIAL[::-1], 12), smooth=False),
    op("pow", "inside", between(0.2, 3, *WIDE), between(-2, 3, *WIDE, seed=1)),
    op("pow", "special", *pairs(SPECIAL, SPECIAL), smooth=False),
    op("pow", "negative", -between(0.5, 2, 4, 3), np.tile([2.0, 3.0, -1.0], (4, 1)), smooth=False),
    op("atan2", "inside", apart(*WIDE), apart(*WIDE, seed=1)),
    op("atan2", "special", *pairs(SPECIAL, SPECIAL), smooth=False),
    op("exp_times", "inside", reals(*WIDE), reals(*WIDE, seed=1), reals(*WIDE, seed=2) * 1e-3),
    op("exp_times", "ends", np.repeat([3.0, -1e-3], 4), np.tile([-700.0, -90.0, 80.0, -INF], 2),
       np.full(8, 1e-9), smooth=False),
    op("xlogy", "inside", reals(*WIDE), between(0.2, 4, *WIDE)),
    op("xlogy", "special", *pairs(SPECIAL, SPECIAL), smooth=False),
    *unary("leaky_relu", apart(*WIDE), slope=0.2), *unary("leaky_relu", apart(3, 4), slope=-0.5),
    *unary("softplus", between(-5, 5, *WIDE), beta=1.0, threshold=20.0),
    *unary("softplus", between(-5, 5, 3, 4), beta=2.5, threshold=20.0),
    *unary("softplus", between(2, 9, 3, 4), beta=1.0, threshold=1.0),
    *unary("celu_slope", apart(*WIDE), alpha=1.5),
    *[op(name, case, p, y) for name in ("binary_cross_entropy", "binary_cross_entropy_slope")
      for case, p, y in (("inside", between(0.05, 0.95, *WIDE), between(0, 1, *WIDE, seed=1)),
                         ("empty", np.zeros((0, 3)), np.zeros((0, 3))))],
    *[op(name, "ends", *pairs([0.0, 1.0, 1e-14, 0.5], [0.0, 1.0, 0.25]), smooth=False)
      for name in ("binary_cross_entropy", "binary_cross_entropy_slope")],
    op("logits_cross_entropy", "inside", reals(*WIDE) * 3, between(0, 1, *WIDE, seed=1),
       between(0, 1, *WIDE, seed=2)),
    op("logits_cross_entropy", "special", *pairs(SPECIAL, [0.0, 1.0, 0.5]),
       np.repeat([1.0, 0.0, 0.5], SPECIAL.size), smooth=False),
    *unary("polygamma", between(0.4, 9, *WIDE), n=1), *unary("polygamma", between(1, 6, 3, 4), n=3),
    *unary("sinc_derivative", between(-4, 4, *WIDE), n=0),
    *unary("sinc_derivative", between(-2, 2, 3, 4), n=2),
    *[op("cast", f"to_{d}", between(-9, 9, *WIDE), smooth=False, dtype=d) for d in DTYPES.values()],
    *[op("cast", f"edges_to_{d}", EDGES, smooth=False, dtype=d) for d in (i64, i32, i8, u32, u8,
                                                                        bool_, f32, bf16)],
    *[op("bitcast", f"to_{d}", reals(3, 5).astype(s), smooth=False, dtype=d)
      for s, d in ((np.float32, i32), (np.float32, u32))],
]

SAMPLES = [*LINE, *KINKS, *STEPPED, *PAIRS, *COMPARISONS, *LOGIC, *OTHERS]
