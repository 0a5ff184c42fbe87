"""Hand-made loop programs and random arrays for tests of interpreters and emitters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx_py.backends.llvm.jit import compile_program
from rlx_py.backends.llvm.targets import Target
from rlx_py.ir.base.types import DType
from rlx_py.ir.loops.index import Index, Var, as_index
from rlx_py.ir.loops.interpret import interpret
from rlx_py.ir.loops.kernel import Axis as Axis
from rlx_py.ir.loops.kernel import (
    Buffer,
    Const,
    Expr,
    For,
    Kernel,
    Let,
    Load,
    Read,
    Scope,
    Set,
    Stmt,
    Store,
    Value,
)
from rlx_py.ir.loops.local import Local
from rlx_py.ir.loops.program import Port, Program
from rlx_py.passes.loops.expand_math import expand_math

Array = np.ndarray[Any, Any]
# 0, 1 and what lies around the lanes of every vector width.
EXTENTS = (0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 53, 64, 65, 131)

SPECIAL = (0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 2.0, 0.5, 1e-40, 6e4, 1e-7)


def random_array(dtype: DType, size: int, seed: int = 0) -> Array:
    """Values of every magnitude, with the type's special values among them."""
    rng = np.random.default_rng([seed, size, dtype.bits])
    if dtype.kind == "bool":
        return rng.integers(0, 2, size).astype(bool)
    if dtype.is_int:
        info = np.iinfo(dtype.numpy)
        values = rng.integers(info.min, info.max, size, dtype=dtype.numpy, endpoint=True)
        special = np.array([0, 1, 2, 3, info.max, info.min], dtype.numpy)
        special = np.append(special, np.asarray(-1).astype(dtype.numpy))
    else:
        scale = np.exp(rng.uniform(-6, 6, size))
        values = (rng.standard_normal(size) * scale).astype(dtype.numpy)
        special = np.array(SPECIAL).astype(dtype.numpy)
    chosen = rng.random(size) < 0.3
    values[chosen] = rng.choice(special, chosen.sum())
    return np.asarray(values)


def plain_array(dtype: DType, size: int, seed: int = 0) -> Array:
    """Small finite numbers."""
    rng = np.random.default_rng([seed, size])
    return np.asarray(rng.integers(0, 4, size) if not dtype.is_float
                      else rng.standard_normal(size)).astype(dtype.numpy)


def same_bits(x: Array, y: Array) -> bool:
    """Equal to the bit, sign of zero included; any NaN equals any NaN."""
    if x.dtype != y.dtype or x.shape != y.shape:
        return False
    if x.dtype.kind in "biu":
        return bool(np.array_equal(x, y))
    x, y = x.reshape(-1), y.reshape(-1)
    nan = np.isnan(x)
    unsigned = np.dtype(f"u{x.dtype.itemsize}")
    return bool(np.array_equal(nan, np.isnan(y))
                and np.array_equal(x.view(unsigned)[~nan], y.view(unsigned)[~nan]))


class Maker:
    """A program of one kernel, buffer by buffer and statement by statement."""

    def __init__(self) -> None:
        self.inputs: list[Port] = []
        self.outputs: list[Port] = []
        self.offsets: dict[Buffer, int] = {}
        self.scratch = 0

    def input(self, dtype: DType, size: int) -> Buffer:
        """An input buffer."""
        buffer = Buffer(f"in{len(self.inputs)}", dtype, size, Scope.EXTERNAL)
        self.inputs.append(Port(buffer.name, buffer, (size,)))
        return buffer

    def output(self, dtype: DType, size: int) -> Buffer:
        """An output buffer."""
        buffer = Buffer(f"out{len(self.outputs)}", dtype, size, Scope.EXTERNAL)
        self.outputs.append(Port(buffer.name, buffer, (size,)))
        return buffer

    def tile(self, dtype: DType, size: int) -> Buffer:
        """Scratch of a thread."""
        buffer = Buffer(f"tile{len(self.offsets)}", dtype, size, Scope.TILE)
        self.offsets[buffer] = self.scratch
        self.scratch += -(-buffer.nbytes // 64) * 64
        return buffer

    def program(self, *body: Stmt) -> Program:
        """The program with these statements."""
        return Program("test", (Kernel("k", body),), tuple(self.inputs), tuple(self.outputs),
                       offsets=self.offsets, scratch=self.scratch)


def let(body: list[Stmt], expr: Expr) -> Read:
    """Append local = expr."""
    local = Local(expr.dtype)
    body.append(Let(local, expr))
    return Read(local)


def literal(value: Any, dtype: DType) -> Const:
    """A constant."""
    return Const(np.asarray(value).astype(dtype.numpy)[()], dtype)


def accumulator(body: list[Stmt], dtype: DType, start: Any) -> Local:
    """Append acc := start."""
    local = Local(dtype, "acc")
    body.append(Set(local, literal(start, dtype)))
    return local


def arrays_of(program: Program, seed: int = 0, *, special: bool = True) -> dict[str, Array]:
    """Random inputs."""
    make = random_array if special else plain_array
    return {p.name: make(p.buffer.dtype, p.buffer.size, seed + n)
            for n, p in enumerate(program.inputs)}


def run_native(program: Program, arrays: dict[str, Array], *, threads: int | None = 1,
               target: Target | None = None) -> dict[str, Array]:
    """Outputs of the compiled program; they start as −1 or true, so that gaps show."""
    compiled = compile_program(program, target=target, threads=threads)
    out = {p.name: np.full(p.shape, -1).astype(p.buffer.dtype.numpy)
           for p in program.outputs}
    compiled.run(arrays, out)
    return out


def check(program: Program, arrays: dict[str, Array] | None = None, *,
          threads: int | None = 1) -> dict[str, Array]:
    """Interpreted, expanded and interpreted, compiled: the same bits."""
    arrays = arrays_of(program) if arrays is None else arrays
    want = interpret(program, arrays)
    expanded = expand_math(program)
    middle = interpret(expanded, arrays)
    got = run_native(expanded, arrays, threads=threads)
    for name in want:
        assert same_bits(want[name], middle[name]), f"expand_math changed {name}"
        assert same_bits(middle[name], got[name]), (
            f"{name}: interpreted {middle[name]}, compiled {got[name]}")
    return want


def copy_loop(source: Buffer, target: Buffer, var: Var, axis: Axis,
              source_index: Index | None = None, target_index: Index | None = None,
              guard: Value | None = None, before: Sequence[Stmt] = ()) -> For:
    """for var: target[…] = source[…]."""
    body = list(before)
    at = as_index(var)
    value = let(body, Load(source, source_index if source_index is not None else at, guard))
    body.append(Store(target, target_index if target_index is not None else at, value))
    return For(var, tuple(body), axis)
