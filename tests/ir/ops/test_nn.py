"""Laws of layers and losses: derivatives of any order, explicit backwards, narrow floats."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlx_py.ir.base.types import bf16, f16, f32
from rlx_py.ir.graph.evaluate import evaluate
from rlx_py.ir.graph.graph import Graph
from rlx_py.ir.nodes.node import OPS
from rlx_py.passes.derive.check import check_grads
from rlx_py.passes.derive.vjp import vjp
from rlx_py.passes.rewrite.decompose import decompose
from support.layers import CASES, graph_of, normal, run, value


@pytest.mark.parametrize("name", CASES)
def test_derivatives_agree_with_differences_to_second_order(name: str) -> None:
    function, arrays = CASES[name]
    # A step of 1e-4 keeps the rounding of second differences below the tolerance.
    check_grads(graph_of(function, **arrays), arrays, order=2, samples=8, step=1e-4, rtol=1e-5,
                atol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_explicit_backwards_equal_the_derivative_of_the_decomposition(name: str) -> None:
    function, arrays = CASES[name]
    g = graph_of(function, **arrays)
    ct = {"ct_y": normal(*g.outputs["y"].shape, seed=5)}
    explicit = evaluate(vjp(g, list(arrays)), {**arrays, **ct})
    expanded = evaluate(vjp(decompose(g), list(arrays)), {**arrays, **ct})
    for key, found in explicit.items():
        np.testing.assert_allclose(found, expanded[key], rtol=1e-9, atol=1e-12, err_msg=key)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [f32, bf16], ids=str)
def test_native_code_equals_the_reference(name: str, dtype: Any) -> None:
    function, arrays = CASES[name]
    narrow = {k: a.astype(dtype.numpy) for k, a in arrays.items()}
    g = graph_of(function, **narrow)
    y = g.outputs["y"]
    back = vjp(g, list(narrow))
    run(back.derive({**back.outputs, "y": y}),
        {**narrow, "ct_y": normal(*y.shape, seed=5).astype(y.dtype.numpy)})


@pytest.mark.parametrize("name", [n for n in CASES if "norm" in n or "softmax" in n])
def test_third_order(name: str) -> None:
    function, arrays = CASES[name]
    wrt = next(iter(arrays))
    g = graph_of(function, **arrays)
    second = vjp(vjp(g, wrt), wrt)
    values = {**arrays, **{k: normal(*n.shape, seed=7) for k, n in second.leaves.items()
                           if k not in arrays}}
    check_grads(second, values, wrt=wrt, order=1, samples=4, step=1e-4, rtol=1e-4, atol=1e-4)


def test_backward_ops_carry_every_attribute_of_their_forward() -> None:
    for forward, arrays in CASES.values():
        g = graph_of(forward, **arrays)
        before = {n.op.name: n for n in g.nodes}
        for node in vjp(g, list(arrays)).nodes:
            name = node.op.name.split("_backward")[0]
            if node.op.name != name and name in before:
                assert before[name].attrs.items() <= node.attrs.items()


@pytest.mark.parametrize("name", [n for n in CASES if n != "embedding"])
@pytest.mark.parametrize("dtype", [f32, f16, bf16], ids=str)
def test_narrow_floats_compute_wide(name: str, dtype: Any) -> None:
    """The value is that of f64 on the same rounded inputs, to the spacing of the type."""
    function, arrays = CASES[name]
    narrow = {k: a.astype(dtype.numpy) for k, a in arrays.items()}
    g = Graph()
    inputs = {k: g.input(k, a.shape, dtype) for k, a in narrow.items()}
    y = g.output("y", function(**inputs))
    exact = value(function, **{k: a.astype(np.float64) for k, a in narrow.items()})
    found = evaluate(g, narrow)["y"].astype(np.float64)
    # A bias that is added, or rows that are averaged, round again.
    eps = {f32: 2e-6, f16: 3e-3, bf16: 2e-2}[dtype]
    if y.dtype is dtype:
        np.testing.assert_allclose(found, exact, rtol=eps, atol=eps * np.max(np.abs(exact)))


def test_every_composite_here_is_registered_once() -> None:
    for name in ("conv", "conv_backward_input", "conv_backward_weight", "layer_norm_backward",
                 "rms_norm_backward", "softmax_backward", "log_softmax_backward",
                 "max_pool_backward", "avg_pool_backward", "softmax_cross_entropy_backward"):
        assert OPS[name].decompose is not None
