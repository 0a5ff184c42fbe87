"""Large constants: data that compiled code points to, and that exported code holds."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx_py as rlx
from rlx_py.backends.llvm.backend import program_for
from rlx_py.backends.llvm.jit import compile_program
from rlx_py.backends.llvm.program import HELD
from rlx_py.backends.llvm.targets import host
from rlx_py.ir.base.types import DTYPES, DType, as_dtype

Array = np.ndarray[Any, Any]


def values(size: int, dtype: DType = rlx.f32, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(0, 100, size).astype(dtype.numpy)


def added(*constants: Array) -> rlx.Graph:
    """x plus constants, the last one reversed."""
    g = rlx.Graph("added")
    y: Any = g.input("x", constants[0].shape, as_dtype(constants[0].dtype))
    for c in constants:
        y = y + rlx.constant(c) if c is not constants[-1] else y + rlx.constant(c)[::-1]
    g.output("y", y)
    return g


@pytest.mark.parametrize("dtype", [d for d in DTYPES.values() if d.kind != "bool"], ids=str)
@pytest.mark.parametrize("around", [-1, 0, 1])
def test_constants_of_every_type_and_size(dtype: DType, around: int) -> None:
    size = HELD // dtype.itemsize + around
    a, b = values(size, dtype), values(size, dtype, 1)
    g = added(a, b)
    x = np.ones(size, dtype.numpy)
    wanted = rlx.evaluate(g, {"x": x})["y"]
    assert rlx.compile(g)(x=x).y.tobytes() == wanted.tobytes()


def test_masks() -> None:
    mask = values(3 * HELD) > 50
    g = rlx.Graph()
    g.output("y", rlx.where(rlx.constant(mask), g.input("x", mask.shape), 0.0))
    x = values(3 * HELD, seed=2)
    np.testing.assert_array_equal(rlx.compile(g)(x=x).y, np.where(mask, x, 0))


def test_code_does_not_grow_with_constants() -> None:
    small, large = (compile_program(program_for(added(values(n), values(n, seed=1)), host()),
                                    cache=False) for n in (10_000, 1_000_000))
    # The levels of the sum are a loop more or two; the constants would be millions of characters.
    assert len(large.text) < 10_000 and len(small.text) < 10_000


def test_equal_code_of_other_constants_is_apart() -> None:
    x = np.zeros(5000, np.float32)
    first, second, again = (rlx.compile(added(values(5000, seed=s))) for s in (1, 2, 1))
    for exe, seed in ((first, 1), (second, 2), (again, 1)):
        np.testing.assert_array_equal(exe(x=x).y, values(5000, seed=seed)[::-1])


def test_constants_live_as_long_as_the_code_and_are_nobody_elses() -> None:
    given = values(100_000)
    exe = rlx.compile(added(given))
    wanted = given[::-1].copy()
    given[:] = 0
    del given
    gc.collect()
    np.testing.assert_array_equal(exe(x=np.zeros(100_000, np.float32)).y, wanted)


def test_slices_of_a_constant_in_a_loop_and_the_time_of_its_kernels() -> None:
    table = values(40 * 60).reshape(40, 60)
    g = rlx.Graph()
    x = g.input("x", (60,))
    last, _ = rlx.scan(lambda c, row: (rlx.cond(row[0] > 50, lambda: c + row, lambda: c - row),
                                       None), x, rlx.constant(table))
    g.output("y", last)
    exe = rlx.compile(g)
    wanted = sum(row if row[0] > 50 else -row for row in table)
    zero = np.zeros(60, np.float32)
    np.testing.assert_array_equal(exe(x=zero).y, wanted)
    assert exe.profile(x=zero).kernels
    np.testing.assert_array_equal(exe(x=zero).y, wanted)


@pytest.mark.parametrize("size", [0, 1, 5000, 200_000])
def test_exported_code_holds_its_constants(tmp_path: Path, size: int) -> None:
    content = np.frombuffer(np.random.default_rng(0).bytes(8 * size), np.int64)
    g = added(content)
    path = rlx.compile(g).export(tmp_path / "held")
    loaded = rlx.load(path)
    x = np.ones(size, np.int64)
    np.testing.assert_array_equal(loaded(x=x).y, content[::-1] + 1)
