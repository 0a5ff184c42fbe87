"""Random programs over sizes by name: at every size they are the program built at that size."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import rlx_py as rlx
from rlx_py.ir.base.dim import value_of
from rlx_py.ir.base.errors import ShapeError, Undecided
from support.sweep import assert_near

Node = rlx.Node
Step = Callable[[Node, int], Node]  # of a node and one of its axes
NAMES = ("B", "T")
MOST = 4  # axes


def _merged(x: Node, axis: int) -> Node:
    """An axis and the one before as one."""
    shape = list(x.shape)
    if axis == 0:
        return x
    shape[axis - 1:axis + 1] = [shape[axis - 1] * shape[axis]]
    return x.reshape(tuple(shape))


def _cut(x: Node, axis: int, key: slice) -> Node:
    return x[(slice(None),) * axis + (key,)]


STEPS: tuple[Step, ...] = (
    lambda x, a: rlx.sin(x),
    lambda x, a: x * x.mean(a, keepdims=True),
    lambda x, a: x - x.max(a, keepdims=True),
    lambda x, a: x / x.shape[a],
    lambda x, a: rlx.softmax(x, a),
    lambda x, a: rlx.cumsum(x, a),
    lambda x, a: rlx.sort(x, a),
    lambda x, a: x.sum(a) if x.rank > 1 else x,
    lambda x, a: rlx.std(x, a) if x.rank > 1 else x,
    lambda x, a: rlx.layer_norm(x, x.shape[-1:]),
    lambda x, a: rlx.moveaxis(x, a, 0),
    lambda x, a: rlx.flip(x, a),
    lambda x, a: rlx.roll(x, 1, a),
    lambda x, a: _merged(x, a),
    lambda x, a: x.reshape((-1, x.shape[-1])),
    lambda x, a: x.flatten(),
    lambda x, a: rlx.expand_dims(x, a) if x.rank < MOST else x,
    lambda x, a: rlx.concatenate([x, _cut(x, a, slice(0, 1))], a),
    lambda x, a: rlx.concatenate([x, x], a),
    lambda x, a: _cut(x, a, slice(1, None)),
    lambda x, a: _cut(x, a, slice(None, -1)),
    lambda x, a: _cut(x, a, slice(None, None, 2)),
    lambda x, a: _cut(x, a, slice(None, None, -1)),
    lambda x, a: rlx.split(x, 2, a)[1] if x.shape[a] != 3 else x,
    lambda x, a: rlx.take(x, np.array([0, -1, 0]), a),
    lambda x, a: rlx.repeat(x, 2, a),
    lambda x, a: rlx.pad(x, 1) if x.rank < 3 else x,
    lambda x, a: rlx.where(rlx.iota(x.shape, a) < x.shape[a] - 1, x, 0.5),
    lambda x, a: rlx.einsum("...i,...j->...ij", x, x).sum(-1) if x.rank < MOST else x,
    lambda x, a: x @ x.swapaxes(-1, -2) if x.rank > 1 else x,
)


def program(sizes: tuple[Any, ...], choices: list[tuple[int, int]]) -> rlx.Graph:
    g = rlx.Graph("random")
    b, t = sizes
    x = g.input("x", (b, 2 * t, 3), rlx.f64)
    for step, axis in choices:
        x = STEPS[step](x, axis % max(x.rank, 1))
    g.output("y", x)
    g.output("loss", rlx.tanh(x).mean())
    return g


def decidable(seed: int) -> list[tuple[int, int]]:
    """A random program, without the steps that no name allows."""
    rng = random.Random(seed)
    names = tuple(map(rlx.dim, NAMES))
    chosen: list[tuple[int, int]] = []
    for _ in range(rng.randint(1, 7)):
        step = rng.randrange(len(STEPS)), rng.randrange(MOST)
        try:
            made = program(names, [*chosen, step])
        except ShapeError:  # undecided, or beyond what sizes may be
            continue
        if value_of(made.outputs["y"].size, {"B": 3, "T": 3}) < 2000:
            chosen.append(step)
    return chosen


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 3), st.integers(1, 3))
def test_a_program_is_that_of_its_sizes(seed: int, b: int, t: int) -> None:
    choices = decidable(seed)
    dynamic = program(tuple(map(rlx.dim, NAMES)), choices)
    static = program((b, t), choices)
    x = {"x": np.random.default_rng(seed).standard_normal((b, 2 * t, 3))}
    assert_near(rlx.evaluate(dynamic, x), rlx.evaluate(static, x))
    text = str(dynamic)
    assert str(rlx.parse(text)) == text
    try:
        gradient = rlx.grad(dynamic, "loss", "x")
    except Undecided:
        return
    expected = rlx.evaluate(rlx.grad(static, "loss", "x"), x)
    assert_near(rlx.evaluate(gradient, x), expected, factor=100)


def test_most_steps_are_decidable() -> None:
    names = tuple(map(rlx.dim, NAMES))
    refused = []
    for i in range(len(STEPS)):
        for axis in range(3):
            try:
                program(names, [(i, axis)])
            except Undecided:
                refused.append((i, axis))
    assert len(refused) < len(STEPS) / 5, refused
