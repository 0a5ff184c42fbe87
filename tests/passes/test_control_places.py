"""Branches, whiles and loops at every place of a loop's body, their conditions from everywhere:
the memory that they read is theirs."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rlx_py as rlx
from rlx_py.ir.nodes.node import Node
from support.control import Array, agree, check_modes, feed_of

STEPS, SIZE = 4, 3
PLACES = ("alone", "first", "middle", "last")
CONDITIONS = ("input", "slice", "mask", "carry", "computed")
AROUND = ("nothing", "loop", "branch")


def branch(holds: Node, v: Node, w: Node) -> Node:
    return rlx.cond(holds, lambda a: rlx.sin(a) * w + 1, lambda a: a * 0.5 - w, v)


def repeat(holds: Node, v: Node, w: Node) -> Node:
    """At most two steps, the first where `holds`: the condition is a carry."""
    def body(c: Any) -> Any:
        return rlx.tanh(c[0] * w) + c[0] * 0.5, (c[0].sum() < 0.3) & (c[2] < 1), c[2] + 1

    return rlx.while_loop(lambda c: c[1], body, (v, holds, rlx.constant(0)), max_steps=3)[0]


def steps_inside(holds: Node, v: Node, w: Node) -> Node:
    """A branch that stands first in a loop that stands here."""
    return rlx.scan(lambda c, _: (branch(holds, c, w), None), v, length=2)[0]


MAKE = {"branch": branch, "while": repeat, "scan": steps_inside}


class Leaves:
    """The graph under construction and its leaves."""

    def __init__(self, name: str) -> None:
        self.g = rlx.Graph(name)
        self.v, self.w = (self.g.param(k, (SIZE,), rlx.f64) for k in "vw")
        self.xs = self.g.param("xs", (STEPS, SIZE), rlx.f64)
        self.flag = self.g.input("flag", (), rlx.bool_)
        self.flags = self.g.input("flags", (STEPS,), rlx.bool_)

    def loop(self, v: Node, flag: Node, body: Callable[[Node, Node, dict[str, Node]], Any],
             reverse: bool = False) -> Node:
        """A scan whose body gets v, its slice of xs, and conditions by where they come from."""
        def step(c: Any, x: Any) -> Any:
            v, held = c
            holds = {"input": flag, "slice": x[1], "mask": x[2], "carry": held,
                     "computed": v.sum() > 0}
            return body(v, x[0], holds)

        masks = self.xs[:, 0] > 0.1
        return rlx.scan(step, (v, flag), (self.xs, self.flags, masks), reverse=reverse)[0][0]

    def graph(self, around: str, whole: Callable[[Node, Node], Node]) -> rlx.Graph:
        """whole(v, flag), in a loop or a branch or bare, and a loss."""
        if around == "loop":
            y = rlx.scan(lambda c, f: (rlx.tanh(whole(c, f)), None), self.v, self.flags[:2])[0]
        elif around == "branch":
            y = rlx.cond(self.flag, lambda a: whole(a, self.flags[1]), lambda a: a * 2, self.v)
        else:
            y = whole(self.v, self.flag)
        self.g.output("y", y)
        self.g.output("loss", (y * y).sum())
        return self.g


def placed(place: str, kind: str, condition: str, around: str) -> rlx.Graph:
    """One branch, while or loop at a place of the body."""
    leaves = Leaves(f"{place}_{kind}_{condition}_{around}")

    def body(v: Node, x: Node, holds: dict[str, Node]) -> Any:
        after = holds["carry"] if place == "alone" else ~holds["carry"]
        if place in ("middle", "last"):
            v = rlx.tanh(v + x)
        v = MAKE[kind](holds[condition], v, leaves.w)
        if place in ("middle", "first"):
            v = rlx.tanh(v * leaves.w + x)
        return (v, after), None

    return leaves.graph(around, lambda v, flag: leaves.loop(v, flag, body))


def feeds(g: rlx.Graph) -> list[dict[str, Array]]:
    return [{**feed_of(g), "flag": np.array(flag), "flags": np.array([flag, True, False, True])}
            for flag in (True, False)]


@pytest.mark.parametrize(("place", "kind", "condition"),
                         list(product(PLACES, ("branch", "while"), CONDITIONS)))
def test_a_choice_anywhere_in_a_body_reads_what_was_written(place: str, kind: str,
                                                            condition: str) -> None:
    for around in AROUND:
        g = rlx.value_and_grad(placed(place, kind, condition, around), "loss")
        for feed in feeds(g):
            agree(g, feed)


def randomly(seed: int, size: int) -> rlx.Graph:
    """A body of up to three statements and a loop around it, the same for the same numbers."""
    rng = random.Random(seed)
    leaves = Leaves(f"random{seed}")

    def statements(v: Node, x: Node, holds: dict[str, Node], depth: int) -> Node:
        for _ in range(rng.randint(1, size)):
            kind, flag = rng.choice((*MAKE, "body", "both")), holds[rng.choice(CONDITIONS)]
            if kind in MAKE:
                v = MAKE[kind](flag, v, leaves.w)
            elif kind == "both" and depth:
                v = rlx.cond(flag, lambda a: statements(a, x, holds, depth - 1),
                             lambda a: statements(a, x, holds, depth - 1), v)
            elif kind == "body" and depth:
                v = leaves.loop(v, flag, lambda v, x, holds: ((rlx.tanh(statements(
                    v, x, holds, depth - 1)), ~holds["carry"]), None), rng.random() < 0.5)
            else:
                v = rlx.tanh(v + x)
        return v

    def body(v: Node, x: Node, holds: dict[str, Node]) -> Any:
        held = rng.choice([holds["carry"], ~holds["carry"], holds["mask"], v.sum() < 0])
        return (rlx.tanh(statements(v, x, holds, 2)), held), None

    return leaves.graph(rng.choice(AROUND), lambda v, flag: leaves.loop(v, flag, body))


@settings(max_examples=12)
@given(st.integers(0, 100_000), st.integers(1, 3))
def test_random_choices_in_random_places(seed: int, size: int) -> None:
    g = randomly(seed, size)
    feed = {**feed_of(g), "flags": np.array([True, False, True, True])}
    agree(rlx.value_and_grad(g, "loss"), feed, factor=100)
    check_modes(g, feed, ["v", "w", "xs"], factor=1000)


def test_a_branch_first_in_a_loop_over_masks() -> None:
    g = rlx.Graph("masks")
    x = g.input("x", (6,), rlx.f64)
    f, _ = rlx.scan(lambda s, m: (rlx.cond(m, lambda v: rlx.sin(v) + 2.0, lambda v: v * 3.0, s),
                                  None), rlx.constant(np.float64(1)), x > 0.0)
    g.output("f", f)
    given = np.array([1, -1, 1, 1, -1, 1.0])
    wanted = 1.0
    for positive in given > 0:
        wanted = np.sin(wanted) + 2 if positive else wanted * 3
    assert wanted == pytest.approx(2.694791, abs=1e-6)
    assert float(rlx.compile(g)(x=given).f) == pytest.approx(wanted, rel=1e-14)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_power_under_a_carried_boolean(order: Sequence[int]) -> None:
    """d x⁴ at 3 is 108, wherever the boolean lies among the carries."""
    g = rlx.Graph("power")
    x, n = g.param("x", (), rlx.f64), g.input("n", (), rlx.f64)
    flag, value = order

    def body(c: Any, _: Any) -> Any:
        made = rlx.cond(c[flag], lambda v: v * x, lambda v: v, c[value])
        return tuple(c[flag] if k == flag else made for k in range(2)), None

    init = (n > 0, rlx.constant(np.float64(1)))
    last, _ = rlx.scan(body, (init[flag], init[value]), length=4)
    g.output("f", last[value])
    exe = rlx.compile(rlx.value_and_grad(g, of="f"))
    assert float(exe(x=np.array(3.0), n=np.array(1.0)).grad_x) == 108
    assert float(exe(x=np.array(3.0), n=np.array(-1.0)).grad_x) == 0
