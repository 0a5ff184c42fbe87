"""One function in three libraries: its value, gradient and Hessian-vector product."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from rlx_py import nn
from rlx_py.compiling import compile
from rlx_py.ir.graph.evaluate import evaluate
from rlx_py.ir.graph.graph import Graph
from rlx_py.ir.nodes.node import Node
from rlx_py.ir.ops.numpy import arrays as array_functions
from rlx_py.ir.ops.numpy import pointwise
from rlx_py.passes.derive.jvp import hvp
from rlx_py.passes.derive.vjp import value_and_grad

# A comparison runs each of JAX's operations once, so optimising them costs more than it saves.
os.environ.setdefault(
    "XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true")
torch = pytest.importorskip("torch", reason="comparisons need PyTorch")
jax = pytest.importorskip("jax", reason="comparisons need JAX")
jax.config.update("jax_enable_x64", True)
jnp, lax, scipy_special = jax.numpy, jax.lax, jax.scipy.special

Array = np.ndarray[Any, Any]
Function = Callable[..., Any]


F64_F32 = pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=["f64", "f32"])


class Library:
    """Functions under NumPy's names: those given, else the first found in the modules."""

    def __init__(self, *modules: Any, **given: Any) -> None:
        self._modules, self._given = modules, given
        self.used: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        self.used.add(name)
        if name in self._given:
            return self._given[name]
        for module in self._modules:
            if hasattr(module, name):
                return getattr(module, name)
        raise AttributeError(name)


def public(module: ModuleType) -> set[str]:
    """The names that a module exports."""
    return set(module.__all__)


RLX = Library(array_functions, pointwise, nn, array=np.asarray)
TORCH = Library(
    torch, torch.special, torch.linalg, torch.nn.functional,
    array=torch.tensor, arctan2=torch.atan2, astype=lambda x, t: x.to(getattr(torch, t)),
    equal=torch.eq, expand_dims=torch.unsqueeze, fma=lambda x, y, z: x * y + z,
    invert=torch.bitwise_not, left_shift=torch.bitwise_left_shift, logistic=torch.sigmoid,
    max=torch.amax, min=torch.amin, mod=torch.remainder, power=torch.pow,
    repeat=torch.repeat_interleave, right_shift=torch.bitwise_right_shift, rint=torch.round,
    stop_gradient=lambda x: x.detach(), take_along_axis=torch.take_along_dim)
JAX = Library(
    jnp, jax.nn, scipy_special, lax, array=jnp.asarray, astype=lambda x, t: x.astype(t),
    fma=lambda x, y, z: x * y + z, lgamma=scipy_special.gammaln, norm=jnp.linalg.norm)


@dataclass(frozen=True)
class Row:
    """One comparison: `f(library, *arrays)`; torch and jax replace it there, None where the peer
    lacks the function or means something else, as the note says. order: of the highest derivative.
    """

    name: str
    f: Function
    arrays: tuple[Array, ...]
    torch: Function | None
    jax: Function | None
    order: int
    tolerance: float
    note: str

    def __str__(self) -> str:
        return self.name


def row(name: str, f: Function, *arrays: Any, torch: Any = True, jax: Any = True, order: int = 2,
        tolerance: float = 1.0, note: str = "") -> Row:
    """A row whose peers call f alike unless given a function (of arrays alone) or None."""
    return Row(name, f, tuple(np.asarray(a) for a in arrays),
               (lambda *x: f(TORCH, *x)) if torch is True else torch,
               (lambda *x: f(JAX, *x)) if jax is True else jax, order, tolerance, note)


def call(name: str) -> Function:
    """The library's function of this name."""
    return lambda m, *x, **options: getattr(m, name)(*x, **options)


def calls(names: str) -> list[tuple[str, Function]]:
    """Functions by name."""
    return [(name, call(name)) for name in names.split()]


@dataclass(frozen=True)
class Found:
    """A value, and by each float array its gradient and Hessian-vector product."""

    value: Array
    gradients: Sequence[Array] = ()
    products: Sequence[Array] = ()


def normal(*shape: int, seed: int = 0) -> Array:
    """Standard normal numbers, the same for the same shape and seed."""
    return np.random.default_rng([seed, *shape]).standard_normal(shape)


def typed(arrays: Sequence[Array], dtype: Any) -> list[Array]:
    """Floats in one type; integers and bools as they are."""
    return [np.ascontiguousarray(a, dtype if a.dtype.kind == "f" else a.dtype).reshape(a.shape)
            for a in arrays]


