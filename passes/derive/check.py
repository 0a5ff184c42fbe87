"""Derivatives compared with central differences, and reverse with forward mode."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from rlx_py.ir.base.errors import VerifyError
from rlx_py.ir.base.types import f64
from rlx_py.ir.graph.bind import sized
from rlx_py.ir.graph.evaluate import evaluate, leaf_values, shapes_of
from rlx_py.ir.graph.graph import Graph
from rlx_py.ir.nodes.graph_base import require_graph
from rlx_py.passes.derive.differentiate import leaves_of
from rlx_py.passes.derive.jvp import jvp
from rlx_py.passes.derive.vjp import vjp
from rlx_py.passes.rewrite.retype import retype

Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]


def check_grads(graph: Graph, inputs: Mapping[str, Any], of: str | Iterable[str] | None = None,
                wrt: str | Iterable[str] | None = None, order: int = 2, *, step: float = 1e-5,
                rtol: float = 1e-5, atol: float = 1e-6, samples: int = 64, seed: int = 0) -> None:
    """Check derivatives up to `order` in f64; VerifyError names the worst element and both values.

    Against central differences at up to `samples` elements of each name, and ⟨ct, JVP t⟩ with
    ⟨VJP ct, t⟩. of=None: every float output; wrt=None: every param, or without any every float
    input. The inputs may be floats of any width, and must lie where the function is smooth: two
    steps from any kink.
    """
    require_graph("check_grads", graph)
    names = None if of is None else [of] if isinstance(of, str) else list(of)
    graph = sized(graph, shapes_of(inputs))
    outputs = {k: graph.find_output(k) for k in names or graph.outputs}
    current = retype(graph.derive(outputs), f64)
    if wrt is None and not graph.params:
        wrt = [k for k, n in graph.inputs.items() if n.dtype.is_float]
    leaves = list(leaves_of(current, wrt))
    given = {k: _widened(v) if isinstance(v, np.ndarray) else v for k, v in inputs.items()}
    values = {n.attrs["name"]: a for n, a in leaf_values(retype(graph, f64), given).items()}
    rng = np.random.default_rng(seed)
    for k in range(1, order + 1):
        backward = vjp(current, leaves)
        cts = {n: rng.standard_normal(backward.inputs[n].shape)
               for n in backward.inputs if n not in current.inputs}
        values.update(cts)
        pairing = dict(zip((k for k, n in current.outputs.items() if n.dtype.is_float), cts,
                           strict=True))
        found = evaluate(backward, values)
        _check_dual(current, values, pairing, found, leaves, rng, k)
        _check_differences(current, values, pairing, found, leaves, rng, k,
                           (step, rtol, atol, samples))
        current = backward


def _widened(array: Array) -> Array:
    return array if array.dtype.kind in "iub" else array.astype(np.float64)


def _own(graph: Graph, values: Arrays) -> Arrays:
    return {k: values[k] for k in graph.leaves if k in values}


def _check_dual(graph: Graph, values: Arrays, pairing: dict[str, str], found: Arrays,
                leaves: list[str], rng: np.random.Generator, order: int) -> None:
    forward = jvp(graph, leaves)
    names = [n for n in forward.inputs if n not in graph.inputs]
    tangents = dict(zip(names, (rng.standard_normal(values[k].shape) for k in leaves),
                        strict=True))
    pushed = evaluate(forward, {**_own(graph, values), **tangents})
    made = [n for n in forward.outputs if n not in graph.outputs]
    left = sum(float(np.sum(values[ct] * pushed[t]))
               for t, ct in zip(made, pairing.values(), strict=True))
    parts = [found[f"grad_{k}"] * t for k, t in zip(leaves, tangents.values(), strict=True)]
    right = sum(float(np.sum(p)) for p in parts)
    scale = sum(float(np.sum(np.abs(p))) for p in parts) + abs(left)
    if not abs(left - right) <= 1e-9 * scale:
        raise VerifyError(f"order {order}: forward mode gives {left!r} and reverse mode {right!r} "
                          "for the same directional derivative")


def _check_differences(graph: Graph, values: Arrays, pairing: dict[str, str], found: Arrays,
                       leaves: list[str], rng: np.random.Generator, order: int,
                       settings: tuple[float, float, float, int]) -> None:
    step, rtol, atol, samples = settings
    own = _own(graph, values)

    def at(name: str, index: tuple[int, ...], shift: float) -> float:
        moved = own[name].copy()
        moved[index] += shift
        result = evaluate(graph, {**own, name: moved})
        return sum(float(np.sum(values[ct] * result[out])) for out, ct in pairing.items())

    worst: tuple[float, str] | None = None
    for name in leaves:
        shape = own[name].shape
        picked = rng.permutation(own[name].size)[:samples]
        for flat in picked:
            index = tuple(int(i) for i in np.unravel_index(flat, shape))
            h = step * max(1.0, abs(float(own[name][index])))
            numeric = (at(name, index, h) - at(name, index, -h)) / (2 * h)
            exact = float(found[f"grad_{name}"][index])
            excess = abs(exact - numeric) - rtol * max(abs(exact), abs(numeric))
            if not excess <= atol and (worst is None or not excess <= worst[0]):
                worst = (excess, f"order {order}: the derivative by {name}{list(index)} is "
                                 f"{exact!r}, by central differences {numeric!r}")
    if worst is not None:
        raise VerifyError(worst[1])
