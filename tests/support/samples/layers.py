"""Samples of products, convolution, pooling, norms, softmax and losses, and their backwards."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx_py.ir.nodes.node import OPS, Node
from support.samples.sample import (
    Array,
    Sample,
    apart,
    between,
    hostile,
    positions,
    reals,
    sample,
    spiked,
    ties,
)

INF = np.inf
NONE: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())


def op(name: str, case: str, *arrays: Any, smooth: bool = True, **attrs: Any) -> Sample:
    return sample(OPS[name], case, *arrays, smooth=smooth, **attrs)


CONTRACTS = [
    op("contract", case, a, b, batch=batch, contract=contract) for case, a, b, batch, contract in (
        ("matmul", reals(5, 7), reals(7, 19), NONE, ((1,), (0,))),
        ("square", reals(4, 4), reals(4, 4, seed=1), NONE, ((1,), (0,))),
        ("nt", reals(5, 7), reals(6, 7), NONE, ((1,), (1,))),
        ("tn", reals(7, 5), reals(7, 6), NONE, ((0,), (0,))),
        ("batch", reals(2, 3, 4), reals(2, 4, 5), ((0,), (0,)), ((2,), (1,))),
        ("late_batch", reals(3, 4, 2), reals(4, 2, 5), ((2,), (1,)), ((1,), (0,))),
        ("two_axes", reals(2, 3, 4), reals(4, 5, 3), NONE, ((1, 2), (2, 0))),
        ("dot", reals(9), reals(9, seed=1), NONE, ((0,), (0,))),
        ("column", reals(5, 7), reals(7), NONE, ((1,), (0,))),
        ("outer", reals(5), reals(3), NONE, NONE),
        ("elementwise", reals(3, 4), reals(4, 3), ((0, 1), (1, 0)), NONE),
        ("no_depth", reals(3, 0), reals(0, 4), NONE, ((1,), (0,))),
        ("no_rows", reals(0, 4), reals(4, 3), NONE, ((1,), (0,))),
        ("tiles", reals(33, 70), reals(70, 65), NONE, ((1,), (0,))),
    )
]
# What pads a tile must not meet an infinity, of which it would make NaN.
CONTRACTS += [
    op("contract", case, a, b, batch=NONE, contract=((1,), (0,)), smooth=False) for case, a, b in (
        ("special_left", spiked(5, 7), reals(7, 19)),
        ("special_right", reals(5, 7), spiked(7, 19)),
        ("special_tiles", spiked(33, 70), spiked(70, 65, seed=1)))
]
LINEARS = [
    op("linear", "special", spiked(5, 7), reals(3, 7), reals(3), smooth=False),
    op("linear", "rows", reals(5, 7), reals(3, 7), reals(3)),
    op("linear", "deep", reals(2, 3, 4), reals(5, 4), reals(5)),
    op("linear", "no_bias", reals(5, 7), reals(3, 7)),
    op("linear", "vector", reals(4), reals(4, 4), reals(4, seed=1)),
    op("linear", "rows_are_features", reals(4, 4), reals(4, 4, seed=1), reals(4, seed=2)),
    op("linear", "no_rows", reals(0, 4), reals(3, 4), reals(3)),
]

# ---- convolution: x, w, what varies ----------------------------------------------------------

PLAIN = {"stride": (1, 1), "low": (0, 0), "high": (0, 0), "dilation": (1, 1), "groups": 1}
CONVS: list[tuple[str, tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ("plain", (2, 3, 5, 4), (4, 3, 3, 2), {}),
    ("stride_remainder", (2, 3, 6, 7), (4, 3, 2, 3), {"stride": (2, 3)}),
    ("low", (2, 2, 4, 5), (3, 2, 3, 3), {"low": (2, 1)}),
    ("high", (2, 2, 4, 5), (3, 2, 3, 3), {"high": (1, 2)}),
    ("dilation", (2, 2, 7, 6), (3, 2, 3, 2), {"dilation": (2, 3)}),
    ("groups", (2, 4, 4, 3), (6, 2, 3, 2), {"groups": 2}),
    ("depthwise", (2, 3, 5, 4), (6, 1, 3, 2), {"groups": 3, "stride": (2, 1), "low": (1, 1)}),
    ("everything", (2, 4, 7, 6), (2, 2, 2, 3),
     {"stride": (2, 1), "low": (1, 0), "high": (0, 2), "dilation": (1, 2), "groups": 2}),
    ("crop", (1, 2, 6, 5), (2, 2, 2, 2), {"low": (-1, 0), "high": (0, -1)}),
    ("pointwise", (2, 3, 4, 5), (4, 3, 1, 1), {}),
    ("row_kernel", (3, 2, 3, 6), (2, 2, 3, 1), {"high": (1, 1)}),
    ("line", (2, 3, 9), (4, 3, 3),
     {"stride": (2,), "low": (1,), "high": (0,), "dilation": (1,)}),
    ("volume", (1, 2, 3, 4, 3), (2, 2, 2, 2, 3),
     {"stride": (1, 2, 1), "low": (0, 1, 0), "high": (1, 0, 0), "dilation": (1, 1, 1)}),
    ("no_batch", (0, 2, 4, 4), (3, 2, 2, 2), {}),
]


def conv_samples() -> list[Sample]:
    found = []
    for case, x, w, varied in CONVS:
        attrs = {**PLAIN, **varied}
        line = zip(x[2:], w[2:], attrs["stride"], attrs["low"], attrs["high"], attrs["dilation"],
                   strict=True)
        places = [(n + a + b - d * (k - 1) - 1) // s + 1 for n, k, s, a, b, d in line]
        dy = (x[0], w[0], *places)
        found += [op("conv", case, reals(*x), reals(*w), **attrs),
                  op("conv_backward_input", case, reals(*dy), reals(*w), shape=x[2:], **attrs),
                  op("conv_backward_weight", case, reals(*x), reals(*dy), size=w[2:], **attrs)]
    spikes: dict[str, Any] = {**PLAIN, "low": (1, 0), "high": (0, 1)}
    return [*found, op("conv", "special", spiked(3, 3, 5, 4), reals(4, 3, 3, 2), smooth=False,
                       **spikes)]


# ---- pooling ---------------------------------------------------------------------------------

Pool = tuple[str, tuple[int, ...], dict[str, Any]]
POOLS: list[Pool] = [
    ("plain", (2, 3, 4, 6), {"size": (2, 2), "stride": (2, 2)}),
    ("overlap", (1, 2, 6, 5), {"size": (3, 2), "stride": (1, 1)}),
    ("stride_remainder", (2, 2, 7, 5), {"size": (2, 2), "stride": (3, 2)}),
    ("low", (2, 2, 5, 4), {"size": (3, 3), "stride": (2, 2), "low": (1, 1)}),
    ("high", (2, 2, 5, 4), {"size": (3, 3), "stride": (2, 1), "high": (1, 1)}),
    ("line", (2, 3, 9), {"size": (3,), "stride": (2,), "low": (1,), "high": (1,)}),
    ("no_batch", (0, 4, 4), {"size": (2, 2), "stride": (2, 2)}),
]


def pool_attrs(rank: int, given: dict[str, Any], **rest: Any) -> dict[str, Any]:
    zero: dict[str, Any] = {"low": (0,) * rank, "high": (0,) * rank}
    return {**zero, **rest, **given}


def with_maxima(attrs: dict[str, Any]) -> Any:
    """(first, x) -> (first, x, y), y the maxima of x's windows."""
    def prepare(first: Node, x: Node) -> tuple[Node, ...]:
        return first, x, OPS["max_pool"](x, **attrs)

    return prepare


