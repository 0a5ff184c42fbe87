"""The gradient of each example of a batch, without a loop: `rlx.vmap` of `rlx.grad`.

    python examples/per_sample_gradients.py [--batch 64]

A network is written for one example. Its gradient is batched over the examples and compiled once;
the norms of the rows say which examples pull hardest, and clipping each before the mean bounds
what any one of them can do (the gradient of differentially private training).
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import rlx_py as rlx

Arrays = dict[str, np.ndarray[Any, Any]]
LIMIT = 1.0


def one_example() -> rlx.Graph:
    """The loss of one point of a 4-16-3 classifier."""
    g = rlx.Graph("example")
    x, label = g.input("x", (4,), rlx.f64), g.input("label", (), rlx.i32)
    h = rlx.tanh(x @ g.param("w0", (4, 16), rlx.f64) + g.param("b0", (16,), rlx.f64))
    logits = h @ g.param("w1", (16, 3), rlx.f64) + g.param("b1", (3,), rlx.f64)
    loss = rlx.softmax_cross_entropy(logits.reshape(1, 3), label.reshape(1))
    g.output("loss", loss.mean())
    return g


def clipped_mean(batch: int) -> rlx.Graph:
    """Norms of the gradients of all examples, and the mean after each is cut to LIMIT."""
    gradient = rlx.grad(one_example(), of="loss")
    each = rlx.vmap(gradient, in_axes={"x": 0, "label": 0}, size=batch)
    g = rlx.Graph("clipped")
    x, label = g.input("x", (batch, 4), rlx.f64), g.input("label", (batch,), rlx.i32)
    found = g.call(each, x=x, label=label)
    flat = {k: v.reshape(batch, -1) for k, v in found.items()}
    norm = rlx.sqrt(rlx.sum(rlx.stack([(v * v).sum(1) for v in flat.values()]), 0))
    scale = rlx.minimum(1.0, LIMIT / norm) / batch
    g.output("norm", norm)
    for k, v in flat.items():
        g.output(k, (scale @ v).reshape(*found[k].shape[1:]))
    return g


def main() -> None:
    """Compare with a Python loop over examples."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=64)
    batch = parser.parse_args().batch
    rng = np.random.default_rng(0)
    x, label = rng.normal(size=(batch, 4)), rng.integers(0, 3, batch).astype(np.int32)
    params = rlx.init.xavier_uniform(one_example(), seed=0)

    out = rlx.compile(clipped_mean(batch))(x=x, label=label, **params)

    gradient = rlx.compile(rlx.grad(one_example(), of="loss"))
    want: Arrays = {f"grad_{k}": np.zeros_like(p) for k, p in params.items()}
    norms = []
    for i in range(batch):
        mine = gradient(x=x[i], label=label[i], **params)
        norms.append(float(np.sqrt(sum(float((mine[k] ** 2).sum()) for k in want))))
        for k in want:
            want[k] += mine[k] * min(1.0, LIMIT / norms[-1]) / batch
    error = max(float(np.abs(out[k] - v).max()) for k, v in want.items())
    assert error < 1e-12 and np.allclose(out.norm, norms), error
    print(f"{batch} gradients in one call; against a loop over examples: error {error:.1e}")
    print(f"norms {out.norm.min():.2f} … {out.norm.max():.2f}; "
          f"{int((out.norm > LIMIT).sum())} are cut to {LIMIT}")


if __name__ == "__main__":
    main()
