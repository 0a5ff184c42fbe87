"""A Wasserstein GAN whose critic is an LSTM, kept smooth by a gradient penalty.

    python examples/gradient_penalty.py [--steps 3000]

The critic reads an image of a digit row by row. Its slope along the input must be 1 between real
and generated images, so its loss holds (‖∂critic/∂x‖ − 1)²: `rlx.grad` gives the slope as a graph,
and the training step differentiates that again, a gradient of a gradient through a scan. Noise,
both losses and both optimisers are in one native function. Data: examples/data. Gulrajani et al.
2017; two rates in place of several critic steps: Heusel et al. 2017.
"""

from __future__ import annotations

import argparse
import gzip
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

import rlx_py as rlx

Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]
DATA = Path(__file__).parent / "data" / "digits.csv.gz"
BATCH, NOISE, HIDDEN, PENALTY = 64, 16, 48, 10.0
SHADES = " .:-=+*#%@"


def critic() -> rlx.Graph:
    """Scores of images [B, 8, 8], a row a step, and their sum."""
    g = rlx.Graph("critic")
    x = g.input("x", (BATCH, 8, 8))
    weights = (g.param("w_ih", (4 * HIDDEN, 8)), g.param("w_hh", (4 * HIDDEN, HIDDEN)),
               g.param("b_ih", (4 * HIDDEN,)), g.param("b_hh", (4 * HIDDEN,)))
    h, _ = rlx.nn.lstm(x, None, [weights], batch_first=True)
    hidden = rlx.leaky_relu(rlx.nn.linear(h.reshape(BATCH, -1), g.param("w0", (64, 8 * HIDDEN)),
                                          g.param("b0", (64,))), 0.2)
    scores = rlx.nn.linear(hidden, g.param("w1", (1, 64)))[:, 0]
    g.output("scores", scores)
    g.output("sum", scores.sum())
    return g


def generator() -> rlx.Graph:
    """Noise [B, NOISE] to images."""
    g = rlx.Graph("generator")
    h = g.input("z", (BATCH, NOISE))
    for i, (n, m) in enumerate([(NOISE, 128), (128, 128), (128, 64)]):
        h = rlx.nn.linear(h, g.param(f"w{i}", (m, n)), g.param(f"b{i}", (m,)))
        h = rlx.relu(h) if i < 2 else rlx.sigmoid(h)
    g.output("images", h.reshape(BATCH, 8, 8))
    return g


def params_of(g: rlx.Graph, sub: rlx.Graph) -> dict[str, rlx.Node]:
    """The params of a part, under its name in the whole."""
    return {k: g.param(f"{sub.name}.{k}", p.shape) for k, p in sub.params.items()}


def gan() -> rlx.Graph:
    """Both losses, as one: what is not its own is behind a stop_gradient in each."""
    g, judge, artist = rlx.Graph("gan"), critic(), generator()
    slope = rlx.grad(judge, of="sum", wrt=["x"])
    real = g.input("real", (BATCH, 8, 8))
    own, art = params_of(g, judge), params_of(g, artist)
    fixed = {k: rlx.stop_gradient(p) for k, p in own.items()}
    noise, mix = rlx.random.split(rlx.random.key_state(g))
    fake = g.call(artist, z=rlx.random.normal(noise, (BATCH, NOISE)), **art).images
    shown = rlx.stop_gradient(fake)

    share = rlx.random.uniform(mix, (BATCH, 1, 1))
    between = share * real + (1.0 - share) * shown
    slopes = rlx.norm(g.call(slope, x=between, **own).grad_x.reshape(BATCH, 64), axis=1)
    distance = (g.call(judge, x=real, **own).scores.mean()
                - g.call(judge, x=shown, **own).scores.mean())
    penalty = rlx.square(slopes - 1.0).mean()
    mine = -g.call(judge, x=fake, **fixed).scores.mean()
    g.output("loss", PENALTY * penalty - distance + mine)
    g.output("distance", distance)
    g.output("slope", slopes.mean())
    return g


def first_params() -> Arrays:
    """Params of both parts."""
    parts: list[tuple[rlx.Graph, Arrays]] = [
        (critic(), rlx.init.xavier_uniform(critic(), seed=0)),
        (generator(), rlx.init.kaiming_uniform(generator(), seed=1))]
    return {f"{g.name}.{k}": a for g, params in parts for k, a in params.items()}


def generate(params: Arrays, batches: int) -> Array:
    """Images from new noise."""
    exe, rng = rlx.compile(generator()), np.random.default_rng(5)
    own = {k.removeprefix("generator."): a for k, a in params.items()
           if k.startswith("generator.")}
    return np.concatenate([
        exe(z=rng.normal(size=(BATCH, NOISE)).astype(np.float32), **own).images
        for _ in range(batches)])


def sliced_distance(a: Array, b: Array) -> float:
    """The mean Wasserstein distance of two sets of equal size along 300 random directions."""
    directions = np.random.default_rng(6).normal(size=(64, 300))
    directions /= np.linalg.norm(directions, axis=0)
    along = [np.sort(x.reshape(len(x), 64) @ directions, axis=0) for x in (a, b)]
    return float(np.abs(along[0] - along[1]).mean())


def show(images: Array) -> None:
    """Print images side by side."""
    for row in images.transpose(1, 0, 2):
        print("  ".join("".join(SHADES[int(v * 9.99)] * 2 for v in part) for part in row))


def main() -> None:
    """Train, and measure how far generated images are from real ones."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=3000)
    steps = parser.parse_args().steps
    with gzip.open(DATA, "rt") as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.float32)
    images = np.random.default_rng(0).permutation(table[:, :64].reshape(-1, 8, 8) / 16)
    seen, held_out = images[:-640], images[-640:]

    def adam(rate: float) -> rlx.optim.adam:
        return rlx.optim.adam(rlx.optim.linear(rate, 0.1 * rate, steps), b1=0.5, b2=0.9)

    exe = rlx.compile(rlx.train_step(gan(), of="loss", optimizer=adam(5e-4),
                                     groups={"critic.*": adam(2e-3)}))
    state, rng = exe.init(first_params()), np.random.default_rng(1)
    slopes, bar = [], tqdm(range(steps), unit="step")
    for n in bar:
        out = exe.step(state, real=seen[rng.integers(0, len(seen), BATCH)])
        slopes.append(float(out.slope))
        if n % 50 == 0:
            bar.set_postfix(distance=f"{out.distance:.3f}", slope=f"{out.slope:.3f}")
    print(f"slope of the critic: {slopes[0]:.3f} at first, "
          f"{np.mean(slopes[-100:]):.3f} in the last 100 steps")
    print("distance to 640 held-out images (sliced Wasserstein)")
    for name, found in (("an untrained generator", generate(first_params(), 10)),
                        ("the trained generator", generate(state.params, 10)),
                        ("other real images", seen[:640])):
        print(f"  of {name}: {sliced_distance(found, held_out):.4f}")
    show(generate(state.params, 1)[:6])


if __name__ == "__main__":
    main()
