"""Contract programs of every form, with what NumPy makes of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx_py.ir.base.types import DType, f32
from rlx_py.ir.loops.index import Index, Var, as_index, row_major
from rlx_py.ir.loops.kernel import (
    Apply,
    Buffer,
    Cast,
    Contract,
    Kernel,
    Let,
    Load,
    Operand,
    Read,
    Scope,
    Stmt,
    Store,
    Value,
)
from rlx_py.ir.loops.local import Local
from rlx_py.ir.loops.program import Port, Program

Array = np.ndarray[Any, Any]
Vars = dict[str, Var]


@dataclass(frozen=True)
class Case:
    """A product in einsum letters: `groups` of batch, m, n, k; axes of a, b and of the result.

    tail: 'store' the sum, or 'relu' of it with a bias and a residual.
    """

    name: str
    sizes: dict[str, int]
    groups: tuple[str, str, str, str]
    a: str
    b: str
    out: str
    tail: str = "store"
    dtype: DType = f32
    acc: DType | None = None


def sizes(**extents: int) -> dict[str, int]:
    """Extents by letter."""
    return extents


def last_axis(case: Case) -> str:
    """The axis that a bias lies along; none if the result has none."""
    return (case.groups[1] + case.groups[2])[-1:] or case.out[-1:]


def dense(letters: str, vars: Vars) -> Index:
    """The row-major place of the axes."""
    return row_major((as_index(vars[x]) for x in letters), (vars[x].extent for x in letters))


def loaded(buffer: Buffer, index: Index, acc: DType) -> Operand:
    """An operand that is one load, in the type of the sum if that is integer."""
    local = Local(buffer.dtype)
    body: tuple[Stmt, ...] = (Let(local, Load(buffer, index)),)
    if acc.is_int and acc is not buffer.dtype:
        wide = Local(acc)
        return Operand((*body, Let(wide, Cast(Read(local), acc))), Read(wide))
    return Operand(body, Read(local))


def port(name: str, dtype: DType, shape: tuple[int, ...]) -> Port:
    """An external array."""
    return Port(name, Buffer(name, dtype, int(np.prod(shape)), Scope.EXTERNAL), shape)


def build(case: Case) -> Program:
    """The program: inputs a, b, bias (along the last axis of n), residual; output out."""
    vars = {x: Var(x, n) for x, n in case.sizes.items()}
    shape = {s: tuple(case.sizes[x] for x in s) for s in (case.a, case.b, case.out)}
    acc = Local(case.acc or case.dtype.compute, "acc")
    ports = {name: port(name, dtype, shape[s])
             for name, s, dtype in (("a", case.a, case.dtype), ("b", case.b, case.dtype),
                                    ("residual", case.out, acc.dtype),
                                    ("out", case.out, acc.dtype))}
    last = last_axis(case)
    bias = port("bias", acc.dtype, tuple(case.sizes[x] for x in last))
    place = dense(case.out, vars)
    value: Value = Read(acc)
    body: list[Stmt] = []
    if case.tail != "store":
        for other, index in ((bias, dense(last, vars)), (ports["residual"], place)):
            read, total = Local(acc.dtype), Local(acc.dtype)
            body += [Let(read, Load(other.buffer, index)),
                     Let(total, Apply("add", (value, Read(read)), acc.dtype))]
            value = Read(total)
        lowest, kept = Local(acc.dtype), Local(acc.dtype)
        body += [Let(lowest, Apply("sub", (value, value), acc.dtype)),
                 Let(kept, Apply("max", (value, Read(lowest)), acc.dtype))]
        value = Read(kept)
    body.append(Store(ports["out"].buffer, place, value))
    groups = [tuple(vars[x] for x in g) for g in case.groups]
    batch, m, n, k = groups
    contract = Contract(
        batch, m, n, k, loaded(ports["a"].buffer, dense(case.a, vars), acc.dtype),
        loaded(ports["b"].buffer, dense(case.b, vars), acc.dtype), acc, tuple(body))
    kernel = Kernel("product", (contract,))
    return Program(case.name, (kernel,), (ports["a"], ports["b"], bias, ports["residual"]),
                   (ports["out"],))


def arrays(program: Program, seed: int = 0) -> dict[str, Array]:
    """Random inputs."""
    rng = np.random.default_rng(seed)
    made: dict[str, Array] = {}
    for port in program.inputs:
        dtype = port.buffer.dtype
        raw = rng.standard_normal(port.shape) if dtype.is_float else rng.integers(-9, 9, port.shape)
        made[port.name] = np.asarray(raw).astype(dtype.numpy)
    return made


def wanted(case: Case, given: dict[str, Array]) -> Array:
    """The result in f64."""
    wide = {name: x.astype(np.float64) for name, x in given.items()}
    total: Array = np.einsum(f"{case.a},{case.b}->{case.out}", wide["a"], wide["b"])
    if case.tail == "store":
        return total
    shape = [wide["bias"].size if x == last_axis(case) else 1 for x in case.out]
    total = total + wide["bias"].reshape(shape) + wide["residual"]
    return np.where(total > 0, total, 0)
