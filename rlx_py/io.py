"""Exported libraries as Python callables."""

from __future__ import annotations

from pathlib import Path

from rlx_py.backends.llvm.library import open_library
from rlx_py.function import CompiledFunction, check_threads
from rlx_py.ir.base.config import CONFIG


def load(path: str | Path, *, threads: int | None = None, strict: bool = False
         ) -> CompiledFunction:
    """A library that `Executable.export` wrote, ready to call; nothing is compiled.

    path: with or without ".so". threads: the most to use (None: all cores). strict: as of
    `compile`. Raises ArgumentError where there is no such file, FormatError for a file that is
    something else, damaged, or of an unknown format, BackendError for one that this machine can't
    run. Load only files you trust: a library is code.
    """
    check_threads(threads)
    interface, runner = open_library(path, threads=threads or CONFIG.threads)
    return CompiledFunction(interface, runner, strict=strict)
