"""Random bits, keys and samples against jax.random, which counts with the same generator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx_py as rlx

jax = pytest.importorskip("jax", reason="comparisons need JAX")
jax.config.update("jax_enable_x64", True)
SHAPES = [(), (5,), (3, 70)]
TYPES = [("f32", "float32"), ("f64", "float64")]


def value(node: rlx.Node) -> Any:
    g = rlx.Graph()
    g.output("y", node)
    return rlx.compile(g)().y


def keys(seed: int) -> tuple[rlx.Node, Any]:
    with jax.threefry_partitionable(True):
        return rlx.random.key(seed), jax.random.PRNGKey(seed, impl="threefry2x32")


@pytest.mark.parametrize("seed", [0, 42, 2**40 + 3])
def test_keys(seed: int) -> None:
    ours, theirs = keys(seed)
    np.testing.assert_array_equal(value(ours), theirs)
    np.testing.assert_array_equal(value(rlx.random.split(ours, 5)), jax.random.split(theirs, 5))
    np.testing.assert_array_equal(value(rlx.random.fold_in(ours, 77)),
                                  jax.random.fold_in(theirs, 77))


@pytest.mark.parametrize("shape", SHAPES)
def test_bits(shape: tuple[int, ...]) -> None:
    ours, theirs = keys(7)
    np.testing.assert_array_equal(value(rlx.random.bits(ours, shape)),
                                  jax.random.bits(theirs, shape, "uint32"))
    wide = np.asarray(jax.random.bits(theirs, shape, "uint64")).view(np.int64)
    np.testing.assert_array_equal(value(rlx.random.bits(ours, shape, rlx.i64)), wide)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype,name", TYPES)
def test_samples(shape: tuple[int, ...], dtype: str, name: str) -> None:
    ours, theirs = keys(11)
    np.testing.assert_array_equal(value(rlx.random.uniform(ours, shape, dtype)),
                                  jax.random.uniform(theirs, shape, name))
    for f in ("normal", "exponential", "gumbel"):
        found = value(getattr(rlx.random, f)(ours, shape, dtype))
        expected = getattr(jax.random, f)(theirs, shape, name)
        tight = 1e-5 if dtype == "f32" else 1e-12
        np.testing.assert_allclose(found, expected, rtol=tight, atol=tight)


def test_choices() -> None:
    ours, theirs = keys(13)
    logits = np.random.default_rng(0).standard_normal((40, 9)).astype(np.float32)
    np.testing.assert_array_equal(value(rlx.random.categorical(ours, logits)),
                                  jax.random.categorical(theirs, logits))
    p = np.linspace(0, 1, 100, dtype=np.float32)
    np.testing.assert_array_equal(value(rlx.random.bernoulli(ours, p)),
                                  jax.random.bernoulli(theirs, p))
    np.testing.assert_array_equal(value(rlx.random.randint(ours, (50,), -5, 100, rlx.i32)),
                                  jax.random.randint(theirs, (50,), -5, 100, "int32"))
    for size in (7, 3000):
        np.testing.assert_array_equal(value(rlx.random.permutation(ours, size)),
                                      jax.random.permutation(theirs, size))
