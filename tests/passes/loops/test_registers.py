"""Programs for every register width, made anywhere: sound, small, and the same numbers on all."""

from __future__ import annotations

import numpy as np
import pytest

import rlx_py as rlx
from benchmarks.case import case_names, load_case
from rlx_py.backends.llvm.backend import lowered, planned
from rlx_py.ir.base.types import f32
from rlx_py.ir.graph.evaluate import evaluate
from rlx_py.ir.loops.copying import walk
from rlx_py.ir.loops.interpret import interpret
from rlx_py.ir.loops.program import Program
from rlx_py.passes.analysis.cost import bytes_moved, flops
from support.loop_programs import run_native
from support.machines import MACHINES, levels
from support.samples import SAMPLES, samples_of
from support.samples.sample import Sample
from support.sweep import Arrays, assert_near, fresh, same_bits, with_gradients

OPS = list(dict.fromkeys(s.op.name for s in SAMPLES))
INTERPRETED = 300  # scalar operations, and statements, up to which Python runs a program
WORK = 1 << 16  # bytes by which what blocks copy may differ from machine to machine


def graph_of(s: Sample) -> tuple[rlx.Graph, Arrays]:
    """A sample in f32 where it may be, with its gradients, and its arrays."""
    dtype = f32 if f32 in s.dtypes() else next(s.dtypes())
    g, feed = s.graph(dtype), s.feed(dtype)
    if not s.op.differentiable:
        return g, feed
    both = with_gradients(g)
    return both, {**feed, **fresh(both, g, np.random.default_rng(0))}


def bounded(programs: list[Program]) -> None:
    """No machine moves much more than another, or holds much more: half more, but for windows that
    several blocks share, which narrow registers copy whole."""
    for of, factor in ((bytes_moved, 1.5), (lambda p: p.arena, 2.5)):
        found = [of(p) for p in programs]
        assert max(found) <= factor * min(found) + WORK
    assert all(p.scratch <= 4 << 20 for p in programs)


@pytest.mark.parametrize("name", OPS)
def test_every_op_on_every_machine(name: str) -> None:
    for i, s in enumerate(samples_of(name)):
        g, feed = graph_of(s)
        loops = lowered(g)
        programs = [planned(loops, m) for m in MACHINES.values()]  # conftest checks the plans
        bounded(programs)
        length = sum(1 for k in programs[0].kernels for _ in walk(k.body))
        if i == 0 and max(length, flops(programs[0])) <= INTERPRETED:
            found = [interpret(p, feed) for p, m in zip(programs, MACHINES.values(), strict=True)
                     if m.fma]  # without it every step of a product rounds twice
            for other in found[1:]:
                same_bits(found[0], other)


@pytest.mark.parametrize("name", case_names())
def test_every_benchmark_on_every_machine(name: str) -> None:
    case = load_case(name)
    made = case.rlx_step(rlx, case.data())
    g = made.graph
    if made.optimizer is not None:
        g = rlx.train_step(g, of="loss", optimizer=made.optimizer)
    loops = lowered(g)
    bounded([planned(loops, m) for m in MACHINES.values()])


@pytest.mark.parametrize("name", OPS[::4])
def test_native_code_of_every_level(name: str) -> None:
    """Every x86 level that this machine has; the highest two give the same bits."""
    g, feed = graph_of(samples_of(name)[-1])
    loops = lowered(g)
    want, last = evaluate(g, feed), None
    for level, target in levels().items():
        found = run_native(planned(loops, target), feed, target=target)
        assert_near(found, want, f"{name} {level}", factor=10)
        if target.fma and last is not None:
            same_bits(last, found)
        last = found if target.fma else None
