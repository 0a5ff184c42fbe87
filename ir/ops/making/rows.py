"""Rows: along which axes an op keeps the elements of its inputs apart.

A rule rows(node) gives for each input a map from axes of the result to axes of that input: the
result at one place along these axes depends on the input at that place alone. All results of an op
have the axes that its maps name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from rlx_py.ir.nodes.node import Node

Rows = Mapping[int, int]
RowsRule = Callable[[Node], Sequence[Rows]]


def same_axes(rank: int, without: Iterable[int] = ()) -> Rows:
    """Each axis for itself, but for some."""
    gone = set(without)
    return {a: a for a in range(rank) if a not in gone}


def _first_only(node: Node, rows: Rows) -> list[Rows]:
    return [rows, *({} for _ in node.inputs[1:])]


def of_elements(node: Node) -> Sequence[Rows]:
    """Of element-wise ops of the first input, whatever the others are."""
    return _first_only(node, same_axes(node.inputs[0].rank))


def beside_axis(node: Node) -> Sequence[Rows]:
    """Of ops along one axis, `axis`, of inputs with equal axes."""
    return [same_axes(x.rank, (node.attrs["axis"],)) for x in node.inputs]


def beside_axes(node: Node) -> Sequence[Rows]:
    """Of ops over several axes, `axes`, of the first input, which their result has too."""
    return _first_only(node, same_axes(node.inputs[0].rank, node.attrs["axes"]))


def before_last(node: Node) -> Sequence[Rows]:
    """Of ops over the last axis of the first input."""
    return _first_only(node, same_axes(node.inputs[0].rank - 1))


def reduced_axes(node: Node) -> Sequence[Rows]:
    """Of folds of one input over `axes`, which the result lacks."""
    rank, axes = node.inputs[0].rank, node.attrs["axes"]
    return [dict(enumerate(a for a in range(rank) if a not in axes))]


def before_places(key: str) -> RowsRule:
    """Of ops over the last axes of the first input, as many as an attribute has entries."""
    return lambda node: _first_only(
        node, same_axes(node.inputs[0].rank - len(node.attrs[key])))


def leading(count: int) -> RowsRule:
    """Of ops whose first input keeps its first axes, as those of samples."""
    return lambda node: _first_only(node, same_axes(count))


def first_axis(flags: Callable[[Node], Sequence[bool]]) -> RowsRule:
    """Of ops whose results have the first axis of the inputs that are marked."""
    return lambda node: [{0: 0} if marked else {} for marked in flags(node)]
