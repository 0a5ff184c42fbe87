"""The factor of the loss that keeps small gradients above what f16 flushes to 0."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from rlx_py.ir.base.errors import ArgumentError
from rlx_py.ir.base.types import f32, i64
from rlx_py.ir.graph.graph import Graph
from rlx_py.ir.nodes.node import Node, at, user_location
from rlx_py.ir.ops.making.constant import constant as number
from rlx_py.ir.ops.numpy import pointwise as p
from rlx_py.optim.schedules import positive


@dataclass(frozen=True)
class dynamic_loss_scale:
    """A factor that keeps small gradients above what f16 flushes to 0, as PyTorch's GradScaler:
    divided by `factor` after a step whose gradients are not all finite, multiplied by it after
    `growth_interval` good steps in a row, unless that overflows f32."""

    init: float = 2.0**15
    growth_interval: int = 2000
    factor: float = 2.0

    def __post_init__(self) -> None:
        positive(init=self.init, growth_interval=self.growth_interval, factor=self.factor)
        if not 1 < self.factor < inf or not self.init < inf:
            raise ArgumentError(f"1 < factor and both finite, not factor={self.factor} and "
                                f"init={self.init}" + at(user_location()))

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
