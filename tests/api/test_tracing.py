"""rlx.trace: nested Python functions as graphs, and compiled code that takes and returns nests."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

import rlx_py as rlx
from rlx_py.nested import NestedExecutable

Array = np.ndarray[Any, Any]


def arrays(*shape: int, seed: int = 0) -> Array:
    return np.asarray(np.random.default_rng(seed).standard_normal(shape))


PARAMS: Any = {"layers": [(arrays(3, 3), arrays(3)), (arrays(3, 3, seed=1), arrays(3, seed=2))],
          "scale": {"gain": arrays(3, seed=3), "bias": None}}
X, Y = arrays(4, 3, seed=4), arrays(4, 3, seed=5)


def network(params: Any, x: Any, batch: Any) -> Any:
    for w, b in params["layers"]:
        x = rlx.tanh(x @ w + b)
    error = x * params["scale"]["gain"] - batch["y"]
    return {"loss": (error * error).mean(), "all": [x, (error,)]}


def graph() -> rlx.Graph:
    return rlx.trace(network, PARAMS, rlx.spec((4, 3), rlx.f64), {"y": Y})


def compiled(g: rlx.Graph) -> NestedExecutable:
    exe = rlx.compile(g, backend="reference")
    assert isinstance(exe, NestedExecutable)
    return exe


def test_leaves_and_outputs_are_named_by_their_paths() -> None:
    g = graph()
    assert list(g.params) == ["layers.0.0", "layers.0.1", "layers.1.0", "layers.1.1", "scale.gain"]
    assert list(g.inputs) == ["x", "batch.y"]
    assert list(g.outputs) == ["loss", "all.0", "all.1.0"]
    assert g.name == "network" and g.params["layers.0.0"].dtype is rlx.f64


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_what_is_compiled_takes_and_returns_the_same_nesting(backend: str) -> None:
    exe: Any = rlx.compile(graph(), backend=backend)
    out = exe(PARAMS, X, {"y": Y})
    assert list(out) == ["loss", "all"] and isinstance(out["all"], list)
    hidden, (error,) = out["all"]
    np.testing.assert_allclose(error, hidden * PARAMS["scale"]["gain"] - Y, rtol=1e-12)
    np.testing.assert_allclose(out["loss"], np.mean(error**2), rtol=1e-12)
    by_name = exe(PARAMS, batch={"y": Y}, x=X)
    assert by_name["loss"] == out["loss"]
    flat = exe(**{"layers.0.0": PARAMS["layers"][0][0], "layers.0.1": PARAMS["layers"][0][1],
                  "layers.1.0": PARAMS["layers"][1][0], "layers.1.1": PARAMS["layers"][1][1],
                  "scale.gain": PARAMS["scale"]["gain"], "x": X, "batch.y": Y})
    assert flat["loss"] == out["loss"] and "all.1.0" in flat


def test_derivatives_are_nested_as_the_params() -> None:
    out = compiled(rlx.value_and_grad(graph(), of="loss"))(PARAMS, X, {"y": Y})
    assert out.grad["scale"]["bias"] is None and list(out) == ["loss", "all", "grad"]
    assert isinstance(out.grad["layers"][1], tuple)
    product = compiled(rlx.hvp(graph(), of="loss"))
    moved = product(PARAMS, X, {"y": Y}, v=PARAMS)["hvp"]
    step = 1e-5
    gradient = compiled(rlx.grad(graph(), of="loss"))
    ends = []
    for sign in (1, -1):
        scaled = {"layers": [tuple(a * (1 + sign * step) for a in layer)
                             for layer in PARAMS["layers"]],
                  "scale": {"gain": PARAMS["scale"]["gain"] * (1 + sign * step), "bias": None}}
        ends.append(gradient(scaled, X, {"y": Y})["grad"]["layers"][0][0])
    np.testing.assert_allclose(moved["layers"][0][0], (ends[0] - ends[1]) / (2 * step), rtol=1e-6)


def test_partial_gradients_leave_none_and_inputs_keep_their_names() -> None:
    g = rlx.grad(graph(), of="loss", wrt=["scale.gain", "x"])
    out = compiled(g)(PARAMS, X, {"y": Y})
    assert out["grad"]["layers"] == [(None, None), (None, None)]
    assert out["grad"]["scale"]["gain"].shape == (3,) and out["grad_x"].shape == (4, 3)


def test_a_training_step_of_a_traced_function() -> None:
    step = compiled(rlx.train_step(graph(), of="loss", optimizer=rlx.optim.adam(1e-2)))
    state = step.init(PARAMS)
    losses = [float(step.step(state, X, {"y": Y})["loss"]) for _ in range(5)]
    assert losses == sorted(losses, reverse=True)
    assert set(state.params) == set(graph().params)


class Pair(NamedTuple):
    a: Any
    b: Any


def test_single_arrays_tuples_and_named_tuples() -> None:
    g = rlx.trace(lambda w, x: w * x, 2.0, rlx.spec((2,)))
    assert (list(g.params), list(g.inputs), list(g.outputs)) == (["w"], ["x"], ["out"])
    found = compiled(g)(3.0, np.ones(2, np.float32))
    np.testing.assert_array_equal(found, np.full(2, 3, np.float32))
    g = rlx.trace(lambda w, *xs: Pair(w.a * xs[0], [xs[1], 1.5]), Pair(X, None), X, X)
    assert (list(g.params), list(g.inputs)) == (["a"], ["xs0", "xs1"])
    assert list(g.outputs) == ["a", "b.0", "b.1"]
    found = compiled(g)(Pair(X, None), X, X)
    assert isinstance(found, Pair) and found.b[1] == 1.5
    g = rlx.trace(lambda p: (p[0] + p[1],), (X, X))
    assert (list(g.params), list(g.outputs)) == (["p.0", "p.1"], ["out.0"])


def test_params_may_be_nothing() -> None:
    g = rlx.trace(lambda p, x: x + 1, None, X)
    np.testing.assert_array_equal(compiled(g)(None, X), X + 1)


def test_a_python_if_names_cond_and_the_line() -> None:
    def branches(params: Any, x: Any) -> Any:
        return x if x.sum() > 0 else -x

    with pytest.raises(rlx.ArgumentError, match=r"where or cond\n  at .*test_tracing.py"):
        rlx.trace(branches, None, X)


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(rlx.ArgumentError, match=r"'w.0' is a str"):
        rlx.trace(lambda p: p, {"w": ["text"]})
    with pytest.raises(rlx.ArgumentError, match=r"'a.b' is taken"):
        rlx.trace(lambda p: p["a.b"], {"a.b": X, "a": {"b": X}})
    with pytest.raises(rlx.ArgumentError, match="is taken"):
        rlx.trace(lambda p, x: x, {"x": X}, X)
    outer = rlx.Graph().input("z", (3,), rlx.f64)
    with pytest.raises(rlx.ArgumentError, match="nodes of two graphs, '<lambda>' .* and 'graph'"):
        rlx.trace(lambda p, x: x + outer, None, X)
    with pytest.raises(rlx.ArgumentError, match="is a node"):
        rlx.trace(lambda p, x: x, None, outer)


def test_another_nesting_is_refused_before_anything_runs() -> None:
    exe = compiled(graph())
    with pytest.raises(rlx.ArgumentError, match=r"params.layers takes list of 2, not list of 1"):
        exe({**PARAMS, "layers": PARAMS["layers"][:1]}, X, {"y": Y})
    with pytest.raises(rlx.ArgumentError, match="takes 3 arguments, not 4"):
        exe(PARAMS, X, {"y": Y}, X)
    with pytest.raises(rlx.ArgumentError, match="'x' is given twice"):
        exe(PARAMS, X, {"y": Y}, x=X)
    with pytest.raises(rlx.ShapeError, match="'x' takes"):
        exe(PARAMS, X[:2], {"y": Y})
