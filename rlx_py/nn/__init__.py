"""Layers and losses under their PyTorch functional names and argument order."""

from rlx_py.ir.ops.nn.activation.activation import (
    celu,
    elu,
    leaky_relu,
    logsigmoid,
    mish,
    relu,
    selu,
    silu,
    softplus,
    softsign,
    tanhshrink,
)
from rlx_py.ir.ops.nn.activation.gated import glu, prelu, silu_mul, swiglu
from rlx_py.ir.ops.nn.activation.gelu import gelu
from rlx_py.ir.ops.nn.activation.hard_activation import (
    hardshrink,
    hardsigmoid,
    hardswish,
    hardtanh,
    relu6,
    softshrink,
    threshold,
)
from rlx_py.ir.ops.nn.attention.attending import (
    attention,
    flash_attention,
    scaled_dot_product_attention,
)
from rlx_py.ir.ops.nn.attention.heads import bmm, bmm_nt, bmm_tn, merge_heads, split_heads
from rlx_py.ir.ops.nn.attention.masked_softmax import softmax_scaled_masked
from rlx_py.ir.ops.nn.attention.rope import rope
from rlx_py.ir.ops.nn.conv.conv import (
    conv1d,
    conv2d,
    conv3d,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
)
from rlx_py.ir.ops.nn.conv.patches import (
    col2im,
    fold,
    im2col,
    pixel_shuffle,
    pixel_unshuffle,
    unfold,
)
from rlx_py.ir.ops.nn.dense import embedding, linear
from rlx_py.ir.ops.nn.dropout import dropout, dropout1d, dropout2d, dropout3d
from rlx_py.ir.ops.nn.flow import (
    flow_euler_step,
    flow_linear_state,
    flow_linear_velocity,
    flow_masked_mse,
)
from rlx_py.ir.ops.nn.grid_sample import grid_sample
from rlx_py.ir.ops.nn.grouped import grouped_gemm_m, grouped_linear_m
from rlx_py.ir.ops.nn.loss.binary_loss import binary_cross_entropy, binary_cross_entropy_with_logits
from rlx_py.ir.ops.nn.loss.distance import cosine_similarity, normalize, pairwise_distance
from rlx_py.ir.ops.nn.loss.loss import (
    cross_entropy,
    mse_loss,
    softmax_cross_entropy,
)
from rlx_py.ir.ops.nn.loss.margin_loss import (
    cosine_embedding_loss,
    hinge_embedding_loss,
    hinge_loss,
    margin_ranking_loss,
    multi_margin_loss,
    multilabel_soft_margin_loss,
    soft_margin_loss,
    triplet_margin_loss,
    triplet_margin_with_distance_loss,
)
from rlx_py.ir.ops.nn.loss.policy_loss import (
    masked_cross_entropy,
    nll_loss,
    ppo_clipped_policy_loss,
)
from rlx_py.ir.ops.nn.loss.regression_loss import (
    gaussian_nll_loss,
    huber_loss,
    kl_div,
    l1_loss,
    poisson_nll_loss,
    smooth_l1_loss,
)
from rlx_py.ir.ops.nn.moe import ExpertPlan, expert_plan, moe_combine, moe_gather, moe_route_weights
from rlx_py.ir.ops.nn.norm.batch_norm import (
    batch_norm,
    batch_norm_statistics,
    batch_norm_with_state,
)
from rlx_py.ir.ops.nn.norm.channel_norm import channel_norm, group_norm, instance_norm, layer_norm2d
from rlx_py.ir.ops.nn.norm.gated_norm import rms_norm_gated
from rlx_py.ir.ops.nn.norm.norm import layer_norm, rms_norm
from rlx_py.ir.ops.nn.norm.softmax import log_softmax, softmax, softmin
from rlx_py.ir.ops.nn.pool.adaptive_pool import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_avg_pool3d,
    adaptive_max_pool1d,
    adaptive_max_pool1d_with_indices,
    adaptive_max_pool2d,
    adaptive_max_pool2d_with_indices,
    adaptive_max_pool3d,
    adaptive_max_pool3d_with_indices,
)
from rlx_py.ir.ops.nn.pool.average_pool import avg_pool1d, avg_pool2d, avg_pool3d
from rlx_py.ir.ops.nn.pool.pool import (
    max_pool1d,
    max_pool1d_with_indices,
    max_pool2d,
    max_pool2d_with_indices,
    max_pool3d,
    max_pool3d_with_indices,
)
from rlx_py.ir.ops.nn.pool.reduce_window import reduce_window
from rlx_py.ir.ops.nn.quant import fake_quantize, fake_quantize_lsq, quantize_scale
from rlx_py.ir.ops.nn.recurrent.layers import (
    gru,
    gru_cell,
    gru_scan,
    gru_step,
    lstm,
    lstm_cell,
    lstm_scan,
    lstm_step,
    rnn_scan,
    rnn_step,
    rnn_tanh,
    rnn_tanh_cell,
)
from rlx_py.ir.ops.nn.resample import interpolate, upsample
from rlx_py.ir.ops.nn.state_space.delta_net import gated_delta_net
from rlx_py.ir.ops.nn.state_space.mamba3 import Mamba3State
from rlx_py.ir.ops.nn.state_space.mamba3_inputs import Mamba3Inputs, mamba3_preprocess
from rlx_py.ir.ops.nn.state_space.mamba3_mimo import mamba3_mimo
from rlx_py.ir.ops.nn.state_space.mamba3_siso import mamba3_siso
from rlx_py.ir.ops.nn.state_space.ssm import mamba2_ssd, selective_scan
from rlx_py.ir.ops.numpy.pointwise import sigmoid, tanh

