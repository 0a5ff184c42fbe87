"""What a compiled graph takes and gives: the part of a graph that its callers need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rlx_py.ir.base.dim import names_in
from rlx_py.ir.base.errors import FormatError, RLXError
from rlx_py.ir.base.types import DTYPES, TensorType, as_shape
from rlx_py.ir.graph.evaluate import initial
from rlx_py.ir.graph.graph import Graph
from rlx_py.ir.nodes.node import Node

Array = np.ndarray[Any, Any]
Types = dict[str, TensorType]
TABLES = ("inputs", "params", "states", "outputs")


@dataclass(frozen=True)
class Interface:
    """Names and types in order.

    changed: the params and states that a step replaces; defaults: the first values of states whose
    sizes are known.
    """

    name: str
    inputs: Types
    params: Types
    states: Types
    outputs: Types
    changed: frozenset[str]
    defaults: Mapping[str, Array] = field(default_factory=dict, compare=False)

    @property
    def leaves(self) -> Types:
        """Inputs, params and states."""
        return {**self.inputs, **self.params, **self.states}

    def fields(self) -> dict[str, Any]:
        """All but the defaults as plain values, for JSON; read back by `from_fields`."""
        tables = {
            table: [[k, t.dtype.name, list(t.shape)] for k, t in getattr(self, table).items()]
            for table in TABLES
        }
        leaves = self.leaves
        return {"name": self.name, **tables, "changed": [k for k in leaves if k in self.changed]}


def interface_of(graph: Graph) -> Interface:
    """The interface of a graph. Raises ShapeError for an initial value of another shape."""
    states = {k: s.node for k, s in graph.states.items()}
    nexts = {k for k, s in graph.states.items() if s.next is not None}
    return Interface(
        graph.name, _types(graph.inputs), _types(graph.params), _types(states),
        _types(graph.outputs), frozenset({*graph.updates, *nexts}),
        {k: initial(k, s.init, s.node.tensor) for k, s in graph.states.items()
         if not names_in(s.node.shape)},
    )


def _types(nodes: Mapping[str, Node]) -> Types:
    return {k: n.tensor for k, n in nodes.items()}


def from_fields(fields: Any) -> Interface:
    """The interface that `Interface.fields` described, without defaults; FormatError if damaged."""
    try:
        inputs, params, states, outputs = (
            {str(k): _type(dtype, shape) for k, dtype, shape in fields[table]} for table in TABLES)
        changed = frozenset(map(str, fields["changed"]))
        name = fields["name"]
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(f"no description of a graph's interface: {error!r}") from error
    found = Interface(name, inputs, params, states, outputs, changed)
    stated = sum(len(fields[table]) for table in TABLES[:3])
    if (not isinstance(name, str) or len(found.leaves) != stated
            or len(found.outputs) != len(fields["outputs"])
            or not changed <= {*found.params, *found.states}):
        raise FormatError("the description of the interface contradicts itself")
    return found


def _type(dtype: Any, shape: Any) -> TensorType:
    if dtype not in DTYPES:
        raise ValueError(f"no element type {dtype!r}")
    try:
        return TensorType(DTYPES[dtype], as_shape(shape))
    except RLXError as error:
        raise ValueError(str(error)) from error
