"""Sorting in every element type against NumPy, PyTorch and JAX: stable, NaN last, zeros equal."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import rlx_py as rlx
from peers.peer import Array, jnp, lax, torch
from rlx_py.ir.base.types import DTYPES, DType, bf16, bool_, u32

LENGTHS = (7, 100, 300)  # by comparing each with each, and by digits


def line(dtype: DType, *shape: int) -> Array:
    """Few different values, NaN, infinities and zeros of both signs among them where there are; no
    subnormal ones, which JAX takes for 0."""
    rng = np.random.default_rng([dtype.bits, *shape])
    if dtype.is_float:
        values = [np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 2.5, -3.0, 1e-30]
    elif dtype is bool_:
        values = [0, 1]
    else:
        limits = np.iinfo(dtype.numpy)
        values = [limits.min, limits.max, 0, 1, 2, 3, limits.max - 1]
    with np.errstate(all="ignore"):
        return np.asarray(rng.choice(np.array(values, dtype.numpy), shape))


def run(function: Any, x: Array) -> Any:
    """The outputs of compiled code, one for each result."""
    g = rlx.Graph()
    found = function(g.input("x", x.shape, x.dtype))
    for i, node in enumerate(found if isinstance(found, tuple) else (found,)):
        g.output(f"y{i}", node)
    return list(dict(rlx.compile(g, threads=1)(x=x)).values())


def wide(x: Array) -> Array:
    """bf16 as f32, whose NaN NumPy orders."""
    return x.astype(np.float32) if x.dtype == ml_dtypes.bfloat16 else x


def as_torch(x: Array) -> Any:
    return torch.tensor(wide(x)).to(torch.bfloat16) if x.dtype == ml_dtypes.bfloat16 else (
        torch.tensor(x))


CASES = [(d, n, axis) for d in DTYPES.values() for n in LENGTHS for axis in (0, 1)]
cases = pytest.mark.parametrize("dtype,length,axis", CASES, ids=str)


@cases
def test_ascending_as_numpy_and_jax(dtype: DType, length: int, axis: int) -> None:
    x = line(dtype, *((length, 3) if axis == 0 else (3, length)))
    places, ordered = run(lambda n: (rlx.argsort(n, axis), rlx.sort(n, axis)), x)
    np.testing.assert_array_equal(places, np.argsort(wide(x), axis, kind="stable"))
    np.testing.assert_array_equal(wide(ordered), np.sort(wide(x), axis))
    by_jax = jnp.argsort(jnp.asarray(x), axis, stable=True)
    np.testing.assert_array_equal(places, np.asarray(by_jax))


@cases
def test_both_directions_as_pytorch(dtype: DType, length: int, axis: int) -> None:
    if dtype is u32:
        pytest.skip("PyTorch does not sort unsigned integers of 32 bits")
    x = line(dtype, *((length, 3) if axis == 0 else (3, length)))
    for descending in (False, True):
        places, ordered = run(lambda n, d=descending: (
            rlx.argsort(n, axis, descending=d), rlx.sort(n, axis, descending=d)), x)
        values, indices = torch.sort(as_torch(x), dim=axis, descending=descending, stable=True)
        np.testing.assert_array_equal(places, indices.numpy())
        if dtype is bf16:
            values = values.float()
        np.testing.assert_array_equal(wide(ordered), values.numpy())


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
@pytest.mark.parametrize("largest", [True, False])
def test_the_first_of_a_sorted_line(dtype: DType, largest: bool) -> None:
    x = line(dtype, 4, 200)
    values, places = run(lambda n: rlx.top_k(n, 9, largest=largest), x)
    whole = run(lambda n: rlx.argsort(n, descending=largest), x)[0]
    np.testing.assert_array_equal(places, whole[:, :9])
    np.testing.assert_array_equal(wide(values), np.take_along_axis(wide(x), places, 1))
    if dtype not in (u32, bool_):
        found = torch.topk(as_torch(x), 9, largest=largest)[0]
        np.testing.assert_array_equal(
            wide(values), (found.float() if dtype is bf16 else found).numpy())
    if largest and dtype is not bool_ and not dtype.is_float:  # JAX's NaN is where its sign says
        np.testing.assert_array_equal(places, np.asarray(lax.top_k(jnp.asarray(x), 9)[1]))
