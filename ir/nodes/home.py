"""Where a node was built: in a graph, or in the body of an operation while its function is traced.

Only nodes that a user's own line makes are asked; what passes make has no home, and mixes freely.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class Home:
    """A graph, or a body; `graph`: of what a body takes from outside, where that is known."""

    __slots__ = ("depth", "graph", "name", "open")

    def __init__(self, name: str, depth: int = 0, graph: Home | None = None) -> None:
        self.name, self.depth = name, depth
        self.graph = graph if depth else self
        self.open = True


    def admit(self, value: Home | None) -> str | None:
        """Why a graph can't name a node of that home; None where it can."""
        if value is None or value is self:
            return None
        if value.depth:
            return f"was made inside {value.name}, which only its results leave"
        return f"is of graph {value.name!r}, not of {self.name!r}"


class _Bodies(threading.local):
    depth = 0


_BODIES = _Bodies()


def inner(a: Home, b: Home) -> Home | None:
    """Of two homes the one inside the other, or a closed one; None where they are of two graphs."""
    for home in (a, b):
        if not home.open:
            return home
    if a.graph is None or b.graph is None:
        graph = a.graph or b.graph
        a.graph = b.graph = graph
    if a.graph is not b.graph:
        return None
    return a if a.depth >= b.depth else b


@contextmanager
def body(name: str, outside: Iterable[Home | None]) -> Iterator[Home]:
    """The home of a function's nodes while it is traced, called with what stands for nodes of other
    homes."""
    graph = next((h.graph for h in outside if h is not None and h.graph is not None), None)
    _BODIES.depth += 1
    home = Home(name, _BODIES.depth, graph)
    try:
        yield home
    finally:
        home.open = False
        _BODIES.depth -= 1
