"""One MAML step on sine regression: the gradient of a loss after five inner gradient steps.

    python examples/second_order.py [--tasks 2] [--samples 10]

The inner gradient is a graph like any other: `rlx.grad` makes it, `g.call` inlines it five times,
each time with the weights of the step before, and `rlx.value_and_grad` differentiates the whole,
second derivatives included. The result is compared with central differences in f64.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import rlx_py as rlx

Array = np.ndarray[Any, Any]
POINTS, HIDDEN, INNER, RATE = 10, 40, 5, 0.01
SHAPES = {"w0": (1, HIDDEN), "b0": (HIDDEN,), "w1": (HIDDEN, HIDDEN), "b1": (HIDDEN,),
          "w2": (HIDDEN, 1), "b2": (1,)}


def regression() -> rlx.Graph:
    """The squared error of a 1-40-40-1 network on one task's points."""
    g = rlx.Graph("regression")
    x, y = g.input("x", (POINTS, 1), rlx.f64), g.input("y", (POINTS, 1), rlx.f64)
    p = {name: g.param(name, shape, rlx.f64) for name, shape in SHAPES.items()}
    h = rlx.tanh(x @ p["w0"] + p["b0"])
    h = rlx.tanh(h @ p["w1"] + p["b1"])
    g.output("loss", rlx.nn.mse_loss(h @ p["w2"] + p["b2"], y))
    return g


def meta_graph(tasks: int) -> rlx.Graph:
    """The mean loss on each task's query points after five gradient steps on its support points."""
    loss, inner = regression(), rlx.grad(regression(), of="loss")
    g = rlx.Graph("maml")
    shape = (tasks, POINTS, 1)
    xs, ys = g.input("support_x", shape, rlx.f64), g.input("support_y", shape, rlx.f64)
    xq, yq = g.input("query_x", shape, rlx.f64), g.input("query_y", shape, rlx.f64)
    start = {name: g.param(name, s, rlx.f64) for name, s in SHAPES.items()}
    losses = []
    for task in range(tasks):
        weights = start
        for _ in range(INNER):
            found = g.call(inner, x=xs[task], y=ys[task], **weights)
            weights = {k: w - RATE * found[f"grad_{k}"] for k, w in weights.items()}
        losses.append(g.call(loss, x=xq[task], y=yq[task], **weights).loss)
    g.output("loss", rlx.stack(losses).mean())
    return g


def sines(tasks: int, rng: np.random.Generator) -> dict[str, Array]:
    """Support and query points of sines of random amplitude and phase (Finn et al. 2017)."""
    amplitude = rng.uniform(0.1, 5.0, (tasks, 1, 1))
    phase = rng.uniform(0, np.pi, (tasks, 1, 1))
    data = {}
    for part in ("support", "query"):
        x = rng.uniform(-5, 5, (tasks, POINTS, 1))
        data[f"{part}_x"], data[f"{part}_y"] = x, amplitude * np.sin(x + phase)
    return data


def worst_error(exe: rlx.Executable, data: dict[str, Array], params: dict[str, Array],
                grads: rlx.Outputs, samples: int, rng: np.random.Generator) -> float:
    """The largest relative error of gradient entries against central differences."""
    worst, step = 0.0, 1e-5
    for name in SHAPES:
        scale = float(np.abs(grads[f"grad_{name}"]).max())
        for flat in rng.permutation(params[name].size)[:samples]:
            at = np.unravel_index(flat, params[name].shape)
            moved = [params[name].copy(), params[name].copy()]
            moved[0][at] += step
            moved[1][at] -= step
            up, down = (float(exe(**data, **{**params, name: m}).loss) for m in moved)
            error = abs((up - down) / (2 * step) - grads[f"grad_{name}"][at]) / scale
            worst = max(worst, float(error))
    return worst


def main() -> None:
    """Differentiate, compile, compare, and train the starting weights for a few steps."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=2)
    parser.add_argument("--samples", type=int, default=10)
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    g = meta_graph(args.tasks)
    exe = rlx.compile(rlx.value_and_grad(g, of="loss"))
    params = rlx.init.xavier_uniform(regression(), seed=0)
    data = sines(args.tasks, rng)
    out = exe(**data, **params)
    error = worst_error(exe, data, params, out, args.samples, rng)
    print(f"loss after {INNER} inner steps {float(out.loss):.4f}; {exe.cost().kernels} kernels\n"
          f"worst relative error of the meta-gradient {error:.1e}")
    assert error < 1e-6, error

    step = rlx.compile(rlx.train_step(g, of="loss", optimizer=rlx.optim.adam(1e-2)))
    state = step.init(params)
    losses = [float(step.step(state, **sines(args.tasks, rng)).loss) for _ in range(60)]
    first, last = float(np.mean(losses[:20])), float(np.mean(losses[-20:]))
    print(f"meta-training: mean loss {first:.3f} -> {last:.3f}")


if __name__ == "__main__":
    main()
