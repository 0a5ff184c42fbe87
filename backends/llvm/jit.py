"""Programs as native code in this process."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from rlx_py.backends.llvm.layout import arena_bytes, ports
from rlx_py.backends.llvm.parallel import may_use_threads, parallel_for, team_size
from rlx_py.backends.llvm.program import emit_module
from rlx_py.backends.llvm.targets import Target, host, machine
from rlx_py.ir.errors import BackendError
from rlx_py.ir.kernel import Axis, For, Program, children

Array = np.ndarray[Any, Any]
ALIGN = 64


def optimize(module: llvm.ModuleRef, target: llvm.TargetMachine) -> None:
    """Run LLVM's passes in place; vectors are explicit, so its vectorisers stay off."""
    tuning = llvm.create_pipeline_tuning_options(speed_level=2)
    tuning.loop_vectorization = False
    tuning.slp_vectorization = False
    builder = llvm.create_pass_builder(target, tuning)
    passes = builder.getModulePassManager()
    passes.run(module, builder)


class CompiledProgram:
    """A program in machine code; the engine lives as long as this."""

    def __init__(self, program: Program, engine: llvm.ExecutionEngine, text: str,
                 parallel_for: int, threads: int) -> None:
        self.program, self.text, self.threads = program, text, threads
        self._engine = engine
        self._entry = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(
            engine.get_function_address("step"))
        self._parallel_for = parallel_for
        self._inputs = [p.name for p in program.inputs]
        in_place = {p.buffer for p in program.inputs}
        self._written = [(p.name, p.buffer in in_place)
                         for p in (*program.outputs, *program.updates)]
        self._count = len(ports(program))
        self._free: list[_Call] = []
        self._lock = threading.Lock()

    def run(self, arrays: dict[str, Array], out: dict[str, Array]) -> None:
        """Fill `out` (outputs and updates by name) from `arrays` (inputs by name).

        All are C-contiguous, of the ports' types and shapes. An update that the program makes in
        place changes the input's own array; it may be absent from `out`.
        """
        with self._lock:
            call = self._free.pop() if self._free else _Call(self)
        slots = call.slots
        if not may_use_threads():
            slots[self._count + 1] = 0
        n = 0
        for name in self._inputs:
            slots[n] = arrays[name].ctypes.data
            n += 1
        for name, in_place in self._written:
            slots[n] = 0 if in_place else out[name].ctypes.data
            n += 1
        status = self._entry(call.address)
        with self._lock:
            self._free.append(call)
        if status:
            raise BackendError(f"{self.program.name}: the compiled step stopped with {status}")


class _Call:
    """Arena and argument struct of one caller at a time."""

    def __init__(self, compiled: CompiledProgram) -> None:
        count = compiled._count
        size = arena_bytes(compiled.program, compiled.threads)
        self.memory = np.empty(size + ALIGN, np.uint8)
        self.slots = (ctypes.c_uint64 * (count + 3))()
        base = self.memory.ctypes.data
        self.slots[count] = base + -base % ALIGN
        self.slots[count + 1] = compiled._parallel_for
        self.slots[count + 2] = compiled.threads
        self.address = ctypes.addressof(self.slots)


def compile_program(
    program: Program, *, target: Target | None = None, threads: int | None = None
) -> CompiledProgram:
    """Machine code for this process; `threads` bounds the team (None: all that OpenMP offers)."""
    target = target or host()
    text = str(emit_module(program, target))
    generator = machine(target)
    module = llvm.parse_assembly(text)
    module.verify()
    optimize(module, generator)
    engine = llvm.create_mcjit_compiler(module, generator)
    engine.finalize_object()
    team = team_size(threads) if is_parallel(program) else 1
    return CompiledProgram(program, engine, text, parallel_for(team), team)


def is_parallel(program: Program) -> bool:
    """Whether any loop of the program is cut over threads."""
    work = [s for k in program.kernels for s in k.body]
    while work:
        s = work.pop()
        if isinstance(s, For) and s.axis is Axis.PARALLEL:
            return True
        for inner in children(s):
            work.extend(inner)
    return False
