"""Regions computed again: the same bits in less memory, any order of derivative, captures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx_py as rlx
from rlx_py.backends.llvm.backend import program_for
from rlx_py.backends.llvm.targets import host
from rlx_py.passes.memory import check_plan

Array = np.ndarray[Any, Any]
Function = Callable[..., Any]
LAYERS, ROWS, WIDTH = 4, 256, 32
POLICIES: Any = ["nothing", "products", lambda node: node.op.name == "tanh"]
policies = pytest.mark.parametrize("policy", POLICIES, ids=["nothing", "products", "predicate"])


def block(h: Any, w: Any) -> Any:
    for i in range(4):
        h = rlx.tanh(h @ w + 0.01 * i)
    return h


def network(layer: Function) -> rlx.Graph:
    g = rlx.Graph()
    h = g.input("x", (ROWS, WIDTH))
    for i in range(LAYERS):
        h = layer(h, g.param(f"w{i}", (WIDTH, WIDTH)))
    g.output("loss", (h * h).mean())
    return g


def feed() -> dict[str, Array]:
    rng = np.random.default_rng(0)
    found = {f"w{i}": rng.normal(0, 0.2, (WIDTH, WIDTH)).astype(np.float32)
             for i in range(LAYERS)}
    return {"x": rng.normal(size=(ROWS, WIDTH)).astype(np.float32), **found}


def same_bits(a: Any, b: Any) -> None:
    assert list(a) == list(b)
    for name in a:
        assert a[name].tobytes() == b[name].tobytes(), name


@policies
@pytest.mark.parametrize("derive", [
    lambda g: rlx.value_and_grad(g, of="loss"),
    lambda g: rlx.hvp(g, of="loss"),
    lambda g: rlx.jvp(g),
], ids=["grad", "hvp", "jvp"])
def test_derivatives_keep_their_bits(policy: Any, derive: Function) -> None:
    plain = rlx.compile(derive(network(block)), threads=1)
    again = rlx.compile(derive(network(rlx.checkpoint(block, policy=policy))), threads=1)
    given = feed()
    given |= {k: given[k.partition("_")[2]] for k in plain.interface.inputs if k != "x"}
    same_bits(plain(**given), again(**given))


def test_less_is_kept_and_more_is_computed() -> None:
    def cost(layer: Function) -> Any:
        return rlx.compile(rlx.grad(network(layer), of="loss"), threads=1).cost()

    plain, none = cost(block), cost(rlx.checkpoint(block))
    every = cost(rlx.checkpoint(block, policy=lambda node: True))
    assert none.arena_bytes < 0.6 * plain.arena_bytes, (none, plain)
    assert none.flops > 1.2 * plain.flops
    assert every.flops == plain.flops


def test_the_plan_of_a_checkpointed_step_is_sound() -> None:
    g = rlx.train_step(network(rlx.checkpoint(block)), of="loss", optimizer=rlx.optim.adam(1e-3))
    check_plan(program_for(g, host()))


def test_reverse_over_reverse_and_over_forward() -> None:
    def graph(layer: Function) -> rlx.Graph:
        g = rlx.Graph()
        x, w = g.input("x", (3, 2), rlx.f64), g.param("w", (2, 2), rlx.f64)
        g.output("loss", (layer(layer(x, w), w) ** 2).sum())
        return g

    point = {"x": np.random.default_rng(1).normal(size=(3, 2)),
             "w": np.random.default_rng(2).normal(size=(2, 2))}
    for policy in POLICIES:
        region = rlx.checkpoint(block, policy=policy)
        rlx.check_grads(graph(region), point, of="loss", wrt=["x", "w"], order=2)
        derivations: list[Function] = [
            lambda g: rlx.grad(rlx.jvp(g, wrt="x"), of="t_loss", wrt=["x", "w"]),
            lambda g: rlx.vjp(rlx.vjp(g, wrt=["w"]), wrt=["x", "w"])]
        for derive in derivations:
            plain, again = derive(graph(block)), derive(graph(region))
            extra = {k: np.random.default_rng(3).normal(size=n.shape)
                     for k, n in plain.inputs.items() if k not in point}
            want, got = (rlx.evaluate(g, {**point, **extra}) for g in (plain, again))
            for name, value in want.items():
                np.testing.assert_allclose(got[name], value, rtol=1e-12)


def test_nodes_from_outside_and_large_constants_are_handed_in() -> None:
    table = np.random.default_rng(0).normal(size=(8, 8))
    g = rlx.Graph()
    x, w = g.input("x", (8,), rlx.f64), g.param("w", (8,), rlx.f64)
    scale = rlx.exp(w)

    def region(nested: Any) -> Any:
        return {"y": rlx.sin(table @ nested[0] * scale), "x": nested[0]}

    out = rlx.checkpoint(region)([x])
    assert out["x"].shape == (8,)
    (op,) = [n for n in g.derive({"y": out["y"]}).nodes if n.op.name == "checkpoint"]
    assert len(op.inputs) == 3 and len(op.attrs["body"]) < 1000
    g.output("loss", (out["y"] * out["x"]).sum())
    rlx.check_grads(g, {"x": np.arange(8.0), "w": np.linspace(-1, 1, 8)}, of="loss",
                    wrt=["x", "w"], order=2)


def test_a_graph_as_a_region(tmp_path: Path) -> None:
    plain = network(block)
    g = rlx.checkpoint(plain)
    assert list(g.leaves) == list(plain.leaves) and list(g.outputs) == ["loss"]
    g.save(tmp_path / "g.rlx")
    want = rlx.evaluate(rlx.grad(plain, of="loss"), feed())
    for copy in (g, rlx.parse(str(g)), rlx.Graph.load(tmp_path / "g.rlx")):
        same_bits(rlx.evaluate(rlx.grad(copy, of="loss"), feed()), want)
    outer = rlx.Graph()
    called = outer.call(g, x=outer.input("x", (ROWS, WIDTH)))
    outer.output("loss", called.loss)
    same_bits(rlx.evaluate(rlx.grad(outer, of="loss"), feed()), want)
    empty = rlx.Graph()
    empty.output("x", empty.input("x", (2,)))
    assert list(rlx.checkpoint(empty).outputs) == ["x"]


def test_regions_nest_and_take_integers() -> None:
    inner = rlx.checkpoint(lambda h, i: rlx.tanh(h) * h[i])
    outer = rlx.checkpoint(lambda h, i: inner(inner(h, i), i))
    g = rlx.Graph()
    x, i = g.input("x", (4,), rlx.f64), g.input("i", (), rlx.i32)
    g.output("loss", outer(x, i).sum())
    rlx.check_grads(g, {"x": np.array([0.3, -0.5, 0.7, 1.1]), "i": np.int32(2)}, of="loss",
                    wrt="x", order=2)


def test_singular_points_inside_are_reported() -> None:
    g = rlx.Graph()
    x = g.input("x", (2,), rlx.f64)
    g.output("loss", (rlx.checkpoint(rlx.sqrt)(x) * rlx.stop_gradient(x)).sum())
    found = rlx.evaluate(rlx.grad(g, of="loss", wrt="x", singular="report"),
                         {"x": np.array([0.0, 4.0])})
    np.testing.assert_array_equal(found["grad_x"], [0, 1])
    assert sum(int(v) for k, v in found.items() if k.startswith("singular")) == 1


def test_another_policy_and_a_damaged_text_are_refused() -> None:
    unknown: Any = "dots"
    with pytest.raises(rlx.ArgumentError, match=r"(?s)'dots' is none of nothing, .*_checkpoint.py"):
        rlx.checkpoint(block, policy=unknown)
    text = str(network(rlx.checkpoint(block)))
    with pytest.raises(rlx.FormatError):
        rlx.parse(text.replace("kept=()", "kept=(9,)", 1))


@policies
def test_regions_stay_under_vmap(policy: Any) -> None:
    def batched(layer: Function) -> Any:
        g = rlx.Graph()
        y = layer(g.input("x", (ROWS, WIDTH)), g.param("w", (WIDTH, WIDTH)))
        g.output("y", (y * y).mean())
        many = rlx.vmap(g, {"x": (0, 3)})
        exe = rlx.compile(rlx.grad(many.derive({"y": many.outputs["y"].sum()}), of="y"), threads=1)
        x = np.random.default_rng(0).normal(size=(3, ROWS, WIDTH)).astype(np.float32)
        return exe(x=x, w=feed()["w0"]), exe.cost().flops

    (plain, fewer), (again, more) = batched(block), batched(rlx.checkpoint(block, policy=policy))
    # The shared weight's gradient is summed over elements last, not in one product.
    np.testing.assert_allclose(again.grad_w, plain.grad_w, rtol=1e-4, atol=1e-6)
    assert more > fewer or policy == "products"


@pytest.mark.parametrize("spec, least", [(rlx.every, 1), (rlx.count, 0), (rlx.budget, 0)])
def test_specifications_are_values_and_checked(spec: Any, least: int) -> None:
    assert spec(least) == spec(least) != spec(least + 1)
    for wrong in (least - 1, True, 1.5, "2", None):
        with pytest.raises(rlx.ArgumentError, match=rf"(?s){spec.__name__}.*test_checkpoint.py"):
            spec(wrong)
