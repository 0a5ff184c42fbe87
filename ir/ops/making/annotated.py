"""Arguments of user-level functions, checked by how their parameters are annotated."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np

from rlx_py.ir.base.errors import ArgumentError, nearest
from rlx_py.ir.nodes.node import Node
from rlx_py.ir.ops.making.arguments import MOST_PARTS, integer, real

Check = Callable[[str, Any], Any]


def checked(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
            ) -> tuple[Sequence[Any], dict[str, Any]]:
    """The arguments, those of plain kinds checked. Raises ArgumentError."""
    names, checks = _checks(function)
    if not checks:
        return args, kwargs
    given = list(args)
    for i, (name, value) in enumerate(zip(names, args, strict=False)):
        if name in checks:
            given[i] = checks[name](name, value)
    return given, {k: checks[k](k, v) if k in checks else v for k, v in kwargs.items()}


# What NumPy and PyTorch call the same argument.
_WORDS = {"axis": "dim", "dim": "axis", "keepdims": "keepdim"}


def spelled(function: Callable[..., Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Named arguments under the names of the function's parameters, which may be given by those of
    the other library: `dim` for `axis` and the other way round, `keepdim` for `keepdims`.

    Raises ArgumentError for a name that is none of these, or that says the same twice.
    """
    words = _words(function)
    if words is None or all(words.get(name) == name for name in kwargs):
        return kwargs
    found: dict[str, Any] = {}
    for name, value in kwargs.items():
        if name not in words:
            known = [k for k, v in words.items() if k == v]
            raise ArgumentError(f"there is no argument {name!r}{nearest(name, known)}; it takes "
                                f"{', '.join(known)}")
        if words[name] in found:
            raise ArgumentError(f"{words[name]} is given twice")
        found[words[name]] = value
    return found


@cache
def _words(function: Callable[..., Any]) -> dict[str, str] | None:
    """The parameter that each word names; None where the function takes any."""
    parameters = inspect.signature(function).parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return None
    own = {p.name: p.name for p in parameters if p.kind not in (p.VAR_POSITIONAL,
                                                                 p.POSITIONAL_ONLY)}
    return {_WORDS[name]: name for name in own if name in _WORDS} | own


@cache
def _checks(function: Callable[..., Any]) -> tuple[tuple[str, ...], dict[str, Check]]:
    """The names of positional parameters, and the checks of those annotated with plain kinds."""
    hints = get_type_hints(function)
    parameters = inspect.signature(function).parameters.values()
    names = tuple(p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD)
    found = {p.name: _check_of(hints[p.name]) for p in parameters if p.kind is not p.VAR_POSITIONAL}
    return names, {name: check for name, check in found.items() if check is not None}


def _check_of(hint: Any) -> Check | None:
    if get_origin(hint) in (Union, UnionType):
        kinds = [h for h in get_args(hint) if h is not NoneType]
        check = _check_of(kinds[0]) if len(kinds) == 1 else None
        return None if check is None else _or_none(check)
    if get_origin(hint) is Sequence:
        return _each(_check_of(get_args(hint)[0]))
    return None if hint is Any else _CHECKS.get(hint)


def _or_none(check: Check) -> Check:
    return lambda name, value: None if value is None else check(name, value)


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise ArgumentError(f"{name} must be True or False, not {value!r}")
    return bool(value)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ArgumentError(f"{name} must be a string, not {value!r}")
    return value


def _each(check: Check | None) -> Check:
    """A sequence, every entry of which is checked."""
    if check is None:
        return _several
    return lambda name, value: [check(name, v) for v in _several(name, value)]


def _several(name: str, value: Any) -> Any:
    flat = isinstance(value, np.ndarray) and not value.ndim
    if flat or not isinstance(value, Iterable) or isinstance(value, str | bytes):
        raise ArgumentError(f"{name} must be a sequence, not {value!r}")
    if isinstance(value, Node) and len(value) > MOST_PARTS:
        raise ArgumentError(f"{name} are the parts of {value.type}, more than {MOST_PARTS}")
    return list(value)


_CHECKS: dict[Any, Check] = {int: integer, float: real, bool: _flag, str: _text}
