"""Where a NaN or infinity first appears, or a value without meaning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx_py.ir.base.errors import ArgumentError
from rlx_py.ir.graph.bind import sized
from rlx_py.ir.graph.evaluate import doubting, evaluate_node, leaf_values, shapes_of
from rlx_py.ir.graph.graph import Graph
from rlx_py.ir.nodes.node import LEAF, Location, Node, at


@dataclass(frozen=True)
class NonFinite:
    """The first node of a graph with a NaN or infinity; every value it was made from is finite.

    kind: "nan" or "inf". index: its first such element (in result `result` of a tuple). made_for:
    the forward op that a backward node was made for, else None. loc: the user's file and line.
    """

    op: str
    type: str
    kind: str
    index: tuple[int, ...]
    result: int
    loc: Location | None
    made_for: str | None

    def __str__(self) -> str:
        where = f" at {self.loc[0]}:{self.loc[1]}" if self.loc else ""
        phase = f", in the backward of {self.made_for}" if self.made_for else ""
        return f"{self.kind} in {self.op} {self.type}{list(self.index)}{phase}{where}"


def find_nonfinite(graph: Graph, inputs: Mapping[str, Any]) -> NonFinite | None:
    """Evaluate node by node and report the first NaN or infinity; None where there is none."""
    graph = sized(graph, shapes_of(inputs))
    values: dict[Node, Any] = dict(leaf_values(graph, inputs))
    for node in graph.nodes:
        if node.op is not LEAF:
            values[node] = evaluate_node(node, [values[i] for i in node.inputs])
        found = _first(node, values[node])
        if found is not None:
            return found
    return None


def check_values(graph: Graph, inputs: Mapping[str, Any]) -> None:
    """Evaluate node by node, and raise ArgumentError, with the user's line, at the first that is
    given what it computes on without meaning: a label that is no class, a position outside."""
    graph = sized(graph, shapes_of(inputs))
    values: dict[Node, Any] = dict(leaf_values(graph, inputs))
    for node in graph.nodes:
        if node.op is LEAF:
            continue
        try:
            with doubting():
                values[node] = evaluate_node(node, [values[i] for i in node.inputs])
        except ArgumentError as error:
            if "\n  at " in str(error):
                raise
            raise ArgumentError(f"{node.op.name}: {error}{at(node.loc)}") from None


def _first(node: Node, value: Any) -> NonFinite | None:
    for result, array in enumerate(value if isinstance(value, tuple) else (value,)):
        wide = np.asarray(array)
        if wide.dtype.itemsize == 2 and wide.dtype.kind not in "iu":
            wide = wide.astype(np.float32)
        if wide.dtype.kind != "f" or np.isfinite(wide).all():
            continue
        index = tuple(int(i) for i in np.argwhere(~np.isfinite(wide))[0])
        kind = "nan" if np.isnan(wide[index]) else "inf"
        name = node.attrs["name"] if node.op is LEAF else node.op.name
        made_for = node.origin.op.name if node.origin is not None else None
        return NonFinite(name, str(node.type), kind, index, result, node.loc, made_for)
    return None
