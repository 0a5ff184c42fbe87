"""Structural ops as loop programs: what the interpreter runs is what NumPy gives."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import rlx_py.ir.ops.numpy.arrays as rnp
from rlx_py.ir.graph.evaluate import evaluate
from rlx_py.ir.graph.graph import Graph
from rlx_py.ir.loops.interpret import interpret
from rlx_py.ir.ops.primitive.movement import PAD
from rlx_py.passes.derive.vjp import vjp
from rlx_py.passes.lower.lower import lower
from rlx_py.passes.rewrite.decompose import decompose
from rlx_py.passes.rewrite.simplify import simplify
from support.laws import floats, graph_of, named
from tests.ir.test_structure import CASES, Array, Case, arrays_of


def check_lowered(graph: Graph, feed: dict[str, Array], tolerance: float = 1e-12) -> None:
    """The loops of the graph give what its nodes do."""
    expected = evaluate(graph, feed)
    found = interpret(lower(simplify(decompose(graph))), feed)
    for name, array in expected.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_allclose(found[name].astype(np.float64), array.astype(np.float64),
                                   rtol=tolerance, atol=tolerance, err_msg=name)


@pytest.mark.parametrize("c", CASES, ids=str)
def test_values(c: Case) -> None:
    arrays = arrays_of(c, np.random.default_rng(7))
    check_lowered(graph_of(c.ours, arrays), named(arrays))


@pytest.mark.parametrize("c", CASES, ids=str)
def test_fused_between_functions(c: Case) -> None:
    """Producers that do not keep 0 and consumers fuse around the op."""
    arrays = arrays_of(c, np.random.default_rng(7))
    graph = graph_of(lambda *xs: c.ours(*[x + 1 for x in xs]) * 2 - 1, arrays)
    check_lowered(graph, named(arrays))


@pytest.mark.parametrize("c", CASES, ids=str)
def test_gradients(c: Case) -> None:
    rng = np.random.default_rng(7)
    arrays = arrays_of(c, rng)
    graph = graph_of(c.ours, arrays)
    ct = rng.standard_normal(graph.outputs["y"].shape)
    check_lowered(vjp(graph, floats(arrays)), {**named(arrays), "ct_y": ct}, 1e-11)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8", "uint32"])
@pytest.mark.parametrize("c", [c for c in CASES if c.name in (
    "cumsum", "cumsum_both", "cumprod", "recurrence", "fold", "scatter_add", "scatter_along", "pad",
    "matmul_mixed", "take", "arrays", "sum_axes", "max_axis", "prod_axes")], ids=str)
def test_narrow_types(c: Case, dtype: str) -> None:
    element = np.dtype(ml_dtypes.bfloat16) if dtype == "bfloat16" else np.dtype(dtype)
    arrays = [np.abs(np.round(a * 3)).astype(np.float32).astype(element)
              for a in arrays_of(c, np.random.default_rng(7))]
    check_lowered(graph_of(c.ours, arrays), named(arrays), 1e-2)


def test_accumulators_are_read_where_they_stand() -> None:
    """What is summed does not depend on the axis, yet each running value differs."""
    x = np.arange(3, dtype=np.float16)
    g = graph_of(lambda n: rnp.cumsum(rnp.broadcast_to(rnp.expand_dims(n, 1), (3, 4)), 1), [x])
    check_lowered(g, {"x0": x})


@pytest.mark.parametrize("x", [
    [[1.0, np.nan, 3.0], [np.nan, np.nan, 0.0]], [[-np.inf] * 3, [np.inf] * 3],
    [[2.0, 2.0, 1.0], [0.0, -0.0, 0.0]]])
def test_extremes_and_their_positions(x: Any) -> None:
    array = np.array(x)
    for function in (rnp.max, rnp.min, rnp.argmax, rnp.argmin):
        for axis in (0, 1, None):
            check_lowered(graph_of(lambda n, f=function, a=axis: f(n, a), [array]), {"x0": array})


@pytest.mark.parametrize("mode", ["clip", "fill", "error"])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64"])
def test_no_wild_access(mode: str, dtype: str) -> None:
    """The interpreter refuses an access out of bounds; "error" means the nearest element here."""
    x, idx = np.arange(6.0).reshape(3, 2), np.array([2, 100, 0, -100 if dtype[0] == "i" else 200],
                                                    dtype)
    forward = graph_of(lambda n, i: rnp.take(n, i, 0, mode=mode), [x, idx])
    feed = {"x0": x, "x1": idx}
    found = interpret(lower(simplify(decompose(forward))), feed)["y"]
    nearest = x[np.clip(idx.astype(np.int64), 0, 2)]
    inside = ((idx >= 0) & (idx < 3))[:, None]
    expected = np.where(inside, nearest, 0) if mode == "fill" else nearest
    np.testing.assert_array_equal(found, expected)
    back = vjp(forward, ["x0"])
    ct = np.ones((4, 2))
    grad = interpret(lower(simplify(decompose(back))), {**feed, "ct_y": ct})["grad_x0"]
    places = idx[inside[:, 0]] if mode == "fill" else np.clip(idx.astype(np.int64), 0, 2)
    counts = np.bincount(places, minlength=3)
    np.testing.assert_array_equal(grad, np.repeat(counts, 2).reshape(3, 2))


@pytest.mark.parametrize("low", range(-3, 3))
@pytest.mark.parametrize("high", range(-3, 3))
@pytest.mark.parametrize("interior", range(3))
def test_pad_of_every_kind(low: int, high: int, interior: int) -> None:
    x, v = np.array([1.0, 2.0, 3.0]), np.array(9.0)
    spread = np.full(3 + 2 * interior, 9.0)
    spread[::interior + 1] = x
    framed = np.concatenate([np.full(max(low, 0), 9.0), spread[max(-low, 0):], np.full(
        max(high, 0), 9.0)])
    expected = framed[:len(framed) + min(high, 0)] if high < 0 else framed
    if len(spread) + low + high < 0:
        return
    g = graph_of(lambda n, f: PAD(n, f, low=(low,), high=(high,), interior=(interior,)), [x, v])
    if min(len(spread) + low, len(spread) + high) >= 0:
        np.testing.assert_array_equal(evaluate(g, named([x, v]))["y"], expected)
    check_lowered(g, named([x, v]))
    ct = np.arange(1.0, 1 + g.outputs["y"].size)
    check_lowered(vjp(g, ["x0", "x1"]), {**named([x, v]), "ct_y": ct})
