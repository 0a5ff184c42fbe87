"""Optimisers and learning-rate schedules, as nodes of the training step.

Update formulas are those of PyTorch's torch.optim: bias correction by 1 − βᵗ, eps outside the
square root. Moments are kept, and updates computed, in f32 for f16 and bf16 params.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, log, pi

from rlx_py.ir.errors import ArgumentError
from rlx_py.ir.graph import Graph
from rlx_py.ir.node import Node
from rlx_py.ir.ops import pointwise as p
from rlx_py.ir.ops.constant import constant as number
from rlx_py.ir.ops.elementwise import cast
from rlx_py.ir.types import f32, i64

Schedule = Callable[[Node], Node]
Rate = float | Schedule


def rate_at(rate: Rate, step: Node) -> Node:
    """The learning rate (f32 scalar) of a number or a schedule at a step (i64 scalar, from 0)."""
    if isinstance(rate, bool | str) or not (callable(rate) or isinstance(rate, int | float)):
        raise ArgumentError(f"a learning rate is a number or a schedule, not {rate!r}")
    return rate(step) if callable(rate) else number(float(rate), f32)


# ---- schedules -------------------------------------------------------------------------------


def _check(**values: float) -> None:
    for name, value in values.items():
        if not value > 0:
            raise ArgumentError(f"{name} must be positive, not {value}")


@dataclass(frozen=True)
class constant:
    """The same rate at every step."""

    rate: float

    def __call__(self, step: Node) -> Node:
        """The rate."""
        return number(self.rate, f32)


@dataclass(frozen=True)
class linear:
    """From `start` to `end` in a straight line over `total` steps, then `end`."""

    start: float
    end: float
    total: int

    def __post_init__(self) -> None:
        _check(total=self.total)

    def __call__(self, step: Node) -> Node:
        """start + (end − start)·min(step/total, 1)."""
        done = p.minimum(cast(step, f32) / self.total, 1.0)
        return self.start + (self.end - self.start) * done


@dataclass(frozen=True)
class warmup_cosine:
    """Up to `peak` in a straight line over `warmup` steps, then down a half cosine to `floor` at
    `total`."""

    peak: float
    warmup: int
    total: int
    floor: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.warmup < self.total:
            raise ArgumentError(f"0 <= warmup < total, not {self.warmup} and {self.total}")

    def __call__(self, step: Node) -> Node:
        """peak·(step + 1)/warmup, then floor + (peak − floor)·(1 + cos πu)/2 with u from 0 to 1."""
        s = cast(step, f32)
        u = p.minimum((s - self.warmup) / (self.total - self.warmup), 1.0)
        down = self.floor + (self.peak - self.floor) * 0.5 * (1.0 + p.cos(pi * u))
        if not self.warmup:
            return down
        return p.where(s < self.warmup, (self.peak / self.warmup) * (s + 1.0), down)


@dataclass(frozen=True)
class exponential_decay:
    """initial · factor^(step/every)."""

    initial: float
    factor: float
    every: int = 1

    def __post_init__(self) -> None:
        _check(factor=self.factor, every=self.every)

    def __call__(self, step: Node) -> Node:
        """initial · exp(step · log(factor)/every)."""
        return self.initial * p.exp(cast(step, f32) * (log(self.factor) / self.every))


@dataclass(frozen=True)
class step_decay:
    """initial · factor^⌊step/every⌋."""

    initial: float
    factor: float
    every: int

    def __post_init__(self) -> None:
        _check(factor=self.factor, every=self.every)

    def __call__(self, step: Node) -> Node:
        """initial · exp(⌊step/every⌋ · log factor)."""
        return self.initial * p.exp(cast(step // self.every, f32) * log(self.factor))


# ---- loss scale ------------------------------------------------------------------------------


@dataclass(frozen=True)
class dynamic_loss_scale:
    """A factor that keeps small gradients above what f16 flushes to 0, as PyTorch's GradScaler:
    divided by `factor` after a step whose gradients are not all finite, multiplied by it after
    `growth_interval` good steps in a row, unless that overflows f32."""

    init: float = 2.0**15
    growth_interval: int = 2000
    factor: float = 2.0

    def __post_init__(self) -> None:
        _check(init=self.init, growth_interval=self.growth_interval)
        if not 1 < self.factor < inf or not self.init < inf:
            raise ArgumentError(f"1 < factor and both finite, not factor={self.factor} and "
                                f"init={self.init}")

    def current(self, graph: Graph) -> Node:
        """The state loss_scale (f32 scalar)."""
        return graph.state("loss_scale", (), f32, self.init)

    def advance(self, graph: Graph, scale: Node, is_finite: Node) -> None:
        """The next loss_scale, and how many good steps have been made since it changed."""
        count = graph.state("good_steps", (), i64, 0) + 1
        is_due = count >= self.growth_interval
        grown = scale * self.factor
        kept = p.where(is_due, p.where(p.isfinite(grown), grown, scale), scale)
        graph.next("loss_scale", p.where(is_finite, kept, scale * (1.0 / self.factor)))
        goes_on = p.logical_and(is_finite, p.logical_not(is_due))
        graph.next("good_steps", p.where(goes_on, count, number(0, i64)))


# ---- optimisers ------------------------------------------------------------------------------


def _wide(x: Node) -> Node:
    return cast(x, x.dtype.compute)


def _moment(graph: Graph, name: str, kind: str, param: Node) -> Node:
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
        if self.nesterov and not self.momentum:
            raise ArgumentError("nesterov needs a momentum")

    def update(self, graph: Graph, name: str, param: Node, grad: Node, step: Node) -> Node:
        """The next value of a param; keeps <name>.momentum."""
        w, g = _wide(param), _wide(grad)
        if self.weight_decay:
            g = g + self.weight_decay * w
        if self.momentum:
            old = _moment(graph, name, "momentum", param)
            b = self.momentum * old + g
            graph.next(f"{name}.momentum", b)
            g = g + self.momentum * b if self.nesterov else b
        return cast(w - rate_at(self.lr, step) * g, param.dtype)


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
        _check_betas(self.b1, self.b2)

    def update(self, graph: Graph, name: str, param: Node, grad: Node, step: Node) -> Node:
        """The next value of a param; keeps <name>.m and <name>.v."""
        w, g = _wide(param), _wide(grad)
        if self.weight_decay:
            g = g + self.weight_decay * w
        rate = rate_at(self.lr, step)
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
        _check_betas(self.b1, self.b2)

    def update(self, graph: Graph, name: str, param: Node, grad: Node, step: Node) -> Node:
        """The next value of a param; keeps <name>.m and <name>.v."""
        w, g, rate = _wide(param), _wide(grad), rate_at(self.lr, step)
        kept = w * (1.0 - rate * self.weight_decay)
        moved = kept - _adam_step(graph, name, param, g, step, rate, (self.b1, self.b2, self.eps))
        return cast(moved, param.dtype)


def _check_betas(b1: float, b2: float) -> None:
    if not (0 <= b1 < 1 and 0 <= b2 < 1):
        raise ArgumentError(f"0 <= b1, b2 < 1, not {b1} and {b2}")


def _adam_step(graph: Graph, name: str, param: Node, g: Node, step: Node, rate: Node,
               settings: tuple[float, float, float]) -> Node:
    """lr·m̂/(√v̂ + eps) with m̂ = m/(1 − b1ᵗ), v̂ = v/(1 − b2ᵗ), t counted from 1."""
    b1, b2, eps = settings
    m = b1 * _moment(graph, name, "m", param) + (1 - b1) * g
    v = b2 * _moment(graph, name, "v", param) + (1 - b2) * (g * g)
    graph.next(f"{name}.m", m)
    graph.next(f"{name}.v", v)
    t = cast(step, f32) + 1.0
    root = 1.0 / p.sqrt(_one_minus_power(b2, t))
    return (rate / _one_minus_power(b1, t)) * m / (p.sqrt(v) * root + eps)


def _one_minus_power(base: float, t: Node) -> Node:
    """1 − baseᵗ, by expm1 because it cancels for a base near 1."""
    return -p.expm1(t * log(base)) if base else number(1.0, f32)
