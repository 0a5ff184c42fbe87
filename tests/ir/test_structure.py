"""Structural ops and their functions: NumPy's values, and the laws of differentiation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import rlx_py.ir.ops.numpy.arrays as rnp
from rlx_py.ir.base.errors import ArgumentError, DTypeError, ShapeError
from rlx_py.ir.base.types import DTYPES
from rlx_py.ir.graph.evaluate import evaluate
from rlx_py.ir.graph.graph import Graph
from rlx_py.ir.ops.making.constant import constant
from rlx_py.ir.ops.primitive.contract import CONTRACT
from rlx_py.ir.ops.primitive.cumulative import LINEAR_RECURRENCE
from rlx_py.ir.ops.primitive.index import GATHER, SCATTER_ADD, SCATTER_ADD_ALONG, TAKE_ALONG
from rlx_py.ir.ops.primitive.movement import PAD
from rlx_py.ir.ops.primitive.windows import FOLD, WINDOWS
from rlx_py.passes.derive.vjp import vjp
from support.laws import check_gradient, check_second_order, check_transpose, graph_of, named, value

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Case:
    """A function of nodes, the same in NumPy, and the shapes of its float inputs."""

    name: str
    ours: Callable[..., Any]
    numpy: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]

    def __str__(self) -> str:
        return self.name


def case(name: str, ours: Callable[..., Any], *shapes: tuple[int, ...],
         numpy: Callable[..., Any] | None = None) -> Case:
    """A case whose function runs on nodes with `rnp` and on arrays with `np` (as its first
    argument) unless NumPy's form is given."""
    if numpy is not None:
        return Case(name, ours, numpy, shapes)
    return Case(name, lambda *xs: ours(rnp, *xs), lambda *xs: ours(np, *xs), shapes)


def _fold_reference(w: Array, length: int, stride: int, dilation: int) -> Array:
    found = np.zeros((*w.shape[:-2], length))
    for o in range(w.shape[-2]):
        for k in range(w.shape[-1]):
            found[..., o * stride + k * dilation] += w[..., o, k]
    return found


def _windows_reference(x: Array, size: int, stride: int, dilation: int) -> Array:
    count = (x.shape[-1] - dilation * (size - 1) - 1) // stride + 1
    return np.stack([np.stack([x[..., o * stride + k * dilation] for k in range(size)], -1)
                     for o in range(count)], -2)


def _recurrence_reference(a: Array, b: Array, reverse: bool) -> Array:
    found, state = np.zeros_like(b), np.zeros_like(b[:, 0])
    for i in (range(b.shape[1])[::-1] if reverse else range(b.shape[1])):
        state = found[:, i] = a[:, i] * state + b[:, i]
    return found


IDX = np.array([[2, 0, 2], [1, 1, 2]])
MASK = np.array([[True, False, True], [False, True, True]])
ALONG = np.array([[2, 0, 1, 1, 0], [0, 0, 2, 2, 1]])

