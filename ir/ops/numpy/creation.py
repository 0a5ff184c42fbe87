"""New arrays under their NumPy names. Float32 and int64 unless a dtype is given."""

from __future__ import annotations

from math import ceil, isfinite
from typing import Any

import numpy as np

from rlx_py.ir.base.dim import Dim, larger
from rlx_py.ir.base.errors import ArgumentError
from rlx_py.ir.base.types import TensorType, as_dtype, as_shape, f32, i64
from rlx_py.ir.nodes.node import Node
from rlx_py.ir.ops.making.arguments import check_held, number
from rlx_py.ir.ops.making.constant import constant, iota
from rlx_py.ir.ops.making.located import located
from rlx_py.ir.ops.operands.operand import as_node, convert, operands
from rlx_py.ir.ops.operands.operand import broadcast_to as stretched
from rlx_py.ir.ops.primitive.compare import EQ, GE
from rlx_py.ir.ops.primitive.elementwise import ADD, MUL, SELECT, cast, fill
from rlx_py.ir.ops.primitive.movement import filled, spread


@located
def zeros(shape: Any, dtype: Any = f32) -> Node:
    """Zeros of a shape."""
    return filled(0, TensorType(as_dtype(dtype), as_shape(shape)))


@located
def ones(shape: Any, dtype: Any = f32) -> Node:
    """Ones of a shape."""
    return filled(1, TensorType(as_dtype(dtype), as_shape(shape)))


@located
def full(shape: Any, fill_value: Any, dtype: Any = None) -> Node:
    """One value everywhere: a number, or an array that broadcasts to the shape."""
    wanted = None if dtype is None else as_dtype(dtype)
    value = as_node(fill_value, wanted)
    return stretched(value if wanted is None else convert(value, wanted), as_shape(shape))


@located
def zeros_like(x: Any, dtype: Any = None) -> Node:
    """Zeros of an array's shape, and its dtype unless one is given."""
    return full_like(x, 0, dtype)


@located
def ones_like(x: Any, dtype: Any = None) -> Node:
    """Ones of an array's shape, and its dtype unless one is given."""
    return full_like(x, 1, dtype)


@located
def full_like(x: Any, fill_value: Any, dtype: Any = None) -> Node:
    """One value in an array's shape, and its dtype unless one is given."""
    node = as_node(x)
    return full(node.shape, fill_value, node.dtype if dtype is None else dtype)


@located
def arange(start: Any, stop: Any = None, step: Any = 1, dtype: Any = None) -> Node:
    """start, start + step, … before stop; arange(n) counts from 0. Python numbers and sizes."""
    if stop is None:
        start, stop = 0, start
    start, stop, step = (number(k, v) for k, v in (("start", start), ("stop", stop),
                                                  ("step", step)))
    if not step:
        raise ArgumentError("the step is 0")
    whole = all(isinstance(v, int | Dim) for v in (start, stop, step))
    wanted = as_dtype(dtype) if dtype is not None else (i64 if whole else f32)
    varies = any(isinstance(v, Dim) for v in (start, stop, step))
    if varies and not (whole and wanted.is_int):
        return cast(arange(start, stop, step, i64), wanted)
    if not (whole and wanted.is_int):
        length = (stop - start) / step
        if not isfinite(length):
            raise ArgumentError(f"{start}, {stop} and {step} give no number of elements")
        check_held("a range", ceil(length))
        return constant(np.arange(start, stop, step), wanted)
    start, stop, step = (v if isinstance(v, Dim) else int(v) for v in (start, stop, step))
    count = larger(0, -((start - stop) // step))
    line = iota((count,), 0, wanted)
    line = line if step == 1 else MUL(line, fill(line, step))
    return line if start == 0 else ADD(line, fill(line, start))


@located
def linspace(start: float, stop: float, num: int = 50, endpoint: bool = True,
             dtype: Any = f32) -> Node:
    """`num` evenly spaced numbers."""
    if num < 0:
        raise ArgumentError(f"{num} numbers")
    check_held("a line", num)
    with np.errstate(all="ignore"):
        return constant(np.linspace(start, stop, num, endpoint), as_dtype(dtype))


@located
def tri(n: int, m: int | None = None, k: int = 0, dtype: Any = f32) -> Node:
    """Ones at and below diagonal k, zeros above."""
    return cast(_below((n, n if m is None else m), k), as_dtype(dtype))


@located
def eye(n: int, m: int | None = None, k: int = 0, dtype: Any = f32) -> Node:
    """Ones on diagonal k."""
    row, column = _places((n, n if m is None else m), k)
    return cast(EQ(row, column), as_dtype(dtype))


def _places(shape: tuple[int, int], k: int) -> tuple[Node, Node]:
    """Row number + k, and column number, of each element."""
    sizes = as_shape(shape)
    row = iota(sizes, 0, i64)
    return (ADD(row, fill(row, k)) if k else row), iota(sizes, 1, i64)


def _below(shape: tuple[int, int], k: int) -> Node:
    row, column = _places(shape, k)
    return GE(row, column)


def _triangle(x: Any, k: int, lower: bool) -> Node:
    node = as_node(x)
    if node.rank < 2:
        raise ArgumentError(f"{node.type} has no rows and columns")
    n, m = node.shape[-2:]
    mask = _below((n, m), k if lower else k - 1)
    kept = spread(mask, node.shape, (node.rank - 2, node.rank - 1))
    zero = filled(0, node.tensor)
    return SELECT(kept, node, zero) if lower else SELECT(kept, zero, node)


@located
def tril(x: Any, k: int = 0) -> Node:
    """The last two axes with zeros above diagonal k."""
    return _triangle(x, k, True)


@located
def triu(x: Any, k: int = 0) -> Node:
    """The last two axes with zeros below diagonal k."""
    return _triangle(x, k, False)


@located
def one_hot(idx: Any, n: int, dtype: Any = f32) -> Node:
    """idx[…] → […, n] with 1 at each position, 0 elsewhere; out of range gives a row of 0."""
    node = as_node(idx)
    if not node.dtype.is_int:
        raise ArgumentError(f"positions must be integers, not {node.type}")
    shape = (*node.shape, *as_shape(n))
    classes = iota(shape, node.rank, i64)
    return cast(EQ(spread(cast(node, i64), shape, tuple(range(node.rank))), classes),
                as_dtype(dtype))


@located
def meshgrid(*xs: Any, indexing: str = "xy") -> list[Node]:
    """Coordinate arrays of a grid; "xy" swaps the first two axes, "ij" does not."""
    if indexing not in ("xy", "ij"):
        raise ArgumentError(f"indexing {indexing!r} is not xy or ij")
    lines = operands(*xs) if xs else []
    axes = list(range(len(lines)))
    if indexing == "xy" and len(lines) > 1:
        axes[:2] = [1, 0]
    sizes = [0] * len(lines)
    for line, axis in zip(lines, axes, strict=True):
        if line.rank > 1:
            raise ArgumentError(f"a coordinate line has rank 1, not {line.type}")
        sizes[axis] = line.size
    return [spread(line, tuple(sizes), (axis,)) if line.rank else stretched(line, tuple(sizes))
            for line, axis in zip(lines, axes, strict=True)]
