"""A whole Hessian and a Jacobian, compiled: Newton's method on Rosenbrock's function.

    python examples/jacobians.py

All columns are computed at once, by one derivative batched over the unit vectors.
"""

from __future__ import annotations

import numpy as np

import rlx_py as rlx


def main() -> None:
    """Minimise Σ 100(xᵢ₊₁ − xᵢ²)² + (1 − xᵢ)² from the usual start."""
    n = 6
    g = rlx.Graph("rosenbrock")
    x = g.param("x", (n,), rlx.f64)
    g.output("f", (100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2).sum())
    g.output("residuals", rlx.concatenate([10.0 * (x[1:] - x[:-1] ** 2), 1.0 - x[:-1]]))
    gradient, hessian = rlx.compile(rlx.grad(g, of="f")), rlx.compile(rlx.hessian(g, of="f"))
    residuals, jacobian = rlx.compile(g), rlx.compile(rlx.jacfwd(g, of="residuals"))

    at = np.tile([-1.2, 1.0], n // 2)
    j = jacobian(x=at)["jac_residuals_x"]
    difference = 2 * j.T @ residuals(x=at)["residuals"] - gradient(x=at)["grad_x"]
    print(f"2 J'r is the gradient to {np.abs(difference).max():.0e}; J is {j.shape}")

    steps, slope = 0, gradient(x=at)["grad_x"]
    while np.abs(slope).max() > 1e-8 and steps < 100:
        curvature = hessian(x=at)["hess_x_x"]
        # Away from a minimum some curvatures are negative; their size is what a step may trust.
        values, vectors = np.linalg.eigh(curvature)
        direction = vectors @ ((vectors.T @ slope) / np.abs(values))
        rate, before = 1.0, residuals(x=at)["f"]
        while rate > 1e-6 and residuals(x=at - rate * direction)["f"] > before:
            rate /= 2
        at, steps = at - rate * direction, steps + 1
        slope = gradient(x=at)["grad_x"]
    print(f"stationary after {steps} Newton steps, gradient {np.abs(slope).max():.0e}")


if __name__ == "__main__":
    main()
