"""Random programs over the primitives, with empty and unit axes, shared nodes and dead code."""

from __future__ import annotations

import random
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from rlx_py.ir.base.types import DType, f64
from rlx_py.ir.graph.graph import Graph
from rlx_py.ir.nodes.node import Node
from rlx_py.ir.ops.making.constant import constant
from rlx_py.ir.ops.nn.norm.norm import LAYER_NORM
from rlx_py.ir.ops.nn.norm.softmax import LOG_SOFTMAX, SOFTMAX
from rlx_py.ir.ops.numpy.scatter import SCATTER_SET
from rlx_py.ir.ops.numpy.statistics import NORM, VARIANCE
from rlx_py.ir.ops.primitive import compare as c
from rlx_py.ir.ops.primitive import elementwise as e
from rlx_py.ir.ops.primitive import movement as m
from rlx_py.ir.ops.primitive import reduce as r
from rlx_py.ir.ops.primitive.contract import CONTRACT
from rlx_py.ir.ops.primitive.cumulative import CUMPROD, CUMSUM, LINEAR_RECURRENCE
from rlx_py.ir.ops.primitive.index import GATHER, MODES, SCATTER_ADD
from rlx_py.ir.ops.primitive.windows import FOLD, WINDOWS

LARGEST = 200
HOSTILE = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 1e-30, 1e30]
UNARY = (e.NEG, e.ABS, e.EXP, e.TANH, e.SIN, e.SQRT, e.LOG, e.SIGN, e.FLOOR, e.STOP_GRADIENT)
BINARY = (e.ADD, e.SUB, e.MUL, e.MUL, e.DIV, e.MAX, e.MIN, e.GUARDED_MUL)
Step = Callable[[random.Random, list[Node], Node], Node]


def random_graph(seed: int, dtype: DType = f64, steps: int = 14, *, count: int | None = None,
                 indexed: bool = False) -> Graph:
    """A graph of float inputs x0 … x2 and s, and outputs y0 and y1; the same for the same seed.

    count: how many steps, of which a smaller number are the first, so that a failure shrinks.
    indexed: gathers, scatters, running sums, windows and composites too.
    """
    rng = random.Random(seed)
    table = [*STEPS, *INDEXED] if indexed else STEPS
    weights = [*WEIGHTS, *[6] * len(INDEXED)] if indexed else WEIGHTS
    g = Graph(f"random{seed}")
    pool = [g.input(f"x{i}", _shape(rng), dtype) for i in range(3)]
    pool.append(g.input("s", (), dtype))
    for _ in range(rng.randint(3, steps) if count is None else count):
        x = rng.choice(pool)
        made = rng.choices(table, weights)[0](rng, pool, x)
        pool.append(made if made.size <= LARGEST else x)
    for i, node in enumerate(pool[-2:]):
        g.output(f"y{i}", node)
    return g


def random_values(graph: Graph, seed: int, *, hostile: bool = False) -> dict[str, Any]:
    """Values of its inputs: normal, or of NaN, infinities, zeros and extremes."""
    rng = np.random.default_rng(seed)
    return {k: np.asarray(rng.choice(HOSTILE, n.shape) if hostile else rng.normal(size=n.shape))
            .astype(n.dtype.numpy) for k, n in graph.inputs.items()}


def _shape(rng: random.Random) -> tuple[int, ...]:
    return tuple(rng.choice([0, 1, 1, 2, 3, 4]) for _ in range(rng.randint(0, 3)))


def _alike(rng: random.Random, pool: list[Node], x: Node) -> Node:
    return rng.choice([n for n in pool if n.shape == x.shape])


def _unary(rng: random.Random, pool: list[Node], x: Node) -> Node:
    return rng.choice(UNARY)(x)


def _binary(rng: random.Random, pool: list[Node], x: Node) -> Node:
    scalar = e.fill(x, rng.choice([0.0, -0.0, 1.0, -1.0, 2.0, 0.5, 3.0]))
    pair = [x, rng.choice([_alike(rng, pool, x), scalar])]
    rng.shuffle(pair)
    return rng.choice(BINARY)(*pair)