LINEAR = [
    case("reshape", lambda m, x: m.reshape(x, (4, -1)), (2, 3, 4)),
    case("reshape_empty", lambda m, x: m.reshape(x, (3, 0)), (0, 5)),
    case("reshape_scalar", lambda m, x: m.reshape(x, ()), (1, 1)),
    case("ravel", lambda m, x: m.ravel(x), (2, 3)),
    case("transpose", lambda m, x: m.transpose(x), (2, 3, 4)),
    case("transpose_axes", lambda m, x: m.transpose(x, (1, -1, 0)), (2, 3, 4)),
    case("swapaxes", lambda m, x: m.swapaxes(x, 0, -1), (2, 3, 4)),
    case("moveaxis", lambda m, x: m.moveaxis(x, (0, 3), (-1, 0)), (2, 3, 4, 5)),
    case("expand_dims", lambda m, x: m.expand_dims(x, (0, -1)), (2, 3)),
    case("squeeze", lambda m, x: m.squeeze(x), (1, 2, 1)),
    case("squeeze_axis", lambda m, x: m.squeeze(x, -1), (1, 2, 1)),
    case("broadcast_to", lambda m, x: m.broadcast_to(x, (5, 2, 3, 4)), (2, 1, 4)),
    case("concatenate", lambda m, x, y: m.concatenate([x, y, x], 1), (2, 3), (2, 1)),
    case("concatenate_many", lambda m, x, y: m.concatenate([x, y, x, y, x[:, :0]], 1), (2, 3),
         (2, 1)),
    case("concatenate_flat", lambda m, x, y: m.concatenate([x, y], None), (2, 3), (2, 1)),
    case("concatenate_empty", lambda m, x, y: m.concatenate([x, y], 0), (0, 3), (2, 3)),
    case("concatenate_all_empty", lambda m, x, y: m.concatenate([x, y], 0), (0, 3), (0, 3)),
    case("concatenate_no_lines", lambda m, x, y: m.concatenate([x, y], 1), (0, 3), (0, 2)),
    case("stack", lambda m, x, y: m.stack([x, y], -1), (2, 3), (2, 3)),
    case("split", lambda m, x: m.split(x, 3, 1)[1], (2, 6)),
    case("split_at", lambda m, x: m.split(x, [1, -2], 1)[1], (2, 6)),
    case("array_split", lambda m, x: m.array_split(x, 4, 1)[0], (2, 6)),
    case("flip", lambda m, x: m.flip(x, (0, -1)), (2, 3, 4)),
    case("flip_all", lambda m, x: m.flip(x), (2, 3)),
    case("roll", lambda m, x: m.roll(x, -2, 1), (2, 5)),
    case("roll_flat", lambda m, x: m.roll(x, 3), (2, 5)),
    case("roll_several", lambda m, x: m.roll(x, (1, 7), (0, 1)), (2, 5)),
    case("tile", lambda m, x: m.tile(x, (2, 1, 3)), (2, 3)),
    case("repeat", lambda m, x: m.repeat(x, 3, 1), (2, 3)),
    case("repeat_flat", lambda m, x: m.repeat(x, 2), (2, 3)),
    case("repeat_each", lambda m, x: m.repeat(x, [2, 0, 3], 1), (2, 3)),
    case("pad", lambda m, x: m.pad(x, ((1, 2), (0, 3))), (2, 3)),
    case("pad_value", lambda m, x: m.pad(x, 1, constant_values=2.0), (2, 3)),
    case("pad_edge", lambda m, x: m.pad(x, 2, mode="edge"), (2, 3)),
    case("pad_reflect", lambda m, x: m.pad(x, ((0, 0), (2, 2)), mode="reflect"), (2, 3)),
    case("pad_wrap", lambda m, x: m.pad(x, 2, mode="wrap"), (2, 3)),
    case("sum", lambda m, x: m.sum(x), (2, 3)),
    case("sum_axes", lambda m, x: m.sum(x, (0, -1)), (2, 3, 4)),
    case("sum_keep", lambda m, x: m.sum(x, 1, keepdims=True), (2, 3, 4)),
    case("sum_empty", lambda m, x: m.sum(x, 1), (2, 0, 4)),
    case("sum_no_axes", lambda m, x: m.sum(x, ()), (2, 3)),
    case("mean", lambda m, x: m.mean(x, (0, 2), keepdims=True), (2, 3, 4)),
    case("cumsum", lambda m, x: m.cumsum(x, 0), (4, 3)),
    case("cumsum_flat", lambda m, x: m.cumsum(x), (4, 3)),
    case("cumsum_exclusive", lambda x: rnp.cumsum(x, 1, exclusive=True), (2, 4),
         numpy=lambda x: np.cumsum(x, 1) - x),
    case("cumsum_reverse", lambda x: rnp.cumsum(x, 1, reverse=True), (2, 4),
         numpy=lambda x: np.flip(np.cumsum(np.flip(x, 1), 1), 1)),
    case("cumsum_both", lambda x: rnp.cumsum(x, 1, exclusive=True, reverse=True), (2, 4),
         numpy=lambda x: np.flip(np.cumsum(np.flip(x, 1), 1), 1) - x),
    case("cumsum_empty", lambda m, x: m.cumsum(x, 1), (2, 0)),
    case("tril", lambda m, x: m.tril(x, 1), (2, 3, 4)),
    case("triu", lambda m, x: m.triu(x, -1), (4, 3)),
    case("diagonal", lambda m, x: m.diagonal(x, -1), (4, 3)),
    case("diagonal_axes", lambda m, x: m.diagonal(x, 1, 2, 0), (4, 3, 5)),
    case("diagonal_none", lambda m, x: m.diagonal(x, 7), (4, 3)),
    case("diag_matrix", lambda m, x: m.diag(x, 2), (4, 5)),
    case("diag_vector", lambda m, x: m.diag(x, -2), (3,)),
    case("diag_vector_up", lambda m, x: m.diag(x, 1), (3,)),
    case("trace", lambda m, x: m.trace(x, 1), (4, 5)),
    case("meshgrid", lambda m, x, y: m.meshgrid(x, y)[1], (3,), (4,)),
    case("meshgrid_ij", lambda m, x, y: m.meshgrid(x, y, indexing="ij")[0], (3,), (4,)),
    case("item", lambda m, x: x[1], (2, 3)),
    case("item_negative", lambda m, x: x[-1, -3], (2, 3)),
    case("slices", lambda m, x: x[:, 1:7:2, ::-1], (2, 7, 3)),
    case("slice_back", lambda m, x: x[8:1:-3], (10, 2)),
    case("slice_nothing", lambda m, x: x[5:2], (10, 2)),
    case("newaxis", lambda m, x: x[None, ..., None, 1], (2, 3, 4)),
    case("array", lambda m, x: x[:, IDX], (2, 3, 4)),
    case("array_negative", lambda m, x: x[np.array([-1, 0, -3])], (3, 4)),
    case("array_list", lambda m, x: x[[1, 0, 1]], (3, 4)),
    case("array_empty", lambda m, x: x[[]], (3, 4)),
    case("arrays", lambda m, x: x[:, [0, 2, 1], [[1], [3]]], (2, 3, 4)),
    case("arrays_apart", lambda m, x: x[[0, 1], :, [1, 3]], (2, 3, 4)),
    case("arrays_apart_new", lambda m, x: x[None, [0, 1], ::-1, [1, 3]], (2, 3, 4)),
    case("array_and_int", lambda m, x: x[1, :, [1, 3]], (2, 3, 4)),
    case("array_next_to_int", lambda m, x: x[:, 2, [1, 3], None], (2, 3, 4)),
    case("mask", lambda m, x: x[MASK], (2, 3, 4)),
    case("mask_axis", lambda m, x: x[:, MASK[0]], (2, 3)),
    case("mask_later", lambda m, x: x[..., MASK], (4, 2, 3)),
    case("take", lambda m, x: m.take(x, IDX, 1), (2, 3, 4)),
    case("take_flat", lambda m, x: m.take(x, [-1, 0]), (2, 3)),
    case("take_clip", lambda m, x: m.take(x, [7, -5], 0, mode="clip"), (3, 2)),
    case("take_wrap", lambda m, x: m.take(x, [7, -5], 0, mode="wrap"), (3, 2)),
    case("take_along", lambda m, x: m.take_along_axis(x, ALONG, 1), (2, 3)),
    case("take_along_broadcast", lambda m, x: m.take_along_axis(x, ALONG[:1], 1), (2, 3)),
    case("pad_interior", lambda x, v: PAD(x, v, low=(1, -1), high=(0, 2), interior=(2, 1)),
         (2, 3), (), numpy=lambda x, v: np.array([
             [v, v, v, v, v, v], [v, x[0, 1], v, x[0, 2], v, v], [v, v, v, v, v, v],
             [v, v, v, v, v, v], [v, x[1, 1], v, x[1, 2], v, v]])),
    case("pad_crop_all", lambda x, v: PAD(x, v, low=(-3,), high=(4,), interior=(0,)), (3,), (),
         numpy=lambda x, v: np.full(4, v)),
    case("windows", lambda x: WINDOWS(x, size=(3,), stride=(2,), dilation=(2,)), (2, 10),
         numpy=lambda x: _windows_reference(x, 3, 2, 2)),
    case("windows_2d", lambda x: WINDOWS(x, size=(2, 3), stride=(1, 2), dilation=(1, 1)), (2, 4, 5),
         numpy=lambda x: np.lib.stride_tricks.sliding_window_view(x, (2, 3), (1, 2))[:, :, ::2]),
    case("fold", lambda w: FOLD(w, shape=(11,), size=(3,), stride=(2,), dilation=(2,)), (2, 4, 3),
         numpy=lambda w: _fold_reference(w, 11, 2, 2)),
    case("fold_dense", lambda w: FOLD(w, shape=(6,), size=(3,), stride=(1,), dilation=(1,)),
         (4, 3), numpy=lambda w: _fold_reference(w, 6, 1, 1)),
    case("gather_fill", lambda x: GATHER(x, constant(np.array([3, -1, 1])), axis=1, mode="fill"),
         (2, 3), numpy=lambda x: np.stack([0 * x[:, 0], 0 * x[:, 0], x[:, 1]], 1)),
    case("take_along_fill",
         lambda x: TAKE_ALONG(x, constant(np.array([[3, 1], [-1, 2]])), axis=1, mode="fill"),
         (2, 3), numpy=lambda x: np.array([[0, x[0, 1]], [0, x[1, 2]]])),
    case("scatter_add", lambda x, u: SCATTER_ADD(x, constant(IDX), u, axis=1, mode="error"),
         (2, 3, 4), (2, 2, 3, 4), numpy=lambda x, u: x + np.stack([
             u[:, 0, 1], u[:, 1, 0] + u[:, 1, 1], u[:, 0, 0] + u[:, 0, 2] + u[:, 1, 2]], 1)),
    case("scatter_fill", lambda x, u: SCATTER_ADD(
        x, constant(np.array([5, 1, -2])), u, axis=0, mode="fill"), (3, 2), (3, 2),
        numpy=lambda x, u: x + np.stack([0 * u[0], u[1], 0 * u[0]])),
    case("scatter_clip", lambda x, u: SCATTER_ADD(
        x, constant(np.array([5, 1, -2])), u, axis=0, mode="clip"), (3, 2), (3, 2),
        numpy=lambda x, u: x + np.stack([u[2], u[1], u[0]])),
    case("scatter_set", lambda x, u: rnp.scatter_set(x, IDX, u, 1), (2, 3, 4), (2, 2, 3, 4),
         numpy=lambda x, u: np.stack([u[:, 0, 1], u[:, 1, 1], u[:, 1, 2]], 1)),
    case("scatter_set_fill", lambda x, u: rnp.scatter_set(x, [5, 1, -2], u, mode="fill"), (3, 2),
         (2,), numpy=lambda x, u: np.stack([x[0], u, x[2]])),
    case("scatter_along", lambda x, u: SCATTER_ADD_ALONG(
        x, constant(ALONG), u, axis=1, mode="clip"), (2, 3), (2, 5),
        numpy=lambda x, u: x + np.array([
            [u[0, 1] + u[0, 4], u[0, 2] + u[0, 3], u[0, 0]],
            [u[1, 0] + u[1, 1], u[1, 4], u[1, 2] + u[1, 3]]])),
]

