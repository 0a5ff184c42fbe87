"""Ops that write their own loops: what they build with, and where their results go."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from rlx_py.ir.base.types import DType, TupleType
from rlx_py.ir.loops.index import Index, row_major
from rlx_py.ir.loops.kernel import Alloc, Buffer, Call, Load, Scope, Value
from rlx_py.ir.nodes.node import Node
from rlx_py.passes.lower.block import Block, Fetch, Place
from rlx_py.passes.lower.fuse import Group


def results_of(group: Group) -> list[Node]:
    """The nodes that a group of an op with its own loops stores."""
    assert group.loops is not None
    if isinstance(group.loops.type, TupleType):
        return [m for m in group.members if m is not group.loops]
    return [group.loops]


class LoopEmitter:
    """What a LoopRule builds with: the block, its inputs' values and its own results."""

    def __init__(self, group: Group, read: Fetch, buffers: Mapping[Node, Buffer]) -> None:
        assert group.loops is not None
        self.block, self.node = Block(read), group.loops
        types = group.loops.type
        self.types = types.elements if isinstance(types, TupleType) else (types,)
        self.buffers: list[Buffer] = []
        for i, t in enumerate(self.types):
            asked = [m for m in results_of(group) if m.attrs.get("index", 0) == i
                     or m is group.loops]
            # A result that nothing reads is written all the same.
            self.buffers.append(buffers[asked[0]] if asked else
                                Buffer(f"unread{i}", t.dtype, t.size, Scope.ARENA))
        self.let, self.dynamic = self.block.let, self.block.dynamic
        self.declare, self.set = self.block.declare, self.block.set

    def ask(self, position: int, index: Place, guard: Value | None = None) -> Value:
        """The value of an input at an index."""
        return self.block.value(self.node.inputs[position], index, guard)

    @contextmanager
    def loop(self, extent: int, *, independent: bool) -> Iterator[Index]:
        """An open loop."""
        with self.block.loop(extent, independent=independent) as i:
            yield i

    def store(self, index: Place, value: Value, *, result: int = 0, combine: str | None = None,
              guard: Value | None = None) -> None:
        """Write an element of a result."""
        at = row_major(index, self.types[result].shape)
        self.block.write(self.buffers[result], at, value, combine, guard)

    def load(self, index: Place, *, result: int = 0) -> Value:
        """Read back an element of a result."""
        return self.get(self.buffers[result], row_major(index, self.types[result].shape))

    def scratch(self, dtype: DType, size: int) -> Buffer:
        """Memory for one pass of the open loops."""
        if len(self.block.scopes) == 1:
            return Buffer("scratch", dtype, size, Scope.ARENA)
        buffer = Buffer("scratch", dtype, size, Scope.TILE)
        self.block.append(Alloc(buffer))
        self.block.depths[buffer] = len(self.block.scopes) - 1
        return buffer

    def put(self, buffer: Buffer, index: Index, value: Value, combine: str | None = None) -> None:
        """Write an element of scratch memory."""
        self.block.write(buffer, index, value, combine)

    def get(self, buffer: Buffer, index: Index) -> Value:
        """Read an element of scratch memory."""
        return self.block.fresh(Load(buffer, index))

    def call(self, symbol: str, *args: Buffer | Index) -> None:
        """Call a function of a kept library."""
        self.block.append(Call(symbol, args))