def _power(rng: random.Random, pool: list[Node], x: Node) -> Node:
    return e.POW(x, e.fill(x, rng.choice([0.0, 1.0, 2.0, 3.0, 4.0, -1.0, 2.5])))


def _select(rng: random.Random, pool: list[Node], x: Node) -> Node:
    a, b = _alike(rng, pool, x), _alike(rng, pool, x)
    condition = rng.choice([c.LT, c.EQ, c.GE])(x, a)
    if rng.random() < 0.3:
        condition = c.NOT(condition)
    return e.SELECT(condition, rng.choice([a, e.fill(a, 1.0)]), b)


def _reshape(rng: random.Random, pool: list[Node], x: Node) -> Node:
    n = x.size
    if not n:
        return m.RESHAPE(x, shape=rng.choice([(0,), (0, 2), (3, 0)]))
    shapes: list[tuple[int, ...]] = [(n,), *([()] if n == 1 else [])]
    for d in (1, 2, 3, 4):
        if n % d == 0:
            shapes += [(d, n // d), (n // d, 1, d), (1, d, n // d)]
    return m.RESHAPE(x, shape=rng.choice(shapes))


def _transpose(rng: random.Random, pool: list[Node], x: Node) -> Node:
    return m.TRANSPOSE(x, axes=tuple(rng.sample(range(x.rank), x.rank)))


def _broadcast(rng: random.Random, pool: list[Node], x: Node) -> Node:
    if x.rank > 3:
        return x
    rank = rng.randint(x.rank, 4)
    axes = tuple(sorted(rng.sample(range(rank), x.rank)))
    shape = [rng.choice([0, 1, 1, 1, 2, 2, 3]) for _ in range(rank)]
    for axis, size in zip(axes, x.shape, strict=True):
        shape[axis] = size
    return m.BROADCAST(x, shape=tuple(shape), axes=axes) if prod(shape) <= LARGEST else x


def _slice(rng: random.Random, pool: list[Node], x: Node) -> Node:
    bounds = []
    for d in x.shape:
        start = rng.randint(0, d)
        taken = (start, rng.randint(start, d), rng.randint(1, 3))
        bounds.append(rng.choice([(0, d, 1), taken]))
    starts, stops, steps = (tuple(b[i] for b in bounds) for i in range(3))
    return m.SLICE(x, start=starts, stop=stops, step=steps)


def _pad(rng: random.Random, pool: list[Node], x: Node) -> Node:
    low, high = (tuple(rng.randint(-1, 2) if d > 1 else rng.randint(0, 2) for d in x.shape)
                 for _ in range(2))
    interior = tuple(rng.randint(0, 1) for _ in x.shape)
    return m.PAD(x, constant(rng.choice([0.0, 1.0]), x.dtype), low=low, high=high,
                 interior=interior)


def _concat(rng: random.Random, pool: list[Node], x: Node) -> Node:
    if not x.rank:
        return x
    axis = rng.randrange(x.rank)
    fits = [n for n in pool if n.rank == x.rank
            and n.shape[:axis] == x.shape[:axis] and n.shape[axis + 1:] == x.shape[axis + 1:]]
    return m.CONCAT(x, *rng.choices(fits, k=rng.randint(0, 2)), axis=axis)


def _reverse(rng: random.Random, pool: list[Node], x: Node) -> Node:
    return m.REVERSE(x, axes=_some_axes(rng, x))


def _some_axes(rng: random.Random, x: Node) -> tuple[int, ...]:
    return tuple(sorted(rng.sample(range(x.rank), rng.randint(0, x.rank))))


def _reduce(rng: random.Random, pool: list[Node], x: Node) -> Node:
    folds = [r.REDUCE_SUM, r.REDUCE_SUM, r.REDUCE_PROD]
    if x.size:
        folds += [r.REDUCE_MAX, r.REDUCE_MIN]
    return rng.choice(folds)(x, axes=_some_axes(rng, x))


def _contract(rng: random.Random, pool: list[Node], x: Node) -> Node:
    y = rng.choice(pool)
    pairs = [(i, j) for i in range(x.rank) for j in range(y.rank) if x.shape[i] == y.shape[j]]
    rng.shuffle(pairs)
    chosen: dict[bool, list[tuple[int, int]]] = {False: [], True: []}
    left, right = set(range(x.rank)), set(range(y.rank))
    for i, j in pairs[:rng.randint(0, 3)]:
        if i in left and j in right:
            chosen[rng.random() < 0.4].append((i, j))
            left.discard(i)
            right.discard(j)
    batch, contract = ((tuple(i for i, _ in chosen[k]), tuple(j for _, j in chosen[k]))
                       for k in (True, False))
    return CONTRACT(x, y, batch=batch, contract=contract)


STEPS: list[Step] = [_unary, _binary, _power, _select, _reshape, _transpose, _broadcast, _slice,
                     _pad, _concat, _reverse, _reduce, _contract]
WEIGHTS = [25, 20, 5, 5, 7, 7, 7, 6, 4, 3, 2, 6, 3]


# ---- positions, running sums, windows and composites -------------------------------------------


def _line(rng: random.Random, x: Node) -> int | None:
    """An axis that is not empty, if there is one."""
    axes = [i for i, d in enumerate(x.shape) if d]
    return rng.choice(axes) if axes else None


def _places(rng: random.Random, size: int, mode: str) -> Node:
    low, high = (0, size - 1) if mode == "error" else (-2, size + 1)
    drawn = [rng.randint(low, high) for _ in range(rng.randint(0, 4))]
    return constant(np.array(drawn, rng.choice([np.int32, np.int64])))


def _gather(rng: random.Random, pool: list[Node], x: Node) -> Node:
    axis, mode = _line(rng, x), rng.choice(MODES)
    if axis is None:
        return x
    return GATHER(x, _places(rng, x.shape[axis], mode), axis=axis, mode=mode)


def _scatter(rng: random.Random, pool: list[Node], x: Node) -> Node:
    axis, mode = _line(rng, x), rng.choice(MODES)
    if axis is None:
        return x
    idx = _places(rng, x.shape[axis], mode)
    update = GATHER(x, idx, axis=axis, mode="clip")
    op = rng.choice([SCATTER_ADD, SCATTER_SET])
    return op(_alike(rng, pool, x), idx, update, axis=axis, mode=mode)


def _running(rng: random.Random, pool: list[Node], x: Node) -> Node:
    axis, reverse = _line(rng, x), rng.choice([False, True])
    if axis is None:
        return x
    if rng.random() < 0.3:
        return LINEAR_RECURRENCE(e.TANH(x), _alike(rng, pool, x), axis=axis, reverse=reverse)
    return rng.choice([CUMSUM, CUMPROD])(x, axis=axis, reverse=reverse,
                                         exclusive=rng.choice([False, True]))


def _windows(rng: random.Random, pool: list[Node], x: Node) -> Node:
    if not x.rank or not x.shape[-1]:
        return x
    size = rng.randint(1, x.shape[-1])
    attrs = {"size": (size,), "stride": (rng.randint(1, 2),), "dilation": (1,)}
    found = WINDOWS(x, **attrs)
    return rng.choice([found, FOLD(found, shape=x.shape[-1:], **attrs)])


def _composite(rng: random.Random, pool: list[Node], x: Node) -> Node:
    axis = _line(rng, x)
    if axis is None:
        return x
    made = [lambda: SOFTMAX(x, axis=axis), lambda: LOG_SOFTMAX(x, axis=axis),
            lambda: VARIANCE(x, axes=(axis,), ddof=0), lambda: NORM(x, axes=(axis,)),
            lambda: LAYER_NORM(x, axes=(axis,), eps=0.1, weight=False, bias=False)]
    return rng.choice(made)() if x.size else x


INDEXED: list[Step] = [_gather, _scatter, _running, _windows, _composite]
