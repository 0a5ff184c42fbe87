"""`==` and `!=` of nodes: NumPy's, element-wise; identity is what sets and keys go by."""

from __future__ import annotations

import operator
import sys
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import pytest

import rlx_py as rlx
from rlx_py.ir.nodes import operators

VALUES = np.array([[0, 1, 2], [2, 1, 0]], np.int32)
OTHERS = {
    "int": 1, "float": 1.0, "bool": True, "numpy_int": np.int64(1), "numpy_float": np.float64(1),
    "line": np.array([0, 1, 0], np.int32), "list": [0, 1, 0], "tuple": (0, 1, 0),
    "column": np.array([[0], [1]], np.int64), "nan": float("nan"),
}
RELATIONS = {"eq": operator.eq, "ne": operator.ne}


@pytest.mark.parametrize("relation", RELATIONS.values(), ids=RELATIONS)
@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_it_is_numpys_on_either_side(relation: Any, other: Any) -> None:
    g = rlx.Graph("g")
    x = g.input("x", VALUES.shape, rlx.i32)
    g.output("left", relation(x, other))
    g.output("right", relation(other, x))
    found = rlx.evaluate(g, {"x": VALUES})
    wanted = relation(VALUES, other if not isinstance(other, tuple) else list(other))
    for value in found.values():
        np.testing.assert_array_equal(value, wanted)
        assert value.dtype == np.bool_
    for name, value in rlx.compile(g)(x=VALUES).items():
        np.testing.assert_array_equal(value, found[name])


@pytest.mark.parametrize("dtype", [rlx.f64, rlx.f32, rlx.f16, rlx.bf16, rlx.i64, rlx.i8, rlx.u32,
                                   rlx.bool], ids=str)
def test_every_element_type_compares(dtype: rlx.DType) -> None:
    g = rlx.Graph("g")
    x, y = g.input("x", (3,), dtype), g.input("y", (3,), dtype)
    g.output("same", x == y)
    g.output("other", x != y)
    a, b = (np.array(v).astype(dtype.numpy) for v in ([0, 1, 1], [0, 0, 1]))
    found = rlx.compile(g)(x=a, y=b)
    np.testing.assert_array_equal(found.same, [True, False, True])
    np.testing.assert_array_equal(found.other, [False, True, False])


def test_a_padding_mask_masks() -> None:
    g = rlx.Graph("g")
    x, y = g.input("x", (4,)), g.input("y", (4,), rlx.i32)
    g.output("loss", (x * (y != 0)).sum())
    data = {"x": np.arange(1, 5, dtype=np.float32), "y": np.array([0, 3, 0, 1], np.int32)}
    assert float(rlx.compile(g)(**data).loss) == 6.0


def test_of_dynamic_sizes() -> None:
    B = rlx.dim("B")
    g = rlx.Graph("g")
    x = g.input("x", (B,), rlx.i64)
    g.output("left", x == B)
    g.output("right", x.shape[0] != x)
    found = rlx.compile(g)(x=np.array([3, 1, 2]))
    np.testing.assert_array_equal(found.left, [True, False, False])
    np.testing.assert_array_equal(found.right, [False, True, True])


@pytest.mark.parametrize("other", [None, "x", b"x", np.str_("x"), object(), 1j, {}, np.float32,
                                   rlx.f32, ...], ids=lambda v: type(v).__name__)
def test_what_is_no_operand_is_not_equal(other: Any) -> None:
    x = rlx.Graph("g").input("x", (3,))
    assert x.__eq__(other) is NotImplemented and x.__ne__(other) is NotImplemented
    assert (x == other) is False and (other == x) is False
    assert (x != other) is True and (other != x) is True


def test_shapes_that_do_not_broadcast() -> None:
    g = rlx.Graph("g")
    x, y = g.input("x", (3,)), g.input("y", (4,))
    for relation in RELATIONS.values():
        with pytest.raises(rlx.ShapeError, match=r"equal: operands f32\[3\] and f32\[4\]"):
            relation(x, y)


def test_nodes_of_two_graphs_have_no_hidden_equality() -> None:
    x = rlx.Graph("g").input("x", (3,))
    assert hash(x) == object.__hash__(x)
    twin = rlx.Graph("h").input("x", (3,))
    assert {x: 1, twin: 2}[x] == 1 and len({x, twin}) == 2


def test_truth_names_where_and_cond_at_the_line() -> None:
    x = rlx.Graph("g").input("x", (3,))
    with pytest.raises(rlx.ArgumentError, match=r"(?s)no truth value.*where or cond.*" + __file__):
        bool(x == 1)
    with pytest.raises(rlx.ArgumentError, match="where or cond"):
        assert x not in [rlx.zeros((3,))]


def test_on_a_tape_the_truth_is_the_values() -> None:
    with rlx.Tape():
        x = rlx.Parameter(np.float32(2.0)) * 1
        assert bool(x == 2.0) is True and bool(x != 2.0) is False
        assert x == np.float64(2) and x != 3
        assert (x == None) is False  # noqa: E711
        with pytest.raises(rlx.ArgumentError, match="item takes one element"):
            bool(rlx.ones((2,)) == 1)


def test_the_line_of_a_comparison_is_the_users() -> None:
    x = rlx.Graph("g").input("x", (3,))
    assert (x == 1).loc == (__file__, _line())


def _line() -> int:
    return sys._getframe(1).f_lineno


def test_the_engine_may_not_compare_nodes() -> None:
    """What every test runs under (tests/conftest.py) sees a comparison, also one that C makes."""
    x, y = rlx.zeros((2,)), rlx.ones((2,))
    asked = {"x": x, "y": y, "__name__": "rlx_py.any"}
    for text in ("x == y", "x != y", "x in [y]", "[y].index(x)", "[y].remove(x)", "(x,) == (y,)"):
        with pytest.raises(AssertionError, match="compared, not identified"):
            exec(text, dict(asked))
    with pytest.raises(AssertionError, match="compared, not identified"):
        exec("WeakKeyDictionary({x: 1})[x]", {**asked, "WeakKeyDictionary": WeakKeyDictionary})
    for text in ("x in [x]", "(x,) == (x,)", "x in {y}", "x is y"):
        exec(text, dict(asked))
    assert operators.compares_with(1)
