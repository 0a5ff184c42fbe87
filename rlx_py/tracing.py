"""rlx.trace: a Python function over nested arrays becomes a graph."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from rlx_py.ir.base.errors import ArgumentError, RLXError
from rlx_py.ir.base.tree import Nesting, Tree, flatten, structure
from rlx_py.ir.base.types import TensorType, as_dtype, as_shape, f32
from rlx_py.ir.graph.graph import Graph
from rlx_py.ir.nodes.node import LEAF, Node, at, toposort, user_location
from rlx_py.ir.ops.control.region import argument


def spec(shape: Any, dtype: Any = f32) -> TensorType:
    """The shape and element type of an array that `trace` need not see. Raises ShapeError,
    DTypeError."""
    return TensorType(as_dtype(dtype), as_shape(shape))


def trace(fn: Callable[..., Any], params: Any, *inputs: Any) -> Graph:
    """The graph of fn(params, *inputs), called once with nodes in the place of arrays.

    Arguments are nested dicts, lists and tuples (None holds nothing) of arrays or `spec`s; only
    shapes and element types matter. The leaves of params become params named by their path
    ("w.0", "layer.bias"), those of inputs inputs named by fn's own parameters ("x", "batch.image").
    Outputs are named by the result: a dict's keys, else "out", "out.0" … What is compiled from it,
    or from its derivatives, is called as fn is (`compile`). A Python `if` on a node raises
    ArgumentError; so do arguments that are no arrays and two leaves of one name.
    """
    graph = Graph(getattr(fn, "__name__", "traced"))
    arguments = tuple(zip(_names(fn, 1 + len(inputs)), (params, *inputs), strict=True))
    trees = tuple((name, structure(value)) for name, value in arguments)
    nesting = Nesting(trees, Tree())
    values = []
    for position, (name, value) in enumerate(arguments):
        declare = graph.input if position else graph.param
        leaves = trees[position][1].leaves(value, name)
        nodes = []
        for path, leaf in zip(nesting.argument_names(name), leaves, strict=True):
            type = _type_of(path, leaf)
            nodes.append(declare(path, type.shape, type.dtype))
        values.append(trees[position][1].build(nodes))
    results, tree = flatten(fn(*values))
    nesting = Nesting(trees, tree)
    for path, result in zip(nesting.result_names, results, strict=True):
        graph.output(path, argument(result))
    _check_leaves(graph)
    graph.nesting = nesting
    return graph


def _names(fn: Callable[..., Any], count: int) -> list[str]:
    """What fn calls its positional parameters."""
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):  # a callable of C code tells nothing
        parameters = []
    plain = [p.name for p in parameters
             if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)][:count]
    rest = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), "x")
    names = [*plain, *(f"{rest}{i}" for i in range(count - len(plain)))]
    return names if plain else ["params", *names[1:]]


def _type_of(path: str, leaf: Any) -> TensorType:
    if isinstance(leaf, TensorType):
        return leaf
    if isinstance(leaf, Node):
        raise ArgumentError(f"trace: {path!r} is a node; give an array or rlx.spec(shape, dtype)"
                            + at(user_location()))
    if isinstance(leaf, str | bytes) or callable(leaf):
        raise ArgumentError(f"trace: {path!r} is a {type(leaf).__name__}, not an array or spec"
                            + at(user_location()))
    if hasattr(leaf, "shape") and hasattr(leaf, "dtype") and isinstance(leaf.dtype, np.dtype):
        return spec(leaf.shape, leaf.dtype)
    try:
        if isinstance(leaf, bool | int | float):
            return spec((), type(leaf))
        return spec(np.shape(leaf), np.asarray(leaf).dtype)
    except (RLXError, ValueError, TypeError) as error:
        raise ArgumentError(f"trace: {path!r} is a {type(leaf).__name__}, not an array or spec"
                            + at(user_location())) from error


def _check_leaves(graph: Graph) -> None:
    """Refuse a function that uses leaves of another graph."""
    own = set(graph.leaves.values())
    for node in toposort(graph.outputs.values()):
        if node.op is LEAF and node not in own:
            raise ArgumentError(
                f"trace: {graph.name!r} uses the {node.attrs['kind']} {node.attrs['name']!r} of "
                "another graph; pass it as an argument" + at(node.loc))
