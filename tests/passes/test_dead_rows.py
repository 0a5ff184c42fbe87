"""No cotangent, no contribution, of rows: what a mask leaves out of a loss may be NaN."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import rlx_py as rlx
from rlx_py import nn
from rlx_py.ir.base.types import TupleType, f64
from rlx_py.ir.graph.evaluate import evaluate
from rlx_py.ir.graph.graph import Graph
from rlx_py.ir.nodes.node import Node
from rlx_py.ir.ops.primitive.elementwise import SELECT
from rlx_py.passes.derive.jvp import hvp
from rlx_py.passes.derive.vjp import grad
from support.samples import SAMPLES
from support.samples.sample import Array, Sample

DEAD = 1  # the row that is poisoned
BAD = (np.nan, np.inf)
W = (4, 4)


# ---- every op that keeps rows apart --------------------------------------------------------------


@dataclass(frozen=True)
class Rows:
    """A sample, an axis of its results along which rows do not meet, and where inputs have it."""

    sample: Sample
    axis: int
    places: tuple[int | None, ...]

    def __str__(self) -> str:
        return f"{self.sample}-{self.axis}"

    def poisoned(self, bad: float) -> list[Array]:
        """The sample's arrays with one row of all inputs that have it replaced."""
        found = [np.array(a) for a in self.sample.converted(f64)]
        for a, place in zip(found, self.places, strict=True):
            if place is not None and a.dtype == np.float64:
                a[(slice(None),) * place + (DEAD,)] = bad
        return found


def _kept_apart() -> Iterator[Rows]:
    for s in SAMPLES:
        if s.op.rows is None or not s.differentiable or s.prepare is not None:
            continue
        arrays = s.converted(f64)
        g = Graph()
        node = s.node(*(g.input(f"x{i}", a.shape, a.dtype) for i, a in enumerate(arrays)))
        rows = s.op.rows(node)
        for axis in sorted({a for own in rows for a in own}):
            places = tuple(own.get(axis) for own in rows)
            sizes = [a.shape[p] for a, p in zip(arrays, places, strict=True)
                     if p is not None and a.dtype == np.float64]
            if sizes and min(sizes) > DEAD:
                yield Rows(s, axis, places)


KEPT_APART = list(_kept_apart())


def _results(node: Node) -> list[Node]:
    return list(node) if isinstance(node.type, TupleType) else [node]


def _masked_loss(r: Rows) -> Graph:
    """Σ over the rows that a mask m keeps of y·(y + c), of all results."""
    g = r.sample.graph()
    ys = list(g.outputs.values())
    mask = g.input("m", (ys[0].shape[r.axis],), rlx.bool_)
    rng = np.random.default_rng(3)
    terms = []
    for y in ys:
        if y.dtype.is_float:
            keep = mask.reshape(*(-1 if i == r.axis else 1 for i in range(y.rank)))
            terms.append(rlx.where(keep, y * (y + rng.normal(size=y.shape)), 0.0).sum())
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return g.derive({"loss": total})


def _feed(r: Rows, arrays: list[Array]) -> dict[str, Array]:
    size = r.sample.graph().outputs
    first = next(iter(size.values()))
    mask = np.ones(first.shape[r.axis], np.bool_)
    mask[DEAD] = False
    return {**{f"x{i}": a for i, a in enumerate(arrays)}, "m": mask}


def test_products_norms_and_scans_are_among_them() -> None:
    names = {r.sample.op.name for r in KEPT_APART}
    assert names >= {"contract", "conv", "conv_backward_input", "softmax", "log_softmax",
                     "layer_norm", "rms_norm", "group_norm", "attention", "flash_attention",
                     "softmax_cross_entropy", "cumprod", "gru_scan", "lstm_scan", "logsumexp"}


