"""Values of one iteration of a loop by name."""

from __future__ import annotations

from itertools import count

from rlx_py.ir.base.types import DType

_SERIALS = count()


class Local:
    """A scalar of one iteration; compared by identity."""

    __slots__ = ("dtype", "name", "serial")

    def __init__(self, dtype: DType, name: str = "v") -> None:
        self.dtype, self.serial = dtype, next(_SERIALS)
        self.name = f"{name}{self.serial}"

    def __repr__(self) -> str:
        return self.name
