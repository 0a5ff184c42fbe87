"""The derivative as a linear map: run the function once, then its derivative in many directions.

    python examples/linearize.py

Gauss-Newton steps of a curve fit solve JᵀJ·d = Jᵀr by conjugate gradients: many products with
J and Jᵀ at one point. `rlx.linearize` keeps what they need of that point.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import rlx_py as rlx

Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]


def residuals() -> rlx.Graph:
    """Of y = a·exp(−b·x) + c·sin(d·x) at 200 points, for parameters p = (a, b, c, d)."""
    g = rlx.Graph("fit")
    x, y = g.input("x", (200,), rlx.f64), g.input("y", (200,), rlx.f64)
    p = g.param("p", (4,), rlx.f64)
    g.output("r", p[0] * rlx.exp(-p[1] * x) + p[2] * rlx.sin(p[3] * x) - y)
    return g


def conjugate_gradients(apply: Callable[[Array], Array], b: Array, rounds: int) -> Array:
    """x with apply(x) = b."""
    x, r, p = np.zeros_like(b), b, b
    for _ in range(rounds):
        q = apply(p)
        step = (r @ r) / (p @ q)
        x, rest = x + step * p, r - step * q
        p, r = rest + (rest @ rest) / (r @ r) * p, rest
    return x


def main() -> None:
    """Fit the curve, counting how often each half runs."""
    g = residuals()
    primal, tangent = rlx.linearize(g)
    transposed = rlx.vjp(tangent, wrt=["t_p"])
    point, push, pull = map(rlx.compile, (primal, tangent, transposed))
    names = [k for k in tangent.inputs if k.startswith("residual")]
    print(f"{len(names)} residuals; the linear map computes "
          f"{sorted({n.op.name for n in tangent.nodes} - {'leaf', 'constant'})}")
    x = np.linspace(0, 5, 200)
    true = np.array([2.0, 0.7, 0.5, 3.0])
    y = true[0] * np.exp(-true[1] * x) + true[2] * np.sin(true[3] * x)
    p, products = np.array([1.0, 0.5, 0.3, 2.8]), 0
    for step in range(6):
        out = point(x=x, y=y, p=p)
        print(f"step {step}: |r| = {np.linalg.norm(out.r):.2e}")
        kept = {k: out[k] for k in names}

        def transpose(r: Array, kept: Arrays = kept) -> Array:
            # The map is linear: its transpose is the same at every t_p.
            return np.asarray(pull(**kept, t_p=np.zeros(4), ct_t_r=r).grad_t_p)

        def normal(d: Array, kept: Arrays = kept, back: Any = transpose) -> Array:
            return np.asarray(back(push(**kept, t_p=d).t_r))

        p = p - conjugate_gradients(normal, transpose(out.r), 4)
        products += 9  # eight inside, one for the right-hand side
    print(f"p = {p.round(6)}; 6 runs of the function, {products} products with the linear map")
    assert np.allclose(p, true)


if __name__ == "__main__":
    main()