def pooled_shape(name: str, x: Any, attrs: dict[str, Any]) -> tuple[int, ...]:
    return op(name, "", x, **attrs).graph().outputs["y"].shape


def pool_samples() -> list[Sample]:
    found = []
    dilated: Pool = ("dilation", (1, 2, 8, 7),
                     {"size": (2, 3), "stride": (1, 2), "dilation": (3, 2)})
    for case, shape, given in [*POOLS, dilated]:
        rank = len(given["size"])
        attrs = pool_attrs(rank, given, dilation=(1,) * rank)
        kinds = {"": apart(*shape), "_ties": ties(*shape), "_special": hostile(*shape)}
        for kind, x in kinds.items():
            smooth, dy = not kind, reals(*pooled_shape("max_pool", x, attrs), seed=1)
            found += [
                op("max_pool", case + kind, x, smooth=smooth, **attrs),
                sample(OPS["max_pool_backward"], case + kind, dy, x, smooth=smooth,
                       prepare=with_maxima(attrs), **attrs),
                sample(OPS["max_pool_take"], case + kind, reals(*shape, seed=1), x, smooth=smooth,
                       prepare=with_maxima(attrs), **attrs),
            ]
    return found


def average_samples() -> list[Sample]:
    found = []
    varied: list[Pool] = [
        *POOLS,
        ("exclude", (2, 2, 5, 4), {"size": (3, 3), "stride": (2, 2), "low": (1, 1), "high": (1, 0),
                                   "count_include_pad": False}),
        ("divisor", (2, 2, 5, 4), {"size": (2, 3), "stride": (1, 1), "divisor": 5}),
        ("extra", (2, 2, 5, 4), {"size": (2, 2), "stride": (2, 3), "low": (0, 1),
                                 "extra": (1, 1)}),
    ]
    for case, shape, given in varied:
        rank = len(given["size"])
        attrs = pool_attrs(rank, given, extra=(0,) * rank, count_include_pad=True, divisor=None)
        x = reals(*shape)
        dy = reals(*pooled_shape("avg_pool", x, attrs), seed=1)
        if case in ("low", "exclude"):
            found.append(op("avg_pool", f"{case}_special", spiked(*shape), smooth=False, **attrs))
        found += [op("avg_pool", case, x, **attrs),
                  op("avg_pool_backward", case, dy, shape=shape[len(shape) - rank:], **attrs)]
    return found


