"""Regions computed again: the same bits in less memory, any order of derivative, captures."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx_py as rlx
from rlx_py.backends.llvm.backend import program_for
from rlx_py.backends.llvm.targets import host
from rlx_py.ir.graph.body import graph_of
from rlx_py.ir.nodes.node import toposort
from rlx_py.ir.ops.control.region import body_graph
from rlx_py.passes.derive import remat
from rlx_py.passes.derive.differentiate import prepared
from rlx_py.passes.derive.pullback import lacks_vjp
from rlx_py.passes.loops.plan_check import check_plan

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


# ---- budgets -------------------------------------------------------------------------------------

UNIT = ROWS * WIDTH * 4  # bytes of what one layer gives


def chain(depth: int = 12) -> rlx.Graph:
    g = rlx.Graph()
    h = g.input("x", (ROWS, WIDTH))
    for i in range(depth):
        h = rlx.tanh(h @ g.param(f"w{i}", (WIDTH, WIDTH)))
    g.output("loss", (h * h).mean())
    return g


def mixed() -> rlx.Graph:
    """Ops with rules of their own, several results, integers, constants, and a value used twice."""
    g = rlx.Graph()
    x, w = g.input("x", (16, 8)), g.param("w", (8, 8))
    rows = g.input("rows", (4,), rlx.i32)
    h = rlx.layer_norm(x @ w, (8,)) * np.linspace(0.5, 1.5, 8, dtype=np.float32)
    h = h + rlx.softmax(rlx.gelu(h @ w)) * rlx.exp(0.1 * h)
    best, _ = rlx.top_k(h, 3)
    picked = rlx.take(rlx.sort(h, axis=0), rows, axis=0)
    g.output("loss", rlx.norm(best).sum() + (picked * picked).sum() + rlx.logsumexp(h))
    g.output("h", h)
    return g


def mixed_feed() -> dict[str, Array]:
    rng = np.random.default_rng(0)
    return {"x": rng.normal(size=(16, 8)).astype(np.float32), "rows": np.array([3, 1, 1, 9], "i4"),
            "w": rng.normal(0, 0.4, (8, 8)).astype(np.float32)}


def kept_by(g: rlx.Graph) -> list[rlx.Node]:
    (op,) = [n for n in g.nodes if n.op.name == "checkpoint"]
    outputs = list(graph_of(op.attrs["body"]).outputs.values())
    return [outputs[k] for k in op.attrs["kept"]]


def nbytes(nodes: list[rlx.Node]) -> int:
    return sum(n.tensor.nbytes for n in nodes)


@pytest.mark.parametrize("most", [0, 40, 300, 1000, 3000, 10**9])
def test_budgets_hold_and_bits_stay(most: int) -> None:
    g = rlx.checkpoint(mixed(), policy=rlx.budget(most))
    assert nbytes(kept_by(g)) <= most
    given = mixed_feed()
    derivations: list[Function] = [
        lambda g: rlx.value_and_grad(g, of="loss", wrt=["w", "x"]), rlx.jvp,
        lambda g: rlx.hvp(g, of="loss")]
    for derive in derivations:
        plain, again = derive(mixed()), derive(g)
        extra = {k: np.cos(np.arange(64.0)).reshape(8, 8).astype("f4")
                 for k in plain.inputs if k not in given}
        want = rlx.evaluate(plain, given | extra)
        same_bits(rlx.evaluate(again, given | extra), want)
        found = rlx.compile(again, threads=1)(**given, **extra)
        for name, value in want.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-5)


def test_a_budget_takes_memory_for_work_step_by_step() -> None:
    def cost(g: rlx.Graph) -> Any:
        return rlx.compile(rlx.value_and_grad(g, of="loss"), threads=1).cost()

    plain = cost(chain())
    found = {b: cost(rlx.checkpoint(chain(), policy=rlx.budget(b * UNIT)))
             for b in (0, 2, 4, 8, 12)}
    work = [c.flops for c in found.values()]
    assert work == sorted(work, reverse=True) and len(set(work)) == 5
    assert found[12].flops == plain.flops and found[12].arena_bytes <= plain.arena_bytes
    assert found[2].arena_bytes < 0.6 * plain.arena_bytes
    assert found[4].arena_bytes < 0.6 * plain.arena_bytes
    again = work[0] - plain.flops  # every product of the chain once more
    assert found[4].flops - plain.flops == pytest.approx(again * 8 / 12, rel=0.02)


def test_equal_values_are_kept_at_equal_distances() -> None:
    g = rlx.checkpoint(chain(), policy=rlx.budget(3 * UNIT))
    (op,) = [n for n in g.nodes if n.op.name == "checkpoint"]
    depth = [sum(m.op.name == "tanh" for m in toposort([n])) for n in kept_by(g)]
    assert depth == [4, 7, 10]


def small(seed: int, most: int = 4) -> rlx.Graph:
    """A random program of a few values of unequal sizes and costs."""
    rng = np.random.default_rng(seed)
    g = rlx.Graph()
    values = [g.param("a", (6, 4)), g.param("b", (4, 6))]
    ops: list[Function] = [rlx.tanh, rlx.exp, lambda x: x * x, lambda x: x @ x.T,
                           lambda x: rlx.sin(x).sum(axis=1, keepdims=True) * x]
    for _ in range(most):
        values.append(ops[rng.integers(len(ops))](values[rng.integers(len(values))]))
    g.output("loss", sum(((v * v).sum() for v in values[3:]), values[2].sum()))
    return g


@pytest.mark.parametrize("seed", range(6))
def test_choices_are_the_least_work_on_the_hull_and_near_it_between(seed: int) -> None:
    graph = prepared(small(seed), list(small(seed).params.values()), lacks_vjp)
    leaves = list(graph.params.values())
    graph = body_graph(leaves, list(graph.outputs.values()))
    values, needed = remat._read_again(graph)
    search = remat._Search(values, needed)
    places = [n for n in search.order if n in search.bytes and search.choice([n]).kept]
    assert 3 <= len(places) <= 12
    every = [search.choice(chosen) for size in range(len(places) + 1)
             for chosen in combinations(places, size)]
    best = {c.bytes: min(d.work for d in every if d.bytes <= c.bytes) for c in every}
    corners = [b for b in best if all(
        best[b] * (z - a) < best[a] * (z - b) + best[z] * (b - a)
        for a in best for z in best if a < b < z)]
    assert len(corners) >= 3
    largest = max(search.work.values())
    for most in best:
        kept = remat.affordable(graph, most)
        inverse = {v: k for k, v in values.items()}
        found = search.choice(inverse[n] for n in kept)
        assert found.bytes <= most
        below = max(b for b in corners if b <= most)
        assert best[most] <= found.work <= best[below]
        if most in corners:
            assert found.work == best[most]
        assert found.work <= best[most] + largest


def test_budgets_of_functions_and_inside_files(tmp_path: Path) -> None:
    region = rlx.checkpoint(block, policy=rlx.budget(2 * UNIT))
    plain, again = network(block), network(region)
    same_bits(rlx.compile(rlx.value_and_grad(plain, of="loss"), threads=1)(**feed()),
              rlx.compile(rlx.value_and_grad(again, of="loss"), threads=1)(**feed()))
    again.save(tmp_path / "g.rlx")
    same_bits(rlx.evaluate(rlx.grad(rlx.Graph.load(tmp_path / "g.rlx"), of="loss"), feed()),
              rlx.evaluate(rlx.grad(plain, of="loss"), feed()))
    step = rlx.train_step(again, of="loss", optimizer=rlx.optim.adam(1e-3))
    check_plan(program_for(step, host()))


def test_budgets_of_empty_regions_and_unknown_sizes() -> None:
    g = rlx.Graph()
    g.output("n", rlx.argmax(g.input("x", (3,))))
    assert kept_by(rlx.checkpoint(g, policy=rlx.budget(100))) == []
    free = rlx.Graph()
    x = free.input("x", (rlx.dim("B"), 2))
    free.output("loss", rlx.tanh(rlx.exp(x)).sum())
    with pytest.raises(rlx.ArgumentError, match=r"(?s)sizes that are known.*test_checkpoint.py"):
        rlx.checkpoint(free, policy=rlx.budget(100))


@pytest.mark.parametrize("seed", range(12))
def test_any_choice_of_kept_values_gives_the_same_bits(seed: int) -> None:
    plain, rng = small(seed, most=8), np.random.default_rng(seed)
    region = rlx.checkpoint(plain, policy=lambda node: bool(rng.integers(3) == 0))
    given = {k: rng.normal(0, 0.2, n.shape).astype("f4") for k, n in plain.params.items()}
    derivations: list[Function] = [
        lambda g: rlx.grad(g, of="loss"), lambda g: rlx.hvp(g, of="loss"),
        lambda g: rlx.grad(rlx.grad(g, of="loss").derive(
            {"s": rlx.grad(g, of="loss").outputs["grad_a"].sum()}), of="s", wrt=["a", "b"])]
    for derive in derivations:
        want, again = derive(plain), derive(region)
        extra = {k: np.cos(np.arange(24.0)).reshape(n.shape).astype("f4")
                 for k, n in want.inputs.items()}
        for name, value in rlx.evaluate(want, given | extra).items():
            found = rlx.evaluate(again, given | extra)[name]
            np.testing.assert_allclose(found, value, rtol=1e-5, atol=1e-5)
    first, second = (rlx.evaluate(rlx.grad(g, of="loss"), given) for g in (plain, region))
    same_bits(first, second)


@pytest.mark.parametrize("most", [0, 100, 10**6])
def test_loops_inside_a_budget(most: int) -> None:
    def graph() -> rlx.Graph:
        g = rlx.Graph()
        w = g.param("w", (3,), rlx.f64)
        last, seen = rlx.scan(lambda c, x: (rlx.sin(c) * x + w, c * c), w * 2.0,
                              np.arange(12.0).reshape(4, 3))
        chosen = rlx.cond(last.sum() > 0.0, rlx.exp, rlx.square, last)
        g.output("loss", rlx.tanh(chosen).sum() + (seen * seen).mean())
        return g

    region = rlx.checkpoint(graph(), policy=rlx.budget(most))
    assert nbytes(kept_by(region)) <= most
    point = {"w": np.array([0.5, 0.2, 0.1])}
    want, found = (rlx.evaluate(rlx.grad(g, of="loss"), point) for g in (graph(), region))
    np.testing.assert_allclose(found["grad_w"], want["grad_w"], rtol=1e-12)
    rlx.check_grads(region, point, of="loss", order=2)
