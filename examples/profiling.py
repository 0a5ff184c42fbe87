"""Where the time of a training step goes: each kernel, with the lines of yours that it computes.

    python examples/profiling.py
"""

from __future__ import annotations

import numpy as np

import rlx_py as rlx


def loss(g: rlx.Graph) -> rlx.Node:
    """Cross-entropy of a small convolutional classifier."""
    x, y = g.input("x", (16, 3, 16, 16)), g.input("y", (16,), rlx.i32)
    h = rlx.nn.conv2d(x, g.param("kernel", (32, 3, 3, 3)), padding=1)
    h = rlx.relu(rlx.nn.group_norm(h, 8))
    logits = h.mean((2, 3)) @ g.param("w", (32, 10))
    return rlx.softmax_cross_entropy(logits, y).mean()


def main() -> None:
    """Profile one step; print its slowest kernels, and the lines of the slowest."""
    g = rlx.Graph("classifier")
    g.output("loss", loss(g))
    step = rlx.train_step(g, of="loss", optimizer=rlx.optim.sgd(0.1))
    exe = rlx.compile(step, threads=1)

    rng = np.random.default_rng(0)
    params = rlx.init.kaiming_uniform(g, 0)
    x = rng.normal(size=(16, 3, 16, 16)).astype(np.float32)
    y = rng.integers(0, 10, 16).astype(np.int32)
    profile = exe.profile(**params, x=x, y=y)
    print(profile.table(6))

    slowest = profile.slowest[0]
    print(f"{slowest.name} takes {profile.share(slowest):.0%} of {profile.seconds * 1e6:.0f} µs:")
    for file, line in slowest.sources:
        print(f"  line {line} of {file}")


if __name__ == "__main__":
    main()
