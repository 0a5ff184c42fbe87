"""scan with other transforms, in steps of training, in files, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx_py as rlx
from rlx_py.backends.llvm.backend import program_for
from rlx_py.backends.llvm.targets import host
from rlx_py.ir.graph.evaluate import evaluate, evaluate_all
from rlx_py.ir.loops.copying import walk
from support.control import (
    agree,
    check_modes,
    close,
    compiled,
    extended,
    feed_of,
    floats,
    normal,
    recurrent,
    same_bits,
)

F32, F64 = rlx.f32, rlx.f64

# ---- with other transforms -------------------------------------------------------------------


RULES: dict[str, Callable[[Any, Any], Any]] = {
    "stop_gradient": lambda c, x: (c * rlx.stop_gradient(c) + x, c),
    "custom_jvp": lambda c, x: (rlx.custom_jvp(
        rlx.sin, lambda p, t: (rlx.sin(p[0]), t[0] * rlx.cos(p[0])))(c) + x, c),
    "checkpoint": lambda c, x: (rlx.checkpoint(lambda a: rlx.tanh(a * x))(c), c),
}


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("checkpoint", [None, rlx.every(2)], ids=["kept", "segments"])
def test_rules_inside(name: str, checkpoint: Any) -> None:
    g = rlx.Graph()
    c0, xs = g.param("c", (3,), F64), g.param("xs", (5, 3), F64)
    c, ys = rlx.scan(RULES[name], c0, xs, checkpoint=checkpoint)
    g.output("loss", (c * c).sum() + ys.sum())
    for h in (g, rlx.grad(g, "loss"), rlx.hvp(g, "loss")):
        agree(h, extended(h, feed_of(g)), slow=True)
    check_modes(g, feed_of(g))


def test_random_keys_are_carried() -> None:
    g = rlx.Graph()
    k, x = g.input("k", (2,), rlx.u32), g.param("x", (3,), F64)

    def body(c: Any, _: Any) -> Any:
        key, now = rlx.random.split(c[0])
        return (key, c[1] * rlx.random.normal(now, (3,), F64)), rlx.random.uniform(now, (2,))

    (key, c), ys = rlx.scan(body, (k, x), length=4)
    for name, y in {"key": key, "c": c, "ys": ys, "loss": c.sum()}.items():
        g.output(name, y)
    feed = {"k": np.array([1, 2], np.uint32), "x": normal(3)}
    found = agree(g, feed)
    assert len(np.unique(found["ys"])) == 8
    check_modes(g, feed)


def test_vmap_over_every_axis_is_a_loop() -> None:
    g = recurrent(4, checkpoint=rlx.every(3))
    for derived in (g, rlx.grad(g, "loss", floats(g))):
        for axes in ({"xs": 0}, {"xs": 1, "h0": 1}, {"xs": 2, "w": 2, "h0": 0}, {"u": 0}):
            many = rlx.vmap(derived, {k: (a, 3) for k, a in axes.items()})
            feed = feed_of(many)
            found = agree(many, feed)
            for k in range(3):
                one = {name: np.take(a, k, axes[name]) if name in axes else a
                       for name, a in feed.items()}
                close({name: a[k] for name, a in found.items()}, evaluate(derived, one))
    twice = rlx.vmap(rlx.vmap(rlx.grad(g, "loss", ["w"]), {"xs": (1, 2)}), {"xs": (0, 3)})
    agree(twice, feed_of(twice))


def test_whole_jacobians_and_hessians() -> None:
    g = recurrent(3)
    feed = feed_of(g)
    forward, backward = rlx.jacfwd(g, of="ys", wrt=["w"]), rlx.jacrev(g, of="ys", wrt=["w"])
    close(agree(forward, feed), agree(backward, feed))
    hessian = agree(rlx.hessian(g, of="loss", wrt=["h0"]), feed)["hess_h0_h0"]
    for k, column in enumerate(np.eye(4)):
        product = evaluate(rlx.hvp(g, "loss", ["h0"]), {**feed, "v_h0": column})
        np.testing.assert_allclose(hessian[:, k], product["hvp_h0"], rtol=1e-10, atol=1e-12)


def test_singular_points_are_counted_over_the_steps() -> None:
    g = rlx.Graph()
    xs, c0 = g.param("xs", (4,), F64), g.param("c", (), F64)
    c, _ = rlx.scan(lambda c, x: (c + rlx.sqrt(x) * rlx.stop_gradient(x), None), c0, xs)
    g.output("loss", c)
    reported = rlx.grad(g, "loss", singular="report")
    feed = {"xs": np.array([0.0, 1, 0, 4]), "c": np.float64(1)}
    found = agree(reported, feed)
    np.testing.assert_array_equal(found["grad_xs"], [0, 0.5, 0, 1])
    (told,) = rlx.singular_report(reported, feed)
    assert told.count == 2


def test_tracing_and_nesting() -> None:
    def loss(p: Any, x: Any) -> Any:
        c, ys = rlx.scan(lambda c, s: ({"h": rlx.tanh(c["h"] @ p["w"] + s)}, c["h"]), {"h": p["h"]},
                         x)
        return {"c": c, "loss": ys.sum()}

    params = {"w": normal(3, 3, dtype=np.float32), "h": normal(3, dtype=np.float32)}
    x = normal(4, 3, dtype=np.float32)
    g = rlx.trace(loss, params, x)
    found = rlx.compile(g)(params, x)
    named = evaluate(g, {**params, "x": x})
    np.testing.assert_allclose(found["c"]["h"], named["c.h"], rtol=1e-5)


def test_on_a_tape() -> None:
    w, x = normal(3, 3), normal(5, 3)
    g = rlx.Graph()
    held = rlx.Parameter(w)

    def loss(w: Any, x: Any) -> Any:
        c, ys = rlx.scan(lambda c, s: (rlx.tanh(c @ w + s), c.sum()), np.zeros(3), x)
        return (c * c).sum() + ys.sum()

    with rlx.Tape() as tape:
        total = loss(held, x)
        tape.backward(total)
    g.output("loss", loss(g.param("w", (3, 3), F64), x))
    wanted = evaluate(rlx.value_and_grad(g, "loss"), {"w": w})
    np.testing.assert_allclose(total.numpy(), wanted["loss"])
    np.testing.assert_allclose(held.grad, wanted["grad_w"])


def test_sizes_by_name() -> None:
    steps, batch = rlx.dim("T"), rlx.dim("B")
    g = rlx.Graph()
    xs, w, h = g.input("xs", (steps, batch, 3)), g.param("w", (3, 3)), g.param("h", (3,))
    c, ys = rlx.scan(lambda c, x: (rlx.tanh(c @ w + x), c.sum(1)), rlx.broadcast_to(h, (batch, 3)),
                     xs, checkpoint=rlx.every(1))
    _, more = rlx.scan(lambda c, _: (c, c[0].sum()), c, length=steps)
    g.output("loss", (c * c).sum() + (ys * ys).sum() + more.sum())
    slopes = rlx.value_and_grad(g, "loss")
    exe = rlx.compile(slopes, threads=1)
    for sizes in ((5, 2), (3, 1), (1, 4)):
        feed = {"xs": normal(*sizes, 3, dtype=np.float32), "w": normal(3, 3, dtype=np.float32),
                "h": normal(3, dtype=np.float32)}
        close(dict(exe(**feed)), evaluate(slopes, feed))
    for checkpoint in ("sqrt", rlx.every(2), rlx.count(2), rlx.budget(100)):
        with pytest.raises(rlx.ArgumentError, match=r"(?s)a number of steps, not T.*transforms.py"):
            rlx.scan(lambda c, x: (c, x), h, xs, checkpoint=checkpoint)


# ---- training, files, code -------------------------------------------------------------------


def test_states_and_updates_around_a_scan() -> None:
    """A state that starts a scan takes its last carry, a param is updated by what it stacked."""
    g = rlx.Graph()
    xs, w, s = g.input("xs", (5, 3)), g.param("w", (3,)), g.state("s", (3,), init=0.5)
    c, ys = rlx.scan(lambda c, x: (c * 0.9 + x * w, c), s, xs)
    g.next("s", c)
    g.update("w", w + ys.sum(0))
    g.output("y", ys)
    exe = rlx.compile(g, threads=1)
    state = exe.init({"w": np.ones(3, np.float32)})
    now = {"s": np.full(3, 0.5, np.float32), "w": np.ones(3, np.float32)}
    x = normal(5, 3, dtype=np.float32)
    for _ in range(3):
        wanted = evaluate_all(g, {**now, "xs": x})
        found = exe.step(state, xs=x)
        now = {**wanted.states, **wanted.updates}
        close({"y": found.y, "s": state.states["s"], "w": state.params["w"]},
              {"y": wanted.outputs["y"], "s": now["s"], "w": now["w"]})


def test_a_training_step_as_a_file_and_on_two_threads(tmp_path: Path) -> None:
    g = recurrent(6, F32, checkpoint=rlx.every(4))
    feed = feed_of(g)
    step = rlx.train_step(g, of="loss", optimizer=rlx.optim.adam(1e-2))
    exe = rlx.compile(step, threads=1)
    runs = [exe, rlx.compile(step, threads=2), rlx.load(exe.export(tmp_path / "step", "shared"))]
    losses = []
    for run in runs:
        state = run.init({k: feed[k] for k in g.params})
        losses.append([run.step(state).loss.tobytes() for _ in range(4)])
    assert losses[0] == losses[1] == losses[2]
    assert len(set(losses[0])) == 4


def test_texts_and_files_hold_bodies(tmp_path: Path) -> None:
    g = rlx.value_and_grad(recurrent(5, F32, checkpoint="sqrt"), "loss")
    feed = feed_of(g)
    wanted = compiled(g, feed)
    g.save(tmp_path / "g.rlx")
    for copy in (rlx.parse(str(g)), rlx.Graph.load(tmp_path / "g.rlx")):
        assert str(copy) == str(g)
        same_bits(compiled(copy, feed), wanted)
        product = rlx.hvp(copy, "loss", ["w"])
        agree(product, extended(product, feed))


DAMAGE = [("carries=1", "carries=7"), ("length=5", "length=6"), ("xs=1", "xs=2"),
          ('keep=\\"steep\\"', 'keep=\\"all\\"'), ("counted=false", "counted=true"),
          ("f64[4]", "f64[3]"), ("tanh(", "tann(")]


@pytest.mark.parametrize(("old", "new"), DAMAGE)
def test_a_damaged_text_is_refused(old: str, new: str) -> None:
    text = str(recurrent(5))
    assert text.replace("\\", "") != text
    damaged = text.replace(old.replace("\\", ""), new.replace("\\", ""), 1)
    assert damaged != text
    with pytest.raises(rlx.RLXError):
        rlx.parse(damaged)


@pytest.mark.parametrize("checkpoint", [None, rlx.every(10)], ids=["kept", "segments"])
def test_code_does_not_grow_with_the_length(checkpoint: Any) -> None:
    def size(steps: int) -> tuple[int, int]:
        g = rlx.grad(recurrent(steps, F32, checkpoint=checkpoint), "loss")
        kernels = program_for(g, host()).kernels
        return len(kernels), sum(len(list(walk(k.body))) for k in kernels)

    few, many = size(1000), size(100_000)
    assert few[0] == many[0] < 60
    assert abs(few[1] - many[1]) < 0.2 * few[1]


def test_checkpoints_hold_what_they_promise() -> None:
    width, steps = 16, 10_000
    carry = 4 * width

    def held(checkpoint: Any) -> int:
        g = rlx.Graph()
        w, h0 = g.param("w", (width, width)), g.param("h0", (width,))
        h, _ = rlx.scan(lambda h, _: (rlx.tanh(h @ w), None), h0, length=steps,
                        checkpoint=checkpoint)
        g.output("loss", h.sum())
        return rlx.compile(rlx.grad(g, "loss"), threads=1).cost().arena_bytes

    assert held(None) > steps * carry
    for checkpoint in ("sqrt", rlx.every(100), rlx.count(100)):
        assert held(checkpoint) < 6 * 100 * carry + 20_000
    budget = 20_000
    assert held(rlx.budget(budget)) < budget + 20_000


def test_a_profile_and_costs_count_the_steps() -> None:
    few, many = (rlx.compile(recurrent(t, F32), threads=1) for t in (10, 1000))
    assert 50 < many.cost().flops / few.cost().flops < 110
    assert 50 < many.cost().bytes_moved / few.cost().bytes_moved < 110
    report = str(many.profile(**feed_of(recurrent(1000, F32))))
    assert "loop" in report and "control.py" in report


# ---- bad input -------------------------------------------------------------------------------


def bad(init: Any, xs: Any, body: Callable[[Any, Any], Any], **options: Any) -> Any:
    return rlx.scan(body, init, xs, **options)


BAD: list[tuple[str, type[Exception], str, Callable[[], Any]]] = [
    ("shape", rlx.ShapeError, r"carry is f32\[3\], but body returns f32\[1,3\]",
     lambda: bad(rlx.zeros(3), None, lambda c, _: (c[None], None), length=2)),
    ("dtype", rlx.ShapeError, r"carry.h is f32\[3\], but body returns f64\[3\]",
     lambda: bad({"h": rlx.zeros(3)}, None, lambda c, _: ({"h": c["h"].astype("f64")}, None),
                 length=2)),
    ("nesting", rlx.ArgumentError, "the carry is",
     lambda: bad((rlx.zeros(3),), None, lambda c, _: (c[0], None), length=2)),
    ("no pair", rlx.ArgumentError, r"body returns \(carry, y\)",
     lambda: bad(rlx.zeros(3), None, lambda c, _: c, length=2)),
    ("lengths", rlx.ShapeError, "the numbers of steps differ: xs.0 2, xs.1 3",
     lambda: bad(rlx.zeros(3), (rlx.zeros((2, 3)), rlx.zeros(3)), lambda c, _: (c, c))),
    ("length and xs", rlx.ShapeError, "the numbers of steps differ: length 4, xs 2",
     lambda: bad(rlx.zeros(3), rlx.zeros((2, 3)), lambda c, _: (c, c), length=4)),
    ("scalar xs", rlx.ShapeError, "no first axis",
     lambda: bad(rlx.zeros(3), rlx.constant(1.0), lambda c, _: (c, c))),
    ("no length", rlx.ArgumentError, "give xs, or a length",
     lambda: bad(rlx.zeros(3), None, lambda c, _: (c, c))),
    ("negative", rlx.ArgumentError, "length is a non-negative int, not -1",
     lambda: bad(rlx.zeros(3), None, lambda c, _: (c, c), length=-1)),
    ("bool", rlx.ArgumentError, "length takes integers, not True",
     lambda: bad(rlx.zeros(3), None, lambda c, _: (c, c), length=True)),
    ("checkpoint", rlx.ArgumentError, "checkpoint='all' is none of",
     lambda: bad(rlx.zeros(3), None, lambda c, _: (c, c), length=2, checkpoint="all")),
    ("checkpoint number", rlx.ArgumentError, "checkpoint=3 is none of",
     lambda: bad(rlx.zeros(3), None, lambda c, _: (c, c), length=2, checkpoint=3)),
    ("branch", rlx.ArgumentError, "bool",
     lambda: bad(rlx.zeros(()), None, lambda c, _: (c if c > 0 else -c, c), length=2)),
    ("no array", rlx.RLXError, "carry",
     lambda: bad(rlx.zeros(3), None, lambda c, _: ("text", c), length=2)),
]


@pytest.mark.parametrize(("error", "match", "call"), [row[1:] for row in BAD],
                         ids=[row[0] for row in BAD])
def test_bad_input_names_the_place(error: type[Exception], match: str,
                                   call: Callable[[], Any]) -> None:
    with pytest.raises(error, match=match) as caught:
        call()
    assert "test_scan_transforms.py" in str(caught.value)


def test_wrong_derivatives_are_refused() -> None:
    g = recurrent(3)
    with pytest.raises(rlx.ShapeError, match=r"(?s)not a scalar.*control.py"):
        rlx.grad(g, "ys")
    with pytest.raises(rlx.ArgumentError, match="has no input, param or state 'v'"):
        rlx.grad(g, "loss", "v")
    with pytest.raises(rlx.ShapeError, match="sizes of the batch differ"):
        rlx.vmap(g, {"xs": (0, 3), "h0": (0, 2)})
    g = rlx.Graph()
    g.output("y", rlx.scan(lambda c, _: (c + 1, None), g.input("n", (), rlx.i32), length=2)[0])
    with pytest.raises(rlx.DTypeError, match="only floats have derivatives"):
        rlx.vjp(g, "n")
