"""SCAN: a body run step by step over carries and slices, with all of its derivatives.

One op is every loop: of a given length, of as many steps as an input says, or while a condition
holds. Its results are the carries after the last step, what the body gives at each step, stacked,
and under a condition the number of steps taken. The body computes, beside what was asked for, what
a derivative would need to read again; a derivative is a scan over these stacks, and what nobody
reads is dropped before code is generated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from rlx_py.ir.base.errors import ArgumentError, DTypeError, ShapeError
from rlx_py.ir.base.types import TensorType, TupleType, Type, bool_, i64
from rlx_py.ir.graph.body import Body, graph_of
from rlx_py.ir.graph.evaluate import evaluate_nodes
from rlx_py.ir.nodes.node import OPS, PROJECT, TUPLE, Node, make, toposort
from rlx_py.ir.ops.control.region import body_graph, over, parts, placeholders, result_types
from rlx_py.ir.ops.making.families import POLYNOMIAL

Array = np.ndarray[Any, Any]
T = TypeVar("T")
KEEPS = ("steep", "carries")  # which intermediates of a step are stacked for derivatives


@dataclass(frozen=True)
class Loop:
    """The attributes of a scan.

    body: from carries, slices and constants to carries and results of the step; cond: from carries
    and the last constants to a bool, "" for none; counted: the first input is the number of steps
    (i64); length: steps at most, None without bound; keep: "steep" stacks products, folds and steep
    functions of each step for derivatives, "carries" nothing but the carries.
    """

    body: str
    cond: str
    counted: bool
    carries: int
    xs: int
    length: int | None
    reverse: bool
    keep: str

    def split(self, inputs: Sequence[T]) -> tuple[list[T], list[T], list[T], list[T]]:
        """Inputs as count (one or none), carries, sequences and constants."""
        a = int(self.counted)
        b, c = a + self.carries, a + self.carries + self.xs
        return list(inputs[:a]), list(inputs[a:b]), list(inputs[b:c]), list(inputs[c:])

    @property
    def may_end_at_once(self) -> bool:
        """Whether there may be no step."""
        return self.counted or self.cond != "" or not self.length

    def leaves(self) -> tuple[list[Node], list[Node], list[Node]]:
        """The body's leaves for carries, slices and constants."""
        _, carries, xs, consts = self._bodily().split(list(graph_of(self.body).inputs.values()))
        return carries, xs, consts

    def _bodily(self) -> Loop:
        return Loop(self.body, self.cond, False, self.carries, self.xs, self.length, self.reverse,
                    self.keep)

    def steps(self, count: int) -> Iterator[int]:
        """The positions of `count` steps in the order they run."""
        order = range(count)
        return iter(reversed(order) if self.reverse else order)


def loop_of(node: Node) -> Loop:
    """The attributes of a scan's node."""
    return Loop(**node.attrs)


def infer(*types: TensorType, body: str, cond: str, counted: bool, carries: int, xs: int,
           length: int | None, reverse: bool, keep: str) -> Type:
    """The carries, the stacked results, and under a condition the number of steps (i64)."""
    loop = Loop(body, cond, counted, carries, xs, length, reverse, keep)
    if min(carries, xs) < 0 or (length or 0) < 0 or len(types) < int(counted) + carries + xs:
        raise ArgumentError(f"{carries} carries and {xs} sequences of length {length} are not "
                            f"among {len(types)} inputs")
    if keep not in KEEPS:
        raise ArgumentError(f"keep={keep!r} is none of {', '.join(KEEPS)}")
    count, first, sequences, consts = loop.split(types)
    if counted and cond:
        raise ArgumentError("a loop has a number of steps or a condition, not both")
    if any(t != TensorType(i64, ()) for t in count):
        raise DTypeError(f"the number of steps is i64[], not {count[0]}")
    if length is None and (sequences or not cond or reverse):
        raise ArgumentError("a loop without a length has a condition, and no sequences")
    for t in sequences:
        if t.shape[:1] != (length,):
            raise ShapeError(f"a sequence of {length} steps is not {t}")
    slices = [t.with_shape(t.shape[1:]) for t in sequences]
    results = result_types(body, [*first, *slices, *consts])
    if results[:carries] != first:
        raise ShapeError(f"its body turns carries ({', '.join(map(str, first))}) into "
                         f"({', '.join(map(str, results[:carries]))})")
    made = results[carries:]
    if length is None and made:
        raise ArgumentError("a loop without a length has no results of its steps")
    if cond and result_types(cond, [*first, *consts]) != [TensorType(bool_, ())]:
        raise ShapeError("its condition is not one bool")
    stacked = [t.with_shape((length, *t.shape)) for t in made] if length is not None else []
    return TupleType((*first, *stacked, *([TensorType(i64, ())] if cond else [])))


