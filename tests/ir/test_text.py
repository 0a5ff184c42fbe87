"""The text of a graph: stable, exact, and refused with its line where it is wrong."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlx_py.ir.base.errors import ArgumentError, FormatError, RLXError
from rlx_py.ir.base.literal import Literal, attr_key
from rlx_py.ir.base.types import DTYPES, TensorType
from rlx_py.ir.files.parse import Parser
from rlx_py.ir.files.text import show, show_attribute
from rlx_py.ir.graph.evaluate import evaluate
from rlx_py.ir.graph.graph import Graph, parse
from rlx_py.ir.nodes.node import OPS, Op, make
from rlx_py.ir.nodes.verify import verify
from rlx_py.ir.ops.making.constant import constant
from support import corpus

GRAPHS = corpus.graphs()
TEXT = """graph "mlp" {
  %0 = input "x" : f32[4,3]
  %1 = param "w" : f32[3,2]
  %2 = state "m" {init=0.0} : f32[2]
  %3 = contract(%0, %1) {batch=((), ()), contract=((1,), (0,))} : f32[4,2]
  %4 = broadcast(%2) {axes=(1,), shape=(4, 2)} : f32[4,2]
  %5 = add(%3, %4) : f32[4,2]
  %6 = constant {value=f32[](0.9)} : f32[]
  %7 = broadcast(%6) {axes=(), shape=(2,)} : f32[2]
  %8 = mul(%2, %7) : f32[2]
  next "m" = %8
  update "w" = %1
  output "y" = %5
}"""


def mlp() -> Graph:
    g = Graph("mlp")
    x, w, m = g.input("x", (4, 3)), g.param("w", (3, 2)), g.state("m", (2,))
    g.output("y", x @ w + m)
    g.next("m", m * 0.9)
    g.update("w", w)
    return g


def test_the_text_is_what_the_documentation_shows() -> None:
    assert str(mlp()) == show(mlp()) == TEXT


def test_the_corpus_holds_every_op() -> None:
    assert {n.op.name for g in GRAPHS.values() for n in g.nodes} == set(OPS)


@pytest.mark.parametrize("name", GRAPHS)
def test_a_text_reads_back_as_the_same_graph(name: str) -> None:
    text = str(GRAPHS[name])
    found = parse(text)
    verify(found)
    assert str(found) == text
    for a, b in zip(found.nodes, GRAPHS[name].nodes, strict=True):
        assert (a.op, a.type) == (b.op, b.type)
        keys = [{k: attr_key(v) for k, v in n.attrs.items()} for n in (a, b)]
        assert keys[0] == keys[1]


def test_a_graph_read_back_computes_the_same() -> None:
    x = {"x": np.arange(12, dtype=np.float32).reshape(4, 3), "w": np.ones((3, 2), np.float32)}
    np.testing.assert_array_equal(evaluate(parse(TEXT), x)["y"], evaluate(mlp(), x)["y"])


def test_locations_are_comments_that_name_no_folder() -> None:
    text = show(mlp(), locations=True)
    here = Path(__file__).name
    assert text.count(f"  # {here}:") == 9
    assert str(Path(__file__).parent) not in text
    assert str(parse(text)) == TEXT


def test_order_spacing_and_names_of_values_are_free() -> None:
    text = """# a comment
        graph "g" { %b = input "b" : f32 [ 2 ]  %a = input"a":f32[2]
        %sum=add(%b,%a):f32[2] # another
        output "y" = %sum }"""
    g = parse(text)
    assert list(g.inputs) == ["b", "a"]
    assert g.outputs["y"].op.name == "add"


# ---- attributes ------------------------------------------------------------------------------

ODD = [0, -1, 2**63 - 1, -2**63, 0.0, -0.0, 1.0, 0.1, 5e-324, 1e308, float("inf"), float("-inf"),
       float("nan"), True, False, None, "", 'quo"te\\ \n\t é ☃ \ud800', (), (1,),
       (1, (2.0, (None,))), *DTYPES.values()]


def read_attribute(text: str) -> Any:
    parser = Parser(text, Graph)
    value = parser._attribute_value(0)
    parser._take("end")
    return value


@pytest.mark.parametrize("value", ODD, ids=repr)
def test_every_kind_of_attribute_reads_back(value: Any) -> None:
    assert attr_key(read_attribute(show_attribute(value))) == attr_key(value)


PLAIN = st.none() | st.booleans() | st.integers(-2**63, 2**63 - 1) | st.floats() | st.text()
ATTRIBUTES = st.recursive(PLAIN | st.sampled_from(list(DTYPES.values())),
                          lambda inner: st.lists(inner, max_size=4).map(tuple), max_leaves=8)


@given(ATTRIBUTES)
@settings(max_examples=200, deadline=None)
def test_any_attribute_reads_back(value: Any) -> None:
    assert attr_key(read_attribute(show_attribute(value))) == attr_key(value)


@given(st.sampled_from([d for d in DTYPES.values() if d.name != "bool"]),
       st.binary(max_size=64), st.booleans())
@settings(max_examples=200, deadline=None)
def test_arrays_read_back_bit_for_bit(dtype: Any, data: bytes, matrix: bool) -> None:
    array = np.frombuffer(data[:len(data) // 16 * 16], dtype.numpy)
    array = array.reshape(2, -1) if matrix else array
    found = read_attribute(show_attribute(Literal(array)))
    assert found == Literal(array)


def test_short_arrays_are_readable_and_long_ones_are_bytes() -> None:
    assert show_attribute(Literal(np.array([[0.1, -0.0]], np.float32))) == "f32[1,2](0.1, -0.0)"
    assert show_attribute(Literal(np.array(100.0))) == "f64[](100.0)"
    assert show_attribute(Literal(np.zeros(17, np.int8))) == f'i8[17] "{"A" * 23}="'


@pytest.mark.parametrize("value", [
    np.int64(3), [1, 2], {"a": 1}, object(), 1j, 2**70, tuple(range(5000)), b"x"],
    ids=lambda v: type(v).__name__)
def test_an_attribute_that_no_text_can_hold_is_refused(value: Any) -> None:
    with pytest.raises(FormatError):
        show_attribute(value)


def test_a_node_with_such_an_attribute_is_refused_by_name() -> None:
    with pytest.raises(ArgumentError, match="odd.*object"):
        make(Op("odd", lambda x, *, k: x), (Graph().input("x", 2),), {"k": object()})


def test_a_state_that_begins_as_no_number_is_refused() -> None:
    for init in ("zero", np.zeros(5), [1j, 2j, 3j]):
        g = Graph()
        g.state("m", (3,), init=init)
        with pytest.raises(ArgumentError, match="'m'"):
            str(g)


# ---- errors ----------------------------------------------------------------------------------


def changed(old: str, new: str) -> str:
    assert old in TEXT
    return TEXT.replace(old, new)


WRONG: dict[str, tuple[str, int, str]] = {
    "type": (changed("%5 = add(%3, %4) : f32[4,2]", "%5 = add(%3, %4) : f32[4,3]"), 7,
             r"add is said to be f32\[4,3\], but is f32\[4,2\]"),
    "dtype": (changed("%8 = mul(%2, %7) : f32[2]", "%8 = mul(%2, %7) : f64[2]"), 10, "f64"),
    "operand": (changed("add(%3, %4)", "add(%0, %4)"), 7, "differ in shape"),
    "op": (changed("add(", "plus("), 7, "'plus'"),
    "leaf as op": (changed("add(%3, %4)", "leaf"), 7, "'leaf'"),
    "attribute": (changed("axes=(1,), ", ""), 6, "lacks the attribute 'axes'"),
    "extra attribute": (changed("mul(%2, %7)", "mul(%2, %7) {out=1}"), 10, "no attribute 'out'"),
    "kind of attribute": (changed("axes=(1,)", "axes=(1.0,)"), 6, "axes"),
    "bool axis": (changed("axes=(1,)", "axes=(true,)"), 6, "axes"),
    "value of attribute": (changed("axes=(1,)", "axes=(5,)"), 6, "broadcast"),
    "attribute twice": (changed("axes=(1,)", "axes=(1,), axes=(1,)"), 6, "twice"),
    "word": (changed("axes=(1,)", "axes=one"), 6, "'one'"),
    "few inputs": (changed("mul(%2, %7)", "mul(%2)"), 10, "1 inputs"),
    "many inputs": (changed("mul(%2, %7)", "mul(%2, %7, %7)"), 10, "3 inputs"),
    "cycle": (changed("mul(%2, %7)", "mul(%8, %7)"), 10, "%8 is used before it is defined"),
    "forward": (changed("add(%3, %4)", "add(%3, %8)"), 7, "%8 is used before"),
    "value twice": (changed("%8 = mul", "%7 = mul"), 10, "%7 is defined twice"),
    "leaf twice": (changed('param "w"', 'param "x"'), 3, "'x' is taken"),
    "output twice": (changed('  update "w" = %1', '  output "y" = %1'), 13, "'y' is taken"),
    "next twice": (changed('update "w" = %1', 'next "m" = %8'), 12, "given twice"),
    "next of no state": (changed('next "m"', 'next "w"'), 11, "no state 'w'"),
    "next of another type": (changed('next "m" = %8', 'next "m" = %5'), 11, "'m'"),
    "update of no param": (changed('update "w" = %1', 'update "z" = %1'), 12, "no param 'z'"),
    "name": (changed('input "x"', 'input ""'), 2, "non-empty"),
    "init": (changed("{init=0.0} ", ""), 4, "'m'"),
    "init of an input": (changed('input "x"', 'input "x" {init=0.0}'), 2, "init"),
    "kind of init": (changed("{init=0.0}", '{init="a"}'), 4, "'m'"),
    "shape of init": (changed("{init=0.0}", "{init=f32[3](0.0, 1.0, 2.0)}"), 4, "shape"),
    "elements": (changed("f32[](0.9)", "f32[](0.9, 0.9)"), 8, "1 elements, not 2"),
    "element": (changed("f32[](0.9)", "f32[](1e39)"), 8, "exceeds f32"),
    "element kind": (changed("f32[](0.9)", 'f32[]("a")'), 8, "number"),
    "base64": (changed("f32[](0.9)", 'f32[] "A*=="'), 8, "base64"),
    "bytes": (changed("f32[](0.9)", 'f32[] "AAAA"'), 8, "4 bytes, not 3"),
    "bool bytes": (changed("f32[](0.9)", 'bool[] "Ag=="'), 8, "bool"),
    "negative size": (changed("f32[4,3]", "f32[-4,3]"), 2, "negative"),
    "float size": (changed("f32[4,3]", "f32[4.0,3]"), 2, "integer"),
    "huge size": (changed("f32[4,3]", "f32[4611686018427387904,4]"), 2, "64-bit"),
    "huger size": (changed("f32[4,3]", f"f32[{'9' * 5000}]"), 2, "64 bits"),
    "many axes": (changed("f32[4,3]", f"f32[{'1,' * 65}1]"), 2, "64 axes"),
    "element type": (changed("f32[4,3]", "f31[4,3]"), 2, "'f31'"),
    "tuple leaf": (changed("f32[4,3]", "(f32[4], f32[3])"), 2, "'x'"),
    "huge constant": (changed("f32[](0.9)", 'f32[1099511627776] ""'), 8, "bytes"),
    "huge integer": (changed("axes=(1,)", f"axes=({'9' * 5000},)"), 6, "64 bits"),
    "big float": (changed("0.9", "1e999"), 8, "exceeds f64"),
    "deep": (changed("axes=(1,)", f"axes={'(' * 100000}"), 6, "deep"),
    "long tuple": (changed("axes=(1,)", f"axes=({'1,' * 5000})"), 6, "4096"),
    "string": (changed('input "x"', r'input "\x"'), 2, "no string"),
    "open string": (changed('input "x"', 'input "x'), 2, "unexpected"),
    "character": (changed("add", "a$d"), 7, r"'\$'"),
    "garbage on a line": (changed("0} : f32[2]", "0} : f32[2] then"), 4, "no statement 'then'"),
    "garbage at the end": (TEXT + "\nmore", 15, "expected the end, found 'more'"),
    "a second graph": (TEXT + "\n" + TEXT, 15, "expected the end"),
    "the end": (TEXT.removesuffix("}"), 14, "found the end"),
    "half a line": (TEXT[:TEXT.index("add") + 5], 7, "expected"),
    "nothing": ("", 1, "'graph'"),
    "no graph": ("%0 = input", 1, "'graph'"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_named_with_its_line(name: str) -> None:
    text, line, message = WRONG[name]
    with pytest.raises(FormatError, match=message) as caught:
        parse(text)
    assert str(caught.value).startswith(f"line {line}: ")
    assert "\n" not in str(caught.value)


def test_only_a_string_is_parsed() -> None:
    for wrong in (None, b"graph", 3):
        with pytest.raises(ArgumentError, match="string"):
            parse(wrong)  # type: ignore[arg-type]


@given(st.integers(0, len(TEXT)), st.integers(0, len(TEXT)), st.text(max_size=3))
@settings(max_examples=300, deadline=None)
def test_a_damaged_text_is_another_graph_or_a_typed_error(a: int, b: int, put: str) -> None:
    text = TEXT[:min(a, b)] + put + TEXT[min(max(a, b), min(a, b) + 6):]
    try:
        found = parse(text)
    except FormatError:
        return
    verify(found)
    assert str(parse(str(found))) == str(found)


@given(st.text(alphabet='%0123abc(){}[]=:,"#\\ \n.-eginput', max_size=80))
@settings(max_examples=200, deadline=None)
def test_any_string_is_a_graph_or_a_typed_error(text: str) -> None:
    for whole in (text, f'graph "g" {{{text}}}'):
        try:
            parse(whole)
        except FormatError as error:
            assert str(error).startswith("line ")


def test_reading_takes_time_linear_in_the_text() -> None:
    fill: list[Callable[[int], str]] = [
        lambda n: "(" * n, lambda n: '"' + "\\" * (2 * n), lambda n: "1" * n, lambda n: "#" * n,
        lambda n: "%a = " * n, lambda n: "[" * n, lambda n: "f32[" + "9," * n,
        lambda n: f'%x = input "x" : f32[{"4611686018427387904," * (n // 20)}1]']
    for make_text in fill:
        start = time.perf_counter()
        with pytest.raises(RLXError):
            parse('graph "g" {' + make_text(200_000))
        assert time.perf_counter() - start < 5


def test_a_constant_is_shown_with_its_own_type() -> None:
    g = Graph()
    g.output("y", constant(np.array([1, 65504], np.float16)))
    assert "constant {value=f16[2](1.0, 65500.0)} : f16[2]" in str(g)
    assert g.outputs["y"].type == TensorType(DTYPES["f16"], (2,))