@pytest.mark.parametrize("r", KEPT_APART, ids=str)
def test_rows_do_not_meet(r: Rows) -> None:
    plain, bad = (evaluate(r.sample.graph(), {f"x{i}": a for i, a in enumerate(arrays)})
                  for arrays in (r.sample.converted(f64), r.poisoned(np.nan)))
    for k, y in plain.items():
        np.testing.assert_allclose(np.delete(bad[k], DEAD, r.axis), np.delete(y, DEAD, r.axis),
                                   rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("r", KEPT_APART, ids=str)
def test_a_row_that_is_masked_adds_nothing(r: Rows) -> None:
    g = _masked_loss(r)
    wrt = [k for k, n in g.inputs.items() if n.dtype.is_float]
    derivative = grad(g, "loss", wrt)
    plain = evaluate(derivative, _feed(r, r.sample.converted(f64)))
    for bad in BAD:
        found = evaluate(derivative, _feed(r, r.poisoned(bad)))
        for k, place in zip(g.inputs, r.places, strict=False):
            if k in wrt:
                np.testing.assert_allclose(found[f"grad_{k}"], plain[f"grad_{k}"], rtol=1e-12,
                                           atol=1e-12)
                if place is not None:
                    assert not np.take(found[f"grad_{k}"], DEAD, place).any()


# ---- networks, three ways to mask, to second order -----------------------------------------------


def _attention(x: Node, w: Node, v: Node) -> Node:
    return nn.attention(x @ w, x @ v, x, num_heads=2)


def _block(x: Node, w: Node, v: Node) -> Node:
    h = x + _attention(x, w, v) @ w
    return h + nn.gelu(nn.layer_norm(h, (4,), w[0], w[1]) @ w) @ v


def _user_scan(x: Node, w: Node) -> Node:
    def step(s: Node, u: Node) -> tuple[Node, Node]:
        h = rlx.tanh(s @ w + u @ w)
        return h, h

    _, ys = rlx.scan(step, x[:, 0] * 0.0, rlx.swapaxes(x, 0, 1))
    return rlx.swapaxes(ys, 0, 1)


NETWORKS: dict[str, tuple[Callable[..., Node], tuple[int, ...], list[tuple[int, ...]]]] = {
    "product": (lambda x, w: x @ w, (3, 4), [W]),
    "einsum": (lambda x, w: rlx.einsum("bij,jk->bik", x, w), (3, 2, 4), [W]),
    "batched": (lambda x, w: x @ w, (3, 2, 4), [(3, 4, 5)]),
    "gram": (lambda x: x @ rlx.swapaxes(x, -1, -2), (3, 2, 4), []),
    "mlp": (lambda x, w, v, b: nn.linear(nn.gelu(nn.relu(x @ w) @ v), w, b), (3, 4),
            [W, W, (4,)]),
    "softmax": (lambda x, w: nn.softmax(x @ w), (3, 4), [W]),
    "layer_norm": (lambda x, w, b: nn.layer_norm(x, (4,), w, b), (3, 4), [(4,), (4,)]),
    "instance_norm": (lambda x, w: nn.instance_norm(x, weight=w), (3, 4, 5), [(4,)]),
    "conv": (lambda x, w, b: nn.conv2d(x, w, b, padding=1, stride=2), (3, 2, 5, 4),
             [(3, 2, 3, 3), (3,)]),
    "depthwise": (lambda x, w: nn.conv2d(x, w, groups=2), (3, 2, 5, 4), [(2, 1, 3, 3)]),
    "transposed": (lambda x, w: nn.conv_transpose1d(x, w, stride=2), (3, 4, 5), [(4, 3, 2)]),
    "pooled": (lambda x, w: nn.max_pool1d(nn.conv1d(x, w), 2), (3, 4, 6), [(3, 4, 2)]),
    "folds": (lambda x, w: rlx.stack([f(x @ w, axis=-1) for f in (
        rlx.mean, rlx.std, rlx.max, rlx.prod, rlx.logsumexp, rlx.norm)], 1), (3, 4), [W]),
    "running": (lambda x, w: rlx.cumsum(x @ w, -1) + rlx.cumprod(x @ w, -1)
                + rlx.cumlogsumexp(x @ w, -1), (3, 4), [W]),
    "sorted": (lambda x, w: rlx.sort(x @ w, -1), (3, 4), [W]),
    "moved": (lambda x, w: rlx.roll(rlx.flip(rlx.flip(rlx.roll(x, 1, 0), 0) @ w, 0), -1, 0),
              (3, 4), [W]),
    "reshaped": (lambda x, w: (x.reshape(6, 4) @ w).reshape(3, 8), (3, 2, 4), [W]),
    "split": (lambda x, w: rlx.concatenate([(x @ w)[:, 4:], (x @ w)[:, :4]], 1), (3, 4), [(4, 8)]),
    "attention": (_attention, (3, 2, 4), [W, W]),
    "flash": (lambda x, w, v: nn.flash_attention(x @ w, x @ v, x, num_heads=2)[0], (3, 2, 4),
              [W, W]),
    "causal": (lambda x, w, v: nn.scaled_dot_product_attention(x @ w, x @ v, x, is_causal=True),
               (3, 2, 4), [W, W]),
    "block": (_block, (3, 2, 4), [W, W]),
    "gru": (lambda x, *p: nn.gru(x, None, [p], batch_first=True)[0], (3, 2, 4),
            [(12, 4), (12, 4), (12,), (12,)]),
    "checkpoint": (lambda x, w: rlx.checkpoint(lambda a: nn.relu(a @ w) @ w)(x), (3, 4), [W]),
    "scan": (_user_scan, (3, 2, 4), [W]),
}
FIRST_ORDER = {"scan"}  # reverse over reverse of a loop is plain arithmetic


@dataclass
class Network:
    """A loss in which one row of x is masked, and its arrays."""

    graph: Graph
    arrays: dict[str, Array]
    wrt: list[str]

    def feed(self, graph: Graph, bad: float | None) -> dict[str, Array]:
        """The arrays that a graph reads, the dead row poisoned if so asked."""
        given = {k: v.copy() for k, v in self.arrays.items() if k in graph.leaves}
        if bad is not None:
            given["x"][DEAD] = bad
        return given


def _network(name: str, mask: str) -> Network:
    build, shape, weights = NETWORKS[name]
    rng = np.random.default_rng(5)
    arrays = {f"w{i}": rng.normal(0, 0.5, s) for i, s in enumerate(weights)}
    g = Graph(name)
    x = g.input("x", shape, f64)
    y = build(x, *(g.param(k, a.shape, f64) for k, a in arrays.items()))
    wrt = ["x", *arrays]
    loss = y * (y + rng.normal(size=y.shape))
    keep = np.arange(shape[0]) != DEAD
    arrays |= {"x": rng.normal(size=shape), "m": keep, "rows": np.flatnonzero(keep)}
    tail = (1,) * (y.rank - 1)
    if mask == "where":
        loss = rlx.where(g.input("m", keep.shape, rlx.bool_).reshape(-1, *tail), loss, 0.0)
    elif mask == "bool":
        loss = loss * g.input("m", keep.shape, rlx.bool_).reshape(-1, *tail)
    elif mask == "take":
        loss = loss[g.input("rows", (shape[0] - 1,), rlx.i64)]
    elif mask == "slice":
        loss = loss[::2]
    elif mask == "numbers":
        numbers = rlx.all(rlx.isfinite(x), tuple(range(1, x.rank)))
        loss = rlx.where(numbers.reshape(-1, *tail), loss, 0.0)
    g.output("loss", loss.sum())
    for k in wrt:
        arrays[f"v_{k}"] = rng.normal(size=arrays[k].shape)
    return Network(g, arrays, wrt)


def _second(net: Network, first: Graph) -> Graph:
    """Reverse over reverse: the gradient of Σ grad·v."""
    total: Any = 0.0
    for k in net.wrt:
        g = first.outputs[f"grad_{k}"]
        total = total + (g * net.arrays[f"v_{k}"]).sum()
    return grad(first.derive({"s": total}), "s", net.wrt)


def _close(found: Any, expected: Any, what: str) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9, err_msg=what)