PRODUCTS = [
    case("matmul", lambda m, a, b: m.matmul(a, b), (3, 4), (4, 5)),
    case("matmul_row", lambda m, a, b: m.matmul(a, b), (4,), (4, 5)),
    case("matmul_column", lambda m, a, b: m.matmul(a, b), (3, 4), (4,)),
    case("matmul_dot", lambda m, a, b: m.matmul(a, b), (4,), (4,)),
    case("matmul_batch", lambda m, a, b: m.matmul(a, b), (2, 3, 4), (2, 4, 5)),
    case("matmul_left", lambda m, a, b: m.matmul(a, b), (6, 2, 3, 4), (4, 5)),
    case("matmul_right", lambda m, a, b: m.matmul(a, b), (3, 4), (6, 2, 4, 5)),
    case("matmul_cross", lambda m, a, b: m.matmul(a, b), (6, 1, 3, 4), (2, 4, 5)),
    case("matmul_mixed", lambda m, a, b: m.matmul(a, b), (7, 1, 2, 3, 4), (7, 3, 1, 4, 5)),
    case("matmul_row_batch", lambda m, a, b: m.matmul(a, b), (4,), (2, 4, 5)),
    case("matmul_no_depth", lambda m, a, b: m.matmul(a, b), (3, 0), (0, 5)),
    case("matmul_no_rows", lambda m, a, b: m.matmul(a, b), (0, 4), (4, 5)),
    case("dot", lambda m, a, b: m.dot(a, b), (2, 3, 4), (5, 4, 6)),
    case("dot_scalar", lambda m, a, b: m.dot(a, b), (2, 3), ()),
    case("inner", lambda m, a, b: m.inner(a, b), (2, 3, 4), (5, 4)),
    case("vdot", lambda m, a, b: m.vdot(a, b), (2, 3), (3, 2)),
    case("outer", lambda m, a, b: m.outer(a, b), (2, 3), (4,)),
    case("tensordot", lambda m, a, b: m.tensordot(a, b), (2, 3, 4), (3, 4, 5)),
    case("tensordot_axes", lambda m, a, b: m.tensordot(a, b, ((2, 0), (0, -1))), (2, 3, 4),
         (4, 5, 2)),
    case("einsum", lambda m, a, b: m.einsum("ijk,kl->lji", a, b), (2, 3, 4), (4, 5)),
    case("einsum_implicit", lambda m, a, b: m.einsum("bik, bkj", a, b), (2, 3, 4), (2, 4, 5)),
    case("einsum_dots", lambda m, a, b: m.einsum("...ik,...kj->...ij", a, b), (6, 1, 3, 4),
         (2, 4, 5)),
    case("einsum_sum", lambda m, a, b: m.einsum("ij,kl->", a, b), (2, 3), (4, 5)),
    case("einsum_hadamard", lambda m, a, b: m.einsum("ij,ji->ij", a, b), (2, 3), (3, 2)),
    case("einsum_trace", lambda m, a: m.einsum("ii", a), (3, 3)),
    case("einsum_diagonal", lambda m, a: m.einsum("iji->ji", a), (3, 4, 3)),
    case("einsum_three", lambda m, a, b, c: m.einsum("ij,jk,kl->il", a, b, c), (2, 3), (3, 4),
         (4, 5)),
    case("einsum_outer", lambda m, a, b: m.einsum("i,...->i...", a, b), (2,), (3, 4)),
    case("contract", lambda a, b: CONTRACT(a, b, batch=((1,), (2,)), contract=((3, 0), (1, 3))),
         (2, 3, 4, 5), (6, 5, 3, 2), numpy=lambda a, b: np.einsum("abcd,edba->bce", a, b)),
]

