"""What a backend is: something that makes a runner of a graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from rlx_py.ir.graph.graph import Graph
from rlx_py.ir.nodes.node import Location

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Cost:
    """What one call takes.

    flops: multiplications and additions of products, one each, and one for every other scalar
    operation. bytes_moved: what kernels read and write, each element once a kernel. arena_bytes:
    memory for intermediates, scratch of all threads included.
    """

    flops: int
    bytes_moved: int
    arena_bytes: int
    kernels: int


@dataclass(frozen=True)
class KernelTime:
    """What one kernel takes in a call.

    seconds: the least of several calls. sources: the user's lines (file, number) it computes.
    flops, bytes_moved: as in `Cost`.
    """

    name: str
    seconds: float
    sources: tuple[Location, ...]
    flops: int
    bytes_moved: int


class Runner(Protocol):
    """A graph that can be run on checked arrays."""

    def run(self, arrays: dict[str, Array], out: dict[str, Array]) -> None:
        """Read leaves by name; write outputs, and the next values of params and state in place."""

    def cost(self) -> Cost:
        """What one call takes."""


@runtime_checkable
class TimedRunner(Runner, Protocol):
    """A runner that can time its kernels one by one."""

    def kernel_times(self, arrays: dict[str, Array], out: dict[str, Array]
                     ) -> tuple[KernelTime, ...]:
        """Run several times, as `run`, and time each kernel, in their order."""


class Backend(Protocol):
    """A target that graphs are compiled for. exports: whether `Executable.export` writes its
    code."""

    name: str
    exports: bool

    def compile(self, graph: Graph, *, threads: int | None = None, fast_math: bool = False,
                cache: bool = True) -> Runner:
        """A runner of the graph; BackendError where the target is absent or can't run it."""
