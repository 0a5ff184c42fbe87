"""Mixed precision: one network in f32, in bf16, and in f16 with a loss scale inside the step.

    python examples/mixed_precision.py [--epochs 8]

`autocast` makes products narrow and keeps sums, norms and the loss in f32; params stay f32. In f16
small gradients vanish and large ones overflow, so the loss is multiplied by a scale that the step
itself adapts; a step whose gradients are not finite is skipped. Data: examples/data.
"""

from __future__ import annotations

import argparse
import gzip
from pathlib import Path

import numpy as np

import rlx_py as rlx

BATCH = 64
DATA = Path(__file__).parent / "data" / "digits.csv.gz"


def network() -> rlx.Graph:
    """64-128-10 with a layer norm."""
    g = rlx.Graph("digits")
    x, y = g.input("x", (BATCH, 64)), g.input("y", (BATCH,), rlx.i32)
    h = rlx.nn.linear(x, g.param("w0", (128, 64)), g.param("b0", (128,)))
    h = rlx.gelu(rlx.nn.layer_norm(h, (128,)))
    logits = rlx.nn.linear(h, g.param("w1", (10, 128)), g.param("b1", (10,)))
    g.output("loss", rlx.softmax_cross_entropy(logits, y).mean())
    return g


def main() -> None:
    """Train it in three precisions."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=8)
    epochs = parser.parse_args().epochs
    with gzip.open(DATA, "rt") as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.float32)
    images, labels = table[:, :64] / 16, table[:, 64].astype(np.int32)
    g, optim = network(), rlx.optim
    # 2^24 is far too much for f16: the first steps show how the scale finds its range.
    scale = optim.dynamic_loss_scale(init=2.0**24, growth_interval=50)
    variants = {"f32": (g, None), "bf16": (rlx.autocast(g, rlx.bf16), None),
                "f16": (rlx.autocast(g, rlx.f16), scale)}
    for name, (loss, loss_scale) in variants.items():
        exe = rlx.compile(rlx.train_step(loss, of="loss", optimizer=optim.adamw(2e-3),
                                         loss_scale=loss_scale))
        state = exe.init(rlx.init.kaiming_uniform(g, seed=0))
        rng, losses = np.random.default_rng(0), []
        for _ in range(epochs):
            order = rng.permutation(len(labels))
            for i in range(0, len(order) - BATCH + 1, BATCH):
                rows = order[i:i + BATCH]
                losses.append(float(exe.step(state, x=images[rows], y=labels[rows]).loss))
        skipped = len(losses) - int(state.states["step"])
        scaled = f", loss scale {state.states['loss_scale']:.0f}" if loss_scale else ""
        print(f"{name}: loss {losses[0]:.3f} -> {np.mean(losses[-20:]):.3f}, "
              f"{skipped} steps skipped{scaled}")
        assert np.mean(losses[-20:]) < 0.2 * losses[0], name


if __name__ == "__main__":
    main()
