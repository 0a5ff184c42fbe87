"""The loop language: what a graph is lowered to, and what every emitter prints.

A Program (`program.py`) is buffers and kernels in order; a kernel is a loop nest whose bodies are
three-address statements. Every value is a Local set once by Let, or an accumulator changed by Set.
Flat statements keep every walker a loop, so the depth of an expression is never a limit.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np

from rlx_py.ir.base.location import Location
from rlx_py.ir.base.types import DType
from rlx_py.ir.loops.index import Index, Var
from rlx_py.ir.loops.local import Local

_SERIALS = count()


class Axis(enum.Enum):
    """How a loop runs."""

    SERIAL = "serial"  # in order
    VECTOR = "vector"  # in lanes; the last step may be partial (masked)
    UNROLL = "unroll"  # copied out
    PARALLEL = "parallel"  # blocks in any order, on any thread
    GRID = "grid"  # GPU blocks
    BLOCK = "block"  # GPU threads of a block


class Scope(enum.Enum):
    """Where a buffer lives."""

    EXTERNAL = "external"  # an input, param, state or output of the step; the caller owns it
    CONSTANT = "constant"  # data of the module
    ARENA = "arena"  # planned, shared by all threads
    TILE = "tile"  # planned, one copy a thread when inside a PARALLEL loop
    SHARED = "shared"  # GPU block memory
    LOCAL = "local"  # registers or stack of one iteration
    SLICE = "slice"  # a part of another buffer, which a loop over kernels moves


class Buffer:
    """Dense memory of `size` elements; compared by identity."""

    __slots__ = ("data", "dtype", "name", "scope", "serial", "size")

    def __init__(self, name: str, dtype: DType, size: int, scope: Scope,
                 data: np.ndarray[Any, Any] | None = None) -> None:
        self.name, self.dtype, self.size, self.scope = name, dtype, size, scope
        self.data, self.serial = data, next(_SERIALS)

    @property
    def nbytes(self) -> int:
        """Bytes it takes."""
        return self.size * self.dtype.itemsize

    def __repr__(self) -> str:
        return f"{self.name}:{self.dtype}[{self.size}]@{self.scope.value}"


# ---- expressions: one level deep, arguments are Const or Read --------------------------------


@dataclass(frozen=True, eq=False)
class Const:
    """A literal (a NumPy scalar of the dtype), compared by its bits: NaN, ±∞ and −0 keep."""

    value: Any
    dtype: DType

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Const) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple[str, bytes]:
        return (self.dtype.name, np.asarray(self.value, self.dtype.numpy).tobytes())

    def __repr__(self) -> str:
        return f"{self.value!s}:{self.dtype}"


@dataclass(frozen=True)
class Read:
    """The value of a local."""

    local: Local

    @property
    def dtype(self) -> DType:
        """Its element type."""
        return self.local.dtype

    def __repr__(self) -> str:
        return self.local.name


Value = Const | Read


@dataclass(frozen=True)
class Load:
    """buffer[index]. Where `guard` is false memory is not touched and the value is 0."""

    buffer: Buffer
    index: Index
    guard: Value | None = None

    @property
    def dtype(self) -> DType:
        """Its element type."""
        return self.buffer.dtype

    def __repr__(self) -> str:
        return f"{self.buffer.name}[{self.index}]" + (f" if {self.guard}" if self.guard else "")


@dataclass(frozen=True)
class Apply:
    """A scalar operation; `op` is a name of the scalar table (add, exp, select, lt …)."""

    op: str
    args: tuple[Value, ...]
    dtype: DType
    attrs: tuple[tuple[str, Any], ...] = ()

    def __repr__(self) -> str:
        return f"{self.op}.{self.dtype}({', '.join(map(repr, self.args))})"


@dataclass(frozen=True)
class Cast:
    """A value in another element type (float → int truncates, saturating; NaN gives 0)."""

    arg: Value
    dtype: DType

    def __repr__(self) -> str:
        return f"cast.{self.dtype}({self.arg!r})"


@dataclass(frozen=True)
class Bitcast:
    """The same bits under another element type of the same width."""

    arg: Value
    dtype: DType

    def __repr__(self) -> str:
        return f"bitcast.{self.dtype}({self.arg!r})"


@dataclass(frozen=True)
class IndexValue:
    """An index as a number."""

    index: Index
    dtype: DType

    def __repr__(self) -> str:
        return f"index.{self.dtype}({self.index})"


@dataclass(frozen=True, eq=False)
class Function:
    """Straight-line scalar code that many places call: its statements are Lets over parameters.

    Functions of one name are the same function.
    """

    name: str
    parameters: tuple[Local, ...]
    body: tuple[Let, ...]
    result: Value

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Invoke:
    """The result of a function on arguments."""

    function: Function
    args: tuple[Value, ...]

    @property
    def dtype(self) -> DType:
        """The element type of the function's result."""
        return self.function.result.dtype

    def __repr__(self) -> str:
        return f"{self.function}({', '.join(map(repr, self.args))})"


