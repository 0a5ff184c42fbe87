"""Typed errors of user-level functions name the function and the user's own line."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from rlx_py.ir.base.errors import RLXError
from rlx_py.ir.nodes.node import at, user_location
from rlx_py.ir.ops.making.annotated import checked, spelled
from rlx_py.ir.ops.making.beside import followed

P = ParamSpec("P")
R = TypeVar("R")


def located(function: Callable[P, R]) -> Callable[P, R]:
    """The function, whose errors carry its name and the line of its caller.

    Arguments annotated with a plain kind (int, float, bool, str, or None beside one) are checked
    and converted first: what NumPy has of that kind becomes Python's. Arrays of floats take the
    element type of the nodes beside them (`rlx_py.ir.ops.making.beside`).
    """

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            named = spelled(function, kwargs) if kwargs else kwargs
            given, named = followed(function, *checked(function, args, named))
            return function(*given, **named)
        except RLXError as error:
            if "\n  at " in str(error):
                raise
            message = f"{function.__name__}: {error}{at(user_location())}"
            raise error.__class__(message) from None

    return run
