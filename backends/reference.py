"""The NumPy oracle as a backend."""

from __future__ import annotations

from rlx_py.backends.base import Array, Cost
from rlx_py.ir.evaluate import evaluate_all
from rlx_py.ir.graph import Graph


class ReferenceRunner:
    """Evaluates node by node; slow, and right."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def run(self, arrays: dict[str, Array], out: dict[str, Array]) -> None:
        """Read leaves, write outputs and next values."""
        found = evaluate_all(self.graph, arrays)
        for name, value in found.outputs.items():
            out[name][...] = value
        for name, value in {**found.updates, **found.states}.items():
            arrays[name][...] = value

    def cost(self) -> Cost:
        """Every node stores its result."""
        moved = sum(n.tensor.nbytes for n in self.graph.nodes if not isinstance(n.type, tuple))
        return Cost(0, moved, moved, len(self.graph.nodes))


class ReferenceBackend:
    """backend="reference"."""

    name = "reference"

    def compile(self, graph: Graph, *, threads: int | None = None, fast_math: bool = False,
                cache: bool = True) -> ReferenceRunner:
        """The graph as it is."""
        return ReferenceRunner(graph)
