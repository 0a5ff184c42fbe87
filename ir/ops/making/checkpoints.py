"""How much of a computation its backward pass finds kept: for `rlx.scan` and `rlx.checkpoint`."""

from __future__ import annotations

from dataclasses import dataclass

from rlx_py.ir.base.errors import ArgumentError
from rlx_py.ir.nodes.node import at, user_location


def _check(what: str, value: int, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ArgumentError(f"{what} takes an int >= {least}, not {value!r}" + at(user_location()))


@dataclass(frozen=True)
class every:
    """Keep the state of each k-th step. Raises ArgumentError unless k is an int >= 1."""

    k: int

    def __post_init__(self) -> None:
        _check("every(k)", self.k, 1)


@dataclass(frozen=True)
class count:
    """Keep at most `number` states. Raises ArgumentError unless number is an int >= 0."""

    number: int

    def __post_init__(self) -> None:
        _check("count(number)", self.number, 0)


@dataclass(frozen=True)
class budget:
    """Keep at most `bytes` bytes. Raises ArgumentError unless bytes is an int >= 0."""

    bytes: int

    def __post_init__(self) -> None:
        _check("budget(bytes)", self.bytes, 0)
