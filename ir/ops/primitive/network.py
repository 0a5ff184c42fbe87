"""Many short lines sorted at once, one in each lane, by a network of comparisons.

Bitonic sorting (Batcher 1968): sorted blocks of k/2 merge into blocks of k by comparing i with
k − 1 − i, then i with i + j for j = k/4, k/8 … 1. What is compared depends on the length alone, so
all lanes do the same. Several steps at a time run in registers. Positions break ties: stable.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import prod

import numpy as np

from rlx_py.ir.base.types import DType, bool_, i64, u32
from rlx_py.ir.graph.stored import Emitter
from rlx_py.ir.loops.index import Index
from rlx_py.ir.loops.kernel import Apply, Buffer, IndexValue, Value
from rlx_py.ir.nodes.node import Node
from rlx_py.ir.ops.making.guards import (
    apply,
    choose,
    converted,
    in_type,
    scalar,
    settle,
    settled,
    within,
)
from rlx_py.ir.ops.primitive.sort_keys import key_type, sort_key

LANES = 8  # lines that are sorted together
LONGEST = 1024  # line for which a network beats distribution by digits
STEPS = 3  # of a network on 2**STEPS elements in registers

Record = tuple[Value, ...]


class _Lines:
    """Records of LANES lines, element by element: (key, position), in one word where both fit."""

    def __init__(self, emit: Emitter, key: DType, size: int) -> None:
        self.emit, self.packed = emit, key is u32
        self.buffers: list[Buffer] = [
            emit.scratch(i64, size * LANES) for _ in range(1 if self.packed else 2)]

    def record(self, key: Value, place: Value) -> Record:
        """What is compared: signed, and of a key's high bits first."""
        if not self.packed:
            return key, place
        signed = apply("xor", u32, key, scalar(1 << 31, u32))
        high = apply("shl", i64, in_type(signed, i64), scalar(32, i64))
        return (settle(self.emit, apply("or", i64, high, place)),)

    def place(self, record: Record) -> Value:
        """The position in a record."""
        if not self.packed:
            return record[1]
        return settle(self.emit, apply("and", i64, record[0], scalar(2**32 - 1, i64)))

    def put(self, at: Index, record: Record) -> None:
        """Write an element of a line."""
        for buffer, value in zip(self.buffers, record, strict=True):
            self.emit.put(buffer, at, value)

    def get(self, at: Index) -> Record:
        """Read an element of a line."""
        return tuple(self.emit.get(buffer, at) for buffer in self.buffers)

    def ordered(self, a: Record, b: Record) -> tuple[Record, Record]:
        """The smaller and the larger."""
        if self.packed:
            return tuple((self.emit.let(Apply(op, (a[0], b[0]), i64)),)  # type: ignore[return-value]
                         for op in ("min", "max"))
        tied = apply("and", bool_, apply("eq", bool_, b[0], a[0]), apply("lt", bool_, b[1], a[1]))
        swap = settle(self.emit, apply("or", bool_, apply("lt", bool_, b[0], a[0]), tied))

        def chosen(a: Record, b: Record) -> Record:
            return tuple(settle(self.emit, choose(swap, x, y, i64))
                         for x, y in zip(a, b, strict=True))

        return chosen(b, a), chosen(a, b)


@dataclass(frozen=True)
class _Pass:
    """Some steps of a network on groups of elements, independent of each other.

    Loops of these extents give the groups; `elements[n]` is (offset, coefficients of the loops).
    """

    extents: tuple[int, ...]
    elements: tuple[tuple[int, tuple[int, ...]], ...]
    pairs: tuple[tuple[int, int], ...]


