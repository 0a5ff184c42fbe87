"""Random bodies in scans of random lengths: the oracle, native code, both modes, and
every checkpoint."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import rlx_py as rlx
from rlx_py.ir.nodes.node import Node
from support.control import agree, check_modes, compiled, feed_of

SIZE = 3
CHECKPOINTS: list[Any] = ["sqrt", rlx.every(1), rlx.every(2), rlx.every(4), rlx.count(2),
                          rlx.count(0), rlx.budget(200)]
# What makes a matrix of one or two others, and keeps values small.
UNARY: list[Callable[[Any], Any]] = [
    rlx.tanh, rlx.sin, lambda x: -x, lambda x: x.T, lambda x: x[::-1], lambda x: rlx.exp(-x * x),
    lambda x: rlx.softmax(x, -1), lambda x: x - x.mean(0), lambda x: rlx.cumsum(x, 1) * 0.3,
    lambda x: rlx.broadcast_to(x.sum(1, keepdims=True) * 0.3, x.shape),
    lambda x: rlx.broadcast_to(x.max(0), x.shape), lambda x: rlx.stop_gradient(x) * x * 0.2,
    lambda x: rlx.checkpoint(rlx.tanh)(x), lambda x: x * 0.5,
]
BINARY: list[Callable[[Any, Any], Any]] = [
    lambda x, y: x + y, lambda x, y: x - y, lambda x, y: x * rlx.tanh(y),
    lambda x, y: rlx.tanh(x @ y), lambda x, y: x / (1 + y * y), rlx.maximum,
    lambda x, y: rlx.where(x > y, x, -y),
    lambda x, y: rlx.cond(x.sum() > y.sum(), lambda: rlx.sin(x), lambda: y * 0.5),
    lambda x, y: rlx.scan(lambda c, s: (rlx.tanh(c + s), c * s), x[0], y)[1],
]


def expression(rng: random.Random, pool: list[Any], size: int) -> Any:
    """A random matrix of what is in the pool, each part of which joins it."""
    for _ in range(size):
        if rng.random() < 0.5:
            made = rng.choice(UNARY)(rng.choice(pool))
        else:
            made = rng.choice(BINARY)(rng.choice(pool), rng.choice(pool))
        pool.append(made)
    return pool[-1]


def random_loop(seed: int, size: int, checkpoint: Any, dtype: Any) -> rlx.Graph:
    """A scan of up to 7 steps with one to three carries, the same for the same seed and size."""
    rng = random.Random(seed)
    g = rlx.Graph(f"loop{seed}")
    shape = (SIZE, SIZE)
    steps, count = rng.choice([1, 2, 3, 5, 7]), rng.randint(1, 3)
    reverse = rng.random() < 0.5
    first: list[Node] = [g.param(f"c{k}", shape, dtype) for k in range(count)]
    xs, w = g.param("xs", (steps, *shape), dtype), g.param("w", shape, dtype)
    given: Any = (xs, xs[::-1]) if rng.random() < 0.3 else (xs,)
    outside = [w, rlx.constant([0.5, -1.0, 2.0], dtype) * rlx.ones_like(w), rlx.sin(w)]

    def body(c: Any, x: Any) -> Any:
        pool = [*c, *x, *outside]
        y = expression(rng, pool, size)
        # New carries may be anything made so far: old carries in other places, slices, constants.
        return tuple(rlx.tanh(n) if rng.random() < 0.4 else n
                     for n in rng.choices(pool, k=count)), (y, rng.choice(pool), y.sum())

    last, ys = rlx.scan(body, tuple(first), given, reverse=reverse, checkpoint=checkpoint)
    for k, y in enumerate((*last, *ys)):
        g.output(f"y{k}", y)
    total = sum(((y * y).sum() for y in (*last, *ys)), rlx.constant(0.0, dtype))
    g.output("loss", total + (first[0] * last[0]).sum())
    return g


SEEDS = st.integers(0, 100_000)
SIZES = st.integers(0, 6)


@settings(max_examples=25)
@given(SEEDS, SIZES)
def test_native_code_is_the_oracle(seed: int, size: int) -> None:
    g = random_loop(seed, size, None, rlx.f64)
    feed = feed_of(g)
    agree(rlx.value_and_grad(g, "loss"), feed, factor=100)


@settings(max_examples=15)
@given(SEEDS, SIZES, st.sampled_from([None, *CHECKPOINTS]))
def test_both_modes_are_one_derivative(seed: int, size: int, checkpoint: Any) -> None:
    g = random_loop(seed, size, checkpoint, rlx.f64)
    check_modes(g, feed_of(g), factor=1000)


@settings(max_examples=15)
@given(SEEDS, SIZES, st.sampled_from(CHECKPOINTS))
def test_checkpoints_keep_every_number(seed: int, size: int, checkpoint: Any) -> None:
    """Bits, but for the sign of zeros: a sum of nothing is +0, and a step that gives −0 may be
    alone in its segment."""
    plain = random_loop(seed, size, None, rlx.f32)
    again = random_loop(seed, size, checkpoint, rlx.f32)
    feed = feed_of(plain)
    found = compiled(rlx.value_and_grad(again, "loss"), feed)
    for name, want in compiled(rlx.value_and_grad(plain, "loss"), feed).items():
        np.testing.assert_array_equal(found[name], want, name)
