"""A kernel with GRID and BLOCK loops as the text of a GPU language."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from rlx_py.backends.source.dialects import Dialect
from rlx_py.ir.base.errors import BackendError
from rlx_py.ir.base.types import DType
from rlx_py.ir.loops.copying import Copier
from rlx_py.ir.loops.index import Dynamic, Index, Quotient, Remainder, Var
from rlx_py.ir.loops.kernel import (
    Alloc,
    Apply,
    Axis,
    Barrier,
    Bitcast,
    Buffer,
    Cast,
    Const,
    Expr,
    For,
    Function,
    If,
    IndexValue,
    Invoke,
    Kernel,
    Let,
    Load,
    Read,
    Scope,
    Set,
    Stmt,
    Store,
    Value,
    While,
)
from rlx_py.ir.loops.local import Local

# A launch has at most three dimensions, the fastest first.
DIMENSIONS = 3


@dataclass(frozen=True)
class Source:
    """A kernel's text, the buffers it takes in order, and how many blocks of how many threads."""

    text: str
    name: str
    buffers: tuple[Buffer, ...]
    grid: tuple[int, ...]
    block: tuple[int, ...]


def emit_kernel(kernel: Kernel, dialect: Dialect) -> Source:
    """The kernel as a function of the dialect.

    Outer GRID loops become blocks, BLOCK loops below them threads, the innermost along the first
    dimension. Raises BackendError for what a GPU kernel can't have or the dialect has no words for.
    """
    writer = _Writer(dialect)
    grid, body, before = _peel(kernel.body, Axis.GRID)
    block, body, between = _peel(body, Axis.BLOCK)
    writer.depth += 1
    for variables, indices in ((grid, dialect.block_index), (block, dialect.thread_index)):
        for variable, place in zip(reversed(variables), indices, strict=False):
            name = writer.name(variable)
            writer.line(f"const {dialect.integer} {name} = {place};")
    writer.body((*before, *between, *body))
    writer.depth -= 1
    parameters = [
        (dialect.write if buffer in writer.written else dialect.read).format(
            type=dialect.types[buffer.dtype.name], name=name)
        for buffer, name in writer.parameters.items()
    ]
    head = f"{dialect.kernel} {kernel.name}({', '.join(parameters)}) {{"
    text = "\n".join([head, *writer.lines, "}"]) + "\n"
    return Source(text, kernel.name, tuple(writer.parameters), _sizes(grid), _sizes(block))


def _peel(body: tuple[Stmt, ...], axis: Axis) -> tuple[list[Var], tuple[Stmt, ...], list[Stmt]]:
    """Variables of the outer loops on an axis, what is inside, and the Allocs on the way."""
    variables: list[Var] = []
    before: list[Stmt] = []
    while True:
        allocs = [s for s in body if isinstance(s, Alloc)]
        rest = [s for s in body if not isinstance(s, Alloc)]
        if len(rest) != 1 or not isinstance(rest[0], For) or rest[0].axis is not axis:
            break
        before += allocs
        variables.append(rest[0].var)
        body = rest[0].body
    if len(variables) > DIMENSIONS:
        raise BackendError(f"{len(variables)} {axis.value} loops: a launch has {DIMENSIONS}")
    return variables, body, before


def _sizes(variables: list[Var]) -> tuple[int, ...]:
    return tuple(v.extent for v in reversed(variables)) or (1,)


