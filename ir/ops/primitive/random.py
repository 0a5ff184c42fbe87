"""Random numbers as functions of an explicit key: Threefry-2x32 with 20 rounds.

The generator is that of J. Salmon et al., Parallel random numbers: as easy as 1, 2, 3 (2011). It
counts: element i of an array is a function of the key and of i alone, so that any backend, thread
or order gives the same bits and nothing is stored. A key is u32[2]. Keys and bits are those of
jax.random; a key used twice gives the same numbers twice, so split it. Under vmap the ops take
a key for each element of their first axes.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

import numpy as np

from rlx_py.ir.base.errors import DTypeError, ShapeError
from rlx_py.ir.base.types import DType, TensorType, Type, as_shape, bool_, i64, u32
from rlx_py.ir.graph.transforms import Batcher
from rlx_py.ir.loops.index import ZERO, Index, as_index, row_major
from rlx_py.ir.loops.kernel import Expr, IndexValue
from rlx_py.ir.nodes.node import Ask, Node, Op, make, register
from rlx_py.ir.ops.making.batching import Flags, repeated, size_of
from rlx_py.ir.ops.making.families import Array
from rlx_py.ir.ops.making.guards import apply, choose, in_type, scalar

Asked = Generator[Ask, Any, Expr]
ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA  # of the key schedule; Threefish's constant, cut to 32 bits
WORD = 1 << 32
COST = 100


def threefry(key: Array, high: Array, low: Array) -> tuple[Array, Array]:
    """The two words that Threefry-2x32-20 makes of a key and a counter of two words."""
    k0, k1 = (np.asarray(k, np.uint32) for k in key)
    schedule = (k0, k1, k0 ^ k1 ^ np.uint32(PARITY))
    with np.errstate(over="ignore"):
        x, y = high + k0, low + k1
        for group in range(5):
            for count in ROTATIONS[group % 2]:
                x = x + y
                y = (y << np.uint32(count) | y >> np.uint32(32 - count)) ^ x
            x = x + schedule[(group + 1) % 3]
            y = y + schedule[(group + 2) % 3] + np.uint32(group + 1)
    return x, y


def _word(op: str, a: Expr, b: Expr) -> Expr:
    return apply(op, u32, a, b)


def _threefry_at(lead: tuple[Index, ...], high: Expr, low: Expr
                 ) -> Generator[Ask, Any, tuple[Expr, Expr]]:
    """The same as scalar code, with the key from input 0 at some first axes."""

    def number(value: int) -> Expr:
        return scalar(value, u32)

    k0 = yield (0, (*lead, ZERO))
    k1 = yield (0, (*lead, as_index(1)))
    mixed = yield ("let", _word("xor", _word("xor", k0, k1), number(PARITY)))
    schedule = (k0, k1, mixed)
    x = yield ("let", _word("add", high, k0))
    y = yield ("let", _word("add", low, k1))
    for group in range(5):
        for count in ROTATIONS[group % 2]:
            x = yield ("let", _word("add", x, y))
            turned = _word("or", _word("shl", y, number(count)),
                           _word("lshr", y, number(32 - count)))
            y = yield ("let", _word("xor", turned, x))
        x = yield ("let", _word("add", x, schedule[(group + 1) % 3]))
        injected = _word("add", schedule[(group + 2) % 3], number(group + 1))
        y = yield ("let", _word("add", y, injected))
    return x, y


def _check_keys(keys: TensorType, shape: tuple[int, ...]) -> None:
    """One key, or one for each element of the first axes of a shape."""
    if keys.dtype is not u32 or keys.shape[-1:] != (2,):
        raise DTypeError(f"a key is u32[2], not {keys}")
    if shape[:keys.rank - 1] != keys.shape[:-1]:
        raise ShapeError(f"keys {keys} do not lie along the first axes of {shape}")


def _spread(keys: Array, rank: int) -> Array:
    """Both words of keys, which then meet arrays of a rank with the first axes of the keys."""
    words = np.moveaxis(np.asarray(keys), -1, 0)
    return words.reshape(words.shape + (1,) * (rank - words.ndim + 1))


# ---- bits ------------------------------------------------------------------------------------


def _infer_bits(key: TensorType, *, shape: tuple[int, ...], dtype: DType) -> Type:
    _check_keys(key, shape)
    if dtype not in (u32, i64):
        raise DTypeError(f"bits come as u32 or i64, not {dtype}")
    return TensorType(dtype, as_shape(shape))


def _eval_bits(key: Array, *, shape: tuple[int, ...], dtype: DType) -> Array:
    own = shape[key.ndim - 1:]
    flat = np.arange(int(np.prod(own, dtype=np.int64)), dtype=np.uint64).reshape(own)
    flat = np.broadcast_to(flat, shape)
    high, low = (flat >> np.uint64(32)).astype(np.uint32), flat.astype(np.uint32)
    x, y = threefry(_spread(key, len(shape)), high, low)
    if dtype is u32:
        return np.asarray(x ^ y)
    return np.asarray(x.astype(np.uint64) << np.uint64(32) | y).view(np.int64)


def _bits_element(node: Any, index: tuple[Index, ...]) -> Asked:
    lead = node.inputs[0].rank - 1
    flat = row_major(index[lead:], node.shape[lead:])
    high, low = IndexValue(flat // WORD, u32), IndexValue(flat % WORD, u32)
    x, y = yield from _threefry_at(index[:lead], high, low)
    if node.dtype is u32:
        return _word("xor", x, y)
    return _pair(x, y)


def _pair(high: Expr, low: Expr) -> Expr:
    """high·2³² + low as the bits of an i64."""
    wide = apply("shl", i64, in_type(high, i64), scalar(32, i64))
    return apply("or", i64, wide, in_type(low, i64))


def _batch_bits(node: Node, inputs: Sequence[Node], batched: Flags, batcher: Batcher) -> Node:
    return make(node.op, inputs, {**node.attrs, "shape": (inputs[0].shape[0], *node.shape)})


RANDOM_BITS = register(Op("random_bits", _infer_bits, _eval_bits, element=_bits_element,
                          batch=_batch_bits, differentiable=False, cost=COST))

# ---- keys ------------------------------------------------------------------------------------


def _infer_keys(key: TensorType, counter: TensorType) -> Type:
    _check_keys(key, counter.shape)
    if counter.dtype is not u32:
        raise DTypeError(f"a counter is u32, not {counter}")
    return counter.with_shape((*counter.shape, 2))


def _eval_keys(key: Array, counter: Array) -> Array:
    return np.stack(threefry(_spread(key, counter.ndim), np.zeros_like(counter), counter), -1)


def _keys_element(node: Any, index: tuple[Index, ...]) -> Asked:
    counter = yield (1, index[:-1])
    lead = index[:node.inputs[0].rank - 1]
    x, y = yield from _threefry_at(lead, scalar(0, u32), counter)
    second = apply("ne", bool_, IndexValue(index[-1], u32), scalar(0, u32))
    return choose(second, y, x, u32)


def _batch_keys(node: Node, inputs: Sequence[Node], batched: Flags, batcher: Batcher) -> Node:
    (key, counter), size = inputs, size_of(inputs, batched)
    if not batched[1]:
        counter = repeated(counter, size)
    elif not batched[0] and key.rank > 1:
        key = repeated(key, size)
    return make(node.op, (key, counter), node.attrs)


# A key for each counter: what split and fold_in are made of.
RANDOM_KEYS = register(Op("random_keys", _infer_keys, _eval_keys, element=_keys_element,
                          batch=_batch_keys, differentiable=False, cost=COST))
