"""Array functions that move elements, under their NumPy names."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from rlx_py.ir.base.dim import Dim, indices, larger
from rlx_py.ir.base.errors import ArgumentError, ShapeError
from rlx_py.ir.base.types import as_shape, listed, normalize_axes, normalize_axis
from rlx_py.ir.nodes.node import Node
from rlx_py.ir.nodes.operators import OPERATORS
from rlx_py.ir.ops.making.arguments import MOST_PARTS, check_held, integers
from rlx_py.ir.ops.making.constant import constant
from rlx_py.ir.ops.making.located import located
from rlx_py.ir.ops.operands.operand import as_node, convert, operands
from rlx_py.ir.ops.operands.operand import broadcast_to as stretched
from rlx_py.ir.ops.primitive.index import GATHER
from rlx_py.ir.ops.primitive.movement import (
    CONCAT,
    REVERSE,
    padded,
    permuted,
    reshaped,
    sliced,
    spread,
)

Axis = Any  # an int, several, or None


@located
def reshape(x: Any, shape: Any) -> Node:
    """The elements in row-major order under another shape; one size may be -1."""
    node = as_node(x)
    sizes = list(integers("shape", shape))
    if sizes.count(-1) > 1:
        raise ShapeError(f"more than one -1 in {tuple(sizes)}")
    if -1 in sizes:
        rest = prod(s for s in sizes if s != -1)
        if not rest or node.size % rest:
            raise ShapeError(f"{node.type} has no shape {tuple(sizes)}")
        sizes[sizes.index(-1)] = node.size // rest
    return reshaped(node, as_shape(sizes))


@located
def ravel(x: Any) -> Node:
    """The elements as one axis, row-major."""
    node = as_node(x)
    return reshaped(node, (node.size,))


@located
def transpose(x: Any, axes: Any = None) -> Node:
    """The axes permuted: result axis i is axis axes[i]; reversed without axes."""
    node = as_node(x)
    if axes is None:
        return permuted(node, tuple(reversed(range(node.rank))))
    order = tuple(normalize_axis(a, node.rank) for a in listed(axes, "axes"))
    if sorted(order) != list(range(node.rank)):
        raise ArgumentError(f"axes {axes} are not a permutation of 0..{node.rank - 1}")
    return permuted(node, order)


@located
def swapaxes(x: Any, axis1: int, axis2: int) -> Node:
    """Two axes exchanged."""
    node = as_node(x)
    order = list(range(node.rank))
    a, b = normalize_axis(axis1, node.rank), normalize_axis(axis2, node.rank)
    order[a], order[b] = b, a
    return permuted(node, tuple(order))


def _places(name: str, axis: Any, rank: int) -> list[int]:
    """Distinct axes in the order given."""
    axes = integers(name, axis)
    normalize_axes(axes, rank)
    return [normalize_axis(a, rank) for a in axes]


@located
def moveaxis(x: Any, source: Any, destination: Any) -> Node:
    """Axes moved to other places; the rest keep their order."""
    node = as_node(x)
    moved, places = _places("source", source, node.rank), _places(
        "destination", destination, node.rank)
    if len(moved) != len(places):
        raise ArgumentError(f"{len(moved)} source axes but {len(places)} destinations")
    order = [i for i in range(node.rank) if i not in moved]
    for place, axis in sorted(zip(places, moved, strict=True)):
        order.insert(place, axis)
    return permuted(node, tuple(order))


@located
def expand_dims(x: Any, axis: Axis) -> Node:
    """New axes of size 1 at these places of the result."""
    node = as_node(x)
    places = integers("axis", axis)
    new = normalize_axes(places, node.rank + len(places))
    sizes = iter(node.shape)
    return reshaped(node, tuple(
        1 if i in new else next(sizes) for i in range(node.rank + len(new))))


@located
def squeeze(x: Any, axis: Axis = None) -> Node:
    """Without axes of size 1: all of them, or those named."""
    node = as_node(x)
    if axis is None:
        return reshaped(node, tuple(d for d in node.shape if d != 1))
    gone = normalize_axes(axis, node.rank)
    if any(node.shape[a] != 1 for a in gone):
        raise ShapeError(f"axes {gone} of {node.type} are not all of size 1")
    return reshaped(node, tuple(d for i, d in enumerate(node.shape) if i not in gone))


@located
def broadcast_to(x: Any, shape: Any) -> Node:
    """The array stretched to a shape by NumPy's rule."""
    return stretched(as_node(x), shape)


