"""The invariants of a graph, checked by inferring every node again."""

from __future__ import annotations

from rlx_py.ir.base.errors import RLXError, VerifyError
from rlx_py.ir.base.types import TupleType
from rlx_py.ir.nodes.graph_base import GraphBase, require_graph
from rlx_py.ir.nodes.node import LEAF, PROJECT, TUPLE, Node, at


def verify(graph: GraphBase) -> None:
    """Raise VerifyError, naming node and line, where the graph breaks an invariant.

    Every node has the type its op infers from its inputs; leaves are the graph's own, under their
    own names; nodes form no cycle; tuple types are only projected; roots have the types of what
    they replace.
    """
    require_graph("verify", graph)
    _verify_leaves(graph)
    order = ordered(graph.roots)
    own = set(graph.leaves.values())
    for node in order:
        if node.op is LEAF:
            if node not in own:
                raise VerifyError(f"{node.attrs['kind']} {node.attrs['name']!r} is not a leaf of "
                                  f"graph {graph.name!r}" + at(node.loc))
        else:
            _verify_node(node)
    for name, root in graph.outputs.items():
        if isinstance(root.type, TupleType):
            raise VerifyError(f"output {name!r} has type {root.type}" + at(root.loc))
    for name, state in graph.states.items():
        if state.next is not None:
            _verify_same(f"next of state {name!r}", state.next, state.node)
    for name, value in graph.updates.items():
        if name not in graph.params:
            raise VerifyError(f"update of {name!r}, which is no param" + at(value.loc))
        _verify_same(f"update of param {name!r}", value, graph.params[name])


def ordered(roots: list[Node]) -> list[Node]:
    """Inputs before users; a cycle is a VerifyError instead of a wrong order."""
    order: list[Node] = []
    open_: set[Node] = set()
    closed: set[Node] = set()
    stack = [(r, False) for r in reversed(roots)]
    while stack:
        node, expanded = stack.pop()
        if expanded:
            open_.discard(node)
            closed.add(node)
            order.append(node)
        elif node in open_:
            raise VerifyError(f"{node!r} depends on itself")
        elif node not in closed:
            open_.add(node)
            stack.append((node, True))
            stack.extend((i, False) for i in reversed(node.inputs) if i not in closed)
    return order


def _verify_leaves(graph: GraphBase) -> None:
    states = {k: s.node for k, s in graph.states.items()}
    seen: set[str] = set()
    for kind, table in (("input", graph.inputs), ("param", graph.params), ("state", states)):
        for name, node in table.items():
            if node.op is not LEAF or node.attrs["name"] != name or node.attrs["kind"] != kind:
                raise VerifyError(f"{kind} {name!r} of graph {graph.name!r} is {node!r}")
            if name in seen:
                raise VerifyError(f"graph {graph.name!r} has two leaves named {name!r}")
            seen.add(name)


def _verify_node(node: Node) -> None:
    for x in node.inputs:
        if isinstance(x.type, TupleType) and node.op is TUPLE:
            raise VerifyError(f"{node!r} nests a tuple: {x!r}" + at(node.loc))
        if node.op is PROJECT and not isinstance(x.type, TupleType):
            raise VerifyError(f"{node!r} projects {x!r}, which is no tuple" + at(node.loc))
    try:
        found = node.op.infer(*[x.type for x in node.inputs], **node.attrs)
    except (RLXError, TypeError, AttributeError, IndexError) as error:
        raise VerifyError(f"{node!r} does not infer again: {error}" + at(node.loc)) from error
    if found != node.type:
        raise VerifyError(f"{node!r} has type {node.type}, its op infers {found}" + at(node.loc))


def _verify_same(what: str, value: Node, like: Node) -> None:
    if value.type != like.type:
        raise VerifyError(f"{what} has type {value.type}, not {like.type}" + at(value.loc))
