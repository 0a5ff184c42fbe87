"""What a graph holds, how it grows, and how it is read; `Graph` adds texts, files and copies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from rlx_py.ir.base.errors import ArgumentError, RLXError, ShapeError
from rlx_py.ir.base.location import at, user_location
from rlx_py.ir.base.tree import Nesting
from rlx_py.ir.base.types import TensorType, TupleType, as_dtype, as_shape, f32
from rlx_py.ir.nodes.home import Home, inner
from rlx_py.ir.nodes.node import Node, leaf, toposort

# What calls of an executable take besides arrays; a param or state of the first name goes first.
RESERVED = ("out", "discard_updates")


@dataclass(frozen=True, eq=False)
class State:
    """A value a step keeps: `node` is current, `next` replaces it, `init` is the first (a number or
    an array)."""

    node: Node
    init: Any
    next: Node | None = None


class GraphBase:
    """Named inputs, params, state and outputs, and what the outputs reach."""

    def __init__(self, name: str = "graph") -> None:
        if not isinstance(name, str):
            raise ArgumentError(f"a graph's name is text, not {name!r}" + at(user_location()))
        self.name = name
        self.inputs: dict[str, Node] = {}
        self.params: dict[str, Node] = {}
        self.states: dict[str, State] = {}
        self.updates: dict[str, Node] = {}  # next values of params
        self.outputs: dict[str, Node] = {}
        self.nesting: Nesting | None = None  # of the traced function it was made from
        self.home = Home(name)  # of its leaves, and of those of every graph made from it

    # ---- building ------------------------------------------------------------------------------

    def input(self, name: str, shape: Any, dtype: Any = f32) -> Node:
        """A value the caller gives at each call."""
        return self._leaf(self.inputs, name, "input", shape, dtype)

    def param(self, name: str, shape: Any, dtype: Any = f32) -> Node:
        """A value that training changes."""
        return self._leaf(self.params, name, "param", shape, dtype)

    def state(self, name: str, shape: Any, dtype: Any = f32, init: Any = 0.0) -> Node:
        """A value kept from step to step; give what replaces it with `next`."""
        found: dict[str, Node] = {}
        node = self._leaf(found, name, "state", shape, dtype)
        self.states[name] = State(node, init)
        return node

    def next(self, name: str, value: Node) -> None:
        """The value that replaces state `name` after a step."""
        if name not in self.states:
            raise ArgumentError(f"no state {name!r}; there are {list(self.states)}"
                                + at(user_location()))
        old = self.states[name]
        self._same_type(f"next of state {name!r}", value, old.node)
        self.states[name] = State(old.node, old.init, value)

    def update(self, name: str, value: Node) -> None:
        """The value that replaces param `name` after a step."""
        if name not in self.params:
            raise ArgumentError(f"no param {name!r}; there are {list(self.params)}"
                                + at(user_location()))
        self._same_type(f"update of param {name!r}", value, self.params[name])
        self.updates[name] = value

    def output(self, name: str, value: Node) -> Node:
        """Name a result."""
        if not isinstance(value, Node):
            raise ArgumentError(f"output {name!r} must be a node, not {type(value).__name__}"
                                + at(user_location()))
        if isinstance(value.type, TupleType):
            raise ArgumentError(f"output {name!r} has type {value.type}; name one result"
                                + at(user_location()))
        self._check_home(f"output {name!r}", value)
        self._check_name(name, self.outputs)
        self.outputs[name] = value
        return value

    def _leaf(self, table: dict[str, Node], name: str, kind: str, shape: Any, dtype: Any) -> Node:
        self._check_name(name, self.leaves)
        if name in RESERVED and (kind == "input" or name != "out"):
            raise ArgumentError(f"{kind} {name!r}: calls of an executable take an argument of that "
                                "name themselves; name it otherwise" + at(user_location()))
        try:
            type = TensorType(as_dtype(dtype), as_shape(shape))
        except RLXError as error:
            raise error.__class__(f"{kind} {name!r}: {error}{at(user_location())}") from None
        table[name] = leaf(name, kind, type)
        table[name].home = self.home
        return table[name]

    def _check_name(self, name: str, taken: Mapping[str, Any]) -> None:
        if not isinstance(name, str) or not name:
            raise ArgumentError(f"a name must be a non-empty string, not {name!r}"
                                + at(user_location()))
        if name in taken:
            raise ArgumentError(f"the name {name!r} is taken" + at(user_location()))

    def _same_type(self, what: str, value: Node, like: Node) -> None:
        self._check_home(what, value)
        if value.type != like.type:
            raise ShapeError(f"{what} has type {value.type}, not {like.type}"
                             + at(user_location()))

    def _check_home(self, what: str, value: Node) -> None:
        why = self.home.admit(value.home)
        if why is not None:
            raise ArgumentError(f"{what}: {value!r} {why}" + at(user_location()))

    def _check_meets(self, what: str, value: Node) -> None:
        """Refuse a node of another graph, or of a body that is closed; those of bodies that are
        traced inside this graph are let in."""
        home = value.home
        if home is None or (home.open and inner(self.home, home) is not None):
            return
        why = self.home.admit(home.graph if home.open else home)
        raise ArgumentError(f"{what}: {value!r} {why}" + at(user_location()))

    # ---- reading -------------------------------------------------------------------------------

    @property
    def leaves(self) -> dict[str, Node]:
        """Inputs, params and states by name."""
        states = {k: s.node for k, s in self.states.items()}
        return {**self.inputs, **self.params, **states}

    @property
    def roots(self) -> list[Node]:
        """Outputs, next states and updates, in order."""
        nexts = [s.next for s in self.states.values() if s.next is not None]
        return [*self.outputs.values(), *nexts, *self.updates.values()]

    @property
    def nodes(self) -> list[Node]:
        """All leaves, then everything the roots reach, inputs before users."""
        return toposort([*self.leaves.values(), *self.roots])

    def find_output(self, name: str) -> Node:
        """The output of that name, or a typed error that lists them."""
        if name not in self.outputs:
            raise ArgumentError(
                f"graph {self.name!r} has no output {name!r}; it has {list(self.outputs)}")
        return self.outputs[name]

    def find_leaf(self, name: str) -> Node:
        """The input, param or state of that name, or a typed error that lists them."""
        leaves = self.leaves
        if name not in leaves:
            raise ArgumentError(
                f"graph {self.name!r} has no input, param or state {name!r}; "
                f"it has {list(leaves)}")
        return leaves[name]

    def __repr__(self) -> str:
        return (f"<Graph {self.name!r}: {len(self.inputs)} inputs, {len(self.params)} params, "
                f"{len(self.states)} states, {len(self.outputs)} outputs>")


G = TypeVar("G", bound=GraphBase)


def require_graph(what: str, value: object) -> None:
    """Raise ArgumentError at the user's line for what is given in place of a graph."""
    if not isinstance(value, GraphBase):
        raise ArgumentError(f"{what} takes a graph, not {type(value).__name__}; rlx.trace makes "
                            "one of a function" + at(user_location()))
