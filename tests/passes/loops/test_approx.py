"""Approximations against 250-bit arithmetic: at most 2 ulp over random and boundary arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import mpmath as mp
import numpy as np
import pytest

from rlx_py.passes.loops.math import APPROXIMATIONS
from rlx_py.passes.loops.math.scalars import NumpyScalars, fma32, fma64
from rlx_py.passes.loops.math.trigonometric import sin_cos_pi

Array = Any
Number = Any
LIMIT = 2.0
DTYPES = {"f32": np.float32, "f64": np.float64}
PRECISION = {"f32": 24, "f64": 53}
SMALLEST = {"f32": -149, "f64": -1074}
EXPONENT = {"f32": 126, "f64": 1022}
OVERFLOW = {"f32": 88.72, "f64": 709.78}
COUNT = 300
S = NumpyScalars()


@pytest.fixture(autouse=True)
def precise() -> Any:
    """250 bits, and IEEE arithmetic without warnings."""
    with mp.workprec(250), np.errstate(all="ignore"):
        yield


def uniform(rng: Any, dtype: str, low: float, high: float) -> Array:
    """Evenly spread arguments."""
    return rng.uniform(low, high, COUNT)


def magnitudes(rng: Any, dtype: str, low: float | None = None, high: float | None = None) -> Array:
    """Both signs, exponents evenly spread over all of the format or over [low, high]."""
    low = -EXPONENT[dtype] - 10 if low is None else low
    high = EXPONENT[dtype] + 1.9 if high is None else high
    return 2.0 ** rng.uniform(low, high, COUNT) * rng.choice([-1, 1], COUNT)


def around(rng: Any, dtype: str, centre: float) -> Array:
    """Arguments at all distances from a point."""
    return centre + rng.normal(size=COUNT) * 2.0 ** -rng.integers(1, 50, COUNT)


def thresholds(rng: Any, dtype: str) -> Array:
    """Where exp and its like overflow, underflow and saturate."""
    edge = OVERFLOW[dtype]
    return np.concatenate(
        [rng.uniform(edge - 1, edge + 2, COUNT // 2), rng.uniform(-1.2 * edge, 40 - edge, COUNT)]
    )


def multiples(rng: Any, dtype: str) -> Array:
    """Near multiples of π/2 up to 2^20 π, and the worst case of f64 reduction."""
    exact = [float(mp.pi / 2 * int(k)) for k in rng.integers(1, 2**21, COUNT)]
    worst = 6381956970095103 * 2.0**797 if dtype == "f64" else 16367173 * 2.0**72
    return np.concatenate([exact, [worst, 0.75, float(np.pi / 4)]])


Source = Callable[[Any, str], Array]


@dataclass(frozen=True)
class Case:
    """An approximation, what it approximates, and arguments to compare at."""

    reference: Callable[..., Number]
    sources: Sequence[Source]
    domain: Callable[[Array], Array] = np.isfinite
    scale: Callable[[Number, int], Number] | None = None
    orders: Sequence[int] = ()
    limit: float = LIMIT


def between(low: float, high: float) -> Source:
    """`uniform` over an interval."""
    return partial(uniform, low=low, high=high)


def near(centre: float) -> Source:
    """`around` a point."""
    return partial(around, centre=centre)


def not_pole(x: Array) -> Array:
    """Everything but 0, -1, -2…"""
    return np.isfinite(x) & ((x > 0) | (x != np.floor(x)))


def lgamma_reference(x: Number) -> Number:
    """log |Γ(x)|."""
    if x > 0:
        return mp.loggamma(x)
    return mp.log(mp.pi) - mp.log(abs(x * mp.sinpi(x))) - mp.loggamma(-x)


@cache
def sinc_series(n: int) -> list[Number]:
    """The n-th derivative of sin πx / πx is x^(n mod 2) Σ c_j x^2j."""
    orders = range((n + 1) // 2, (n + 1) // 2 + 50)
    return [
        (-1) ** m * mp.pi ** (2 * m) / ((2 * m + 1) * mp.factorial(2 * m - n)) for m in orders
    ]


def sinc_reference(x: Number, n: int = 0) -> Number:
    """The n-th derivative of sin πx / πx, by its power series or by recurrence."""
    if abs(x) < 1:
        return x ** (n % 2) * mp.fsum(c * x ** (2 * j) for j, c in enumerate(sinc_series(n)))
    total = mp.sinpi(x) / (mp.pi * x)
    for k in range(1, n + 1):
        wave = mp.cospi(x) if k % 2 else mp.sinpi(x)
        sign = -1 if k % 4 > 1 else 1
        total = (mp.pi ** (k - 1) * sign * wave - k * total) / x
    return total


def erfc_reference(x: Number) -> Number:
    """erfc x, which mpmath cannot do far out."""
    return mp.erfc(x) if abs(x) < 1000 else mp.mpf(0 if x > 0 else 2)


def polygamma_reference(x: Number, n: int) -> Number:
    """ψ⁽ⁿ⁾(x)."""
    return mp.psi(n, x)


def envelope(x: Number, n: int) -> Number:
    """The size of the n-th derivative of sinc around x."""
    return mp.pi**n / max(n + 1, mp.pi * abs(x))


def unit(x: Number, n: int) -> Number:
    """The terms that cancel at a zero are of order 1 or larger."""
    return mp.mpf(1) if x < 0 else mp.mpf(2) ** -60


inside = lambda x: np.abs(x) <= 1  # noqa: E731
EXP = (between(-20, 20), between(-1, 1), thresholds, magnitudes)
LOG = (between(0, 4), near(1.0), magnitudes)
TRIG = (between(-10, 10), multiples, magnitudes)
ODD = (between(-4, 4), magnitudes, near(0.0), near(1.0))
GAMMA = (between(0, 12), between(-12, 0), near(0.0), near(-3.0), near(1.0), near(2.0))

CASES = {
    "exp": Case(mp.exp, EXP),
    "exp2": Case(lambda x: mp.mpf(2) ** x, (*EXP, between(-1100, 1100), between(-150, 129))),
    "expm1": Case(mp.expm1, (*EXP, near(0.0))),
    "logistic": Case(lambda x: 1 / (1 + mp.exp(-x)), EXP),
    "log": Case(mp.log, LOG, lambda x: x > 0),
    "log2": Case(lambda x: mp.log(x, 2), LOG, lambda x: x > 0),
    "log10": Case(mp.log10, LOG, lambda x: x > 0),
    "log1p": Case(mp.log1p, (between(-1, 3), near(0.0), magnitudes), lambda x: x > -1),
    "sin": Case(mp.sin, TRIG),
    "cos": Case(mp.cos, TRIG),
    "tan": Case(mp.tan, TRIG),
    "asin": Case(mp.asin, (between(-1, 1), near(0.0), near(0.5), near(1.0)), inside),
    "acos": Case(mp.acos, (between(-1, 1), near(0.0), near(-1.0), near(1.0)), inside),
    "atan": Case(mp.atan, ODD),
    "sinh": Case(mp.sinh, (*ODD, thresholds)),
    "cosh": Case(mp.cosh, (*ODD, thresholds)),
    "tanh": Case(mp.tanh, (*ODD, between(-20, 20))),
    "asinh": Case(mp.asinh, ODD),
    "acosh": Case(mp.acosh, (between(1, 4), near(1.0), magnitudes), lambda x: x >= 1),
    "atanh": Case(mp.atanh, (between(-1, 1), near(0.0), near(1.0)), lambda x: np.abs(x) < 1),
    "erf": Case(mp.erf, ODD),
    "erfc": Case(erfc_reference, (*ODD, between(0, 10.5), between(0, 27))),
    "normal_tail": Case(lambda x: mp.exp(x * x / 2) * mp.erfc(abs(x) / mp.sqrt(2)) / 2,
                        (between(-4, 4), between(-14, 14), between(-39, 39), near(0.0)),
                        limit=3.0),  # in f32 one polynomial for all of it
    "erfinv": Case(mp.erfinv, (between(-1, 1), near(0.0), near(1.0)), lambda x: np.abs(x) < 1),
    "entr": Case(lambda x: -x * mp.log(x), LOG, lambda x: x > 0),
    "lgamma": Case(lgamma_reference, (*GAMMA, partial(magnitudes, high=60)), not_pole, unit),
    "digamma": Case(mp.digamma, (*GAMMA, partial(magnitudes, low=-60, high=20)), not_pole, unit),
    "polygamma": Case(polygamma_reference, GAMMA, not_pole, unit, (1, 2, 3)),
    "sinc": Case(sinc_reference, (between(-6, 6), near(0.0), partial(magnitudes, high=40))),
    "sinc_derivative": Case(
        sinc_reference,
        (between(-1, 1), between(-6, 6), partial(magnitudes, low=-60, high=40)),
        scale=envelope,
        orders=(0, 1, 2, 3),
    ),
}
BINARY = ("pow", "atan2", "xlogy", "exp_times")


def ulps(y: float, exact: Number, dtype: str, scale: Number = 0) -> float:
    """|y - exact| in units of the last place of max(|exact|, scale)."""
    largest = mp.mpf(float(np.finfo(DTYPES[dtype]).max))
    if np.isnan(y):
        return np.inf
    if np.isinf(y):
        return 0.0 if mp.sign(exact) == np.sign(y) and abs(exact) > largest else np.inf
    size = max(abs(exact), scale)
    exponent = mp.frexp(size)[1] if size else SMALLEST[dtype]
    unit = mp.mpf(2) ** max(exponent - PRECISION[dtype], SMALLEST[dtype])
    return float(abs(mp.mpf(float(y)) - exact) / unit)


def assert_within(
    f: Callable[..., Array],
    reference: Callable[..., Number],
    arguments: tuple[Array, ...],
    dtype: str,
    scale: Callable[[Number], Number] | None = None,
    limit: float = LIMIT,
) -> None:
    """Every result is within the limit, in ulp, of the reference."""
    y = np.asarray(f(S, *arguments, dtype))
    assert y.dtype == DTYPES[dtype]
    for result, *point in zip(y, *arguments, strict=True):
        exact_point = [mp.mpf(float(p)) for p in point]
        exact = reference(*exact_point)
        exact = mp.re(exact)
        allowed = scale(exact_point[0]) if scale else 0
        error = ulps(result, exact, dtype, allowed)
        assert error <= limit, f"{error:.2f} ulp at {point}: {result!r}, exact {mp.nstr(exact, 20)}"


def runs(names: Sequence[str]) -> list[tuple[str, int | None]]:
    """(name, order), the order None for functions that take none."""
    return [(name, n) for name in names for n in (CASES[name].orders or (None,))]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("name", "order"), runs(list(CASES)))
def test_at_most_two_ulp(name: str, order: int | None, dtype: str) -> None:
    case, f = CASES[name], APPROXIMATIONS[name]
    rng = np.random.default_rng(0)
    x = np.concatenate([source(rng, dtype) for source in case.sources]).astype(DTYPES[dtype])
    x = x[np.isfinite(x) & case.domain(x) & (x != 0)]
    extra = {} if order is None else {"n": order}
    scale = None if case.scale is None else (lambda v: case.scale(v, order or 0))
    assert_within(partial(f, **extra), partial(case.reference, **extra), (x,), dtype, scale,
                  case.limit)


@pytest.mark.parametrize("dtype", DTYPES)
def test_power_over_the_range_of_results(dtype: str) -> None:
    rng = np.random.default_rng(1)
    base = np.abs(magnitudes(rng, dtype, -EXPONENT[dtype], EXPONENT[dtype]))
    base = np.concatenate([base, np.abs(around(rng, dtype, 1.0)), rng.uniform(0, 5, COUNT)])
    base = base.astype(DTYPES[dtype])
    base = base[(base != 1) & (base > 0)]
    exponent = rng.uniform(-1.03, 1.0, base.size) * OVERFLOW[dtype] / np.log(base.astype(float))
    exponent = np.where(np.abs(exponent) < 1e30, exponent, 2.0).astype(DTYPES[dtype])
    assert_within(APPROXIMATIONS["pow"], lambda x, y: x**y, (base, exponent), dtype)
    whole = np.round(exponent % 40 - 20).astype(DTYPES[dtype])
    moderate = -(base % 5) - DTYPES[dtype](0.01)
    assert_within(APPROXIMATIONS["pow"], lambda x, y: x ** int(y), (moderate, whole), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_angle_of_a_point(dtype: str) -> None:
    rng = np.random.default_rng(2)
    x = np.concatenate([source(rng, dtype) for source in ODD]).astype(DTYPES[dtype])
    y = np.concatenate([rng.permutation(x), (x * rng.uniform(-3, 3, x.size)).astype(x.dtype)])
    x = np.concatenate([x, x])
    keep = np.isfinite(x) & np.isfinite(y)
    assert_within(APPROXIMATIONS["atan2"], mp.atan2, (y[keep], x[keep]), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_x_log_y(dtype: str) -> None:
    rng = np.random.default_rng(2)
    y = np.abs(np.concatenate([source(rng, dtype) for source in LOG])).astype(DTYPES[dtype])
    x = rng.normal(size=y.size).astype(DTYPES[dtype])
    keep = (y > 0) & np.isfinite(y)
    assert_within(APPROXIMATIONS["xlogy"], lambda x, y: x * mp.log(y), (x[keep], y[keep]), dtype)
    x, y = (np.array(v, DTYPES[dtype]) for v in ((0, -0.0, 0, 0, 2, -1), (0, inf, nan, -1, 0, 0)))
    expected = np.array([0, 0, nan, 0, -inf, inf])
    np.testing.assert_array_equal(APPROXIMATIONS["xlogy"](S, x, y, dtype), expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_multiple_of_an_exponential(dtype: str) -> None:
    rng, kind, edge = np.random.default_rng(4), DTYPES[dtype], OVERFLOW[dtype]
    x = np.concatenate([rng.uniform(-1, 1, COUNT), rng.uniform(-edge, edge, COUNT)]).astype(kind)
    rest = (x * rng.uniform(-1, 1, x.size) * np.finfo(kind).eps / 2).astype(kind)
    factor = (rng.choice([-1, 1], x.size) * 2.0 ** (rng.uniform(-1, 1, x.size) * (
        60 if dtype == "f32" else 500))).astype(kind)
    exact = factor.astype(float) * np.exp(np.asarray(x, float))
    keep = np.isfinite(factor) & (np.abs(exact) < np.finfo(kind).max / 4)
    assert_within(APPROXIMATIONS["exp_times"], lambda f, x, r: f * mp.exp(x + r),
                  (factor[keep], x[keep], rest[keep]), dtype)
    # Exponentials that alone are below the normal numbers, or 0, or infinite.
    far = np.array([-edge - 6, -edge - 30, -500 * edge, edge + 20, 500 * edge], kind)
    size = np.array([2.0**40, 2.0**60, 2.0**60, 2.0**-40, 2.0**-40], kind)
    assert_within(APPROXIMATIONS["exp_times"], lambda f, x, r: f * mp.exp(x + r),
                  (size, far, np.zeros(5, kind)), dtype)


SPECIAL = (0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, -3.0, 1.5)
LIKE_NUMPY = {
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2,
    "log10": np.log10, "log1p": np.log1p, "sin": np.sin, "cos": np.cos, "tan": np.tan,
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh,
    "tanh": np.tanh, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "pow": np.power, "atan2": np.arctan2,
}  # fmt: skip
nan, inf = np.nan, np.inf
AT_SPECIAL = {
    "logistic": (0.5, 0.5, 1, 0, nan),
    "erf": (0.0, -0.0, 1, -1, nan),
    "erfc": (1, 1, 0, 2, nan),
    "normal_tail": (0.5, 0.5),
    "erfinv": (0.0, -0.0, nan, nan, nan),
    "entr": (0, 0, -inf, -inf, nan, -0.0, -inf),
    "lgamma": (inf, inf, inf, inf, nan, 0, inf),
    "digamma": (-inf, inf, inf, nan, nan, -float(mp.euler), nan),
    "sinc": (1, 1, nan, nan, nan, 0, 0),
}


def same(a: Array, b: Array) -> Array:
    """Equal to a few ulp, NaN with NaN, zeros and infinities by sign."""
    close = np.isclose(a, b, rtol=1e-6, atol=0, equal_nan=True)
    return close & ((np.signbit(a) == np.signbit(b)) | np.isnan(a))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", LIKE_NUMPY)
def test_special_arguments_as_numpy(name: str, dtype: str) -> None:
    kind = DTYPES[dtype]
    large = np.finfo(kind).max
    points = np.array([*SPECIAL, 4, 2.0**24 + 1, large, -large, np.finfo(kind).smallest_subnormal])
    points = points.astype(kind)
    grid = np.meshgrid(points, points) if name in BINARY else [points]
    ours, theirs = APPROXIMATIONS[name](S, *grid, dtype), LIKE_NUMPY[name](*grid)
    agree = same(ours, theirs)
    assert agree.all(), ([g[~agree] for g in grid], ours[~agree], theirs[~agree])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", AT_SPECIAL)
def test_special_arguments_of_the_others(name: str, dtype: str) -> None:
    expected = np.array(AT_SPECIAL[name], DTYPES[dtype])
    points = np.array(SPECIAL[: expected.size], DTYPES[dtype])
    if name == "sinc":  # the sign of sin πx = 0 is nobody's business
        expected, points = expected[:5], points[:5]
    assert same(APPROXIMATIONS[name](S, points, dtype), expected).all()


@pytest.mark.parametrize("n", [1, 2, 3])
def test_polygamma_at_its_poles_and_at_infinity(n: int) -> None:
    y = APPROXIMATIONS["polygamma"](S, np.array([0.0, -1.0, -2.0, inf, nan]), "f64", n=n)
    pole = inf if n % 2 else -inf
    assert np.array_equal(y, [pole, pole, pole, 0.0, nan], equal_nan=True)


def test_high_orders() -> None:
    x = np.array([0.0, 0.3, 2.7, 40.25, -3.3])
    for n in (12, 30):
        y = APPROXIMATIONS["sinc_derivative"](S, x, "f64", n=n)
        exact = [float(sinc_reference(mp.mpf(v), n)) for v in x if v or n % 2 == 0]
        assert np.allclose(y, exact, rtol=1e-14, atol=1e-15 * np.pi**n / (n + 1))
        z = APPROXIMATIONS["polygamma"](S, x[1:], "f64", n=n)
        exact = [float(mp.re(mp.psi(n, mp.mpf(v)))) for v in x[1:]]
        assert np.allclose(z, exact, rtol=1e-14)


def test_half_turns_are_exact() -> None:
    x = np.array([0.5, 1.0, 1.5, 2.0, 1e15 + 0.5, 2.0**60, -7.5])
    n, sine, cosine = sin_cos_pi(S, x, "f64")
    assert np.all(sine[0] == 0)
    assert np.all(cosine[0] == 1)
    assert np.array_equal(n % 2, np.abs(x * 2) % 2)


def test_every_approximation_has_a_case() -> None:
    assert set(APPROXIMATIONS) == {*CASES, *BINARY}


@pytest.mark.parametrize(("fma", "dtype", "widest"), [(fma32, "f32", 20), (fma64, "f64", 60)])
def test_the_emulated_fma_rounds_once(fma: Any, dtype: str, widest: int) -> None:
    rng = np.random.default_rng(3)
    a, b = (magnitudes(rng, dtype, -widest, widest).astype(DTYPES[dtype]) for _ in range(2))
    cancelling = -a * b * (1 + rng.integers(-4, 4, COUNT) * 2.0 ** -rng.integers(1, 60, COUNT))
    c = np.where(rng.random(COUNT) < 0.5, cancelling, magnitudes(rng, dtype, -99, 99))
    c = c.astype(DTYPES[dtype])
    with mp.workprec(600):
        for u, v, w, y in zip(a, b, c, fma(a, b, c), strict=True):
            exact = mp.mpf(float(u)) * mp.mpf(float(v)) + mp.mpf(float(w))
            assert ulps(y, exact, dtype) <= 0.5
