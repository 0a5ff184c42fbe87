"""Functions of matrices by eigenvectors or singular vectors, and determinants: derivatives where
values coincide, nearly coincide or vanish."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

import rlx_py as rlx
from rlx_py.ir.nodes.node import OPS

Array = np.ndarray[Any, Any]
Function = Callable[..., Any]
la, f32, f64 = rlx.linalg, rlx.f32, rlx.f64
RNG = np.random.default_rng(11)
SQUARE = np.arange(9.0).reshape(3, 3)
I = np.eye(3)  # noqa: E741
Q = np.linalg.qr(RNG.standard_normal((3, 3)))[0]
# Symmetric matrices whose eigenvalues coincide, all or in part, and one where none do.
POINTS = {"unit": I, "pair": np.diag([2.0, 0.5, 2.0]), "turned": Q @ np.diag([1.0, 1.0, 3.0]) @ Q.T,
          "apart": Q @ np.diag([0.7, 1.9, 3.0]) @ Q.T}


def weighted(y: Any) -> Any:
    """Σ y ∘ (0, 1, 2 …): no symmetry of the sum hides a fault."""
    return (y * np.arange(float(y.size)).reshape(y.shape)).sum()


def graph_of(function: Function, shape: tuple[int, ...], dtype: Any = f64) -> rlx.Graph:
    g = rlx.Graph("loss")
    g.output("y", function(g.param("a", shape, dtype)))
    return g


@lru_cache(maxsize=64)
def derivative(function: Function, shape: tuple[int, ...], dtype: Any) -> tuple[rlx.Graph, Any]:
    """The gradient's graph, and what is compiled from it."""
    g = rlx.grad(graph_of(function, shape, dtype), of="y")
    return g, rlx.compile(g)


def gradient(function: Function, a: Array) -> Array:
    """By compiled code, which agrees with the reference path."""
    g, run = derivative(function, a.shape, a.dtype)
    found = np.asarray(run(a=a).grad_a)
    want = rlx.evaluate(g, {"a": a})["grad_a"]
    np.testing.assert_allclose(found, want, rtol=1e-9 if a.dtype == np.float64 else 2e-4,
                               atol=1e-9 if a.dtype == np.float64 else 2e-4)
    return found


def exists(function: Function, a: Array) -> bool:
    """Whether the gradient is finite, by compiled code and by the reference path."""
    g, run = derivative(function, a.shape, a.dtype)
    found = [bool(np.isfinite(y).all()) for y in (run(a=a).grad_a,
                                                  rlx.evaluate(g, {"a": a})["grad_a"])]
    assert found[0] == found[1]
    return found[0]


def check(function: Function, a: Array, order: int = 1, native: bool = True) -> None:
    """Central differences and both modes agree, to an order and for a Hessian times a vector; that
    by compiled code too, where asked for: one graph of many that are alike."""
    g = graph_of(function, a.shape)
    rlx.check_grads(g, {"a": a}, order=order, rtol=2e-5, atol=2e-6, samples=12)
    backward, forward = rlx.grad(g, of="y"), rlx.hvp(g, of="y")
    v = RNG.standard_normal(a.shape)
    up, down = (rlx.evaluate(backward, {"a": a + h * v})["grad_a"] for h in (1e-5, -1e-5))
    found = rlx.evaluate(forward, {"a": a, "v_a": v})["hvp_a"]
    np.testing.assert_allclose(found, (up - down) / 2e-5, rtol=2e-5, atol=2e-6)
    if native:
        np.testing.assert_allclose(rlx.compile(forward)(a=a, v_a=v).hvp_a, found, rtol=1e-8,
                                   atol=1e-8)


def by_eigh(between: Function) -> Function:
    return lambda a: weighted(between(*la.eigh(a)))


def by_svd(between: Function) -> Function:
    return lambda a: weighted(between(*la.svd(a)))


# ---- V f(λ) Vᵀ -------------------------------------------------------------------------------

FUNCTIONS: dict[str, Function] = {
    "sqrt": rlx.sqrt, "exp": rlx.exp, "log": rlx.log, "identity": lambda w: w, "inverse": lambda w:
    1.0 / w, "power": lambda w: w ** 1.7, "square": lambda w: w * w, "negative": lambda w: -w,
    "one": rlx.ones_like, "tanh": rlx.tanh, "sinc": rlx.sinc, "gelu": rlx.nn.gelu,
    "clip": lambda w: rlx.clip(w, 0.1, 2.5), "relu": lambda w: rlx.nn.relu(w - 1.5),
    "softmax": lambda w: rlx.nn.softmax(w, -1), "normed": lambda w: w / w.sum(-1, keepdims=True),
    "chosen": lambda w: rlx.where(w > 1.2, rlx.sqrt(w), w), "least": lambda w: w / (w[..., :1] + 1),
    "largest": lambda w: w / w.max(-1, keepdims=True),
    "logged": lambda w: rlx.log(rlx.maximum(w, 1e-3)) + w.mean()}
