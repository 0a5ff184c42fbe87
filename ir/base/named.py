"""Results by name, as attributes too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Generic, TypeVar

from rlx_py.ir.base.errors import MissingOutput, nearest

T = TypeVar("T")


class Named(Mapping[str, T], Generic[T]):
    """What a call gives, by name: out.loss or out["loss"]. Names that are methods of a mapping,
    such as `values`, go by out["values"]."""

    __slots__ = ("_found",)

    def __init__(self, found: Mapping[str, T]) -> None:
        self._found = dict(found)

    def __getitem__(self, name: str) -> T:
        try:
            return self._found[name]
        except KeyError:
            raise MissingOutput(f"no output {name!r}{nearest(name, self._found)}; there are "
                                f"{list(self._found)}") from None

    def __getattr__(self, name: str) -> T:
        if name == "_found" or name.startswith("__"):  # asked of an object without contents
            raise AttributeError(name)
        return self[name]

    def __contains__(self, name: object) -> bool:
        return name in self._found

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._found]

    def _asdict(self) -> dict[str, T]:
        """A dict of the same entries."""
        return dict(self._found)

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={self._shown(value)}" for name, value in self._found.items())
        return f"{self.__class__.__name__}({shown})"

    def _shown(self, value: Any) -> str:
        return repr(value)
