"""A Python function over nested parameters, traced, trained, and called as it was written.

    python examples/trace_nested.py [--steps 200]

`rlx.trace` names every array by its path ("layers.0.w"); what is compiled takes the nest itself.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import rlx_py as rlx


def model(params: Any, x: Any, y: Any) -> Any:
    """Mean squared error of a network with one hidden layer."""
    h = x
    for layer in params["layers"]:
        h = rlx.tanh(h @ layer["w"] + layer["b"])
    found = (h @ params["head"])[:, 0]
    return {"loss": rlx.square(found - y).mean(), "found": found}


def main() -> None:
    """Fit sin on 64 points."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    steps = parser.parse_args().steps
    rng = np.random.default_rng(0)
    x = np.linspace(-2, 2, 64, dtype=np.float32)[:, None]
    y = np.sin(2 * x[:, 0])
    params = {"layers": [{"w": rng.normal(size=(1, 32)).astype(np.float32),
                          "b": np.zeros(32, np.float32)}],
              "head": rng.normal(0, 0.2, size=(32, 1)).astype(np.float32)}

    g = rlx.trace(model, params, x, y)
    print("params:", ", ".join(g.params))
    gradient: Any = rlx.compile(rlx.value_and_grad(g, of="loss"))
    out = gradient(params, x, y)
    print("gradient of layers[0]['w']:", out.grad["layers"][0]["w"].shape)

    step = rlx.compile(rlx.train_step(g, of="loss", optimizer=rlx.optim.adam(1e-2)))
    state = step.init(params)
    for _ in range(steps):
        last = step.step(state, x=x, y=y)
    print(f"loss {float(out.loss):.4f} -> {float(last.loss):.4f}")
    assert last.loss < out.loss


if __name__ == "__main__":
    main()
