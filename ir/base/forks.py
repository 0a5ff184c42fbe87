"""A child of fork has one thread, and whatever the others held at that moment stays held."""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class Owner(Protocol):
    """What has locks, or work that another thread does."""

    def after_fork(self) -> None:
        """Begin anew in the child: no lock is held, nobody else is at work."""


_OWNERS: WeakSet[Owner] = WeakSet()


def watch(owner: Owner) -> None:
    """Call `after_fork` of it in every child of fork, as long as it lives."""
    _OWNERS.add(owner)


def _after_fork() -> None:
    for owner in list(_OWNERS):
        owner.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
