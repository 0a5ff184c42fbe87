"""Graph to Program: each group of stored values becomes one kernel, by index push-down."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from rlx_py.ir.graph.graph import Graph
from rlx_py.ir.graph.stored import BodyRule, ContractRule, LoopRule, ReduceRule
from rlx_py.ir.loops.index import Var, row_major, substitute
from rlx_py.ir.loops.kernel import (
    Alloc,
    Buffer,
    Cast,
    Const,
    Contract,
    Kernel,
    Load,
    Operand,
    Read,
    Scope,
    Stmt,
    Value,
)
from rlx_py.ir.loops.local import Local
from rlx_py.ir.loops.program import Port, Program, Region
from rlx_py.ir.nodes.node import LEAF, Node
from rlx_py.ir.ops.making.constant import CONSTANT
from rlx_py.passes.lower.block import Block, Place, domain_vars, open_loops, place, zero
from rlx_py.passes.lower.dead_code import pruned
from rlx_py.passes.lower.fuse import Fusion, Group, Nest, domain, reduce_place
from rlx_py.passes.lower.hoisting import hoist_products
from rlx_py.passes.lower.loop_fusion import join_loops
from rlx_py.passes.lower.own_bodies import ProgramEmitter
from rlx_py.passes.lower.own_loops import LoopEmitter, results_of
from rlx_py.passes.lower.storage import inline_scalar
from rlx_py.passes.rewrite.decompose import decompose


def primitive(graph: Graph) -> Graph:
    """What `lower` takes, without a pass that may be left out."""
    return decompose(hoist_products(join_loops(pruned(decompose(graph), decompose))))


def lower(graph: Graph, bodies: Callable[[Graph], Graph] = primitive) -> Program:
    """The loops of a primitive graph, unscheduled: independent loops PARALLEL, others SERIAL.

    bodies: what makes the graphs inside of ops primitive.
    """
    return Lowering(graph, bodies).program()


class Lowering:
    """Where every stored node of one graph lives, and the kernels that fill it."""

    def __init__(self, graph: Graph, bodies: Callable[[Graph], Graph],
                 given: Mapping[str, Buffer] | None = None,
                 results: Mapping[str, Buffer] | None = None) -> None:
        self.graph, self.bodies = graph, bodies
        self.given, self.results = given or {}, results or {}  # where leaves and outputs lie
        self.fusion = Fusion(graph)
        self.buffers: dict[Node, Buffer] = {}
        self.first: list[Kernel] = []  # copies of leaves, before anything is updated in place
        self.last: list[Kernel] = []  # copies into what could not be updated in place
        self.order: list[tuple[Group, Group]] = []
        self.escaping = self._escaping()
        self.readers = self._readers()
        self.inputs = [self._leaf_port(name, n) for name, n in graph.leaves.items()]
        for n in self.fusion.nodes:
            if n.op is CONSTANT and not inline_scalar(n):
                data = n.attrs["value"].array
                self.buffers[n] = Buffer(f"c{len(self.buffers)}", n.dtype, n.size,
                                         Scope.CONSTANT, data)
        self.outputs = [self._output_port(name, n) for name, n in graph.outputs.items()]
        self.updates = [self._update_port(name, leaf, n) for name, leaf, n in self._nexts()]

    def program(self) -> Program:
        """The whole step."""
        for group in self.fusion.groups:
            for m in group.members:
                if m in self.escaping and m not in self.buffers:
                    self.buffers[m] = Buffer(f"t{len(self.buffers)}", m.dtype, m.size, Scope.ARENA)
        kernels, regions = self.first, list[Region]()
        for group in self.fusion.ordered(self.order):
            node = group.loops
            if node is not None and isinstance(node.op.kernel, BodyRule):
                node.op.kernel.build(node, ProgramEmitter(self, group, kernels, regions))
            else:
                kernels += self._kernels(group)
        return Program(self.graph.name, (*kernels, *self.last), tuple(self.inputs),
                       tuple(self.outputs), tuple(self.updates), regions=tuple(regions))

    def inside(self, graph: Graph, given: Mapping[str, Buffer],
               results: Mapping[str, Buffer]) -> Program:
        """The program of a body, whose leaves and outputs lie in buffers."""
        return Lowering(self.bodies(graph), self.bodies, given, results).program()

    # ---- where values live ---------------------------------------------------------------------

    def _leaf_port(self, name: str, node: Node) -> Port:
        own = self.given.get(name)
        self.buffers[node] = own or Buffer(name, node.dtype, node.size, Scope.EXTERNAL)
        return Port(name, self.buffers[node], node.shape)

    def _escaping(self) -> set[Node]:
        """Computed nodes that another group reads, or that leave the step."""
        group_of = self.fusion.group_of
        found = {n for n in self.fusion.roots if n in group_of}
        for group in self.fusion.groups:
            for m in group.members:
                found.update(p for p in self.fusion.frontier(m)
                             if p in group_of and group_of[p] is not group)
            if group.scatter is not None:
                found.add(group.scatter)
            if group.loops is not None:
                found.update(results_of(group))
        return found

    def _readers(self) -> dict[Node, list[Group]]:
        """The groups that read each leaf."""
        found: dict[Node, dict[int, Group]] = {}
        for node, group in self.fusion.group_of.items():
            for leaf in self.fusion.frontier(node):
                if leaf.op is LEAF:
                    found.setdefault(leaf, {})[group.number] = group
        return {leaf: list(groups.values()) for leaf, groups in found.items()}

    def _output_port(self, name: str, node: Node) -> Port:
        buffer = self.results.get(name) or Buffer(name, node.dtype, node.size, Scope.EXTERNAL)
        if node.op is LEAF:
            self.first.append(self.copied(buffer, node))
        elif node in self.fusion.group_of and node not in self.buffers:
            self.buffers[node] = buffer
        else:
            self.last.append(self.copied(buffer, node))
        return Port(name, buffer, node.shape)

    def _nexts(self) -> list[tuple[str, Node, Node]]:
        states = [(k, s.node, s.next) for k, s in self.graph.states.items() if s.next is not None]
        return [*((k, self.graph.params[k], v) for k, v in self.graph.updates.items()), *states]

    def _update_port(self, name: str, leaf: Node, node: Node) -> Port:
        target = self.buffers[leaf]
        port = Port(name, target, leaf.shape)
        if node is leaf:
            return port
        if node not in self.buffers and self._in_place(leaf, node):
            self.buffers[node] = target
            return port
        if node.op is LEAF:
            held = Buffer(f"{name}_next", node.dtype, node.size, Scope.ARENA)
            self.first.append(self.copied(held, node))
            self.last.append(self._copy_buffer(target, held, leaf.shape))
        else:
            if node in self.fusion.group_of and node not in self.buffers:
                self.buffers[node] = Buffer(f"{name}_next", node.dtype, node.size, Scope.ARENA)
            self.last.append(self.copied(target, node))
        return port

    def _in_place(self, leaf: Node, node: Node) -> bool:
        """Whether the new value may overwrite the old: whoever reads the old one runs before, and
        inside the kernel each element is read only where it is written."""
        group = self.fusion.group_of.get(node)
        if group is None or group.loops is not None or node is group.scatter:
            return False
        if not self._reads_only_itself(leaf, node, group):
            return False
        others = [g for g in self.readers.get(leaf, ()) if g is not group]
        if any(g.above & group.bit for g in others):
            return False
        above = group.above
        for g in others:
            self.order.append((g, group))
            above |= g.above
        for g in self.fusion.groups:
            if g.above & group.bit:
                g.above |= above
        return True

    def _reads_only_itself(self, leaf: Node, node: Node, group: Group) -> bool:
        fusion = self.fusion
        if group.contract is not None:
            if leaf in fusion.frontier(group.contract) or node is group.contract:
                return leaf not in fusion.frontier(group.contract)
            own = group.places[node]
            for q in group.members[1:]:
                binding = dict(zip(fusion.vars[q], group.places[q], strict=True))
                for p, index in fusion.reads[q]:
                    if p is leaf and tuple(substitute(i, binding) for i in index) != own:
                        return False
            return True
        (nest,) = (n for n in group.nests if node in n.members)
        if domain(node)[1] is not None:
            return all(leaf not in fusion.frontier(m) for m in group.members)
        return all(
            m in nest.members and index == place(fusion.vars[m]) and domain(m)[1] is None
            for m in group.members
            for p, index in fusion.reads[m] if p is leaf
        )

    # ---- kernels -------------------------------------------------------------------------------

    def _kernels(self, group: Group) -> list[Kernel]:
        kernel = self._kernel(group)
        return [kernel] if group.scatter is None else [self._zero(group.scatter), kernel]

    def _zero(self, node: Node) -> Kernel:
        block = Block(self.read)
        vars = domain_vars(node.shape)
        with open_loops(block, vars):
            block.write(self.buffers[node], row_major(place(vars), node.shape), zero(node.dtype))
        return Kernel(f"zero_{node.op.name}", block.body, (node.loc,) if node.loc else ())

    def _kernel(self, group: Group) -> Kernel:
        if group.contract is not None:
            body = self._contract(group)
        elif group.loops is not None:
            body = self._loops(group)
        else:
            body = RowKernel(self, group).body()
        names = "_".join(dict.fromkeys(m.op.name for m in group.members))[:40]
        sources = tuple(dict.fromkeys(m.loc for m in group.members if m.loc))
        return Kernel(f"k{group.number}_{names}", body, sources)

    def read(self, block: Block, node: Node, index: Place, guard: Value | None) -> Value | None:
        """A stored node read from its buffer; None where it is computed on the spot."""
        buffer = self.buffers.get(node)
        if buffer is None:
            return None
        return block.let(Load(buffer, row_major(index, node.shape), guard))

    def copied(self, target: Buffer, node: Node) -> Kernel:
        """A kernel that computes a node into a buffer."""
        block = Block(self.read)
        vars = domain_vars(node.shape)
        with open_loops(block, vars):
            value = block.value(node, place(vars))
            block.write(target, row_major(place(vars), node.shape), value)
        return Kernel(f"copy_{target.name}", block.body, (node.loc,) if node.loc else ())

    def _copy_buffer(self, target: Buffer, source: Buffer, shape: tuple[int, ...]) -> Kernel:
        block = Block(self.read)
        vars = domain_vars(shape)
        with open_loops(block, vars):
            at = row_major(place(vars), shape)
            block.write(target, at, block.let(Load(source, at)))
        return Kernel(f"copy_{target.name}", block.body)

    def _loops(self, group: Group) -> tuple[Stmt, ...]:
        node = group.loops
        assert node is not None and isinstance(node.op.kernel, LoopRule)
        emitter = LoopEmitter(group, self.read, self.buffers)
        node.op.kernel.build(node, emitter)
        return emitter.block.body

    def _contract(self, group: Group) -> tuple[Stmt, ...]:
        node = group.contract
        assert node is not None and isinstance(node.op.kernel, ContractRule)
        dims = node.op.kernel.dims(node)
        a, b = node.inputs
        batch_rank, m_rank = len(dims.a_batch), len(dims.a_free)
        batch, m = group.vars[:batch_rank], group.vars[batch_rank: batch_rank + m_rank]
        n = group.vars[batch_rank + m_rank:]
        k = domain_vars((a.shape[axis] for axis in dims.a_contract), "k")
        acc = Local(node.dtype.compute, "acc")
        return (Contract(
            batch, m, n, k,
            self._operand(a, {**dict(zip(dims.a_batch, batch, strict=True)),
                              **dict(zip(dims.a_free, m, strict=True)),
                              **dict(zip(dims.a_contract, k, strict=True))}),
            self._operand(b, {**dict(zip(dims.b_batch, batch, strict=True)),
                              **dict(zip(dims.b_free, n, strict=True)),
                              **dict(zip(dims.b_contract, k, strict=True))}),
            acc, self._epilogue(group, acc)),)

    def _operand(self, node: Node, vars: Mapping[int, Var]) -> Operand:
        block = Block(self.read)
        value = block.value(node, place(vars[axis] for axis in range(node.rank)))
        return Operand(block.body, value)

    def _epilogue(self, group: Group, acc: Local) -> tuple[Stmt, ...]:
        known: dict[Node, tuple[Place, Value]] = {}
        block = Block(lambda b, n, i, g: forwarded(known, n, i) or self.read(b, n, i, g))
        for m, at in group.places.items():
            if m is group.scatter:
                self._scatter(block, m, at, known[m.inputs[0]][1])
                continue
            if m is group.contract:
                value: Value = Read(acc)
                if acc.dtype is not m.dtype:
                    value = block.let(Cast(value, m.dtype))
            else:
                value = block.compute(m, at)
            known[m] = (at, value)
        for m, (at, value) in known.items():
            if m in self.escaping:
                block.write(self.buffers[m], row_major(at, m.shape), value)
        return block.body

    def _scatter(self, block: Block, node: Node, at: Place, value: Value) -> None:
        """Add an element of the node's input to the result."""
        rule = node.op.kernel
        assert isinstance(rule, LoopRule) and rule.scatter is not None
        index = row_major(rule.scatter(node, at), node.shape)
        block.write(self.buffers[node], index, value, "add")


