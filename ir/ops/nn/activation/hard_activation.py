"""Activations made of straight pieces. The slope at a corner is stated for each, as is that of NaN:
NaN passes through, with slope 1."""

from __future__ import annotations

from typing import Any

from rlx_py.ir.base.errors import ArgumentError
from rlx_py.ir.nodes.node import Node
from rlx_py.ir.ops.making.arguments import real
from rlx_py.ir.ops.making.located import located
from rlx_py.ir.ops.nn.activation.activation import activation
from rlx_py.ir.ops.operands.operand import as_node
from rlx_py.ir.ops.primitive.compare import AND, GE, LE
from rlx_py.ir.ops.primitive.elementwise import DIV, SELECT, fill


def _bounded(x: Node, low: float, high: float) -> Node:
    """low where x ≤ low, high where x ≥ high, else x: constant at both bounds already."""
    low_, high_ = fill(x, low), fill(x, high)
    return SELECT(LE(x, low_), low_, SELECT(GE(x, high_), high_, x))


def _check_bounds(*, low: float, high: float) -> None:
    if not low < high:
        raise ArgumentError(f"min_val {low} must lie below max_val {high}")


def _hardtanh(x: Node, *, low: float, high: float) -> Node:
    return _bounded(x, low, high)


def _hardsigmoid(x: Node) -> Node:
    return DIV(_bounded(x, -3, 3) + 3, fill(x, 6))


def _hardswish(x: Node) -> Node:
    return SELECT(LE(x, fill(x, -3)), fill(x, 0),
                  SELECT(GE(x, fill(x, 3)), x, (x + 3) * x * (1 / 6)))


def _threshold(x: Node, *, threshold: float, value: float) -> Node:
    return SELECT(LE(x, fill(x, threshold)), fill(x, value), x)


def _hardshrink(x: Node, *, lambd: float) -> Node:
    inside = AND(GE(x, fill(x, -lambd)), LE(x, fill(x, lambd)))
    return SELECT(inside, fill(x, 0), x)


def _softshrink(x: Node, *, lambd: float) -> Node:
    low, high = fill(x, -lambd), fill(x, lambd)
    shrunk = SELECT(LE(x, low), x + lambd, x - lambd)
    return SELECT(AND(GE(x, low), LE(x, high)), fill(x, 0), shrunk)


HARDTANH = activation("hardtanh", _hardtanh, check=_check_bounds)
HARDSIGMOID = activation("hardsigmoid", _hardsigmoid)
HARDSWISH = activation("hardswish", _hardswish)
THRESHOLD = activation("threshold", _threshold)
HARDSHRINK = activation("hardshrink", _hardshrink)
SOFTSHRINK = activation("softshrink", _softshrink)


@located
def hardtanh(input: Any, min_val: float = -1.0, max_val: float = 1.0) -> Node:
    """x within [min_val, max_val]; the slope at the bounds is 0 (`clip` passes it there).

    Raises DTypeError for anything but floats, as all here, and ArgumentError (min_val ≥ max_val).
    """
    low, high = real("min_val", min_val), real("max_val", max_val)
    if not low < high:
        raise ArgumentError(f"min_val {low} must lie below max_val {high}")
    return HARDTANH(as_node(input), low=low, high=high)


@located
def relu6(input: Any) -> Node:
    """x within [0, 6]; the slope at 0 and 6 is 0."""
    return HARDTANH(as_node(input), low=0.0, high=6.0)


@located
def hardsigmoid(input: Any) -> Node:
    """(x + 3)/6 within [0, 1]; the slope at −3 and 3 is 0."""
    return HARDSIGMOID(as_node(input))


@located
def hardswish(input: Any) -> Node:
    """x·hardsigmoid(x); the slope at −3 is 0, at 3 it is 1. −∞ gives 0."""
    return HARDSWISH(as_node(input))


@located
def threshold(input: Any, threshold: float, value: float) -> Node:
    """x where x > threshold, else value, with slope 0 at the threshold."""
    return THRESHOLD(as_node(input), threshold=real("threshold", threshold),
                     value=real("value", value))


@located
def hardshrink(input: Any, lambd: float = 0.5) -> Node:
    """0 where −lambd ≤ x ≤ lambd, with slope 0, else x."""
    return HARDSHRINK(as_node(input), lambd=real("lambd", lambd))


@located
def softshrink(input: Any, lambd: float = 0.5) -> Node:
    """x moved by lambd towards 0, where it stays with slope 0. Raises ArgumentError (lambd < 0)."""
    size = real("lambd", lambd)
    if size < 0:
        raise ArgumentError(f"lambd must not be negative, not {size}")
    return SOFTSHRINK(as_node(input), lambd=size)
