"""Pools to an output of given size: place i of n covers elements ⌊i·L/n⌋ … ⌈(i+1)·L/n⌉ − 1 of L.

Element l is then covered by places ⌊l·n/L⌋ … ⌈(l+1)·n/L⌉ − 1: the sums over what is covered and
over what covers are one formula with L and n exchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import inf, prod
from typing import Any

from rlx_py.ir.base.dim import surely_less
from rlx_py.ir.base.errors import ArgumentError, ShapeError
from rlx_py.ir.base.types import DType, TensorType, Type, i32, i64, require_float
from rlx_py.ir.graph.transforms import AD
from rlx_py.ir.nodes.node import Node, Op
from rlx_py.ir.ops.making.arguments import require_shape
from rlx_py.ir.ops.making.constant import iota
from rlx_py.ir.ops.making.families import composite
from rlx_py.ir.ops.making.located import located
from rlx_py.ir.ops.making.rows import before_places
from rlx_py.ir.ops.nn.pool.pool import MAX_POOL, max_positions
from rlx_py.ir.ops.operands.operand import as_node, convert
from rlx_py.ir.ops.operands.precision import in_compute_type
from rlx_py.ir.ops.operands.spatial import check_attributes, per_axis
from rlx_py.ir.ops.primitive.compare import AND, LT
from rlx_py.ir.ops.primitive.elementwise import DIV, INT_DIV, MUL, SELECT, cast, fill
from rlx_py.ir.ops.primitive.index import GATHER, TAKE_ALONG
from rlx_py.ir.ops.primitive.movement import filled, reshaped, spread
from rlx_py.ir.ops.primitive.reduce import ARGMAX, REDUCE_SUM

Sizes = tuple[int, ...]

# ---- what a place covers ---------------------------------------------------------------------


def _counter(length: int, places: int) -> DType:
    """An integer type that holds every product of a place and the length."""
    return i32 if surely_less((length + 1) * (places + 1), 2**31) else i64


def _starts(length: int, places: int, shift: int = 0) -> Node:
    """⌊(i + shift)·L/n⌋ for each place i."""
    i = iota(places, 0, _counter(length, places)) + shift
    return INT_DIV(i * length, fill(i, places))


def _ends(length: int, places: int) -> Node:
    """⌈(i + 1)·L/n⌉ for each place i."""
    i = iota(places, 0, _counter(length, places)) + 1
    return INT_DIV(i * length + (places - 1), fill(i, places))


def _widest(length: int, places: int) -> int:
    """The most that a place covers, or one more: a place meets at most two broken elements."""
    whole, rest = divmod(length, places)
    return whole + (0 if not rest else 1 if places % rest == 0 else 2)


def _covered(length: int, places: int) -> tuple[Node, Node]:
    """[n, k]: the elements that each place covers, and whether there is a k-th."""
    shape = (places, _widest(length, places))
    first = spread(_starts(length, places), shape, (0,))
    element = first + iota(shape, 1, first.dtype)
    return element, LT(element, spread(_ends(length, places), shape, (0,)))


def _sums(x: Node, axis: int, places: int) -> Node:
    """Of each place of an axis, the sum over the elements it covers."""
    length = x.shape[axis]
    lead, tail = x.shape[:axis], x.shape[axis + 1:]
    if length % places == 0:
        split = reshaped(x, (*lead, places, length // places, *tail))
        return REDUCE_SUM(split, axes=(axis + 1,)) if length != places else x
    if places % length == 0:
        copies = (*lead, length, places // length, *tail)
        kept = tuple(i for i in range(len(copies)) if i != axis + 1)
        return reshaped(spread(x, copies, kept), (*lead, places, *tail))
    element, there = _covered(length, places)
    found = GATHER(x, element, axis=axis, mode="clip")
    there = spread(there, found.shape, (axis, axis + 1))
    return REDUCE_SUM(SELECT(there, found, fill(found, 0)), axes=(axis + 1,))


def _divided(y: Node, lengths: Sizes) -> Node:
    """Each place of the last axes over the number of elements that it covers."""
    whole, lines = 1, []
    first = y.rank - len(lengths)
    for axis, length in enumerate(lengths, first):
        places = y.shape[axis]
        if length % places == 0 or places % length == 0:
            whole *= max(length // places, 1)
        else:
            count = _ends(length, places) - _starts(length, places)
            lines.append(spread(convert(count, y.dtype), y.shape, (axis,)))
    return DIV(y, reduce(MUL, lines, fill(y, whole)))


# ---- average ---------------------------------------------------------------------------------


def _pooled(x: TensorType, output: Sizes) -> TensorType:
    check_attributes(len(output), 1, output=output)
    lead = x.rank - len(output)
    if lead < 0 or not all(x.shape[lead:]):
        raise ShapeError(f"{x} has no elements of {len(output)} axes to pool")
    return x.with_shape((*x.shape[:lead], *output))


def _infer(x: TensorType, *, output: Sizes) -> Type:
    require_float("adaptive_avg_pool", x.dtype)
    return _pooled(x, output)


def _infer_backward(dy: TensorType, *, output: Sizes, shape: Sizes) -> Type:
    require_float("adaptive_avg_pool_backward", dy.dtype)
    if len(shape) != len(output) or dy.rank < len(shape):
        raise ShapeError(f"{dy} is no pool of {shape} to {output}")
    x = dy.with_shape((*dy.shape[:dy.rank - len(shape)], *shape))
    require_shape("dy", dy, _pooled(x, output).shape)
    return x


def _all_sums(x: Node, places: Sizes) -> Node:
    for axis, n in enumerate(places, x.rank - len(places)):
        x = _sums(x, axis, n)
    return x


@in_compute_type
def _average(x: Node, *, output: Sizes) -> Node:
    return _divided(_all_sums(x, output), x.shape[x.rank - len(output):])


@in_compute_type
def _average_backward(dy: Node, *, output: Sizes, shape: Sizes) -> Node:
    return _all_sums(_divided(dy, shape), shape)


def _vjp(node: Node, ct: Node, ad: AD) -> Sequence[Node | None]:
    (x,), output = node.inputs, node.attrs["output"]
    return (ADAPTIVE_AVG_POOL_BACKWARD(ct, output=output, shape=x.shape[x.rank - len(output):]),)


def _backward_vjp(node: Node, ct: Node, ad: AD) -> Sequence[Node | None]:
    return (ADAPTIVE_AVG_POOL(ct, output=node.attrs["output"]),)


def _linear_jvp(node: Node, tangents: Sequence[Node | None], ad: AD) -> Node | None:
    (t,) = tangents
    return None if t is None else node.op(t, **node.attrs)


ADAPTIVE_AVG_POOL: Op = composite("adaptive_avg_pool", _infer, _average, vjp=_vjp,
                                  jvp=_linear_jvp, rows=before_places("output"))
ADAPTIVE_AVG_POOL_BACKWARD: Op = composite(
    "adaptive_avg_pool_backward", _infer_backward, _average_backward, vjp=_backward_vjp,
    jvp=_linear_jvp)

# ---- max -------------------------------------------------------------------------------------


def _maxima(x: Node, output: Sizes) -> tuple[Node, Node]:
    """The maximum of each place, the first in row-major order, and where it is."""
    require_float("adaptive_max_pool", x.dtype)
    _pooled(x.tensor, output)
    rank = len(output)
    lead, lengths = x.shape[:x.rank - rank], x.shape[x.rank - rank:]
    if all(length % n == 0 for length, n in zip(lengths, output, strict=True)):
        size = tuple(length // n for length, n in zip(lengths, output, strict=True))
        y = MAX_POOL(x, size=size, stride=size, low=(0,) * rank, high=(0,) * rank,
                     dilation=(1,) * rank)
        return y, max_positions(y)
    place = _first_maxima(x, output)
    flat = reshaped(x, (*lead, prod(lengths)))
    y = TAKE_ALONG(flat, reshaped(place, (*lead, prod(output))), axis=len(lead), mode="clip")
    return reshaped(y, place.shape), place


def _first_maxima(x: Node, output: Sizes) -> Node:
    """Where the first maximum of each place is: i64, row-major over the last axes."""
    rank = len(output)
    lead, lengths = x.rank - rank, x.shape[x.rank - rank:]
    found, inside = x, []
    for i, (length, n) in enumerate(zip(lengths, output, strict=True)):
        element, there = _covered(length, n)
        found = GATHER(found, element, axis=lead + 2 * i, mode="clip")
        inside.append(there)
    masks = [spread(there, found.shape, (lead + 2 * i, lead + 2 * i + 1))
             for i, there in enumerate(inside)]
    # The first element of a window always counts, so it comes before all that is masked.
    found = SELECT(reduce(AND, masks), found, fill(found, -inf))
    tap = ARGMAX(found, axes=tuple(lead + 2 * i + 1 for i in range(rank)))
    taps = prod(there.shape[1] for there in inside)
    place = filled(0, tap.tensor)
    for i, (length, n) in enumerate(zip(lengths, output, strict=True)):
        size = inside[i].shape[1]
        taps //= size
        start = spread(cast(_starts(length, n), i64), tap.shape, (lead + i,))
        place = place * length + start + tap // taps % size
    return place


# ---- public ----------------------------------------------------------------------------------


def _prepared(rank: int, name: str, input: Any, output_size: Any) -> tuple[Node, Sizes]:
    x = as_node(input)
    if x.rank not in (rank + 1, rank + 2):
        raise ShapeError(f"{name} takes rank {rank + 1} or {rank + 2}, not {x.type}")
    entries = output_size if isinstance(output_size, Sequence) else (output_size,) * rank
    if len(entries) == 1:
        entries = (*entries,) * rank
    if len(entries) != rank:
        raise ArgumentError(f"output_size {output_size!r} needs {rank} entries")
    lengths = x.shape[x.rank - rank:]
    sizes = tuple(n if e is None else e for e, n in zip(entries, lengths, strict=True))
    return x, per_axis("output_size", sizes, rank, 1)


def _averaged(rank: int, input: Any, output_size: Any) -> Node:
    x, output = _prepared(rank, f"adaptive_avg_pool{rank}d", input, output_size)
    return ADAPTIVE_AVG_POOL(x, output=output)


def _max_pooled(rank: int, input: Any, output_size: Any) -> tuple[Node, Node]:
    return _maxima(*_prepared(rank, f"adaptive_max_pool{rank}d", input, output_size))


@located
def adaptive_avg_pool1d(input: Any, output_size: Any) -> Node:
    """Means of input[N, C, L] or [C, L] to output_size places; as `adaptive_avg_pool2d`."""
    return _averaged(1, input, output_size)


@located
def adaptive_avg_pool2d(input: Any, output_size: Any) -> Node:
    """Means of input[N, C, H, W] or [C, H, W] to output_size places, one int or one an axis.

    Place i of n is the mean of elements ⌊i·L/n⌋ … ⌈(i+1)·L/n⌉ − 1 of an axis of L. None keeps an
    axis. f16 and bf16 compute in f32. Raises ShapeError (rank, no elements), DTypeError (not a
    float), ArgumentError (sizes below 1).
    """
    return _averaged(2, input, output_size)


@located
def adaptive_avg_pool3d(input: Any, output_size: Any) -> Node:
    """Means of input[N, C, D, H, W] or [C, D, H, W]; as `adaptive_avg_pool2d`."""
    return _averaged(3, input, output_size)


@located
def adaptive_max_pool1d(input: Any, output_size: Any) -> Node:
    """Maxima of input[N, C, L] or [C, L] to output_size places; as `adaptive_max_pool2d`."""
    return _max_pooled(1, input, output_size)[0]


@located
def adaptive_max_pool2d(input: Any, output_size: Any) -> Node:
    """Maxima over the places of `adaptive_avg_pool2d`.

    NaN wins. The gradient goes to the first maximum in row-major order. Raises alike.
    """
    return _max_pooled(2, input, output_size)[0]


@located
def adaptive_max_pool3d(input: Any, output_size: Any) -> Node:
    """Maxima of input[N, C, D, H, W] or [C, D, H, W]; as `adaptive_max_pool2d`."""
    return _max_pooled(3, input, output_size)[0]


@located
def adaptive_max_pool1d_with_indices(input: Any, output_size: Any) -> tuple[Node, Node]:
    """`adaptive_max_pool1d`, and where each maximum is: i64."""
    return _max_pooled(1, input, output_size)


@located
def adaptive_max_pool2d_with_indices(input: Any, output_size: Any) -> tuple[Node, Node]:
    """`adaptive_max_pool2d`, and where each maximum is: i64, row-major over the pooled axes."""
    return _max_pooled(2, input, output_size)


@located
def adaptive_max_pool3d_with_indices(input: Any, output_size: Any) -> tuple[Node, Node]:
    """`adaptive_max_pool3d`, and where each maximum is: i64, row-major over the pooled axes."""
    return _max_pooled(3, input, output_size)
