"""Threads for compiled programs: how many, and whether this process has them."""

from __future__ import annotations

import os
import warnings
from functools import cache

from rlx_py.backends.llvm.pool import is_supported, team


class _Process:
    """Whether threads that were started here are still there."""

    forked = False


def _after_fork() -> None:
    _Process.forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def may_use_threads() -> bool:
    """False in a child of fork, where the team's threads are gone."""
    return not _Process.forked


def team_size(threads: int | None) -> int:
    """Threads to use: as many as asked for (None: as processors); 1 where there can be no more."""
    wanted = processors() if threads is None else threads
    return wanted if wanted > 1 and may_use_threads() and _has_threads() else 1


def parallel_for(threads: int) -> int:
    """The address of a parallel_for on at most that many threads; 0, for serial, if that is 1."""
    return team(threads) if team_size(threads) > 1 else 0


def processors() -> int:
    """How many processors this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@cache
def _has_threads() -> bool:
    if not is_supported():
        warnings.warn("there are no 64-bit POSIX threads: compiled programs run on one thread",
                      RuntimeWarning, stacklevel=2)
    return is_supported()
