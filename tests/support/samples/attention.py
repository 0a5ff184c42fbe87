"""Samples of attention, masked softmax and rotary embedding, and their backwards."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx_py.ir.nodes.node import OPS
from support.samples.sample import Array, Sample, reals, sample

INF = np.inf
KEY = np.array([7, 2**31 + 5], np.uint32)
ATTRS: dict[str, Any] = {"mask": "none", "window": None, "causal_align": "bottom_right",
                         "scale": 0.5, "softcap": None, "dropout": 0.0}
# Axes B, H, Hkv, Sq, Sk, D, Dv.
PLAIN = (2, 2, 2, 3, 4, 5, 5)
GROUPS = (2, 4, 2, 3, 5, 4, 3)


def keep(*shape: int) -> Array:
    """A mask that hides some keys from all but the first query, and all keys from that one."""
    found = np.random.default_rng(5).random(shape) > 0.4
    found[..., -1] = True
    found[..., 0, :] = False
    return found


BIAS = reals(1, 4, 3, 1, seed=6)
DARK_BIAS = np.where(keep(2, 1, 3, 5), reals(2, 1, 3, 5, seed=7), -INF)
CASES: list[tuple[str, tuple[int, ...], list[Array], dict[str, Any]]] = [
    ("plain", PLAIN, [], {}),
    ("groups", GROUPS, [], {"scale": -1.5}),
    ("one_shared_head", (1, 3, 1, 2, 3, 4, 2), [], {}),
    ("square", (2, 2, 2, 2, 2, 2, 2), [], {"mask": "causal"}),
    ("causal_long_keys", PLAIN, [], {"mask": "causal"}),
    ("causal_long_queries", (1, 2, 1, 5, 3, 2, 2), [], {"mask": "causal"}),
    ("causal_top_left", (1, 2, 1, 5, 3, 2, 2), [], {"mask": "causal", "causal_align": "top_left"}),
    ("window", (1, 2, 1, 6, 6, 3, 2), [], {"mask": "sliding_window", "window": 2}),
    ("window_top_left", (1, 1, 1, 3, 6, 3, 2), [],
     {"mask": "sliding_window", "window": 1, "causal_align": "top_left"}),
    ("custom", GROUPS, [keep(2, 4, 3, 5)], {"mask": "custom"}),
    ("custom_keys", GROUPS, [keep(2, 1, 1, 5)], {"mask": "custom"}),
    ("bias", GROUPS, [reals(2, 4, 3, 5, seed=6)], {"mask": "bias"}),
    ("bias_heads", GROUPS, [BIAS], {"mask": "bias", "softcap": 1.5}),
    ("causal_custom", GROUPS, [keep(2, 1, 3, 5)], {"mask": "causal+custom"}),
    ("window_bias", GROUPS, [BIAS], {"mask": "sliding_window+bias", "window": 2}),
    ("custom_bias_dropout", GROUPS, [keep(1, 4, 3, 5), BIAS, KEY],
     {"mask": "causal+custom+bias", "dropout": 0.25}),
    ("softcap", PLAIN, [], {"softcap": 0.7, "mask": "causal"}),
    ("dropout", GROUPS, [KEY], {"dropout": 0.4}),
    ("bias_dropout", GROUPS, [BIAS, KEY], {"mask": "bias", "dropout": 0.25}),
    ("no_keys", (1, 2, 1, 3, 0, 2, 2), [], {"mask": "causal"}),
    ("no_queries", (1, 2, 1, 0, 3, 2, 2), [], {}),
    ("no_features", (1, 2, 1, 2, 3, 0, 2), [], {}),
]


def attention_samples() -> list[Sample]:
    found = []
    for case, (b, h, shared, queries, keys, depth, width), rest, given in CASES:
        attrs = {**ATTRS, **given}
        qkv = (reals(b, h, queries, depth), reals(b, shared, keys, depth, seed=1),
               reals(b, shared, keys, width, seed=2))
        dy, y = (reals(b, h, queries, width, seed=s) for s in (3, 4))
        dlse, lse = (reals(b, h, queries, seed=s) for s in (3, 4))
        # Where a query sees no key LSE is −inf, which has no differences.
        is_dark = case.startswith(("causal_long_queries", "causal_custom", "custom", "no_keys"))
        found += [
            sample(OPS["attention"], case, *qkv, *rest, **attrs),
            sample(OPS["attention_backward"], case, dy, y, *qkv, *rest, **attrs),
            sample(OPS["flash_attention"], case, *qkv, *rest, smooth=not is_dark, **attrs),
            sample(OPS["flash_attention_backward"], case, dy, dlse, y, lse, *qkv, *rest, **attrs)]
    q, k, v = (reals(2, n, s, 4, seed=n) for n, s in ((4, 3), (2, 5), (2, 5)))
    bias = {**ATTRS, "mask": "bias"}
    found += [sample(OPS["attention"], "dark_bias", q, k, v, DARK_BIAS, smooth=False, **bias),
              sample(OPS["flash_attention"], "dark_bias", q, k, v, DARK_BIAS, smooth=False, **bias)]
    return found


def softmax_samples() -> list[Sample]:
    found = []
    masks: tuple[tuple[str, tuple[int, ...], list[Array]], ...] = (
        ("rows", (3, 7), []), ("mask", (2, 3, 4), [reals(3, 4, seed=3)]),
        ("row_mask", (4, 4), [reals(4, 1, seed=3)]), ("no_rows", (0, 3), []),
        ("no_columns", (3, 0), []))
    for (case, shape, mask), scale in zip(masks, (1.0, 0.5, -2.0, 1.0, 1.0), strict=True):
        # The mask is a constant, so it is no difference that a derivative could match.
        found.append(sample(OPS["softmax_scaled_masked"], case, reals(*shape), *mask,
                            smooth=not mask, scale=scale))
        found.append(sample(OPS["softmax_scaled_masked_backward"], case, reals(*shape, seed=1),
                            reals(*shape), scale=scale))
    dark = np.where(keep(4, 4), 0, -INF)
    found.append(sample(OPS["softmax_scaled_masked"], "dark", reals(4, 4), dark, smooth=False,
                        scale=0.5))
    return found


def rope_samples() -> list[Sample]:
    found = []
    for style in ("neox", "gptj"):
        for case, x, axis, pairs in (("whole", (2, 3, 5, 6), 2, 3), ("part", (2, 5, 2, 7), 1, 2),
                                     ("matrix", (4, 4), 0, 1), ("none", (3, 4), 0, 0),
                                     ("no_positions", (2, 0, 4), 1, 2)):
            tables = tuple(reals(x[axis], pairs, seed=s) for s in (1, 2))
            if case == "whole":
                by_row = (reals(x[0], x[axis], pairs, seed=s) for s in (3, 4))
                found.append(sample(OPS["rope"], f"rows_{style}", reals(*x), *by_row, axis=axis,
                                    style=style))
            found.append(sample(OPS["rope"], f"{case}_{style}", reals(*x), *tables, axis=axis,
                                style=style))
    return found


SAMPLES = [*attention_samples(), *softmax_samples(), *rope_samples()]
