"""Activations and element-wise losses against 300-bit arithmetic, far out, near 0 and between.

Values are within 4 ulp; first and second derivatives within 4 ulp of the larger of the derivative
and the largest term that its formula sums. On the oracle and in compiled code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import mpmath as mp
import numpy as np
import pytest

import rlx_py as rlx
from rlx_py import nn
from rlx_py.ir.base.types import DType

Array = np.ndarray[Any, Any]
Number = Any
Terms = Callable[[Number], Sequence[Number]]
ULPS = 4
DTYPES = (rlx.f32, rlx.f64)


def sigma(x: Number) -> Number:
    return 1 / (1 + mp.exp(-x))


def both(x: Number) -> Number:
    return sigma(x) * sigma(-x)


def phi(x: Number) -> Number:
    if abs(x) > 1000:  # beyond every type, and mpmath
        return mp.mpf(0)
    return mp.exp(-x * x / 2) / mp.sqrt(2 * mp.pi)


def cdf(x: Number) -> Number:
    if abs(x) > 1000:
        return mp.mpf(x > 0)
    return mp.erfc(-x / mp.sqrt(2)) / 2


def softplus(x: Number) -> Number:
    return mp.log1p(mp.exp(x))


@dataclass(frozen=True)
class Curve:
    """A function of one variable, what it is, its first two derivatives, and terms these sum."""

    function: Callable[[Any], Any]
    exact: tuple[Callable[[Number], Number], ...]
    first: Terms = lambda x: ()
    second: Terms = lambda x: ()
    apart: tuple[float, ...] = ()  # kinks


def v_of(x: Number) -> Number:
    return 2 * mp.sqrt(2 / mp.pi) * (x + mp.mpf("0.044715") * x**3)


def rates(x: Number) -> tuple[Number, Number]:
    k = 2 * mp.sqrt(2 / mp.pi)
    return k * (1 + 3 * mp.mpf("0.044715") * x * x), k * 6 * mp.mpf("0.044715") * x


def gelu_tanh_curve(x: Number) -> Number:
    v, (a, b) = v_of(x), rates(x)
    return both(v) * (2 * a + x * b + x * a * a * (sigma(-v) - sigma(v)))


def gelu_tanh_terms(x: Number) -> Sequence[Number]:
    v, (a, b) = v_of(x), rates(x)
    return [both(v) * t for t in (2 * a, x * b, x * a * a)]


def mish_terms(x: Number) -> tuple[Number, Number, Number, Number]:
    """t = tanh(softplus x), t′, t″ and the largest term of t″."""
    e = mp.exp(x)
    d = e * (e + 2) + 2
    scale = 4 * e / d**3
    return (e * (e + 2) / d, 4 * e * (e + 1) / d**2, scale * (2 + 2 * e - 3 * e**2 - 2 * e**3),
            scale * (2 + 2 * e + 3 * e**2 + 2 * e**3))


def mish_curve(x: Number) -> Number:
    _, t1, t2, _ = mish_terms(x)
    return 2 * t1 + x * t2


def elu(alpha: float, scale: float = 1.0, by: float = 1.0
        ) -> tuple[Callable[[Number], Number], ...]:
    a, s, b = mp.mpf(alpha), mp.mpf(scale), mp.mpf(by)
    return (lambda x: s * (x if x > 0 else a * mp.expm1(x / b)),
            lambda x: s * (1 if x > 0 else a / b * mp.exp(x / b)),
            lambda x: s * (0 if x > 0 else a / b**2 * mp.exp(x / b)))


def softplus_by(beta: float) -> tuple[Callable[[Number], Number], ...]:
    b = mp.mpf(beta)
    return (lambda x: x if b * x > 20 else softplus(b * x) / b,
            lambda x: 1 if b * x > 20 else sigma(b * x),
            lambda x: 0 if b * x > 20 else b * both(b * x))


def straight(*pieces: tuple[float, float, float, float]) -> tuple[Callable[[Number], Number], ...]:
    """From pieces (end, c0, c1, c2), each c0 + c1·x + c2·x² up to its end."""
    def piece(x: Number) -> tuple[Number, Number, Number]:
        return next(tuple(map(mp.mpf, p[1:])) for p in pieces if x <= p[0])

    def at(order: int) -> Callable[[Number], Number]:
        def f(x: Number) -> Number:
            a, b, c = piece(x)
            return (a + b * x + c * x * x, b + 2 * c * x, 2 * c)[order]
        return f

    return at(0), at(1), at(2)


INF = float("inf")
SELU = (1.6732632423543772848170429916717, 1.0507009873554804934193349852946)
SIXTH = mp.mpf(1) / 6
CURVES: dict[str, Curve] = {
    "gelu": Curve(nn.gelu, (lambda x: x * cdf(x), lambda x: cdf(x) + x * phi(x),
                            lambda x: phi(x) * (2 - x * x)),
                  lambda x: (cdf(x), x * phi(x)), lambda x: (2 * phi(x), x * x * phi(x))),
    "gelu tanh": Curve(
        lambda x: nn.gelu(x, "tanh"),
        (lambda x: x * sigma(v_of(x)),
         lambda x: sigma(v_of(x)) + x * both(v_of(x)) * rates(x)[0], gelu_tanh_curve),
        lambda x: (sigma(v_of(x)), x * both(v_of(x)) * rates(x)[0]), gelu_tanh_terms),
    "sigmoid": Curve(nn.sigmoid, (sigma, both, lambda x: both(x) * (sigma(-x) - sigma(x))),
                     second=lambda x: (both(x) * sigma(x), both(x) * sigma(-x))),
    "silu": Curve(nn.silu, (
        lambda x: x * sigma(x), lambda x: sigma(x) + x * both(x),
        lambda x: both(x) * (2 + x * (sigma(-x) - sigma(x)))),
        lambda x: (sigma(x), x * both(x)), lambda x: (2 * both(x), x * both(x))),
    "tanh": Curve(nn.tanh, (mp.tanh, lambda x: mp.sech(x)**2,
                            lambda x: -2 * mp.tanh(x) * mp.sech(x)**2),
                  lambda x: (1,), lambda x: (2 * mp.tanh(x),)),
    "mish": Curve(nn.mish, (
        lambda x: x * mish_terms(x)[0], lambda x: mish_terms(x)[0] + x * mish_terms(x)[1],
        mish_curve),
        lambda x: (mish_terms(x)[0], x * mish_terms(x)[1]),
        lambda x: (2 * mish_terms(x)[1], x * mish_terms(x)[3])),
    "softplus": Curve(nn.softplus, softplus_by(1.0), apart=(20.0,)),
    "softplus of 3x": Curve(lambda x: nn.softplus(x, 3.0), softplus_by(3.0), apart=(20 / 3,)),
    "softplus of x/4": Curve(lambda x: nn.softplus(x, 0.25), softplus_by(0.25), apart=(80.0,)),
    "logsigmoid": Curve(nn.logsigmoid, (lambda x: -softplus(-x), lambda x: sigma(-x),
                                        lambda x: -both(x))),
    "elu": Curve(nn.elu, elu(1.0), apart=(0.0,)),
    "elu 1.5": Curve(lambda x: nn.elu(x, 1.5), elu(1.5), apart=(0.0,)),
    "celu": Curve(nn.celu, elu(1.0), apart=(0.0,)),
    "celu 3": Curve(lambda x: nn.celu(x, 3.0), elu(3.0, by=3.0), apart=(0.0,)),
    "selu": Curve(nn.selu, elu(*SELU), apart=(0.0,)),
    "softsign": Curve(nn.softsign, (
        lambda x: x / (1 + abs(x)), lambda x: 1 / (1 + abs(x))**2,
        lambda x: -2 * mp.sign(x) / (1 + abs(x))**3), apart=(0.0,)),
    "tanhshrink": Curve(nn.tanhshrink, (
        lambda x: x - mp.tanh(x), lambda x: mp.tanh(x)**2,
        lambda x: 2 * mp.tanh(x) * mp.sech(x)**2)),
    "relu": Curve(nn.relu, straight((0, 0, 0, 0), (INF, 0, 1, 0)), apart=(0.0,)),
    "leaky_relu": Curve(lambda x: nn.leaky_relu(x, 0.25), straight((0, 0, 0.25, 0), (INF, 0, 1, 0)),
                        apart=(0.0,)),
    "relu6": Curve(nn.relu6, straight((0, 0, 0, 0), (6, 0, 1, 0), (INF, 6, 0, 0)),
                   apart=(0.0, 6.0)),
    "hardtanh": Curve(nn.hardtanh, straight((-1, -1, 0, 0), (1, 0, 1, 0), (INF, 1, 0, 0)),
                      apart=(-1.0, 1.0)),
    "hardsigmoid": Curve(nn.hardsigmoid, (
        lambda x: min(max((x + 3) / 6, 0), 1), lambda x: SIXTH if abs(x) < 3 else 0, lambda x: 0),
        apart=(-3.0, 3.0)),
    "hardswish": Curve(nn.hardswish, (
        lambda x: x * min(max((x + 3) / 6, 0), 1),
        lambda x: (2 * x + 3) / 6 if abs(x) < 3 else mp.mpf(x > 0),
        lambda x: mp.mpf(1) / 3 if abs(x) < 3 else 0),
        lambda x: ((x + 3) / 6, x / 6) if abs(x) < 3 else (), apart=(-3.0, 3.0)),
    "softshrink": Curve(nn.softshrink, straight((-0.5, 0.5, 1, 0), (0.5, 0, 0, 0),
                                                (INF, -0.5, 1, 0)), apart=(-0.5, 0.5)),
    "hardshrink": Curve(nn.hardshrink, straight((-0.5, 0, 1, 0), (0.5, 0, 0, 0), (INF, 0, 1, 0)),
                        apart=(-0.5, 0.5)),
}


def _logits(y: float, weight: float = 1.0) -> tuple[Callable[[Number], Number], ...]:
    a, b = 1 - mp.mpf(y), mp.mpf(y) * mp.mpf(weight)
    return (lambda z: a * softplus(z) + b * softplus(-z), lambda z: a * sigma(z) - b * sigma(-z),
            lambda z: (a + b) * both(z))


def _logits_loss(y: float, weight: float | None = None) -> Callable[[Any], Any]:
    return lambda z: nn.binary_cross_entropy_with_logits(
        z, rlx.stop_gradient(z * 0.0 + y), reduction="none",
        pos_weight=None if weight is None else rlx.constant(weight, z.dtype))


def _huber(beta: float, scale: float) -> tuple[Callable[[Number], Number], ...]:
    """Of d = x − 0.5: scale·d²/2 within beta, else scale·beta·(|d| − beta/2)."""
    b, s = mp.mpf(beta), mp.mpf(scale)
    return (lambda x: s * ((x - 0.5)**2 / 2 if abs(x - 0.5) < b else b * (abs(x - 0.5) - b / 2)),
            lambda x: s * (x - 0.5 if abs(x - 0.5) < b else b * mp.sign(x - 0.5)),
            lambda x: s if abs(x - 0.5) < b else 0)


# Of x and a fixed target.
LOSSES: dict[str, Curve] = {
    **{f"bce_with_logits {y}": Curve(
        _logits_loss(y), _logits(y),
        lambda z, y=y: ((1 - y) * sigma(z), y * sigma(-z))) for y in (0.0, 1.0, 0.25)},
    **{f"bce_with_logits {y} weighted": Curve(
        _logits_loss(y, 3.0), _logits(y, 3.0),
        lambda z, y=y: ((1 - y) * sigma(z), 3 * y * sigma(-z))) for y in (0.0, 1.0)},
    "soft_margin_loss": Curve(
        lambda x: nn.soft_margin_loss(x, rlx.stop_gradient(x * 0.0 - 1.0), "none"),
        (softplus, sigma, both)),
    "multilabel_soft_margin_loss": Curve(
        lambda x: nn.multilabel_soft_margin_loss(
            x[:, None], rlx.stop_gradient(x * 0.0 + 1.0)[:, None], reduction="none"), _logits(1.0)),
    "mse_loss": Curve(lambda x: nn.mse_loss(x, rlx.constant(0.5, x.dtype), "none"),
                      (lambda x: (x - 0.5)**2, lambda x: 2 * (x - 0.5), lambda x: 2)),
    "l1_loss": Curve(lambda x: nn.l1_loss(x, rlx.constant(0.5, x.dtype), "none"),
                     (lambda x: abs(x - 0.5), lambda x: mp.sign(x - 0.5), lambda x: 0),
                     apart=(0.5,)),
    "huber_loss": Curve(lambda x: nn.huber_loss(x, rlx.constant(0.5, x.dtype), "none", 2.0),
                        _huber(2.0, 1.0), apart=(-1.5, 2.5)),
    "smooth_l1_loss": Curve(
        lambda x: nn.smooth_l1_loss(x, rlx.constant(0.5, x.dtype), "none", 2.0),
        _huber(2.0, 0.5), apart=(-1.5, 2.5)),
    "poisson_nll_loss": Curve(
        lambda x: nn.poisson_nll_loss(x, rlx.constant(2.0, x.dtype), reduction="none"),
        (lambda x: mp.exp(x) - 2 * x, lambda x: mp.exp(x) - 2, mp.exp),
        lambda x: (mp.exp(x), 2)),
    "gaussian_nll_loss": Curve(
        lambda x: nn.gaussian_nll_loss(x, rlx.constant(0.5, x.dtype), rlx.constant(0.25, x.dtype),
                                       reduction="none"),
        (lambda x: (mp.log(0.25) + (x - 0.5)**2 * 4) / 2, lambda x: 4 * (x - 0.5), lambda x: 4)),
    "hinge_loss": Curve(lambda x: nn.hinge_loss(x, rlx.constant(1.0, x.dtype), reduction="none"),
                        straight((1, 1, -1, 0), (INF, 0, 0, 0)), apart=(1.0,)),
}
SUMMED = {  # what a loss is a sum of: its value is held to the largest
    "poisson_nll_loss": lambda x: (mp.exp(x), 2 * x),
    "gaussian_nll_loss": lambda x: (mp.log(2), (x - 0.5)**2 * 2),
}


def points(dtype: DType, apart: Sequence[float]) -> Array:
    """Both signs of all magnitudes, more where functions bend, fade and overflow."""
    rng = np.random.default_rng(1)
    fades = 110 if dtype is rlx.f32 else 760
    most = 30 if dtype is rlx.f32 else 240
    x = np.concatenate([
        [-5.0, -6.0, 5.0, 6.0, 0.0, 1.0, -1.0, -13.0, -20.0, -37.0], rng.uniform(-3, 3, 24),
        rng.uniform(-15, 15, 24), rng.uniform(-fades, fades, 24),
        rng.choice([-1, 1], 24) * 10.0 ** rng.uniform(-most, 0, 24),
        rng.choice([-1, 1], 8) * 10.0 ** rng.uniform(2, most, 8),
        *(k + rng.choice([-1, 1], 8) * 10.0 ** rng.uniform(-6, 0, 8) for k in apart)])
    x = x.astype(dtype.numpy)
    return x[~np.isin(x, np.asarray(apart, dtype.numpy))]


@cache
def graph_of(table: str, name: str, dtype: DType, count: int) -> rlx.Graph:
    """The function, its slope and its curvature, element by element."""
    curve = {"activations": CURVES, "losses": LOSSES}[table][name]
    g = rlx.Graph("f")
    y = curve.function(g.input("x", (count,), dtype))
    g.output("y", y)
    g.output("sum", y.sum())
    once = rlx.value_and_grad(g, of="sum", wrt=["x"])
    g2 = rlx.Graph("f2")
    found = g2.call(once, x=g2.input("x", (count,), dtype))
    g2.output("y", found.y)
    g2.output("d", found.grad_x)
    g2.output("sum", found.grad_x.sum())
    return rlx.value_and_grad(g2, of="sum", wrt=["x"])


def ulps(got: Any, exact: Number, terms: Sequence[Number], dtype: DType, x: Number) -> float:
    """|got − exact| in units of the last place of the largest of exact and the terms. A factor such
    as σ that is itself below the normal numbers is off by one of the least, times a power of x."""
    info = np.finfo(dtype.numpy)
    size = max([abs(exact), *map(abs, terms)])
    if size > float(info.max):
        return 0.0 if not np.isfinite(got) or np.sign(float(got)) == mp.sign(exact) else np.inf
    if not np.isfinite(got):
        return np.inf
    least = mp.mpf(float(info.smallest_subnormal)) * (1 + abs(x) + min(abs(x), 40)**3)
    unit = max(mp.mpf(2)**(mp.frexp(size)[1] - info.nmant - 1), least) if size else least
    return float(abs(mp.mpf(float(got)) - exact) / unit)


@pytest.mark.parametrize("compiled", [False, True], ids=["reference", "compiled"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("table", "name"), [
    *(("activations", k) for k in CURVES), *(("losses", k) for k in LOSSES)])
def test_tails(table: str, name: str, dtype: DType, compiled: bool) -> None:
    curve = {"activations": CURVES, "losses": LOSSES}[table][name]
    x = points(dtype, curve.apart)
    g = graph_of(table, name, dtype, x.size)
    found = rlx.compile(g, threads=1)(x=x) if compiled else rlx.evaluate(g, {"x": x})
    worst: dict[str, tuple[float, float, float]] = {}
    with mp.workprec(300 if dtype is rlx.f32 else 1400):
        terms = (SUMMED.get(name, lambda x: ()), curve.first, curve.second)
        for key, exact, summed in zip(("y", "d", "grad_x"), curve.exact, terms, strict=True):
            errors = [ulps(got, mp.mpf(exact(v)), summed(v), dtype, v) for got, v in zip(
                found[key], map(mp.mpf, x.astype(float)), strict=True)]
            at = int(np.argmax(errors))
            if errors[at] > ULPS:
                worst[key] = (errors[at], float(x[at]), float(found[key][at]))
    assert not worst, f"(ulp, x, result): {worst}"


@pytest.mark.parametrize("name", ["gelu", "gelu tanh", "mish", "silu", "softplus", "tanhshrink"])
def test_higher_orders_at_0(name: str) -> None:
    """Choices by the sign of x are smooth to derivatives: orders 3 and 4 are right at 0 too."""
    curve = CURVES[name]
    g = rlx.Graph("f")
    g.output("y", curve.function(g.input("x", (), rlx.f64)))
    for order in range(1, 5):
        found = rlx.grad(g, of="y", wrt=["x"])
        g = found.derive({"y": found.outputs["grad_x"]})
        with mp.workprec(200):
            want = float(mp.diff(curve.exact[0], 0, order))
        got = float(rlx.evaluate(g, {"x": np.float64(0)})["y"])
        assert got == pytest.approx(want, rel=1e-12, abs=1e-13), order


LABEL = rlx.constant(np.zeros(48, np.int32))
SURE: dict[str, Callable[[Any], Any]] = {
    "log_softmax": lambda z: -nn.log_softmax(z)[:, 0],
    "nll_loss": lambda z: nn.nll_loss(nn.log_softmax(z), LABEL, reduction="none"),
    "cross_entropy": lambda z: nn.cross_entropy(z, LABEL, reduction="none"),
    "logsumexp": lambda z: rlx.logsumexp(z - rlx.max(z, 1, keepdims=True), 1)
    + (rlx.max(z, 1) - z[:, 0]),
    "softmax_cross_entropy": lambda z: nn.softmax_cross_entropy(z, LABEL),
    "masked_cross_entropy": lambda z: nn.masked_cross_entropy(z, LABEL, np.ones(48), "none"),
    "probabilities": lambda z: nn.cross_entropy(
        z, rlx.constant(np.eye(3)[[0] * 48], z.dtype), reduction="none"),
}


@pytest.mark.parametrize("compiled", [False, True], ids=["reference", "compiled"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", SURE)
def test_losses_of_classes_that_are_nearly_sure(name: str, dtype: DType, compiled: bool) -> None:
    """log(1 + e^−d + e^−2d), of logits from which the largest is subtracted exactly."""
    d = np.concatenate([np.linspace(0, 4, 16), np.linspace(5, 80, 32)]).astype(dtype.numpy)
    low = np.stack([np.zeros_like(d), -d, -2 * d], 1)
    high = np.stack([d, np.zeros_like(d), np.zeros_like(d)], 1)
    g = rlx.Graph("f")
    y = SURE[name](g.input("z", low.shape, dtype))
    g.output("y", y)
    g.output("sum", y.sum())
    back = rlx.value_and_grad(g, of="sum", wrt=["z"])
    exe = rlx.compile(back, threads=1) if compiled else None
    with mp.workprec(300):
        for z, powers in ((low, (1, 2)), (high, (1, 1))):
            found = exe(z=z) if exe is not None else rlx.evaluate(back, {"z": z})
            for k, v in enumerate(map(mp.mpf, d.astype(float))):
                others = [mp.exp(-p * v) for p in powers]
                total = 1 + sum(others)
                assert ulps(found["y"][k], mp.log(total), (), dtype, v) <= ULPS, v
                slopes = [1 / total - 1, *(e / total for e in others)]
                # exp(log p) of a rounded log p is off by its size.
                by_log = name in ("log_softmax", "nll_loss", "logsumexp")
                more = [abs(mp.log(e)) if by_log else 0 for e in (1, *others)]
                for got, want, term, add in zip(found["grad_z"][k], slopes, (1, 0, 0), more,
                                                strict=True):
                    assert ulps(got, want, (term,), dtype, v) <= ULPS + add, v