def _sorted_blocks(size: int, length: int) -> _Pass:
    """Every `size` adjacent elements in order."""
    pairs: list[tuple[int, int]] = []
    k = 2
    while k <= size:
        for start in range(0, size, k):
            pairs += [(start + i, start + k - 1 - i) for i in range(k // 2)]
            pairs += _halvings(range(start, start + k // 2))
            pairs += _halvings(range(start + k // 2, start + k))
        k *= 2
    return _Pass((-(-length // size),), tuple((n, (size,)) for n in range(size)), tuple(pairs))


def _halvings(places: Sequence[int]) -> list[tuple[int, int]]:
    """Compare the first half of some elements with the second, then within both."""
    half = len(places) // 2
    if not half:
        return []
    return [*((places[i], places[i + half]) for i in range(half)),
            *_halvings(places[:half]), *_halvings(places[half:])]


def _merges(k: int, length: int) -> Iterator[_Pass]:
    """Sorted blocks of k/2 become sorted blocks of k."""
    blocks = -(-length // k)
    half = min(1 << (STEPS - 1), k // 2)  # elements of a group on either side of the middle
    apart = k // 2 // half
    elements = [(t * apart, (k, 1)) for t in range(half)]
    elements += [(k - 1 - t * apart, (k, -1)) for t in range(half)]
    pairs = [(t, half + t) for t in range(half)]
    pairs += _halvings(range(half))
    # Mirrored, the upper ones come last first.
    pairs += _halvings(range(2 * half - 1, half - 1, -1))
    yield _Pass((blocks, apart), tuple(elements), tuple(pairs))
    while apart > 1:
        count = min(1 << STEPS, apart)
        apart, block = apart // count, apart
        yield _Pass((-(-length // block), apart),
                    tuple((t * apart, (block, 1)) for t in range(count)),
                    tuple(_halvings(range(count))))


def passes(length: int) -> list[_Pass]:
    """The network for lines of a length: of the next power of two, less blocks beyond the end."""
    size = 1 << (length - 1).bit_length()
    first = min(size, 1 << STEPS)
    found = [_sorted_blocks(first, length)]
    k = 2 * first
    while k <= size:
        found += _merges(k, length)
        k *= 2
    return found


def networked(node: Node, emit: Emitter) -> None:
    """Positions that sort every line along the axis."""
    length = node.shape[node.attrs["axis"]]
    count, wanted = node.size // length, key_type(node.inputs[0].dtype)
    size = 1 << (length - 1).bit_length()
    with emit.loop(-(-count // LANES), independent=True) as block:
        lines = _Lines(emit, wanted, size)

        def here(lane: Index, i: Index) -> tuple[tuple[Index, ...], Value | None]:
            line = block * LANES + lane
            return _index(node, line, i), settled(emit, within(line, 0, count))

        with emit.loop(length, independent=True) as i, emit.loop(LANES, independent=True) as lane:
            at, guard = here(lane, i)
            key = sort_key(emit, emit.ask(0, at, guard), node.attrs["descending"])
            lines.put(i * LANES + lane, lines.record(key, emit.let(IndexValue(i, i64))))
        last = scalar(np.iinfo(np.int64).max, i64)
        with emit.loop((size - length) * LANES, independent=True) as i:
            lines.put(i + length * LANES, (last,) * len(lines.buffers))
        for step in passes(length):
            _run(emit, lines, step)
        with emit.loop(LANES, independent=True) as lane, emit.loop(length, independent=True) as i:
            at, guard = here(lane, i)
            place = lines.place(lines.get(i * LANES + lane))
            emit.store(at, converted(emit, place, i64), guard=guard)


def _index(node: Node, line: Index, i: Index) -> tuple[Index, ...]:
    """Element i of a line; lines count row-major over the other axes."""
    axis = node.attrs["axis"]
    rest = [n for a, n in enumerate(node.shape) if a != axis]
    found = [line // prod(rest[a + 1:]) % n if a else line // prod(rest[1:])
             for a, n in enumerate(rest)]
    return (*found[:axis], i, *found[axis:])


def _run(emit: Emitter, lines: _Lines, step: _Pass) -> None:
    with ExitStack() as stack:
        loops = [stack.enter_context(emit.loop(n, independent=True)) for n in step.extents]
        lane = stack.enter_context(emit.loop(LANES, independent=True))
        places = []
        for offset, coefficients in step.elements:
            at = Index(offset)
            for var, coefficient in zip(loops, coefficients, strict=True):
                at = at + var * coefficient
            places.append(at * LANES + lane)
        held = [lines.get(at) for at in places]
        for a, b in step.pairs:
            held[a], held[b] = lines.ordered(held[a], held[b])
        for at, record in zip(places, held, strict=True):
            lines.put(at, record)
