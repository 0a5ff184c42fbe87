"""Graph: named leaves and outputs over immutable nodes, and `rebuild`, the frame of every pass."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from rlx_py.ir.base.errors import ArgumentError, ShapeError, VerifyError
from rlx_py.ir.base.named import Named
from rlx_py.ir.base.tree import Nesting
from rlx_py.ir.files.draw import draw_graph
from rlx_py.ir.files.parse import parse_graph
from rlx_py.ir.files.serialize import graph_of, graph_parts, load_graph, save_graph
from rlx_py.ir.files.text import show
from rlx_py.ir.nodes.graph_base import GraphBase, State, require_graph
from rlx_py.ir.nodes.node import (
    LEAF,
    PROJECT,
    TUPLE,
    Node,
    at,
    origin,
    project,
    replaced,
    toposort,
    user_location,
)


class Results(Named[Node]):
    """Named nodes: result.loss or result["grad_w"]."""

    __slots__ = ()


class Graph(GraphBase):
    """Named inputs, params, state and outputs, and what the outputs reach.

    It grows only through input, param, state, next, update and output; passes make new graphs over
    the same leaves and never change one.
    """

    def __str__(self) -> str:
        return show(self)

    # ---- keeping -------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the graph with its constants to one safetensors file, aside and renamed.

        Raises VerifyError, ArgumentError (an attribute that can't be written), OSError.
        """
        save_graph(path, self)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Graph:
        """The graph of a file, every type inferred again. Raises FormatError and OSError."""
        return load_graph(path, Graph)

    def __reduce__(self) -> tuple[Any, ...]:
        """A pickle holds what a file does, and the nesting of a traced function."""
        return _unpickled, (*graph_parts(self), self.nesting)

    def __copy__(self) -> Graph:
        """A graph of its own, over the same leaves and nodes, which never change."""
        return self.derive(self.outputs)

    def __deepcopy__(self, memo: Any) -> Graph:
        return self.derive(self.outputs)

    def draw(self, path: str | os.PathLike[str]) -> Path:
        """Write the graph as DOT text (.dot), or render it with Graphviz (.svg, .png, .pdf).

        The DOT text is written in either case, beside the picture. Returns the path that was asked
        for; BackendError says so where Graphviz is not there, ArgumentError at another ending.
        """
        return draw_graph(self, path)

    # ---- deriving ------------------------------------------------------------------------------

    def derive(self, outputs: Mapping[str, Node], *, updates: Mapping[str, Node] | None = None,
               nexts: Mapping[str, Node] | None = None, name: str | None = None) -> Graph:
        """A graph over the same leaves with other outputs (updates and next states kept unless
        given)."""
        fresh = Graph(name or self.name)
        fresh.inputs, fresh.params = dict(self.inputs), dict(self.params)
        fresh.states = {
            k: State(s.node, s.init, nexts.get(k, s.next) if nexts else s.next)
            for k, s in self.states.items()
        }
        fresh.updates = dict(self.updates if updates is None else updates)
        fresh.outputs = dict(outputs)
        fresh.nesting, fresh.home = self.nesting, self.home
        return fresh

    def map_roots(self, function: Callable[[Node], Node]) -> Graph:
        """The same graph with every root replaced."""
        nexts = {k: function(s.next) for k, s in self.states.items() if s.next is not None}
        return self.derive({k: function(v) for k, v in self.outputs.items()}, nexts=nexts,
                           updates={k: function(v) for k, v in self.updates.items()})

    def call(self, sub: Graph, /, **bindings: Any) -> Results:
        """Inline `sub`: its inputs bound by name; its params too, or else they become this graph's.

        States of `sub` become this graph's, with their next values. Returns the named outputs.
        """
        require_graph("call", sub)
        for name in bindings:
            sub.find_leaf(name)
        missing = [n for n in sub.inputs if n not in bindings]
        if missing:
            raise ArgumentError(f"call of {sub.name!r}: inputs {missing} are not bound"
                                + at(user_location()))
        values: dict[Node, Node] = {}
        for name, node in sub.leaves.items():
            if name in bindings:
                values[node] = bound(bindings[name], node, name)
                self._check_meets(f"{name!r} of {sub.name!r}", values[node])
            elif name in sub.params:
                values[node] = (self.params[name] if name in self.params
                                else self.param(name, node.shape, node.dtype))
                self._same_type(f"param {name!r} of {sub.name!r}", values[node], node)
            else:
                values[node] = self.state(name, node.shape, node.dtype, sub.states[name].init)
        found = inline(sub.roots, values)
        for name, state in sub.states.items():
            if state.next is not None and name not in bindings:
                self.next(name, found[state.next])
        return Results({k: found[v] for k, v in sub.outputs.items()})