# ---- joining and splitting -------------------------------------------------------------------


@located
def concatenate(arrays: Sequence[Any], axis: int | None = 0) -> Node:
    """Arrays joined along an existing axis (flattened first if it is None), types promoted."""
    parts = operands(*arrays) if arrays else []
    if not parts:
        raise ArgumentError("nothing to concatenate")
    if axis is None:
        parts, axis = [reshaped(p, (p.size,)) for p in parts], 0
    place = normalize_axis(axis, parts[0].rank)
    return parts[0] if len(parts) == 1 else CONCAT(*parts, axis=place)


@located
def stack(arrays: Sequence[Any], axis: int = 0) -> Node:
    """Arrays of one shape joined along a new axis."""
    parts = operands(*arrays) if arrays else []
    if len({p.shape for p in parts}) != 1:
        raise ShapeError(f"arrays to stack must have one shape, not {[p.shape for p in parts]}")
    place = normalize_axis(axis, parts[0].rank + 1)
    return concatenate([expand_dims(p, place) for p in parts], place)


@located
def split(x: Any, indices_or_sections: Any, axis: int = 0) -> list[Node]:
    """The array cut along an axis: into equal sections, or before each index."""
    node = as_node(x)
    place = normalize_axis(axis, node.rank)
    size = node.shape[place]
    if isinstance(indices_or_sections, int | np.integer):
        count = int(indices_or_sections)
        if count < 1 or size % count:
            raise ShapeError(f"axis {place} of {node.type} does not split into {count} parts")
    return _pieces(node, indices_or_sections, place)


@located
def array_split(x: Any, indices_or_sections: Any, axis: int = 0) -> list[Node]:
    """As split, but sections may differ by one in size, the longer first."""
    node = as_node(x)
    if isinstance(indices_or_sections, int | np.integer) and indices_or_sections < 1:
        raise ArgumentError(f"{indices_or_sections} sections")
    return _pieces(node, indices_or_sections, normalize_axis(axis, node.rank))


def _pieces(node: Node, where: Any, axis: int) -> list[Node]:
    size = node.shape[axis]
    if isinstance(where, int | np.integer):
        if where > MOST_PARTS:
            raise ArgumentError(f"{where} parts, more than {MOST_PARTS}")
        short, longer = divmod(size, int(where))
        cuts = [i * short + min(i, longer) for i in range(1, int(where))]
    else:
        cuts = [indices(slice(c, None), size)[0] for c in integers("indices", where)]
    edges = zip([0, *cuts], [*cuts, size], strict=True)
    return [window(node, axis, a, larger(a, b)) for a, b in edges]


def window(node: Node, axis: int, start: int, stop: int) -> Node:
    """start … stop − 1 of one axis."""
    return sliced(node, tuple(start if i == axis else 0 for i in range(node.rank)),
                  tuple(stop if i == axis else d for i, d in enumerate(node.shape)),
                  (1,) * node.rank)


# ---- rearranging -----------------------------------------------------------------------------


@located
def flip(x: Any, axis: Axis = None) -> Node:
    """The order of elements reversed along axes (all by default)."""
    node = as_node(x)
    axes = normalize_axes(axis, node.rank)
    return REVERSE(node, axes=axes) if axes else node


@located
def roll(x: Any, shift: Any, axis: Axis = None) -> Node:
    """Elements moved on along axes, those beyond the end re-entering at the start."""
    node = as_node(x)
    if axis is None:
        step = sum(integers("shift", shift))
        return reshaped(_rolled(reshaped(node, (node.size,)), step, 0), node.shape)
    axes = integers("axis", axis)
    shifts = integers("shift", shift)
    shifts = shifts * len(axes) if len(shifts) == 1 else shifts
    if len(shifts) != len(axes):
        raise ArgumentError(f"{len(shifts)} shifts for {len(axes)} axes")
    for step, a in zip(shifts, axes, strict=True):
        node = _rolled(node, step, normalize_axis(a, node.rank))
    return node


