"""cond: only the chosen branch is computed; derivatives, vmap, nesting and bad input."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx_py as rlx
from rlx_py.ir.graph.evaluate import evaluate
from support.control import (
    Array,
    agree,
    check_modes,
    close,
    compiled,
    extended,
    feed_of,
    loops,
    normal,
)

F32, F64 = rlx.f32, rlx.f64


def chosen(dtype: Any = F64) -> rlx.Graph:
    g = rlx.Graph("chosen")
    p, x, w = g.input("p", (), rlx.bool_), g.param("x", (3,), dtype), g.param("w", (3,), dtype)
    out = rlx.cond(p, lambda a: {"s": rlx.tanh(a) * w, "n": 3, "id": a},
                   lambda a: {"s": a * a, "n": 4, "id": w}, x)
    for name, y in out.items():
        g.output(name, y)
    g.output("loss", (out["s"] * out["id"]).sum())
    return g


def feeds(g: rlx.Graph) -> list[dict[str, Array]]:
    return [{**feed_of(g), "p": np.array(p)} for p in (True, False)]


@pytest.mark.parametrize("dtype", [F64, F32, rlx.bf16, rlx.f16], ids=str)
def test_values_and_both_modes(dtype: Any) -> None:
    g = chosen(dtype)
    for feed in feeds(g):
        assert agree(g, feed, slow=True)["n"] == (3 if feed["p"] else 4)
        agree(rlx.grad(g, "loss"), feed, slow=True)
        check_modes(g, feed, ["x", "w"])
        if dtype is F64:
            rlx.check_grads(g, feed, of="loss", order=2)
            agree(rlx.hvp(g, "loss"), extended(rlx.hvp(g, "loss"), feed))


def test_vmap_over_the_choice_and_over_the_rest() -> None:
    for derived in (chosen(), rlx.grad(chosen(), "loss")):
        for axes in ({"p": 0}, {"x": 0}, {"p": 0, "x": 1, "w": 0}):
            many = rlx.vmap(derived, {k: (a, 3) for k, a in axes.items()})
            feed = feed_of(many)
            if "p" in axes:
                feed["p"] = np.array([True, False, True])
            found = agree(many, feed)
            for k in range(3):
                one = {n: np.take(a, k, axes[n]) if n in axes else a for n, a in feed.items()}
                close({n: a[k] for n, a in found.items()}, evaluate(derived, one))


def test_only_the_chosen_branch_is_computed() -> None:
    """Its gradient too: what the other one would give is infinite, and takes much longer."""
    g = rlx.Graph()
    p, x = g.input("p", (), rlx.bool_), g.param("x", (2,), F64)
    g.output("loss", rlx.cond(p, lambda a: rlx.sqrt(a).sum(), lambda a: a.sum(), x))
    slopes = rlx.grad(g, "loss", singular="ieee")
    zeros = np.zeros(2)
    assert np.isinf(agree(slopes, {"p": np.array(True), "x": zeros})["grad_x"]).all()
    assert (agree(slopes, {"p": np.array(False), "x": zeros})["grad_x"] == 1).all()
    # A branch that never ends would be seen.
    endless = rlx.Graph()
    q, y = endless.input("q", (), rlx.bool_), endless.input("y", ())
    endless.output("z", rlx.cond(
        q, lambda a: rlx.while_loop(lambda c: rlx.equal(c, c), lambda c: c, a), lambda a: a, y))
    assert compiled(endless, {"q": np.array(False), "y": np.float32(2)})["z"] == 2


BRANCHES: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "the same values": (lambda a, b: (a, b), lambda a, b: (b, a)),
    "an argument twice": (lambda a, b: (a, a), lambda a, b: (b, b)),
    "constants": (lambda a, b: (rlx.zeros_like(a), b), lambda a, b: (a, rlx.ones_like(b))),
    "products": (lambda a, b: (a @ b, a), lambda a, b: (a.T, b @ a.T)),
    "sums": (lambda a, b: (rlx.softmax(a, 0), b - b.sum(0)), lambda a, b: (a + b[::-1], b)),
    "nothing in common": (lambda a, b: (a * 2, a * 2), lambda a, b: (b * 3, rlx.exp(b))),
}


@pytest.mark.parametrize("name", BRANCHES)
def test_branches_that_pass_values_on(name: str) -> None:
    g = rlx.Graph()
    p, a = g.input("p", (), rlx.bool_), g.param("a", (3, 3), F64)
    b = g.param("b", (3, 3), F64)
    then, orelse = BRANCHES[name]
    first, second = rlx.cond(p, then, orelse, rlx.sin(a), b)
    for k, y in enumerate((first, second, first, a, second * a)):
        g.output(f"y{k}", y)
    for feed in feeds(g):
        agree(g, feed, slow=True)
        check_modes(g, feed)


def test_a_choice_of_what_is_in_a_state(tmp_path: Path) -> None:
    """Every third step adds up differently; as a file too."""
    g = rlx.Graph()
    x, n, s = g.input("x", (3,)), g.state("n", (), rlx.i32), g.state("s", (3,), init=1.0)
    after = rlx.cond(rlx.equal(n % 3, 0), lambda s: s * 2, lambda s: s + x, s)
    g.next("s", after)
    g.next("n", n + 1)
    g.output("before", s + 0)
    exe = rlx.compile(g, threads=1)
    for run in (exe, rlx.load(exe.export(tmp_path / "choice", "shared"))):
        state = run.init({})
        wanted = np.ones(3, np.float32)
        for k in range(7):
            x_now = normal(3, seed=k, dtype=np.float32)
            np.testing.assert_allclose(run.step(state, x=x_now).before, wanted, rtol=1e-6)
            wanted = wanted * 2 if k % 3 == 0 else wanted + x_now
        np.testing.assert_allclose(state.states["s"], wanted, rtol=1e-6)


def test_choices_in_choices_and_of_numbers() -> None:
    g = rlx.Graph()
    x, w = g.param("x", (), F64), g.param("w", (), F64)
    out = rlx.cond(x > 0, lambda: rlx.cond(x > 1, lambda: x * w, lambda: x + w),
                   lambda: rlx.while_loop(lambda c: c < 1, lambda c: c + w * w, x, max_steps=50))
    g.output("y", out)
    for value in (2.0, 0.5, -1.0):
        feed = {"x": np.array(value), "w": np.array(0.7)}
        agree(g, feed, slow=True)
        rlx.check_grads(g, feed, of="y", order=2)
    assert loops(g) == 3


def test_unused_results_and_arguments_are_dropped() -> None:
    g = rlx.Graph()
    p, x, y = g.input("p", (), rlx.bool_), g.param("x", (400, 400)), g.param("y", (2,))
    out = rlx.cond(p, lambda a, b: (a @ a, b * 2), lambda a, b: (a, b), x, y)
    g.output("y", out[1])
    assert rlx.compile(g).cost().flops < 100


def test_text_and_counts_of_singular_points() -> None:
    g = rlx.Graph()
    x = g.param("x", (2,), F64)
    g.output("loss", rlx.cond(x.sum() > 0, lambda c: (rlx.sqrt(c) * rlx.stop_gradient(c)).sum(),
                              lambda c: c.sum(), x))
    assert str(rlx.parse(str(g))) == str(g)
    reported = rlx.grad(g, "loss", singular="report")
    for value, count in ((1.0, 1), (-1.0, 0)):
        feed = {"x": np.array([0.0, value])}
        agree(reported, feed)
        assert sum(t.count for t in rlx.singular_report(reported, feed)) == count


BAD: list[tuple[str, type[Exception], str, Callable[[], Any]]] = [
    ("no bool", rlx.ShapeError, r"pred is one bool, not f32\[\]",
     lambda: rlx.cond(rlx.zeros(()), lambda: 1.0, lambda: 2.0)),
    ("not one", rlx.ShapeError, r"pred is one bool, not bool\[2\]",
     lambda: rlx.cond(rlx.zeros(2) > 0, lambda: 1.0, lambda: 2.0)),
    ("shapes", rlx.ShapeError, r"orelse gives .*f32\[3\].*then.*f32\[2\]",
     lambda: rlx.cond(rlx.constant(True), lambda: rlx.zeros(2), lambda: rlx.zeros(3))),
    ("dtypes", rlx.ShapeError, r"orelse gives .*i32\[\].*then.*f32\[\]",
     lambda: rlx.cond(rlx.constant(True), lambda: rlx.zeros(()), lambda: rlx.constant(1, rlx.i32))),
    ("nesting", rlx.ShapeError, "orelse gives",
     lambda: rlx.cond(rlx.constant(True), lambda: (1.0,), lambda: 1.0)),
]


@pytest.mark.parametrize(("error", "match", "call"), [row[1:] for row in BAD],
                         ids=[row[0] for row in BAD])
def test_bad_input_names_the_place(error: type[Exception], match: str,
                                   call: Callable[[], Any]) -> None:
    with pytest.raises(error, match=match) as caught:
        call()
    assert "test_cond.py" in str(caught.value)
