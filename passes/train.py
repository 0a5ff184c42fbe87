"""A loss graph becomes a training step: gradients, clipping and the optimiser, in one graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Protocol

from rlx_py.ir.errors import ArgumentError
from rlx_py.ir.graph import Graph
from rlx_py.ir.node import Node
from rlx_py.ir.ops.elementwise import ADD, DIV, MIN, MUL, SQRT, cast, fill
from rlx_py.ir.ops.families import add_all
from rlx_py.ir.ops.movement import spread
from rlx_py.ir.ops.reduce import total
from rlx_py.ir.types import DType, f32, f64, i64
from rlx_py.passes.simplify import simplify
from rlx_py.passes.vjp import value_and_grad

# PyTorch's clip_grad_norm_ adds this to the norm before it divides.
CLIP_EPSILON = 1e-6


class Optimizer(Protocol):
    """What `train_step` asks of an optimiser."""

    def update(self, graph: Graph, name: str, param: Node, grad: Node, step: Node) -> Node:
        """The next value of a param; what it keeps from step to step becomes state of the graph.

        `step` counts the steps done before this one (i64 scalar).
        """


def train_step(graph: Graph, of: str, optimizer: Optimizer, clip_norm: float | None = None,
               frozen: Iterable[str] = (),
               groups: Mapping[str, Optimizer] | None = None) -> Graph:
    """The graph with its params' updates: outputs as before, params and state replaced by a step.

    `of` is the scalar loss. `frozen` holds names of params that stay, or patterns ("embed.*");
    `groups` maps names or patterns to optimisers of their own (the first match counts). With
    `clip_norm` the gradients of all trained params are scaled so that their joint 2-norm is at most
    that. The step counter is the state "step". Raises ArgumentError and the errors of `grad`.
    """
    if clip_norm is not None and not clip_norm > 0:
        raise ArgumentError(f"clip_norm must be positive, not {clip_norm}")
    chosen = _assigned(graph, optimizer, frozen, groups or {})
    both = value_and_grad(graph, of, list(chosen))
    made = [n for k, n in both.outputs.items() if k not in graph.outputs]
    outputs = {k: both.outputs[k] for k in graph.outputs}
    step = both.derive(outputs, name=f"{graph.name}_step")
    count = step.state(_free("step", step), (), i64, 0)
    grads = dict(zip(chosen, made, strict=True))
    if clip_norm is not None:
        grads = clipped(grads, clip_norm)
    for name, rule in chosen.items():
        param = step.params[name]
        step.update(name, rule.update(step, name, param, grads[name], count))
    step.next(count.attrs["name"], ADD(count, fill(count, 1)))
    return simplify(step)


def clipped(grads: Mapping[str, Node], most: float) -> dict[str, Node]:
    """Gradients scaled by min(1, most / (‖all gradients‖ + 1e-6))."""
    wide: DType = f64 if all(g.dtype is f64 for g in grads.values()) else f32
    squares = add_all([_sum_of_squares(cast(g, wide)) for g in grads.values()])
    if squares is None:
        return dict(grads)
    length = SQRT(squares)
    scale = MIN(DIV(fill(length, most), ADD(length, fill(length, CLIP_EPSILON))), fill(length, 1))
    return {k: cast(MUL(cast(g, wide), spread(scale, g.shape, ())), g.dtype)
            for k, g in grads.items()}


def _sum_of_squares(x: Node) -> Node:
    return total(MUL(x, x), tuple(range(x.rank)))


def _assigned(graph: Graph, optimizer: Optimizer, frozen: Iterable[str],
              groups: Mapping[str, Optimizer]) -> dict[str, Optimizer]:
    """The optimiser of each param that is trained."""
    still = list(frozen)
    for pattern in (*still, *groups):
        if not any(fnmatchcase(name, pattern) for name in graph.params):
            raise ArgumentError(f"no param matches {pattern!r}; there are {list(graph.params)}")
    chosen: dict[str, Optimizer] = {}
    for name, param in graph.params.items():
        if not param.dtype.is_float or any(fnmatchcase(name, p) for p in still):
            continue
        if name in graph.updates:
            raise ArgumentError(f"param {name!r} has an update of its own; freeze it")
        chosen[name] = next((o for p, o in groups.items() if fnmatchcase(name, p)), optimizer)
    if not chosen:
        raise ArgumentError(f"graph {graph.name!r} has no param to train")
    return chosen


def _free(name: str, graph: Graph) -> str:
    while name in graph.leaves:
        name = f"optimizer_{name}"
    return name