def _rolled(node: Node, shift: int, axis: int) -> Node:
    size = node.shape[axis]
    cut = -int(shift) % size if size else 0
    if cut == 0:
        return node
    return CONCAT(window(node, axis, cut, size), window(node, axis, 0, cut), axis=axis)


@located
def tile(x: Any, reps: Any) -> Node:
    """The array repeated as a whole, reps[i] times along axis i."""
    node = as_node(x)
    times = as_shape(reps)
    rank = max(len(times), node.rank)
    times = (1,) * (rank - len(times)) + times
    sizes = (1,) * (rank - node.rank) + node.shape
    pairs = tuple(d for pair in zip(times, sizes, strict=True) for d in pair)
    wide = spread(reshaped(node, sizes), pairs, tuple(range(1, 2 * rank, 2)))
    return reshaped(wide, tuple(t * d for t, d in zip(times, sizes, strict=True)))


@located
def repeat(x: Any, repeats: Any, axis: int | None = None) -> Node:
    """Each element repeated in place: a number of times, or one number an element."""
    node = as_node(x)
    if axis is None:
        node, axis = reshaped(node, (node.size,)), 0
    place = normalize_axis(axis, node.rank)
    counts = np.asarray(repeats)
    if counts.dtype.kind not in "iu" or (counts < 0).any():
        raise ArgumentError(f"repeats must be integers that are not negative, not {repeats!r}")
    size = node.shape[place]
    if counts.size != 1:
        if counts.shape != (size,):
            raise ShapeError(f"{counts.shape} repeats for a size of {size}")
        check_held("a list of repeats", int(counts.sum()))
        return GATHER(node, constant(np.repeat(np.arange(size), counts)), axis=place, mode="clip")
    count = int(counts.reshape(()))
    wide = (*node.shape[:place + 1], count, *node.shape[place + 1:])
    kept = tuple(i for i in range(len(wide)) if i != place + 1)
    return reshaped(spread(node, wide, kept),
                    (*node.shape[:place], size * count, *node.shape[place + 1:]))


@located
def pad(x: Any, pad_width: Any, mode: str = "constant", constant_values: Any = 0) -> Node:
    """The array framed: pad_width is n, (before, after), or one such pair an axis.

    mode "constant" frames with a value (a number or a rank-0 node); "edge", "reflect", "symmetric"
    and "wrap" continue the array as NumPy does.
    """
    node = as_node(x)
    pairs = _widths(pad_width, node.rank)
    if mode == "constant":
        value = convert(as_node(constant_values, node.dtype), node.dtype)
        return padded(node, value, tuple(a for a, _ in pairs), tuple(b for _, b in pairs),
                      (0,) * node.rank)
    if mode not in ("edge", "reflect", "symmetric", "wrap"):
        raise ArgumentError(f"mode {mode!r} is not constant, edge, reflect, symmetric or wrap")
    for axis, (low, high) in enumerate(pairs):
        if low or high:
            node = _continued(node, axis, low, high, mode)
    return node


def _widths(given: Any, rank: int) -> list[tuple[int, int]]:
    """What goes before and behind each axis."""
    widths = np.asarray(given, object)
    try:
        pairs = np.broadcast_to(widths, (rank, 2)).tolist()
    except ValueError:
        raise ShapeError(f"widths {given!r} do not fit rank {rank}") from None
    if any(isinstance(v, bool) or not isinstance(v, int | np.integer | Dim) or v < 0
           for pair in pairs for v in pair):
        raise ArgumentError(f"widths must be integers that are not negative, not {given!r}")
    return [(before, behind) for before, behind in pairs]


def _continued(node: Node, axis: int, low: int, high: int, mode: Any) -> Node:
    size = node.shape[axis]
    if not size:
        raise ShapeError(f"axis {axis} of {node.type} has nothing to continue")
    check_held("an axis", low + size + high)
    places = np.pad(np.arange(size), (low, high), mode=mode)
    return GATHER(node, constant(places), axis=axis, mode="clip")


OPERATORS.update(transpose=transpose, reshape=reshape, squeeze=squeeze, swapaxes=swapaxes)
