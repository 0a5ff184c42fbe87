"""The rows of `benchmarks.ops` that are loops: S1, S7, S9 and a recurrent layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import rlx_py as rlx
from benchmarks.row import Row


def loop_rows(normal: Callable[..., Any]) -> Iterator[Row]:
    """Loops as users write them in each system; PyTorch's are Python loops."""
    yield from _convolution(normal)
    yield from _scalar_steps(normal)
    yield from _recurrent(normal)
    yield from _fused(normal)


def _convolution(normal: Callable[..., Any]) -> Iterator[Row]:
    def jax_loop(j: ModuleType) -> Callable[..., Any]:
        def step(w: Any, x: Any) -> Any:
            dims = ("NCH", "OIH", "NCH")
            return j.lax.conv_general_dilated(x, w, (1,), ((1, 1),), dimension_numbers=dims)
        return lambda x, w: j.lax.scan(lambda c, _: (step(w, c), None), x, None, length=2)[0]

    yield Row(
        "conv1d in a loop of 2", {"x": normal(1, 256, 500), "w": normal(256, 256, 3) / 28},
        lambda x, w: rlx.scan(lambda c, _: (rlx.nn.conv1d(c, w, padding=1), None), x, length=2)[0],
        torch=lambda t: lambda x, w: t.conv1d(t.conv1d(x, w, padding=1), w, padding=1),
        jax=jax_loop)


def _scalar_steps(normal: Callable[..., Any]) -> Iterator[Row]:
    def body(c: Any, x: Any) -> tuple[Any, Any]:
        return 0.9 * c + x, c

    yield Row(
        "scan of 1e5 scalar steps", {"x": normal(100_000)},
        lambda x: rlx.scan(body, 0.0, x)[1],
        jax=lambda j: lambda x: j.lax.scan(body, j.numpy.float32(0), x)[1])


def _recurrent(normal: Callable[..., Any]) -> Iterator[Row]:
    arrays = {"x": normal(100, 32, 128), "w": normal(128, 128) / 12, "u": normal(128, 128) / 12}

    def layer(scan: Any, tanh: Any, zeros: Any) -> Callable[..., Any]:
        def outputs(x: Any, w: Any, u: Any) -> Any:
            def step(h: Any, x: Any) -> tuple[Any, Any]:
                h = tanh(x @ w + h @ u)
                return h, h
            return scan(step, zeros, x)[1]
        return outputs

    def torch_layer(t: ModuleType) -> Callable[..., Any]:
        def outputs(x: Any, w: Any, u: Any) -> Any:
            h, found = t.zeros(32, 128), []
            for slice in x @ w:
                h = t.tanh(slice + h @ u)
                found.append(h)
            return t.stack(found)
        return outputs

    def torch_gradients(t: ModuleType) -> Callable[..., Any]:
        def gradients(x: Any, w: Any, u: Any, ct: Any) -> Any:
            leaves = [v.detach().requires_grad_() for v in (x, w, u)]
            return t.autograd.grad(torch_layer(t)(*leaves), leaves, ct)
        return gradients

    def jax_layer(j: ModuleType) -> Callable[..., Any]:
        return layer(j.lax.scan, j.numpy.tanh, j.numpy.zeros((32, 128)))

    ours = layer(rlx.scan, rlx.tanh, rlx.zeros((32, 128)))
    yield Row("tanh layer, 100 steps", arrays, ours, torch=torch_layer, jax=jax_layer)
    yield Row("tanh layer gradients", {**arrays, "ct_out": normal(100, 32, 128)}, ours,
              torch=torch_gradients,
              jax=lambda j: lambda x, w, u, ct: j.vjp(jax_layer(j), x, w, u)[1](ct),
              wrt=("x", "w", "u"))


def _fused(normal: Callable[..., Any]) -> Iterator[Row]:
    """S9: what a step stores for its gradient is cheaper to compute again."""
    arrays = {"c": normal(500, 500), "x": normal(500, 500), "y": normal(100, 500, 500),
              "z": normal(500, 500), "ct_out": normal(500, 500)}

    def jax_loop(j: ModuleType) -> Callable[..., Any]:
        return lambda c, x, y, z: j.lax.scan(lambda c, y: (c + x * (y + z), None), c, y)[0]

    yield Row(
        "carry + x(y + z) gradients", arrays,
        lambda c, x, y, z: rlx.scan(lambda c, y: (c + x * (y + z), None), c, y)[0],
        jax=lambda j: lambda c, x, y, z, ct: j.vjp(jax_loop(j), c, x, y, z)[1](ct),
        wrt=("c", "x", "y", "z"))
