"""Jacobians and Hessians: against differences, each other, hvp, and in compiled code."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx_py as rlx

Array = np.ndarray[Any, Any]
POINT = {"x": np.random.default_rng(0).normal(size=(3, 2)), "w": np.array([0.3, -0.5])}


def layer(x: Any, w: Any) -> Any:
    return rlx.tanh(x @ w) * x[:, 0]


def graph(fn: Any = layer) -> rlx.Graph:
    g = rlx.Graph()
    y = fn(g.input("x", (3, 2), rlx.f64), g.param("w", (2,), rlx.f64))
    g.output("y", y)
    g.output("loss", (y**3).sum())
    return g


def differences(g: rlx.Graph, of: str, wrt: str) -> Array:
    step, columns = 1e-6, []
    for i in range(POINT[wrt].size):
        unit = np.zeros(POINT[wrt].size)
        unit[i] = step
        ends = [rlx.evaluate(g, {**POINT, wrt: POINT[wrt] + s * unit.reshape(POINT[wrt].shape)})[of]
                for s in (1, -1)]
        columns.append((ends[0] - ends[1]) / (2 * step))
    return np.stack(columns, -1).reshape((*ends[0].shape, *POINT[wrt].shape))


@pytest.mark.parametrize("transform", [rlx.jacfwd, rlx.jacrev])
@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_jacobians_are_those_of_differences(transform: Any, backend: str) -> None:
    g = transform(graph(), of=["y", "loss"], wrt=["x", "w"])
    assert list(g.outputs) == ["jac_y_x", "jac_y_w", "jac_loss_x", "jac_loss_w"]
    found = rlx.compile(g, backend=backend)(**POINT)
    for of in ("y", "loss"):
        for wrt in ("x", "w"):
            np.testing.assert_allclose(found[f"jac_{of}_{wrt}"], differences(graph(), of, wrt),
                                       atol=1e-8)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_hessians_are_symmetric_and_agree_with_hvp(backend: str) -> None:
    g = rlx.hessian(graph(), of="loss", wrt=["x", "w"])
    assert list(g.outputs) == ["hess_x_x", "hess_x_w", "hess_w_x", "hess_w_w"]
    out = rlx.compile(g, backend=backend)(**POINT)
    whole = np.block([[out.hess_x_x.reshape(6, 6), out.hess_x_w.reshape(6, 2)],
                      [out.hess_w_x.reshape(2, 6), out.hess_w_w]])
    np.testing.assert_allclose(whole, whole.T, atol=1e-14)
    v = np.random.default_rng(1).normal(size=8)
    product = rlx.evaluate(rlx.hvp(graph(), of="loss", wrt=["x", "w"]),
                           {**POINT, "v_x": v[:6].reshape(3, 2), "v_w": v[6:]})
    np.testing.assert_allclose(whole @ v, np.concatenate(
        [product["hvp_x"].ravel(), product["hvp_w"]]), atol=1e-13)


def test_known_hessians() -> None:
    g = rlx.Graph()
    g.output("f", (g.param("x", (2,), rlx.f64) ** 4).sum())  # C50
    found = rlx.evaluate(rlx.hessian(g, of="f"), {"x": np.array([0.5, 1.5])})
    np.testing.assert_allclose(found["hess_x_x"], np.diag([3.0, 27.0]))
    g = rlx.Graph()
    values, _ = rlx.top_k(g.param("x", (3,), rlx.f64), 2)
    g.output("f", (values**2).sum())  # C55
    found = rlx.evaluate(rlx.hessian(g, of="f"), {"x": np.array([1.0, 3.0, 2.0])})
    np.testing.assert_array_equal(found["hess_x_x"], np.diag([0.0, 2.0, 2.0]))


def test_through_rules_of_users_and_regions() -> None:
    custom: Any = rlx.custom_vjp(lambda x, y: rlx.sin(x) * y, lambda x, y: (
        rlx.sin(x) * y, (x, y)), lambda r, ct: (ct * rlx.cos(r[0]) * r[1], ct * rlx.sin(r[0])))
    g = rlx.Graph()
    g.output("f", custom(g.param("x", (), rlx.f64), g.param("y", (), rlx.f64)))
    out = rlx.compile(rlx.hessian(g, of="f"))(x=1.0, y=2.0)  # C47
    np.testing.assert_allclose([out.hess_x_x, out.hess_x_y, out.hess_y_x, out.hess_y_y],
                               [-2 * np.sin(1), np.cos(1), np.cos(1), 0], atol=1e-15)
    want = rlx.evaluate(rlx.hessian(graph(), of="loss", wrt=["x", "w"]), POINT)
    again = rlx.evaluate(rlx.hessian(graph(rlx.checkpoint(layer)), of="loss", wrt=["x", "w"]),
                         POINT)
    for name, value in want.items():
        np.testing.assert_allclose(again[name], value, atol=1e-14)


def test_the_program_does_not_grow_with_the_basis() -> None:
    def nodes(n: int) -> int:
        g = rlx.Graph()
        g.output("f", (rlx.tanh(g.param("x", (n,), rlx.f64)) ** 2).sum())
        return len(rlx.hessian(g, of="f").nodes)

    assert nodes(400) == nodes(4)


def test_empty_axes_and_unused_leaves() -> None:
    g = rlx.Graph()
    x, unused = g.param("x", (0,), rlx.f64), g.param("u", (2,), rlx.f64)
    g.output("f", rlx.exp(x))
    assert unused.shape == (2,)
    for transform in (rlx.jacfwd, rlx.jacrev):
        found = rlx.evaluate(transform(g, of="f"), {"x": np.zeros(0), "u": np.zeros(2)})
        assert found["jac_f_x"].shape == (0, 0) and found["jac_f_u"].shape == (0, 2)


def test_jacobians_of_jacobians() -> None:
    g = rlx.Graph()
    g.output("f", (g.param("x", (2,), rlx.f64) ** 3).sum())
    third = rlx.jacfwd(rlx.hessian(g, of="f"), of="hess_x_x")
    found = rlx.evaluate(third, {"x": np.array([1.0, 2.0])})["jac_hess_x_x_x"]
    want = np.zeros((2, 2, 2))
    want[0, 0, 0] = want[1, 1, 1] = 6
    np.testing.assert_allclose(found, want)


def test_wrong_names_and_types_are_refused() -> None:
    g = graph()
    g.output("whole", rlx.argmax(g.outputs["y"]))
    with pytest.raises(rlx.DTypeError, match="'whole' to differentiate"):
        rlx.jacfwd(g, of="whole")
    with pytest.raises(rlx.ArgumentError, match="no output 'z'"):
        rlx.jacrev(g, of="z")
    with pytest.raises(rlx.ArgumentError, match="each output once"):
        rlx.jacrev(g, of=["y", "y"])
    with pytest.raises(rlx.ShapeError, match="not a scalar"):
        rlx.hessian(g, of="y")
    with pytest.raises(rlx.ArgumentError, match="has no input, param or state 'z'"):
        rlx.hessian(g, of="loss", wrt="z")
