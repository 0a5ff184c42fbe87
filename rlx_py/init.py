"""First values of params: a dict name → array for every param of a graph.

The schemes are for weights, of rank 2 or more. Params of rank 0 and 1 are biases and start at 0,
or, where the last part of their name is weight, scale, gamma or norm, norm weights that start at 1.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod, sqrt
from typing import Any

import numpy as np

from rlx_py.ir.graph.graph import Graph
from rlx_py.ir.nodes.graph_base import require_graph
from rlx_py.ir.nodes.node import Node
from rlx_py.ir.ops.primitive.contract import CONTRACT
from rlx_py.ir.ops.primitive.elementwise import CAST
from rlx_py.ir.ops.primitive.movement import TRANSPOSE
from rlx_py.passes.rewrite.decompose import decompose

Array = np.ndarray[Any, Any]
Draw = Callable[[np.random.Generator, tuple[int, ...], int, int], Array]
ONES = ("weight", "scale", "gamma", "norm")


def kaiming_uniform(graph: Graph, seed: int = 0, gain: float = sqrt(2)) -> dict[str, Array]:
    """Uniform in ±gain·√(3/fan_in) (He et al. 2015)."""
    return _drawn(graph, seed, lambda rng, shape, into, out: _uniform(
        rng, shape, gain * sqrt(3 / max(into, 1))))


def kaiming_normal(graph: Graph, seed: int = 0, gain: float = sqrt(2)) -> dict[str, Array]:
    """Normal of deviation gain/√fan_in (He et al. 2015)."""
    return _drawn(graph, seed, lambda rng, shape, into, out: (
        gain / sqrt(max(into, 1)) * rng.standard_normal(shape)))


def xavier_uniform(graph: Graph, seed: int = 0, gain: float = 1.0) -> dict[str, Array]:
    """Uniform in ±gain·√(6/(fan_in + fan_out)) (Glorot and Bengio 2010)."""
    return _drawn(graph, seed, lambda rng, shape, into, out: _uniform(
        rng, shape, gain * sqrt(6 / max(into + out, 1))))


def xavier_normal(graph: Graph, seed: int = 0, gain: float = 1.0) -> dict[str, Array]:
    """Normal of deviation gain·√(2/(fan_in + fan_out)) (Glorot and Bengio 2010)."""
    return _drawn(graph, seed, lambda rng, shape, into, out: (
        gain * sqrt(2 / max(into + out, 1)) * rng.standard_normal(shape)))


def normal(graph: Graph, seed: int = 0, std: float = 0.02) -> dict[str, Array]:
    """Normal of one deviation for every weight."""
    return _drawn(graph, seed, lambda rng, shape, into, out: std * rng.standard_normal(shape))


def zeros(graph: Graph, seed: int = 0) -> dict[str, Array]:
    """Zeros for every weight."""
    return _drawn(graph, seed, lambda rng, shape, into, out: np.zeros(shape))


def _uniform(rng: np.random.Generator, shape: tuple[int, ...], bound: float) -> Array:
    return rng.uniform(-bound, bound, shape)


def _drawn(graph: Graph, seed: int, draw: Draw) -> dict[str, Array]:
    require_graph("init", graph)
    rng = np.random.default_rng(seed)
    sides = _contracted(graph)
    found = {}
    for name, param in graph.params.items():
        if param.rank < 2:
            one = name.rpartition(".")[2] in ONES
            array = np.full(param.shape, 1.0 if one else 0.0)
        else:
            array = draw(rng, param.shape, *_fans(param, sides.get(param)))
        found[name] = np.asarray(array).astype(param.dtype.numpy)
    return found


def _fans(param: Node, contracted: tuple[int, ...] | None) -> tuple[int, int]:
    """(fan in, fan out): of a matrix by the axis that the graph sums over, else [out, in, …]."""
    if param.rank == 2 and contracted is not None and len(contracted) == 1:
        (axis,) = contracted
        return param.shape[axis], param.shape[1 - axis]
    window = prod(param.shape[2:])
    return param.shape[1] * window, param.shape[0] * window


def _contracted(graph: Graph) -> dict[Node, tuple[int, ...]]:
    """The axes of each leaf that the first product it enters sums over."""
    found: dict[Node, tuple[int, ...]] = {}
    for node in decompose(graph).nodes:
        if node.op is not CONTRACT:
            continue
        for x, axes in zip(node.inputs, node.attrs["contract"], strict=True):
            while x.op in (TRANSPOSE, CAST):
                if x.op is TRANSPOSE:
                    axes = tuple(x.attrs["axes"][a] for a in axes)
                x = x.inputs[0]
            found.setdefault(x, axes)
    return found
