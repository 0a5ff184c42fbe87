"""Sorting: the positions that put a line in order, from which values and gradients are gathered.

The order is stable. NaN counts as larger than any number, −0 and 0 as equal: NaN comes last as in
NumPy, and first in descending order as in PyTorch.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx_py.ir.base.dim import surely_less
from rlx_py.ir.base.errors import ShapeError
from rlx_py.ir.base.types import DType, TensorType, Type, bool_, i32, i64, u32
from rlx_py.ir.graph.stored import Emitter, LoopRule
from rlx_py.ir.loops.index import Index
from rlx_py.ir.loops.kernel import Apply, Buffer, Cast, IndexValue, Read, Value
from rlx_py.ir.nodes.node import Node, Op, register
from rlx_py.ir.ops.making.arguments import check_axis
from rlx_py.ir.ops.making.batching import along_axis
from rlx_py.ir.ops.making.families import Array, narrow
from rlx_py.ir.ops.making.guards import apply, converted, in_type, read, scalar, settle
from rlx_py.ir.ops.primitive.cumulative import others
from rlx_py.ir.ops.primitive.network import LANES, LONGEST, networked
from rlx_py.ir.ops.primitive.sort_keys import key_type, sort_key

SHORT = 128  # longest line, of few, of which each element is compared with each
DIGIT = 8  # bits by which longer ones are distributed at a time
BINS = 1 << DIGIT


def _infer(x: TensorType, *, axis: int, descending: bool) -> Type:
    check_axis(axis, x)
    if surely_less(2**31, x.shape[axis]):
        raise ShapeError(f"an axis of {x.shape[axis]} elements is too long to sort")
    return x.with_dtype(i64)


def _eval(x: Array, *, axis: int, descending: bool) -> Array:
    x = narrow(x)  # NumPy does not order the NaN of bf16
    if not descending:
        return np.argsort(x, axis, kind="stable")
    # A stable descending order is the ascending one of the reversed line, reversed.
    found = np.flip(np.argsort(np.flip(x, axis), axis, kind="stable"), axis)
    return np.asarray(x.shape[axis] - 1 - found)


# ---- short lines -----------------------------------------------------------------------------


def _ranked(node: Node, emit: Emitter) -> None:
    """Each element goes to the number of those before it: smaller ones, and equal ones to its
    left. Quadratic, but without branches and in lanes."""
    (x,), axis, size = node.inputs, node.attrs["axis"], node.shape[node.attrs["axis"]]
    wanted = key_type(x.dtype)
    with others(node, emit, axis) as at:
        keys, ranks = emit.scratch(wanted, size), emit.scratch(i32, size)
        with emit.loop(size, independent=node.rank > 1) as i:
            emit.put(keys, i, sort_key(emit, emit.ask(0, at(i)), node.attrs["descending"]))
        with emit.loop(size, independent=node.rank > 1) as i:
            mine, place = emit.get(keys, i), emit.let(IndexValue(i, i32))
            rank = emit.declare(i32, scalar(0, i32))
            with emit.loop(size, independent=False) as j:
                other = emit.get(keys, j)
                left = apply("lt", bool_, IndexValue(j, i32), place)
                tied = apply("and", bool_, apply("eq", bool_, other, mine), left)
                before = apply("or", bool_, apply("lt", bool_, other, mine), tied)
                emit.set(rank, settle(emit, in_type(before, i32)), "add")
            emit.put(ranks, i, read(rank))
        with emit.loop(size, independent=False) as i:
            place_of = emit.dynamic(converted(emit, emit.get(ranks, i), i64), size)
            emit.store(at(place_of), emit.let(IndexValue(i, i64)))


# ---- long lines ------------------------------------------------------------------------------


class _Records:
    """Keys with their positions: one word where both fit 64 bits."""

    def __init__(self, emit: Emitter, key: DType, size: int) -> None:
        self.emit, self.packed = emit, key is u32
        self.words: Buffer = emit.scratch(i64, size)
        self.places: Buffer | None = None if self.packed else emit.scratch(i32, size)

    def put(self, at: Index, key: Value, place: Value) -> None:
        """Write a record."""
        if self.places is None:
            high = apply("shl", i64, Cast(key, i64), scalar(32, i64))
            word = apply("or", i64, high, Cast(place, i64))
            self.emit.put(self.words, at, settle(self.emit, word))
            return
        self.emit.put(self.words, at, key)
        self.emit.put(self.places, at, place)

    def get(self, at: Index) -> tuple[Value, Value]:
        """A record."""
        word = self.emit.get(self.words, at)
        if self.places is not None:
            return word, self.emit.get(self.places, at)
        key = settle(self.emit, in_type(apply("lshr", i64, word, scalar(32, i64)), u32))
        return key, settle(self.emit, Cast(word, i32))


def _digit(emit: Emitter, key: Value, position: int) -> Value:
    """A digit of a key, as an i64."""
    last = DIGIT * (position + 1) == key.dtype.bits
    shifted = apply("lshr", key.dtype, key, scalar(DIGIT * position, key.dtype))
    digit = apply("and", key.dtype, shifted, scalar(BINS - 1, key.dtype))
    if last and key.dtype is i64:
        digit = apply("xor", i64, digit, scalar(BINS // 2, i64))  # the sign
    return settle(emit, digit if key.dtype is i64 else in_type(digit, i64))


def _distributed(node: Node, emit: Emitter) -> None:
    """Radix sort, least digit first: each pass moves all records, in order, to where the counts of
    smaller digits say."""
    (x,), axis, size = node.inputs, node.attrs["axis"], node.shape[node.attrs["axis"]]
    wanted = key_type(x.dtype)
    first, digits = _varying(x.dtype), wanted.bits // DIGIT
    with others(node, emit, axis) as at:

        def source(i: Index) -> tuple[Value, Value]:
            key = sort_key(emit, emit.ask(0, at(i)), node.attrs["descending"])
            return key, emit.let(IndexValue(i, i32))

        counts = emit.scratch(i64, (digits - first) * BINS)
        _count(emit, counts, source, range(first, digits), size)
        banks = [_Records(emit, wanted, size) for _ in range(min(digits - first - 1, 2))]
        for turn, position in enumerate(range(first, digits)):
            with emit.loop(size, independent=False) as i:
                key, place = source(i) if turn == 0 else banks[(turn - 1) % 2].get(i)
                slot = emit.dynamic(_digit(emit, key, position), BINS) + turn * BINS
                target = emit.get(counts, slot)
                emit.put(counts, slot, emit.let(apply("add", i64, target, scalar(1, i64))))
                goal = emit.dynamic(target, size)
                if position == digits - 1:
                    emit.store(at(goal), converted(emit, place, i64))
                else:
                    banks[turn % 2].put(goal, key, place)


def _varying(dtype: DType) -> int:
    """The lowest digit of a key that is not the same for all."""
    return 2 if dtype.name == "bf16" else 0


def _count(emit: Emitter, counts: Buffer, source: Any, positions: range, size: int) -> None:
    """Of each digit at each position: where its records begin."""
    with emit.loop(len(positions) * BINS, independent=False) as i:
        emit.put(counts, i, scalar(0, i64))
    with emit.loop(size, independent=False) as i:
        key, _ = source(i)
        for turn, position in enumerate(positions):
            slot = emit.dynamic(_digit(emit, key, position), BINS) + turn * BINS
            emit.put(counts, slot, scalar(1, i64), "add")
    for turn in range(len(positions)):
        before = emit.declare(i64, scalar(0, i64))
        with emit.loop(BINS, independent=False) as i:
            here = emit.get(counts, i + turn * BINS)
            emit.put(counts, i + turn * BINS, read(before))
            emit.set(before, emit.let(Apply("add", (Read(before), here), i64)))


def _build(node: Node, emit: Emitter) -> None:
    if not node.size:
        return
    length = node.shape[node.attrs["axis"]]
    if length <= LONGEST and node.size >= LANES * length:
        networked(node, emit)
    else:
        (_ranked if length <= SHORT else _distributed)(node, emit)


ARGSORT = register(Op("argsort", _infer, _eval, kernel=LoopRule(_build), batch=along_axis,
                      differentiable=False))
