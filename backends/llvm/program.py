"""A whole Program as one LLVM module with one entry point."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import llvmlite.ir as ll
import numpy as np

from rlx_py.backends.llvm.emit import emit_body
from rlx_py.backends.llvm.frame import PTR, VOID, Array, Frame, Unit, bytes_constant
from rlx_py.backends.llvm.layout import POINTER_BYTES, arena_place, ports
from rlx_py.backends.llvm.scalars import I8, I32, I64
from rlx_py.backends.llvm.targets import Target, data_layout
from rlx_py.ir.base.errors import BackendError
from rlx_py.ir.loops.canonical import Canonical
from rlx_py.ir.loops.kernel import Buffer, Call, Kernel, Scope, Stmt, Store, Tile, children
from rlx_py.ir.loops.program import Branch, Item, Loop, Program, items, part

ALIGN = 64
HELD = 4096  # bytes from which a constant of code in this process stays where it is
PART = 128  # kernels called from one function: code generation is not linear in its length


def emit_module(program: Program, target: Target, name: str = "step",
                held: dict[str, Array] | None = None) -> ll.Module:
    """The module of a program; its public symbol is int32_t name(Step*), see layout. held: see
    Unit."""
    return _module(program, target, {name: items(program)}, held)


def emit_pieces(program: Program, target: Target, held: dict[str, Array]) -> ll.Module:
    """A program in pieces: int32_t piece0(Step*) runs its first kernel or region, piece1 its
    second, …

    One more after the last runs nothing.
    """
    pieces: dict[str, tuple[Item, ...]] = {
        f"piece{n}": (item,) for n, item in enumerate(items(program))}
    return _module(program, target, {**pieces, f"piece{len(pieces)}": ()}, held)


def _module(program: Program, target: Target, entries: dict[str, tuple[Item, ...]],
            held: dict[str, Array] | None) -> ll.Module:
    module = ll.Module("program")  # a user's name may hold a line break, which ends the comment
    module.triple, module.data_layout = target.triple, data_layout(target)
    unit = Unit(module, target, program, held=held)
    known: dict[Kernel, Canonical] = {}
    for name, found in entries.items():
        _entry(unit, name, found, known)
    return module


def _entry(unit: Unit, name: str, found: tuple[Item, ...], known: dict[Kernel, Canonical]) -> None:
    """A public function that runs kernels and regions, many of them part by part."""
    entry = ll.Function(unit.module, ll.FunctionType(I32, [PTR]), name)
    entry.attributes.add("nounwind")
    if len(found) <= PART:
        _Calls(unit, entry, known).run(found).ret(I32(0))
        return
    b = ll.IRBuilder(entry.append_basic_block("entry"))
    for start in range(0, len(found), PART):
        piece = unit.function(f"{name}_part", ll.FunctionType(VOID, [PTR]))
        piece.attributes.add("noinline")
        _Calls(unit, piece, known).run(found[start:start + PART]).ret_void()
        b.call(piece, [entry.args[0]])
    b.ret(I32(0))


class _Calls:
    """A function that calls kernels, in loops and branches where they stand in such."""

    def __init__(self, unit: Unit, function: ll.Function, known: dict[Kernel, Canonical]) -> None:
        self.unit, self.known, self.step = unit, known, function.args[0]
        # Pointers are computed up front, since what loops use must be known before them.
        self.front = ll.IRBuilder(function.append_basic_block("entry"))
        self.b = ll.IRBuilder(function.append_basic_block("run"))
        self.places = _Places(unit, self.front, self.step)

    def run(self, found: Sequence[Item]) -> ll.IRBuilder:
        """Emit everything; the builder stands where the function is to return."""
        self._items(found)
        self.front.branch(self.front.function.basic_blocks[1])
        return self.b

    def _items(self, found: Sequence[Item]) -> None:
        for item in found:
            if isinstance(item, int):
                self._kernel(self.unit.program.kernels[item])
            elif isinstance(item[0], Loop):
                self._loop(item[0], item[1])
            else:
                self._branch(item[0], item[1])

    def _kernel(self, kernel: Kernel) -> None:
        unit, program = self.unit, self.unit.program
        template = kernel.template or kernel
        canonical = self.known.get(template)
        if canonical is None:
            canonical = self.known[template] = Canonical(template.body)
        shared = [kernel.buffers.get(x, x) for x in canonical.buffers if x.scope is not Scope.LOCAL]
        apart = _apart(program, kernel, shared)
        key = (canonical.key, apart)
        function = unit.kernels.get(key)
        if function is None:
            function = unit.kernels[key] = _kernel_function(unit, kernel, shared, apart)
        self.b.call(function, [self.step, *(self.places.pointer(x) for x in shared)])

    def _loop(self, loop: Loop, inside: Sequence[Item]) -> None:
        """head: is there a step; test: is the condition met; body; after."""
        b = self.b
        bound: ll.Value | None = None if loop.extent is None else I64(loop.extent)
        if loop.count is not None:
            given = b.load(self.places.pointer(loop.count), typ=I64)
            for over, limit in (("<", I64(0)), (">", bound)):
                given = b.select(b.icmp_signed(over, given, limit), limit, given)
            bound = given
        before = b.block
        head, body, after = (b.append_basic_block(n) for n in ("loop", "step", "looped"))
        b.branch(head)
        b.position_at_end(head)
        step = b.phi(I64)
        step.add_incoming(I64(0), before)
        if bound is None:
            b.branch(body)
        else:
            b.cbranch(b.icmp_signed("<", step, bound), body, after)
        b.position_at_end(body)
        position = step
        if loop.reverse:
            position = b.sub(b.sub(bound, I64(1)), step)
        with self.places.moving(b, loop, position):
            self._items(part(inside, loop.first, loop.test))
            if loop.condition is not None:
                holds = b.load(self.places.pointer(loop.condition), typ=I8)
                goes_on = b.append_basic_block("goes_on")
                b.cbranch(b.icmp_unsigned("!=", holds, I8(0)), goes_on, after)
                b.position_at_end(goes_on)
            self._items(part(inside, loop.test, loop.last))
        step.add_incoming(b.add(step, I64(1)), b.block)
        b.branch(head)
        b.position_at_end(after)
        if loop.taken is not None:
            # Both ways into this block come from where `step` is the number of steps done.
            b.store(step, self.places.pointer(loop.taken))

    def _branch(self, branch: Branch, inside: Sequence[Item]) -> None:
        b = self.b
        holds = b.load(self.places.pointer(branch.condition), typ=I8)
        then, orelse, after = (b.append_basic_block(n) for n in ("then", "orelse", "after"))
        b.cbranch(b.icmp_unsigned("!=", holds, I8(0)), then, orelse)
        for block, start, stop in ((then, branch.first, branch.middle),
                                   (orelse, branch.middle, branch.last)):
            b.position_at_end(block)
            self._items(part(inside, start, stop))
            b.branch(after)
        b.position_at_end(after)


class _Places:
    """Pointers of buffers in the entry function."""

    def __init__(self, unit: Unit, b: ll.IRBuilder, step: ll.Value) -> None:
        self.unit, self.b, self.step = unit, b, step
        self.slots: dict[Buffer, int] = {}
        for n, port in enumerate(ports(unit.program)):
            self.slots.setdefault(port.buffer, n)
        self.known: dict[Buffer, ll.Value] = {}
        self.arena = b.load(self._slot(arena_place(unit.program)), typ=PTR)

    def _slot(self, place: int) -> ll.Value:
        return self.b.gep(self.step, [I64(place)], source_etype=I8)

    def pointer(self, buffer: Buffer) -> ll.Value:
        """The address of a buffer; of a TILE, thread 0's copy."""
        found = self.known.get(buffer)
        if found is None:
            found = self.known[buffer] = self._make(buffer)
        return found

    @contextmanager
    def moving(self, b: ll.IRBuilder, loop: Loop, position: ll.Value) -> Iterator[None]:
        """Inside, the slices of a loop at one of its positions."""
        for buffer, place in loop.slices.items():
            size = buffer.dtype.itemsize
            base = self.pointer(place.of)
            offset = b.add(b.mul(position, I64(place.stride * size)), I64(place.start * size))
            self.known[buffer] = b.gep(base, [offset], source_etype=I8)
        yield
        for buffer in loop.slices:
            del self.known[buffer]

    def _make(self, buffer: Buffer) -> ll.Value:
        program = self.unit.program
        if buffer.scope is Scope.CONSTANT:
            found = self.unit.constants.get(buffer)
            if found is None:
                found = self.unit.constants[buffer] = self._constant(buffer)
            return self.b.load(found, typ=PTR) if found.value_type is PTR else found
        if buffer.scope in (Scope.ARENA, Scope.TILE):
            offset = program.offsets.get(buffer)
            if offset is None:
                raise BackendError(f"{buffer} has no place in the memory plan")
            start = program.arena if buffer.scope is Scope.TILE else 0
            return self.b.gep(self.arena, [I64(start + offset)], source_etype=I8)
        slot = self.slots.get(buffer)
        if slot is None:
            raise BackendError(f"{buffer} is not an input, output or update of the program")
        return self.b.load(self._slot(slot * POINTER_BYTES), typ=PTR)

    def _constant(self, buffer: Buffer) -> ll.Value:
        if buffer.data is None:
            raise BackendError(f"constant {buffer} has no data")
        content = np.require(buffer.data, buffer.dtype.numpy, ["C", "A"])
        held = self.unit.held
        public = held is not None and content.nbytes >= HELD
        value = ll.Constant(PTR, None) if public else bytes_constant(content.tobytes())
        name = self.unit.module.get_unique_name("constant")
        variable = ll.GlobalVariable(self.unit.module, value.type, name)
        variable.initializer = value
        if held is not None and public:
            held[name] = content
        else:
            variable.linkage, variable.global_constant, variable.align = "internal", True, ALIGN
        return variable


