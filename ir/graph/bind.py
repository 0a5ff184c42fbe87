"""Dynamic graphs with numbers in the place of their named sizes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import NoneType
from typing import Any

import numpy as np

from rlx_py.ir.base.dim import Dim, names_in, value_of
from rlx_py.ir.base.errors import ArgumentError, RLXError, ShapeError
from rlx_py.ir.base.literal import Literal
from rlx_py.ir.base.types import DType, TensorType, TupleType, check_size
from rlx_py.ir.graph.body import Body, graph_of, is_body
from rlx_py.ir.graph.graph import Graph
from rlx_py.ir.nodes.graph_base import State, require_graph
from rlx_py.ir.nodes.node import LEAF, Node, at, leaf, same

Shape = tuple[int, ...]
Sizes = Mapping[str, int]
PLAIN = (int, bool, float, NoneType, DType, Literal)  # attributes that hold no size


def bind(graph: Graph, sizes: Sizes) -> Graph:
    """The graph with numbers for named sizes, every type inferred again.

    Names that are left out stay dynamic. Raises ArgumentError (a name that the graph has not, a
    number below 1), and what an op raises that does not take the size.
    """
    require_graph("bind", graph)
    known = names_of(graph)
    for name, size in sizes.items():
        if name not in known:
            raise ArgumentError(f"graph {graph.name!r} has no size {name!r}; it has "
                                f"{sorted(known)}")
        if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 1:
            raise ArgumentError(f"the size {name!r} is an integer of at least 1, not {size!r}")
    return _bound(graph, {k: int(v) for k, v in sizes.items()})


def _bound(graph: Graph, sizes: Sizes) -> Graph:
    done: dict[Node, Node] = {}
    for node in graph.nodes:
        done[node] = _bound_node(node, tuple(done[x] for x in node.inputs), sizes)
    fresh = Graph(graph.name)
    fresh.nesting, fresh.home = graph.nesting, graph.home
    fresh.inputs = {k: done[n] for k, n in graph.inputs.items()}
    fresh.params = {k: done[n] for k, n in graph.params.items()}
    fresh.states = {k: State(done[s.node], s.init, None if s.next is None else done[s.next])
                    for k, s in graph.states.items()}
    fresh.outputs = {k: done[n] for k, n in graph.outputs.items()}
    fresh.updates = {k: done[n] for k, n in graph.updates.items()}
    return fresh


def _bound_node(node: Node, inputs: tuple[Node, ...], sizes: Sizes) -> Node:
    if same(inputs, node.inputs) and not _has_names(node):
        return node
    attrs = {k: bound_value(v, sizes) for k, v in node.attrs.items()}
    if node.op is LEAF:
        return leaf(attrs["name"], attrs["kind"], attrs["type"])
    try:
        found = node.op.infer(*[x.type for x in inputs], **attrs)
        for t in found.elements if isinstance(found, TupleType) else (found,):
            check_size(t.shape)
    except RLXError as error:
        given = ", ".join(f"{k} = {v}" for k, v in sizes.items())
        raise error.__class__(f"{node.op.name} with {given}: {error}{at(node.loc)}") from error
    return Node(node.op, inputs, attrs, found, node.loc, node.origin)


def bound_value(value: Any, sizes: Sizes) -> Any:
    """An attribute with numbers for names, also inside types, tuples and graphs."""
    if isinstance(value, Dim):
        return value_of(value, sizes)
    if isinstance(value, tuple):
        return tuple(bound_value(v, sizes) for v in value)
    if isinstance(value, TensorType):
        return value.with_shape(bound_value(value.shape, sizes))
    if isinstance(value, TupleType):
        return TupleType(bound_value(value.elements, sizes))
    if is_body(value):
        graph = graph_of(value)
        return Body.of(_bound(graph, sizes)) if names_of(graph) else value
    return value


def names_of(graph: Graph) -> frozenset[str]:
    """The named sizes of a graph."""
    found: set[str] = set()
    for node in graph.nodes:
        _collect(node.attrs.values(), found)
    return frozenset(found)


def _collect(values: Iterable[Any], found: set[str]) -> None:
    """Add the named sizes in attributes, also those inside types, tuples and graphs."""
    for value in values:
        if type(value) in PLAIN:
            continue
        if isinstance(value, tuple):
            _collect(value, found)
        elif isinstance(value, Dim):
            found |= value.names
        elif isinstance(value, TensorType):
            _collect(value.shape, found)
        elif isinstance(value, TupleType):
            _collect(value.elements, found)
        elif is_body(value):
            found |= names_of(graph_of(value))


def _has_names(node: Node) -> bool:
    found: set[str] = set()
    _collect(node.attrs.values(), found)
    return bool(found)


def sized(graph: Graph, shapes: Mapping[str, Shape]) -> Graph:
    """The graph with the sizes that shapes of its leaves have; itself where none is dynamic."""
    types = {k: n.tensor for k, n in graph.leaves.items()}
    if not any(names_in(t.shape) for t in types.values()):
        return graph
    return _bound(graph, solve(types, shapes))


def solve(types: Mapping[str, TensorType], shapes: Mapping[str, Shape]) -> dict[str, int]:
    """The named sizes of types, read off the shapes that are given for some of them.

    Each is found where it stands alone in a size, or with others that are found elsewhere: B, B+1,
    2*B, B*T. Raises ShapeError, which says what contradicts, or what no shape tells.
    """
    rows = [(name, axis, size, number)
            for name, shape in shapes.items() if name in types
            for axis, (size, number) in enumerate(_paired(name, types[name], shape))
            if isinstance(size, Dim)]
    found: dict[str, int] = {}
    told: dict[str, str] = {}
    count = -1
    while count != len(found):
        count = len(found)
        for name, axis, size, number in rows:
            rest = value_of(size, found)
            if isinstance(rest, int) or not _is_linear(rest):
                continue
            (key,) = rest.names
            what = f"{name!r} takes {types[name]}: axis {axis}, {_known(size, found, told)},"
            found[key], told[key] = _solved(rest, number, what), name
    for name, axis, size, number in rows:
        value = value_of(size, found)
        if isinstance(value, int) and value != number:
            raise ShapeError(f"{name!r} takes {types[name]}: axis {axis} is {number}, not "
                             f"{value}: {_known(size, found, told)}")
    known = frozenset(n for t in types.values() for n in names_in(t.shape))
    missing = sorted(known - found.keys())
    if missing:
        raise ShapeError(f"no shape that is given tells the size {missing[0]}; "
                         f"rlx.bind(graph, {{{missing[0]!r}: …}}) sets it")
    return found


def _paired(name: str, type: TensorType, shape: Shape) -> Iterable[tuple[Any, int]]:
    if len(shape) != type.rank:
        raise ShapeError(f"{name!r} takes {type}, not shape {shape}")
    return zip(type.shape, shape, strict=True)


def _is_linear(size: Dim) -> bool:
    """Whether this is a·name + b."""
    return (len(size.names) == 1 and len(size.terms) <= 2
            and Dim(((size.terms[0][0], 1),)).is_name
            and all(not m for m, _ in size.terms[1:]))


def _solved(size: Dim, number: int, what: str) -> int:
    (_, factor), *rest = size.terms
    value, left = divmod(number - sum(c for _, c in rest), factor)
    if left or value < 1:
        raise ShapeError(f"{what} is {number} for no size of at least 1")
    return value


def _known(size: Dim, found: Sizes, told: Mapping[str, str]) -> str:
    """A size, and which leaf tells the names in it."""
    known = [f"{k} is {found[k]} by {told[k]!r}" for k in sorted(size.names) if k in found]
    return ", ".join(known if size.is_name and known else [str(size), *known])
