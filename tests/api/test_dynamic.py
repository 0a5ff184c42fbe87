"""Graphs with sizes by name: built, transformed, bound, compiled for each set of sizes, trained."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Mapping
from typing import Any
from weakref import ref

import numpy as np
import pytest

import rlx_py as rlx
from rlx_py.ir.base.errors import Undecided
from support.sweep import assert_near, same_bits

Array = np.ndarray[Any, Any]
B, T = rlx.dim("B"), rlx.dim("T")
Model = Callable[[Any, Any], rlx.Graph]


def rows(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def mlp(b: Any, t: Any = None) -> rlx.Graph:
    g = rlx.Graph("mlp")
    x, y = g.input("x", (b, 5)), g.input("y", (b,), rlx.i32)
    h = rlx.relu(x @ g.param("w", (5, 7)) + g.param("c", (7,)))
    logits = h @ g.param("v", (7, 3))
    g.output("loss", rlx.softmax_cross_entropy(logits, y).mean())
    g.output("logits", logits)
    return g


def cnn(b: Any, t: Any = None) -> rlx.Graph:
    g = rlx.Graph("cnn")
    x, y = g.input("x", (b, 2, 8, 8)), g.input("y", (b,), rlx.i32)
    h = rlx.conv2d(x, g.param("k", (4, 2, 3, 3)), g.param("a", (4,)), padding=1)
    h = rlx.nn.batch_norm(rlx.relu(h), None, None, g.param("s", (4,)), g.param("o", (4,)),
                          training=True)
    h = rlx.conv2d(rlx.max_pool2d(h, 2), g.param("l", (3, 4, 3, 3)), stride=2)
    logits = h.reshape((b, -1)) @ g.param("w", (3, 3))
    g.output("loss", rlx.cross_entropy(logits, y))
    return g


def attention(b: Any, t: Any) -> rlx.Graph:
    g = rlx.Graph("attention")
    tokens, target = g.input("tokens", (b, t + 1), rlx.i32), g.input("weight", (b * t,))
    h = rlx.embedding(tokens[:, :-1], g.param("table", (11, 8)))
    q, k, v = ((rlx.layer_norm(h, (8,)) @ g.param(n, (8, 8))).reshape((b, t, 2, 4))
               .transpose((0, 2, 1, 3)) for n in "qkv")
    h = h + rlx.nn.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(
        (0, 2, 1, 3)).reshape((b, t, 8))
    logits = (h @ g.param("head", (8, 11))).reshape((b * t, 11))
    each = rlx.softmax_cross_entropy(logits, tokens[:, 1:].reshape((-1,)))
    g.output("loss", (each * target).sum() / (b * t))
    g.output("spread", h.std() + h.var(axis=1, keepdims=True).mean())
    return g


def recurrent(b: Any, t: Any) -> rlx.Graph:
    g = rlx.Graph("recurrent")
    x, w = g.input("x", (t, b, 3)), g.param("w", (3, 3))

    def step(carry: Any, now: Any) -> Any:
        following = rlx.tanh(carry @ w + now)
        return following, following.sum(-1)

    last, each = rlx.scan(step, rlx.zeros((b, 3)), x)
    g.output("loss", (last**2).mean() + each.mean())
    return g


def feeds(graph: rlx.Graph, seed: int = 0) -> dict[str, Array]:
    """Arrays for the leaves of a static graph."""
    found = {}
    for k, n in graph.leaves.items():
        rng = np.random.default_rng([seed, len(k), *n.shape])
        found[k] = (rng.integers(0, 3, n.shape).astype(n.dtype.numpy) if n.dtype.is_int
                    else (0.5 * rng.standard_normal(n.shape)).astype(n.dtype.numpy))
    return found


MODELS: dict[str, Model] = {
    "mlp": mlp, "cnn": cnn, "attention": attention, "recurrent": recurrent}
models = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)


def transforms(graph: rlx.Graph) -> Mapping[str, Callable[[rlx.Graph], rlx.Graph]]:
    """What is made of a graph whose output "loss" is a scalar."""
    one = next(iter(graph.params))
    return {
        "itself": lambda g: g,
        "value_and_grad": lambda g: rlx.value_and_grad(g, "loss"),
        "jvp": lambda g: rlx.jvp(g, [one]),
        "hvp": lambda g: rlx.hvp(g, "loss", [one]),
        "checkpoint": lambda g: rlx.grad(rlx.checkpoint(g), "loss"),
        "autocast": lambda g: rlx.grad(rlx.autocast(g), "loss"),
        "decompose": lambda g: rlx.decompose(rlx.grad(g, "loss")),
        "train_step": lambda g: rlx.train_step(g, "loss", rlx.optim.sgd(0.1), clip_norm=1.0),
    }


SIZES = ({"B": 3, "T": 5}, {"B": 2, "T": 1}, {"B": 5, "T": 4})


@pytest.mark.parametrize("name", transforms(mlp(B)))
@models
def test_a_transform_of_a_dynamic_graph_is_that_of_the_bound_one(model: Model, name: str) -> None:
    dynamic = transforms(model(B, T))[name](model(B, T))
    for sizes in SIZES:
        static = transforms(model(B, T))[name](model(sizes["B"], sizes["T"]))
        bound = rlx.bind(dynamic, {k: v for k, v in sizes.items() if f"{k}" in str(dynamic)})
        rlx.verify(bound)
        feed = feeds(static)
        expected = rlx.evaluate(static, feed)
        assert_near(rlx.evaluate(bound, feed), expected)
        same_bits(rlx.evaluate(bound, feed), rlx.evaluate(dynamic, feed))


@models
def test_one_executable_runs_at_every_size(model: Model) -> None:
    dynamic = rlx.value_and_grad(model(B, T), "loss")
    exe = rlx.compile(dynamic)
    reference = rlx.compile(dynamic, "reference")
    for sizes in SIZES:
        feed = feeds(model(sizes["B"], sizes["T"]))
        found = dict(exe(**feed))
        assert_near(found, rlx.evaluate(dynamic, feed))
        assert_near(dict(reference(**feed)), found)
        static = rlx.value_and_grad(model(sizes["B"], sizes["T"]), "loss")
        assert_near(dict(rlx.compile(static)(**feed)), found)


@models
def test_text_and_files_keep_the_names(model: Model, tmp_path: Any) -> None:
    for g in (model(B, T), rlx.grad(rlx.checkpoint(model(B, T)), "loss")):
        assert str(rlx.parse(str(g))) == str(g)
        g.save(tmp_path / "g.rlx")
        loaded = rlx.Graph.load(tmp_path / "g.rlx")
        assert str(loaded) == str(g)
        feed = feeds(model(3, 5))
        same_bits(rlx.evaluate(loaded, feed), rlx.evaluate(g, feed))


def test_a_type_shows_its_names() -> None:
    x = rlx.Graph().input("x", (B, 4))
    assert str(x.type) == "f32[B,4]"
    assert str(x.reshape((B * 4,)).type) == "f32[4*B]"
    assert str(x.reshape((B * 4,)).reshape((-1, 4)).type) == "f32[B,4]"
    assert str(rlx.concatenate([x, x[:1]]).type) == "f32[B+1,4]"


# ---- cutting and joining -----------------------------------------------------------------------

CUTS: dict[str, Callable[[Any, Any], Any]] = {
    "first": lambda x, b: x[:1], "rest": lambda x, b: x[1:], "last": lambda x, b: x[-1],
    "but_last": lambda x, b: x[:-1], "reversed": lambda x, b: x[::-1], "even": lambda x, b: x[::2],
    "before": lambda x, b: x[:b - 1], "shifted": lambda x, b: rlx.roll(x, 3, 0),
    "differences": lambda x, b: x[1:] - x[:-1],
    "ends": lambda x, b: rlx.take(x, np.array([0, -1]), 0),
    "joined": lambda x, b: rlx.concatenate([x[1:], x, x[:1]]),
    "parts": lambda x, b: rlx.split(rlx.concatenate([x, x]), 2)[1],
    "halves": lambda x, b: (lambda p: p[0] * p[1])(rlx.split(x.reshape((2 * b, 2)), [b])),
    "one": lambda x, b: x.reshape((-1,))[0], "top": lambda x, b: x[:, 0][-1],
    "multiple": lambda x, b: rlx.pad(x, ((0, -b % 8), (0, 0))).reshape((-1, 8, 4)),
    "framed": lambda x, b: rlx.pad(x, 1), "repeated": lambda x, b: rlx.repeat(x, 2, 0),
    "tiled": lambda x, b: rlx.tile(x, (b, 1)), "triangle": lambda x, b: rlx.tril(x @ x.T),
    "positions": lambda x, b: x + rlx.arange(b, dtype=rlx.f32)[:, None] / b,
    "identity": lambda x, b: rlx.eye(b) @ x, "windows": lambda x, b: rlx.nn.im2col(
        x.reshape((b, 1, 2, 2)), 2, padding=1),
    "pooled": lambda x, b: rlx.nn.max_pool1d(x.reshape((1, 1, 4 * b)), 2),
    "spread": lambda x, b: x.std(0) + x.var(1).sum() / b, "masked": lambda x, b: rlx.where(
        rlx.iota((b, 4)) < b - 1, x, 0.0)}


@pytest.mark.parametrize("name", CUTS)
def test_cuts_have_derivatives_at_every_size(name: str) -> None:
    def graph(b: Any) -> rlx.Graph:
        g = rlx.Graph(name)
        g.output("y", (CUTS[name](rlx.sin(g.input("x", (b, 4))), b) ** 2).sum())
        return rlx.value_and_grad(g, "y", "x")

    exe = rlx.compile(graph(B))
    for n in (1, 2, 3, 8):
        expected = rlx.evaluate(graph(n), {"x": rows(n, 4)})
        same_bits(rlx.evaluate(graph(B), {"x": rows(n, 4)}), expected)
        assert_near(dict(exe(x=rows(n, 4))), expected)


# ---- training ----------------------------------------------------------------------------------


def test_the_last_batch_may_be_smaller() -> None:
    x, y = rows(70, 5), np.random.default_rng(0).integers(0, 3, 70).astype(np.int32)
    step = rlx.train_step(mlp(B), "loss", rlx.optim.adamw(1e-2), clip_norm=1.0)
    exe = rlx.compile(step)
    state = exe.init(rlx.init.kaiming_uniform(mlp(B), 0))
    statics = {n: rlx.compile(rlx.bind(step, {"B": n})) for n in (32, 6)}
    other = statics[32].init(state.params)
    for _ in range(3):
        for start in range(0, 70, 32):
            part = slice(start, start + 32)
            fed = {"x": x[part], "y": y[part]}
            out = exe.step(state, **fed)
            same_bits(dict(statics[len(fed["x"])].step(other, **fed)), dict(out))
    same_bits(other.params, state.params)
    same_bits(other.states, state.states)
    assert isinstance(exe, rlx.DynamicExecutable)
    assert exe.specializations.sizes == [{"B": 32}, {"B": 6}]


def test_a_traced_function_is_called_as_it_is() -> None:
    def loss(params: Any, x: Any) -> Any:
        return {"loss": rlx.tanh(x @ params["w"]).mean()}

    g = rlx.value_and_grad(rlx.trace(loss, {"w": rows(3, 2)}, rlx.spec((B, 3))), "loss")
    exe = rlx.compile(g)
    for n in (2, 4):
        x, params = rows(n, 3), {"w": rows(3, 2)}
        found = exe(params, x)
        assert_near({"w": found.grad["w"]}, {"w": rlx.evaluate(g, {"x": x, **params})["grad_w"]})
    assert exe.cost(B=2).flops < exe.cost(B=4).flops


def test_states_and_params_may_have_sizes() -> None:
    g = rlx.Graph("running")
    x, h, v = g.input("x", (B, 3)), g.state("h", (B, 3), init=1.0), g.param("v", (T, 3))
    g.next("h", 0.5 * h + x)
    g.output("y", (h @ v.T).sum())
    g.update("v", v * 2)
    exe = rlx.compile(g)
    with pytest.raises(rlx.ArgumentError, match=r"exe\.step.*discard_updates=True"):
        exe(x=rows(4, 3), v=rows(2, 3))
    found = exe(x=rows(4, 3), v=rows(2, 3), discard_updates=True)
    assert_near({"y": found.y}, {"y": np.float32(4 * rows(2, 3).sum())})
    with pytest.raises(rlx.ShapeError, match="the size B"):
        exe.init({"v": rows(2, 3)})
    bound = rlx.compile(rlx.bind(g, {"B": 4}))
    state = bound.init({"v": rows(2, 3)})
    assert state.states["h"].shape == (4, 3)
    for _ in range(2):
        bound.step(state, x=rows(4, 3))
        assert state.params["v"].shape == (2, 3)
    exe.step(state, x=rows(4, 3))
    with pytest.raises(rlx.ShapeError, match="B is 5"):
        exe.step(state, x=rows(5, 3))


# ---- specialisations ---------------------------------------------------------------------------


def small() -> rlx.Graph:
    g = rlx.Graph("small")
    g.output("y", (g.input("x", (B, 2)) * 2.0).mean())
    return g


def test_specialisations_are_bounded_and_the_least_recently_used_goes() -> None:
    exe = rlx.compile(small(), "reference", specializations=3)
    assert isinstance(exe, rlx.DynamicExecutable)
    for n in (1, 2, 3, 1, 4, 2, 2):
        assert exe(x=rows(n, 2)).y == rlx.evaluate(small(), {"x": rows(n, 2)})["y"]
        assert len(exe.specializations.sizes) <= 3
    assert exe.specializations.sizes == [{"B": 1}, {"B": 4}, {"B": 2}]
    kept = exe.at(B=4)
    exe(x=rows(7, 2))
    assert exe.at(B=4) is kept


def test_what_is_evicted_is_freed() -> None:
    g = rlx.Graph("step")
    w = g.param("w", (2,))
    g.update("w", w - g.input("x", (B, 2)).mean(0))
    exe = rlx.compile(g, specializations=1)
    assert isinstance(exe, rlx.DynamicExecutable)
    state = exe.init({"w": rows(2)})
    exe.step(state, x=rows(1, 2))
    kept = ref(exe.at(B=1))
    for n in (2, 3):
        exe.step(state, x=rows(n, 2))
    gc.collect()
    assert kept() is None


def test_threads_share_the_specialisations() -> None:
    exe = rlx.compile(small(), specializations=2)
    found: dict[int, list[Any]] = {}

    def work(seed: int) -> None:
        found[seed] = [exe(x=rows(1 + (seed + i) % 4, 2)).y for i in range(12)]

    workers = [threading.Thread(target=work, args=(s,)) for s in range(4)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    for seed, values in found.items():
        for i, y in enumerate(values):
            x = rows(1 + (seed + i) % 4, 2)
            assert_near({"y": y}, rlx.evaluate(small(), {"x": x}))


def test_a_size_that_does_not_compile_leaves_nothing_behind() -> None:
    g = rlx.Graph("norm")
    g.output("y", rlx.nn.batch_norm(g.input("x", (B, 3)), None, None, training=True))
    exe = rlx.compile(g)
    assert isinstance(exe, rlx.DynamicExecutable)
    for _ in range(2):
        with pytest.raises(rlx.ShapeError, match=r"B = 1.*\n  at .*test_dynamic"):
            exe(x=rows(1, 3))
    assert exe.specializations.sizes == []
    assert exe(x=rows(2, 3)).y.shape == (2, 3)


def test_cost_and_export_take_sizes(tmp_path: Any) -> None:
    exe = rlx.compile(small())
    assert exe.cost(B=8).flops > exe.cost(B=2).flops
    with pytest.raises(rlx.ArgumentError, match="'B' is missing"):
        exe.cost()
    with pytest.raises(rlx.ArgumentError, match="sizes="):
        exe.export(tmp_path / "small")
    with pytest.raises(rlx.ArgumentError, match="no size 'C'"):
        exe.export(tmp_path / "small", sizes={"C": 2})
    exe.export(tmp_path / "small", sizes={"B": 4})
    same_bits(dict(rlx.load(tmp_path / "small")(x=rows(4, 2))), dict(exe(x=rows(4, 2))))
    static = rlx.compile(rlx.bind(small(), {"B": 4}))
    with pytest.raises(rlx.ArgumentError, match="no size 'B'"):
        static.cost(B=4)
    assert exe.profile(x=rows(4, 2)).kernels
    assert exe.find_nan(x=np.full((4, 2), np.inf, np.float32)) is not None


@pytest.mark.parametrize(("given", "error", "words"), [
    ({"x": rows(4, 5), "y": np.zeros(3, np.int32)}, rlx.ShapeError, "'y'.*3, not 4.*'x'"),
    ({"x": rows(4, 6), "y": np.zeros(4, np.int32)}, rlx.ShapeError, r"'x'.*f32\[4,5\]"),
    ({"x": rows(0, 5), "y": np.zeros(0, np.int32)}, rlx.ShapeError, "at least 1"),
    ({"x": rows(5), "y": np.zeros(1, np.int32)}, rlx.ShapeError, r"f32\[B,5\]"),
    ({"x": rows(4, 5)}, rlx.ArgumentError, "'y' is missing"),
    ({"x": rows(4, 5), "y": np.zeros(4, np.int32), "z": 1}, rlx.ArgumentError, "no 'z'"),
    ({"x": rows(4, 5), "y": np.zeros(4, np.float64)}, rlx.DTypeError, "i32")])
def test_wrong_arrays_are_refused_before_anything_runs(given: Any, error: Any, words: str) -> None:
    exe, params = rlx.compile(mlp(B)), {"w": rows(5, 7), "c": rows(7), "v": rows(7, 3)}
    with pytest.raises(error, match=words):
        exe(**params, **given)
    step = rlx.compile(rlx.train_step(mlp(B), "loss", rlx.optim.sgd(0.1)))
    with pytest.raises(error, match=words):
        step.step(step.init(params), **given)


# ---- errors where the graph is built -----------------------------------------------------------


@pytest.mark.parametrize(("build", "words"), [
    (lambda x, y: x + y, r"f32\[B,6\] and f32\[T\]"),
    (lambda x, y: x[:, 0] + y, r"f32\[B\] and f32\[T\]"),
    (lambda x, y: x.reshape((4, -1)), r"reshape.*2\*B-4\*\(B//2\) == 0"),
    (lambda x, y: x.reshape((B, 5)), r"6\*B elements"),
    (lambda x, y: x[:8], "8.*B"),
    (lambda x, y: x[2], "B"),
    (lambda x, y: x[-3:], "B"),
    (lambda x, y: rlx.split(x, 2), "B"),
    (lambda x, y: x.T @ x.T, "B"),
    (lambda x, y: rlx.broadcast_to(y, (B,)), r"\(T,\) and \(B,\)"),
    (lambda x, y: x.squeeze(0), "size 1"),
    (lambda x, y: rlx.stack([x[0], y]), "shape"),
    (lambda x, y: rlx.zeros((B - 2,)), "B-2"),
    (lambda x, y: rlx.nn.conv1d(y[None, None], np.ones((1, 1, 3), np.float32)), "T")])
def test_a_wrong_use_is_an_error_at_the_users_line(build: Any, words: str) -> None:
    g = rlx.Graph()
    x, y = g.input("x", (B, 6)), g.input("y", (T,))
    with pytest.raises(rlx.RLXError, match=words) as caught:
        build(x, y)
    assert "\n  at " in str(caught.value) and "test_dynamic.py" in str(caught.value)


@pytest.mark.parametrize("use", [
    lambda x: [0] * x.shape[0], list, len, lambda x: x.sum() * (1 / x.shape[0]),
    lambda x: range(x.shape[0]), lambda x: np.zeros(x.shape), lambda x: x.shape[0] * np.ones(2)])
def test_python_is_given_no_number_for_a_size(use: Callable[[Any], Any]) -> None:
    with pytest.raises(Undecided, match="B"):
        use(rlx.Graph().input("x", (B, 6)))


def test_what_a_derivative_can_not_decide_names_op_and_line() -> None:
    g = rlx.Graph()
    g.output("y", g.input("x", (B, 2))[1::3].sum())
    with pytest.raises(Undecided, match=r"^slice: cannot decide.*\n  at .*test_dynamic"):
        rlx.grad(g, "y", "x")


def test_what_can_not_be_bound_is_refused() -> None:
    g = small()
    for sizes in ({"B": 0}, {"B": -1}, {"B": 2.0}, {"B": True}, {"C": 3}):
        with pytest.raises(rlx.ArgumentError):
            rlx.bind(g, sizes)  # type: ignore[arg-type]
    assert str(rlx.bind(g, {})) == str(g)
    assert "B" not in str(rlx.bind(g, {"B": np.int64(3)}))
    h = rlx.Graph()
    h.output("y", rlx.ones((T,)).sum() * h.input("x", ()))
    with pytest.raises(rlx.ArgumentError, match="'T'"):
        rlx.compile(h)
    with pytest.raises(Undecided, match="T"):
        rlx.evaluate(h, {"x": 1.0})
    assert rlx.evaluate(rlx.bind(h, {"T": 3}), {"x": 2.0})["y"] == 6
    for most in (0, -1, 1.5, True):
        with pytest.raises(rlx.ArgumentError, match="specializations"):
            rlx.compile(g, specializations=most)  # type: ignore[arg-type]


# ---- other transforms --------------------------------------------------------------------------


def squashed(b: Any) -> rlx.Graph:
    """A loss of a custom function of rows, which two graphs share."""
    double = rlx.custom_vjp(lambda x: x * x, lambda x: (x * x, x), lambda x, ct: (2.5 * ct * x,))
    g = rlx.Graph("squashed")
    x = g.input("x", (b, 3))
    g.output("y", double(rlx.checkpoint(rlx.tanh)(x)) @ g.param("w", (3, 2)))
    g.output("loss", rlx.norm(g.outputs["y"], axis=0).sum() / b)
    return g


OTHERS: dict[str, Callable[[rlx.Graph, Any], rlx.Graph]] = {
    "jacfwd": lambda g, b: rlx.jacfwd(g, "loss", ["x", "w"]),
    "jacrev": lambda g, b: rlx.jacrev(g, "y", ["x", "w"]),
    "hessian": lambda g, b: rlx.hessian(g, "loss", "x"),
    "retype": lambda g, b: rlx.grad(rlx.retype(g, rlx.f64), "loss"),
    "batched": lambda g, b: rlx.vmap(rlx.grad(g, "loss", "x"), {"x": 1}, size=b + 1),
    "rows": lambda g, b: rlx.vmap(rlx.jvp(g, ["w"]), {"t_w": (0, 2 * b)}),
    "second": lambda g, b: rlx.vjp(rlx.grad(g, "loss", "x"), ["x", "w"]),
    "ieee": lambda g, b: rlx.grad(g, "loss", singular="ieee"),
    "called": lambda g, b: called(g, b),
}


def called(sub: rlx.Graph, b: Any) -> rlx.Graph:
    g = rlx.Graph("called")
    found = g.call(rlx.grad(sub, "loss", "x"), x=rlx.exp(g.input("x", (b, 3))))
    g.output("y", found.grad_x)
    return rlx.vjp(g, "x")


@pytest.mark.parametrize("name", OTHERS)
def test_every_transform_takes_sizes_by_name(name: str) -> None:
    dynamic = OTHERS[name](squashed(B), B)
    rlx.verify(dynamic)
    assert str(rlx.parse(str(dynamic))) == str(dynamic)
    for n in (2, 5):
        static = OTHERS[name](squashed(n), n)
        feed = feeds(static)
        expected = rlx.evaluate(static, feed)
        assert_near(rlx.evaluate(dynamic, feed), expected)
        assert_near(dict(rlx.compile(dynamic)(**feed)), expected)


def test_derivatives_of_a_dynamic_graph_are_checked_at_the_sizes_given() -> None:
    g = rlx.retype(squashed(B), rlx.f64)
    rlx.check_grads(g.derive({"y": rlx.sin(g.inputs["x"]).mean(0)}),
                    {"x": np.linspace(-1, 1, 12).reshape(4, 3), "w": np.ones((3, 2))}, wrt="x")


def test_part_of_the_sizes_may_be_bound() -> None:
    g = rlx.grad(attention(B, T), "loss")
    half = rlx.bind(g, {"T": 5})
    assert "T" not in str(half.inputs["tokens"].type)
    feed = feeds(attention(2, 5))
    same_bits(rlx.evaluate(half, feed), rlx.evaluate(g, feed))
    with pytest.raises(rlx.ShapeError):
        rlx.evaluate(half, feeds(attention(2, 4)))


# ---- layers ------------------------------------------------------------------------------------

Layer = tuple[Callable[..., Any], dict[str, tuple[Any, ...]]]
LAYERS: dict[str, Layer] = {
    "dropout": (lambda b, t, x: rlx.nn.dropout(x, 0.3, key=rlx.random.key(1)), {"x": ("B", "T")}),
    "lstm": (lambda b, t, x, w, u, c: rlx.nn.lstm(
        x, (rlx.zeros((1, b, 2)), rlx.zeros((1, b, 2))), [(w, u, c, c)])[0],
        {"x": ("T", "B", 3), "w": (8, 3), "u": (8, 2), "c": (8,)}),
    "flash": (lambda b, t, q, k, v: rlx.nn.flash_attention(q, k, v, mask="causal")[0],
              {"q": ("B", 2, "T", 4), "k": ("B", 2, "T", 4), "v": ("B", 2, "T", 4)}),
    "losses": (lambda b, t, x, y: rlx.nn.kl_div(
        rlx.log_softmax(x, 0), rlx.softmax(y), reduction="batchmean") + rlx.mse_loss(x, y)
        + rlx.cross_entropy(x, rlx.argmax(y, 1), label_smoothing=0.1),
        {"x": ("B", "T"), "y": ("B", "T")}),
    "conv": (lambda b, t, x, w: rlx.conv1d(rlx.concatenate([x, x], 2), w, padding=1, stride=2),
             {"x": ("B", 2, "T"), "w": (3, 2, 3)}),
    "conv_transpose": (lambda b, t, x, w: rlx.conv_transpose1d(x, w, stride=2, padding=1),
                       {"x": ("B", 2, "T"), "w": (2, 3, 4)}),
    "norms": (lambda b, t, x: rlx.nn.group_norm(x, 2) + rlx.nn.rms_norm(x, t),
              {"x": ("B", 4, "T")}),
    "im2col": (lambda b, t, x: rlx.nn.im2col(x, 2, stride=2, padding=1), {"x": ("B", 3, 4, 4)}),
    "cond": (lambda b, t, x: rlx.cond(x.sum() > 0, lambda v: v * 2, lambda v: v * v, x),
             {"x": ("B", "T")}),
    "loop": (lambda b, t, x: rlx.while_loop(
        lambda c: c.max() < 9, lambda c: c * c + 1, rlx.abs(x), max_steps=8), {"x": ("B", "T")}),
    "scatter": (lambda b, t, x: rlx.scatter_add(rlx.zeros((7, 4)), rlx.arange(b) % 7, x),
                {"x": ("B", 4)}),
    "matrices": (lambda b, t, x: rlx.linalg.inv(x @ x.transpose(0, 2, 1) + 3 * rlx.eye(3)),
                 {"x": ("B", 3, 3)}),
    "resized": (lambda b, t, x: rlx.nn.interpolate(x, scale_factor=2, mode="linear"),
                {"x": ("B", 2, "T")}),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_and_their_gradients_run_at_every_size(name: str) -> None:
    function, arguments = LAYERS[name]

    def graph(b: Any, t: Any) -> rlx.Graph:
        g = rlx.Graph(name)
        named = {"B": b, "T": t}
        nodes = [g.input(k, [named.get(d, d) for d in shape]) for k, shape in arguments.items()]
        y = function(b, t, *nodes)
        g.output("y", y)
        g.output("loss", rlx.square(y).mean())
        return rlx.value_and_grad(g, "loss", list(arguments))

    dynamic = graph(B, T)
    exe = rlx.compile(dynamic)
    for sizes in SIZES:
        static = graph(sizes["B"], sizes["T"])
        feed = feeds(static)
        expected = rlx.evaluate(static, feed)
        assert_near(rlx.evaluate(dynamic, feed), expected, factor=10)
    assert_near(dict(exe(**feed)), expected, factor=10)
