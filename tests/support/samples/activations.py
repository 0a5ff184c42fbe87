"""Samples of activations, gated ones, fake quantisation and flow matching, and their backwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlx_py.ir.nodes.node import OPS, Node
from rlx_py.ir.ops.making.constant import constant
from rlx_py.ir.ops.operands.operand import convert
from support.samples.sample import Sample, between, hostile, reals, sample

ENDS = np.array([-800.0, -40.5, -24.5, -17.2, -3.2, -2.9, 2.9, 3.2, 5.8, 6.3, 23.5, 24.5, 41.0])


def op(name: str, case: str, *arrays: Any, smooth: bool = True, **attrs: Any) -> Sample:
    return sample(OPS[name], case, *arrays, smooth=smooth, **attrs)


def activation_samples() -> list[Sample]:
    found = []
    varied: list[tuple[str, list[dict[str, Any]]]] = [
        ("logsigmoid", [{}]), ("selu", [{}]), ("mish", [{}]), ("softsign", [{}]),
        ("tanhshrink", [{}]), ("hardsigmoid", [{}]), ("hardswish", [{}]),
        ("elu", [{"alpha": 1.0}, {"alpha": 0.4}]), ("celu", [{"alpha": 1.0}, {"alpha": 2.5}]),
        ("hardtanh", [{"low": -1.0, "high": 1.0}, {"low": 0.0, "high": 6.0}]),
        ("threshold", [{"threshold": 0.01, "value": -3.0}, {"threshold": -0.5, "value": 2.0}]),
        ("hardshrink", [{"lambd": 0.5}, {"lambd": 0.0}]),
        ("softshrink", [{"lambd": 0.5}, {"lambd": 1.25}]),
    ]
    for name, options in varied:
        for i, attrs in enumerate(options):
            found.append(op(name, f"normal{i}", reals(3, 7), **attrs))
        found += [op(name, "ends", ENDS, **options[0]),
                  op(name, "special", hostile(40), smooth=False, **options[0]),
                  op(name, "nothing", reals(0, 3), **options[0])]
        if f"{name}_backward" in OPS:
            found += [op(f"{name}_backward", "normal", reals(3, 7, seed=1), reals(3, 7)),
                      op(f"{name}_backward", "ends", reals(*ENDS.shape), ENDS)]
    return found


GATED = [
    op(name, case, x, axis=axis)
    for name in ("glu", "swiglu")
    for case, x, axis in (("last", reals(3, 6), 1), ("middle", reals(2, 4, 3), 1),
                          ("vector", reals(4), 0), ("nothing", reals(0, 4), 1),
                          ("no_width", reals(3, 0), 1))
]
GATED += [
    op("silu_mul", "plain", reals(3, 5), reals(3, 5, seed=1)),
    op("silu_mul", "special", hostile(30), hostile(30, seed=1), smooth=False),
    op("prelu", "one", reals(3, 5), reals(1)),
    op("prelu", "channels", reals(2, 3, 4), reals(3)),
    op("prelu", "square", reals(3, 3), reals(3)),
    op("prelu", "vector", reals(5), reals(1, seed=1)),
    op("prelu", "one_channel", reals(4, 1), reals(1)),
]

# ---- quantisation ----------------------------------------------------------------------------


def with_scale(bits: int, axis: int | None, factor: float) -> Callable[..., tuple[Node, ...]]:
    """(…, x) -> (…, x, scale): a constant per place of the axis, of the size of normal numbers."""

    def prepare(*given: Node) -> tuple[Node, ...]:
        x = given[-1]
        size = () if axis is None else (x.shape[axis],)
        steps = np.linspace(1.0, 1.5, int(np.prod(size))).reshape(size)
        s = factor * steps / (2 ** (bits - 1) - 1)
        return *given, convert(constant(s), x.dtype.compute)

    return prepare


def quantisation_samples() -> list[Sample]:
    found = []
    for i, (ste, bits, axis, covered) in enumerate((
            ("identity", 8, None, True), ("identity", 4, 0, False),
            ("clipped_identity", 8, 1, True), ("clipped_identity", 4, 2, False),
            ("tanh", 2, None, False), ("tanh", 4, 1, False),
            ("hard_tanh", 4, 0, False), ("hard_tanh", 2, None, False))):
        given = {"bits": bits, "axis": axis, "ste": ste, "covered": covered}
        for case, x, smooth in (("normal", reals(3, 4, 3), False),
                                ("nothing", reals(0, 4, 3), True),
                                ("special", hostile(3, 3, 4), False)):
            name = f"{case}_{ste}{i}"
            found += [
                sample(OPS["fake_quantize"], name, x, smooth=smooth and axis != 0,
                       prepare=with_scale(bits, axis, 1.1), **given),
                sample(OPS["fake_quantize_backward"], name, reals(*x.shape, seed=1), x,
                       smooth=case == "normal", prepare=with_scale(bits, axis, 1.1), **given)]
        found.append(op("quantize_scale", f"normal{i}", reals(3, 4, 3), bits=bits, axis=axis))
    far = between(2.0, 3.0, 3, 4) * np.where(reals(3, 4) > 0, 1, -1)
    for axis in (None, 1):
        for bits in (8, 2):
            # Beyond the grid the value is constant, as the estimator says.
            found.append(sample(OPS["fake_quantize"], f"far{axis}_{bits}", far,
                                prepare=with_scale(bits, axis, 1.0), bits=bits, axis=axis,
                                ste="clipped_identity", covered=False))
            attrs: dict[str, Any] = {"bits": bits, "axis": axis,
                                     "gradient_scale": 0.5 if axis else 1.0}
            size: tuple[int, ...] = () if axis is None else (4,)
            step = between(0.9, 1.1, *size) * 1.2 / (2 ** (bits - 1) - 1)
            exact = {**attrs, "gradient_scale": 1.0}
            found += [op("fake_quantize_lsq", f"far{axis}_{bits}", far, step, **exact),
                      op("fake_quantize_lsq", f"normal{axis}_{bits}", reals(3, 4), step,
                         smooth=False, **attrs),
                      op("fake_quantize_lsq_backward", f"normal{axis}_{bits}",
                         reals(3, 4, seed=1), reals(3, 4), step,
                         smooth=bits == 2, **attrs)]  # a step away from the next jump
    found += [op("quantize_scale", "zeros", np.zeros((2, 3)), bits=8, axis=0),
              op("quantize_scale", "nothing", reals(0, 3), bits=4, axis=1),
              op("quantize_scale", "special", hostile(4, 5), bits=2, axis=0)]
    return found


# ---- flow matching ---------------------------------------------------------------------------


def masked(*given: Node) -> tuple[Node, ...]:
    """(…, prediction) -> (…, prediction, target, mask), both constants."""
    p = given[-1]
    rng = np.random.default_rng(p.size)
    target, mask = rng.standard_normal(p.shape), rng.random(p.shape) < 0.6
    return *given, convert(constant(target), p.dtype), convert(constant(mask * 1.0), p.dtype)


STATE = (reals(3, 4), reals(3, 4, seed=1), between(0.0, 1.0, 3, 4))
FLOWS = [
    op("flow_linear_state", "plain", *STATE),
    op("flow_linear_state", "ends", reals(4), reals(4, seed=1), np.array([0.0, 1.0, 0.5, -1.0])),
    op("flow_linear_state_backward", "plain", reals(3, 4, seed=2), *STATE),
    op("flow_linear_velocity", "plain", *STATE[:2]),
    op("flow_euler_step", "plain", *STATE),
    *(sample(OPS["flow_masked_mse"], case, x, prepare=masked)
      for case, x in (("plain", reals(3, 4)), ("one", reals(1)), ("nothing", reals(0, 3)))),
    sample(OPS["flow_masked_mse_backward"], "plain", reals(), reals(3, 4), prepare=masked),
]

SAMPLES = (*activation_samples(), *GATED, *quantisation_samples(), *FLOWS)
