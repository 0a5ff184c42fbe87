"""What forward and reverse differentiation share: arguments, names, prepared graphs, reports."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlx_py.ir.base.errors import ArgumentError, DTypeError, NotDifferentiable
from rlx_py.ir.graph.evaluate import evaluate
from rlx_py.ir.graph.graph import Graph
from rlx_py.ir.nodes.graph_base import require_graph
from rlx_py.ir.nodes.node import Location, Node, Op, at, user_location
from rlx_py.passes.rewrite.decompose import expand_active
from rlx_py.passes.rewrite.simplify import BEFORE_DIFFERENTIATION, simplify


@dataclass(frozen=True)
class Singular:
    """A forward operation at whose singular points a zero cotangent was given no contribution."""

    output: str
    op: str
    loc: Location | None
    count: int

    def __str__(self) -> str:
        return f"{self.op}: {self.count} elements{at(self.loc)}"


def singular_report(graph: Graph, inputs: Mapping[str, Any]) -> list[Singular]:
    """Where the convention of singular="zero" mattered, for a derivative made with "report"."""
    require_graph("singular_report", graph)
    found = []
    for name, count in evaluate(graph, inputs).items():
        node = graph.outputs[name]
        forward = node if node.origin is None else node.origin
        if name.startswith("singular") and name.rpartition("_")[2].isdigit() and count:
            found.append(Singular(name, forward.op.name, forward.loc, int(count)))
    return found


def leaves_of(graph: Graph, wrt: str | Iterable[str] | None) -> dict[str, Node]:
    """The leaves to differentiate by, all float; None means every param."""
    if wrt is None:
        return {k: n for k, n in graph.params.items() if n.dtype.is_float}
    if not isinstance(wrt, Iterable):
        raise ArgumentError(f"wrt takes names of leaves, not {wrt!r}" + at(user_location()))
    names = [wrt] if isinstance(wrt, str) else list(wrt)
    found = {name: graph.find_leaf(name) for name in names}
    if len(found) != len(names):
        raise ArgumentError(f"wrt names one leaf twice: {names}")
    for name, node in found.items():
        if not node.dtype.is_float:
            raise DTypeError(f"{name!r} is {node.type}: only floats have derivatives"
                             + at(node.loc))
    return found


def prepared(graph: Graph, wrt: Iterable[Node], lacks_rule: Callable[[Op], bool]) -> Graph:
    """The simplified graph, whose active ops all have the rule asked of them."""
    first = simplify(graph, rules=BEFORE_DIFFERENTIATION)
    return simplify(expand_active(first, wrt, lacks_rule), rules=BEFORE_DIFFERENTIATION)


def no_rule(node: Node, mode: str) -> NotDifferentiable:
    """The error of an op that has no derivative in a mode."""
    return NotDifferentiable(f"{node.op.name} {node.type} has no {mode} rule; mark the path with "
                             "stop_gradient" + at(node.loc))


def fresh_prefix(kind: str, names: Sequence[str], taken: Mapping[str, Any]) -> str:
    """`kind_`, or the first of `kind2_`, `kind3_` … under which no name is taken.

    So derivatives of derivatives never meet the names of the first.
    """
    prefix, order = f"{kind}_", 1
    while any(prefix + name in taken for name in names):
        order += 1
        prefix = f"{kind}{order}_"
    return prefix
