"""A sample between producers and consumers that fuse with it, none of which simplification drops.

The producers are identities, but not to the compiler: products with an input that is one, choices
by an input that is true, gathers of every position in turn. The consumers are element-wise, fold
rows and columns, and move elements.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import rlx_py as rlx
from rlx_py.ir.base.types import DType, TupleType
from rlx_py.ir.graph.graph import Graph
from rlx_py.ir.nodes.node import Node
from support.samples.sample import Sample

Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]


class Surrounded:
    """Samples in one graph, between producers and consumers, and the arrays of its inputs."""

    def __init__(self, name: str) -> None:
        self.graph, self.feed = Graph(name), Arrays()

    def add(self, sample: Sample, dtype: DType) -> None:
        """The sample in an element type: inputs named after it, each through its own producer."""
        inputs = []
        for i, array in enumerate(sample.converted(dtype)):
            name = f"{sample.name}.x{i}"
            inputs.append(PRODUCERS[i % len(PRODUCERS)](self, name, self.input(name, array)))
        node = sample.node(*inputs)
        several = isinstance(node.type, TupleType)
        results = [node[i] for i in range(len(node))] if several else [node]
        for i, result in enumerate(results):
            for k, consumed in enumerate(self.consumed(f"{sample.name}.y{i}", result)):
                self.graph.output(f"{sample.name}.y{i}_{k}", consumed)

    def input(self, name: str, array: Array) -> Node:
        """An input with its array."""
        self.feed[name] = array
        return self.graph.input(name, array.shape, array.dtype)

    def one(self, name: str, like: Node) -> Node:
        """An input that is 1, or true."""
        return self.input(f"{name}.one", np.ones((), like.dtype.numpy))

    def consumed(self, name: str, y: Node) -> list[Node]:
        """The result itself, and what element-wise lines, folds and movements make of it."""
        found = [y]
        if y.dtype.is_float:
            scaled = y * self.one(name, y)
            found.append(scaled)
            found.append(rlx.where(rlx.abs(scaled) < 1000, scaled, 0).sum())
        if y.rank:
            found.append(rlx.flip(y))
            found.append(rlx.transpose(y).reshape(-1))
        if y.rank and y.size and y.dtype.kind != "bool":
            found += [rlx.max(y, axis=0), rlx.min(y, axis=-1, keepdims=True) + y]
        return found


def _scaled(around: Surrounded, name: str, x: Node) -> Node:
    one = around.one(name, x)
    return x & one if x.dtype.kind == "bool" else x * one


def _chosen(around: Surrounded, name: str, x: Node) -> Node:
    flag = around.input(f"{name}.true", np.ones(x.shape, bool))
    return rlx.where(flag, x, rlx.zeros_like(x))


def _gathered(around: Surrounded, name: str, x: Node) -> Node:
    if not x.rank or not x.shape[0]:
        return _scaled(around, name, x)
    places = around.input(f"{name}.places", np.arange(x.shape[0], dtype=np.int32))
    return rlx.take(x, places, 0, mode="clip")


def _moved(around: Surrounded, name: str, x: Node) -> Node:
    if not x.rank:
        return _scaled(around, name, x)
    return _scaled(around, name, rlx.concatenate([x, x])[:x.shape[0]])


PRODUCERS: list[Callable[[Surrounded, str, Node], Node]] = [_scaled, _moved, _chosen, _gathered]
