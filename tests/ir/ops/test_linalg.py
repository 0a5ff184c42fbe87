"""Linear algebra: NumPy's values, singular and non-finite matrices, derivatives of what matters."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx_py as rlx
from rlx_py.backends.llvm.backend import program_for
from rlx_py.backends.llvm.targets import host
from rlx_py.ir.loops.interpret import interpret

Array = np.ndarray[Any, Any]
la = rlx.linalg
RNG = np.random.default_rng(5)
INF, NAN = np.inf, np.nan


def run(function: Any, *arrays: Array) -> tuple[Array, ...]:
    """Results of native code, which agree with the reference path."""
    g = rlx.Graph()
    found = function(*[g.input(f"x{i}", a.shape, a.dtype) for i, a in enumerate(arrays)])
    for i, node in enumerate(found if isinstance(found, tuple) else (found,)):
        g.output(f"y{i}", node)
    feed = {f"x{i}": a for i, a in enumerate(arrays)}
    expected, out = rlx.evaluate(g, feed), rlx.compile(g)(**feed)
    for name, want in expected.items():
        tight = 2e-4 if want.dtype == np.float32 else 1e-10
        np.testing.assert_allclose(out[name], want, rtol=tight, atol=tight)
    return tuple(out[name] for name in expected)


def well(*shape: int, dtype: Any = np.float64) -> Array:
    """Matrices far from singular."""
    return np.asarray(RNG.standard_normal(shape) + 3 * np.eye(*shape[-2:])).astype(dtype)


def positive(*shape: int) -> Array:
    x = RNG.standard_normal(shape)
    return np.asarray(x @ np.swapaxes(x, -1, -2) + np.eye(shape[-1]))


CASES = {
    "cholesky": (la.cholesky, np.linalg.cholesky, (positive(2, 5, 5),)),
    "solve": (la.solve, np.linalg.solve, (well(6, 6), RNG.standard_normal((6, 2)))),
    "solve_vector": (la.solve, np.linalg.solve, (well(6, 6), RNG.standard_normal(6))),
    "solve_broadcast": (la.solve, np.linalg.solve, (well(3, 1, 4, 4),
                                                    RNG.standard_normal((2, 4, 5)))),
    "inv": (la.inv, np.linalg.inv, (well(2, 3, 4, 4),)),
    "det": (la.det, np.linalg.det, (well(3, 4, 4),)),
    "slogdet": (la.slogdet, lambda a: tuple(np.linalg.slogdet(a)), (-well(3, 5, 5),)),
    "eigvalsh": (la.eigvalsh, np.linalg.eigvalsh, (positive(2, 6, 6),)),
    "svdvals": (la.svdvals, np.linalg.svdvals, (RNG.standard_normal((2, 4, 7)),)),
    "lstsq_tall": (la.lstsq, lambda a, b: np.linalg.lstsq(a, b)[0],
                   (RNG.standard_normal((8, 3)), RNG.standard_normal((8, 2)))),
    "lstsq_wide": (la.lstsq, lambda a, b: np.linalg.lstsq(a, b)[0],
                   (RNG.standard_normal((3, 8)), RNG.standard_normal(3))),
    "pinv": (la.pinv, np.linalg.pinv, (RNG.standard_normal((2, 6, 3)),)),
    "power": (lambda a: la.matrix_power(a, 5), lambda a: np.linalg.matrix_power(a, 5),
              (well(2, 3, 3),)),
    "power_zero": (lambda a: la.matrix_power(a, 0), lambda a: np.linalg.matrix_power(a, 0),
                   (well(2, 3, 3),)),
    "power_negative": (lambda a: la.matrix_power(a, -3), lambda a: np.linalg.matrix_power(a, -3),
                       (well(3, 3),)),
}


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", CASES)
def test_values_are_numpys(name: str, dtype: Any) -> None:
    ours, theirs, arrays = CASES[name]
    wanted = theirs(*arrays)
    found = run(ours, *[a.astype(dtype) for a in arrays])
    tight = 2e-3 if dtype == np.float32 else 1e-9
    for got, want in zip(found, wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
        assert got.dtype == dtype
        np.testing.assert_allclose(got, want, rtol=tight, atol=tight)


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (4, 4), (2, 6, 2), (1, 1), (70, 40)])
def test_factors_multiply_to_the_matrix(shape: tuple[int, ...]) -> None:
    a = RNG.standard_normal(shape)
    k = min(shape[-2:])
    q, r = run(la.qr, a)
    np.testing.assert_allclose(q @ r, a, atol=1e-12)
    np.testing.assert_allclose(np.swapaxes(q, -1, -2) @ q, np.broadcast_to(
        np.eye(k), (*shape[:-2], k, k)), atol=1e-12)
    np.testing.assert_array_equal(r, np.triu(r))
    u, s, vt = run(la.svd, a)
    np.testing.assert_allclose(u * s[..., None, :] @ vt, a, atol=1e-12)
    assert (np.diff(s) <= 0).all()


def test_eigenvectors() -> None:
    a = positive(3, 7, 7)
    w, v = run(la.eigh, a)
    np.testing.assert_allclose(a @ v, v * w[:, None, :], atol=1e-12)


@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("trans", [False, True])
@pytest.mark.parametrize("unit", [False, True])
def test_triangles(lower: bool, trans: bool, unit: bool) -> None:
    a, b = well(5, 5), RNG.standard_normal((5, 2))
    (x,) = run(lambda m, n: la.triangular_solve(m, n, lower, trans, unit), a, b)
    kept = np.tril(a) if lower else np.triu(a)
    if unit:
        np.fill_diagonal(kept, 1)
    np.testing.assert_allclose((kept.T if trans else kept) @ x, b, atol=1e-12)


def test_orders_of_norms() -> None:
    x = RNG.standard_normal((3, 4, 5))
    for ord in ("fro", "nuc", 2, -2, 1, -1, INF, -INF):
        for axis in ((1, 2), (2, 0), (-3, -1)):
            for keep in (False, True):
                (y,) = run(lambda m, o=ord, a=axis, k=keep: la.norm(m, o, a, k), x)
                np.testing.assert_allclose(y, np.linalg.norm(x, ord, axis, keep), rtol=1e-12)
    for ord in (None, 1, 3, INF):
        (y,) = run(lambda m, o=ord: la.norm(m, o, 1), x)
        np.testing.assert_allclose(y, np.linalg.norm(x, ord, 1), rtol=1e-12)


# ---- matrices without a result ---------------------------------------------------------------


def test_a_singular_matrix_spoils_only_itself() -> None:
    a = np.stack([np.eye(3), np.ones((3, 3)), 2 * np.eye(3)])
    b = np.ones((3, 3, 1))
    (x,) = run(la.solve, a, b)
    assert np.isnan(x[1]).all() and np.isfinite(x[[0, 2]]).all()
    (y,) = run(la.inv, a)
    assert np.isnan(y[1]).all() and np.isfinite(y[[0, 2]]).all()
    np.testing.assert_allclose(run(la.det, a)[0], [1, 0, 8], rtol=1e-14)
    sign, size = run(la.slogdet, a)
    assert sign.tolist() == [1, 0, 1] and size[1] == -INF
    (c,) = run(la.cholesky, a - 0.5 * np.eye(3) * [[[0]], [[1]], [[0]]])
    assert np.isnan(c[1]).all() and np.isfinite(c[[0, 2]]).all()
    (t,) = run(la.triangular_solve, np.zeros((2, 2)), np.ones((2, 1)))
    assert np.isnan(t).all()


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_iterations_end_on_matrices_that_are_not_finite(bad: float) -> None:
    a = np.stack([np.eye(4), np.eye(4)])
    a[1, 2, 1] = bad
    for function in (la.eigvalsh, la.svdvals):
        (y,) = run(function, a)
        assert np.isnan(y[1]).all() and np.allclose(y[0], 1)


@pytest.mark.parametrize("shape", [(0, 0), (2, 0, 0), (0, 3, 3)])
def test_empty(shape: tuple[int, ...]) -> None:
    a = np.zeros(shape)
    for function in (la.inv, la.cholesky, la.eigvalsh, la.svdvals):
        run(function, a)
    np.testing.assert_array_equal(run(la.det, a)[0], np.linalg.det(a))


def test_large_matrices_use_blocked_code() -> None:
    a, b = well(300, 300) / 10, RNG.standard_normal((300, 4))
    (x,) = run(la.solve, a, b)
    np.testing.assert_allclose(a @ x, b, atol=1e-8)
    w, v = run(lambda m: tuple(n * n for n in la.eigh(m)), positive(120, 120))
    np.testing.assert_allclose(v.sum(0), 1, rtol=1e-10)


def test_threads_change_no_bit() -> None:
    a = well(400, 12, 12)
    g = rlx.Graph()
    for i, node in enumerate((*la.svd(g.input("a", a.shape, rlx.f64)), la.inv(g.inputs["a"]))):
        g.output(f"y{i}", node)
    one, two = (rlx.compile(g, threads=n)(a=a) for n in (1, 2))
    assert all(one[k].tobytes() == two[k].tobytes() for k in g.outputs)


def test_the_interpreter_calls_the_same_routines() -> None:
    a = well(2, 4, 4)
    g = rlx.Graph()
    for i, node in enumerate(la.qr(g.input("a", a.shape, rlx.f64))):
        g.output(f"y{i}", node)
    found, exe = interpret(program_for(g, host()), {"a": a}), rlx.compile(g)
    for name, want in exe(a=a).items():
        np.testing.assert_allclose(found[name], want, atol=1e-14)


# ---- derivatives -----------------------------------------------------------------------------

LOSSES = {
    "logdet": lambda a: la.slogdet(a @ rlx.transpose(a) + rlx.eye(3, dtype=rlx.f64))[1],
    "det": lambda a: la.det(a), "inv": lambda a: (la.inv(a) ** 2).sum(),
    "solve": lambda a: (la.solve(a, np.arange(1.0, 4)) ** 2).sum(),
    "cholesky": lambda a: (la.cholesky(a @ rlx.transpose(a) + rlx.eye(3, dtype=rlx.f64))
                           * np.arange(9.0).reshape(3, 3)).sum(),
    "nuclear": lambda a: la.norm(a, "nuc"), "spectral": lambda a: la.norm(a, 2) ** 2,
    "eigenvalues": lambda a: (la.eigvalsh(a) ** 3).sum(),
    "projector": lambda a: (la.eigh(a)[1][:, 0:1] * np.arange(3.0)[:, None]).sum() ** 2,
    "qr": lambda a: (la.qr(a)[1] ** 2 * np.arange(9.0).reshape(3, 3)).sum(),
    "wide": lambda a: (la.qr(a[:2])[1] ** 2 * np.arange(6.0).reshape(2, 3)).sum(),
    "lstsq": lambda a: (la.lstsq(a[:, :2], np.arange(3.0)) ** 2).sum(),
    "underdetermined": lambda a: (la.lstsq(a[:2], np.arange(2.0)) ** 2).sum(),
    "power": lambda a: la.matrix_power(a, 3).sum() + la.matrix_power(a, -2).sum(),
}


@pytest.mark.parametrize("name", LOSSES)
def test_two_orders_of_derivatives(name: str) -> None:
    g = rlx.Graph()
    g.output("y", LOSSES[name](g.param("a", (3, 3), rlx.f64)))
    a = np.array([[2.0, -0.3, 0.4], [0.7, 1.1, -0.2], [0.1, 0.5, -1.6]])
    rlx.check_grads(g, {"a": a}, order=2)


def test_symmetric_functions_have_gradients_at_equal_eigenvalues() -> None:
    g = rlx.Graph()
    w, v = la.eigh(g.param("a", (3, 3), rlx.f64))
    g.output("y", (rlx.exp(w)).sum() + 0 * v.sum())
    found = rlx.compile(rlx.grad(g, of="y"))(a=np.eye(3)).grad_a
    np.testing.assert_allclose(found, np.e * np.eye(3), atol=1e-12)


# ---- refusals --------------------------------------------------------------------------------


@pytest.mark.parametrize("call,error", [
    (lambda: la.inv(rlx.ones((2, 3))), rlx.ShapeError),
    (lambda: la.cholesky(rlx.ones((3,))), rlx.ShapeError),
    (lambda: la.solve(rlx.ones((2, 2)), rlx.ones((3, 1))), rlx.ShapeError),
    (lambda: la.lstsq(rlx.ones((4, 2)), rlx.ones((3, 1))), rlx.ShapeError),
    (lambda: la.svd(rlx.ones((2, 2), rlx.f16)), rlx.DTypeError),
    (lambda: la.eigh(rlx.ones((2, 2), rlx.i64)), rlx.DTypeError),
    (lambda: la.matrix_power(rlx.ones((2, 2)), 0.5), rlx.ArgumentError),
    (lambda: la.norm(rlx.ones((2, 2)), 3, (0, 1)), rlx.ArgumentError),
])
def test_wrong_use_is_refused(call: Any, error: Any) -> None:
    with pytest.raises(error):
        call()


def test_without_scipy_one_sentence_says_so() -> None:
    code = ("import sys; sys.modules['scipy.linalg.cython_lapack'] = None; import rlx_py as rlx;"
            "g = rlx.Graph(); g.output('y', rlx.linalg.inv(g.input('a', (2, 2)))); rlx.compile(g)")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode and "rlx-py[linalg]" in done.stderr.splitlines()[-1]


def test_exported_code_names_the_routines(tmp_path: Path) -> None:
    g = rlx.Graph("solver")
    g.output("y", la.inv(g.input("a", (2, 2), rlx.f64)))
    rlx.compile(g).export(tmp_path / "solver", kind="object")
    assert b"dgesv_" in (tmp_path / "solver.o").read_bytes()
