"""Batch, group, instance and gated norms against PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from peers.peer import F64_F32, Function, Library, Row, check, normal, row, torch

IMAGE, LINE = normal(2, 6, 3, 4), normal(5, 4, 7)
W, B, MEAN, VAR = normal(6), normal(6, seed=1), normal(6, seed=2), np.abs(normal(6, seed=3)) + 0.1

FUNCTIONAL = Library(torch.nn.functional, stop_gradient=lambda x: x.detach())


def alike(name: str, f: Function, *arrays: Any) -> Row:
    """A row of which PyTorch's functional of the same name has the same arguments."""
    return row(name, f, *arrays, torch=lambda *x: f(FUNCTIONAL, *x), jax=None)


def gated(first: bool, group_size: int) -> Row:
    def by_torch(x: Any, z: Any, w: Any) -> Any:
        gate, scale = torch.nn.functional.silu(z), torch.nn.functional.rms_norm
        u = (x if first else x * gate).unflatten(-1, (-1, group_size))
        y = scale(u, (group_size,), eps=1e-5).flatten(-2) * w
        return y * gate if first else y

    return row(f"rms_norm_gated_{first}_{group_size}",
               lambda m, x, z, w: m.rms_norm_gated(x, z, w, None, 1e-5, group_size, first),
               normal(2, 3, 8), normal(2, 3, 8, seed=1), normal(8), torch=by_torch, jax=None)


NORMS = [
    alike("group_norm", lambda m, x, w, b: m.group_norm(x, 3, w, b), IMAGE, W, B),
    alike("group_norm_plain", lambda m, x: m.group_norm(x, 2, eps=0.1), LINE),
    alike("instance_norm", lambda m, x, w, b: m.instance_norm(x, None, None, w, b), IMAGE, W, B),
    alike("instance_norm_given", lambda m, x, mean, var: m.instance_norm(
        x, m.stop_gradient(mean), m.stop_gradient(var), use_input_stats=False), IMAGE, MEAN, VAR),
    alike("batch_norm_train", lambda m, x, w, b: m.batch_norm(x, None, None, w, b, True),
          IMAGE, W, B),
    alike("batch_norm_rows", lambda m, x: m.batch_norm(x, None, None, training=True, eps=0.2),
          normal(7, 3)),
    alike("batch_norm_eval", lambda m, x, mean, var, w, b: m.batch_norm(
        x, m.stop_gradient(mean), m.stop_gradient(var), w, b), IMAGE, MEAN, VAR, W, B),
    row("layer_norm2d", lambda m, x, w, b: m.layer_norm2d(x, w, b), IMAGE, W, B, jax=None,
        torch=lambda x, w, b: torch.nn.functional.layer_norm(
            x.movedim(1, -1), (6,), w, b, 1e-6).movedim(-1, 1)),
    row("channel_norm_relu", lambda m, x: m.channel_norm(x, relu=True), LINE, jax=None,
        torch=lambda x: torch.relu(torch.nn.functional.layer_norm(
            x.movedim(1, -1), (4,)).movedim(-1, 1))),
    *(gated(first, size) for first in (True, False) for size in (8, 2)),
]


@pytest.mark.parametrize("case", NORMS, ids=str)
@F64_F32
def test_norms_equal_pytorch(case: Row, dtype: Any) -> None:
    check(case, dtype)


def statistics(k: int) -> Row:
    """PyTorch changes its buffers in place; here they are values without gradient."""
    def by_torch(x: Any, mean: Any, var: Any) -> Any:
        buffers = mean.detach().clone(), var.detach().clone()
        torch.nn.functional.batch_norm(x, *buffers, training=True, momentum=0.3)
        return buffers[k]

    return row(f"statistics_{k}", lambda m, *x: m.batch_norm_statistics(*x, 0.3)[k], IMAGE, MEAN,
               VAR, torch=by_torch, jax=None, order=1)


@pytest.mark.parametrize("k", [0, 1])
@F64_F32
def test_running_statistics_equal_pytorch(k: int, dtype: Any) -> None:
    check(statistics(k), dtype)
