"""Building loop bodies by index push-down: ask for value(node, index), get statements.

Statements land in the outermost open loop whose variables they need, and equal ones meet there, so
loop invariants are hoisted and shared sub-expressions computed once by construction.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rlx_py.ir.base.errors import BackendError
from rlx_py.ir.base.types import DType, bool_, i64
from rlx_py.ir.loops.index import ZERO, Dynamic, Index, Var, as_index, atoms
from rlx_py.ir.loops.kernel import (
    Apply,
    Axis,
    Bitcast,
    Buffer,
    Cast,
    Const,
    Expr,
    For,
    IndexValue,
    Let,
    Load,
    Read,
    Set,
    Stmt,
    Store,
    Value,
)
from rlx_py.ir.loops.local import Local
from rlx_py.ir.nodes.node import Node

Place = tuple[Index, ...]
Request = tuple[Node, Place, "Value | None"]
# How a stored node is read; None where the node is computed on the spot.
Fetch = Callable[["Block", Node, Place, "Value | None"], "Value | None"]


@dataclass
class _Scope:
    body: list[Stmt] = field(default_factory=list)
    exprs: dict[Expr, Value] = field(default_factory=dict)
    values: dict[Request, Value] = field(default_factory=dict)


@dataclass
class _Frame:
    request: Request
    steps: Generator[Any, Any, Expr]
    guard: Value | None


class Block:
    """A body under construction, with its open loops."""

    def __init__(self, fetch: Fetch) -> None:
        self.fetch = fetch
        self.scopes = [_Scope()]
        self.depths: dict[Var | Local | Buffer, int] = {}
        self.changing: set[Local] = set()  # accumulators

    @property
    def body(self) -> tuple[Stmt, ...]:
        """The finished statements; every loop must be closed."""
        (scope,) = self.scopes
        return tuple(scope.body)

    # ---- statements ----------------------------------------------------------------------------

    def append(self, stmt: Stmt) -> None:
        """Add a statement to the innermost open loop."""
        self.scopes[-1].body.append(stmt)

    @contextmanager
    def loop(self, extent: int, *, independent: bool, name: str = "i") -> Iterator[Index]:
        """An open loop; independent steps may run in any order."""
        var = Var(name, extent)
        with self.loop_over(var, independent=independent):
            yield as_index(var)

    @contextmanager
    def loop_over(self, var: Var, *, independent: bool) -> Iterator[None]:
        """An open loop over a given variable. One that does nothing, or never runs, is left out:
        around it another may run very long for nothing."""
        self.depths[var] = len(self.scopes)
        self.scopes.append(_Scope())
        yield
        scope = self.scopes.pop()
        axis = Axis.PARALLEL if independent else Axis.SERIAL
        if var.extent and scope.body:
            self.append(For(var, tuple(scope.body), axis))

    def declare(self, dtype: DType, initial: Value, name: str = "acc") -> Local:
        """An accumulator of the innermost open loop."""
        local = Local(dtype, name)
        self.depths[local] = len(self.scopes) - 1
        self.changing.add(local)
        self.append(Set(local, initial))
        return local

    def set(self, local: Local, value: Value, combine: str | None = None) -> None:
        """Change an accumulator."""
        self.append(Set(local, value, combine))

    def write(self, buffer: Buffer, index: Index, value: Value, combine: str | None = None,
              guard: Value | None = None) -> None:
        """Store an element."""
        self.append(Store(buffer, index, value, combine, guard))

    def fresh(self, expr: Expr) -> Value:
        """A value computed here and now, never shared (it reads what loops change)."""
        local = Local(expr.dtype)
        self.depths[local] = len(self.scopes) - 1
        self.append(Let(local, expr))
        return Read(local)

    # ---- expressions ---------------------------------------------------------------------------

    def let(self, expr: Expr) -> Value:
        """The value of an expression tree, computed once where its operands are known."""
        flat = self._flat(expr)
        if isinstance(flat, Const | Read):
            return flat
        if self._reads_accumulator(flat):
            return self.fresh(flat)
        depth = self._depth(flat)
        scope = self.scopes[depth]
        known = scope.exprs.get(flat)
        if known is not None:
            return known
        local = Local(flat.dtype)
        self.depths[local] = depth
        scope.body.append(Let(local, flat))
        scope.exprs[flat] = value = Read(local)
        return value

    def _reads_accumulator(self, expr: Expr) -> bool:
        args = expr.args if isinstance(expr, Apply) else (
            (expr.arg,) if isinstance(expr, Cast | Bitcast) else ())
        return any(isinstance(a, Read) and a.local in self.changing for a in args)

    def _flat(self, expr: Expr) -> Expr:
        if isinstance(expr, Apply):
            args = tuple(self.let(a) for a in expr.args)
            return Apply(expr.op, args, expr.dtype, expr.attrs)
        if isinstance(expr, Cast | Bitcast):
            return type(expr)(self.let(expr.arg), expr.dtype)
        if isinstance(expr, IndexValue) and not expr.index.terms:
            return Const(np.asarray(expr.index.const).astype(expr.dtype.numpy)[()], expr.dtype)
        return expr

    def _depth(self, expr: Expr) -> int:
        if isinstance(expr, Apply):
            return max((self.value_depth(a) for a in expr.args), default=0)
        if isinstance(expr, Cast | Bitcast):
            return self.value_depth(expr.arg)
        if isinstance(expr, Load):
            return max(self.index_depth(expr.index), self.value_depth(expr.guard),
                       self.depths.get(expr.buffer, 0))
        return self.index_depth(expr.index) if isinstance(expr, IndexValue) else 0

    def value_depth(self, value: Value | None) -> int:
        """The loop in which a value is known."""
        return self.depths.get(value.local, 0) if isinstance(value, Read) else 0

    def index_depth(self, index: Index) -> int:
        """The loop in which an index is known."""
        keys = (a.local if isinstance(a, Dynamic) else a for a in atoms(index))
        return max((self.depths.get(k, 0) for k in keys if isinstance(k, Var | Local)), default=0)

    def dynamic(self, value: Expr, extent: int) -> Index:
        """A run-time integer as an index, clamped into 0 … extent − 1."""
        wide = self.let(value)
        if wide.dtype is not i64:
            wide = self.let(Cast(wide, i64))
        low = self.let(Apply("max", (wide, Const(np.int64(0), i64)), i64))
        last = Const(np.int64(max(extent - 1, 0)), i64)
        clamped = self.let(Apply("min", (low, last), i64))
        if isinstance(clamped, Const):
            return Index(int(clamped.value))
        return as_index(Dynamic(clamped.local, extent))

    def both(self, a: Value | None, b: Value | None) -> Value | None:
        """The conjunction of two guards; None is true."""
        if a is None or b is None:
            return b if a is None else a
        return a if a == b else self.let(Apply("and", (a, b), bool_))

    # ---- push-down -----------------------------------------------------------------------------

    def value(self, node: Node, index: Place, guard: Value | None = None) -> Value:
        """The value of a node at an index, read or computed; where `guard` is false, anything."""
        return self._run((node, index, guard), self._known((node, index, guard)))

    def compute(self, node: Node, index: Place) -> Value:
        """The value of a node at an index by its own rule, even where it counts as stored."""
        return self._run((node, index, None), None)

    def _run(self, request: Request, answer: Value | None) -> Value:
        frames: list[_Frame] = []
        while True:
            if answer is None:
                frames.append(self._start(request))
            while frames:
                frame = frames[-1]
                try:
                    ask = frame.steps.send(answer)
                except StopIteration as stop:
                    answer = self._remember(frame.request, self.let(stop.value))
                    frames.pop()
                    continue
                if ask[0] == "dynamic":
                    answer = self.dynamic(ask[1], ask[2])  # type: ignore[assignment]
                    continue
                if ask[0] == "let":
                    answer = self.let(ask[1])
                    continue
                guard = frame.guard
                if len(ask) == 3 and ask[2] is not None:
                    guard = self.both(guard, self.let(ask[2]))
                request = (frame.request[0].inputs[ask[0]], ask[1], guard)
                answer = self._known(request)
                break
            else:
                assert answer is not None
                return answer

    def _start(self, request: Request) -> _Frame:
        node, index, guard = request
        if node.op.element is None:
            raise BackendError(f"{node!r} is neither stored nor computable at an index")
        steps = node.op.element(node, index) if node.size else _no_element(node)
        return _Frame(request, steps, guard)

    def _known(self, request: Request) -> Value | None:
        for scope in reversed(self.scopes):
            if request in scope.values:
                return scope.values[request]
        return self.fetch(self, *request)

    def _remember(self, request: Request, value: Value) -> Value:
        # The answer may hold in the scope of its own value, but it was asked for by an index.
        depth = max(self.value_depth(value), max(map(self.index_depth, request[1]), default=0),
                    self.value_depth(request[2]))
        self.scopes[depth].values[request] = value
        return value


def domain_vars(shape: Iterable[int], prefix: str = "i") -> tuple[Var, ...]:
    """A loop variable for each extent."""
    return tuple(Var(f"{prefix}{k}_", d) for k, d in enumerate(shape))


@contextmanager
def open_loops(block: Block, vars: tuple[Var, ...], independent: bool = True) -> Iterator[None]:
    """Nested loops over variables."""
    with ExitStack() as stack:
        for v in vars:
            stack.enter_context(block.loop_over(v, independent=independent))
        yield


def place(vars: Iterable[Var]) -> Place:
    """The index that a tuple of loop variables is; a loop of one step stands at 0."""
    return tuple(ZERO if v.extent == 1 else as_index(v) for v in vars)


def _no_element(node: Node) -> Generator[Any, Any, Expr]:
    """The element of an empty node, asked for inside loops that never run: no place is read."""
    yield from ()
    return zero(node.dtype)


def zero(dtype: DType) -> Const:
    """The number 0 of an element type."""
    return Const(np.zeros((), dtype.numpy)[()], dtype)
