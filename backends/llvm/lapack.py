"""Routines of BLAS and LAPACK that native code calls: their addresses in this process.

SciPy ships a LAPACK and publishes pointers to its routines for compiled code to call. Exported
code has their usual names (dpotrf_ …) as undefined symbols instead: link with -llapack -lblas.
"""

from __future__ import annotations

import ctypes
from importlib import import_module
from typing import Any

import llvmlite.binding as llvm

from rlx_py.ir.copying import walk
from rlx_py.ir.errors import BackendError
from rlx_py.ir.kernel import Call, Program

LIBRARIES = ["-llapack", "-lblas"]


def called(program: Program) -> list[str]:
    """The routines that a program calls, sorted."""
    return sorted({s.symbol for k in program.kernels for s in walk(k.body) if isinstance(s, Call)})


def resolve(program: Program) -> None:
    """Let machine code of this process find the routines that a program calls."""
    symbols = called(program)
    if symbols:
        published = _published()
        for symbol in symbols:
            llvm.add_symbol(symbol, _address(published[symbol.rstrip("_")]))


def _published() -> dict[str, Any]:
    """SciPy's pointers by the name of their routine."""
    try:
        found: dict[str, Any] = import_module("scipy.linalg.cython_lapack").__pyx_capi__
    except ImportError as error:
        raise BackendError("native linear algebra calls the LAPACK of SciPy, which is not "
                           "installed: pip install rlx-py[linalg]") from error
    return found


def _address(capsule: Any) -> int:
    """The pointer in a capsule."""
    api = ctypes.pythonapi
    api.PyCapsule_GetName.restype = ctypes.c_char_p
    api.PyCapsule_GetName.argtypes = [ctypes.py_object]
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    return int(api.PyCapsule_GetPointer(capsule, api.PyCapsule_GetName(capsule)))
