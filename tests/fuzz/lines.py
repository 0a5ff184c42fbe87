"""One more line in a scope, of a family drawn by weight."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fuzz import arrays, networks, scalars
from fuzz.scope import Refused, Scope

ELEMENT_WISE = 45
CAST = 4
FAMILIES: list[tuple[Callable[[Scope], arrays.Drawn], int]] = [*arrays.FAMILIES,
                                                               *networks.FAMILIES]


def draw_line(scope: Scope) -> bool:
    """Add a line; False where the family drawn has none that fits, or it was refused."""
    families: list[Any] = [None, scalars.cast, *(f for f, _ in FAMILIES)]
    family = scope.rng.choices(families, [ELEMENT_WISE, CAST, *(w for _, w in FAMILIES)])[0]
    try:
        if family is None or family is scalars.cast:
            template = scalars.element_wise(scope) if family is None else scalars.cast(scope)
            if template is None:
                return False
            return scope.line(template, numpy=scalars.in_numpy(template)) is not None
        drawn = family(scope)
        return drawn is not None and scope.line(drawn[0], **drawn[1]) is not None
    except Refused:
        scope.maker.refused += 1
        return False


def draw_lines(scope: Scope, count: int) -> None:
    """About so many lines."""
    for _ in range(4 * count):
        count -= draw_line(scope)
        if count <= 0:
            return