NONLINEAR = [
    case("prod", lambda m, x: m.prod(x), (5,)),
    case("prod_axes", lambda m, x: m.prod(x, (0, 2), keepdims=True), (2, 3, 4)),
    case("prod_empty", lambda m, x: m.prod(x, 0), (0, 3)),
    case("max", lambda m, x: m.max(x), (2, 3)),
    case("max_axis", lambda m, x: m.max(x, 1, keepdims=True), (2, 3, 4)),
    case("min_axes", lambda m, x: m.min(x, (0, -1)), (2, 3, 4)),
    case("max_of_nothing", lambda m, x: m.max(x, 1), (0, 4)),
    case("var", lambda m, x: m.var(x, 1), (3, 4)),
    case("var_ddof", lambda m, x: m.var(x, (0, 2), ddof=1, keepdims=True), (3, 4, 2)),
    case("std", lambda m, x: m.std(x, -1), (3, 4)),
    case("std_ddof", lambda m, x: m.std(x, ddof=1), (3, 4)),
    case("norm", lambda x: rnp.norm(x), (2, 3), numpy=np.linalg.norm),
    case("norm_axis", lambda x: rnp.norm(x, axis=1), (2, 3),
         numpy=lambda x: np.linalg.norm(x, axis=1)),
    case("norm_1", lambda x: rnp.norm(x, 1, axis=1), (2, 3),
         numpy=lambda x: np.linalg.norm(x, 1, axis=1)),
    case("norm_3", lambda x: rnp.norm(x, 3, axis=0, keepdims=True), (2, 3),
         numpy=lambda x: np.linalg.norm(x, 3, axis=0, keepdims=True)),
    case("norm_inf", lambda x: rnp.norm(x, np.inf, axis=1), (2, 3),
         numpy=lambda x: np.linalg.norm(x, np.inf, axis=1)),
    case("norm_0", lambda x: rnp.norm(x, 0, axis=1), (2, 3),
         numpy=lambda x: np.linalg.norm(x, 0, axis=1)),
    case("logsumexp", lambda x: rnp.logsumexp(x, 1, keepdims=True), (2, 3, 4),
         numpy=lambda x: np.log(np.exp(x).sum(1, keepdims=True))),
    case("scatter_max", lambda x, u: rnp.scatter_max(x, [2, 0, 2], u, 0), (3, 2), (3, 2),
         numpy=lambda x, u: np.maximum(x, np.stack([u[1], x[1], np.maximum(u[0], u[2])]))),
    case("scatter_min", lambda x, u: rnp.scatter_min(x, [7, 0, -7], u, 0, "fill"), (3, 2), (3, 2),
         numpy=lambda x, u: np.minimum(x, np.stack([u[1], x[1], x[2]]))),
    case("cumprod", lambda m, x: m.cumprod(x, 1), (2, 5)),
    case("cumprod_flat", lambda m, x: m.cumprod(x), (2, 3)),
    case("cumprod_exclusive", lambda x: rnp.cumprod(x, 0, exclusive=True), (4, 2),
         numpy=lambda x: np.concatenate([np.ones((1, 2)), np.cumprod(x, 0)[:-1]])),
    case("cumprod_reverse", lambda x: rnp.cumprod(x, 1, reverse=True), (2, 4),
         numpy=lambda x: np.cumprod(x[:, ::-1], 1)[:, ::-1]),
    case("cumprod_both", lambda x: rnp.cumprod(x, 0, exclusive=True, reverse=True), (4, 2),
         numpy=lambda x: np.concatenate([np.cumprod(x[:0:-1], 0)[::-1], np.ones((1, 2))])),
    case("cumprod_empty", lambda m, x: m.cumprod(x, 1), (2, 0)),
    case("cummax", lambda x: rnp.cummax(x, 1), (2, 5),
         numpy=lambda x: np.maximum.accumulate(x, 1)),
    case("cummin_reverse", lambda x: rnp.cummin(x, 0, reverse=True), (5, 2),
         numpy=lambda x: np.minimum.accumulate(x[::-1], 0)[::-1]),
    case("cummax_empty", lambda x: rnp.cummax(x), (0,), numpy=lambda x: x),
    case("cumlogsumexp", lambda x: rnp.cumlogsumexp(x, 1), (2, 5),
         numpy=lambda x: np.logaddexp.accumulate(x, 1)),
    case("cumlogsumexp_reverse", lambda x: rnp.cumlogsumexp(x, 0, reverse=True), (5, 2),
         numpy=lambda x: np.logaddexp.accumulate(x[::-1], 0)[::-1]),
    case("recurrence", lambda a, b: LINEAR_RECURRENCE(a, b, axis=1, reverse=False), (2, 5), (2, 5),
         numpy=lambda a, b: _recurrence_reference(a, b, False)),
    case("recurrence_reverse", lambda a, b: LINEAR_RECURRENCE(a, b, axis=1, reverse=True), (2, 5),
         (2, 5), numpy=lambda a, b: _recurrence_reference(a, b, True)),
    case("recurrence_one", lambda a, b: LINEAR_RECURRENCE(a, b, axis=1, reverse=False), (2, 1),
         (2, 1), numpy=lambda a, b: b),
]