AT = [(name, point) for name in FUNCTIONS
      for point in (POINTS if name in ("sqrt", "softmax") else ["pair"] if name == "least"
                    else ["turned"] if name == "largest" else ["unit", "turned"])]


@pytest.mark.parametrize("name,point", AT)
def test_functions_of_symmetric_matrices(name: str, point: str) -> None:
    f = FUNCTIONS[name]
    check(by_eigh(lambda w, v: (v * f(w)) @ v.T), POINTS[point], native=point == "turned")


def test_the_root_of_the_unit_matrix() -> None:
    found = gradient(by_eigh(lambda w, v: (v * rlx.sqrt(w)) @ v.T), I)
    assert found[0, 2] + found[2, 0] == pytest.approx(4 * 0.5 * 2)
    np.testing.assert_allclose(found, (SQUARE + SQUARE.T) / 4, atol=1e-14)


SPELLINGS: dict[str, Function] = {
    "scaled": lambda w, v: (v * rlx.sqrt(w)) @ v.T,
    "scaled_right": lambda w, v: v @ (v * rlx.sqrt(w)).T,
    "rows": lambda w, v: v @ (rlx.sqrt(w)[:, None] * v.T),
    "both": lambda w, v: (v * w ** 0.25) @ (v * w ** 0.25).T,
    "diag": lambda w, v: v @ rlx.diag(rlx.sqrt(w)) @ v.T,
    "diag_right": lambda w, v: v @ (rlx.diag(rlx.sqrt(w)) @ v.T),
    "eye": lambda w, v: v @ (rlx.eye(3, dtype=f64) * rlx.sqrt(w)) @ v.T,
    "eye_rows": lambda w, v: v @ (rlx.sqrt(w)[:, None] * rlx.eye(3, dtype=f64)) @ v.T,
    "divided": lambda w, v: (v / (1 / rlx.sqrt(w))) @ v.T,
    "negative": lambda w, v: -(-v * rlx.sqrt(w)) @ v.T,
    "swapaxes": lambda w, v: (v * rlx.sqrt(w)[None, :]) @ rlx.swapaxes(v, -1, -2),
    "transposed": lambda w, v: rlx.transpose(v @ (v * rlx.sqrt(w)).T),
    "einsum": lambda w, v: rlx.einsum("ij,j,kj->ik", v, rlx.sqrt(w), v),
    "einsum_pairs": lambda w, v: rlx.einsum("ij,kj->ki", v * rlx.sqrt(w), v),
    "einsum_other_order": lambda w, v: rlx.einsum("j,ij,kj->ik", rlx.sqrt(w), v, v),
    "tensordot": lambda w, v: rlx.tensordot(v * rlx.sqrt(w), v, ((1,), (1,))),
    "reversed": lambda w, v: (v[:, ::-1] * rlx.sqrt(w[::-1])) @ v[:, ::-1].T,
    "flipped": lambda w, v: (rlx.flip(v, 1) * rlx.sqrt(rlx.flip(w))) @ rlx.flip(v, 1).T,
    "applied": lambda w, v: v @ (rlx.sqrt(w)[:, None] * (v.T @ SQUARE)),
    "applied_to_a_vector": lambda w, v: v @ (rlx.sqrt(w) * (v.T @ np.array([1.0, -2, 4]))),
    "its_diagonal": lambda w, v: (v * v * rlx.sqrt(w)).sum(-1),
    "its_diagonal_by_squares": lambda w, v: (v * w ** 0.25) ** 2 @ rlx.ones((3,), dtype=f64),
    "its_trace": lambda w, v: (v ** 2 * rlx.sqrt(w)).sum(),
    "a_quadratic_form": lambda w, v: ((v.T @ np.array([1.0, -2, 4])) ** 2 * rlx.sqrt(w)).sum(),
    "a_quadratic_form_by_sums": lambda w, v: (
        (v * np.array([[1.0], [-2], [4]])).sum(0) ** 2 * rlx.sqrt(w)).sum(),
    "product": lambda w, v: (v * rlx.sqrt(w)) @ v.T @ SQUARE @ (v * rlx.exp(w)) @ v.T,
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_spellings(name: str) -> None:
    check(by_eigh(SPELLINGS[name]), I, native=name in ("applied", "product"))


BATCHED: dict[str, Function] = {
    "scaled": lambda w, v: (v * rlx.sqrt(w)[..., None, :]) @ rlx.swapaxes(v, -1, -2),
    "rows": lambda w, v: v @ (rlx.sqrt(w)[..., None] * rlx.swapaxes(v, -1, -2)),
    "eye": lambda w, v: v @ (rlx.eye(3, dtype=f64) * rlx.sqrt(w)[..., None, :])
    @ rlx.swapaxes(v, -1, -2),
    "einsum": lambda w, v: rlx.einsum("...ij,...j,...kj->...ik", v, rlx.sqrt(w), v),
    "softmax": lambda w, v: (v * rlx.nn.softmax(w, -1)[..., None, :]) @ rlx.swapaxes(v, -1, -2),
    "summed": lambda w, v: rlx.einsum("...ij,...j,...kj->ik", v, rlx.sqrt(w), v),
    "part": lambda w, v: (v[..., 1:] * rlx.exp(w[..., 1:])[..., None, :])
    @ rlx.swapaxes(v[..., 1:], -1, -2),
}


@pytest.mark.parametrize("name", BATCHED)
@pytest.mark.parametrize("shape", [(1,), (1, 2, 2)])
def test_batches(name: str, shape: tuple[int, ...]) -> None:
    count = int(np.prod(shape))
    matrices = [np.diag([0.5, 2, 2]), Q @ np.diag([1.0, 4, 4]) @ Q.T, POINTS["apart"],
                np.diag([1.0, 3, 3])]
    a = np.stack((matrices * 2)[:count]).reshape(*shape, 3, 3)
    check(by_eigh(BATCHED[name]), a)


PARTS: dict[str, tuple[Function, Array]] = {
    "top": (by_eigh(lambda w, v: v[:, -1:] @ v[:, -1:].T), np.diag([1.0, 1, 2])),
    "top_scaled": (by_eigh(lambda w, v: (v[:, 2:] * rlx.exp(w)[2:]) @ v[:, 2:].T),
                   Q @ np.diag([1.0, 1, 2]) @ Q.T),
    "rank_one": (by_svd(lambda u, s, vt: (u[:, :1] * s[:1]) @ vt[:1]), np.diag([3.0, 2, 2])),
    "twice": (by_eigh(lambda w, v: v[:, :1] @ v[:, :1].T @ SQUARE @ v[:, :1] @ v[:, :1].T),
              np.diag([1.0, 2, 2])),
    "cut_later": (by_eigh(lambda w, v: (v[:, 1:] * rlx.sqrt(w)[1:]) @ v[:, 1:].T),
                  np.diag([1.0, 2, 2])),
    "cut_transposed": (by_eigh(lambda w, v: (v[:, 1:] * w[1:]) @ v.T[1:]), np.diag([1.0, 2, 2])),
    "cut_backwards": (by_eigh(lambda w, v: (v[:, ::-1][:, :2] * rlx.sqrt(w[::-1])[:2])
                              @ v.T[::-1][:2]), np.diag([1.0, 2, 2])),
    "cut_of_svd": (by_svd(lambda u, s, vt: (u[:, 1:] * (1 / s)[1:]) @ vt.T[:, 1:].T),
                   np.diag([3.0, 2, 2]))}


@pytest.mark.parametrize("name", PARTS)
def test_parts_of_the_vectors(name: str) -> None:
    """One vector or some, cut before or after functions of their values and transposes."""
    function, a = PARTS[name]
    check(function, a, native=name in ("top_scaled", "cut_backwards"))


REPEATED: dict[str, Function] = {
    "added": lambda w, v: rlx.broadcast_to(v * v * w, (4, 3, 3)).sum((0, 2)),
    "einsum": lambda w, v: rlx.einsum(
        "ijt,kjt->ik", rlx.broadcast_to((v * w)[..., None], (3, 3, 5)),
        rlx.broadcast_to(v[..., None], (3, 3, 5))),
    "summed": lambda w, v: rlx.eye(3, dtype=f64).sum() * (v * v * w).sum(1)}


@pytest.mark.parametrize("name", REPEATED)
def test_sums_over_what_is_repeated(name: str) -> None:
    """What no factor holds is added as often as it is repeated."""
    a, function = POINTS["apart"], by_eigh(REPEATED[name])
    check(function, a, native=False)
    g = graph_of(function, a.shape)
    both = rlx.evaluate(rlx.value_and_grad(g, of="y"), {"a": a})
    np.testing.assert_allclose(both["y"], rlx.evaluate(g, {"a": a})["y"], rtol=1e-12)


def test_a_slope_that_is_all_rounding_is_none() -> None:
    """1/(1/(λ + 3)) bends by nothing but rounding: its second derivative is 0, not that / a gap."""
    for seed in range(5):
        q = np.linalg.qr(np.random.default_rng(seed).standard_normal((3, 3)))[0]
        for w in ([1.7, 1.7, 1.7], [1.3, 1.3, 2.9]):
            check(by_eigh(lambda w, v: (v / (1 / (w + 3))) @ v.T), (q * w) @ q.T, native=False)


def test_several_functions_of_one_matrix() -> None:
    times = np.array([0.1, 0.5, 2.0])
    check(by_eigh(lambda w, v: (v * rlx.exp(-times[:, None] * w)[:, None, :]) @ v.T),
          POINTS["turned"])
    check(by_eigh(lambda w, v: rlx.einsum("ij,tj,kj->tik", v, rlx.exp(-times[:, None] * w), v)), I)


def test_parameters_of_the_function_are_differentiated() -> None:
    """Of all of a matrix, and one for each eigenvalue where they are apart."""
    for weights, point in ((np.array(0.7), "turned"), (np.array([0.3, 1.0, 2.0]), "apart")):
        g = rlx.Graph()
        a, p = g.param("a", (3, 3), f64), g.param("p", weights.shape, f64)
        w, v = la.eigh(a)
        g.output("y", weighted((v * rlx.sqrt(p + p * w)) @ v.T))
        rlx.check_grads(g, {"a": POINTS[point], "p": weights}, order=3)


def test_equal_weights_of_equal_eigenvalues() -> None:
    """Weights that come with the places are as determined as their function."""
    mask = np.array([0.0, 1.0, 1.0])
    check(by_eigh(lambda w, v: (v * (mask * rlx.exp(w))) @ v.T), np.diag([0.5, 2, 2]))
    check(by_eigh(lambda w, v: v[:, 1:] @ v[:, 1:].T), np.diag([0.5, 2, 2]))


def test_third_order() -> None:
    for between in (SPELLINGS["scaled"], lambda w, v: (v * rlx.nn.softmax(w, -1)) @ v.T):
        check(by_eigh(between), POINTS["turned"], order=3)


def test_functions_of_eigenvalues_alone_have_second_derivatives() -> None:
    for function in (lambda a: (la.eigvalsh(a) ** 3).sum(),
                     lambda a: rlx.log(la.eigvalsh(a)).sum() + weighted(a),
                     lambda a: rlx.logsumexp(la.eigvalsh(a))):
        check(function, POINTS["turned"], order=3)
        check(function, I)


ROOT = by_eigh(lambda w, v: (v * rlx.sqrt(w)) @ v.T)
CUBE = by_eigh(lambda w, v: (v * w ** 3) @ v.T)
POLAR = by_svd(lambda u, s, vt: u @ vt)


def cube(a: Any) -> Any:
    s = 0.5 * (a + a.T)
    return weighted(s @ s @ s)


@lru_cache
def hessian(function: Function) -> Any:
    return rlx.compile(rlx.hvp(graph_of(function, (3, 3)), of="y"))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("exponent", range(18))
def test_nearly_equal_eigenvalues(exponent: int, dtype: Any) -> None:
    """√ has the divided difference 1/(√x + √y), at any gap."""
    w = np.array([1.0, 1.0 + 10.0 ** -exponent, 2.0]).astype(dtype)
    found = gradient(ROOT, np.diag(w))
    roots = np.sqrt(w.astype(np.float64))
    want = (SQUARE + SQUARE.T) / 2 / (roots[:, None] + roots)
    np.testing.assert_allclose(found, want, rtol=2e-6 if dtype == np.float32 else 1e-13)


@pytest.mark.parametrize("exponent", range(0, 18, 2))
def test_second_derivatives_at_nearly_equal_eigenvalues(exponent: int) -> None:
    """Σ A³ ∘ C has the Hessian that the product has."""
    a = np.diag([1.0, 1.0 + 10.0 ** -exponent, 1.0 - 3 * 10.0 ** -exponent])
    v = RNG.standard_normal((3, 3))
    found, want = (np.asarray(hessian(f)(a=a, v_a=v).hvp_a) for f in (CUBE, cube))
    np.testing.assert_allclose(found, want, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("scale", [1e-17, 1e-12, 1e-6])
def test_eigenvalues_that_are_rounding_beside_others(scale: float) -> None:
    """log(1 + λ) where λ is far below the units of 1: the slope is 1, not 0/gap."""
    a = np.diag([scale, 3 * scale, 1.0])
    found = gradient(by_eigh(lambda w, v: (v * rlx.log(1 + w)) @ v.T), a)
    assert found[0, 1] == pytest.approx(2.0, rel=2e-6)
    np.testing.assert_allclose(found[0, 2], 4 * np.log(2), rtol=1e-5)


@pytest.mark.parametrize("small", [1e-3, 1e-20, 0.0])
def test_a_function_that_bends_between_small_eigenvalues(small: float) -> None:
    """√ between 0 and 1e−20 is no straight line, however close these are."""
    w = np.array([small, 3e-20, 2.0])
    found = gradient(ROOT, np.diag(w))
    order = np.sort(w)
    assert found[0, 1] == pytest.approx(2 / (np.sqrt(order[0]) + np.sqrt(order[1])), rel=1e-9)


def test_kinks_between_eigenvalues_are_not_smoothed() -> None:
    for values, f, want in (((-1.0, 3.0), rlx.abs, 0.5), ((-0.01, 0.99), rlx.nn.relu, 0.99),
                       ((-1e-9, 1e-9), rlx.abs, 0.0), ((1.0, 2.0), lambda w: w * 0.0 + 1, 0.0),
                       ((0.0, 2.0), lambda w: rlx.where(w > 1, 5.0, w), 2.5)):
        found = gradient(by_eigh(lambda w, v, f=f: (v * f(w)) @ v.T), np.diag(np.array(values)))
        assert found[0, 1] == pytest.approx(1.5 * want, rel=1e-12, abs=1e-12), values


def test_a_slope_that_is_infinite_stays_so() -> None:
    assert not np.isfinite(gradient(lambda a: weighted(root(a)), np.zeros((3, 3)))).any()
    # Where no direction asks for it, it adds nothing.
    only = np.diag([0.0, 0, 1])
    g = rlx.vjp(graph_of(root, (3, 3)))
    found = rlx.compile(g)(a=np.diag([0.0, 0.0, 4.0]), ct_y=only).grad_a
    np.testing.assert_allclose(found, only / 4)


# ---- U f(σ) Vᵀ -------------------------------------------------------------------------------

RANKED = RNG.standard_normal((3, 1)) @ RNG.standard_normal((1, 3))
U_F_V: dict[str, tuple[Function, list[Array]]] = {
    "identity": (lambda u, s, vt: (u * s) @ vt,
                 [I, np.zeros((3, 3)), RANKED, np.eye(4, 2), np.zeros((2, 4)), np.ones((4, 3))]),
    "diag": (lambda u, s, vt: u @ rlx.diag(s) @ vt, [I, np.diag([2.0, 1, 1])]),
    "rows": (lambda u, s, vt: u @ (s[:, None] * vt), [I, np.eye(3, 2)]),
    "einsum": (lambda u, s, vt: rlx.einsum("ij,j,jk->ik", u, s, vt), [I, np.eye(3, 2)]),
    "transposed": (lambda u, s, vt: (vt.T * s) @ u.T, [I, np.eye(4, 2), np.eye(2, 4)]),
    "polar": (lambda u, s, vt: u @ vt, [I, 2 * Q, np.eye(4, 2), np.eye(2, 4),
                                        np.diag([2.0, 2, 1])]),
    "tanh": (lambda u, s, vt: (u * rlx.tanh(s)) @ vt, [I, np.zeros((3, 2)), RANKED, np.eye(2, 3)]),
    "threshold": (lambda u, s, vt: (u * rlx.nn.relu(s - 0.5)) @ vt, [I, RANKED, np.eye(4, 2)]),
    "normed": (lambda u, s, vt: (u * (s / rlx.norm(s))) @ vt, [I, np.eye(4, 2)]),
    "low_rank": (lambda u, s, vt: (u[:, :2] * s[:2]) @ vt[:2],
                 [np.diag([2.0, 2, 1]), np.diag([2.0, 2, 0]), 2 * np.eye(4, 3) - np.eye(4, 3, -1)]),
    "masked": (lambda u, s, vt: (u * (s * np.array([1.0, 1, 0]))) @ vt, [np.diag([2.0, 2, 1])]),
    "left": (lambda u, s, vt: (u * s) @ u.T, [I, np.eye(4, 2), np.eye(2, 4)]),
    "right": (lambda u, s, vt: (vt.T * s) @ vt, [I, np.eye(4, 2), np.eye(2, 4)]),
    "projector": (lambda u, s, vt: u @ u.T, [np.eye(4, 2), np.eye(4, 2) + np.eye(4, 2, -1)]),
    "gram": (lambda u, s, vt: (vt.T * s ** 2) @ vt, [I, np.zeros((4, 2)), np.diag([2.0, 2, 0])]),
    "applied": (lambda u, s, vt: u @ (s * (vt @ np.array([1.0, -2, 3]))), [I, RANKED]),
}
EACH = [(name, i) for name, (_, points) in U_F_V.items() for i in range(len(points))]


@pytest.mark.parametrize("name,i", EACH)
def test_functions_of_singular_values(name: str, i: int) -> None:
    between, points = U_F_V[name]
    check(by_svd(between), points[i], native=i == 0)


def test_batches_of_singular_values() -> None:
    a = np.stack([np.eye(3, 2), np.ones((3, 2)), RNG.standard_normal((3, 2))])
    check(by_svd(lambda u, s, vt: (u * rlx.tanh(s)[..., None, :]) @ vt), a)
    check(by_svd(lambda u, s, vt: rlx.einsum("...ij,...j,...jk->...ik", u, rlx.sin(s), vt)),
          np.swapaxes(a, 1, 2).copy())


def test_singular_values_of_third_order() -> None:
    check(by_svd(lambda u, s, vt: (u * rlx.tanh(s)) @ vt), np.eye(4, 2), order=3)
    check(by_svd(lambda u, s, vt: u @ vt), np.eye(4, 2), order=3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("exponent", range(0, 18, 2))
def test_the_polar_factor_at_nearly_equal_singular_values(exponent: int, dtype: Any) -> None:
    """Its slope between two of them is 1/(σ + σ')."""
    s = np.array([1.0, 1.0 + 10.0 ** -exponent, 2.0]).astype(dtype)
    found = gradient(POLAR, np.diag(s))
    want = (SQUARE - SQUARE.T) / (s[:, None] + s).astype(np.float64)
    tight = 1e-5 if dtype == np.float32 else 1e-12
    np.testing.assert_allclose(found, want, rtol=tight, atol=tight)


def test_norms_of_singular_values_have_second_derivatives() -> None:
    check(lambda a: la.norm(a, "nuc"), np.diag([2.0, 2, 1]))
    check(lambda a: (la.svdvals(a) ** 4).sum(), np.diag([2.0, 2, 1]))
    check(lambda a: la.norm(a, 2), np.diag([3.0, 2, 2]))


# ---- the same behind every door --------------------------------------------------------------


def root(a: Any) -> Any:
    w, v = la.eigh(a)
    return (v * rlx.sqrt(w)) @ v.T


def test_tapes_vmap_loops_and_branches() -> None:
    want = (SQUARE + SQUARE.T) / 4
    p = rlx.Parameter(I)
    with rlx.Tape() as tape:
        loss = weighted(root(p))
    tape.backward(loss)
    np.testing.assert_allclose(p.grad, want, atol=1e-14)
    many = rlx.vmap(graph_of(lambda a: weighted(root(a)), (3, 3)), {"a": (0, 2)})
    total = many.derive({"y": many.outputs["y"].sum()})
    for g in (rlx.grad(total, of="y"), rlx.vmap(rlx.grad(graph_of(
            lambda a: weighted(root(a)), (3, 3)), of="y"), {"a": (0, 2)})):
        found = rlx.compile(g)(a=np.stack([I, I])).grad_a
        np.testing.assert_allclose(found, np.stack([want, want]), atol=1e-14)
    check(lambda a: weighted(rlx.checkpoint(root)(a)), I)
    check(lambda a: weighted(rlx.cond(a[0, 0] > 0.0, root, lambda m: m, a)), I)
    check(lambda a: weighted(rlx.scan(lambda c, _: (root(c), None), a, length=2)[0]), I)


def test_gradients_are_graphs_like_any_other() -> None:
    g = rlx.grad(graph_of(lambda a: weighted(root(a)), (3, 3)), of="y")
    again = rlx.parse(str(g))
    np.testing.assert_array_equal(rlx.evaluate(again, {"a": I})["grad_a"],
                                  rlx.evaluate(g, {"a": I})["grad_a"])


def test_values_are_as_without_differentiation() -> None:
    a = POINTS["apart"]
    for function in (by_eigh(SPELLINGS["scaled"]), by_svd(U_F_V["polar"][0])):
        g = graph_of(function, (3, 3))
        both = rlx.compile(rlx.value_and_grad(g, of="y"))(a=a)
        np.testing.assert_allclose(both.y, rlx.compile(g)(a=a).y, rtol=1e-13)


def test_frozen_values_are_no_function_of_the_matrix() -> None:
    """What is stopped stays constant: only the vectors move."""
    g = graph_of(lambda a: (lambda w, v: weighted((v * rlx.stop_gradient(w)) @ v.T))(*la.eigh(a)),
                 (3, 3))
    assert all(n.op is not OPS["spectral"] for n in rlx.grad(g, of="y").nodes)
    w = np.array([1.0, 2.0, 4.0])
    np.testing.assert_allclose(rlx.compile(rlx.grad(g, of="y"))(a=np.diag(w)).grad_a,
                               (SQUARE + SQUARE.T) / 2 * (1 - I), atol=1e-12)


def test_no_matrix_at_all() -> None:
    for shape in ((0, 0), (2, 0, 0), (0, 3, 3)):
        check(by_eigh(BATCHED["scaled"]), np.zeros(shape))
    for shape in ((0, 0), (0, 3), (3, 0), (0, 2, 3)):
        check(by_svd(lambda u, s, vt: (u * rlx.tanh(s)[..., None, :]) @ vt), np.zeros(shape))


# ---- what is no function of each value -------------------------------------------------------

TIMES = np.array([0.1, 0.5, 2.0])[:, None]
MIXED: dict[str, Function] = {
    "pooled": lambda w: rlx.nn.max_pool1d(w[None, None], 3, 1, 1)[0, 0],
    "averaged": lambda w: rlx.nn.avg_pool1d(w[None, None], 3, 1, 1)[0, 0],
    "cumsum": lambda w: rlx.cumsum(w, 0), "product": lambda w: w @ SQUARE,
    "rolled": lambda w: rlx.roll(w, 1, 0), "reversed": lambda w: w[::-1],
    "inverse": lambda w: la.inv(4 * rlx.eye(3, dtype=f64) + TIMES * w),
    "factor": lambda w: la.cholesky(40 * rlx.eye(3, dtype=f64) + TIMES * w),
    "solved": lambda w: la.solve(4 * rlx.eye(3, dtype=f64) + TIMES * w, TIMES * w),
    "squared": lambda w: (TIMES * w) @ (TIMES * w)}


@pytest.mark.parametrize("name", MIXED)
def test_functions_that_mix_places(name: str) -> None:
    """Right where values are apart, NaN where they coincide or seem to."""
    def loss(a: Any) -> Any:
        w, v = la.eigh(a)
        f = MIXED[name](w)
        return weighted(rlx.einsum("ij,tj,kj->tik", v, f if f.rank == 2 else f[None], v))

    check(loss, POINTS["apart"])
    for point in ("unit", "turned"):
        assert np.isnan(gradient(loss, POINTS[point])).any()


ELSEWHERE: dict[str, Function] = {
    "symmetrised": lambda a: la.eigvalsh(0.5 * (a + a.T)), "svd": lambda a: la.svdvals(a)[::-1],
    "rayleigh": lambda a: rlx.einsum("ij,ik,kj->j", la.eigh(a)[1], a, la.eigh(a)[1])}


@pytest.mark.parametrize("name", ELSEWHERE)
def test_eigenvalues_that_come_from_elsewhere(name: str) -> None:
    """What comes with the places and moves with the matrix is no parameter of a function of it."""
    def loss(a: Any) -> Any:
        return weighted((la.eigh(a)[1] * rlx.sqrt(ELSEWHERE[name](a))) @ la.eigh(a)[1].T)

    check(loss, POINTS["apart"])
    for point in ("unit", "turned"):
        assert np.isnan(gradient(loss, POINTS[point])).any()


# ---- what has no derivative ------------------------------------------------------------------


def single(a: Any) -> Any:
    return weighted(la.eigh(a)[1][:, :1])


def test_a_single_eigenvector_of_a_repeated_value_has_none() -> None:
    for singular in ("zero", "ieee", "report"):
        g = rlx.grad(graph_of(single, (3, 3)), of="y", singular=singular)
        assert np.isnan(rlx.compile(g)(a=I).grad_a).any()
    assert np.isnan(gradient(by_svd(lambda u, s, vt: vt[:1]), I)).any()
    assert np.isfinite(gradient(single, POINTS["apart"])).all()


def test_a_cut_between_equal_values_has_none() -> None:
    for function, a in ((by_svd(U_F_V["low_rank"][0]), I), (by_svd(lambda u, s, vt: u @ vt),
                                                            np.diag([1.0, 0, 0])),
                        (by_eigh(lambda w, v: v[:, 1:] @ v[:, 1:].T), I)):
        assert not np.isfinite(gradient(function, a)).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_values_that_rounding_takes_apart_are_repeated(dtype: Any) -> None:
    """The vectors of 1 and 1 + 2e−16 are turned as rounding likes; so are those of 0 and 1e−17."""
    mask = np.array([1.0, 0, 0, 0], dtype)
    single, cut, chosen, top = map(by_eigh, (
        lambda w, v: v[:, :1], lambda w, v: v[:, :1] @ v[:, :1].T,
        lambda w, v: (v * (mask * w)) @ v.T, lambda w, v: v[:, 3:]))
    largest, last = map(by_svd, (lambda u, s, vt: u[:, :1], lambda u, s, vt: u[:, -1:]))
    for seed in range(8):
        rng = np.random.default_rng(seed)
        q, r = (np.linalg.qr(rng.standard_normal((4, 4)))[0] for _ in range(2))
        a = ((q * [1.0, 1, 2, 3]) @ q.T).astype(dtype)
        assert [exists(f, a) for f in (single, cut, chosen, top)] == [False] * 3 + [True]
        a = ((q * [3.0, 2, 0, 0]) @ r).astype(dtype)
        assert [exists(f, a) for f in (largest, last)] == [True, False]
        assert not exists(last, (a @ r.T)[:, :3].astype(dtype))


def test_a_degenerate_member_of_a_batch_harms_no_other() -> None:
    a = np.stack([POINTS["apart"], I, POINTS["turned"], POINTS["apart"] + I])
    found = gradient(lambda a: weighted(la.eigh(a)[1]), a)
    assert np.isnan(found).any((1, 2)).tolist() == [False, True, True, False]


def test_no_cotangent_of_a_repeated_value_no_contribution() -> None:
    """The first vector is determined; the other two are, where they are not asked for."""
    a = np.diag([1.0, 3.0, 3.0])
    found = gradient(lambda a: la.eigh(a)[1][:, 0].sum() * la.eigh(a)[1][0, 0], a)
    assert np.isfinite(found).all()
    first = graph_of(lambda a: la.eigh(a)[1][:, 0].sum() * la.eigh(a)[1][0, 0], (3, 3))
    assert np.isnan(rlx.compile(rlx.grad(first, of="y", singular="ieee"))(a=a).grad_a).any()
    report = rlx.grad(first, of="y", singular="report")
    assert [s.op for s in rlx.singular_report(report, {"a": a})] == ["eigh"]


# ---- determinants ----------------------------------------------------------------------------

SINGULAR = {
    "1x1": np.zeros((1, 1)), "rank_one": np.array([[1.0, 2], [2, 4]]), "zero": np.zeros((3, 3)),
    "rank_n_2": np.ones((3, 3)), "rank_n_3": np.outer([1.0, 2, 3, 4], [1.0, -1, 2, 0.5]),
    "rank_n_1": np.diag([1.0, 0, 3, 2]) @ np.linalg.qr(RNG.standard_normal((4, 4)))[0],
    "odd_permutation": np.eye(4)[[1, 0, 2, 3]], "negative": -RNG.standard_normal((3, 3)),
    "batch": np.stack([np.ones((3, 3)), RNG.standard_normal((3, 3)), np.zeros((3, 3))])}


@pytest.mark.parametrize("name", SINGULAR)
def test_determinants_are_polynomials(name: str) -> None:
    def loss(a: Any) -> Any:
        y = la.det(a)
        return (y * (1.5 + np.arange(float(y.size)).reshape(y.shape))).sum()

    check(loss, SINGULAR[name], order=3)


def test_gradients_of_determinants() -> None:
    for dtype in (np.float32, np.float64):
        tight = 2e-6 if dtype == np.float32 else 1e-14
        a = np.array([[1, 2], [2, 4]], dtype)
        np.testing.assert_allclose(gradient(la.det, a), [[4, -2], [-2, 1]], rtol=tight)
        np.testing.assert_array_equal(gradient(la.det, np.zeros((1, 1), dtype)), [[1]])
        np.testing.assert_array_equal(gradient(la.det, np.zeros((3, 3), dtype)), np.zeros((3, 3)))
        a = np.asarray(RNG.standard_normal((2, 5, 5)), dtype)
        want = np.linalg.det(a)[:, None, None] * np.swapaxes(np.linalg.inv(a), 1, 2)
        np.testing.assert_allclose(gradient(lambda a: la.det(a).sum(), a), want,
                                   rtol=1e3 * tight, atol=1e3 * tight)


def test_a_singular_matrix_of_a_batch_that_counts_nothing() -> None:
    a = np.stack([np.ones((3, 3)), np.zeros((3, 3)), np.diag([1.0, 2, 3])])
    found = gradient(lambda a: (la.det(a) * np.array([0.0, 0.0, 1.0])).sum(), a)
    np.testing.assert_allclose(found, [np.zeros((3, 3)), np.zeros((3, 3)), np.diag([6.0, 3, 2])],
                               atol=1e-14)


@pytest.mark.parametrize("size", [la.det, lambda a: la.slogdet(a)[1]], ids=["det", "slogdet"])
def test_a_matrix_that_counts_nothing_may_be_anything(size: Function) -> None:
    a = np.stack([np.ones((3, 3)), np.full((3, 3), np.nan), np.diag([1.0, 2, 3])])
    keep = np.array([False, False, True])
    found = gradient(lambda a: rlx.where(keep, size(a), 0.0).sum(), a)
    assert not found[:2].any() and found[2].all(where=np.eye(3, dtype=bool))


def test_products_of_singular_values_beyond_the_range_of_floats() -> None:
    w = np.array([1e200, 1e150, 1e-180, 1e-160])
    found = gradient(la.det, np.diag(w))
    np.testing.assert_allclose(np.diag(found), 1e10 / w, rtol=1e-12)


def test_an_empty_determinant() -> None:
    assert gradient(lambda a: la.det(a).sum(), np.zeros((2, 0, 0))).shape == (2, 0, 0)
