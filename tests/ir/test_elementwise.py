"""Laws of the element-wise primitives: values, derivatives of every order, edges, integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import mpmath  # type: ignore[import-untyped]
import numpy as np
import pytest

import rlx_py as rlx
from rlx_py.ir.base.errors import ArgumentError, DTypeError, ShapeError
from rlx_py.ir.base.types import (
    DTYPES,
    TensorType,
    bf16,
    bool_,
    f16,
    f32,
    f64,
    i8,
    i32,
    i64,
    u8,
    u32,
)
from rlx_py.ir.graph.evaluate import evaluate_nodes
from rlx_py.ir.nodes.node import Node, Op, leaf
from rlx_py.ir.ops.making.constant import constant
from rlx_py.ir.ops.primitive import compare as cmp
from rlx_py.ir.ops.primitive import elementwise as ew
from rlx_py.ir.ops.primitive import special as sp
from rlx_py.passes.derive.derivation import Derivation
from rlx_py.passes.derive.pullback import pullback

Array = np.ndarray[Any, Any]
mp = mpmath.mp
INF, NAN = np.inf, np.nan
EPS = float(np.finfo(np.float64).eps)


def variables(*arrays: Any) -> dict[Node, Array]:
    """A leaf for each array."""
    found = [np.asarray(a, np.float64) if isinstance(a, list | float) else a for a in arrays]
    types = [TensorType(DTYPES[_name(a)], a.shape) for a in found]
    return {leaf(f"x{i}", "input", t): a for i, (t, a) in enumerate(zip(types, found, strict=True))}


def _name(array: Array) -> str:
    return next(k for k, d in DTYPES.items() if d.numpy == array.dtype)


def derivative(y: Node, x: Node, ad: Derivation | None = None) -> Node:
    """d(Σ y)/dx."""
    return pullback([(y, ew.fill(y, 1))], [x], ad or Derivation())[0]


def value(y: Node, at: dict[Node, Array]) -> Array:
    with np.errstate(all="raise"):
        return np.asarray(evaluate_nodes([y], at)[0])


def apply(op: Op, *arrays: Any, **attrs: Any) -> Array:
    at = variables(*arrays)
    return value(op(*at, **attrs), at)


def gradients(op: Op, *arrays: Any, order: int = 1, **attrs: Any) -> list[Array]:
    """The order-th derivative by each input."""
    at = variables(*arrays)
    found = []
    for x in at:
        y = op(*at, **attrs)
        for _ in range(order):
            y = derivative(y, x)
        found.append(value(y, at))
    return found


SMALL = [-2.3, -0.7, -1e-3, 1e-3, 0.4, 1.9]
POSITIVE = [1e-3, 0.3, 1.0, 2.5, 40.0]
UNIT = [-0.99, -0.5, 1e-4, 0.7, 0.999]

UNARY: list[tuple[Op, Callable[..., Any], list[float], dict[str, Any]]] = [
    (ew.NEG, lambda x: -x, SMALL, {}),
    (ew.ABS, abs, SMALL, {}),
    (ew.EXP, mp.exp, SMALL, {}),
    (ew.EXP2, lambda x: mp.mpf(2) ** x, SMALL, {}),
    (ew.EXPM1, mp.expm1, SMALL, {}),
    (ew.LOG, mp.log, POSITIVE, {}),
    (ew.LOG1P, mp.log1p, UNIT, {}),
    (ew.SQRT, mp.sqrt, POSITIVE, {}),
    (ew.RSQRT, lambda x: 1 / mp.sqrt(x), POSITIVE, {}),
    (ew.SIN, mp.sin, SMALL, {}),
    (ew.COS, mp.cos, SMALL, {}),
    (ew.TAN, mp.tan, UNIT, {}),
    (ew.ASIN, mp.asin, UNIT, {}),
    (ew.ACOS, mp.acos, UNIT, {}),
    (ew.ATAN, mp.atan, SMALL, {}),
    (ew.SINH, mp.sinh, SMALL, {}),
    (ew.COSH, mp.cosh, SMALL, {}),
    (ew.TANH, mp.tanh, SMALL, {}),
    (ew.ASINH, mp.asinh, SMALL, {}),
    (ew.ACOSH, mp.acosh, [1.1, 2.0, 30.0], {}),
    (ew.ATANH, mp.atanh, UNIT, {}),
    (sp.ERF, mp.erf, SMALL, {}),
    (sp.ERFC, mp.erfc, [*SMALL, 5.0], {}),
    (sp.ERFINV, mp.erfinv, [*UNIT, 0.999999], {}),
    (sp.LOGISTIC, lambda x: 1 / (1 + mp.exp(-x)), [-2.3, -0.2, 0.4, -50.0, 30.0], {}),
    (sp.LGAMMA, lambda x: mp.log(abs(mp.gamma(x))), [-1.4, 0.01, 0.5, 1.3, 2.2, 9.0, 60.0], {}),
    (sp.DIGAMMA, mp.digamma, [-1.4, 0.01, 0.5, 1.46, 2.2, 9.0, 60.0], {}),
    (sp.POLYGAMMA, lambda x: mp.polygamma(1, x), [-1.4, 0.01, 0.5, 2.2, 9.0, 60.0], {"n": 1}),
    (sp.POLYGAMMA, lambda x: mp.polygamma(4, x), [-1.4, 0.01, 0.5, 2.2, 9.0, 60.0], {"n": 4}),
    (sp.SINC_DERIVATIVE, mp.sincpi, [*SMALL, 17.3, -3.5], {"n": 0}),
    (sp.SINC_DERIVATIVE, lambda x: mp.diff(mp.sincpi, x, 2), [*SMALL, 7.3], {"n": 2}),
    (sp.ENTR, lambda x: -x * mp.log(x), POSITIVE, {}),
]


def true_derivatives(f: Callable[..., Any], x: float, order: int) -> list[float]:
    with mpmath.workdps(60):
        point = mp.mpf(x)
        return [float(mp.re(d)) for d in list(mp.diffs(f, point, order))[: order + 1]]


@pytest.mark.parametrize("op,f,points,attrs", UNARY, ids=lambda v: getattr(v, "name", ""))
def test_values_and_three_derivatives_are_those_of_mpmath(
    op: Op, f: Callable[..., Any], points: list[float], attrs: dict[str, Any]
) -> None:
    at = variables(points)
    (x,) = at
    want = np.array([true_derivatives(f, p, 4) for p in points])
    y = op(x, **attrs)
    for order in range(4):
        # The second part is what rounding of x alone can do.
        scale = np.abs(want[:, order]) + np.abs(points * want[:, order + 1]) + 1e-30
        error = np.abs(value(y, at) - want[:, order]) / scale
        assert error.max() < (8 if order == 0 else 50) * EPS, (order, error)
        y = derivative(y, x)


BINARY: list[tuple[Op, Callable[..., Any], list[tuple[float, float]]]] = [
    (ew.ADD, lambda a, b: a + b, [(1.5, -2.0)]),
    (ew.SUB, lambda a, b: a - b, [(1.5, -2.0)]),
    (ew.MUL, lambda a, b: a * b, [(1.5, -2.0)]),
    (ew.DIV, lambda a, b: a / b, [(1.5, -2.0), (0.1, 3.0)]),
    (ew.POW, lambda a, b: mp.re(mp.power(a, b)), [(1.5, -2.0), (0.3, 2.7), (2.0, 0.0)]),
    (ew.REM, lambda a, b: a - mp.floor(a / b) * b, [(5.5, 2.0), (-5.5, 2.0), (5.5, -2.0)]),
    (ew.MAX, max, [(1.5, -2.0), (-2.0, 1.5)]),
    (ew.MIN, min, [(1.5, -2.0), (-2.0, 1.5)]),
    (ew.ATAN2, mp.atan2, [(1.5, -2.0), (-0.1, -0.2), (3.0, 1.0), (-0.5, 0.1)]),
    (ew.GUARDED_MUL, lambda a, b: a * b, [(1.5, -2.0)]),
    (ew.ZERO_MUL, lambda a, b: a * b, [(1.5, -2.0)]),
    (sp.XLOGY, lambda a, b: a * mp.log(b), [(1.5, 2.0), (-0.2, 0.1)]),
]


@pytest.mark.parametrize("op,f,points", BINARY, ids=lambda v: getattr(v, "name", ""))
@pytest.mark.parametrize(
    "orders", [(0, 0), (1, 0), (0, 1), (2, 0), (1, 1), (0, 2), (2, 1)], ids=str)
def test_mixed_derivatives_are_those_of_mpmath(
    op: Op, f: Callable[..., Any], points: list[tuple[float, float]], orders: tuple[int, int]
) -> None:
    at = variables(*(list(v) for v in zip(*points, strict=True)))
    y = op(*at)
    for x, order in zip(at, orders, strict=True):
        for _ in range(order):
            y = derivative(y, x)
    with mpmath.workdps(50):
        want = [float(mp.diff(f, (mp.mpf(a), mp.mpf(b)), orders)) for a, b in points]
    np.testing.assert_allclose(value(y, at), want, rtol=1e-13, atol=1e-14)


def test_tangents_are_the_transpose_of_cotangents() -> None:
    rng = np.random.default_rng(0)
    cases = [(op, [points[:3]], attrs) for op, _, points, attrs in UNARY]
    for op, count in [*((op, 2) for op, *_ in BINARY), (ew.FMA, 3)]:
        cases.append((op, [list(rng.uniform(0.2, 0.8, 3)) for _ in range(count)], {}))
    for op, arrays, attrs in [*cases, (ew.CAST, [[1.5, 2.5, 3.5]], {"dtype": f32})]:
        at = variables(*arrays)
        node = op(*at, **attrs)
        ct, *ts = (constant(rng.normal(size=3)) for _ in [0, *arrays])
        assert op.jvp and op.vjp
        tangent = op.jvp(node, ts, Derivation())
        back = op.vjp(node, ew.cast(ct, node.dtype), Derivation())
        left = value(ct, at) @ value(tangent, at)
        pairs = [(b, t) for b, t in zip(back, ts, strict=True) if b is not None]
        right = sum(value(b, at) @ value(t, at) for b, t in pairs)
        np.testing.assert_allclose(left, right, rtol=1e-4 if op is ew.CAST else 1e-11)


# ---- edges -----------------------------------------------------------------------------------


def check(found: Any, want: Any) -> None:
    np.testing.assert_array_equal(np.asarray(found, np.float64), np.asarray(want, np.float64))


def test_power_at_singular_points() -> None:
    x = [0.0, 0.0, 0.0, 0.0, 0.0, 3.0, 0.0]
    p = [0.0, 1.0, 2.0, 0.5, -1.0, 0.0, 3.0]
    by_x, by_p = gradients(ew.POW, x, p)
    check(by_x, [0, 1, 0, INF, -INF, 0, 0])
    check(by_p, [0, 0, 0, 0, -INF, np.log(3.0), 0])
    check(gradients(ew.POW, x, p, order=2)[0][1:3], [0, 2])


def test_power_mixed_derivative_survives_at_exponent_zero() -> None:
    at = variables([4.0], [0.0])
    x, p = at
    check(value(derivative(derivative(ew.POW(x, p), x), p), at), [0.25])
    check(value(derivative(derivative(ew.POW(x, p), p), x), at), [0.25])


def test_power_of_a_constant_exponent_makes_no_logarithm() -> None:
    at = variables([0.0, -2.0])
    (x,) = at
    for p in (0.0, 1.0, 2.0, 3.0):
        y = ew.POW(x, ew.fill(x, p))
        by_x = derivative(y, x)
        seen = {n.op for n in [by_x, *by_x.inputs] if by_x is not None}
        assert ew.LOG not in seen
        check(value(by_x, at), [0 if p != 1 else 1, p * (-2.0) ** (p - 1)])


def test_ties_give_half_to_each_and_nan_propagates() -> None:
    for op in (ew.MAX, ew.MIN):
        check(gradients(op, [2.0, 0.0], [2.0, -0.0]), [[0.5, 0.5]] * 2)
        check(apply(op, [NAN, 1.0], [1.0, NAN]), [NAN, NAN])
    check(gradients(ew.MAX, [1.0, 3.0], [2.0, -INF]), [[0, 1], [1, 0]])


def test_kinks_and_steps_have_derivative_zero() -> None:
    check(gradients(ew.ABS, [0.0, -0.0, -3.0, INF])[0], [0, 0, -1, 1])
    for op in (ew.SIGN, ew.FLOOR, ew.CEIL, ew.ROUND, ew.TRUNC, ew.STOP_GRADIENT):
        assert not op.differentiable
        check(gradients(op, [0.0, 1.5, -2.0])[0], [0, 0, 0])
    check(apply(ew.ROUND, [0.5, 1.5, -0.5, 2.5]), [0, 2, 0, 2])


def test_singular_partials_are_the_true_infinities() -> None:
    check(gradients(ew.SQRT, [0.0, INF])[0], [INF, 0])
    check(gradients(ew.RSQRT, [0.0, INF])[0], [-INF, 0])
    check(gradients(ew.LOG, [0.0, INF])[0], [INF, 0])
    check(gradients(ew.DIV, [1.0, 0.0], [0.0, 2.0]), [[INF, 0.5], [-INF, 0]])
    check(gradients(sp.ENTR, [0.0])[0], [INF])
    check(gradients(ew.ASIN, [1.0, -1.0])[0], [INF, INF])


def test_a_zero_cotangent_contributes_nothing() -> None:
    at = variables([0.0, 4.0])
    (x,) = at
    ct = constant(np.array([0.0, 1.0]))
    (zero,) = pullback([(ew.SQRT(x), ct)], [x], Derivation())
    (ieee,) = pullback([(ew.SQRT(x), ct)], [x], Derivation("ieee"))
    check(value(zero, at), [0, 0.25])
    check(value(ieee, at), [NAN, 0.25])


def test_saturating_functions_have_flat_tails() -> None:
    tails = [1e3, -1e3, INF, -INF]
    for op in (ew.TANH, sp.LOGISTIC, sp.ERF, sp.ERFC, ew.ATAN):
        for order in (1, 2):
            if op is not ew.ATAN:
                check(gradients(op, tails, order=order)[0], [0, 0, 0, 0])
            check(gradients(op, tails[2:], order=order)[0], [0, 0])


def test_logistic_is_accurate_in_both_tails() -> None:
    (slope,) = gradients(sp.LOGISTIC, [-40.0, 40.0])
    np.testing.assert_allclose(slope, np.exp(-40.0), rtol=1e-14)
    (bend,) = gradients(sp.LOGISTIC, [-40.0, 40.0], order=2)
    np.testing.assert_allclose(bend, [np.exp(-40.0), -np.exp(-40.0)], rtol=1e-14)
    check(apply(sp.LOGISTIC, [-800.0, 800.0, -740.0]), [0, 1, np.exp(-740.0)])


def test_angle_of_a_point() -> None:
    check(gradients(ew.ATAN2, [0.0, INF, 1.0], [0.0, 1.0, INF]), [[0, 0, 0], [0, 0, 0]])
    check(gradients(ew.ATAN2, [1e200, 1e-200], [0.0, 0.0])[1], [-1e-200, -1e200])
    y = np.array([1e-30, 3e25], np.float32)
    by_y, by_x = gradients(ew.ATAN2, y, y)
    np.testing.assert_allclose(by_y, 0.5 / y, rtol=1e-6)
    np.testing.assert_allclose(by_x, -0.5 / y, rtol=1e-6)


def test_sinc_is_right_at_zero_to_any_order() -> None:
    for order in range(1, 7):
        want = 0 if order % 2 else (-1) ** (order // 2) * np.pi**order / (order + 1)
        np.testing.assert_allclose(gradients(sp.SINC_DERIVATIVE, [0.0], order=order, n=0)[0],
                                   [want], rtol=4 * EPS)
    check(apply(sp.SINC_DERIVATIVE, [1.0, -2.0, 7.0, 1e15, 0.0], n=0), [0, 0, 0, 0, 1])


def test_x_log_y_at_zero() -> None:
    check(apply(sp.XLOGY, [0.0, 0.0, 0.0, 2.0], [0.0, INF, NAN, 0.0]), [0, 0, NAN, -INF])
    by_x, by_y = gradients(sp.XLOGY, [0.0, 0.0], [0.0, 1.0])
    check(by_x, [-INF, 0])
    check(by_y, [0, 0])
    check(apply(sp.ENTR, [0.0, -1.0, 1.0, NAN]), [0, -INF, 0, NAN])


def test_gamma_family_at_poles_and_infinity() -> None:
    poles = [0.0, -0.0, -1.0, -2.0]
    check(apply(sp.LGAMMA, [*poles, INF, -INF]), [INF] * 6)
    check(apply(sp.DIGAMMA, [*poles, INF]), [-INF, INF, NAN, NAN, INF])
    check(apply(sp.POLYGAMMA, [*poles, INF], n=1), [INF] * 4 + [0])
    check(apply(sp.POLYGAMMA, [*poles, INF], n=2), [-INF] * 4 + [0])


def test_guarded_product() -> None:
    a, b = [0.0, -0.0, 2.0, 0.0, NAN], [INF, NAN, 3.0, 4.0, 0.0]
    check(apply(ew.GUARDED_MUL, a, b), [0, 0, 6, 0, NAN])
    check(gradients(ew.GUARDED_MUL, a[:4], b[:4]), [b[:4], a[:4]])


def test_product_that_is_zero_where_either_factor_is() -> None:
    a, b = [0.0, INF, -0.0, 2.0, INF], [NAN, 0.0, 4.0, 3.0, 2.0]
    check(apply(ew.ZERO_MUL, a, b), [0, 0, 0, 6, INF])


def test_derivatives_of_a_partial_do_not_reach_a_cotangent_of_zero() -> None:
    """log is chosen where x > 0 alone: elsewhere its second derivative, infinite, counts 0."""
    g = rlx.Graph()
    x = g.input("x", (4,), f64)
    g.output("y", rlx.where(x > 0, rlx.log(x), 0.0).sum())
    point = {"x": np.array([0.0, NAN, -1.0, 2.0]), "v_x": np.ones(4)}
    check(rlx.evaluate(rlx.hvp(g, "y", ["x"]), point)["hvp_x"], [0, 0, 0, -0.25])


def test_select_ignores_the_other_branch() -> None:
    at = variables([4.0, -1.0])
    (x,) = at
    y = ew.SELECT(cmp.GT(x, ew.fill(x, 0)), ew.SQRT(x), x)
    check(value(y, at), [2, -1])
    check(value(derivative(y, x), at), [0.25, 1])
    check(value(derivative(derivative(y, x), x), at), [-1 / 32, 0])


def test_fma_rounds_once() -> None:
    one = np.array([1 + 2.0**-30])
    check(apply(ew.FMA, one, one, -(one * one)), [2.0**-60])
    small = np.array([1 + 2.0**-13], np.float32)
    check(apply(ew.FMA, small, small, -(small * small)), [2.0**-26])
    check(apply(ew.FMA, [1e200, INF, 0.0], [1e200, 1.0, INF], [-1.0, 2.0, 1.0]), [INF, INF, NAN])


# ---- integers, conversions, types ------------------------------------------------------------


@pytest.mark.parametrize("dtype", [i64, i32, i8, u32, u8], ids=str)
def test_integers_are_those_of_numpy(dtype: Any) -> None:
    limits = np.iinfo(dtype.numpy)
    edge = np.array([limits.min, limits.max, 0, 1, 2, 7, limits.max // 2], dtype.numpy)
    a, b = (m.ravel() for m in np.meshgrid(edge, edge))
    pairs = [(ew.ADD, np.add), (ew.SUB, np.subtract), (ew.MUL, np.multiply), (ew.MAX, np.maximum),
             (ew.MIN, np.minimum), (ew.REM, np.remainder), (ew.INT_DIV, np.floor_divide),
             (cmp.AND, np.bitwise_and), (cmp.OR, np.bitwise_or), (cmp.XOR, np.bitwise_xor),
             (cmp.SHL, np.left_shift), (cmp.SHR, np.right_shift), (cmp.LT, np.less),
             (cmp.GE, np.greater_equal), (cmp.EQ, np.equal)]
    for op, want in pairs:
        with np.errstate(all="ignore"):
            expected = want(a, b)
        found = apply(op, a, b)
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected, err_msg=op.name)
    for op, one in [(ew.NEG, np.negative), (ew.ABS, np.abs), (ew.SIGN, np.sign),
                    (cmp.NOT, np.invert)]:
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(apply(op, a), one(a), err_msg=op.name)


def test_shifts_out_of_range_are_total() -> None:
    a, n = np.array([-5, 5, -5, 5], np.int32), np.array([32, 40, -1, -1], np.int32)
    np.testing.assert_array_equal(apply(cmp.SHL, a, n), [0, 0, 0, 0])
    np.testing.assert_array_equal(apply(cmp.SHR, a, n), [-1, 0, -1, 0])


@pytest.mark.parametrize("source", [f64, f32, f16, bf16], ids=str)
@pytest.mark.parametrize("target", [i64, i32, i8, u32, u8], ids=str)
def test_float_to_integer_truncates_and_saturates(source: Any, target: Any) -> None:
    x = np.array([0.0, -0.0, 1.9, -1.9, 100.0, 1e4, -1e4, 6e4, INF, -INF, NAN]).astype(source.numpy)
    limits = np.iinfo(target.numpy)
    exact = np.trunc(np.nan_to_num(x.astype(np.float64), posinf=1e300, neginf=-1e300))
    want = [min(max(int(v), limits.min), limits.max) for v in exact]
    np.testing.assert_array_equal(apply(ew.CAST, x, dtype=target), np.array(want, target.numpy))


def test_float_to_integer_near_the_bounds() -> None:
    x = np.array([2.0**63, 2.0**63 - 1024, -(2.0**63), -(2.0**64), 1e300])
    want = [2**63 - 1, 2**63 - 1024, -(2**63), -(2**63), 2**63 - 1]
    np.testing.assert_array_equal(apply(ew.CAST, x, dtype=i64), want)
    np.testing.assert_array_equal(apply(ew.CAST, [2.0**31, -1.0], dtype=u32), [2**31, 0])


def test_other_conversions() -> None:
    ints = np.array([300, -1, 0], np.int64)
    np.testing.assert_array_equal(apply(ew.CAST, ints, dtype=u8), [44, 255, 0])
    np.testing.assert_array_equal(apply(ew.CAST, [0.5, 0.0, NAN], dtype=bool_), [True, False, True])
    check(apply(ew.CAST, np.array([True, False]), dtype=f32), [1, 0])
    check(apply(ew.CAST, [1e5, 1e-8], dtype=f16), [INF, 0])
    bits = apply(ew.BITCAST, np.array([1.0, -0.0], np.float16), dtype=bf16)
    np.testing.assert_array_equal(bits.view(np.uint16), [0x3C00, 0x8000])
    np.testing.assert_array_equal(apply(ew.BITCAST, np.array([1.0], np.float32), dtype=i32),
                                  [0x3F800000])


def test_conversions_carry_gradients_between_floats_only() -> None:
    at = variables(np.array([1.5, 2.5], np.float32))
    (x,) = at
    y = ew.cast(ew.MUL(ew.cast(x, f64), ew.cast(x, f64)), f16)
    assert derivative(y, x).dtype is f32
    check(value(derivative(y, x), at), [3, 5])
    back = ew.cast(ew.cast(x, i32), f32)
    check(value(derivative(back, x), at), [0, 0])


def test_narrow_floats_compute_in_f32() -> None:
    x = np.array([1.0, 3.0], ml_dtypes.bfloat16)
    found = apply(ew.EXP, x)
    assert found.dtype == x.dtype
    np.testing.assert_array_equal(found, np.exp(x.astype(np.float32)).astype(x.dtype))
    assert apply(ew.FMA, x, x, x).dtype == x.dtype


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3)], ids=str)
def test_ranks_and_empty_axes(shape: tuple[int, ...]) -> None:
    x = np.full(shape, 0.5)
    for op, _, _, attrs in UNARY:
        assert apply(op, x, **attrs).shape == shape
        assert gradients(op, x, order=2, **attrs)[0].shape == shape


def test_wrong_operands_are_typed_errors_at_the_users_line() -> None:
    x, n = (leaf(k, "input", TensorType(d, (2,))) for k, d in (("x", f32), ("n", i32)))
    wide = leaf("w", "input", TensorType(f32, (3,)))
    with pytest.raises(ShapeError, match=r"add\(f32\[2\], f32\[3\]\).*\n  at .*test_elementwise"):
        ew.ADD(x, wide)
    refused: list[tuple[Op, list[Node], dict[str, Any]]] = [
        (ew.ADD, [x, n], {}), (ew.EXP, [n], {}), (cmp.AND, [x, x], {}), (ew.SELECT, [x, x, x], {}),
        (ew.BITCAST, [x], {"dtype": f64}), (ew.BITCAST, [x], {"dtype": bool_}),
        (sp.POLYGAMMA, [n], {"n": 1}),
    ]
    for op, inputs, attrs in refused:
        with pytest.raises(DTypeError, match="test_elementwise"):
            op(*inputs, **attrs)
    for op, order in ((sp.POLYGAMMA, 0), (sp.SINC_DERIVATIVE, -1)):
        with pytest.raises(ArgumentError, match="order"):
            op(x, n=order)
