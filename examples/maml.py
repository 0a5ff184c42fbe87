"""MAML on sines and on few-shot digits: a start from which a few gradient steps learn a new task.

    python examples/maml.py [--first-order] [--sine-steps 1000] [--digit-steps 1000]

One compiled step holds it all: for every task of a batch (`rlx.vmap`) the inner gradient steps on
its support set, the loss of what they give on its query set, the gradient of that with respect to
the start, second derivatives included, and Adam. `--first-order` stops the gradient at the inner
gradients instead. Digit tasks (data: examples/data) tell `--ways` classes apart from `--shots`
images of each, all moved by up to a pixel. Reported are means over 200 tasks of classes that
training never saw, with their standard error, and the same from a random start. Finn et al. 2017.

Measured after 5 steps, from a random start, first order, second order: error 4.29, 1.13, 0.61;
accuracy 0.60, 0.39, 0.76. Here the first order is not enough for digits.
"""

from __future__ import annotations

import argparse
import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

import rlx_py as rlx

Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]
Learner = Callable[[int], rlx.Graph]
DATA = Path(__file__).parent / "data" / "digits.csv.gz"
HELD_OUT = (1, 4, 7, 9)


def regressor(points: int) -> rlx.Graph:
    """1-40-40-1 on the points of one sine; its score is the squared error."""
    g = rlx.Graph("regressor")
    x, y = g.input("x", (points, 1)), g.input("y", (points, 1))
    h = rlx.tanh(x @ g.param("w0", (1, 40)) + g.param("b0", (40,)))
    h = rlx.tanh(h @ g.param("w1", (40, 40)) + g.param("b1", (40,)))
    loss = rlx.nn.mse_loss(h @ g.param("w2", (40, 1)) + g.param("b2", (1,)), y)
    g.output("loss", loss)
    g.output("score", loss)
    return g


def classifier(ways: int) -> Learner:
    """Two convolutions with pools and a linear layer; its score is the accuracy."""
    def build(images: int) -> rlx.Graph:
        g = rlx.Graph("classifier")
        x, y = g.input("x", (images, 8, 8)), g.input("y", (images,), rlx.i32)
        h = x.reshape(images, 1, 8, 8)
        for i, (n, m) in enumerate([(1, 16), (16, 32)]):
            w, b = g.param(f"conv{i}", (m, n, 3, 3)), g.param(f"b{i}", (m,))
            h = rlx.nn.max_pool2d(rlx.leaky_relu(rlx.nn.conv2d(h, w, b, padding=1)), 2)
        head = g.param("head", (ways, 128)), g.param("bias", (ways,))
        logits = rlx.nn.linear(h.reshape(images, 128), *head)
        g.output("loss", rlx.softmax_cross_entropy(logits, y).mean())
        g.output("score", rlx.equal(logits.argmax(1), y.astype(rlx.i64)).astype(rlx.f32).mean())
        return g
    return build


def meta_graph(learner: Learner, batch: Arrays, steps: int, rate: float, first_order: bool
               ) -> rlx.Graph:
    """The mean loss and all scores on the query sets of a batch of tasks, each after `steps`
    gradient steps on its support set from the same params."""
    tasks, support = batch["support_y"].shape[:2]
    inner, outer = rlx.grad(learner(support), of="loss"), learner(batch["query_y"].shape[1])
    task = rlx.Graph("task")
    given = {k: task.input(k, a.shape[1:], a.dtype) for k, a in batch.items()}
    weights = {k: task.param(k, p.shape) for k, p in inner.params.items()}
    for _ in range(steps):
        found = task.call(inner, x=given["support_x"], y=given["support_y"], **weights)
        grads = {k: found[f"grad_{k}"] for k in weights}
        if first_order:
            grads = {k: rlx.stop_gradient(v) for k, v in grads.items()}
        weights = {k: w - rate * grads[k] for k, w in weights.items()}
    found = task.call(outer, x=given["query_x"], y=given["query_y"], **weights)
    task.output("loss", found.loss)
    task.output("score", found.score)

    g = rlx.Graph("maml")
    inputs = {k: g.input(k, a.shape, a.dtype) for k, a in batch.items()}
    each = g.call(rlx.vmap(task, in_axes=0, size=tasks), **inputs)
    g.output("loss", each.loss.mean())
    g.output("score", each.score)
    return g


def sine_tasks(rng: np.random.Generator, tasks: int, shots: int) -> Arrays:
    """Points of sines of random amplitude and phase."""
    amplitude, phase = rng.uniform(0.1, 5.0, (tasks, 1, 1)), rng.uniform(0, np.pi, (tasks, 1, 1))
    batch = {}
    for part in ("support", "query"):
        x = rng.uniform(-5, 5, (tasks, shots, 1))
        batch[f"{part}_x"] = x.astype(np.float32)
        batch[f"{part}_y"] = (amplitude * np.sin(x + phase)).astype(np.float32)
    return batch


