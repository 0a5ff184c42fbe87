"""Narrow floats and functions after expansion mean what they meant before."""

from __future__ import annotations

from inspect import signature
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from rlx_py.ir.base.errors import DTypeError
from rlx_py.ir.base.types import DType, bf16, f16, f32, f64, i64
from rlx_py.ir.loops.index import Var, as_index
from rlx_py.ir.loops.interpret import interpret
from rlx_py.ir.loops.kernel import Apply, Cast, For, Load, Read, Set, Stmt, Store
from rlx_py.ir.loops.program import Program
from rlx_py.passes.loops.expand_math import expand_math
from rlx_py.passes.loops.math import APPROXIMATIONS
from rlx_py.passes.loops.math.low_precision import narrow, round_to, to_odd, widen
from rlx_py.passes.loops.math.scalars import NumpyScalars
from support.loop_programs import (
    Axis,
    Maker,
    accumulator,
    arrays_of,
    check,
    copy_loop,
    let,
    literal,
    run_native,
    same_bits,
)

NARROW = [(f16, np.float16), (bf16, ml_dtypes.bfloat16)]
each_narrow = pytest.mark.parametrize(("dtype", "kind"), NARROW, ids=["f16", "bf16"])
S: Any = NumpyScalars()


def bits_of(x: Any) -> Any:
    """The unsigned integers of an array."""
    return np.asarray(x).view(np.dtype(f"u{np.asarray(x).dtype.itemsize}"))


def near_every_value(kind: Any) -> Any:
    """f32 values at, beside and halfway between all values of a narrow type, and random bits."""
    with np.errstate(all="ignore"):
        every = np.arange(65536, dtype=np.uint16).view(kind).astype(np.float32).view(np.uint32)
    steps = np.array([-1, 0, 1, 0xFFF, 0x1000, 0x1001, 0x7FFF, 0x8000, 0x8001]).astype(np.uint32)
    some = np.random.default_rng(0).integers(0, 2**32, 200_000, dtype=np.uint32)
    return np.concatenate([(every[:, None] + steps).ravel(), some]).view(np.float32)


@each_narrow
def test_widening_is_exact(dtype: DType, kind: Any) -> None:
    bits = np.arange(65536, dtype=np.uint16)
    with np.errstate(all="ignore"):
        want = bits.view(kind).astype(np.float32)
        assert same_bits(np.asarray(widen(S, bits, dtype.name)), want)


@each_narrow
def test_narrowing_rounds_once_to_even(dtype: DType, kind: Any) -> None:
    x = near_every_value(kind)
    with np.errstate(all="ignore"):
        want = x.astype(kind)
        assert same_bits(np.asarray(narrow(S, x, dtype.name)).view(kind), want)
        assert same_bits(np.asarray(round_to(S, x, dtype.name)), want.astype(np.float32))


@each_narrow
def test_narrowing_from_f64_rounds_once(dtype: DType, kind: Any) -> None:
    """Neighbours a, b and their middle: just below gives a, just above b, and a tie the even one.

    (ml_dtypes itself rounds f64 to f32 first, and so gives b just below the middle.)
    """
    infinity = int(np.asarray(np.inf, kind).view(np.uint16))
    a = np.arange(infinity - 1, dtype=np.uint16)
    low, high = (x.view(kind).astype(np.float64) for x in (a, a + np.uint16(1)))
    middle = (low + high) / 2
    for sign in (0, 0x8000):
        signed = -middle if sign else middle
        for scale, want in ((1 - 2.0**-40, a), (1 + 2.0**-40, a + 1), (1, a + a % 2)):
            with np.errstate(all="ignore"):
                got = narrow(S, to_odd(S, signed * scale), dtype.name)
            assert (got == want + np.uint16(sign)).all()
    with np.errstate(all="ignore"):
        assert narrow(S, to_odd(S, np.array([1e300])), dtype.name)[0] == infinity


STEPS = (("mul", 1.7), ("add", 0.3), ("div", 3.0))


def chain(dtype: DType, *, stored: bool) -> Program:
    """(1.7·x + 0.3)/3 in one loop, or with each result stored and loaded again."""
    make = Maker()
    source, loops, body = make.input(dtype, 50), list[Stmt](), list[Stmt]()
    i = Var("i", 50)
    value = let(body, Load(source, as_index(i)))
    for op, operand in STEPS:
        end = make.output(dtype, 50)
        value = let(body, Apply(op, (value, literal(operand, dtype)), dtype))
        body.append(Store(end, as_index(i), value))
        if stored:
            loops.append(For(i, tuple(body), Axis.VECTOR))
            i, body = Var("i", 50), list[Stmt]()
            value = let(body, Load(end, as_index(i)))
    return make.program(*(loops or [For(i, tuple(body), Axis.VECTOR)]))


