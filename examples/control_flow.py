"""Loops that run as long as it takes, choices, and derivatives through both."""

from __future__ import annotations

import numpy as np

import rlx_py as rlx


def main() -> None:
    """A root by Newton's method, its derivative, and a cond inside."""
    g = rlx.Graph("root")
    a = g.param("a", (), rlx.f64)
    y, steps = rlx.while_loop(lambda y: rlx.abs(y * y - a) > 1e-12,
                              lambda y: 0.5 * (y + a / y), rlx.ones_like(a), max_steps=50,
                              return_steps=True)
    g.output("root", y)
    g.output("steps", steps)
    point = {"a": np.array(2.0)}
    found = rlx.compile(g)(**point)
    print(f"root of 2: {found.root:.12f} after {int(found.steps)} steps")
    slope = rlx.compile(rlx.grad(g, of="root"))(**point).grad_a
    print(f"slope: {slope:.12f}, that of the square root: {0.5 / np.sqrt(2.0):.12f}")

    many = rlx.compile(rlx.vmap(g, {"a": (0, 3)}))(a=np.array([1.0, 2.0, 1e6]))
    print("three at once, each as many steps as it needs:", many.steps)

    h = rlx.Graph("choice")
    x = h.param("x", (), rlx.f64)
    h.output("y", rlx.cond(x > 0, rlx.sqrt, lambda v: v * v, x))
    slopes = rlx.compile(rlx.grad(h, of="y"))
    print("slopes of a choice:", [float(slopes(x=np.array(v)).grad_x) for v in (4.0, -3.0)])


if __name__ == "__main__":
    main()
