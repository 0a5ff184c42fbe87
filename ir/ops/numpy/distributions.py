"""Random arrays of common distributions, under their jax.random names: key first, then the shape.

Samples of a key are constants to derivatives; parameters (bounds, logits of a Gumbel sum, what a
sample is scaled by) get gradients where a sample is a differentiable function of them.
"""

from __future__ import annotations

from math import ceil, log, sqrt
from typing import Any

import numpy as np

from rlx_py.ir.base.dim import Dim
from rlx_py.ir.base.errors import ArgumentError, DTypeError
from rlx_py.ir.base.types import (
    DType,
    as_dtype,
    as_shape,
    f32,
    f64,
    i64,
    normalize_axis,
    require_float,
    u32,
)
from rlx_py.ir.graph.graph import Graph
from rlx_py.ir.nodes.node import Node
from rlx_py.ir.ops.making.beside import Key
from rlx_py.ir.ops.making.constant import constant, iota
from rlx_py.ir.ops.making.located import located
from rlx_py.ir.ops.numpy.choice import less, maximum
from rlx_py.ir.ops.numpy.folding import argmax
from rlx_py.ir.ops.operands.operand import as_node, broadcast_shape, broadcast_to, convert
from rlx_py.ir.ops.primitive.compare import AND, OR, SHR
from rlx_py.ir.ops.primitive.elementwise import (
    ADD,
    BITCAST,
    LOG,
    LOG1P,
    MUL,
    NEG,
    REM,
    SUB,
    cast,
    fill,
)
from rlx_py.ir.ops.primitive.index import GATHER
from rlx_py.ir.ops.primitive.order import ARGSORT
from rlx_py.ir.ops.primitive.random import RANDOM_BITS, RANDOM_KEYS
from rlx_py.ir.ops.primitive.special import ERF, ERFINV

# Of a float type: how many random bits fill its mantissa.
MANTISSA = {"f64": 52, "f32": 23, "f16": 10, "bf16": 7}


# ---- keys ------------------------------------------------------------------------------------


