"""A recurrent network by rlx.scan: the parity of bits, and what checkpoints hold."""

from __future__ import annotations

from typing import Any

import numpy as np

import rlx_py as rlx

STEPS, BATCH, WIDTH = 8, 64, 16


def network(steps: int, checkpoint: Any = None) -> rlx.Graph:
    """The loss of telling, after each bit, whether the number of ones so far is odd."""
    g = rlx.Graph("parity")
    bits, odd = g.input("bits", (steps, BATCH, 1)), g.input("odd", (steps, BATCH, 1))
    u, w = g.param("u", (1, WIDTH)), g.param("w", (WIDTH, WIDTH))
    b, v = g.param("b", (WIDTH,)), g.param("v", (WIDTH, 1))

    def step(h: Any, inputs: Any) -> Any:
        bit, wanted = inputs
        h = rlx.tanh(h @ w + bit @ u + b)
        return h, rlx.square(h @ v - wanted).mean()

    _, losses = rlx.scan(step, rlx.zeros((BATCH, WIDTH)), (bits, odd), checkpoint=checkpoint)
    g.output("loss", losses.mean())
    return g


def main() -> None:
    """Train, then compare the memory of one gradient over 1000 steps."""
    rng = np.random.default_rng(0)
    g = network(STEPS)
    exe = rlx.compile(rlx.train_step(g, of="loss", optimizer=rlx.optim.adam(1e-2)))
    state = exe.init({k: (rng.normal(size=n.shape) * 0.4).astype(np.float32)
                      for k, n in g.params.items()})
    for k in range(1001):
        bits = rng.integers(0, 2, (STEPS, BATCH, 1))
        odd = np.cumsum(bits, 0) % 2
        out = exe.step(state, bits=(2 * bits - 1).astype(np.float32), odd=odd.astype(np.float32))
        if k % 250 == 0:
            print(f"step {k}: loss {out.loss:.4f}")

    print("memory of a gradient over 1000 steps:")
    for name, checkpoint in [("None", None), ("every(10)", rlx.every(10)), ('"sqrt"', "sqrt"),
                             ("budget(400_000)", rlx.budget(400_000))]:
        cost = rlx.compile(rlx.grad(network(1000, checkpoint), of="loss")).cost()
        print(f"  checkpoint={name}: {cost.arena_bytes / 1e6:.2f} MB, {cost.kernels} kernels")


if __name__ == "__main__":
    main()
