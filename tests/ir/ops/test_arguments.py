"""Calls with wrong arguments: each is right, or a typed error at its line; never anything else."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rlx_py as rlx
from rlx_py.ir.base.types import TupleType
from rlx_py.ir.graph.evaluate import evaluate
from rlx_py.ir.graph.graph import Graph
from rlx_py.ir.nodes.node import Node, make
from support.calls import MODULES, OTHER, Leaf, calls
from support.mutations import bound, mutated, mutated_sample
from support.samples import EXEMPT, SAMPLES, samples_of
from support.sweep import assert_near, run_compiled

CALLS = {c.name: c for c in calls()}
OPS = sorted({s.op.name for s in SAMPLES} - set(EXEMPT))
SEEDS = st.integers(0, 2**32)
MOST_ELEMENTS = 20_000  # of any node of a graph that is computed
COMPILED = 0.01  # part of the graphs that is compiled


def nodes_of(value: Any) -> Iterator[Node]:
    """The single results in whatever a function gave."""
    if isinstance(value, Node):
        yield from value if isinstance(value.type, TupleType) else (value,)
    elif isinstance(value, list | tuple):
        for entry in value:
            yield from nodes_of(entry)
    elif hasattr(value, "__dict__"):
        yield from nodes_of(list(vars(value).values()))


def small(nodes: Iterable[Node]) -> bool:
    return all(t.size <= MOST_ELEMENTS for n in nodes
               for t in (n.type.elements if isinstance(n.type, TupleType) else (n.type,)))


def check(g: Graph, leaves: dict[str, Leaf], rng: Random) -> None:
    """What was made decomposes, has the values of its types, and compiled code has the same."""
    if not g.outputs or not small(g.nodes) or not small(rlx.decompose(g).nodes):
        return
    feed = {k: leaf.array(np.random.default_rng(0)) for k, leaf in leaves.items()}
    try:
        wanted = evaluate(g, feed)
    except rlx.ArgumentError as error:
        assert "out of range" in str(error)  # a position, which only its value tells
        return
    for name, value in wanted.items():
        assert (value.shape, value.dtype) == (g.outputs[name].shape, g.outputs[name].dtype.numpy)
    if rng.random() < COMPILED:
        assert_near(run_compiled(g, feed), wanted, factor=10)


def test_every_public_function_is_called() -> None:
    missing = {f"{m}.{n}" for m, found in MODULES.items() for n in found.__all__
               if n.islower() and callable(getattr(found, n)) and n not in OTHER} - set(CALLS)
    assert not missing


@pytest.mark.parametrize("name", CALLS)
def test_the_right_call_is_right(name: str) -> None:
    g = Graph()
    positional, named, leaves = bound(CALLS[name], CALLS[name].args, g)
    for i, node in enumerate(nodes_of(CALLS[name].function(*positional, **named))):
        g.output(f"y{i}", node)
    assert g.outputs
    check(g, leaves, Random(name))


@pytest.mark.parametrize("name", CALLS)
@settings(max_examples=20)
@given(SEEDS)
def test_a_wrong_argument_is_a_typed_error_at_its_line(name: str, seed: int) -> None:
    call, rng, g = CALLS[name], Random(f"{name} {seed}"), Graph()
    args = mutated(call, rng)
    try:
        positional, named, leaves = bound(call, args, g)
    except rlx.ShapeError:  # an input that can't be addressed
        return
    try:
        made = call.function(*positional, **named)
    except rlx.RLXError as error:
        assert re.match(r"\w+[(:]", str(error)) and f"{__file__}:" in str(error)
        return
    for i, node in enumerate(nodes_of(made)):
        g.output(f"y{i}", node)
    check(g, leaves, rng)


@pytest.mark.parametrize("name", OPS)
@settings(max_examples=20)
@given(SEEDS)
def test_a_wrong_attribute_is_a_typed_error_that_names_the_op(name: str, seed: int) -> None:
    rng, g = Random(f"{name} {seed}"), Graph()
    sample = rng.choice(samples_of(name))
    leaves, attrs = mutated_sample(sample, rng)
    if sample.prepare and any(max(leaf.shape, default=0) > 1000 for leaf in leaves):
        return  # what is prepared is made of arrays
    named = {f"x{i}": leaf for i, leaf in enumerate(leaves)}
    try:
        inputs = tuple(g.input(k, leaf.shape, leaf.dtype) for k, leaf in named.items())
        if sample.prepare:
            inputs = sample.prepare(*inputs)
    except (rlx.RLXError, IndexError):
        return
    try:
        made = make(sample.op, inputs, attrs)
    except rlx.RLXError as error:
        assert str(error).startswith(f"{name}(") and f"{__file__}:" in str(error)
        return
    for i, node in enumerate(nodes_of(made)):
        g.output(f"y{i}", node)
    check(g, named, rng)
