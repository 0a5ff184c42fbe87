"""The few typed errors. A message names the op, the types, and the user's own file and line."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class RLXError(Exception):
    """Base of every error that rlx raises on purpose."""


class ShapeError(RLXError):
    """Shapes that do not fit the operation, or sizes beyond what can be addressed."""


class Undecided(ShapeError):
    """A question about sizes whose answer depends on what they will be."""


class DTypeError(RLXError):
    """An element type that the operation does not take."""


class ArgumentError(RLXError):
    """A name, axis or attribute that does not exist or is out of its range."""


class MissingAttribute(ArgumentError, AttributeError):
    """An attribute that there is none of; `hasattr` answers False."""


class MissingOutput(MissingAttribute, KeyError):
    """An output that a result does not have; an AttributeError too, so that `hasattr` answers, and
    a KeyError, so that `get` does."""

    __str__ = Exception.__str__


class NotDifferentiable(RLXError):
    """A derivative was asked of something that has none."""


class VerifyError(RLXError):
    """A graph, program or plan that breaks its own invariants."""


class BackendError(RLXError):
    """A target that is absent, or that can't run what it was given."""


class FormatError(RLXError):
    """Text or a file that is damaged, hostile, or of an unknown version."""


def nearest(name: object, names: Iterable[str]) -> str:
    """For messages about an unknown name: the one it is likely meant for, or nothing."""
    close = get_close_matches(str(name), list(names), 1)
    return f" (did you mean {close[0]!r}?)" if close else ""
