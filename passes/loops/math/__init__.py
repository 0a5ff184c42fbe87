"""Elementary and special functions as straight-line scalar code, by the name of their op."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlx_py.passes.loops.math.entropy import entr, xlogy
from rlx_py.passes.loops.math.error_function import erf, erfc, normal_tail
from rlx_py.passes.loops.math.exponential import exp, exp2, exp_times, expm1, logistic
from rlx_py.passes.loops.math.gamma import digamma, lgamma
from rlx_py.passes.loops.math.hyperbolic import acosh, asinh, atanh, cosh, sinh, tanh
from rlx_py.passes.loops.math.inverse_error_function import erfinv
from rlx_py.passes.loops.math.inverse_trigonometric import acos, asin, atan, atan2
from rlx_py.passes.loops.math.logarithm import log, log1p, log2, log10
from rlx_py.passes.loops.math.polygamma import polygamma
from rlx_py.passes.loops.math.power import pow
from rlx_py.passes.loops.math.sinc import sinc, sinc_derivative
from rlx_py.passes.loops.math.trigonometric import cos, sin, tan

APPROXIMATIONS: dict[str, Callable[..., Any]] = {
    f.__name__: f
    for f in (
        exp, exp2, exp_times, expm1, logistic, log, log2, log10, log1p, pow,
        sin, cos, tan, asin, acos, atan, atan2,
        sinh, cosh, tanh, asinh, acosh, atanh,
        erf, erfc, normal_tail, erfinv, entr, xlogy, lgamma, digamma, polygamma, sinc,
        sinc_derivative,
    )
}  # fmt: skip
"""f(scalars, *arguments, dtype), dtype "f32" or "f64"; polygamma and sinc_derivative take n=."""

__all__ = ["APPROXIMATIONS"]
