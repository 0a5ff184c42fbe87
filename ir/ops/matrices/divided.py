"""Divided differences f[x₀, …, xₖ] of any order, also where arguments coincide or nearly do.

A difference of two values that nearly agree keeps few of their digits, so there the form
f[x, …, y] = ∫₀¹ ∂ₓ f[x + t(y − x), …] dt takes its place, by Gauss's rule of five nodes (C. de
Boor, Divided differences, 2005). It is taken where both forms agree as far as the quotient is exact
and the rule is resolved, or errs less. So a function with a kink or a jump between its arguments
keeps the quotient, which is infinite where two arguments are equal but the values are not; and so
where they come with parameters that differ, equal but for the rounding of the largest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import factorial

import numpy as np

from rlx_py.ir.base.types import DType
from rlx_py.ir.nodes.node import Node
from rlx_py.ir.ops.making.constant import constant
from rlx_py.ir.ops.making.families import Array
from rlx_py.ir.ops.matrices.factor_gradients import REPEATED
from rlx_py.ir.ops.matrices.scalar_body import elementwise_value, partial
from rlx_py.ir.ops.numpy.choice import (
    equal,
    less_equal,
    logical_and,
    logical_not,
    logical_or,
    where,
)
from rlx_py.ir.ops.numpy.folding import sum as total
from rlx_py.ir.ops.primitive.elementwise import ABS

NODES, WEIGHTS = (np.polynomial.legendre.leggauss(5)[0] + 1) / 2, (
    np.polynomial.legendre.leggauss(5)[1] / 2)
COARSE = (0, 2, 4)  # the nodes of the rule that the full one is compared with
UNRESOLVED = 1e-4  # of the sum of sizes: the full rule is then exact to about 1e-15
ROUNDING = 256  # units in the last place by which values may be off


@dataclass(frozen=True, eq=False)
class Point:
    """An argument of f: x, and the parameters that f has there. All broadcast."""

    x: Node
    params: tuple[Node, ...]


class DividedDifferences:
    """Divided differences of a body of x and parameters.

    `scale` is the size of what the arguments were computed from. The last `free` parameters may
    differ between arguments that are taken for near. A point None is 0, where f is 0; it is near no
    other.
    """

    def __init__(self, body: str, scale: Node, free: int = 0) -> None:
        self.bodies, self.scale, self.free = [body], scale, free
        self.known: dict[tuple[tuple[Point | None, ...], int], Node] = {}
        self.dtype: DType = scale.dtype
        self.last_place = float(np.finfo(self.dtype.numpy).eps)
        self.epsilon, self.rounding = ROUNDING * self.last_place, REPEATED * self.last_place

    def at(self, points: Sequence[Point | None], order: int = 0) -> Node:
        """f[points], or its derivative of an order by the first; f is symmetric in the others."""
        known = [p for p in points if p is not None]
        if not known:
            return constant(0.0, self.dtype)
        key = (*known, *[None] * (len(points) - len(known))), order
        if key not in self.known:
            self.known[key] = self._at(*key)
        return self.known[key]

    def _at(self, points: tuple[Point | None, ...], order: int) -> Node:
        first, *others = points
        assert first is not None
        if not others:
            return self._value(first, order)
        return self._between(first, others[:-1], others[-1], order)

    def _value(self, point: Point, order: int) -> Node:
        while len(self.bodies) <= order:
            self.bodies.append(partial(self.bodies[-1], 0))
        return elementwise_value(self.bodies[order], (point.x, *point.params))

    def _between(self, first: Point, inner: list[Point | None], last: Point | None,
                 order: int) -> Node:
        gap = first.x if last is None else first.x - last.x
        value = self.at([first, *inner], order)
        if order:
            # (x − y)·q = f(x) − f(y), differentiated by x.
            below = order * self.at([first, *inner, last], order - 1)
        else:
            below = self.at([last, *inner])
        change = value - below
        whole, coarse, size = self._integral(first, inner, gap, order)
        terms, error = ABS(value) + ABS(below), ABS(whole - coarse)
        noise = self.epsilon * (terms + self.scale * size)
        # A derivative that is all rounding is not resolved, but errs less than the quotient.
        resolved = logical_or(less_equal(error, UNRESOLVED * size),
                              less_equal(error * ABS(gap), self.last_place * terms))
        near = logical_and(resolved, less_equal(ABS(whole * gap - change), noise))
        near = logical_or(near, logical_and(equal(gap, 0), equal(change, 0)))
        for mine, other in self._compared(first, last):
            alike = equal(mine, other)
            near = logical_and(near, alike)
            repeated = less_equal(ABS(gap), self.rounding * self.scale)
            gap = where(logical_and(repeated, logical_not(alike)), 0.0, gap)
        return where(near, whole, change / gap)

    def _compared(self, first: Point, last: Point | None) -> list[tuple[Node, Node]]:
        """Parameters that belong to single points."""
        if last is None:
            return []
        count = len(first.params) - self.free
        return [(a, b) for a, b in zip(first.params[:count], last.params[:count], strict=True)
                if a is not b]

    def _integral(self, first: Point, inner: list[Point | None], gap: Node,
                  order: int) -> tuple[Node, Node, Node]:
        """∫₀¹ (1 − t)ʳ ∂ʳ⁺¹f[x − t·gap, …] dt, that by three nodes, and the sum of the sizes."""
        shape = (len(NODES), *[1] * gap.rank)
        t = constant(NODES.reshape(shape), self.dtype)
        found = self.at([Point(first.x - t * gap, first.params), *inner], order + 1)
        full, coarse = (constant(w.reshape(shape), self.dtype) for w in _weights(order))
        return total(found * full, 0), total(found * coarse, 0), total(ABS(found) * ABS(full), 0)


def _weights(order: int) -> tuple[Array, Array]:
    """Weights of both rules at the nodes for integrals of (1 − t)ʳ·g over 0 … 1."""
    picked = NODES[list(COARSE)]
    powers = np.vander(picked, increasing=True).T
    # ∫ tⁱ(1 − t)ʳ dt is Euler's beta function.
    moments = [factorial(i) * factorial(order) / factorial(i + order + 1) for i in range(3)]
    coarse = np.zeros_like(NODES)
    coarse[list(COARSE)] = np.linalg.solve(powers, moments)
    return WEIGHTS * (1 - NODES) ** order, coarse