# ---- norms -----------------------------------------------------------------------------------

NORMS: list[tuple[str, tuple[int, ...], dict[str, Any]]] = [
    ("rows", (3, 5), {}), ("rows_are_features", (4, 4), {}), ("first_axis", (5, 3), {"axes": (0,)}),
    ("middle", (2, 4, 3), {"axes": (1,)}), ("two_axes", (2, 3, 4), {"axes": (0, 2)}),
    ("eps", (3, 5), {"eps": 0.5}), ("no_weight", (3, 5), {"weight": False}),
    ("no_bias", (3, 5), {"bias": False}), ("plain", (3, 5), {"weight": False, "bias": False}),
    ("long_rows", (2, 37), {}), ("no_rows", (0, 5), {}),
]


def norm_samples(name: str) -> list[Sample]:
    found = []
    for case, shape, given in NORMS:
        attrs = {"axes": (len(shape) - 1,), "eps": 1e-3, "weight": True, "bias": True, **given}
        affine = tuple(shape[a] for a in attrs["axes"])
        w, b = [reals(*affine, seed=2)] * attrs["weight"], [reals(*affine, seed=3)] * attrs["bias"]
        x = reals(*shape)
        found += [op(name, case, x, *w, *b, **attrs),
                  op(f"{name}_backward", case, reals(*shape, seed=1), x, *w, **attrs)]
    flat: dict[str, Any] = {"axes": (1,), "eps": 1e-3, "weight": False, "bias": False}
    found.append(op(name, "constant_rows", np.full((2, 5), 0.1), **flat))
    found.append(op(name, "special", hostile(6, 5), smooth=False, **flat))
    return found


# ---- softmax and losses ----------------------------------------------------------------------

DARK = np.array([[-INF, -INF, -INF], [-INF, 1.0, 2.0], [1e4, -1e4, 0.0], [np.nan, 0.0, 1.0],
                 [INF, 0.0, 1.0]])