CASES = [*LINEAR, *PRODUCTS, *NONLINEAR]


def arrays_of(c: Case, rng: np.random.Generator) -> list[Array]:
    """Random f64 inputs, all elements apart from each other and from 0."""
    found = []
    for shape in c.shapes:
        size = int(np.prod(shape))
        grid = rng.permutation(size) + rng.uniform(0.2, 0.8, size)
        found.append(np.asarray((grid / max(size, 1) + 0.3) * rng.choice([-1, 1], size))
                     .reshape(shape))
    return found


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


@pytest.mark.parametrize("c", CASES, ids=str)
def test_value_is_numpys(c: Case, rng: np.random.Generator) -> None:
    arrays = arrays_of(c, rng)
    expected = np.asarray(c.numpy(*arrays))
    found = value(c.ours, *arrays)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("c", CASES, ids=str)
def test_vjp_is_the_transpose_of_jvp(c: Case, rng: np.random.Generator) -> None:
    check_transpose(c.ours, arrays_of(c, rng), rng)


@pytest.mark.parametrize("c", CASES, ids=str)
def test_gradient_is_the_central_difference(c: Case, rng: np.random.Generator) -> None:
    check_gradient(c.ours, arrays_of(c, rng), rng)


@pytest.mark.parametrize("c", [*PRODUCTS, *NONLINEAR, *LINEAR[::7]], ids=str)
def test_second_derivative_is_the_central_difference(c: Case, rng: np.random.Generator) -> None:
    check_second_order(c.ours, arrays_of(c, rng), rng)


