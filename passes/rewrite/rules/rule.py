"""What a rewrite rule is, and the patterns that rules share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import copysign
from typing import Any

import ml_dtypes
import numpy as np

from rlx_py.ir.base.types import DType
from rlx_py.ir.nodes.node import Node, Op
from rlx_py.ir.ops.making.constant import scalar_of


@dataclass(frozen=True, eq=False)
class Rule:
    """A named rewrite of nodes of some ops: another node, or None where it does not apply."""

    name: str
    ops: tuple[Op, ...]
    apply: Callable[[Node], Node | None]

    def __repr__(self) -> str:
        return self.name


def rule(*ops: Op) -> Callable[[Callable[[Node], Node | None]], Rule]:
    """Make a function the rule of these ops, under its own name."""
    return lambda apply: Rule(apply.__name__, ops, apply)


def number_of(node: Node) -> float | int | None:
    """The number that every element of a constant equals, as a Python number; else None."""
    value = scalar_of(node)
    if value is None:
        return None
    return float(value) if node.dtype.is_float else int(value)


def is_const(node: Node, value: float) -> bool:
    """Whether every element is this number; 0 and −0 differ."""
    found = number_of(node)
    return found is not None and found == value and copysign(1, found) == copysign(1, value)


def largest_exact(dtype: DType) -> int:
    """The largest k such that every integer 0 … k is a value of the type."""
    if dtype.is_float:
        finfo: Any = ml_dtypes.finfo
        return int(2 ** (finfo(dtype.numpy).nmant + 1))
    return int(np.iinfo(dtype.numpy).max) if dtype.is_int else 1
