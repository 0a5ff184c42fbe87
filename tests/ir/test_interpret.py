"""The interpreter's own meaning, against NumPy and by hand."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlx_py.ir.base.errors import VerifyError
from rlx_py.ir.base.types import bool_, f32, f64, i8, i64, u8
from rlx_py.ir.loops.index import Index, Quotient, Remainder, Var, as_index
from rlx_py.ir.loops.interpret import fused, interpret
from rlx_py.ir.loops.kernel import (
    Alloc,
    Apply,
    Barrier,
    Buffer,
    Cast,
    Contract,
    For,
    If,
    IndexValue,
    Kernel,
    Load,
    Operand,
    Read,
    Scope,
    Set,
    Stmt,
    Store,
)
from rlx_py.ir.loops.lanes import lane_offsets, partials
from rlx_py.ir.loops.local import Local
from rlx_py.ir.loops.program import Port, Program
from support.loop_programs import Axis, Maker, accumulator, arrays_of, copy_loop, let, literal


def test_an_access_out_of_bounds_raises() -> None:
    make, i = Maker(), Var("i", 5)
    program = make.program(copy_loop(make.input(f32, 4), make.output(f32, 5), i, Axis.SERIAL))
    with pytest.raises(VerifyError, match="element 4 of 4"):
        interpret(program, arrays_of(program))


def test_inputs_are_not_changed() -> None:
    i, w = Var("i", 5), Buffer("w", f32, 5, Scope.EXTERNAL)
    port = Port("w", w, (5,))
    loop = For(i, (Store(w, as_index(i), literal(7, f32)),))
    program = Program("p", (Kernel("k", (loop,)),), (port,), (), (port,))
    x = np.zeros(5, np.float32)
    assert (interpret(program, {"w": x})["w"] == 7).all()
    assert (x == 0).all()


@pytest.mark.parametrize(("value", "want"), [
    (np.nan, 0), (np.inf, 127), (-np.inf, -128), (127.9, 127), (-128.5, -128), (-0.9, 0)])
def test_casts_truncate_and_saturate(value: float, want: int) -> None:
    make, body = Maker(), list[Stmt]()
    out, unsigned = make.output(i8, 1), make.output(u8, 1)
    body.append(Store(out, Index(0), let(body, Cast(literal(value, f32), i8))))
    body.append(Store(unsigned, Index(0), let(body, Cast(literal(value, f32), u8))))
    got = interpret(make.program(*body), {})
    assert got["out0"] == want
    assert got["out1"] == (255 if value == np.inf else max(want, 0))


@given(*[st.floats(width=32)] * 3)
def test_fma_rounds_once(a: float, b: float, c: float) -> None:
    with np.errstate(all="ignore"):
        got = fused(np.float32(a), np.float32(b), np.float32(c), f32)
        if not np.isfinite([a, b, c]).all():
            assert np.isnan(got) == np.isnan(np.float64(a) * b + c)
            return
        exact = Fraction(a) * Fraction(b) + Fraction(c)
        if not np.isfinite(got):
            assert abs(exact) > Fraction(float(np.finfo(np.float32).max))
            return
        distance = abs(Fraction(float(got)) - exact)
        for side in (-np.inf, np.inf):
            other = np.nextafter(got, np.float32(side))
            if np.isfinite(other):
                assert distance <= abs(Fraction(float(other)) - exact)


def test_contract_is_a_product() -> None:
    make = Maker()
    m, n, k = Var("m", 3), Var("n", 4), Var("k", 5)
    a, b, out = make.input(f64, 15), make.input(f64, 20), make.output(f64, 12)
    left, right = list[Stmt](), list[Stmt]()
    x = let(left, Load(a, as_index(m) * 5 + as_index(k)))
    y = let(right, Load(b, as_index(k) * 4 + as_index(n)))
    acc, after = Local(f64), list[Stmt]()
    twice = let(after, Apply("add", (Read(acc), Read(acc)), f64))
    after.append(Store(out, as_index(m) * 4 + as_index(n), twice))
    statement = Contract((), (m,), (n,), (k,), Operand(tuple(left), x), Operand(tuple(right), y),
                         acc, tuple(after))
    program = make.program(statement)
    arrays = arrays_of(program, special=False)
    want = 2 * arrays["in0"].reshape(3, 5) @ arrays["in1"].reshape(5, 4)
    np.testing.assert_allclose(interpret(program, arrays)["out0"].reshape(3, 4), want)


def tree_sum(threads: int) -> Program:
    """A GPU block adds up `threads` numbers in shared memory, two barriers apart."""
    make, g, t = Maker(), Var("g", 2), Var("t", threads)
    source, target = make.input(f32, 2 * threads), make.output(f32, 2)
    shared = Buffer("shared", f32, threads, Scope.SHARED)
    body = list[Stmt]()
    x = let(body, Load(source, as_index(g) * threads + as_index(t)))
    at = let(body, IndexValue(as_index(t), i64))
    body += [Store(shared, as_index(t), x), Barrier()]
    half = threads // 2
    while half:
        step = list[Stmt]()
        other = let(step, Load(shared, as_index(t) + half))
        step.append(Store(shared, as_index(t), other, "add"))
        lower = let(body, Apply("lt", (at, literal(half, i64)), bool_))
        body += [If(lower, tuple(step)), Barrier()]
        half //= 2
    first = let(body, Apply("eq", (at, literal(0, i64)), bool_))
    total = list[Stmt]()
    total.append(Store(target, as_index(g), let(total, Load(shared, Index(0)))))
    body.append(If(first, tuple(total)))
    return make.program(For(g, (Alloc(shared), For(t, tuple(body), Axis.BLOCK)), Axis.GRID))


def test_threads_of_a_block_meet_at_barriers() -> None:
    program = tree_sum(16)
    arrays = {"in0": np.arange(32, dtype=np.float32)}
    assert interpret(program, arrays)["out0"].tolist() == [120.0, 376.0]


def test_a_barrier_that_some_threads_miss_raises() -> None:
    make, t, body = Maker(), Var("t", 4), list[Stmt]()
    at = let(body, IndexValue(as_index(t), i64))
    low = let(body, Apply("lt", (at, literal(2, i64)), bool_))
    body.append(If(low, (Barrier(),)))
    with pytest.raises(VerifyError, match="Barrier"):
        interpret(make.program(For(t, tuple(body), Axis.BLOCK)), {})


@pytest.mark.parametrize(("extent", "count"), [(0, 1), (1, 1), (2, 2), (3, 4), (64, 64), (999, 64)])
def test_partial_results(extent: int, count: int) -> None:
    assert partials(extent) == count


def test_a_vector_sum_folds_by_halves() -> None:
    make, i, body, inner = Maker(), Var("i", 5), list[Stmt](), list[Stmt]()
    acc = accumulator(body, f32, 0)
    inner.append(Set(acc, let(inner, Load(make.input(f32, 5), as_index(i))), "add"))
    body += [For(i, tuple(inner), Axis.VECTOR), Store(make.output(f32, 1), Index(0), Read(acc))]
    x = np.array([1e8, 1, -1e8, 3, 5], np.float32)
    want = (x[0] + x[4] + x[2]) + (x[1] + x[3])
    assert interpret(make.program(*body), {"in0": x})["out0"] == want


@given(st.integers(-9, 9), st.integers(1, 3), st.integers(0, 40), st.integers(1, 60),
       st.integers(1, 60), st.sampled_from([2, 4, 8, 16]))
def test_known_lane_offsets_are_the_offsets(coefficient: int, scale: int, const: int, by: int,
                                            inner: int, lanes: int) -> None:
    i, j = Var("i", 4 * lanes), Var("j", 5)
    form = as_index(i) * coefficient + as_index(j) * lanes * scale + const
    for index in (form, form // by, form % by, (form % inner) // by, (form // inner) % by):
        offsets = lane_offsets(index, i, lanes, set())
        if offsets is None:
            continue
        for base in range(0, i.extent, lanes):
            for outer in range(j.extent):
                values = [value_at(index, {i: base + n, j: outer}) for n in range(lanes)]
                assert [v - values[0] for v in values] == list(offsets)


def value_at(index: Index, at: dict[Var, int]) -> int:
    """The number an index has."""
    total = index.const
    for atom, coefficient in index.terms:
        match atom:
            case Var():
                total += coefficient * at[atom]
            case Quotient(of, by):
                total += coefficient * (value_at(of, at) // by)
            case Remainder(of, by):
                total += coefficient * (value_at(of, at) % by)
    return total
