"""Recurrent cells, scans and layers: their shape, laws of high order, vmap, and bad input."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import rlx_py as rlx
from rlx_py import nn
from rlx_py.ir.graph.evaluate import evaluate
from rlx_py.ir.nodes.node import OPS, Node
from support.sweep import assert_near

Array = np.ndarray[Any, Any]
GATES = {"rnn": 1, "gru": 3, "lstm": 4}
kinds = pytest.mark.parametrize("kind", GATES)


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng([seed, *shape]).standard_normal(shape)


def logistic(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def numpy_step(kind: str, gi: Array, state: tuple[Array, ...], w: Array, b: Array
               ) -> tuple[Array, ...]:
    gh = state[0] @ w.T + b
    if kind == "rnn":
        return (np.tanh(gi + gh),)
    if kind == "gru":
        (ir, iz, ic), (hr, hz, hc) = np.split(gi, 3, -1), np.split(gh, 3, -1)
        r, z = logistic(ir + hr), logistic(iz + hz)
        return ((1 - z) * np.tanh(ic + r * hc) + z * state[0],)
    i, f, g, o = np.split(gi + gh, 4, -1)
    c = logistic(f) * state[1] + logistic(i) * np.tanh(g)
    return logistic(o) * np.tanh(c), c


def scan_graph(kind: str, b: int, s: int, h: int, reverse: bool = False, *,
               bias: bool = True) -> rlx.Graph:
    g = rlx.Graph(kind)
    gates = g.param("gates", (b, s, GATES[kind] * h), rlx.f64)
    w = g.param("w", (GATES[kind] * h, h), rlx.f64)
    beside = g.param("b", (GATES[kind] * h,), rlx.f64) if bias else None
    first = [g.param(k, (b, h), rlx.f64) for k in ("h0", "c0")[:1 + (kind == "lstm")]]
    y, last = getattr(nn, f"{kind}_scan")(gates, tuple(first) if kind == "lstm" else first[0], w,
                                          beside, reverse)
    last = last if isinstance(last, tuple) else (last,)
    g.output("y", y)
    for i, x in enumerate(last):
        g.output(f"last{i}", x)
    g.output("loss", (y * y * normal(*y.shape)).sum()
             + sum((rlx.sin(x) * normal(*x.shape, seed=1 + i)).sum() for i, x in enumerate(last)))
    return g


def arrays_of(g: rlx.Graph) -> dict[str, Array]:
    return {k: normal(*n.shape, seed=i) / 2
            for i, (k, n) in enumerate({**g.inputs, **g.params}.items())}


@kinds
@pytest.mark.parametrize("steps", [0, 1, 2, 5])
@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan_is_its_steps(kind: str, steps: int, reverse: bool) -> None:
    g = scan_graph(kind, 3, steps, 2, reverse)
    feed = arrays_of(g)
    state = tuple(feed[k] for k in ("h0", "c0") if k in feed)
    y = np.zeros((3, steps, 2))
    for t in reversed(range(steps)) if reverse else range(steps):
        state = numpy_step(kind, feed["gates"][:, t], state, feed["w"], feed["b"])
        y[:, t] = state[0]
    found = evaluate(g, feed)
    np.testing.assert_allclose(found["y"], y, rtol=1e-13, atol=1e-14)
    for i, x in enumerate(state):
        np.testing.assert_allclose(found[f"last{i}"], x, rtol=1e-13, atol=1e-14)
    rlx.check_grads(g, feed, of="loss", order=2)


@kinds
def test_four_orders_are_differences_of_the_order_below(kind: str) -> None:
    g = scan_graph(kind, 1, 2, 1)
    feed = arrays_of(g)
    for order in (3, 4):
        g = g.derive({"loss": directional(rlx.grad(g, of="loss"), order)})
        rlx.check_grads(g, feed, of="loss", order=1)


def directional(g: rlx.Graph, seed: int) -> Node:
    """The slope of a gradient's graph along one direction."""
    terms = [(n * normal(*n.shape, seed=seed + i)).sum()
             for i, n in enumerate(g.outputs.values())]
    return sum(terms[1:], terms[0])


