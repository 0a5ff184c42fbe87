"""What compiling changes for a whole process, and what becomes of it in a child of fork."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager

from llvmlite.binding import ffi

# llvmlite has one lock, which a thread holds while it is in LLVM.
_LLVM = ffi.lib._lock
_was_enabled: list[bool] = []  # of the compilations that run


@contextmanager
def no_collector() -> Iterator[None]:
    """Nearly all that compiling makes stays until its end; the collector would only walk it, again
    and again (a fifth of the time, measured on 900 kernels)."""
    was_enabled = gc.isenabled()
    _was_enabled.append(was_enabled)
    gc.disable()
    try:
        yield
    finally:
        _was_enabled.remove(was_enabled)
        if was_enabled:
            gc.enable()


def _before_fork() -> None:
    _LLVM.__enter__()


def _after_fork() -> None:
    _LLVM.__exit__(None, None, None)


def _in_child() -> None:
    """The threads that compiled are gone."""
    _after_fork()
    if any(_was_enabled):
        gc.enable()
    _was_enabled.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_child)
