"""Layers and losses under their PyTorch functional names and argument order."""

from rlx_py.ir.ops.activation import gelu, leaky_relu, relu, silu, softplus
from rlx_py.ir.ops.batch_norm import batch_norm, batch_norm_statistics, batch_norm_with_state
from rlx_py.ir.ops.channel_norm import channel_norm, group_norm, instance_norm, layer_norm2d
from rlx_py.ir.ops.conv import (
    conv1d,
    conv2d,
    conv3d,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
)
from rlx_py.ir.ops.dense import embedding, linear
from rlx_py.ir.ops.dropout import dropout, dropout1d, dropout2d, dropout3d
from rlx_py.ir.ops.gated_norm import rms_norm_gated
from rlx_py.ir.ops.loss import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    cross_entropy,
    mse_loss,
    softmax_cross_entropy,
)
from rlx_py.ir.ops.norm import layer_norm, rms_norm
from rlx_py.ir.ops.pointwise import sigmoid, tanh
from rlx_py.ir.ops.pool import (
    avg_pool1d,
    avg_pool2d,
    avg_pool3d,
    max_pool1d,
    max_pool2d,
    max_pool3d,
)
from rlx_py.ir.ops.softmax import log_softmax, softmax

__all__ = [
    "avg_pool1d", "avg_pool2d", "avg_pool3d", "batch_norm", "batch_norm_statistics",
    "batch_norm_with_state", "binary_cross_entropy", "binary_cross_entropy_with_logits",
    "channel_norm", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d",
    "conv_transpose3d", "cross_entropy", "dropout", "dropout1d", "dropout2d", "dropout3d",
    "embedding", "gelu", "group_norm", "instance_norm", "layer_norm", "layer_norm2d", "leaky_relu",
    "linear", "log_softmax", "max_pool1d", "max_pool2d", "max_pool3d", "mse_loss", "relu",
    "rms_norm", "rms_norm_gated", "sigmoid", "silu", "softmax", "softmax_cross_entropy", "softplus",
    "tanh",
]
