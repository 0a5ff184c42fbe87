"""Derivatives of every op of the registry: transposition, central differences, second order."""

from __future__ import annotations

import numpy as np
import pytest

from rlx_py.ir.base.types import f64
from rlx_py.ir.graph.graph import Graph
from rlx_py.ir.nodes.node import Op
from support.samples import SAMPLES
from support.samples.sample import Sample
from support.sweep import Along

SMOOTH = [s for s in SAMPLES if s.differentiable]


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(11)


def test_no_differentiable_op_is_left_out() -> None:
    checked = {s.op.name for s in SMOOTH}
    assert not {s.op.name for s in SAMPLES if s.op.differentiable} - checked - {"cast"}


@pytest.mark.parametrize("s", SMOOTH, ids=str)
def test_two_orders_of_both_modes_are_central_differences(s: Sample,
                                                          rng: np.random.Generator) -> None:
    first = Along(s.graph(), s.feed(), rng)
    first.check_transpose()
    first.check_differences()
    second = Along(first.backward, {**first.feed, **first.cts}, rng)
    second.check_transpose()
    second.check_differences()


def test_a_wrong_rule_is_seen(rng: np.random.Generator) -> None:
    """Both modes agree on half of the derivative of x²."""
    half = Op("half", lambda x: x, lambda x: x * x,
              vjp=lambda node, ct, ad: (ct * node.inputs[0],),
              jvp=lambda node, ts, ad: ts[0] * node.inputs[0])
    g = Graph()
    g.output("y", half(g.input("x", (3,), f64)))
    along = Along(g, {"x": rng.standard_normal(3)}, rng)
    along.check_transpose()
    with pytest.raises(AssertionError):
        along.check_differences()
