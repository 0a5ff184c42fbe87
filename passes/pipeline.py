"""The one list of steps from a graph to a program for one machine."""

from __future__ import annotations

from functools import partial

from rlx_py.ir.base.config import CONFIG
from rlx_py.ir.graph.graph import Graph
from rlx_py.ir.loops.program import Program
from rlx_py.passes.analysis.steps import Step, report_text, require_known, run_steps
from rlx_py.passes.loops.cpu_schedule import CpuTarget, schedule
from rlx_py.passes.loops.dedupe import once_each
from rlx_py.passes.loops.expand_math import expand_math
from rlx_py.passes.loops.memory import plan_memory
from rlx_py.passes.loops.plan_check import check_plan
from rlx_py.passes.loops.products import expand_contract
from rlx_py.passes.loops.products.target import TileTarget
from rlx_py.passes.lower.dead_code import pruned
from rlx_py.passes.lower.fuse import Fusion
from rlx_py.passes.lower.hoisting import hoist_products
from rlx_py.passes.lower.loop_fusion import join_loops
from rlx_py.passes.lower.lower import lower
from rlx_py.passes.rewrite.decompose import decompose
from rlx_py.passes.rewrite.simplify import NAMES, simplify

# In the order in which they run; those on graphs run in bodies of loops and branches too. All but
# `lower` may be left out.
PASSES = ("simplify", "decompose", "prune", "join_loops", "hoist_products", "lower", "schedule",
          "expand_contract", "expand_math", "plan_memory")
require_known(CONFIG.disable, ({*PASSES, *NAMES} - {"lower"}))


def lowered(graph: Graph, *, fast_math: bool = False) -> Program:
    """The loops of a graph, the same for every machine."""
    plain = partial(run_steps, steps=(
        ("simplify", partial(simplify, fast_math=fast_math)),
        ("decompose", decompose),
        ("simplify", partial(simplify, fast_math=fast_math)),
    ))

    def primitive(graph: Graph) -> Graph:
        first: Graph = plain(graph)
        loops: Graph = run_steps(first, (
            ("prune", partial(pruned, primitive=plain)),
            ("join_loops", join_loops),
            ("hoist_products", hoist_products),
        ))
        return first if loops is first else plain(loops)  # most graphs have none

    whole = primitive(graph)
    if CONFIG.watches:
        report_text(f"{graph.name}-groups", f"{whole}\n{groups(whole)}", 4)
    program: Program = run_steps(whole, (("lower", partial(lower, bodies=primitive)),))
    return program


def groups(graph: Graph) -> str:
    """Which nodes of a primitive graph share a kernel, a line for each."""
    number = {n: f"%{i}" for i, n in enumerate(graph.nodes)}
    return "\n".join(f"group {g.number}: " + ", ".join(
        f"{number[m]} {m.op.name}" for m in g.members) for g in Fusion(graph).groups)


def scheduled(program: Program, machine: TileTarget) -> Program:
    """The loops scheduled for a machine, with the places of their buffers."""
    made: Program = run_steps(_for_machine(program, machine), (("plan_memory", plan_memory),))
    if CONFIG.check:
        check_plan(made)
    return made


def _for_machine(program: Program, machine: TileTarget) -> Program:
    """Kernel by kernel, each structure once."""
    steps: tuple[Step, ...] = (
        ("schedule", partial(schedule, target=CpuTarget(machine.vector_bytes))),
        ("expand_contract", partial(expand_contract, target=machine)),
        ("expand_math", expand_math),
    )
    if CONFIG.watches:  # whole programs, with their loops and branches, can be run and shown
        made: Program = run_steps(program, [(name, partial(once_each, passes=step))
                                            for name, step in steps])
        return made
    return once_each(program, partial(run_steps, steps=steps))
