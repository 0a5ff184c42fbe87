"""Movements of elements merged, cancelled, or taken out of element-wise work."""

from __future__ import annotations

from rlx_py.ir.nodes.node import Node, same
from rlx_py.ir.ops.primitive.movement import (
    BROADCAST,
    CONCAT,
    PAD,
    RESHAPE,
    REVERSE,
    SLICE,
    TRANSPOSE,
    permuted,
    reshaped,
    sliced,
    spread,
)
from rlx_py.passes.rewrite.rules.rule import rule


@rule(RESHAPE)
def merge_reshapes(n: Node) -> Node | None:  # reshape(x) -> x of one shape; two reshapes -> one
    x = n.inputs[0]
    if x.shape == n.shape:
        return x
    return reshaped(x.inputs[0], n.shape) if x.op is RESHAPE else None


@rule(RESHAPE)
def reshape_of_scalar(n: Node) -> Node | None:  # reshape(broadcast(scalar)) -> broadcast(scalar)
    x = n.inputs[0]
    if x.op is BROADCAST and not x.inputs[0].rank:
        return spread(x.inputs[0], n.shape, ())
    return None


@rule(TRANSPOSE)
def merge_transposes(n: Node) -> Node | None:  # (xᵀ)ᵀ -> x, or one permutation; the identity goes
    x, axes = n.inputs[0], n.attrs["axes"]
    if axes == tuple(range(n.rank)):
        return x
    if x.op is TRANSPOSE:
        return permuted(x.inputs[0], tuple(x.attrs["axes"][a] for a in axes))
    return None


@rule(TRANSPOSE)
def transpose_of_units(n: Node) -> Node | None:  # only axes of size 1 move -> reshape
    x, axes = n.inputs[0], n.attrs["axes"]
    moved = [a for a in axes if x.shape[a] != 1]
    return reshaped(x, n.shape) if moved == sorted(moved) else None


@rule(TRANSPOSE)
def transpose_of_broadcast(n: Node) -> Node | None:  # broadcast(x)ᵀ -> broadcast(xᵀ)
    x, axes = n.inputs[0], n.attrs["axes"]
    if x.op is not BROADCAST:
        return None
    source = x.attrs["axes"]
    placed = [(axes.index(a), i) for i, a in enumerate(source)]
    return spread(permuted(x.inputs[0], tuple(i for _, i in sorted(placed))), n.shape,
                  tuple(p for p, _ in sorted(placed)))


@rule(BROADCAST)
def merge_broadcasts(n: Node) -> Node | None:  # broadcast(broadcast(x)) -> broadcast(x)
    x, axes = n.inputs[0], n.attrs["axes"]
    if x.op is not BROADCAST:
        return None
    return spread(x.inputs[0], n.shape, tuple(axes[a] for a in x.attrs["axes"]))


@rule(BROADCAST)
def broadcast_of_units(n: Node) -> Node | None:  # only axes of size 1 are added -> reshape
    x = n.inputs[0]
    added = [d for i, d in enumerate(n.shape) if i not in n.attrs["axes"]]
    return reshaped(x, n.shape) if all(d == 1 for d in added) else None


@rule(BROADCAST)
def broadcast_of_reshape(n: Node) -> Node | None:  # reshape added sizes 1 -> broadcast places them
    x, axes = n.inputs[0], n.attrs["axes"]
    if x.op is not RESHAPE:
        return None
    kept = [i for i, d in enumerate(x.shape) if d != 1]
    if len(kept) == x.rank or x.inputs[0].shape != tuple(x.shape[i] for i in kept):
        return None
    return spread(x.inputs[0], n.shape, tuple(axes[i] for i in kept))


@rule(SLICE)
def merge_slices(n: Node) -> Node | None:  # x[a:b:s][c:d:t] -> x[a+c·s : … : s·t]; x[:] -> x
    x = n.inputs[0]
    if n.shape == x.shape and n.size:
        return x
    if x.op is not SLICE:
        return None
    start, stop, step = [], [], []
    for a, s, c, t, count in zip(x.attrs["start"], x.attrs["step"], n.attrs["start"],
                                 n.attrs["step"], n.shape, strict=True):
        first = a + c * s if count else 0
        start.append(first)
        step.append(s * t)
        stop.append(first + (count - 1) * s * t + 1 if count else 0)
    return sliced(x.inputs[0], tuple(start), tuple(stop), tuple(step))


