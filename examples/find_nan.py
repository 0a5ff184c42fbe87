"""Where a NaN comes from: the operation, the element and your own line, forward or backward.

    python examples/find_nan.py
"""

from __future__ import annotations

import numpy as np

import rlx_py as rlx


def deviation(g: rlx.Graph) -> rlx.Node:
    """√(mean x² − (mean x)²), the formula that cancels; at a constant row it can go below 0."""
    x = g.input("x", (4, 3))
    variance = (x * x).mean(axis=1) - x.mean(axis=1) ** 2
    return rlx.sqrt(variance)  # the NaN appears here


def main() -> None:
    """Ask for the first NaN of the forward graph, and for the first infinity of a gradient."""
    g = rlx.Graph("deviation")
    g.output("loss", deviation(g).sum())
    x = np.full((4, 3), 1.7, np.float32)
    exe = rlx.compile(g)
    print(f"loss {exe(x=x).loss}")
    print(f"forward:  {exe.find_nan(x=x)}")

    h = rlx.Graph("root")
    h.output("loss", rlx.sqrt(h.input("x", (3,))).sum())  # its slope is infinite at 0
    backward = rlx.compile(rlx.grad(h, of="loss", wrt="x"))
    print(f"backward: {backward.find_nan(x=np.array([1, 0, 4], np.float32))}")
    print(f"finite:   {backward.find_nan(x=np.array([1, 2, 4], np.float32))}")


if __name__ == "__main__":
    main()
