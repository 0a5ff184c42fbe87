"""Sub-graphs as attributes: functions of users, traced at the types of their arguments, that ops
own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from rlx_py.ir.base.errors import ArgumentError, ShapeError
from rlx_py.ir.base.tree import Tree, flatten
from rlx_py.ir.base.types import TensorType, TupleType
from rlx_py.ir.graph.body import Body, graph_of
from rlx_py.ir.graph.graph import Graph, inline
from rlx_py.ir.graph.transforms import AD
from rlx_py.ir.nodes.home import body
from rlx_py.ir.nodes.node import LEAF, Node, at, leaf, project, toposort, user_location
from rlx_py.ir.ops.making.beside import following
from rlx_py.ir.ops.making.constant import CONSTANT
from rlx_py.ir.ops.making.located import located
from rlx_py.ir.ops.operands.operand import as_node
from rlx_py.ir.ops.primitive.movement import filled

LARGEST_CONSTANT = 16  # elements; larger ones are handed in, since a text repeats what it holds


Function = Callable[..., Any]


def result_types(text: str, types: Sequence[TensorType]) -> list[TensorType]:
    """The types of a body's results, given those of its inputs; ShapeError where they differ."""
    graph = graph_of(text)
    expected = [n.tensor for n in graph.inputs.values()]
    if list(types) != expected:
        raise ShapeError(f"its function was traced for ({', '.join(map(str, expected))}), "
                         f"not ({', '.join(map(str, types))})")
    return [n.tensor for n in graph.outputs.values()]


def applied(text: str, inputs: Sequence[Node]) -> list[Node]:
    """A body's results as nodes over other inputs."""
    graph = graph_of(text)
    values = dict(zip(graph.inputs.values(), inputs, strict=True))
    found = inline(graph.outputs.values(), values)
    return [found[n] for n in graph.outputs.values()]


def placeholders(prefix: str, nodes: Iterable[Node]) -> list[Node]:
    """Leaves of the types of nodes."""
    return [leaf(f"{prefix}{i}", "input", n.type) for i, n in enumerate(nodes)]


@contextmanager
def traced(name: str, leaves: Iterable[Node], nodes: Iterable[Node]) -> Iterator[None]:
    """While a function is called with leaves that stand for nodes: what it makes stays inside."""
    with body(name, [n.home for n in nodes]) as home:
        for x in leaves:
            x.home = home
        yield


def body_graph(leaves: Sequence[Node], results: Sequence[Node]) -> Graph:
    """The graph of results over leaves."""
    graph = Graph("body")
    graph.inputs = {n.attrs["name"]: n for n in leaves}
    graph.outputs = {f"y{i}": n for i, n in enumerate(results)}
    return graph


@located
def argument(x: Any) -> Node:
    """What a user gave, as a node. Raises ArgumentError."""
    return as_node(x)


class Arguments:
    """What a user's function is called with: nested nodes and arrays, and numbers, which stay."""

    def __init__(self, args: tuple[Any, ...]) -> None:
        leaves, self.tree = flatten(args)
        self.leaves = following(leaves)
        self.places = [i for i, x in enumerate(self.leaves)
                       if not isinstance(x, bool | int | float | str)]
        self.nodes = [argument(self.leaves[i]) for i in self.places]

    def with_nodes(self, nodes: Sequence[Any], rest: Any = ...) -> tuple[Any, ...]:
        """The arguments over other nodes; `rest` in the place of numbers, if given."""
        leaves = list(self.leaves) if rest is ... else [rest] * len(self.leaves)
        for place, node in zip(self.places, nodes, strict=True):
            leaves[place] = node
        found: tuple[Any, ...] = self.tree.build(leaves)
        return found


