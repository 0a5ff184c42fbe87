"""Evaluation, verification, and the graph-to-graph derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx_py.ir.ops.numpy.arrays as a
import rlx_py.ir.ops.numpy.pointwise as p
from rlx_py.ir.base.errors import (
    ArgumentError,
    DTypeError,
    NotDifferentiable,
    RLXError,
    ShapeError,
    VerifyError,
)
from rlx_py.ir.base.types import DType, TensorType, TupleType, bf16, f16, f32, f64, i32, i64
from rlx_py.ir.graph.evaluate import evaluate, evaluate_all, evaluate_nodes
from rlx_py.ir.graph.graph import Graph
from rlx_py.ir.nodes.node import Node, Op, pack
from rlx_py.ir.nodes.verify import verify
from rlx_py.ir.ops.making.constant import constant
from rlx_py.ir.ops.numpy.statistics import NORM
from rlx_py.ir.ops.primitive import elementwise as e
from rlx_py.ir.ops.primitive.reduce import REDUCE_MAX
from rlx_py.passes.derive.check import check_grads
from rlx_py.passes.derive.differentiate import singular_report
from rlx_py.passes.derive.jvp import hvp, jvp
from rlx_py.passes.derive.vjp import grad, value_and_grad, vjp
from rlx_py.passes.rewrite.decompose import decompose
from rlx_py.passes.rewrite.retype import retype

RNG = np.random.default_rng(0)


def scalar_graph(build: Any, shape: tuple[int, ...] = (), dtype: DType = f64) -> Graph:
    """A graph x -> y = build(x)."""
    g = Graph("f")
    g.output("y", build(g.input("x", shape, dtype)))
    return g


def derivative(build: Any, at: Any, order: int = 1) -> Any:
    """The gradient of Σ build(x); for order 2 the gradient of the sum of its entries, summed."""
    x = np.asarray(at, np.float64)
    g = grad(scalar_graph(lambda x: a.sum(build(x)), x.shape), "y", ["x"])
    for _ in range(order - 1):
        verify(g)
        g = grad(g.derive({"y": a.sum(g.outputs["grad_x"])}), "y", ["x"])
    found = evaluate(g, {"x": x})["grad_x"]
    return found if order == 1 else found.sum()


def mlp() -> tuple[Graph, dict[str, Any]]:
    g = Graph("mlp")
    x, w, b = g.input("x", (4, 3), f64), g.param("w", (3, 5), f64), g.param("b", (5,), f64)
    h = p.tanh(p.add(x @ w, b))
    g.output("h", h)
    g.output("loss", a.sum(p.multiply(h, p.exp(h))))
    return g, {k: RNG.normal(size=n.shape) for k, n in g.leaves.items()}


# ---- evaluation ------------------------------------------------------------------------------


@pytest.mark.parametrize(("change", "error", "message"), [
    ({"w": None}, ArgumentError, "no value for 'w'"),
    ({"q": np.zeros(1)}, ArgumentError, "no input, param or state named 'q'"),
    ({"b": np.zeros(4)}, ShapeError, "'b' takes f64"),
    ({"b": np.zeros(5, np.int64)}, DTypeError, "'b' takes f64"),
    ({"b": ["a"] * 5}, DTypeError, "'b' takes f64"),
])
def test_wrong_inputs_are_refused_by_name(change: dict[str, Any], error: type[RLXError],
                                          message: str) -> None:
    g, v = mlp()
    v = {k: x for k, x in {**v, **change}.items() if x is not None}
    with pytest.raises(error, match=message):
        evaluate(g, v)


def test_states_start_at_their_initial_value_and_step() -> None:
    g = Graph()
    x, s = g.input("x", (2,)), g.state("s", (2,), init=3.0)
    w = g.param("w", (2,))
    g.next("s", p.add(s, x))
    g.update("w", p.multiply(w, 2.0))
    g.output("y", p.multiply(s, x))
    one = np.ones(2, np.float32)
    first = evaluate_all(g, {"x": one, "w": one})
    np.testing.assert_array_equal(first.outputs["y"], [3, 3])
    np.testing.assert_array_equal(first.states["s"], [4, 4])
    np.testing.assert_array_equal(first.updates["w"], [2, 2])
    second = evaluate(g, {"x": one, "w": one, **first.states})
    np.testing.assert_array_equal(second["y"], [4, 4])


@pytest.mark.parametrize("dtype", [f16, bf16])
def test_narrow_floats_compute_in_f32_and_store_narrow(dtype: DType) -> None:
    g = scalar_graph(lambda x: p.exp(x), (3,), dtype)
    x = np.array([0.1, 1.0, 30.0], dtype.numpy)
    found = evaluate(g, {"x": x})["y"]
    assert found.dtype == dtype.numpy
    with np.errstate(over="ignore"):
        want = np.exp(x.astype(np.float32)).astype(dtype.numpy)
    np.testing.assert_array_equal(found, want)


def test_evaluate_nodes_from_the_middle() -> None:
    g, v = mlp()
    h = g.outputs["h"]
    (found,) = evaluate_nodes([p.multiply(h, 2.0)], {h: np.ones((4, 5))})
    np.testing.assert_array_equal(found, np.full((4, 5), 2.0))


# ---- verification ----------------------------------------------------------------------------


def test_verify_accepts_every_derived_graph() -> None:
    g, _ = mlp()
    for derived in (g, grad(g, "loss"), vjp(g), jvp(g), hvp(g, "loss"), value_and_grad(g, "loss"),
                    grad(grad(g, "loss").derive({"s": a.sum(grad(g, "loss").outputs["grad_w"])}),
                         "s"), decompose(g)):
        verify(derived)


def test_verify_names_what_is_wrong() -> None:
    g, _ = mlp()
    x = g.inputs["x"]
    wrong = Node(e.EXP, (x,), {}, TensorType(f64, (7,)), ("model.py", 3), None)
    with pytest.raises(VerifyError, match=r"exp.*infers f64\[4,3\](.|\n)*model.py:3"):
        verify(g.derive({"y": wrong}))
    foreign = Graph().input("z", (2,))
    with pytest.raises(VerifyError, match="'z' is not a leaf"):
        verify(g.derive({"y": foreign}))
    with pytest.raises(VerifyError, match="has type"):
        verify(g.derive({"y": pack([x])}))
    loop = Node(e.NEG, (x,), {}, x.type, None, None)
    loop.inputs = (loop,)
    with pytest.raises(VerifyError, match="depends on itself"):
        verify(g.derive({"y": loop}))
    moved = g.derive(g.outputs)
    moved.params["v"] = moved.params.pop("w")
    with pytest.raises(VerifyError, match="param 'v'"):
        verify(moved)


# ---- naming and errors of derivatives --------------------------------------------------------


def test_names_follow_the_interface() -> None:
    g, _ = mlp()
    assert list(grad(g, "loss").outputs) == ["grad_w", "grad_b"]
    assert list(grad(g, "loss", ["b", "x"]).outputs) == ["grad_b", "grad_x"]
    assert list(value_and_grad(g, "loss", "w").outputs) == ["h", "loss", "grad_w"]
    back = vjp(g, ["w"])
    assert list(back.inputs) == ["x", "ct_h", "ct_loss"] and list(back.outputs) == ["grad_w"]
    forward = jvp(g, ["w"])
    assert list(forward.inputs) == ["x", "t_w"]
    assert list(forward.outputs) == ["h", "loss", "t_h", "t_loss"]
    second = hvp(g, "loss", ["w"])
    assert list(second.inputs) == ["x", "v_w"] and list(second.outputs) == ["hvp_w"]
    twice = jvp(forward, ["w", "t_w"])
    assert list(twice.inputs) == ["x", "t_w", "t2_w", "t2_t_w"]
    assert list(vjp(back, ["w"]).inputs) == ["x", "ct_h", "ct_loss", "ct_grad_w"]


def test_wrong_requests_are_typed_errors() -> None:
    g, _ = mlp()
    labels = g.input("labels", (4,), i32)
    g.output("count", a.sum(labels))
    requests: list[tuple[Callable[[], Graph], type[RLXError]]] = [
        (lambda: grad(g, "lost"), ArgumentError), (lambda: grad(g, "loss", ["v"]), ArgumentError),
        (lambda: grad(g, "loss", ["w", "w"]), ArgumentError),
        (lambda: grad(g, "h"), ShapeError), (lambda: grad(g, "count"), DTypeError),
        (lambda: grad(g, "loss", ["labels"]), DTypeError),
        (lambda: grad(g, "loss", singular="none"), ArgumentError),
        (lambda: jvp(g, ["labels"]), DTypeError), (lambda: hvp(g, "h"), ShapeError),
        (lambda: decompose(g, keep=["no_such_op"]), ArgumentError),
    ]
    for request, error in requests:
        with pytest.raises(error):
            request()


def test_an_op_without_a_rule_names_itself_and_the_line() -> None:
    opaque = Op("opaque", lambda x: x, lambda x: x)
    g = scalar_graph(lambda x: a.sum(opaque(x)), (3,))
    transforms: list[Callable[[], Graph]] = [lambda: grad(g, "y", ["x"]), lambda: jvp(g, ["x"])]
    for transform in transforms:
        with pytest.raises(NotDifferentiable, match=r"opaque(.|\n)*test_transforms.py"):
            transform()
    stopped = scalar_graph(lambda x: a.sum(p.multiply(x, p.stop_gradient(opaque(x)))), (3,))
    found = evaluate(grad(stopped, "y", ["x"]), {"x": np.arange(3.0)})
    np.testing.assert_array_equal(found["grad_x"], np.arange(3.0))


def test_a_wrong_rule_is_caught_by_its_type() -> None:
    bad = Op("bad", lambda x: x, lambda x: x, vjp=lambda node, ct, ad: (a.sum(ct),))
    with pytest.raises(VerifyError, match="vjp of bad"):
        grad(scalar_graph(lambda x: a.sum(bad(x)), (3,)), "y", ["x"])


def test_unused_wrt_gets_zeros_and_integers_get_none() -> None:
    g, v = mlp()
    g.param("unused", (2, 3), f32)
    g.param("table", (3,), i64)
    found = evaluate(grad(g, "loss"), {**v, "unused": np.ones((2, 3), np.float32),
                                      "table": np.ones(3, np.int64)})
    assert list(found) == ["grad_w", "grad_b", "grad_unused"]
    assert found["grad_unused"].dtype == np.float32 and not found["grad_unused"].any()


# ---- values ----------------------------------------------------------------------------------


def test_first_and_second_derivatives_of_a_network() -> None:
    g, v = mlp()
    check_grads(g, v, order=2)
    check_grads(g, v, of="h", wrt=["x", "w"], order=1)


def test_hvp_is_the_derivative_of_grad() -> None:
    g, v = mlp()
    direction = {"v_w": RNG.normal(size=(3, 5)), "v_b": RNG.normal(size=5)}
    found = evaluate(hvp(g, "loss"), {**v, **direction})
    step, backward = 1e-6, grad(g, "loss")
    ends = [evaluate(backward, {**v, "w": v["w"] + s * direction["v_w"],
                                "b": v["b"] + s * direction["v_b"]}) for s in (step, -step)]
    for name in "wb":
        want = (ends[0][f"grad_{name}"] - ends[1][f"grad_{name}"]) / (2 * step)
        np.testing.assert_allclose(found[f"hvp_{name}"], want, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(("build", "at", "want"), [
    (lambda x: p.sqrt(a.sum(p.multiply(x, x))), [0.0, 0, 0], [0, 0, 0]),                   # C01
    (lambda x: p.sqrt(a.sum(p.power(x, 2))), [3.0, 4.0], [0.6, 0.8]),
    (lambda x: p.power(a.sum(p.multiply(x, x)), 0.5), [0.0, 0], [0, 0]),
    (lambda x: p.power(p.sqrt(a.sum(p.multiply(x, x))), 2), [0.0, 0], [0, 0]),             # C02
    (lambda x: p.sqrt(a.mean(p.multiply(x, x))), [0.0, 0], [0, 0]),
    (lambda x: p.sqrt(a.var(x)), [2.0, 2.0, 2.0], [0, 0, 0]),
    (lambda x: p.sqrt(a.sum(p.power(p.abs(p.subtract(x, 2.0)), 2))), [2.0, 2.0], [0, 0]),  # C37
    (lambda x: p.where(p.greater(x, 0), p.sqrt(x), x), [-1.0, -4], [1, 1]),                # C04
    (lambda x: p.where(p.less(x, 1), p.cos(x), 0.0), [0.0, np.inf], [0, 0]),               # C05
    (lambda x: p.where(p.less_equal(x, 10), p.exp(x), 1.0), [1e10], [0]),                  # C06
    (lambda x: p.where(p.greater(x, 2), p.log2(x), p.multiply(x, 2)), [0.0], [2]),         # C06
    (lambda x: p.where(p.greater_equal(x, 0.0), x, p.multiply(0.0, p.divide(x, 0.0))), [1.0],
     [1]),                                                                                 # C07
    (lambda x: REDUCE_MAX(x, axes=(0,)), [1.0, 2, 2, 2], [0, 1 / 3, 1 / 3, 1 / 3]),        # C11
    (lambda x: p.maximum(x, 2.0), [2.0], [0.5]),                                           # C13
    (lambda x: p.power(x, 1.0), [0.0], [1]),                                               # C22
    (lambda x: p.power(x, 0.0), [0.0], [0]),                                               # C23
    (lambda x: p.tanh(x), [1e3, np.inf], [0, 0]),                                          # C38
    (lambda x: p.power(x, 5), [1.0], [5]),                                                 # C50
    (lambda x: p.abs(x), [0.0, -2], [0, -1]),
    (lambda x: p.multiply(p.stop_gradient(x), x), [3.0], [3]),
])
def test_hard_points(build: Any, at: list[float], want: list[float]) -> None:
    np.testing.assert_allclose(derivative(build, at), want, rtol=1e-12)


@pytest.mark.parametrize(("build", "at", "want"), [
    (lambda x: p.power(p.sqrt(a.sum(p.multiply(x, x))), 2), [0.0, 0], 4.0),                # C02
    (lambda x: p.power(x, 5), [1.0], 20.0),                                                # C50
    (lambda x: p.multiply(x, p.where(p.greater(x, 0), x, p.log(x))), [2.0], 2.0),
    (lambda x: p.where(p.greater(x, 0), p.power(x, 1.5), 0.0), [-1.0], 0.0),
    (lambda x: p.sinc(x), [0.0], -np.pi**2 / 3),                                           # C24
])
def test_hard_points_of_second_order(build: Any, at: list[float], want: float) -> None:
    np.testing.assert_allclose(derivative(build, at, 2), want, rtol=1e-12)


def test_two_leaves_are_never_one() -> None:                                               # C39
    g = Graph()
    g.output("y", p.add(g.input("a", (), f64), g.input("b", (), f64)))
    found = evaluate(grad(g, "y", ["a", "b"]), {"a": np.float64(3), "b": np.float64(3)})
    assert found == {"grad_a": 1, "grad_b": 1}


def test_fourth_mixed_partial_of_a_product_of_powers() -> None:                            # C23
    g = Graph()
    s = [g.input(f"s{i}", (), f64) for i in range(4)]
    y = constant(1.0, f64)
    for x in s:
        y = p.multiply(y, p.power(x, 1.0))
    g.output("y", y)
    for i in range(4):
        g = grad(g, "y", [f"s{i}"])
        g = g.derive({"y": g.outputs[f"grad_s{i}"]})
    assert evaluate(g, {f"s{i}": np.float64(0) for i in range(4)})["y"] == 1


def test_binary_cross_entropy_to_second_order() -> None:                                   # C56
    x = np.array([-1.3, 0.4, 2.0])
    s = 1 / (1 + np.exp(-x))
    found = derivative(lambda x: p.negative(p.log(p.sigmoid(x))), x, 2)
    np.testing.assert_allclose(found, np.sum(s * (1 - s)), rtol=1e-12)


def test_an_inner_gradient_step_differentiates_through_a_call() -> None:
    inner, v = mlp()
    inner_grad = grad(inner, "loss", ["w"])
    g = Graph("maml")
    x, w, b = g.input("x", (4, 3), f64), g.param("w", (3, 5), f64), g.param("b", (5,), f64)
    stepped = p.subtract(w, p.multiply(0.1, g.call(inner_grad, x=x, w=w).grad_w))
    g.output("loss", g.call(inner, x=x, w=stepped).loss)
    assert list(g.params) == ["w", "b"] and b is g.params["b"]
    verify(g)
    check_grads(g, v, order=1)
    with pytest.raises(ArgumentError, match="no output 'lost'"):
        _ = g.call(inner, x=x).lost
    with pytest.raises(ArgumentError, match="not bound"):
        g.call(inner)


# ---- singular points -------------------------------------------------------------------------


def test_singular_modes() -> None:
    g = scalar_graph(lambda x: a.sum(p.where(p.greater(x, 0), p.sqrt(x), x)), (3,))
    x = {"x": np.array([0.0, -4.0, 4.0])}
    np.testing.assert_array_equal(evaluate(grad(g, "y", ["x"]), x)["grad_x"], [1, 1, 0.25])
    plain = evaluate(grad(g, "y", ["x"], singular="ieee"), x)["grad_x"]
    assert np.isnan(plain[:2]).all() and plain[2] == 0.25
    reported = grad(g, "y", ["x"], singular="report")
    np.testing.assert_array_equal(evaluate(reported, x)["grad_x"], [1, 1, 0.25])
    (entry,) = singular_report(reported, x)
    assert (entry.op, entry.count) == ("sqrt", 2)
    assert entry.loc is not None and entry.loc[0].endswith("test_transforms.py")
    assert singular_report(reported, {"x": np.ones(3)}) == []


def test_the_true_infinity_stays() -> None:
    assert derivative(lambda x: p.sqrt(x), [0.0]) == np.inf
    assert derivative(lambda x: p.log(x), [0.0]) == np.inf


def test_a_finite_partial_needs_no_guard() -> None:
    g = scalar_graph(lambda x: a.sum(p.multiply(x, p.where(p.greater(x, 0), 2.0, 3.0))), (3,))
    assert all(n.op is not e.GUARDED_MUL for n in grad(g, "y", ["x"]).nodes)
    h = scalar_graph(lambda x: a.sum(p.multiply(x, x)), (3,))
    assert any(n.op is e.GUARDED_MUL for n in jvp(h, ["x"]).nodes)


# ---- composites, tuples, provenance ----------------------------------------------------------


def two_parts() -> tuple[Op, Op]:
    def infer(x: TensorType) -> TupleType:
        return TupleType((x, x))

    inner = Op("inner_parts", infer, None, decompose=lambda x: (p.sin(x), p.multiply(x, x)))
    outer = Op("outer_parts", infer, None,
               decompose=lambda x: tuple(inner(p.multiply(x, 2.0))[i] for i in (1, 0)))
    return inner, outer


def test_tuple_composites_evaluate_decompose_and_differentiate() -> None:
    inner, outer = two_parts()
    g = scalar_graph(lambda x: a.sum(p.multiply(outer(x)[0], outer(x)[1])), (3,))
    x = {"x": np.array([0.3, -1.0, 2.0])}
    want = np.sum(4 * x["x"]**2 * np.sin(2 * x["x"]))
    np.testing.assert_allclose(evaluate(g, x)["y"], want)
    verify(g)
    plain = decompose(g)
    assert all(n.op.decompose is None for n in plain.nodes)
    np.testing.assert_allclose(evaluate(plain, x)["y"], want)
    kept = decompose(g, keep=[inner])
    assert any(n.op is inner for n in kept.nodes) and all(n.op is not outer for n in kept.nodes)
    check_grads(g, x, order=2)


def test_only_active_composites_are_expanded() -> None:
    g = Graph()
    x, w = g.input("x", (4,), f64), g.param("w", (4,), f64)
    twice = Op("twice", lambda x: x, None, decompose=lambda x: p.add(x, x))
    g.output("loss", a.sum(p.multiply(twice(x), twice(w))))
    found = [n.op for n in value_and_grad(g, "loss").nodes]
    assert found.count(twice) == 1


def test_a_norm_stays_one_op_until_it_is_lowered() -> None:
    g = scalar_graph(lambda x: p.sqrt(a.sum(p.multiply(x, x))), (3,))
    backward = grad(g, "y", ["x"])
    assert any(n.op is NORM for n in backward.nodes)
    assert all(n.op is not NORM for n in decompose(backward).nodes)


def test_backward_nodes_carry_the_line_of_their_forward_node() -> None:
    g, _ = mlp()
    lines = {n.loc for n in g.nodes}
    made = [n for n in grad(g, "loss").nodes if n.origin is not None]
    assert made and all(n.loc in lines for n in made)


def test_depth_is_no_limit() -> None:
    def deep(x: Node) -> Node:
        for _ in range(3000):
            x = e.SIN(x)
        return x

    g = scalar_graph(deep)
    x = {"x": np.float64(0.5)}
    want = float(evaluate(grad(g, "y", ["x"]), x)["grad_x"])
    got = evaluate(jvp(g, ["x"]), {**x, "t_x": np.float64(1)})["t_y"]
    np.testing.assert_allclose(got, want, rtol=1e-12)
    verify(grad(g, "y", ["x"]))


# ---- the checker itself ----------------------------------------------------------------------


def test_check_grads_finds_a_wrong_rule_and_names_the_element() -> None:
    wrong = Op("wrong", lambda x: x, lambda x: x * x,
               vjp=lambda node, ct, ad: (p.multiply(ct, node.inputs[0]),),
               jvp=lambda node, ts, ad: p.multiply(ts[0], node.inputs[0]))
    g = scalar_graph(lambda x: wrong(x), (2, 2))
    with pytest.raises(VerifyError, match=r"derivative by x\[1, 0\] is"):
        check_grads(g, {"x": np.array([[0.0, 0.0], [3.0, 0.0]])}, order=1)


def test_check_grads_finds_modes_that_disagree() -> None:
    skew = Op("skew", lambda x: x, lambda x: x * 2.0,
              vjp=lambda node, ct, ad: (p.multiply(ct, 2.0),),
              jvp=lambda node, ts, ad: p.multiply(ts[0], 3.0))
    with pytest.raises(VerifyError, match="forward mode gives"):
        check_grads(scalar_graph(lambda x: skew(x), (2,)), {"x": np.ones(2)}, order=1)


def test_retype_moves_every_float_and_nothing_else() -> None:
    g = Graph()
    x, k = g.input("x", (3,)), g.input("k", (3,), i32)
    s = g.state("s", (3,), init=0.5)
    g.next("s", p.add(s, p.multiply(x, 0.1)))
    g.output("y", p.add(p.multiply(x, k), p.astype(k, f32)))
    wide = retype(g, f64)
    verify(wide)
    assert all(n.dtype in (f64, i32) for n in wide.nodes)
    with pytest.raises(DTypeError):
        retype(g, i32)
