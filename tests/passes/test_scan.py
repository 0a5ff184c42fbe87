"""scan: values, every derivative and every checkpoint, by the oracle, the loop programs and native
code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx_py as rlx
from rlx_py.ir.graph.evaluate import evaluate
from support.control import (
    agree,
    check_modes,
    close,
    compiled,
    extended,
    feed_of,
    floats,
    loops,
    recurrent,
    same_bits,
    written_out,
)

CHECKPOINTS: list[Any] = [None, "sqrt", rlx.every(1), rlx.every(2), rlx.every(3), rlx.count(0),
                          rlx.count(2), rlx.budget(0), rlx.budget(150), rlx.budget(10**9)]
F32, F64 = rlx.f32, rlx.f64
directions = pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])


# ---- lengths, directions, checkpoints --------------------------------------------------------


@directions
@pytest.mark.parametrize("steps", [0, 1, 2, 5])
def test_values_and_gradients_of_each_length(steps: int, reverse: bool) -> None:
    for dtype in (F64, F32):
        g = recurrent(steps, dtype, reverse=reverse)
        feed = feed_of(g)
        agree(g, feed, slow=True)
        agree(rlx.value_and_grad(g, "loss", floats(g)), feed, slow=True)
    g = recurrent(steps, reverse=reverse)
    feed = feed_of(g)
    check_modes(g, feed)
    if steps:
        rlx.check_grads(g, feed, of="loss", wrt=floats(g), order=2)


@directions
@pytest.mark.parametrize("steps", [1, 2, 5, 7, 16])
def test_checkpoints_keep_every_bit_of_values_and_gradients(steps: int, reverse: bool) -> None:
    def found(checkpoint: Any) -> Any:
        g = recurrent(steps, F32, reverse=reverse, checkpoint=checkpoint)
        return compiled(rlx.value_and_grad(g, "loss", floats(g)), feed_of(g))

    wanted = found(None)
    for checkpoint in CHECKPOINTS[1:]:
        same_bits(found(checkpoint), wanted)


@pytest.mark.parametrize("batch", [(), (3,)], ids=["vectors", "matrices"])
def test_checkpoints_keep_the_bits_of_deep_products(batch: tuple[int, ...]) -> None:
    """Products of slices that may be made for all steps at once."""
    def found(checkpoint: Any) -> Any:
        g = rlx.Graph()
        xs, h0 = g.param("xs", (7, *batch, 40)), g.param("h0", (*batch, 5))
        w, u = g.param("w", (5, 5)), g.param("u", (40, 5))
        h, ys = rlx.scan(lambda h, x: (rlx.tanh(h @ w + x @ u), (h @ w).sum() + x.sum()), h0, xs,
                         checkpoint=checkpoint)
        g.output("loss", (h * h).sum() + (ys * ys).sum())
        return compiled(rlx.value_and_grad(g, "loss"), feed_of(g, scale=0.2))

    wanted = found(None)
    for checkpoint in ("sqrt", rlx.every(3), rlx.count(0)):
        same_bits(found(checkpoint), wanted)


@pytest.mark.parametrize("checkpoint", CHECKPOINTS, ids=str)
def test_segments_in_both_modes_and_of_second_order(checkpoint: Any) -> None:
    g = recurrent(7, checkpoint=checkpoint)
    feed = feed_of(g)
    check_modes(g, feed)
    product = rlx.hvp(g, "loss", floats(g))
    given = extended(product, feed)
    found = agree(product, given)
    close(found, evaluate(rlx.hvp(recurrent(7), "loss", floats(g)), given))


def test_a_thousand_steps_and_a_hundred_thousand() -> None:
    def rotation(steps: int) -> rlx.Graph:
        g = rlx.Graph()
        a, c0 = g.param("a", (), F64), g.param("c0", (2,), F64)
        cos, sin = rlx.cos(a), rlx.sin(a)
        c, _ = rlx.scan(lambda c, _: (rlx.stack([c[0] * cos - c[1] * sin, c[0] * sin + c[1] * cos]),
                                      None), c0, length=steps)
        g.output("c", c)
        g.output("y", c[1])
        return g

    feed = {"a": np.float64(1e-4), "c0": np.array([1.0, 0.0])}
    for steps in (1000, 100_000):
        g = rotation(steps)
        angle = steps * 1e-4
        found = compiled(g, feed)
        np.testing.assert_allclose(found["c"], [np.cos(angle), np.sin(angle)], atol=1e-9)
        slope = compiled(rlx.grad(g, "y", "a"), feed)["grad_a"]
        np.testing.assert_allclose(slope, steps * np.cos(angle), rtol=1e-9)


def test_a_scan_is_the_steps_written_out() -> None:
    for reverse in (False, True):
        g, h = rlx.Graph(), rlx.Graph()
        for graph, loop in ((g, True), (h, False)):
            a, xs = graph.param("a", (3,), F64), graph.param("xs", (4, 3), F64)

            def body(c: Any, x: Any) -> Any:
                return {"p": rlx.sin(c["q"]) * x, "q": c["p"] + x}, c["p"] * c["q"] - x

            init: Any = {"p": a, "q": a * a}
            if loop:
                c, ys = rlx.scan(body, init, xs, reverse=reverse)
            else:
                c, listed = written_out(body, init, xs, 4, reverse)
                ys = rlx.stack(listed)
            graph.output("p", c["p"])
            graph.output("ys", ys)
            graph.output("loss", (c["q"] * c["p"]).sum() + (ys * ys).sum())
        feed = feed_of(g)
        for derive in (lambda g: g, lambda g: rlx.grad(g, "loss"), lambda g: rlx.hvp(g, "loss")):
            whole = derive(h)
            given = extended(whole, feed)
            close(agree(derive(g), given), evaluate(whole, given))


def test_case_c44() -> None:
    """x ← x², 5 steps, at 0.95: three derivatives of x³²."""
    g = rlx.Graph()
    x = g.param("x", (), F64)
    g.output("y", rlx.scan(lambda c, _: (c * c, None), x, length=5)[0])
    for wanted in (6.5250184, 212.9216538, 6723.8416999):
        derived = rlx.grad(g, "y", "x")
        found = agree(derived, {"x": np.float64(0.95)})
        np.testing.assert_allclose(found["grad_x"], wanted, rtol=1e-7)
        g = rlx.Graph()
        g.output("y", g.call(derived, x=g.param("x", (), F64)).grad_x)


def test_case_c52() -> None:
    """A GRU over 5 steps, vmapped over two sequences, is a loop over them."""
    g = rlx.Graph()
    xs, h0 = g.input("xs", (5, 3), F64), g.param("h0", (4,), F64)
    wi, wh = g.param("wi", (12, 3), F64), g.param("wh", (12, 4), F64)
    h, _ = rlx.scan(lambda h, x: (rlx.nn.gru_cell(x, h, wi, wh), None), h0, xs)
    g.output("loss", (h * h).sum())
    slopes = rlx.grad(g, "loss")
    feed = feed_of(rlx.vmap(slopes, {"xs": (0, 2)}))
    found = agree(rlx.vmap(slopes, {"xs": (0, 2)}), feed)
    for k in range(2):
        close({name: a[k] for name, a in found.items()},
              evaluate(slopes, {**feed, "xs": feed["xs"][k]}))


# ---- what goes in and comes out --------------------------------------------------------------


def three(g: rlx.Graph) -> tuple[Any, Any, Any]:
    return g.param("a", (3,), F64), g.param("x", (6, 3), F64), g.param("z", (3, 6), F64)


SLICES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "the same twice": lambda a, x, z: (x, x),
    "parts": lambda a, x, z: (x[1:5], x[2:]),
    "backwards": lambda a, x, z: (x[::-1], x),
    "transposed": lambda a, x, z: (z.T, x),
    "broadcast": lambda a, x, z: (rlx.broadcast_to(a, (6, 3)), x),
    "reshaped": lambda a, x, z: (x.reshape(3, 6)[:, :3], z[:, 1:4]),
    "computed": lambda a, x, z: (rlx.exp(x)[1:4], z[:, :3]),
    "strided": lambda a, x, z: (x[::2], z[:, 3:]),
    "constant": lambda a, x, z: (rlx.constant(np.arange(18.0).reshape(6, 3) / 9), x),
    "zeros": lambda a, x, z: (rlx.zeros_like(x), x),
}


@directions
@pytest.mark.parametrize("name", SLICES)
def test_sequences_that_are_parts_and_views_of_others(name: str, reverse: bool) -> None:
    g = rlx.Graph()
    a, x, z = three(g)
    c, ys = rlx.scan(lambda c, s: (c * s[0] + s[1], (s[0], s[1] * c)), a, SLICES[name](a, x, z),
                     reverse=reverse)
    for k, y in enumerate((c, *ys)):
        g.output(f"y{k}", y)
    agree(g, feed_of(g), slow=True)
    check_modes(g, feed_of(g))


RESULTS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "the carry": lambda a, c, x: (c, c),
    "the next carry": lambda a, c, x: (c * x, c * x),
    "the slice": lambda a, c, x: (c + x, x),
    "a number": lambda a, c, x: (c + x, 2.0),
    "from outside": lambda a, c, x: (c + x, a),
    "several alike": lambda a, c, x: (c + x, (c, c, x, x, a, a)),
    "no use of the slice": lambda a, c, x: (rlx.sin(c), c * a),
    "no use of the carry": lambda a, c, x: (x, x * a),
    "nothing": lambda a, c, x: (c, None),
    "a carry kept, a carry unused": lambda a, c, x: (c, x * 2),
    "the sum of a slice": lambda a, c, x: (c + x.sum(), (x.sum(), c.max())),
}


@directions
@pytest.mark.parametrize("name", RESULTS)
def test_bodies_that_give_what_they_were_given(name: str, reverse: bool) -> None:
    g = rlx.Graph()
    a, x, _ = three(g)
    body = RESULTS[name]
    c, ys = rlx.scan(lambda c, s: body(a, c, s), a, x, reverse=reverse)
    found = [] if ys is None else list(ys) if isinstance(ys, tuple) else [ys]
    for k, y in enumerate((c, *found)):
        g.output(f"y{k}", y)
    g.output("a_again", a + 1)
    agree(g, feed_of(g), slow=True)
    check_modes(g, feed_of(g))


def test_inits_and_results_that_others_use_too() -> None:
    """The init is read later, is a closed-over value, is given twice; results are outputs twice."""
    g = rlx.Graph()
    a, x, _ = three(g)
    e = rlx.exp(a)
    (c, d), ys = rlx.scan(lambda c, s: ((c[0] * e + a, c[1] - s), c[0] * a), (e, e), x)
    (again, _), more = rlx.scan(lambda c, s: ((c[0] + s, c[1]), c[0]), (c, e), ys)
    for k, y in enumerate((c, c, d, ys, e * 2, a, again, more[1:3], more)):
        g.output(f"y{k}", y)
    g.output("loss", (c * e).sum() + more.sum())
    feed = feed_of(g)
    agree(g, feed, slow=True)
    check_modes(g, feed)
    rlx.check_grads(g, feed, of="loss", order=2)
    assert loops(g) == 2


@pytest.mark.parametrize("dtype", [rlx.bf16, rlx.f16, F32, F64], ids=str)
def test_carries_of_every_type(dtype: Any) -> None:
    g = rlx.Graph()
    h, i = g.param("h", (5,), dtype), g.input("i", (5,), rlx.i32)
    b, xs = g.input("b", (5,), rlx.bool_), g.param("xs", (4, 5), dtype)

    def body(c: Any, x: Any) -> Any:
        after = {"h": rlx.tanh(c["h"] * 0.5 + x), "i": c["i"] * 2 + 1,
                 "b": rlx.logical_not(c["b"])}
        return after, (c["h"], c["i"], rlx.where(c["b"], x, c["h"]))

    c, ys = rlx.scan(body, {"h": h, "i": i, "b": b}, xs)
    for k, y in enumerate((*c.values(), *ys)):
        g.output(f"y{k}", y)
    feed = feed_of(g)
    agree(g, feed, slow=True)
    check_modes(g, feed, ["h", "xs"])


def test_scans_in_scans_and_one_after_the_other() -> None:
    g = rlx.Graph()
    a, xs = g.param("a", (3,), F64), g.param("xs", (4, 5, 3), F64)

    def outer(c: Any, x: Any) -> Any:
        c, ys = rlx.scan(lambda c, x: (c * 0.9 + x, c * x), c, x, reverse=True)
        return rlx.sin(c), ys.sum(0)

    for checkpoint in (None, rlx.every(3)):
        h = g.derive({})
        c, ys = rlx.scan(outer, a, xs, checkpoint=checkpoint)
        c, more = rlx.scan(lambda c, x: (c + x * c, c), c, ys, checkpoint=checkpoint)
        h.output("loss", (c * more).sum())
        feed = feed_of(h)
        agree(h, feed, slow=True)
        check_modes(h, feed)
        rlx.check_grads(h, feed, of="loss", order=2)
        product = rlx.hvp(h, "loss")
        agree(product, extended(product, feed))


def test_what_comes_out_of_a_loop_of_one_step_is_made_primitive() -> None:
    """Segments leave one step over, whose body holds a rule and a loop."""
    square = rlx.custom_vjp(lambda x: x * x, lambda x: (x * x, x), lambda x, ct: (3 * ct * x,))
    g = rlx.Graph()
    c0, xs = g.param("c", (3,), F64), g.param("xs", (5, 2, 3), F64)
    c, ys = rlx.scan(lambda c, x: rlx.scan(lambda a, b: (square(a) * 0.1 + b, a), c, x), c0, xs,
                     checkpoint=rlx.every(2))
    g.output("loss", (c * c).sum() + ys.sum())
    for h in (g, rlx.grad(g, of="loss"), rlx.hvp(g, of="loss")):
        agree(h, extended(h, feed_of(g)), slow=True)


def test_call_binds_every_leaf_and_names_what_is_not() -> None:
    sub = rlx.Graph("square")
    sub.output("y", sub.input("x", (2,)) * sub.param("w", (2,)))
    ones = rlx.ones((2,))
    g = rlx.Graph()
    twice, _ = rlx.scan(lambda c, _: (rlx.call(sub, x=c, w=ones * 2).y, None), ones, length=3)
    g.output("y", twice)
    assert rlx.compile(g)().y.tolist() == [8, 8]
    with pytest.raises(rlx.ArgumentError, match=r"\['w'\] are not bound\n  at .*test_scan"):
        rlx.call(sub, x=ones)
    with pytest.raises(rlx.ArgumentError, match="no input, param or state 'z'"):
        rlx.call(sub, x=ones, w=ones, z=ones)


@pytest.mark.parametrize("checkpoint", ["sqrt", rlx.every(1), rlx.every(4), rlx.count(2)])
def test_a_value_handed_in_twice_is_summed_once(checkpoint: Any) -> None:
    def gradient(kept: Any) -> rlx.Graph:
        g = rlx.Graph("twice")
        x, w = g.input("x", (7, 3)), g.param("w", (3,))
        h, ys = rlx.scan(lambda h, a: (rlx.tanh(h * rlx.exp(w) + a), h * rlx.exp(w) + rlx.sin(w)),
                         rlx.zeros((3,)), x, checkpoint=kept)
        g.output("loss", (ys * ys).sum() + h.sum())
        return rlx.grad(g, of="loss")

    rng = np.random.default_rng(5)
    arrays = {"x": rng.normal(size=(7, 3)).astype(np.float32),
              "w": rng.normal(size=3).astype(np.float32)}
    want = rlx.compile(gradient(None))(**arrays).grad_w
    assert rlx.compile(gradient(checkpoint))(**arrays).grad_w.tobytes() == want.tobytes()