def forwarded(known: Mapping[Node, tuple[Place, Value]], node: Node, index: Place) -> Value | None:
    """The value of a node computed in this very iteration, if that is what is asked."""
    found = known.get(node)
    return found[1] if found is not None and found[0] == index else None


class RowKernel:
    """One kernel over common rows: nests in order inside, passing rows in TILE buffers."""

    def __init__(self, lowering: Lowering, group: Group) -> None:
        self.lowering, self.group = lowering, group
        self.depth = len(group.rows)
        self.rows = domain_vars(group.rows, "r")
        self.known: dict[Node, tuple[Place, Value]] = {}
        self.tiles = self._tiles()
        self.block = Block(self._fetch)

    def body(self) -> tuple[Stmt, ...]:
        """The statements of the kernel."""
        buffers = self.lowering.buffers
        written = [buffers[n] for n in self.group.members if n in self.lowering.escaping]
        # A read at a constant place of the row must not leave the loop over rows.
        self.block.depths.update(dict.fromkeys([*self.tiles.values(), *written], self.depth))
        with open_loops(self.block, self.rows):
            for tile in self.tiles.values():
                self.block.append(Alloc(tile))
            for nest in self.group.nests:
                self._nest(nest)
        return self.block.body

    def _tiles(self) -> dict[Node, Buffer]:
        """Rows that pass from one nest to a later one and leave the kernel nowhere."""
        nest_of = {m: k for k, n in enumerate(self.group.nests) for m in n.members}
        found: dict[Node, Buffer] = {}
        for m in nest_of:
            for p, _ in self.lowering.fusion.reads[m]:
                if (p in nest_of and nest_of[p] != nest_of[m] and p.rank > self.depth
                        and p not in self.lowering.escaping and p not in found):
                    size = int(np.prod(p.shape[self.depth:], dtype=np.int64))
                    found[p] = Buffer(f"tile{len(found)}", p.dtype, size, Scope.TILE)
        return found

    def _fetch(self, block: Block, node: Node, index: Place, guard: Value | None) -> Value | None:
        value = forwarded(self.known, node, index)
        if value is not None:
            return value
        tile = self.tiles.get(node)
        if tile is not None:
            at = row_major(index[self.depth:], node.shape[self.depth:])
            return block.let(Load(tile, at, guard))
        return self.lowering.read(block, node, index, guard)

    def _nest(self, nest: Nest) -> None:
        inner = domain_vars(nest.domain[self.depth:])
        outer = len(inner) if nest.outer is None else nest.outer - self.depth
        full = (*self.rows, *inner)
        reducers = [m for m in nest.members if domain(m)[1] is not None]
        with open_loops(self.block, inner[:outer]):
            folds = {m: Fold(self.block, m) for m in reducers}
            with open_loops(self.block, inner[outer:], independent=not reducers):
                here = place(full)
                for m in nest.members:
                    if m in folds:
                        at = reduce_place(m, here)
                        folds[m].step(self.block.value(m.inputs[0], at))
                    else:
                        self.known[m] = (here, self.block.compute(m, here))
                # Last, since what is updated in place is read by others too.
                for m in nest.members:
                    if m not in folds:
                        self._write(m)
            for m, fold in folds.items():
                self.known[m] = (place(full[: m.rank]), fold.result())
                self._write(m)
        # Values inside the nest are gone; those of the row stay.
        self.known = {m: (at, v) for m, (at, v) in self.known.items() if m.rank == self.depth}

    def _write(self, node: Node) -> None:
        at, value = self.known[node]
        if node in self.tiles:
            self.block.write(self.tiles[node], row_major(at[self.depth:],
                                                         node.shape[self.depth:]), value)
        elif node in self.lowering.escaping:
            self.block.write(self.lowering.buffers[node], row_major(at, node.shape), value)


class Fold:
    """The accumulator of one reduction."""

    def __init__(self, block: Block, node: Node) -> None:
        rule = node.op.kernel
        assert isinstance(rule, ReduceRule)
        self.block, self.node, self.combine = block, node, rule.combine
        self.dtype = node.inputs[0].dtype.compute
        start = np.asarray(rule.identity(self.dtype)).astype(self.dtype.numpy)[()]
        self.best = block.declare(self.dtype, Const(start, self.dtype))

    def step(self, value: Value) -> None:
        """Take in one element."""
        if value.dtype is not self.dtype:
            value = self.block.let(Cast(value, self.dtype))
        self.block.set(self.best, value, self.combine)

    def result(self) -> Value:
        """The folded value in the node's type."""
        if self.dtype is self.node.dtype:
            return Read(self.best)
        return self.block.let(Cast(Read(self.best), self.node.dtype))