def _unpickled(text: str, tensors: dict[str, Any], nesting: Nesting | None) -> Graph:
    graph = graph_of(text, tensors, Graph)
    graph.nesting = nesting
    return graph


def call(sub: Graph, /, **bindings: Any) -> Results:
    """The named outputs of a graph at nodes given for all of its leaves, inlined.

    For functions that have no graph of their own, such as the body of a loop; `Graph.call` takes
    params and states over too. Raises ArgumentError (a leaf without a node, an unknown name),
    ShapeError.
    """
    require_graph("call", sub)
    missing = [n for n in sub.leaves if n not in bindings]
    if missing:
        raise ArgumentError(f"call of {sub.name!r}: {missing} are not bound" + at(user_location()))
    for name in bindings:
        sub.find_leaf(name)
    found = inline(sub.roots, {n: bound(bindings[k], n, k) for k, n in sub.leaves.items()})
    return Results({k: found[v] for k, v in sub.outputs.items()})


def parse(text: str) -> Graph:
    """The graph of a text as `print(graph)` shows it. Raises FormatError with the line."""
    return parse_graph(text, Graph)


def bound(value: Any, node: Node, name: str) -> Node:
    """A node given for a leaf, checked against its type."""
    if not isinstance(value, Node):
        raise ArgumentError(f"{name!r} must be bound to a node, not {type(value).__name__}"
                            + at(user_location()))
    if value.type != node.type:
        raise ShapeError(f"{name!r} takes {node.type}, not {value.type}" + at(user_location()))
    return value


def inline(roots: Iterable[Node], values: Mapping[Node, Node]) -> dict[Node, Node]:
    """Every node the roots reach, with the given ones replaced."""
    done: dict[Node, Node] = dict(values)
    for node in toposort(roots):
        if node not in done:
            done[node] = replaced(node, tuple(done[i] for i in node.inputs))
    return done


Rewrite = Callable[[Node], "Node | None"]


def rebuild(graph: Graph, replace: Rewrite | None = None) -> Graph:
    """Copy what the outputs reach (dead code goes), intern equal nodes, rewrite to a fixed point.

    `replace(node)` returns another node, or None where it does not apply. What it returns is itself
    rewritten, so rules may build freely. Equal nodes become one; leaves never do.
    """
    return Rebuilder(replace).graph(graph)


class Rebuilder:
    """The state of one rebuild: what each node became, and the interned computations."""

    def __init__(self, replace: Rewrite | None) -> None:
        self.replace = replace
        self.done: dict[Node, Node] = {}  # final nodes map to themselves
        self.forward: dict[Node, Node] = {}  # what a node stands for, not final yet
        self.interned: dict[tuple[Any, ...], Node] = {}

    def graph(self, graph: Graph) -> Graph:
        """The rebuilt graph."""
        return graph.map_roots(self.node)

    def node(self, root: Node) -> Node:
        """The rebuilt form of a node and all it reaches."""
        stack = [root]
        active = {root}
        while stack:
            node = stack[-1]
            waiting = [n for n in self._before(node) if n not in self.done]
            if waiting:
                if not active.isdisjoint(waiting):
                    raise VerifyError(f"rewriting {node!r} does not end")
                stack.append(waiting[0])
                active.add(waiting[0])
                continue
            if node in self.forward:
                self.done[node] = self.done[self.forward[node]]
            elif node not in self.done:
                self._step(node)
                if node not in self.done:
                    continue
            active.discard(stack.pop())
        return self.done[root]

    def _before(self, node: Node) -> tuple[Node, ...]:
        target = self.forward.get(node)
        return node.inputs if target is None else (target,)

    def _step(self, node: Node) -> None:
        fresh = self._intern(node)
        if fresh in self.done:
            self.done[node] = self.done[fresh]
        elif fresh is not node:
            self.forward[node] = fresh
        else:
            better = self._rewrite(node)
            if better is None:
                self.done[node] = node
            else:
                self.forward[node] = better

    def _rewrite(self, node: Node) -> Node | None:
        """One application of the rule; what it makes carries the node's own source line."""
        if self.replace is None or node.op is LEAF:
            return None
        with origin(node if node.origin is None else node.origin):
            return self.replace(node)

    def _intern(self, node: Node) -> Node:
        """The node over final inputs, one object for each computation."""
        if node.op is LEAF:
            return node
        inputs = tuple(self.done[i] for i in node.inputs)
        if node.op is PROJECT and inputs[0].op is TUPLE:
            return project(inputs[0], node.attrs["index"])
        fresh = replaced(node, inputs)
        return self.interned.setdefault(fresh.key, fresh)