@rule(SLICE)
def slice_of_broadcast(n: Node) -> Node | None:  # broadcast(x)[…] -> broadcast(x[…])
    x = n.inputs[0]
    if x.op is not BROADCAST:
        return None
    axes = x.attrs["axes"]
    part = sliced(x.inputs[0], *(tuple(n.attrs[k][a] for a in axes)
                                 for k in ("start", "stop", "step")))
    return spread(part, n.shape, axes)


@rule(SLICE)
def slice_of_pad(n: Node) -> Node | None:  # pad(x)[where x is] -> x
    x = n.inputs[0]
    if x.op is not PAD or x.inputs[0].shape != n.shape:
        return None
    exact = (n.attrs["start"] == x.attrs["low"]
             and all(s == i + 1 or d == 1 for s, i, d in zip(
                 n.attrs["step"], x.attrs["interior"], n.shape, strict=True)))
    return x.inputs[0] if exact and n.size else None


@rule(SLICE)
def slice_of_concat(n: Node) -> Node | None:  # concat(…, x, …)[within x] -> x[…]
    x = n.inputs[0]
    if x.op is not CONCAT or not n.size:
        return None
    axis, offset = x.attrs["axis"], 0
    first = n.attrs["start"][axis]
    last = first + (n.shape[axis] - 1) * n.attrs["step"][axis]
    for part in x.inputs:
        if offset <= first and last < offset + part.shape[axis]:
            start, stop = list(n.attrs["start"]), list(n.attrs["stop"])
            start[axis], stop[axis] = first - offset, last + 1 - offset
            return sliced(part, tuple(start), tuple(stop), n.attrs["step"])
        offset += part.shape[axis]
    return None


@rule(PAD)
def merge_pads(n: Node) -> Node | None:  # pad(pad(x, v), v) -> pad(x, v), where nothing is cut
    x, value = n.inputs
    if x.op is not PAD or x.inputs[1] is not value or any(n.attrs["interior"]):
        return None
    if any(p < 0 for p in (*n.attrs["low"], *n.attrs["high"], *x.attrs["low"], *x.attrs["high"])):
        return None
    low, high = (tuple(a + b for a, b in zip(n.attrs[k], x.attrs[k], strict=True))
                 for k in ("low", "high"))
    return PAD(x.inputs[0], value, low=low, high=high, interior=x.attrs["interior"])


@rule(CONCAT)
def flatten_concat(n: Node) -> Node | None:  # concat(x) -> x; empty parts go; concat(concat) -> one
    axis = n.attrs["axis"]
    parts: list[Node] = []
    for x in n.inputs:
        if x.op is CONCAT and x.attrs["axis"] == axis:
            parts.extend(x.inputs)
        elif x.shape[axis] or not n.shape[axis]:
            parts.append(x)
    if len(parts) == 1:
        return parts[0] if parts[0].shape == n.shape else None
    return None if same(parts, n.inputs) else CONCAT(*parts, axis=axis)


@rule(REVERSE)
def merge_reverses(n: Node) -> Node | None:  # reversing twice, or along a size of 1, is nothing
    x = n.inputs[0]
    axes = {a for a in n.attrs["axes"] if n.shape[a] != 1}
    if x.op is REVERSE:
        axes ^= set(x.attrs["axes"])
        x = x.inputs[0]
    if not axes:
        return x
    if x is n.inputs[0] and len(axes) == len(n.attrs["axes"]):
        return None
    return REVERSE(x, axes=tuple(sorted(axes)))


RULES = (
    merge_reshapes, reshape_of_scalar, merge_transposes, transpose_of_units, transpose_of_broadcast,
    merge_broadcasts, broadcast_of_units, broadcast_of_reshape, merge_slices, slice_of_broadcast,
    slice_of_pad, slice_of_concat, merge_pads, flatten_concat, merge_reverses,
)
