"""Element-wise work done on the small side of a broadcast."""

from __future__ import annotations

from rlx_py.ir.nodes.node import Node, Op
from rlx_py.ir.ops.primitive.elementwise import BITCAST, CAST, SELECT, STOP_GRADIENT
from rlx_py.ir.ops.primitive.movement import BROADCAST, spread
from rlx_py.passes.rewrite.rules.rule import number_of, rule

PLAIN = (SELECT, CAST, BITCAST, STOP_GRADIENT)


def is_pointwise(op: Op) -> bool:
    """Whether an element of the result depends on the inputs' elements at its own index only."""
    return op.element is not None and (op.cost > 0 or op in PLAIN)


@rule()
def hoist_broadcast(n: Node) -> Node | None:  # f(broadcast(x), broadcast(y)) -> broadcast(f(x, y))
    if not n.inputs or any(x.op is not BROADCAST for x in n.inputs) or not is_pointwise(n.op):
        return None
    wide = max(n.inputs, key=lambda x: x.inputs[0].rank)
    axes, shape = wide.attrs["axes"], wide.inputs[0].shape
    parts = []
    for x in n.inputs:
        if x.attrs["axes"] == axes:
            parts.append(x.inputs[0])
        elif number_of(x) is not None:
            parts.append(spread(x.inputs[0], shape, ()) if not x.inputs[0].rank else x)
        else:
            return None
    if any(p.shape != shape for p in parts):
        return None
    return spread(n.op(*parts, **n.attrs), n.shape, axes)


RULES = (hoist_broadcast,)