# ---- element types ---------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
@pytest.mark.parametrize("c", LINEAR, ids=str)
def test_movement_keeps_every_type(c: Case, dtype: Any, rng: np.random.Generator) -> None:
    if dtype.kind == "bool" and c.name.startswith(("cumsum", "fold", "scatter", "sum", "mean",
                                                   "trace", "take_along", "gather", "pad")):
        pytest.skip("bool has no sum")
    if c.name == "mean" and not dtype.is_float:
        pytest.skip("a mean is a float")
    arrays = [np.round(a * 4).astype(np.float32).astype(dtype.numpy) if dtype.kind != "uint"
              else np.abs(np.round(a * 4)).astype(dtype.numpy) for a in arrays_of(c, rng)]
    found = value(c.ours, *arrays)
    assert found.dtype == dtype.numpy
    expected = np.asarray(c.numpy(*[a.astype(np.float64) for a in arrays]))
    np.testing.assert_allclose(found.astype(np.float64), expected.astype(
        dtype.numpy).astype(np.float64), rtol=1e-2)


def test_sum_keeps_its_type_and_bool_counts() -> None:
    assert value(rnp.sum, np.array([200, 100], np.uint8)) == 44  # wraps
    counted = value(rnp.sum, np.array([True, True, False]))
    assert counted.dtype == np.int64 and counted == 2


