"""scan: values, every derivative and every checkpoint, by the oracle, the loop programs and native
code."""

from __future__ import annotations

from typing import Any

import rlx_py as rlx
from control import (
    agree,
    extended,
    feed_of,
)

CHECKPOINTS: list[Any] = [None, "sqrt", rlx.every(1), rlx.every(2), rlx.every(3), rlx.count(0),
                          rlx.count(2), rlx.budget(0), rlx.budget(150), rlx.budget(10**9)]


def test_what_comes_out_of_a_loop_of_one_step_is_made_primitive() -> None:
    """Segments leave one step over, whose body holds a rule and a loop."""
    square = rlx.custom_vjp(lambda x: x * x, lambda x: (x * x, x), lambda x, ct: (3 * ct * x,))
    g = rlx.Graph()
    c0, xs = g.param("c", (3,), rlx.f64), g.param("xs", (5, 2, 3), rlx.f64)

    def body(c: Any, x: Any) -> Any:
        inner, ys = rlx.scan(lambda a, b: (square(a) * 0.1 + b, a), c, x)
        return inner, ys

    c, ys = rlx.scan(body, c0, xs, checkpoint=rlx.every(2))
    g.output("loss", (c * c).sum() + ys.sum())
    feed = feed_of(g)
    for h in (g, rlx.grad(g, of="loss"), rlx.hvp(g, of="loss")):
        agree(h, extended(h, feed), slow=True)
