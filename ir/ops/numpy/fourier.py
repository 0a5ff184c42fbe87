"""Discrete Fourier transforms of (real, imaginary) pairs, as products with small matrices.

A length n = r m is transformed by r at a time (Cooley and Tukey, 1965): a product with the r × r
matrix of the transform, a rotation of each element, and transforms of length m. A length without
small divisors becomes a cyclic convolution of a power of two (Bluestein, 1970). Both are made of a
number of operations that grows with log n.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import pi, sqrt
from typing import Any

import numpy as np

from rlx_py.ir.base.errors import ArgumentError, ShapeError
from rlx_py.ir.base.types import (
    DType,
    Precision,
    TensorType,
    TupleType,
    Type,
    f64,
    i64,
    normalize_axis,
    require_float,
)
from rlx_py.ir.graph.transforms import AD
from rlx_py.ir.nodes.node import Node
from rlx_py.ir.ops.making.arguments import integers
from rlx_py.ir.ops.making.constant import constant, iota
from rlx_py.ir.ops.making.families import composite
from rlx_py.ir.ops.making.located import located
from rlx_py.ir.ops.numpy.products import matmul, tensordot
from rlx_py.ir.ops.numpy.shaping import concatenate, flip, moveaxis, stack, window
from rlx_py.ir.ops.operands.operand import as_node, broadcast_to, operands
from rlx_py.ir.ops.primitive.elementwise import COS, MUL, REM, SIN, cast, fill
from rlx_py.ir.ops.primitive.movement import padded, permuted, reshaped

RADIX = 32  # largest factor that is one product
DIRECT = 64  # longest length that is one product
TABLE = 1 << 16  # rotations beyond are computed, not stored
Pair = tuple[Node, Node]


# ---- numbers of the unit circle --------------------------------------------------------------


def _circle(turns: Any, n: int, inverse: bool) -> tuple[Any, Any]:
    """cos and sin of ∓2π·turns/n, with turns reduced exactly."""
    angle = (1 if inverse else -1) * 2 * pi * (turns % n) / n
    return np.cos(angle), np.sin(angle)


def _matrix(n: int, dtype: DType, inverse: bool) -> Node:
    """The transform of length n on real parts stacked over imaginary ones."""
    c, s = _circle(np.outer(np.arange(n), np.arange(n)), n, inverse)
    return constant(np.block([[c, -s], [s, c]]), dtype)


def _rotations(r: int, m: int, dtype: DType, inverse: bool) -> Pair:
    """cos and sin of ∓2π·k·j/(r m), k < r, j < m."""
    if r * m <= TABLE:
        c, s = _circle(np.outer(np.arange(r), np.arange(m)), r * m, inverse)
        return constant(c, dtype), constant(s, dtype)
    turns = MUL(iota((r, m), 0, i64), iota((r, m), 1, i64))
    reduced = cast(REM(turns, fill(turns, r * m)), f64)
    angle = MUL(reduced, fill(reduced, (1 if inverse else -1) * 2 * pi / (r * m)))
    return cast(COS(angle), dtype), cast(SIN(angle), dtype)


def _rotated(x: Node, axis: int, turn: Pair) -> Node:
    """x, whose axis holds real and imaginary parts, times numbers of the unit circle."""
    re, im = (window(x, axis, i, i + 1) for i in (0, 1))
    c, s = turn
    return concatenate([re * c - im * s, re * s + im * c], axis)


# ---- the transform ---------------------------------------------------------------------------


def _radix(n: int) -> int:
    """The divisor up to RADIX nearest to that by which the stages are equal; 1 if there is none."""
    stages = 1
    while RADIX**stages < n:
        stages += 1
    ideal = n ** (1 / stages)
    found = [r for r in range(2, RADIX + 1) if n % r == 0]
    return min(found, key=lambda r: abs(r - ideal), default=1)


def _transformed(x: Node, inverse: bool) -> Node:
    """The transform of x[…, 2, n] over n, unscaled."""
    *batch, _, n = x.shape
    if n <= DIRECT:
        flat = reshaped(x, (*batch, 2 * n))
        rows = permuted(_matrix(n, x.dtype, inverse), (1, 0))
        return reshaped(matmul(flat, rows), x.shape)
    r = _radix(n)
    if r == 1:
        return _by_convolution(x, inverse)
    m, rank = n // r, x.rank
    parts = tensordot(_matrix(r, x.dtype, inverse), reshaped(x, (*batch, 2 * r, m)),
                      ([1], [rank - 2]))
    split = reshaped(moveaxis(parts, 0, rank - 2), (*batch, 2, r, m))
    turned = _rotated(split, rank - 2, _rotations(r, m, x.dtype, inverse))
    lines = _transformed(moveaxis(turned, rank - 1, rank - 2), inverse)  # […, r, 2, m]
    order = (*range(rank - 2), rank - 1, rank, rank - 2)
    return reshaped(permuted(lines, order), x.shape)


def _by_convolution(x: Node, inverse: bool) -> Node:
    """2jk = j² + k² − (k − j)² turns the transform into a convolution with e^{±πi j²/n}."""
    n, rank, dtype = x.shape[-1], x.rank, x.dtype
    size = 1 << (2 * n - 2).bit_length()
    squares = np.array([j * j % (2 * n) for j in range(n)])
    c, s = _circle(squares, 2 * n, inverse)
    chirp = (constant(c, dtype), constant(s, dtype))
    wave = np.zeros(size, np.complex128)
    wave[:n] = c - 1j * s
    wave[size - n + 1:] = wave[1:n][::-1]
    filter = np.fft.fft(wave) / size
    high = (0,) * (rank - 1) + (size - n,)
    zero, none = constant(0.0, dtype), (0,) * rank
    long = padded(_rotated(x, rank - 2, chirp), zero, none, high, none)
    spectrum = _transformed(long, False)
    turn = (constant(filter.real, dtype), constant(filter.imag, dtype))
    found = window(_transformed(_rotated(spectrum, rank - 2, turn), True), rank - 1, 0, n)
    return _rotated(found, rank - 2, chirp)


def _infer(re: TensorType, im: TensorType, *, inverse: bool) -> Type:
    require_float("a Fourier transform", re.dtype)
    if re != im:
        raise ShapeError(f"real parts {re} and imaginary parts {im} differ")
    if not re.rank or not re.shape[-1]:
        raise ShapeError(f"{re} has no elements to transform along its last axis")
    return TupleType((re, im))


def _decompose(re: Node, im: Node, *, inverse: bool) -> Pair:
    wide = re.dtype.compute
    found = _transformed(stack([cast(re, wide), cast(im, wide)], -2), inverse)
    parts = (window(found, found.rank - 2, i, i + 1) for i in (0, 1))
    first, second = (cast(reshaped(p, re.shape), re.dtype) for p in parts)
    return first, second


def _vjp(node: Node, ct: Any, ad: AD) -> Sequence[Node | None]:
    """The adjoint of a Fourier transform is the unscaled inverse one."""
    found = FFT(*_both(ct, node.inputs), inverse=not node.attrs["inverse"])
    return (found[0], found[1])


def _jvp(node: Node, tangents: Sequence[Node | None], ad: AD) -> Any:
    if all(t is None for t in tangents):
        return None
    found = FFT(*_both(tangents, node.inputs), **node.attrs)
    return (found[0], found[1])


def _both(pair: Sequence[Node | None], like: Sequence[Node]) -> list[Node]:
    return [fill(x, 0) if p is None else p for p, x in zip(pair, like, strict=True)]


# Over the last axis, Σ_j x_j e^{∓2πi jk/n}, unscaled.
# Every element is a sum over all: products, but not ones to make narrow.
FFT = composite("fft", _infer, _decompose, vjp=_vjp, jvp=_jvp, precision=Precision.WIDE)


# ---- for users -------------------------------------------------------------------------------


def _pair(re: Any, im: Any) -> Pair:
    """Real and imaginary parts of one type; the imaginary ones are 0 where not given."""
    if im is None:
        node = as_node(re)
        require_float("a Fourier transform", node.dtype)
        return node, fill(node, 0)
    first, second = operands(re, im)
    if first.shape != second.shape:
        raise ShapeError(f"real parts {first.type} and imaginary parts {second.type} differ")
    return first, second


def _scale(n: int, norm: str, inverse: bool) -> float:
    scales = {"backward": 1 / n if inverse else 1.0, "ortho": 1 / sqrt(n),
              "forward": 1.0 if inverse else 1 / n}
    if norm not in scales:
        raise ArgumentError(f"norm {norm!r} is not one of {', '.join(scales)}")
    return scales[norm]


def _along(pair: Pair, axis: int, norm: str, inverse: bool) -> Pair:
    at = normalize_axis(axis, pair[0].rank)
    found = FFT(*(moveaxis(p, at, -1) for p in pair), inverse=inverse)
    scale = _scale(pair[0].shape[at], norm, inverse)
    parts = [moveaxis(found[i], -1, at) for i in (0, 1)]
    first, second = parts if scale == 1 else [MUL(p, fill(p, scale)) for p in parts]
    return first, second


@located
def fft(re: Any, im: Any = None, axis: int = -1, norm: str = "backward") -> Pair:
    """Σ_j x_j e^{−2πi jk/n} along an axis, of any length: (real parts, imaginary parts).

    norm: "backward" scales only the inverse, "ortho" both by 1/√n, "forward" only this.
    """
    return _along(_pair(re, im), axis, norm, False)


@located
def ifft(re: Any, im: Any = None, axis: int = -1, norm: str = "backward") -> Pair:
    """The inverse of fft: (real parts, imaginary parts)."""
    return _along(_pair(re, im), axis, norm, True)


@located
def fftn(re: Any, im: Any = None, axes: Any = None, norm: str = "backward") -> Pair:
    """fft along several axes (all by default)."""
    return _along_all(_pair(re, im), axes, norm, False)


@located
def ifftn(re: Any, im: Any = None, axes: Any = None, norm: str = "backward") -> Pair:
    """The inverse of fftn."""
    return _along_all(_pair(re, im), axes, norm, True)


def _along_all(pair: Pair, axes: Any, norm: str, inverse: bool) -> Pair:
    for a in range(pair[0].rank) if axes is None else integers("axes", axes):
        pair = _along(pair, a, norm, inverse)
    return pair


@located
def rfft(x: Any, axis: int = -1, norm: str = "backward") -> Pair:
    """The first n//2 + 1 terms of fft of real numbers; the others are their conjugates.

    Long lines of even length are transformed as complex ones of half the length.
    """
    node, zero = _pair(x, None)
    at = normalize_axis(axis, node.rank)
    n = node.shape[at]
    if isinstance(n, int) and n > DIRECT and n % 2 == 0:
        scale = _scale(n, norm, False)
        found = _of_real(cast(moveaxis(node, at, -1), node.dtype.compute))
        re, im = (moveaxis(cast(p * scale, node.dtype), -1, at) for p in found)
        return re, im
    re, im = _along((node, zero), at, norm, False)
    half = n // 2 + 1
    return window(re, at, 0, half), window(im, at, 0, half)


def _of_real(x: Node) -> Pair:
    """The terms 0 … m of the last axis, of 2m real numbers, by the transform Z of m numbers
    z_j = x_2j + i·x_2j+1: with Y_k the conjugate of Z_m−k, x_2j alone has the transform (Z + Y)/2
    and x_2j+1 alone (Z − Y)/2i, which e^{−2πi k/2m} moves on by one place.
    """
    m, last = x.shape[-1] // 2, x.rank - 1
    pairs = reshaped(x, (*x.shape[:-1], m, 2))
    found = FFT(*(pairs[..., i] for i in (0, 1)), inverse=False)
    a, b = (concatenate([found[i], window(found[i], last, 0, 1)], last) for i in (0, 1))
    c, d = (flip(p, last) for p in (a, b))
    cosine, sine = (concatenate([t[1], [end]]) for t, end in
                    zip(_rotations(2, m, x.dtype, False), (-1.0, 0.0), strict=True))
    re, im = b + d, c - a  # of (Z − Y)/i
    return ((a + c + re * cosine - im * sine) * 0.5, (b - d + re * sine + im * cosine) * 0.5)


@located
def irfft(re: Any, im: Any = None, n: int | None = None, axis: int = -1,
          norm: str = "backward") -> Node:
    """The n real numbers whose rfft is given; n is 2·(terms − 1) by default, else it says whether
    the length was odd. Imaginary parts of the first term, and of the last for even n, do not count.
    """
    first, second = _pair(re, im)
    at = normalize_axis(axis, first.rank)
    terms = first.shape[at]
    size = 2 * (terms - 1) if n is None else n
    if size < 1 or size // 2 + 1 != terms:
        raise ArgumentError(f"{terms} terms are not those of {size} real numbers")
    later = (size - 1) // 2  # terms with a conjugate
    weight = np.ones(terms)
    weight[0] = 0
    if size % 2 == 0:
        weight[-1] = 0
    shape = tuple(terms if i == at else 1 for i in range(first.rank))
    second = second * broadcast_to(constant(weight.reshape(shape), second.dtype), second.shape)
    mirrored = [flip(window(p, at, 1, 1 + later), at) for p in (first, second)]
    whole = (concatenate([first, mirrored[0]], at), concatenate([second, -mirrored[1]], at))
    return _along(whole, at, norm, True)[0]
