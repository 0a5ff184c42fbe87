"""Losses and activations against PyTorch: values and gradients, at kinks, ties and NaN too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rlx_py import nn
from rlx_py.ir.graph.evaluate import evaluate
from rlx_py.ir.graph.graph import Graph
from rlx_py.ir.nodes.node import Node
from rlx_py.passes.derive.vjp import vjp

torch = pytest.importorskip("torch")
F = torch.nn.functional
pytestmark = pytest.mark.filterwarnings("ignore:reduction")

Array = np.ndarray[Any, Any]
Case = tuple[Callable[..., Node], Callable[..., Any], dict[str, Array]]


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng([seed, *shape]).standard_normal(shape)


def tensor(value: Any, like: Any) -> Any:
    array = torch.tensor(value)
    return array.to(like.dtype) if array.is_floating_point() else array


def fixed(name: str, arrays: dict[str, Array], constants: dict[str, Array] | None = None,
          **options: Any) -> Case:
    """A function called alike in both libraries, by keyword; constants have no gradient."""
    ours, theirs, given = getattr(nn, name), getattr(F, name), constants or {}

    def reference(**x: Any) -> Any:
        first = next(iter(x.values()))
        return theirs(**x, **{k: tensor(c, first) for k, c in given.items()}, **options)

    return lambda **x: ours(**x, **given, **options), reference, arrays


def unary(name: str, corners: list[float], **options: Any) -> Case:
    """Corners, NaN, and numbers of all sizes."""
    x = np.array([*corners, *np.linspace(-8, 8, 33) + 0.013, -60.0, 60.0, 1e-6, -1e-6])
    return fixed(name, {"input": x}, **options)


PAIR = {"input": normal(4, 5), "target": normal(4, 5, seed=1)}
SIGNS = np.where(normal(4, 5, seed=2) > 0, 1.0, -1.0)
CLASSES = np.array([0, 2, 1, 2])
LOG_P = np.log(np.abs(normal(4, 3)) / 4)
P = np.abs(normal(4, 3, seed=1)) / 4
P[1, 2] = 0
THREE = {k: normal(4, 5, seed=i) for i, k in enumerate(("anchor", "positive", "negative"))}
VECTORS = {"input1": normal(4, 5), "input2": normal(4, 5, seed=1)}
PAIRS = {"x1": normal(3, 4, 5), "x2": normal(3, 4, 5, seed=1)}
REDUCTIONS = ("none", "mean", "sum")

CASES: dict[str, Case] = {
    **{f"elu{a}": unary("elu", [0.0], alpha=a) for a in (1.0, 0.4)},
    **{f"celu{a}": unary("celu", [0.0], alpha=a) for a in (1.0, 2.5)},
    "selu": unary("selu", [0.0]), "mish": unary("mish", [0.0]),
    "softsign": unary("softsign", [0.0]), "tanhshrink": unary("tanhshrink", [0.0]),
    "logsigmoid": unary("logsigmoid", [0.0]), "relu6": unary("relu6", [0.0, 6.0]),
    "hardtanh": unary("hardtanh", [-2.0, 1.5], min_val=-2.0, max_val=1.5),
    "hardsigmoid": unary("hardsigmoid", [-3.0, 3.0]),
    "hardswish": unary("hardswish", [-3.0, 3.0]),
    "threshold": unary("threshold", [0.25], threshold=0.25, value=-7.0),
    "hardshrink": unary("hardshrink", [-0.5, 0.5]),
    "softshrink": unary("softshrink", [-0.75, 0.75], lambd=0.75),
    "softmin": fixed("softmin", {"input": normal(3, 4)}, dim=0),
    "glu": fixed("glu", {"input": normal(2, 4, 3)}, dim=1),
    "prelu": fixed("prelu", {"input": normal(2, 3, 4), "weight": normal(3)}),
    "prelu_one": fixed("prelu", {"input": normal(3), "weight": normal(1)}),
    "prelu_zero": fixed("prelu", {"input": np.zeros((2, 3)), "weight": normal(3)}),
    **{f"{name}_{r}": fixed(name, PAIR, reduction=r)
       for name in ("l1_loss", "smooth_l1_loss", "huber_loss") for r in REDUCTIONS},
    **{f"{name}_weight_{r}": fixed(name, {**PAIR, "weight": 0.3 + normal(4, 5, seed=2) ** 2},
                                   reduction=r)
       for name in ("l1_loss", "mse_loss", "huber_loss") for r in REDUCTIONS},
    "l1_loss_ties": fixed("l1_loss", {"input": np.ones(3), "target": np.array([1.0, 0, 2])}),
    "smooth_l1_loss_beta": fixed("smooth_l1_loss", PAIR, beta=0.3),
    "smooth_l1_loss_corner": fixed("smooth_l1_loss", {"input": np.array([0.5, -0.5, 0.0])},
                                   {"target": np.zeros(3)}, beta=0.5),
    "smooth_l1_loss_l1": fixed("smooth_l1_loss", PAIR, beta=0.0),
    "huber_loss_delta": fixed("huber_loss", PAIR, delta=0.3),
    **{f"kl_div_{r}": fixed("kl_div", {"input": LOG_P}, {"target": P}, reduction=r)
       for r in (*REDUCTIONS, "batchmean")},
    "kl_div_log": fixed("kl_div", {"input": LOG_P, "target": LOG_P[::-1].copy()},
                        reduction="batchmean", log_target=True),
    "poisson_nll_loss": fixed("poisson_nll_loss", PAIR),
    "poisson_nll_loss_full": fixed("poisson_nll_loss", {"input": P + 0.1}, {"target": 40 * P},
                                   log_input=False, full=True),
    "gaussian_nll_loss": fixed("gaussian_nll_loss", {**PAIR, "var": np.abs(normal(4, 5, seed=3))}),
    "gaussian_nll_loss_small": fixed(
        "gaussian_nll_loss", {**PAIR, "var": np.full((4, 1), 1e-3)}, full=True, eps=0.25),
    **{f"hinge_embedding_loss_{r}": fixed("hinge_embedding_loss", {"input": normal(4, 5)},
                                          {"target": SIGNS}, margin=0.5, reduction=r)
       for r in REDUCTIONS},
    "hinge_embedding_loss_corner": fixed("hinge_embedding_loss", {"input": np.ones(2)},
                                         {"target": np.array([1.0, -1.0])}),
    "margin_ranking_loss": fixed("margin_ranking_loss", VECTORS, {"target": SIGNS}, margin=0.3),
    "margin_ranking_loss_corner": fixed("margin_ranking_loss", {"input1": np.ones(2)},
                                        {"input2": np.ones(2), "target": np.array([1.0, -1])}),
    "soft_margin_loss": fixed("soft_margin_loss", {"input": 30 * normal(4, 5)}, {"target": SIGNS}),
    "multilabel_soft_margin_loss": fixed(
        "multilabel_soft_margin_loss", {"input": 20 * normal(4, 3)},
        {"target": (SIGNS[:, :3] > 0) * 1.0, "weight": np.array([0.5, 2, 1])}),
    **{f"multi_margin_loss{p}": fixed("multi_margin_loss", {"input": normal(4, 3)}, {
        "target": CLASSES, "weight": np.array([0.5, 2, 1])}, p=p, margin=0.7) for p in (1, 2)},
    "multi_margin_loss_corner": fixed("multi_margin_loss", {"input": np.array([1.0, 0.0, 0.5])},
                                      {"target": np.array(0)}),
    **{f"cosine_embedding_loss_{r}": fixed(
        "cosine_embedding_loss", VECTORS, {"target": np.array([1.0, -1, -1, 1])}, margin=-0.2,
        reduction=r) for r in REDUCTIONS},
    "cosine_embedding_loss_zero": fixed(
        "cosine_embedding_loss", {"input1": np.zeros((2, 3)), "input2": np.ones((2, 3))},
        {"target": np.array([1, -1])}, margin=-0.5),
    "triplet_margin_loss": fixed("triplet_margin_loss", THREE),
    "triplet_margin_loss_swap": fixed("triplet_margin_loss", THREE, margin=3.0, p=3.0, swap=True,
                                      reduction="sum"),
    "triplet_margin_with_distance_loss": fixed("triplet_margin_with_distance_loss", THREE,
                                               reduction="none"),
    "cosine_similarity": fixed("cosine_similarity", PAIRS, dim=1),
    "cosine_similarity_last": fixed("cosine_similarity", PAIRS, dim=-1, eps=0.5),
    **{f"pairwise_distance{p}": fixed("pairwise_distance", PAIRS, p=p, keepdim=p == 2.0)
       for p in (1.0, 2.0, 3.0, np.inf)},
    **{f"normalize{p}": fixed("normalize", {"input": normal(3, 4)}, p=p, dim=d)
       for p, d in ((2.0, 1), (1.0, 0), (3.0, -1))},
    **{f"nll_loss_{r}": fixed("nll_loss", {"input": LOG_P}, {
        "target": CLASSES, "weight": np.array([0.5, 2, 1])}, ignore_index=1, reduction=r)
       for r in REDUCTIONS},
    "nll_loss_image": fixed("nll_loss", {"input": normal(2, 3, 4, 2)},
                            {"target": np.arange(16).reshape(2, 4, 2) % 3}),
    "nll_loss_vector": fixed("nll_loss", {"input": normal(3)}, {"target": np.array(2)}),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=["f64", "f32"])
def test_values_and_gradients_equal_pytorch(name: str, dtype: Any) -> None:
    ours, theirs, given = CASES[name]
    arrays = {k: np.ascontiguousarray(a, dtype) for k, a in given.items()}
    g = Graph()
    y = g.output("y", ours(**{k: g.input(k, a.shape, a.dtype) for k, a in arrays.items()}))
    tensors = {k: torch.tensor(a, requires_grad=True) for k, a in arrays.items()}
    expected = theirs(**tensors)
    # PyTorch's slope of hardsigmoid is the 1/6 of f32.
    rtol = 1e-9 if dtype is np.float64 and name != "hardsigmoid" else 5e-5
    ct = normal(*y.shape, seed=7).astype(y.dtype.numpy)

    def close(found: Array, wanted: Any, what: str) -> None:
        wanted = wanted.detach().numpy()
        assert found.shape == wanted.shape, what
        scale = float(np.max(np.abs(wanted), initial=1.0))
        np.testing.assert_allclose(found, wanted, rtol=rtol, atol=rtol * scale, err_msg=what)

    close(evaluate(g, arrays)["y"], expected, "value")
    expected.backward(torch.tensor(ct, dtype=expected.dtype))
    found = evaluate(vjp(g, list(arrays)), {**arrays, "ct_y": ct})
    for k, t in tensors.items():
        close(found[f"grad_{k}"], t.grad, f"gradient by {k}")


@pytest.mark.parametrize("name", [
    "elu", "celu", "selu", "mish", "logsigmoid", "relu6", "hardtanh", "hardshrink", "softshrink",
    "tanhshrink"])
def test_values_at_infinity_and_nan_equal_pytorch(name: str) -> None:
    x = np.array([np.nan, np.inf, -np.inf])
    g = Graph()
    g.output("y", getattr(nn, name)(g.input("x", (3,), x.dtype)))
    expected = getattr(F, name)(torch.tensor(x)).numpy()
    if name == "mish":
        expected[2] = -0.0  # the limit
    np.testing.assert_array_equal(evaluate(g, {"x": x})["y"], expected)