def test_narrow_sums_accumulate_in_f32() -> None:
    x = np.full(4096, 1.0, np.float16)
    assert value(rnp.sum, x) == 4096
    assert value(rnp.mean, np.full(4096, 60000.0, np.float16)) == 60000


def test_mean_of_integers_is_f32() -> None:
    found = value(rnp.mean, np.array([1, 2], np.int64))
    assert found.dtype == np.float32 and found == 1.5


def test_integer_contract_is_exact() -> None:
    a, b = np.array([[2**62, 3]], np.int64), np.array([[1], [5]], np.int64)
    assert value(rnp.matmul, a, b)[0, 0] == 2**62 + 15


# ---- edges -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["max", "min", "argmax", "argmin"])
def test_nan_wins_an_extreme(name: str) -> None:
    x = np.array([[1.0, np.nan, 3.0, np.nan], [np.inf, -np.inf, 0.0, -0.0]])
    np.testing.assert_array_equal(value(lambda n: getattr(rnp, name)(n, 1), x),
                                  getattr(np, name)(x, 1))


def test_positions_are_row_major_over_several_axes() -> None:
    x = np.array([[[1, 5], [2, 0]], [[5, 4], [3, 5]]])
    found = value(lambda n: rnp.argmax(n, (0, 2)), x)
    np.testing.assert_array_equal(found, [1, 3])
    assert value(lambda n: rnp.argmax(n, keepdims=True), x).shape == (1, 1, 1)


def test_extremes_of_bool() -> None:
    x = np.array([[True, False], [False, False]])
    for name in ("max", "min", "any", "all", "argmax"):
        np.testing.assert_array_equal(value(lambda n, f=name: getattr(rnp, f)(n, 1), x),
                                      getattr(np, name)(x, 1))


def test_any_and_all_over_nothing() -> None:
    x = np.zeros((0, 2))
    assert not value(rnp.any, x) and value(rnp.all, x)


@pytest.mark.parametrize("call", [
    lambda x: rnp.max(x, 1), lambda x: rnp.argmin(x, 1), lambda x: rnp.reshape(x, (0, -1)),
    lambda x: rnp.matmul(x, x), lambda x: rnp.split(x, 0, 0),
    lambda x: rnp.concatenate([x, rnp.zeros((2, 1), "f64")]), lambda x: rnp.squeeze(x, 0),
    lambda x: rnp.pad(x, ((1, 1), (0, 0), (2, 2)))])
def test_a_wrong_shape_is_refused(call: Any) -> None:
    x = Graph().input("x", (2, 0), "f64")
    with pytest.raises(ShapeError, match="test_structure.py"):
        call(x)


@pytest.mark.parametrize("call", [
    lambda x: x[3], lambda x: x[[0, -3]], lambda x: x[0, 0, 0, 0], lambda x: x[..., ...],
    lambda x: x[True], lambda x: x > 0 and x, lambda x: x[x > 0], lambda x: rnp.sum(x, 3),
    lambda x: rnp.sum(x, (0, 0)), lambda x: rnp.transpose(x, (0, 0, 1)),
    lambda x: rnp.take(x, 5, 0), lambda x: rnp.repeat(x, -1), lambda x: x[np.array([True] * 3)],
    lambda x: rnp.moveaxis(x, (0, 1), 0), lambda x: rnp.norm(x, 1, axis=(0, 1)),
    lambda x: rnp.arange(0, 1, 0), lambda x: rnp.einsum("ij", x),
    lambda x: rnp.einsum("ijk->il", x), lambda x: rnp.einsum("ijk->ii", x),
    lambda x: rnp.take(x[:0], [0], 0)])
