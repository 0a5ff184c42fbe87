"""The loop language run by Python, one element at a time: the meaning that emitters keep."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np

from rlx_py.ir.base.errors import BackendError, VerifyError
from rlx_py.ir.base.lapack import call
from rlx_py.ir.base.rounding import convert_array
from rlx_py.ir.base.types import DType
from rlx_py.ir.loops.index import Dynamic, Index, Quotient, Var
from rlx_py.ir.loops.kernel import (
    Alloc,
    Apply,
    Axis,
    Barrier,
    Bitcast,
    Buffer,
    Call,
    Cast,
    Const,
    Contract,
    Expr,
    For,
    Function,
    If,
    IndexValue,
    Invoke,
    Let,
    Load,
    Operand,
    Read,
    Scope,
    Set,
    Stmt,
    Store,
    Strided,
    Tile,
    Value,
    While,
)
from rlx_py.ir.loops.lanes import greatest, identity, partials, reductions
from rlx_py.ir.loops.local import Local
from rlx_py.ir.loops.program import Item, Loop, Program, items, part
from rlx_py.ir.nodes.node import OPS

Array = np.ndarray[Any, Any]
# Bodies are coroutines: GPU threads of a block stop at a Barrier and wait for each other.
Run = Generator[None, None, None]


def interpret(program: Program, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Outputs and updates by name; `arrays` holds the inputs by name and is not changed.

    Where memory is planned, buffers lie in one arena as the plan says. Raises VerifyError for an
    access out of bounds.
    """
    memory = _planned(program)
    for port in program.inputs:
        given = np.asarray(arrays[port.name], dtype=port.buffer.dtype.numpy)
        memory[port.buffer] = given.reshape(-1).copy()
    for port in (*program.outputs, *program.updates):
        memory.setdefault(port.buffer, np.zeros(port.buffer.size, port.buffer.dtype.numpy))
    with np.errstate(all="ignore"):
        _run_items(program, memory, items(program))
    ports = (*program.outputs, *program.updates)
    return {p.name: memory[p.buffer].reshape(p.shape).copy() for p in ports}


def _planned(program: Program) -> dict[Buffer, Array]:
    """The planned buffers in their places, for one thread."""
    arena = np.full(program.arena + program.scratch, 0xA5, np.uint8)
    found: dict[Buffer, Array] = {}
    for buffer, offset in program.offsets.items():
        start = offset + (program.arena if buffer.scope is Scope.TILE else 0)
        found[buffer] = arena[start:start + buffer.nbytes].view(buffer.dtype.numpy)
    return found


def _held(memory: dict[Buffer, Array], buffer: Buffer) -> Array:
    """The memory of a buffer; new memory holds NaN or the largest number."""
    found = memory.get(buffer)
    if found is None:
        if buffer.scope is Scope.CONSTANT:
            found = np.asarray(buffer.data, dtype=buffer.dtype.numpy).reshape(-1)
        else:
            fill = np.nan if buffer.dtype.is_float else greatest(buffer.dtype)
            found = np.full(buffer.size, fill, buffer.dtype.numpy)
        memory[buffer] = found
    return found


def _run_items(program: Program, memory: dict[Buffer, Array], found: Sequence[Item]) -> None:
    for item in found:
        if isinstance(item, int):
            kernel = program.kernels[item]
            for _ in _Machine(memory).body(kernel.body):
                raise VerifyError(f"kernel {kernel.name}: a Barrier outside of a BLOCK loop")
            continue
        region, inside = item
        if isinstance(region, Loop):
            _run_loop(program, memory, region, inside)
        else:
            start, stop = ((region.first, region.middle) if _held(memory, region.condition)[0]
                           else (region.middle, region.last))
            _run_items(program, memory, part(inside, start, stop))