def _kernel_function(
    unit: Unit, kernel: Kernel, shared: list[Buffer], apart: tuple[bool, ...]
) -> ll.Function:
    """void(step, buffers …)."""
    kind = ll.FunctionType(VOID, [PTR] * (1 + len(shared)))
    function = unit.function(f"kernel_{kernel.name}", kind)
    # Inlined into the entry, equal kernels would be compiled once for each use.
    function.attributes.add("noinline")
    frame = Frame(unit, function)
    for buffer, argument, alone in zip(shared, function.args[1:], apart, strict=True):
        frame.buffers[buffer] = argument
        if alone:
            argument.add_attribute("noalias")
    emit_body(frame, kernel.body)
    frame.finish()
    return function


def _apart(program: Program, kernel: Kernel, shared: list[Buffer]) -> tuple[bool, ...]:
    """Which buffers share no byte with another one of the kernel that is written.

    Planned buffers may overlap where one is updated in place of another.
    """
    def at(x: Buffer) -> int:
        return program.offsets.get(x, 0)

    written = _written(kernel.body)
    together: set[Buffer] = set()
    for scope in (Scope.ARENA, Scope.TILE):
        live: list[tuple[int, Buffer]] = []  # with the bytes' ends
        for x in sorted((x for x in shared if x.scope is scope), key=at):
            live = [(end, y) for end, y in live if end > at(x)]
            for _, y in live:
                if x in written or y in written:
                    together.update((x, y))
            live.append((at(x) + x.nbytes, x))
    return tuple(x not in together for x in shared)


def _written(body: tuple[Stmt, ...]) -> set[Buffer]:
    found: set[Buffer] = set()
    work = list(body)
    while work:
        s = work.pop()
        if isinstance(s, Store):
            found.add(s.buffer)
        elif isinstance(s, Tile):
            found.add(s.out.buffer)
        elif isinstance(s, Call):
            found.update(a for a in s.args if isinstance(a, Buffer))
        for inner in children(s):
            work.extend(inner)
    return found
