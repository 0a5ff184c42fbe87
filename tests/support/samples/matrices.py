"""Samples of factorisations, solves and Fourier transforms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlx_py.ir.base.types import TensorType, f64
from rlx_py.ir.nodes.node import OPS, Node, leaf, project
from rlx_py.ir.ops.matrices.scalar_body import scalar_body
from support.samples.sample import Array, Sample, reals, sample


def op(name: str, case: str, *arrays: Array, **attrs: Any) -> Sample:
    return sample(OPS[name], case, *arrays, **attrs)


def positive(*shape: int) -> Array:
    """Well-conditioned positive definite matrices, whose upper triangle is not read."""
    x = reals(*shape)
    found = x @ np.swapaxes(x, -1, -2) + 2 * np.eye(shape[-1])
    return np.asarray(found + np.triu(reals(*shape, seed=1), 1))


def sound(*shape: int, seed: int = 0) -> Array:
    """Matrices far from singular."""
    return np.asarray(reals(*shape, seed=seed) + 3 * np.eye(shape[-1]))


def of_each(matrices: Array) -> Array:
    """A factor for each matrix of a batch: values that two share are ties of what folds over it."""
    count = int(np.prod(matrices.shape[:-2]))
    return 1 + np.arange(count).reshape(*matrices.shape[:-2], 1, 1) / 8


def spread_out(*shape: int) -> Array:
    """Matrices with singular values apart from each other, from 0 and from another matrix's."""
    u, s, vt = np.linalg.svd(reals(*shape), full_matrices=False)
    return np.asarray(u * (np.arange(s.shape[-1], 0, -1) + 0.3) @ vt * of_each(u))


def symmetric(*shape: int) -> Array:
    """Matrices whose lower triangle belongs to a symmetric one, all eigenvalues apart."""
    q, _ = np.linalg.qr(reals(*shape))
    whole = q * (np.arange(shape[-1]) * 1.5 - 1) @ np.swapaxes(q, -1, -2) * of_each(q)
    return np.asarray(whole + np.triu(reals(*shape, seed=1), 1))


def with_factors(name: str, count: int) -> Callable[..., tuple[Node, ...]]:
    """The matrix, its factors, then the other inputs."""

    def prepare(a: Node, *rest: Node) -> tuple[Node, ...]:
        found = OPS[name](a)
        return (a, *(project(found, i) for i in range(count)), *rest)

    return prepare


def root(weighted: bool) -> str:
    """√(x + c) or w·√(x + c), of c for each matrix and w for each value."""
    x, c, w = (leaf(name, "input", TensorType(f64, ())) for name in "xcw")
    y = OPS["sqrt"](OPS["add"](x, c))
    return scalar_body([x, c, w], OPS["mul"](w, y)) if weighted else scalar_body([x, c], y)


def function_of_matrix(name: str, case: str, a: Array, order: int) -> Sample:
    """A sample with directions and parameters: of order 2 with one, since derivatives by values are
    those of order 1."""
    batch, count = a.shape[:-2], min(a.shape[-2:])
    factors, k = ("eigh", 2) if name == "spectral" else ("svd", 3)
    directions = [reals(*a.shape, seed=2 + i) for i in range(order)]
    constants = [np.full((*batch, 1), 2.5), 1 + np.abs(reals(*batch, count, seed=9))]
    weighted = order < 2
    return sample(OPS[name], f"{case}_{order}", a, *directions, *constants[:1 + weighted],
                  prepare=with_factors(factors, k), body=root(weighted), order=order)


def cofactors(case: str, a: Array, order: int) -> Sample:
    directions = [reals(*a.shape, seed=2 + i) for i in range(order)]
    return sample(OPS["cofactors"], f"{case}_{order}", a, *directions,
                  prepare=with_factors("svd", 3), order=order)


TRIANGULAR = [
    op("triangular_solve", f"{lower}_{transpose}_{unit}", sound(2, 4, 4), reals(2, 4, 3, seed=1),
       lower=lower, transpose=transpose, unit=unit)
    for lower in (False, True) for transpose in (False, True) for unit in (False, True)]
SAMPLES = [
    op("cholesky", "one", positive(4, 4)), op("cholesky", "batch", positive(2, 3, 3)),
    op("cholesky", "scalar", positive(1, 1)), op("cholesky", "none", np.zeros((2, 0, 0))),
    *TRIANGULAR,
    op("triangular_solve", "none", np.zeros((0, 0)), np.zeros((0, 2)), lower=True, transpose=False,
       unit=False),
    op("solve", "one", sound(5, 5), reals(5, 2, seed=1)),
    op("solve", "batch", sound(2, 3, 3), reals(2, 3, 4, seed=1)),
    op("solve", "no_columns", sound(3, 3), np.zeros((3, 0))),
    op("slogdet", "one", sound(4, 4)), op("slogdet", "batch", sound(2, 2, 3, 3)),
    op("slogdet", "none", np.zeros((2, 0, 0))),
    op("det", "one", sound(4, 4)), op("det", "batch", reals(2, 2, 3, 3)),
    op("det", "none", np.zeros((2, 0, 0))),
    *(cofactors("batch", spread_out(2, 3, 3), order) for order in range(3)),
    # Two orders beyond the sample's are made of chains of values, kⁿ of them: fewer values there.
    *(function_of_matrix("spectral", "batch", symmetric(2, 3, 3), order) for order in range(2)),
    function_of_matrix("spectral", "batch", symmetric(2, 2, 2), 2),
    *(function_of_matrix("singular", "square", spread_out(3, 3), order) for order in range(2)),
    function_of_matrix("singular", "square", spread_out(2, 2), 2),
    *(function_of_matrix("singular", "tall", spread_out(2, 4, 2), order) for order in range(2)),
    function_of_matrix("singular", "tall", spread_out(3, 2), 2),
    op("qr", "tall", spread_out(6, 3)), op("qr", "batch", sound(2, 3, 3)),
    op("qr", "none", np.zeros((3, 0))),
    op("eigh", "one", symmetric(5, 5)), op("eigh", "batch", symmetric(2, 3, 3)),
    op("svd", "tall", spread_out(5, 3)), op("svd", "wide", spread_out(2, 3, 5)),
    op("svd", "square", spread_out(4, 4)),
    op("fft", "direct", reals(2, 12), reals(2, 12, seed=1), inverse=False),
    op("fft", "stages", reals(2, 66), reals(2, 66, seed=1), inverse=True),
    op("fft", "prime", reals(67), reals(67, seed=1), inverse=False),
]
