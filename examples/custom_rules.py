"""Derivatives of your own: a clipped gradient, and a root found by Newton's method.

    python examples/custom_rules.py

`rlx.custom_vjp` gives reverse mode a rule, `rlx.custom_jvp` gives both modes one; second
derivatives follow from what the rules themselves compute.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import rlx_py as rlx


def clipped(limit: float) -> Any:
    """The identity, whose cotangent is clipped to [−limit, limit]."""
    return rlx.custom_vjp(lambda x: x, lambda x: (x, ()),
                          lambda kept, ct: (rlx.clip(ct, -limit, limit),))


def newton(a: Any) -> Any:
    """The real root y of y³ + y = a, by 30 steps from 0."""
    y = a * 0.0
    for _ in range(30):
        y = y - (y * y * y + y - a) / (3.0 * y * y + 1.0)
    return y


def root_rule(primals: Any, tangents: Any) -> Any:
    """The implicit function theorem: dy = da/(3y² + 1). No step of Newton's is differentiated."""
    y = root(primals[0])
    return y, tangents[0] / (3.0 * y * y + 1.0)


root = rlx.custom_jvp(newton, root_rule)


def main() -> None:
    """Print gradients of both; check the root's second derivative against the formula."""
    g = rlx.Graph("clip")
    x = g.param("x", (3,))
    g.output("loss", (100.0 * clipped(1.0)(x)).sum() + (x * x).sum())
    out = rlx.compile(rlx.grad(g, of="loss"))(x=np.array([-1.0, 0.0, 2.0], np.float32))
    print("clipped gradient:", out["grad_x"])

    g = rlx.Graph("root")
    g.output("y", root(g.param("a", (), rlx.f64)))
    slope = rlx.grad(g, of="y")
    bend = rlx.grad(slope, of="grad_a")
    a = 10.0
    y, first, second = (float(next(iter(rlx.compile(h)(a=a).values()))) for h in (g, slope, bend))
    print(f"root {y:.12f}, slope {first:.12f}, second derivative {second:.12f}")
    expected = -6 * y / (3 * y * y + 1) ** 3
    assert abs(first - 1 / (3 * y * y + 1)) < 1e-14 and abs(second - expected) < 1e-14
    print("nodes of the gradient:", len(slope.nodes))


if __name__ == "__main__":
    main()
