"""Rules of ops asked at rows that have a cotangent, with zeros in the place of all others.

Where a cotangent is 0 by construction so are all derivatives of it, so a select by its mask takes
rows out at every order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlx_py.ir.base.types import TupleType, i64
from rlx_py.ir.nodes.node import PROJECT, TUPLE, Node, make, origin, pack, project, replaced
from rlx_py.ir.ops.control.masks import Masks, carried, either, everywhere
from rlx_py.ir.ops.making.rows import Rows
from rlx_py.ir.ops.primitive.compare import AND, LT, NOT
from rlx_py.ir.ops.primitive.elementwise import ABS, CAST, SELECT
from rlx_py.ir.ops.primitive.movement import filled
from rlx_py.ir.ops.primitive.reduce import REDUCE_SUM
from rlx_py.passes.analysis.ranges import range_of

Rule = Callable[[Node], Sequence[Any]]


def ask_at_rows(node: Node, here: Mapping[int, Masks], counts: list[Node] | None,
                ask: Rule) -> Sequence[Any]:
    """What `ask`, a rule of a node's derivative, gives for the node with its dead rows 0.

    here: the masks of those results that have a cotangent. counts: takes the number of elements
    that were not finite in dead rows of each input; what the rule adds to it is kept.
    """
    rows = () if node.op.rows is None or not any(here.values()) else node.op.rows(node)
    masks = [_of_input(x, own, here) for x, own in zip(node.inputs, rows, strict=False)]
    if not any(masks):
        return ask(node)
    given = list(node.inputs)
    for i, found in enumerate(masks):
        if found:
            live = everywhere(found, given[i].shape)
            if counts is not None:
                counts.append(_not_finite(given[i], live))
            given[i] = SELECT(live, given[i], filled(0, given[i].tensor))
    # Nodes that the rule makes have this one for their origin, by which they are known.
    stand_in = replaced(node, tuple(given))
    first = 0 if counts is None else len(counts)
    with origin(stand_in):
        made = list(ask(stand_in))
    more = [] if counts is None else counts[first:]
    results = _with_rows(node, _common(here, {a: a for a in rows[0]}))
    flat = [*_tensors(made), *more]
    done = _renewed(flat, stand_in, results)
    if counts is not None:
        counts[first:] = [done[n] for n in more]
    return [_over(part, done) for part in made]


def _of_input(x: Node, rows: Rows, here: Mapping[int, Masks]) -> Masks:
    """The masks of an input's rows; none where it holds no NaN that they could leave out."""
    if isinstance(x.type, TupleType) or not x.dtype.is_float or range_of(x).finite:
        return ()
    return _common(here, rows)


def _common(here: Mapping[int, Masks], rows: Rows) -> Masks:
    """What the masks of all results that have a cotangent say along some axes."""
    first, *rest = (carried(masks, rows) for masks in here.values())
    for masks in rest:
        first = either(first, masks)
    return first


def _not_finite(x: Node, live: Node) -> Node:
    finite = LT(ABS(x), filled(float("inf"), x.tensor))
    dead = CAST(AND(NOT(live), NOT(finite)), dtype=i64)
    return REDUCE_SUM(dead, axes=tuple(range(x.rank)))


def _with_rows(node: Node, masks: Masks) -> Node:
    """The node's own results, of which a rule may read, with zeros in dead rows."""
    several = isinstance(node.type, TupleType)
    found = []
    for y in node if several else [node]:
        if masks and y.dtype.is_float:
            y = SELECT(everywhere(masks, y.shape), y, filled(0, y.tensor))
        found.append(y)
    return pack(found) if several else found[0]


def _tensors(parts: Sequence[Any]) -> list[Node]:
    return [n for part in parts if part is not None
            for n in (part if isinstance(part, tuple) else (part,)) if n is not None]


def _over(part: Any, done: Mapping[Node, Node]) -> Any:
    if isinstance(part, tuple):
        return tuple(None if n is None else done[n] for n in part)
    return None if part is None else done[part]


def _renewed(roots: Sequence[Node], stand_in: Node, results: Node) -> dict[Node, Node]:
    """The nodes that were made for the stand-in, made again over results that are at hand."""
    done = {stand_in: results}
    stack = list(reversed(roots))
    while stack:
        node = stack[-1]
        if node in done:
            stack.pop()
        elif node.origin is not stand_in:
            done[stack.pop()] = node
        elif waiting := [x for x in node.inputs if x not in done]:
            stack.extend(waiting)
        else:
            inputs = [done[x] for x in stack.pop().inputs]
            if node.op is PROJECT and inputs[0].op is TUPLE:
                done[node] = project(inputs[0], node.attrs["index"])
            else:
                done[node] = make(node.op, inputs, node.attrs)
    return done
