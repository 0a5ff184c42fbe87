"""Operators and methods of nodes, with NumPy's names and meaning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, Self

import numpy as np

from rlx_py.ir.base.dim import Dim
from rlx_py.ir.base.errors import ArgumentError, MissingAttribute, RLXError
from rlx_py.ir.base.location import at, user_location

# Filled by rlx_py.ir.ops, so that a node's file imports no ops.
OPERATORS: dict[str, Callable[..., Any]] = {}
FUNCTIONS: set[str] = set()  # what rlx has under NumPy's names, for messages


class Operators:
    """What makes nodes of a node by operators and methods."""

    __slots__ = ()

    # Python makes a class that has `==` unhashable; nodes are keys by their identity.
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> Any:
        return self._of("equal", self, other) if compares_with(other) else NotImplemented

    def __ne__(self, other: object) -> Any:
        return self._of("not_equal", self, other) if compares_with(other) else NotImplemented

    def _of(self, name: str, *operands: Any, **attrs: Any) -> Self:
        """What the function of that name gives."""
        made: Self = apply(name, *operands, **attrs)
        return made

    # NumPy asks these for array * node, np.exp(node), np.concatenate([node]).
    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Self:
        name = _OF_NUMPY.get(ufunc.__name__)
        # array += node gives a node. By identity: `==` would compare the node.
        in_place = list(options) == ["out"] and options["out"][0] is inputs[0]
        if name is None or method != "__call__" or (options and not in_place):
            raise _of_numpy(ufunc.__name__)
        return self._of(name, *inputs)

    def __array_function__(self, function: Any, *call: Any) -> NoReturn:
        raise _of_numpy(function.__name__, function.__module__)

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        meant = _ELSEWHERE.get(name) or (f"rlx.{name}(x)" if name in FUNCTIONS else "")
        raise MissingAttribute(f"a node has no {name!r}" + (f"; use {meant}" if meant else "")
                               + at(user_location()))

    def __setitem__(self, key: Any, value: Any) -> NoReturn:
        raise ArgumentError("a node does not change; rlx.scatter_set(x, indices, updates) and "
                            "rlx.where give another" + at(user_location()))

    # Arithmetic: NumPy's meaning, one entry a line.
    def __add__(self, other: Any) -> Self: return self._of("add", self, other)
    def __radd__(self, other: Any) -> Self: return self._of("add", other, self)
    def __sub__(self, other: Any) -> Self: return self._of("subtract", self, other)
    def __rsub__(self, other: Any) -> Self: return self._of("subtract", other, self)
    def __mul__(self, other: Any) -> Self: return self._of("multiply", self, other)
    def __rmul__(self, other: Any) -> Self: return self._of("multiply", other, self)
    def __truediv__(self, other: Any) -> Self: return self._of("divide", self, other)
    def __rtruediv__(self, other: Any) -> Self: return self._of("divide", other, self)
    def __floordiv__(self, other: Any) -> Self: return self._of("floor_divide", self, other)
    def __rfloordiv__(self, other: Any) -> Self: return self._of("floor_divide", other, self)
    def __mod__(self, other: Any) -> Self: return self._of("remainder", self, other)
    def __rmod__(self, other: Any) -> Self: return self._of("remainder", other, self)
    def __pow__(self, other: Any) -> Self: return self._of("power", self, other)
    def __rpow__(self, other: Any) -> Self: return self._of("power", other, self)
    def __matmul__(self, other: Any) -> Self: return self._of("matmul", self, other)
    def __rmatmul__(self, other: Any) -> Self: return self._of("matmul", other, self)
    def __neg__(self) -> Self: return self._of("negative", self)
    def __pos__(self) -> Any: return self
    def __abs__(self) -> Self: return self._of("abs", self)
    def __lt__(self, other: Any) -> Self: return self._of("less", self, other)
    def __le__(self, other: Any) -> Self: return self._of("less_equal", self, other)
    def __gt__(self, other: Any) -> Self: return self._of("greater", self, other)
    def __ge__(self, other: Any) -> Self: return self._of("greater_equal", self, other)
    def __and__(self, other: Any) -> Self: return self._of("bitwise_and", self, other)
    def __rand__(self, other: Any) -> Self: return self._of("bitwise_and", other, self)
    def __or__(self, other: Any) -> Self: return self._of("bitwise_or", self, other)
    def __ror__(self, other: Any) -> Self: return self._of("bitwise_or", other, self)
    def __xor__(self, other: Any) -> Self: return self._of("bitwise_xor", self, other)
    def __rxor__(self, other: Any) -> Self: return self._of("bitwise_xor", other, self)
    def __lshift__(self, other: Any) -> Self: return self._of("left_shift", self, other)
    def __rlshift__(self, other: Any) -> Self: return self._of("left_shift", other, self)
    def __rshift__(self, other: Any) -> Self: return self._of("right_shift", self, other)
    def __rrshift__(self, other: Any) -> Self: return self._of("right_shift", other, self)
    def __invert__(self) -> Self: return self._of("invert", self)

    @property
    def T(self) -> Self:
        """The axes reversed."""
        return self._of("transpose", self)

    def transpose(self, *axes: Any) -> Self:
        """The axes permuted, as ndarray.transpose."""
        return self._of("transpose", self, _unpacked(axes) if axes else None)

    def reshape(self, *shape: Any) -> Self:
        """The elements in row-major order under another shape; one size may be -1."""
        return self._of("reshape", self, _unpacked(shape))

    def astype(self, dtype: Any) -> Self:
        """The values converted to another element type."""
        return self._of("astype", self, dtype)

    def flatten(self) -> Self:
        """The elements as one axis."""
        return self._of("reshape", self, (-1,))

    def squeeze(self, *where: Any, **words: Any) -> Self:
        """Without axes of size 1."""
        return self._of("squeeze", self, **_placed(where, words))

    def swapaxes(self, a: int, b: int) -> Self:
        """Two axes exchanged."""
        return self._of("swapaxes", self, a, b)

    # By position these take axis and keepdims; by name what the functions of their names take.
    def sum(self, *where: Any, **words: Any) -> Self:
        """Sum over axes; the element type is kept (bool sums to i64)."""
        return self._of("sum", self, **_placed(where, words))

    def mean(self, *where: Any, **words: Any) -> Self:
        """Arithmetic mean over axes."""
        return self._of("mean", self, **_placed(where, words))

    def var(self, *where: Any, **words: Any) -> Self:
        """Population variance over axes."""
        return self._of("var", self, **_placed(where, words))

    def std(self, *where: Any, **words: Any) -> Self:
        """Population standard deviation over axes."""
        return self._of("std", self, **_placed(where, words))

    def max(self, *where: Any, **words: Any) -> Self:
        """Maximum over axes."""
        return self._of("max", self, **_placed(where, words))

    def min(self, *where: Any, **words: Any) -> Self:
        """Minimum over axes."""
        return self._of("min", self, **_placed(where, words))

    def prod(self, *where: Any, **words: Any) -> Self:
        """Product over axes."""
        return self._of("prod", self, **_placed(where, words))

    def argmax(self, *where: Any, **words: Any) -> Self:
        """Index (i64) of the first maximum."""
        return self._of("argmax", self, **_placed(where, words))

    def argmin(self, *where: Any, **words: Any) -> Self:
        """Index (i64) of the first minimum."""
        return self._of("argmin", self, **_placed(where, words))

    def cumsum(self, *where: Any, **words: Any) -> Self:
        """Cumulative sum."""
        return self._of("cumsum", self, **_placed(where, words))


# The ufuncs that operators between an array and a node call.
_OF_NUMPY = {name: name for name in (
    "add", "subtract", "multiply", "divide", "floor_divide", "remainder", "power", "matmul",
    "bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift", "less", "less_equal",
    "greater", "greater_equal", "equal", "not_equal")}
# What nodes of other libraries have, and how it is said here.
_ELSEWHERE = {
    "view": "reshape", "permute": "transpose", "unsqueeze": "rlx.expand_dims",
    "detach": "rlx.stop_gradient", "backward": "rlx.grad, or rlx.Tape", "grad": "rlx.grad",
    "float": "astype(rlx.f32)", "double": "astype(rlx.f64)", "long": "astype(rlx.i64)",
    "to": "astype", "dim": "ndim", "t": ".T", "at": "rlx.scatter_set, rlx.scatter_add",
    "softmax": "rlx.softmax", "expand": "rlx.broadcast_to", "masked_fill": "rlx.where"}


def _of_numpy(name: str, module: str = "numpy") -> ArgumentError:
    """np.exp and the like take values; nodes take rlx's."""
    known = module != "numpy" or name in FUNCTIONS
    ours = f"{module.replace('numpy', 'rlx', 1)}.{name}, or " if known else ""
    return ArgumentError(f"{module.replace('numpy', 'np', 1)}.{name} takes values and records "
                         f"nothing of a node; use {ours}what rlx has in its place"
                         + at(user_location()))


def compares_with(value: object) -> bool:
    """Whether `==` compares with it: text is no operand, even where NumPy holds it."""
    if isinstance(value, str | bytes | type):
        return False
    return isinstance(value, bool | int | float | list | tuple | Dim) or hasattr(value, "__array__")


def _placed(where: tuple[Any, ...], words: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a method that folds, by name. Raises ArgumentError."""
    if len(where) > 2:
        raise ArgumentError(f"at most axis and keepdims are told by position, not {where}"
                            + at(user_location()))
    return {**dict(zip(("axis", "keepdims"), where, strict=False)), **words}


def _unpacked(entries: tuple[Any, ...]) -> Any:
    """What ndarray methods take: sizes one by one, or as one sequence."""
    alone = len(entries) == 1 and not isinstance(entries[0], int | np.integer | Dim)
    return entries[0] if alone else entries


def apply(name: str, *operands: Any, **attrs: Any) -> Any:
    """What the function of that name gives; a typed error carries the name."""
    try:
        return OPERATORS[name](*operands, **attrs)
    except RLXError as error:
        named = str(error).startswith(name)
        raise error if named else error.__class__(f"{name}: {error}") from None
