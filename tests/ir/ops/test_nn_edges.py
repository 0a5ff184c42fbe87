"""Edge conventions of activations, softmax, cross-entropy and norms."""

from __future__ import annotations

from math import inf, log, nan

import numpy as np
import pytest

import rlx_py.ir.ops.numpy.arrays as rlx
from rlx_py import nn
from rlx_py.ir.graph.evaluate import evaluate
from rlx_py.ir.nodes.node import Node
from rlx_py.passes.derive.jvp import jvp
from rlx_py.passes.derive.vjp import grad, vjp
from rlx_py.passes.rewrite.decompose import decompose
from support.layers import LABELS, gradient, graph_of, normal, value

# ---- activations -----------------------------------------------------------------------------


def test_relu_at_zero_and_nan() -> None:
    x = np.array([-1.0, 0.0, -0.0, 2.0, inf, -inf, nan])
    np.testing.assert_array_equal(value(nn.relu, input=x), [0, 0, 0, 2, inf, 0, nan])
    np.testing.assert_array_equal(gradient(nn.relu, "input", input=x)[:6], [0, 0, 0, 1, 1, 0])


def test_softplus_is_smooth_at_zero_and_safe_at_the_ends() -> None:
    x = np.array([-1e4, -745.0, 0.0, 40.0, 1e4])
    np.testing.assert_allclose(value(lambda x: nn.softplus(x, 1.0, 1e6), x=x),
                               [0, np.exp(-745), log(2), 40, 1e4], rtol=1e-15)
    np.testing.assert_allclose(gradient(nn.softplus, "input", input=x),
                               [0, np.exp(-745), 0.5, 1, 1], rtol=1e-12)
    second = vjp(vjp(graph_of(nn.softplus, input=np.zeros(())), "input"), "input")
    ones = {k: np.ones(()) for k in second.leaves if k != "input"}
    assert evaluate(second, {"input": np.zeros(()), **ones})["grad_input"] == 0.25


def test_tanh_and_sigmoid_have_no_slope_far_out() -> None:  # C38
    x = np.array([1e3, inf, -inf])
    assert not gradient(nn.tanh, "x", x=x).any()
    assert not gradient(nn.sigmoid, "x", x=x).any()


# ---- softmax and cross-entropy ---------------------------------------------------------------


def test_softmax_of_a_row_without_weight() -> None:
    x = np.array([[-inf, -inf], [0.0, -inf], [1e4, 1e4]])
    np.testing.assert_array_equal(value(nn.softmax, input=x), [[0, 0], [1, 0], [0.5, 0.5]])
    found = gradient(nn.softmax, "input", ct=normal(3, 2), input=x)
    np.testing.assert_array_equal(found[:2], 0)
    tangent = evaluate(jvp(graph_of(nn.softmax, input=x), "input"),
                       {"input": x, "t_input": normal(3, 2)})["t_y"]
    np.testing.assert_array_equal(tangent[:2], 0)
    np.testing.assert_array_equal(value(nn.log_softmax, input=x)[:2], [[-inf, -inf], [0, -inf]])
    assert np.isfinite(gradient(nn.log_softmax, "input", ct=normal(3, 2), input=x)).all()


def test_soft_labels_of_weight_zero_count_nothing() -> None:  # C20
    x, q = np.array([[-inf, 0.0, 0.0]]), np.array([[0.0, 1.0, 0.0]])

    def loss(x: Node, q: Node) -> Node:
        return nn.softmax_cross_entropy(x, q)

    np.testing.assert_allclose(value(loss, x=x, q=q), [log(2)])
    np.testing.assert_allclose(gradient(loss, "x", x=x, q=q), [[0, -0.5, 0.5]])
    np.testing.assert_allclose(gradient(loss, "q", x=x, q=q), [[inf, log(2), log(2)]])


def test_class_labels_out_of_range_match_no_class() -> None:
    x, labels = normal(4, 3) * 10, np.array([-1, 3, 2**31 - 1, 1], np.int32)
    found = value(lambda x, t: nn.softmax_cross_entropy(x, t), x=x, t=labels)
    total = np.log(np.exp(x).sum(1))
    np.testing.assert_allclose(found, total - [0, 0, 0, x[3, 1]])
    p = np.exp(x - total[:, None])
    p[3, 1] -= 1
    np.testing.assert_allclose(gradient(lambda x, t: nn.softmax_cross_entropy(x, t), "x", x=x,
                                        t=labels), p, atol=1e-12)


def test_narrow_labels_count_beyond_their_type() -> None:
    x, labels = normal(2, 300), np.array([3, 200], np.uint8)
    wide = labels.astype(np.int64)
    np.testing.assert_array_equal(value(lambda x, t: nn.softmax_cross_entropy(x, t), x=x, t=labels),
                                  value(lambda x, t: nn.softmax_cross_entropy(x, t), x=x, t=wide))


def test_an_ignored_class_may_lie_beyond_the_type_of_the_labels() -> None:
    x, labels = normal(1, 200), np.array([156], np.uint8)  # 156 = −100 modulo 256
    found = value(lambda x, t: nn.cross_entropy(x, t), x=x, t=labels)
    np.testing.assert_allclose(found, np.log(np.exp(x).sum()) - x[0, 156])