@pytest.mark.parametrize("name", NETWORKS)
def test_weights_do_not_see_a_dead_sample(name: str) -> None:
    net = _network(name, "where")
    first = grad(net.graph, "loss", net.wrt)
    plain = evaluate(first, net.feed(first, 0.25))
    run = rlx.compile(first)
    for bad in BAD:
        for found in (evaluate(first, net.feed(first, bad)), dict(run(**net.feed(first, bad)))):
            for k in net.wrt:
                _close(found[f"grad_{k}"], plain[f"grad_{k}"], k)
        assert not found["grad_x"][DEAD].any()


@pytest.mark.parametrize("name", NETWORKS)
def test_second_derivatives_do_not_see_it_either(name: str) -> None:
    net = _network(name, "where")
    forward = hvp(net.graph, "loss", net.wrt)
    plain = evaluate(forward, net.feed(forward, 0.25))
    found = evaluate(forward, net.feed(forward, np.nan))
    for k in net.wrt:
        _close(found[f"hvp_{k}"], plain[f"hvp_{k}"], k)
    if name in FIRST_ORDER:
        return
    reverse = _second(net, grad(net.graph, "loss", net.wrt))
    found = evaluate(reverse, net.feed(reverse, np.nan))
    for k in net.wrt:
        _close(found[f"grad_{k}"], plain[f"hvp_{k}"], k)


