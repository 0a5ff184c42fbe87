"""Less memory for a deep network: the layers' insides are computed again in the backward pass.

    python examples/checkpoint.py

Prints memory and arithmetic of a step for three policies, and for budgets over the whole network,
of which a minimum cut chooses what is kept. The gradients have the same bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import rlx_py as rlx

BLOCKS, ROWS, WIDTH = 6, 512, 64


def block(h: Any, w: Any) -> Any:
    """Four layers with one weight."""
    for _ in range(4):
        h = rlx.gelu(rlx.nn.layer_norm(h @ w, (WIDTH,)))
    return h


def network(layer: Any) -> rlx.Graph:
    """Blocks in a row."""
    g = rlx.Graph("deep")
    h = g.input("x", (ROWS, WIDTH))
    for i in range(BLOCKS):
        h = h + layer(h, g.param(f"w{i}", (WIDTH, WIDTH)))
    g.output("loss", rlx.square(h).mean())
    return g


def main() -> None:
    """Compare the policies."""
    rng = np.random.default_rng(0)
    feed = {"x": rng.normal(size=(ROWS, WIDTH)).astype(np.float32)}
    feed |= {f"w{i}": rng.normal(0, 0.1, (WIDTH, WIDTH)).astype(np.float32)
             for i in range(BLOCKS)}
    graphs = {"keep everything": network(block),
              "keep products": network(rlx.checkpoint(block, policy="products")),
              "keep nothing": network(rlx.checkpoint(block))}
    layer = ROWS * WIDTH * 4  # bytes
    for count in (8, 16, 32):
        graphs[f"keep {count * layer / 1e6:.2f} MB"] = rlx.checkpoint(
            network(block), policy=rlx.budget(count * layer))
    seen = []
    for name, graph in graphs.items():
        exe = rlx.compile(rlx.value_and_grad(graph, of="loss"))
        cost = exe.cost()
        print(f"{name:16} {cost.arena_bytes / 1e6:6.2f} MB {cost.flops / 1e6:8.0f} Mflop")
        seen.append({k: v.tobytes() for k, v in exe(**feed).items() if k != "loss"})
    print("same bits:", all(s == seen[0] for s in seen))


if __name__ == "__main__":
    main()
