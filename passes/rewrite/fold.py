"""Constant folding."""

from __future__ import annotations

from math import prod

from rlx_py.ir.base.types import TupleType
from rlx_py.ir.graph.evaluate import evaluate_node
from rlx_py.ir.nodes.node import Node
from rlx_py.ir.ops.making.constant import CONSTANT, IOTA, SIZE, constant
from rlx_py.ir.ops.primitive.movement import BROADCAST

# A folded array becomes data of the program; beyond this it costs more memory than it saves work.
LARGEST = 4096
WORK = 1 << 20


def fold(n: Node) -> Node | None:  # f(constants) -> constant
    """The value of an op on constants, where it is small.

    Iota and broadcasts stay: their elements are cheaper to compute than to load.
    """
    if n.op is SIZE:
        known = isinstance(n.attrs["size"], int)
        return constant(evaluate_node(n, [])) if known else None
    if not n.inputs or n.op in (BROADCAST, IOTA) or isinstance(n.type, TupleType):
        return None
    if n.op.eval is None or any(x.op is not CONSTANT for x in n.inputs):
        return None
    if n.size > LARGEST or sum(prod(x.shape) for x in n.inputs) > WORK:
        return None
    arrays = [x.attrs["value"].array for x in n.inputs]
    return constant(evaluate_node(n, arrays))
