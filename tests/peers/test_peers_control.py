"""Loops and branches against JAX: values, gradients and second order."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import rlx_py as rlx
from peers.peer import JAX, RLX, Row, agree, by_jax, jax, lax, normal, ours, row, typed


def control(m: Any) -> Any:
    """The module that has scan, cond and while_loop."""
    return rlx if m is RLX else lax


def recurrent(m: Any, h: Any, xs: Any, w: Any, reverse: bool) -> Any:
    last, ys = control(m).scan(lambda h, x: (m.tanh(h @ w + x), h * x), h, xs, reverse=reverse)
    return m.concatenate([m.reshape(last, (1, 3)), ys])


def nested(m: Any, h: Any, xs: Any, w: Any) -> Any:
    def outer(h: Any, x: Any) -> Any:
        h, ys = control(m).scan(lambda c, s: (m.sin(c) * s, c + s), h, w + x)
        return (m.tanh(h), m.sum(ys))

    last, sums = control(m).scan(outer, h, xs)
    return m.concatenate([last, sums])


def branches(m: Any, h: Any, xs: Any, w: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        chosen = control(m).cond(m.sum(x) > 0, lambda a: m.tanh(a @ w), lambda a: a * x, h)
        return chosen, chosen

    return control(m).scan(step, h, xs)[1]


def until(m: Any, h: Any, w: Any) -> Any:
    """JAX has no reverse mode of it: there as many steps by hand as are taken."""
    def body(c: Any) -> Any:
        return m.tanh(c @ w) + c * 1.5

    if m is JAX:
        for _ in range(int(lax.while_loop(lambda s: m.sum(s[1] * s[1]) < 50,
                                          lambda s: (s[0] + 1, body(s[1])),
                                          (0, jax.lax.stop_gradient(HELD)))[0])):
            h = body(h)
        return h
    return rlx.while_loop(lambda c: m.sum(c * c) < 50, body, h, max_steps=20)


HELD = normal(3)
START, SEQUENCE, WEIGHTS = normal(3), normal(5, 3), normal(3, 3)
ROWS = [
    *(row(f"scan-{'reverse' if r else 'forward'}", partial(recurrent, reverse=r), START, SEQUENCE,
          WEIGHTS, torch=None) for r in (False, True)),
    row("scan-in-scan", nested, START, SEQUENCE, WEIGHTS, torch=None),
    row("cond-in-scan", branches, START, SEQUENCE, WEIGHTS, torch=None),
    row("while", until, HELD, WEIGHTS, torch=None),
]


@pytest.mark.parametrize("r", ROWS, ids=str)
@pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=["f64", "f32"])
def test_control_flow(r: Row, dtype: Any) -> None:
    arrays = typed(r.arrays, dtype)
    tolerance = 1e-10 if dtype is np.float64 else 1e-4
    wanted = by_jax(partial(r.f, JAX), arrays, 2)
    for compiled in (False, True):
        agree(ours(partial(r.f, RLX), arrays, 2, compiled=compiled), wanted, tolerance,
              f"against JAX, compiled={compiled}")