Expr = Const | Read | Load | Apply | Cast | Bitcast | IndexValue | Invoke

# ---- statements ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Let:
    """local = expr, once."""

    local: Local
    expr: Expr


@dataclass(frozen=True)
class Set:
    """Declare or change an accumulator: local = value, or local = combine(local, value).

    A combining Set inside a VECTOR loop, on a local declared outside it, keeps one partial result a
    lane (starting at the monoid's identity) and folds the lanes, lowest first by halves, into the
    local after the loop. combine is add, mul, max, min, or, and.
    """

    local: Local
    value: Value
    combine: str | None = None


@dataclass(frozen=True)
class Store:
    """buffer[index] = value, or combine(buffer[index], value); nothing where `guard` is false."""

    buffer: Buffer
    index: Index
    value: Value
    combine: str | None = None
    guard: Value | None = None


@dataclass(frozen=True)
class For:
    """Run body for var = 0 … var.extent − 1."""

    var: Var
    body: tuple[Stmt, ...]
    axis: Axis = Axis.SERIAL


@dataclass(frozen=True)
class While:
    """Run body while the condition, a local it sets, holds; at most `bound` times if given."""

    condition: Local
    body: tuple[Stmt, ...]
    bound: int | None = None


@dataclass(frozen=True)
class If:
    """Run body where the condition holds (uniform: never inside a VECTOR loop)."""

    condition: Value
    body: tuple[Stmt, ...]


@dataclass(frozen=True)
class Alloc:
    """A TILE, SHARED or LOCAL buffer lives from here to the end of the enclosing body."""

    buffer: Buffer


@dataclass(frozen=True)
class Barrier:
    """All threads of a GPU block arrive before any goes on."""


@dataclass(frozen=True)
class Call:
    """A Fortran routine: symbol(buffers, 32-bit integers …), all by address; a character is an
    integer whose first byte it is (little-endian)."""

    symbol: str
    args: tuple[Buffer | Index, ...]


@dataclass(frozen=True)
class Operand:
    """A contract's input as a function of its loop variables: statements, then the value."""

    body: tuple[Stmt, ...]
    value: Value


@dataclass(frozen=True)
class Contract:
    """For all batch, m, n: acc = Σ_k a(batch, m, k)·b(batch, k, n); then run the epilogue on acc.

    Each of batch, m, n, k is a tuple of loop variables (row-major; empty means extent 1). Products
    and sums are FMAs in `acc.dtype`, in blocks of k of a fixed size. The epilogue reads `acc` at
    (batch, m, n) and stores what was fused behind the product.
    """

    batch: tuple[Var, ...]
    m: tuple[Var, ...]
    n: tuple[Var, ...]
    k: tuple[Var, ...]
    a: Operand
    b: Operand
    acc: Local
    epilogue: tuple[Stmt, ...]


@dataclass(frozen=True)
class Strided:
    """buffer[start + row·i + col·j], a matrix view for a register tile."""

    buffer: Buffer
    start: Index
    row: int
    col: int


@dataclass(frozen=True)
class Tile:
    """A register tile: out(i, j) = [out(i, j) +] Σ_{p<depth} a(i, p)·b(p, j), i < rows, j < cols.

    out.col is 1 and b.col is 1 (kind "outer"), or a.col and b.row are 1 (kind "dot": both run along
    p). Kind "copy" is out(i, j) = a(i, j), transposed in memory: a.row and out.col are 1, cols are
    at most the lanes of a register, depth is 0 and b is a. The one statement that a backend emits
    by hand.

    An outer tile that accumulates is one chain that goes on from out; with a `run` each so many p
    are a chain from 0, which is then added to out.
    """

    rows: int
    cols: int
    depth: int
    a: Strided
    b: Strided
    out: Strided
    accumulate: bool = False
    kind: str = "outer"
    run: int = 0


Stmt = (
    Let | Set | Store | For | While | If | Alloc | Barrier | Call | Contract | Tile
)

# ---- kernels ---------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Kernel:
    """One loop nest; `sources` are the user's lines it computes."""

    name: str
    body: tuple[Stmt, ...]
    sources: tuple[Location, ...] = ()
    template: Kernel | None = None  # a kernel that differs only in buffers
    buffers: Mapping[Buffer, Buffer] = field(default_factory=dict)  # the template's, as here


def children(stmt: Stmt) -> tuple[tuple[Stmt, ...], ...]:
    """The bodies inside a statement."""
    kind = type(stmt)
    if kind is Let or kind is Store:  # most are: asked first, for compile time
        return ()
    if isinstance(stmt, For | While | If):
        return (stmt.body,)
    if isinstance(stmt, Contract):
        return (stmt.a.body, stmt.b.body, stmt.epilogue)
    return ()
