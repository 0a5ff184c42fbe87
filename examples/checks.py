"""Checks: derivatives against differences, forward against reverse mode, and errors at your line.

    python examples/checks.py
"""

from __future__ import annotations

import numpy as np

import rlx_py as rlx


def main() -> None:
    """Check a right graph, then one whose gradient is wrong on purpose."""
    rng = np.random.default_rng(0)
    g = rlx.Graph("attention")
    q, k = g.param("q", (4, 8)), g.param("k", (6, 8))
    v = g.param("v", (6, 8))
    weights = rlx.softmax(q @ k.T / np.sqrt(8))
    g.output("loss", rlx.layer_norm(weights @ v, (8,)).var())
    values = {name: rng.normal(size=node.shape).astype(np.float32)
              for name, node in g.params.items()}
    rlx.check_grads(g, values, of="loss", order=2)
    print("attention: first and second derivatives agree with central differences")

    wrong = rlx.Graph("wrong")
    x = wrong.param("x", (3,))
    wrong.output("loss", (x * rlx.stop_gradient(x)).sum())  # half of the slope is hidden
    try:
        rlx.check_grads(wrong, {"x": np.array([1, 2, 3], np.float32)}, order=1)
    except rlx.VerifyError as error:
        print(f"wrong gradient: {error}")

    try:
        q @ k
    except rlx.ShapeError as error:
        print(f"wrong shapes: {error}")

    h = rlx.Graph("masked")
    h.output("loss", rlx.where(h.param("x", (2,)) > 0, rlx.log(h.params["x"]), 0.0).sum())
    report = rlx.grad(h, of="loss", singular="report")
    for point in rlx.singular_report(report, {"x": np.array([2.0, 0.0], np.float32)}):
        print(f"no cotangent, no contribution: {point}")


if __name__ == "__main__":
    main()
