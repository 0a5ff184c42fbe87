"""Drawings of a graph: DOT text, and pictures that Graphviz makes of it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path, PurePath

from rlx_py.ir.base.errors import ArgumentError, BackendError
from rlx_py.ir.base.paths import file_path
from rlx_py.ir.nodes.graph_base import GraphBase
from rlx_py.ir.nodes.node import LEAF, PROJECT, TUPLE, Node

PICTURES = (".svg", ".png", ".pdf")
COLOURS = {
    "input": "#cfe2f3", "param": "#fff2cc", "state": "#fce5cd", "constant": "#eeeeee",
    "contraction": "#f4cccc", "reduction": "#d9d2e9", "loops": "#ead1dc",
    "composite": "#d0e0e3", "element-wise": "#d9ead3", "tuple": "#ffffff",
}


def draw_graph(graph: GraphBase, path: str | os.PathLike[str]) -> Path:
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


def to_dot(graph: GraphBase) -> str:
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


def _roots(graph: GraphBase, number: dict[Node, str]) -> Iterable[str]:
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
    if node.op.kernel is not None:
        return node.op.kernel.kind
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
