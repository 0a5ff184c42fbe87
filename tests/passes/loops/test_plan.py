"""The plan of memory, checked by running it: buffers in one arena give what buffers apart give.
And its checker, which must see what a wrong plan does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import rlx_py as rlx
from rlx_py.backends.llvm.backend import program_for
from rlx_py.backends.llvm.targets import host
from rlx_py.ir.loops.index import Index, Var, as_index
from rlx_py.ir.loops.interpret import interpret
from rlx_py.ir.loops.kernel import Buffer, For, Load, Scope, Stmt, Store
from rlx_py.passes.analysis.accesses import fills, replaces
from rlx_py.passes.loops import memory
from rlx_py.passes.loops.memory import plan_memory
from rlx_py.passes.loops.plan_check import check_plan
from support.loop_programs import let, literal

Build = Callable[[rlx.Graph], None]


def mlp(g: rlx.Graph) -> None:
    x = g.input("x", (3, 4))
    h = rlx.tanh(x @ g.param("w", (4, 5)) + g.param("b", (5,)))
    g.output("loss", ((rlx.nn.layer_norm(h, (5,)) * h) ** 2).mean())


def recurrent(g: rlx.Graph) -> None:
    x, w = g.input("x", (5, 2, 3)), g.param("w", (3, 3))
    h, ys = rlx.scan(lambda h, a: (rlx.tanh(h @ w + a),) * 2, rlx.zeros((2, 3)), x)
    g.output("loss", (ys * ys).mean() + h.sum())


def segments(g: rlx.Graph) -> None:
    x, w = g.input("x", (7, 3)), g.param("w", (3, 3))
    h, ys = rlx.scan(lambda h, a: (rlx.tanh(h @ w + a), h * a), rlx.zeros((3,)), x,
                     checkpoint=rlx.every(3))
    g.output("loss", (ys * ys).mean() + h.sum())


def swapped(g: rlx.Graph) -> None:
    x, w = g.input("x", (4, 3)), g.param("w", (3,))
    (a, b), _ = rlx.scan(lambda c, v: ((c[1] * w, c[0] + v), None), (x[0], x[1]), x)
    g.output("loss", (a * b).sum())


def branches(g: rlx.Graph) -> None:
    x, w = g.input("x", (3,)), g.param("w", (3,))
    y = rlx.cond(x.sum() > 0, lambda a: rlx.sin(a * w), lambda a: a * a - w, x)
    z = rlx.while_loop(lambda c: c.sum() < 9, lambda c: c + c * c + 0.1, y * y, max_steps=60)
    g.output("loss", z.sum())


@pytest.mark.parametrize("build", [mlp, recurrent, segments, swapped, branches])
@pytest.mark.parametrize("derive", [lambda g: g, lambda g: rlx.value_and_grad(g, of="loss"),
                                    lambda g: rlx.hvp(g, of="loss")], ids=["value", "grad", "hvp"])
def test_planned_memory_gives_the_same_bits(build: Build, derive: Any) -> None:
    g = rlx.Graph(build.__name__)
    build(g)
    graph = derive(g)
    program = program_for(graph, host())
    check_plan(program)
    rng = np.random.default_rng(0)
    arrays = {k: rng.normal(size=n.shape).astype(np.float32) for k, n in graph.leaves.items()}
    apart = interpret(replace(program, offsets={}), arrays)
    planned = interpret(program, arrays)
    for name, value in apart.items():
        assert value.tobytes() == planned[name].tobytes(), name
        assert np.isfinite(value).all(), name


def test_a_plan_that_overlaps_is_seen_by_running_it() -> None:
    g = rlx.Graph()
    recurrent(g)
    graph = rlx.value_and_grad(g, of="loss")
    program = plan_memory(program_for(graph, host()))
    arrays = {k: np.full(n.shape, 0.3, np.float32) for k, n in graph.leaves.items()}
    good = interpret(program, arrays)
    arena = [b for b in program.offsets if b.scope is Scope.ARENA]
    bad = replace(program, offsets={**program.offsets, **dict.fromkeys(arena, 0)})
    with pytest.raises(rlx.VerifyError):
        check_plan(bad)
    found = interpret(bad, arrays)
    assert any(good[k].tobytes() != found[k].tobytes() for k in good)


def masked(g: rlx.Graph) -> None:
    x = g.input("x", (6,), rlx.f64)
    f, _ = rlx.scan(lambda s, m: (rlx.cond(m, lambda v: rlx.sin(v) + 2.0, lambda v: v * 3.0, s),
                                  None), rlx.constant(np.float64(1)), x > 0.0)
    g.output("loss", f)


def held(g: rlx.Graph) -> None:
    """A condition that every step reads and none writes."""
    x = g.input("x", (3,), rlx.f64)

    def body(c: Any, _: Any) -> Any:
        return (c[0], rlx.cond(c[0], rlx.sin, lambda v: v * x, c[1])), None

    (_, y), _ = rlx.scan(body, (x.sum() > 0, x), length=4)
    g.output("loss", y.sum())


@pytest.mark.parametrize("build", [masked, held])
def test_what_a_loop_reads_first_is_alive_in_all_of_it(build: Build,
                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    g = rlx.Graph(build.__name__)
    build(g)

    def short(self: Any, steps: set[int]) -> tuple[int, int]:
        """The first thing in a loop counts as if it stood before it."""
        first, last = min(steps), max(steps)
        for start, stop in self.loops:
            inside = sum(start + 2 < s < stop for s in steps)
            if 0 < inside < len(steps):
                first, last = min(first, start), max(last, stop)
        return first, last

    monkeypatch.setattr(memory._Timeline, "_span", short)
    with pytest.raises(rlx.VerifyError, match="writes .* over .*bool.* alive"):
        check_plan(memory.plan_memory(program_for(g, host())))


@pytest.mark.parametrize("build", [mlp, recurrent, segments, swapped, branches, masked, held])
def test_a_plan_that_the_checker_lets_pass_gives_the_same_bits(build: Build) -> None:
    """Buffers are put in each other's places at random; most such plans are wrong."""
    g = rlx.Graph(build.__name__)
    build(g)
    graph = rlx.value_and_grad(g, of="loss") if build not in (masked, held) else g
    program = program_for(graph, host())
    rng = np.random.default_rng(1)
    arrays = {k: rng.normal(size=n.shape).astype(n.dtype.numpy) for k, n in graph.leaves.items()}
    good = interpret(program, arrays)
    arena = [b for b in program.offsets if b.scope is Scope.ARENA]
    passed = 0
    for _ in range(min(60, len(arena) ** 2)):
        b, other = rng.choice(len(arena), 2)
        moved = replace(program, arena=program.arena + 4096, offsets={
            **program.offsets, arena[b]: program.offsets[arena[other]]})
        try:
            check_plan(moved)
        except rlx.VerifyError:
            continue
        passed += 1
        found = interpret(moved, arrays)
        assert all(good[k].tobytes() == found[k].tobytes() for k in good)
    assert passed


