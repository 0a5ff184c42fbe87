"""NumPy values beside nodes: which element type they take.

An array, a NumPy scalar or a list of numbers takes the nodes' type where it is of their kind (one
of float, integer, bool, by the table of `ir/base/types.py`), and where it is not, what promotion
gives; but floats beside integers and bools count as a Python float does, f32.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, reduce
from types import NoneType
from typing import Any

import numpy as np

from rlx_py.ir.base.dim import Dim
from rlx_py.ir.base.errors import DTypeError
from rlx_py.ir.base.rounding import rounded
from rlx_py.ir.base.types import FLOATS, DType, TensorType, as_dtype, f32, f64, promote
from rlx_py.ir.nodes.node import Node

Array = np.ndarray[Any, Any]
# Annotations of arguments. Nested: tensors in lists, tuples and dicts, where numbers stay numbers.
# Key: a random key, Positions: integers that say where; neither is an operand.
Nested = Any
Key = Any
Positions = Any
_PLAIN = (Node, int, float, str, Dim, NoneType)
_FLOATS = frozenset(d.numpy for d in FLOATS)


def promoted(dtypes: Sequence[DType]) -> DType | None:
    """The common type of several; None of none."""
    return reduce(promote, dtypes) if dtypes else None


def beside(nodes: DType | None, array: DType) -> DType:
    """The type that nodes and arrays of those types make; `nodes` is None where there are none."""
    if nodes is None or (array.is_float and nodes.is_float) or (array.is_int and nodes.is_int):
        return array if nodes is None else nodes
    return f32 if array.is_float else promote(nodes, array)


def taken(array: Array, dtype: DType) -> Array:
    """The numbers in another type. Raises DTypeError where that has no such integer, or where what
    is finite becomes infinite."""
    if array.dtype == dtype.numpy:
        return array
    found = rounded(array, dtype)
    lost = np.isinf(found) & np.isfinite(array) if dtype.is_float else found != array
    if lost.any():
        raise DTypeError(f"{array[lost][0]} does not fit {dtype}, the type of the nodes beside it; "
                         "rlx.constant keeps a type of its own")
    return found


def followed(function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
             ) -> tuple[Sequence[Any], dict[str, Any]]:
    """The arguments of a function, arrays of floats in the type that the nodes among them give; in
    that of `dtype` where the call names one.

    Integers are left to what takes them: they may be positions. Raises DTypeError.
    """
    for v in (*args, *kwargs.values()):
        if not isinstance(v, _PLAIN):
            break
    else:
        return args, kwargs
    follow, order = _followers(function)
    named = [*((order[min(i, len(order) - 1)], v) for i, v in enumerate(args)), *kwargs.items()]
    like = _wanted([v for k, v in named if follow.get(k, _untouched) is not _untouched],
                   dict(named).get("dtype"))
    if like is None:
        return args, kwargs
    found = [follow.get(k, _untouched)(v, like) for k, v in named]
    return found[:len(args)], dict(zip(kwargs, found[len(args):], strict=True))


def following(leaves: Sequence[Any]) -> list[Any]:
    """The leaves of nested arguments, arrays of floats in the type that the nodes among them give.
    Raises DTypeError."""
    like = _wanted(leaves, None)
    return list(leaves) if like is None else [_nested(v, like) for v in leaves]


def _wanted(values: Sequence[Any], dtype: Any) -> DType | None:
    """What arrays of floats become beside the nodes among values; None where they stay."""
    common = promoted([n.type.dtype for n in _nodes(values) if isinstance(n.type, TensorType)])
    if common is None:
        return None
    found = beside(common, f64) if dtype is None else as_dtype(dtype)
    return found if found.is_float else None


Follow = Callable[[Any, DType], Any]


@cache
def _followers(function: Callable[..., Any]) -> tuple[dict[str, Follow], list[str]]:
    """How each parameter follows the nodes; and those that have a position, *args the last."""
    parameters = inspect.signature(function).parameters.values()
    order = [p.name for p in parameters if p.kind is not p.KEYWORD_ONLY]
    return {p.name: _FOLLOW.get(str(p.annotation), _untouched) for p in parameters}, order


def _untouched(value: Any, dtype: DType) -> Any:
    return value


def _tensor(value: Any, dtype: DType) -> Any:
    """A tensor or a list of some; numbers in a list are an array."""
    if isinstance(value, list | tuple):
        array = _numbers(value)
        return _entries(value, dtype, _tensor) if array is None else _tensor(array, dtype)
    if isinstance(value, Node) or not hasattr(value, "__array__") or isinstance(value, type):
        return value
    array = np.asarray(value)
    return taken(array, dtype) if is_float(array) else value


def _nested(value: Any, dtype: DType) -> Any:
    """Tensors in lists, tuples and dicts; numbers stay what they are."""
    if isinstance(value, dict):
        return {k: _nested(v, dtype) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return _entries(value, dtype, _nested)
    return _tensor(value, dtype)


_FOLLOW: dict[str, Follow] = {
    "Any": _tensor, "Any | None": _tensor, "Sequence[Any]": _tensor, "Nested": _nested}


def _entries(value: Any, dtype: DType, follow: Follow) -> Any:
    found = [follow(v, dtype) for v in value]
    if all(a is b for a, b in zip(found, value, strict=True)):
        return value
    return value._make(found) if hasattr(value, "_make") else type(value)(found)


def _numbers(value: Sequence[Any]) -> Array | None:
    """A list of floats, or of lists of as many; None for any other."""
    entries = list(value)
    while entries and isinstance(entries[0], list | tuple):
        if not all(isinstance(v, list | tuple) and len(v) == len(entries[0]) for v in entries):
            return None
        entries = [x for v in entries for x in v]
    kinds = {type(v) for v in entries}
    return np.asarray(value) if float in kinds and kinds <= {float, int, bool} else None


def is_float(array: Array) -> bool:
    """Whether an array is of floats that there is a type for."""
    return array.dtype in _FLOATS


def _nodes(values: Iterable[Any]) -> Iterator[Node]:
    for v in values:
        if isinstance(v, Node):
            yield v
        elif isinstance(v, list | tuple):
            yield from _nodes(v)
        elif isinstance(v, dict):
            yield from _nodes(v.values())
