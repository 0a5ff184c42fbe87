"""Graphs as attributes of the ops that own them."""

from __future__ import annotations

from functools import lru_cache

from rlx_py.ir.files.text import show
from rlx_py.ir.graph.graph import Graph, parse


class Body(str):
    """A graph as an attribute. It is the graph's text, by which equal ones meet and files keep it;
    the graph itself goes along, because it knows the user's lines."""

    graph: Graph

    @staticmethod
    def of(graph: Graph) -> Body:
        """The attribute that stands for a graph."""
        body = Body(show(graph))
        body.graph = graph
        return body


def graph_of(text: str) -> Graph:
    """The graph of an attribute. Raises FormatError where a file holds another text."""
    return text.graph if isinstance(text, Body) else _parsed(text)


_parsed = lru_cache(maxsize=256)(parse)


def is_body(value: object) -> bool:
    """Whether an attribute is a graph; one that a file held is plain text."""
    return isinstance(value, Body) or (isinstance(value, str) and value.startswith('graph "'))
