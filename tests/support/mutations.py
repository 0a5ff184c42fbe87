"""Calls gone wrong: arguments, attributes, shapes and element types changed at random."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np

from rlx_py.ir.base.types import DTYPES, as_dtype
from rlx_py.ir.graph.graph import Graph
from support.calls import Call, Leaf
from support.samples.sample import Sample

NAN, INF = float("nan"), float("inf")
INTEGERS: list[Any] = [0, 1, -1, 2, -2, 3, 4, 5, 7, 64, 1000, 2**20, 2**31, -2**31, 2**40, 2**62,
                       2**63 - 1, -2**63, 2**63, 10**30, -10**400]
FLOATS: list[Any] = [0.0, -0.0, 0.5, 1.0, 2.0, -1.5, 1e-320, 1e-8, 1e300, NAN, INF, -INF]
TUPLES: list[Any] = [(), (0,), (1,), (-1,), (0, 1), (1, 0), (1, 1), (2, 3), (3, 3), (-1, -1),
                     (0, 1, 2), (1, 2, 3), (9,), (0, 0, 0, 0), (2**40, 2**40), (2**62, 2), (2.5,),
                     (1, 0.5), (NAN,), (None,), ("a", "b"), ((1, 2), (0, 1)), ((1,), (2, 3)),
                     (True, False), (2**63,), (10**30, 1), [1, 2], [], [[1], [2, 3]], range(2)]
WORDS: list[Any] = ["", "text", "none", "mean", "sum", "max", "prod", "ortho", "f32", "bool", "i64",
                    "nearest", "bicubic", "causal", "custom", "wrap", "clip", "fill", "ij,jk",
                    "...", "->", "fro", "valid", "edge", "tanh"]
THINGS: list[Any] = [None, True, False, b"x", {}, {1}, {"a": 1}, object(), 1j, Ellipsis, slice(1),
                     int, float, len, np.int64(2), np.int8(-1), np.float32(0.5), np.bool_(True),
                     np.float16(INF), np.array(2), np.array([1, 2]), np.array(["x"]),
                     np.array([1j]), np.array([None]), np.zeros((0,)), np.zeros((2, 0)),
                     np.array([0.5, NAN]), np.array([True, False, True]), np.array(2**63, "u8"),
                     np.array([1], "M8[s]"), np.ones((3, 3))]


def odd(rng: Random) -> Any:
    """A value of any kind."""
    return rng.choice(rng.choice([INTEGERS, FLOATS, TUPLES, WORDS, THINGS]))


def near(value: Any, rng: Random) -> Any:
    """Another value of the same kind, most of the time."""
    kinds = {bool: [True, False, 2, None], int: INTEGERS, float: FLOATS, str: WORDS,
             tuple: TUPLES}
    if rng.random() < 0.3 or type(value) not in kinds:
        return odd(rng)
    if isinstance(value, tuple) and value and rng.random() < 0.6:
        entries = list(value)
        at = rng.randrange(len(entries))
        change = rng.choice(["entry", "entry", "drop", "twice"])
        if change == "entry":
            entries[at] = near(entries[at], rng)
        else:
            entries[at:at + 1] = [entries[at]] * 2 if change == "twice" else []
        return tuple(entries)
    return rng.choice(kinds[type(value)])


def other_leaf(leaf: Leaf, rng: Random) -> Leaf:
    """An input of another shape or element type."""
    shape = list(leaf.shape)
    change = rng.choice(["dtype", "rank", "drop", "size", "size", "reverse"])
    if change == "dtype":
        return replace(leaf, dtype=rng.choice(list(DTYPES.values())))
    if change == "rank" or not shape:
        shape.insert(rng.randint(0, len(shape)), rng.choice([1, 2, 3]))
    elif change == "drop":
        shape.pop(rng.randrange(len(shape)))
    elif change == "size":
        shape[rng.randrange(len(shape))] = rng.choice([0, 1, 2, 4, 5, 2**31, 2**45])
    else:
        shape.reverse()
    return replace(leaf, shape=tuple(shape))


def changed(value: Any, rng: Random) -> Any:
    """An argument changed."""
    if isinstance(value, Leaf):
        return other_leaf(value, rng) if rng.random() < 0.6 else odd(rng)
    if isinstance(value, list | tuple) and any(isinstance(v, Leaf | list) for v in value):
        entries = list(value)
        at = rng.randrange(len(entries))
        entries[at] = changed(entries[at], rng)
        return odd(rng) if rng.random() < 0.2 else type(value)(entries)
    return near(value, rng)


def mutated(call: Call, rng: Random) -> dict[str, Any]:
    """The arguments of a call, one or two of them changed."""
    parameters = inspect.signature(call.function).parameters
    variadic = {p.name for p in parameters.values() if p.kind is p.VAR_POSITIONAL}
    args = dict(call.args)
    for name in rng.sample(list(parameters), min(len(parameters), rng.choice([1, 1, 2]))):
        found = changed(args.get(name, parameters[name].default), rng)
        if name == "distance_function" and callable(found):
            continue  # what a user's function raises is its own
        args[name] = tuple(found) if name in variadic and isinstance(found, list) else found
        if name in variadic and not isinstance(found, list | tuple):
            args[name] = (found,)
    return args


def mutated_sample(sample: Sample, rng: Random) -> tuple[list[Leaf], dict[str, Any]]:
    """The inputs and attributes of a sample, one or two of them changed."""
    leaves = [Leaf(a.shape, as_dtype(a.dtype)) for a in sample.arrays]
    attrs = dict(sample.attrs)
    for _ in range(rng.choice([1, 1, 2])):
        if attrs and (not leaves or rng.random() < 0.65):
            name = rng.choice(list(attrs))
            attrs[name] = near(attrs[name], rng)
            if rng.random() < 0.05:
                del attrs[name]
        elif leaves:
            at = rng.randrange(len(leaves))
            leaves[at] = other_leaf(leaves[at], rng)
    if rng.random() < 0.03 and sample.prepare is None:
        leaves.append(Leaf((2,)))
    return leaves, attrs


def bound(call: Call, args: Mapping[str, Any], g: Graph) -> tuple[list[Any], dict[str, Any],
                                                                  dict[str, Leaf]]:
    """Positional and named arguments with inputs of a graph for leaves, and the leaves by name."""
    leaves: dict[str, Leaf] = {}

    def node(value: Any) -> Any:
        if isinstance(value, Leaf):
            name = f"x{len(leaves)}"
            leaves[name] = value
            return g.input(name, value.shape, value.dtype)
        if isinstance(value, list | tuple):
            return type(value)(node(v) for v in value)
        return value

    positional: list[Any] = []
    named = dict(args)
    parameters = inspect.signature(call.function).parameters.values()
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        for p in parameters:
            if p.kind is p.VAR_POSITIONAL:
                positional += [node(v) for v in named.pop(p.name)]
                break
            if p.name in named:
                positional.append(node(named.pop(p.name)))
    return positional, {k: node(v) for k, v in named.items()}, leaves
