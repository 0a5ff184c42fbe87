"""Minimax polynomials for `passes/loops/math`, by Remez exchange in 90-digit arithmetic.

Run as `python tests/tools/fit.py > passes/loops/math/coefficients.py`: the coefficient module is
this script's output. Each entry says which function is fitted, on which interval and with which
weight, so a degree or an interval is changed here and nowhere else.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

import mpmath as mp
import numpy as np

mp.mp.dps = 90
Function = Callable[[mp.mpf], mp.mpf]


@dataclass(frozen=True)
class Fit:
    """One table: polynomials of the given degrees nearest to `target` on [low, high].

    `weight` turns the error of the polynomial into the relative error of the final result.
    """

    name: str
    target: Function
    weight: Function
    low: mp.mpf
    high: mp.mpf
    degrees: dict[str, int]
    meaning: str


def chebyshev_grid(low: mp.mpf, high: mp.mpf, count: int) -> list[mp.mpf]:
    """`count` points dense at both ends, none at an end (the targets are 0/0 there)."""
    middle, half = (low + high) / 2, (high - low) / 2
    return [middle - half * mp.cos(mp.pi * (i + 0.5) / count) for i in range(count)]


def evaluate(coefficients: list[mp.mpf], x: mp.mpf) -> mp.mpf:
    """Horner's rule."""
    total = mp.mpf(0)
    for c in reversed(coefficients):
        total = total * x + c
    return total


def alternate(errors: list[mp.mpf], size: int) -> list[int]:
    """Indices of `size` extrema of alternating sign, the largest among them."""
    chosen: list[int] = []
    for i, e in enumerate(errors):
        if chosen and (e > 0) == (errors[chosen[-1]] > 0):
            if abs(e) > abs(errors[chosen[-1]]):
                chosen[-1] = i
        else:
            chosen.append(i)
    while len(chosen) > size:
        i = min(range(len(chosen)), key=lambda j: abs(errors[chosen[j]]))
        if len(chosen) == size + 1 or i in (0, len(chosen) - 1):
            chosen.pop(0 if abs(errors[chosen[0]]) < abs(errors[chosen[-1]]) else -1)
        else:
            left = abs(errors[chosen[i - 1]]) < abs(errors[chosen[i + 1]])
            del chosen[i - left : i - left + 2]
    return chosen


def remez(
    grid: list[mp.mpf], values: list[mp.mpf], weights: list[mp.mpf], degree: int
) -> tuple[list[mp.mpf], mp.mpf]:
    """Minimise max |w (v - Σ c_k x^k)| over the grid; (c, error)."""
    size = degree + 2
    points = [round(i * (len(grid) - 1) / (size - 1)) for i in range(size)]
    coefficients: list[mp.mpf] = []
    level = mp.mpf(0)
    for _ in range(60):
        rows = [
            [grid[i] ** k for k in range(degree + 1)] + [(-1) ** j / weights[i]]
            for j, i in enumerate(points)
        ]
        solution = mp.lu_solve(mp.matrix(rows), mp.matrix([values[i] for i in points]))
        coefficients = [solution[k] for k in range(size - 1)]
        errors = [
            w * (v - evaluate(coefficients, x))
            for x, v, w in zip(grid, values, weights, strict=True)
        ]
        level = max(abs(e) for e in errors)
        exchanged = alternate(errors, size)
        if len(exchanged) < size or level <= abs(solution[size - 1]) * mp.mpf("1.01"):
            break
        points = exchanged
    return coefficients, level


def rounded(value: mp.mpf, dtype: str) -> mp.mpf:
    """The nearest number of the dtype."""
    nearest = float(value)
    return mp.mpf(float(np.float32(nearest)) if dtype == "f32" else nearest)


def fit(spec: Fit, dtype: str) -> tuple[list[mp.mpf], mp.mpf]:
    """Coefficients exact in the dtype, each rounded before the later ones are fitted again."""
    degree = spec.degrees[dtype]
    grid = chebyshev_grid(spec.low, spec.high, 24 * (degree + 2))
    weights = [abs(spec.weight(x)) for x in grid]
    values = [spec.target(x) for x in grid]
    done: list[mp.mpf] = []
    level = mp.mpf(0)
    for k in range(degree + 1):
        rest, level = remez(grid, values, weights, degree - k)
        if k == 0 and dtype == "f64" and degree > 14:
            return [rounded(c, dtype) for c in rest], level
        done.append(rounded(rest[0], dtype))
        # Dividing by x keeps the basis 1, x, x²…, which has no common zero inside the interval.
        values = [(v - done[k]) / x for x, v in zip(grid, values, strict=True)]
        weights = [w * abs(x) for x, w in zip(grid, weights, strict=True)]
    return done, level


