"""Queries on the shape of graphs, and drawings."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import networkx as nx
import pytest

from rlx_py.ir.base.errors import ArgumentError, BackendError
from rlx_py.ir.files.draw import COLOURS, kind_of, to_dot
from rlx_py.ir.graph.graph import Graph
from rlx_py.ir.graph.query import as_digraph, critical_path, post_dominators, stages
from rlx_py.ir.nodes.node import Node
from rlx_py.ir.ops.numpy.pointwise import exp
from support import corpus

GRAPHS = corpus.graphs()
STRING = r'"(?:[^"\\]|\\.)*"'


def diamond() -> tuple[Graph, dict[str, Node]]:
    """x → a → {b, c} → d → y, and c again beside it."""
    g = Graph("diamond")
    x = g.input("x", (3,))
    a = exp(x)
    b = -a
    c = a * a
    d = b + c
    g.output("y", d)
    g.output("c", c)
    return g, {"x": x, "a": a, "b": b, "c": c, "d": d}


@pytest.mark.parametrize("name", GRAPHS)
def test_the_digraph_has_an_edge_for_each_operand(name: str) -> None:
    g = GRAPHS[name]
    found = as_digraph(g)
    assert list(found) == g.nodes
    assert nx.is_directed_acyclic_graph(found)
    for node in g.nodes:
        operands = sorted((d["position"], id(x)) for x, _, d in found.in_edges(node, data=True))
        assert operands == [(i, id(x)) for i, x in enumerate(node.inputs)]


def test_both_edges_of_a_square_are_there() -> None:
    g, n = diamond()
    assert as_digraph(g).number_of_edges(n["a"], n["c"]) == 2


def test_stages_need_only_earlier_stages() -> None:
    g, n = diamond()
    assert [set(s) for s in stages(g)] == [{n["x"]}, {n["a"]}, {n["b"], n["c"]}, {n["d"]}]
    for h in GRAPHS.values():
        done: set[Node] = set()
        for stage in stages(h):
            assert all(x in done for node in stage for x in node.inputs)
            done.update(stage)
        assert done == set(h.nodes)


def test_the_critical_path_is_the_costliest_chain() -> None:
    g, n = diamond()
    costs = {n["x"]: 1, n["a"]: 1, n["b"]: 5, n["c"]: 2, n["d"]: 1}
    assert critical_path(g, costs.__getitem__) == [n["x"], n["a"], n["b"], n["d"]]
    costs[n["c"]] = 9
    assert critical_path(g, costs.__getitem__) == [n["x"], n["a"], n["c"], n["d"]]
    assert critical_path(Graph(), lambda node: 1) == []


def test_post_dominators_are_on_every_path_to_a_root() -> None:
    g, n = diamond()
    assert post_dominators(g) == {n["x"]: n["a"], n["a"]: None, n["b"]: n["d"], n["c"]: None,
                                  n["d"]: None}
    alone = g.derive({"y": n["d"]})
    unused = alone.input("unused", (3,))
    found = post_dominators(alone)
    assert (found[n["a"]], found[n["c"]]) == (n["d"], n["d"])
    assert unused not in found
    assert post_dominators(Graph()) == {}


# ---- drawings --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", GRAPHS)
def test_dot_text_is_well_formed_and_the_same_each_time(name: str) -> None:
    g = GRAPHS[name]
    text = to_dot(g)
    assert to_dot(g) == text
    head, *lines, tail = text.splitlines()
    assert re.fullmatch(rf"digraph {STRING} {{", head)
    assert tail == "}"
    value = rf"(?:{STRING}|\w+)"
    attributes = rf"(?: \[\w+={value}(?:, \w+={value})*\])?;"
    for line in lines:
        assert re.fullmatch(rf"  \w+(?: -> \w+)?{attributes}", line), line
    assert len(re.findall(r"^  n\d+ \[", text, re.MULTILINE)) == len(g.nodes)
    edges = sum(len(n.inputs) for n in g.nodes)
    assert len(re.findall(r"^  n\d+ -> n\d+", text, re.MULTILINE)) == edges


def test_every_kind_of_node_has_a_colour_of_its_own() -> None:
    assert {kind_of(n) for g in GRAPHS.values() for n in g.nodes} == set(COLOURS)
    assert len(set(COLOURS.values())) == len(COLOURS)


def test_names_are_escaped() -> None:
    g = Graph('a"b\\')
    g.output("\\n", g.input('"]; \n\r\0 é \ud800 \\', (2,)))
    text = to_dot(g)
    assert text.startswith('digraph "a\\"b\\\\" {')
    assert r'label="input \"]; \n é \\ud800 \\\nf32[2]"' in text
    assert 'label="output \\\\n"' in text
    text.encode("utf-8")


def test_dot_text_is_always_written(tmp_path: Path) -> None:
    g, _ = diamond()
    assert g.draw(tmp_path / "g.dot") == tmp_path / "g.dot"
    assert (tmp_path / "g.dot").read_text(encoding="utf-8") == to_dot(g)


def test_without_graphviz_one_sentence_says_what_was_written(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    g, _ = diamond()
    with pytest.raises(BackendError, match=r"'dot' is not installed: wrote .*g.dot, .*g.svg"):
        g.draw(tmp_path / "g.svg")
    assert [p.name for p in tmp_path.iterdir()] == ["g.dot"]


def _program(folder: Path, script: str) -> None:
    path = folder / "dot"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.mark.skipif(os.name != "posix", reason="the stand-in is a shell script")
def test_graphviz_is_called_with_format_and_paths(tmp_path: Path,
                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    g, _ = diamond()
    _program(programs, 'echo "$1" > "$3"; cat "$4" >> "$3"')
    for suffix in ("svg", "png", "pdf"):
        target = tmp_path / f"g.{suffix}"
        assert g.draw(target) == target
        assert target.read_text(encoding="utf-8") == f"-T{suffix}\n{to_dot(g)}"
    _program(programs, "echo broken font >&2; exit 1")
    with pytest.raises(BackendError, match="broken font"):
        g.draw(tmp_path / "g.svg")


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")
def test_graphviz_draws_the_corpus(tmp_path: Path) -> None:
    for name in ("constants", "step", "backward of gather"):
        svg = GRAPHS[name].draw(tmp_path / "g.svg").read_text(encoding="utf-8")
        assert svg.count('class="node"') >= len(GRAPHS[name].nodes)


def test_another_ending_is_refused(tmp_path: Path) -> None:
    for name in ("g.txt", "g", "g.svg.gz"):
        with pytest.raises(ArgumentError, match=r"\.dot"):
            Graph().draw(tmp_path / name)
    assert not list(tmp_path.iterdir())
