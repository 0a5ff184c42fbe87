"""Random programs with masks of all shapes, on finite numbers: there "zero" and "ieee" are one.

A row that is taken for dead and is not would change a gradient, without a word.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import rlx_py as rlx
from rlx_py import nn
from rlx_py.ir.base.types import f64
from rlx_py.ir.graph.evaluate import evaluate
from rlx_py.ir.graph.graph import Graph
from rlx_py.ir.nodes.node import Node

Array = np.ndarray[Any, Any]
SIZE = 3  # of every axis, so that everything fits everything
PROGRAMS = 240
CHUNK = 20


class Program:
    """A graph that a seed chooses, with arrays for its leaves."""

    def __init__(self, seed: int) -> None:
        self.choice, self.rng = random.Random(seed), np.random.default_rng(seed)
        self.graph, self.arrays = Graph("program"), dict[str, Array]()
        self.masks: list[Node] = []
        self.values = [self.leaf(self.choice.choice([2, 3])) for _ in range(2)]
        for _ in range(self.choice.randrange(4, 13)):
            x = self.choice.choice(self.values[-5:])
            self.values.append(self.choice.choice(STEPS)(self, x))
        terms = [self.masked(y, 0.5) for y in self.choice.sample(self.values, 2)]
        a, b = ((rlx.sin(y) * self.rng.normal(size=y.shape)).sum() for y in terms)
        self.graph.output("loss", a + b)
        self.wrt = [k for k, a in self.arrays.items() if a.dtype == np.float64]

    def leaf(self, rank: int) -> Node:
        """A new input of floats."""
        name = f"x{len(self.arrays)}"
        self.arrays[name] = self.rng.normal(size=(SIZE,) * rank)
        return self.graph.input(name, self.arrays[name].shape, f64)

    def like(self, x: Node) -> Node:
        """Another value of the same shape."""
        return self.choice.choice([y for y in self.values if y.rank == x.rank])

    def matrix(self) -> Node:
        """A square matrix."""
        found = [y for y in self.values if y.rank == 2]
        return self.choice.choice([*found, self.leaf(2)])

    def axis(self, x: Node) -> int:
        """Any axis."""
        return self.choice.randrange(x.rank)

    def maybe(self, share: float) -> bool:
        """True in a share of cases."""
        return self.choice.random() < share

    def mask(self, rank: int) -> Node:
        """A mask that broadcasts: a new one, or one that is there, transposed, negated, folded."""
        fits = [m for m in self.masks if m.rank <= rank]
        if fits and self.maybe(0.6):
            m = self.choice.choice(fits)
            m = rlx.transpose(m, self.choice.sample(range(m.rank), m.rank))
        else:
            name = f"m{len(self.arrays)}"
            shape = (SIZE,) * self.choice.randint(0, rank)
            self.arrays[name] = self.rng.random(shape) < self.choice.choice([0.3, 0.6])
            m = self.graph.input(name, shape, rlx.bool_)
            self.masks.append(m)
        axes = self.choice.sample(range(rank), m.rank)
        wide = m.reshape(*(SIZE if a in axes else 1 for a in range(rank)))
        if self.maybe(0.3):
            wide = ~wide
        return rlx.any(wide, self.choice.randrange(rank), keepdims=True) if self.maybe(0.3) else \
            wide

    def masked(self, x: Node, share: float = 1.0) -> Node:
        """The value where a mask holds, in a share of cases."""
        return rlx.where(self.mask(x.rank), x, 0.0) if self.maybe(share) else x

    def contraction(self, x: Node) -> Node:
        """An einsum whose labels are shared, repeated and left out at random."""
        b = self.choice.choice(self.values)
        left = "abc"[:x.rank]
        right = "".join(self.choice.choice("abcde"[:x.rank + b.rank - 1]) for _ in range(b.rank))
        labels = sorted({*left, *right})
        out = self.choice.sample(labels, min(len(labels), self.choice.choice([2, 3])))
        return rlx.einsum(f"{left},{right}->{''.join(out)}", x, b)

    def loop(self, x: Node) -> Node:
        """A scan in which each step has a mask of its own."""
        w, late, own = self.matrix(), self.maybe(0.5), self.maybe(0.5)
        keep = rlx.broadcast_to(self.mask(x.rank), x.shape)

        def step(s: Node, given: tuple[Node, Node]) -> tuple[Node, Node]:
            now, keep = given
            h = rlx.where(keep, s, now if own else 0.0)
            return rlx.tanh((h + now if late else h) @ w), h * now

        last, ys = rlx.scan(step, self.like(x)[0], (x, keep))
        found: Node = ys + last if self.maybe(0.4) else ys
        return found

    def region(self, x: Node) -> Node:
        """A checkpoint under a mask from outside."""
        mask = self.mask(x.rank)
        found: Node = rlx.checkpoint(
            lambda a, b: rlx.where(mask, rlx.tanh(a * b), a))(x, self.like(x))
        return found

    def attention(self, x: Node) -> Node:
        """Scores that a mask sets to a number, then a softmax."""
        scores = x @ rlx.swapaxes(self.like(x), -1, -2)
        return nn.softmax(rlx.where(self.mask(x.rank), scores, -1e9)) @ self.like(x)

    def ignoring(self, x: Node) -> Node:
        """A loss with labels to ignore, for each row."""
        labels = self.rng.choice([-100, 0, 1], x.shape[:-1]).reshape(-1)
        loss = nn.cross_entropy(x.reshape(-1, SIZE), labels, reduction="none")
        return rlx.broadcast_to(loss.reshape(*x.shape[:-1], 1), x.shape)

    def chosen(self, x: Node) -> Node:
        """Rows chosen by what is differentiated."""
        rows = rlx.mean(self.like(x), tuple(range(1, x.rank)), keepdims=True) > 0.0
        return rlx.where(rows, x, 0.0) @ self.matrix()


STEPS: Sequence[Callable[[Program, Node], Node]] = (
    Program.masked, Program.masked, Program.contraction, Program.contraction, Program.loop,
    Program.region, Program.attention, Program.ignoring, Program.chosen,
    lambda p, x: rlx.where(p.mask(x.rank), x, p.like(x)),
    lambda p, x: x * p.mask(x.rank).astype(f64),
    lambda p, x: rlx.transpose(x, p.choice.sample(range(x.rank), x.rank)),
    lambda p, x: rlx.tanh(x) @ p.matrix(),
    lambda p, x: x @ rlx.swapaxes(p.like(x), -1, -2),
    lambda p, x: x * p.like(x),
    lambda p, x: rlx.concatenate([x, p.like(x)], 0)[::p.choice.choice([1, 2])][:SIZE],
    lambda p, x: rlx.flip(x, p.axis(x)),
    lambda p, x: rlx.take(x, p.rng.integers(0, SIZE, SIZE), p.axis(x)),
    lambda p, x: nn.softmax(x, p.axis(x)),
    lambda p, x: nn.layer_norm(x, (SIZE,)),
    lambda p, x: rlx.cumsum(x, p.axis(x)),
    lambda p, x: x + rlx.sum(x, p.axis(x), keepdims=True),
    lambda p, x: rlx.pad(x[:2], ((1, 0), *[(0, 0)] * (x.rank - 1))),
)


def _derivatives(program: Program, mode: str) -> list[dict[str, Array]]:
    """The gradient, and the gradient of what it is along a direction."""
    first = rlx.grad(program.graph, "loss", program.wrt, singular=mode)
    rng = np.random.default_rng(0)
    along: Any = 0.0
    for k in program.wrt:
        along += (first.outputs[f"grad_{k}"] * rng.normal(size=program.arrays[k].shape)).sum()
    second = rlx.grad(first.derive({"s": along}), "s", program.wrt, singular=mode)
    return [evaluate(g, {k: program.arrays[k] for k in g.leaves}) for g in (first, second)]


@pytest.mark.parametrize("start", range(0, PROGRAMS, CHUNK))
def test_what_is_alive_is_not_taken_for_dead(start: int) -> None:
    for seed in range(start, start + CHUNK):
        program = Program(seed)
        for found, plain in zip(*(_derivatives(program, m) for m in ("zero", "ieee")), strict=True):
            for k, want in plain.items():
                scale = 1e-9 * max(1.0, float(abs(want).max(initial=0.0)))
                np.testing.assert_allclose(found[k], want, rtol=0, atol=scale,
                                           err_msg=f"seed {seed}: {k}")
