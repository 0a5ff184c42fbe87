"""The C interface of a compiled program.

    typedef void (*Body)(void *context, int64_t begin, int64_t end, int32_t thread);
    typedef void (*ParallelFor)(Body body, void *context, int64_t blocks);
    typedef struct {
        void *ports[PORTS];        // inputs, outputs, updates in the program's order
        void *arena;               // program.arena + threads * program.scratch bytes, 64-aligned
        ParallelFor parallel_for;  // runs body over 0 ... blocks - 1 in pieces; NULL: serial
        int64_t threads;           // most threads that parallel_for uses; thread < threads
    } Step;
    int32_t NAME(Step *step);      // 0 when done
"""

from __future__ import annotations

import llvmlite.ir as ll

from rlx_py.backends.llvm.frame import PTR, VOID
from rlx_py.backends.llvm.scalars import I32, I64
from rlx_py.ir.loops.program import Port, Program

POINTER_BYTES = 8


def ports(program: Program) -> tuple[Port, ...]:
    """Every external array in the order of the struct."""
    return (*program.inputs, *program.outputs, *program.updates)


def arena_place(program: Program) -> int:
    """Byte offset of the arena's pointer."""
    return len(ports(program)) * POINTER_BYTES


def parallel_for_place(program: Program) -> int:
    """Byte offset of the parallel_for pointer."""
    return arena_place(program) + POINTER_BYTES


def arena_bytes(program: Program, threads: int) -> int:
    """Bytes that the caller gives as arena."""
    return program.arena + threads * program.scratch


def body_type() -> ll.FunctionType:
    """void(context, begin, end, thread)."""
    return ll.FunctionType(VOID, [PTR, I64, I64, I32])


def parallel_for_type() -> ll.FunctionType:
    """void(body, context, blocks)."""
    return ll.FunctionType(VOID, [PTR, PTR, I64])
