"""What an op accepts, read from its own rules: how many inputs, and attributes of which kinds.

Every call is compared with the signatures of the op's rules before its type is inferred, whether a
user, a pass, a text or a file makes it. So rules compute with attributes of the kinds they declare.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from types import NoneType, UnionType
from typing import Any, Protocol, Union, Unpack, get_args, get_origin, get_type_hints

import numpy as np

from rlx_py.ir.base.bounds import least
from rlx_py.ir.base.dim import Dim
from rlx_py.ir.base.errors import ArgumentError, FormatError, RLXError
from rlx_py.ir.base.literal import Literal
from rlx_py.ir.base.types import DType, TensorType, TupleType, Type, check_size

# Bounds that no honest program meets; they keep the work on a hostile one linear in its size.
MOST_AXES = 64  # NumPy's own
MOST_ENTRIES = 4096
MOST_DEPTH = 16
_PLAIN = (int, float, bool, str, NoneType, DType, Literal, Dim)


@dataclass(frozen=True)
class Signature:
    """Inputs at least and at most (None: any number); attributes and what they may hold.

    `needed` are those without a default. `rest` is what attributes of other names may hold; None
    where there are no others. `takes` is the kind of type that inputs have.
    """

    least: int
    most: int | None
    attrs: Mapping[str, Any]
    needed: tuple[str, ...] = ()
    rest: Any = None
    takes: type[Type] = TensorType


class Ruled(Hashable, Protocol):
    """What says by the signatures of its rules what it accepts: an op."""

    @property
    def infer(self) -> Callable[..., Type]:
        """The rule of its type."""

    @property
    def decompose(self) -> Callable[..., Any] | None:
        """What it is made of."""

    @property
    def eval(self) -> Callable[..., Any] | None:
        """Its NumPy meaning."""


@cache
def signature(op: Ruled) -> Signature:
    """The signature of an op: that of `infer`, or where it is open, of the rule that is closed."""
    rules = [r for r in (op.infer, op.decompose, op.eval) if r is not None]
    read = [_signature(inspect.unwrap(r)) for r in rules]
    fixed = next((s for s in read if s.most is not None), read[0])
    named = next((s for s in read if s.rest is None), read[0])
    return replace(named, least=fixed.least, most=fixed.most, takes=read[0].takes)


def _signature(rule: Any) -> Signature:
    if isinstance(rule, np.ufunc):
        return Signature(rule.nin, rule.nin, {})
    if inspect.isbuiltin(rule):
        return Signature(0, None, {}, rest=Any)
    hints = get_type_hints(rule)
    parameters = inspect.signature(rule).parameters.values()
    kinds = [p.kind for p in parameters]
    count = kinds.count(inspect.Parameter.POSITIONAL_OR_KEYWORD)
    attrs = {p.name: hints.get(p.name, Any) for p in parameters if p.kind is p.KEYWORD_ONLY}
    needed = tuple(p.name for p in parameters if p.name in attrs and p.default is p.empty)
    rest = next((hints.get(p.name, Any) for p in parameters if p.kind is p.VAR_KEYWORD), None)
    if get_origin(rest) is Unpack:
        table = get_type_hints(get_args(rest)[0])
        attrs, needed, rest = attrs | table, (*needed, *table), None
    most = None if inspect.Parameter.VAR_POSITIONAL in kinds else count
    tuples = any(hints.get(p.name) is TupleType for p in parameters)
    return Signature(count, most, attrs, needed, rest, TupleType if tuples else TensorType)


def first_line(error: RLXError) -> str:
    """A message without the source line at its end."""
    return str(error).split("\n", 1)[0]


def check_call(op: Ruled, types: Sequence[Type], attrs: Mapping[str, Any]) -> None:
    """Refuse, with ArgumentError, what the signature of an op does not hold."""
    known = signature(op)
    if len(types) < known.least or (known.most is not None and len(types) > known.most):
        raise ArgumentError(f"it does not take {len(types)} inputs")
    for type in types:
        if not isinstance(type, known.takes):
            raise ArgumentError(f"it does not take {type}")
    for key in known.needed:
        if key not in attrs:
            raise ArgumentError(f"it lacks the attribute {key!r}")
    for key, value in attrs.items():
        hint = known.attrs.get(key, known.rest)
        if hint is None:
            raise ArgumentError(f"there is no attribute {key!r}")
        if not matches(value, hint):
            raise ArgumentError(f"it does not take {key}={value!r}")


def matches(value: Any, hint: Any) -> bool:
    """Whether an attribute is of the kind a parameter is annotated with; an int is a float too."""
    if hint is Any:
        return isinstance(value, (*_PLAIN, tuple))
    if get_origin(hint) in (Union, UnionType):
        return any(matches(value, h) for h in get_args(hint))
    if get_origin(hint) is tuple:
        return isinstance(value, tuple) and _entries_match(value, get_args(hint))
    if hint is float:
        return isinstance(value, float) or matches(value, int)
    if hint is int:
        if isinstance(value, Dim):
            return True
        return type(value) is int and -2**63 <= value < 2**64  # u64: keys and seeds
    return isinstance(value, hint)


def _entries_match(value: tuple[Any, ...], hints: tuple[Any, ...]) -> bool:
    if hints[1:] == (...,):
        return all(matches(v, hints[0]) for v in value)
    return len(value) == len(hints) and all(map(matches, value, hints))


def check_attribute(value: Any, depth: int = 0) -> None:
    """Refuse, with FormatError, an attribute that no file or text can hold."""
    if isinstance(value, tuple):
        if len(value) > MOST_ENTRIES or depth == MOST_DEPTH:
            raise FormatError(f"an attribute has more than {MOST_ENTRIES} entries or is nested "
                              f"more than {MOST_DEPTH} deep")
        for v in value:
            check_attribute(v, depth + 1)
    elif isinstance(value, Literal):
        if value.array.ndim > MOST_AXES:
            raise FormatError(f"an array has more than {MOST_AXES} axes")
    elif not isinstance(value, _PLAIN):
        raise FormatError(f"an attribute of type {type(value).__name__} can't be written")
    elif isinstance(value, int) and abs(value) >= 2**64:
        raise FormatError("an integer attribute exceeds 64 bits")


def check_type(type: Type) -> Type:
    """The type itself; FormatError where it has more axes or elements than can be addressed."""
    for t in type.elements if isinstance(type, TupleType) else (type,):
        if len(t.shape) > MOST_AXES:
            raise FormatError(f"a type has more than {MOST_AXES} axes")
        if any((least(d) or 0) < 0 or (isinstance(d, int) and d >= 2**63) for d in t.shape):
            raise FormatError(f"{t} has a size that is negative or beyond 64 bits")
        try:
            check_size(t.shape)
        except RLXError as error:
            raise FormatError(first_line(error)) from error
    return type