@pytest.mark.parametrize("mask", ["bool", "take", "slice", "numbers"])
@pytest.mark.parametrize("name", ["product", "mlp", "layer_norm", "conv", "block"])
def test_all_ways_to_mask(name: str, mask: str) -> None:
    net = _network(name, mask)
    first = grad(net.graph, "loss", net.wrt)
    forward = hvp(net.graph, "loss", net.wrt)
    reverse = _second(net, first)
    like = _network(name, "where")
    expected = hvp(like.graph, "loss", like.wrt)
    plain = evaluate(grad(like.graph, "loss", like.wrt), like.feed(like.graph, 0.25))
    second = evaluate(expected, like.feed(expected, 0.25))
    for graph, prefix, values in ((first, "grad_", plain), (forward, "hvp_", None),
                                  (reverse, "grad_", None)):
        found = dict(rlx.compile(graph)(**net.feed(graph, np.nan)))
        for k in net.wrt:
            _close(found[prefix + k], second[f"hvp_{k}"] if values is None else
                   values[f"grad_{k}"], f"{prefix}{k}")


# ---- what is no mask, and what a mask does not change --------------------------------------------


def test_derivatives_by_weights_of_samples_that_are_zero() -> None:
    """As in learning to reweight: the gradient of a validation loss by weights of 0."""
    net = _network("mlp", "none")
    g = net.graph
    x, y = g.inputs["x"], next(iter(net.graph.outputs.values()))
    weight = g.input("weight", (3,), f64)
    rows = (nn.relu(x @ g.params["w0"]) ** 2).sum(1)
    g.output("train", (rows * weight).sum())
    step = grad(g, "train", ["w0"]).outputs["grad_w0"]
    by_weight = grad(g.derive({"s": (step * y).sum()}), "s", ["weight"])
    arrays = {k: v for k, v in net.arrays.items() if k in by_weight.leaves}
    found = evaluate(by_weight, {**arrays, "weight": np.zeros(3)})["grad_weight"]
    assert found.all()
    _close(found, evaluate(by_weight, {**arrays, "weight": np.ones(3)})["grad_weight"], "weight")


def test_second_derivatives_where_a_residual_happens_to_be_zero() -> None:
    """A cotangent that happens to be 0 keeps its row: the Hessian of an exact fit is 2xᵀx."""
    g = rlx.Graph()
    x, w, m = g.input("x", (4, 3), f64), g.param("w", (3,), f64), g.input("m", (4,), rlx.bool_)
    g.output("loss", rlx.where(m, (x @ w - x @ np.ones(3)) ** 2, 0.0).sum())
    rng = np.random.default_rng(0)
    a, v, keep = rng.normal(size=(4, 3)), rng.normal(size=3), np.array([True, True, False, True])
    feed = {"x": a, "w": np.ones(3), "m": keep, "v_w": v}
    found = evaluate(hvp(g, "loss", ["w"]), feed)["hvp_w"]
    _close(found, 2 * a[keep].T @ a[keep] @ v, "hvp")


def test_modes_of_singular_points() -> None:
    net = _network("product", "where")
    plain = grad(net.graph, "loss", ["w0"], singular="ieee")
    assert np.isnan(evaluate(plain, net.feed(plain, np.nan))["grad_w0"]).any()
    report = grad(net.graph, "loss", ["w0"], singular="report")
    feed = net.feed(report, np.nan)
    assert np.isfinite(evaluate(report, feed)["grad_w0"]).all()
    (of_product,) = [r for r in rlx.singular_report(report, feed) if r.op == "contract"]
    assert of_product.count == 4 and of_product.loc is not None
    assert not [r for r in rlx.singular_report(report, net.feed(report, 0.5)) if r.op == "contract"]


def test_networks_without_masks_stay_as_they_are() -> None:
    """Neither selects of their own, as in relu, nor slices that are all read cost anything."""
    for name in ("mlp", "block", "conv", "split", "gru"):
        net = _network(name, "none")
        zero, ieee = (grad(net.graph, "loss", net.wrt, singular=mode) for mode in ("zero", "ieee"))
        selects = [sum(n.op is SELECT for n in g.nodes) for g in (zero, ieee)]
        assert selects[0] == selects[1], name


