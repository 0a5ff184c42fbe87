"""A sample: an op with arrays and attributes, from which its node is built in any element type."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import rlx_py.ir.ops  # noqa: F401  (fills the registry)
from rlx_py.ir.base.errors import DTypeError
from rlx_py.ir.base.types import DTYPES, DType, TensorType, TupleType, as_dtype, f64
from rlx_py.ir.graph.graph import Graph
from rlx_py.ir.nodes.node import Node, Op, leaf, make, pack

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Sample:
    """One call of an op.

    arrays: of f64 where the element type may vary, as they are where not (positions i32, conditions
    bool). smooth: the op is differentiable at and around them. `prepare` makes further inputs of
    the op from the given ones (an output that a backward op takes). exact: of the arrays, those
    that keep their type.
    """

    op: Op
    name: str
    arrays: tuple[Array, ...]
    attrs: dict[str, Any]
    smooth: bool = True
    prepare: Callable[..., tuple[Node, ...]] | None = None

    def __str__(self) -> str:
        return f"{self.op.name}-{self.name}"

    def node(self, *inputs: Node) -> Node:
        """The op's node over its inputs."""
        return make(self.op, self.prepare(*inputs) if self.prepare else inputs, self.attrs)

    def converted(self, dtype: DType) -> list[Array]:
        """The arrays in an element type; integers are 3x rounded, without sign where unsigned."""
        return [_converted(a, dtype) if a.dtype == np.float64 else a for a in self.arrays]

    def graph(self, dtype: DType = f64) -> Graph:
        """Inputs x0, x1 … and outputs y, or y0, y1 … for several results."""
        g = Graph(str(self))
        add_sample(g, self, dtype, "")
        return g

    def feed(self, dtype: DType = f64, prefix: str = "") -> dict[str, Array]:
        """The arrays by the names of the graph's inputs."""
        return {f"{prefix}x{i}": a for i, a in enumerate(self.converted(dtype))}

    @property
    def differentiable(self) -> bool:
        """Whether derivatives exist and can be compared with differences."""
        return self.smooth and self.op.differentiable and f64 in self.dtypes()

    def dtypes(self) -> Iterator[DType]:
        """The element types that the op takes here; its own if no array may vary."""
        if all(a.dtype != np.float64 for a in self.arrays):
            yield f64
            return
        for dtype in DTYPES.values():
            types = [TensorType(as_dtype(a.dtype), a.shape) for a in self.converted(dtype)]
            try:
                self.node(*[placeholder(t) for t in types])
            except DTypeError:
                continue
            yield dtype


def placeholder(type: TensorType) -> Node:
    """A leaf of no graph."""
    return leaf("x", "input", type)


def add_sample(g: Graph, sample: Sample, dtype: DType, prefix: str) -> None:
    """The sample's inputs and results in a graph, their names after a prefix."""
    arrays = sample.converted(dtype)
    inputs = [g.input(f"{prefix}x{i}", a.shape, a.dtype) for i, a in enumerate(arrays)]
    node = sample.node(*inputs)
    if not isinstance(node.type, TupleType):
        g.output(f"{prefix}y", node)
        return
    for i in range(len(node)):
        g.output(f"{prefix}y{i}", node[i])


def _converted(a: Array, dtype: DType) -> Array:
    if dtype.is_float:
        with np.errstate(over="ignore"):
            return a.astype(dtype.numpy)
    if dtype.kind == "bool":
        return a > 0
    whole = np.rint(np.nan_to_num(a, nan=0, posinf=30, neginf=-30).clip(-30, 30) * 3)
    return np.asarray(np.abs(whole) if dtype.kind == "uint" else whole).astype(dtype.numpy)


def packed(*nodes: Node) -> tuple[Node, ...]:
    """What a tuple op takes."""
    return (pack(nodes),)


def sample(op: Op, name: str, *arrays: Array, smooth: bool = True,
           prepare: Callable[..., tuple[Node, ...]] | None = None, **attrs: Any) -> Sample:
    """A sample with its attributes as keywords."""
    return Sample(op, name, arrays, attrs, smooth, prepare)


# ---- arrays ----------------------------------------------------------------------------------


def reals(*shape: int, seed: int = 0) -> Array:
    """Normal numbers, none within 0.05 of 0 or of another's negative."""
    x = np.random.default_rng([seed, *shape]).standard_normal(shape)
    return np.asarray(x + np.copysign(0.05, x))


def between(low: float, high: float, *shape: int, seed: int = 0) -> Array:
    """Uniform numbers."""
    return np.asarray(np.random.default_rng([seed, *shape]).uniform(low, high, shape))


def apart(*shape: int, seed: int = 0) -> Array:
    """Numbers of both signs, all apart from each other, in magnitude too, and from 0."""
    rng, size = np.random.default_rng([seed, *shape]), int(np.prod(shape))
    grid = rng.permutation(size) + rng.uniform(0.3, 0.7, size)
    return np.asarray((grid / max(size, 1) * 1.5 + 0.3) * rng.choice([-1, 1], size)).reshape(shape)


def ties(*shape: int, seed: int = 0) -> Array:
    """Few different numbers, zeros of both signs among them."""
    found = np.random.default_rng([seed, *shape]).choice([-1.5, -0.0, 0.0, 1.0, 2.0], shape)
    return np.asarray(found)


def hostile(*shape: int, seed: int = 0) -> Array:
    """Numbers with NaN, infinities and zeros among them."""
    values = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0]
    return np.asarray(np.random.default_rng([seed, *shape]).choice(values, shape))


def spiked(*shape: int, seed: int = 0) -> Array:
    """Normal numbers, but for one infinity of each sign and one NaN, on different rows."""
    found = reals(*shape, seed=seed)
    for i, value in enumerate((np.inf, -np.inf, np.nan)):
        found[(i % shape[0], *(((i + 1) * 2) % d for d in shape[1:]))] = value
    return found


def positions(low: int, high: int, *shape: int, seed: int = 0) -> Array:
    """i32 positions in low … high − 1, with duplicates where there are more than that."""
    found = np.random.default_rng([seed, *shape]).integers(low, high, shape, np.int32)
    return np.asarray(found)