__all__ = [
    "ExpertPlan", "Mamba3Inputs", "Mamba3State", "adaptive_avg_pool1d", "adaptive_avg_pool2d",
    "adaptive_avg_pool3d", "adaptive_max_pool1d", "adaptive_max_pool1d_with_indices",
    "adaptive_max_pool2d", "adaptive_max_pool2d_with_indices", "adaptive_max_pool3d",
    "adaptive_max_pool3d_with_indices", "attention", "avg_pool1d", "avg_pool2d", "avg_pool3d",
    "batch_norm", "batch_norm_statistics", "batch_norm_with_state", "binary_cross_entropy",
    "binary_cross_entropy_with_logits", "bmm", "bmm_nt", "bmm_tn", "celu", "channel_norm", "col2im",
    "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
    "cosine_embedding_loss", "cosine_similarity", "cross_entropy", "dropout", "dropout1d",
    "dropout2d", "dropout3d", "elu", "embedding", "expert_plan", "fake_quantize",
    "fake_quantize_lsq", "flash_attention", "flow_euler_step", "flow_linear_state",
    "flow_linear_velocity", "flow_masked_mse", "fold", "gated_delta_net", "gaussian_nll_loss",
    "gelu", "glu", "grid_sample", "group_norm", "grouped_gemm_m", "grouped_linear_m", "gru",
    "gru_cell", "gru_scan", "gru_step", "hardshrink", "hardsigmoid", "hardswish", "hardtanh",
    "hinge_embedding_loss", "hinge_loss", "huber_loss", "im2col", "instance_norm", "interpolate",
    "kl_div", "l1_loss", "layer_norm", "layer_norm2d", "leaky_relu", "linear", "log_softmax",
    "logsigmoid", "lstm", "lstm_cell", "lstm_scan", "lstm_step", "mamba2_ssd", "mamba3_mimo",
    "mamba3_preprocess", "mamba3_siso", "margin_ranking_loss", "masked_cross_entropy", "max_pool1d",
    "max_pool1d_with_indices", "max_pool2d", "max_pool2d_with_indices", "max_pool3d",
    "max_pool3d_with_indices", "merge_heads", "mish", "moe_combine", "moe_gather",
    "moe_route_weights", "mse_loss", "multi_margin_loss", "multilabel_soft_margin_loss", "nll_loss",
    "normalize", "pairwise_distance", "pixel_shuffle", "pixel_unshuffle", "poisson_nll_loss",
    "ppo_clipped_policy_loss", "prelu", "quantize_scale", "reduce_window", "relu", "relu6",
    "rms_norm", "rms_norm_gated", "rnn_scan", "rnn_step", "rnn_tanh", "rnn_tanh_cell", "rope",
    "scaled_dot_product_attention", "selective_scan", "selu", "sigmoid", "silu", "silu_mul",
    "smooth_l1_loss", "soft_margin_loss", "softmax", "softmax_cross_entropy",
    "softmax_scaled_masked", "softmin", "softplus", "softshrink", "softsign", "split_heads",
    "swiglu", "tanh", "tanhshrink", "threshold", "triplet_margin_loss",
    "triplet_margin_with_distance_loss", "unfold", "upsample",
]
