"""rlx.compile: a graph on a backend."""

from __future__ import annotations

import warnings
from collections.abc import Callable

from rlx_py.backends.base import Backend
from rlx_py.backends.llvm.backend import CpuBackend
from rlx_py.backends.reference import ReferenceBackend
from rlx_py.dynamic import DynamicExecutable, Specializations
from rlx_py.executable import Executable, Options
from rlx_py.function import check_flags, check_threads
from rlx_py.ir.base.config import CONFIG
from rlx_py.ir.base.dim import names_in
from rlx_py.ir.base.errors import ArgumentError
from rlx_py.ir.graph.bind import names_of
from rlx_py.ir.graph.graph import Graph
from rlx_py.ir.nodes.graph_base import require_graph
from rlx_py.ir.nodes.verify import verify
from rlx_py.nested import NestedExecutable
from rlx_py.passes.analysis.widening import widened_param

SPECIALIZATIONS = 16  # kept of a dynamic graph
BACKENDS: dict[str, Backend] = {b.name: b for b in (CpuBackend(), ReferenceBackend())}


def compile(graph: Graph, backend: str = "cpu", *, threads: int | None = None,
            fast_math: bool = False, cache: bool = True, strict: bool = False,
            specializations: int = SPECIALIZATIONS) -> Executable:
    """The graph as a callable; what comes from `trace` is called as exe(params, *inputs).

    backend: "cpu" (native code) or "reference" (NumPy). threads: the most to use (None: all cores).
    fast_math: rewrites that may change the last bits or lose infinities. cache: use the code of an
    equal graph that is compiled and alive in this process. strict: calls convert nothing; else
    they convert NumPy's default types, lists and numbers within a kind, checked, with a copy. A
    graph with sizes by name (`dim`) is compiled at the first call of each set of sizes, and so many
    `specializations` are kept. Warns where a constant of a wider type widens what comes of a param.
    Raises ArgumentError for an unknown backend or a size that no input has, VerifyError for a
    broken graph, BackendError for what the target lacks.
    """
    if not isinstance(backend, str) or backend not in BACKENDS:
        raise ArgumentError(f"no backend {backend!r}; there are {list(BACKENDS)}")
    check_threads(threads)
    check_flags(fast_math=fast_math, cache=cache, strict=strict)
    require_graph("compile", graph)
    if not graph.roots:
        raise ArgumentError(f"graph {graph.name!r} gives nothing; name a result with g.output")
    verify(graph)
    wider = widened_param(graph)
    if wider is not None:
        warnings.warn(f"graph {graph.name!r}: {wider}", stacklevel=2)
    options = Options(fast_math=fast_math, strict=strict, exports=BACKENDS[backend].exports)

    def static(bound: Graph) -> Executable:
        runner = BACKENDS[backend].compile(bound, threads=threads or CONFIG.threads,
                                           fast_math=fast_math, cache=cache)
        return Executable(bound, runner, options)

    exe = (_dynamic(graph, static, specializations, options) if names_of(graph)
           else static(graph))
    return exe if graph.nesting is None else NestedExecutable(exe, graph.nesting)


def _dynamic(graph: Graph, static: Callable[[Graph], Executable], most: int,
             options: Options) -> Executable:
    if isinstance(most, bool) or not isinstance(most, int) or most < 1:
        raise ArgumentError(f"specializations must be at least 1, not {most!r}")
    told = frozenset(n for x in graph.leaves.values() for n in names_in(x.shape))
    untold = sorted(names_of(graph) - told)
    if untold:
        raise ArgumentError(f"no input, param or state of {graph.name!r} has the size {untold[0]}; "
                            f"rlx.bind(graph, {{{untold[0]!r}: …}}) sets it")
    return DynamicExecutable(graph, Specializations(graph, static, most), options)
