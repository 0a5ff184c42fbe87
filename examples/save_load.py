"""A graph as text and as a file: print it, parse it, save it, load it; the meaning is the same.

    python examples/save_load.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

import rlx_py as rlx


def main() -> None:
    """Compare the results of the graph, of its text and of its file, bit by bit."""
    g = rlx.Graph("scaled")
    x, w = g.input("x", (2, 3)), g.param("w", (3,))
    seen = g.state("seen", (), rlx.i64, init=0)
    g.next("seen", seen + 2)
    g.output("y", rlx.softmax(x * w) + rlx.constant(np.array([0.25, 0.5, 0.75], np.float32)))
    text = str(g)
    print(text)
    parsed = rlx.parse(text)
    assert str(parsed) == text

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scaled.rlx"
        g.save(path)
        size, loaded = path.stat().st_size, rlx.Graph.load(path)
    assert str(loaded) == text

    values = {"x": np.arange(6, dtype=np.float32).reshape(2, 3), "w": np.ones(3, np.float32)}
    results = [rlx.compile(graph)(**values, discard_updates=True).y
               for graph in (g, parsed, loaded)]
    assert all(r.tobytes() == results[0].tobytes() for r in results)
    print(f"the text and the {size}-byte file give the same bits as the graph")


if __name__ == "__main__":
    main()
