"""What is updated in place (states of a step, carries of a loop) while others still read it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import rlx_py as rlx
from rlx_py.ir.graph.evaluate import evaluate_all
from support.control import agree, check_modes, normal

# The next values of three matrices, given all of them.
UPDATES: dict[str, Callable[[Any, Any, Any], Sequence[Any]]] = {
    "swap": lambda a, b, c: (b, a, c),
    "rotate": lambda a, b, c: (b, c, a),
    "each reads the one written before": lambda a, b, c: (c * 2 + b, a + c, b - a * c),
    "each reads the one written after": lambda a, b, c: (a + b, b * c, c - 1),
    "transposed": lambda a, b, c: (a.T + 1, b.T * c, rlx.tanh(a)),
    "reversed": lambda a, b, c: (a[::-1], b[:, ::-1] + a, c),
    "sums of rows": lambda a, b, c: (a - a.sum(1, keepdims=True), b + a.mean(0), a * c),
    "a row shared": lambda a, b, c: (rlx.softmax(a, -1), a + b, rlx.softmax(a + b, -1) - c),
    "products": lambda a, b, c: (a @ b, b + a, a * (a @ b)),
    "behind a product": lambda a, b, c: (c + a @ b, b * c, a @ b - c),
    "a product of itself": lambda a, b, c: (a @ a, a @ b, c @ a + c),
    "running sums": lambda a, b, c: (rlx.cumsum(a, 0), a * 2, rlx.cumsum(b, 1) + a),
    "scattered": lambda a, b, c: (rlx.roll(a, 1, 0), a + c, rlx.roll(c, 1, 1)),
    "constants": lambda a, b, c: (b, rlx.zeros_like(a), a + c),
    "kept": lambda a, b, c: (a, a, a),
}
updates = pytest.mark.parametrize("name", UPDATES)
SIZE = 3


def values(seed: int) -> dict[str, Any]:
    return {k: normal(SIZE, SIZE, seed=seed + i) / 2 for i, k in enumerate("abc")}


@updates
def test_states(name: str) -> None:
    g = rlx.Graph()
    nodes = [g.state(k, (SIZE, SIZE), rlx.f64) for k in "abc"]
    for k, new in zip("abc", UPDATES[name](*nodes), strict=True):
        g.next(k, new)
    exe = rlx.compile(g, threads=1)
    state = exe.init({})
    now = values(1)
    for k in "abc":
        state.states[k][...] = now[k]
    for _ in range(3):
        wanted = evaluate_all(g, now)
        exe.step(state)
        now = wanted.states
        for k in "abc":
            np.testing.assert_allclose(state.states[k], now[k], rtol=1e-12, atol=1e-12, err_msg=k)


@updates
@pytest.mark.parametrize("length", [1, 2, 5])
def test_carries(name: str, length: int) -> None:
    g = rlx.Graph()
    first = tuple(g.param(k, (SIZE, SIZE), rlx.f64) for k in "abc")
    last, ys = rlx.scan(lambda c, _: (tuple(UPDATES[name](*c)), (c[1], c[0] * c[2])), first,
                        length=length)
    for k, x in enumerate((*last, *ys)):
        g.output(f"y{k}", x)
    agree(g, values(1), slow=length == 2)
    if length == 5:
        check_modes(g, values(1), factor=100)


@updates
def test_carries_of_a_while_loop(name: str) -> None:
    g = rlx.Graph()
    first = tuple(g.param(k, (SIZE, SIZE), rlx.f64) for k in "abc")
    last = rlx.while_loop(lambda c: c[0] < 4,
                          lambda c: (c[0] + 1, *UPDATES[name](*c[1:])),
                          (rlx.constant(0, rlx.i32), *first), max_steps=6)
    for k, x in enumerate(last):
        g.output(f"y{k}", x)
    agree(g, values(1))
