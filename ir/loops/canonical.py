"""Structure of a body without its names: equal structures compile once."""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from typing import Any

import numpy as np

from rlx_py.ir.base.types import DType
from rlx_py.ir.loops.index import Var
from rlx_py.ir.loops.kernel import Axis, Buffer, Const, Function, Scope
from rlx_py.ir.loops.local import Local

# Values that are their own key.
PLAIN = frozenset((type(None), str, int, float, bool, Axis, Scope, DType))


class Canonical:
    """A key of a body in which buffers, variables and locals are numbered as they are met.

    buffers, vars and locals list them in that order.
    """

    def __init__(self, body: Any) -> None:
        self.buffers: dict[Buffer, int] = {}
        self.vars: dict[Var, int] = {}
        self.locals: dict[Local, int] = {}
        self.key = self._key(body)

    def _key(self, part: Any) -> Any:
        kind: Any = type(part)
        if kind in PLAIN:
            return part
        if kind is tuple:
            return tuple([self._key(p) for p in part])
        if kind is Local:
            return ("local", self.locals.setdefault(part, len(self.locals)), part.dtype.name)
        if kind is Const:
            return ("const", part.dtype.name, np.asarray(part.value).tobytes())
        if kind is Var:
            return ("var", self.vars.setdefault(part, len(self.vars)), part.extent)
        if kind is Function:
            return ("function", part.name)
        if kind is Buffer:
            number = self.buffers.setdefault(part, len(self.buffers))
            return ("buffer", number, part.dtype.name, part.scope, part.size)
        names = _names(kind)
        return (kind, *[self._key(getattr(part, name)) for name in names])


@cache
def _names(kind: Any) -> tuple[str, ...]:
    """Fields of a statement, expression or index."""
    return tuple(f.name for f in fields(kind))
