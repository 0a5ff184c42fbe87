"""Hessian-vector products of an MLP in compiled code, and its sharpest direction from them.

    python examples/hessian_vector.py [--iterations 100]

The Hessian has a row for each of the weights; `rlx.hvp` never makes it.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import rlx_py as rlx

Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]


def network() -> rlx.Graph:
    """A 4-16-3 classifier of 64 points."""
    g = rlx.Graph("mlp")
    x, y = g.input("x", (64, 4), rlx.f64), g.input("y", (64,), rlx.i32)
    h = rlx.tanh(x @ g.param("w0", (4, 16), rlx.f64) + g.param("b0", (16,), rlx.f64))
    logits = h @ g.param("w1", (16, 3), rlx.f64) + g.param("b1", (3,), rlx.f64)
    g.output("loss", rlx.softmax_cross_entropy(logits, y).mean())
    return g


def main() -> None:
    """Check one product against a difference of gradients; then power iteration."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--iterations", type=int, default=100)
    iterations = parser.parse_args().iterations
    rng = np.random.default_rng(0)
    g = network()
    gradient = rlx.compile(rlx.grad(g, of="loss"))
    product = rlx.compile(rlx.hvp(g, of="loss"))
    data = {"x": rng.normal(size=(64, 4)), "y": rng.integers(0, 3, 64).astype(np.int32)}
    params = rlx.init.xavier_uniform(g, seed=0)

    def times(v: Arrays) -> Arrays:
        out = product(**data, **params, **{f"v_{k}": a for k, a in v.items()})
        return {k: out[f"hvp_{k}"] for k in v}

    v = {k: np.asarray(rng.normal(size=a.shape)) for k, a in params.items()}
    step = 1e-5
    up, down = (gradient(**data, **{k: a + s * v[k] for k, a in params.items()})
                for s in (step, -step))
    found = times(v)
    error = max(float(np.abs((up[f"grad_{k}"] - down[f"grad_{k}"]) / (2 * step) - h).max())
                for k, h in found.items())
    print(f"H v against a difference of gradients: largest error {error:.1e}")
    assert error < 1e-7, error

    for _ in range(iterations):
        length = np.sqrt(sum(float(np.sum(a * a)) for a in v.values()))
        v = {k: a / length for k, a in v.items()}
        w = times(v)
        eigenvalue = sum(float(np.sum(w[k] * v[k])) for k in v)
        rest = np.sqrt(sum(float(np.sum((w[k] - eigenvalue * v[k]) ** 2)) for k in v))
        v = w
    print(f"largest eigenvalue {eigenvalue:.6f}, residual {rest:.1e}")


if __name__ == "__main__":
    main()
