"""Every op family; importing this fills the registry and the operators of Node."""

from rlx_py.ir.ops.control import batched, branch, checkpoint, custom, loops
from rlx_py.ir.ops.matrices import factor, linalg
from rlx_py.ir.ops.nn import dense, dropout, flow, grid_sample, grouped, moe, quant, resample
from rlx_py.ir.ops.nn.activation import activation, gated, gelu, hard_activation
from rlx_py.ir.ops.nn.attention import attending, heads, masked_softmax, rope
from rlx_py.ir.ops.nn.conv import conv, patches
from rlx_py.ir.ops.nn.loss import (
    binary_loss,
    distance,
    loss,
    margin_loss,
    policy_loss,
    regression_loss,
)
from rlx_py.ir.ops.nn.norm import batch_norm, channel_norm, gated_norm, norm, softmax
from rlx_py.ir.ops.nn.pool import adaptive_pool, average_pool, pool, reduce_window
from rlx_py.ir.ops.nn.recurrent import cells, layers
from rlx_py.ir.ops.nn.state_space import delta_net, mamba3_mimo, mamba3_siso, ssm
from rlx_py.ir.ops.numpy import (
    arrays,
    distributions,
    folding,
    fourier,
    pointwise,
    products,
    shaping,
    sorting,
)
from rlx_py.ir.ops.primitive import barrier, cumulative, index, order, random, special, windows

__all__ = [
    "activation",
    "adaptive_pool",
    "arrays",
    "attending",
    "average_pool",
    "barrier",
    "batch_norm",
    "batched",
    "binary_loss",
    "branch",
    "cells",
    "channel_norm",
    "checkpoint",
    "conv",
    "cumulative",
    "custom",
    "delta_net",
    "dense",
    "distance",
    "distributions",
    "dropout",
    "factor",
    "flow",
    "folding",
    "fourier",
    "gated",
    "gated_norm",
    "gelu",
    "grid_sample",
    "grouped",
    "hard_activation",
    "heads",
    "index",
    "layers",
    "linalg",
    "loops",
    "loss",
    "mamba3_mimo",
    "mamba3_siso",
    "margin_loss",
    "masked_softmax",
    "moe",
    "norm",
    "order",
    "patches",
    "pointwise",
    "policy_loss",
    "pool",
    "products",
    "quant",
    "random",
    "reduce_window",
    "regression_loss",
    "resample",
    "rope",
    "shaping",
    "softmax",
    "sorting",
    "special",
    "ssm",
    "windows",
]