def evaluate_loop(*arrays: Array, **attrs: Any) -> tuple[Array, ...]:
    """The NumPy meaning: one step after the other."""
    loop = Loop(**attrs)
    count, carries, xs, consts = loop.split(arrays)
    graph = graph_of(loop.body)
    leaves, outputs = list(graph.inputs.values()), list(graph.outputs.values())
    types = [n.tensor for n in outputs[loop.carries:]]
    stacks = [np.zeros((loop.length or 0, *t.shape), t.dtype.numpy) for t in types]
    bound = loop.length
    if count:
        bound = min(max(int(count[0]), 0), bound or 0)
    taken = 0
    for step in _positions(loop, bound):
        if loop.cond and not _holds(loop.cond, [*carries, *consts]):
            break
        values = [*carries, *(x[step] for x in xs), *consts]
        found = evaluate_nodes(outputs, dict(zip(leaves, values, strict=True)))
        carries = found[:loop.carries]
        for stack, y in zip(stacks, found[loop.carries:], strict=True):
            stack[step] = y
        taken += 1
    return (*carries, *stacks, *([np.asarray(taken, np.int64)] if loop.cond else []))


def _positions(loop: Loop, bound: int | None) -> Iterable[int]:
    if bound is None:
        return iter(int, 1)  # without end: the condition ends it
    return loop.steps(bound)


def _holds(cond: str, values: list[Array]) -> bool:
    graph = graph_of(cond)
    (root,) = graph.outputs.values()
    (found,) = evaluate_nodes([root], dict(zip(graph.inputs.values(), values, strict=True)))
    return bool(found)


def loop_node(count: Node | None, carries: Sequence[Node], xs: Sequence[Node],
              consts: Sequence[Node], leaves: Sequence[Node], results: Sequence[Node], *,
              length: int | None, reverse: bool = False,
              cond: tuple[Sequence[Node], Node] | None = None, keep: str = "steep") -> Node:
    """The node of a loop whose body gives results over leaves (carries, slices, constants), and its
    condition a bool over other leaves (carries, constants).

    Of its results the first are those of `results`, in order; what derivatives may read again
    follows, and the number of steps is the last one.
    """
    kept = [] if length is None else kept_nodes(leaves, results, len(carries), len(xs), keep)
    return bare_loop(count, carries, xs, consts, leaves, [*results, *kept], length=length,
                     reverse=reverse, cond=cond, keep=keep)


def bare_loop(count: Node | None, carries: Sequence[Node], xs: Sequence[Node],
              consts: Sequence[Node], leaves: Sequence[Node], results: Sequence[Node], *,
              length: int | None, reverse: bool, cond: tuple[Sequence[Node], Node] | None,
              keep: str) -> Node:
    """A loop with these results and nothing for derivatives."""
    # Of one naming, so that equal bodies have equal texts.
    moving, fixed = placeholders("s", carries), placeholders("c", consts)
    own = [*moving, *placeholders("x", leaves[len(carries):][:len(xs)]), *fixed]
    test = ""
    if cond is not None:
        tested = over([cond[1]], dict(zip(cond[0], [*moving, *fixed], strict=True)))
        test = Body.of(body_graph([*moving, *fixed], tested))
    body = Body.of(body_graph(own, over(results, dict(zip(leaves, own, strict=True)))))
    inputs = [*([] if count is None else [count]), *carries, *xs, *consts]
    return make(OPS["scan"], inputs, {
        "body": body, "cond": test, "counted": count is not None,
        "carries": len(carries), "xs": len(xs), "length": length, "reverse": reverse,
        "keep": keep})


def kept_nodes(leaves: Sequence[Node], results: Sequence[Node], carries: int, xs: int,
               keep: str) -> list[Node]:
    """What derivatives may read again: every carry before the step, and what is dear to compute."""
    found = dict.fromkeys(leaves[:carries])
    if keep == "steep":
        changing = set(leaves[:carries + xs])
        for node in toposort(results):
            if not changing.isdisjoint(node.inputs):
                changing.add(node)
                if isinstance(node.type, TupleType) and node.op is not TUPLE:
                    found |= dict.fromkeys(parts(node))
                elif node.op is not PROJECT and is_steep(node):
                    found[node] = None
    done = set(results[carries:])
    return [n for n in found if n not in done]


def is_steep(node: Node) -> bool:
    """Whether reading a node from memory beats computing it again from its inputs."""
    return node.op.element is None or node.op.cost >= POLYNOMIAL

