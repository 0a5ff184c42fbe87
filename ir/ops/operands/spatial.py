"""Arguments that convolutions and pools give for each spatial axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlx_py.ir.base.errors import ArgumentError
from rlx_py.ir.nodes.node import Node
from rlx_py.ir.ops.making.arguments import integer
from rlx_py.ir.ops.making.constant import constant
from rlx_py.ir.ops.primitive.movement import padded, permuted, reshaped
from rlx_py.ir.ops.primitive.windows import FOLD

Sizes = tuple[int, ...]


def per_axis(name: str, value: Any, rank: int, smallest: int) -> Sizes:
    """One integer for every axis, or a sequence of one each; none below `smallest`."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        found = tuple(integer(name, v) for v in value)
        found = found * rank if len(found) == 1 else found
    else:
        found = (integer(name, value),) * rank
    if len(found) != rank:
        raise ArgumentError(f"{name} {value!r} needs {rank} entries")
    if any(v < smallest for v in found):
        raise ArgumentError(f"{name} {value!r} must be at least {smallest}")
    return found


def padding_pairs(value: Any, rank: int) -> tuple[Sizes, Sizes]:
    """Padding (low, high) of every axis from an int, one int an axis, or one pair an axis."""
    if isinstance(value, Sequence) and value and all(isinstance(v, Sequence) for v in value):
        pairs = [per_axis("padding", v, 2, 0) for v in value]
        if len(pairs) != rank:
            raise ArgumentError(f"padding {value!r} needs {rank} pairs")
        return tuple(p[0] for p in pairs), tuple(p[1] for p in pairs)
    both = per_axis("padding", value, rank, 0)
    return both, both


def pad_trailing(x: Node, low: Sizes, high: Sizes, value: float = 0.0) -> Node:
    """The last axes padded with a value; a negative size crops."""
    lead = (0,) * (x.rank - len(low))
    return padded(x, constant(value, x.dtype), (*lead, *low), (*lead, *high), (0,) * x.rank)


def crop_trailing(x: Node, low: Sizes, high: Sizes) -> Node:
    """The adjoint of `pad_trailing`."""
    return pad_trailing(x, tuple(-v for v in low), tuple(-v for v in high))


def check_attributes(rank: int, at_least: int, **attrs: Sizes) -> None:
    """Refuse attributes of another length, or with an entry below a bound."""
    for name, value in attrs.items():
        if len(value) != rank or any(v < at_least for v in value):
            raise ArgumentError(f"{name} {value} must hold {rank} integers of at least {at_least}")


def fold_windows(windows: Node, shape: Sizes, size: Sizes, stride: Sizes, dilation: Sizes) -> Node:
    """FOLD of windows[…, P…, K…] into […, shape…]; where windows do not meet, by moving alone."""
    if any(k > s or (k > 1 and d > 1) for k, s, d in zip(size, stride, dilation, strict=True)):
        return FOLD(windows, shape=shape, size=size, stride=stride, dilation=dilation)
    rank = len(size)
    lead = windows.rank - 2 * rank
    gaps = tuple(s - k for s, k in zip(stride, size, strict=True))
    blocks = pad_trailing(windows, (0,) * rank, gaps)
    order = [a for i in range(rank) for a in (lead + i, lead + rank + i)]
    blocks = permuted(blocks, (*range(lead), *order))
    lengths = tuple(p * s for p, s in zip(windows.shape[lead:lead + rank], stride, strict=True))
    lines = reshaped(blocks, (*windows.shape[:lead], *lengths))
    rest = tuple(n - m for n, m in zip(shape, lengths, strict=True))
    return pad_trailing(lines, (0,) * rank, rest)
