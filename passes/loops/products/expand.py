"""Contract statements replaced by loops."""

from __future__ import annotations

from dataclasses import replace

from rlx_py.ir.loops.kernel import Axis, Contract, For, If, Stmt, While
from rlx_py.ir.loops.program import Program
from rlx_py.passes.loops.products.plain import plain_loops, without_sum
from rlx_py.passes.loops.products.plan import make_plan
from rlx_py.passes.loops.products.shape import Body, simplified, size
from rlx_py.passes.loops.products.target import TileTarget
from rlx_py.passes.loops.products.tiled import Tiled


def expand_contract(program: Program, target: TileTarget) -> Program:
    """The program with every product as copies, register tiles and epilogue loops.

    How a sum is ordered depends on the product's extents and on how its operands lie, never on the
    number of threads or on the epilogue. Where the target has no fused multiply-add, each step of a
    sum rounds twice.
    """
    kernels = tuple(replace(k, body=expand_body(k.body, target, True)) for k in program.kernels)
    return replace(program, kernels=kernels)


def expand_body(body: Body, target: TileTarget, alone: bool) -> Body:
    """A body without contracts; `alone` where no PARALLEL loop is around it."""
    found: list[Stmt] = []
    for s in body:
        if isinstance(s, Contract):
            found += loops(s, target, alone)
        elif isinstance(s, For):
            inside = alone and s.axis is not Axis.PARALLEL
            found.append(replace(s, body=expand_body(s.body, target, inside)))
        elif isinstance(s, While | If):
            found.append(replace(s, body=expand_body(s.body, target, alone)))
        else:
            found.append(s)
    return tuple(found)


def loops(c: Contract, target: TileTarget, alone: bool) -> Body:
    """The loops of one product; none where it has no result."""
    if 0 in map(size, (c.batch, c.m, c.n)):
        return ()
    c = simplified(without_sum(c) if size(c.k) == 0 else c)
    plan = make_plan(c, target)
    if plan is None:
        return plain_loops(c, target, alone)
    return Tiled(plan, target, alone).body()
