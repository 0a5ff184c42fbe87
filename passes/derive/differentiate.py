"""What forward and reverse differentiation share: arguments, names, zeros and the chain product."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlx_py.ir.base.errors import ArgumentError, DTypeError, NotDifferentiable
from rlx_py.ir.base.types import i64
from rlx_py.ir.graph.evaluate import evaluate
from rlx_py.ir.graph.graph import Graph, require_graph
from rlx_py.ir.nodes.node import Chain, Location, Node, Op, at, user_location
from rlx_py.ir.ops.primitive.compare import AND, EQ, LT, NOT
from rlx_py.ir.ops.primitive.elementwise import ABS, CAST, GUARDED_MUL, MUL
from rlx_py.ir.ops.primitive.movement import filled
from rlx_py.ir.ops.primitive.reduce import REDUCE_SUM
from rlx_py.passes.analysis.ranges import range_of
from rlx_py.passes.derive.dead.mask import Masks
from rlx_py.passes.rewrite.decompose import expand_active
from rlx_py.passes.rewrite.simplify import BEFORE_DIFFERENTIATION, simplify

SINGULAR = ("zero", "ieee", "report")


@dataclass(eq=False)
class ChainRule:
    """The product of a cotangent (or tangent) and a partial derivative.

    "zero": an exact 0 contributes 0 whatever the partial is; "ieee": the plain product; "report":
    as "zero", and counts the elements where it mattered.
    """

    singular: str = "zero"
    counts: list[Node] = field(default_factory=list)
    masks: Mapping[int, Masks] = field(default_factory=dict)  # of the node whose rule is asked

    def __post_init__(self) -> None:
        if self.singular not in SINGULAR:
            raise ArgumentError(f"singular={self.singular!r} is not one of {', '.join(SINGULAR)}")

    def __call__(self, ct: Node, partial: Node) -> Node:
        """ct · partial under the mode of singular points."""
        if self.singular == "ieee" or range_of(partial).finite:
            return MUL(ct, partial)
        if self.singular == "report":
            self.counts.append(_singular_count(ct, partial))
        return GUARDED_MUL(ct, partial)

    def outputs(self, taken: Mapping[str, Any]) -> dict[str, Node]:
        """The counts by output name."""
        prefix = fresh_prefix("singular", [str(i) for i in range(len(self.counts))], taken)
        return {f"{prefix}{i}": count for i, count in enumerate(self.counts)}


def guards(chain: Chain) -> bool:
    """Whether what has no cotangent is to have no share, under a mode of singular points."""
    return isinstance(chain, ChainRule) and chain.singular != "ieee"


def _singular_count(ct: Node, partial: Node) -> Node:
    infinity = filled(float("inf"), partial.tensor)
    at_zero = EQ(ct, filled(0, ct.tensor))
    hits = CAST(AND(at_zero, NOT(LT(ABS(partial), infinity))), dtype=i64)
    return REDUCE_SUM(hits, axes=tuple(range(hits.rank)))


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


def zeros(like: Node) -> Node:
    """Zeros of a node's type."""
    return filled(0, like.tensor)


def fresh_prefix(kind: str, names: Sequence[str], taken: Mapping[str, Any]) -> str:
    """`kind_`, or the first of `kind2_`, `kind3_` … under which no name is taken.

    So derivatives of derivatives never meet the names of the first.
    """
    prefix, order = f"{kind}_", 1
    while any(prefix + name in taken for name in names):
        order += 1
        prefix = f"{kind}{order}_"
    return prefix
