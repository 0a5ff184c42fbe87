"""Element types and tensor types."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from math import prod
from typing import Any

import ml_dtypes
import numpy as np

from rlx_py.ir.base.dim import Dim
from rlx_py.ir.base.errors import ArgumentError, DTypeError, ShapeError

INT64_MAX = 2**63 - 1


@dataclass(frozen=True, eq=False)
class DType:
    """An element type: `kind` is 'float', 'int', 'uint' or 'bool'; `bits` its storage width."""

    name: str
    kind: str
    bits: int
    numpy: np.dtype[Any]

    @property
    def is_float(self) -> bool:
        """Whether gradients exist for this type."""
        return self.kind == "float"

    @property
    def is_int(self) -> bool:
        """Whether this is a signed or unsigned integer (bool is not)."""
        return self.kind in ("int", "uint")

    @property
    def itemsize(self) -> int:
        """Bytes an element takes in memory."""
        return max(1, self.bits // 8)

    @property
    def compute(self) -> DType:
        """The type arithmetic is done in: f16 and bf16 store narrow and compute in f32."""
        return f32 if self in (f16, bf16) else self

    @property
    def largest(self) -> float:
        """The largest finite number of a float type."""
        return float.fromhex("0x1.fep127") if self is bf16 else float(np.finfo(self.numpy).max)

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        return (as_dtype, (self.name,))


f64 = DType("f64", "float", 64, np.dtype(np.float64))
f32 = DType("f32", "float", 32, np.dtype(np.float32))
f16 = DType("f16", "float", 16, np.dtype(np.float16))
bf16 = DType("bf16", "float", 16, np.dtype(ml_dtypes.bfloat16))
i64 = DType("i64", "int", 64, np.dtype(np.int64))
i32 = DType("i32", "int", 32, np.dtype(np.int32))
i8 = DType("i8", "int", 8, np.dtype(np.int8))
u32 = DType("u32", "uint", 32, np.dtype(np.uint32))
u8 = DType("u8", "uint", 8, np.dtype(np.uint8))
u16 = DType("u16", "uint", 16, np.dtype(np.uint16))  # in kernels only: the bits of f16 and bf16
bool_ = DType("bool", "bool", 1, np.dtype(np.bool_))

DTYPES: dict[str, DType] = {
    d.name: d for d in (f64, f32, f16, bf16, i64, i32, i8, u32, u8, bool_)
}
FLOATS = (f64, f32, f16, bf16)
INTS = (i64, i32, i8, u32, u8)
_FROM_NUMPY = {d.numpy: d for d in DTYPES.values()}
_FROM_PYTHON = {float: f32, int: i64, bool: bool_}


def as_dtype(value: Any) -> DType:
    """The DType of a DType, a name such as "f32" or "float32", a dtype of NumPy, PyTorch or JAX,
    or float/int/bool."""
    if isinstance(value, DType):
        return value
    if isinstance(value, str) and value in DTYPES:
        return DTYPES[value]
    if isinstance(value, type) and value in _FROM_PYTHON:
        return _FROM_PYTHON[value]
    if str(value).startswith("torch."):
        value = str(value).removeprefix("torch.")
    elif not isinstance(value, str | type | np.dtype):
        value = getattr(value, "dtype", None)  # as jax.numpy.float32 has one
        if not isinstance(value, np.dtype):
            raise DTypeError(f"not an element type: {value!r}")
    try:
        found = _FROM_NUMPY.get(np.dtype(value))
    except (TypeError, ValueError) as error:
        raise DTypeError(f"not an element type: {value!r}") from error
    if found is None:
        raise DTypeError(f"element type {value!r} is not one of {', '.join(DTYPES)}")
    return found


def promote(a: DType, b: DType) -> DType:
    """The common type of two array operands.

    Integer with float gives the float; f16 with bf16 gives f32; bool gives way to anything; two
    integers give the wider, and a signed with an unsigned the narrowest signed one that holds both.
    """
    if a is b:
        return a
    if a.kind == "bool" or b.kind == "bool":
        return b if a.kind == "bool" else a
    if a.is_float != b.is_float:
        return a if a.is_float else b
    if a.is_float:
        return f32 if a.bits == b.bits else (a if a.bits > b.bits else b)
    if a.kind == b.kind:
        return a if a.bits > b.bits else b
    signed, unsigned = (a, b) if a.kind == "int" else (b, a)
    if signed.bits > unsigned.bits:
        return signed
    return i32 if unsigned.bits < 32 else i64


class Precision(Enum):
    """What mixed precision does with an op's floats: a product takes and gives narrow ones; a sum
    or a steep function wide ones; what moves, picks or adds a few values follows its inputs."""

    NARROW = "narrow"
    NEUTRAL = "neutral"
    WIDE = "wide"


@dataclass(frozen=True)
class TensorType:
    """An element type and a shape. A size is an int or, in a dynamic graph, a `Dim`, which has an
    int's arithmetic; code is annotated for the int."""

    dtype: DType
    shape: tuple[int, ...]

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of a dense array of this type."""
        return self.size * self.dtype.itemsize

    def with_shape(self, shape: Iterable[int]) -> TensorType:
        """The same element type in another shape."""
        return TensorType(self.dtype, tuple(shape))

    def with_dtype(self, dtype: DType) -> TensorType:
        """The same shape of another element type."""
        return TensorType(dtype, self.shape)

    def __str__(self) -> str:
        return f"{self.dtype.name}[{','.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class TupleType:
    """The type of an op with several results."""

    elements: tuple[TensorType, ...]

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.elements))})"


Type = TensorType | TupleType


_OPEN_SIZE = 'a size that is not known yet is rlx.dim("{}")'


def as_shape(shape: Any) -> tuple[int, ...]:
    """A checked shape from a size or a sequence of sizes."""
    dims: list[Any] = []
    entries = (shape,) if isinstance(shape, int | np.integer | Dim) else listed(shape, "shape")
    for d in entries:
        if isinstance(d, bool | np.bool_) or not isinstance(d, int | np.integer | Dim):
            name = d if isinstance(d, str) and d.isidentifier() else "B"
            unknown = f"; {_OPEN_SIZE.format(name)}" if d is None or isinstance(d, str) else ""
            raise ShapeError(f"a size must be an integer, not {d!r} in {entries}{unknown}")
        dims.append(d if isinstance(d, Dim) else int(d))
    if any(d < 0 for d in dims):
        unknown = f"; {_OPEN_SIZE.format('B')}" if -1 in dims else ""
        raise ShapeError(f"negative size in {tuple(dims)}{unknown}")
    check_size(tuple(dims))
    return tuple(dims)


def listed(value: Any, what: str) -> tuple[Any, ...]:
    """The entries of a list, tuple or array; ArgumentError for what has none."""
    if not isinstance(value, Sequence | np.ndarray) or isinstance(value, str | bytes):
        raise ArgumentError(f"{what} is an integer or a sequence of them, not {value!r}")
    if isinstance(value, np.ndarray) and not value.ndim:
        return (value[()],)
    return tuple(value)


def check_size(shape: tuple[int, ...]) -> None:
    """Refuse a shape whose bytes or whose nonzero extents exceed what int64 addresses; of dynamic
    sizes, those that are known."""
    if prod(d for d in shape if isinstance(d, int) and d) * 8 > INT64_MAX:
        raise ShapeError(f"a tensor of shape {shape} is beyond 64-bit addressing")


def normalize_axis(axis: int, rank: int) -> int:
    """A non-negative axis; a negative one counts from the end."""
    if isinstance(axis, bool | np.bool_) or not isinstance(axis, int | np.integer):
        raise ArgumentError(f"an axis must be an integer, not {axis!r}")
    if not -rank <= axis < rank:
        raise ArgumentError(f"axis {axis} is out of range for rank {rank}")
    return int(axis) % rank


def normalize_axes(axis: int | Iterable[int] | None, rank: int) -> tuple[int, ...]:
    """Sorted, distinct, non-negative axes; None means all."""
    if axis is None:
        return tuple(range(rank))
    axes = (axis,) if isinstance(axis, int | np.integer) else listed(axis, "axis")
    found = [normalize_axis(a, rank) for a in axes]
    if len(set(found)) != len(found):
        raise ArgumentError(f"axes {axes} name one axis twice")
    return tuple(sorted(found))


def require_float(op: str, dtype: DType) -> None:
    """Refuse what only floats have."""
    if not dtype.is_float:
        raise DTypeError(f"{op} takes a float, not {dtype}")


def require_rank(op: str, type: TensorType, rank: int) -> None:
    """Refuse another rank."""
    if type.rank != rank:
        raise ShapeError(f"{op} takes rank {rank}, not {type}")
