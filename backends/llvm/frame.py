"""The state of one function under construction: where values, variables and buffers are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import llvmlite.ir as ll
import numpy as np

from rlx_py.backends.llvm.scalars import I8, I32, I64, constant, memory_type, scalar_type, splat
from rlx_py.backends.llvm.targets import Target
from rlx_py.ir.base.errors import BackendError
from rlx_py.ir.base.types import DType
from rlx_py.ir.loops.index import Index, Var
from rlx_py.ir.loops.kernel import Buffer, Const, Value
from rlx_py.ir.loops.local import Local
from rlx_py.ir.loops.program import Program

Array = np.ndarray[Any, Any]
PTR = ll.PointerType()
VOID = ll.VoidType()


def bytes_constant(content: bytes) -> ll.Constant:
    """An array of bytes; llvmlite's own writes them one by one in Python."""
    text = "\\" + content.hex("\\") if content else ""
    return ll.FormattedConstant(ll.ArrayType(I8, len(content)), f'c"{text}"')


@dataclass
class Unit:
    """One module: what its functions share.

    held: where given, takes the content of large constants by the name of a public pointer, which
    is to be set before the code runs.
    """

    module: ll.Module
    target: Target
    program: Program
    kernels: dict[object, ll.Function] = field(default_factory=dict)
    functions: dict[tuple[str, int], ll.Function] = field(default_factory=dict)
    constants: dict[Buffer, ll.GlobalVariable] = field(default_factory=dict)
    held: dict[str, Array] | None = None

    def function(self, name: str, kind: ll.FunctionType) -> ll.Function:
        """A new internal function; the name is made unique."""
        function = ll.Function(self.module, kind, self.module.get_unique_name(name))
        function.linkage = "internal"
        function.attributes.add("nounwind")
        return function


@dataclass
class Lanes:
    """A VECTOR loop that runs in lanes: the body is emitted for `count` iterations at a time.

    varying: locals that differ between lanes. mask: the lanes of a last partial step. partials:
    for a local that the loop combines into, one vector cell a chain; the first is combined into.
    """

    var: Var
    count: int
    varying: set[Local]
    partials: dict[Local, list[ll.Value]]
    mask: ll.Value | None = None


class Frame:
    """A function under construction."""

    def __init__(self, unit: Unit, function: ll.Function) -> None:
        self.unit, self.function = unit, function
        self.entry = function.append_basic_block("entry")
        self.start = function.append_basic_block("start")
        self.allocas = ll.IRBuilder(self.entry)
        self.b = ll.IRBuilder(self.start)
        self.step: ll.Value | None = function.args[0] if function.args else None
        self.thread: ll.Value | None = None  # i64 inside a PARALLEL loop
        self.buffers: dict[Buffer, ll.Value] = {}
        self.vars: dict[Var, ll.Value | int] = {}
        self.values: dict[Local, ll.Value] = {}
        self.cells: dict[Local, ll.Value] = {}
        self.lanes: Lanes | None = None
        # For a VECTOR loop that runs one by one: an array of partial results and the place in it.
        self.partials: dict[Local, tuple[ll.Value, ll.Value]] = {}
        self.indices: list[dict[Index, ll.Value | int]] = [{}]

    def finish(self, result: ll.Value | None = None) -> None:
        """Close the function."""
        if result is None:
            self.b.ret_void()
        else:
            self.b.ret(result)
        self.allocas.branch(self.start)

    # ---- values --------------------------------------------------------------------------------

    def value(self, value: Value) -> ll.Value:
        """A scalar, or a vector inside a loop in lanes where the local varies."""
        if isinstance(value, Const):
            return constant(value.value, value.dtype)
        local = value.local
        cell = self.cells.get(local)
        if cell is not None:
            return self.b.load(cell, typ=cell.allocated_type)
        found = self.values.get(local)
        if found is None:
            raise BackendError(f"{local} is read before it is set")
        return found

    def wide(self, value: ll.Value) -> ll.Value:
        """The value in every lane."""
        return splat(self.b, value, self.lanes.count) if self.lanes else value

    def cell(self, type: ll.Type) -> ll.Value:
        """Stack memory of the function, made once, outside of every loop."""
        cell = self.allocas.alloca(type)
        cell.type = PTR  # llvmlite gives it a typed pointer, which refuses other element types
        return cell

    def array(self, dtype: DType, size: int) -> ll.Value:
        """A stack array of the function, aligned for vectors."""
        cell = self.cell(ll.ArrayType(memory_type(dtype), max(size, 1)))
        cell.align = 64
        return cell

    def cell_type(self, local: Local) -> ll.Type:
        """What an accumulator holds: a vector where it varies between lanes."""
        scalar = scalar_type(local.dtype)
        if self.lanes is not None and local in self.lanes.varying:
            return ll.VectorType(scalar, self.lanes.count)
        return scalar

    # ---- control -------------------------------------------------------------------------------

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Index values computed inside are not reused outside."""
        self.indices.append({})
        yield
        self.indices.pop()

    @contextmanager
    def loop(self, count: int | ll.Value, first: int | ll.Value = 0,
             step: int = 1) -> Iterator[ll.Value]:
        """Run what is emitted inside for i = first, first + step … below `count`.

        With a constant count the body runs at least once.
        """
        b = self.b
        before = b.block
        body = b.append_basic_block("loop")
        after = b.append_basic_block("done")
        start = first if isinstance(first, ll.Value) else I64(first)
        if isinstance(count, int):
            b.branch(body)
            end: ll.Value = I64(count)
        else:
            end = count
            b.cbranch(b.icmp_signed("<", start, end), body, after)
        b.position_at_end(body)
        i = b.phi(I64)
        i.add_incoming(start, before)
        with self.scope():
            yield i
        following = b.add(i, I64(step), flags=("nsw",))
        i.add_incoming(following, b.block)
        b.cbranch(b.icmp_signed("<", following, end), body, after)
        b.position_at_end(after)

    @contextmanager
    def where(self, condition: ll.Value) -> Iterator[None]:
        """Run what is emitted inside if the condition holds."""
        b = self.b
        inside = b.append_basic_block("then")
        after = b.append_basic_block("else")
        b.cbranch(condition, inside, after)
        b.position_at_end(inside)
        with self.scope():
            yield
        b.branch(after)
        b.position_at_end(after)

    def mask(self, active: int) -> ll.Value:
        """The first `active` lanes."""
        assert self.lanes is not None
        count = self.lanes.count
        bits = [ll.IntType(1)(int(n < active)) for n in range(count)]
        return ll.Constant(ll.VectorType(ll.IntType(1), count), bits)


def numbers(values: list[int] | tuple[int, ...], type: ll.IntType = I32) -> ll.Constant:
    """A constant vector of integers."""
    return ll.Constant(ll.VectorType(type, len(values)), [type(v) for v in values])
