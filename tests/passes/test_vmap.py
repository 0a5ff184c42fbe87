"""vmap is a Python loop over slices: every op, any axis, nested, and through derivatives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pytest

import rlx_py as rlx
from rlx_py.ir.base.types import f64
from rlx_py.ir.graph.evaluate import evaluate, evaluate_all
from rlx_py.ir.nodes.node import OPS, Op
from rlx_py.ir.ops.primitive.movement import filled
from support.samples import SAMPLES
from support.samples.sample import Sample
from support.sweep import assert_near, run_compiled

Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]
SIZE = 3


def looped(g: rlx.Graph, feed: Arrays, axes: Mapping[str, int], size: int,
           out_axis: int = 0) -> Arrays:
    """The outputs of each slice, stacked."""
    slices = []
    for i in range(size):
        own = {k: np.take(a, i, axes[k]) if k in axes else a for k, a in feed.items()}
        slices.append(evaluate(g, own))
    return {k: np.stack([s[k] for s in slices], out_axis) for k in g.outputs}


def check(g: rlx.Graph, feed: Arrays, axes: Mapping[str, int], size: int, out_axis: int = 0,
          compiled: bool = False) -> rlx.Graph:
    """vmap equals the loop; returns the batched graph."""
    batched = rlx.vmap(g, in_axes=axes, out_axes=out_axis, size=size)
    want = looped(g, feed, axes, size, out_axis)
    assert_near(evaluate(batched, feed), want, g.name)
    if compiled:
        assert_near(run_compiled(batched, feed), want, g.name, factor=10)
    return batched


def variants(g: rlx.Graph, feed: Arrays) -> list[Arrays]:
    """The feed and others like it: floats scaled, the rest in another order where that is valid."""
    found = [feed]
    for i in range(1, SIZE):
        other = {k: np.asarray(a * (1 + i / 8)) if a.dtype == np.float64
                 else np.roll(a.ravel(), i).reshape(a.shape) for k, a in feed.items()}
        try:
            evaluate(g, other)
        except rlx.RLXError:
            other = {k: other[k] if a.dtype == np.float64 else a for k, a in feed.items()}
        found.append(other)
    return found


def stacked(slices: list[Arrays], names: Iterable[str], axis: int) -> Arrays:
    """The first slice, with the named arrays of all."""
    return {**slices[0], **{k: np.stack([s[k] for s in slices], axis) for k in names}}


@pytest.mark.parametrize("s", SAMPLES, ids=str)
def test_every_op_is_a_loop_over_slices(s: Sample) -> None:
    dtype = f64 if f64 in s.dtypes() else next(s.dtypes())
    g, names = s.graph(dtype), list(s.graph(dtype).inputs)
    slices = variants(g, s.feed(dtype))
    if not names:
        check(g, {}, {}, SIZE)
        return
    for axis in (0, -1):
        check(g, stacked(slices, names, axis), dict.fromkeys(names, axis), SIZE, axis)
    for name in names if len(names) > 1 else ():
        rest = [n for n in names if n != name]
        for some in ([name], rest) if len(rest) > 1 else ([name],):
            feed = stacked(slices, some, 0)
            try:
                looped(g, feed, dict.fromkeys(some, 0), SIZE)
            except rlx.RLXError:
                continue  # arrays that fit only each other
            check(g, feed, dict.fromkeys(some, 0), SIZE)


@pytest.mark.parametrize("op", [o for o in OPS.values() if o.decompose is None], ids=str)
def test_every_primitive_has_a_rule(op: Op) -> None:
    leaves = ("leaf", "constant", "iota", "size")
    structure = ("tuple", "project")  # vmap itself takes them apart
    assert op.batch is not None or op.name in (*leaves, *structure)


COMPILED = ("add", "cast", "reshape", "slice", "pad", "concat", "reduce_max", "argmax", "contract",
            "windows", "fold", "gather", "scatter_add", "scatter_set", "scatter_max", "take_along",
            "scatter_add_along", "cumsum", "argsort", "random_bits", "random_keys", "conv",
            "softmax", "layer_norm", "counting_sort")


def compiled_samples() -> list[Sample]:
    """The first two samples of some ops of each family."""
    return [s for name in COMPILED for s in [s for s in SAMPLES if s.op.name == name][:2]]


@pytest.mark.parametrize("s", compiled_samples(), ids=str)
def test_compiled_is_the_loop(s: Sample) -> None:
    g, names = s.graph(), list(s.graph().inputs)
    feed = stacked(variants(g, s.feed()), names, -1)
    check(g, feed, dict.fromkeys(names, -1), SIZE, 0, compiled=True)


# ---- positions of their own ------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["clip", "fill"])
@pytest.mark.parametrize("name", ["gather", "scatter_add", "scatter_set", "scatter_max",
                                  "scatter_min", "take_along", "scatter_add_along"])
def test_positions_outside_stay_in_their_element(name: str, mode: str) -> None:
    rng = np.random.default_rng(1)
    g = rlx.Graph(name)
    along = name.endswith("along")
    x = g.input("x", (2, 4, 3), rlx.f64)
    idx = g.input("i", (2, 5, 3) if along else (5,), rlx.i32)
    inputs = [x, idx]
    if name.startswith("scatter"):
        inputs.append(g.input("u", (2, 5, 3), rlx.f64))
    g.output("y", OPS[name](*inputs, axis=1, mode=mode))
    feed = {k: rng.integers(-3, 8, (SIZE, *n.shape)).astype(n.dtype.numpy)
            for k, n in g.inputs.items()}
    check(g, feed, dict.fromkeys(g.inputs, 0), SIZE, compiled=True)


def test_a_position_outside_is_refused_as_in_the_loop() -> None:
    g = rlx.Graph()
    x, i = g.input("x", (4,), rlx.f64), g.input("i", (2,), rlx.i32)
    g.output("taken", rlx.take(x, i, 0, mode="error"))
    g.output("set", rlx.scatter_set(x, i, 1.0, mode="error"))
    batched = rlx.vmap(g, {"x": 0, "i": 0}, size=2)
    feed = {"x": np.zeros((2, 4)), "i": np.array([[0, 3], [1, 7]], np.int32)}
    for name in ("taken", "set"):
        with pytest.raises(rlx.ArgumentError, match="index 7 is out of range for size 4"):
            evaluate(batched.derive({name: batched.outputs[name]}), feed)


# ---- composed --------------------------------------------------------------------------------


def perceptron() -> rlx.Graph:
    """The loss of one example."""
    g = rlx.Graph("mlp")
    x, y = g.input("x", (4,), rlx.f64), g.input("y", (), rlx.i32)
    h = rlx.tanh(x @ g.param("w0", (4, 6), rlx.f64) + g.param("b0", (6,), rlx.f64))
    h = rlx.nn.layer_norm(h, (6,))
    logits = rlx.reshape(h @ g.param("w1", (6, 3), rlx.f64), (1, 3))
    g.output("loss", rlx.softmax_cross_entropy(logits, rlx.reshape(y, (1,))).mean())
    return g


def values(g: rlx.Graph, lead: Mapping[str, tuple[int, ...]], seed: int = 0) -> Arrays:
    """Normal arrays for every leaf, small integers for integers, with more axes in front."""
    rng = np.random.default_rng(seed)
    return {k: rng.integers(0, 3, (*lead.get(k, ()), *n.shape)).astype(n.dtype.numpy)
            if n.dtype.is_int else rng.standard_normal((*lead.get(k, ()), *n.shape))
            for k, n in g.leaves.items()}


def test_per_sample_gradients() -> None:
    g = rlx.value_and_grad(perceptron(), of="loss")
    feed = values(g, {"x": (5,), "y": (5,)})
    check(g, feed, {"x": 0, "y": 0}, 5, compiled=True)


def test_second_order_per_sample() -> None:
    g = rlx.hvp(perceptron(), of="loss", wrt=["x"])
    feed = values(g, {"x": (4,), "y": (4,), "v_x": (4,)})
    check(g, feed, {"x": 0, "y": 0, "v_x": 0}, 4, compiled=True)


@pytest.mark.parametrize("mode", ["grad", "jvp"])
def test_derivatives_of_vmap_are_those_of_the_loop(mode: str) -> None:
    g = perceptron()
    batched = rlx.vmap(g, {"x": 0, "y": 0}, size=5)
    feed = values(g, {"x": (5,), "y": (5,)})
    if mode == "grad":
        whole = rlx.Graph("sum")
        inputs = {k: whole.input(k, n.shape, n.dtype) for k, n in batched.inputs.items()}
        whole.output("loss", whole.call(batched, **inputs).loss.sum())
        found = evaluate(rlx.grad(whole, of="loss"), feed)
        each = looped(rlx.grad(g, of="loss"), feed, {"x": 0, "y": 0}, 5)
        assert_near(found, {k: a.sum(0) for k, a in each.items()})
        return
    forward = rlx.jvp(batched, ["x"])
    feed["t_x"] = np.random.default_rng(4).standard_normal((5, 4))
    want = looped(rlx.jvp(g, ["x"]), feed, {"x": 0, "y": 0, "t_x": 0}, 5)
    assert_near(evaluate(forward, feed), want)


def test_nested_over_different_inputs_and_axes() -> None:
    g = rlx.Graph("pairs")
    a, b = g.input("a", (4,), rlx.f64), g.input("b", (4,), rlx.f64)
    i = g.input("i", (2,), rlx.i32)
    g.output("dot", (a * b).sum())
    g.output("taken", rlx.take(a * 2, i, 0))
    g.output("draws", rlx.random.uniform(rlx.random.key(3), (2,), rlx.f64) + a[:2])
    inner = rlx.vmap(g, {"b": -1, "i": 0}, out_axes={"taken": -1}, size=3)
    both = rlx.vmap(inner, {"a": 1, "i": 1}, out_axes={"dot": -1}, size=5)
    rng = np.random.default_rng(2)
    feed: Arrays = {"a": rng.standard_normal((4, 5)), "b": rng.standard_normal((4, 3)),
            "i": rng.integers(0, 4, (3, 5, 2)).astype(np.int32)}
    found = evaluate(both, feed)
    np.testing.assert_allclose(found["dot"], feed["b"].T @ feed["a"])
    want = np.stack([2 * feed["a"][:, k][feed["i"][:, k]] for k in range(5)])  # [5, 3, 2]
    np.testing.assert_allclose(found["taken"], np.swapaxes(want, 1, 2))
    assert found["draws"].shape == (5, 3, 2)
    assert_near(run_compiled(both, feed), found, factor=10)


@pytest.mark.parametrize("shape", [(), (7,), (2, 3)])
def test_keys_of_their_own_give_the_draws_of_each(shape: tuple[int, ...]) -> None:
    g = rlx.Graph("noise")
    k = g.input("key", (2,), rlx.u32)
    n = g.input("n", (), rlx.u32)
    g.output("u", rlx.random.uniform(rlx.random.fold_in(k, n), shape, rlx.f64))
    g.output("z", rlx.random.normal(rlx.random.split(k)[1], shape, rlx.f64))
    keys = np.arange(20, dtype=np.uint32).reshape(5, 2, 2)
    counts = np.arange(10, dtype=np.uint32).reshape(5, 2)
    twice = rlx.vmap(rlx.vmap(g, {"key": 0, "n": 0}, size=2), {"key": 0, "n": 0}, size=5)
    once = rlx.vmap(g, {"key": 0, "n": 0}, size=2)
    check(once, {"key": keys, "n": counts}, {"key": 0, "n": 0}, 5, compiled=True)
    check(once, {"key": keys, "n": counts[0]}, {"key": 0}, 5)
    check(once, {"key": keys[0], "n": counts}, {"n": 0}, 5)
    assert twice.outputs["u"].shape == (5, 2, *shape)


def test_one_matrix_is_factorised_once() -> None:
    g = rlx.Graph("solve")
    a, b = g.param("a", (3, 3), rlx.f64), g.input("b", (3,), rlx.f64)
    g.output("x", rlx.linalg.solve(a, b))
    feed = values(g, {"b": (6,)})
    batched = check(g, feed, {"b": 0}, 6)
    assert [n.shape for n in batched.nodes if n.op.name == "solve"] == [(3, 6)]


def test_what_all_elements_share_stays_as_it_is() -> None:
    g = rlx.Graph()
    x, w = g.input("x", (4,), rlx.f64), g.param("w", (4, 3), rlx.f64)
    g.output("y", x @ rlx.exp(w))
    g.output("shared", rlx.exp(w).sum())
    g.output("same", w.sum())
    batched = rlx.vmap(g, {"x": 0}, out_axes={"shared": None}, size=8)
    assert batched.params == g.params
    assert {n.shape for n in batched.nodes if n.op.name == "exp"} == {(4, 3)}
    (product,) = [n for n in batched.nodes if n.op.name == "contract"]
    assert [n.shape for n in product.inputs] == [(8, 4), (4, 3)]
    assert batched.outputs["shared"].shape == () and batched.outputs["same"].shape == (8,)


def test_a_traced_function_keeps_its_nesting() -> None:
    def model(params: Any, point: Any) -> Any:
        return {"dot": (params["w"] * point["x"]).sum(), "both": (point["x"], point["y"])}

    params, point = {"w": np.arange(3.0)}, {"x": np.ones(3), "y": np.ones(2)}
    g = rlx.trace(model, params, point)
    names = [k for k in g.inputs if k.endswith(("x", "y"))]
    assert len(names) == 2, list(g.inputs)
    exe: Any = rlx.compile(rlx.vmap(g, dict.fromkeys(names, 0), size=4))
    x, y = np.arange(12.0).reshape(4, 3), np.arange(8.0).reshape(4, 2)
    out = exe(params, {"x": x, "y": y})
    np.testing.assert_allclose(out["dot"], x @ params["w"])
    np.testing.assert_array_equal(out["both"][1], y)


@pytest.mark.parametrize("size", [0, 1])
def test_sizes_0_and_1(size: int) -> None:
    g = perceptron()
    batched = rlx.vmap(rlx.grad(g, of="loss"), {"x": 0, "y": 0}, size=size)
    feed = values(g, {"x": (size,), "y": (size,)})
    found = evaluate(batched, feed)
    assert found["grad_w0"].shape == (size, 4, 6)
    assert_near(run_compiled(batched, feed), found, factor=10)


# ---- derivatives that are given --------------------------------------------------------------


def given(kind: str) -> rlx.Graph:
    """A function whose given derivative is not its own, of two inputs and a shared weight."""
    if kind == "vjp":
        f = rlx.custom_vjp(lambda a, b: rlx.sin(a) * b, lambda a, b: (rlx.sin(a) * b, (a, b)),
                           lambda r, ct: (3 * ct * rlx.cos(r[0]) * r[1], 5 * ct * rlx.sin(r[0])))
    elif kind == "jvp":
        f = rlx.custom_jvp(lambda a, b: rlx.sin(a) * b, lambda p, t: (
            rlx.sin(p[0]) * p[1], 3 * t[0] * rlx.cos(p[0]) * p[1] + 5 * t[1] * rlx.sin(p[0])))
    else:
        def f(a: rlx.Node, b: rlx.Node) -> Any:
            return rlx.nn.fake_quantize(a, 4) * b

    g = rlx.Graph(kind)
    x, w = g.input("x", (4,), rlx.f64), g.param("w", (4,), rlx.f64)
    g.output("loss", (f(x * x, w) * f(w, x)).sum())
    return g


@pytest.mark.parametrize("kind", ["vjp", "jvp", "quantised"])
def test_given_derivatives_are_kept_in_every_order(kind: str) -> None:
    g = given(kind)
    feed = {**values(g, {"x": (5,)}), "ct_loss": np.linspace(-1, 2, 5), "t_x": np.ones((5, 4))}
    batched = rlx.vmap(g, {"x": 0}, size=5)
    check(g, {k: feed[k] for k in ("x", "w")}, {"x": 0}, 5, compiled=True)
    backward = rlx.vjp(batched, ["x", "w"])
    first = looped(rlx.vjp(g, ["x", "w"]), {k: feed[k] for k in ("x", "w", "ct_loss")},
                   {"x": 0, "ct_loss": 0}, 5)
    first["grad_w"] = first["grad_w"].sum(0)
    pulled = {k: feed[k] for k in ("x", "w", "ct_loss")}
    assert_near(evaluate(backward, pulled), first)
    assert_near(run_compiled(backward, pulled), first, factor=10)
    pushed = {k: feed[k] for k in ("x", "w", "t_x")}
    assert_near(evaluate(rlx.jvp(batched, ["x"]), pushed),
                looped(rlx.jvp(g, ["x"]), pushed, {"x": 0, "t_x": 0}, 5))
    check(rlx.hvp(g, of="loss", wrt=["x"]), {"x": feed["x"], "w": feed["w"], "v_x": feed["t_x"]},
          {"x": 0, "v_x": 0}, 5)
    nested = rlx.vmap(batched, {"x": 1}, size=2)
    twice = rlx.vjp(nested, ["w"])
    wide = {"x": np.stack([feed["x"]] * 2, 1), "w": feed["w"],
            "ct_loss": np.stack([feed["ct_loss"]] * 2)}
    assert_near(evaluate(twice, wide), {"grad_w": 2 * first["grad_w"]})
    assert_near(evaluate(rlx.parse(str(twice)), wide), evaluate(twice, wide))


def test_singular_points_of_a_given_derivative_are_counted_over_all_elements() -> None:
    f = rlx.custom_jvp(lambda a: rlx.log(a), lambda p, t: (rlx.log(p[0]), t[0] * (1 / p[0])))
    g = rlx.Graph("flat")
    x = g.input("x", (3,), rlx.f64)
    g.output("y", (f(x) * np.array([0.0, 1.0, 0.0])).sum())
    total = rlx.Graph("total")
    points = np.array([[0.0, 1.0, 2.0], [0.0, 3.0, 0.0]])
    x = total.input("x", points.shape, rlx.f64)
    total.output("loss", total.call(rlx.vmap(g, {"x": 0}, size=2), x=x).y.sum())
    report = rlx.grad(total, of="loss", wrt="x", singular="report")
    one = rlx.grad(g, of="y", wrt="x", singular="report")
    counts = [[s.count for p in points for s in rlx.singular_report(one, {"x": p})],
              [s.count for s in rlx.singular_report(report, {"x": points})]]
    assert sum(counts[0]) == sum(counts[1]) == 3
    np.testing.assert_array_equal(evaluate(report, {"x": points})["grad_x"],
                                  [[0, 1, 0], [0, 1 / 3, 0]])


def given_elsewhere() -> list[Sample]:
    """Samples at whose points the derivative of what the op is made of is another."""
    names = ("logsumexp", "log_softmax", "softmax_cross_entropy", "max_pool", "variance", "norm",
             "fake_quantize", "fake_quantize_lsq", "mish", "softsign", "softmax")
    return [s for s in SAMPLES if s.op.name in names and f64 in s.dtypes()]


@pytest.mark.parametrize("s", given_elsewhere(), ids=str)
def test_gradients_of_vmap_are_vmapped_gradients_at_singular_points(s: Sample) -> None:
    g, names = s.graph(), list(s.graph().inputs)
    wrt = [k for k, n in g.inputs.items() if n.dtype.is_float]
    axes, slices = dict.fromkeys(names, 0), variants(g, s.feed())
    feed = stacked(slices, names, 0)
    backward = rlx.vjp(rlx.vmap(g, axes, size=SIZE), wrt)
    each = rlx.vjp(g, wrt)
    rng = np.random.default_rng(0)
    cts = {k: rng.standard_normal(n.shape) for k, n in backward.inputs.items() if k not in names}
    want = looped(each, {**feed, **cts}, dict.fromkeys(each.inputs, 0), SIZE)
    assert_near(evaluate(backward, {**feed, **cts}), want, str(s), factor=10)


# ---- states ----------------------------------------------------------------------------------


def counter() -> rlx.Graph:
    """A running sum of inputs, and a count of the steps."""
    g = rlx.Graph("counter")
    x = g.input("x", (2,), rlx.f64)
    total = g.state("total", (2,), rlx.f64, init=np.array([1.0, 2.0]))
    steps = g.state("steps", (), rlx.i64, init=0)
    g.next("total", total + x)
    g.next("steps", steps + 1)
    g.output("mean", (total + x) / (steps + 1).astype(rlx.f64))
    return g


def test_a_state_of_its_own_for_each_element() -> None:
    batched = rlx.vmap(counter(), {"x": 0, "total": 1}, size=3)
    x = np.arange(6.0).reshape(3, 2)
    found = evaluate_all(batched, {"x": x})
    np.testing.assert_array_equal(found.states["total"], np.array([[1.0], [2.0]]) + x.T)
    assert found.states["steps"] == 1
    np.testing.assert_array_equal(found.outputs["mean"], np.array([1.0, 2.0]) + x)


def test_a_shared_state_must_stay_shared() -> None:
    with pytest.raises(rlx.ArgumentError, match="next value of state 'total' differs"):
        rlx.vmap(counter(), {"x": 0}, size=3)
    g = rlx.Graph()
    x, w = g.input("x", (), rlx.f64), g.param("w", (), rlx.f64)
    g.update("w", w - x)
    with pytest.raises(rlx.ArgumentError, match="next value of param 'w' differs"):
        rlx.vmap(g, {"x": 0}, size=3)
    both = rlx.vmap(g, {"x": 0, "w": 0}, size=3)
    assert both.updates["w"].shape == (3,)


# ---- refusals --------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments,error,message", [
    ({"in_axes": {"z": 0}, "size": 2}, rlx.ArgumentError, "no input, param or state 'z'"),
    ({"in_axes": {"x": 0}}, rlx.ArgumentError, r"size: is missing \(batched: \['x'\]\)"),
    ({"in_axes": {}}, rlx.ArgumentError, r"size: is missing \(nothing is batched\)"),
    ({"in_axes": None}, rlx.ArgumentError, r"size: is missing \(nothing is batched\)"),
    ({"in_axes": {"x": 3}, "size": 2}, rlx.ArgumentError, "in_axes of 'x': axis 3"),
    ({"in_axes": {"x": -4}, "size": 2}, rlx.ArgumentError, "in_axes of 'x': axis -4"),
    ({"in_axes": {"x": 0.5}, "size": 2}, rlx.ArgumentError, "in_axes of 'x': an axis must be"),
    ({"in_axes": {"x": True}, "size": 2}, rlx.ArgumentError, "in_axes of 'x': an axis must be"),
    ({"in_axes": {"x": (0, 2, 3)}}, rlx.ArgumentError, r"in_axes of 'x': must be an axis or"),
    ({"in_axes": "x", "size": 2}, rlx.ArgumentError, "in_axes: must be a mapping"),
    ({"in_axes": {"x": (0, 2), "y": (0, 3)}}, rlx.ShapeError, "'x' 2, in_axes of 'y' 3"),
    ({"in_axes": {"x": (0, 2)}, "size": 3}, rlx.ShapeError, "size 3, in_axes of 'x' 2"),
    ({"in_axes": {"x": 0}, "size": -1}, rlx.ArgumentError, "size: a size is a non-negative"),
    ({"in_axes": {"x": 0}, "size": 2.0}, rlx.ArgumentError, "size: a size is a non-negative"),
    ({"in_axes": {"x": 0}, "size": 2**62}, rlx.ShapeError, "64-bit"),
    ({"in_axes": {"x": 0}, "size": 2, "out_axes": 2}, rlx.ArgumentError, "out_axes of 's': axis 2"),
    ({"in_axes": {"x": 0}, "size": 2, "out_axes": {"z": 0}}, rlx.ArgumentError, "output 'z'"),
    ({"in_axes": {"x": 0}, "size": 2, "out_axes": None}, rlx.ArgumentError, "'s' is None, but"),
])
def test_wrong_use_is_refused(arguments: dict[str, Any], error: Any, message: str) -> None:
    g = rlx.Graph()
    x, y = g.input("x", (2, 3)), g.input("y", (3,))
    g.output("s", (x * y).sum())
    with pytest.raises(error, match=message) as caught:
        rlx.vmap(g, **arguments)
    assert "test_vmap.py" in str(caught.value) or "it has" in str(caught.value)


def test_sizes_from_in_axes_and_one_int_for_every_input() -> None:
    g = rlx.Graph()
    x, y = g.input("x", (2,), rlx.f64), g.input("y", (2,), rlx.f64)
    g.output("s", (x * y).sum())
    feed = {"x": np.ones((2, 4)), "y": np.arange(8.0).reshape(2, 4)}
    for batched in (rlx.vmap(g, {"x": (1, 4), "y": (-1, 4)}), rlx.vmap(g, -1, size=4)):
        np.testing.assert_array_equal(evaluate(batched, feed)["s"], feed["y"].sum(0))


def test_an_op_without_a_rule_is_named() -> None:
    op = Op("unbatchable", lambda x: x, lambda x: x)
    g = rlx.Graph()
    g.output("y", op(g.input("x", (2,))))
    g.output("constant", op(filled(1.0, g.inputs["x"].tensor)))
    with pytest.raises(rlx.ArgumentError, match=r"unbatchable f32\[2\] has no batching rule"):
        rlx.vmap(g, {"x": 0}, size=2)