class _Writer:
    """Lines of a function body."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.lines: list[str] = []
        self.depth = 0
        self.names: dict[Local | Var | Buffer, str] = {}
        self.parameters: dict[Buffer, str] = {}
        self.declared: set[Local] = set()
        self.written: set[Buffer] = set()

    def line(self, text: str) -> None:
        """One more line."""
        self.lines.append("    " * self.depth + text)

    @contextmanager
    def braces(self, head: str) -> Iterator[None]:
        """What is written inside stands in braces."""
        self.line(f"{head} {{")
        self.depth += 1
        yield
        self.depth -= 1
        self.line("}")

    def name(self, thing: Local | Var) -> str:
        """A name that is free of serial numbers, so that equal kernels read alike."""
        if thing not in self.names:
            self.names[thing] = f"{'i' if isinstance(thing, Var) else 'v'}{len(self.names)}"
        return self.names[thing]

    def pointer(self, buffer: Buffer) -> str:
        """The name of a buffer; memory that is not declared inside is a parameter."""
        if buffer not in self.names:
            self.names[buffer] = self.parameters[buffer] = f"p{len(self.parameters)}"
        return self.names[buffer]

    def type(self, dtype: DType) -> str:
        """The dialect's word for an element type."""
        return self.dialect.types[dtype.name]

    # ---- statements ----------------------------------------------------------------------------

    def body(self, body: tuple[Stmt, ...]) -> None:
        """Statements in order."""
        for s in body:
            match s:
                case Let(local, expr):
                    value = self.expr(expr)
                    self.line(f"const {self.type(local.dtype)} {self.name(local)} = {value};")
                case Set():
                    self.set(s)
                case Store():
                    self.store(s)
                case For():
                    self.loop(s)
                case While():
                    self.repeat(s)
                case If(condition, inner):
                    with self.braces(f"if ({self.expr(condition)})"):
                        self.body(inner)
                case Alloc(buffer):
                    self.alloc(buffer)
                case Barrier():
                    self.line(self.dialect.barrier)
                case _:
                    raise BackendError(f"{self.dialect.name} has no {type(s).__name__} statement")

    def set(self, s: Set) -> None:
        """Declare or change an accumulator."""
        name, value = self.name(s.local), self.expr(s.value)
        if s.combine is not None:
            value = self.apply(s.combine, s.local.dtype, [name, value])
        kind = "" if s.local in self.declared else f"{self.type(s.local.dtype)} "
        self.declared.add(s.local)
        self.line(f"{kind}{name} = {value};")

    def store(self, s: Store) -> None:
        """Write an element; combining is not atomic: no two threads may meet there."""
        self.written.add(s.buffer)
        place, value = self.place(s.buffer, s.index), self.expr(s.value)
        if s.combine is not None:
            value = self.apply(s.combine, s.buffer.dtype, [place, value])
        guard = f"if ({self.expr(s.guard)}) " if s.guard is not None else ""
        self.line(f"{guard}{place} = {value};")

    def loop(self, s: For) -> None:
        """A loop of one thread."""
        if s.axis not in (Axis.SERIAL, Axis.UNROLL):
            raise BackendError(f"a {s.axis.value} loop inside a thread of {self.dialect.name}")
        if s.axis is Axis.UNROLL:
            self.line(self.dialect.unroll)
        i = self.name(s.var)
        with self.braces(f"for ({self.dialect.integer} {i} = 0; {i} < {s.var.extent}; ++{i})"):
            self.body(s.body)

    def repeat(self, s: While) -> None:
        """Test, run, count."""
        condition = self.name(s.condition)
        if s.bound is None:
            head = f"while ({condition})"
        else:
            n = f"n{len(self.lines)}"
            head = f"for ({self.dialect.integer} {n} = 0; {condition} && {n} < {s.bound}; ++{n})"
        with self.braces(head):
            self.body(s.body)

    def alloc(self, buffer: Buffer) -> None:
        """Memory of a block or of a thread."""
        name = self.names[buffer] = f"m{len(self.names)}"
        if buffer.scope is Scope.SHARED:
            self.line(self.dialect.shared.format(
                type=self.type(buffer.dtype), name=name, size=buffer.size))
        elif buffer.scope is Scope.LOCAL:
            self.line(f"{self.type(buffer.dtype)} {name}[{buffer.size}];")
        else:
            raise BackendError(f"{buffer} is not memory of a {self.dialect.name} kernel")

    # ---- expressions ---------------------------------------------------------------------------

    def expr(self, expr: Expr) -> str:
        """The text of an expression."""
        match expr:
            case Const(value, dtype):
                return self.literal(value, dtype)
            case Read(local):
                return self.name(local)
            case Load(buffer, index, guard):
                place = self.place(buffer, index)
                zero = f"({self.type(buffer.dtype)})0"
                return place if guard is None else f"({self.expr(guard)} ? {place} : {zero})"
            case Apply(op, args):
                return self.apply(op, args[-1].dtype, [self.expr(a) for a in args])
            case Cast(arg, dtype):
                return self.cast(arg, dtype)
            case Bitcast(arg, dtype):
                form = self.dialect.restated.get((arg.dtype.name, dtype.name))
                if form is None:
                    raise BackendError(f"{self.dialect.name}: no bitcast {arg.dtype} to {dtype}")
                return form.format(self.expr(arg))
            case IndexValue(index, dtype):
                return f"({self.type(dtype)})({self.index(index)})"
            case Invoke(function, args):
                return self.written_out(function, args)

    def written_out(self, function: Function, args: tuple[Value, ...]) -> str:
        """The text of a function's result, its statements written before."""
        copier = Copier({}, dict(zip(function.parameters, args, strict=True)))
        self.body(copier.body(function.body))
        return self.expr(copier.value(function.result))

    def apply(self, op: str, dtype: DType, args: list[str]) -> str:
        """A scalar operation on operands of a type."""
        form = self.dialect.operations[dtype.name].get(op)
        if form is None:
            raise BackendError(f"{self.dialect.name}: no {op} on {dtype}")
        return form.format(*args)

    def cast(self, arg: Value, dtype: DType) -> str:
        """A number in another type; float to integer truncates, saturates, NaN is 0."""
        value = self.expr(arg)
        if dtype.kind == "bool":
            return f"({value} != 0)"
        plain = f"({self.type(dtype)}){value}"
        if not (arg.dtype.is_float and dtype.is_int):
            return plain
        low, high = (int(n) for n in (np.iinfo(dtype.numpy).min, np.iinfo(dtype.numpy).max))
        bottom = self.literal(float(low), arg.dtype)
        beyond = self.literal(float(high // 2 + 1) * 2, arg.dtype)
        most, least = (self.literal(n, dtype) for n in (high, low))
        inside = f"{value} < {bottom} ? {least} : {value} == {value} ? {plain} : 0"
        return f"({value} >= {beyond} ? {most} : {inside})"

    def literal(self, value: object, dtype: DType) -> str:
        """A constant with exactly its bits."""
        array = np.asarray(value).astype(dtype.numpy)
        if dtype.kind == "bool":
            return "true" if array else "false"
        bits = int(array.view(np.dtype(f"u{dtype.itemsize}")))
        if dtype.is_float and dtype.name in self.dialect.bits:
            if not np.isfinite(array):
                return self.dialect.bits[dtype.name].format(bits)
            return f"({self.type(dtype)}){float(array).hex()}"
        if dtype.kind != "int":
            return f"({self.type(dtype)}){bits}u"
        # The least integer has no literal of its own.
        number = int(array)
        tail = f"{number + 1}ll - 1" if number < 0 else f"{number}ll"
        return f"({self.type(dtype)})({tail})"

    def place(self, buffer: Buffer, index: Index) -> str:
        """An element of a buffer."""
        return f"{self.pointer(buffer)}[{self.index(index)}]"

    def index(self, index: Index) -> str:
        """Integer arithmetic of an index."""
        parts = []
        for atom, coefficient in index.terms:
            if isinstance(atom, Var):
                text = self.name(atom)
            elif isinstance(atom, Dynamic):
                text = f"({self.dialect.integer}){self.name(atom.local)}"
            else:
                text = self.divided(atom)
            parts.append(text if coefficient == 1 else f"{text} * {coefficient}")
        if index.const or not parts:
            parts.append(str(index.const))
        return " + ".join(parts)

    def divided(self, atom: Quotient | Remainder) -> str:
        """Floor division; C rounds to zero, so what may be negative is shifted up first."""
        shift = max(0, -(atom.of.range[0] // atom.by))
        of = self.index(atom.of + shift * atom.by)
        if isinstance(atom, Remainder):
            return f"(({of}) % {atom.by})"
        quotient = f"({of}) / {atom.by}"
        return f"({quotient} - {shift})" if shift else f"({quotient})"
