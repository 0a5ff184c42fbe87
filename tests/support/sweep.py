"""Laws of any graph, on its arrays: transposition, differences, and compiled code as the oracle."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx_py.compiling import compile
from rlx_py.ir.graph.evaluate import evaluate
from rlx_py.ir.graph.graph import Graph
from rlx_py.passes.derive.jvp import jvp
from rlx_py.passes.derive.vjp import vjp

Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]

# Relative, to numbers of order 1 or what they are summed from: rounding, in another order.
TOLERANCE = {"f64": 2e-12, "f32": 3e-6, "f16": 4e-3, "bf16": 3e-2}


def float_inputs(g: Graph) -> list[str]:
    """The names that have a gradient."""
    return [k for k, n in g.inputs.items() if n.dtype.is_float]


def fresh(derived: Graph, g: Graph, rng: np.random.Generator) -> Arrays:
    """Normal values of the inputs that a transform added (cotangents, tangents)."""
    return {k: rng.standard_normal(n.shape).astype(n.dtype.numpy)
            for k, n in derived.inputs.items() if k not in g.inputs}


def inner(a: Iterable[Array], b: Iterable[Array]) -> tuple[float, float]:
    """Σ a·b, and Σ |a·b|, the scale of its rounding."""
    parts = [x * y for x, y in zip(a, b, strict=True)]
    return (sum(float(np.sum(p)) for p in parts), sum(float(np.sum(np.abs(p))) for p in parts))


@dataclass
class Along:
    """The gradient of Σ ct·y along a direction, of cotangents and tangents that are not uniform."""

    graph: Graph
    feed: Arrays
    rng: np.random.Generator

    def __post_init__(self) -> None:
        self.wrt = float_inputs(self.graph)
        self.backward = vjp(self.graph, self.wrt)
        self.cts = fresh(self.backward, self.graph, self.rng)
        self.direction: Arrays = {k: np.asarray(self.rng.standard_normal(self.feed[k].shape))
                                  for k in self.wrt}
        found = evaluate(self.backward, {**self.feed, **self.cts})
        self.slope, self.scale = inner([found[f"grad_{k}"] for k in self.wrt],
                                       self.direction.values())

    def check_transpose(self, tolerance: float = 1e-10) -> None:
        """⟨ct, J t⟩ = ⟨Jᵀ ct, t⟩."""
        forward = jvp(self.graph, self.wrt)
        tangents = [k for k in forward.inputs if k not in self.graph.inputs]
        given = dict(zip(tangents, self.direction.values(), strict=True))
        pushed = evaluate(forward, {**self.feed, **given})
        made = [pushed[k] for k in forward.outputs if k not in self.graph.outputs]
        left, scale = inner(self.cts.values(), made)
        assert abs(left - self.slope) <= tolerance * (scale + self.scale), (left, self.slope)

    def check_differences(self, tolerance: float = 2e-7) -> None:
        """It is the central difference."""
        floats = [k for k, n in self.graph.outputs.items() if n.dtype.is_float]
        # Of fourth order, so that a step large enough for little rounding is small enough.
        slopes, step, scale = 0.0, 1e-4, self.scale
        for shift, weight in ((1, 8 / 12), (2, -1 / 12)):
            for sign in (1, -1):
                moved = {k: self.feed[k] + sign * shift * step * t
                         for k, t in self.direction.items()}
                y = evaluate(self.graph, {**self.feed, **moved})
                value, size = inner(self.cts.values(), [y[k] for k in floats])
                slopes += sign * weight * value / step
                scale += 1e-3 * size
        assert abs(self.slope - slopes) <= tolerance * (scale + abs(self.slope)), (
            self.slope, slopes)


def assert_near(found: Arrays, expected: Arrays, what: str = "", factor: float = 1.0) -> None:
    """Integers equal, floats to the rounding of their type; the same NaN and infinities."""
    for name, want in expected.items():
        got = found[name]
        assert got.dtype == want.dtype and got.shape == want.shape, (name, got.dtype, got.shape)
        if want.dtype.kind in "iub":
            np.testing.assert_array_equal(got, want, err_msg=f"{what} {name}")
            continue
        wide, seen = want.astype(np.float64), got.astype(np.float64)
        np.testing.assert_array_equal(np.isnan(seen), np.isnan(wide), f"{what} {name} (NaN)")
        eps = factor * TOLERANCE[_name(want)]
        largest = np.max(np.abs(wide), initial=1, where=np.isfinite(wide))
        scale = min(float(largest), 100.0)  # beside 1e30 a 1 must still be right
        np.testing.assert_allclose(seen, wide, rtol=eps, atol=eps * scale, equal_nan=True,
                                   err_msg=f"{what} {name}")


def _name(array: Array) -> str:
    return {"float64": "f64", "float32": "f32", "float16": "f16"}.get(array.dtype.name, "bf16")


def same_bits(a: Arrays, b: Arrays) -> None:
    """Equal to the last bit, signs of zero and NaN payloads included."""
    for name, array in a.items():
        assert array.tobytes() == b[name].tobytes(), name


def run_compiled(g: Graph, feed: Arrays, threads: int = 1) -> Arrays:
    """The outputs of native code, which two runs give bit for bit."""
    exe = compile(g, threads=threads)
    found = dict(exe(**feed))
    same_bits(found, dict(exe(**feed)))
    return found


def with_gradients(g: Graph) -> Graph:
    """The graph's outputs, and the gradients of them all with inputs for their cotangents."""
    wrt = float_inputs(g)
    if not wrt or not any(n.dtype.is_float for n in g.outputs.values()):
        return g
    backward = vjp(g, wrt)
    return backward.derive({**g.outputs, **backward.outputs})