def floats(arrays: Sequence[Array]) -> list[int]:
    """The places of the arrays that have a gradient."""
    return [i for i, a in enumerate(arrays) if a.dtype.kind == "f"]


def directions(arrays: Sequence[Array]) -> list[Array]:
    """A direction for each float array."""
    return [normal(*arrays[i].shape, seed=20 + i).astype(arrays[i].dtype) for i in floats(arrays)]


def cotangent(shape: tuple[int, ...], dtype: Any) -> Array:
    """Weights of a result's elements, none of them near 0."""
    w = normal(*shape, seed=7)
    return np.asarray(w + np.copysign(0.1, w), dtype)


# ---- rlx ------------------------------------------------------------------------------------


def graph_of(f: Function, arrays: Sequence[Array]) -> Graph:
    """Outputs y, and where it is a float the loss Σ w·y."""
    g = Graph("peer")
    y = f(*(g.input(f"x{i}", a.shape, a.dtype) for i, a in enumerate(arrays)))
    assert isinstance(y, Node)
    g.output("y", y)
    if y.dtype.is_float and floats(arrays):
        g.output("loss", array_functions.sum(y * g.input("w", y.shape, y.dtype)))
    return g


def feed_of(g: Graph, arrays: Sequence[Array]) -> dict[str, Array]:
    """The arrays by name, with the weights."""
    y = g.outputs["y"]
    feed = {f"x{i}": a for i, a in enumerate(arrays)}
    return {**feed, "w": cotangent(y.shape, y.dtype.numpy)} if "loss" in g.outputs else feed


def native(g: Graph, feed: dict[str, Array]) -> dict[str, Array]:
    """The outputs by compiled code."""
    return dict(compile(g, threads=1)(**feed))


def ours(f: Function, arrays: Sequence[Array], order: int, *, compiled: bool = False,
         plain: bool = False) -> Found:
    """By the reference, or by compiled code; plain: with weights of 1."""
    run = native if compiled else evaluate
    g = graph_of(f, arrays)
    feed = feed_of(g, arrays)
    if plain and "w" in feed:
        feed["w"] = np.ones_like(feed["w"])
    if "loss" not in g.outputs or not order:
        return Found(run(g, feed)["y"])
    wrt = [f"x{i}" for i in floats(arrays)]
    first = run(value_and_grad(g, "loss", wrt), feed)
    gradients = [first[f"grad_{k}"] for k in wrt]
    if order < 2:
        return Found(first["y"], gradients)
    tangents = {f"v_{k}": v for k, v in zip(wrt, directions(arrays), strict=True)}
    second = run(hvp(g, "loss", wrt), {**feed, **tangents})
    return Found(first["y"], gradients, [second[f"hvp_{k}"] for k in wrt])


# ---- peers ----------------------------------------------------------------------------------


def by_torch(f: Function, arrays: Sequence[Array], order: int) -> Found:
    """By PyTorch, eagerly."""
    tensors = [torch.tensor(a, requires_grad=a.dtype.kind == "f") for a in arrays]
    wrt = [tensors[i] for i in floats(arrays)]
    y = f(*tensors)
    value = y.numpy(force=True)
    if not y.is_floating_point() or not wrt or not order:
        return Found(value)

    def gradient(of: Any, weights: Any) -> list[Any]:
        if not of.requires_grad:
            return [torch.zeros_like(x) for x in wrt]
        found = torch.autograd.grad(of, wrt, weights, create_graph=True, allow_unused=True)
        return [torch.zeros_like(x) if g is None else g for x, g in zip(wrt, found, strict=True)]

    gradients = gradient(y, torch.tensor(cotangent(value.shape, value.dtype)))
    first = [g.numpy(force=True) for g in gradients]
    if order < 2:
        return Found(value, first)
    pairs = zip(gradients, directions(arrays), strict=True)
    slope = sum((g * torch.tensor(v)).sum() for g, v in pairs)
    return Found(value, first, [h.numpy(force=True) for h in gradient(slope, None)])


