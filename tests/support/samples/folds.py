"""Samples of reductions, products, cumulative ops and statistics."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx_py.ir.nodes.node import OPS
from support.samples.sample import Sample, apart, between, hostile, reals, sample, ties

INF = np.inf


def op(name: str, case: str, *arrays: Any, smooth: bool = True, **attrs: Any) -> Sample:
    return sample(OPS[name], case, *arrays, smooth=smooth, **attrs)


def over_axes(name: str, *, empty: bool, **attrs: Any) -> list[Sample]:
    """A fold over the last, first, middle and all axes, over none, over nothing."""
    smooth = OPS[name].differentiable
    nothing = (2, 0, 3) if empty else (0, 4)
    return [
        op(name, "last", apart(3, 37), axes=(1,), smooth=smooth, **attrs),
        op(name, "first", apart(5, 18), axes=(0,), smooth=smooth, **attrs),
        op(name, "middle", apart(2, 3, 4), axes=(1,), smooth=smooth, **attrs),
        op(name, "outer", apart(2, 3, 4), axes=(0, 2), smooth=smooth, **attrs),
        op(name, "all", apart(3, 3), axes=(0, 1), smooth=smooth, **attrs),
        op(name, "nothing", np.zeros(nothing), axes=(1,), **attrs,
           smooth=smooth and name != "variance"),  # of nothing it is NaN
        op(name, "ties", ties(4, 9), axes=(1,), smooth=False, **attrs),
        op(name, "special", hostile(9, 7), axes=(0,), smooth=False, **attrs),
        op(name, "one", apart(3, 1), axes=(1,), smooth=smooth, **attrs),
    ]


def along(name: str, *, flags: tuple[str, ...]) -> list[Sample]:
    """A cumulative op along either axis, each flag in turn and all together."""
    smooth, off = OPS[name].differentiable, dict.fromkeys(flags, False)
    return [
        op(name, "last", apart(2, 19), axis=1, smooth=smooth, **off),
        op(name, "first", apart(5, 3), axis=0, smooth=smooth, **off),
        op(name, "middle", apart(2, 4, 3), axis=1, smooth=smooth, **off),
        *[op(name, flag, apart(2, 5), axis=1, smooth=smooth, **{**off, flag: True})
          for flag in flags],
        op(name, "every_flag", apart(5, 2), axis=0, smooth=smooth, **dict.fromkeys(flags, True)),
        op(name, "nothing", np.zeros((2, 0)), axis=1, smooth=smooth, **off),
        op(name, "one", apart(3, 1), axis=1, smooth=smooth, **off),
        op(name, "ties", ties(3, 8), axis=1, smooth=False, **off),
        op(name, "special", hostile(4, 8), axis=1, smooth=False, **off),
    ]


ZEROS = np.array([[2.0, 0.0, 3.0, 4.0], [0.0, 0.0, 3.0, 1.0], [1.0, -2.0, 0.5, 3.0]])
DARK = np.array([[-INF, -INF, -INF], [-INF, 1.0, 1.0], [1000.0, 1000.0, -1000.0]])

SAMPLES = [
    *over_axes("reduce_sum", empty=True), *over_axes("reduce_prod", empty=True),
    op("reduce_sum", "no_axes", reals(3, 2), axes=()),
    op("reduce_sum", "long", between(-1, 1, 2, 4099), axes=(1,), smooth=False),
    op("reduce_prod", "zeros", ZEROS, axes=(1,)),
    *over_axes("reduce_max", empty=False), *over_axes("reduce_min", empty=False),
    *over_axes("argmax", empty=False), *over_axes("argmin", empty=False),
    *over_axes("any", empty=True), *over_axes("all", empty=True),
    *over_axes("deviation", empty=True), *over_axes("norm", empty=True),
    *over_axes("variance", empty=True, ddof=0),
    *(op(name, case, x, smooth=case != "far", axes=axes, eps=1e-3)
      for name in ("inverse_root", "standardised")
      for case, x, axes in (("rows", reals(3, 19), (1,)), ("columns", reals(18, 3), (0,)),
                            ("two", reals(2, 3, 5), (0, 2)), ("far", reals(3, 17) * 1e25, (1,)),
                            ("no_rows", np.zeros((0, 4)), (1,)))),
    op("variance", "ddof", reals(3, 5), axes=(1,), ddof=1),
    op("variance", "all_freedom_lost", reals(3, 2), axes=(1,), ddof=2, smooth=False),
    op("norm", "at_zero", np.zeros((2, 3)), axes=(1,), smooth=False),
    *over_axes("logsumexp", empty=False),
    op("logsumexp", "dark_rows", DARK, axes=(1,), smooth=False),
    *along("cumsum", flags=("exclusive", "reverse")),
    *along("cumsum_backward", flags=("exclusive", "reverse")),
    *along("cumprod", flags=("exclusive", "reverse")),
    op("cumprod", "zeros", ZEROS, axis=1, exclusive=False, reverse=False),
    *along("cumargmax", flags=("reverse",)), *along("cumargmin", flags=("reverse",)),
    *along("cumlogsumexp", flags=("reverse",)),
    op("cumlogsumexp", "dark_rows", DARK, axis=1, reverse=False, smooth=False),
    op("linear_recurrence", "last", reals(2, 7), reals(2, 7, seed=1), axis=1, reverse=False),
    op("linear_recurrence", "first", reals(5, 3), reals(5, 3, seed=1), axis=0, reverse=False),
    op("linear_recurrence", "reverse", reals(2, 5), reals(2, 5, seed=1), axis=1, reverse=True),
    op("linear_recurrence", "one", reals(3, 1), reals(3, 1, seed=1), axis=1, reverse=False),
    op("linear_recurrence", "nothing", np.zeros((2, 0)), np.zeros((2, 0)), axis=1, reverse=True),
    op("linear_recurrence", "special", hostile(2, 6), hostile(2, 6, seed=1), axis=1, reverse=False,
       smooth=False),
]