def _run_loop(program: Program, memory: dict[Buffer, Array], loop: Loop,
              inside: Sequence[Item]) -> None:
    bound = loop.extent
    if loop.count is not None and bound is not None:
        bound = min(max(int(_held(memory, loop.count)[0]), 0), bound)
    step = 0
    while bound is None or step < bound:
        position = bound - 1 - step if loop.reverse and bound is not None else step
        for buffer, place in loop.slices.items():
            first = place.start + position * place.stride
            memory[buffer] = _held(memory, place.of)[first:first + buffer.size]
        _run_items(program, memory, part(inside, loop.first, loop.test))
        if loop.condition is not None and not _held(memory, loop.condition)[0]:
            break
        _run_items(program, memory, part(inside, loop.test, loop.last))
        step += 1
    if loop.taken is not None:
        _held(memory, loop.taken)[0] = step


class _Machine:
    """Memory, locals and loop variables of one thread."""

    def __init__(self, memory: dict[Buffer, Array]) -> None:
        self.memory = memory
        self.locals: dict[Local, Any] = {}
        self.vars: dict[Var, int] = {}
        self.in_block = False
        # Of what the VECTOR loops around combine into: partial results, and the one in turn.
        self.partials: dict[Local, tuple[list[Any], int]] = {}

    def fork(self) -> _Machine:
        """A GPU thread: locals of its own, memory shared."""
        thread = _Machine(dict(self.memory))
        thread.locals, thread.vars, thread.in_block = dict(self.locals), dict(self.vars), True
        return thread

    # ---- statements ----------------------------------------------------------------------------

    def body(self, body: tuple[Stmt, ...]) -> Run:
        """Run statements in order."""
        for s in body:
            match s:
                case Let(local, expr):
                    self.locals[local] = self.value(expr)
                case Set():
                    self.set(s)
                case Store():
                    self.store(s)
                case For():
                    yield from self.loop(s)
                case While():
                    yield from self.repeat(s)
                case If(condition, inner):
                    if self.value(condition):
                        yield from self.body(inner)
                case Alloc(buffer):
                    self.alloc(buffer)
                case Barrier():
                    yield
                case Contract():
                    yield from self.contract(s)
                case Tile():
                    self.tile(s)
                case Call(symbol, args):
                    self.routine(symbol, args)
                case _:
                    raise BackendError(f"the interpreter can't run {s!r}")

    def routine(self, symbol: str, args: Sequence[Buffer | Index]) -> None:
        """A routine on the memory of buffers; integers by address."""
        held = [self.buffer(a) if isinstance(a, Buffer) else np.array([self.index(a)], np.int32)
                for a in args]
        call(symbol, [a.ctypes.data for a in held])

    def set(self, s: Set) -> None:
        """Declare, change or combine into an accumulator."""
        value = self.value(s.value)
        if s.combine is None:
            self.locals[s.local] = value
        elif s.local in self.partials:
            results, turn = self.partials[s.local]
            results[turn] = apply_scalar(s.combine, [results[turn], value], s.local.dtype)
        else:
            self.locals[s.local] = apply_scalar(
                s.combine, [self.locals[s.local], value], s.local.dtype)

    def store(self, s: Store) -> None:
        """Write an element, or combine into it."""
        if s.guard is not None and not self.value(s.guard):
            return
        value, place = self.value(s.value), self.place(s.buffer, s.index)
        if s.combine is not None:
            old = self.buffer(s.buffer)[place]
            value = apply_scalar(s.combine, [old, value], s.buffer.dtype)
        self.buffer(s.buffer)[place] = value

    def loop(self, s: For) -> Run:
        """A loop; BLOCK iterations are threads that meet at barriers, any other runs in order."""
        if s.axis is Axis.BLOCK:
            yield from self.block(s)
            return
        combined = reductions(s) if s.axis is Axis.VECTOR else {}
        count = partials(s.var.extent)
        fresh = {x: [identity(how, x.dtype)] * count for x, how in combined.items()}
        outer = self.partials
        for i in range(s.var.extent):
            self.vars[s.var] = i
            if fresh:
                self.partials = {**outer, **{x: (r, i % count) for x, r in fresh.items()}}
            yield from self.body(s.body)
        self.partials = outer
        for local, how in combined.items():
            self.set(Set(local, Const(fold(how, fresh[local], local.dtype), local.dtype), how))

    def block(self, s: For) -> Run:
        """Threads in lock step between barriers, which those of an outer BLOCK loop share."""
        threads: list[Run] = []
        for i in range(s.var.extent):
            thread = self.fork()
            thread.vars[s.var] = i
            threads.append(thread.body(s.body))
        waiting = threads
        while waiting:
            arrived = [t for t in waiting if next(t, False) is None]
            if arrived and len(arrived) != len(threads):
                raise VerifyError("a Barrier that not all threads of the block reach")
            waiting = arrived
            if waiting and self.in_block:
                yield

    def repeat(self, s: While) -> Run:
        """Test, run, count."""
        done = 0
        while self.locals[s.condition] and (s.bound is None or done < s.bound):
            yield from self.body(s.body)
            done += 1

    def alloc(self, buffer: Buffer) -> None:
        """Memory whose content is nobody's promise: NaN or the largest number."""
        fill = np.nan if buffer.dtype.is_float else greatest(buffer.dtype)
        if buffer not in self.memory:
            self.memory[buffer] = np.empty(buffer.size, buffer.dtype.numpy)
        self.memory[buffer][:] = fill

    def contract(self, s: Contract) -> Run:
        """Every element of the product in turn, its sum in order of k."""
        for outer in steps((*s.batch, *s.m, *s.n)):
            self.vars.update(outer)
            acc = s.acc.dtype.numpy.type(0)
            for inner in steps(s.k):
                self.vars.update(inner)
                a = yield from self.operand(s.a)
                b = yield from self.operand(s.b)
                acc = fused(a, b, acc, s.acc.dtype)
            self.locals[s.acc] = acc
            yield from self.body(s.epilogue)

    def operand(self, operand: Operand) -> Generator[None, None, Any]:
        """The value of an operand at the loop variables."""
        yield from self.body(operand.body)
        return self.value(operand.value)

    def tile(self, s: Tile) -> None:
        """A small product in order of depth."""
        dtype = s.out.buffer.dtype
        for i, j in product(range(s.rows), range(s.cols)):
            out = self.view(s.out, i, j)
            memory = self.buffer(s.out.buffer)
            if s.kind == "copy":
                memory[out] = self.buffer(s.a.buffer)[self.view(s.a, i, j)]
                continue
            if s.run:
                for first in range(0, s.depth, s.run):
                    chain = self.chain(s, i, j, range(first, min(first + s.run, s.depth)),
                                       dtype.numpy.type(0))
                    memory[out] = memory[out] + chain
                continue
            goes_on = s.accumulate and s.kind == "outer"
            acc = self.chain(s, i, j, range(s.depth), memory[out] if goes_on else
                             dtype.numpy.type(0))
            memory[out] = memory[out] + acc if s.accumulate and not goes_on else acc

    def chain(self, s: Tile, i: int, j: int, depth: range, acc: Any) -> Any:
        """acc + Σ a(i, p)·b(p, j) over p in order."""
        for p in depth:
            a = self.buffer(s.a.buffer)[self.view(s.a, i, p)]
            b = self.buffer(s.b.buffer)[self.view(s.b, p, j)]
            acc = fused(a, b, acc, s.out.buffer.dtype)
        return acc

    def view(self, m: Strided, i: int, j: int) -> int:
        """The place of an element of a matrix view."""
        return self.place(m.buffer, m.start + (m.row * i + m.col * j))

    # ---- expressions ---------------------------------------------------------------------------

    def value(self, expr: Expr) -> Any:
        """The NumPy scalar of an expression."""
        match expr:
            case Const(value, dtype):
                return np.asarray(value).astype(dtype.numpy)[()]
            case Read(local):
                return self.locals[local]
            case Load(buffer, index, guard):
                if guard is not None and not self.value(guard):
                    return buffer.dtype.numpy.type(0)
                return self.buffer(buffer)[self.place(buffer, index)]
            case Apply(op, args, dtype, attrs):
                return apply_scalar(op, [self.value(a) for a in args], dtype, dict(attrs))
            case Invoke(function, args):
                return self.call(function, args)
            case Cast(arg, dtype):
                return convert(self.value(arg), dtype)
            case Bitcast(arg, dtype):
                return np.asarray(self.value(arg)).view(dtype.numpy)[()]
            case IndexValue(index, dtype):
                return convert(np.int64(self.index(index)), dtype)

    def call(self, function: Function, args: Sequence[Value]) -> Any:
        """The result of a function."""
        values = [self.value(a) for a in args]
        self.locals.update(zip(function.parameters, values, strict=True))
        for let in function.body:
            self.locals[let.local] = self.value(let.expr)
        return self.value(function.result)

    def buffer(self, buffer: Buffer) -> Array:
        """The memory of a buffer."""
        return _held(self.memory, buffer)

    def place(self, buffer: Buffer, index: Index) -> int:
        """A checked flat position."""
        place = self.index(index)
        if not 0 <= place < buffer.size:
            raise VerifyError(f"{buffer.name}[{index}] is element {place} of {buffer.size}")
        return place

    def index(self, index: Index) -> int:
        """An index as a number."""
        total = index.const
        for atom, coefficient in index.terms:
            if isinstance(atom, Var):
                value = self.vars[atom]
            elif isinstance(atom, Dynamic):
                value = int(self.locals[atom.local])
            elif isinstance(atom, Quotient):
                value = self.index(atom.of) // atom.by
            else:
                value = self.index(atom.of) % atom.by
            total += coefficient * value
        return total


