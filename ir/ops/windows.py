"""WINDOWS, the sliding windows of trailing axes, and FOLD, its transpose."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack
from itertools import product
from typing import Any

import numpy as np

from rlx_py.ir.errors import ArgumentError, DTypeError, ShapeError
from rlx_py.ir.index import Index
from rlx_py.ir.kernel import Expr
from rlx_py.ir.node import Ask, Node
from rlx_py.ir.ops.batching import unchanged
from rlx_py.ir.ops.families import Array, linear, narrow
from rlx_py.ir.ops.guards import both, chosen, converted, divides, read, scalar, settled, within
from rlx_py.ir.stored import Emitter, LoopRule
from rlx_py.ir.types import TensorType, Type

Sizes = tuple[int, ...]


def window_count(length: int, size: int, stride: int, dilation: int) -> int:
    """How many windows of `size` taps fit into an axis; ShapeError where none does."""
    reach = dilation * (size - 1) + 1
    if reach > length:
        raise ShapeError(f"{size} taps, dilation {dilation}, exceed a size of {length}")
    return (length - reach) // stride + 1


def _check(size: Sizes, stride: Sizes, dilation: Sizes, rank: int) -> int:
    if not len(size) == len(stride) == len(dilation) <= rank:
        raise ArgumentError(f"size {size}, stride {stride} and dilation {dilation} must name the "
                            f"same trailing axes of rank {rank}")
    if any(s < 1 for s in (*size, *stride, *dilation)):
        raise ArgumentError(f"size {size}, stride {stride}, dilation {dilation} must be positive")
    return len(size)


def _infer_windows(x: TensorType, *, size: Sizes, stride: Sizes, dilation: Sizes) -> Type:
    lead = x.rank - _check(size, stride, dilation, x.rank)
    counts = tuple(map(window_count, x.shape[lead:], size, stride, dilation))
    return x.with_shape((*x.shape[:lead], *counts, *size))


def _eval_windows(x: Array, *, size: Sizes, stride: Sizes, dilation: Sizes) -> Array:
    lead = x.ndim - len(size)
    reach = tuple(d * (k - 1) + 1 for k, d in zip(size, dilation, strict=True))
    view = np.lib.stride_tricks.sliding_window_view(x, reach, tuple(range(lead, x.ndim)))
    return view[(slice(None),) * lead + tuple(slice(None, None, s) for s in (*stride, *dilation))]


def _windows_element(node: Node, index: tuple[Index, ...]) -> Generator[Ask, Expr, Expr]:
    lead = node.inputs[0].rank - len(node.attrs["size"])
    places = index[lead:node.inputs[0].rank]
    taps = index[node.inputs[0].rank:]
    return (yield (0, (*index[:lead], *(
        o * s + k * d for o, k, s, d in zip(places, taps, node.attrs["stride"],
                                            node.attrs["dilation"], strict=True)))))


def _windows_transpose(node: Node, ct: Node) -> Node:
    lead = node.inputs[0].rank - len(node.attrs["size"])
    return FOLD(ct, shape=node.inputs[0].shape[lead:], **node.attrs)


WINDOWS = linear("windows", _infer_windows, _eval_windows, _windows_transpose,
                 element=_windows_element, batch=unchanged)

# ---- fold ------------------------------------------------------------------------------------


def _infer_fold(w: TensorType, *, shape: Sizes, size: Sizes, stride: Sizes,
                dilation: Sizes) -> Type:
    if w.dtype.kind == "bool":
        raise DTypeError("fold adds numbers, not bool")
    d = len(shape)
    if w.rank < 2 * d:
        raise ShapeError(f"{w} does not hold windows over {d} axes")
    lead = w.shape[:w.rank - 2 * d]
    expected = _infer_windows(w.with_shape((*lead, *shape)), size=size, stride=stride,
                              dilation=dilation)
    if w != expected:
        raise ShapeError(f"windows of {shape} have type {expected}, not {w}")
    return w.with_shape((*lead, *shape))


def _eval_fold(w: Array, *, shape: Sizes, size: Sizes, stride: Sizes, dilation: Sizes) -> Array:
    d = len(shape)
    lead, counts = w.shape[:w.ndim - 2 * d], w.shape[w.ndim - 2 * d:w.ndim - d]
    wide = narrow(w)
    result = np.zeros((*lead, *shape), wide.dtype)
    for taps in product(*map(range, size)):
        place = tuple(slice(k * a, k * a + (n - 1) * s + 1, s)
                      for k, a, n, s in zip(taps, dilation, counts, stride, strict=True))
        where: Any = (..., *place)
        with np.errstate(all="ignore"):
            result[where] += wide[(..., *taps)]
    return result.astype(w.dtype)


def _fold_loops(node: Node, emit: Emitter) -> None:
    """Each element sums the windows that hold it, taps in row-major order."""
    attrs, w, acc = node.attrs, node.inputs[0], node.dtype.compute
    d = len(attrs["size"])
    counts = w.shape[w.rank - 2 * d:w.rank - d]
    with ExitStack() as outer:
        out = [outer.enter_context(emit.loop(n, independent=True)) for n in node.shape]
        lead, places = out[:node.rank - d], out[node.rank - d:]
        total = emit.declare(acc, scalar(0, acc))
        with ExitStack() as inner:
            taps = [inner.enter_context(emit.loop(k, independent=False)) for k in attrs["size"]]
            guard: Expr | None = None
            found: list[Index] = []
            for p, k, s, a, n in zip(places, taps, attrs["stride"], attrs["dilation"], counts,
                                     strict=True):
                start = p - k * a
                guard = both(guard, both(divides(start, s), within(start // s, 0, n)))
                found.append(start // s)
            value = chosen(emit, 0, (*lead, *found, *taps), settled(emit, guard))
            emit.set(total, converted(emit, value, acc), "add")
        emit.store(tuple(out), converted(emit, read(total), node.dtype))


def _fold_transpose(node: Node, ct: Node) -> Node:
    attrs: dict[str, Any] = {k: node.attrs[k] for k in ("size", "stride", "dilation")}
    return WINDOWS(ct, **attrs)


def _fold_scatter(node: Node, index: tuple[Index, ...]) -> tuple[Index, ...]:
    """Tap k of window p adds to place p·stride + k·dilation."""
    stride, dilation = node.attrs["stride"], node.attrs["dilation"]
    d = len(stride)
    lead, places, taps = index[:-2 * d], index[-2 * d:-d], index[-d:]
    return (*lead, *(p * s + k * a for p, s, k, a in zip(places, stride, taps, dilation,
                                                         strict=True)))


FOLD = linear("fold", _infer_fold, _eval_fold, _fold_transpose,
              kernel=LoopRule(_fold_loops, scatter=_fold_scatter), batch=unchanged)