def test_the_backward_op_is_that_of_the_first_order() -> None:
    for kind in GATES:
        names = {n.op.name for n in rlx.grad(scan_graph(kind, 2, 3, 2), of="loss").nodes}
        assert f"{kind}_scan_backward" in names and "scan" not in names


@kinds
def test_size_does_not_grow_with_the_steps(kind: str) -> None:
    few, many = (len(rlx.decompose(rlx.grad(scan_graph(kind, 2, s, 3), of="loss")).nodes)
                 for s in (3, 300))
    assert few == many


@kinds
def test_both_passes_share_one_scan(kind: str) -> None:
    """The backward pass reads what the forward one made; nothing runs again."""
    whole = rlx.value_and_grad(scan_graph(kind, 2, 4, 3), of="loss")
    scans = [n for n in rlx.simplify(rlx.decompose(whole)).nodes if n.op is OPS["scan"]]
    assert len(scans) == 2


def test_vmap_of_a_gru_is_a_loop() -> None:  # C52: GRU(3→4), five steps, vmapped over 2 inputs
    g = rlx.Graph("gru")
    x = g.param("x", (5, 3), rlx.f64)
    h0 = g.param("h0", (1, 4), rlx.f64)
    weights = [g.param("wi", (12, 3), rlx.f64), g.param("wh", (12, 4), rlx.f64),
               g.param("bi", (12,), rlx.f64), g.param("bh", (12,), rlx.f64)]
    y, last = nn.gru(x, h0, [weights])
    g.output("y", y)
    g.output("last", last)
    g.output("loss", (y * normal(5, 4)).sum() + (last ** 2).sum())
    whole = rlx.value_and_grad(g, of="loss")
    feed = arrays_of(g)
    for axes in ({"x": 0}, {"x": 0, "h0": 0}, {"wh": 0}, {"x": 0, "bh": 0}):
        many = {k: np.stack([v, -2 * v]) for k, v in feed.items() if k in axes}
        each = [evaluate(whole, {**feed, **{k: v[i] for k, v in many.items()}}) for i in range(2)]
        batched = rlx.vmap(whole, axes, size=2)
        found = evaluate(batched, {**feed, **many})
        assert_near(dict(rlx.compile(batched)(**{**feed, **many})), found, "native code", 10)
        summed = rlx.grad(_sum_of(rlx.vmap(g, axes, size=2)), of="loss")
        gradients = evaluate(summed, {**feed, **many})
        for name in each[0]:
            looped = np.stack([e[name] for e in each])
            np.testing.assert_allclose(found[name], looped, rtol=1e-12, atol=1e-13)
            if name.startswith("grad_"):
                wanted = looped if name[5:] in axes else looped.sum(0)
                np.testing.assert_allclose(gradients[name], wanted, rtol=1e-12, atol=1e-13)


def _sum_of(g: rlx.Graph) -> rlx.Graph:
    return g.derive({"loss": g.outputs["loss"].sum()})


def test_vmap_keeps_the_backward_op() -> None:
    g = _sum_of(rlx.vmap(scan_graph("gru", 2, 3, 2), {"gates": 0, "h0": 0}, size=2))
    assert "gru_scan_backward" in {n.op.name for n in rlx.grad(g, of="loss").nodes}


@kinds
def test_long_sequences_are_the_oracle_in_native_code(kind: str) -> None:
    """Wide enough for products of several tiles, with one thread and two."""
    g = rlx.value_and_grad(scan_graph(kind, 5, 200, 40, True), of="loss")
    feed = {k: a / 4 for k, a in arrays_of(g).items()}
    wanted = evaluate(g, feed)
    for threads in (1, 2):
        assert_near(dict(rlx.compile(g, threads=threads)(**feed)), wanted, "native code", 100)


def test_no_first_state_is_zeros() -> None:
    x, weights = normal(4, 2, 3), [[normal(16, 3), normal(16, 4)]]
    g = rlx.Graph()
    for name, hx in (("none", None), ("zeros", (np.zeros((1, 2, 4)),) * 2)):
        y, (h, c) = nn.lstm(x, hx, weights)
        g.output(name, rlx.concatenate([y, h, c]))
    found = evaluate(g, {})
    np.testing.assert_array_equal(found["none"], found["zeros"])


