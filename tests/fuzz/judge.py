"""What a graph gives by the oracle, with the tolerance that rounding leaves each element.

The tolerance is measured: the graph is evaluated again with noise of one rounding on the result of
every operation. Where that changes a NaN, an infinity, an integer or a bool, or moves a float by a
good part of itself, nothing can be said of the element. What is all rounding may be 0 as well, by
which a quotient is infinite: it is in the first evaluation, whose noise is larger. Noise may leave
a comparison of equals as it is by chance: where there is a fault, more evaluations are asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

import rlx_py as rlx
from rlx_py.ir.graph import evaluate
from rlx_py.ir.nodes.node import toposort

Array = np.ndarray[Any, Any]
RUNS, MORE = 4, 16
TINY = {"float64": 1e-300, "float32": 1e-36, "float16": 6e-5, "bfloat16": 1e-36}
LARGEST = {"float64": 1.7e308, "float32": 3.4e38, "float16": 65504.0, "bfloat16": 3.38e38}
# These move or choose elements, and round nothing themselves.
EXACT = {"neg", "abs", "reshape", "transpose", "broadcast", "slice", "pad", "concat", "reverse",
         "select", "max", "min", "reduce_max", "reduce_min", "windows", "gather", "take_along",
         "stop_gradient", "sign", "floor", "ceil", "round", "trunc", "constant", "iota", "tuple",
         "project", "leaf", "scatter_set", "scatter_max", "scatter_min", "sort", "cast", "size",
         "barrier", "random_bits", "bitcast", "scan", "cond", "checkpoint"}
# These hold many roundings, of which noise on the result alone would show one.
MANY = {"contract", "cumprod", "cumsum", "reduce_sum", "reduce_prod"}


@dataclass(frozen=True)
class Wanted:
    """A result of the oracle: its value, and for each element what may differ and whether at all
    something can be said."""

    value: Array
    tolerance: Array
    sure: Array


def rounding(dtype: np.dtype[Any]) -> float | None:
    """The distance from 1 to the next number of a float type; None of others."""
    if dtype.kind in "biu":
        return None
    return float(ml_dtypes.finfo(dtype).eps)


class Judge:
    """The results of a graph for arrays: by ("output" | "state" | "param", name)."""

    def __init__(self, graph: rlx.Graph, feed: Mapping[str, Array], seed: int) -> None:
        found = evaluate.evaluate_all(graph, feed)
        tables = {"output": found.outputs, "state": found.states, "param": found.updates}
        names = [(kind, k) for kind, table in tables.items() for k in table]
        values = [np.asarray(tables[kind][k]) for kind, k in names]
        parts = rlx.decompose(graph)
        nexts = [s.node if s.next is None else s.next for s in parts.states.values()]
        roots = [*parts.outputs.values(), *nexts, *parts.updates.values()]
        self.leaves = evaluate.leaf_values(parts, feed)
        self.rng = np.random.default_rng(seed)
        self.results = list(zip(names, values, roots, strict=True))
        plain = _evaluated(roots, self.leaves)
        with noise(self.rng, 8.0):
            self.runs = [_evaluated(roots, self.leaves, plain)]
        self._run(RUNS - 1)

    def _run(self, times: int) -> None:
        """Evaluate with noise so many times more."""
        roots = [root for _, _, root in self.results]
        with noise(self.rng):
            self.runs += [_evaluated(roots, self.leaves) for _ in range(times)]
        self.wanted = {name: _wanted(value, [wide(run[root]) for run in self.runs])
                       for name, value, root in self.results}

    def fault(self, kind: str, found: Mapping[str, Any], factor: float = 1.0) -> str | None:
        """The first difference of results of a kind that rounding does not explain."""
        if self._fault(kind, found, factor) and len(self.runs) == RUNS:
            self._run(MORE)
        return self._fault(kind, found, factor)

    def _fault(self, kind: str, found: Mapping[str, Any], factor: float) -> str | None:
        for name, value in found.items():
            if (kind, name) in self.wanted:
                fault = _fault(np.asarray(value), self.wanted[kind, name], factor)
                if fault:
                    return f"{kind} {name}{fault}"
        return None


def wide(array: Any) -> Array:
    """As f64."""
    return np.asarray(array).astype(np.float64)


@contextmanager
def noise(rng: np.random.Generator, size: float = 1.2) -> Iterator[None]:
    """Noise of so many roundings on what every operation gives that the oracle evaluates, those in
    loops and branches too."""
    exact = evaluate.evaluate_node

    def shaken(node: Any, arrays: Any) -> Any:
        if node.op.name in MANY:
            arrays = [_shaken(a, rng, size) for a in arrays]
        result = exact(node, arrays)
        return result if node.op.name in EXACT else _shaken(result, rng, size)

    evaluate.evaluate_node = shaken
    try:
        yield
    finally:
        evaluate.evaluate_node = exact


def _evaluated(roots: list[Any], leaves: Mapping[Any, Any],
               plain: Mapping[Any, Any] | None = None) -> dict[Any, Any]:
    """The value of every node; beside plain values 0 for what has nothing left of these."""
    done: dict[Any, Any] = dict(leaves)
    for node in toposort(roots):
        if node not in done:
            result = evaluate.evaluate_node(node, [done[i] for i in node.inputs])
            done[node] = result if plain is None else _without_lost(result, plain[node])
    return done


def _without_lost(value: Any, plain: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_without_lost(v, p) for v, p in zip(value, plain, strict=True))
    array = np.asarray(value)
    if rounding(array.dtype) is None:
        return array
    with np.errstate(all="ignore"):
        moved = np.abs(wide(array) - wide(plain))
        lost = np.isfinite(moved) & (moved > 0.5 * np.abs(wide(plain)))
    return np.where(lost, np.zeros((), array.dtype), array)


def _shaken(value: Any, rng: np.random.Generator, size: float) -> Any:
    if isinstance(value, tuple):
        return tuple(_shaken(v, rng, size) for v in value)
    array = np.asarray(value)
    eps = rounding(array.dtype)
    if eps is None or not array.size:
        return array
    noise = 1 + eps * rng.uniform(-size, size, array.shape)
    with np.errstate(all="ignore"):
        return np.asarray(array.astype(np.float64) * noise).astype(array.dtype)


def _wanted(value: Array, runs: list[Array]) -> Wanted:
    exact, eps = wide(value), rounding(value.dtype)
    moved, sure = np.zeros(exact.shape), np.ones(exact.shape, bool)
    with np.errstate(all="ignore"):
        for i, run in enumerate(runs):
            sure &= (np.isnan(run) == np.isnan(exact)) & (np.isinf(run) == np.isinf(exact))
            gap = np.abs(run - exact)
            if eps is None:
                sure &= gap == 0
            elif i:
                moved = np.maximum(moved, np.where(np.isfinite(gap), gap, 0))
    if eps is None:
        return Wanted(value, moved, sure)
    size = np.where(np.isfinite(exact), np.abs(exact), 0)
    # An element's own noise may be small by chance: that of its neighbours counts too.
    tolerance = (TINY[value.dtype.name] + 100 * moved + 20 * np.max(moved, initial=0)
                 + 64 * eps * (size + min(1.0, float(np.max(size, initial=0)))))
    loose = tolerance > 0.2 * (size + 1)
    return Wanted(value, np.where(loose, np.inf, tolerance), sure)


def _fault(got: Array, wanted: Wanted, factor: float) -> str | None:
    want = wanted.value
    if got.shape != want.shape or got.dtype != want.dtype:
        return f": {got.dtype}{got.shape}, not {want.dtype}{want.shape}"
    a, b = wide(got), wide(want)
    if rounding(want.dtype) is None:
        return _first("", wanted.sure & (got != want), got, want)
    with np.errstate(all="ignore"):
        nan = wanted.sure & (np.isnan(a) != np.isnan(b))
        # Just below the largest number, one rounding more is an infinity.
        near = np.abs(np.where(np.isinf(a), b, a)) > 0.9 * LARGEST[want.dtype.name]
        inf = wanted.sure & (np.isinf(a) != np.isinf(b)) & ~np.isnan(a) & ~near
        far = (wanted.sure & np.isfinite(a) & np.isfinite(b)
               & (np.abs(a - b) > factor * wanted.tolerance))
    return _first("NaN", nan, got, want) or _first("infinity", inf, got, want) or _first(
        "value", far, got, want)


def _first(what: str, wrong: Array, got: Array, want: Array) -> str | None:
    if not wrong.any():
        return None
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    return (f"{list(at)}: {got[at]!r}, by the oracle {want[at]!r} "
            f"({what}; {wrong.sum()} of {wrong.size})")