def seeded(seed: int) -> np.ndarray[Any, Any]:
    """The words of a key from an integer seed of at most 64 bits."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
        raise ArgumentError(f"a seed is an integer, not {seed!r}")
    if not -(2**63) <= seed < 2**64:
        raise ArgumentError(f"seed {seed} has more than 64 bits")
    words = int(seed) % 2**64
    return np.array([words >> 32, words & 0xFFFFFFFF], np.uint32)


def _single(key: Key) -> Node:
    node = as_node(key, u32)
    if node.dtype is not u32 or node.shape != (2,):
        raise DTypeError(f"a key is u32[2], not {node.type}")
    return node


@located
def key(seed: Any) -> Node:
    """A key (u32[2]) from an integer of at most 64 bits."""
    return constant(seeded(seed))


@located
def split(key: Key, num: int = 2) -> Node:
    """`num` independent keys, u32[num, 2]: index or unpack it."""
    if isinstance(num, bool) or not isinstance(num, int | np.integer) or num < 0:
        raise ArgumentError(f"a number of keys is a non-negative integer, not {num!r}")
    return RANDOM_KEYS(_single(key), iota((int(num),), 0, u32))


@located
def fold_in(key: Key, data: Any) -> Node:
    """A key from a key and an integer (a step, a layer's number), which may be a run-time one."""
    if isinstance(data, int) and not isinstance(data, bool):
        node = constant(data % 2**32, u32)
    else:
        node = as_node(data)
    if not node.dtype.is_int or node.rank:
        raise DTypeError(f"what is folded in is an integer, not {node.type}")
    return RANDOM_KEYS(_single(key), convert(node, u32))


@located
def key_state(g: Graph, seed: int = 0, name: str = "key") -> Node:
    """A fresh key for each run of a step: a state of the graph that every step splits.

    Returns the key to use; the state's next value is the other half of the split.
    """
    state = g.state(name, (2,), u32, init=seeded(seed))
    keys = split(state)
    g.next(name, keys[0])
    return keys[1]


# ---- uniform ---------------------------------------------------------------------------------


@located
def bits(key: Key, shape: Any = (), dtype: Any = u32) -> Node:
    """Random bits: u32, or i64 for 64 of them. Integers of every value are equally likely."""
    return RANDOM_BITS(_single(key), shape=as_shape(shape), dtype=as_dtype(dtype))


def _unit(key: Key, shape: tuple[int, ...], dtype: DType) -> Node:
    """Uniform on [0, 1): as many bits as the mantissa has, so that no value is rounded."""
    require_float("uniform", dtype)
    if dtype is f64:
        drawn = RANDOM_BITS(_single(key), shape=shape, dtype=i64)
        mantissa = AND(SHR(drawn, fill(drawn, 12)), fill(drawn, 2**52 - 1))
        return SUB(BITCAST(OR(mantissa, fill(drawn, 0x3FF << 52)), dtype=f64),
                   broadcast_to(constant(1.0, f64), shape))
    drawn = RANDOM_BITS(_single(key), shape=shape, dtype=u32)
    kept = MANTISSA[dtype.name]
    # The top bits of a mantissa of 23: a number of [1, 2) in f32, less 1.
    top = AND(SHR(drawn, fill(drawn, 9)), fill(drawn, (1 << 23) - (1 << 23 - kept)))
    one = broadcast_to(constant(1.0, f32), shape)
    return cast(SUB(BITCAST(OR(top, fill(drawn, 0x7F << 23)), dtype=f32), one), dtype)


def _number(value: Any, dtype: DType) -> Node:
    return convert(as_node(value, dtype), dtype)


@located
def uniform(key: Key, shape: Any = (), dtype: Any = f32, minval: Any = 0.0,
            maxval: Any = 1.0) -> Node:
    """Uniform on [minval, maxval); bounds broadcast against the shape and get gradients."""
    dims, kind = as_shape(shape), as_dtype(dtype)
    u = _unit(key, dims, kind)
    if isinstance(minval, float) and isinstance(maxval, float) and (minval, maxval) == (0, 1):
        return u
    low, high = (broadcast_to(_number(v, kind), dims) for v in (minval, maxval))
    return maximum(low, ADD(MUL(u, SUB(high, low)), low))


@located
def randint(key: Key, shape: Any, minval: int, maxval: int, dtype: Any = i64) -> Node:
    """Integers of minval … maxval − 1, all equally likely to within 2⁻³²; at most 2³² − 1 of them.

    Raises ArgumentError where the range is empty, too wide or does not fit the type.
    """
    kind, dims = as_dtype(dtype), as_shape(shape)
    if not kind.is_int:
        raise DTypeError(f"integers are of an integer type, not {kind}")
    limits = np.iinfo(kind.numpy)
    if not (limits.min <= minval and maxval - 1 <= limits.max and 0 < maxval - minval < 2**32):
        raise ArgumentError(f"no range of fewer than 2³² values of {kind}: {minval} … {maxval - 1}")
    keys, span = split(as_node(key)), maxval - minval
    upper, lower = (RANDOM_BITS(keys[i], shape=dims, dtype=u32) for i in (0, 1))
    size, carry = fill(upper, span), fill(upper, (2**16 % span) ** 2 % 2**32 % span)
    mixed = ADD(MUL(REM(upper, size), carry), REM(lower, size))
    offset = cast(REM(mixed, size), kind)
    return ADD(offset, fill(offset, minval)) if minval else offset


@located
def bernoulli(key: Key, p: Any = 0.5, shape: Any = None) -> Node:
    """True with probability p, which broadcasts against the shape (by default p's own)."""
    chance = as_node(p, f32)
    require_float("bernoulli", chance.dtype)
    dims = chance.shape if shape is None else as_shape(shape)
    return less(_unit(key, dims, chance.dtype), broadcast_to(chance, dims))


# ---- others ----------------------------------------------------------------------------------


def _open(key: Key, shape: tuple[int, ...], dtype: DType, low: float, high: float) -> Node:
    """Uniform between two numbers, the lower excepted only by rounding."""
    u = _unit(key, shape, dtype)
    a, b = fill(u, low), fill(u, high)
    return maximum(a, ADD(MUL(u, SUB(b, a)), a))


def _wide(dtype: Any) -> tuple[DType, DType]:
    """The type asked for, and that in which the tails of its samples are made."""
    kind = as_dtype(dtype)
    require_float("a continuous distribution", kind)
    return kind, kind.compute


@located
def normal(key: Key, shape: Any = (), dtype: Any = f32) -> Node:
    """Standard normal: √2·erf⁻¹ of uniform numbers of (−1, 1)."""
    kind, wide = _wide(dtype)
    lowest = float(np.nextafter(wide.numpy.type(-1), wide.numpy.type(0)))
    y = ERFINV(_open(key, as_shape(shape), wide, lowest, 1))
    return cast(MUL(y, fill(y, sqrt(2))), kind)


@located
def truncated_normal(key: Key, lower: Any, upper: Any, shape: Any = None,
                     dtype: Any = f32) -> Node:
    """Standard normal between bounds, which broadcast and get gradients."""
    kind, wide = _wide(dtype)
    low, high = (_number(v, wide) for v in (lower, upper))
    dims = broadcast_shape(low.shape, high.shape) if shape is None else as_shape(shape)
    low, high = broadcast_to(low, dims), broadcast_to(high, dims)
    a, b = (ERF(MUL(v, fill(v, sqrt(0.5)))) for v in (low, high))
    y = ERFINV(ADD(MUL(_unit(key, dims, wide), SUB(b, a)), a))
    # Rounding of erf may pass a bound.
    inside = maximum(low, NEG(maximum(NEG(high), NEG(MUL(y, fill(y, sqrt(2)))))))
    return cast(inside, kind)


@located
def exponential(key: Key, shape: Any = (), dtype: Any = f32) -> Node:
    """Exponential of rate 1: −log(1 − u)."""
    kind, wide = _wide(dtype)
    return cast(NEG(LOG1P(NEG(_unit(key, as_shape(shape), wide)))), kind)


@located
def gumbel(key: Key, shape: Any = (), dtype: Any = f32) -> Node:
    """Standard Gumbel: −log(−log u)."""
    kind, wide = _wide(dtype)
    u = _open(key, as_shape(shape), wide, float(np.finfo(wide.numpy).tiny), 1)
    return cast(NEG(LOG(NEG(LOG(u)))), kind)


@located
def categorical(key: Key, logits: Any, axis: int = -1, shape: Any = None) -> Node:
    """Positions (i64) along an axis with probabilities softmax(logits): the largest of logits plus
    Gumbel noise.

    shape: of the result, against whose end the other axes of the logits broadcast (several samples
    of each). An impossible choice has the logit −inf.
    """
    node = as_node(logits)
    require_float("categorical", node.dtype)
    at = normalize_axis(axis, node.rank)
    rest = (*node.shape[:at], *node.shape[at + 1:])
    dims = rest if shape is None else as_shape(shape)
    if broadcast_shape(rest, dims) != dims:
        raise ArgumentError(f"samples of shape {dims} are not of {node.type} along axis {at}")
    at += len(dims) - len(rest)
    whole = (*dims[:at], node.shape[at - len(dims) + len(rest)], *dims[at:])
    wide = cast(node, node.dtype.compute)
    return argmax(gumbel(key, whole, wide.dtype) + broadcast_to(wide, whole), at)


@located
def permutation(key: Key, x: Any, axis: int = 0) -> Node:
    """The elements along an axis in random order; of an integer n, those of 0 … n − 1 (i64).

    Sorted by random words, as often as makes equal words unlikely to matter.
    """
    if isinstance(x, int | Dim) and not isinstance(x, bool):
        node, at = iota((x,), 0, i64), 0
    else:
        node = as_node(x)
        at = normalize_axis(axis, node.rank)
    size = node.shape[at]
    places = iota((size,), 0, i64)
    key = as_node(key, u32)
    for _ in range(ceil(3 * log(max(size, 1)) / log(2**32 - 1))):
        keys = split(key)
        key = keys[0]
        order = ARGSORT(RANDOM_BITS(keys[1], shape=(size,), dtype=u32), axis=0, descending=False)
        places = GATHER(places, order, axis=0, mode="clip")
    return GATHER(node, places, axis=at, mode="clip") if node.size else node