def lgamma_excess(w: mp.mpf) -> mp.mpf:
    """(lgamma(2 + w) - (1 - γ) w) / w²."""
    return (mp.loggamma(2 + w) - (1 - mp.euler) * w) / w**2


def normal_tail_scaled(t: mp.mpf) -> mp.mpf:
    """(1 + x/4) exp(x²/2) Φ(-x) at t = (x - 4) / (x + 4)."""
    x = 4 * (1 + t) / (1 - t)
    return (1 + x / 4) * mp.exp(x * x / 2) * mp.erfc(x / mp.sqrt(2)) / 2


def erfc_scaled(t: mp.mpf, centre: mp.mpf) -> mp.mpf:
    """(1 + 2x) exp(x²) erfc(x) at t = (x - centre) / (x + centre)."""
    x = centre * (1 + t) / (1 - t)
    return (1 + 2 * x) * mp.exp(x * x) * mp.erfc(x)


def root(f: Function) -> Function:
    """The same function of z = x²."""
    return lambda z: f(mp.sqrt(z))


LN2, QUARTER_PI = mp.ln2, mp.pi / 4
SQRT_HALF = mp.sqrt(mp.mpf("0.5"))
TAN_HALF = mp.tan(mp.mpf("0.5"))
ONE = mp.mpf(1)
SLACK = mp.mpf("1.0001")

