"""Train an MLP and a small CNN on real handwritten digits; the whole step is one native function.

    python examples/train_digits.py [--seeds 3] [--epochs-mlp 60] [--epochs-cnn 20]

Data: examples/data (UCI optical digits, CC BY 4.0). Each model is trained from each seed with
AdamW; the loss curves go to build/digits_loss.png where matplotlib is there.
"""

from __future__ import annotations

import argparse
import gzip
import importlib.util
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

import rlx_py as rlx

Array = np.ndarray[Any, Any]
HERE = Path(__file__).parent
BATCH = 64


@dataclass(frozen=True)
class Digits:
    """Images f32 [n, 1, 8, 8] in 0 … 1 and labels i32 [n], for training and testing."""

    train_x: Array
    train_y: Array
    test_x: Array
    test_y: Array


def load_digits() -> Digits:
    """The data with its stored stratified split."""
    with gzip.open(HERE / "data" / "digits.csv.gz", "rt") as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.float32)
    images = (table[:, :64] / 16).reshape(-1, 1, 8, 8)
    labels = table[:, 64].astype(np.int32)
    test = np.zeros(len(table), bool)
    test[np.loadtxt(HERE / "data" / "test_rows.txt", dtype=int)] = True
    return Digits(images[~test], labels[~test], images[test], labels[test])


def mlp(batch: int) -> rlx.Graph:
    """64-256-128-10 with ReLU."""
    g = rlx.Graph("mlp")
    x = g.input("x", (batch, 1, 8, 8)).reshape(batch, 64)
    for i, (n_in, n_out) in enumerate([(64, 256), (256, 128), (128, 10)]):
        w, b = g.param(f"w{i}", (n_out, n_in)), g.param(f"b{i}", (n_out,))
        x = rlx.nn.linear(x, w, b)
        x = rlx.relu(x) if i < 2 else x
    return with_loss(g, x)


def cnn(batch: int) -> rlx.Graph:
    """Two 3×3 convolutions (32 and 64 channels), a 2×2 max-pool, two linear layers."""
    g = rlx.Graph("cnn")
    x = g.input("x", (batch, 1, 8, 8))
    for i, (n_in, n_out) in enumerate([(1, 32), (32, 64)]):
        w, b = g.param(f"conv{i}", (n_out, n_in, 3, 3)), g.param(f"conv_b{i}", (n_out,))
        x = rlx.relu(rlx.nn.conv2d(x, w, b, padding=1))
    x = rlx.nn.max_pool2d(x, 2).reshape(batch, 64 * 16)
    for i, (n_in, n_out) in enumerate([(64 * 16, 64), (64, 10)]):
        w, b = g.param(f"w{i}", (n_out, n_in)), g.param(f"b{i}", (n_out,))
        x = rlx.nn.linear(x, w, b)
        x = rlx.relu(x) if i < 1 else x
    return with_loss(g, x)


def with_loss(g: rlx.Graph, logits: rlx.Node) -> rlx.Graph:
    """The graph with its loss and the number of right answers as outputs."""
    y = g.input("y", (logits.shape[0],), rlx.i32)
    g.output("loss", rlx.softmax_cross_entropy(logits, y).mean())
    right = rlx.equal(logits.argmax(axis=1), y.astype(rlx.i64))
    g.output("right", right.sum())
    return g


def batches(x: Array, y: Array, rng: np.random.Generator) -> Iterator[tuple[Array, Array]]:
    """Shuffled full batches; what is left over waits for the next epoch."""
    order = rng.permutation(len(x))
    for start in range(0, len(x) - BATCH + 1, BATCH):
        rows = order[start : start + BATCH]
        yield x[rows], y[rows]


def shifted(x: Array, rng: np.random.Generator) -> Array:
    """Each image moved by at most one pixel in each direction, zeros coming in."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    offsets = rng.integers(0, 3, (len(x), 2))
    return np.stack([p[:, i : i + 8, j : j + 8] for p, (i, j) in zip(padded, offsets, strict=True)])


def train(name: str, build: Callable[[int], rlx.Graph], data: Digits, epochs: int, seed: int
          ) -> tuple[float, list[float]]:
    """Test accuracy and the mean loss of each epoch."""
    rng = np.random.default_rng(seed)
    steps = epochs * (len(data.train_x) // BATCH)
    schedule = rlx.optim.warmup_cosine(3e-3, steps // 20 + 1, steps)
    start = time.perf_counter()
    graph = build(BATCH)
    exe = rlx.compile(rlx.train_step(graph, of="loss",
                                     optimizer=rlx.optim.adamw(schedule, weight_decay=0.05)))
    compile_seconds = time.perf_counter() - start
    test = rlx.compile(build(len(data.test_x)))
    state = exe.init(rlx.init.kaiming_uniform(graph, seed))
    losses: list[float] = []
    step_seconds, count = 0.0, 0
    for epoch in tqdm(range(epochs), desc=f"{name} seed {seed}", unit="epoch"):
        total, right, seen = 0.0, 0, 0
        for x, y in batches(data.train_x, data.train_y, rng):
            x = shifted(x, rng)
            begin = time.perf_counter()
            out = exe.step(state, x=x, y=y)
            step_seconds += time.perf_counter() - begin
            count += 1
            total, right, seen = total + float(out.loss), right + int(out.right), seen + len(x)
        losses.append(total / (seen / BATCH))
        tqdm.write(f"  epoch {epoch + 1:2d}  loss {losses[-1]:.4f}  "
                   f"training accuracy {right / seen:.4f}")
    found = test(**state.params, x=data.test_x, y=data.test_y)
    accuracy = int(found.right) / len(data.test_y)
    print(f"{name} seed {seed}: test accuracy {accuracy:.4f}, compiled in {compile_seconds:.2f} s, "
          f"{step_seconds / count * 1e6:.0f} us a step, arena {exe.cost().arena_bytes} bytes")
    return accuracy, losses


def draw_losses(curves: dict[str, list[float]], path: Path) -> None:
    """One line a run, as PNG, if matplotlib is there."""
    if importlib.util.find_spec("matplotlib") is None:
        print("matplotlib is not installed: no loss curve")
        return
    plt = importlib.import_module("matplotlib.figure")
    figure = plt.Figure(figsize=(7, 4))
    axes = figure.subplots()
    for name, losses in curves.items():
        axes.plot(range(1, len(losses) + 1), losses, label=name)
    axes.set(xlabel="epoch", ylabel="training loss", yscale="log")
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    print(f"loss curves: {path}")


def main() -> None:
    """Both models from every seed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs-mlp", type=int, default=60)
    parser.add_argument("--epochs-cnn", type=int, default=20)
    parser.add_argument("--curve", type=Path, default=Path("build/digits_loss.png"))
    args = parser.parse_args()
    data = load_digits()
    curves: dict[str, list[float]] = {}
    for name, build, epochs in (("mlp", mlp, args.epochs_mlp), ("cnn", cnn, args.epochs_cnn)):
        accuracies = []
        for seed in range(args.seeds):
            accuracy, losses = train(name, build, data, epochs, seed)
            accuracies.append(accuracy)
            curves[f"{name} seed {seed}"] = losses
        print(f"{name}: mean test accuracy {np.mean(accuracies):.4f} over seeds "
              f"0-{args.seeds - 1}")
    draw_losses(curves, args.curve)


if __name__ == "__main__":
    main()
