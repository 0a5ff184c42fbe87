"""Sizes by name: their arithmetic, questions that are never answered wrongly, and their text."""

from __future__ import annotations

import copy
import pickle
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import rlx_py as rlx
from rlx_py.ir.base.bounds import least, most
from rlx_py.ir.base.dim import Dim, indices, larger, read_size, surely_less, value_of
from rlx_py.ir.base.errors import RLXError, Undecided
from rlx_py.ir.base.types import TensorType, f32
from rlx_py.ir.graph.bind import solve

B, T = rlx.dim("B"), rlx.dim("T")
NAMES = ("B", "T", "H")


def sizes_of(expression: Callable[..., Any], values: tuple[int, ...]) -> Any:
    """An expression of names and of numbers."""
    return expression(*map(rlx.dim, NAMES)), expression(*values)


OPERATIONS: tuple[Callable[[Any, Any], Any], ...] = (
    lambda a, b: a + b, lambda a, b: a - b, lambda a, b: a * b, lambda a, b: a // b,
    lambda a, b: a % b)


@st.composite
def programs(draw: st.DrawFn) -> list[tuple[int, int, int]]:
    """Operations on a stack that holds the named sizes and a few numbers first."""
    count = draw(st.integers(1, 6))
    return [(draw(st.integers(0, len(OPERATIONS) - 1)), draw(st.integers(0, 6 + i)),
             draw(st.integers(0, 6 + i))) for i in range(count)]


def run(program: list[tuple[int, int, int]], names: tuple[Any, ...]) -> Any:
    stack = [*names, 1, 2, 3, -4]
    for operation, a, b in program:
        stack.append(OPERATIONS[operation](stack[a], stack[b]))
    return stack[-1]


VALUES = st.tuples(*[st.integers(1, 9)] * 3)


@settings(max_examples=400, deadline=None)
@given(programs(), VALUES)
def test_arithmetic_is_that_of_integers(program: list[tuple[int, int, int]],
                                        values: tuple[int, ...]) -> None:
    try:
        size = run(program, tuple(map(rlx.dim, NAMES)))
    except (RLXError, ZeroDivisionError):
        assume(False)  # divided by what may be 0 or negative, or too large
    expected = run(program, values)
    bound = dict(zip(NAMES, values, strict=True))
    assert value_of(size, bound) == expected
    step_by_step = value_of(value_of(size, {"B": values[0]}), bound)
    assert step_by_step == expected
    assert read_size(str(size)) == size
    low, high = least(size), most(size)
    assert low is None or low <= expected
    assert high is None or expected <= high


@settings(max_examples=400, deadline=None)
@given(programs(), programs(), VALUES)
def test_no_question_is_answered_wrongly(first: list[tuple[int, int, int]],
                                         second: list[tuple[int, int, int]],
                                         values: tuple[int, ...]) -> None:
    dims = tuple(map(rlx.dim, NAMES))
    try:
        a, b = run(first, dims), run(second, dims)
    except (RLXError, ZeroDivisionError):
        assume(False)
    x, y = run(first, values), run(second, values)
    if a == b:
        assert x == y
    assert not surely_less(a, b) or x < y
    for question in (lambda p, q: p < q, lambda p, q: p <= q, lambda p, q: p > q,
                     lambda p, q: p >= q, larger):
        try:
            answer = question(a, b)
        except Undecided:
            continue
        expected = question(x, y)
        bound = dict(zip(NAMES, values, strict=True))
        assert (value_of(answer, bound) if isinstance(answer, Dim) else answer) == expected


@settings(max_examples=300, deadline=None)
@given(st.integers(1, 9), *[st.one_of(st.none(), st.integers(-4, 4))] * 2,
       st.sampled_from((None, 1, 2, -1, -3)), st.integers(-2, 2))
def test_slices_are_read_as_python_reads_them(size: int, start: int | None, stop: int | None,
                                              step: int | None, shift: int) -> None:
    key = slice(start, stop, step)
    try:
        found = indices(key, B)
        shifted = indices(slice(B + shift if shift < 0 else None, stop, step), B)
    except Undecided:
        return
    assert value_of(found, {}) == found
    bound = {"B": size}
    assert tuple(value_of(v, bound) for v in found) == key.indices(size)
    other = slice(size + shift if shift < 0 else None, stop, step)
    if size + shift >= 0:
        assert tuple(value_of(v, bound) for v in shifted) == other.indices(size)


