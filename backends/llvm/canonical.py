"""Structure of a body without its names: equal structures compile once."""

from __future__ import annotations

import enum
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from rlx_py.ir.index import Var
from rlx_py.ir.kernel import Buffer, Const, Local


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
        if part is None or isinstance(part, str | int | float | enum.Enum):
            return part
        if isinstance(part, tuple):
            return tuple(map(self._key, part))
        if isinstance(part, Local):
            return ("local", self.locals.setdefault(part, len(self.locals)), part.dtype.name)
        if isinstance(part, Var):
            return ("var", self.vars.setdefault(part, len(self.vars)), part.extent)
        if isinstance(part, Buffer):
            number = self.buffers.setdefault(part, len(self.buffers))
            return ("buffer", number, part.dtype.name, part.scope, part.size)
        if isinstance(part, Const):
            value = np.asarray(part.value).astype(part.dtype.numpy)
            return ("const", part.dtype.name, value.tobytes())
        if is_dataclass(part):
            return (type(part).__name__, *(self._key(getattr(part, f.name)) for f in fields(part)))
        return repr(part)
