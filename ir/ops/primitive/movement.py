"""Ops that move elements without arithmetic: maps of indices, through which fusion sees."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np

from rlx_py.ir.base.dim import larger
from rlx_py.ir.base.errors import ArgumentError, DTypeError, ShapeError
from rlx_py.ir.base.types import TensorType, Type, bool_
from rlx_py.ir.graph.stored import Emitter, LoopRule
from rlx_py.ir.graph.transforms import AD, Batcher
from rlx_py.ir.loops.index import ZERO, Index, row_major, unravel
from rlx_py.ir.loops.kernel import Expr
from rlx_py.ir.nodes.node import OPS, Ask, Node, Op, make, register
from rlx_py.ir.ops.making.batching import Flags, along_axis, over_axes, together, up
from rlx_py.ir.ops.making.constant import constant
from rlx_py.ir.ops.making.families import Array, linear
from rlx_py.ir.ops.making.guards import both, choose, divides, never, within

Asked = Generator[Ask, Expr, Expr]
Sizes = tuple[int, ...]


def filled(value: Any, type: TensorType) -> Node:
    """A tensor of one value."""
    return spread(constant(value, type.dtype), type.shape, ())


def spread(node: Node, shape: Sizes, axes: Sizes) -> Node:
    """BROADCAST, or the node itself where nothing changes."""
    return node if node.shape == shape else BROADCAST(node, shape=shape, axes=axes)


def permuted(node: Node, axes: Sizes) -> Node:
    """TRANSPOSE, or the node itself where nothing changes."""
    return node if axes == tuple(range(node.rank)) else TRANSPOSE(node, axes=axes)


def reshaped(node: Node, shape: Sizes) -> Node:
    """RESHAPE, or the node itself where nothing changes."""
    return node if node.shape == shape else RESHAPE(node, shape=shape)


# ---- reshape ---------------------------------------------------------------------------------


def _infer_reshape(x: TensorType, *, shape: Sizes) -> Type:
    found = x.with_shape(shape)
    if found.size != x.size or any(d < 0 for d in shape):
        raise ShapeError(f"{x.size} elements do not fill shape {shape}")
    return found


def reshape_groups(a: Sizes, b: Sizes) -> list[tuple[list[int], list[int]]]:
    """Smallest runs of axes of two shapes (of one nonzero size) that hold the same elements."""
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(a) or j < len(b):
        left: list[int] = []
        right: list[int] = []
        m = n = 1
        while not (left or right) or m != n:
            if j >= len(b) or (i < len(a) and m <= n):
                left.append(i)
                m *= a[i]
                i += 1
            else:
                right.append(j)
                n *= b[j]
                j += 1
        groups.append((left, right))
    return groups


def _reshape_element(node: Node, index: tuple[Index, ...]) -> Asked:
    source, target = node.inputs[0].shape, node.shape
    found = [ZERO] * len(source)
    # Run by run, so that an axis which stays whole keeps its index untouched.
    for left, right in reshape_groups(source, target):
        wide = [j for j in right if target[j] != 1]
        flat = row_major([index[j] for j in wide], [target[j] for j in wide])
        kept = [i for i in left if source[i] != 1]
        for i, position in zip(kept, unravel(flat, tuple(source[i] for i in kept)), strict=True):
            found[i] = position
    return (yield (0, tuple(found)))



def _reshape_batch(node: Node, inputs: Sequence[Node], batched: Flags, batcher: Batcher) -> Node:
    return reshaped(inputs[0], (inputs[0].shape[0], *node.shape))


RESHAPE = linear(
    "reshape", _infer_reshape, lambda x, *, shape: np.reshape(x, shape),
    lambda node, ct: reshaped(ct, node.inputs[0].shape), element=_reshape_element,
    batch=_reshape_batch)

# ---- transpose -------------------------------------------------------------------------------


def _infer_transpose(x: TensorType, *, axes: Sizes) -> Type:
    if sorted(axes) != list(range(x.rank)):
        raise ArgumentError(f"axes {axes} are not a permutation of 0..{x.rank - 1}")
    return x.with_shape(x.shape[a] for a in axes)


def inverse(axes: Sizes) -> Sizes:
    """The permutation that undoes this one."""
    return tuple(axes.index(i) for i in range(len(axes)))


def _transpose_element(node: Node, index: tuple[Index, ...]) -> Asked:
    return (yield (0, tuple(index[i] for i in inverse(node.attrs["axes"]))))



def _transpose_batch(node: Node, inputs: Sequence[Node], batched: Flags, batcher: Batcher) -> Node:
    return permuted(inputs[0], (0, *up(node.attrs["axes"])))


TRANSPOSE = linear(
    "transpose", _infer_transpose, lambda x, *, axes: np.transpose(x, axes),
    lambda node, ct: permuted(ct, inverse(node.attrs["axes"])), element=_transpose_element,
    batch=_transpose_batch)

# ---- broadcast -------------------------------------------------------------------------------


def _infer_broadcast(x: TensorType, *, shape: Sizes, axes: Sizes) -> Type:
    if len(axes) != x.rank or list(axes) != sorted(set(axes)):
        raise ArgumentError(f"axes {axes} must place each of {x.rank} axes, in increasing order")
    if axes and not (axes[0] >= 0 and axes[-1] < len(shape)):
        raise ArgumentError(f"axes {axes} are out of range for shape {shape}")
    if any(d < 0 for d in shape) or tuple(shape[a] for a in axes) != x.shape:
        raise ShapeError(f"{x} does not lie along axes {axes} of {shape}")
    return x.with_shape(shape)


def _eval_broadcast(x: Array, *, shape: Sizes, axes: Sizes) -> Array:
    inner = [shape[i] if i in axes else 1 for i in range(len(shape))]
    return np.broadcast_to(np.reshape(x, inner), shape)


def _broadcast_element(node: Node, index: tuple[Index, ...]) -> Asked:
    return (yield (0, tuple(index[a] for a in node.attrs["axes"])))


def _broadcast_transpose(node: Node, ct: Node) -> Node:
    rest = tuple(i for i in range(ct.rank) if i not in node.attrs["axes"])
    return make(OPS["reduce_sum"], (ct,), {"axes": rest}) if rest else ct



def _broadcast_batch(node: Node, inputs: Sequence[Node], batched: Flags, batcher: Batcher) -> Node:
    return spread(inputs[0], (inputs[0].shape[0], *node.shape), (0, *up(node.attrs["axes"])))


BROADCAST = linear("broadcast", _infer_broadcast, _eval_broadcast, _broadcast_transpose,
                   element=_broadcast_element, batch=_broadcast_batch)

# ---- slice -----------------------------------------------------------------------------------


def _infer_slice(x: TensorType, *, start: Sizes, stop: Sizes, step: Sizes) -> Type:
    if not len(start) == len(stop) == len(step) == x.rank:
        raise ArgumentError(f"start, stop and step need {x.rank} entries")
    for a, b, s, d in zip(start, stop, step, x.shape, strict=True):
        if s < 1 or not 0 <= a <= b <= d:
            raise ShapeError(f"slice {a}:{b}:{s} does not lie in a size of {d}")
    return x.with_shape(-(-(b - a) // s) for a, b, s in zip(start, stop, step, strict=True))


def _eval_slice(x: Array, *, start: Sizes, stop: Sizes, step: Sizes) -> Array:
    return x[tuple(map(slice, start, stop, step))]


def _slice_element(node: Node, index: tuple[Index, ...]) -> Asked:
    start, step = node.attrs["start"], node.attrs["step"]
    return (yield (0, tuple(i * s + a for i, a, s in zip(index, start, step, strict=True))))


def _slice_transpose(node: Node, ct: Node) -> Node:
    start, step = node.attrs["start"], node.attrs["step"]
    high = tuple(
        d - a - n if s == 1 else d - a - (n - 1) * s - 1 if n else d - a
        for d, a, s, n in zip(node.inputs[0].shape, start, step, node.shape, strict=True))
    return padded(ct, constant(0, ct.dtype), start, high, tuple(s - 1 for s in step))


def _slice_batch(node: Node, inputs: Sequence[Node], batched: Flags, batcher: Batcher) -> Node:
    start, stop, step = (node.attrs[k] for k in ("start", "stop", "step"))
    return SLICE(inputs[0], start=(0, *start), stop=(inputs[0].shape[0], *stop), step=(1, *step))


SLICE = linear("slice", _infer_slice, _eval_slice, _slice_transpose, element=_slice_element,
               batch=_slice_batch)


def sliced(node: Node, start: Sizes, stop: Sizes, step: Sizes) -> Node:
    """SLICE, or the node itself where it takes everything."""
    whole = node.rank == 0 or (
        all(a == 0 for a in start) and stop == node.shape and all(s == 1 for s in step))
    return node if whole else SLICE(node, start=start, stop=stop, step=step)


# ---- pad -------------------------------------------------------------------------------------


def _dilated(size: int, interior: int) -> int:
    return size + max(size - 1, 0) * interior if interior else size


def _infer_pad(x: TensorType, value: TensorType, *, low: Sizes, high: Sizes,
               interior: Sizes) -> Type:
    if value.shape or value.dtype is not x.dtype:
        raise ShapeError(f"the fill value must be {x.dtype}[], not {value}")
    if not len(low) == len(high) == len(interior) == x.rank:
        raise ArgumentError(f"low, high and interior need {x.rank} entries")
    if any(i < 0 for i in interior):
        raise ArgumentError(f"interior padding {interior} must not be negative")
    shape = tuple(a + _dilated(d, i) + b
                  for a, d, i, b in zip(low, x.shape, interior, high, strict=True))
    if any(d < 0 for d in shape):
        raise ShapeError(f"padding {low}, {high} of {x} leaves a negative size")
    return x.with_shape(shape)


def _eval_pad(x: Array, value: Array, *, low: Sizes, high: Sizes, interior: Sizes) -> Array:
    inner = tuple(map(_dilated, x.shape, interior))
    spaced = np.full(inner, value, x.dtype)
    spaced[tuple(slice(None, None, i + 1) for i in interior)] = x
    outer = tuple(a + d + b for a, d, b in zip(low, inner, high, strict=True))
    result = np.full(outer, value, x.dtype)
    result[tuple(slice(max(a, 0), max(a, 0) + max(0, min(d, d + a, d + b, d + a + b)))
                 for a, d, b in zip(low, inner, high, strict=True))] = spaced[
        tuple(slice(max(-a, 0), max(d - max(-b, 0), max(-a, 0)))
              for a, d, b in zip(low, inner, high, strict=True))]
    return result


def _pad_element(node: Node, index: tuple[Index, ...]) -> Asked:
    x = node.inputs[0]
    fill = yield (1, ())
    guard: Expr | None = None
    found: list[Index] = []
    for i, low, interior, size in zip(index, node.attrs["low"], node.attrs["interior"], x.shape,
                                      strict=True):
        place = i - low
        if never(place, 0, _dilated(size, interior)):
            return fill
        # The bound is put on the quotient, which is what addresses memory.
        guard = both(guard, both(divides(place, interior + 1),
                                 within(place // (interior + 1), 0, size)))
        found.append(place // (interior + 1))
    if guard is None:
        return (yield (0, tuple(found)))
    return choose(guard, (yield (0, tuple(found), guard)), fill, node.dtype)


def _pad_vjp(node: Node, ct: Node, ad: AD) -> Sequence[Node | None]:
    x, value = node.inputs
    low, high, interior = (node.attrs[k] for k in ("low", "high", "interior"))
    zero = constant(0, ct.dtype)
    back = padded(ct, zero, tuple(larger(-a, 0) for a in low), tuple(larger(-b, 0) for b in high),
                  (0,) * x.rank)
    start = tuple(larger(a, 0) for a in low)
    stop = tuple(a + d for a, d in zip(start, map(_dilated, x.shape, interior), strict=True))
    dx = sliced(back, start, stop, tuple(i + 1 for i in interior))
    if not value.op.differentiable:
        return (dx, None)
    # A mask and not Σct − Σdx, which cancels and makes NaN of infinities.
    outside = make(PAD, (filled(False, x.tensor.with_dtype(bool_)), constant(True)), node.attrs)
    masked = make(OPS["select"], (outside, ct, filled(0, ct.tensor)), {})
    return (dx, make(OPS["reduce_sum"], (masked,), {"axes": tuple(range(ct.rank))}))


def _pad_jvp(node: Node, tangents: Sequence[Node | None], ad: AD) -> Node | None:
    tx, tv = tangents
    x, value = node.inputs
    if tx is None and tv is None:
        return None
    return make(PAD, (filled(0, x.tensor) if tx is None else tx,
                      filled(0, value.tensor) if tv is None else tv), node.attrs)


def _pad_batch(node: Node, inputs: Sequence[Node], batched: Flags, batcher: Batcher) -> Node:
    attrs = {k: (0, *node.attrs[k]) for k in ("low", "high", "interior")}
    if not batched[1]:
        return make(PAD, inputs, attrs)
    # Fill values of their own are chosen where a padded mask says so.
    x, value = together(inputs, batched)
    inside = make(PAD, (x, constant(0, x.dtype)), attrs)
    outside = make(PAD, (filled(False, x.tensor.with_dtype(bool_)), constant(True)), attrs)
    return make(OPS["select"], (outside, spread(value, inside.shape, (0,)), inside), {})


PAD = register(Op("pad", _infer_pad, _eval_pad, _pad_vjp, _pad_jvp, element=_pad_element,
                  batch=_pad_batch))


def padded(node: Node, value: Node, low: Sizes, high: Sizes, interior: Sizes) -> Node:
    """PAD, or the node itself where nothing is added."""
    if all(v == 0 for v in (*low, *high, *interior)):
        return node
    return PAD(node, value, low=low, high=high, interior=interior)


# ---- concat ----------------------------------------------------------------------------------


def _infer_concat(*types: TensorType, axis: int) -> Type:
    if not types:
        raise ArgumentError("nothing to concatenate")
    first = types[0]
    if not 0 <= axis < first.rank:
        raise ArgumentError(f"axis {axis} is out of range for rank {first.rank}")
    for t in types[1:]:
        if t.dtype is not first.dtype:
            raise DTypeError(f"operands differ in element type: {first} and {t}")
        if t.rank != first.rank or any(
                a != b for i, (a, b) in enumerate(zip(t.shape, first.shape, strict=True))
                if i != axis):
            raise ShapeError(f"{first} and {t} do not join along axis {axis}")
    total = sum(t.shape[axis] for t in types)
    return first.with_shape((*first.shape[:axis], total, *first.shape[axis + 1:]))


def _concat_element(node: Node, index: tuple[Index, ...]) -> Asked:
    axis = node.attrs["axis"]
    parts: list[tuple[Expr | None, Expr]] = []
    offset = 0
    for position, x in enumerate(node.inputs):
        size = x.shape[axis]
        place = index[axis] - offset
        offset += size
        if never(place, 0, size):
            continue
        guard = within(place, 0, size)
        where = (*index[:axis], place, *index[axis + 1:])
        value = (yield (position, where)) if guard is None else (yield (position, where, guard))
        parts.append((guard, value))
    # The last part needs no test: its guard holds where no earlier one does.
    result = parts[-1][1]
    for guard, value in reversed(parts[:-1]):
        result = choose(guard, value, result, node.dtype)
    return result


def _concat_loops(node: Node, emit: Emitter) -> None:
    """Each input copied to its place, where a test of every input for each element costs more."""
    axis, offset = node.attrs["axis"], 0
    for position, x in enumerate(node.inputs):
        with ExitStack() as loops:
            index = tuple(loops.enter_context(emit.loop(n, independent=True)) for n in x.shape)
            place = (*index[:axis], index[axis] + offset, *index[axis + 1:])
            emit.store(place, emit.ask(position, index))
        offset += x.shape[axis]


def _concat_vjp(node: Node, ct: Node, ad: AD) -> Sequence[Node | None]:
    axis, found, offset = node.attrs["axis"], [], 0
    for x in node.inputs:
        size = x.shape[axis]
        start = tuple(offset if i == axis else 0 for i in range(ct.rank))
        stop = tuple(offset + size if i == axis else d for i, d in enumerate(ct.shape))
        found.append(sliced(ct, start, stop, (1,) * ct.rank))
        offset += size
    return found


def _concat_jvp(node: Node, tangents: Sequence[Node | None], ad: AD) -> Node | None:
    if all(t is None for t in tangents):
        return None
    whole = [filled(0, x.tensor) if t is None else t
             for t, x in zip(tangents, node.inputs, strict=True)]
    return make(CONCAT, whole, node.attrs)


CONCAT = register(Op(
    "concat", _infer_concat, lambda *xs, axis: np.concatenate(xs, axis), _concat_vjp, _concat_jvp,
    element=_concat_element, kernel=LoopRule(_concat_loops, lambda node: len(node.inputs) > 3),
    batch=along_axis))

# ---- reverse ---------------------------------------------------------------------------------


def _infer_reverse(x: TensorType, *, axes: Sizes) -> Type:
    if len(set(axes)) != len(axes) or any(not 0 <= a < x.rank for a in axes):
        raise ArgumentError(f"axes {axes} are not distinct axes of rank {x.rank}")
    return x


def _reverse_element(node: Node, index: tuple[Index, ...]) -> Asked:
    axes, shape = node.attrs["axes"], node.shape
    return (yield (0, tuple(
        i * -1 + (shape[a] - 1) if a in axes else i for a, i in enumerate(index))))


REVERSE = linear(
    "reverse", _infer_reverse, lambda x, *, axes: np.flip(x, axes),
    lambda node, ct: make(node.op, (ct,), node.attrs), element=_reverse_element, batch=over_axes)
