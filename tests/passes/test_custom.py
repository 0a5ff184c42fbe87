"""Derivatives that users give: the other mode, any order, nests, text, compiled code, refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx_py as rlx

Array = np.ndarray[Any, Any]
Function = Any


def product(x: Any, y: Any) -> Any:
    return rlx.sin(x) * y


with_vjp: Function = rlx.custom_vjp(
    product, lambda x, y: (product(x, y), (x, y)),
    lambda kept, ct: (ct * rlx.cos(kept[0]) * kept[1], ct * rlx.sin(kept[0])))
with_jvp: Function = rlx.custom_jvp(
    product, lambda primals, tangents: (
        product(*primals),
        tangents[0] * rlx.cos(primals[0]) * primals[1] + tangents[1] * rlx.sin(primals[0])))

both = pytest.mark.parametrize("fn", [with_vjp, with_jvp], ids=["vjp", "jvp"])
POINT = {"x": np.float64(1), "y": np.float64(2)}
HESSIAN = np.array([[-2 * np.sin(1), np.cos(1)], [np.cos(1), 0]])


def graph(fn: Function, shape: tuple[int, ...] = ()) -> rlx.Graph:
    g = rlx.Graph()
    g.output("f", fn(g.input("x", shape, rlx.f64), g.input("y", shape, rlx.f64)))
    return g


@both
@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_hessian_forward_over_reverse(fn: Function, backend: str) -> None:  # C47
    exe = rlx.compile(rlx.hvp(graph(fn), of="f", wrt=["x", "y"]), backend=backend)
    rows = [list(exe(**POINT, v_x=a, v_y=b).values()) for a, b in ((1.0, 0.0), (0.0, 1.0))]
    np.testing.assert_allclose(rows, HESSIAN, atol=1e-15)


@both
def test_hessian_reverse_over_reverse_and_forward_over_forward(fn: Function) -> None:
    g = graph(fn)
    gradient = rlx.grad(g, of="f", wrt=["x", "y"])
    rows = [list(rlx.evaluate(rlx.grad(gradient, of=k, wrt=["x", "y"]), POINT).values())
            for k in gradient.outputs]
    np.testing.assert_allclose(rows, HESSIAN, atol=1e-15)
    twice = rlx.jvp(rlx.jvp(g, wrt=["x"]), wrt=["y"])
    found = rlx.evaluate(twice, {**POINT, "t_x": 1.0, "t_y": 1.0})
    np.testing.assert_allclose(list(found.values())[-1], HESSIAN[0, 1], atol=1e-15)


@both
def test_derivatives_agree_with_differences(fn: Function) -> None:
    rng = np.random.default_rng(0)
    g = rlx.Graph()
    x, y = g.input("x", (3, 2), rlx.f64), g.input("y", (3, 2), rlx.f64)
    g.output("f", (fn(x * y, y) * fn(y, x)).sum())
    point = {k: rng.standard_normal((3, 2)) for k in "xy"}
    rlx.check_grads(g, point, of="f", wrt=["x", "y"], order=2)


@both
def test_text_and_files_keep_the_rules(fn: Function, tmp_path: Path) -> None:
    g = graph(fn)
    again = rlx.parse(str(g))
    assert str(again) == str(g)
    g.save(tmp_path / "g.rlx")
    loaded = rlx.Graph.load(tmp_path / "g.rlx")
    want = rlx.evaluate(rlx.grad(g, of="f", wrt=["x", "y"]), POINT)
    for copy in (again, loaded):
        assert rlx.evaluate(rlx.grad(copy, of="f", wrt=["x", "y"]), POINT) == want


def test_the_given_rule_is_used_and_only_in_its_mode() -> None:
    halved: Function = rlx.custom_vjp(lambda x: x * x, lambda x: (x * x, x),
                                      lambda x, ct: (ct * x,))
    g = rlx.Graph()
    g.output("f", halved(g.input("x", (), rlx.f64)))
    assert rlx.evaluate(rlx.grad(g, of="f", wrt="x"), {"x": 3.0})["grad_x"] == 3
    assert rlx.evaluate(rlx.jvp(g, wrt="x"), {"x": 3.0, "t_x": 1.0})["t_f"] == 6
    doubled: Function = rlx.custom_jvp(lambda x: x * x, lambda p, t: (p[0] * p[0],
                                                                      t[0] * p[0] * 4.0))
    g = rlx.Graph()
    g.output("f", doubled(g.input("x", (), rlx.f64)))
    assert rlx.evaluate(rlx.grad(g, of="f", wrt="x"), {"x": 3.0})["grad_x"] == 12
    assert rlx.evaluate(rlx.jvp(g, wrt="x"), {"x": 3.0, "t_x": 1.0})["t_f"] == 12


def test_nested_arguments_integers_and_numbers() -> None:
    def fn(params: Any, index: Any, power: int) -> Any:
        return {"y": params["w"] ** power * params["b"], "index": index + 1}

    def bwd(kept: Any, ct: Any) -> Any:
        (params, power) = kept
        assert ct["index"] is None
        return {"w": ct["y"] * 3.0 * params["w"] ** 2 * params["b"], "b": None}, None, None

    f: Function = rlx.custom_vjp(fn, lambda p, i, n: (fn(p, i, n), (p, 3)), bwd)
    g = rlx.Graph()
    w, b, i = g.param("w", (2,), rlx.f64), g.param("b", (2,), rlx.f64), g.input("i", (), rlx.i32)
    out = f({"w": w, "b": b}, i, 3)
    g.output("f", out["y"].sum())
    g.output("next", out["index"])
    point = {"w": np.array([1.0, 2.0]), "b": np.array([3.0, 5.0]), "i": np.int32(4)}
    found = rlx.evaluate(rlx.value_and_grad(g, of="f"), point)
    np.testing.assert_array_equal(found["grad_w"], [9, 60])
    np.testing.assert_array_equal(found["grad_b"], [0, 0])
    assert found["next"] == 5

    g = rlx.Graph()
    linear: Function = rlx.custom_jvp(fn, lambda p, t: (fn(*p), {
        "y": t[0]["w"] * 3.0 * p[0]["w"] ** 2 * p[0]["b"], "index": None}))
    w, b, i = g.param("w", (2,), rlx.f64), g.param("b", (2,), rlx.f64), g.input("i", (), rlx.i32)
    g.output("f", linear({"w": w, "b": b}, i, 3)["y"].sum())
    found = rlx.evaluate(rlx.grad(g, of="f"), point)
    np.testing.assert_array_equal(found["grad_w"], [9, 60])


def test_a_function_may_call_itself_in_its_rule() -> None:
    def rule(primals: Any, tangents: Any) -> Any:
        y = exp(primals[0])
        return y, tangents[0] * y

    exp: Function = rlx.custom_jvp(rlx.exp, rule)
    g = rlx.Graph()
    g.output("f", exp(g.input("x", (), rlx.f64)))
    for _ in range(5):
        g = rlx.grad(g, of=next(iter(g.outputs)), wrt="x")
        np.testing.assert_allclose(list(rlx.evaluate(g, {"x": 1.0}).values()), np.e)


def test_an_absent_tangent_meets_no_infinite_partial() -> None:
    f: Function = rlx.custom_jvp(lambda x, y: rlx.sqrt(x) + y, lambda p, t: (
        rlx.sqrt(p[0]) + p[1], t[0] * 0.5 / rlx.sqrt(p[0]) + t[1]))
    found = rlx.evaluate(rlx.jvp(graph(f), wrt="y"), {"x": 0.0, "y": 1.0, "t_y": 1.0})
    assert found["t_f"] == 1


def test_singular_points_inside_a_rule_are_reported() -> None:
    f: Function = rlx.custom_jvp(lambda x: rlx.sqrt(x), lambda p, t: (
        rlx.sqrt(p[0]), t[0] * (0.5 / rlx.sqrt(p[0]))))
    g = rlx.Graph()
    x = g.input("x", (2,), rlx.f64)
    g.output("f", (f(x) * rlx.stop_gradient(x)).sum())
    reported = rlx.grad(g, of="f", wrt="x", singular="report")
    found = rlx.evaluate(reported, {"x": np.array([0.0, 4.0])})
    np.testing.assert_array_equal(found["grad_x"], [0, 1])
    assert sum(int(v) for k, v in found.items() if k.startswith("singular")) == 1


def test_what_is_wrong_is_refused_at_the_call() -> None:
    g = rlx.Graph()
    x, i = g.input("x", (2,), rlx.f64), g.input("i", (), rlx.i32)

    def refused(error: type[Exception], match: str, f: Function, *args: Any) -> None:
        with pytest.raises(error, match=rf"(?s){match}.*test_custom.py"):
            f(*args)

    def same(a: Any) -> Any:
        return a

    vjp, jvp = rlx.custom_vjp, rlx.custom_jvp
    refused(rlx.ShapeError, "bwd gives f64.. for an argument of type f64.2",
            vjp(same, lambda a: (a, ()), lambda r, ct: (ct.sum(),)), x)
    refused(rlx.ArgumentError, "cotangents of 1 arguments",
            vjp(same, lambda a: (a, ()), lambda r, ct: ct), x)
    refused(rlx.ArgumentError, r"returns \(result, residuals\)",
            vjp(same, lambda a: a, lambda r, ct: (ct,)), x)
    refused(rlx.ShapeError, "custom_vjp: fwd gives", vjp(
        same, lambda a: (a.sum(), ()), lambda r, ct: (ct,)), x)
    refused(rlx.ArgumentError, "argument of type i32.. has no cotangent", vjp(
        lambda a, n: a, lambda a, n: (a, ()), lambda r, ct: (ct, ct.sum())), x, i)
    refused(rlx.ArgumentError, "fn uses the input 'x' from outside", vjp(
        lambda n: x * 2.0, lambda n: (x, ()), lambda r, ct: (None,)), i)
    refused(rlx.ArgumentError, "not linear", jvp(same, lambda p, t: (p[0], t[0] * t[0])), x)
    refused(rlx.ArgumentError, "not linear", jvp(same, lambda p, t: (p[0], rlx.abs(t[0]))), x)
    refused(rlx.ShapeError, "gives a tangent f64..", jvp(
        same, lambda p, t: (p[0], t[0].sum())), x)


def test_a_damaged_text_is_refused() -> None:
    text = str(graph(with_vjp))
    with pytest.raises(rlx.FormatError):
        rlx.parse(text.replace("places=(0, 1)", "places=(0, 7)"))
    with pytest.raises(rlx.FormatError):
        rlx.parse(text.replace("f64[]\n", "f32[]\n", 1))


def test_rules_stay_under_vmap() -> None:
    halved: Function = rlx.custom_vjp(lambda x, y: x * x * y, lambda x, y: (x * x * y, (x, y)),
                                      lambda kept, ct: (ct * kept[0] * kept[1], None))
    doubled: Function = rlx.custom_jvp(lambda x, y: x * x * y, lambda p, t: (
        p[0] * p[0] * p[1], t[0] * p[0] * p[1]))
    for fn in (halved, doubled):
        g = rlx.vmap(graph(fn), {"x": (0, 3)})
        total = g.derive({"f": g.outputs["f"].sum()})
        found = rlx.compile(rlx.grad(total, of="f", wrt=["x", "y"]))(x=np.arange(3.0), y=2.0)
        np.testing.assert_array_equal(found["grad_x"], 2 * np.arange(3.0))
        assert found["grad_y"] == 0
