"""backend="cpu": the pipeline from a graph to native code in this process."""

from __future__ import annotations

from rlx_py.backends.base import Array, Cost, KernelTime
from rlx_py.backends.llvm.compiling import no_collector
from rlx_py.backends.llvm.jit import CompiledProgram, compile_program
from rlx_py.backends.llvm.layout import arena_bytes
from rlx_py.backends.llvm.targets import Target, host, tile_target
from rlx_py.backends.llvm.timing import kernel_times
from rlx_py.ir.graph.graph import Graph
from rlx_py.ir.loops.program import Program
from rlx_py.passes.analysis.cost import bytes_moved, flops
from rlx_py.passes.analysis.steps import report_text
from rlx_py.passes.pipeline import lowered, scheduled


def program_for(graph: Graph, target: Target, *, fast_math: bool = False) -> Program:
    """The scheduled, planned loops of a graph on a target."""
    return planned(lowered(graph, fast_math=fast_math), target)


def planned(program: Program, target: Target) -> Program:
    """The loops scheduled for a target, with the places of their buffers."""
    return scheduled(program, tile_target(target))


class CpuRunner:
    """Native code of one graph."""

    def __init__(self, program: Program, compiled: CompiledProgram) -> None:
        self.program, self.compiled = program, compiled

    def run(self, arrays: dict[str, Array], out: dict[str, Array]) -> None:
        """One foreign call."""
        self.compiled.run(arrays, out)

    def kernel_times(self, arrays: dict[str, Array], out: dict[str, Array]
                     ) -> tuple[KernelTime, ...]:
        """Each kernel compiled as a function of its own, on the values that those before left."""
        return kernel_times(self.compiled, arrays, out)

    def cost(self) -> Cost:
        """Counted from the loops."""
        return Cost(flops(self.program), bytes_moved(self.program),
                    arena_bytes(self.program, self.compiled.threads), len(self.program.kernels))


class CpuBackend:
    """backend="cpu"."""

    name, exports = "cpu", True

    def compile(self, graph: Graph, *, threads: int | None = None, fast_math: bool = False,
                cache: bool = True) -> CpuRunner:
        """Machine code for this process."""
        target = host()
        with no_collector():
            program = program_for(graph, target, fast_math=fast_math)
            compiled = compile_program(program, target=target, threads=threads, cache=cache)
        report_text(f"{graph.name}-llvm", compiled.text, 5)
        return CpuRunner(program, compiled)