def test_a_mask_of_all_elements_keeps_what_some_element_needs() -> None:
    g = rlx.Graph()
    x, w = g.input("x", (3, 2), f64), g.param("w", (2, 2), f64)
    m = g.input("m", (3, 2), rlx.bool_)
    g.output("loss", rlx.where(m, x @ w, 0.0).sum())
    run = rlx.compile(grad(g, "loss", ["w"]))
    a = np.array([[1.0, 2.0], [np.nan, np.inf], [3.0, 4.0]])
    keep = np.array([[True, False], [False, False], [True, True]])
    np.testing.assert_array_equal(run(x=a, w=np.ones((2, 2)), m=keep).grad_w, [[4, 3], [6, 4]])


def test_columns_that_are_masked_add_nothing_to_the_input() -> None:
    g = rlx.Graph()
    x, w, m = g.input("x", (3, 2), f64), g.param("w", (2, 4), f64), g.input("m", (4,), rlx.bool_)
    g.output("loss", rlx.where(m, x @ w, 0.0).sum())
    table = np.arange(8.0).reshape(2, 4)
    table[:, 1] = np.nan
    found = rlx.compile(grad(g, "loss", ["x", "w"]))(
        x=np.ones((3, 2)), w=table, m=np.array([True, False, True, True]))
    np.testing.assert_array_equal(found.grad_x, np.tile([5.0, 17.0], (3, 1)))
    np.testing.assert_array_equal(found.grad_w, np.tile([3.0, 0.0, 3.0, 3.0], (2, 1)))


def test_labels_that_are_ignored() -> None:
    g = rlx.Graph()
    x, w = g.input("x", (4, 3), f64), g.param("w", (3, 5), f64)
    labels, scale = g.input("labels", (4,), rlx.i64), g.input("scale", (5,), f64)
    rng = np.random.default_rng(1)
    a, table = rng.normal(size=(4, 3)), rng.normal(size=(3, 5))
    feed = {"w": table, "labels": np.array([1, -100, 3, 0]), "scale": np.arange(1.0, 6)}
    bad = a.copy()
    bad[1] = np.nan
    for weight in (None, scale):
        loss = nn.cross_entropy(nn.log_softmax(rlx.tanh(x) @ w), labels, weight)
        run = rlx.compile(grad(g.derive({"loss": loss}), "loss", ["x", "w"]))
        plain, found = run(x=a, **feed), run(x=bad, **feed)
        _close(found.grad_w, plain.grad_w, "w")
        _close(found.grad_x, plain.grad_x, "x")


def test_queries_that_are_padding() -> None:
    """A query that no loss reads may be NaN; the mask of keys hides it from the others, if its key
    and value are numbers."""
    g = rlx.Graph()
    q, k, v = (g.input(n, (2, 2, 3, 4), f64) for n in "qkv")
    seen = g.input("seen", (2, 3), rlx.bool_)
    y = nn.attention(q, k, v, seen, mask="custom")
    g.output("loss", rlx.where(seen[:, None, :, None], y * y, 0.0).sum())
    run = rlx.compile(grad(g, "loss", ["q", "k", "v"]))
    rng = np.random.default_rng(2)
    arrays = {n: rng.normal(size=(2, 2, 3, 4)) for n in "qkv"}
    keep = np.array([[True, True, False], [True, True, True]])
    plain = run(**arrays, seen=keep)
    arrays["q"] = arrays["q"].copy()
    arrays["q"][0, :, 2] = np.nan
    found = run(**arrays, seen=keep)
    for n in "qkv":
        _close(found[f"grad_{n}"], plain[f"grad_{n}"], n)


def test_steps_that_a_mask_skips() -> None:
    """A step that is not taken may read NaN: what is inside the loop and what comes before it."""
    g = rlx.Graph()
    x, w, u = g.input("x", (5, 3, 4), f64), g.param("w", W, f64), g.param("u", W, f64)
    taken = g.input("taken", (5, 3), rlx.bool_)

    def step(s: Node, given: tuple[Node, Node]) -> tuple[Node, None]:
        now, keep = given
        return rlx.where(keep[:, None], rlx.tanh(now + s @ w), s), None

    last, _ = rlx.scan(step, rlx.zeros((3, 4), f64), (x @ u, taken))
    g.output("loss", (last * last).sum())
    run = rlx.compile(grad(g, "loss", ["x", "w", "u"]))
    rng = np.random.default_rng(4)
    a, keep = rng.normal(size=(5, 3, 4)), rng.random((5, 3)) < 0.6
    weights = {"w": rng.normal(size=W), "u": rng.normal(size=W)}
    plain = run(x=np.where(keep[..., None], a, 0.5), taken=keep, **weights)
    found = run(x=np.where(keep[..., None], a, np.nan), taken=keep, **weights)
    for k in ("x", "w", "u"):
        _close(found[f"grad_{k}"], plain[f"grad_{k}"], k)


