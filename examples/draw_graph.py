"""Draw a graph and its gradient: DOT text always, SVG where Graphviz is installed.

    python examples/draw_graph.py [--folder build]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import rlx_py as rlx


def main() -> None:
    """Write logistic.dot and logistic_grad.dot, and pictures if `dot` is there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("build"))
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    g = rlx.Graph("logistic")
    x, y = g.input("x", (32, 4)), g.input("y", (32,))
    z = x @ g.param("w", (4,)) + g.param("b", ())
    g.output("loss", (rlx.softplus(z) - y * z).mean())
    for graph, name in ((g, "logistic"), (rlx.grad(g, of="loss"), "logistic_grad")):
        path = graph.draw(folder / f"{name}.dot")
        print(f"{len(graph.nodes)} nodes: {path}")
        try:
            print(f"picture: {graph.draw(folder / f'{name}.svg')}")
        except rlx.BackendError as error:
            print(f"no picture: {error}")


if __name__ == "__main__":
    main()
