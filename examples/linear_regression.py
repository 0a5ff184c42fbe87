"""Fit a line by gradient descent in compiled code, and compare with the closed form.

    python examples/linear_regression.py [--steps 300]
"""

from __future__ import annotations

import argparse

import numpy as np

import rlx_py as rlx


def main() -> None:
    """Train, print both solutions and assert that they agree."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    steps = parser.parse_args().steps
    rng = np.random.default_rng(0)
    features = rng.normal(size=(200, 3))
    targets = features @ [1.5, -2.0, 0.5] + 3.0 + 0.1 * rng.normal(size=200)

    g = rlx.Graph("regression")
    x, y = g.input("x", (200, 3), rlx.f64), g.input("y", (200,), rlx.f64)
    w, b = g.param("w", (3,), rlx.f64), g.param("b", (), rlx.f64)
    g.output("loss", rlx.nn.mse_loss(x @ w + b, y))
    exe = rlx.compile(rlx.train_step(g, of="loss", optimizer=rlx.optim.sgd(0.2)))
    state = exe.init({"w": np.zeros(3), "b": np.zeros(())})
    for _ in range(steps):
        exe.step(state, x=features, y=targets)

    columns = np.column_stack([features, np.ones(200)])
    exact, *_ = np.linalg.lstsq(columns, targets, rcond=None)
    found = np.append(state.params["w"], state.params["b"])
    error = float(np.abs(found - exact).max())
    print(f"gradient descent {found}\nclosed form      {exact}\nlargest difference {error:.1e}")
    assert error < 1e-9, error


if __name__ == "__main__":
    main()
