"""x[key], take and take_along_axis by NumPy's rules.

Positions count from the end where they are negative. Constant positions are checked as the graph is
built; run-time ones by the reference path (compiled code takes the nearest element instead).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from rlx_py.ir.base.dim import Dim, indices, larger
from rlx_py.ir.base.errors import ArgumentError, DTypeError
from rlx_py.ir.base.types import as_shape, bool_, i64, normalize_axis
from rlx_py.ir.nodes.node import Node
from rlx_py.ir.nodes.operators import OPERATORS
from rlx_py.ir.ops.making.constant import CONSTANT, constant
from rlx_py.ir.ops.making.located import located
from rlx_py.ir.ops.operands.operand import as_node, broadcast_shape, broadcast_to
from rlx_py.ir.ops.primitive.compare import AND, GE, LT
from rlx_py.ir.ops.primitive.elementwise import ADD, MUL, REM, SELECT, cast, fill
from rlx_py.ir.ops.primitive.index import GATHER, TAKE_ALONG
from rlx_py.ir.ops.primitive.movement import REVERSE, permuted, reshaped, sliced

Position = int | Node  # of an integer type, any rank


# ---- positions -------------------------------------------------------------------------------


def _positions(value: Any) -> Node:
    """An integer node from what a user indexes with."""
    found = as_node(value)
    if not isinstance(value, Node) and not found.size:
        return constant(np.zeros(found.shape, np.int64))  # NumPy makes floats of an empty list
    if not found.dtype.is_int:
        raise DTypeError(f"positions must be integers, not {found.dtype}")
    return found


def from_start(idx: Node, size: Any) -> Node:
    """Positions with negative ones counted from the end; constants are checked."""
    if idx.op is CONSTANT:
        places = idx.attrs["value"].array.astype(np.int64)
        if isinstance(size, Dim):
            return _constant_from_start(idx, places, size)
        outside = (places < -size) | (places >= size)
        if outside.any():
            raise ArgumentError(
                f"index {places[outside].flat[0]} is out of range for size {size}")
        return constant(np.where(places < 0, places + size, places))
    return idx if idx.dtype.kind == "uint" else _counted(idx, size)


def _constant_from_start(idx: Node, places: np.ndarray[Any, Any], size: Dim) -> Node:
    for place in {int(places.min(initial=0)), int(places.max(initial=0))}:
        if not -size <= place < size:
            raise ArgumentError(f"index {place} is out of range for size {size}")
    return _counted(idx, size) if (places < 0).any() else constant(places)


def _counted(idx: Node, size: Any) -> Node:
    wide = cast(idx, i64)
    return SELECT(LT(wide, fill(wide, 0)), ADD(wide, fill(wide, size)), wide)


def _flat(places: list[Node], sizes: list[int]) -> Node:
    """One row-major position from several of one shape; −1 where any is out of range."""
    if all(p.op is CONSTANT for p in places) and all(isinstance(s, int) for s in sizes):
        arrays = [p.attrs["value"].array for p in places]
        found = np.zeros(places[0].shape, np.int64)
        for array, size in zip(arrays, sizes, strict=True):
            found = found * size + array
        return constant(found)
    flat: Node | None = None
    valid: Node | None = None
    for place, size in zip(places, sizes, strict=True):
        place = cast(place, i64)
        inside = AND(GE(place, fill(place, 0)), LT(place, fill(place, size)))
        valid = inside if valid is None else AND(valid, inside)
        flat = place if flat is None else ADD(MUL(flat, fill(flat, size)), place)
    assert flat is not None and valid is not None
    return SELECT(valid, flat, fill(flat, -1))


# ---- x[key] ----------------------------------------------------------------------------------


@dataclass
class _Plan:
    """A key read axis by axis: the slices taken first, then one entry for each place of the result.

    An entry is ("axis", axis), ("new", 0), ("gap", 0) or ("at", axis) with positions in `at`.
    """

    slices: list[tuple[int, int, int]]
    flipped: list[int]
    entries: list[tuple[str, int]]
    at: dict[int, Position]


@located
def getitem(x: Any, key: Any) -> Node:
    """x[key]: integers, slices of any step, ..., None, integer arrays or nodes (broadcast together,
    as NumPy places them), and boolean mask constants.
    """
    node = as_node(x)
    keys = key if isinstance(key, tuple) else (key,)
    if any(map(_is_truth, keys)):
        return _whole_or_none(node, keys)
    plan = _read(node, _expanded(keys, node.rank))
    start, stop, step = (tuple(p[i] for p in plan.slices) for i in range(3))
    node = sliced(node, start, stop, step)
    if plan.flipped:
        node = REVERSE(node, axes=tuple(plan.flipped))
    if not any(isinstance(p, Node) for p in plan.at.values()):
        return _basic(node, plan)
    return _advanced(node, plan)


def _is_truth(k: Any) -> bool:
    return isinstance(k, np.ndarray) and k.dtype == np.bool_ and not k.ndim


def _whole_or_none(node: Node, keys: tuple[Any, ...]) -> Node:
    """x at a bool array of rank 0: a new axis, along which x lies once or not at all."""
    (place, *more) = (i for i, k in enumerate(keys) if _is_truth(k))
    if more or not all(_is_truth(k) or k is None or k is Ellipsis or isinstance(k, slice)
                       for k in keys):
        raise ArgumentError("a bool of rank 0 stands alone or beside slices in an index")
    new = (*keys[:place], None, *keys[place + 1:])
    found = getitem(node, new)
    if keys[place]:
        return found
    expanded = _expanded(new, node.rank)
    nth = sum(k is None for k in keys[:place])
    at = [i for i, k in enumerate(expanded) if k is None][nth]
    axis = sum(k is not Ellipsis for k in expanded[:at])
    stop = (*found.shape[:axis], 0, *found.shape[axis + 1:])
    return sliced(found, (0,) * found.rank, stop, (1,) * found.rank)


def _expanded(key: tuple[Any, ...], rank: int) -> list[Any]:
    """The key with masks as positions and the ellipsis as slices, one entry an axis or None."""
    entries: list[Any] = []
    for k in key:
        array = np.asarray(k) if isinstance(k, list | np.ndarray) else None
        if array is not None and array.dtype == np.bool_:
            entries.append(array)
        elif isinstance(k, Node) and k.dtype is bool_:
            raise ArgumentError("a mask known only at run time gives no static shape; use where")
        elif isinstance(k, bool | np.bool_):
            raise ArgumentError("a bool is not an index")
        else:
            entries.append(k)
    used = sum(_axes_of(k) for k in entries)
    if used > rank:
        raise ArgumentError(f"{used} indices for rank {rank}")
    dots = [i for i, k in enumerate(entries) if k is Ellipsis]
    if len(dots) > 1:
        raise ArgumentError("more than one ellipsis")
    place = dots[0] if dots else len(entries)
    whole = [slice(None)] * (rank - used)
    if dots and not whole:
        return entries  # an ellipsis of no axes still keeps positions apart
    return [*entries[:place], *whole, *entries[place + 1:]]


def _axes_of(k: Any) -> int:
    if k is None or k is Ellipsis:
        return 0
    return k.ndim if isinstance(k, np.ndarray) and k.dtype == np.bool_ else 1


def _read(node: Node, entries: list[Any]) -> _Plan:
    plan = _Plan([(0, d, 1) for d in node.shape], [], [], {})
    axis = 0
    for k in entries:
        if k is None or k is Ellipsis:
            plan.entries.append(("new" if k is None else "gap", 0))
            continue
        if isinstance(k, slice):
            _read_slice(plan, k, axis, node.shape[axis])
        elif isinstance(k, np.ndarray) and k.dtype == np.bool_:
            sizes = node.shape[axis:axis + k.ndim]
            if k.shape != sizes:
                raise ArgumentError(f"a mask of shape {k.shape} does not fit sizes {sizes}")
            for offset, places in enumerate(np.nonzero(k)):
                plan.entries.append(("at", axis + offset))
                plan.at[axis + offset] = constant(places)
        else:
            plan.entries.append(("at", axis))
            plan.at[axis] = _read_position(k, node.shape[axis])
        axis += _axes_of(k)
    return plan


def _read_slice(plan: _Plan, k: slice, axis: int, size: int) -> None:
    try:
        start, stop, step = indices(k, size)
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"{k}: {error}") from None
    if not isinstance(start, int) or not isinstance(stop, int):
        _read_dynamic_slice(plan, (start, stop, step), axis)
        return
    count = len(range(start, stop, step))
    if step < 0:
        start, step = start + (count - 1) * step, -step
        plan.flipped.append(axis)
    plan.slices[axis] = (start, start + (count - 1) * step + 1, step) if count else (0, 0, 1)
    plan.entries.append(("axis", axis))


def _read_dynamic_slice(plan: _Plan, taken: tuple[Any, Any, int], axis: int) -> None:
    start, stop, step = taken
    if step < 0:
        # From the last place that is taken, which must be there, up to the first.
        count = (start - stop - step - 1) // -step
        start, stop, step = start + (count - 1) * step, start + 1, -step
        plan.flipped.append(axis)
    plan.slices[axis] = (start, larger(start, stop), step)
    plan.entries.append(("axis", axis))


def _read_position(k: Any, size: int) -> Position:
    if isinstance(k, int | np.integer | Dim):
        if not -size <= k < size:
            raise ArgumentError(f"index {k} is out of range for size {size}")
        return as_shape(k + size if k < 0 else k)[0]
    return from_start(_positions(k), size)


def _basic(node: Node, plan: _Plan) -> Node:
    """Only slices, new axes and single positions."""
    for axis, place in plan.at.items():
        assert not isinstance(place, Node)
        node = sliced(node, tuple(place if i == axis else 0 for i in range(node.rank)),
                      tuple(place + 1 if i == axis else d for i, d in enumerate(node.shape)),
                      (1,) * node.rank)
    return reshaped(node, tuple(
        1 if kind == "new" else node.shape[axis] for kind, axis in plan.entries
        if kind in ("new", "axis")))


def _advanced(node: Node, plan: _Plan) -> Node:
    """Arrays of positions: their axes become one, which is gathered by a flat position."""
    axes = list(plan.at)
    places = [p if isinstance(p, Node) else constant(p) for p in plan.at.values()]
    shape = broadcast_shape(*(p.shape for p in places))
    sizes = [node.shape[a] for a in axes]
    idx = _flat([broadcast_to(p, shape) for p in places], sizes) if len(axes) > 1 else places[0]
    spots = [i for i, (kind, _) in enumerate(plan.entries) if kind == "at"]
    # NumPy puts the result's axes in place where the positions stand together, else in front.
    front = spots[-1] - spots[0] + 1 != len(spots)
    head, rest = (0, plan.entries) if front else (spots[0], plan.entries[spots[-1] + 1:])
    before = [e for e in plan.entries[:head] if e[0] != "gap"]
    after = [e for e in rest if e[0] in ("new", "axis")]
    lead = [a for kind, a in before if kind == "axis"]
    tail = [a for kind, a in after if kind == "axis"]
    order = (*lead, *axes, *tail)
    merged = reshaped(permuted(node, order), (*(node.shape[a] for a in lead), prod(sizes),
                                              *(node.shape[a] for a in tail)))
    found = GATHER(merged, idx, axis=len(lead), mode="error")
    return reshaped(found, (*_sizes(before, node), *shape, *_sizes(after, node)))


def _sizes(entries: list[tuple[str, int]], node: Node) -> list[int]:
    return [1 if kind == "new" else node.shape[axis] for kind, axis in entries]


# ---- take ------------------------------------------------------------------------------------


def placed(indices: Any, size: int, mode: str) -> tuple[Node, str]:
    """Positions and the primitive's mode for a mode of take."""
    idx = _positions(indices)
    if mode in ("error", "raise"):
        return from_start(idx, size), "error"
    if mode == "wrap":
        wide = cast(idx, i64)
        return REM(wide, fill(wide, size)), "clip"
    if mode not in ("clip", "fill"):
        raise ArgumentError(f"mode {mode!r} is not error, clip, fill or wrap")
    return idx, mode


