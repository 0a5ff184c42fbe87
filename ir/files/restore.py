"""What texts and files say about a graph, turned into nodes: nothing in it is trusted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlx_py.ir.base.errors import ArgumentError, FormatError, RLXError
from rlx_py.ir.base.literal import Literal
from rlx_py.ir.base.types import TensorType, TupleType, Type, as_dtype, check_size
from rlx_py.ir.nodes.graph_base import GraphBase
from rlx_py.ir.nodes.node import LEAF, OPS, Location, Node
from rlx_py.ir.nodes.signature import check_attribute, check_call, first_line

Array = np.ndarray[Any, Any]


def restored(name: str, inputs: Sequence[Node], attrs: Mapping[str, Any], type: Type,
             loc: Location | None) -> Node:
    """The node that a file or text describes, its type inferred again and compared.

    Raises FormatError: no such op, wrong number of inputs, unknown, missing or wrong attribute, a
    type other than the inferred one, or inputs that the op refuses.
    """
    op = OPS.get(name)
    if op is None or op is LEAF:
        raise FormatError(f"there is no op {name!r}")
    for value in attrs.values():
        check_attribute(value)
    try:
        types = [n.type for n in inputs]
        check_call(op, types, attrs)
        found = op.infer(*types, **attrs)
        for t in found.elements if isinstance(found, TupleType) else (found,):
            check_size(t.shape)
    except RLXError as error:
        operands = ", ".join(str(n.type) for n in inputs)
        raise FormatError(f"{name}({operands}): {first_line(error)}") from error
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError,
            MemoryError) as error:
        raise FormatError(f"{name} does not take these attributes: {error}") from error
    if found != type:
        raise FormatError(f"{name} is said to be {type}, but is {found}")
    return Node(op, tuple(inputs), dict(attrs), type, loc, None)


def array_of_bytes(data: bytes, type: TensorType) -> Array:
    """The array of that type with these bytes. Raises FormatError where they do not fit."""
    if len(data) != type.nbytes:
        raise FormatError(f"{type} takes {type.nbytes} bytes, not {len(data)}")
    try:
        array = np.frombuffer(data, type.dtype.numpy).reshape(type.shape)
    except ValueError as error:
        raise FormatError(f"{type}: {error}") from error
    check_bools(array)
    return array


def check_bools(array: Array) -> None:
    """Refuse bools whose bytes are neither 0 nor 1: native code would read them as it likes."""
    if array.dtype == np.bool_ and array.size and array.view(np.uint8).max() > 1:
        raise FormatError("an array of bool holds bytes other than 0 and 1")


def set_leaf(graph: GraphBase, kind: str, name: str, type: Type, attrs: Mapping[str, Any]) -> Node:
    """A new leaf of a graph. Raises FormatError, and what the graph's own methods raise."""
    if isinstance(type, TupleType):
        raise FormatError(f"{kind} {name!r} can't be {type}")
    if set(attrs) != ({"init"} if kind == "state" else set()):
        raise FormatError(f"{kind} {name!r} does not take the attributes {list(attrs)}")
    if kind == "input":
        return graph.input(name, type.shape, type.dtype)
    if kind == "param":
        return graph.param(name, type.shape, type.dtype)
    if kind != "state":
        raise FormatError(f"there is no kind of leaf {kind[:40]!r}")
    init = attrs["init"]
    value = init.array if isinstance(init, Literal) else init
    if not isinstance(value, bool | int | float | np.ndarray):
        raise FormatError(f"state {name!r} can't begin as {value!r}")
    if isinstance(value, np.ndarray) and value.shape not in ((), type.shape):
        raise FormatError(f"state {name!r} is {type}, but begins with shape {value.shape}")
    return graph.state(name, type.shape, type.dtype, value)


def set_root(graph: GraphBase, kind: str, name: str, value: Node) -> None:
    """Give a graph an output, the next value of a state, or the update of a param; each once."""
    if kind == "output":
        graph.output(name, value)
        return
    if name in graph.updates or (name in graph.states and graph.states[name].next is not None):
        raise FormatError(f"{kind} {name!r} is given twice")
    if kind == "next":
        graph.next(name, value)
    else:
        graph.update(name, value)


def state_init(graph: GraphBase, name: str) -> Any:
    """The initial value of a state as an attribute: a Python number, or an array as Literal.

    Raises ArgumentError where it is neither a number nor an array of the state's shape.
    """
    init = graph.states[name].init
    if isinstance(init, bool | int | float):
        return init
    array = np.asarray(init)
    try:
        as_dtype(array.dtype)
    except RLXError as error:
        raise ArgumentError(f"the initial value of state {name!r}: {error}") from error
    if array.shape not in ((), graph.states[name].node.shape):
        raise ArgumentError(f"the initial value of state {name!r} has shape {array.shape}")
    return Literal(array)
