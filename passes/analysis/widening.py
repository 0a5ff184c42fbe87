"""Params that a wider constant turns into wider values, which their user may not have meant."""

from __future__ import annotations

from rlx_py.ir.base.types import f64
from rlx_py.ir.graph.graph import Graph
from rlx_py.ir.nodes.node import Node, at
from rlx_py.ir.ops.making.constant import CONSTANT
from rlx_py.ir.ops.primitive.elementwise import CAST


def widened_param(graph: Graph) -> str | None:
    """What to tell a user of the first such place: on one line a value of a narrower float param is
    cast to f64, and meets a constant of that type. Narrower constants widen on purpose: f32 is what
    f16 and bf16 compute in."""
    params: dict[Node, str] = {n: k for k, n in graph.params.items() if n.dtype.is_float}
    if not params:
        return None
    constants: set[Node] = set()
    for node in graph.nodes:
        if node.op is CONSTANT or (node.inputs and constants.issuperset(node.inputs)):
            constants.add(node)
            continue
        name = next((params[x] for x in node.inputs if x in params), None)
        if name is None:
            continue
        params[node] = name
        for x in node.inputs:
            if (x.op is CAST and x in params and x.loc == node.loc and _widens(x)
                    and any(c in constants and c.dtype is x.dtype for c in node.inputs)):
                narrow = graph.params[name].dtype
                return (f"param {name!r} is {narrow}, but becomes {x.dtype} beside a constant of "
                        f"that type: give rlx.constant(…, {narrow}), or a NumPy array, which "
                        f"takes the param's{at(node.loc)}")
    return None


def _widens(cast: Node) -> bool:
    before = cast.inputs[0].dtype
    return before.is_float and cast.dtype is f64 and before is not f64
