"""Questions about the shape of a graph, and drawings of it: the one user of networkx."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

import networkx as nx

from rlx_py.ir.errors import ArgumentError, BackendError
from rlx_py.ir.node import LEAF, PROJECT, TUPLE, Node
from rlx_py.ir.paths import file_path
from rlx_py.ir.stored import ContractRule, LoopRule, ReduceRule

if TYPE_CHECKING:
    from rlx_py.ir.graph import Graph

PICTURES = (".svg", ".png", ".pdf")
COLOURS = {
    "input": "#cfe2f3", "param": "#fff2cc", "state": "#fce5cd", "constant": "#eeeeee",
    "contraction": "#f4cccc", "reduction": "#d9d2e9", "loops": "#ead1dc",
    "composite": "#d0e0e3", "element-wise": "#d9ead3", "tuple": "#ffffff",
}

_OUTSIDE = -1  # where every path begins or ends

# ---- questions ---------------------------------------------------------------------------------


def as_digraph(graph: Graph) -> nx.MultiDiGraph[Node]:
    """The graph's nodes, an edge from input to user for each operand (`position`): x*x has two."""
    found: nx.MultiDiGraph[Node] = nx.MultiDiGraph(name=graph.name)
    nodes = graph.nodes
    found.add_nodes_from(nodes)
    found.add_edges_from((x, n, {"position": i}) for n in nodes for i, x in enumerate(n.inputs))
    return found


def stages(graph: Graph) -> list[list[Node]]:
    """Nodes by the length of the longest path to them: each stage needs only earlier ones."""
    return [list(s) for s in nx.topological_generations(as_digraph(graph))]


def critical_path(graph: Graph, cost: Callable[[Node], float]) -> list[Node]:
    """The costliest chain of nodes each of which waits for the one before; [] of no nodes."""
    number = _numbers(graph)
    chains: nx.DiGraph[int] = nx.DiGraph()
    # A node's cost stands on its edges in; a first node pays on an edge from outside.
    for n, i in number.items():
        before = [number[x] for x in n.inputs] or [_OUTSIDE]
        chains.add_edges_from((x, i, {"weight": cost(n)}) for x in before)
    path = nx.dag_longest_path(chains, weight="weight")
    return [graph.nodes[i] for i in path if i != _OUTSIDE]


def post_dominators(graph: Graph) -> dict[Node, Node | None]:
    """For each node that a root reaches the next one that every path from it to a root crosses.

    None where there is no such node, as for a root whose value nothing else uses.
    """
    number = _numbers(graph)
    flow: nx.DiGraph[int] = nx.DiGraph()
    flow.add_node(_OUTSIDE)
    flow.add_edges_from((_OUTSIDE, number[root]) for root in graph.roots)
    flow.add_edges_from((i, number[x]) for n, i in number.items() for x in n.inputs)
    found = nx.immediate_dominators(flow, _OUTSIDE)
    nexts = {n: found[i] for n, i in number.items() if i in found}
    return {n: None if i in (None, _OUTSIDE) else graph.nodes[i] for n, i in nexts.items()}


def _numbers(graph: Graph) -> dict[Node, int]:
    """The place of each node, since networkx compares what it is given."""
    return {n: i for i, n in enumerate(graph.nodes)}


def minimum_cut(edges: Iterable[tuple[object, object, int | None]], source: object,
                sink: object) -> set[object]:
    """What stays on the source's side where the cut edges from that side have the least capacity in
    all; an edge of capacity None is never cut."""
    network: nx.DiGraph[object] = nx.DiGraph()
    network.add_nodes_from((source, sink))
    for a, b, capacity in edges:
        network.add_edge(a, b, **({} if capacity is None else {"capacity": capacity}))
    _, (side, _) = nx.minimum_cut(network, source, sink)
    return set(side)


# ---- drawings ----------------------------------------------------------------------------------


def draw_graph(graph: Graph, path: str | os.PathLike[str]) -> Path:
    """Write DOT text to a .dot file; for .svg, .png and .pdf beside it, and render it there.

    Raises ArgumentError (another ending), BackendError (Graphviz is absent or fails), OSError.
    """
    target = file_path(path)
    if target.suffix not in (".dot", *PICTURES):
        raise ArgumentError(f"a drawing ends in .dot, {', '.join(PICTURES)}, not {target.name!r}")
    source = target.with_suffix(".dot")
    source.write_text(to_dot(graph), encoding="utf-8")
    if target != source:
        _render(source, target)
    return target


def _render(source: Path, target: Path) -> None:
    program = shutil.which("dot")
    if program is None:
        raise BackendError(f"Graphviz's program 'dot' is not installed: wrote {source}, "
                           f"but not {target.name}")
    try:
        done = subprocess.run([program, f"-T{target.suffix[1:]}", "-o", str(target), str(source)],
                              capture_output=True, text=True, check=False)
    except OSError as error:  # of processes or memory there are no more
        raise BackendError(f"{program} can't be run on {source}: {error}") from error
    if done.returncode:
        raise BackendError(f"dot fails on {source}: {done.stderr.strip()}")


def to_dot(graph: Graph) -> str:
    """DOT text, the same in every run: a colour for each kind of node, roots as plain names."""
    nodes = graph.nodes
    number = {n: f"n{i}" for i, n in enumerate(nodes)}
    lines = [f"digraph {_quoted(graph.name)} {{",
             '  node [shape=box, style="rounded,filled", fontname="monospace", fontsize=10];']
    for node in nodes:
        label = f"{_title(node)}\n{node.type}"
        lines.append(f"  {number[node]} [label={_quoted(label)}, "
                     f'fillcolor="{COLOURS[kind_of(node)]}"];')
    for node in nodes:
        for i, x in enumerate(node.inputs):
            label = f' [label="{i}"]' if len(node.inputs) > 1 else ""
            lines.append(f"  {number[x]} -> {number[node]}{label};")
    lines += _roots(graph, number)
    return "\n".join([*lines, "}\n"])


def _roots(graph: Graph, number: dict[Node, str]) -> Iterable[str]:
    nexts = {k: s.next for k, s in graph.states.items() if s.next is not None}
    i = 0
    for word, table in (("output", graph.outputs), ("next", nexts), ("update", graph.updates)):
        for name, node in table.items():
            yield f"  r{i} [label={_quoted(f'{word} {name}')}, shape=plaintext, style=solid];"
            yield f"  {number[node]} -> r{i};"
            i += 1


def kind_of(node: Node) -> str:
    """The key of COLOURS that a node belongs to, by the rules its op has."""
    if node.op is LEAF:
        return str(node.attrs["kind"])
    if node.op in (TUPLE, PROJECT):
        return "tuple"
    if not node.inputs:
        return "constant"
    match node.op.kernel:
        case ContractRule():
            return "contraction"
        case ReduceRule():
            return "reduction"
        case LoopRule():
            return "loops"
    return "element-wise" if node.op.element is not None else "composite"


def _title(node: Node) -> str:
    if node.op is LEAF:
        return f"{node.attrs['kind']} {node.attrs['name']}"
    where = f"  {PurePath(node.loc[0]).name}:{node.loc[1]}" if node.loc else ""
    return f"{node.op.name}{where}"


def _quoted(text: str) -> str:
    """A DOT string; names may hold anything, also what DOT itself escapes."""
    safe = text.encode("utf-8", "backslashreplace").decode().replace("\\", "\\\\")
    safe = safe.replace('"', '\\"').replace("\r", "").replace("\n", "\\n")
    return f'"{safe.replace(chr(0), "")}"'
