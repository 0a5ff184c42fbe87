"""WINDOWS, the sliding windows of trailing axes, and FOLD, its transpose."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import product
from math import gcd, prod
from typing import Any

import numpy as np

from rlx_py.ir.base.errors import ArgumentError, DTypeError, ShapeError
from rlx_py.ir.base.types import TensorType, Type
from rlx_py.ir.graph.stored import Emitter, LoopRule
from rlx_py.ir.loops.index import Index
from rlx_py.ir.loops.kernel import Expr
from rlx_py.ir.nodes.node import Ask, Node
from rlx_py.ir.ops.making.batching import unchanged
from rlx_py.ir.ops.making.families import Array, linear, narrow
from rlx_py.ir.ops.making.guards import (
    both,
    chosen,
    converted,
    divides,
    read,
    scalar,
    settled,
    within,
)

Sizes = tuple[int, ...]
MOST_PHASES = 16  # loops that a fold is cut into, one for each place within a stride
MIN_LINES = 8  # from which threads take lines, and not places of one


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


@dataclass(frozen=True)
class _Phase:
    """Places first + step·q of an axis, q < count, and the taps whose windows may hold them.

    Tap tap + every·m of window q + shift − move·m does.
    """

    first: int
    step: int
    count: int
    taps: int
    tap: int
    every: int
    shift: int
    move: int


def _phases(length: int, size: int, stride: int, dilation: int) -> list[_Phase]:
    """Places that are equal modulo the stride meet the same taps."""
    common = gcd(stride, dilation)
    every, found = stride // common, []
    for first in range(min(stride, length)):
        taps = [k for k in range(min(size, every)) if (first - k * dilation) % stride == 0]
        tap = taps[0] if taps else 0
        found.append(_Phase(first, stride, -(-(length - first) // stride),
                            -(-(size - tap) // every) if taps else 0, tap, every,
                            (first - tap * dilation) // stride, dilation // common))
    return found


def _fold_loops(node: Node, emit: Emitter) -> None:
    """Each element sums the windows that hold it, taps in row-major order."""
    attrs, d = node.attrs, len(node.attrs["size"])
    if prod(attrs["stride"]) > MOST_PHASES:
        with ExitStack() as stack:
            out = [stack.enter_context(emit.loop(n, independent=True)) for n in node.shape]
            _sum_taps(node, emit, tuple(out), attrs["size"], partial(_any_tap, node, tuple(out)))
        return
    lead = node.shape[:node.rank - d]
    phases = list(product(*map(_phases, node.shape[-d:], attrs["size"], attrs["stride"],
                               attrs["dilation"])))
    # Few lines leave their places to the threads.
    together = prod(lead) >= MIN_LINES
    for part in [phases] if together else [[p] for p in phases]:
        with ExitStack() as stack:
            line = [stack.enter_context(emit.loop(n, independent=True)) for n in lead]
            for phase in part:
                _fold_phase(node, emit, line, phase)


def _fold_phase(node: Node, emit: Emitter, line: list[Index], phases: tuple[_Phase, ...]) -> None:
    with ExitStack() as stack:
        steps = [stack.enter_context(emit.loop(p.count, independent=True)) for p in phases]
        out = (*line, *(q * p.step + p.first for q, p in zip(steps, phases, strict=True)))

        def window(taps: list[Index]) -> tuple[list[Index], list[Index]]:
            return ([q + p.shift - m * p.move for q, m, p in zip(steps, taps, phases, strict=True)],
                    [m * p.every + p.tap for m, p in zip(taps, phases, strict=True)])

        _sum_taps(node, emit, out, tuple(p.taps for p in phases),
                  lambda taps: (*window(taps), None))


_Held = tuple[list[Index], list[Index], Expr | None]  # windows, their taps, and where they are


def _any_tap(node: Node, out: tuple[Index, ...], taps: list[Index]) -> _Held:
    """The window whose tap may be at a place."""
    attrs = node.attrs
    starts = [p - k * a for p, k, a in zip(out[-len(taps):], taps, attrs["dilation"], strict=True)]
    guard: Expr | None = None
    for start, s in zip(starts, attrs["stride"], strict=True):
        guard = both(guard, divides(start, s))
    return [start // s for start, s in zip(starts, attrs["stride"], strict=True)], taps, guard


def _sum_taps(node: Node, emit: Emitter, out: tuple[Index, ...], sizes: Sizes,
              held: Callable[..., _Held]) -> None:
    """The element at `out`: the sum over taps of what windows hold."""
    w, acc, d = node.inputs[0], node.dtype.compute, len(sizes)
    counts = w.shape[w.rank - 2 * d:w.rank - d]
    total = emit.declare(acc, scalar(0, acc))
    with ExitStack() as stack:
        places, taps, guard = held(
            [stack.enter_context(emit.loop(k, independent=False)) for k in sizes])
        for place, n in zip(places, counts, strict=True):
            guard = both(guard, within(place, 0, n))
        value = chosen(emit, 0, (*out[:-d], *places, *taps), settled(emit, guard))
        emit.set(total, converted(emit, value, acc), "add")
    emit.store(out, converted(emit, read(total), node.dtype))


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
