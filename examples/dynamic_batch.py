"""One graph for every batch size: digits whose last batch is smaller, then a test set in one call.

    python examples/dynamic_batch.py [--epochs 12]

`rlx.dim("B")` is a size without a number. Shapes are checked as the graph is built, derivatives
and the whole training step are made once, and the first call at each size compiles. Data:
examples/data.
"""

from __future__ import annotations

import argparse
import gzip
from pathlib import Path

import numpy as np

import rlx_py as rlx

BATCH = 128
DATA = Path(__file__).parent / "data"


def network(batch: rlx.Dim) -> rlx.Graph:
    """A convolution of 8x8 images, a pool, and a linear layer."""
    g = rlx.Graph("digits")
    x, y = g.input("x", (batch, 64)), g.input("y", (batch,), rlx.i32)
    images = x.reshape((batch, 1, 8, 8))
    h = rlx.relu(rlx.conv2d(images, g.param("k", (16, 1, 3, 3)), g.param("c", (16,)), padding=1))
    h = rlx.max_pool2d(h, 2).reshape((batch, -1))
    logits = rlx.nn.linear(h, g.param("w", (10, 256)), g.param("b", (10,)))
    g.output("loss", rlx.cross_entropy(logits, y))
    g.output("right", rlx.equal(rlx.argmax(logits, axis=1), y.astype(rlx.i64)).sum())
    return g


def main() -> None:
    """Train, evaluate, and show what is refused."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=12)
    epochs = parser.parse_args().epochs
    with gzip.open(DATA / "digits.csv.gz", "rt") as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.float32)
    images, labels = table[:, :64] / 16, table[:, 64].astype(np.int32)
    is_test = np.zeros(len(table), bool)
    is_test[np.loadtxt(DATA / "test_rows.txt", dtype=int)] = True
    train, test = np.flatnonzero(~is_test), np.flatnonzero(is_test)

    g = network(rlx.dim("B"))
    print(f"{g.outputs['right'].type} of {g.inputs['x'].type}")
    step = rlx.compile(rlx.train_step(g, of="loss", optimizer=rlx.optim.adamw(1e-2)))
    assert isinstance(step, rlx.DynamicExecutable)
    state = step.init(rlx.init.kaiming_uniform(g, seed=0))
    rng = np.random.default_rng(0)
    for epoch in range(epochs):
        order = rng.permutation(train)
        batches = [order[i:i + BATCH] for i in range(0, len(order), BATCH)]
        losses = [float(step.step(state, x=images[b], y=labels[b]).loss) for b in batches]
        print(f"epoch {epoch}: loss {np.mean(losses):.3f} over {len(batches)} batches, "
              f"the last of {len(batches[-1])}")
    evaluate = rlx.compile(g)
    right = evaluate(**state.params, x=images[test], y=labels[test]).right
    print(f"test accuracy {right / len(test):.3f} of {len(test)} in one call")
    print(f"compiled for {step.specializations.sizes}")
    for call in (lambda: evaluate(**state.params, x=images[:3], y=labels[:4]),
                 lambda: g.inputs["x"].reshape((-1, 7)),
                 lambda: g.inputs["x"][:BATCH]):
        try:
            call()
        except rlx.ShapeError as error:
            print("refused:", str(error).splitlines()[0])
    assert right > 0.9 * len(test), right


if __name__ == "__main__":
    main()
