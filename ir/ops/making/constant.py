"""Constants and iota: the leaves that carry their own value."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np

from rlx_py.ir.base.dim import Dim
from rlx_py.ir.base.errors import ArgumentError, DTypeError
from rlx_py.ir.base.literal import Literal
from rlx_py.ir.base.rounding import rounded
from rlx_py.ir.base.types import DType, TensorType, Type, as_dtype, as_shape, i64, normalize_axis
from rlx_py.ir.loops.index import Index
from rlx_py.ir.loops.kernel import Const, Expr, IndexValue
from rlx_py.ir.nodes.node import Ask, Node, Op, register
from rlx_py.ir.ops.making.located import located


def _infer_constant(*, value: Literal) -> Type:
    return TensorType(as_dtype(value.array.dtype), value.array.shape)


def _constant_element(node: Node, index: tuple[Index, ...]) -> Generator[Ask, Expr, Expr]:
    # Only rank 0 is asked here: lower stores larger constants as data of the module.
    yield from ()
    return Const(node.attrs["value"].array[()], node.dtype)


CONSTANT = register(Op("constant", _infer_constant, eval=lambda *, value: value.array,
                       element=_constant_element, differentiable=False))


def _infer_iota(*, shape: tuple[int, ...], axis: int, dtype: DType) -> Type:
    if normalize_axis(axis, len(shape)) != axis:
        raise ArgumentError(f"iota takes the axis itself, not {axis} from the end")
    if dtype.kind == "bool":
        raise DTypeError("iota counts in a number type, not bool")
    return TensorType(dtype, as_shape(shape))


def _eval_iota(*, shape: tuple[int, ...], axis: int, dtype: DType) -> Any:
    line = np.arange(shape[axis]).astype(dtype.numpy)
    line = line.reshape([-1 if i == axis else 1 for i in range(len(shape))])
    return np.broadcast_to(line, shape)


def _iota_element(node: Node, index: tuple[Index, ...]) -> Generator[Ask, Expr, Expr]:
    yield from ()
    return IndexValue(index[node.attrs["axis"]], node.dtype)


IOTA = register(Op("iota", _infer_iota, _eval_iota, element=_iota_element, differentiable=False))


def _infer_size(*, size: int, dtype: DType) -> Type:
    return TensorType(dtype, ())


def _eval_size(*, size: int, dtype: DType) -> Any:
    with np.errstate(all="ignore"):
        return np.asarray(int(size)).astype(dtype.numpy)


def _size_element(node: Node, index: tuple[Index, ...]) -> Generator[Ask, Expr, Expr]:
    yield from ()
    return Const(_eval_size(**node.attrs)[()], node.dtype)


# The value of a size of a dynamic graph; `fold` makes it a constant once the size has a number.
SIZE = register(Op("size", _infer_size, _eval_size, element=_size_element, differentiable=False))


@located
def constant(value: Any, dtype: Any = None) -> Node:
    """A constant tensor from an array, a number or a size of a dynamic graph.

    A Python float without dtype is f32, an int or size i64; an array keeps its element type. Raises
    DTypeError for what is no array of numbers, or an int that the type does not hold.
    """
    if isinstance(value, Dim):
        return SIZE(size=value, dtype=i64 if dtype is None else as_dtype(dtype))
    if dtype is None and isinstance(value, bool | int | float):
        dtype = as_dtype(type(value))
    wanted = None if dtype is None else as_dtype(dtype)
    if type(value) is int and wanted is not None and not _fits(value, wanted):
        raise DTypeError(f"{value} does not fit {wanted}")
    if type(value) is int and wanted is not None and wanted.is_float and abs(value) >= 2**64:
        value = float(value)  # beyond NumPy's integers
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise DTypeError(f"not an array of numbers: {type(value).__name__}") from error
    if array.dtype.kind not in "biuf":  # that of bf16 is none of these
        as_dtype(array.dtype)
    return CONSTANT(value=Literal(array if wanted is None else rounded(array, wanted)))


def _fits(value: int, dtype: DType) -> bool:
    if not dtype.is_int:
        return not dtype.is_float or abs(value) <= dtype.largest
    limits = np.iinfo(dtype.numpy)
    return bool(limits.min <= value <= limits.max)


@located
def iota(shape: Any, axis: int = 0, dtype: Any = i64) -> Node:
    """0, 1, 2 … along an axis."""
    dims = as_shape(shape)
    return IOTA(shape=dims, axis=normalize_axis(axis, len(dims)), dtype=as_dtype(dtype))


def scalar_of(node: Node) -> Any | None:
    """The NumPy scalar that every element of a constant equals, through broadcasts; else None."""
    while node.op.name == "broadcast":
        node = node.inputs[0]
    if node.op is not CONSTANT or node.size != 1:
        return None
    return node.attrs["value"].array.reshape(())[()]


def size_of(node: Node) -> Any | None:
    """The size of a dynamic graph that every element is, through broadcasts; else None."""
    while node.op.name == "broadcast":
        node = node.inputs[0]
    return node.attrs["size"] if node.op is SIZE else None
