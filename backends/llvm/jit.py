"""Programs as native code in this process."""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Mapping
from weakref import WeakValueDictionary

import llvmlite.binding as llvm
import numpy as np

from rlx_py.backends.llvm.frame import Array
from rlx_py.backends.llvm.lapack import resolve
from rlx_py.backends.llvm.layout import arena_bytes
from rlx_py.backends.llvm.native import NativeStep
from rlx_py.backends.llvm.parallel import parallel_for, team_size
from rlx_py.backends.llvm.program import emit_module
from rlx_py.backends.llvm.targets import Target, host, machine
from rlx_py.ir.base.types import TensorType
from rlx_py.ir.loops.kernel import Axis, For, children
from rlx_py.ir.loops.program import Port, Program


def optimized(text: str, target: llvm.TargetMachine) -> llvm.ModuleRef:
    """The module after the few LLVM passes that emitted code gains from.

    Locals become registers and index arithmetic is folded; code generation does the rest. On a
    training step -O2 took 330 ms where these take 12, and no measured kernel ran faster by more
    than a tenth.
    """
    module = llvm.parse_assembly(text)
    module.verify()
    builder = llvm.create_pass_builder(target, llvm.create_pipeline_tuning_options(speed_level=2))
    passes = llvm.create_new_module_pass_manager()
    passes.add_sroa_pass()
    passes.add_simplify_cfg_pass()
    passes.add_instruction_combine_pass()
    passes.run(module, builder)
    return module


class Code:
    """The machine code of a module's text and the constants that it points to, there as long as
    this.

    An engine disposes of itself while weak references still give it to other threads; those to
    this are gone before.
    """

    def __init__(self, text: str, target: Target, held: Mapping[str, Array]) -> None:
        generator = machine(target)
        self.held = dict(held)
        self.engine = llvm.create_mcjit_compiler(optimized(text, generator), generator)
        self.engine.finalize_object()
        for name, content in self.held.items():
            place = ctypes.c_void_p.from_address(self.engine.get_global_value_address(name))
            place.value = content.ctypes.data


class CompiledProgram:
    """A program in machine code; the code lives as long as this."""

    def __init__(self, program: Program, code: Code, text: str, parallel_for: int,
                 threads: int) -> None:
        self.program, self.text, self.threads = program, text, threads
        own = {p.buffer for p in program.inputs}
        self.step = NativeStep(
            program.name, code.engine.get_function_address("step"),
            dict(map(_typed, program.inputs)), {p.name for p in program.updates if p.buffer in own},
            [None if p.buffer in own else _typed(p) for p in (*program.outputs, *program.updates)],
            arena_bytes(program, threads), parallel_for, threads, code,
        )
        self.run = self.step.run


# Code in use, by what it was made from.
_CODE: WeakValueDictionary[tuple[Target, str, bytes], Code] = WeakValueDictionary()


def compile_program(
    program: Program, *, target: Target | None = None, threads: int | None = None,
    cache: bool = True,
) -> CompiledProgram:
    """Machine code for this process; `threads` bounds the team (None: all processors).

    cache: an equal program that is still in use here lends its code.
    """
    target = target or host()
    resolve(program)
    held: dict[str, Array] = {}
    text = str(emit_module(program, target, held=held))
    key = target, text, _digest(held)
    code = _CODE.get(key) if cache else None
    if code is None:
        code = _CODE[key] = Code(text, target, held)
    team = team_size(threads) if is_parallel(program) else 1
    return CompiledProgram(program, code, text, parallel_for(team), team)


def _digest(held: Mapping[str, Array]) -> bytes:
    found = hashlib.blake2b()
    for content in held.values():
        found.update(content.reshape(-1).view(np.uint8).data)
    return found.digest()


def _typed(port: Port) -> tuple[str, TensorType]:
    return port.name, TensorType(port.buffer.dtype, port.shape)



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
