"""The rows of `benchmarks.ops`: one operation each, in rlx and in the systems that have it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np

import rlx_py as rlx
from benchmarks.loop_rows import loop_rows
from benchmarks.row import Row


def rows() -> Iterator[Row]:
    """Every row of the table."""
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> Any:
        return rng.standard_normal(shape, dtype=np.float32)

    yield from _convolutions(normal)
    yield from _sorts(rng)
    yield from _reductions(normal)
    yield from _normalizations(normal)
    yield from _movement(normal, rng)
    yield from loop_rows(normal)


def _convolutions(normal: Callable[..., Any]) -> Iterator[Row]:
    """S2, S3. NumPy has no convolution: its sides are sums over the taps, in the form it runs best.
    """
    x, w = normal(1, 128, 124, 124), normal(128, 1, 3, 3)

    def numpy_depthwise(n: ModuleType) -> Callable[..., Any]:
        def conv(x: Any, w: Any) -> Any:
            wide, total = n.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), n.zeros_like(x)
            for i, j in n.ndindex(3, 3):
                total += wide[:, :, i:i + 124, j:j + 124] * w[:, 0, i, j, None, None]
            return total
        return conv

    def numpy_depthwise_weight(n: ModuleType) -> Callable[..., Any]:
        def gradient(x: Any, w: Any, ct: Any) -> Any:
            wide, total = n.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), n.zeros_like(w)
            for i, j in n.ndindex(3, 3):
                total[:, 0, i, j] = n.einsum("nchw,nchw->c", wide[:, :, i:i + 124, j:j + 124], ct)
            return total
        return gradient

    def numpy_transposed(n: ModuleType) -> Callable[..., Any]:
        def conv(x: Any, w: Any) -> Any:
            total = n.zeros((8, 32, 4 * 999 + 8), n.float32)
            for k in range(8):
                total[:, :, k:k + 4000:4] += w[:, :, k].T @ x
            return total
        return conv

    yield Row(
        "depthwise conv", {"x": x, "w": w},
        lambda x, w: rlx.nn.conv2d(x, w, padding=1, groups=128),
        numpy_depthwise,
        lambda t: lambda x, w: t.conv2d(x, w, padding=1, groups=128),
        lambda j: lambda x, w: j.lax.conv_general_dilated(
            x, w, (1, 1), ((1, 1), (1, 1)), feature_group_count=128),
    )
    yield Row(
        "depthwise conv dW", {"x": x, "w": w, "ct_out": normal(*x.shape)},
        lambda x, w: rlx.nn.conv2d(x, w, padding=1, groups=128),
        numpy_depthwise_weight,
        lambda t: lambda x, w, ct: t.nn.grad.conv2d_weight(x, w.shape, ct, padding=1, groups=128),
        lambda j: lambda x, w, ct: j.vjp(lambda w: j.lax.conv_general_dilated(
            x, w, (1, 1), ((1, 1), (1, 1)), feature_group_count=128), w)[1](ct)[0],
        wrt=("w",),
    )
    yield Row(
        "transposed conv", {"x": normal(8, 32, 1000), "w": normal(32, 32, 8)},
        lambda x, w: rlx.nn.conv_transpose1d(x, w, stride=4),
        numpy_transposed,
        lambda t: lambda x, w: t.conv_transpose1d(x, w, stride=4),
        lambda j: lambda x, w: j.lax.conv_general_dilated(
            x, j.numpy.flip(w, 2), (1,), ((7, 7),), lhs_dilation=(4,),
            dimension_numbers=("NCH", "IOH", "NCH")),
    )
    yield from _large_kernel(normal(1, 1, 300, 300), normal(1, 1, 300, 300))


def _large_kernel(x: Any, w: Any) -> Iterator[Row]:
    """S4, as a convolution and by Fourier transforms, in each system by its own."""

    def numpy_conv(n: ModuleType) -> Callable[..., Any]:
        def conv(x: Any, w: Any) -> Any:
            wide, total = n.pad(x[0, 0], (149, 150)), n.zeros((300, 300), n.float32)
            band = n.zeros((599, 300), n.float32)
            diagonals = n.lib.stride_tricks.as_strided(
                band, (300, 300), (band.strides[0] + band.strides[1], band.strides[0]))
            for k in range(300):
                diagonals[:] = w[0, 0, k]
                total += wide[k:k + 300] @ band
            return total[None, None]
        return conv

    yield Row(
        "large kernel conv", {"x": x, "w": w},
        lambda x, w: rlx.nn.conv2d(x, w, padding="same"),
        numpy_conv,
        lambda t: lambda x, w: t.conv2d(t.nn.functional.pad(x, (149, 150, 149, 150)), w),
        lambda j: lambda x, w: j.lax.conv_general_dilated(
            x, w, (1, 1), ((149, 150), (149, 150))),
    )

    def rlx_transforms(x: Any, w: Any) -> Any:
        def spectrum(x: Any) -> Any:
            pairs = rlx.fft.rfft(rlx.pad(x, ((0, 0), (0, 0), (0, 300), (0, 300))))
            return rlx.fft.fft(*pairs, axis=2)

        (a, b), (c, d) = spectrum(x), spectrum(w)
        pairs = rlx.fft.ifft(a * c + b * d, b * c - a * d, axis=2)
        return rlx.roll(rlx.fft.irfft(*pairs), (149, 149), (2, 3))[:, :, :300, :300]

    def transforms(fft: Any, roll: Callable[..., Any]) -> Callable[..., Any]:
        def conv(x: Any, w: Any) -> Any:
            size = (600, 600)
            product = fft.rfft2(x, size) * fft.rfft2(w, size).conj()
            return roll(fft.irfft2(product, size), (149, 149), (2, 3))[:, :, :300, :300]
        return conv

    yield Row("the same by FFT", {"x": x, "w": w}, rlx_transforms,
              lambda n: transforms(n.fft, n.roll), lambda t: transforms(t.fft, t.roll),
              lambda j: transforms(j.numpy.fft, j.numpy.roll))


def _sorts(rng: np.random.Generator) -> Iterator[Row]:
    # Distinct values: then every order that sorts them is the same.
    x = rng.permutation(np.linspace(-4, 4, 1_000_000)).astype(np.float32)
    yield Row("sort", {"x": x}, rlx.sort, lambda n: n.sort, lambda t: lambda x: t.sort(x).values,
              lambda j: j.numpy.sort)
    yield Row("argsort", {"x": x}, rlx.argsort, lambda n: n.argsort, lambda t: t.argsort,
              lambda j: j.numpy.argsort)


def _reductions(normal: Callable[..., Any]) -> Iterator[Row]:
    cube = normal(128, 128, 128)
    yield from (_sum(cube, f"sum 128^3 axis {axis}", axis) for axis in (0, 1, 2))
    flat = normal(4_000_000)
    yield Row("sum 4e6", {"x": flat}, rlx.sum, lambda n: n.sum, lambda t: t.sum,
              lambda j: j.numpy.sum)
    yield _sum(normal(16384, 64), "column sum 16384x64", 0)
    yield Row("cumsum 1e6", {"x": normal(1_000_000)}, lambda x: rlx.cumsum(x, axis=0),
              lambda n: n.cumsum, lambda t: lambda x: x.cumsum(0), lambda j: j.numpy.cumsum)

    def numpy_max_pool(n: ModuleType) -> Callable[..., Any]:
        def max_pool(x: Any) -> Any:
            wide = n.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-n.inf)
            total = wide[:, :, :56:2, :56:2]
            for i, j in ((i, j) for i in range(3) for j in range(3) if i or j):
                total = n.maximum(total, wide[:, :, i:i + 56:2, j:j + 56:2])
            return total
        return max_pool

    yield Row(
        "max-pool", {"x": normal(16, 64, 56, 56)}, lambda x: rlx.nn.max_pool2d(x, 3, 2, 1),
        numpy_max_pool,
        torch=lambda t: lambda x: t.nn.functional.max_pool2d(x, 3, 2, 1),
        jax=lambda j: lambda x: j.lax.reduce_window(
            x, -np.inf, j.lax.max, (1, 1, 3, 3), (1, 1, 2, 2),
            ((0, 0), (0, 0), (1, 1), (1, 1))),
    )


def _sum(x: Any, name: str, axis: int) -> Row:
    return Row(name, {"x": x}, lambda x: rlx.sum(x, axis=axis), lambda n: lambda x: x.sum(axis),
               lambda t: lambda x: x.sum(axis), lambda j: lambda x: x.sum(axis))


def _normalizations(normal: Callable[..., Any]) -> Iterator[Row]:
    x, ct, w, b = normal(4096, 512), normal(4096, 512), normal(512), normal(512)

    def numpy_softmax(n: ModuleType) -> Callable[..., Any]:
        def softmax(x: Any) -> Any:
            e = n.exp(x - x.max(-1, keepdims=True))
            return e / e.sum(-1, keepdims=True)
        return softmax

    def torch_gradients(t: ModuleType) -> Callable[..., Any]:
        def gradients(x: Any, w: Any, b: Any, ct: Any) -> Any:
            leaves = [v.detach().requires_grad_() for v in (x, w, b)]
            out = t.nn.functional.layer_norm(leaves[0], (512,), *leaves[1:])
            return t.autograd.grad(out, leaves, ct)
        return gradients

    def jax_layer_norm(j: ModuleType) -> Callable[..., Any]:
        def layer_norm(x: Any, w: Any, b: Any) -> Any:
            centred = x - x.mean(-1, keepdims=True)
            variance = (centred * centred).mean(-1, keepdims=True)
            return centred * j.lax.rsqrt(variance + 1e-5) * w + b
        return layer_norm

    yield Row("softmax 4096x512", {"x": x}, rlx.nn.softmax, numpy_softmax,
              lambda t: lambda x: t.softmax(x, -1), lambda j: j.nn.softmax)
    yield Row("layer_norm 4096x512", {"x": x, "w": w, "b": b},
              lambda x, w, b: rlx.nn.layer_norm(x, (512,), w, b),
              torch=lambda t: lambda x, w, b: t.nn.functional.layer_norm(x, (512,), w, b),
              jax=jax_layer_norm)
    yield Row("layer_norm gradients", {"x": x, "w": w, "b": b, "ct_out": ct},
              lambda x, w, b: rlx.nn.layer_norm(x, (512,), w, b), torch=torch_gradients,
              jax=lambda j: lambda x, w, b, ct: j.vjp(jax_layer_norm(j), x, w, b)[1](ct),
              wrt=("x", "w", "b"))


def _movement(normal: Callable[..., Any], rng: np.random.Generator) -> Iterator[Row]:
    yield Row("transpose 2048^2", {"x": normal(2048, 2048)}, lambda x: x.T,
              lambda n: lambda x: n.ascontiguousarray(x.T), lambda t: lambda x: x.T.contiguous(),
              lambda j: lambda x: x.T)
    yield Row("channels last", {"x": normal(16, 64, 56, 56)},
              lambda x: x.transpose(0, 2, 3, 1),
              lambda n: lambda x: n.ascontiguousarray(x.transpose(0, 2, 3, 1)),
              lambda t: lambda x: x.permute(0, 2, 3, 1).contiguous(),
              lambda j: lambda x: x.transpose(0, 2, 3, 1))

    def numpy_embedding(n: ModuleType) -> Callable[..., Any]:
        def gradient(i: Any, w: Any, ct: Any) -> Any:
            total = n.zeros_like(w)
            n.add.at(total, i, ct)
            return total
        return gradient

    def torch_embedding(t: ModuleType) -> Callable[..., Any]:
        return lambda i, w, ct: t.ops.aten.embedding_dense_backward(ct, i, w.shape[0], -1, False)

    tokens = rng.integers(0, 8192, 4096).astype(np.int32)
    yield Row("embedding gradient", {"i": tokens, "w": normal(8192, 256),
                                     "ct_out": normal(4096, 256)},
              rlx.nn.embedding, numpy_embedding, torch_embedding,
              lambda j: lambda i, w, ct: j.numpy.zeros_like(w).at[i].add(ct), wrt=("w",))
