"""Reductions, running reductions and products against PyTorch and JAX."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from peers.peer import (
    F64_F32,
    Array,
    Convention,
    Row,
    call,
    calls,
    check,
    check_convention,
    convention,
    lax,
    normal,
    row,
    torch,
)

INF, NAN = np.inf, np.nan
X = normal(3, 4, 2)
SQUARE = normal(3, 3)
ZEROS = np.array([[2.0, 0, 3], [0, 5, 0], [-1, 4, 2], [NAN, 0, 1]])[:3]
TIES = np.random.default_rng(5).integers(0, 3, (4, 6)).astype(np.float64)
EDGE = np.array([[1, NAN, 3], [INF, 2, -INF], [-INF, -INF, -INF], [0, -0.0, 0], [INF, NAN, 1]])
NO_ROWS, NO_COLUMNS = np.zeros((0, 3)), np.zeros((2, 0, 3))
FLAGS = normal(3, 4) > 0.5

# ---- reductions ----------------------------------------------------------------------------------

AXES: dict[str, Any] = {"all": None, "first": 0, "last": -1, "two": (0, -1), "middle": (1,)}


def reductions(names: str, x: Array) -> list[Row]:
    """Functions over axes of every form, with and without keepdims."""
    return [row(f"{n}_{which}_{keep}", lambda m, a, f=f, axis=axis, keep=keep:
                f(m, a, axis=axis, keepdims=keep), x)
            for n, f in calls(names) for which, axis in AXES.items() for keep in (False, True)
            if keep != (which == "first")]


REDUCTIONS: list[Row] = [
    *reductions("sum mean max min amax amin", X),
    *(row(f"{n}_rows_are_features", lambda m, x, f=f: f(m, x, axis=1), SQUARE)
      for n, f in calls("sum mean max prod")),
    *(row(f"{n}_scalar", f, 2.5) for n, f in calls("sum mean max prod")),
    *(row(f"{n}_empty", lambda m, x, f=f: f(m, x, axis=1), NO_COLUMNS)
      for n, f in calls("sum prod mean any all")),
    *(row(f"{n}_no_rows", lambda m, x, f=f: f(m, x, axis=1), NO_ROWS)
      for n, f in calls("sum prod mean max min argmax any all")),
    *(row(f"{n}_edges", lambda m, x, f=f: f(m, x, axis=1), EDGE, order=1)
      for n, f in calls("sum mean any all")),
    row("max_edges", lambda m, x: m.max(x, axis=1), EDGE[1:4], order=1),
    row("min_edges", lambda m, x: m.min(x, axis=1), EDGE[1:4], order=1),
    row("max_nan", lambda m, x: m.max(x, axis=1), EDGE, order=0),
    row("min_nan", lambda m, x: m.min(x, axis=1), EDGE, order=0),
    row("max_ties", lambda m, x: m.max(x, axis=1), TIES, order=1),
    row("max_ties_all", lambda m, x: m.max(x), TIES, order=1),
    row("min_ties", lambda m, x: m.min(x, axis=0, keepdims=True), TIES, order=1),
    row("prod", call("prod"), X),
    row("prod_axis", lambda m, x: m.prod(x, axis=1), X),
    row("prod_keepdims", lambda m, x: m.prod(x, axis=-1, keepdims=True), X),
    row("prod_two_axes", lambda m, x: m.prod(x, axis=(0, 2)), X,
        torch=lambda x: x.prod(2).prod(0)),
    row("prod_zeros", lambda m, x: m.prod(x, axis=1), ZEROS),
    row("prod_zeros_all", call("prod"), ZEROS[0]),
    row("prod_int", lambda m, x: m.prod(x, axis=0), np.array([[3, -2], [2**33, 5]])),
    row("sum_int", call("sum"), np.array([2**62, 2**62, 5])),
    *(row(f"{n}_bool", lambda m, x, f=f: f(m, x, axis=-1, keepdims=True), FLAGS)
      for n, f in calls("sum any all")),
    *(row(n, f, FLAGS) for n, f in calls("any all")),
    *(row(f"{n}_axis", lambda m, x, f=f: f(m, x, axis=-2), TIES)
      for n, f in calls("argmax argmin")),
    *(row(f"{n}_all", f, TIES) for n, f in calls("argmax argmin")),
    *(row(f"{n}_edges", lambda m, x, f=f: f(m, x, axis=1, keepdims=True), EDGE)
      for n, f in calls("argmax argmin")),
    *(row(f"{n}_{ddof}", lambda m, x, f=f, ddof=ddof: f(m, x, axis=(0, 2), ddof=ddof), X,
          torch=lambda x, n=n, ddof=ddof: getattr(torch, n)(x, dim=(0, 2), correction=ddof))
      for n, f in calls("var std") for ddof in (0, 1)),
    *(row(f"{n}_all", f, X, torch=lambda x, n=n: getattr(torch, n)(x, correction=0))
      for n, f in calls("var std")),
    *(row(f"{n}_keepdims", lambda m, x, f=f: f(m, x, axis=-1, keepdims=True), SQUARE + 1e4,
          torch=lambda x, n=n: getattr(torch, n)(x, dim=-1, correction=0, keepdim=True),
          tolerance=1e5, order=1, note="the mean of 1e4 takes the digits of the peers' inputs")
      for n, f in calls("var std")),
    row("var_edges", lambda m, x: m.var(x, axis=1), EDGE, order=1,
        torch=lambda x: torch.var(x, dim=1, correction=0)),
    row("var_constant", lambda m, x: m.var(x, axis=1), np.full((2, 3), 0.1),
        torch=lambda x: torch.var(x, dim=1, correction=0)),
    row("norm", call("norm"), X, torch=lambda x: torch.linalg.vector_norm(x),
        jax=lambda x: (x * x).sum() ** 0.5),
    row("norm_axis", lambda m, x: m.norm(x, axis=1, keepdims=True), X,
        torch=lambda x: torch.linalg.vector_norm(x, dim=1, keepdim=True)),
    *(row(f"norm_{order}", lambda m, x, order=order: m.norm(x, order, axis=-1), X,
          torch=lambda x, order=order: torch.linalg.vector_norm(x, order, dim=-1),
          order=1 if order == 0 else 2) for order in (1, 3, 2.5, INF, -INF, 0, -2)),
    row("norm_frobenius", lambda m, x: m.norm(x, "fro", axis=(0, 1)), SQUARE,
        torch=lambda x: torch.linalg.matrix_norm(x)),
    row("logsumexp", call("logsumexp"), X, torch=lambda x: torch.logsumexp(x, (0, 1, 2))),
    row("logsumexp_axes", lambda m, x: m.logsumexp(x, axis=(0, -1), keepdims=True), X),
    row("logsumexp_large", lambda m, x: m.logsumexp(x, axis=1), 500 * X),
    row("logsumexp_edges", lambda m, x: m.logsumexp(x, axis=1),
        np.array([[1, -INF, 3], [-INF, -INF, 2], [NAN, 1, 2]]), order=1),
]

# ---- running ---------------------------------------------------------------------------------

DISTINCT = np.random.default_rng(1).permutation(24).reshape(4, 6) / 7 - 1.5


def flipped(f: Any, axis: int) -> Any:
    return lambda x: f(x.flip(axis)).flip(axis)


def shifted(y: Any, x: Any, first: float) -> Any:
    """y moved one step on along axis 1."""
    return torch.cat([torch.full_like(x[:, :1], first), y[:, :-1]], 1)


RUNNING: list[Row] = [
    *(row(f"{n}_{axis}", lambda m, x, f=f, axis=axis: f(m, x, axis=axis), X)
      for n, f in calls("cumsum cumprod") for axis in (0, 1, -1)),
    *(row(f"{n}_flat", f, SQUARE, torch=lambda x, n=n: getattr(torch, n)(x.reshape(-1), 0))
      for n, f in calls("cumsum cumprod")),
    *(row(f"{n}_reverse", lambda m, x, f=f: f(m, x, axis=1, reverse=True), SQUARE,
          torch=flipped(lambda x, n=n: getattr(torch, n)(x, 1), 1),
          jax=lambda x, n=n: getattr(lax, n)(x, axis=1, reverse=True))
      for n, f in calls("cumsum cumprod")),
    *(row(f"{n}_exclusive", lambda m, x, f=f: f(m, x, axis=1, exclusive=True), SQUARE,
          torch=lambda x, n=n, unit=unit: shifted(getattr(torch, n)(x, 1), x, unit), jax=None)
      for (n, f), unit in zip(calls("cumsum cumprod"), (0.0, 1.0), strict=True)),
    row("cumprod_zeros", lambda m, x: m.cumprod(x, axis=1), ZEROS),
    row("cumprod_zeros_first_axis", lambda m, x: m.cumprod(x, axis=0), ZEROS),
    *(row(f"{n}_edges", lambda m, x, f=f: f(m, x, axis=1), EDGE, order=0)
      for n, f in calls("cumsum cumprod")),
    *(row(f"{n}_empty", lambda m, x, f=f: f(m, x, axis=1), NO_COLUMNS)
      for n, f in calls("cumsum cumprod")),
    row("cumsum_bool", lambda m, x: m.cumsum(x, axis=1), FLAGS),
    row("cumsum_int", lambda m, x: m.cumsum(x, axis=0), np.arange(12).reshape(4, 3) - 5),
    *(row(f"{n}_{axis}", lambda m, x, f=f, axis=axis: f(m, x, axis=axis), DISTINCT,
          torch=lambda x, n=n, axis=axis: getattr(torch, n)(x, axis).values)
      for n, f in calls("cummax cummin") for axis in (0, 1)),
    *(row(f"{n}_reverse", lambda m, x, f=f: f(m, x, axis=1, reverse=True), DISTINCT,
          torch=flipped(lambda x, n=n: getattr(torch, n)(x, 1).values, 1))
      for n, f in calls("cummax cummin")),
    *(row(f"{n}_edges", lambda m, x, f=f: f(m, x, axis=1), EDGE, order=0,
          torch=lambda x, n=n: getattr(torch, n)(x, 1).values)
      for n, f in calls("cummax cummin")),
    row("cumlogsumexp", lambda m, x: m.cumlogsumexp(x, axis=1), 30 * SQUARE,
        torch=lambda x: torch.logcumsumexp(x, 1)),
    row("cumlogsumexp_reverse", lambda m, x: m.cumlogsumexp(x, axis=0, reverse=True), X,
        torch=flipped(lambda x: torch.logcumsumexp(x, 0), 0)),
    row("cumlogsumexp_bottom", lambda m, x: m.cumlogsumexp(x, axis=1),
        np.array([[-INF, -INF, 1, 2], [0, -INF, 3, INF]])[:, :3], order=0,
        torch=lambda x: torch.logcumsumexp(x, 1)),
]

# ---- products --------------------------------------------------------------------------------

MATMULS = [((3,), (3,)), ((3,), (3, 4)), ((2, 3), (3,)), ((2, 3), (3, 4)), ((5, 2, 3), (3,)),
           ((3,), (5, 3, 2)), ((5, 2, 3), (3, 4)), ((2, 3), (5, 3, 4)), ((5, 2, 3), (5, 3, 4)),
           ((1, 2, 3), (5, 3, 4)), ((5, 1, 2, 3), (4, 3, 2)), ((4, 1, 3, 3), (1, 5, 3, 3)),
           ((2, 0), (0, 3)), ((0, 2), (2, 3)), ((3, 2, 0), (3, 0, 1)), ((0, 2, 3), (1, 3, 4)),
           ((1, 1), (1, 1))]
EINSUMS = ["ij,jk->ik", "ij,jk", "ij->ji", "ii->i", "ii", "ij->", "i,j->ij", "bij,bjk->bik",
           "bhqd,bhkd->bhqk", "...ij,...jk->...ik", "...i,i", "ij,kj,kl->il", "i,ij,j", "iij->j",
           "ij,ij->ij", "ij,ji", "abc,cd->dab", "i,i->i", "ij,j->", "ijk->ki", "a,b,c->cab",
           "ij,kl->ijkl", "iji->j", "i...,...->..."]
SIZES = dict(zip("abcdhijklq", (2, 4, 3, 2, 3, 3, 4, 2, 5, 3), strict=True))


def operands(subscripts: str) -> list[Array]:
    """Arrays that fit; "..." is one axis of 2."""
    parts = subscripts.split("->")[0].split(",")
    sizes = {**SIZES, "j": 3} if subscripts in ("iji->j",) else SIZES
    return [normal(*(sizes.get(c, 2) for c in part.replace("...", ".")), seed=i)
            for i, part in enumerate(parts)]


PRODUCTS: list[Row] = [
    *(row(f"matmul_{a}_{b}".replace(" ", ""), call("matmul"), normal(*a), normal(*b, seed=1))
      for a, b in MATMULS),
    *(row(f"einsum_{s}", lambda m, *x, s=s: m.einsum(s, *x), *operands(s)) for s in EINSUMS),
    row("einsum_stretch", lambda m, x, y: m.einsum("...ij,...j->...i", x, y), normal(4, 1, 2, 3),
        normal(5, 3)),
    row("einsum_empty", lambda m, x, y: m.einsum("ij,jk->ik", x, y), np.zeros((2, 0)),
        np.zeros((0, 3))),
    row("einsum_int", lambda m, x, y: m.einsum("ij,j", x, y), np.arange(6).reshape(2, 3),
        np.array([2**40, -1, 3])),
    row("tensordot_0", lambda m, x, y: m.tensordot(x, y, 0), normal(2, 3), normal(4),
        torch=lambda x, y: torch.tensordot(x, y, dims=0)),
    row("tensordot_1", lambda m, x, y: m.tensordot(x, y, 1), normal(2, 3), normal(3, 4),
        torch=lambda x, y: torch.tensordot(x, y, dims=1)),
    row("tensordot_2", lambda m, x, y: m.tensordot(x, y), normal(2, 3, 4), normal(3, 4, 2)),
    row("tensordot_axes", lambda m, x, y: m.tensordot(x, y, ((0, -1), (1, 0))), normal(3, 2, 4),
        normal(4, 3, 5)),
    row("dot_vectors", call("dot"), normal(4), normal(4, seed=1)),
    row("dot_matrices", call("dot"), normal(3, 2), normal(2, 3), torch=torch.matmul),
    row("dot_ranks", call("dot"), normal(2, 3), normal(4, 3, 2),
        torch=lambda x, y: torch.einsum("ij,ajb->iab", x, y)),
    row("dot_scalar", call("dot"), 2.5, normal(2, 3), torch=torch.mul),
    row("inner", call("inner"), normal(2, 3), normal(4, 5, 3)),
    row("vdot", call("vdot"), normal(2, 3), normal(2, 3, seed=1),
        torch=lambda x, y: torch.vdot(x.reshape(-1), y.reshape(-1))),
    row("outer", call("outer"), normal(3), normal(4)),
    row("outer_matrices", call("outer"), normal(2, 2), normal(3, 1),
        torch=lambda x, y: torch.outer(x.reshape(-1), y.reshape(-1))),
    *(row(f"diag_{k}", lambda m, x, k=k: m.diag(x, k), normal(3)) for k in (-2, 0, 1)),
    *(row(f"diag_of_matrix_{k}", lambda m, x, k=k: m.diag(x, k), normal(3, 5)) for k in (-1, 0, 2)),
    *(row(f"diagonal_{k}", lambda m, x, k=k: m.diagonal(x, k, -1, 0), normal(4, 2, 3))
      for k in (-1, 0, 2)),
    row("trace", call("trace"), SQUARE),
    row("matmul_nan", call("matmul"), EDGE, EDGE.T, order=1),
    row("matmul_int", call("matmul"), np.arange(6).reshape(2, 3), np.arange(6).reshape(3, 2) - 3),
]

# ---- deliberate differences ------------------------------------------------------------------

CONVENTIONS: list[Convention] = [
    convention("std_constant", lambda m, x: m.std(x, axis=1), [[0.1, 0.1, 0.1], [1, 2, 3]],
               value=[0, math.sqrt(2 / 3)],
               gradients=[[[0, 0, 0], [-1 / math.sqrt(6), 0, 1 / math.sqrt(6)]]],
               note="OPS.md 1: shifted two-pass, gradient 0 at 0; the peers give NaN"),
    convention("norm_zero", call("norm"), [0.0, 0], value=0, gradients=[[0, 0]],
               note="OPS.md 1: gradient 0 at 0; JAX gives NaN"),
    convention("norm_3_zero", lambda m, x: m.norm(x, 3), [0.0, 0], value=0, gradients=[[0, 0]],
               note="OPS.md 1: gradient 0 at 0; JAX gives NaN"),
    convention("logsumexp_bottom", lambda m, x: m.logsumexp(x, axis=1), [[-INF, -INF], [0, -INF]],
               value=[-INF, 0], gradients=[[[0, 0], [1, 0]]],
               note="OPS.md 1: a row of −inf has gradient 0; PyTorch gives NaN"),
    convention("cumlogsumexp_bottom", lambda m, x: m.cumlogsumexp(x, 0), [-INF, -INF, 0],
               value=[-INF, -INF, 0], gradients=[[0, 0, 1]],
               note="OPS.md 1: −inf has gradient 0; JAX gives NaN"),
    convention("max_nan", call("max"), [1.0, NAN, 3], value=NAN, gradients=[[0, 1, 0]],
               note="OPS.md 1: NaN wins, and takes the gradient; the peers give NaN or 0"),
    convention("max_ties", call("max"), [1.0, 3, 3, 2, 3], value=3,
               gradients=[[0, 1 / 3, 1 / 3, 0, 1 / 3]],
               note="OPS.md 1: split evenly; PyTorch's max(dim) gives all to one"),
    convention("cummax_ties", lambda m, x: m.cummax(x, 0), [1.0, 3, 3, 2, 5, NAN, 7],
               value=[1, 3, 3, 3, 5, NAN, NAN], gradients=[[1, 3, 0, 0, 1, 2, 0]],
               note="OPS.md 1: to the chosen element, the first; PyTorch takes the last"),
    convention("prod_zero", call("prod"), [2.0, 0, 3], value=0, gradients=[[0, 6, 0]],
               note="OPS.md 1: exact"),
    convention("var_of_one", lambda m, x: m.var(x, ddof=1), [2.0], value=NAN, gradients=[[NAN]],
               note="0/0 as NumPy"),
]


@pytest.mark.parametrize("case", [*REDUCTIONS, *RUNNING, *PRODUCTS], ids=str)
@F64_F32
def test_peers_agree(case: Row, dtype: Any) -> None:
    check(case, dtype)


@pytest.mark.parametrize("case", CONVENTIONS, ids=str)
@F64_F32
def test_conventions(case: Convention, dtype: Any) -> None:
    check_convention(case, dtype)
