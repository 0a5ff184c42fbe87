"""How ops whose results must be stored describe their loops to `lower`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from rlx_py.ir.base.types import DType
from rlx_py.ir.graph.graph import Graph
from rlx_py.ir.loops.index import Index
from rlx_py.ir.loops.kernel import Buffer, Expr, Value
from rlx_py.ir.loops.local import Local
from rlx_py.ir.loops.program import Region
from rlx_py.ir.nodes.node import KernelRule, Node


@dataclass(frozen=True)
class ReduceRule(KernelRule):
    """A fold over `axes` of the only input with a monoid: add, mul, max, min, or, and."""

    kind = "reduction"
    combine: str
    identity: Callable[[DType], Any]


@dataclass(frozen=True)
class ContractDims:
    """Which axes of a and b are batch, free and contracted; out is (batch, a's free, b's free)."""

    a_batch: tuple[int, ...]
    b_batch: tuple[int, ...]
    a_free: tuple[int, ...]
    b_free: tuple[int, ...]
    a_contract: tuple[int, ...]
    b_contract: tuple[int, ...]


@dataclass(frozen=True)
class ContractRule(KernelRule):
    """A general dot product of two inputs."""

    kind = "contraction"
    dims: Callable[[Node], ContractDims]


class Emitter(Protocol):
    """What `lower` offers an op that writes its own loops."""

    def ask(self, position: int, index: tuple[Index, ...], guard: Value | None = None) -> Value:
        """The value of an input at an index, computed here."""

    def let(self, expr: Expr) -> Value:
        """A named value."""

    def dynamic(self, value: Value, extent: int) -> Index:
        """A run-time integer as an index, clamped into 0 … extent − 1."""

    def loop(self, extent: int, *, independent: bool) -> AbstractContextManager[Index]:
        """A loop; independent steps may run in any order, on any thread, in lanes."""

    def declare(self, dtype: DType, initial: Value) -> Local:
        """An accumulator."""

    def set(self, local: Local, value: Value, combine: str | None = None) -> None:
        """Change an accumulator."""

    def store(self, index: tuple[Index, ...], value: Value, *, result: int = 0,
              combine: str | None = None, guard: Value | None = None) -> None:
        """Write an element of one of the op's own results."""

    def load(self, index: tuple[Index, ...], *, result: int = 0) -> Value:
        """Read back an element of one of the op's own results."""

    def scratch(self, dtype: DType, size: int) -> Buffer:
        """Memory for one pass of the open loops; loops over it inside are not independent unless
        they are inside an independent one."""

    def put(self, buffer: Buffer, index: Index, value: Value, combine: str | None = None) -> None:
        """Write an element of scratch memory."""

    def get(self, buffer: Buffer, index: Index) -> Value:
        """Read an element of scratch memory, here and now."""

    def call(self, symbol: str, *args: Buffer | Index) -> None:
        """Call a function of a kept library."""


@dataclass(frozen=True)
class LoopRule(KernelRule):
    """An op that writes its own loops (scatter, cumulative, recurrence, sort).

    worth: of an op that is computable at an index too, the nodes for which the loops are better.
    scatter: of an op that adds each element of its only input to one of the result, from zero:
    where the element at an index goes. A product behind which it stands then adds as it stores.
    """

    kind = "loops"
    build: Callable[[Node, Emitter], None]
    worth: Callable[[Node], bool] | None = None
    scatter: Callable[[Node, tuple[Index, ...]], tuple[Index, ...]] | None = None


class BodyEmitter(Protocol):
    """What `lower` offers an op that runs graphs of its own: kernels, and regions over them."""

    def held(self, position: int) -> tuple[Buffer, int]:
        """Where an input lies: a buffer and the element it starts at."""

    def whole(self, position: int) -> Buffer:
        """A buffer that is an input and nothing else."""

    def result(self, index: int) -> Buffer:
        """Where a result goes."""

    def buffer(self, dtype: DType, size: int) -> Buffer:
        """Memory of the op's own."""

    def copy(self, target: Buffer, position: int) -> None:
        """Copy an input."""

    def clear(self, target: Buffer) -> None:
        """Fill with zeros."""

    def run(self, graph: Graph, buffers: Mapping[str, Buffer], outputs: Mapping[str, Buffer]
            ) -> None:
        """The kernels of a graph, whose leaves and outputs lie in buffers, given by name."""

    def here(self) -> int:
        """The number of kernels so far."""

    def open(self) -> int:
        """The place among the regions of one that begins here."""

    def close(self, place: int, region: Region) -> None:
        """Put the region there."""


@dataclass(frozen=True)
class BodyRule(KernelRule):
    """An op that runs graphs of its own, as a program inside the program.

    prune(node, asked): for each result asked for a node that computes it, and nothing else.
    reads: the inputs that must lie in memory.
    """

    kind = "composite"
    build: Callable[[Node, BodyEmitter], None]
    prune: Callable[[Node, Mapping[int, Node]], dict[int, Node]]
    reads: Callable[[Node], Sequence[int]]


def kernel_of(node: Node) -> KernelRule | None:
    """How a node must be stored; None where it is computed at an index."""
    rule = node.op.kernel
    if isinstance(rule, LoopRule) and rule.worth is not None and not rule.worth(node):
        return None
    return rule
