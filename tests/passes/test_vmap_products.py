"""Products and convolutions batched over one operand alone, at sizes that are cut into blocks."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import rlx_py as rlx
from rlx_py.backends.llvm.backend import lowered, planned
from rlx_py.backends.llvm.targets import Target, tile_target
from rlx_py.ir.base.types import f32
from rlx_py.ir.loops.copying import walk
from rlx_py.ir.loops.index import Var, as_index
from rlx_py.ir.loops.kernel import Axis, Contract, For, Kernel, Read, Store
from rlx_py.ir.loops.local import Local
from rlx_py.ir.loops.program import Program
from rlx_py.ir.ops.nn.conv.conv import CONV, CONV_BACKWARD_INPUT, CONV_BACKWARD_WEIGHT
from rlx_py.passes.loops.products import expand_contract
from rlx_py.passes.loops.products.plan import make_plan
from rlx_py.passes.loops.products.shape import simplified
from support.machines import MACHINES
from support.products import loaded, port, sizes
from support.sweep import assert_near, run_compiled
from tests.passes.test_vmap import looped

SIZE = 5


@dataclass(frozen=True)
class Setting:
    """A convolution: extents of N, C, O, of each spatial axis and of the window, and how it steps.
    """

    batch: int
    inputs: int
    outputs: int
    sides: tuple[int, ...]
    taps: tuple[int, ...]
    stride: int
    dilation: int
    pad: int
    groups: int

    def __str__(self) -> str:
        sides, taps = ("x".join(map(str, x)) for x in (self.sides, self.taps))
        return (f"{self.batch}x{self.inputs}x{sides}-{self.outputs}x{taps}-s{self.stride}"
                f"d{self.dilation}p{self.pad}g{self.groups}")

    def graph(self, kind: str) -> rlx.Graph:
        """Inputs a, b: x, w of the forward; y, w of the input's, x, y of the weight's gradient."""
        rank = len(self.sides)
        every: dict[str, Any] = {
            "stride": (self.stride,) * rank, "dilation": (self.dilation,) * rank,
            "low": (self.pad,) * rank, "high": (self.pad,) * rank, "groups": self.groups}
        x = (self.batch, self.inputs, *self.sides)
        w = (self.outputs, self.inputs // self.groups, *self.taps)
        y = (self.batch, self.outputs, *(
            (n + 2 * self.pad - self.dilation * (k - 1) - 1) // self.stride + 1
            for n, k in zip(self.sides, self.taps, strict=True)))
        g = rlx.Graph(kind)
        first, second = {"forward": (x, w), "input": (y, w), "weight": (x, y)}[kind]
        a, b = g.input("a", first, f32), g.input("b", second, f32)
        if kind == "forward":
            g.output("out", CONV(a, b, **every))
        elif kind == "input":
            g.output("out", CONV_BACKWARD_INPUT(a, b, shape=self.sides, **every))
        else:
            g.output("out", CONV_BACKWARD_WEIGHT(a, b, size=self.taps, **every))
        return g


def settings(rank: int, count: int) -> list[Setting]:
    """Random settings of a rank, the same on every run."""
    rng = random.Random(rank)
    found: dict[Setting, None] = {}
    while len(found) < count:
        groups = rng.choice([1, 1, 1, 2, 4])
        sides = tuple(rng.choice({1: [16, 61, 250], 2: [7, 16, 28], 3: [5, 8]}[rank])
                      for _ in range(rank))
        taps = tuple(rng.choice([1, 2, 3, 3, 5] if rank < 3 else [1, 2, 3]) for _ in range(rank))
        dilation = rng.choice([1, 1, 2])
        if any(dilation * (k - 1) >= n for n, k in zip(sides, taps, strict=True)):
            continue
        channels = [1, 3, 8, 16, 32] if rank < 3 else [1, 2, 8, 16]
        inputs, outputs = (groups * rng.choice(channels) for _ in range(2))
        found[Setting(rng.choice([1, 2, 8]), inputs, outputs, sides, taps, rng.choice([1, 1, 2, 3]),
                      dilation, rng.choice([0, 1, 2]), groups)] = None
    return list(found)


SETTINGS = [s for rank, count in ((1, 25), (2, 35), (3, 12)) for s in settings(rank, count)]
KINDS = ("forward", "input", "weight")
EINSUMS = ("mk,kn->mn", "km,kn->mn", "mk,nk->nm", "k,kn->n", "mk,k->m", "bmk,bkn->bmn",
           "mbk,nbk->bmn", "mkr,rkn->mn")
EXTENTS = (sizes(b=3, m=7, n=33, k=40, r=5), sizes(b=2, m=130, n=65, k=300, r=3),
           sizes(b=1, m=9, n=8, k=2100, r=2))


def einsum(form: str, extents: dict[str, int]) -> rlx.Graph:
    """A product of inputs a and b."""
    g = rlx.Graph(form)
    given, _ = form.split("->")
    operands = [g.input(name, tuple(extents[x] for x in letters), f32)
                for name, letters in zip("ab", given.split(","), strict=True)]
    g.output("out", rlx.einsum(form, *operands))
    return g


def check(g: rlx.Graph, axes: dict[str, int], run: bool) -> None:
    """Its batched program has a sound plan for every machine, and one order of sums; run: native
    code of this machine gives what a loop over slices gives."""
    batched = rlx.vmap(g, in_axes=axes, size=SIZE)
    program = lowered(batched)
    for machine in MACHINES.values():
        planned(program, machine)  # which conftest checks
    contracts = [simplified(s) for k in program.kernels for s in walk(k.body)
                 if isinstance(s, Contract)]
    for contract in contracts:
        assert len({sums(contract, machine) for machine in MACHINES.values()}) == 1
    if run:
        rng = np.random.default_rng(0)
        feed = {k: rng.standard_normal(n.shape).astype(np.float32) / 8
                for k, n in batched.inputs.items()}
        assert_near(run_compiled(batched, feed, threads=2), looped(g, feed, axes, SIZE), factor=10)


def sums(contract: Contract, machine: Target) -> tuple[int, int] | None:
    """Into how many parts a machine cuts its sums, and how long they are."""
    plan = make_plan(contract, tile_target(machine))
    if plan is None:
        return None
    return plan.parts, plan.k.size * -(-plan.k.full // plan.parts) if plan.parts > 1 else 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_convolutions_batched_over_one_operand(setting: Setting, kind: str) -> None:
    run = SETTINGS.index(setting) % 9 == KINDS.index(kind)
    for name in "ab":
        check(setting.graph(kind), {name: 0}, run)


@pytest.mark.parametrize("extents", EXTENTS, ids=["small", "wide", "deep"])
@pytest.mark.parametrize("form", EINSUMS)
def test_products_batched_over_one_operand(form: str, extents: dict[str, int]) -> None:
    for name in "ab":
        for axis in (0, -1):
            check(einsum(form, extents), {name: axis}, axis == 0 and extents["k"] < 2000)


def test_an_operand_of_overlapping_windows_is_copied_where_no_block_may_be_cut() -> None:
    """The kernel's own input gradient of an ensemble: the store that adds leaves no cut."""
    layer = Setting(2, 4, 6, (9, 9), (3, 3), 2, 1, 1, 1)
    check(layer.graph("input"), {"b": 0}, True)