@each_narrow
def test_bits_do_not_depend_on_what_is_stored(dtype: DType, kind: Any) -> None:
    fused, stored = chain(dtype, stored=False), chain(dtype, stored=True)
    arrays = arrays_of(fused)
    want, got = check(fused, arrays), check(stored, arrays)
    assert all(same_bits(want[name], got[name]) for name in want)
    with np.errstate(all="ignore"):
        x = arrays["in0"].astype(np.float32)
        once = (x * np.float32(kind(1.7))).astype(kind)
    assert same_bits(want["out0"], once)


@each_narrow
@pytest.mark.parametrize("axis", [Axis.SERIAL, Axis.VECTOR], ids=lambda a: a.value)
def test_copies_move_bits(dtype: DType, kind: Any, axis: Axis) -> None:
    make, i = Maker(), Var("i", 65536)
    source, target = make.input(dtype, 65536), make.output(dtype, 65536)
    program = expand_math(make.program(copy_loop(source, target, i, axis)))
    every = np.arange(65536, dtype=np.uint16)
    assert (bits_of(run_native(program, {"in0": every.view(kind)})["out0"]) == every).all()
    assert len(program.kernels[0].body[0].body) == 2  # type: ignore[union-attr]


@each_narrow
@pytest.mark.parametrize("other", [f16, bf16, f32, f64, i64], ids=str)
def test_conversions(other: DType, dtype: DType, kind: Any) -> None:
    make, i, body = Maker(), Var("i", 300), list[Stmt]()
    x = let(body, Load(make.input(other, 300), as_index(i)))
    y = let(body, Load(make.input(dtype, 300), as_index(i)))
    body.append(Store(make.output(dtype, 300), as_index(i), let(body, Cast(x, dtype))))
    body.append(Store(make.output(other, 300), as_index(i), let(body, Cast(y, other))))
    check(make.program(For(i, tuple(body), Axis.VECTOR)))


@each_narrow
@pytest.mark.parametrize("combine", ["add", "max", "min"])
def test_combining_stores(combine: str, dtype: DType, kind: Any) -> None:
    make, i, z, body = Maker(), Var("i", 37), Var("z", 37), list[Stmt]()
    target = make.output(dtype, 37)
    value = let(body, Load(make.input(dtype, 37), as_index(i)))
    body.append(Store(target, as_index(i), value, combine))
    start = For(z, (Store(target, as_index(z), literal(0.1, dtype)),))
    check(make.program(start, For(i, tuple(body), Axis.VECTOR)))


@each_narrow
def test_accumulators_keep_f32(dtype: DType, kind: Any) -> None:
    make, i, body, inner = Maker(), Var("i", 5000), list[Stmt](), list[Stmt]()
    acc = accumulator(body, dtype, 0)
    inner.append(Set(acc, let(inner, Load(make.input(dtype, 5000), as_index(i))), "add"))
    body += [For(i, tuple(inner), Axis.VECTOR),
             Store(make.output(dtype, 1), as_index(0), Read(acc))]
    ones = {"in0": np.ones(5000, kind)}
    got = run_native(expand_math(make.program(*body)), ones)["out0"]
    assert got[0] == kind(5000)


def function_program(name: str, dtype: DType) -> Program:
    """A function of every element."""
    make, i, body = Maker(), Var("i", 113), list[Stmt]()
    parameters = set(signature(APPROXIMATIONS[name]).parameters) - {"s", "dtype"}
    inputs = tuple(let(body, Load(make.input(dtype, 113), as_index(i)))
                   for _ in parameters - {"n"})
    attrs = (("n", 2),) if "n" in parameters else ()
    y = let(body, Apply(name, inputs, dtype, attrs))
    body.append(Store(make.output(dtype, 113), as_index(i), y))
    return make.program(For(i, tuple(body), Axis.VECTOR))


@pytest.mark.parametrize("dtype", [f32, f64], ids=str)
@pytest.mark.parametrize("name", APPROXIMATIONS)
def test_functions_compile_to_the_bits_of_their_builder(name: str, dtype: DType) -> None:
    """Compiled and interpreted expansion agree with each other to the bit."""
    program = expand_math(function_program(name, dtype))
    arrays = arrays_of(program)
    assert same_bits(run_native(program, arrays)["out0"], interpret(program, arrays)["out0"])


@each_narrow
def test_functions_of_narrow_types_round_the_f32_result(dtype: DType, kind: Any) -> None:
    program = function_program("exp", dtype)
    arrays = arrays_of(program)
    got = run_native(expand_math(program), arrays)["out0"].astype(np.float32)
    with np.errstate(all="ignore"):
        want = np.exp(arrays["in0"].astype(np.float64)).astype(kind).astype(np.float32)
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_functions_of_integers_are_refused() -> None:
    with pytest.raises(DTypeError, match="exp"):
        expand_math(function_program("exp", i64))