@pytest.mark.parametrize(("size", "text"), [
    (T * B, "B*T"), (B + 1 - 1, "B"), (4 * B // 4, "B"), ((B + 1) * (B - 1), "B*B-1"),
    (B * T // T, "B"), ((B * T + B) // (T + 1), "B"), (B // 2 // 3, "B//6"), (4 * B // 8, "B//2"),
    (-(-B // 2), "B-(B//2)"), (2 * (B // 2) + B % 2, "B"), ((2 * B + 1) // 2, "B"),
    (-1 % B, "B-1"), (B % T, "-(B//T)*T+B"), ((B + 1) // 2 * T - 3, "((B+1)//2)*T-3"),
    (6 * B // 4, "B+B//2"), (7 // B, "7//B"), (B**2, "B*B")])
def test_equal_sizes_have_one_form(size: Any, text: str) -> None:
    assert str(size) == text
    assert read_size(text) == size
    assert hash(read_size(text)) == hash(size)


def test_a_question_about_the_longest_sizes_is_answered_soon() -> None:
    names = [rlx.dim(f"n{i}") for i in range(7)]
    long = sum(names) ** 2 - 5
    hard = (long // 3) * (long // 5) - (long // 7) * (long // (names[0] + 2)) * names[1]
    start = time.perf_counter()
    with pytest.raises(Undecided):
        bool(hard < 0)
    assert time.perf_counter() - start < 10


def test_sizes_are_copied_and_pickled() -> None:
    for size in (B, (B + 1) // 2 * T):
        for other in (copy.deepcopy(size), pickle.loads(pickle.dumps(size))):
            assert other == size
            assert {size: 1}[other] == 1


def test_what_is_no_size_anymore_is_an_integer() -> None:
    assert type((B + 3) - B) is int
    assert type(B * T // (T * B)) is int
    assert B * 0 == 0
    assert 2 * B % 2 == 0


@pytest.mark.parametrize("question", [
    lambda: B > 0, lambda: B - 1 >= 0, lambda: T + 1 >= 1, lambda: B * T >= B, lambda: B // 2 <= B,
    lambda: B // 4 < B, lambda: B - B // 2 > 0, lambda: T * (B // 4) >= 0, lambda: 7 // B <= 7,
    lambda: B * B >= B, lambda: 2 * B > B, lambda: bool(B), lambda: not B - 1 < 0,
    lambda: 0 <= B % T < T, lambda: -5 % B < B, lambda: (B * T + 3) % (T + 1) <= T,
    lambda: (B + T) // 2 >= 1, lambda: 3 * (B // 3) <= B])
def test_what_holds_for_every_size_is_seen(question: Callable[[], bool]) -> None:
    assert question()


@pytest.mark.parametrize("question", [
    lambda: B + 1 <= 8, lambda: B < T, lambda: bool(B - 1), lambda: B == 1 or B > 1,
    lambda: range(B), lambda: int(B), lambda: float(B), lambda: [0][B], lambda: list(B)])
def test_what_depends_on_the_size_is_refused(question: Callable[[], Any]) -> None:
    with pytest.raises(Undecided, match="B"):
        question()


@pytest.mark.parametrize("wrong", [
    lambda: B / 2, lambda: 1 / B, lambda: 0.5 * B, lambda: B + 1.0, lambda: B // 0, lambda: B % 0,
    lambda: rlx.dim("2B"), lambda: rlx.dim("B C"), lambda: rlx.dim(""), lambda: rlx.dim("true"),
    lambda: rlx.dim("if"), lambda: rlx.dim(3), lambda: B**-1, lambda: B**50,  # type: ignore[arg-type]
    lambda: B * 2**63, lambda: (B + T)**8 * (B - T)**8, lambda: 4 // (B - 3)])
def test_what_is_no_size_is_a_typed_error(wrong: Callable[[], Any]) -> None:
    with pytest.raises(RLXError):
        wrong()


@pytest.mark.parametrize("text", [
    "", "B.x", "f(B)", "B**2", "1.5", "B/2", "B//0", "[B]", "B if T else 1", "a" * 2000, "(" * 300,
    "*".join(["(B+T+C+D)"] * 60), "lambda: 0", "True", "B < 2", "2B"])
def test_a_text_that_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(rlx.FormatError):
        read_size(text)


def types(**shapes: Any) -> dict[str, TensorType]:
    return {k: TensorType(f32, s) for k, s in shapes.items()}


@pytest.mark.parametrize(("leaves", "shapes", "expected"), [
    (types(x=(B, 3)), {"x": (5, 3)}, {"B": 5}),
    (types(x=(B * T, 3), y=(T,)), {"x": (12, 3), "y": (4,)}, {"B": 3, "T": 4}),
    (types(x=(B + 1, 2 * T - 1)), {"x": (6, 7)}, {"B": 5, "T": 4}),
    (types(x=(B,), y=(B // 2,)), {"x": (5,), "y": (2,)}, {"B": 5}),
    (types(x=(B * B, B)), {"x": (9, 3)}, {"B": 3})])
def test_sizes_are_read_off_shapes(leaves: dict[str, TensorType], shapes: dict[str, Any],
                                   expected: dict[str, int]) -> None:
    assert solve(leaves, shapes) == expected


@pytest.mark.parametrize(("leaves", "shapes", "words"), [
    (types(x=(B,), y=(B,)), {"x": (5,), "y": (6,)}, ("'y'", "B", "5", "6", "'x'")),
    (types(x=(2 * B,)), {"x": (5,)}, ("'x'", "2*B", "5")),
    (types(x=(B + 3,)), {"x": (3,)}, ("'x'", "B+3", "3")),
    (types(x=(B,)), {"x": (0,)}, ("'x'", "B", "0")),
    (types(x=(B * T,)), {"x": (6,)}, ("tells the size B",)),
    (types(x=(B,), y=(B // 2,)), {"x": (5,), "y": (3,)}, ("'y'", "B//2", "2", "3")),
    (types(x=(B, 3)), {"x": (5,)}, ("'x'", "f32[B,3]"))])
def test_shapes_that_fit_no_sizes_are_refused(leaves: dict[str, TensorType],
                                              shapes: dict[str, Any],
                                              words: tuple[str, ...]) -> None:
    with pytest.raises(rlx.ShapeError) as caught:
        solve(leaves, shapes)
    assert all(word in str(caught.value) for word in words)