def load_classes() -> tuple[list[Array], list[Array]]:
    """Images [n, 8, 8] of each class to train on, and of each held out. A digit turned by a
    quarter, a half or three quarters counts as a class of its own in training."""
    with gzip.open(DATA, "rt") as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.float32)
    images, labels = (table[:, :64] / 16).reshape(-1, 8, 8), table[:, 64]
    seen = [np.rot90(images[labels == d], turns, axes=(1, 2))
            for d in range(10) if d not in HELD_OUT for turns in range(4)]
    return seen, [images[labels == d] for d in HELD_OUT]


def moved(images: Array, rng: np.random.Generator) -> Array:
    """Each image moved by at most one pixel in each direction, zeros coming in."""
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1)))
    rows, columns = rng.integers(0, 3, (2, len(images), 1)) + np.arange(8)
    found: Array = padded[np.arange(len(images))[:, None, None], rows[:, :, None],
                          columns[:, None, :]]
    return found


def digit_tasks(rng: np.random.Generator, classes: list[Array], tasks: int, ways: int, shots: int,
                queries: int) -> Arrays:
    """Tasks over random classes under random labels 0 … ways − 1; no image is in both sets."""
    support, query = [], []
    for _ in range(tasks):
        for i in rng.permutation(len(classes))[:ways]:
            rows = rng.permutation(len(classes[i]))[: shots + queries]
            images = moved(classes[i][rows], rng)
            support.append(images[:shots])
            query.append(images[shots:])
    labels = [np.tile(np.repeat(np.arange(ways, dtype=np.int32), n), (tasks, 1))
              for n in (shots, queries)]
    return {"support_x": np.stack(support).reshape(tasks, -1, 8, 8), "support_y": labels[0],
            "query_x": np.stack(query).reshape(tasks, -1, 8, 8), "query_y": labels[1]}


def train(title: str, learner: Learner, draw: Callable[[int], Arrays], steps: int, rate: float,
          first_order: bool, tasks: int) -> dict[str, Arrays]:
    """Params before and after training on `steps` batches of tasks."""
    g = meta_graph(learner, draw(tasks), 5, rate, first_order)
    step = rlx.compile(rlx.train_step(
        g, of="loss", clip_norm=1.0, optimizer=rlx.optim.adam(
            rlx.optim.warmup_cosine(2e-3, steps // 20, steps))))
    start = rlx.init.xavier_uniform(learner(1), seed=0)
    state = step.init(start)
    bar = tqdm(range(steps), desc=title, unit="step")
    for i in bar:
        out = step.step(state, **draw(tasks))
        if i % 50 == 0:
            bar.set_postfix(loss=f"{out.loss:.3f}")
    return {"random": start, "trained": state.params}


def report(title: str, learner: Learner, batch: Arrays, rate: float, starts: dict[str, Arrays]
           ) -> None:
    """Print the mean score on a batch of tasks after 0, 1 and 5 inner steps from each start."""
    print(f"{title} after 0, 1 and 5 steps")
    steps = [rlx.compile(meta_graph(learner, batch, n, rate, True)) for n in (0, 1, 5)]
    for name, params in starts.items():
        found = [exe(**batch, **params).score for exe in steps]
        listed = "   ".join(f"{s.mean():.3f} ±{s.std() / np.sqrt(len(s)):.3f}" for s in found)
        print(f"  from a {name} start: {listed}")


def main() -> None:
    """Meta-train both, and compare with adapting from the untrained start."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first-order", action="store_true")
    parser.add_argument("--sine-steps", type=int, default=1000)
    parser.add_argument("--digit-steps", type=int, default=1000)
    parser.add_argument("--ways", type=int, choices=(2, 3, 4), default=3)
    parser.add_argument("--shots", type=int, default=5)
    parser.add_argument("--tasks", type=int, default=16, help="in a batch")
    args = parser.parse_args()
    rng, test = np.random.default_rng(0), np.random.default_rng(1)

    starts = train("sines", regressor, lambda n: sine_tasks(rng, n, 10), args.sine_steps, 0.01,
                   args.first_order, args.tasks)
    report("squared error on new sines", regressor, sine_tasks(test, 200, 10), 0.01, starts)

    seen, held_out = load_classes()
    learner = classifier(args.ways)
    starts = train(
        "digits", learner, lambda n: digit_tasks(rng, seen, n, args.ways, args.shots, 10),
        args.digit_steps, 0.2, args.first_order, args.tasks)
    report(f"{args.ways}-way {args.shots}-shot accuracy on held-out digits", learner,
           digit_tasks(test, held_out, 200, args.ways, args.shots, 20), 0.2, starts)


if __name__ == "__main__":
    main()
