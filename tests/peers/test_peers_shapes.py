"""Creation, movement, indexing and scattering against PyTorch and JAX."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from peers.peer import (
    F64_F32,
    RLX,
    Convention,
    Function,
    Row,
    call,
    check,
    check_convention,
    convention,
    normal,
    public,
    row,
    torch,
)
from peers.test_peers_lines import ROWS as COMPOSED
from peers.test_peers_pointwise import ONE, OPERATORS, TWO
from peers.test_peers_reductions import PRODUCTS, REDUCTIONS, RUNNING
from rlx_py.ir.ops.numpy import arrays as array_functions
from rlx_py.ir.ops.numpy import pointwise

F = torch.nn.functional
X = normal(2, 3, 4)
SQUARE = normal(3, 3)
COLUMN = normal(3, 1)
EMPTY = np.zeros((2, 0, 3))

# ---- creation ------------------------------------------------------------------------------------


def made(name: str, ours: Function, numpy: Function) -> Row:
    """An array of no inputs."""
    return row(name, lambda m: ours(m), torch=lambda: torch.tensor(numpy(np)), jax=None)


F32 = np.float32
CREATION: list[Row] = [
    made("zeros", lambda m: m.zeros((2, 0, 3)), lambda m: m.zeros((2, 0, 3), F32)),
    made("ones", lambda m: m.ones(3, "int32"), lambda m: m.ones(3, m.int32)),
    made("full", lambda m: m.full((2, 2), 2.5, "float32"), lambda m: m.full((2, 2), 2.5, F32)),
    made("full_row", lambda m: m.full((2, 3), [1, 2, 3]), lambda m: m.full((2, 3), [1, 2, 3])),
    made("arange", lambda m: m.arange(5), lambda m: m.arange(5)),
    made("arange_down", lambda m: m.arange(7, -4, -3), lambda m: m.arange(7, -4, -3)),
    made("arange_none", lambda m: m.arange(3, 3), lambda m: m.arange(3, 3)),
    made("arange_float", lambda m: m.arange(0.5, 3, 0.75), lambda m: m.arange(0.5, 3, 0.75, F32)),
    made("linspace", lambda m: m.linspace(-1, 2, 7), lambda m: m.linspace(-1, 2, 7, dtype=F32)),
    made("linspace_open", lambda m: m.linspace(0, 1, 3, False),
         lambda m: m.linspace(0, 1, 3, False, dtype=F32)),
    made("eye", lambda m: m.eye(3, 4, 1), lambda m: m.eye(3, 4, 1, F32)),
    made("tri", lambda m: m.tri(3, 4, -1), lambda m: m.tri(3, 4, -1, F32)),
    made("one_hot", lambda m: m.one_hot([[2, 0], [1, 1]], 3),
         lambda m: m.eye(3, dtype=F32)[[[2, 0], [1, 1]]]),
    row("one_hot_of_input", lambda m, i: m.one_hot(i, 4), np.array([[0, 3], [1, 1]]),
        torch=lambda i: F.one_hot(i, 4).float(), jax=None),
    row("zeros_like", lambda m, x: m.zeros_like(x) + x * 0, X),
    row("ones_like", lambda m, x: m.ones_like(x) * x, X),
    row("full_like", lambda m, x: m.full_like(x, 2.5) * x, X),
    *(row(f"tril_{k}", lambda m, x, k=k: m.tril(x, k), normal(2, 3, 4)) for k in (-1, 0, 2)),
    *(row(f"triu_{k}", lambda m, x, k=k: m.triu(x, k), normal(3, 3)) for k in (-1, 0, 2)),
    row("meshgrid_xy", lambda m, x, y: m.stack(m.meshgrid(x, y, indexing="xy")), normal(3),
        normal(2)),
    row("meshgrid_ij", lambda m, x, y: m.stack(m.meshgrid(x, y, indexing="ij"), -1), normal(3),
        normal(2)),
]

# ---- movement --------------------------------------------------------------------------------

MOVEMENT: list[Row] = [
    row("reshape", lambda m, x: m.reshape(x, (4, -1)), X),
    row("reshape_empty", lambda m, x: m.reshape(x, (3, 0)), EMPTY),
    row("reshape_scalar", lambda m, x: m.reshape(x, (1, 1)), 2.5),
    row("ravel", call("ravel"), X),
    row("transpose", lambda m, x: m.transpose(x, (2, 0, 1)), X, torch=lambda x: x.permute(2, 0, 1)),
    row("transpose_negative", lambda m, x: m.transpose(x, (-1, 0, -2)), X,
        torch=lambda x: x.permute(-1, 0, -2)),
    row("transpose_all", call("transpose"), X, torch=lambda x: x.permute(2, 1, 0)),
    row("swapaxes", lambda m, x: m.swapaxes(x, -1, 0), X),
    row("moveaxis", lambda m, x: m.moveaxis(x, 0, -1), X),
    row("moveaxis_several", lambda m, x: m.moveaxis(x, (0, -1), (1, 0)), X),
    row("expand_dims", lambda m, x: m.expand_dims(x, -2), X),
    row("expand_dims_several", lambda m, x: m.expand_dims(x, (0, 3)), X, torch=lambda x:
        x[None].unsqueeze(3)),
    row("squeeze", call("squeeze"), normal(1, 3, 1)),
    row("squeeze_axis", lambda m, x: m.squeeze(x, -1), normal(1, 3, 1)),
    row("broadcast_to", lambda m, x: m.broadcast_to(x, (2, 3, 4)), COLUMN),
    row("broadcast_to_empty", lambda m, x: m.broadcast_to(x, (0, 3, 2)), COLUMN),
    row("concatenate", lambda m, x, y: m.concatenate([x, y, x], 1), normal(2, 3), normal(2, 1)),
    row("concatenate_empty", lambda m, x, y: m.concatenate([x, y], -2), EMPTY[:, :, :],
        normal(2, 2, 3)),
    row("concatenate_flat", lambda m, x, y: m.concatenate([x, y], None), X, SQUARE,
        torch=lambda x, y: torch.cat([x.reshape(-1), y.reshape(-1)])),
    *(row(f"stack_{axis}", lambda m, x, y, axis=axis: m.stack([x, y], axis), normal(2, 3),
          normal(2, 3, seed=1)) for axis in (0, 1, -1)),
    row("split", lambda m, x: m.split(x, 2, -1)[1] * 2 + m.split(x, 2, -1)[0], X,
        torch=lambda x: x[..., 2:] * 2 + x[..., :2]),
    row("split_at", lambda m, x: m.split(x, [1, 3], 2)[1], X, torch=lambda x: x[..., 1:3]),
    row("split_beyond", lambda m, x: m.split(x, [3, 2, 9], 2)[1], X, torch=lambda x: x[..., 3:2],
        jax=None),
    row("array_split", lambda m, x: m.array_split(x, 3, 2)[0], X,
        torch=lambda x: torch.tensor_split(x, 3, 2)[0]),
    *(row(f"flip_{axis}", lambda m, x, axis=axis: m.flip(x, axis), X,
          torch=lambda x, axis=axis: x.flip((0, 1, 2) if axis is None else axis))
      for axis in (None, 1, (0, -1))),
    *(row(f"roll_{shift}_{axis}".replace(" ", ""),
          lambda m, x, shift=shift, axis=axis: m.roll(x, shift, axis), X)
      for shift, axis in ((2, None), (-1, 1), (7, -1), ((1, -2), (0, 2)))),
    *(row(f"tile_{reps}".replace(" ", ""), lambda m, x, reps=reps: m.tile(x, reps), SQUARE)
      for reps in ((2,), (2, 3), (2, 1, 3))),
    row("repeat", lambda m, x: m.repeat(x, 2, 1), X),
    row("repeat_flat", lambda m, x: m.repeat(x, 3), SQUARE),
    row("repeat_each", lambda m, x: m.repeat(x, m.array([2, 0, 1]), 1), X),
    row("pad", lambda m, x: m.pad(x, ((1, 0), (2, 3))), SQUARE,
        torch=lambda x: F.pad(x, (2, 3, 1, 0))),
    row("pad_value", lambda m, x: m.pad(x, 1, constant_values=2.5), SQUARE,
        torch=lambda x: F.pad(x, (1, 1, 1, 1), value=2.5)),
    row("pad_edge", lambda m, x: m.pad(x, ((0, 0), (2, 1)), "edge"), SQUARE,
        torch=lambda x: F.pad(x, (2, 1), "replicate")),
    row("pad_reflect", lambda m, x: m.pad(x, ((0, 0), (2, 1)), "reflect"), SQUARE,
        torch=lambda x: F.pad(x, (2, 1), "reflect")),
    row("pad_wrap", lambda m, x: m.pad(x, ((0, 0), (2, 1)), "wrap"), SQUARE,
        torch=lambda x: F.pad(x, (2, 1), "circular")),
    row("pad_symmetric", lambda m, x: m.pad(x, (2, 1), "symmetric"), SQUARE, torch=None),
    row("pad_reflect_far", lambda m, x: m.pad(x, (5, 4), "reflect"), normal(3), torch=None),
]

# ---- indexing --------------------------------------------------------------------------------

KEYS: dict[str, Any] = {
    "int": 1, "negative": -1, "slice": np.s_[1:], "step": np.s_[..., ::2], "ints": np.s_[0, -1, 2],
    "empty": np.s_[:, 3:1], "new": np.s_[None, :, None, 1], "ellipsis": np.s_[..., 0],
    "beyond": np.s_[:, -9:99], "whole": (), "array": np.array([1, 0, 1]),
    "matrix": (slice(None), np.array([[0, 2], [2, 2]])),
    "paired": (np.array([0, 1, 1]), np.array([2, 2, 0])),
    "apart": (np.array([0, 1, 0]), slice(None), np.array([3, -1, 0])),
    "outer": (np.array([[0], [1]]), np.array([0, 2, 2])),
    "mask": np.array([True, False]),
    "mask_last": (Ellipsis, np.array([True, False, True, True])),
    "mask_2d": np.array([[True, False, True], [False, False, True]]),
    "negatives": (slice(None), np.array([-1, -3, -1])),
}
INDEX = np.array([[2, 0, 2, 1], [1, 1, 0, 2]])
LINES = np.array([[[0, 2, 1, 1], [2, 2, 0, 1]]])  # broadcasts along the first axis
OUTSIDE = np.array([0, 5, -2, 2])

INDEXING: list[Row] = [
    *(row(f"getitem_{k}", lambda m, x, key=key: x[key], X) for k, key in KEYS.items()),
    row("getitem_int_apart", lambda m, x: x[0, :, np.array([1, 1])], X, torch=None,
        note="the int counts as an array, as in NumPy: its axes come first"),
    row("getitem_backwards", lambda m, x: x[::-1, 2:0:-1, ::-2], X,
        torch=lambda x: x.flip(0)[:, [2, 1]][..., [3, 1]]),
    row("getitem_at_run_time", lambda m, x, i: x[:, i], X, INDEX - 3),
    row("getitem_two_at_run_time", lambda m, x, i, j: x[i, :, j], X, np.array([0, 1, -1]),
        np.array([3, 3, 0])),
    row("take", lambda m, x, i: m.take(x, i, 1), X, INDEX, torch=lambda x, i: x[:, i]),
    row("take_flat", lambda m, x, i: m.take(x, i), X, INDEX),
    row("take_negative_axis", lambda m, x, i: m.take(x, i, -1), X, np.array([3, 3, 0]),
        torch=lambda x, i: x[..., i]),
    row("take_none", lambda m, x, i: m.take(x, i, 0), X, np.zeros(0, np.int64),
        torch=lambda x, i: x[i]),
    row("take_clip", lambda m, x, i: m.take(x, i, 1, mode="clip"), X, OUTSIDE,
        torch=lambda x, i: x[:, i.clamp(0, 2)]),
    row("take_wrap", lambda m, x, i: m.take(x, i, 1, mode="wrap"), X, OUTSIDE,
        torch=lambda x, i: x[:, i % 3]),
    row("take_fill", lambda m, x, i: m.take(x, i, 1, mode="fill"), X, OUTSIDE,
        torch=lambda x, i: x[:, i.clamp(0, 2)] * ((i >= 0) & (i < 3))[:, None], jax=None,
        note="fill gives 0; JAX gives NaN and counts from the end first"),
    row("take_along_axis", lambda m, x, i: m.take_along_axis(x, i, 1), X,
        np.broadcast_to(LINES, (2, 2, 4))),
    row("take_along_axis_broadcast", lambda m, x, i: m.take_along_axis(x, i, 1), X, LINES),
    row("take_along_last", lambda m, x, i: m.take_along_axis(x, i, -1), SQUARE,
        np.array([[0, -1], [1, 1], [2, 0]]), torch=lambda x, i: torch.take_along_dim(x, i % 3, -1)),
    row("gather_of_argmax", lambda m, x: m.take_along_axis(x, m.argmax(x, 1, keepdims=True), 1), X),
]

UPDATES = normal(2, 2, 4, seed=4)
PLACES = np.array([2, 0])
TWICE = np.array([2, 2])

SCATTER: list[Row] = [
    row("scatter_add", lambda m, x, i, u: m.scatter_add(x, i, u, axis=1), X, TWICE, UPDATES,
        torch=lambda x, i, u: x.index_add(1, i, u), jax=lambda x, i, u: x.at[:, i].add(u)),
    row("scatter_add_first", lambda m, x, i, u: m.scatter_add(x, i, u), X, np.array([1, 0, 1]),
        normal(3, 3, 4), torch=lambda x, i, u: x.index_add(0, i, u),
        jax=lambda x, i, u: x.at[i].add(u)),
    row("scatter_add_broadcast", lambda m, x, i, u: m.scatter_add(x, i, u, axis=-1), X,
        np.array([[0, 3], [3, 3]]), 2.5,
        torch=lambda x, i, u: x.index_add(2, i.reshape(-1), u.expand(2, 3, 4)),
        jax=lambda x, i, u: x.at[:, :, i].add(u)),
    row("scatter_add_none", lambda m, x, i, u: m.scatter_add(x, i, u), X, np.zeros(0, np.int64),
        np.zeros((0, 3, 4)), torch=lambda x, i, u: x.index_add(0, i, u),
        jax=lambda x, i, u: x.at[i].add(u)),
    row("scatter_set", lambda m, x, i, u: m.scatter_set(x, i, u, axis=1), X, PLACES, UPDATES,
        torch=lambda x, i, u: x.index_copy(1, i, u), jax=lambda x, i, u: x.at[:, i].set(u)),
    row("scatter_max", lambda m, x, i, u: m.scatter_max(x, i, u, axis=1), X, TWICE, UPDATES,
        torch=lambda x, i, u: x.index_reduce(1, i, u, "amax"), jax=None, order=1),
    row("scatter_min", lambda m, x, i, u: m.scatter_min(x, i, u, axis=1), X, TWICE, UPDATES,
        torch=lambda x, i, u: x.index_reduce(1, i, u, "amin"), jax=None, order=1),
    row("scatter_max_ties", lambda m, x, i, u: m.scatter_max(x, i, u), [1.0, 2, 3],
        np.array([1, 1, 0]), [2.0, 2, 1], torch=lambda x, i, u: x.index_reduce(0, i, u, "amax"),
        jax=None, order=1),
    row("scatter_max_value", lambda m, x, i, u: m.scatter_max(x, i, u, axis=1), X, TWICE, UPDATES,
        torch=None, jax=lambda x, i, u: x.at[:, i].max(u), order=0),
]

# ---- deliberate differences ------------------------------------------------------------------

CONVENTIONS: list[Convention] = [
    convention("scatter_set_twice", lambda m, x, i, u: m.scatter_set(x, i, u), [1.0, 2, 3], [1, 1],
               [5.0, 7], value=[1, 7, 3], gradients=[[1, 0, 1], [0, 1]],
               note="the last duplicate stays; undefined in the peers"),
    convention("take_fill", lambda m, x, i: m.take(x, i, mode="fill"), [1.0, 2], [0, -1, 7],
               value=[1, 0, 0], gradients=[[1, 0]], note="OPS.md 1: a documented mode"),
    convention("one_hot_outside", lambda m, i: m.one_hot(i, 2), [-1, 1, 2],
               value=[[0, 0], [0, 1], [0, 0]], note="a row of zeros; PyTorch raises"),
]

TABLES = [CREATION, MOVEMENT, INDEXING, SCATTER]


@pytest.mark.filterwarnings("ignore:index_reduce\\(\\) is in beta:UserWarning")
@pytest.mark.parametrize("case", [r for table in TABLES for r in table], ids=str)
@F64_F32
def test_peers_agree(case: Row, dtype: Any) -> None:
    check(case, dtype)


@pytest.mark.parametrize("case", CONVENTIONS, ids=str)
@F64_F32
def test_conventions(case: Convention, dtype: Any) -> None:
    check_convention(case, dtype)


def test_every_public_function_has_a_row() -> None:
    rows = [*ONE, *TWO, *OPERATORS, *REDUCTIONS, *RUNNING, *PRODUCTS, *COMPOSED,
            *(r for table in TABLES for r in table)]
    for r in rows:
        r.f(RLX, *(array_functions.full(a.shape, a) for a in r.arrays))
    helpers = {"floating", "floats_together", "getitem", "truth"}  # getitem is x[key]
    assert (public(array_functions) | public(pointwise)) - RLX.used == helpers
