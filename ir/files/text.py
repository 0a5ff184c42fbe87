"""Graphs as text: stable to print, exact to read back.

    graph "mlp" {
      %0 = input "x" : f32[64,784]
      %1 = param "w" : f32[784,10]
      %2 = state "m" {init=0.0} : f32[64,10]
      %3 = contract(%0, %1) {batch=((), ()), contract=((1,), (0,))} : f32[64,10]
      %4 = constant {value=f32[2](0.1, -inf)} : f32[2]
      next "m" = %3
      output "y" = %3
    }

One line a node, inputs before users; `update "w" = %…` is the next value of a param. Attributes
are numbers, strings, true, false, none, element types, sizes of a dynamic graph, which stand in
brackets (`shape=([B*T], 4)`, but `f32[B*T,4]` in a type), tuples of these, and arrays:
`f32[2](0.1, -inf)` in the fewest digits that read back exactly, or
`f32[64,64] "base64 of the bytes"`. `#` begins a comment. Values may have any names when read; when
written they are numbered in the graph's order, so equal graphs have equal texts.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from math import isinf
from pathlib import PurePath
from typing import Any

import numpy as np

from rlx_py.ir.base.dim import Dim
from rlx_py.ir.base.errors import ArgumentError, FormatError
from rlx_py.ir.base.literal import Literal
from rlx_py.ir.base.types import DType, TensorType, as_dtype
from rlx_py.ir.files.restore import state_init
from rlx_py.ir.nodes.graph_base import GraphBase
from rlx_py.ir.nodes.node import LEAF, Node
from rlx_py.ir.nodes.signature import check_attribute

Array = np.ndarray[Any, Any]
SHORT = 16  # arrays of so many elements are written out
NUMBER = r"-?(?:(?:inf|nan)\b|\d+(?:\.\d+)?(?:e[+-]?\d+)?)"
LONGEST_NUMBER = 400  # characters; the longest f64 written without exponent has fewer


def show(graph: GraphBase, *, locations: bool = False) -> str:
    """The text of a graph, the same in every run. `locations`: with `# file:line` comments.

    Raises ArgumentError where an attribute or the initial value of a state can't be written.
    """
    nodes = graph.nodes
    number = {n: f"%{i}" for i, n in enumerate(nodes)}
    lines = [_line(graph, n, number) + (_comment(n) if locations else "") for n in nodes]
    nexts = {k: s.next for k, s in graph.states.items() if s.next is not None}
    for word, table in (("next", nexts), ("update", graph.updates), ("output", graph.outputs)):
        lines += [f"{word} {json.dumps(k)} = {number[v]}" for k, v in table.items()]
    return "\n".join([f"graph {json.dumps(graph.name)} {{", *(f"  {x}" for x in lines), "}"])


def _line(graph: GraphBase, node: Node, number: Mapping[Node, str]) -> str:
    if node.op is LEAF:
        name, kind = node.attrs["name"], node.attrs["kind"]
        call = f"{kind} {json.dumps(name)}"
        attrs = {"init": state_init(graph, name)} if name in graph.states else {}
    else:
        operands = ", ".join(number[i] for i in node.inputs)
        call = f"{node.op.name}({operands})" if node.inputs else node.op.name
        attrs = dict(node.attrs)
    try:
        shown = ", ".join(f"{k}={show_attribute(attrs[k])}" for k in sorted(attrs))
    except FormatError as error:
        raise ArgumentError(f"{call}: {error}") from error
    return f"{number[node]} = {call}{f' {{{shown}}}' if attrs else ''} : {node.type}"


def _comment(node: Node) -> str:
    return f"  # {PurePath(node.loc[0]).name}:{node.loc[1]}" if node.loc else ""


def show_attribute(value: Any) -> str:
    """An attribute as text. Raises FormatError for what no text can hold."""
    check_attribute(value)
    return _shown(value)


def _shown(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"({', '.join(map(_shown, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, Literal):
        return _show_array(value.array)
    if isinstance(value, Dim):
        return f"[{value}]"
    if isinstance(value, str):
        return json.dumps(value)
    return repr(float(value)) if isinstance(value, float) else repr(value)


def _show_array(array: Array) -> str:
    type = TensorType(as_dtype(array.dtype), array.shape)
    if array.size <= SHORT:
        shown = [_element(x, type.dtype) for x in array.reshape(-1)]
        back = np.array([element_of(x, type.dtype) for x in shown], array.dtype)
        if back.tobytes() == array.tobytes():  # not so where a NaN carries a payload
            return f"{type}({', '.join(shown)})"
    return f'{type} "{base64.b64encode(array.tobytes()).decode()}"'


def _element(x: Any, dtype: DType) -> str:
    """The fewest digits that round to this element."""
    if not dtype.is_float:
        return str(x.item()).lower()
    wide = float(x)
    shorter = (float(f"{wide:.{digits}g}") for digits in range(1, 17))
    return repr(next((v for v in shorter if _rounded(v, dtype) == x), wide))


def _rounded(value: float, dtype: DType) -> Any:
    with np.errstate(over="ignore"):
        return np.float64(value).astype(dtype.numpy)


def element_of(text: str, dtype: DType) -> Any:
    """An element of an array from its text, rounded to the element type. Raises FormatError."""
    if dtype.kind == "bool":
        if text not in ("true", "false"):
            raise FormatError(f"{text[:40]!r} is neither true nor false")
        return np.bool_(text == "true")
    value = number_of(text)
    if dtype.is_float:
        found = _rounded(value, dtype)
        if np.isinf(found) and "inf" not in text:
            raise FormatError(f"{text[:40]} exceeds {dtype}")
        return found
    bounds = np.iinfo(dtype.numpy)
    if isinstance(value, float) or not bounds.min <= value <= bounds.max:
        raise FormatError(f"{text[:40]} is no {dtype}")
    return dtype.numpy.type(value)


def number_of(text: str) -> int | float:
    """An integer, or where the text has a point, an exponent, inf or nan, a float.

    Raises FormatError for what is no number or does not fit 64 bits.
    """
    if re.fullmatch(r"-?\d{1,20}", text):
        return int(text)
    if len(text) > LONGEST_NUMBER or not re.fullmatch(NUMBER, text) or text.strip("-").isdigit():
        raise FormatError(f"{text[:40]} is no number of 64 bits")
    value = float(text)
    if isinf(value) and "inf" not in text:
        raise FormatError(f"{text[:40]} exceeds f64")
    return value
