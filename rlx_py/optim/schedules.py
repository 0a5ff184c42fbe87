"""Learning rates as nodes of the training step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import log, pi

from rlx_py.ir.errors import ArgumentError
from rlx_py.ir.node import Node, at, user_location
from rlx_py.ir.ops import pointwise as p
from rlx_py.ir.ops.constant import constant as number
from rlx_py.ir.ops.elementwise import cast
from rlx_py.ir.types import f32

Schedule = Callable[[Node], Node]
Rate = float | Schedule


def rate_at(rate: Rate, step: Node) -> Node:
    """The learning rate (f32 scalar) of a number or a schedule at a step (i64 scalar, from 0)."""
    if isinstance(rate, bool | str) or not (callable(rate) or isinstance(rate, int | float)):
        raise ArgumentError(f"a learning rate is a number or a schedule, not {rate!r}"
                            + at(user_location()))
    return rate(step) if callable(rate) else number(float(rate), f32)


def positive(**values: float) -> None:
    """Refuse settings that are not > 0, by name."""
    for name, value in values.items():
        if not value > 0:
            raise ArgumentError(f"{name} must be positive, not {value}" + at(user_location()))


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
        positive(total=self.total)

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
            raise ArgumentError(f"0 <= warmup < total, not {self.warmup} and {self.total}"
                                + at(user_location()))

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
        positive(factor=self.factor, every=self.every)

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
        positive(factor=self.factor, every=self.every)

    def __call__(self, step: Node) -> Node:
        """initial · exp(⌊step/every⌋ · log factor)."""
        return self.initial * p.exp(cast(step // self.every, f32) * log(self.factor))
