"""The plan of memory, checked by running it: buffers in one arena give what buffers apart give."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import rlx_py as rlx
from rlx_py.backends.llvm.backend import program_for
from rlx_py.backends.llvm.targets import host
from rlx_py.ir.interpret import interpret
from rlx_py.ir.kernel import Scope
from rlx_py.passes.memory import check_plan, plan_memory

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
