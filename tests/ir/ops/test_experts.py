"""The mixture of experts as a whole: against NumPy, at its edges, and in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx_py as rlx
from rlx_py import nn
from rlx_py.ir.graph.evaluate import evaluate
from rlx_py.ir.ops.nn.grouped import cut
from rlx_py.ir.ops.nn.moe import COUNTING_SORT

Array = np.ndarray[Any, Any]


def mixture(t: int, k: int, e: int, d: int, n: int, dtype: Any = rlx.f64) -> rlx.Graph:
    """Route, pack, multiply, combine."""
    g = rlx.Graph("mixture")
    x, p = g.param("x", (t, d), dtype), g.param("p", (t, e), dtype)
    w, b = g.param("w", (e, n, d), dtype), g.param("b", (e, n), dtype)
    idx = g.input("idx", (t, k), rlx.i32)
    plan = nn.expert_plan(idx, e)
    rows = nn.moe_gather(x, plan.packed_slot, plan.inverse)
    y = nn.grouped_linear_m(rows, w, plan.offsets, b)
    out = nn.moe_combine(y, nn.moe_route_weights(p, idx), plan.packed_slot, plan.inverse)
    g.output("out", out)
    g.output("loss", (out * out).sum())
    for name, part in plan._asdict().items():
        g.output(name, part)
    return g


def arrays_of(g: rlx.Graph, experts: int, unused: tuple[int, ...] = ()) -> dict[str, Array]:
    rng = np.random.default_rng(0)
    given = {k: rng.random(n.shape).astype(n.dtype.numpy) + 0.1 for k, n in g.params.items()}
    used = [e for e in range(experts) if e not in unused]
    return {**given, "idx": rng.choice(used, g.inputs["idx"].shape).astype(np.int32)}


def dense(x: Array, p: Array, w: Array, b: Array, idx: Array) -> Array:
    chosen = np.take_along_axis(p, idx, 1)
    gates = chosen / chosen.sum(1, keepdims=True)
    every = np.einsum("tknd,td->tkn", w[idx], x) + b[idx]
    return np.asarray(np.einsum("tk,tkn->tn", gates, every))


@pytest.mark.parametrize("t,k,e,d,n", [(37, 3, 5, 8, 6), (4, 1, 9, 3, 2), (16, 2, 1, 4, 4),
                                       (3, 4, 4, 2, 5)])
def test_a_mixture_is_each_tokens_own_products(t: int, k: int, e: int, d: int, n: int) -> None:
    g = mixture(t, k, e, d, n)
    feed = arrays_of(g, e, unused=(1,) if e > 1 else ())
    derived = rlx.value_and_grad(g, of="loss")
    found, native = evaluate(derived, feed), rlx.compile(derived)(**feed)
    np.testing.assert_allclose(found["out"], dense(**feed), rtol=1e-12)
    order = np.argsort(feed["idx"].ravel(), kind="stable")
    np.testing.assert_array_equal(found["packed_slot"], order)
    np.testing.assert_array_equal(found["inverse"][order], np.arange(t * k))
    counts = np.bincount(feed["idx"].ravel(), minlength=e)
    np.testing.assert_array_equal(found["offsets"], np.concatenate([[0], np.cumsum(counts)]))
    if e > 1:
        assert not found["grad_w"][1].any() and not native["grad_w"][1].any()
    for name, wanted in found.items():
        np.testing.assert_allclose(native[name], wanted, rtol=1e-10, atol=1e-12, err_msg=name)
    rlx.check_grads(g, feed, of="loss", order=2)


def test_an_unused_matrix_may_hold_anything() -> None:
    g = rlx.Graph()
    x, w = g.param("x", (3, 2)), g.param("w", (3, 2, 2))
    g.output("y", (nn.grouped_gemm_m(x, w, np.array([0, 2, 2, 3])) ** 2).sum())
    matrices = np.ones((3, 2, 2), np.float32)
    matrices[1] = np.nan
    derived = rlx.value_and_grad(g, of="y")
    for run in (lambda **a: evaluate(derived, a), rlx.compile(derived)):
        found = run(x=np.ones((3, 2), np.float32), w=matrices)
        assert found["y"] == 24
        np.testing.assert_array_equal(found["grad_w"], [[[8, 8]] * 2, [[0, 0]] * 2, [[4, 4]] * 2])


@pytest.mark.parametrize("sizes", [(5, 0, 0, 6), (1, 1, 1, 1), (40, 1, 1, 1), (0, 0, 13, 0),
                                   (7, 7, 7, 7)])
def test_every_row_has_a_place_in_few_blocks(sizes: tuple[int, ...]) -> None:
    rows, groups = sum(sizes), len(sizes)
    g = rlx.Graph()
    blocks = cut(g.input("offsets", (groups + 1,), rlx.i32), rows)
    for name in ("group", "rows", "place"):
        g.output(name, getattr(blocks, name))
    found = evaluate(g, {"offsets": np.cumsum([0, *sizes]).astype(np.int32)})
    assert found["group"].size <= 3 * groups
    used = found["rows"] >= 0
    np.testing.assert_array_equal(np.sort(found["rows"][used]), np.arange(rows))
    np.testing.assert_array_equal(found["rows"][found["place"]], np.arange(rows))
    np.testing.assert_array_equal(found["group"][found["place"] // blocks.size],
                                  np.repeat(np.arange(groups), sizes))


def test_memory_and_code_do_not_grow_with_rows_times_matrices() -> None:
    small, large = (rlx.compile(rlx.value_and_grad(mixture(t, 2, e, 64, 64, rlx.f32), of="loss"))
                    for t, e in ((64, 4), (1024, 16)))
    rows, weights = 2048 * 64 * 4, 16 * 64 * 64 * 4
    assert large.cost().arena_bytes < 20 * (rows + weights)  # of W[e] a row: 2048 times 16 KiB
    assert large.cost().kernels <= small.cost().kernels + 2


def test_a_token_without_weight_has_none() -> None:
    g = rlx.Graph()
    p = g.param("p", (2, 3), rlx.f64)
    weights = nn.moe_route_weights(p, np.array([[0, 1], [0, 2]]))
    g.output("w", weights)
    g.output("loss", (weights * np.array([[1.0, 2.0], [3.0, 4.0]])).sum())
    found = evaluate(rlx.value_and_grad(g, of="loss"),
                     {"p": np.array([[0.0, 0, 1], [0.25, 0, 0.75]])})
    np.testing.assert_allclose(found["w"], np.array([[0, 0], [0.25, 0.75]]))
    np.testing.assert_allclose(found["grad_p"], np.array([[0, 0, 0], [-0.75, 0, 0.25]]))


def test_plans_keep_the_type_of_the_choices() -> None:
    g = rlx.Graph()
    for dtype, expected in ((rlx.i32, rlx.i32), (rlx.i64, rlx.i64), (rlx.u8, rlx.i64)):
        plan = nn.expert_plan(g.input(f"i{dtype}", (4, 2), dtype), 3)
        assert [p.dtype for p in plan] == [expected] * 3
        assert [p.shape for p in plan] == [(8,), (8,), (4,)]


def test_choices_out_of_range_are_refused_or_taken_to_the_nearest() -> None:
    g = rlx.Graph()
    g.output("y", COUNTING_SORT(g.input("i", (3,), rlx.i64), size=2))
    choices = np.array([5, -3, 2**40])
    with pytest.raises(rlx.ArgumentError, match="out of range"):
        evaluate(g, {"i": choices})
    np.testing.assert_array_equal(rlx.compile(g)(i=choices).y, [1, 3, 1, 0, 2])


def test_what_experts_refuse() -> None:
    g = rlx.Graph()
    x, w, i = g.input("x", (6, 4)), g.input("w", (3, 5, 4)), g.input("i", (6,), rlx.i32)
    seven = g.input("j", (7,), rlx.i32)
    with pytest.raises(rlx.DTypeError):
        nn.expert_plan(x, 3)
    with pytest.raises(rlx.ArgumentError):
        nn.expert_plan(i, 0)
    with pytest.raises(rlx.ShapeError, match="whole number"):
        nn.moe_gather(x, seven, seven)
    with pytest.raises(rlx.ShapeError):
        nn.moe_gather(x, i, seven)
    with pytest.raises(rlx.ShapeError):
        nn.moe_combine(x, g.input("gates", (2, 2)), i, i)
    with pytest.raises(rlx.ShapeError, match="offsets"):
        nn.grouped_gemm_m(x, w, i)
    with pytest.raises(rlx.ShapeError, match="inputs"):
        nn.grouped_gemm_m(w[0], np.ones((3, 2, 3), np.float32), np.arange(4))
    with pytest.raises(rlx.ShapeError, match="bias"):
        nn.grouped_linear_m(x, w, np.array([0, 1, 2, 6]), np.ones((3, 4), np.float32))
    with pytest.raises(rlx.ShapeError):
        nn.moe_route_weights(x, i)