def nest(extents: tuple[int, ...], inner: Callable[[list[Index]], list[Stmt]]) -> tuple[Stmt, ...]:
    """Statements inside loops."""
    loops = [Var(f"i{k}", n) for k, n in enumerate(extents)]
    body: tuple[Stmt, ...] = tuple(inner([as_index(v) for v in loops]))
    for var in reversed(loops):
        body = (For(var, body),)
    return body


OLD, NEW = (Buffer(name, rlx.f32, 12, Scope.ARENA) for name in ("old", "new"))
ONE = literal(1, rlx.f32)


def moving(read: Callable[[list[Index]], Index], write: Callable[[list[Index]], Index],
           late: bool = False) -> tuple[Stmt, ...]:
    """A kernel that reads `old` and writes `new`; late: in the other order."""
    def inner(i: list[Index]) -> list[Stmt]:
        body: list[Stmt] = []
        value = let(body, Load(OLD, read(i)))
        store = Store(NEW, write(i), value)
        return [store, *body] if late else [*body, store]

    return nest((4, 3), inner)


def row(i: list[Index]) -> Index:
    return i[0] * 3 + i[1]


@pytest.mark.parametrize(("body", "wanted"), [
    (moving(row, row), True),
    (moving(lambda i: i[0] + i[1] * 4, lambda i: i[0] + i[1] * 4), True),
    (moving(row, row, late=True), False),
    (moving(row, lambda i: row(i) * -1 + 11), False),  # another place
    (moving(lambda i: i[0], lambda i: i[0]), False),  # the second step reads what the first wrote
    (moving(lambda i: i[0] + i[1], lambda i: i[0] + i[1]), False),
    (moving(lambda i: row(i) // 2, lambda i: row(i) // 2), False),
    (moving(lambda i: row(i) % 12, lambda i: row(i) % 12), True),
], ids=str)
def test_who_may_stand_in_whose_place(body: tuple[Stmt, ...], wanted: bool) -> None:
    assert replaces(body, OLD, NEW) is wanted


def filling(*kernels: Callable[[list[Index]], Index], extents: tuple[int, ...] = (4, 3),
            guard: Any = None, combine: str | None = None) -> tuple[Stmt, ...]:
    return tuple(s for k in kernels for s in nest(
        extents, lambda i, k=k: [Store(NEW, k(i), ONE, combine, guard)]))  # type: ignore[misc]


@pytest.mark.parametrize(("body", "wanted"), [
    (filling(row), True),
    (filling(lambda i: i[0] + i[1] * 4), True),
    (filling(row, guard=literal(True, rlx.bool_)), False),
    (filling(lambda i: i[0] * 2 + i[1]), False),
    (filling(lambda i: i[0] * 3 + i[1] * 2, extents=(3, 2)), False),
    (filling(lambda i: i[0] * 2, lambda i: i[0] * 2 + 1, extents=(6,)), True),  # two halves
    (filling(lambda i: i[0] * 2, extents=(6,)), False),
    (filling(row, extents=(4, 0)), False),
], ids=str)
def test_what_a_kernel_writes_from_end_to_end(body: tuple[Stmt, ...], wanted: bool) -> None:
    assert fills(body, NEW) is wanted


def test_memory_that_a_routine_works_in_holds_nothing_from_step_to_step() -> None:
    g = rlx.Graph("loop")
    a, xs = g.param("a", (3, 3), "f64"), g.input("xs", (4, 3, 3), "f64")

    def body(c: rlx.Node, x: rlx.Node) -> tuple[rlx.Node, rlx.Node]:
        return rlx.linalg.inv(c @ c.T + x @ x.T + 2 * np.eye(3)), c.sum()

    last, ys = rlx.scan(body, a, xs)
    g.output("loss", (last * last).sum() + ys.sum())
    program = program_for(rlx.grad(g, of="loss"), host())
    assert program.regions
    check_plan(program)
