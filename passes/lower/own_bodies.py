"""Ops that run graphs of their own: the kernels of these, and regions over them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from rlx_py.ir.base.types import DType, TupleType
from rlx_py.ir.graph.graph import Graph
from rlx_py.ir.loops.index import row_major
from rlx_py.ir.loops.kernel import Buffer, Kernel, Scope, Value
from rlx_py.ir.loops.program import Program, Region, moved
from rlx_py.ir.nodes.node import Node
from rlx_py.ir.ops.making.constant import CONSTANT
from rlx_py.passes.lower.block import Block, Place, domain_vars, open_loops, place, zero
from rlx_py.passes.lower.fuse import Group
from rlx_py.passes.lower.own_loops import results_of
from rlx_py.passes.lower.storage import contiguous


class Lowering(Protocol):
    """What of the lowering around them the ops here need (`lower.py`)."""

    buffers: dict[Node, Buffer]

    def read(self, block: Block, node: Node, index: Place, guard: Value | None) -> Value | None:
        """A stored node read from its buffer; None where it is computed on the spot."""

    def copied(self, target: Buffer, node: Node) -> Kernel:
        """A kernel that computes a node into a buffer."""

    def inside(self, graph: Graph, given: Mapping[str, Buffer],
               results: Mapping[str, Buffer]) -> Program:
        """The program of a body, whose leaves and outputs lie in buffers."""


class ProgramEmitter:
    """What a BodyRule builds with."""

    def __init__(self, lowering: Lowering, group: Group, kernels: list[Kernel],
                 regions: list[Region]) -> None:
        assert group.loops is not None and isinstance(group.loops.type, TupleType)
        self.lowering, self.node = lowering, group.loops
        self.kernels, self.regions = kernels, regions
        self.types = group.loops.type.elements
        self.own = {m.attrs["index"]: lowering.buffers[m] for m in results_of(group)}

    def held(self, position: int) -> tuple[Buffer, int]:
        """Where an input lies: a buffer and the element it starts at."""
        node, start = self.node.inputs[position], 0
        buffers = self.lowering.buffers
        while node not in buffers and (part := contiguous(node)) is not None:
            node, start = part[0], start + part[1]
        if node not in buffers and node.op is CONSTANT:
            buffers[node] = Buffer("number", node.dtype, 1, Scope.CONSTANT,
                                   node.attrs["value"].array)
        return buffers[node], start

    def whole(self, position: int) -> Buffer:
        """A buffer that is an input and nothing else; a copy where there is none."""
        found, start = self.held(position)
        node = self.node.inputs[position]
        if start == 0 and found.size == node.size:
            return found
        own = self.buffer(node.dtype, node.size)
        self.copy(own, position)
        return own

    def result(self, index: int) -> Buffer:
        """Where a result goes; one that nothing reads goes somewhere too."""
        if index not in self.own:
            self.own[index] = self.buffer(self.types[index].dtype, self.types[index].size)
        return self.own[index]

    def buffer(self, dtype: DType, size: int) -> Buffer:
        """Memory of the op's own."""
        return Buffer("own", dtype, size, Scope.ARENA)

    def copy(self, target: Buffer, position: int) -> None:
        """Copy an input."""
        self.kernels.append(self.lowering.copied(target, self.node.inputs[position]))

    def clear(self, target: Buffer) -> None:
        """Fill with zeros."""
        block = Block(self.lowering.read)
        vars = domain_vars((target.size,))
        with open_loops(block, vars):
            block.write(target, row_major(place(vars), (target.size,)), zero(target.dtype))
        self.kernels.append(Kernel(f"zero_{target.name}", block.body, self._sources))

    @property
    def _sources(self) -> tuple[tuple[str, int], ...]:
        return (self.node.loc,) if self.node.loc else ()

    def run(self, graph: Graph, buffers: Mapping[str, Buffer],
            outputs: Mapping[str, Buffer]) -> None:
        """The kernels of a graph, whose leaves and outputs lie in buffers, given by name."""
        shift = len(self.kernels)
        made = self.lowering.inside(graph, buffers, outputs)
        self.kernels += made.kernels
        self.regions += [moved(r, shift) for r in made.regions]

    def here(self) -> int:
        """The number of kernels so far."""
        return len(self.kernels)

    def open(self) -> int:
        """The place among the regions of one that begins here: before those inside it."""
        return len(self.regions)

    def close(self, place: int, region: Region) -> None:
        """Put the region there."""
        self.regions.insert(place, region)
