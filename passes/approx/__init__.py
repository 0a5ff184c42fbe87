"""Elementary and special functions as straight-line scalar code."""

from rlx_py.passes.approx.error_function import erf, erfc
from rlx_py.passes.approx.exponential import exp, exp2, expm1, logistic
from rlx_py.passes.approx.hyperbolic import acosh, asinh, atanh, cosh, sinh, tanh
from rlx_py.passes.approx.inverse_trigonometric import acos, asin, atan, atan2
from rlx_py.passes.approx.logarithm import log, log1p, log2, log10
from rlx_py.passes.approx.power import pow
from rlx_py.passes.approx.trigonometric import cos, sin, tan

APPROXIMATIONS = {
    f.__name__: f
    for f in (erf, erfc, exp, exp2, expm1, logistic, acosh, asinh, atanh, cosh, sinh, tanh, acos,
              asin, atan, atan2, log, log1p, log2, log10, pow, cos, sin, tan)
}
"""Functions by the name of their scalar operation: f(builder, *arguments, dtype)."""
