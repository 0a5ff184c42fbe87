"""Composites on f16 and bf16 compute in f32 and round once, at their results."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

from rlx_py.ir.nodes.node import Node
from rlx_py.ir.ops.operands.operand import convert

P = ParamSpec("P")
R = TypeVar("R")


def in_compute_type(decompose: Callable[P, R]) -> Callable[P, R]:
    """The decomposition over inputs in their compute type; results in the type of the floats."""
    call: Callable[..., Any] = decompose

    @wraps(decompose)
    def run(*inputs: Node, **attrs: Any) -> Any:
        dtype = next(n.dtype for n in inputs if n.dtype.is_float)
        if dtype.compute is dtype:
            return call(*inputs, **attrs)
        found = call(*(convert(n, n.dtype.compute) for n in inputs), **attrs)
        if isinstance(found, Node):
            return convert(found, dtype)
        return tuple(convert(part, dtype) for part in found)

    return cast(Callable[P, R], run)
