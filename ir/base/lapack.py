"""Routines of BLAS and LAPACK in this process, which the extra `linalg` brings.

SciPy ships a LAPACK and publishes pointers to its routines for compiled code to call.
"""

from __future__ import annotations

import ctypes
from importlib import import_module
from typing import Any

from rlx_py.ir.base.errors import BackendError


def address(symbol: str) -> int:
    """Where a routine is. Raises BackendError where SciPy is not installed."""
    try:
        published: dict[str, Any] = import_module("scipy.linalg.cython_lapack").__pyx_capi__
    except ImportError as error:
        raise BackendError("native linear algebra calls the LAPACK of SciPy, which is not "
                           "installed: pip install rlx-py[linalg]") from error
    return _pointer(published[symbol.rstrip("_")])


def call(symbol: str, addresses: list[int]) -> None:
    """Call a routine, all of whose arguments are addresses."""
    kind = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(addresses))
    kind(address(symbol))(*addresses)


def _pointer(capsule: Any) -> int:
    """The pointer in a capsule."""
    api = ctypes.pythonapi
    api.PyCapsule_GetName.restype = ctypes.c_char_p
    api.PyCapsule_GetName.argtypes = [ctypes.py_object]
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    return int(api.PyCapsule_GetPointer(capsule, api.PyCapsule_GetName(capsule)))
