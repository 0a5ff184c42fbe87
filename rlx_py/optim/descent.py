"""Optimisers whose update of an element needs that element alone, and a norm at most.

Update formulas are those of PyTorch's torch.optim where it has them: bias correction by 1 − βᵗ, eps
outside the square root. Rates, constants, moments and updates are in the param's compute type: f64
for f64, else f32.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log

from rlx_py.ir.base.errors import ArgumentError
from rlx_py.ir.graph.graph import Graph
from rlx_py.ir.nodes.node import Node, at, user_location
from rlx_py.ir.ops.making.constant import constant as number
from rlx_py.ir.ops.numpy import pointwise as p
from rlx_py.ir.ops.numpy.folding import norm
from rlx_py.ir.ops.primitive.elementwise import cast
from rlx_py.optim.schedules import Rate, check_rate, not_negative, rate_at


def wide(x: Node) -> Node:
    """x in the type that updates are computed in."""
    return cast(x, x.dtype.compute)


def moment(graph: Graph, name: str, kind: str, param: Node) -> Node:
    """The state <name>.<kind> of a param's shape, zeros at first."""
    return graph.state(f"{name}.{kind}", param.shape, param.dtype.compute, 0.0)


@dataclass(frozen=True)
class sgd:
    """Stochastic gradient descent: b ← momentum·b + (g + weight_decay·w); w ← w − lr·b, or with
    nesterov w − lr·(g + momentum·b)."""

    lr: Rate
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        check_rate(self.lr)
        not_negative(momentum=self.momentum, weight_decay=self.weight_decay)
        if self.nesterov and not self.momentum:
            raise ArgumentError("nesterov needs a momentum" + at(user_location()))

    def update(self, graph: Graph, name: str, param: Node, grad: Node, step: Node) -> Node:
        """The next value of a param; keeps <name>.momentum."""
        w, g = wide(param), wide(grad)
        if self.weight_decay:
            g = g + self.weight_decay * w
        if self.momentum:
            old = moment(graph, name, "momentum", param)
            b = self.momentum * old + g
            graph.next(f"{name}.momentum", b)
            g = g + self.momentum * b if self.nesterov else b
        return cast(w - rate_at(self.lr, step, w.dtype) * g, param.dtype)


def momentum(lr: Rate, momentum: float = 0.9, nesterov: bool = False,
             weight_decay: float = 0.0) -> sgd:
    """`sgd` with a momentum."""
    return sgd(lr, momentum, nesterov, weight_decay)


@dataclass(frozen=True)
class adam:
    """Adam (Kingma and Ba 2015): m, v are running means of g and g²; w ← w − lr·m̂/(√v̂ + eps).

    weight_decay adds weight_decay·w to g.
    """

    lr: Rate
    b1: float = 0.9
    b2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        check_rate(self.lr)
        not_negative(1.0, b1=self.b1, b2=self.b2)
        not_negative(eps=self.eps, weight_decay=self.weight_decay)

    def update(self, graph: Graph, name: str, param: Node, grad: Node, step: Node) -> Node:
        """The next value of a param; keeps <name>.m and <name>.v."""
        w, g = wide(param), wide(grad)
        if self.weight_decay:
            g = g + self.weight_decay * w
        rate = rate_at(self.lr, step, w.dtype)
        moved = w - _adam_step(graph, name, param, g, step, rate, (self.b1, self.b2, self.eps))
        return cast(moved, param.dtype)


@dataclass(frozen=True)
class adamw:
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019): w ← w·(1 − lr·weight_decay)
    before Adam's step."""

    lr: Rate
    b1: float = 0.9
    b2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.01

    def __post_init__(self) -> None:
        check_rate(self.lr)
        not_negative(1.0, b1=self.b1, b2=self.b2)
        not_negative(eps=self.eps, weight_decay=self.weight_decay)

    def update(self, graph: Graph, name: str, param: Node, grad: Node, step: Node) -> Node:
        """The next value of a param; keeps <name>.m and <name>.v."""
        w, g = wide(param), wide(grad)
        rate = rate_at(self.lr, step, w.dtype)
        kept = w * (1.0 - rate * self.weight_decay)
        moved = kept - _adam_step(graph, name, param, g, step, rate, (self.b1, self.b2, self.eps))
        return cast(moved, param.dtype)


@dataclass(frozen=True)
class lion:
    """Lion (Chen et al. 2023, "Symbolic discovery of optimization algorithms"):
    w ← w − lr·(sign(b1·m + (1 − b1)·g) + weight_decay·w), then m ← b2·m + (1 − b2)·g."""

    lr: Rate
    b1: float = 0.9
    b2: float = 0.99
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        check_rate(self.lr)
        not_negative(1.0, b1=self.b1, b2=self.b2)
        not_negative(weight_decay=self.weight_decay)

    def update(self, graph: Graph, name: str, param: Node, grad: Node, step: Node) -> Node:
        """The next value of a param; keeps <name>.m."""
        w, g, m = wide(param), wide(grad), moment(graph, name, "m", param)
        graph.next(f"{name}.m", self.b2 * m + (1 - self.b2) * g)
        direction = p.sign(self.b1 * m + (1 - self.b1) * g) + self.weight_decay * w
        return cast(w - rate_at(self.lr, step, w.dtype) * direction, param.dtype)


@dataclass(frozen=True)
class lamb:
    """LAMB (You et al. 2020, "Large batch optimization for deep learning", with φ(x) = x):
    u = m̂/(√v̂ + eps) + weight_decay·w; w ← w − lr·(‖w‖/‖u‖)·u.

    The norms are those of the whole param; their ratio is 1 where one of them is 0.
    """

    lr: Rate
    b1: float = 0.9
    b2: float = 0.999
    eps: float = 1e-6
    weight_decay: float = 0.01

    def __post_init__(self) -> None:
        check_rate(self.lr)
        not_negative(1.0, b1=self.b1, b2=self.b2)
        not_negative(eps=self.eps, weight_decay=self.weight_decay)

    def update(self, graph: Graph, name: str, param: Node, grad: Node, step: Node) -> Node:
        """The next value of a param; keeps <name>.m and <name>.v."""
        w, settings = wide(param), (self.b1, self.b2, self.eps)
        one = number(1.0, w.dtype)
        u = _adam_step(graph, name, param, wide(grad), step, one, settings) + self.weight_decay * w
        size, length = norm(w), norm(u)
        apart = p.logical_and(size > 0.0, length > 0.0)
        trust = p.where(apart, size / p.where(apart, length, 1.0), 1.0)
        return cast(w - rate_at(self.lr, step, w.dtype) * trust * u, param.dtype)


def _adam_step(graph: Graph, name: str, param: Node, g: Node, step: Node, rate: Node,
               settings: tuple[float, float, float]) -> Node:
    """lr·m̂/(√v̂ + eps) with m̂ = m/(1 − b1ᵗ), v̂ = v/(1 − b2ᵗ), t counted from 1."""
    b1, b2, eps = settings
    m = b1 * moment(graph, name, "m", param) + (1 - b1) * g
    v = b2 * moment(graph, name, "v", param) + (1 - b2) * (g * g)
    graph.next(f"{name}.m", m)
    graph.next(f"{name}.v", v)
    t = cast(step, g.dtype) + 1.0
    root = 1.0 / p.sqrt(_one_minus_power(b2, t))
    return (rate / _one_minus_power(b1, t)) * m / (p.sqrt(v) * root + eps)


def _one_minus_power(base: float, t: Node) -> Node:
    """1 − baseᵗ, by expm1 because it cancels for a base near 1."""
    return -p.expm1(t * log(base)) if base else number(1.0, t.dtype)
