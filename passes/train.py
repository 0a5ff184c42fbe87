"""A loss graph becomes a training step: gradients, clipping and the optimiser, in one graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from functools import reduce
from math import inf
from typing import Protocol

from rlx_py.ir.base.errors import ArgumentError
from rlx_py.ir.base.types import DType, f32, f64, i64
from rlx_py.ir.graph.graph import Graph
from rlx_py.ir.nodes.graph_base import require_graph
from rlx_py.ir.nodes.node import Node, at, user_location
from rlx_py.ir.ops.numpy.statistics import scaled_root
from rlx_py.ir.ops.primitive.compare import AND, EQ, GE, LT
from rlx_py.ir.ops.primitive.elementwise import ABS, ADD, DIV, MUL, SELECT, cast, fill
from rlx_py.ir.ops.primitive.movement import spread
from rlx_py.ir.ops.primitive.reduce import ALL
from rlx_py.passes.analysis.steps import watched
from rlx_py.passes.derive.vjp import scalar_output, value_and_grad
from rlx_py.passes.rewrite.simplify import simplify

# PyTorch's clip_grad_norm_ adds this to the norm before it divides.
CLIP_EPSILON = 1e-6


class Optimizer(Protocol):
    """What `train_step` asks of an optimiser."""

    def update(self, graph: Graph, name: str, param: Node, grad: Node, step: Node) -> Node:
        """The next value of a param; what it keeps from step to step becomes state of the graph.

        `step` counts the steps done before this one (i64 scalar).
        """


class LossScale(Protocol):
    """What `train_step` asks of a loss scale; what it keeps becomes state of the graph."""

    def current(self, graph: Graph) -> Node:
        """The factor (f32 scalar) of the loss in this step."""

    def advance(self, graph: Graph, scale: Node, is_finite: Node) -> None:
        """Give the next states, by whether every gradient of this step was finite."""


@watched
def train_step(graph: Graph, of: str, optimizer: Optimizer, clip_norm: float | None = None,
               frozen: Iterable[str] = (), groups: Mapping[str, Optimizer] | None = None,
               loss_scale: LossScale | None = None, accumulate: int = 1) -> Graph:
    """The graph with its params' updates: outputs as before, params and state replaced by a step.

    `of` is the scalar loss. `frozen` holds names of params that stay, or patterns ("embed.*");
    `groups` maps names or patterns to optimisers of their own (the first match counts). With
    `clip_norm` the gradients of all trained params are scaled so that their joint 2-norm is at most
    that. The updates done are counted by the state "step". With `loss_scale` gradients are those of
    the scaled loss, divided by the scale before they are clipped; where one is not finite, the
    trained params, the optimisers' state and the counter stay as they were. With accumulate=k each
    k-th step updates, by the mean of the gradients since the last update (kept in f32, or f64,
    as <param>.gradient, and counted by the state "micro_step"); clipping and the loss scale work on
    that mean. Raises ArgumentError and the errors of `grad`.
    """
    require_graph("train_step", graph)
    if clip_norm is not None and not clip_norm > 0:
        raise ArgumentError(f"clip_norm must be positive, not {clip_norm}")
    if isinstance(accumulate, bool) or not isinstance(accumulate, int) or accumulate < 1:
        raise ArgumentError(f"accumulate must be an int >= 1, not {accumulate!r}")
    chosen = _assigned(graph, optimizer, frozen, groups or {})
    loss, target, scale = graph, of, None
    if loss_scale is not None:
        loss, target = graph.derive(graph.outputs), _free("scaled_loss", graph)
        scale = loss_scale.current(loss)
        loss.output(target, _scaled(scalar_output(graph, of), scale))
    both = value_and_grad(loss, target, list(chosen))
    made = [n for k, n in both.outputs.items() if k not in loss.outputs]
    step = both.derive({k: both.outputs[k] for k in graph.outputs}, name=f"{graph.name}_step")
    count = step.state(_free("step", step), (), i64, 0)
    grads = dict(zip(chosen, made, strict=True))
    if scale is not None:
        grads = _unscaled(grads, scale)
    conditions = []
    if accumulate > 1:
        grads, is_due = _accumulated(step, grads, accumulate)
        conditions.append(is_due)
    others = set(step.states) - {count.attrs["name"]}
    ready = grads if clip_norm is None else clipped(grads, clip_norm)
    for name, rule in chosen.items():
        step.update(name, rule.update(step, name, step.params[name], ready[name], count))
    step.next(count.attrs["name"], ADD(count, fill(count, 1)))
    if scale is not None:
        conditions.append(all_finite(grads.values()))
    if conditions:
        counts = reduce(AND, conditions)
        _skip_unless(counts, step, chosen, [k for k in step.states if k not in others])
    if loss_scale is not None and scale is not None:
        before = set(step.states) - (set(loss.states) - set(graph.states))
        loss_scale.advance(step, scale, conditions[-1])
        if accumulate > 1:
            _skip_unless(is_due, step, (), [k for k in step.states if k not in before])
    return simplify(step)


def _accumulated(step: Graph, grads: Mapping[str, Node], k: int) -> tuple[dict[str, Node], Node]:
    """The means of the gradients since the last update, and whether this step is a k-th one."""
    counter = _free("micro_step", step)
    count = step.state(counter, (), i64, 0)
    done = ADD(count, fill(count, 1))
    is_due = EQ(done, fill(done, k))
    step.next(counter, SELECT(is_due, fill(done, 0), done))
    means = {}
    for name, g in grads.items():
        kept = _free(f"{name}.gradient", step)
        wide = cast(g, _wide(g.dtype))
        summed = ADD(step.state(kept, g.shape, wide.dtype, 0.0), wide)
        step.next(kept, _chosen(is_due, fill(summed, 0), summed))
        means[name] = cast(DIV(summed, fill(summed, k)), g.dtype)
    return means, is_due


def all_finite(nodes: Iterable[Node]) -> Node:
    """Whether no element of any is NaN or infinite (bool scalar)."""
    found = [LT(ABS(n), fill(n, inf)) for n in nodes]
    each = [ALL(n, axes=tuple(range(n.rank))) if n.rank else n for n in found]
    return reduce(AND, each)


def _wide(dtype: DType) -> DType:
    return f64 if dtype is f64 else f32


def _scaled(loss: Node, scale: Node) -> Node:
    wide = _wide(loss.dtype)
    return MUL(cast(loss, wide), cast(scale, wide))


def _unscaled(grads: Mapping[str, Node], scale: Node) -> dict[str, Node]:
    """Gradients times 1/scale, in f32 for the narrow ones."""
    inverse = DIV(fill(scale, 1), scale)
    found = {}
    for name, g in grads.items():
        wide = _wide(g.dtype)
        factor = spread(cast(inverse, wide), g.shape, ())
        found[name] = cast(MUL(cast(g, wide), factor), g.dtype)
    return found


def _skip_unless(done: Node, step: Graph, params: Iterable[str], states: Iterable[str]) -> None:
    """Params and states keep their values where the step does not count."""
    for name in params:
        step.update(name, _chosen(done, step.updates[name], step.params[name]))
    for name in states:
        state = step.states[name]
        if state.next is not None:
            step.next(name, _chosen(done, state.next, state.node))


def _chosen(condition: Node, then: Node, otherwise: Node) -> Node:
    return SELECT(spread(condition, then.shape, ()), then, otherwise)


def clipped(grads: Mapping[str, Node], most: float) -> dict[str, Node]:
    """Gradients scaled by min(1, most / (‖all gradients‖ + 1e-6)), in f64 if one of them is.

    Norms of any size are right, also those that the type does not hold: with a power of two c from
    `scaled_root` it is (g·c)·(most / (c‖all‖ + c·1e-6)).
    """
    wide = f64 if any(g.dtype is f64 for g in grads.values()) else f32
    root, c = scaled_root([(cast(g, wide), tuple(range(g.rank))) for g in grads.values()])
    ratio, one = DIV(fill(root, most), ADD(root, MUL(c, fill(c, CLIP_EPSILON)))), fill(root, 1)
    # Not where it is NaN, which so reaches all gradients, as in PyTorch.
    is_short = GE(MUL(c, ratio), one)
    c, ratio = SELECT(is_short, one, c), SELECT(is_short, one, ratio)

    def scaled(g: Node) -> Node:
        exact = MUL(cast(g, wide), spread(c, g.shape, ()))
        return cast(MUL(exact, spread(ratio, g.shape, ())), g.dtype)

    return {k: scaled(g) for k, g in grads.items()}


def check_optimizer(rule: object) -> None:
    """Raise ArgumentError at the user's line for what is no optimizer, its class among them."""
    if not callable(getattr(rule, "update", None)) or isinstance(rule, type | Mapping):
        raise ArgumentError(f"an optimizer is an object such as rlx.optim.adam(1e-3), not {rule!r}"
                            + at(user_location()))


def _assigned(graph: Graph, optimizer: Optimizer, frozen: Iterable[str],
              groups: Mapping[str, Optimizer]) -> dict[str, Optimizer]:
    """The optimiser of each param that is trained."""
    if not isinstance(frozen, Iterable) or not isinstance(groups, Mapping):
        raise ArgumentError("frozen takes names of params, groups a dict of names to optimizers"
                            + at(user_location()))
    for rule in (optimizer, *groups.values()):
        check_optimizer(rule)
    still = [frozen] if isinstance(frozen, str) else list(frozen)
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
    while name in graph.leaves or name in graph.outputs:
        name = f"optimizer_{name}"
    return name
