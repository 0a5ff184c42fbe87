"""Optimisers that treat a param as a matrix: a factored second moment, an orthogonal update.

Rates, constants, moments and updates are in the param's compute type: f64 for f64, else f32.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Literal

import numpy as np

from rlx_py.ir.base.errors import ArgumentError
from rlx_py.ir.graph.graph import Graph
from rlx_py.ir.nodes.node import Node, at, user_location
from rlx_py.ir.ops.numpy import pointwise as p
from rlx_py.ir.ops.numpy.folding import norm
from rlx_py.ir.ops.primitive.elementwise import cast, fill_root
from rlx_py.optim.descent import adamw, moment, wide
from rlx_py.optim.schedules import (
    Rate,
    check_rate,
    is_number,
    not_negative,
    positive,
    rate_at,
)
from rlx_py.passes.train import Optimizer, check_optimizer


def _rms(x: Node) -> Node:
    length = norm(x)
    return length / fill_root(length, x.size)


@dataclass(frozen=True)
class adafactor:
    """Adafactor (Shazeer and Stern 2018, "Adaptive learning rates with sublinear memory cost"), as
    PyTorch's: with t counted from 1, β = 1 − t^decay, ρ = min(lr, 1/√t), α = max(floor, RMS(w))·ρ,

    rank 2 and more, by the last two axes: R ← β·R + (1 − β)·mean(g² over columns), C likewise over
    rows, V = R·C/max(mean(R), eps); else V ← β·V + (1 − β)·g²;

    U = g/max(√V, eps); w ← w·(1 − lr·weight_decay) − α·U/max(1, RMS(U)/clip).

    eps None: the machine epsilon of the type of the moments.
    """

    lr: Rate = 1e-2
    decay: float = -0.8
    eps: float | None = None
    floor: float = 1e-3
    clip: float = 1.0
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        check_rate(self.lr)
        positive(floor=self.floor, clip=self.clip, eps=1.0 if self.eps is None else self.eps)
        not_negative(weight_decay=self.weight_decay)
        if not is_number(self.decay) or not self.decay <= 0:
            raise ArgumentError(f"decay must be at most 0, not {self.decay}" + at(user_location()))

    def update(self, graph: Graph, name: str, param: Node, grad: Node, step: Node) -> Node:
        """The next value of a param; keeps <name>.row and <name>.col, or <name>.v below rank 2."""
        w, g = wide(param), wide(grad)
        rate = rate_at(self.lr, step, w.dtype)
        eps = float(np.finfo(w.dtype.numpy).eps) if self.eps is None else self.eps
        t = cast(step, w.dtype) + 1.0
        keep = -p.expm1(self.decay * p.log(t))  # 1 − t^decay
        squares = g * g
        if g.rank > 1:
            row = self._mean(graph, f"{name}.row", squares.mean(axis=-1, keepdims=True), keep)
            col = self._mean(graph, f"{name}.col", squares.mean(axis=-2, keepdims=True), keep)
            second = row * col / p.maximum(row.mean(axis=-2, keepdims=True), eps)
        else:
            second = self._mean(graph, f"{name}.v", squares, keep)
        update = g / p.maximum(p.sqrt(second), eps)
        size = p.maximum(self.floor, _rms(w)) * p.minimum(rate, 1.0 / p.sqrt(t))
        kept = w * (1.0 - rate * self.weight_decay)
        moved = kept - size / p.maximum(1.0, _rms(update) / self.clip) * update
        return cast(moved, param.dtype)

    def _mean(self, graph: Graph, name: str, value: Node, keep: Node) -> Node:
        old = graph.state(name, value.shape, value.dtype, 0.0)
        found = keep * old + (1.0 - keep) * value
        graph.next(name, found)
        return found


@dataclass(frozen=True)
class muon:
    """Muon (Jordan et al. 2024, "Muon: an optimizer for hidden layers in neural networks"), as
    PyTorch's, for params of rank 2: b ← momentum·b + (1 − momentum)·g; u = b, or with nesterov
    momentum·b + (1 − momentum)·g; w ← w·(1 − lr·weight_decay) − lr·s·orthogonal(u).

    orthogonal: x = u/‖u‖, then `rounds` times x ← a·x + (b·A + c·A²)·x with A = x·xᵀ: a
    Newton-Schulz iteration in f32 (f64 for f64), whose singular values come near 1. adjust:
    "original": s = √max(1, rows/columns); "match_rms_adamw": s = 0.2·√max(rows, columns).

    Params of another rank have `fallback`; embeddings and heads are matrices, but are better given
    to AdamW too: train_step(..., groups={"embed.*": rlx.optim.adamw(3e-4)}).
    """

    lr: Rate
    momentum: float = 0.95
    nesterov: bool = True
    weight_decay: float = 0.1
    rounds: int = 5
    coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315)
    eps: float = 1e-7
    adjust: Literal["original", "match_rms_adamw"] = "original"
    fallback: Optimizer = adamw(3e-4, 0.9, 0.95)

    def __post_init__(self) -> None:
        check_rate(self.lr)
        positive(rounds=self.rounds, eps=self.eps)
        not_negative(1.0, momentum=self.momentum)
        not_negative(weight_decay=self.weight_decay)
        if not (isinstance(self.coefficients, tuple) and len(self.coefficients) == 3
                and all(map(is_number, self.coefficients))):
            raise ArgumentError(f"coefficients are three numbers, not {self.coefficients!r}"
                                + at(user_location()))
        check_optimizer(self.fallback)
        if self.adjust not in ("original", "match_rms_adamw"):
            raise ArgumentError(f"adjust={self.adjust!r} is neither 'original' nor "
                                "'match_rms_adamw'" + at(user_location()))

    def update(self, graph: Graph, name: str, param: Node, grad: Node, step: Node) -> Node:
        """The next value of a param; keeps <name>.momentum, or what the fallback keeps."""
        if param.rank != 2:
            return self.fallback.update(graph, name, param, grad, step)
        w, g = wide(param), wide(grad)
        rate = rate_at(self.lr, step, w.dtype)
        b = self.momentum * moment(graph, name, "momentum", param) + (1 - self.momentum) * g
        graph.next(f"{name}.momentum", b)
        u = self.momentum * b + (1 - self.momentum) * g if self.nesterov else b
        rows, columns = param.shape
        scale = (sqrt(max(1.0, rows / max(columns, 1))) if self.adjust == "original"
                 else 0.2 * sqrt(max(rows, columns)))
        kept = w * (1.0 - rate * self.weight_decay)
        return cast(kept - rate * scale * self._orthogonal(u), param.dtype)

    def _orthogonal(self, u: Node) -> Node:
        rows, columns = u.shape
        a, b, c = self.coefficients
        x = u.T if rows > columns else u
        x = x / p.maximum(norm(x), self.eps)
        for _ in range(self.rounds):
            gram = x @ x.T
            x = a * x + (b * gram + c * (gram @ gram)) @ x
        return x.T if rows > columns else x