def test_softmax_over_nothing_is_nothing() -> None:
    assert gradient(nn.softmax, "input", input=np.zeros((2, 0))).shape == (2, 0)
    assert gradient(nn.log_softmax, "input", input=np.zeros((2, 0))).shape == (2, 0)


def test_ignored_rows_have_neither_loss_nor_gradient() -> None:
    x, labels = normal(3, 4), np.array([1, -100, 2])
    x[1] = nan

    def loss(x: Node, t: Node) -> Node:
        return nn.softmax_cross_entropy(x, t, ignore_index=-100)

    assert value(loss, x=x, t=labels)[1] == 0
    assert not gradient(loss, "x", x=x, t=labels)[1].any()
    rest = value(lambda x, t: nn.cross_entropy(x, t), x=x[[0, 2]], t=labels[[0, 2]])
    np.testing.assert_allclose(value(lambda x, t: nn.cross_entropy(x, t), x=x, t=labels), rest)


def test_a_label_of_probability_zero_costs_infinity() -> None:
    x, labels = np.array([[0.0, -inf], [-inf, -inf]]), np.array([1, 0])
    found = value(lambda x, t: nn.softmax_cross_entropy(x, t), x=x, t=labels)
    np.testing.assert_array_equal(found, [inf, inf])
    found = gradient(lambda x, t: nn.softmax_cross_entropy(x, t), "x", x=x, t=labels)
    np.testing.assert_array_equal(found, [[1, -1], [-1, 0]])


def test_large_logits_keep_their_differences() -> None:
    x = np.array([[1e6, 1e6 + 1.0, 1e6 - 1.0]], np.float32)
    found = value(lambda x, t: nn.softmax_cross_entropy(x, t), x=x, t=np.array([0]))
    np.testing.assert_allclose(found, np.log(1 + np.exp(1) + np.exp(-1)), rtol=1e-6)


def test_no_one_hot_is_gathered_or_stored() -> None:
    g = decompose(graph_of(lambda x, t: nn.softmax_cross_entropy(x, t), x=normal(3, 5), t=LABELS))
    assert not {n.op.name for n in g.nodes} & {"gather", "take_along", "one_hot", "concat"}


def test_binary_cross_entropy_of_a_sigmoid_bends_by_p_times_one_minus_p() -> None:  # C56
    x, p = np.array([-3.0, 0.2, 2.0]), 1 / (1 + np.exp(-np.array([-3.0, 0.2, 2.0])))
    for loss in (lambda x: nn.binary_cross_entropy(nn.sigmoid(x), np.ones(3), reduction="sum"),
                 lambda x: nn.binary_cross_entropy_with_logits(x, np.ones(3), reduction="sum")):
        second = vjp(grad(graph_of(loss, x=x), "y", "x"), "x")
        found = evaluate(second, {"x": x, "ct_grad_x": np.ones(3)})["grad_x"]
        np.testing.assert_allclose(found, p * (1 - p), rtol=1e-12)


# ---- norms -----------------------------------------------------------------------------------


def test_layer_norm_derivatives_one_to_four() -> None:  # C40
    x, v = np.array([0.3, -0.7, 1.2, 0.5]), np.array([1, 2, -1, 0.5])
    w = np.array([0.2, -1, 0.7, 2])
    g = graph_of(lambda s: rlx.sum(nn.layer_norm(s * v + x, 4) * w), s=np.zeros(()))
    expected = (0.5651697, 1.3526862, 4.2029098, 12.1832118)
    for derivative in expected:
        g = grad(g, next(iter(g.outputs)), "s")
        assert evaluate(g, {"s": np.zeros(())})["grad_s"] == pytest.approx(derivative, abs=5e-8)


def test_layer_norm_gradient_needs_a_weight_that_is_not_uniform() -> None:  # C59
    x, w = normal(3, 5), normal(5, seed=1)
    ones = gradient(lambda x: nn.layer_norm(x, 5), "x", x=x)
    np.testing.assert_allclose(ones, 0, atol=1e-12)
    assert np.abs(gradient(lambda x: nn.layer_norm(x, 5) * w, "x", x=x)).max() > 0.1


def test_norms_of_f16_do_not_overflow() -> None:
    x = (normal(2, 8) * 2e4).astype(np.float16)
    exact = value(lambda x: nn.layer_norm(x, 8), x=x.astype(np.float64))
    np.testing.assert_allclose(value(lambda x: nn.layer_norm(x, 8), x=x), exact, atol=2e-3)
    np.testing.assert_allclose(value(lambda x: nn.rms_norm(x, 8), x=x),
                               value(lambda x: nn.rms_norm(x, 8), x=x.astype(float)), atol=2e-3)


def test_offset_rows_keep_their_variance() -> None:
    x = (1e4 + np.arange(4.0)[None]).astype(np.float32)
    np.testing.assert_allclose(value(lambda x: nn.layer_norm(x, 4), x=x),
                               value(lambda x: nn.layer_norm(x, 4), x=x - np.float32(1e4)),
                               rtol=1e-5)