@located
def take(x: Any, indices: Any, axis: int | None = None, mode: str = "error") -> Node:
    """Elements at positions along an axis (of the flattened array by default).

    mode: "error" counts negative positions from the end and refuses what is out of range (the
    nearest element in compiled code); "clip" takes the nearest; "fill" gives 0; "wrap" goes round.
    """
    node = as_node(x)
    if axis is None:
        node, axis = reshaped(node, (node.size,)), 0
    place = normalize_axis(axis, node.rank)
    idx, mode = placed(indices, node.shape[place], mode)
    return GATHER(node, idx, axis=place, mode=mode)


@located
def take_along_axis(x: Any, indices: Any, axis: int = -1, mode: str = "error") -> Node:
    """For each line along an axis, its elements at positions of its own; the other axes broadcast.

    Modes as in take.
    """
    node, idx = as_node(x), _positions(indices)
    if node.rank != idx.rank:
        raise ArgumentError(f"positions {idx.type} must have the rank of {node.type}")
    place = normalize_axis(axis, node.rank)
    idx, mode = placed(idx, node.shape[place], mode)

    def others(n: Node) -> tuple[int, ...]:
        return (*n.shape[:place], 1, *n.shape[place + 1:])

    shape = broadcast_shape(others(node), others(idx))
    node, idx = (broadcast_to(n, (*shape[:place], n.shape[place], *shape[place + 1:]))
                 for n in (node, idx))
    return TAKE_ALONG(node, idx, axis=place, mode=mode)


OPERATORS.update(getitem=getitem)