def steps(variables: tuple[Var, ...]) -> Iterator[dict[Var, int]]:
    """Every setting of some loop variables, the last fastest."""
    for setting in product(*(range(v.extent) for v in variables)):
        yield dict(zip(variables, setting, strict=True))


# ---- scalars ---------------------------------------------------------------------------------


def apply_scalar(
    op: str, args: Sequence[Any], dtype: DType, attrs: Mapping[str, Any] | None = None
) -> Any:
    """op(args) as a NumPy scalar of `dtype`; f16 and bf16 compute in f32."""
    if op == "fma":
        return fused(args[0], args[1], args[2], dtype)
    if op == "copysign":
        return np.copysign(args[0], args[1])
    if op in ("min", "max") and dtype.is_float and args[0] == args[1] == 0:
        # IEEE 754: -0 is below +0, which NumPy leaves open.
        return args[0] if np.signbit(args[0]) == (op == "min") else args[1]
    if op == "lshr":
        unsigned = np.dtype(f"u{args[0].dtype.itemsize}")
        x, n = (np.asarray(a).view(unsigned) for a in args)
        return np.right_shift(x, n).view(args[0].dtype)[()]
    known = OPS.get(op)
    if known is None or known.eval is None:
        raise BackendError(f"{op} is not a scalar operation")
    result = known.eval(*map(np.asarray, args), **(attrs or {}))
    return np.asarray(result).astype(dtype.numpy)[()]


