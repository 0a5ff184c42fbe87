"""The element-wise functions of users mean what NumPy's do, with rlx's type rules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx_py as rlx
from rlx_py.ir.base.errors import ArgumentError, DTypeError, ShapeError
from rlx_py.ir.base.types import TensorType, bf16, bool_, f16, f32, f64, i8, i32, i64, u8, u32
from rlx_py.ir.graph.evaluate import evaluate, evaluate_nodes
from rlx_py.ir.graph.graph import Graph
from rlx_py.ir.nodes.node import Node, leaf
from rlx_py.ir.ops.making.constant import constant
from rlx_py.ir.ops.numpy import pointwise as pw
from rlx_py.passes.derive.vjp import value_and_grad
from support.sweep import run_compiled

INF, NAN = np.inf, np.nan
FLOATS = np.array([-INF, -7.5, -2.0, -0.5, -0.0, 0.0, 0.25, 1.0, 2.0, 3.5, INF, NAN])
INTS = np.array([-9, -2, -1, 0, 1, 2, 7, 100], np.int32)
BOOLS = np.array([False, True])


def value(node: Node) -> Any:
    with np.errstate(all="raise"):
        return evaluate_nodes([node], {})[0]


def numpy(name: str, *arrays: Any) -> Any:
    with np.errstate(all="ignore"):
        return getattr(np, name)(*arrays)


SAME = ("add subtract multiply floor_divide remainder fmod maximum minimum fmax fmin equal "
        "not_equal less less_equal greater greater_equal logical_and logical_or logical_xor")
FLOAT_BINARY = "divide power arctan2 hypot logaddexp true_divide mod"
UNARY = ("negative abs absolute sign square floor ceil trunc rint round isnan isinf isfinite "
         "logical_not nan_to_num")
FLOAT_UNARY = ("exp exp2 expm1 log log2 log10 log1p sqrt reciprocal sin cos tan arcsin arccos "
               "arctan sinh cosh tanh arcsinh arccosh arctanh deg2rad rad2deg")


@pytest.mark.parametrize("name", (SAME + " " + FLOAT_BINARY).split())
def test_binary_functions_of_floats(name: str) -> None:
    a, b = (m.ravel() for m in np.meshgrid(FLOATS, FLOATS))
    want = numpy(name, a, b)
    np.testing.assert_allclose(value(getattr(pw, name)(a, b)), want, rtol=1e-14, atol=0)


@pytest.mark.parametrize("name", [*SAME.split(), "mod", "bitwise_and", "bitwise_or", "bitwise_xor",
                                  "left_shift", "right_shift"])
@pytest.mark.parametrize("dtype", [np.int32, np.int8, np.uint8, np.int64], ids=str)
def test_binary_functions_of_integers(name: str, dtype: Any) -> None:
    a, b = (m.ravel() for m in np.meshgrid(INTS.astype(dtype), INTS.astype(dtype)))
    want = numpy(name, a, b)
    found = value(getattr(pw, name)(a, b))
    assert found.dtype == want.dtype
    np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize("name", UNARY.split())
@pytest.mark.parametrize("x", [FLOATS, FLOATS.astype(np.float32), INTS], ids=["f64", "f32", "i32"])
def test_unary_functions(name: str, x: Any) -> None:
    want = numpy(name, x)
    found = value(getattr(pw, name)(x))
    # NumPy's rint makes floats of integers; ours, like floor and ceil, keeps them.
    assert found.dtype == (x.dtype if name == "rint" else want.dtype)
    np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize("name", FLOAT_UNARY.split())
def test_float_functions(name: str) -> None:
    np.testing.assert_allclose(value(getattr(pw, name)(FLOATS)), numpy(name, FLOATS), rtol=1e-14)
    found = value(getattr(pw, name)(INTS))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, numpy(name, INTS.astype(np.float32)), rtol=1e-5)


@pytest.mark.parametrize("name", ["add", "multiply", "maximum", "minimum", "less", "greater_equal",
                                  "equal", "logical_xor", "bitwise_and", "bitwise_xor"])
def test_binary_functions_of_bools(name: str) -> None:
    a, b = (m.ravel() for m in np.meshgrid(BOOLS, BOOLS))
    found = value(getattr(pw, name)(a, b))
    assert found.dtype == np.bool_
    np.testing.assert_array_equal(found, numpy(name, a, b))


def test_rounding_at_decimals() -> None:
    x = np.array([1.2345, -0.05, 12345.0, 0.15])
    for decimals in (2, 1, -2):
        np.testing.assert_array_equal(value(pw.round(x, decimals)), np.round(x, decimals))
    assert value(pw.round(INTS, 2)).dtype == np.int32
    with pytest.raises(ArgumentError, match="decimals"):
        pw.round(INTS, -1)


def test_clip() -> None:
    with np.errstate(all="ignore"):
        for lo, hi in ((-1.0, 2.0), (None, 1.0), (0.0, None), (3.0, 1.0), (NAN, 1.0), (0.0, NAN)):
            np.testing.assert_array_equal(value(pw.clip(FLOATS, lo, hi)), np.clip(FLOATS, lo, hi))
    np.testing.assert_array_equal(value(pw.clip(INTS, -1, 5)), np.clip(INTS, -1, 5))
    assert pw.clip(constant(INTS)).dtype is i32
    rows = value(pw.clip(np.zeros((2, 3)), np.array([1.0, -1.0, 2.0]), None))
    np.testing.assert_array_equal(rows, [[1, 0, 2]] * 2)


def test_where_broadcasts_and_promotes() -> None:
    found = value(pw.where(np.array([[True], [False]]), np.arange(3, dtype=np.int32), 0.5))
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, [[0, 1, 2], [0.5] * 3])
    np.testing.assert_array_equal(value(pw.where(INTS, 1, 2)), np.where(INTS, 1, 2))


def test_integer_powers() -> None:
    a, b = (m.ravel() for m in np.meshgrid(INTS, np.arange(12, dtype=np.int32)))
    np.testing.assert_array_equal(value(pw.power(a, b)), np.power(a, b))
    known = [leaf("e", "input", TensorType(i32, b.shape))]
    (found,) = evaluate_nodes([pw.power(a, known[0])], {known[0]: b})
    np.testing.assert_array_equal(found, np.power(a, b))
    for exponent in (0, 1, 2, 5, 40):
        want = np.power(INTS, exponent, dtype=np.int32)
        np.testing.assert_array_equal(value(constant(INTS) ** exponent), want)
    np.testing.assert_array_equal(value(pw.power(INTS, np.int32(-3))), [0, 0, -1, 0, 1, 0, 0, 0])
    np.testing.assert_array_equal(value(pw.power(np.uint8(3), np.uint8(200))),
                                  np.power(np.uint8(3), np.uint8(200)))
    with pytest.raises(ArgumentError, match="negative.*\n.*test_pointwise"):
        constant(INTS) ** -1
    np.testing.assert_allclose(value(constant(INTS[4:]) ** -1.0), 1 / INTS[4:], rtol=1e-6)


def test_special_functions_of_users() -> None:
    x = np.array([0.0, 0.5, 2.0])
    pairs = [(pw.erf(x), [0, 0.5204998778130465, 0.9953222650189527]),
             (pw.erfc(x), [1, 0.4795001221869535, 0.004677734981047266]),
             (pw.lgamma(x[1:]), [0.5723649429247001, 0]),
             (pw.digamma(x[1:]), [-1.9635100260214235, 0.42278433509846714]),
             (pw.polygamma(0, x[1:]), [-1.9635100260214235, 0.42278433509846714]),
             (pw.polygamma(1, x[1:]), [4.934802200544679, 0.6449340668482264]),
             (pw.sinc(x), [1, 2 / np.pi, 0]),
             (pw.logistic(x), [0.5, 0.6224593312018546, 0.8807970779778823]),
             (pw.sigmoid(x), [0.5, 0.6224593312018546, 0.8807970779778823]),
             (pw.xlogy(x, 2.0), x * np.log(2.0)),
             (pw.entr(x), [0, 0.5 * np.log(2.0), -2 * np.log(2.0)]),
             (pw.fma(x, x, 1), x * x + 1), (pw.rsqrt(x[1:]), x[1:] ** -0.5)]
    for node, want in pairs:
        np.testing.assert_allclose(value(node), want, rtol=1e-14)
    for order in (1.0, True, "1"):
        with pytest.raises(ArgumentError, match="polygamma"):
            pw.polygamma(order, x)  # type: ignore[arg-type]


def test_hypot_neither_overflows_nor_vanishes() -> None:
    x, y = np.array([3e200, 3e-200]), np.array([4e200, 4e-200])
    np.testing.assert_allclose(value(pw.hypot(x, y)), [5e200, 5e-200], rtol=1e-15)


def test_hypot_is_infinite_beside_nan_and_flat_there() -> None:
    points = {"x": np.array([np.inf, -np.inf, NAN, np.inf, 3.0, NAN]),
              "y": np.array([NAN, NAN, -np.inf, 2.0, 4.0, 1.0])}
    g = Graph()
    x, y = (g.input(k, (6,), f64) for k in points)
    g.output("h", pw.hypot(x, y))
    g.output("total", pw.hypot(x, y).sum())
    both = value_and_grad(g, "total", ("x", "y"))
    for run in (evaluate, run_compiled):
        np.testing.assert_array_equal(run(g, points)["h"], [np.inf] * 4 + [5, NAN])
        found = run(both, points)
        np.testing.assert_allclose(found["grad_x"], [0, 0, 0, 0, 0.6, NAN], rtol=1e-15)
        np.testing.assert_allclose(found["grad_y"], [0, 0, 0, 0, 0.8, NAN], rtol=1e-15)


def test_f64_is_rounded_once_to_bf16() -> None:
    """By way of f32 the first is a tie, and goes down to even."""
    tie, bit = 2.0**-8, 2.0**-40
    x = np.array([1 + tie + bit, 1 + tie, 1 + tie - bit, 1 + 3 * tie - bit, -1 - tie - bit,
                  3.3961775292304e38, 1e-42, 1e300, 9.2e-41 * (1 + bit), 0.0, NAN, -np.inf])
    want = [1 + 2 * tie, 1, 1, 1 + 2 * tie, -1 - 2 * tie]
    g = Graph()
    g.output("y", pw.astype(g.input("x", x.shape, f64), bf16))
    for found in (evaluate(g, {"x": x})["y"], constant(x, bf16).attrs["value"].array):
        np.testing.assert_array_equal(found[:5].astype(np.float64), want)
        assert found.tobytes() == run_compiled(g, {"x": x})["y"].tobytes()


@pytest.mark.parametrize("dtype", [f64, f32, f16, bf16, i32, i8, u32, u8], ids=str)
def test_python_scalars_keep_the_type(dtype: Any) -> None:
    x = leaf("x", "input", TensorType(dtype, (2,)))
    for node in (x + 1, 2 * x, 1 - x, x // 2, x % 3, 5 % x, x**2, -x, abs(x), +x, pw.maximum(x, 0),
                 pw.where(x > 0, x, 0), pw.clip(x, 0, 1)):
        assert node.type == x.type
    for node in (x < 1, pw.less_equal(1, x), x > 0, x >= 0, pw.equal(x, 0), pw.isnan(x)):
        assert node.dtype is bool_
    want = dtype if dtype.is_float else f32
    for node in (x / 2, 1 / x, x * 0.5, x + 1.5, pw.sqrt(x), x**0.5):
        assert node.dtype is want


def test_arrays_promote() -> None:
    def typed(dtype: Any) -> Node:
        return leaf("x", "input", TensorType(dtype, (2,)))

    assert (typed(i32) + typed(f16)).dtype is f16
    assert (typed(f16) + typed(bf16)).dtype is f32
    assert (typed(i32) / typed(i32)).dtype is f32
    assert (typed(i32) * typed(f64)).dtype is f64
    assert (typed(u8) + typed(i8)).dtype is i32
    assert (typed(bool_) + typed(i8)).dtype is i8
    assert (np.ones(2) * typed(f32)).dtype is f32
    assert (np.ones((3, 1), np.float32) * typed(f32)).shape == (3, 2)
    assert typed(f32).astype("i64").dtype is i64
    assert (~typed(bool_) & True | typed(bool_) ^ typed(bool_)).dtype is bool_


def test_wrong_use_is_a_typed_error_at_the_users_line() -> None:
    x = leaf("x", "input", TensorType(f32, (2,)))
    with pytest.raises(ShapeError, match="broadcast.*\n  at .*test_pointwise"):
        x + np.zeros(3)
    with pytest.raises(DTypeError, match="test_pointwise"):
        x & 1
    with pytest.raises(ArgumentError, match="test_pointwise"):
        x + "one"
    with pytest.raises(DTypeError, match="fit.*\n  at .*test_pointwise"):
        leaf("x", "input", TensorType(i8, (2,))) + 1000


def test_remainder_by_infinity_has_a_finite_gradient() -> None:
    g = rlx.Graph("remainder")
    a, b = g.param("a", (4,)), g.param("b", (4,))
    g.output("y", rlx.remainder(a, b).sum())
    found = rlx.evaluate(rlx.grad(g, "y"), {
        "a": np.array([-2, 2, 7, 5], np.float32),
        "b": np.array([np.inf, np.inf, -np.inf, 3], np.float32)})
    np.testing.assert_array_equal(found["grad_b"], [1, 0, 1, -1])


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_polygamma_beside_its_pole_at_0(n: int) -> None:
    x = np.array([-1e-310, -5e-324, 5e-324, 1e-310])
    g = rlx.Graph("g")
    g.output("y", rlx.polygamma(n, g.input("x", x.shape, rlx.f64)))
    want = (-1.0) ** (n + 1) * np.inf * np.sign(x) ** (n + 1)
    for backend in ("cpu", "reference"):
        np.testing.assert_array_equal(rlx.compile(g, backend=backend)(x=x).y, want)