class Recursion:
    """How deep the calls of a function inside its own rule are nested; one for each function."""

    def __init__(self, most: int) -> None:
        self.most, self.depth = most, ContextVar("depth", default=0)

    @property
    def exhausted(self) -> bool:
        """Whether a call here is too deep to own a rule."""
        return self.depth.get() > self.most

    @contextmanager
    def rule(self) -> Iterator[None]:
        """Calls inside are one deeper."""
        token = self.depth.set(self.depth.get() + 1)
        try:
            yield
        finally:
            self.depth.reset(token)


def results_of(value: Any) -> tuple[list[Node], Tree]:
    """What a user's function returned, as nodes and their nesting."""
    leaves, tree = flatten(value)
    return [argument(x) for x in leaves], tree


def same_results(what: str, found: list[Node], nesting: Tree, like: str, results: list[Node],
                 tree: Tree) -> None:
    """Refuse results of another nesting or other types than those of `like`."""
    if nesting != tree or [n.type for n in found] != [n.type for n in results]:
        raise ShapeError(f"{what} gives {nesting.describe()} ({_types(found)}), {like} "
                         f"{tree.describe()} ({_types(results)})" + at(user_location()))


def _types(nodes: list[Node]) -> str:
    return ", ".join(str(n.type) for n in nodes)


def closed(what: str, leaves: Sequence[Node], results: Sequence[Node]) -> Body:
    """The body of results over leaves. ArgumentError where they use a leaf that is none of these:
    a rule can give what it does not know no derivative."""
    own = set(leaves)
    for node in toposort(results):
        if node.op is LEAF and node not in own:
            raise ArgumentError(f"{what} uses the {node.attrs['kind']} {node.attrs['name']!r} from "
                                "outside; pass it as an argument" + at(user_location()))
    return Body.of(body_graph(leaves, results))


def captured(leaves: Sequence[Node],
             results: Sequence[Node]) -> tuple[dict[Node, Node], list[Node]]:
    """What results over leaves take from outside, as new leaves c0, c1 …, and the results over
    these.

    Taken are the last values that do not depend on the leaves but on others, and large constants.
    """
    depends, outside = set(leaves), set[Node]()
    taken: dict[Node, Node] = {}

    def take(node: Node) -> None:
        if node in outside and node not in taken:
            taken[node] = leaf(f"c{len(taken)}", "input", node.type)

    for node in toposort(results):
        if node in depends:
            continue
        if not depends.isdisjoint(node.inputs):
            depends.add(node)
            for x in node.inputs:
                take(x)
        elif (node.op is LEAF or not outside.isdisjoint(node.inputs)
              or (node.op is CONSTANT and node.size > LARGEST_CONSTANT)):
            outside.add(node)
    for node in results:
        take(node)
    found = inline(results, taken)
    return taken, [found[n] for n in results]


def parts(node: Node) -> list[Node]:
    """The results of a node of tuple type."""
    return [project(node, i) for i in range(len(node))]


def zeros(like: Node) -> Node:
    """Zeros of a node's type."""
    return filled(0, like.tensor)


def filled_floats(given: Sequence[Node | None], node: Node) -> list[Node]:
    """What is given for the float results of a node, zeros where nothing is."""
    assert isinstance(node.type, TupleType)
    return [filled(0, t) if x is None else x
            for x, t in zip(given, node.type.elements, strict=True) if t.dtype.is_float]


def over(found: Sequence[Node], values: Mapping[Node, Node]) -> list[Node]:
    """Nodes with others in the place of those they rest on."""
    done = inline(found, values)
    return [done[n] for n in found]


def outward(ad: AD, inside: AD, found: Sequence[Node], values: dict[Node, Node]) -> list[Node]:
    """Nodes of a body over what is outside; `ad` takes over what was counted inside."""
    # Products with a tangent leaf belong to derivatives that nobody asked for.
    counts = [c for c in inside.counts
              if all(n.op is not LEAF or n in values for n in toposort([c]))]
    made = over([*found, *counts], values)
    ad.counts += made[len(found):]
    return made[:len(found)]