def convert(value: Any, dtype: DType) -> Any:
    """A scalar in another element type."""
    return convert_array(value, dtype)[()]


def fold(combine: str, values: list[Any], dtype: DType) -> Any:
    """All into one by halves, the upper onto the lower."""
    while len(values) > 1:
        half = len(values) // 2
        values = [apply_scalar(combine, [values[n], values[n + half]], dtype) for n in range(half)]
    return values[0]


def fused(a: Any, b: Any, c: Any, dtype: DType) -> Any:
    """a·b + c rounded once."""
    if not dtype.is_float:
        return a * b + c
    kind = dtype.numpy
    finite = all(np.isfinite(np.float64(x)) for x in (a, b, c))
    if not finite or a == 0 or b == 0:
        return (a.astype(np.float64) * np.float64(b) + np.float64(c)).astype(kind)
    exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    if exact == 0:
        # A sum that cancels is +0; one of equal signs can't.
        return kind.type(0)
    try:
        near = float(exact)
    except OverflowError:
        return kind.type(np.copysign(np.inf, float(exact.numerator > 0) - 0.5))
    if kind.itemsize < 8 and Fraction(near) != exact:
        near = _to_odd(near, exact)
    return np.float64(near).astype(kind)


def _to_odd(near: float, exact: Fraction) -> float:
    """The f64 neighbour of `exact` with an odd last bit: a second rounding then is right."""
    if np.float64(near).view(np.int64) & 1:
        return near
    return float(np.nextafter(near, np.inf if exact > Fraction(near) else -np.inf))
