"""Laws and edge conventions of the losses and activations that are functions of primitives."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, log, nan
from typing import Any

import numpy as np
import pytest

import rlx_py as rlx
from rlx_py import nn
from rlx_py.ir.base.types import bf16, f16, f32, i32
from rlx_py.ir.nodes.node import Node
from rlx_py.passes.derive.check import check_grads
from rlx_py.passes.derive.vjp import vjp
from support.layers import gradient, graph_of, normal, run, value

Array = np.ndarray[Any, Any]
LABELS = np.array([2, 0, 1])
SIGNS = np.array([[1, -1, 1, -1], [1, 1, -1, -1], [-1, 1, 1, 1]])
A, B = normal(3, 4), normal(3, 4, seed=1)
P = np.abs(normal(3, 4, seed=2)) / 4 + 0.05
MASK = np.array([1.0, 0.0, 1.0])

CASES: dict[str, tuple[Callable[..., Node], dict[str, Array]]] = {
    "l1_loss": (nn.l1_loss, {"input": A, "target": B}),
    "smooth_l1_loss": (lambda x, y: nn.smooth_l1_loss(x, y, beta=0.7), {"x": A, "y": B}),
    "huber_loss": (lambda x, y: nn.huber_loss(x, y, "sum", 0.7), {"x": A, "y": B}),
    "kl_div": (lambda x, q: nn.kl_div(x, q, "batchmean"), {"x": A, "q": P}),
    "kl_div_log": (lambda x, q: nn.kl_div(x, q, "none", True), {"x": A, "q": B}),
    "poisson": (nn.poisson_nll_loss, {"input": A, "target": P}),
    "poisson_full": (lambda x, y: nn.poisson_nll_loss(x, y, False, True),
                     {"x": P, "y": 40 * P}),
    "gaussian": (nn.gaussian_nll_loss, {"input": A, "target": B, "var": P}),
    "hinge": (lambda x: nn.hinge_loss(x, SIGNS), {"x": A}),
    "hinge_embedding": (lambda x: nn.hinge_embedding_loss(x, SIGNS), {"x": A}),
    "margin_ranking": (lambda x, y: nn.margin_ranking_loss(x, y, SIGNS, 0.3), {"x": A, "y": B}),
    "soft_margin": (lambda x: nn.soft_margin_loss(x, SIGNS), {"x": A}),
    "multilabel": (lambda x: nn.multilabel_soft_margin_loss(x, SIGNS > 0), {"x": A}),
    "multi_margin": (lambda x: nn.multi_margin_loss(x, LABELS, 2, 0.8), {"x": A}),
    "cosine_embedding": (lambda x, y: nn.cosine_embedding_loss(x, y, [1, -1, -1], -0.9),
                         {"x": A, "y": B}),
    "triplet": (lambda x, y, z: nn.triplet_margin_loss(x, y, z, 5.0, swap=True),
                {"x": A, "y": B, "z": P}),
    "cosine_similarity": (nn.cosine_similarity, {"x1": A, "x2": B}),
    "pairwise_distance": (lambda x, y: nn.pairwise_distance(x, y, 3), {"x": A, "y": B}),
    "normalize": (nn.normalize, {"input": A}),
    "nll_loss": (lambda x: nn.nll_loss(x, LABELS, [1.0, 2, 0.5, 3], 0), {"x": A}),
    "masked_cross_entropy": (
        lambda x: nn.masked_cross_entropy(x, LABELS, MASK, label_smoothing=0.1), {"x": A}),
    "ppo": (nn.ppo_clipped_policy_loss,
            {"log_probs": 0.3 * A, "old_log_probs": 0.3 * B, "advantages": normal(3, 4, seed=3)}),
}


@pytest.mark.parametrize("name", CASES)
def test_derivatives_agree_with_differences_to_second_order(name: str) -> None:
    function, arrays = CASES[name]
    check_grads(graph_of(function, **arrays), arrays, order=2, samples=6, step=1e-4, rtol=1e-5,
                atol=1e-5)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [f32, bf16], ids=str)
def test_native_code_equals_the_reference(name: str, dtype: Any) -> None:
    function, arrays = CASES[name]
    narrow = {k: a.astype(dtype.numpy) for k, a in arrays.items()}
    g = graph_of(function, **narrow)
    y = g.outputs["y"]
    assert y.dtype is dtype
    back = vjp(g, list(narrow))
    run(back.derive({**back.outputs, "y": y}),
        {**narrow, "ct_y": normal(*y.shape, seed=5).astype(y.dtype.numpy)})


# ---- conventions -----------------------------------------------------------------------------


def test_a_probability_of_zero_counts_nothing() -> None:
    x, q = np.array([[-inf, 0.0]]), np.array([[0.0, 1.0]])
    assert value(lambda x, q: nn.kl_div(x, q, "sum"), x=x, q=q) == 0
    np.testing.assert_array_equal(gradient(lambda x, q: nn.kl_div(x, q, "sum"), "x", x=x, q=q),
                                  [[0, -1]])
    assert value(lambda x, q: nn.kl_div(x, q, "sum", True), x=x, q=np.array([[-inf, 0.0]])) == 0


def test_masked_rows_may_hold_anything() -> None:
    x = np.array([[1.0, 2.0], [nan, inf]])

    def loss(x: Node) -> Node:
        return nn.masked_cross_entropy(x, np.array([0, 1]), np.array([True, False]))

    np.testing.assert_allclose(value(loss, x=x), log(1 + np.exp(1)))
    np.testing.assert_array_equal(gradient(loss, "x", x=x)[1], 0)
    assert value(lambda x: nn.masked_cross_entropy(x, np.array([0, 1]), np.zeros(2)), x=x) == 0


def test_a_clipped_ratio_stops_the_policy() -> None:
    ratios = np.log(np.array([1.5, 1.5, 0.5, 0.5, 1.0, 1.2]))
    advantages = np.array([1.0, -1, 1, -1, 2, 3])

    def loss(x: Node) -> Node:
        return nn.ppo_clipped_policy_loss(x, np.zeros(6), advantages, 0.2, "none")

    np.testing.assert_allclose(value(loss, x=ratios), [-1.2, 1.5, -0.5, 0.8, -2, -3.6])
    np.testing.assert_allclose(gradient(loss, "x", x=ratios), [0, 1.5, -0.5, 0, -2, -3.6])


def test_the_policy_loss_is_its_definition() -> None:
    function, arrays = CASES["ppo"]
    ratio = np.exp(arrays["log_probs"] - arrays["old_log_probs"])
    a = arrays["advantages"]
    np.testing.assert_allclose(value(function, **arrays),
                               -np.minimum(ratio * a, np.clip(ratio, 0.8, 1.2) * a).mean())


def test_a_row_of_no_class_costs_nothing() -> None:
    x = normal(3, 4)
    found = value(lambda x: nn.nll_loss(x, np.array([1, 7, -2]), reduction="none"), x=x)
    np.testing.assert_array_equal(found, [-x[0, 1], 0, 0])


def test_ignored_log_probabilities_may_be_nan() -> None:
    x = np.array([[nan, nan], [-1.0, -2.0]])

    def loss(x: Node) -> Node:
        return nn.nll_loss(x, np.array([-100, 1]))

    assert value(loss, x=x) == 2
    np.testing.assert_array_equal(gradient(loss, "x", x=x), [[0, 0], [0, -1]])


@pytest.mark.parametrize("p", [1, 1.5, 2, 3, inf])
def test_the_distance_of_equal_vectors_has_no_slope(p: float) -> None:
    x = np.ones((2, 3))

    def distance(a: Node, b: Node) -> Node:
        return nn.pairwise_distance(a, b, p, eps=0.0)

    np.testing.assert_array_equal(value(distance, a=x, b=x), 0)
    np.testing.assert_array_equal(gradient(distance, "a", a=x, b=x), 0)
    assert np.isfinite(gradient(lambda x: nn.normalize(x, p), "x", x=np.zeros((2, 3)))).all()


def test_the_similarity_to_nothing_has_no_slope() -> None:
    x, y = np.zeros((2, 3)), np.ones((2, 3))
    np.testing.assert_array_equal(value(nn.cosine_similarity, x1=x, x2=y), 0)
    assert np.isfinite(gradient(nn.cosine_similarity, "x1", x1=x, x2=y)).all()
    big = np.full((1, 2), 1e30, np.float32)  # whose squares overflow, but not their ratio
    np.testing.assert_allclose(value(nn.cosine_similarity, x1=big * 1e-12, x2=big * 1e-12), 1,
                               rtol=1e-6)


def test_the_variance_below_eps_may_leave() -> None:
    arrays = {"x": np.array([1.0]), "y": np.array([0.0]), "v": np.array([1e-9])}

    def loss(x: Node, y: Node, v: Node) -> Node:
        return nn.gaussian_nll_loss(x, y, v, eps=0.5)

    np.testing.assert_allclose(gradient(loss, "v", **arrays), [1 - 2])  # 1/(2v) − d²/(2v²)


def test_sums_of_many_f16_losses_do_not_overflow() -> None:
    x = np.full((3000,), 100, np.float16)
    assert value(lambda x, y: nn.l1_loss(x, y), x=x, y=np.zeros_like(x)) == 100


def test_softsign_keeps_its_slope_far_out() -> None:
    x = np.array([1e5])
    np.testing.assert_allclose(gradient(nn.softsign, "input", input=x), 1 / (1 + 1e5) ** 2,
                               rtol=1e-14)


def test_hard_activations_pass_nan_and_are_flat_at_their_corners() -> None:
    x = np.array([-3.0, 3.0, nan, -inf])
    np.testing.assert_array_equal(value(nn.hardswish, input=x), [0, 3, nan, 0])
    np.testing.assert_array_equal(gradient(nn.hardswish, "input", input=x)[[0, 1, 3]], [0, 1, 0])
    np.testing.assert_array_equal(gradient(nn.relu6, "input", input=np.array([0.0, 6.0])), 0)


# ---- what is refused -------------------------------------------------------------------------


def test_what_is_refused() -> None:
    g = rlx.Graph()
    x, n = g.input("x", (3, 4)), g.input("n", (3,), i32)
    odd, half = g.input("odd", (3, 5)), g.input("half", (3, 4), f16)
    assert nn.l1_loss(half, half).dtype is f16
    with pytest.raises(rlx.ShapeError, match="no two halves"):
        nn.glu(odd)
    with pytest.raises(rlx.ShapeError, match="prelu"):
        nn.prelu(x, np.ones(3))
    with pytest.raises(rlx.ArgumentError, match="min_val"):
        nn.hardtanh(x, 1.0, 1.0)
    with pytest.raises(rlx.ArgumentError, match="reduction"):
        nn.l1_loss(x, x, "avg")
    with pytest.raises(rlx.ArgumentError, match="reduction"):
        nn.nll_loss(x, n, reduction="avg")
    with pytest.raises(rlx.ArgumentError, match="delta"):
        nn.huber_loss(x, x, delta=0.0)
    with pytest.raises(rlx.DTypeError):
        nn.l1_loss(n, n)
    with pytest.raises(rlx.DTypeError, match="labels"):
        nn.nll_loss(x, g.input("f", (3,)))
    with pytest.raises(rlx.ShapeError):
        nn.nll_loss(x, g.input("m", (4,), i32))
    with pytest.raises(rlx.ShapeError):
        nn.masked_cross_entropy(x, n, np.ones((2, 3)))
    with pytest.raises(rlx.ArgumentError, match="p must be"):
        nn.multi_margin_loss(x, n, p=3)
    with pytest.raises(rlx.ArgumentError, match="lambd"):
        nn.softshrink(x, -1.0)
