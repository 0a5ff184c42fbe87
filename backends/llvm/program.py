"""A whole Program as one LLVM module with one entry point."""

from __future__ import annotations

import llvmlite.ir as ll
import numpy as np

from rlx_py.backends.llvm.emit import emit_body
from rlx_py.backends.llvm.frame import PTR, VOID, Frame, Unit
from rlx_py.backends.llvm.layout import POINTER_BYTES, arena_place, ports
from rlx_py.backends.llvm.scalars import I8, I32, I64
from rlx_py.backends.llvm.targets import Target, data_layout
from rlx_py.ir.canonical import Canonical
from rlx_py.ir.errors import BackendError
from rlx_py.ir.kernel import Buffer, Call, Kernel, Program, Scope, Stmt, Store, Tile, children

ALIGN = 64
PART = 128  # kernels called from one function: code generation is not linear in its length


def emit_module(program: Program, target: Target, name: str = "step") -> ll.Module:
    """The module of a program; its one public symbol is int32_t name(Step*), see layout."""
    return _module(program, target, {name: program.kernels})


def emit_pieces(program: Program, target: Target) -> ll.Module:
    """A program in pieces: int32_t piece0(Step*) runs its first kernel, piece1 its second, …

    One more after the last runs nothing.
    """
    pieces: dict[str, tuple[Kernel, ...]] = {
        f"piece{n}": (k,) for n, k in enumerate(program.kernels)}
    return _module(program, target, {**pieces, f"piece{len(pieces)}": ()})


def _module(program: Program, target: Target, entries: dict[str, tuple[Kernel, ...]]) -> ll.Module:
    module = ll.Module("program")  # a user's name may hold a line break, which ends the comment
    module.triple, module.data_layout = target.triple, data_layout(target)
    unit = Unit(module, target, program)
    known: dict[Kernel, Canonical] = {}
    for name, kernels in entries.items():
        _entry(unit, name, kernels, known)
    return module


def _entry(unit: Unit, name: str, kernels: tuple[Kernel, ...], known: dict[Kernel, Canonical]
           ) -> None:
    """A public function that runs kernels, many of them part by part."""
    entry = ll.Function(unit.module, ll.FunctionType(I32, [PTR]), name)
    entry.attributes.add("nounwind")
    b = ll.IRBuilder(entry.append_basic_block("entry"))
    if len(kernels) <= PART:
        _calls(unit, b, entry.args[0], kernels, known)
    else:
        for start in range(0, len(kernels), PART):
            part = unit.function(f"{name}_part", ll.FunctionType(VOID, [PTR]))
            part.attributes.add("noinline")
            inner = ll.IRBuilder(part.append_basic_block("entry"))
            _calls(unit, inner, part.args[0], kernels[start:start + PART], known)
            inner.ret_void()
            b.call(part, [entry.args[0]])
    b.ret(I32(0))


def _calls(unit: Unit, b: ll.IRBuilder, step: ll.Value, kernels: tuple[Kernel, ...],
           known: dict[Kernel, Canonical]) -> None:
    program = unit.program
    places = _Places(unit, b, step)
    for kernel in kernels:
        template = kernel.template or kernel
        canonical = known.get(template)
        if canonical is None:
            canonical = known[template] = Canonical(template.body)
        shared = [kernel.buffers.get(x, x) for x in canonical.buffers if x.scope is not Scope.LOCAL]
        apart = _apart(program, kernel, shared)
        key = (canonical.key, apart)
        function = unit.kernels.get(key)
        if function is None:
            function = unit.kernels[key] = _kernel_function(unit, kernel, shared, apart)
        b.call(function, [step, *(places.pointer(x) for x in shared)])


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

    def _make(self, buffer: Buffer) -> ll.Value:
        program = self.unit.program
        if buffer.scope is Scope.CONSTANT:
            found = self.unit.constants.get(buffer)
            if found is None:
                found = self.unit.constants[buffer] = self._constant(buffer)
            return found
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
        content = np.ascontiguousarray(buffer.data, dtype=buffer.dtype.numpy).tobytes()
        kind = ll.ArrayType(I8, len(content))
        name = self.unit.module.get_unique_name("constant")
        variable = ll.GlobalVariable(self.unit.module, kind, name)
        variable.linkage, variable.global_constant, variable.align = "internal", True, ALIGN
        variable.initializer = ll.Constant(kind, bytearray(content))
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
    written = _written(kernel.body)

    def overlap(x: Buffer, y: Buffer) -> bool:
        if x is y or x.scope is not y.scope or x.scope not in (Scope.ARENA, Scope.TILE):
            return False
        a, b = program.offsets.get(x, 0), program.offsets.get(y, 0)
        return a < b + y.nbytes and b < a + x.nbytes

    return tuple(
        not any(overlap(x, y) and (x in written or y in written) for y in shared)
        for x in shared
    )


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
