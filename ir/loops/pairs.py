"""Sums of many terms: in what order they are taken, and the same by NumPy.

n equal terms in one chain lose up to n/4 roundings of a last bit. So a long sum is taken in runs of
at most CHAIN terms, each from nothing, and what runs hold is added in pairs, then pairs of pairs.
Extents alone decide where runs begin.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from rlx_py.ir.base.types import as_dtype

Array = np.ndarray[Any, Any]

CHAIN = 32
"""Terms that are added one after the other."""


def runs(extent: int, most: int = CHAIN, unit: int = 1) -> Iterator[tuple[int, int, int]]:
    """(start, run, depth): from each start on 2^depth runs of `run` steps lie one behind the other.

    A run has at most `most` steps, `most` at least `unit`; all but the last are whole units.
    """
    start = 0
    while start < extent:
        left = extent - start
        run, depth = left, 0
        while run > most:
            depth += 1
            run = (left // unit >> depth) * unit
        yield start, run, depth
        start += run << depth


def wide(x: Array) -> Array:
    """The array in the type that arithmetic on its elements is done in."""
    return x.astype(as_dtype(x.dtype).compute.numpy, copy=False)


def total(x: Array, axes: tuple[int, ...]) -> Array:
    """Σ over axes; wherever the axes lie NumPy adds halves of halves."""
    kept = tuple(i for i in range(x.ndim) if i not in axes)
    lines = np.ascontiguousarray(np.transpose(wide(x), (*kept, *axes)))
    lines = lines.reshape(*(x.shape[i] for i in kept), prod(x.shape[i] for i in axes))
    return np.asarray(np.sum(lines, axis=-1, dtype=lines.dtype)).astype(x.dtype, copy=False)


def product(a: Array, b: Array) -> Array:
    """a @ b of stacked matrices."""
    return _product(wide(a), wide(b)).astype(a.dtype, copy=False)


def _product(a: Array, b: Array) -> Array:
    """Products over at most 2·CHAIN of k, added in pairs."""
    k = a.shape[-1]
    if k <= 2 * CHAIN:
        found: Array = np.matmul(a, b)
        return found
    half = k // 2
    return _product(a[..., :half], b[..., :half, :]) + _product(a[..., half:], b[..., half:, :])


def running(ufunc: np.ufunc, x: Array, identity: float) -> Array:
    """ufunc.accumulate along the last axis: in each run of CHAIN, behind what all before hold."""
    size = x.shape[-1]
    ends = [(0, 0)] * (x.ndim - 1) + [(0, -size % CHAIN)]
    padded = np.pad(wide(x), ends, constant_values=identity)
    lines = padded.reshape(*x.shape[:-1], padded.shape[-1] // CHAIN, CHAIN)
    inside = ufunc.accumulate(lines, axis=-1)
    before = _before(ufunc, inside[..., -1], identity)
    found: Array = ufunc(before[..., None], inside).reshape(padded.shape)[..., :size]
    return found.astype(x.dtype, copy=False)


def _before(ufunc: np.ufunc, x: Array, identity: float) -> Array:
    """What all before each element of the last axis hold, by pairs of pairs."""
    found = np.full_like(x, identity)
    if x.shape[-1] > 1:
        left, right = x[..., 0::2], x[..., 1::2]
        pairs = left.copy()
        pairs[..., :right.shape[-1]] = ufunc(left[..., :right.shape[-1]], right)
        found[..., 0::2] = _before(ufunc, pairs, identity)
        found[..., 1::2] = ufunc(found[..., 0::2], left)[..., :right.shape[-1]]
    return found
