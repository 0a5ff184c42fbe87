"""RLX_CHECK: the same results before and after a pass, on random inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlx_py.ir.base.errors import VerifyError
from rlx_py.ir.base.types import DType, as_dtype
from rlx_py.ir.graph.evaluate import evaluate_all
from rlx_py.ir.graph.graph import Graph
from rlx_py.ir.loops.interpret import interpret
from rlx_py.ir.loops.program import Program
from rlx_py.passes.analysis.cost import flops

Array = np.ndarray[Any, Any]
INTERPRETED = 20_000  # scalar operations up to which a program is interpreted
TOLERANCE = {64: 1e-9, 32: 1e-3, 16: 1e-1}  # by bits of a float


def compare(name: str, before: Graph | Program, after: Graph | Program) -> None:
    """Raise VerifyError if a step changed a result; programs too long to interpret are let pass."""
    if isinstance(before, Graph) and isinstance(after, Graph):
        arrays = {k: random_array(n.dtype, n.shape) for k, n in before.leaves.items()}
        old, new = evaluate_all(before, arrays), evaluate_all(after, arrays)
        for left, right in ((old.outputs, new.outputs), (old.states, new.states),
                            (old.updates, new.updates)):
            _require_equal(f"{before.name}: {name}", left, right)
    elif (isinstance(before, Graph) and isinstance(after, Program)
            and flops(after) <= INTERPRETED):
        arrays = {k: random_array(n.dtype, n.shape) for k, n in before.leaves.items()}
        found = evaluate_all(before, arrays)
        changed = {**found.states, **found.updates}
        _require_equal(f"{before.name}: {name}", {
            **{p.name: found.outputs[p.name] for p in after.outputs},
            **{p.name: changed[p.name] for p in after.updates}}, interpret(after, arrays))
    elif (isinstance(before, Program) and isinstance(after, Program)
            and max(flops(before), flops(after)) <= INTERPRETED):
        arrays = {p.name: random_array(p.buffer.dtype, p.shape) for p in before.inputs}
        _require_equal(f"{before.name}: {name}", interpret(before, arrays),
                       interpret(after, arrays))


def random_array(dtype: DType, shape: tuple[int, ...]) -> Array:
    """The same numbers at each call: normal floats, integers 0 to 3, bools."""
    rng = np.random.default_rng(0)
    if dtype.is_float:
        return rng.standard_normal(shape).astype(dtype.numpy)
    return rng.integers(0, 2 if dtype.kind == "bool" else 4, shape).astype(dtype.numpy)


def _require_equal(what: str, before: Mapping[str, Array], after: Mapping[str, Array]) -> None:
    for key, old in before.items():
        dtype = as_dtype(old.dtype)
        tolerance = TOLERANCE[dtype.bits] if dtype.is_float else 0.0
        left, right = (x.astype(np.float64) if dtype.is_float else x for x in (old, after[key]))
        scale = np.max(np.abs(left[np.isfinite(left)]), initial=1.0) if dtype.is_float else 0.0
        if not np.allclose(left, right, rtol=tolerance, atol=tolerance * scale, equal_nan=True):
            raise VerifyError(f"{what} changed {key!r}")
