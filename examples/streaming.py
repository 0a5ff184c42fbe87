"""A sequence longer than memory: state-space layers and attention run piece by piece.

    python examples/streaming.py

A layer of Mamba-2 gives the state after its last step and starts from one, so that a stream is
filtered in pieces with the numbers of one run; with the gradient stopped between pieces, training
needs the memory of one piece (truncated backpropagation). Attention decodes one token after another
from a cache of keys, turned at their positions.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import rlx_py as rlx

HEADS, WIDTH, DEPTH, PIECE, PIECES = 2, 4, 8, 16, 6
LENGTH = PIECE * PIECES
STATE = (1, HEADS, WIDTH, DEPTH)

Array = np.ndarray[Any, Any]


def layer(g: rlx.Graph, x: rlx.Node, state: Any = None) -> tuple[rlx.Node, rlx.Node]:
    """A scan whose steps and matrices depend on what is read: y, and the state after it."""
    flat = x.reshape(1, x.shape[1], HEADS * WIDTH)
    dt = rlx.softplus(flat @ g.param("dt", (HEADS * WIDTH, HEADS)))
    b, c = (rlx.reshape(flat @ g.param(name, (HEADS * WIDTH, DEPTH)), (1, x.shape[1], 1, DEPTH))
            for name in ("b", "c"))
    decay = -rlx.exp(g.param("decay", (HEADS,)))
    y, after = rlx.nn.mamba2_ssd(x, dt, decay, b, c, state=state, return_state=True)
    return y, after


def training(length: int) -> rlx.Graph:
    """The loss of predicting a delayed input, from a state that the step before left."""
    g = rlx.Graph("stream")
    x = g.input("x", (1, length, HEADS, WIDTH))
    target = g.input("target", (1, length, HEADS, WIDTH))
    carried = g.state("carried", STATE)
    y, after = layer(g, x, rlx.stop_gradient(carried))
    g.output("loss", rlx.square(y - target).mean())
    g.next("carried", rlx.stop_gradient(after))
    return g


def decoder() -> rlx.Graph:
    """One token of causal attention beside a cache of all keys and values so far."""
    g = rlx.Graph("decoder")
    q, k, v = (g.input(name, (1, HEADS, 1, DEPTH)) for name in "qkv")
    t = g.input("t", (), rlx.i32)
    angle = np.arange(LENGTH)[:, None] / 100.0 ** (np.arange(DEPTH // 2) / (DEPTH // 2))
    tables = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
    q, k = (rlx.nn.rope(n, *tables, offset=t) for n in (q, k))
    filled = {}
    for name, new in (("keys", k), ("values", v)):
        cache = g.state(name, (1, HEADS, LENGTH, DEPTH))
        filled[name] = rlx.scatter_set(cache, t.reshape(1), new, axis=2)
        g.next(name, filled[name])
    seen = rlx.arange(LENGTH) <= t
    g.output("y", rlx.nn.attention(q, filled["keys"], filled["values"], seen.reshape(1, LENGTH)))
    return g


def main() -> None:
    """Compare pieces with the whole, train over a stream, decode."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1, LENGTH, HEADS, WIDTH)).astype(np.float32)
    target = np.roll(x, 2, 1)
    steps = {n: rlx.compile(rlx.train_step(training(n), of="loss", optimizer=rlx.optim.adam(0.01)))
             for n in (PIECE, LENGTH)}
    params = rlx.init.kaiming_uniform(training(PIECE), seed=0)

    still = rlx.compile(training(LENGTH)), rlx.compile(training(PIECE))
    whole, part = (exe.init(params) for exe in still)
    losses = [float(still[1].step(part, x=x[:, a:a + PIECE], target=target[:, a:a + PIECE]).loss)
              for a in range(0, LENGTH, PIECE)]
    one = float(still[0].step(whole, x=x, target=target).loss)
    gap = np.abs(whole.states["carried"] - part.states["carried"]).max()
    print(f"loss of the whole {one:.5f}, of its pieces {np.mean(losses):.5f}; "
          f"largest difference of the last states {gap:.0e}")

    state = steps[PIECE].init(params)
    first = last = 0.0
    for _ in range(60):
        state.states["carried"][...] = 0
        last = float(np.mean([
            steps[PIECE].step(state, x=x[:, a:a + PIECE], target=target[:, a:a + PIECE]).loss
            for a in range(0, LENGTH, PIECE)]))
        first = first or last
    bytes_of = {n: exe.cost().arena_bytes for n, exe in steps.items()}
    print(f"truncated backpropagation: loss {first:.3f} to {last:.3f}, memory "
          f"{bytes_of[PIECE] / bytes_of[LENGTH]:.2f} of that of the whole sequence")

    q, k, v = (rng.normal(size=(1, HEADS, LENGTH, DEPTH)).astype(np.float32) for _ in range(3))
    decode = rlx.compile(decoder())
    cache = decode.init({})
    ys = [decode.step(cache, q=q[:, :, [t]], k=k[:, :, [t]], v=v[:, :, [t]], t=np.int32(t)).y
          for t in range(LENGTH)]
    angle = np.arange(LENGTH)[:, None] / 100.0 ** (np.arange(DEPTH // 2) / (DEPTH // 2))
    cos, sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
    g = rlx.Graph("whole")
    g.output("y", rlx.nn.attention(rlx.nn.rope(rlx.constant(q), cos, sin),
                                   rlx.nn.rope(rlx.constant(k), cos, sin), v, mask="causal"))
    close = np.allclose(np.concatenate(ys, 2), rlx.compile(g)().y, atol=1e-5)
    print(f"decoded token by token as causal attention: {close}")


if __name__ == "__main__":
    main()
