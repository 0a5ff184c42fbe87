"""while_loop: values, both modes, vmap where elements stop at different steps, and bounds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx_py as rlx
from rlx_py.backends.llvm.backend import program_for
from rlx_py.backends.llvm.targets import host
from rlx_py.ir.graph.evaluate import evaluate
from support.control import (
    agree,
    check_modes,
    close,
    compiled,
    extended,
    feed_of,
    normal,
    same_bits,
)

F32, F64, I32 = rlx.f32, rlx.f64, rlx.i32


def zero() -> Any:
    return rlx.constant(0, I32)


def growing(max_steps: int | None = 20) -> rlx.Graph:
    """c ← c y + x until Σ c² is 10."""
    g = rlx.Graph("growing")
    x, y = g.param("x", (2,), F64), g.param("y", (), F64)
    c, n = rlx.while_loop(lambda c: (c * c).sum() < 10, lambda c: c * y + x, x, max_steps,
                          return_steps=True)
    g.output("c", c)
    g.output("n", n)
    g.output("loss", (c * c * c).sum())
    return g


POINT = {"x": np.array([0.5, 0.7]), "y": np.array(1.3)}


@pytest.mark.parametrize("dtype", [F64, F32], ids=str)
def test_case_c51(dtype: Any) -> None:
    g = rlx.Graph()
    x = g.param("x", (), dtype)
    i, c, b = rlx.while_loop(lambda s: s[0] < 3,
                             lambda s: (s[0] + 1, s[1] * x, rlx.logical_not(s[2])),
                             (zero(), rlx.constant(1, dtype), rlx.constant(True)), max_steps=10)
    for name, y in {"i": i, "c": c, "b": b}.items():
        g.output(name, y)
    feed = {"x": np.array(2, dtype.numpy)}
    found = agree(g, feed, slow=True)
    assert (found["i"], found["c"], found["b"]) == (3, 8, False)
    assert agree(rlx.grad(g, "c", "x"), feed, slow=True)["grad_x"] == 12
    product = rlx.hvp(g, "c", "x")
    assert agree(product, {**feed, "v_x": np.ones((), dtype.numpy)})["hvp_x"] == 12


@pytest.mark.parametrize("start", [0.05, 0.5, 3.0], ids=["many steps", "some steps", "no step"])
def test_both_modes_and_the_second_order(start: float) -> None:
    g = growing()
    feed = {"x": np.array([start, start / 2]), "y": np.array(1.3)}
    found = agree(g, feed, slow=True)
    assert (found["n"] == 0) == (start == 3.0)
    check_modes(g, feed)
    rlx.check_grads(g, feed, of="loss", order=2)
    for derived in (rlx.grad(g, "loss"), rlx.hvp(g, "loss")):
        agree(derived, extended(derived, feed), slow=True)


def test_without_bound_forward_mode_of_any_order() -> None:
    g = growing(None)
    first = rlx.jvp(g)
    second = rlx.jvp(first, ["x", "y"])
    given = extended(second, POINT)
    found = agree(second, given, slow=True)
    bounded = rlx.jvp(rlx.jvp(growing()), ["x", "y"])
    close(found, evaluate(bounded, given))
    with pytest.raises(rlx.NotDifferentiable, match=r"(?s)without max_steps has no reverse mode"
                                                    r".*test_while.py"):
        rlx.grad(g, "loss")


def test_a_bound_that_is_too_low_is_told() -> None:
    """NaN in every float of the result and of its derivatives; the count tells integers too."""
    g = rlx.Graph()
    x = g.param("x", (2,), F64)
    (c, k), n = rlx.while_loop(lambda c: (c[0] * c[0]).sum() < 1000, lambda c: (c[0] * 2, c[1] + 1),
                               (x, zero()), max_steps=3, return_steps=True)
    for name, y in {"c": c, "k": k, "n": n, "loss": c.sum()}.items():
        g.output(name, y)
    low = agree(g, {"x": np.ones(2)}, slow=True)
    assert np.isnan(low["c"]).all() and (low["k"], low["n"]) == (3, 3)
    assert np.isnan(agree(rlx.grad(g, "loss"), {"x": np.ones(2)})["grad_x"]).all()
    # 3 steps that are enough are not too many.
    enough = agree(g, {"x": np.full(2, 4.0)}, slow=True)
    assert np.isfinite(enough["c"]).all() and enough["n"] == 3
    np.testing.assert_array_equal(
        agree(rlx.grad(g, "loss"), {"x": np.full(2, 4.0)})["grad_x"], [8, 8])
    none = rlx.Graph()
    none.output("c", rlx.while_loop(lambda c: c.sum() < 1, lambda c: c + 1, none.param("x", (2,)),
                                    max_steps=0))
    assert np.isnan(agree(none, {"x": np.zeros(2, np.float32)})["c"]).all()
    assert agree(none, {"x": np.ones(2, np.float32)})["c"].all()


@pytest.mark.parametrize("bound", [None, 12], ids=["unbounded", "bounded"])
def test_vmap_where_elements_stop_at_different_steps(bound: int | None) -> None:
    g = growing(bound)
    derived = [g] if bound is None else [g, rlx.grad(g, "loss"), rlx.jvp(g)]
    for one in derived:
        many = rlx.vmap(one, {"x": (0, 4), "y": 0})
        feed = extended(many, {"x": np.abs(normal(4, 2)), "y": np.array([1.3, 1.1, 2, 5])})
        found = agree(many, feed, slow=True)
        if "n" in found:
            assert len(set(found["n"].tolist())) > 1
        for k in range(4):
            alone = {name: a[k] if name in ("x", "y") else a for name, a in feed.items()}
            close({name: a[k] for name, a in found.items()}, evaluate(one, alone))
    nested = rlx.vmap(rlx.vmap(g, {"x": (0, 3)}), {"x": (1, 2)})
    agree(nested, {"x": np.abs(normal(3, 2, 2)), "y": np.array(1.4)})
    if bound is not None:
        check_modes(rlx.vmap(g, {"x": (0, 3)}), {"x": np.abs(normal(3, 2)), "y": np.array(1.4)})


def test_only_the_steps_taken_are_differentiated() -> None:
    """Steps after the last one would give infinite partials."""
    g = rlx.Graph()
    x = g.param("x", (), F64)
    _, c = rlx.while_loop(lambda s: s[0] < 2, lambda s: (s[0] + 1, rlx.sqrt(s[1] - 1)),
                          (zero(), x), max_steps=50)
    g.output("y", c)
    found = agree(rlx.grad(g, "y"), {"x": np.array(10.0)})
    np.testing.assert_allclose(found["grad_x"], 1 / (4 * 3 * np.sqrt(2)))


def test_singular_points_are_counted_over_the_steps_taken() -> None:
    g = rlx.Graph()
    x = g.param("x", (2,), F64)
    c = rlx.while_loop(lambda c: c.sum() < 5, lambda c: c + rlx.sqrt(x) * rlx.stop_gradient(x) + 1,
                       x, max_steps=9)
    g.output("loss", c.sum())
    reported = rlx.grad(g, "loss", singular="report")
    feed = {"x": np.array([0.0, 1.0])}
    assert np.isfinite(agree(reported, feed)["grad_x"]).all()
    steps = sum(t.count for t in rlx.singular_report(reported, feed))
    wanted, c_value = 0, feed["x"]
    while c_value.sum() < 5:
        c_value = c_value + np.sqrt(feed["x"]) * feed["x"] + 1
        wanted += 1
    assert steps in (1, wanted)  # once where √x is computed before the loop


def test_code_and_memory_of_a_bound() -> None:
    """Forward, a bound costs nothing; code never depends on it."""
    def program(bound: int | None, derive: Callable[[rlx.Graph], rlx.Graph]) -> Any:
        return program_for(derive(growing(bound)), host())

    forward = [program(b, lambda g: g) for b in (None, 10, 100_000)]
    assert len({p.arena for p in forward[1:]}) == 1
    back = [program(b, lambda g: rlx.grad(g, "loss")) for b in (10, 100_000)]
    assert len(back[0].kernels) == len(back[1].kernels) < 60


def test_loops_in_branches_in_loops_in_loops(tmp_path: Path) -> None:
    """A scan in a while_loop in a cond in a scan: every transform, text, files and exports."""
    def graph(checkpoint: Any, reverse: bool = False) -> rlx.Graph:
        g = rlx.Graph("tower")
        x, w, xs = g.param("x", (3,), F64), g.param("w", (3, 3), F64), g.param("xs", (4, 3), F64)

        def inner(c: Any, s: Any) -> Any:
            return rlx.tanh(c @ w + s), c

        def step(c: Any, s: Any) -> Any:
            def then(c: Any) -> Any:
                _, last = rlx.while_loop(
                    lambda q: q[0] < 2, lambda q: (q[0] + 1, rlx.scan(inner, q[1], xs)[0]),
                    (zero(), c), max_steps=4)
                return last * s

            return rlx.cond(s.sum() > 0, then, lambda c: c - s, c), (c * s).sum()

        c, ys = rlx.scan(step, x, xs, checkpoint=checkpoint, reverse=reverse)
        g.output("c", c)
        g.output("loss", (c * c).sum() + ys.sum())
        return g

    wanted: Any = None
    for checkpoint in (None, rlx.every(3), "sqrt"):
        g = graph(checkpoint)
        feed = feed_of(g)
        agree(g, feed, slow=True)
        check_modes(g, feed)
        slopes = rlx.value_and_grad(g, "loss")
        found = compiled(slopes, feed)
        wanted = wanted or found
        same_bits(found, wanted)
    rlx.check_grads(g, feed, of="loss", order=2)
    agree(rlx.hvp(g, "loss"), extended(rlx.hvp(g, "loss"), feed))
    agree(rlx.value_and_grad(graph(None, reverse=True), "loss"), feed, slow=True)
    many = rlx.vmap(rlx.grad(g, "loss"), {"x": (0, 2), "xs": 0})
    given = feed_of(many)
    found = agree(many, given)
    for k in range(2):
        one = {name: a[k] if name in ("x", "xs") else a for name, a in given.items()}
        close({name: a[k] for name, a in found.items()}, evaluate(rlx.grad(g, "loss"), one))
    same_bits(compiled(rlx.parse(str(slopes)), feed), wanted)
    same_bits(compiled(slopes, feed, threads=2), wanted)
    exe = rlx.compile(slopes, threads=1)
    same_bits(dict(rlx.load(exe.export(tmp_path / "tower", "shared"))(**feed)), wanted)
    assert "test_while.py" in str(exe.profile(**feed))


def test_the_first_carry_has_a_gradient_where_no_step_is_taken() -> None:
    """The body forgets its carry, so that only a loop without steps gives the first one."""
    g = rlx.Graph("g")
    x, y, n = g.param("x", (3,), "f64"), g.param("y", (3,), "f64"), g.input("n", (), "i32")
    last, _ = rlx.while_loop(lambda c: c[1] > 0, lambda c: (y, c[1] - 1), (x, n), max_steps=2)
    empty, _ = rlx.scan(lambda c, _: (y, None), x, length=0)
    g.output("loss", ((last + empty) * np.arange(1.0, 4.0)).sum())
    weights, zero = np.arange(1.0, 4.0), np.zeros(3)
    for steps in range(3):
        feed = {"x": zero, "y": zero, "n": np.int32(steps)}
        found = agree(rlx.grad(g, "loss"), feed)
        np.testing.assert_array_equal(found["grad_x"], weights if steps else 2 * weights)
        np.testing.assert_array_equal(found["grad_y"], weights if steps else zero)
        check_modes(g, feed, ["x", "y"])


BAD: list[tuple[str, type[Exception], str, Callable[[], Any]]] = [
    ("no bool", rlx.ShapeError, r"cond returns one bool, not f32\[\]",
     lambda: rlx.while_loop(lambda c: c.sum(), lambda c: c, rlx.zeros(2))),
    ("not one", rlx.ShapeError, r"cond returns one bool, not bool\[2\]",
     lambda: rlx.while_loop(lambda c: c < 2, lambda c: c, rlx.zeros(2))),
    ("shape", rlx.ShapeError, r"carry is f32\[2\], but body returns f32\[\]",
     lambda: rlx.while_loop(lambda c: c.sum() < 2, lambda c: c.sum(), rlx.zeros(2))),
    ("dtype", rlx.ShapeError, r"carry.0 is i32\[\], but body returns i64\[\]",
     lambda: rlx.while_loop(lambda c: c[0] < 2, lambda c: (c[0].astype("i64"),), (zero(),))),
    ("nesting", rlx.ArgumentError, "the carry is",
     lambda: rlx.while_loop(lambda c: c[0] < 2, lambda c: c[0], (zero(),))),
    ("negative bound", rlx.ArgumentError, "max_steps is a non-negative int or None, not -1",
     lambda: rlx.while_loop(lambda c: c < 2, lambda c: c, zero(), max_steps=-1)),
    ("bound by name", rlx.ArgumentError, "max_steps is a non-negative int or None",
     lambda: rlx.while_loop(lambda c: c < 2, lambda c: c, zero(),
                            max_steps=rlx.dim("B"))),  # type: ignore[arg-type]
    ("a Python branch", rlx.ArgumentError, "bool",
     lambda: rlx.while_loop(lambda c: c < 2, lambda c: c + 1 if c < 1 else c, zero())),
]


@pytest.mark.parametrize(("error", "match", "call"), [row[1:] for row in BAD],
                         ids=[row[0] for row in BAD])
def test_bad_input_names_the_place(error: type[Exception], match: str,
                                   call: Callable[[], Any]) -> None:
    with pytest.raises(error, match=match) as caught:
        call()
    assert "test_while.py" in str(caught.value)
