"""Layers against JAX, and to the second order against PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from peers.peer import F64_F32, Row, check, jax, jnp, lax, normal, row
from peers.test_peers_nn import CASES, IMAGE, TIES
from rlx_py import nn


def second_order(name: str) -> Row:
    """A case of test_peers_nn with its Hessian-vector product."""
    ours, theirs, arrays = CASES[name]
    return row(name, lambda m, *x: ours(**dict(zip(arrays, x, strict=True))), *arrays.values(),
               torch=lambda *x: theirs(**dict(zip(arrays, x, strict=True))), jax=None,
               tolerance=100)


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize("case", [second_order(name) for name in CASES], ids=str)
def test_second_order_equals_pytorch(case: Row) -> None:
    check(case, np.float64)


# ---- JAX -------------------------------------------------------------------------------------

LABELS = np.array([0, 4, 2, 2, 1])
SPATIAL = {1: "NCH", 2: "NCHW", 3: "NCDHW"}


def conv(x: Any, w: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
    """JAX's general convolution in PyTorch's layout."""
    layout = SPATIAL[x.ndim - 2]
    return lax.conv_general_dilated(
        x, w, stride, padding, rhs_dilation=dilation, feature_group_count=groups,
        dimension_numbers=(layout, layout.replace("N", "O").replace("C", "I"), layout))


def transposed(x: Any, w: Any, stride: int, low: int, high: int) -> Any:
    """The transposed convolution as a convolution of what the stride spreads."""
    flipped = jnp.swapaxes(jnp.flip(w, (2, 3)), 0, 1)
    return lax.conv_general_dilated(x, flipped, (1, 1), [(low, high)] * 2,
                                    lhs_dilation=(stride, stride),
                                    dimension_numbers=("NCHW", "OIHW", "NCHW"))


def max_pool(x: Any) -> Any:
    """Windows of 3 by 2, stride 2 by 1, padding 1 by 0."""
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 3, 2), (1, 1, 2, 1),
                             [(0, 0), (0, 0), (1, 1), (0, 0)])


def by_jax(name: str, ours: Any, theirs: Any, *arrays: Any, order: int = 2) -> Row:
    """A layer that PyTorch is compared with elsewhere."""
    return row(name, lambda m, *x: ours(*x), *arrays, torch=None, jax=theirs, order=order,
               tolerance=10)


BY_JAX: list[Row] = [
    by_jax("relu", nn.relu, jax.nn.relu, TIES - 1),
    by_jax("leaky_relu", lambda x: nn.leaky_relu(x, 0.3), lambda x: jax.nn.leaky_relu(x, 0.3),
           normal(3, 4)),
    by_jax("gelu", nn.gelu, lambda x: jax.nn.gelu(x, approximate=False), 3 * IMAGE),
    by_jax("gelu_tanh", lambda x: nn.gelu(x, "tanh"), jax.nn.gelu, 3 * IMAGE),
    by_jax("silu", nn.silu, jax.nn.silu, 3 * IMAGE),
    by_jax("softplus", lambda x: nn.softplus(x, threshold=1e3), jax.nn.softplus, 20 * IMAGE),
    by_jax("softmax", nn.softmax, jax.nn.softmax, IMAGE),
    by_jax("softmax_channels", lambda x: nn.softmax(x, 1), lambda x: jax.nn.softmax(x, 1), IMAGE),
    by_jax("softmax_masked", nn.softmax, jax.nn.softmax,
           np.where(np.eye(4) > 0, -np.inf, normal(4, 4)), order=1),
    by_jax("log_softmax", lambda x: nn.log_softmax(x, -2), lambda x: jax.nn.log_softmax(x, -2),
           30 * IMAGE),
    by_jax("conv1d", lambda x, w: nn.conv1d(x, w, None, 2, 3, 2),
           lambda x, w: conv(x, w, (2,), [(3, 3)], (2,), 1), normal(3, 2, 11), normal(4, 2, 3)),
    by_jax("conv2d", lambda x, w: nn.conv2d(x, w, None, (2, 1), ((1, 0), (0, 2)), (1, 2), 2),
           lambda x, w: conv(x, w, (2, 1), [(1, 0), (0, 2)], (1, 2), 2), IMAGE,
           normal(6, 2, 3, 2)),
    by_jax("conv2d_depthwise", lambda x, w: nn.conv2d(x, w, None, 1, 1, 1, 4),
           lambda x, w: conv(x, w, (1, 1), [(1, 1)] * 2, (1, 1), 4), IMAGE, normal(8, 1, 3, 3)),
    by_jax("conv2d_same", lambda x, w: nn.conv2d(x, w, None, 1, "same"),
           lambda x, w: conv(x, w, (1, 1), "SAME", (1, 1), 1), IMAGE, normal(3, 4, 3, 2)),
    by_jax("conv3d", lambda x, w: nn.conv3d(x, w, None, 2, 1),
           lambda x, w: conv(x, w, (2, 2, 2), [(1, 1)] * 3, (1, 1, 1), 1),
           normal(1, 2, 4, 5, 3), normal(2, 2, 2, 3, 2)),
    by_jax("conv_transpose2d", lambda x, w: nn.conv_transpose2d(x, w, None, 2, 1, 1),
           lambda x, w: transposed(x, w, 2, 1, 2), IMAGE, normal(4, 3, 3, 3)),
    by_jax("max_pool2d", lambda x: nn.max_pool2d(x, (3, 2), (2, 1), (1, 0)), max_pool, TIES,
           order=1),
    by_jax("avg_pool2d", lambda x: nn.avg_pool2d(x, 2),
           lambda x: lax.reduce_window(x, 0.0, lax.add, (1, 1, 2, 2), (1, 1, 2, 2), "VALID") / 4,
           IMAGE, order=1),
    by_jax("layer_norm", lambda x, w, b: nn.layer_norm(x, 6, w, b), lambda x, w, b: w * (
        x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) + b,
        IMAGE, normal(6), normal(6, seed=1)),
    by_jax("rms_norm", lambda x, w: nn.rms_norm(x, 6, w, 1e-3), lambda x, w: w * x * lax.rsqrt(
        (x * x).mean(-1, keepdims=True) + 1e-3), IMAGE, normal(6)),
    by_jax("cross_entropy", lambda x: nn.softmax_cross_entropy(x, LABELS),
           lambda x: -jax.nn.log_softmax(x)[jnp.arange(5), LABELS], normal(5, 5)),
    by_jax("embedding", lambda w: nn.embedding(np.array([[3, 1, 1], [0, 4, 3]]), w),
           lambda w: w[jnp.array([[3, 1, 1], [0, 4, 3]])], normal(5, 2)),
]


@pytest.mark.parametrize("case", BY_JAX, ids=str)
@F64_F32
def test_values_and_gradients_equal_jax(case: Row, dtype: Any) -> None:
    check(case, dtype)
