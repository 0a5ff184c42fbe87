"""rlx.custom_jvp: a rule for tangents, checked to be linear in them by differentiating it."""

from __future__ import annotations

from rlx_py.ir.base.errors import ArgumentError
from rlx_py.ir.graph.body import Body
from rlx_py.ir.nodes.node import at, toposort, user_location
from rlx_py.ir.ops.control import custom
from rlx_py.ir.ops.control.region import Function, placeholders
from rlx_py.passes.derive.derivation import Derivation
from rlx_py.passes.derive.differentiate import prepared
from rlx_py.passes.derive.pullback import lacks_vjp


def custom_jvp(fn: Function, rule: Function) -> Function:
    """fn with a forward rule: rule(primals, tangents) -> (fn's result, its tangents).

    Tangents are nested as arguments and results, None for what is no float; a result's may be None
    for zero. The rule must be linear in the tangents, so reverse mode is its transpose. Both are
    called once at each call, with nodes, and use nothing but their arguments and constants. Raises
    ArgumentError (nesting, leaves from outside, a rule that is not linear), ShapeError.
    """

    return custom.custom_jvp(fn, rule, _check_linear)


def _check_linear(tangent: Body, count: int) -> None:
    graph = prepared(tangent.graph, list(tangent.graph.inputs.values())[count:], lacks_vjp)
    leaves = list(graph.inputs.values())[count:]
    outputs = list(graph.outputs.values())
    seeds = list(zip(outputs, placeholders("ct", outputs), strict=True))
    reached = toposort(Derivation().pull(seeds, leaves))
    if not set(leaves).isdisjoint(reached):
        raise ArgumentError("custom_jvp: rule is not linear in the tangents" + at(user_location()))
