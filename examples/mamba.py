"""Selective copying by two blocks of Mamba: read a few letters among blanks, repeat them in order.

    python examples/mamba.py [--steps 800]

A sequence holds four letters at random places among blanks, then four marks, at which the network
is to say the letters one after another (selective copying, Gu and Dao 2023). The same network is
trained with steps and matrices of the scans that do not depend on what is read: its states keep
letters by their place only, and it learns far less of it. Each is one compiled step, its scans
loops of native code forward and backward.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

import rlx_py as rlx

LETTERS, COUNT, BLANKS, BATCH = 8, 4, 20, 32  # kinds of letters; letters and blanks of a sequence
WIDTH, INNER, STATE, TAPS, BLOCKS = 32, 64, 8, 4, 2
LENGTH, MARK, TOKENS = COUNT + BLANKS + COUNT, LETTERS + 1, LETTERS + 2

Arrays = dict[str, np.ndarray[Any, Any]]


def sequences(rng: np.random.Generator, rows: int) -> Arrays:
    """x[rows, LENGTH] of letters 1 … LETTERS, blanks 0 and marks; y[rows, COUNT], the letters."""
    y = rng.integers(1, LETTERS + 1, (rows, COUNT)).astype(np.int32)
    places = np.argsort(rng.random((rows, COUNT + BLANKS)), axis=1)[:, :COUNT]
    x = np.zeros((rows, LENGTH), np.int32)
    np.put_along_axis(x, np.sort(places, axis=1), y, axis=1)
    x[:, -COUNT:] = MARK
    return {"x": x, "y": y - 1}


def network(rows: int, selective: bool) -> rlx.Graph:
    """Logits at the marks, their loss, and the share of letters that are right."""
    g = rlx.Graph("mamba" if selective else "fixed")
    x, y = g.input("x", (rows, LENGTH), rlx.i32), g.input("y", (rows, COUNT), rlx.i32)
    h = rlx.nn.embedding(x, g.param("embed", (TOKENS, WIDTH)))
    for k in range(BLOCKS):
        h = h + block(g, f"block{k}.", h, selective)
    h = rlx.nn.rms_norm(h[:, -COUNT:], (WIDTH,), g.param("norm", (WIDTH,)))
    logits = h @ g.param("head", (WIDTH, LETTERS))
    g.output("loss", rlx.softmax_cross_entropy(
        logits.reshape(rows * COUNT, LETTERS), y.reshape(rows * COUNT)).mean())
    g.output("right", rlx.equal(logits.argmax(-1), y.astype(rlx.i64)).astype(rlx.f32).mean())
    return g


def block(g: rlx.Graph, name: str, h: rlx.Node, selective: bool) -> rlx.Node:
    """Norm, a gate and a short convolution, the selective scan, and back to the width."""
    def param(what: str, *shape: int) -> rlx.Node:
        return g.param(name + what, shape)

    u = rlx.nn.rms_norm(h, (WIDTH,), param("norm", WIDTH)) @ param("in", WIDTH, 2 * INNER)
    u, z = u[:, :, :INNER], u[:, :, INNER:]
    taps = rlx.nn.conv1d(u.transpose(0, 2, 1), param("taps", INNER, 1, TAPS),
                         param("taps_bias", INNER), padding=TAPS - 1, groups=INNER)
    u = rlx.nn.silu(taps[:, :, :LENGTH].transpose(0, 2, 1))
    read = u if selective else rlx.broadcast_to(param("constant", INNER), u.shape)
    delta = rlx.nn.softplus(read @ param("delta", INNER, INNER) + param("delta_bias", INNER))
    keys = read @ param("keys", INNER, 2 * STATE)
    rates = -rlx.exp(param("log_rates", INNER, STATE))
    y: rlx.Node = rlx.nn.selective_scan(u, delta, rates, keys[:, :, :STATE], keys[:, :, STATE:],
                                        param("skip", INNER), z)
    return y @ param("out", INNER, WIDTH)


def initial(g: rlx.Graph) -> Arrays:
    """Norms of ones; rates 1 … STATE; steps from 0.001 to 0.1; products that keep the variance."""
    rng = np.random.default_rng(1)
    found = {}
    for name, node in g.params.items():
        kind = name.rpartition(".")[2]
        if kind in ("norm", "skip"):
            value = np.ones(node.shape)
        elif kind == "log_rates":
            value = np.broadcast_to(np.log(np.arange(1, STATE + 1)), node.shape)
        elif kind == "delta_bias":
            value = np.log(np.expm1(np.exp(rng.uniform(np.log(1e-3), np.log(1e-1), node.shape))))
        elif kind == "taps_bias":
            value = np.zeros(node.shape)
        else:
            inputs = {"taps": TAPS, "embed": 1, "constant": 1}.get(kind, node.shape[0])
            value = rng.standard_normal(node.shape) / np.sqrt(inputs)
        found[name] = value.astype(np.float32)
    return found


def train(selective: bool, steps: int) -> None:
    """Train, and print the share of letters right on new sequences."""
    g = network(BATCH, selective)
    rate = rlx.optim.warmup_cosine(5e-3, steps // 10, steps)
    exe = rlx.compile(rlx.train_step(g, of="loss", optimizer=rlx.optim.adamw(rate), clip_norm=1.0))
    state, rng = exe.init(initial(g)), np.random.default_rng(2)
    start, losses = time.perf_counter(), []
    for _ in range(steps):
        losses.append(float(exe.step(state, **sequences(rng, BATCH)).loss))
    each = (time.perf_counter() - start) / steps * 1e3
    found = rlx.compile(network(512, selective))(
        **state.params, **sequences(np.random.default_rng(3), 512))
    what = "selective" if selective else "fixed    "
    print(f"{what} steps: loss {np.mean(losses[:10]):.3f} to {np.mean(losses[-10:]):.3f}, "
          f"{found.right:.1%} of new letters right, {each:.1f} ms a step")


def main() -> None:
    """Train both networks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=800)
    steps = parser.parse_args().steps
    print(f"{COUNT} of {LETTERS} letters among {BLANKS} blanks; by chance {1 / LETTERS:.1%}")
    train(True, steps)
    train(False, steps)


if __name__ == "__main__":
    main()
