"""Element-wise lines, as templates: which letter stands for what, `Scope._operand` says."""

from __future__ import annotations

import re

from fuzz.scope import Scope

# Differentiable for every finite operand, with values that stay small.
SMOOTH = """
rlx.tanh({x})
rlx.sin({x})
rlx.cos({x})
rlx.arctan({x})
rlx.arcsinh({x})
rlx.erf({x})
rlx.erfc({x})
rlx.sigmoid({x})
rlx.logistic({x})
rlx.softplus({x})
rlx.silu({x})
rlx.gelu({x})
rlx.gelu({x}, 'tanh')
rlx.nn.mish({x})
rlx.nn.logsigmoid({x})
rlx.nn.softsign({x})
rlx.nn.tanhshrink({x})
rlx.sinc({x})
rlx.exp(-{x} * {x})
rlx.exp(0.3 * rlx.tanh({x}))
rlx.expm1(rlx.tanh({x}))
rlx.exp2(rlx.sin({x}))
rlx.sinh(rlx.tanh({x}))
rlx.cosh(rlx.tanh({x}))
rlx.tan(rlx.tanh({x}))
rlx.square(rlx.tanh({x}))
rlx.arcsin(0.9 * rlx.tanh({x}))
rlx.arccos(0.9 * rlx.sin({x}))
rlx.arctanh(0.8 * rlx.tanh({x}))
rlx.arccosh(1.2 + {x} * {x})
rlx.erfinv(0.8 * rlx.tanh({x}))
rlx.sqrt({x} * {x} + 0.1)
rlx.rsqrt({x} * {x} + 0.3)
rlx.reciprocal(0.7 + {x} * {x})
rlx.log({x} * {x} + 0.5)
rlx.log1p({x} * {x})
rlx.log2({x} * {x} + 0.3)
rlx.log10(0.3 + {x} * {x})
rlx.lgamma({x} * {x} + 0.5)
rlx.digamma({x} * {x} + 0.5)
rlx.polygamma(1, {x} * {x} + 0.7)
rlx.entr({x} * {x} + 0.2)
rlx.power({x} * {x} + 0.3, 0.7)
({x} * {x} + 0.3) ** -1.5
rlx.tanh({x}) ** 3
2.0 ** rlx.tanh({x})
-{x}
0.5 * {x}
{x} / 3.0
0.3 - {x}
1 / ({x} * {x} + 1)
rlx.deg2rad({x})
{x} * np.float64(0.25)
{x} + np.float32(0.125)
[0.5] * {x}
rlx.checkpoint(rlx.tanh)({x})
{x} + {y}
{x} - {y}
{y} - {x}
-{x} + {y}
{x} + -{y}
{x} - -{y}
-({x} - {y})
-{x} * -{y}
0.5 * {x} * {y}
{x} * rlx.tanh({y})
{x} / (rlx.square({y}) + 0.5)
rlx.arctan2({x}, 1.0 + {y} * {y})
rlx.hypot({x}, rlx.square({y}) + 0.2)
rlx.logaddexp({x}, {y})
rlx.power({x} * {x} + 0.3, rlx.tanh({y}))
rlx.xlogy({x}, {y} * {y} + 0.4)
rlx.nn.silu_mul({x}, {y})
rlx.fma(rlx.tanh({x}), {y}, {x})
""".strip().splitlines()

# Kinks, jumps, and what has no derivative.
ROUGH = """
rlx.abs({x})
rlx.relu({x})
rlx.sign({x})
rlx.floor(3.0 * {x})
rlx.ceil({x})
rlx.trunc(4.0 * {x})
rlx.rint(2.0 * {x})
rlx.round({x}, 1)
rlx.nan_to_num({x})
rlx.clip({x}, -0.5, 0.7)
rlx.clip({x}, None, {y})
rlx.leaky_relu({x}, 0.2)
rlx.nn.elu({x})
rlx.nn.selu({x})
rlx.nn.celu({x}, 0.7)
rlx.nn.relu6(4.0 * {x})
rlx.nn.hardswish({x})
rlx.nn.hardsigmoid({x})
rlx.nn.hardtanh({x})
rlx.nn.hardshrink({x})
rlx.nn.softshrink({x})
rlx.nn.threshold({x}, 0.1, -0.3)
rlx.stop_gradient({x})
{x} - 0.5 * rlx.stop_gradient({x})
rlx.maximum({x}, 0.0)
rlx.minimum(0.25, {x})
rlx.maximum({x}, {y})
rlx.minimum({x}, {y})
rlx.fmax({x}, {y})
rlx.fmin({x}, {y})
rlx.remainder({x}, {y} * {y} + 0.6)
rlx.fmod({x}, {y} * {y} + 0.6)
rlx.floor_divide({x}, {y} * {y} + 0.6)
rlx.where({x} < {y}, {x}, 0.5 * {y})
rlx.where({x} > 0, rlx.log({x}), 0)
rlx.where({x} > {y}, rlx.tanh({x}), rlx.sin({y}))
rlx.where({m}, {x}, 0.0)
rlx.where({m}, {x}, {y})
rlx.where({p}, 1.0, -1.0)
{x} * {m}
{x} * (1 - {m})
""".strip().splitlines()

