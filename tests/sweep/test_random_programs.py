"""Laws of the transforms on random programs."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import rlx_py as rlx
from rlx_py.ir.base.types import f64
from rlx_py.ir.graph.evaluate import evaluate
from rlx_py.ir.graph.graph import Graph
from rlx_py.ir.nodes.verify import verify
from rlx_py.passes.derive.jvp import jvp
from rlx_py.passes.derive.vjp import vjp
from rlx_py.passes.rewrite.decompose import decompose
from rlx_py.passes.rewrite.simplify import BEFORE_DIFFERENTIATION, simplify
from support.programs import random_graph, random_values
from support.sweep import fresh, run_compiled, with_gradients

SEEDS = st.integers(0, 2**32)
COUNTS = st.integers(1, 14)


def agree(got: dict[str, Any], want: dict[str, Any], *, signs: bool = True) -> None:
    """Equal to rounding of sums; without `signs` an infinity may have the sign of another zero."""
    for name, array in want.items():
        other = got[name]
        if not signs:
            np.testing.assert_array_equal(np.isinf(other), np.isinf(array))
            np.testing.assert_array_equal(np.isnan(other), np.isnan(array))
            array, other = (np.where(np.isfinite(a), a, 0) for a in (array, other))
        scale = np.max(np.abs(array), initial=0, where=np.isfinite(array))
        np.testing.assert_allclose(other, array, rtol=1e-9, atol=1e-11 * (1 + scale))


@settings(max_examples=150)
@given(SEEDS, COUNTS)
def test_simplify_keeps_the_function(seed: int, count: int) -> None:
    g = random_graph(seed, count=count)
    safe = simplify(g)
    verify(safe)
    assert len(simplify(safe).nodes) <= len(safe.nodes)
    hostile = random_values(g, seed, hostile=True)
    agree(evaluate(safe, hostile), evaluate(g, hostile), signs=False)
    v = random_values(g, seed)
    want = evaluate(g, v)
    agree(evaluate(safe, v), want)
    agree(evaluate(decompose(simplify(g, rules=BEFORE_DIFFERENTIATION)), v), want)


@settings(max_examples=100)
@given(SEEDS, COUNTS, st.booleans())
def test_reverse_mode_is_the_transpose_of_forward_mode(seed: int, count: int,
                                                       indexed: bool) -> None:
    g = random_graph(seed, count=count, indexed=indexed)
    names, v = list(g.inputs), random_values(g, seed)
    backward, forward = vjp(g, names), jvp(g, names)
    for derived in (backward, forward, decompose(backward)):
        verify(derived)
    rng = np.random.default_rng(seed)
    cts = {k: rng.normal(size=n.shape) for k, n in backward.inputs.items() if k not in v}
    tangents = {k: rng.normal(size=n.shape) for k, n in forward.inputs.items() if k not in v}
    pulled = evaluate(backward, {**v, **cts})
    pushed = evaluate(forward, {**v, **tangents})
    parts = [pulled[f"grad_{k}"] * tangents[f"t_{k}"] for k in names]
    with np.errstate(all="ignore"):
        right = sum(float(np.sum(x)) for x in parts)
        left = sum(float(np.sum(cts[f"ct_{k}"] * pushed[f"t_{k}"])) for k in g.outputs)
        scale = sum(float(np.sum(np.abs(x))) for x in parts) + abs(left)
    if np.isfinite(scale):  # where a partial is not finite, the two conventions may differ
        assert abs(left - right) <= 1e-8 * scale
    second = vjp(backward, names)
    verify(second)


@settings(max_examples=60)
@given(SEEDS, COUNTS, st.booleans())
def test_native_code_is_the_oracle(seed: int, count: int, hostile: bool) -> None:
    g = random_graph(seed, count=count, indexed=True)
    whole = g if hostile else with_gradients(g)
    v = random_values(g, seed, hostile=hostile)
    v.update(fresh(whole, g, np.random.default_rng(seed)))
    want = evaluate(whole, v)
    # Beside a jump, or after a chain that magnifies, one rounding more or less tells nothing.
    nudged = evaluate(whole, {k: a * (1 + 1e-13) for k, a in v.items()})
    assume(stable(want, nudged))
    agree(run_compiled(whole, v), want, signs=False)


def stable(a: dict[str, Any], b: dict[str, Any]) -> bool:
    """Whether two evaluations differ by little, with NaN and infinities at the same places."""
    return all(np.allclose(a[k], b[k], rtol=1e-10, atol=1e-12, equal_nan=True) for k in a)


def test_a_row_that_leaves_the_step_is_stored_before_it_is_read_back() -> None:
    """A size of 1 among the rows: its place is constant, and yet the read must not move up."""
    g = Graph()
    x, a = g.input("x", (4, 1, 3), f64), g.input("a", (4, 1, 1), f64)
    e = rlx.exp(x.sum(2).reshape(4, 1, 1))
    g.output("kept", e)
    g.output("y", rlx.broadcast_to(a * e, (4, 1, 3)))
    v = {k: np.random.default_rng(0).normal(size=n.shape) for k, n in g.inputs.items()}
    agree(run_compiled(g, v), evaluate(g, v))
