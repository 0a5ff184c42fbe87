"""The NumPy oracle as a backend."""

from __future__ import annotations

from time import perf_counter
from typing import Any

from rlx_py.backends.base import Array, Cost, KernelTime
from rlx_py.ir.base.types import TupleType, Type
from rlx_py.ir.graph.evaluate import evaluate_all, evaluate_node, leaf_values
from rlx_py.ir.graph.graph import Graph
from rlx_py.ir.nodes.node import LEAF, Node
from rlx_py.passes.analysis.cost import flops
from rlx_py.passes.lower.lower import lower, primitive


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

    def kernel_times(self, arrays: dict[str, Array], out: dict[str, Array]
                     ) -> tuple[KernelTime, ...]:
        """The time of each node, evaluated once; `out` is left as it is."""
        values: dict[Node, Any] = dict(leaf_values(self.graph, arrays))
        found = []
        for node in self.graph.nodes:
            if node.op is LEAF:
                continue
            start = perf_counter()
            values[node] = evaluate_node(node, [values[i] for i in node.inputs])
            seconds = perf_counter() - start
            moved = sum(_nbytes(n.type) for n in (node, *node.inputs))
            sources = (node.loc,) if node.loc else ()
            found.append(KernelTime(node.op.name, seconds, sources, 0, moved))
        return tuple(found)

    def cost(self) -> Cost:
        """Every node stores its result; arithmetic is that of the loops."""
        moved = sum(_nbytes(n.type) for n in self.graph.nodes)
        return Cost(flops(lower(primitive(self.graph))), moved, moved, len(self.graph.nodes))


def _nbytes(type: Type) -> int:
    return sum(map(_nbytes, type.elements)) if isinstance(type, TupleType) else type.nbytes


class ReferenceBackend:
    """backend="reference"."""

    name, exports = "reference", False

    def compile(self, graph: Graph, *, threads: int | None = None, fast_math: bool = False,
                cache: bool = True) -> ReferenceRunner:
        """The graph as it is."""
        return ReferenceRunner(graph)