@pytest.mark.parametrize("shape", [(3, 8, 2, 2), (16, 3, 3, 3)])
def test_ensembles_of_transposed_convolutions_train(shape: tuple[int, ...]) -> None:
    """Forward and both gradients of conv_transpose2d with kernels of their own."""
    g = rlx.Graph("decoder")
    x, w = g.input("x", (4, shape[0], 8, 8)), g.input("w", shape)
    g.output("out", rlx.square(rlx.nn.conv_transpose2d(x, w, stride=2, padding=1)).sum())
    rng = np.random.default_rng(0)
    for graph in (g, rlx.grad(g, of="out", wrt=["x", "w"])):
        feed = {"x": rng.standard_normal(x.shape).astype(np.float32),
                "w": rng.standard_normal((SIZE, *shape)).astype(np.float32) / 8}
        batched = rlx.vmap(graph, in_axes={"w": 0}, size=SIZE)
        assert_near(run_compiled(batched, feed, threads=2), looped(graph, feed, {"w": 0}, SIZE),
                    factor=10)


def test_parts_that_meet_are_added_in_order() -> None:
    """Elements of a batch whose sums reach one element are no work for two threads."""
    taps, places, k = 64, 500, 1100
    t, p, q = Var("t", taps), Var("p", places), Var("q", k)
    a, b, out = (port(x, f32, shape) for x, shape in (
        ("a", (taps, k)), ("b", (taps, k, places)), ("out", (taps + places - 1,))))
    acc = Local(f32)
    contract = Contract(
        (t,), (), (p,), (q,), loaded(a.buffer, as_index(t) * k + as_index(q), f32),
        loaded(b.buffer, (as_index(t) * k + as_index(q)) * places + as_index(p), f32), acc,
        (Store(out.buffer, as_index(t) + as_index(p), Read(acc), "add"),))
    program = Program("overlap", (Kernel("k", (contract,)),), (a, b), (out,))
    for machine in MACHINES.values():
        (kernel,) = expand_contract(program, tile_target(machine)).kernels
        for loop in kernel.body:
            adds = any(isinstance(s, Store) and s.combine for s in walk((loop,)))
            assert not (adds and isinstance(loop, For) and loop.axis is Axis.PARALLEL)