def test_narrow_floats_round_once() -> None:
    g = rlx.Graph()
    x = [g.input(f"x{i}", s, rlx.bf16) for i, s in enumerate([(2, 9, 6), (6, 2), (2, 2)])]
    wide = [n.astype(rlx.f32) for n in x]
    g.output("y", nn.gru_scan(x[0], x[2], x[1])[0])
    g.output("wide", nn.gru_scan(wide[0], wide[2], wide[1])[0].astype(rlx.bf16))
    feed = {k: normal(*n.shape).astype(n.dtype.numpy) for k, n in g.inputs.items()}
    found = evaluate(g, feed)
    np.testing.assert_array_equal(found["y"], found["wide"])


BAD = [
    (lambda: nn.gru_scan(np.ones((2, 3, 7)), np.ones((2, 2)), np.ones((6, 2))), rlx.ShapeError,
     "gates must be"),
    (lambda: nn.gru_scan(np.ones((2, 6)), np.ones((2, 2)), np.ones((6, 2))), rlx.ShapeError,
     "gates must be"),
    (lambda: nn.gru_scan(np.ones((2, 3, 6)), np.ones((2, 2)), np.ones((6, 3))), rlx.ShapeError,
     "weight must have shape"),
    (lambda: nn.gru_scan(np.ones((2, 3, 6)), np.ones((2, 2)), np.ones((6, 2)), np.ones(2)),
     rlx.ShapeError, "bias must have shape"),
    (lambda: nn.gru_scan(np.ones((2, 3, 6)), np.ones((3, 2)), np.ones((6, 2))), rlx.ShapeError,
     "a state must have shape"),
    (lambda: nn.rnn_step(np.ones((2, 2), int), np.ones((2, 2), int), np.ones((2, 2), int)),
     rlx.DTypeError, "float"),
    (lambda: nn.lstm_step(np.ones((2, 8)), np.ones((2, 2)), np.ones((8, 2))), rlx.ArgumentError,
     "pair of states"),
    (lambda: nn.gru(np.ones((5, 2, 3)), None, []), rlx.ArgumentError, "weights hold"),
    (lambda: nn.gru(np.ones((5, 2, 3)), None, [[np.ones((6, 3))]]), rlx.ArgumentError,
     "weights hold"),
    (lambda: nn.gru(np.ones((5, 2, 3)), None, [[np.ones((6, 3)), np.ones((6, 2))]], True),
     rlx.ArgumentError, "and direction"),
    (lambda: nn.gru(np.ones(3), None, [[np.ones((6, 3)), np.ones((6, 2))]]), rlx.ShapeError,
     "the input is"),
    (lambda: nn.gru(np.ones((5, 2, 3)), np.ones((2, 2)), [[np.ones((6, 3)), np.ones((6, 2))]]),
     rlx.ShapeError, "a first state must have shape"),
    (lambda: nn.gru(np.ones((5, 2, 3)), None, [[np.ones((6, 3)), np.ones(6)]]), rlx.ShapeError,
     "w_hh is a matrix"),
    (lambda: nn.gru_cell(np.ones((2, 3)), np.ones((2, 2)), np.ones((6, 4)), np.ones((6, 2))),
     rlx.ShapeError, "inputs of"),
]


@pytest.mark.parametrize("call,error,message", BAD)
def test_bad_input_is_refused_at_the_users_line(call: Any, error: type[Exception],
                                                message: str) -> None:
    with pytest.raises(error, match=re.escape(message)) as caught:
        call()
    assert __file__ in str(caught.value)


@kinds
def test_no_rows_are_the_oracle_in_native_code(kind: str) -> None:
    """Stacks of many steps without elements."""
    g = rlx.value_and_grad(scan_graph(kind, 0, 4, 3), of="loss")
    feed = arrays_of(g)
    assert_near(dict(rlx.compile(g)(**feed)), evaluate(g, feed))
