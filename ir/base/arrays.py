"""What callers give as arrays: which values are taken for a type, and how they are converted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from rlx_py.ir.base.errors import ArgumentError, DTypeError, ShapeError
from rlx_py.ir.base.types import DTYPES, DType, TensorType, as_dtype

Array = np.ndarray[Any, Any]
NUMBERS = bool | int | float | complex
# What from_dlpack and __array__ raise for what they can't export: another device, a gradient.
FOREIGN = (BufferError, RuntimeError, TypeError, ValueError)


def as_array(name: str, value: Any, type: TensorType, *, strict: bool = False,
             into: Callable[[], Array] | None = None) -> Array:
    """The value as a C-contiguous, aligned array of exactly this type.

    An array that is one already is returned itself, one in another layout copied. Within a kind,
    other element types are converted: floats where what is finite stays so, integers where each
    fits. Python numbers, and lists of them, take the type of their place; integers among them count
    as floats where those are expected. strict: only arrays of the element type itself are taken.
    into: gives an array of this type to convert into; else a new one is made.

    Raises DTypeError (another kind, or what does not fit), ShapeError, ArgumentError (no array).
    """
    target = type.dtype.numpy
    array = value if isinstance(value, np.ndarray) else _foreign(name, value, type, strict)
    if isinstance(array, np.ma.MaskedArray):
        raise DTypeError(f"{name!r} takes {type}, not a masked array: give .filled(…)")
    if array.shape != type.shape:
        raise ShapeError(f"{name!r} takes {type}, not {described(array)}")
    if array.dtype == target:
        if array.flags.c_contiguous and array.flags.aligned:
            # Not a subclass, nor an equal type under another number, which callers test for.
            plain = array.__class__ is np.ndarray and array.dtype.num == target.num
            return array if plain else np.asarray(array).view(target)
    elif strict:
        raise DTypeError(f"{name!r} takes {type}, not {described(array)}: compiled with "
                         f"strict=True, it converts nothing")
    elif _kind(array.dtype) != type.dtype.kind.removeprefix("u"):
        raise DTypeError(f"{name!r} takes {type}, not {described(array)}: what is of another kind "
                         f"is not converted; give .astype({target.name!r})")
    found = np.empty(type.shape, target) if into is None else into()
    _convert(name, array, found, type.dtype)
    return found


def described(value: Array) -> str:
    """The type of an array in our words, or else in NumPy's."""
    try:
        return str(TensorType(as_dtype(value.dtype), value.shape))
    except DTypeError:
        return f"{value.dtype}{list(value.shape)}"


def _kind(dtype: np.dtype[Any]) -> str:
    """"float", "int" or "bool"; "" for what has no such numbers."""
    if dtype == DTYPES["bf16"].numpy:
        return "float"
    return {"f": "float", "i": "int", "u": "int", "b": "bool"}.get(dtype.kind, "")


def _convert(name: str, array: Array, into: Array, dtype: DType) -> None:
    """Copy within a kind, and refuse what the type does not hold."""
    if dtype.is_int and array.size:
        had, has = np.iinfo(array.dtype), np.iinfo(into.dtype)
        if had.min < has.min or had.max > has.max:
            for extreme in (array.min(), array.max()):
                if not has.min <= int(extreme) <= has.max:
                    raise DTypeError(f"{name!r}: {extreme} does not fit {dtype}")
    with np.errstate(all="ignore", over="raise"):
        try:
            np.copyto(into, array, casting="unsafe")
            # The processor tells where numbers are narrowed to f32, at no cost.
            grown = dtype.bits == 16 and bool((np.isinf(into) & np.isfinite(array)).any())
        except FloatingPointError:
            grown = True
    if grown:
        raise DTypeError(f"{name!r}: a finite {described(array)} becomes infinite in {dtype}")


def _foreign(name: str, value: Any, type: TensorType, strict: bool) -> Array:
    """What is no NumPy array as one."""
    if isinstance(value, NUMBERS | list | tuple) and not isinstance(value, np.generic):
        if strict:
            raise DTypeError(f"{name!r} takes an array of {type}: compiled with strict=True, it "
                             f"converts no {value.__class__.__name__}")
        return _from_python(name, value, type)
    try:
        if hasattr(value, "__dlpack__") and not isinstance(value, np.generic):
            return np.asarray(np.from_dlpack(value))
        if hasattr(value, "__array__"):
            return np.asarray(value)
    except FOREIGN as error:
        raise ArgumentError(f"{name!r} takes {type}; its {value.__class__.__name__} can't be read "
                            f"as an array: {error}") from error
    raise ArgumentError(f"{name!r} takes an array of {type}, not {value.__class__.__name__}")


def _from_python(name: str, value: Any, type: TensorType) -> Array:
    """Python numbers in nested lists: whole ones as floats where those are expected."""
    try:
        array = np.asarray(value)
        numbers = list(_numbers(value)) if array.dtype == object else []
        if numbers and all(isinstance(n, int) for n in numbers):  # beyond 64 bits
            if not type.dtype.is_float:
                raise DTypeError(f"{name!r}: {max(numbers, key=abs)} does not fit {type.dtype}")
            array = np.asarray(value, np.float64)
    except (ValueError, TypeError, OverflowError) as error:
        raise ShapeError(f"{name!r} takes {type}; what is given is no array: {error}") from error
    if not array.size:  # no kind either
        return array.astype(type.dtype.numpy)
    if _kind(array.dtype) not in ("int", "bool") or type.dtype.kind == "bool" or any(
            isinstance(n, np.ndarray | np.generic) for n in _numbers(value)):
        return array
    return array.astype(np.float64 if type.dtype.is_float else np.int64)


def _numbers(value: Any) -> Iterator[Any]:
    """What nested lists hold."""
    if isinstance(value, list | tuple):
        for entry in value:
            yield from _numbers(entry)
    else:
        yield value