def by_jax(f: Function, arrays: Sequence[Array], order: int) -> Found:
    """By JAX, eagerly."""
    wrt = floats(arrays)
    fixed = [jnp.asarray(a) for a in arrays]

    def of_floats(*x: Any) -> Any:
        whole = list(fixed)
        for i, a in zip(wrt, x, strict=True):
            whole[i] = a
        return f(*whole)

    args = [fixed[i] for i in wrt]
    if not args or not order:
        return Found(np.asarray(f(*fixed)))
    y, pull = jax.vjp(of_floats, *args)
    value = np.asarray(y)
    if value.dtype.kind != "f":
        return Found(value)
    w = jnp.asarray(cotangent(value.shape, value.dtype))
    gradients = [np.asarray(g) for g in pull(w)]
    if order < 2:
        return Found(value, gradients)
    tangents = [jnp.asarray(v) for v in directions(arrays)]
    _, products = jax.jvp(lambda *x: jax.vjp(of_floats, *x)[1](w), args, tangents)
    return Found(value, gradients, [np.asarray(h) for h in products])


# ---- comparison -----------------------------------------------------------------------------


def close(found: Array, wanted: Array, tolerance: float, what: str) -> None:
    """Equal shapes, NaNs and infinities; else within a tolerance of the largest."""
    assert found.shape == wanted.shape, f"{what}: {found.shape}, not {wanted.shape}"
    if wanted.dtype.kind != "f":
        np.testing.assert_array_equal(found, wanted, what)
        return
    assert found.dtype == wanted.dtype, f"{what}: {found.dtype}, not {wanted.dtype}"
    scale = np.max(np.abs(wanted), initial=1, where=np.isfinite(wanted))
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance * scale, err_msg=what)


def agree(found: Found, wanted: Found, tolerance: float, who: str) -> None:
    """The value, all gradients, and what both have of the second order."""
    close(found.value, wanted.value, tolerance, f"value {who}")
    for i, (a, b) in enumerate(zip(found.gradients, wanted.gradients, strict=True)):
        close(a, b, tolerance, f"gradient {i} {who}")
    for i, (a, b) in enumerate(zip(found.products, wanted.products, strict=False)):
        close(a, b, 10 * tolerance, f"Hessian-vector product {i} {who}")


def check(row: Row, dtype: Any) -> None:
    """The reference, and native code, equal each peer that has the row's function."""
    arrays = typed(row.arrays, dtype)
    tolerance = (1e-11 if dtype is np.float64 else 1e-5) * row.tolerance
    f = functools.partial(row.f, RLX)
    by_reference = ours(f, arrays, row.order)
    by_code = ours(f, arrays, min(row.order, 1), compiled=True)
    for name, run, g in (("PyTorch", by_torch, row.torch), ("JAX", by_jax, row.jax)):
        # JAX compiles each operation for each type and shape, which takes nearly all of the time:
        # f32 is left to PyTorch where that has the function.
        if g is not None and not (run is by_jax and dtype is np.float32 and row.torch is not None):
            wanted = run(g, arrays, row.order)
            agree(by_reference, wanted, tolerance, f"against {name}")
            agree(by_code, wanted, tolerance, f"compiled, against {name}")


@dataclass(frozen=True)
class Convention:
    """What rlx_py gives where the peers differ, from it or from each other: Σ f's gradient by each
    float array, and f's value unless None. The note cites the rule."""

    name: str
    f: Function
    arrays: tuple[Any, ...]
    gradients: tuple[Any, ...]
    value: Any
    note: str

    def __str__(self) -> str:
        return self.name


def convention(name: str, f: Function, *arrays: Any, gradients: Sequence[Any] = (),
               value: Any = None, note: str) -> Convention:
    """A row of a table of conventions."""
    return Convention(name, f, arrays, tuple(gradients), value, note)


def check_convention(row: Convention, dtype: Any) -> None:
    """By the reference and by native code."""
    arrays = typed([np.asarray(a) for a in row.arrays], dtype)
    tolerance = 1e-11 if dtype is np.float64 else 1e-5
    for compiled in (False, True):
        found = ours(functools.partial(row.f, RLX), arrays, min(1, len(row.gradients)),
                     compiled=compiled, plain=True)
        if row.value is not None:
            value = np.asarray(row.value, found.value.dtype)
            close(found.value, value, tolerance, f"value, compiled={compiled}")
        for i, (a, b) in enumerate(zip(found.gradients, row.gradients, strict=True)):
            wanted = np.asarray(b, a.dtype)
            close(a, wanted, tolerance, f"gradient {i}, compiled={compiled}")
