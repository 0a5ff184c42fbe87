"""Attention, rotary embedding and heads: what holds between their forms, and at their edges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx_py as rlx
from rlx_py import nn

Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]
Build = Callable[..., rlx.Node]


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng([seed, *shape]).standard_normal(shape)


def qkv(heads: int = 4, shared: int = 2, queries: int = 3, keys: int = 5) -> Arrays:
    return {"q": normal(2, heads, queries, 4), "k": normal(2, shared, keys, 4, seed=1),
            "v": normal(2, shared, keys, 3, seed=2)}


def found(build: Build, arrays: Arrays, backend: str = "reference") -> Arrays:
    """The value y, and the gradients of Σ w·y for weights w that are not uniform."""
    g = rlx.Graph("attention")
    y = build(**{k: g.input(k, a.shape, a.dtype) for k, a in arrays.items()})
    g.output("y", y)
    g.output("loss", (y * normal(*y.shape, seed=9).astype(y.dtype.numpy)).sum())
    wrt = [k for k, a in arrays.items() if a.dtype.kind == "f"]
    return dict(rlx.compile(rlx.value_and_grad(g, of="loss", wrt=wrt), backend)(**arrays))


def assert_same(a: Arrays, b: Arrays, names: list[str] | None = None) -> None:
    for name in names or list(a):
        np.testing.assert_allclose(a[name], b[name], rtol=1e-11, atol=1e-12, err_msg=name)


def flash(*args: Any, **options: Any) -> rlx.Node:
    return nn.flash_attention(*args, **options)[0]


def value(node: rlx.Node) -> Array:
    g = rlx.Graph()
    g.output("y", node)
    return rlx.evaluate(g, {})["y"]


def on(arrays: Arrays, attend: Callable[..., Any] = nn.attention, *mask: Any,
       **options: Any) -> Any:
    """The function of q, k and v."""
    return attend(arrays["q"], arrays["k"], arrays["v"], *mask, **options)


KEEP = np.array([[True, False, True, False, True], [False] * 5, [True] * 5])
OPTIONS: dict[str, dict[str, Any]] = {
    "none": {}, "causal": {"mask": "causal"}, "softcap": {"softcap": 0.8, "mask": "causal"},
    "top_left": {"mask": "causal", "causal_align": "top_left"},
    "window": {"mask": "sliding_window", "window": 2},
    "custom": {"mask": "custom", "attn_mask": KEEP[None, None]},
    "bias": {"mask": "bias", "attn_mask": np.where(KEEP, 0.5, -np.inf)[None, None]},
    "dropout": {"dropout_p": 0.3, "dropout_key": np.array([1, 2], np.uint32)},
}

# ---- forms that agree ------------------------------------------------------------------------


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_flash_is_attention(options: dict[str, Any]) -> None:
    plain = found(lambda q, k, v: nn.attention(q, k, v, **options), qkv())
    assert_same(plain, found(lambda q, k, v: flash(q, k, v, **options), qkv()))


@pytest.mark.parametrize("attend", [nn.attention, flash])
def test_grouped_heads_are_repeated_heads(attend: Build) -> None:
    def repeated(q: Any, k: Any, v: Any) -> rlx.Node:
        return attend(q, rlx.repeat(k, 2, 1), rlx.repeat(v, 2, 1))

    assert_same(found(attend, qkv()), found(repeated, qkv()))


@pytest.mark.parametrize("attend", [nn.attention, flash])
def test_three_axes_are_split_into_heads_by_a_transpose(attend: Build) -> None:
    def split(q: Any, k: Any, v: Any) -> rlx.Node:
        return attend(q, k, v, num_heads=4)

    flat = {k: np.ascontiguousarray(a.swapaxes(1, 2).reshape(2, a.shape[2], -1))
            for k, a in qkv().items()}
    got, want = found(split, flat), found(attend, qkv())["y"]
    np.testing.assert_allclose(got["y"], want.swapaxes(1, 2).reshape(2, 3, 12), rtol=1e-12)
    assert_same(found(split, flat, "cpu"), got)


def test_a_mask_of_keys_and_numbers_keep_what_a_mask_of_bools_keeps() -> None:
    keys = KEEP[[0, 2]]

    def masked(m: Any) -> Arrays:
        return found(lambda q, k, v: nn.attention(q, k, v, m, mask="custom"), qkv())

    want = masked(keys[:, None, None])
    for same in (keys, np.where(keys, 0.5, 0.49), keys.astype(np.int32)):
        assert_same(masked(same), want)


ROW, COLUMN = np.arange(3)[:, None], np.arange(5)
ORDERS: dict[str, tuple[dict[str, Any], Array]] = {
    "none": ({}, np.ones((3, 5), bool)),
    "causal": ({"mask": "causal"}, COLUMN <= ROW + 2),
    "top_left": ({"mask": "causal", "causal_align": "top_left"}, COLUMN <= ROW),
    "window": ({"mask": "sliding_window", "window": 2}, (COLUMN <= ROW + 2) & (COLUMN > ROW)),
}
KEYS = np.array([[True, True, False, True, True], [False, True, True, False, True]])


@pytest.mark.parametrize("attend", [nn.attention, flash])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("shape", [(3, 5), (1, 5), (5,), (4, 1, 5), (2, 1, 3, 5), (4, 3, 1), ()])
def test_kinds_of_masks_combine(attend: Build, order: str, shape: tuple[int, ...]) -> None:
    """As one mask and one bias of the whole shape, in values and all gradients."""
    options, seen = ORDERS[order]
    keep = np.random.default_rng(len(shape)).random(shape) > 0.3
    arrays = {**qkv(), "b": normal(*shape, seed=4)}
    whole = seen & keep & KEYS[:, None, None]

    def combined(q: Any, k: Any, v: Any, b: Any) -> rlx.Node:
        return attend(q, k, v, keep, key_mask=KEYS, bias=b, softcap=2.0, **options)

    def written_out(q: Any, k: Any, v: Any, b: Any) -> rlx.Node:
        bias = rlx.where(np.broadcast_to(whole, (2, 4, 3, 5)), b, -np.inf)
        return attend(q, k, v, bias, mask="bias", softcap=2.0)

    got = found(combined, arrays)
    assert_same(got, found(written_out, arrays))
    assert_same(found(combined, arrays, "cpu"), got)


def test_derivatives_of_both_modes_through_combined_masks() -> None:
    arrays = {**qkv(), "b": normal(3, 1, seed=4)}
    for attend in (nn.attention, flash):
        g = rlx.Graph()
        q, k, v, b = (g.input(name, x.shape, rlx.f64) for name, x in arrays.items())
        first = COLUMN == 0
        y = attend(q, k, v, KEEP | first, mask="causal", bias=b, key_mask=KEYS | first)
        g.output("loss", (y * y).sum())
        rlx.check_grads(g, arrays, of="loss", wrt=list(arrays), order=2)


def test_torch_s_form_takes_a_mask_beside_is_causal() -> None:
    a = qkv(shared=4)
    both = on(a, nn.scaled_dot_product_attention, KEEP, is_causal=True)
    one = on(a, nn.scaled_dot_product_attention, KEEP & (COLUMN <= ROW))
    np.testing.assert_allclose(value(both), value(one), rtol=1e-12)
    added = on(a, nn.scaled_dot_product_attention, np.where(KEEP, 0.5, -np.inf), is_causal=True)
    np.testing.assert_allclose(value(added), value(one), rtol=1e-12)


def test_a_window_counts_the_query_itself_and_one_more_for_rlx() -> None:
    i, j = np.arange(6)[:, None], np.arange(6)

    def seen(**options: Any) -> Array:
        v = np.broadcast_to(np.eye(6), (1, 1, 6, 6))
        zero = np.zeros((1, 1, 6, 2))
        y = value(nn.attention(zero, zero, v, mask="sliding_window", **options))
        return np.asarray(y[0, 0] > 0)

    assert np.array_equal(seen(window=3), (j <= i) & (j > i - 3))
    assert np.array_equal(seen(window=3, rlx_window=True), (j <= i) & (j >= i - 3))


def test_lse_is_the_log_of_the_sum_of_exponentials() -> None:
    a = qkv(shared=4)
    s = np.einsum("bhqd,bhkd->bhqk", a["q"], a["k"]) / 2
    _, lse = on(a, nn.flash_attention, KEEP[None, None], mask="custom")
    with np.errstate(divide="ignore"):
        want = np.log(np.sum(np.exp(s) * KEEP, -1))
    np.testing.assert_allclose(value(lse), want, rtol=1e-12)
    assert np.isneginf(want[:, :, 1]).all()


def test_gradients_of_both_results_of_flash() -> None:
    a = qkv()
    g = rlx.Graph()
    q, k, v = (g.input(name, x.shape, rlx.f64) for name, x in a.items())
    y, lse = nn.flash_attention(q, k, v, mask="causal")
    g.output("loss", (y * y).sum() + (lse * lse * lse).sum())
    rlx.check_grads(g, a, of="loss", wrt=list(a), order=2)


# ---- edges -----------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize("attend", [nn.attention, flash])
@pytest.mark.parametrize("mask", ["custom", "bias"])
def test_a_query_that_sees_nothing_gives_and_receives_nothing(mask: str, attend: Build,
                                                              backend: str) -> None:
    operand = OPTIONS[mask]["attn_mask"]
    got = found(lambda q, k, v: attend(q, k, v, operand, mask=mask), qkv(), backend)
    assert not got["y"][:, :, 1].any() and got["y"][:, :, 0].all()
    assert not got["grad_q"][:, :, 1].any() and got["grad_q"][:, :, 0].all()
    assert all(np.isfinite(a).all() for a in got.values())


@pytest.mark.parametrize("attend", [nn.attention, flash])
def test_a_causal_offset_may_be_negative(attend: Build) -> None:
    arrays = qkv(queries=5, keys=3)
    got = found(lambda q, k, v: attend(q, k, v, mask="causal"), arrays)
    assert not got["y"][:, :, :2].any() and not got["grad_q"][:, :, :2].any()
    # Query 2 sees key 0 alone.
    np.testing.assert_allclose(got["y"][:, :, 2], np.repeat(arrays["v"][:, :, 0], 2, 1))


def test_weights_stay_finite_where_a_masked_query_has_no_loss() -> None:
    """C19."""
    def loss(x: Any, w: Any) -> rlx.Node:
        y = nn.attention(x @ w, x, x, np.array([[True, True], [False, False]])[None, None],
                         mask="custom")
        return y[:, :, :1]

    got = found(loss, {"x": normal(1, 1, 2, 4), "w": normal(4, 4)})
    assert np.isfinite(got["grad_w"]).all() and got["grad_w"].any()


def test_a_masked_score_does_not_count_whatever_it_is() -> None:
    a = qkv(shared=4)
    a["k"][:, :, 1] = np.inf
    a["q"][:] = np.abs(a["q"])
    keep = np.array([True, False, True, True, True])
    y = on(a, nn.attention, keep[None, None, None], mask="custom")
    rest = nn.attention(a["q"], a["k"][:, :, keep], a["v"][:, :, keep])
    np.testing.assert_allclose(value(y), value(rest), rtol=1e-12)


def test_without_keys_the_result_is_zero() -> None:
    got = found(nn.attention, qkv(keys=0))
    assert not got["y"].any() and not got["grad_q"].any()
    _, lse = on(qkv(keys=0), nn.flash_attention)
    assert np.isneginf(value(lse)).all()


def test_second_derivatives_by_the_query() -> None:
    """C48: g = dΣo/dq, then dΣg²/dq."""
    a = {name: normal(1, 1, 4, 8, seed=i) for i, name in enumerate("qkv")}
    g = rlx.Graph()
    q, k, v = (g.input(name, x.shape, rlx.f64) for name, x in a.items())
    y = nn.scaled_dot_product_attention(q, k, v)
    g.output("o", y.sum())
    first = rlx.grad(g, of="o", wrt=["q"])
    h = first.derive({"s": (first.outputs["grad_q"] * first.outputs["grad_q"]).sum()})
    rlx.check_grads(h, a, of="s", wrt=["q"], order=1)
    assert rlx.evaluate(rlx.grad(h, of="s", wrt=["q"]), a)["grad_q"].any()


@pytest.mark.parametrize("attend", [nn.attention, flash])
@pytest.mark.parametrize("shape", [(2, 4, 3, 5), (1, 4, 1, 5), (2, 1, 3, 1), (1, 1, 1, 1)])
def test_the_gradient_of_a_bias_is_summed_where_it_was_repeated(
        shape: tuple[int, ...], attend: Build) -> None:
    def whole(q: Any, k: Any, v: Any, b: Any) -> rlx.Node:
        return attend(q, k, v, rlx.broadcast_to(b, (2, 4, 3, 5)), mask="bias")

    arrays = {**qkv(), "b": normal(*shape, seed=5)}
    assert_same(found(lambda q, k, v, b: attend(q, k, v, b, mask="bias"), arrays),
                found(whole, arrays))


def test_halves_are_computed_in_f32() -> None:
    a = {k: x.astype(np.float16) for k, x in qkv(shared=4).items()}
    y, lse = on(a, nn.flash_attention, scale=20.0)
    assert y.dtype is rlx.f16 and lse.dtype is rlx.f32
    wide = on({k: x.astype(np.float32) for k, x in a.items()}, scale=20.0)
    np.testing.assert_array_equal(value(y), value(wide).astype(np.float16))
    np.testing.assert_array_equal(value(on(a, scale=20.0)), value(y))


def test_dropout_keeps_the_mean_and_its_key() -> None:
    a = {"q": normal(1, 2, 40, 4), "k": normal(1, 2, 30, 4, seed=1), "v": np.ones((1, 2, 30, 1))}

    def weights(seed: int, p: float) -> Array:
        return value(on(a, dropout_p=p, dropout_key=rlx.random.key(seed)))

    assert abs(weights(0, 0.4).mean() - 1) < 0.05 and weights(0, 0.4).std() > 0.05
    np.testing.assert_array_equal(weights(3, 0.4), weights(3, 0.4))
    assert (weights(3, 0.4) != weights(4, 0.4)).any()
    assert not weights(0, 1.0).any()
    np.testing.assert_allclose(weights(0, 0.0), 1)


Q, K = np.zeros((2, 4, 3, 4)), np.zeros((2, 2, 5, 4))
WRONG: dict[str, tuple[type[rlx.RLXError], tuple[Any, ...], dict[str, Any]]] = {
    "custom without a mask": (rlx.ArgumentError, (Q, K, K), {"mask": "custom"}),
    "bias without a mask": (rlx.ArgumentError, (Q, K, K), {"mask": "bias"}),
    "numbers beside causal": (rlx.ArgumentError, (Q, K, K, np.ones((3, 5))), {"mask": "causal"}),
    "numbers without a kind": (rlx.ArgumentError, (Q, K, K, np.ones((3, 5))), {}),
    "two biases": (rlx.ArgumentError, (Q, K, K, np.ones((3, 5))),
                   {"mask": "bias", "bias": np.ones((3, 5))}),
    "keys or queries": (rlx.ShapeError, (Q[:, :, :2], K, K, np.ones((2, 5), bool)), {}),
    "key mask": (rlx.ShapeError, (Q, K, K), {"key_mask": np.ones((2, 4), bool)}),
    "unknown mask": (rlx.ArgumentError, (Q, K, K), {"mask": "triangle"}),
    "unknown alignment": (rlx.ArgumentError, (Q, K, K), {"mask": "causal", "causal_align": "x"}),
    "no window": (rlx.ArgumentError, (Q, K, K), {"mask": "sliding_window"}),
    "empty window": (rlx.ArgumentError, (Q, K, K), {"mask": "sliding_window", "window": 0}),
    "spare window": (rlx.ArgumentError, (Q, K, K), {"window": 2}),
    "softcap": (rlx.ArgumentError, (Q, K, K), {"softcap": 0.0}),
    "scale": (rlx.ArgumentError, (Q, K, K), {"scale": float("nan")}),
    "no key": (rlx.ArgumentError, (Q, K, K), {"dropout_p": 0.5}),
    "probability": (rlx.ArgumentError, (Q, K, K),
                    {"dropout_p": 1.5, "dropout_key": np.zeros(2, np.uint32)}),
    "key": (rlx.DTypeError, (Q, K, K), {"dropout_p": 0.5, "dropout_key": np.zeros(2)}),
    "mask shape": (rlx.ShapeError, (Q, K, K, np.ones((2, 3, 3, 5), bool)), {"mask": "custom"}),
    "mask of keys": (rlx.ShapeError, (Q, K, K, np.ones((4, 5), bool)), {"mask": "custom"}),
    "head size": (rlx.ShapeError, (Q, K[..., :3], K), {}),
    "lengths": (rlx.ShapeError, (Q, K, K[:, :, :4]), {}),
    "batch": (rlx.ShapeError, (Q, K[:1], K[:1]), {}),
    "groups": (rlx.ShapeError, (Q, np.zeros((2, 3, 5, 4)), np.zeros((2, 3, 5, 4))), {}),
    "rank": (rlx.ShapeError, (Q[0], K[0], K[0]), {}),
    "rank with heads": (rlx.ShapeError, (Q, K, K), {"num_heads": 4}),
    "heads": (rlx.ArgumentError, (Q[0], K[0], K[0]), {"num_heads": 3}),
    "integers": (rlx.DTypeError, (Q.astype(int), K.astype(int), K.astype(int)), {}),
}


@pytest.mark.parametrize("error,args,options", WRONG.values(), ids=WRONG)
@pytest.mark.parametrize("attend", [nn.attention, nn.flash_attention])
def test_misuse_is_refused_at_the_users_line(
        attend: Build, error: type[rlx.RLXError], args: Any, options: Any) -> None:
    with pytest.raises(error, match="test_attention"):
        attend(*args, **options)


def test_misuse_of_the_torch_form_is_refused() -> None:
    with pytest.raises(rlx.ArgumentError, match="key"):
        nn.scaled_dot_product_attention(Q, Q, Q, dropout_p=0.1)
    for args in ((Q, K, K), (Q[0, 0, 0], Q, Q), (Q, Q, Q, np.ones((2, 3), bool))):
        with pytest.raises(rlx.ShapeError):
            nn.scaled_dot_product_attention(*args)
    with pytest.raises(rlx.ShapeError, match="heads"):
        nn.scaled_dot_product_attention(Q[0, 0], K[0, 0], K[0, 0], enable_gqa=True)


# ---- what is compiled ------------------------------------------------------------------------


def layers(attend: Build, count: int, length: int) -> rlx.Graph:
    g = rlx.Graph("layers")
    x = g.input("x", (2, 2, length, 8))
    for i in range(count):
        w = g.param(f"w{i}", (8, 8))
        x = x + attend(x @ w, x, x)
    g.output("loss", (x * x).sum())
    return rlx.value_and_grad(g, of="loss")


def test_nothing_is_copied_between_products() -> None:
    """Scores, softmax, O, δ, dS, dQ, dK, dV and the loss: a kernel each."""
    g = rlx.Graph()
    q, k, v = (g.input(n, (2, 16, 32)) for n in "qkv")
    y = nn.attention(q, k, v, num_heads=4, mask="causal")
    g.output("loss", (y * g.input("w", y.shape)).sum())
    assert rlx.compile(rlx.value_and_grad(g, of="loss", wrt=list("qkv"))).cost().kernels <= 9


def test_flash_keeps_no_probabilities_for_the_backward_pass() -> None:
    square = 2 * 2 * 96 * 96 * 4

    def arena(attend: Build, count: int) -> int:
        return rlx.compile(layers(attend, count, 96), threads=1).cost().arena_bytes

    grown = arena(flash, 5) - arena(flash, 2)
    assert grown < square / 2 * 3
    assert arena(nn.attention, 5) - arena(nn.attention, 2) >= square * 3


# ---- heads, products, softmax, rotary embedding ----------------------------------------------


def test_heads_lie_as_the_reference_has_them() -> None:
    x = normal(2 * 3, 8)
    want = np.empty((2 * 4, 3, 2))
    for b in range(2):
        for h in range(4):
            want[b * 4 + h] = x[b * 3:b * 3 + 3, 2 * h:2 * h + 2]
    np.testing.assert_array_equal(value(nn.split_heads(x, 4, 2)), want)
    np.testing.assert_array_equal(value(nn.split_heads(x.reshape(2, 3, 8), 4)), want)
    np.testing.assert_array_equal(value(nn.merge_heads(want, 4)), x)
    for rows, heads, batch in ((x, 4, None), (x, 3, 2), (x, 4, 5), (x, 0, 2),
                               (x.reshape(2, 3, 8), 4, 3)):
        with pytest.raises(rlx.ArgumentError):
            nn.split_heads(rows, heads, batch)
    with pytest.raises(rlx.ArgumentError):
        nn.merge_heads(want, 3)
    with pytest.raises(rlx.ShapeError):
        nn.merge_heads(x, 4)


def test_batched_products() -> None:
    a, b = normal(3, 4, 5), normal(3, 5, 2)
    for f, x, y in ((nn.bmm, a, b), (nn.bmm_nt, a, b.swapaxes(1, 2)),
                    (nn.bmm_tn, a.swapaxes(1, 2), b)):
        np.testing.assert_allclose(value(f(x, y)), a @ b, rtol=1e-12)
    with pytest.raises(rlx.ShapeError):
        nn.bmm(a, b[0])
    with pytest.raises(rlx.ShapeError):
        nn.bmm(a, a)


def test_masked_softmax_takes_bools_and_adds_numbers_without_gradient() -> None:
    z, keep = normal(3, 5), KEEP
    p = value(nn.softmax_scaled_masked(z, keep, 2.0))
    e = np.exp(2 * z) * keep
    np.testing.assert_allclose(p, e / np.maximum(e.sum(-1, keepdims=True), 1e-300), rtol=1e-12)
    assert not p[1].any()
    got = found(lambda z, m: nn.softmax_scaled_masked(z, m, 2.0), {"z": z, "m": normal(5)})
    assert got["grad_z"].any() and not got["grad_m"].any()
    with pytest.raises(rlx.ShapeError):
        nn.softmax_scaled_masked(z, keep[None])
    with pytest.raises(rlx.ArgumentError):
        nn.softmax_scaled_masked(z, scale=float("inf"))


@pytest.mark.parametrize("style", ["neox", "gptj"])
def test_rotary_embedding_turns_pairs(style: str) -> None:
    x, angle = normal(2, 3, 5, 6), normal(5, 2, seed=1)
    cos, sin = np.cos(angle), np.sin(angle)
    first, second = (slice(0, 2), slice(2, 4)) if style == "neox" else (slice(0, 4, 2),
                                                                       slice(1, 4, 2))
    z = (x[..., first] + 1j * x[..., second]) * (cos + 1j * sin)
    y = value(nn.rope(x, cos, sin, style=style, n_rot=4))
    np.testing.assert_allclose(y[..., first], z.real, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(y[..., second], z.imag, rtol=1e-12, atol=1e-13)
    np.testing.assert_array_equal(y[..., 4:], x[..., 4:])
    np.testing.assert_allclose(value(nn.rope(y, cos, -sin, style=style)), x, rtol=1e-12)
    flat = np.ascontiguousarray(x.swapaxes(1, 2)).reshape(2, 5, 18)
    np.testing.assert_array_equal(
        value(nn.rope(flat, cos, sin, style=style, head_dim=6)),
        y.swapaxes(1, 2).reshape(2, 5, 18))


def test_misuse_of_rotary_embedding_is_refused() -> None:
    x, table = np.zeros((2, 5, 6)), np.zeros((5, 2))
    wrong: tuple[dict[str, Any], ...] = (
        {"style": "llama"}, {"n_rot": 6}, {"head_dim": 4}, {"axis": 2})
    for options in wrong:
        with pytest.raises(rlx.ArgumentError):
            nn.rope(x, table, table, **options)
    for cos, sin in ((table[:4], table[:4]), (table, table[:, :1]), (np.zeros((5, 4)),) * 2,
                     (table[0], table[0])):
        with pytest.raises(rlx.ShapeError):
            nn.rope(x, cos, sin)
    with pytest.raises(rlx.DTypeError):
        nn.rope(x.astype(int), table.astype(int), table.astype(int))


def turned(x: Array, angle: Array) -> Array:
    """Pairs i, i + n of x[B, H, S, 2n] turned by angle[B, S, n]."""
    n = angle.shape[-1]
    z = (x[..., :n] + 1j * x[..., n:]) * np.exp(1j * angle)[:, None]
    return np.concatenate([z.real, z.imag], -1)


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_rotary_embedding_at_positions(backend: str) -> None:
    x, angle = normal(2, 3, 4, 6), normal(9, 3, seed=1)
    cos, sin = np.cos(angle), np.sin(angle)
    rows = np.array([[3, 0, 8, 3], [1, 2, 3, 4]])
    cases: list[tuple[dict[str, Any], Array]] = [
        ({"offset": 5}, np.tile(np.arange(5, 9), (2, 1))),
        ({"offset": rlx.constant(np.int32(2))}, np.tile(np.arange(2, 6), (2, 1))),
        ({"offset": rlx.constant(np.array([0, 5]))}, np.stack([np.arange(4), np.arange(5, 9)])),
        ({"positions": rows[0]}, np.tile(rows[0], (2, 1))), ({"positions": rows}, rows),
        ({"positions": rows[1], "offset": 2}, np.tile(rows[1] + 2, (2, 1))),
        ({"positions": rlx.constant(rows), "offset": rlx.constant(np.array([0, 4]))},
         rows + [[0], [4]]),
    ]
    for options, where in cases:
        def build(x: Any, c: Any, s: Any, options: Any = options) -> rlx.Node:
            return nn.rope(x, c, s, **options)

        arrays = {"x": x, "c": cos, "s": sin}
        got = found(build, arrays, backend)
        np.testing.assert_allclose(got["y"], turned(x, angle[where]), rtol=1e-12, atol=1e-13)
        g = rlx.Graph()
        y = build(**{k: g.input(k, a.shape, a.dtype) for k, a in arrays.items()})
        g.output("loss", (y * y * normal(*y.shape)).sum())
        rlx.check_grads(g, arrays, of="loss", wrt=list(arrays), order=2)


def test_rotary_embedding_step_by_step_is_that_of_the_whole() -> None:
    """As a decoder with a cache runs it, heads side by side."""
    x, angle = normal(1, 5, 12), normal(5, 3)
    cos, sin = np.cos(angle), np.sin(angle)
    whole = value(nn.rope(x, cos, sin, head_dim=6))
    for t in range(5):
        one = nn.rope(x[:, t:t + 1], cos, sin, head_dim=6, offset=rlx.constant(np.int32(t)))
        np.testing.assert_allclose(value(one), whole[:, t:t + 1], rtol=1e-12, atol=1e-14)


def test_positions_outside_the_table_are_refused_where_they_are_known() -> None:
    x, table = np.zeros((2, 5, 6)), np.zeros((7, 2))
    wrong: list[tuple[type[rlx.RLXError], dict[str, Any]]] = [
        (rlx.ShapeError, {"offset": 3}), (rlx.ShapeError, {"offset": -1}),
        (rlx.ShapeError, {"positions": np.arange(3, 8)}), (rlx.ShapeError, {"positions": [0, 1]}),
        (rlx.DTypeError, {"positions": np.ones(5)}), (rlx.ShapeError, {"positions": [-1] * 5})]
    for error, options in wrong:
        with pytest.raises(error, match="test_attention"):
            nn.rope(x, table, table, **options)
    with pytest.raises(rlx.ShapeError):
        nn.rope(np.zeros((5, 6)), np.zeros((5, 5, 2)), np.zeros((5, 5, 2)))
