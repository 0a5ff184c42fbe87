"""Losses under PyTorch's names against PyTorch: its clamps, and its rules of broadcasting."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest

import rlx_py as rlx
from rlx_py import nn

Array = np.ndarray[Any, Any]
torch = pytest.importorskip("torch")
F = torch.nn.functional
each_way = pytest.mark.parametrize("compiled", [False, True], ids=["reference", "compiled"])


def run(graph: rlx.Graph, compiled: bool, **arrays: Array) -> Any:
    return rlx.compile(graph, threads=1)(**arrays) if compiled else rlx.evaluate(graph, arrays)


def losses_and_slopes(f: Callable[..., Any], compiled: bool, *arrays: Array) -> dict[str, Array]:
    """f, and the gradients of its sum."""
    g = rlx.Graph("loss")
    names = [f"x{i}" for i in range(len(arrays))]
    y = f(*(g.input(n, a.shape, a.dtype) for n, a in zip(names, arrays, strict=True)))
    g.output("y", y)
    g.output("sum", y.sum())
    found = run(rlx.value_and_grad(g, of="sum", wrt=names), compiled,
                **dict(zip(names, arrays, strict=True)))
    return {k: found[k] for k in ("y", *(f"grad_{n}" for n in names))}


def of_torch(f: Callable[..., Any], *arrays: Array) -> dict[str, Array]:
    tensors = [torch.tensor(a, requires_grad=True) for a in arrays]
    y = f(*tensors)
    y.sum().backward()
    return {"y": y.detach().numpy(),
            **{f"grad_x{i}": t.grad.numpy() for i, t in enumerate(tensors)}}


# ---- the clamp of binary cross-entropy -----------------------------------------------------------


@each_way
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_probabilities_of_0_and_1(dtype: Any, compiled: bool) -> None:
    p, y = np.array([0, 1, 0, 1, 0.5, 1e-20], dtype), np.array([1, 0, 0, 1, 1, 1], dtype)
    found = losses_and_slopes(lambda p, y: nn.binary_cross_entropy(p, y, reduction="none"),
                              compiled, p, y)
    np.testing.assert_array_equal(found["y"][:4], [100, 100, 0, 0])
    assert found["y"][:4].sum() == 200
    np.testing.assert_allclose(found["grad_x0"][:4], [-1e12, 1e12, 0, 0], rtol=1e-6)
    want = of_torch(lambda p, y: F.binary_cross_entropy(p, y, reduction="none"), p, y)
    np.testing.assert_allclose(found["y"], want["y"], rtol=1e-6)
    np.testing.assert_allclose(found["grad_x0"], want["grad_x0"], rtol=1e-6)
    # PyTorch's slope by the label is not clamped; ours is that of the clamped loss.
    np.testing.assert_allclose(found["grad_x1"], np.clip(want["grad_x1"], -100, 100), rtol=1e-5)


@each_way
def test_slopes_of_probabilities(compiled: bool) -> None:
    rng = np.random.default_rng(0)
    p, y = rng.uniform(0, 1, 50), rng.uniform(0, 1, 50)
    p[:20] = 10.0 ** -rng.uniform(1, 11, 20)
    found = losses_and_slopes(lambda p, y: nn.binary_cross_entropy(p, y, reduction="none"),
                              compiled, p, y)
    for key, want in of_torch(lambda p, y: F.binary_cross_entropy(p, y, reduction="none"), p,
                              y).items():
        np.testing.assert_allclose(found[key], want, rtol=1e-12, err_msg=key)
    g = rlx.Graph()
    g.output("s", nn.binary_cross_entropy(g.input("p", (50,), rlx.f64), rlx.constant(y),
                                          reduction="sum"))
    curve = run(rlx.hvp(g, of="s", wrt=["p"]), compiled, p=p, v_p=np.ones(50))
    np.testing.assert_allclose(next(v for k, v in dict(curve).items() if k.startswith("hvp")),
                               y / p**2 + (1 - y) / (1 - p)**2, rtol=1e-12)


# ---- broadcasting --------------------------------------------------------------------------------

A = np.random.default_rng(1)


def normal(*shape: int) -> Array:
    return A.normal(size=shape)


def signs(*shape: int) -> Array:
    return np.sign(A.normal(size=shape))


def test_a_variance_for_each_row() -> None:
    x, t, v = normal(3, 3), normal(3, 3), np.array([0.5, 2, 8])
    found = losses_and_slopes(lambda *a: nn.gaussian_nll_loss(*a, reduction="none"), True, x, t, v)
    want = (np.log(v) + (x - t).T ** 2 / v).T / 2
    np.testing.assert_allclose(found["y"], want, rtol=1e-13)


@each_way
@pytest.mark.parametrize(("shape", "var"), [
    ((3, 3), (3,)), ((4, 3), (4,)), ((2, 4, 3), (2, 4)), ((2, 4, 3), (2, 4, 1)),
    ((2, 4, 3), (2, 1, 3)), ((2, 4, 3), (2, 4, 3)), ((5,), (5,)), ((5,), (1,)), ((3, 1), (3,)),
    ((5,), ()),
])
def test_shapes_of_a_variance(shape: Any, var: Any, compiled: bool) -> None:
    arrays = normal(*shape), normal(*shape), np.abs(normal(*var)) + 0.1
    found = losses_and_slopes(lambda *a: nn.gaussian_nll_loss(*a, full=True, reduction="none"),
                              compiled, *arrays)
    want = of_torch(lambda *a: F.gaussian_nll_loss(*a, full=True, reduction="none"), *arrays)
    for key, value in want.items():
        np.testing.assert_allclose(found[key], value, rtol=1e-12, atol=1e-13, err_msg=key)


@pytest.mark.parametrize(("shape", "var"), [((4, 3), (3,)), ((2, 4, 3), (4, 3)), ((4, 3), (2, 3)),
                                            ((2, 4, 3), (2,)), ((3,), (2, 3))])
def test_a_variance_that_fits_nothing_is_refused(shape: Any, var: Any) -> None:
    g = rlx.Graph()
    x, v = g.input("x", shape), g.input("v", var)
    with pytest.raises(rlx.ShapeError, match="var f32"):
        nn.gaussian_nll_loss(x, x, v)


SHAPES: list[tuple[int, ...]] = [(), (1,), (3,), (3, 1), (1, 3), (2, 3), (3, 3), (2, 3, 3)]
TWO: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "mse_loss": (nn.mse_loss, F.mse_loss), "l1_loss": (nn.l1_loss, F.l1_loss),
    "smooth_l1_loss": (nn.smooth_l1_loss, F.smooth_l1_loss),
    "huber_loss": (nn.huber_loss, F.huber_loss),
    "soft_margin_loss": (nn.soft_margin_loss, F.soft_margin_loss),
    "poisson_nll_loss": (nn.poisson_nll_loss, F.poisson_nll_loss),
    "kl_div": (nn.kl_div, F.kl_div),
    "hinge_embedding_loss": (nn.hinge_embedding_loss, F.hinge_embedding_loss),
    "bce_with_logits": (nn.binary_cross_entropy_with_logits, F.binary_cross_entropy_with_logits),
    "multilabel_soft_margin_loss": (nn.multilabel_soft_margin_loss, F.multilabel_soft_margin_loss),
    "cosine_similarity": (lambda a, b, reduction: nn.cosine_similarity(a, b, -1),
                          lambda a, b, reduction: F.cosine_similarity(a, b, -1)),
    "pairwise_distance": (lambda a, b, reduction: nn.pairwise_distance(a, b),
                          lambda a, b, reduction: F.pairwise_distance(a, b)),
}
Makers = tuple[Callable[..., Array], ...]
THREE: dict[str, tuple[Callable[..., Any], Callable[..., Any], Makers]] = {
    "margin_ranking_loss": (nn.margin_ranking_loss, F.margin_ranking_loss, (normal, normal, signs)),
    "cosine_embedding_loss": (nn.cosine_embedding_loss, F.cosine_embedding_loss,
                              (normal, normal, signs)),
    "triplet_margin_loss": (nn.triplet_margin_loss, F.triplet_margin_loss,
                            (normal, normal, normal)),
    "bce_with_logits weight": (
        lambda x, y, w, reduction: nn.binary_cross_entropy_with_logits(x, y, w, reduction),
        lambda x, y, w, reduction: F.binary_cross_entropy_with_logits(
            x, y, w, reduction=reduction), (normal, normal, normal)),
    "bce_with_logits pos_weight": (
        lambda x, y, w, reduction: nn.binary_cross_entropy_with_logits(
            x, y, pos_weight=w, reduction=reduction),
        lambda x, y, w, reduction: F.binary_cross_entropy_with_logits(
            x, y, pos_weight=w, reduction=reduction), (normal, normal, normal)),
    "multilabel_soft_margin_loss weight": (
        lambda x, y, w, reduction: nn.multilabel_soft_margin_loss(x, y, w, reduction),
        lambda x, y, w, reduction: F.multilabel_soft_margin_loss(x, y, w, reduction=reduction),
        (normal, normal, normal)),
}


def agree(ours: Callable[..., Any], theirs: Callable[..., Any], arrays: Sequence[Array]) -> None:
    """Where PyTorch gives a result, ours is that, or a refusal; of equal shapes it is that."""
    try:
        want = theirs(*map(torch.tensor, arrays), reduction="none").numpy()
    except (RuntimeError, ValueError, IndexError):
        return  # what PyTorch refuses, ours may broadcast
    g = rlx.Graph()
    nodes = [g.input(f"x{i}", a.shape, rlx.f64) for i, a in enumerate(arrays)]
    try:
        g.output("y", ours(*nodes, reduction="none"))
    except (rlx.ShapeError, rlx.ArgumentError):
        assert not arrays[0].ndim or len({a.shape for a in arrays}) > 1, arrays
        return
    found = rlx.evaluate(g, {f"x{i}": a for i, a in enumerate(arrays)})["y"]
    assert found.shape == want.shape, [a.shape for a in arrays]
    np.testing.assert_allclose(found, want, rtol=1e-9, atol=1e-12)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", TWO)
def test_two_operands_of_any_shapes(name: str) -> None:
    for a, b in product(SHAPES, SHAPES):
        given = normal(*a), (signs if "margin" in name or "hinge" in name else normal)(*b)
        agree(*TWO[name], [given[0], np.abs(given[1])] if name == "kl_div" else given)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", THREE)
def test_three_operands_of_any_shapes(name: str) -> None:
    ours, theirs, makers = THREE[name]
    for shapes in product(SHAPES, SHAPES, SHAPES):
        agree(ours, theirs, [m(*s) for m, s in zip(makers, shapes, strict=True)])


def test_labels_are_one_for_each_vector() -> None:
    g = rlx.Graph()
    x, y = g.input("x", (4, 3)), g.input("y", (4, 1))
    with pytest.raises(rlx.ShapeError, match="a label for each vector"):
        nn.cosine_embedding_loss(x, x, y)