FITS = (
    Fit(
        "EXP", lambda r: (mp.exp(r) - 1 - r) / r**2, lambda r: r**2 / mp.exp(r),
        -LN2 * SLACK, LN2 * SLACK, {"f32": 5, "f64": 11},
        "exp r = 1 + r + r² P(r), |r| <= log 2",
    ),
    Fit(
        "EXP_FINE", lambda r: (mp.exp(r) - 1 - r) / r**2, lambda r: r**2 / mp.exp(r),
        -LN2 * SLACK, LN2 * SLACK, {"f32": 6},
        "the same to a quarter ulp less",
    ),
    Fit(
        "EXP2", lambda r: (mp.mpf(2) ** r - 1) / r, lambda r: r / mp.mpf(2) ** r,
        -SLACK, SLACK, {"f32": 6, "f64": 12},
        "2^r = 1 + r P(r), |r| <= 1",
    ),
    Fit(
        "EXPM1", lambda r: (mp.expm1(r) - r) / r**2, lambda r: r**2 / mp.expm1(r),
        -LN2 / 2 * SLACK, LN2 / 2 * SLACK, {"f32": 4, "f64": 10},
        "exp r - 1 = r + r² P(r), |r| <= log 2 / 2",
    ),
    Fit(
        "LOG1P", lambda f: (mp.log1p(f) - f + f * f / 2) / f**3, lambda f: f**3 / mp.log1p(f),
        SQRT_HALF - 1, 2 * SQRT_HALF - 1, {"f32": 7},
        "log(1 + f) = f - f²/2 + f³ P(f), sqrt ½ <= 1 + f <= sqrt 2",
    ),
    Fit(
        "ATANH", root(lambda t: (2 * mp.atanh(t) / t - 2) / t**2),
        root(lambda t: t**3 / mp.atanh(t)),
        mp.mpf(0), (3 - 2 * mp.sqrt(2)) ** 2, {"f64": 6},
        "log((1 + t) / (1 - t)) = 2t + t³ P(t²), |t| <= 3 - 2 sqrt 2",
    ),
    Fit(
        "ATANH_TAIL", root(lambda t: ((mp.atanh(t) / t - 1) / t**2 - ONE / 3) / t**2),
        root(lambda t: t**5 / mp.atanh(t)),
        mp.mpf(0), (3 - 2 * mp.sqrt(2)) ** 2, {"f64": 8},
        "atanh t = t + t³/3 + t⁵ P(t²), |t| <= 3 - 2 sqrt 2",
    ),
    Fit(
        "SIN", root(lambda r: (mp.sin(r) - r) / r**3), root(lambda r: r**3 / mp.sin(r)),
        mp.mpf(0), (QUARTER_PI * SLACK) ** 2, {"f32": 2, "f64": 5},
        "sin r = r + r³ P(r²), |r| <= π/4",
    ),
    Fit(
        "COS", root(lambda r: (mp.cos(r) - 1 + r * r / 2) / r**4), root(lambda r: r**4 / mp.cos(r)),
        mp.mpf(0), (QUARTER_PI * SLACK) ** 2, {"f32": 2, "f64": 5},
        "cos r = 1 - r²/2 + r⁴ P(r²), |r| <= π/4",
    ),
    Fit(
        "ASIN", root(lambda x: (mp.asin(x) - x) / x**3), root(lambda x: x**3 / mp.asin(x)),
        mp.mpf(0), ONE / 4, {"f32": 4, "f64": 12},
        "asin x = x + x³ P(x²), |x| <= ½",
    ),
    Fit(
        "ATAN", root(lambda x: (mp.atan(x) - x) / x**3), root(lambda x: x**3 / mp.atan(x)),
        mp.mpf(0), (TAN_HALF * SLACK) ** 2, {"f32": 5, "f64": 13},
        "atan x = x + x³ P(x²), |x| <= tan ½",
    ),
    Fit(
        "SINH", root(lambda x: (mp.sinh(x) - x) / x**3), root(lambda x: x**3 / mp.sinh(x)),
        mp.mpf(0), ONE, {"f32": 3, "f64": 7},
        "sinh x = x + x³ P(x²), |x| <= 1",
    ),
    Fit(
        "TANH", root(lambda x: (mp.tanh(x) - x) / x**3), root(lambda x: x**3 / mp.tanh(x)),
        mp.mpf(0), mp.mpf("0.625") ** 2, {"f32": 4, "f64": 11},
        "tanh x = x + x³ P(x²), |x| <= 0.625",
    ),
    Fit(
        "ERF", root(lambda x: mp.erf(x) / x - 1), root(lambda x: x / mp.erf(x)),
        mp.mpf(0), ONE, {"f32": 6, "f64": 13},
        "erf x = x + x P(x²), |x| <= 1",
    ),
    Fit(
        "ERF_OUTER", lambda t: mp.erf(t + mp.mpf("2.5")), lambda t: ONE,
        mp.mpf("-1.5"), mp.mpf("1.5"), {"f32": 13},
        "erf x = P(x - 2.5), 1 <= x <= 4",
    ),
    Fit(
        "ERFC", lambda t: erfc_scaled(t, mp.mpf(4)), lambda t: 1 / erfc_scaled(t, mp.mpf(4)),
        -ONE, mp.mpf(24) / 32, {"f64": 24},
        "(1 + 2x) exp(x²) erfc x = P((x - 4) / (x + 4)), 0 <= x <= 28",
    ),
    Fit(
        "ERFC", lambda t: erfc_scaled(t, mp.mpf(2)), lambda t: 1 / erfc_scaled(t, mp.mpf(2)),
        -ONE, mp.mpf("8.5") / mp.mpf("12.5"), {"f32": 10},
        "(1 + 2x) exp(x²) erfc x = P((x - 2) / (x + 2)), 0 <= x <= 10.5",
    ),
    Fit(
        "NORMAL_TAIL", normal_tail_scaled, lambda t: 1 / normal_tail_scaled(t),
        -ONE, mp.mpf("35.5") / mp.mpf("43.5"), {"f32": 9},
        "(1 + x/4) exp(x²/2) Φ(-x) = P((x - 4) / (x + 4)), 0 <= x <= 39.5",
    ),
    Fit(
        "LGAMMA", lgamma_excess, lambda w: w**2 / (mp.loggamma(2 + w)),
        -ONE / 2, ONE / 2, {"f64": 19},
        "lgamma(2 + w) = (1 - γ) w + w² P(w), |w| <= ½",
    ),
)


def main() -> None:
    """Print the module of tables; the error reached goes to stderr, in bits."""
    print('"""Minimax coefficients, lowest power first: the output of tests/tools/fit.py."""\n')
    print("# Written by a program: change the fit, not a number.")
    names = sys.argv[1:]
    for spec in FITS:
        if names and spec.name not in names:
            continue
        for dtype in spec.degrees:
            coefficients, level = fit(spec, dtype)
            bits = f"2^{float(mp.log(level, 2)):.1f}"
            print(f"\n# {spec.meaning}; error {bits}\n{spec.name}_{dtype.upper()} = (")
            for c in coefficients:
                print(f"    {float(c)!r},")
            print(")")
            print(spec.name, dtype, bits, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