# Comparisons, integers and bools: no derivative either.
DISCRETE = """
{n} < {o}
{n} <= {o}
{n} > {o}
{n} >= {o}
rlx.equal({n}, {o})
rlx.not_equal({n}, {o})
{x} > 0.5
rlx.isnan({x})
rlx.isinf({x})
rlx.isfinite({x})
rlx.logical_and({p}, {q})
rlx.logical_or({p}, {q})
rlx.logical_xor({p}, {q})
rlx.logical_not({p})
~{p}
{p} & {q}
{p} | {q}
{p} ^ {q}
{i} + {j}
{i} - {j}
{i} * {j}
{i} // {j}
{i} % {j}
{i} & {j}
{i} | {j}
{i} ^ {j}
~{i}
-{i}
rlx.abs({i})
rlx.sign({i})
rlx.square({i})
{i} ** 2
{i} / 7
3 * {i}
{i} // 3
{i} % 5
rlx.clip({i}, 1, 5)
rlx.maximum({i}, {j})
rlx.minimum({i}, {j})
rlx.fmod({i}, {j})
rlx.left_shift({i}, {j})
rlx.right_shift({i}, {j})
""".strip().splitlines()

# Outside their domain, on their poles, and where they overflow.
WILD = """
rlx.log({x})
rlx.log1p({x})
rlx.log2({x})
rlx.log10({x})
rlx.sqrt({x})
rlx.rsqrt({x})
rlx.exp({x})
rlx.expm1({x})
rlx.exp2({x})
rlx.sinh({x})
rlx.tan({x})
rlx.arcsin({x})
rlx.arccosh({x})
rlx.arctanh({x})
rlx.erfinv({x})
rlx.lgamma({x})
rlx.digamma({x})
rlx.entr({x})
rlx.reciprocal({x})
{x} ** 0.5
{x} ** -1.0
{x} ** 3
{x} / {y}
{x} * {y}
rlx.power({x}, {y})
rlx.arctan2({x}, {y})
rlx.hypot({x}, {y})
rlx.remainder({x}, {y})
rlx.fmod({x}, {y})
rlx.floor_divide({x}, {y})
rlx.xlogy({x}, {y})
rlx.logaddexp({x}, {y})
""".strip().splitlines()

# NumPy has these under the same name, with the same value for the same arrays.
IN_NUMPY = {"tanh", "sin", "cos", "arctan", "arcsinh", "abs", "sign", "floor", "ceil", "trunc",
            "rint", "square", "reciprocal", "isnan", "isinf", "isfinite", "maximum", "minimum",
            "fmax", "fmin", "logaddexp", "hypot", "exp", "where", "equal", "not_equal",
            "logical_and", "logical_or", "logical_xor", "logical_not"}


def element_wise(scope: Scope) -> str | None:
    """A template of the kinds that the program's style allows."""
    rng, style = scope.rng, scope.style
    tables = [(SMOOTH, 4.0)]
    if not style.smooth:
        tables += [(ROUGH, 2.0), (DISCRETE, 3.0 if style.mixed else 1.0)]
    if style.hostile:
        tables.append((WILD, 4.0))
    return rng.choice(rng.choices([t for t, _ in tables], [w for _, w in tables])[0])


def cast(scope: Scope) -> str | None:
    """To another element type, which is all that mixes them in a program of one type."""
    if scope.style.smooth:
        return None
    kinds = ["f64", "f32", "f16", "bf16", "i64", "i32", "i8", "u8", "u32", "bool"]
    dtype = scope.rng.choice(kinds) if scope.style.mixed else scope.style.dtype
    return f"{{n}}.astype(rlx.{dtype})"


def in_numpy(template: str) -> bool:
    """Whether the template has a NumPy twin."""
    names = re.findall(r"rlx\.([\w.]+)", template)
    return bool(names) and all(n in IN_NUMPY for n in names)
