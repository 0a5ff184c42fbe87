"""A row of `benchmarks.ops`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from benchmarks.case import Arrays

Peer = Callable[[ModuleType], Callable[..., Any]]


@dataclass(frozen=True)
class Row:
    """One operation on given arrays.

    `rlx` takes a node for each array but `ct_out`; with `wrt` the row is its gradients, weighted by
    `ct_out`. A peer is made from the system's module and takes every array, in order; it returns
    what rlx does, a tuple where there are several gradients.
    """

    name: str
    arrays: Arrays
    rlx: Callable[..., Any]
    numpy: Peer | None = None
    torch: Peer | None = None
    jax: Peer | None = None
    wrt: tuple[str, ...] = ()
