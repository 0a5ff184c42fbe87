"""Mamba-3 against loops in NumPy written from its formulas, and between its forms."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import rlx_py as rlx
from rlx_py import nn
from rlx_py.ir.graph.evaluate import evaluate
from rlx_py.ir.nodes.node import OPS
from support.sweep import assert_near

Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]
MAPS = {"identity": lambda a: a, "pi_tanh": lambda a: np.pi * np.tanh(a)}


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng([seed, *shape]).standard_normal(shape)


def uniform(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng([seed, *shape]).uniform(0.1, 0.9, shape)


def logistic(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def turned(x: Array, theta: Array) -> Array:
    found = x.copy()
    for i, angle in enumerate(theta):
        a, b = x[2 * i], x[2 * i + 1]
        found[2 * i] = a * np.cos(angle) - b * np.sin(angle)
        found[2 * i + 1] = a * np.sin(angle) + b * np.cos(angle)
    return found


def mixed_loop(C: Array, B: Array, x: Array, adt: Array, dt: Array, trap: Array, angle: Array,
               c_bias: Array, b_bias: Array, angles: str) -> Array:
    """h_t = α h_{t−1} + β U_{t−1} + γ U_t and y_r = h q_r, of x[Bt, L, H, R, P]."""
    rows, steps, heads, rank, width = x.shape
    y = np.zeros_like(x)
    groups = C.shape[2] // rank
    for row in range(rows):
        for head in range(heads):
            group = head // (heads // groups)
            h = before = np.zeros((width, C.shape[3]))
            theta = np.zeros(angle.shape[2])
            for t in range(steps):
                lam, step = logistic(trap[row, t, head]), dt[row, t, head]
                alpha = np.exp(adt[row, t, head])
                theta = theta + MAPS[angles](angle[row, t]) * step
                q = [turned(C[row, t, r * groups + group] + c_bias[head, r], theta)
                     for r in range(rank)]
                k = [turned(B[row, t, r * groups + group] + b_bias[head, r], theta)
                     for r in range(rank)]
                taken = sum(np.outer(x[row, t, head, r], k[r]) for r in range(rank))
                h = alpha * h + (1 - lam) * step * alpha * before + lam * step * taken
                before = taken
                for r in range(rank):
                    y[row, t, head, r] = h @ q[r]
    return y


def siso_loop(x: Array, c_bias: Array, b_bias: Array, d: Array | None = None,
              z: Array | None = None, angles: str = "identity", **given: Array) -> Array:
    y = mixed_loop(x=x[..., None, :], c_bias=c_bias[:, None], b_bias=b_bias[:, None],
                   angles=angles, **given)[..., 0, :]
    y = y if d is None else y + d[:, None] * x
    return y if z is None else y * z * logistic(z)


def mimo_loop(x: Array, mimo_x: Array, mimo_o: Array, d: Array | None = None,
              z: Array | None = None, mimo_z: Array | None = None,
              norm_weight: Array | None = None, eps: float = 1e-5, angles: str = "identity",
              **given: Array) -> Array:
    wide = x[..., None, :] * mimo_x
    o = mixed_loop(x=wide, angles=angles, **given)
    o = o if d is None else o + d[:, None, None] * wide
    if norm_weight is not None:
        o = o / np.sqrt((o * o).mean(-1, keepdims=True) + eps) * norm_weight[:, None]
    if z is not None and mimo_z is not None:
        s = z[..., None, :] * mimo_z
        o = o * s * logistic(s)
    return np.asarray((o * mimo_o).sum(-2))


def arrays_of(rows: int, steps: int, heads: int, groups: int, rank: int | None = None, *,
              width: int = 2, depth: int = 5, turning: int = 2) -> Arrays:
    """For the mixer of one rank, or of several."""
    r = rank or 1
    ranks = () if rank is None else (r,)
    found = {"C": normal(rows, steps, r * groups, depth), "x": normal(rows, steps, heads, width),
             "B": normal(rows, steps, r * groups, depth, seed=1),
             "adt": -uniform(rows, steps, heads), "dt": uniform(rows, steps, heads, seed=1),
             "trap": normal(rows, steps, heads), "angle": normal(rows, steps, turning),
             "c_bias": normal(heads, *ranks, depth), "b_bias": normal(heads, *ranks, depth, seed=1),
             "d": normal(heads), "z": normal(rows, steps, heads, width, seed=1)}
    if rank is not None:
        found |= {k: normal(heads, r, width, seed=i)
                  for i, k in enumerate(("mimo_x", "mimo_o", "mimo_z"))}
        found["norm_weight"] = normal(heads, width)
    return found


def graph_of(arrays: Arrays, **options: Any) -> rlx.Graph:
    g = rlx.Graph("mamba3")
    f = nn.mamba3_mimo if "mimo_x" in arrays else nn.mamba3_siso
    y = f(**{k: g.param(k, a.shape, rlx.f64) for k, a in arrays.items()}, **options)
    g.output("y", y)
    g.output("loss", (y * normal(*y.shape, seed=9)).sum() + (y ** 2).sum())
    return g


LEFT_OUT: list[tuple[str, ...]] = [(), ("d",), ("z", "mimo_z"), ("norm_weight",),
                                   ("d", "z", "mimo_z", "norm_weight")]


@pytest.mark.parametrize("angles", MAPS)
@pytest.mark.parametrize("steps", [0, 1, 2, 5])
@pytest.mark.parametrize("rank", [None, 1, 3])
def test_a_mixer_is_its_loop(rank: int | None, steps: int, angles: str) -> None:
    arrays = arrays_of(2, steps, 4, 2, rank)
    loop = siso_loop if rank is None else mimo_loop
    found = evaluate(graph_of(arrays, angles=angles), arrays)["y"]
    np.testing.assert_allclose(found, loop(**arrays, angles=angles), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("left_out", LEFT_OUT, ids=str)
@pytest.mark.parametrize("rank", [None, 2])
def test_parts_may_be_left_out(rank: int | None, left_out: tuple[str, ...]) -> None:
    arrays = {k: a for k, a in arrays_of(3, 2, 2, 1, rank).items() if k not in left_out}
    loop = siso_loop if rank is None else mimo_loop
    g = graph_of(arrays)
    np.testing.assert_allclose(evaluate(g, arrays)["y"], loop(**arrays), rtol=1e-11, atol=1e-12)
    rlx.check_grads(g, arrays, of="loss", order=1)


@pytest.mark.parametrize("turning", [0, 1, 2])
def test_the_pairs_beyond_the_angles_stay(turning: int) -> None:
    arrays = arrays_of(1, 3, 2, 2, None, turning=turning)
    np.testing.assert_allclose(evaluate(graph_of(arrays), arrays)["y"], siso_loop(**arrays),
                               rtol=1e-11, atol=1e-12)


def test_one_rank_of_ones_is_the_plain_mixer() -> None:
    arrays = arrays_of(2, 4, 4, 2)
    one = {**arrays, "c_bias": arrays["c_bias"][:, None], "b_bias": arrays["b_bias"][:, None],
           **{k: np.ones((4, 1, 2)) for k in ("mimo_x", "mimo_o", "mimo_z")}}
    plain = evaluate(rlx.value_and_grad(graph_of(arrays), of="loss"), arrays)
    ranked = evaluate(rlx.value_and_grad(graph_of(one), of="loss"), one)
    for name, found in plain.items():
        np.testing.assert_allclose(ranked[name].reshape(found.shape), found, rtol=1e-10, atol=1e-11)


def test_ranks_share_one_state() -> None:
    """They are not so many mixers side by side."""
    arrays = {k: a for k, a in arrays_of(1, 3, 2, 1, 2).items() if k not in (
        "z", "mimo_z", "d", "norm_weight")}
    whole = evaluate(graph_of(arrays), arrays)["y"]
    apart = 0
    for r in range(2):
        one = {**arrays, **{k: arrays[k][:, :, r:r + 1] for k in ("C", "B")},
               **{k: arrays[k][:, r:r + 1] for k in ("c_bias", "b_bias", "mimo_x", "mimo_o")}}
        apart = apart + evaluate(graph_of(one), one)["y"]
    assert np.abs(whole - apart).max() > 0.1


def test_constant_decay_without_trapezoid_is_mamba2() -> None:
    """λ → 1 leaves γ = dt: without angles and biases the state-space dual."""
    arrays = arrays_of(2, 5, 4, 2, None, turning=0)
    arrays |= {"trap": np.full_like(arrays["trap"], 100.0), "c_bias": np.zeros((4, 5)),
               "b_bias": np.zeros((4, 5)), "adt": -2 * arrays["dt"]}
    g = rlx.Graph()
    g.output("dual", nn.mamba2_ssd(arrays["x"], arrays["dt"], -2 * np.ones(4), arrays["B"],
                                   arrays["C"], arrays["d"], arrays["z"]))
    np.testing.assert_allclose(evaluate(graph_of(arrays), arrays)["y"], evaluate(g, {})["dual"],
                               rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("angles", MAPS)
@pytest.mark.parametrize("rank", [None, 2])
def test_four_orders_are_differences_of_the_order_below(rank: int | None, angles: str) -> None:
    arrays = arrays_of(1, 2, 1, 1, rank, width=1, depth=2, turning=1)
    arrays = {k: a for k, a in arrays.items() if k != "norm_weight"}  # of one element: a sign
    g = graph_of(arrays, angles=angles)
    rlx.check_grads(g, arrays, of="loss", order=2)
    for order in (3, 4):
        slopes = rlx.grad(g, of="loss").outputs.values()
        g = g.derive({"loss": sum(((n * normal(*n.shape, seed=order + i)).sum()
                                   for i, n in enumerate(slopes)), rlx.constant(np.array(0.0)))})
        rlx.check_grads(g, arrays, of="loss", order=1)


@pytest.mark.parametrize("rank", [None, 2])
def test_both_passes_share_one_scan(rank: int | None) -> None:
    arrays = arrays_of(2, 3, 2, 1, rank)
    g = rlx.value_and_grad(graph_of(arrays), of="loss")
    name = "mamba3_siso" if rank is None else "mamba3_mimo"
    names = {n.op.name for n in g.nodes}
    assert {name, f"{name}_backward"} <= names and "scan" not in names
    assert len([n for n in rlx.simplify(rlx.decompose(g)).nodes if n.op is OPS["scan"]]) == 2


@pytest.mark.parametrize("rank", [None, 2])
def test_vmap_is_a_loop(rank: int | None) -> None:
    arrays = arrays_of(2, 3, 2, 1, rank)
    whole = rlx.value_and_grad(graph_of(arrays), of="loss")
    for axes in ({"x": 0, "z": 0}, {"c_bias": 0}, dict.fromkeys(arrays, 0)):
        many = {k: np.stack([arrays[k], 0.5 * arrays[k]]) for k in axes}
        each = [evaluate(whole, {**arrays, **{k: v[i] for k, v in many.items()}}) for i in range(2)]
        batched = rlx.vmap(whole, axes, size=2)
        found = evaluate(batched, {**arrays, **many})
        assert_near(dict(rlx.compile(batched)(**{**arrays, **many})), found, "native code", 10)
        for key in each[0]:
            np.testing.assert_allclose(found[key], np.stack([e[key] for e in each]), rtol=1e-11,
                                       atol=1e-12)


# ---- what the mixers take ----------------------------------------------------------------------

SIZES = {"heads": 2, "width": 3, "rank": 2, "groups": 1, "depth": 4, "angles": 2}
WIDTH = 2 * 2 * 3 + 2 * 2 * 4 + 3 * 2 + 2


def inputs_of(projected: Array, bias: Array, dt_min: float, dt_max: float, floor: float,
              eps: float, decay: str) -> dict[str, Array]:
    lead = projected.shape[:-1]
    z, x, b, c, dd_dt, dd_a, trap, angle = np.split(
        projected, np.cumsum([6, 6, 8, 8, 2, 2, 2]), axis=-1)
    keys = {}
    for name, k in (("B", b.reshape(*lead, 2, 4)), ("C", c.reshape(*lead, 2, 4))):
        keys[name] = k / np.sqrt((k * k).mean(-1, keepdims=True) + eps)
    dt = np.clip(np.log1p(np.exp(dd_dt + bias)), dt_min, dt_max)
    ht = (np.log1p(np.exp(dd_a)) if decay == "softplus"
          else np.where(dd_a >= 0, 1 + dd_a, 1 / (1 - np.minimum(dd_a, 0))))
    return {"x": x.reshape(*lead, 2, 3), "z": z.reshape(*lead, 2, 3), **keys, "dt": dt,
            "adt": np.minimum(-ht, -floor) * dt, "trap": trap, "angle": angle}


@pytest.mark.parametrize("decay", ["rational", "softplus"])
@pytest.mark.parametrize("lead", [(), (5,), (2, 3), (0,)])
def test_the_inputs_are_those_of_the_formulas(lead: tuple[int, ...], decay: str) -> None:
    bounds = {"dt_min": 0.4, "dt_max": 1.2, "floor": 0.7, "eps": 1e-3, "decay": decay}
    projected, bias = normal(*lead, WIDTH), normal(2)
    g = rlx.Graph()
    found = nn.mamba3_preprocess(g.param("projected", projected.shape, rlx.f64),
                                 g.param("bias", (2,), rlx.f64), **SIZES, **bounds)
    for name, node in found._asdict().items():
        g.output(name, node)
    values = evaluate(g, {"projected": projected, "bias": bias})
    for name, wanted in inputs_of(projected, bias, **bounds).items():
        np.testing.assert_allclose(values[name], wanted, rtol=1e-13, atol=1e-14, err_msg=name)
    for name in ("x", "dt", "adt", "angle"):  # alone, so that all others have no cotangent
        g.output("loss", (found._asdict()[name] ** 2).sum())
        rlx.check_grads(g, {"projected": projected, "bias": bias}, of="loss", order=2)
        g = g.derive({k: n for k, n in g.outputs.items() if k != "loss"})


def test_gradients_pass_at_the_bounds() -> None:
    """By the backward op as by what the op is made of."""
    raw = np.log(2.0)  # softplus(0)
    projected = np.zeros((1, WIDTH))
    for dt_min, dt_max, floor in ((raw, 9.0, 1.0), (0.0, raw, 1.0), (raw + 1e-9, 9.0, 1 + 1e-9)):
        g = rlx.Graph()
        node = g.param("projected", (1, WIDTH), rlx.f64)
        found = nn.mamba3_preprocess(node, np.zeros(2), **SIZES, dt_min=dt_min, dt_max=dt_max,
                                     floor=floor)
        g.output("loss", found.adt.sum() + found.dt.sum())
        with_op = evaluate(rlx.grad(g, of="loss"), {"projected": projected})["grad_projected"]
        made = rlx.grad(rlx.decompose(g), of="loss")
        np.testing.assert_array_equal(with_op, evaluate(made, {"projected": projected})[
            "grad_projected"])
        assert with_op.any() == (floor == 1.0)


def test_a_whole_block_has_gradients() -> None:
    g = rlx.Graph()
    u, w = g.param("u", (2, 3, 4), rlx.f64), g.param("w", (4, WIDTH), rlx.f64)
    found = nn.mamba3_preprocess(u @ w, normal(2), **SIZES, dt_max=2.0)
    biases = [g.param(k, (2, 2, 4), rlx.f64) for k in ("c_bias", "b_bias")]
    mimo = [g.param(k, (2, 2, 3), rlx.f64) for k in ("mimo_x", "mimo_o", "mimo_z")]
    y = nn.mamba3_mimo(found.C, found.B, found.x, found.adt, found.dt, found.trap, found.angle,
                       *biases, mimo[0], mimo[1], None, found.z, mimo[2])
    g.output("loss", (y ** 2).sum())
    feed = {k: normal(*n.shape) / 2 for k, n in g.params.items()}
    rlx.check_grads(g, feed, of="loss", order=2)


def without(key: str, value: Any, rank: int | None = None) -> Arrays:
    return {**arrays_of(1, 2, 2, 1, rank), key: np.asarray(value, float)}


BAD = [
    (lambda: nn.mamba3_siso(**without("x", np.ones((1, 2, 2)))), rlx.ShapeError, "x is [B, L, H"),
    (lambda: nn.mamba3_siso(**without("C", np.ones((1, 2, 5)))), rlx.ShapeError, "C is [B, L, R"),
    (lambda: nn.mamba3_siso(**without("C", np.ones((1, 2, 3, 5)))), rlx.ShapeError,
     "3 groups do not divide 2 heads"),
    (lambda: nn.mamba3_siso(**without("trap", np.ones((1, 2, 1)))), rlx.ShapeError,
     "trap must have shape"),
    (lambda: nn.mamba3_siso(**without("angle", np.ones((1, 2, 3)))), rlx.ShapeError, "2A ≤ 5"),
    (lambda: nn.mamba3_siso(**without("b_bias", np.ones((2, 4)))), rlx.ShapeError,
     "b_bias must have shape"),
    (lambda: nn.mamba3_siso(**arrays_of(1, 2, 2, 1), angles="tanh"), rlx.ArgumentError,
     "none of identity, pi_tanh"),
    (lambda: nn.mamba3_siso(**{k: v.astype(int) for k, v in arrays_of(1, 2, 2, 1).items()}),
     rlx.DTypeError, "float"),
    (lambda: nn.mamba3_mimo(**without("mimo_x", np.ones((2, 2)), 2)), rlx.ShapeError,
     "mimo_x is [H, R, P]"),
    (lambda: nn.mamba3_mimo(**without("mimo_x", np.ones((2, 3, 2)), 2)), rlx.ShapeError,
     "no groups of rank 3"),
    (lambda: nn.mamba3_mimo(**without("norm_weight", np.ones(2), 2)), rlx.ShapeError,
     "norm_weight must have shape"),
    (lambda: nn.mamba3_mimo(**arrays_of(1, 2, 2, 1, 2), eps=0.0), rlx.ArgumentError, "eps"),
    (lambda: nn.mamba3_mimo(**{k: v for k, v in arrays_of(1, 2, 2, 1, 2).items() if k != "z"}),
     rlx.ArgumentError, "come together"),
    (lambda: nn.mamba3_preprocess(np.ones((2, WIDTH + 1)), np.ones(2), **SIZES), rlx.ShapeError,
     "does not hold"),
    (lambda: nn.mamba3_preprocess(np.ones((2, WIDTH)), np.ones(3), **SIZES), rlx.ShapeError,
     "dt_bias must have shape"),
    (lambda: nn.mamba3_preprocess(np.ones((2, WIDTH)), np.ones(2), **SIZES, dt_min=2.0, dt_max=1.0),
     rlx.ArgumentError, "steps within"),
    (lambda: nn.mamba3_preprocess(np.ones((2, WIDTH)), np.ones(2), **SIZES, decay="linear"),
     rlx.ArgumentError, "none of rational, softplus"),
    (lambda: nn.mamba3_preprocess(np.ones((2, WIDTH)), np.ones(2), **{**SIZES, "rank": 0}),
     rlx.ArgumentError, "rank, groups and depth positive"),
]


@pytest.mark.parametrize("call,error,message", BAD)
def test_bad_input_is_refused_at_the_users_line(call: Any, error: type[Exception],
                                                message: str) -> None:
    with pytest.raises(error, match=re.escape(message)) as caught:
        call()
    assert __file__ in str(caught.value)