def softmax_samples(name: str) -> list[Sample]:
    shapes = (("rows", (3, 19), 1), ("square", (4, 4), 1), ("first_axis", (5, 3), 0),
              ("middle", (2, 4, 3), 1), ("no_rows", (0, 5), 1), ("no_classes", (3, 0), 1),
              ("one_class", (3, 1), 1))
    found = []
    for case, shape, axis in shapes:
        found += [op(name, case, reals(*shape), axis=axis),
                  op(f"{name}_backward", case, reals(*shape, seed=1), reals(*shape), axis=axis)]
    return [*found, op(name, "dark_rows", DARK, axis=1, smooth=False)]


LABELS = np.array([2, 0, 4], np.int32)
OUTSIDE = np.array([-1, 5, 2**31 - 1, -(2**31), 2], np.int32)
SOFT = np.array([[0, 1, 0, 0, 0], [0.5, 0.1, 0.2, 0.1, 0.1], [0, 0, 0.3, 0, 0.9]])


def loss_samples() -> list[Sample]:
    found = []
    hard: tuple[tuple[str, Array, Array, dict[str, Any]], ...] = (
        ("rows", reals(3, 5), LABELS, {}),
        ("smoothing", reals(3, 5), LABELS, {"smoothing": 0.2}),
        ("ignore", reals(3, 5), LABELS, {"ignore": 0}),
        ("both", reals(3, 5), LABELS, {"smoothing": 0.3, "ignore": 4}),
        ("deep", reals(2, 3, 4), positions(0, 4, 2, 3), {}),
        ("square", reals(4, 4), positions(0, 4, 4), {}),
        ("outside", reals(5, 5), OUTSIDE, {"ignore": 2}),
        ("one_row", reals(5), np.asarray(3, np.int32), {}),
        ("no_rows", reals(0, 5), np.zeros(0, np.int32), {}))
    for case, x, labels, given in hard:
        attrs: dict[str, Any] = {"smoothing": 0.0, "ignore": None, **given}
        found += [op("softmax_cross_entropy", case, x, labels, **attrs),
                  op("softmax_cross_entropy_backward", case, reals(*x.shape[:-1], seed=1), x,
                     labels, **attrs)]
    dark = np.array([1, 1, 2, 0, 1], np.int32)
    found.append(op("softmax_cross_entropy", "dark_rows", DARK, dark, smooth=False, smoothing=0.0,
                    ignore=None))
    soft = (("rows", reals(3, 5), SOFT, 0.0), ("smoothing", reals(3, 5), SOFT, 0.1),
            ("square", reals(4, 4), between(0, 1, 4, 4), 0.0),
            ("deep", reals(2, 3, 4), between(0, 1, 2, 3, 4), 0.0),
            ("no_rows", reals(0, 5), np.zeros((0, 5)), 0.0))
    for case, x, q, smoothing in soft:
        found += [op("soft_cross_entropy", case, x, q, smoothing=smoothing),
                  op("soft_cross_entropy_backward", case, reals(*x.shape[:-1], seed=1), x, q,
                     smoothing=smoothing)]
    certain = np.array([[0, 1.0, 0], [0, 0, 1]])
    found.append(op("soft_cross_entropy", "dark_classes",
                    np.array([[-INF, 0, 0], [-INF, -INF, 3.0]]), certain, smooth=False,
                    smoothing=0.0))
    return found


SAMPLES = [
    *CONTRACTS, *LINEARS, *conv_samples(), *pool_samples(), *average_samples(),
    *norm_samples("layer_norm"), *norm_samples("rms_norm"), *softmax_samples("softmax"),
    *softmax_samples("log_softmax"), *loss_samples(),
]
LABELLED: tuple[Sample, ...] = tuple(
    op("labels", case, labels, classes=4, ignore=ignore) for case, labels, ignore in (
        ("rows", LABELS, None), ("ignore", OUTSIDE, 2), ("no_rows", np.zeros(0, np.int32), None)))