def _modes_agree(g: Graph, feed: dict[str, Array]) -> None:
    """On finite numbers nothing that is alive is taken for dead."""
    wrt = [k for k, n in g.inputs.items() if n.dtype.is_float]
    found, plain = (evaluate(grad(g, "loss", wrt, singular=mode), feed)
                    for mode in ("zero", "ieee"))
    for k, want in plain.items():
        _close(found[k], want, k)


def test_a_mask_beside_itself_the_other_way_round() -> None:
    """What m leaves out is none that any of a column of m needs, lying along the other axis."""
    g = rlx.Graph()
    x, v, w = (g.input(k, (3, 3), f64) for k in "xvw")
    m = g.input("m", (3, 3), rlx.bool_)
    h = rlx.tanh(x @ v)
    g.output("loss", rlx.where(m, h, 0.0).sum() + (rlx.where(m, h.T @ w, 0.0) ** 2).sum())
    rng = np.random.default_rng(8)
    keep = np.zeros((3, 3), np.bool_)
    keep[0, 1] = keep[2, 0] = True
    _modes_agree(g, {"m": keep, **{k: rng.normal(size=(3, 3)) for k in "xvw"}})


def test_a_mask_of_one_step_is_not_that_of_the_step_before() -> None:
    g = rlx.Graph()
    s, c, w = g.input("s", (3, 2), f64), g.input("c", (4, 3, 2), f64), g.input("w", (2, 2), f64)

    def step(state: Node, given: tuple[Node, Node]) -> tuple[Node, Node]:
        now, keep = given
        h = rlx.where(keep[:, None], state, 0.0)
        return (h + now) @ w, h * h

    _, ys = rlx.scan(step, s, (c, g.input("keep", (4, 3), rlx.bool_)))
    g.output("loss", ys.sum())
    rng = np.random.default_rng(9)
    _modes_agree(g, {"keep": rng.random((4, 3)) < 0.5, "s": rng.normal(size=(3, 2)),
                     "c": rng.normal(size=(4, 3, 2)), "w": rng.normal(size=(2, 2))})


def test_every_element_of_a_batch_has_its_mask() -> None:
    def loss(x: Node, w: Node, m: Node) -> Node:
        return rlx.where(m[:, None], nn.softmax(x @ w) ** 2, 0.0).sum()

    one = rlx.Graph()
    x, w, m = one.input("x", (3, 4), f64), one.input("w", W, f64), one.input("m", (3,), rlx.bool_)
    one.output("loss", loss(x, w, m))
    rng = np.random.default_rng(6)
    keep = rng.random((5, 3)) < 0.7
    feed = {"x": np.where(keep[..., None], rng.normal(size=(5, 3, 4)), np.nan),
            "w": rng.normal(size=W), "m": keep}
    every = rlx.vmap(grad(one, "loss", ["w"]), {"x": 0, "m": 0}, size=5)
    batched = rlx.compile(every)(**feed).grad_w
    single = rlx.compile(grad(one, "loss", ["w"]))
    for i in range(5):
        _close(batched[i], single(x=feed["x"][i], w=feed["w"], m=keep[i]).grad_w, str(i))


def test_sizes_by_name() -> None:
    b, t = rlx.dim("B"), rlx.dim("T")
    g = rlx.Graph()
    x, w, m = g.input("x", (b, t, 4), f64), g.param("w", W, f64), g.input("m", (b, t), rlx.bool_)
    h = nn.attention(x @ w, x @ w, nn.layer_norm(x, (4,)), num_heads=2)
    h = (h.reshape(b * t, 4) @ w).reshape(b, t, 4)
    g.output("loss", rlx.where(m[:, :, None], h * h, 0.0).sum())
    run = rlx.compile(grad(g, "loss", ["w"]))
    rng = np.random.default_rng(7)
    a, keep = rng.normal(size=(3, 5, 4)), np.arange(3)[:, None].repeat(5, 1) != DEAD
    weights = rng.normal(size=W)
    plain = run(x=a, w=weights, m=keep).grad_w
    a[DEAD] = np.nan
    _close(run(x=a, w=weights, m=keep).grad_w, plain, "w")
