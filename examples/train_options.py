"""Training options: schedules, groups, accumulation, and an optimiser of your own.

    python examples/train_options.py [--steps 200]

An optimiser is any object with `update`: it returns the next value of a param as a node, and keeps
what it needs as state of the graph. So it is compiled into the step like everything else.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import numpy as np

import rlx_py as rlx


@dataclass(frozen=True)
class Normalised:
    """m ← b·m + (1 − b)·g; w ← w − lr·m/‖m‖: steps of one length, whatever the gradient's."""

    lr: rlx.optim.Rate
    b: float = 0.9

    def update(self, graph: rlx.Graph, name: str, param: rlx.Node, grad: rlx.Node,
               step: rlx.Node) -> rlx.Node:
        """The next value of a param; keeps <name>.m."""
        m = self.b * graph.state(f"{name}.m", param.shape, param.dtype) + (1 - self.b) * grad
        graph.next(f"{name}.m", m)
        direction = m / (rlx.norm(m) + 1e-12)
        return param - rlx.optim.rate_at(self.lr, step, param.dtype) * direction


@dataclass(frozen=True)
class InverseRoot:
    """A schedule is a function of the step (float scalar): peak·min(1, √(warmup/(step + 1)))."""

    peak: float
    warmup: int

    def __call__(self, step: rlx.Node) -> rlx.Node:
        """The rate at a step."""
        ratio = self.warmup / (step + 1.0)
        return self.peak * rlx.minimum(rlx.sqrt(ratio), 1.0)


def network() -> rlx.Graph:
    """A small regression network with an embedding that stays as it is."""
    g = rlx.Graph("net")
    word, y = g.input("word", (32,), rlx.i32), g.input("y", (32, 1))
    x = rlx.nn.embedding(word, g.param("embed.table", (20, 8)))
    h = rlx.tanh(rlx.nn.linear(x, g.param("body.w", (16, 8)), g.param("body.b", (16,))))
    out = rlx.nn.linear(h, g.param("head.w", (1, 16)), g.param("head.b", (1,)))
    g.output("loss", rlx.nn.mse_loss(out, y))
    return g


def main() -> None:
    """Train the same network in five ways."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    steps = parser.parse_args().steps
    g = network()
    params = rlx.init.normal(g, seed=0, std=0.5)
    rng = np.random.default_rng(0)
    words = rng.integers(0, 20, 32).astype(np.int32)
    targets = np.sin(words).astype(np.float32)[:, None]
    optim = rlx.optim
    choices = {
        "adam, warm-up and cosine": rlx.train_step(
            g, of="loss", optimizer=optim.adam(optim.warmup_cosine(1e-2, steps // 10, steps))),
        "sgd, clipped to norm 0.5": rlx.train_step(
            g, of="loss", optimizer=optim.momentum(0.05), clip_norm=0.5),
        "frozen embedding, own optimiser for the head": rlx.train_step(
            g, of="loss", optimizer=optim.adamw(1e-2), frozen=["embed.*"],
            groups={"head.*": optim.sgd(0.1)}),
        "muon for matrices, adamw for the rest; an update each fourth step": rlx.train_step(
            g, of="loss", optimizer=optim.muon(2e-2, fallback=optim.adamw(1e-2)), accumulate=4,
            groups={"embed.*": optim.lion(3e-3), "head.*": optim.adafactor()}),
        "an optimiser and a schedule of your own": rlx.train_step(
            g, of="loss", optimizer=Normalised(InverseRoot(3e-2, 20))),
    }
    for title, step in choices.items():
        exe = rlx.compile(step)
        state = exe.init(params)
        losses = [float(exe.step(state, word=words, y=targets).loss) for _ in range(steps)]
        still = [k for k, a in state.params.items() if np.array_equal(a, params[k])]
        print(f"{title}: loss {losses[0]:.4f} -> {losses[-1]:.4f}; "
              f"state {sorted(state.states)[:3]} ..., unchanged {still}")
        assert losses[-1] < losses[0], title


if __name__ == "__main__":
    main()
