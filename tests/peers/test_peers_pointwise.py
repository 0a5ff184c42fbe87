"""Element-wise functions and operators against PyTorch and JAX, at regular and at edge points."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest

from peers.peer import (
    F64_F32,
    Array,
    Convention,
    Function,
    Row,
    call,
    calls,
    check,
    check_convention,
    convention,
    normal,
    row,
    torch,
)

INF, NAN = np.inf, np.nan

WIDE = 3 * normal(3, 1, 4)
POSITIVE = np.abs(WIDE) + 0.1
UNIT = np.tanh(WIDE) * 0.99


def over(domain: Array, names: str) -> dict[str, Array]:
    """One domain for several functions."""
    return dict.fromkeys(names.split(), domain)


# ---- one argument --------------------------------------------------------------------------------

DOMAINS: dict[str, Array] = {
    **over(WIDE, "abs absolute sign square reciprocal floor ceil trunc rint exp exp2 expm1 sin cos "
                 "tan arctan sinh cosh tanh arcsinh deg2rad rad2deg erf erfc sinc logistic sigmoid "
                 "negative nan_to_num"),
    **over(POSITIVE, "log log2 log10 log1p sqrt rsqrt lgamma digamma entr"),
    **over(UNIT, "arcsin arccos arctanh erfinv"),
    "arccosh": 1 + POSITIVE,
}
# PyTorch's trigamma, tetragamma and JAX's zeta are less accurate.
LOOSE = {"digamma": 1e3, "lgamma": 1e3, "rint": 1.0}

POINTS = np.array([-INF, -2.5, -2, -1, -0.5, -0.0, 0.0, 0.5, 1, 1.5, 2, 2.5, INF, NAN])


def without(points: str) -> Array:
    """The edge points but some."""
    return np.array([p for p in POINTS if str(p) not in points.split()])


def edges(name: str, torch_not: str = "", jax_not: str = "") -> list[Row]:
    """A function at the edge points, by each peer but where it differs (see CONVENTIONS)."""
    f, loose = call(name), LOOSE.get(name, 1.0)
    if torch_not == jax_not:
        return [row(f"{name}_edges", f, without(torch_not), order=1, tolerance=loose)]
    return [row(f"{name}_edges_torch", f, without(torch_not), jax=None, order=1, tolerance=loose),
            row(f"{name}_edges_jax", f, without(jax_not), torch=None, order=1, tolerance=loose)]


UNUSUAL: dict[str, tuple[str, str]] = {  # where PyTorch, and where JAX, differs
    "abs": ("nan", "nan 0.0 -0.0"), "absolute": ("nan", "nan 0.0 -0.0"), "sign": ("nan", ""),
    "rsqrt": ("-0.0", ""), "arccosh": ("-inf -2.5 -2.0 -1.0", "-inf -2.5 -2.0 -1.0"),
    "lgamma": ("", "0.0 -0.0"), "digamma": ("-2.0 -1.0", "-inf -0.0 0.0 inf"),
}

ONE: list[Row] = [
    *(row(name, call(name), x, tolerance=LOOSE.get(name, 1.0)) for name, x in DOMAINS.items()),
    *(r for name in DOMAINS for r in edges(name, *UNUSUAL.get(name, ("", "")))),
    *(row(n, f, POINTS) for n, f in calls("isnan isinf isfinite logical_not")),
    *(row(f"{n}_scalar", f, 0.3) for n, f in calls("exp tanh sqrt floor")),
    *(row(f"{n}_empty", f, np.zeros((0, 3))) for n, f in calls("exp sign log")),
    row("polygamma_0", lambda m, x: m.polygamma(0, x), POSITIVE, tolerance=1e3),
    row("polygamma_1", lambda m, x: m.polygamma(1, x), POSITIVE, order=1, tolerance=1e3),
    row("polygamma_3", lambda m, x: m.polygamma(3, x), POSITIVE, order=1, tolerance=1e3),
    row("round", lambda m, x: m.round(x), np.arange(-7, 8) / 2),
    row("round_decimals", lambda m, x: m.round(x, 2), 7 * WIDE,
        torch=lambda x: torch.round(x, decimals=2)),
    row("round_tens", lambda m, x: m.round(x, -1), 70 * WIDE,
        torch=lambda x: torch.round(x, decimals=-1)),
    row("nan_to_num_values", lambda m, x: m.nan_to_num(x, nan=2.0, posinf=3.0, neginf=-4.0),
        POINTS, order=1),
    row("stop_gradient", lambda m, x: x * m.stop_gradient(x) + x, WIDE),
    row("astype_int", lambda m, x: m.astype(x, "int32"), WIDE),
    row("astype_bool", lambda m, x: m.astype(x, "bool"), POINTS),
    row("astype_f32", lambda m, x: m.astype(x, "float32"), WIDE),
    row("clip", lambda m, x: m.clip(x, -1.0, 2.0), WIDE),
    row("clip_low", lambda m, x: m.clip(x, -1.0, None), WIDE),
    row("clip_high", lambda m, x: m.clip(x, None, 0.5), WIDE),
    row("clip_at_bounds", lambda m, x: m.clip(x, -1.0, 2.0), without("nan"), jax=None, order=1,
        note="OPS.md 1: clip passes the gradient at its bounds; JAX gives half"),
    row("clip_by_arrays", lambda m, x, a, b: m.clip(x, a, b), [-2, -1, 0, 1, 2, 3.0],
        [-1, -1, -1, 2, 2, 3.0], [1, 1, 1, 1, 2.0, 4], jax=None, order=1,
        note="OPS.md 1: clip passes the gradient at its bounds; JAX gives half"),
]

# ---- two arguments ---------------------------------------------------------------------------

GRID = np.array([-INF, -2, -1.5, -1, -0.5, -0.0, 0.0, 0.5, 1, 2, 3.5, INF, NAN])
XS, YS = (a.ravel() for a in np.meshgrid(GRID, GRID, indexing="ij"))
LEFT, RIGHT = 2 * normal(3, 1, 4), 2 * normal(2, 1, seed=1)
ROWS_ARE_FEATURES = normal(3, 3, seed=2), normal(3, seed=3)
FINITE = np.isfinite(XS) & np.isfinite(YS)
NUMBERS = ~(np.isnan(XS) | np.isnan(YS))
ORIGIN = (XS == 0) & (YS == 0)


def pairs(name: str, torch_where: Any = True, jax_where: Any = True, order: int = 1) -> list[Row]:
    """A function at pairs of edge points, by each peer where it does not differ."""
    f, found = call(name), []
    if torch_where is not None:
        keep = np.broadcast_to(torch_where, XS.shape)
        found.append(row(f"{name}_pairs_torch_{order}", f, XS[keep], YS[keep], jax=None,
                         order=order))
    if jax_where is not None:
        keep = np.broadcast_to(jax_where, XS.shape)
        found.append(row(f"{name}_pairs_jax_{order}", f, XS[keep], YS[keep], torch=None,
                         order=order))
    return found


ONE_WINS = (XS != YS) & ~(np.isnan(XS) & np.isnan(YS))
BOTH_BOTTOM = (XS == -INF) & (YS == -INF)
SMOOTH_REMAINDER = FINITE & (YS != 0)

TWO: list[Row] = [
    *(row(n, f, LEFT, RIGHT) for n, f in calls(
        "add subtract multiply divide true_divide maximum minimum fmax fmin arctan2 hypot "
        "logaddexp mod remainder fmod")),
    *(row(f"{n}_rows_are_features", f, *ROWS_ARE_FEATURES)
      for n, f in calls("add multiply divide maximum")),
    row("floor_divide", call("floor_divide"), LEFT, RIGHT, torch=None),
    row("floor_divide_value", call("floor_divide"), LEFT, RIGHT, order=0),
    row("power", call("power"), np.abs(LEFT) + 0.1, RIGHT),
    row("power_negative_base", lambda m, x: m.power(x, 3), LEFT),
    row("xlogy", call("xlogy"), LEFT, np.abs(RIGHT) + 0.1),
    row("fma", call("fma"), LEFT, RIGHT, LEFT[:1]),
    row("empty_broadcast", call("multiply"), np.zeros((2, 0, 3)), normal(2, 1, 1)),
    row("scalar_broadcast", call("multiply"), 1.5, normal(2, 3)),
    *(row(f"{n}_pairs", f, XS, YS, order=1) for n, f in calls(
        "add subtract multiply divide less less_equal greater greater_equal equal not_equal "
        "logical_and logical_or logical_xor")),
    *pairs("maximum", True, NUMBERS), *pairs("minimum", True, NUMBERS),
    *pairs("fmax", ONE_WINS, ONE_WINS), *pairs("fmin", ONE_WINS, ONE_WINS),
    *pairs("power", True, ~((XS == 0) & (YS <= 0)) & ~(np.isnan(XS) & (YS == 0))),
    *pairs("remainder", True, True, order=0), *pairs("fmod", True, True, order=0),
    *pairs("floor_divide", True, None, order=0), *pairs("floor_divide", None, True),
    *pairs("remainder", SMOOTH_REMAINDER, SMOOTH_REMAINDER),
    *pairs("fmod", SMOOTH_REMAINDER, SMOOTH_REMAINDER),
    *pairs("arctan2", FINITE & ~ORIGIN, FINITE & ~ORIGIN), *pairs("arctan2", order=0),
    *pairs("hypot", FINITE & ~ORIGIN, FINITE & ~ORIGIN),
    *pairs("hypot", NUMBERS, NUMBERS, order=0),
    *pairs("logaddexp", (XS != YS) | (np.abs(XS) != INF), (XS != INF) & (YS != INF) & ~BOTH_BOTTOM),
    *pairs("xlogy", XS != 0, ~((XS == 0) & ((YS == 0) | np.isnan(YS)))),
    row("where", lambda m, x, y: m.where(x > y, x, y), XS, YS, order=1),
    row("where_broadcast", call("where"), np.arange(6).reshape(2, 1, 3) % 2 > 0, normal(3),
        normal(4, 1)),
    row("power_zero_exponent", lambda m, x: m.power(x, 0.0), GRID, jax=None, order=1,
        note="OPS.md 1: d/dx = 0 at p = 0; JAX gives NaN at 0"),
    row("power_square", lambda m, x: m.power(x, 2.0), GRID, order=1),
    row("power_one", lambda m, x: m.power(x, 1), GRID, order=1),
    row("power_cube", lambda m, x: m.power(x, 3.0), without("inf -inf nan")),
    row("power_half", lambda m, x: m.power(x, 0.5), GRID, jax=None, order=1,
        note="it is sqrt, as NumPy's **; JAX gives +inf at −inf and +0 at −0"),
    row("power_minus_one", lambda m, x: m.power(x, -1.0), GRID, order=1),
    row("power_mixed", lambda m, x, p: m.power(x, p), [0.5, 1, 2.0, 3], [0.0, 0, 0, 1.0],
        torch=None, note="OPS.md 1: ∂²/∂x∂p at p = 0 is 1/x; PyTorch gives 0"),
]

# ---- operators and integers ------------------------------------------------------------------

INTS = np.array([-9, -7, -1, 0, 1, 6, 9, 2**31])
DIVISORS = np.array([2, -2, 3, -3, 4, -7, 5, 7])
BITS = np.array([0b1100, -0b1010, 5, -1, 7, 0, 1, 63])
COUNTS = np.array([0, 1, 2, 3, 30, 4, 5, 31])


def both(name: str, f: Function, *arrays: Any, order: int = 2, **peers: Any) -> Row:
    """An expression that is written alike in every library."""
    return row(name, lambda m, *x: f(*x), *arrays, order=order, **peers)


OPERATORS: list[Row] = [
    *(both(f.__name__, f, LEFT, RIGHT) for f in (operator.add, operator.sub, operator.mul,
                                                 operator.truediv, operator.mod)),
    both("floordiv", operator.floordiv, LEFT, RIGHT, order=0),
    both("pow", operator.pow, np.abs(LEFT) + 0.1, RIGHT),
    both("matmul", operator.matmul, normal(2, 3), normal(3, 4)),
    both("neg_abs", lambda x: -abs(x), WIDE),
    both("scalars", lambda x: 2 * x + 1 - x / 3 + 1 / (4 + x * x) - (2 - x), WIDE),
    both("scalar_powers", lambda x: x**2 + x**3 - x**-1 + 2.0**x, POSITIVE),
    both("scalar_mod", lambda x: x % 2 - 7 % (abs(x) + 1), WIDE, torch=None),
    *(both(f.__name__, f, XS, YS) for f in (operator.lt, operator.le, operator.gt, operator.ge)),
    both("methods", lambda x: x.sum() * x.mean(1) + x.reshape(4, 6).T.sum(0)[1] * x[0, 1],
         normal(4, 2, 3)),
    *(row(f"{n}_int", f, INTS, DIVISORS) for n, f in calls(
        "add subtract multiply floor_divide remainder fmod maximum minimum less equal")),
    *(row(f"{n}_int", f, INTS) for n, f in calls("abs sign negative square floor")),
    row("power_int", lambda m, x: m.power(x, 3), INTS),
    row("power_int_dynamic", call("power"), [2, -3, 0, 1, -1, 5], [10, 3, 0, 60, 7, 1]),
    *(row(n, f, BITS, INTS) for n, f in calls("bitwise_and bitwise_or bitwise_xor")),
    *(row(n, f, BITS, COUNTS) for n, f in calls("left_shift right_shift")),
    row("invert", call("invert"), BITS), row("invert_bool", call("invert"), BITS > 0),
    both("operators_int", lambda x, y: ((x & y) | (x ^ 3)) + (~y) - (x >> 1) // 3 % 5 + (x << 2),
         BITS, INTS),
    row("divide_int", call("divide"), INTS, DIVISORS,
        jax=lambda x, y: (x / y).astype("float32")),
    row("int_float", lambda m, x, i: x * i + i, normal(8), DIVISORS),
]

# ---- deliberate differences ------------------------------------------------------------------

CONVENTIONS: list[Convention] = [
    convention("abs", call("abs"), [-0.0, 0.0], gradients=[[0, 0]], note="OPS.md 1; JAX gives ±1"),
    convention("sign_nan", call("sign"), [NAN, -0.0], value=[NAN, 0],
               note="as NumPy; PyTorch gives 0"),
    convention("rsqrt", call("rsqrt"), [-0.0], value=[-INF], gradients=[[-INF]],
               note="OPS.md 1: the true infinity stays; PyTorch gives +inf"),
    convention("arccosh", call("arccosh"), [-INF, -2.5, -1, 0.5], gradients=[[NAN] * 4],
               note="no derivative where there is no value; the peers give 1/√(x² − 1)"),
    convention("lgamma", call("lgamma"), [-0.0, 0.0], value=[INF, INF], gradients=[[INF, -INF]],
               note="OPS.md 1: the true infinity stays; JAX gives NaN"),
    convention("digamma", call("digamma"), [-0.0, 0.0, INF, -1], value=[INF, -INF, INF, NAN],
               gradients=[[INF, INF, 0, INF]], note="as SciPy; JAX gives NaN, PyTorch 1e32 at −1"),
    convention("maximum", call("maximum"), [1.0, NAN, 2], [1.0, 0, NAN], value=[1, NAN, NAN],
               gradients=[[0.5, 1, 1], [0.5, 1, 1]],
               note="OPS.md 1: half at a tie, NaN propagates; JAX gives 0 at NaN"),
    convention("fmax", call("fmax"), [1.0, NAN, 2], [1.0, 0, NAN], value=[1, 0, 2],
               gradients=[[0.5, 0, 1], [0.5, 1, 0]],
               note="OPS.md 1: half at a tie; PyTorch gives all to the first, JAX to the second"),
    convention("fmin", call("fmin"), [1.0, NAN, 2], [1.0, 0, NAN], value=[1, 0, 2],
               gradients=[[0.5, 0, 1], [0.5, 1, 0]], note="OPS.md 1, as fmax"),
    convention("power_at_0", call("power"), [0.0, 0, 0, 0, 0, NAN], [-1.0, 0, 0.5, 1, 2, 0],
               gradients=[[-INF, 0, INF, 1, 0, 0], [-INF, 0, 0, 0, 0, NAN]],
               note="OPS.md 1: x**p; JAX gives NaN for p ≤ 0"),
    convention("remainder_by_0", call("remainder"), [1.0, -2], [0.0, 0], value=[NAN, NAN],
               gradients=[[1, 1], [NAN, NAN]], note="no derivative where there is no value"),
    convention("arctan2", call("arctan2"), [0.0, 1, INF], [0.0, INF, INF],
               gradients=[[0, 0, 0], [0, 0, 0]],
               note="OPS.md 1: gradient 0 at the singular points; the peers give NaN at infinity"),
    convention("hypot", call("hypot"), [0.0, INF, INF], [0.0, 1, NAN], value=[0, INF, INF],
               gradients=[[0, 0, 0], [0, 0, 0]],
               note="OPS.md 1: distance has gradient 0 at its singular points; infinity beside NaN "
                    "is infinity, as in IEEE and NumPy"),
    convention("logaddexp", call("logaddexp"), [-INF, 1, INF], [-INF, INF, 2],
               value=[-INF, INF, INF], gradients=[[0, 0, 1], [0, 1, 0]],
               note="OPS.md 1: logsumexp of −inf; JAX gives eˣ beside +inf"),
    convention("xlogy", call("xlogy"), [0.0, 0, 0], [0.0, NAN, 2], value=[0, NAN, 0],
               gradients=[[-INF, NAN, np.log(2)], [0, 0, 0]],
               note="OPS.md 1 (⊳): x = 0 makes it 0 for every y; the peers give NaN by y"),
    convention("clip", lambda m, x: m.clip(x, -1, 1), [-1.0, 1, -2, 2], gradients=[[1, 1, 0, 0]],
               note="OPS.md 1: clip passes the gradient at its bounds; JAX gives half"),
    convention("dead_branch", lambda m, x: m.where(x > 0, m.log(x), 0.0), [-1.0, 0, 2],
               gradients=[[0, 0, 0.5]],
               note="OPS.md 1 (⊳): a zero cotangent contributes 0; the peers give NaN at 0"),
    convention("zero_cotangent", lambda m, x: 0.0 * m.sqrt(x), [0.0, 4], gradients=[[0, 0]],
               note="OPS.md 1 (⊳); the peers give NaN at 0"),
    convention("divide_int_by_0", call("floor_divide"), [3, 0, -3], [0, 0, 0], value=[0, 0, 0],
               note="NumPy's value; PyTorch raises"),
    convention("remainder_int_by_0", call("remainder"), [3, 0, -3], [0, 0, 0], value=[0, 0, 0],
               note="NumPy's value; PyTorch raises"),
    convention("shift_beyond", call("left_shift"), [1, 1], [64, -1], value=[0, 0],
               note="0 for a count outside the bits; undefined in PyTorch"),
    convention("power_int_negative", call("power"), [2, 1, -1, 0], [-1, -2, -3, -1],
               value=[0, 1, -1, 0], note="truncated towards 0"),
    convention("float_to_int", lambda m, x: m.astype(x, "int32"), [NAN, 1e20, -INF, -1.9],
               value=[0, 2**31 - 1, -2**31, -1],
               note="saturates, NaN gives 0; undefined in PyTorch"),
]


@pytest.mark.parametrize("case", [*ONE, *TWO, *OPERATORS], ids=str)
@F64_F32
def test_peers_agree(case: Row, dtype: Any) -> None:
    check(case, dtype)


@pytest.mark.parametrize("case", CONVENTIONS, ids=str)
@F64_F32
def test_conventions(case: Convention, dtype: Any) -> None:
    check_convention(case, dtype)
