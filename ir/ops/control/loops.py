"""scan and while_loop for users: functions over nested carries and slices become one op."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil
from typing import Any, NamedTuple

import rlx_py.ir.ops.control.scan_rules  # noqa: F401  (registers the op)
from rlx_py.ir.base.dim import Dim
from rlx_py.ir.base.errors import ArgumentError, RLXError, ShapeError
from rlx_py.ir.base.tree import Tree, flatten
from rlx_py.ir.base.types import TensorType, bool_
from rlx_py.ir.nodes.node import Node, leaf, project
from rlx_py.ir.nodes.signature import first_line
from rlx_py.ir.ops.control.region import captured, over, placeholders, traced
from rlx_py.ir.ops.control.scan import kept_nodes, loop_node
from rlx_py.ir.ops.making.beside import Nested
from rlx_py.ir.ops.making.checkpoints import budget, count, every
from rlx_py.ir.ops.making.constant import constant
from rlx_py.ir.ops.making.located import located
from rlx_py.ir.ops.numpy.shaping import concatenate
from rlx_py.ir.ops.operands.operand import as_node
from rlx_py.ir.ops.primitive.barrier import IN_MEMORY
from rlx_py.ir.ops.primitive.elementwise import MUL, SELECT
from rlx_py.ir.ops.primitive.movement import reshaped, spread

Checkpoints = str | every | count | budget | None


class Body(NamedTuple):
    """One step: results (carries, then what is stacked) over leaves for carries and slices, and the
    values from outside that it reads, each with its leaf."""

    carries: list[Node]
    slices: list[Node]
    taken: dict[Node, Node]
    results: list[Node]

    @property
    def leaves(self) -> list[Node]:
        """Of carries, slices and what comes from outside."""
        return [*self.carries, *self.slices, *self.taken.values()]


@located
def scan(body: Callable[[Any, Any], Any], init: Nested, xs: Nested = None,
         length: int | None = None, reverse: bool = False,
         checkpoint: Checkpoints = None) -> tuple[Any, Any]:
    """The last carry and the stacked results of body(carry, x) -> (carry, y), step by step.

    init: nested arrays; xs: nested arrays [T, …] whose slices are the x of each step, or None with
    a length; y nests as it likes and is stacked to [T, …]; body may use nodes from outside. reverse
    runs from the last slice to the first, and stacks each y at its slice. T may be 0.

    The backward pass reads what the forward one stored of each step: with checkpoint=None the
    carries, products and steep functions; "sqrt", every(k) and count(K) store the carries of every
    √T-th, k-th or (T/K)-th step, and compute what lies between again, segment by segment;
    count(0) and every(1) store all carries and nothing else; budget(bytes) is the least
    computation that holds no more than this, over several levels of segments where one does not
    do. The bits are the same. Raises ArgumentError, ShapeError (a carry that changes its shape or
    dtype, slices of unequal length).
    """
    carries, tree = _nodes(init, "init")
    given, slices = _nodes(xs, "xs")
    steps = _length(given, slices, length)
    own = placeholders("s", carries)
    each = [_slice_leaf(i, x) for i, x in enumerate(given)]
    with traced("scan's body", [*own, *each], [*carries, *given]):
        value = body(tree.build(own), slices.build(each))
        if not isinstance(value, tuple) or len(value) != 2:
            raise ArgumentError("body returns (carry, y)")
        after = _same_carry(value[0], carries, tree)
        ys, nesting = _nodes(value[1], "y")
        taken, found = captured([*own, *each], [*after, *ys])
        step = Body(own, each, taken, found)
        levels = _levels(checkpoint, step, steps)
        made = _run(step, carries, given, list(taken), steps, reverse, levels)
    return tree.build(made[:len(carries)]), nesting.build(made[len(carries):])


@located
def while_loop(cond: Callable[[Any], Any], body: Callable[[Any], Any], init: Nested,
               max_steps: int | None = None, return_steps: bool = False) -> Any:
    """The first carry for which cond(carry), a bool scalar, is false: init, body(init), …

    Both functions may use nodes from outside. Forward mode works always; reverse mode needs
    max_steps, and then stores as much for each of so many steps. Where the condition still holds
    after max_steps, every float of the result is NaN; return_steps=True gives (carry, number of
    steps, i64), by which integers can be told too. Raises ArgumentError, ShapeError (a carry that
    changes its shape or dtype, a condition that is no bool scalar).
    """
    carries, tree = _nodes(init, "init")
    if max_steps is not None and (isinstance(max_steps, bool) or not isinstance(max_steps, int)
                                  or max_steps < 0):
        raise ArgumentError(f"max_steps is a non-negative int or None, not {max_steps!r}")
    own = placeholders("s", carries)
    with traced("while_loop's functions", own, carries):
        after = _same_carry(body(tree.build(own)), carries, tree)
        test = as_node(cond(tree.build(own)))
        if test.type != TensorType(bool_, ()):
            raise ShapeError(f"cond returns one bool, not {test.type}")
        taken, (*found, goes_on) = captured(own, [*after, test])
        leaves = [*own, *taken.values()]
        made = loop_node(None, carries, [], list(taken), leaves, found, length=max_steps,
                         cond=(leaves, goes_on))
    last = [project(made, k) for k in range(len(carries))]
    if max_steps is not None:
        (more,) = over([goes_on], dict(zip(leaves, [*last, *taken], strict=True)))
        last = [_spoiled(more, x) for x in last]
    result = tree.build(last)
    return (result, project(made, len(made) - 1)) if return_steps else result


def _spoiled(more: Node, x: Node) -> Node:
    """NaN where a loop should have gone on, and so its derivatives."""
    if not x.dtype.is_float:
        return x
    number = SELECT(more, constant(float("nan"), x.dtype), constant(1, x.dtype))
    return MUL(x, spread(number, x.shape, ()))


# ---- arguments -------------------------------------------------------------------------------


def _nodes(value: Any, what: str) -> tuple[list[Node], Tree]:
    """Nested arrays and numbers as nodes."""
    leaves, tree = flatten(value)
    found = []
    for name, x in zip(tree.names(what), leaves, strict=True):
        try:
            found.append(as_node(x))
        except RLXError as error:
            raise error.__class__(f"{name}: {first_line(error)}") from None
    return found, tree


def _length(xs: Sequence[Node], tree: Tree, length: Any) -> int:
    sizes = {} if length is None else {"length": length}
    if length is not None and (isinstance(length, bool) or not isinstance(length, int | Dim)
                               or length < 0):
        raise ArgumentError(f"length is a non-negative int, not {length!r}")
    for name, x in zip(tree.names("xs"), xs, strict=True):
        if not x.rank:
            raise ShapeError(f"{name} is {x.type}, which has no first axis to take slices of")
        sizes[name] = x.shape[0]
    if not sizes:
        raise ArgumentError("give xs, or a length")
    if len(set(sizes.values())) > 1:
        listed = ", ".join(f"{k} {v}" for k, v in sizes.items())
        raise ShapeError(f"the numbers of steps differ: {listed}")
    steps: int = next(iter(sizes.values()))
    return steps


def _slice_leaf(i: int, x: Node) -> Node:
    return leaf(f"x{i}", "input", x.tensor.with_shape(x.shape[1:]))


def _same_carry(value: Any, like: Sequence[Node], tree: Tree) -> list[Node]:
    """The carry that a body returned, of the nesting and types of the one it was given."""
    found, nesting = _nodes(value, "carry")
    if nesting != tree:
        raise ArgumentError(f"the carry is {tree.describe()}, but body returns "
                            f"{nesting.describe()}")
    for name, before, after in zip(tree.names("carry"), like, found, strict=True):
        if before.type != after.type:
            raise ShapeError(f"{name} is {before.type}, but body returns {after.type}")
    return found


# ---- segments --------------------------------------------------------------------------------


def _levels(checkpoint: Any, body: Body, steps: int | Dim) -> list[int]:
    """The lengths of segments, those of each level inside one of the level before; 1 at the end
    where a step stores nothing but its carries."""
    if checkpoint is None or steps == 0:
        return []
    if checkpoint in (every(1), count(0)):
        return [1]
    if isinstance(steps, Dim):
        raise ArgumentError(f"checkpoint={checkpoint!r} needs a number of steps, not {steps}; "
                            "every(1) and count(0) do not")
    if checkpoint == "sqrt":
        return _segments(ceil(steps ** 0.5))
    if isinstance(checkpoint, every):
        return _segments(min(checkpoint.k, steps))
    if isinstance(checkpoint, count):
        return _segments(-(-steps // checkpoint.number))
    if isinstance(checkpoint, budget):
        return _affordable(checkpoint.bytes, body, steps)
    raise ArgumentError(f'checkpoint={checkpoint!r} is none of None, "sqrt", every(k), count(K), '
                        "budget(bytes)")


def _segments(length: int) -> list[int]:
    return [max(length, 1)]


def _affordable(most: int, body: Body, steps: int) -> list[int]:
    """The fewest levels of segments whose stores hold at most so many bytes, or else the least."""
    carries = sum(x.tensor.nbytes for x in body.carries)
    step = sum(n.tensor.nbytes for n in kept_nodes(
        body.leaves, body.results, len(body.carries), len(body.slices), "steep"))
    best: tuple[int, list[int]] = (steps * step, [])
    for depth in range(1, steps.bit_length() + 1):
        if best[0] <= most:
            break
        # Equal ratios between the levels: carries·r of each level, and step·r of the last one.
        ratio = max(ceil((steps * step / max(carries, 1)) ** (1 / (depth + 1))), 2)
        levels, left = [], steps
        for _ in range(depth):
            left = -(-left // ratio)
            levels.append(left)
        held = sum(-(-a // b) * carries for a, b in zip([steps, *levels], levels, strict=False))
        best = min(best, (held + levels[-1] * step, levels), key=lambda found: found[0])
    return best[1]


def _run(body: Body, carries: list[Node], xs: list[Node], consts: list[Node], steps: int,
         reverse: bool, levels: list[int]) -> list[Node]:
    """The results of a loop: carries, then stacks [steps, …]."""
    n = len(carries)
    if not levels or levels == [1]:
        made = loop_node(None, carries, xs, consts, body.leaves, body.results, length=steps,
                         reverse=reverse, keep="carries" if levels else "steep")
        return [project(made, k) for k in range(len(body.results))]
    length, *inner = levels
    whole, left = divmod(steps, length)
    blocks = [reshaped(x[:whole * length], (whole, length, *x.shape[1:])) for x in xs]
    rest = [x[whole * length:] for x in xs]
    after: list[Node] = []
    if left and reverse:
        after = _run(body, carries, rest, consts, left, reverse, inner)
        carries = after[:n]
    own = Body(placeholders("s", carries), [_slice_leaf(i, x) for i, x in enumerate(blocks)],
               dict(zip(consts, placeholders("c", consts), strict=True)), [])
    segment = _run(body, own.carries, own.slices, list(own.taken.values()), length, reverse, inner)
    made = loop_node(None, carries, blocks, consts, own.leaves, segment, length=whole,
                     reverse=reverse, keep="carries")
    found = [project(made, k) for k in range(len(segment))]
    stacks = [reshaped(y, (whole * length, *y.shape[2:])) for y in found[n:]]
    if left and not reverse:
        after = _run(body, found[:n], rest, consts, left, reverse, inner)
    if left:
        # An array as the others are, so that what is summed over the steps is summed in one order.
        stacks = [IN_MEMORY(concatenate([a, b])) for a, b in zip(stacks, after[n:], strict=True)]
    return [*(found[:n] if reverse or not left else after[:n]), *stacks]
