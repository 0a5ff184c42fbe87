"""Layers and losses against PyTorch: values, and gradients of a random combination of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rlx_py import nn
from rlx_py.ir.graph.evaluate import evaluate
from rlx_py.ir.graph.graph import Graph
from rlx_py.ir.nodes.node import Node
from rlx_py.passes.derive.vjp import vjp

torch = pytest.importorskip("torch")
F = torch.nn.functional
pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same'")

Array = np.ndarray[Any, Any]


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng([seed, *shape]).standard_normal(shape)


def probabilities(rows: int, classes: int) -> Array:
    p = np.abs(normal(rows, classes, seed=9))
    p[0, 0] = 0
    return np.asarray(p / p.sum(1, keepdims=True))


Case = tuple[Callable[..., Node], Callable[..., Any], dict[str, Array]]
IMAGE = normal(2, 4, 7, 6)
TIES = np.random.default_rng(3).integers(0, 3, (2, 3, 7, 8)).astype(np.float64)


def same(name: str, arrays: dict[str, Array], **options: Any) -> Case:
    """A function called alike in both libraries, by keyword."""
    ours, theirs = getattr(nn, name), getattr(F, name)
    return (lambda **x: ours(**x, **options)), (lambda **x: theirs(**x, **options)), arrays


def labelled(arrays: dict[str, Array], labels: Any, **options: Any) -> Case:
    target = np.asarray(labels)
    weight = options.pop("weight", None)
    return (
        lambda **x: nn.cross_entropy(**x, target=target, weight=weight, **options),
        lambda **x: F.cross_entropy(
            **x, target=torch.tensor(target),
            weight=None if weight is None else torch.tensor(weight).to(x["input"].dtype),
            **options),
        arrays)


def conv(name: str, x: Array, w: Array, bias: bool, **options: Any) -> Case:
    channels = w.shape[1] * options.get("groups", 1) if "transpose" in name else w.shape[0]
    arrays = {"input": x, "weight": w}
    if bias:
        arrays["bias"] = normal(channels, seed=4)
    return same(name, arrays, **options)


CASES: dict[str, Case] = {
    "relu": same("relu", {"input": TIES - 1}),
    "leaky_relu": same("leaky_relu", {"input": TIES - 1}, negative_slope=0.3),
    "gelu": same("gelu", {"input": 3 * IMAGE}),
    "gelu_tanh": same("gelu", {"input": 3 * IMAGE}, approximate="tanh"),
    "silu": same("silu", {"input": 3 * IMAGE}),
    "softplus": same("softplus", {"input": 20 * IMAGE}, beta=1.5, threshold=9.0),
    "softmax": same("softmax", {"input": IMAGE}, dim=-1),
    "softmax_channels": same("softmax", {"input": IMAGE}, dim=1),
    "log_softmax": same("log_softmax", {"input": IMAGE}, dim=2),
    "layer_norm": same("layer_norm", {"input": IMAGE, "weight": normal(7, 6), "bias": normal(7, 6)},
                       normalized_shape=(7, 6), eps=1e-3),
    "layer_norm_plain": same("layer_norm", {"input": IMAGE}, normalized_shape=(6,)),
    "rms_norm": same("rms_norm", {"input": IMAGE, "weight": normal(6)}, normalized_shape=(6,)),
    "linear": same("linear", {"input": IMAGE, "weight": normal(5, 6), "bias": normal(5)}),
    "conv1d": conv("conv1d", normal(3, 2, 11), normal(4, 2, 3), True, stride=2, padding=2),
    "conv1d_dilated": conv("conv1d", normal(3, 2, 11), normal(4, 2, 3), False, dilation=3,
                           stride=3, padding=1),
    "conv2d": conv("conv2d", IMAGE, normal(3, 4, 3, 2), True),
    "conv2d_same": conv("conv2d", IMAGE, normal(3, 4, 2, 4), True, padding="same", dilation=(2, 1)),
    "conv2d_strided": conv("conv2d", IMAGE, normal(3, 4, 3, 2), True, stride=(3, 2),
                           padding=(2, 1)),
    "conv2d_groups": conv("conv2d", IMAGE, normal(6, 2, 3, 3), True, groups=2, padding=1),
    "conv2d_depthwise": conv("conv2d", IMAGE, normal(8, 1, 3, 3), False, groups=4, stride=2,
                             padding=1, dilation=(1, 2)),
    "conv2d_pointwise": conv("conv2d", IMAGE, normal(5, 4, 1, 1), True, stride=(1, 2)),
    "conv3d": conv("conv3d", normal(2, 2, 4, 5, 3), normal(4, 1, 2, 3, 2), True, groups=2,
                   stride=(2, 1, 1), padding=1),
    "conv_transpose1d": conv("conv_transpose1d", normal(2, 4, 5), normal(4, 3, 4), True, stride=3,
                             padding=1, output_padding=2),
    "conv_transpose2d": conv("conv_transpose2d", IMAGE, normal(4, 3, 3, 2), True, stride=2,
                             padding=1, output_padding=1, groups=2),
    "conv_transpose2d_dilated": conv("conv_transpose2d", IMAGE, normal(4, 3, 3, 2), False,
                                     dilation=3, padding=(2, 0), output_padding=(2, 1)),
    "conv_transpose3d": conv("conv_transpose3d", normal(1, 2, 3, 2, 3), normal(2, 2, 2, 2, 3),
                             True, stride=(1, 2, 2)),
    "max_pool1d": same("max_pool1d", {"input": TIES[0]}, kernel_size=3, stride=2, padding=1),
    "max_pool2d": same("max_pool2d", {"input": TIES}, kernel_size=(2, 3)),
    "max_pool2d_overlap": same("max_pool2d", {"input": TIES}, kernel_size=3, stride=(1, 2),
                               padding=1, dilation=2),
    "max_pool2d_ceil": same("max_pool2d", {"input": TIES}, kernel_size=(3, 2), stride=2,
                            padding=(1, 0), ceil_mode=True),
    "max_pool2d_ceil_in_padding": same("max_pool2d", {"input": TIES}, kernel_size=2, stride=(4, 3),
                                       padding=1, ceil_mode=True),
    "max_pool3d": same("max_pool3d", {"input": TIES}, kernel_size=(2, 3, 2), stride=1),
    "avg_pool1d": same("avg_pool1d", {"input": IMAGE[0]}, kernel_size=3, stride=2, padding=1),
    "avg_pool2d": same("avg_pool2d", {"input": IMAGE}, kernel_size=(2, 3), padding=(1, 0)),
    "avg_pool2d_inside": same("avg_pool2d", {"input": IMAGE}, kernel_size=3, stride=2, padding=1,
                              count_include_pad=False),
    "avg_pool2d_ceil": same("avg_pool2d", {"input": IMAGE}, kernel_size=3, stride=2, padding=1,
                            ceil_mode=True),
    "avg_pool2d_ceil_inside": same("avg_pool2d", {"input": IMAGE}, kernel_size=(2, 4),
                                   stride=(2, 3), padding=(1, 2), ceil_mode=True,
                                   count_include_pad=False),
    "avg_pool2d_divisor": same("avg_pool2d", {"input": IMAGE}, kernel_size=2, divisor_override=5),
    "avg_pool3d": same("avg_pool3d", {"input": IMAGE}, kernel_size=(2, 3, 2), stride=2, padding=1),
    "cross_entropy": labelled({"input": normal(5, 5)}, [0, 4, 2, 2, 1]),
    "cross_entropy_smooth": labelled({"input": normal(4, 6)}, [0, 5, 2, 2], label_smoothing=0.3),
    "cross_entropy_ignore": labelled({"input": normal(4, 3)}, [0, 2, -100, 2], label_smoothing=0.1),
    "cross_entropy_weight": labelled({"input": normal(4, 3)}, [0, 2, 1, 2], ignore_index=1,
                                     weight=np.array([0.5, 3, 2]), label_smoothing=0.2),
    "cross_entropy_none": labelled({"input": normal(4, 3)}, [0, 2, 1, 2], reduction="none",
                                   weight=np.array([0.5, 3, 2]), ignore_index=0),
    "cross_entropy_image": labelled({"input": IMAGE}, np.arange(84).reshape(2, 7, 6) % 4,
                                    reduction="sum"),
    "cross_entropy_vector": labelled({"input": normal(4)}, 2),
    "cross_entropy_soft": labelled({"input": normal(4, 3)}, probabilities(4, 3),
                                   weight=np.array([0.5, 3, 2]), label_smoothing=0.2),
    "mse_loss": same("mse_loss", {"input": IMAGE, "target": IMAGE[::-1].copy()}),
    "mse_loss_sum": same("mse_loss", {"input": IMAGE, "target": IMAGE[::-1].copy()},
                         reduction="sum"),
    "binary_cross_entropy": (
        lambda x: nn.binary_cross_entropy(x, probabilities(3, 4)),
        lambda x: F.binary_cross_entropy(x, torch.tensor(probabilities(3, 4)).to(x.dtype)),
        {"x": probabilities(3, 4)[::-1] * 0.8 + 0.1}),
    "binary_cross_entropy_with_logits": (
        lambda x: nn.binary_cross_entropy_with_logits(x, probabilities(3, 4), pos_weight=2.5),
        lambda x: F.binary_cross_entropy_with_logits(
            x, torch.tensor(probabilities(3, 4)), pos_weight=torch.tensor(2.5)),
        {"x": 30 * normal(3, 4)}),
    "embedding": (
        lambda w: nn.embedding(np.array([[3, 1, 1], [0, 4, 3]]), w, 1),
        lambda w: F.embedding(torch.tensor([[3, 1, 1], [0, 4, 3]]), w, 1),
        {"w": normal(5, 2)}),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=["f64", "f32"])
def test_values_and_gradients_equal_pytorch(name: str, dtype: Any) -> None:
    ours, theirs, arrays = CASES[name]
    arrays = {k: np.ascontiguousarray(a, dtype) for k, a in arrays.items()}
    g = Graph()
    y = g.output("y", ours(**{k: g.input(k, a.shape, a.dtype) for k, a in arrays.items()}))
    ct = normal(*y.shape, seed=7).astype(y.dtype.numpy)
    tensors = {k: torch.tensor(a, requires_grad=True) for k, a in arrays.items()}
    expected = theirs(**tensors)
    rtol = 1e-10 if expected.dtype is torch.float64 and dtype is np.float64 else 2e-5

    def close(found: Array, wanted: Any, what: str) -> None:
        wanted = wanted.detach().numpy()
        assert found.shape == wanted.shape
        scale = float(np.max(np.abs(wanted), initial=1.0))
        np.testing.assert_allclose(found, wanted, rtol=rtol, atol=rtol * scale, err_msg=what)

    close(evaluate(g, arrays)["y"], expected, "value")
    expected.backward(torch.tensor(ct, dtype=expected.dtype))
    found = evaluate(vjp(g, list(arrays)), {**arrays, "ct_y": ct})
    for k, tensor in tensors.items():
        close(found[f"grad_{k}"], tensor.grad, f"gradient by {k}")
