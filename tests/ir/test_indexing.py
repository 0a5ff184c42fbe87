"""x[key] against NumPy on random keys, forward and backward."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rlx_py.ir.graph.evaluate import evaluate
from rlx_py.passes.derive.vjp import vjp
from support.laws import graph_of, value

SHAPE = (3, 4, 1, 5)


def entry(size: int, common: tuple[int, ...]) -> st.SearchStrategy[Any]:
    """One way to index an axis; arrays broadcast to a common shape."""
    bound = st.none() | st.integers(-size - 1, size + 1)
    step = st.none() | st.integers(1, 3) | st.integers(-3, -1)
    places = st.integers(-size, size - 1)
    array = st.lists(places, min_size=int(np.prod(common)), max_size=int(np.prod(common))).map(
        lambda p: np.array(p, np.int64).reshape(common))
    short = array.map(lambda a: a[:1])
    return st.one_of(st.builds(slice, bound, bound, step), places, array, short)


@st.composite
def keys(draw: st.DrawFn) -> tuple[Any, ...]:
    common = draw(st.sampled_from([(2,), (3, 2), (1,), (0,)]))
    rank = draw(st.integers(0, len(SHAPE)))
    dots = draw(st.none() | st.integers(0, rank))
    front = rank if dots is None else dots
    axes = [*range(front), *range(len(SHAPE) - (rank - front), len(SHAPE))]
    key = [draw(entry(SHAPE[a], common)) for a in axes]
    if dots is not None:
        key.insert(dots, Ellipsis)
    for _ in range(draw(st.integers(0, 2))):
        key.insert(draw(st.integers(0, len(key))), None)
    return tuple(key)


@settings(max_examples=300, deadline=None)
@given(keys())
def test_getitem_is_numpys(key: tuple[Any, ...]) -> None:
    x = np.arange(float(np.prod(SHAPE))).reshape(SHAPE)
    expected = x[key]
    found = value(lambda n: n[key], x)
    assert found.shape == expected.shape
    np.testing.assert_array_equal(found, expected)


@settings(max_examples=100, deadline=None)
@given(keys())
def test_its_gradient_adds_up_where_it_read(key: tuple[Any, ...]) -> None:
    x = np.zeros(SHAPE)
    g = graph_of(lambda n: n[key], [x])
    ct = np.arange(1.0, 1 + g.outputs["y"].size).reshape(g.outputs["y"].shape)
    expected = np.zeros(SHAPE)
    np.add.at(expected, key, ct)
    found = evaluate(vjp(g, ["x0"]), {"x0": x, "ct_y": ct})["grad_x0"]
    np.testing.assert_array_equal(found, expected)


def test_an_ellipsis_of_no_axes_keeps_positions_apart() -> None:
    x = np.arange(float(np.prod(SHAPE))).reshape(SHAPE)
    rest = (slice(None),) * (len(SHAPE) - 3)
    key = (*rest, slice(None), 0, Ellipsis, np.array([0, 0]))
    np.testing.assert_array_equal(value(lambda n: n[key], x), x[key])
