"""Learning rates as nodes of the training step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, pi

import numpy as np

from rlx_py.ir.base.errors import ArgumentError
from rlx_py.ir.base.types import DType, f32
from rlx_py.ir.nodes.node import Node, at, user_location
from rlx_py.ir.ops.making.constant import constant as number
from rlx_py.ir.ops.numpy import pointwise as p
from rlx_py.ir.ops.primitive.elementwise import cast

Schedule = Callable[[Node], Node]
"""From the count of the steps done before, a scalar of the type that the update is computed in, to
the rate in that type. Those here take an integer count too, and then compute in f32."""
Rate = float | Schedule


def is_number(value: object) -> bool:
    """Whether a setting may be computed with: a number of Python's or NumPy's, and no bool."""
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def check_rate(rate: Rate) -> None:
    """Refuse what is no learning rate, or a negative one, at the line that gives it."""
    if not callable(rate) and not is_number(rate):
        raise ArgumentError(f"a learning rate is a number or a schedule, not {rate!r}"
                            + at(user_location()))
    if not callable(rate) and not rate >= 0:
        raise ArgumentError(f"a learning rate is not negative: {rate!r}" + at(user_location()))


def rate_at(rate: Rate, step: Node, dtype: DType = f32) -> Node:
    """The learning rate of a number or a schedule at a step (i64 scalar, from 0), a scalar of the
    type in which the param is updated: `param.dtype.compute`."""
    check_rate(rate)
    return cast(rate(cast(step, dtype)), dtype) if callable(rate) else number(float(rate), dtype)


def _counted(step: Node) -> Node:
    return step if step.dtype.is_float else cast(step, f32)


def positive(**values: float) -> None:
    """Refuse settings that are not > 0, by name."""
    for name, value in values.items():
        if not is_number(value) or not value > 0:
            raise ArgumentError(f"{name} must be positive, not {value!r}" + at(user_location()))


def not_negative(below: float = inf, **values: float) -> None:
    """Refuse settings outside of 0 <= value < below, by name."""
    for name, value in values.items():
        if not is_number(value) or not 0 <= value < below:
            raise ArgumentError(f"0 <= {name} < {below:g}, not {value!r}" + at(user_location()))


@dataclass(frozen=True)
class constant:
    """The same rate at every step."""

    rate: float

    def __post_init__(self) -> None:
        not_negative(rate=self.rate)

    def __call__(self, step: Node) -> Node:
        """The rate."""
        return number(self.rate, _counted(step).dtype)


@dataclass(frozen=True)
class linear:
    """From `start` to `end` in a straight line over `total` steps, then `end`."""

    start: float
    end: float
    total: int

    def __post_init__(self) -> None:
        positive(total=self.total)
        not_negative(start=self.start, end=self.end)

    def __call__(self, step: Node) -> Node:
        """start + (end − start)·min(step/total, 1)."""
        done = p.minimum(_counted(step) / self.total, 1.0)
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
        positive(total=self.total)
        not_negative(peak=self.peak, floor=self.floor, warmup=self.warmup)
        if not self.warmup < self.total:
            raise ArgumentError(f"0 <= warmup < total, not {self.warmup} and {self.total}"
                                + at(user_location()))

    def __call__(self, step: Node) -> Node:
        """peak·(step + 1)/warmup, then floor + (peak − floor)·(1 + cos π(1 − u))/2 with u from 1 to
        0, as sin² πu/2, which does not cancel."""
        s = _counted(step)
        u = p.maximum(self.total - s, 0.0) / (self.total - self.warmup)
        down = self.floor + (self.peak - self.floor) * p.square(p.sin(pi / 2 * u))
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
        not_negative(initial=self.initial)

    def __call__(self, step: Node) -> Node:
        """initial · factor^(step/every)."""
        return self.initial * p.power(self.factor, _counted(step) / self.every)


@dataclass(frozen=True)
class step_decay:
    """initial · factor^⌊step/every⌋."""

    initial: float
    factor: float
    every: int

    def __post_init__(self) -> None:
        positive(factor=self.factor, every=self.every)
        not_negative(initial=self.initial)

    def __call__(self, step: Node) -> Node:
        """initial · factor^⌊step/every⌋."""
        return self.initial * p.power(self.factor, _counted(step // self.every))