def test_a_wrong_argument_is_refused(call: Any) -> None:
    x = Graph().input("x", (2, 3, 4))
    with pytest.raises(ArgumentError, match="test_structure.py"):
        call(x)


def test_positions_must_be_integers() -> None:
    x = Graph().input("x", (2, 3))
    with pytest.raises(DTypeError):
        rnp.take(x, np.array([0.5]))


def test_runtime_positions() -> None:
    x, idx = np.arange(12.0).reshape(3, 4), np.array([-1, 2, 0], np.int8)
    np.testing.assert_array_equal(value(lambda a, i: a[i], x, idx), x[idx])
    np.testing.assert_array_equal(value(lambda a, i: a[i, i], x, idx), x[idx, idx])
    np.testing.assert_array_equal(value(lambda a, i: a[:, i[0]], x, idx), x[:, -1])
    with pytest.raises(ArgumentError, match="out of range"):
        value(lambda a, i: a[i], x, np.array([3]))
    with pytest.raises(ArgumentError, match="out of range"):
        value(lambda a, i: a[i, i], x, np.array([1, 3]))  # flat 1·4 + 3 lies inside x


def test_take_on_unsigned_positions() -> None:
    x = np.arange(300.0)
    np.testing.assert_array_equal(value(rnp.take, x, np.array([255, 0], np.uint8)), [255, 0])


@pytest.mark.parametrize("args", [(5,), (2, 9, 3), (9, 2, -3), (5, 2), (0.0, 1.0, 0.3), (-2.5,)])
def test_arange(args: tuple[Any, ...]) -> None:
    np.testing.assert_allclose(value(lambda: rnp.arange(*args)), np.arange(*args), rtol=1e-6)


def test_creation() -> None:
    def check(ours: Any, expected: Array) -> None:
        np.testing.assert_array_equal(value(lambda: ours), expected)

    check(rnp.zeros((2, 3)), np.zeros((2, 3)))
    check(rnp.ones(3, "i32"), np.ones(3))
    check(rnp.full((2, 2), np.array([1.0, 2.0])), np.full((2, 2), [1.0, 2.0]))
    check(rnp.eye(3, 4, 1), np.eye(3, 4, 1))
    check(rnp.tri(3, 4, -1), np.tri(3, 4, -1))
    check(rnp.linspace(0, 1, 5), np.linspace(0, 1, 5))
    check(rnp.one_hot(np.array([[2, 5], [-1, 0]]), 3),
          np.array([[[0, 0, 1], [0, 0, 0]], [[0, 0, 0], [1, 0, 0]]]))
    assert rnp.zeros_like(rnp.ones(3, "i8")).dtype.name == "i8"


@pytest.mark.parametrize("dtype", [d for d in DTYPES.values() if d.is_float], ids=str)
@pytest.mark.parametrize("c", [*PRODUCTS, *NONLINEAR], ids=str)
def test_gradients_keep_every_float_type(c: Case, dtype: Any, rng: np.random.Generator) -> None:
    wide = arrays_of(c, rng)
    arrays = [a.astype(dtype.numpy) for a in wide]
    graph = graph_of(c.ours, arrays)
    assert graph.outputs["y"].dtype is dtype
    ct = np.ones(graph.outputs["y"].shape)
    found = evaluate(vjp(graph, list(graph.inputs)),
                     {**named(arrays), "ct_y": ct.astype(dtype.numpy)})
    exact = [a.astype(np.float64) for a in arrays]
    expected = evaluate(vjp(graph_of(c.ours, exact), list(graph.inputs)),
                        {**named(exact), "ct_y": ct})
    tolerance = {"f64": 1e-12, "f32": 1e-4, "f16": 0.03, "bf16": 0.2}[dtype.name]
    for name, array in found.items():
        assert array.dtype == dtype.numpy
        np.testing.assert_allclose(array.astype(np.float64), expected[name], rtol=tolerance,
                                   atol=tolerance)
