"""Batching: the graph of one element becomes that of many, op by op."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlx_py.ir.base.dim import Dim
from rlx_py.ir.base.errors import ArgumentError, ShapeError
from rlx_py.ir.base.types import as_shape, check_size, normalize_axis
from rlx_py.ir.graph.graph import Graph
from rlx_py.ir.graph.transforms import Value
from rlx_py.ir.nodes.graph_base import State, require_graph
from rlx_py.ir.nodes.node import Node, at, leaf, user_location
from rlx_py.ir.ops.making.batching import moved, spread_out
from rlx_py.passes.analysis.steps import watched
from rlx_py.passes.batch.batched import Found, batch_nodes, expand_batched, single
from rlx_py.passes.rewrite.simplify import simplify

Axis = int | tuple[int, int] | None
Axes = int | None | Mapping[str, Axis]


@watched
def vmap(graph: Graph, in_axes: Axes, out_axes: int | None | Mapping[str, int | None] = 0,
         size: int | None = None) -> Graph:
    """The graph for `size` elements at once: that of a loop over slices, without the loop.

    in_axes: for each input, param or state to be batched, which axis of its new shape counts the
    elements (negative: from the end), or (axis, size); those left out or None are shared by all
    elements. An int batches every input. out_axes: the same for outputs, by name or one for all (0
    where a name is left out); a result that all elements share is repeated, or stays as it is
    under None. A state or updated param in in_axes has a value for each element; another one whose
    next value would differ between elements is refused. Composites batch as what they are made of,
    unless they bring a rule. Raises ArgumentError (unknown names, axes out of range, no size, an
    output under None that differs between elements, an op without a rule), ShapeError (sizes that
    differ).
    """
    require_graph("vmap", graph)
    axes, size = _batched_leaves(graph, in_axes, size)
    places = _output_axes(graph, out_axes)
    return simplify(_Graph(graph, axes, size).graph(places))


# ---- arguments -------------------------------------------------------------------------------


def _batched_leaves(graph: Graph, in_axes: Axes, size: int | None) -> tuple[dict[str, int], int]:
    """The axis of each leaf that is batched, and the size of all."""
    if in_axes is None or isinstance(in_axes, int):
        in_axes = dict.fromkeys(graph.inputs, in_axes)
    if not isinstance(in_axes, Mapping):
        raise _refused("in_axes", f"must be a mapping of names or one int, not {in_axes!r}")
    axes: dict[str, int] = {}
    sizes = {} if size is None else {"size": _checked_size("size", size)}
    for name, entry in in_axes.items():
        node = graph.find_leaf(name)
        if entry is None:
            continue
        place = f"in_axes of {name!r}"
        axis = entry
        if isinstance(entry, tuple):
            if len(entry) != 2:
                raise _refused(place, f"must be an axis or (axis, size), not {entry!r}")
            axis, sizes[place] = entry[0], _checked_size(place, entry[1])
        axes[name] = _checked_axis(place, axis, node)
    if len(set(sizes.values())) > 1:
        listed = ", ".join(f"{k} {v}" for k, v in sizes.items())
        raise ShapeError(f"vmap: the sizes of the batch differ: {listed}" + at(user_location()))
    if not sizes:
        missing = "nothing is batched" if not axes else f"batched: {list(axes)}"
        raise _refused("size", f"is missing ({missing}); give size=, or (axis, size) in in_axes")
    return axes, next(iter(sizes.values()))


def _output_axes(graph: Graph, out_axes: Any) -> dict[str, int | None]:
    """The axis of each output, None where it has none."""
    if isinstance(out_axes, Mapping):
        for name in out_axes:
            graph.find_output(name)
        chosen = {k: out_axes.get(k, 0) for k in graph.outputs}
    else:
        chosen = dict.fromkeys(graph.outputs, out_axes)
    return {k: None if a is None else _checked_axis(f"out_axes of {k!r}", a, graph.outputs[k])
            for k, a in chosen.items()}


def _checked_axis(place: str, axis: Any, node: Node) -> int:
    """Axis −1 is the last one of the new shape, never the batch axis of something else."""
    try:
        return normalize_axis(axis, node.rank + 1)
    except ArgumentError as error:
        raise _refused(place, f"{error} ({node.type} and the batch axis)") from None


def _checked_size(place: str, size: Any) -> int:
    if isinstance(size, bool) or not isinstance(size, int | np.integer | Dim) or size < 0:
        raise _refused(place, f"a size is a non-negative integer, not {size!r}")
    try:
        return as_shape(size)[0]
    except ShapeError as error:
        raise ShapeError(f"vmap: {place}: {error}" + at(user_location())) from None


def _refused(place: str, why: str) -> ArgumentError:
    return ArgumentError(f"vmap: {place}: {why}" + at(user_location()))


# ---- the graph -------------------------------------------------------------------------------


class _Graph:
    """A graph whose nodes are batched where they depend on a batched leaf, else the same nodes."""

    def __init__(self, graph: Graph, axes: Mapping[str, int], size: int) -> None:
        leaves = graph.leaves
        self.source = expand_batched(graph, [leaves[k] for k in axes])
        self.axes, self.size = axes, size
        self.leaves: dict[Node, Node] = {}
        given: dict[Node, Found] = {}
        for name, node in leaves.items():
            self.leaves[node], given[node] = self._leaf(name, node)
        self.found = batch_nodes(self.source.roots, given, size)

    def graph(self, places: Mapping[str, int | None]) -> Graph:
        """The batched graph, its leaves and outputs with the batch axis where asked."""
        source, fresh = self.source, Graph(self.source.name)
        fresh.nesting, fresh.home = source.nesting, source.home
        fresh.inputs = {k: self.leaves[n] for k, n in source.inputs.items()}
        fresh.params = {k: self.leaves[n] for k, n in source.params.items()}
        for name, s in source.states.items():
            new = None if s.next is None else self._next("state", name, s.next)
            fresh.states[name] = State(self.leaves[s.node], self._init(name, s), new)
        fresh.updates = {k: self._next("param", k, v) for k, v in source.updates.items()}
        fresh.outputs = {k: self._output(k, v, places[k]) for k, v in source.outputs.items()}
        return fresh

    def _leaf(self, name: str, node: Node) -> tuple[Node, Value]:
        """A leaf in its new shape, and what the graph reads: the batch axis first."""
        axis = self.axes.get(name)
        if axis is None:
            return node, Value(node, False)
        shape = (*node.shape[:axis], self.size, *node.shape[axis:])
        try:
            check_size(shape)
        except ShapeError as error:
            raise ShapeError(f"vmap: in_axes of {name!r}: {error}" + at(user_location())) from None
        fresh = leaf(name, node.attrs["kind"], node.tensor.with_shape(shape))
        return fresh, Value(moved(fresh, axis, 0), True)

    def _placed(self, value: Value, axis: int) -> Node:
        return moved(spread_out(value, self.size), 0, axis)

    def _output(self, name: str, node: Node, axis: int | None) -> Node:
        value = single(self.found[node])
        if axis is not None:
            return self._placed(value, axis)
        if value.batched:
            raise ArgumentError(f"vmap: out_axes of {name!r} is None, but the output differs "
                                "between elements" + at(node.loc))
        return value.node

    def _next(self, kind: str, name: str, node: Node) -> Node:
        value = single(self.found[node])
        if name in self.axes:
            return self._placed(value, self.axes[name])
        if value.batched:
            raise ArgumentError(f"vmap: the next value of {kind} {name!r} differs between elements;"
                                f" name it in in_axes to keep one for each" + at(node.loc))
        return value.node

    def _init(self, name: str, state: State) -> Any:
        init = np.asarray(state.init)
        if name not in self.axes or not init.ndim:
            return state.init
        axis = self.axes[name]
        return np.repeat(np.expand_dims(init, axis), self.size, axis)
