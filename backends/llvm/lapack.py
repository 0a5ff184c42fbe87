"""What of BLAS and LAPACK native code calls.

In this process the routines are SciPy's. Exported code has their usual names (dpotrf_ …) as
undefined symbols instead: link with -llapack -lblas.
"""

from __future__ import annotations

import llvmlite.binding as llvm

from rlx_py.ir.base.lapack import address
from rlx_py.ir.loops.copying import walk
from rlx_py.ir.loops.kernel import Call
from rlx_py.ir.loops.program import Program

LIBRARIES = ["-llapack", "-lblas"]


def called(program: Program) -> list[str]:
    """The routines that a program calls, sorted."""
    return sorted({s.symbol for k in program.kernels for s in walk(k.body) if isinstance(s, Call)})


def resolve(program: Program) -> None:
    """Let machine code of this process find the routines that a program calls."""
    for symbol in called(program):
        llvm.add_symbol(symbol, address(symbol))
