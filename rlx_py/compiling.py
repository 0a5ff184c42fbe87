"""rlx.compile: a graph on a backend."""

from __future__ import annotations

from rlx_py.backends.base import Backend
from rlx_py.backends.llvm.backend import CpuBackend
from rlx_py.backends.reference import ReferenceBackend
from rlx_py.executable import Executable
from rlx_py.ir.config import CONFIG
from rlx_py.ir.errors import ArgumentError
from rlx_py.ir.graph import Graph
from rlx_py.ir.verify import verify
from rlx_py.nested import NestedExecutable

BACKENDS: dict[str, Backend] = {b.name: b for b in (CpuBackend(), ReferenceBackend())}


def compile(graph: Graph, backend: str = "cpu", *, threads: int | None = None,
            fast_math: bool = False, cache: bool = True) -> Executable:
    """The graph as a callable; what comes from `trace` is called as exe(params, *inputs).

    backend: "cpu" (native code) or "reference" (NumPy). threads: the most to use (None: all cores).
    fast_math: rewrites that may change the last bits or lose infinities. cache: use the code of an
    equal graph that is compiled and alive in this process. Raises ArgumentError for an unknown
    backend, VerifyError for a broken graph, BackendError for what the target lacks.
    """
    if backend not in BACKENDS:
        raise ArgumentError(f"no backend {backend!r}; there are {list(BACKENDS)}")
    if threads is not None and threads < 1:
        raise ArgumentError(f"threads must be at least 1, not {threads}")
    verify(graph)
    runner = BACKENDS[backend].compile(graph, threads=threads or CONFIG.threads,
                                       fast_math=fast_math, cache=cache)
    if graph.nesting is not None:
        return NestedExecutable(graph, graph.nesting, runner, fast_math=fast_math)
    return Executable(graph, runner, fast_math=fast_math)
