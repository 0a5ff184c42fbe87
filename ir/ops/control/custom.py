"""Functions whose derivative the user gives, in one mode; the other mode and higher orders follow.

The op owns its function and its rule as bodies. Its backward is ordinary nodes, so it has
derivatives again. A rule for tangents is linear in them, so its transpose is the rule for
cotangents. A function may call itself in its rule; there it has the rule again, some orders deep.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rlx_py.ir.base.errors import ArgumentError, ShapeError
from rlx_py.ir.base.tree import Tree
from rlx_py.ir.base.types import TensorType, TupleType, Type
from rlx_py.ir.graph.body import Body, graph_of
from rlx_py.ir.graph.graph import Graph
from rlx_py.ir.graph.transforms import AD
from rlx_py.ir.nodes.node import Cotangent, Node, Op, at, register, user_location
from rlx_py.ir.ops.control.batched import by_element
from rlx_py.ir.ops.control.region import (
    Arguments,
    Function,
    Recursion,
    applied,
    closed,
    filled_floats,
    outward,
    parts,
    placeholders,
    result_types,
    results_of,
    same_results,
    traced,
)

SELF_CALLS = 2  # how deep a function called in its own rule still has it; beyond, fn's derivative

# ---- a rule for cotangents ---------------------------------------------------------------------


def custom_vjp(fn: Function, fwd: Function, bwd: Function) -> Function:
    """fn with a reverse rule: fwd(*args) -> (fn's result, residuals); bwd(residuals, ct) -> a tuple
    with the cotangent of each argument, None for zero.

    Arguments, results and residuals nest as they like; ct has the nesting of the result, with None
    for results that are no floats. Forward mode differentiates fn itself. All three are called once
    at each call, with nodes, and use nothing but their arguments and constants. Raises
    ArgumentError (nesting, leaves from outside, a cotangent of an integer), ShapeError.
    """

    recursion = Recursion(SELF_CALLS)

    def call(*args: Any) -> Any:
        if recursion.exhausted:
            return fn(*args)
        arguments = Arguments(args)
        leaves = placeholders("x", arguments.nodes)
        with traced("custom_vjp's functions", leaves, arguments.nodes):
            results, tree = results_of(fn(*arguments.with_nodes(leaves)))
            primal = closed("custom_vjp: fn", leaves, results)
            with recursion.rule():
                value = fwd(*arguments.with_nodes(leaves))
            residuals, nesting = _residuals(value, results, tree)
        forward = closed("custom_vjp: fwd", leaves, residuals)
        kept, cts = placeholders("r", residuals), placeholders("ct", results)
        seeds = [c if c.dtype.is_float else None for c in cts]
        with traced("custom_vjp's bwd", [*kept, *cts], []):
            with recursion.rule():
                value = bwd(nesting.build(kept), tree.build(seeds))
            places, found = _cotangents(value, arguments)
        backward = closed("custom_vjp: bwd", [*kept, *(s for s in seeds if s is not None)], found)
        node = CUSTOM_VJP(*arguments.nodes, primal=primal, forward=forward, backward=backward,
                          places=places)
        return tree.build(parts(node))

    return call


def _residuals(value: Any, results: list[Node], tree: Tree) -> tuple[list[Node], Tree]:
    if not isinstance(value, tuple) or len(value) != 2:
        raise ArgumentError("custom_vjp: fwd returns (result, residuals)" + at(user_location()))
    found, nesting = results_of(value[0])
    same_results("custom_vjp: fwd", found, nesting, "fn", results, tree)
    return results_of(value[1])


def _cotangents(value: Any, arguments: Arguments) -> tuple[tuple[int, ...], list[Node]]:
    """The cotangents that are there, and of which of the nodes each is."""
    count = len(arguments.tree.children)
    if not isinstance(value, tuple | list) or len(value) != count:
        raise ArgumentError(f"custom_vjp: bwd returns a tuple with the cotangents of {count} "
                            "arguments, None for zero" + at(user_location()))
    flat: list[Any] = []
    for i, (part, tree) in enumerate(zip(value, arguments.tree.children, strict=True)):
        flat += _spread(tree, part, f"custom_vjp: the cotangent of argument {i}")
    number = {place: i for i, place in enumerate(arguments.places)}
    places, found = [], []
    for place, ct in enumerate(flat):
        if ct is None:
            continue
        if place not in number:
            raise ArgumentError(f"custom_vjp: a number has no cotangent{at(user_location())}")
        node = arguments.nodes[number[place]]
        if not node.dtype.is_float:
            raise ArgumentError(f"custom_vjp: an argument of type {node.type} has no cotangent; "
                                f"give None{at(user_location())}")
        (made,), _ = results_of(ct)
        if made.type != node.type:
            raise ShapeError(f"custom_vjp: bwd gives {made.type} for an argument of type "
                             f"{node.type}{at(user_location())}")
        places.append(number[place])
        found.append(made)
    return tuple(places), found


def _spread(tree: Tree, value: Any, where: str) -> list[Any]:
    """The leaves of a value where None may stand for whatever is nested there."""
    if value is None or tree.kind is None:
        return [value] * len(tree.names())
    if not isinstance(value, dict | list | tuple) or len(value) != len(tree.keys):
        raise ArgumentError(f"{where} is nested as the argument, {tree.describe()}, or None"
                            + at(user_location()))
    entries = list(value.values()) if isinstance(value, dict) else list(value)
    if isinstance(value, dict):
        entries = [value.get(k) for k in tree.keys]
    return [x for child, entry in zip(tree.children, entries, strict=True)
            for x in _spread(child, entry, where)]


def _infer_vjp(*types: TensorType, primal: str, forward: str, backward: str,
               places: tuple[int, ...]) -> Type:
    results = result_types(primal, types)
    floats = [t for t in results if t.dtype.is_float]
    made = result_types(backward, [*result_types(forward, types), *floats])
    _check_places("backward", places, made, types)
    return TupleType(tuple(results))


def _check_places(rule: str, places: tuple[int, ...], made: list[TensorType],
                  like: Sequence[TensorType]) -> None:
    """What a rule makes is of the types of those it is made for; only a file may say otherwise."""
    if len(set(places)) != len(places) or not all(0 <= p < len(like) for p in places):
        raise ShapeError(f"its {rule} rule has no places {places}")
    if made != [like[p] for p in places] or not all(t.dtype.is_float for t in made):
        raise ShapeError(f"its {rule} rule gives other types than it is for")


def _decompose_vjp(*inputs: Node, primal: str, forward: str, backward: str,
                   places: tuple[int, ...]) -> tuple[Node, ...]:
    return tuple(applied(primal, inputs))


def _vjp_of_custom_vjp(node: Node, ct: Cotangent, ad: AD) -> Sequence[Node | None]:
    residuals = applied(node.attrs["forward"], node.inputs)
    cts = filled_floats(ct, node)
    grads: list[Node | None] = [None] * len(node.inputs)
    found = applied(node.attrs["backward"], [*residuals, *cts])
    for place, made in zip(node.attrs["places"], found, strict=True):
        grads[place] = made
    return grads


CUSTOM_VJP = register(Op("custom_vjp", _infer_vjp, vjp=_vjp_of_custom_vjp,
                         decompose=_decompose_vjp, batch=by_element))

# ---- a rule for tangents -----------------------------------------------------------------------


def custom_jvp(fn: Function, rule: Function, check_linear: Callable[[Body, int], None]) -> Function:
    """`rlx.custom_jvp` (`passes/derive/linear_rules.py`), which gives the check: it raises where a
    rule's body, behind so many leaves, is not linear in the tangents."""
    recursion = Recursion(SELF_CALLS)

    def call(*args: Any) -> Any:
        if recursion.exhausted:
            return fn(*args)
        arguments = Arguments(args)
        leaves = placeholders("x", arguments.nodes)
        tangents = placeholders("t", arguments.nodes)
        given = [t if t.dtype.is_float else None for t in tangents]
        with traced("custom_jvp's functions", [*leaves, *tangents], arguments.nodes):
            results, tree = results_of(fn(*arguments.with_nodes(leaves)))
            primal = closed("custom_jvp: fn", leaves, results)
            with recursion.rule():
                value = rule(arguments.with_nodes(leaves), arguments.with_nodes(given, rest=None))
            places, found = _result_tangents(value, results, tree)
        used = [t for t in given if t is not None]
        tangent = closed("custom_jvp: rule", [*leaves, *used], found)
        node = CUSTOM_JVP(*arguments.nodes, primal=primal, tangent=tangent, places=places)
        check_linear(tangent, len(leaves))
        return tree.build(parts(node))

    return call


def _result_tangents(value: Any, results: list[Node],
                     tree: Tree) -> tuple[tuple[int, ...], list[Node]]:
    if not isinstance(value, tuple) or len(value) != 2:
        raise ArgumentError("custom_jvp: rule returns (result, tangents)" + at(user_location()))
    found, nesting = results_of(value[0])
    same_results("custom_jvp: rule", found, nesting, "fn", results, tree)
    places, tangents = [], []
    for i, t in enumerate(_spread(tree, value[1], "custom_jvp: the tangent")):
        if t is None:
            continue
        (made,), _ = results_of(t)
        if made.type != results[i].type or not made.dtype.is_float:
            raise ShapeError(f"custom_jvp: rule gives a tangent {made.type} for a result of type "
                             f"{results[i].type}{at(user_location())}")
        places.append(i)
        tangents.append(made)
    return tuple(places), tangents


def _infer_jvp(*types: TensorType, primal: str, tangent: str, places: tuple[int, ...]) -> Type:
    results = result_types(primal, types)
    floats = [t for t in types if t.dtype.is_float]
    _check_places("tangent", places, result_types(tangent, [*types, *floats]), results)
    return TupleType(tuple(results))


def _decompose_jvp(*inputs: Node, primal: str, tangent: str,
                   places: tuple[int, ...]) -> tuple[Node, ...]:
    return tuple(applied(primal, inputs))


def _rule(node: Node, ad: AD, *, reverse: bool) -> tuple[Graph, list[Node], list[Node]]:
    """The prepared rule, its leaves for the arguments and those for tangents."""
    graph = graph_of(node.attrs["tangent"])
    count = len(node.inputs)
    leaves = list(graph.inputs.values())
    return ad.prepared(graph, leaves[count:], reverse=reverse), leaves[:count], leaves[count:]


def _jvp_of_custom_jvp(node: Node, tangents: Sequence[Node | None], ad: AD) -> Any:
    graph, primals, leaves = _rule(node, ad, reverse=False)
    floats = [t for t, x in zip(tangents, node.inputs, strict=True) if x.dtype.is_float]
    values = dict(zip(primals, node.inputs, strict=True))
    seeds: dict[Node, Node] = {}
    # A derivative of the linear rule, so that a tangent that is absent stays so.
    for given, at_leaf in zip(floats, leaves, strict=True):
        if given is not None:
            (seeds[at_leaf],) = placeholders("seed", [given])
            values[seeds[at_leaf]] = given
    inside = ad.inside()
    found = inside.push(list(graph.outputs.values()), seeds)
    made = outward(ad, inside, found, values)
    parts: list[Node | None] = [None] * len(node)
    for place, t in zip(node.attrs["places"], made, strict=True):
        parts[place] = t
    return tuple(parts)


def _vjp_of_custom_jvp(node: Node, ct: Cotangent, ad: AD) -> Sequence[Node | None]:
    graph, primals, leaves = _rule(node, ad, reverse=True)
    values = dict(zip(primals, node.inputs, strict=True))
    seeds = []
    for place, y in zip(node.attrs["places"], graph.outputs.values(), strict=True):
        if ct[place] is not None:
            (seed,) = placeholders("ct", [y])
            values[seed] = ct[place]
            seeds.append((y, seed))
    inside = ad.inside()
    made = iter(outward(ad, inside, inside.pull(seeds, leaves), values))
    return [next(made) if x.dtype.is_float else None for x in node.inputs]


CUSTOM_JVP = register(Op("custom_jvp", _infer_jvp, vjp=_vjp_of_custom_jvp, jvp=_jvp_of_custom_jvp,
                         decompose=_decompose_jvp, batch=by_element))
