"""backend="cpu": the pipeline from a graph to native code in this process."""

from __future__ import annotations

from functools import partial

from rlx_py.backends.base import Array, Cost, KernelTime
from rlx_py.backends.llvm.compiling import no_collector
from rlx_py.backends.llvm.jit import CompiledProgram, compile_program
from rlx_py.backends.llvm.layout import arena_bytes
from rlx_py.backends.llvm.targets import Target, host, tile_target
from rlx_py.backends.llvm.timing import kernel_times
from rlx_py.ir.base.config import CONFIG
from rlx_py.ir.graph.graph import Graph
from rlx_py.ir.loops.program import Program
from rlx_py.passes.analysis.cost import bytes_moved, flops
from rlx_py.passes.loops.cpu_schedule import CpuTarget, schedule
from rlx_py.passes.loops.dedupe import once_each
from rlx_py.passes.loops.expand_math import expand_math
from rlx_py.passes.loops.memory import plan_memory
from rlx_py.passes.loops.plan_check import check_plan
from rlx_py.passes.loops.products import expand_contract
from rlx_py.passes.lower.dead_code import pruned
from rlx_py.passes.lower.hoisting import hoist_products
from rlx_py.passes.lower.loop_fusion import join_loops
from rlx_py.passes.lower.lower import lower
from rlx_py.passes.pipeline import Step, report_text, require_known, run_steps
from rlx_py.passes.rewrite.decompose import decompose
from rlx_py.passes.rewrite.simplify import NAMES, simplify

PASSES = ("simplify", "decompose", "prune", "join_loops", "hoist_products", "schedule",
          "expand_contract", "expand_math", "plan_memory")
require_known(CONFIG.disable, (*PASSES, *NAMES))


def program_for(graph: Graph, target: Target, *, fast_math: bool = False) -> Program:
    """The scheduled, planned loops of a graph on a target."""
    return planned(lowered(graph, fast_math=fast_math), target)


def lowered(graph: Graph, *, fast_math: bool = False) -> Program:
    """The loops of a graph, the same for every target."""
    plain = partial(run_steps, steps=(
        ("simplify", partial(simplify, fast_math=fast_math)),
        ("decompose", decompose),
        ("simplify", partial(simplify, fast_math=fast_math)),
    ))

    def primitive(graph: Graph) -> Graph:
        first = plain(graph)
        loops = run_steps(first, (
            ("prune", partial(pruned, primitive=plain)),
            ("join_loops", join_loops),
            ("hoist_products", hoist_products),
        ))
        return first if loops is first else plain(loops)  # most graphs have none

    return lower(primitive(graph), primitive)


def planned(program: Program, target: Target) -> Program:
    """The loops scheduled for a target, with the places of their buffers."""
    program = run_steps(_scheduled(program, target), (("plan_memory", plan_memory),))
    if CONFIG.check:
        check_plan(program)
    return program


def _scheduled(program: Program, target: Target) -> Program:
    """Kernel by kernel, each structure once."""
    steps: tuple[Step[Program], ...] = (
        ("schedule", partial(schedule, target=CpuTarget(target.vector_bytes))),
        ("expand_contract", partial(expand_contract, target=tile_target(target))),
        ("expand_math", expand_math),
    )
    if CONFIG.watches:  # whole programs, with their loops and branches, can be run and shown
        return run_steps(program, [(name, partial(once_each, passes=step))
                                   for name, step in steps])
    return once_each(program, partial(run_steps, steps=steps))


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
