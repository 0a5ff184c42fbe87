"""The table of docs/singularities.md: derivatives at singular points, here and elsewhere.

Run as `python tests/tools/singularities.py` where PyTorch and JAX are installed; it writes the
table into the page. Tests compare its columns with what the systems give.
"""

from __future__ import annotations

import importlib
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

import rlx_py as rlx

PAGE = Path(__file__).parent.parent.parent / "docs" / "singularities.md"
START, END = "<!-- table -->\n", "<!-- /table -->"
INF, NAN = math.inf, math.nan
KEEP, ROWS = np.array([True, False]), np.array([[1.0, 2.0], [math.nan, math.nan]])


@dataclass(frozen=True)
class Case:
    """A function of a vector in each system's own names, and the point; order 2 differentiates the
    sum of the gradient again."""

    text: str
    at: Sequence[float]
    function: Callable[[Any, Any], Any]
    order: int = 1


UNIT, ZERO = [1.0, 0.0, 0.0, 1.0], [0.0, 0.0, 0.0, 0.0]  # matrices, row by row


def by_eigh(m: Any, x: Any, f: Callable[[Any], Any]) -> Any:
    """f of a symmetric matrix."""
    w, v = m.eigh(m.matrix(x))
    return (v * f(w)) @ v.T


def by_svd(m: Any, x: Any, f: Callable[[Any], Any]) -> Any:
    """f of the singular values of a matrix."""
    u, s, vt = m.svd(m.matrix(x))
    return (u * f(s)) @ vt


CASES = (
    Case("abs(x)", [0.0], lambda m, x: m.sum(m.abs(x))),
    Case("relu(x)", [0.0], lambda m, x: m.sum(m.relu(x))),
    Case("leaky_relu(x, 0.1)", [0.0], lambda m, x: m.sum(m.leaky_relu(x, 0.1))),
    Case("clip(x, 0, 1)", [0.0, 1.0, 2.0], lambda m, x: m.sum(m.clip(x, 0.0, 1.0))),
    Case("maximum(a, b), a = b", [1.0, 1.0], lambda m, x: m.maximum(x[0], x[1])),
    Case("max(x), ties", [2.0, 2.0, 1.0], lambda m, x: m.max(x)),
    Case("max_pool1d(x, 2), tie", [3.0, 3.0], lambda m, x: m.max_pool(x)),
    Case("prod(x)", [2.0, 0.0, 3.0], lambda m, x: m.prod(x)),
    Case("sum(cumprod(x))", [2.0, 0.0, 3.0], lambda m, x: m.sum(m.cumprod(x))),
    Case("sqrt(x)", [0.0], lambda m, x: m.sum(m.sqrt(x))),
    Case("where(x > 0, sqrt(x), 0)", [0.0], lambda m, x: m.sum(m.where(x > 0, m.sqrt(x), 0.0 * x))),
    Case("where(x > 0, log(x), 0)", [0.0], lambda m, x: m.sum(m.where(x > 0, m.log(x), 0.0 * x))),
    Case("where(x > 0, 1 / x, 0)", [0.0], lambda m, x: m.sum(m.where(x > 0, 1.0 / x, 0.0 * x))),
    Case("where(x < 1, acos(x), 0)", [1.0],
         lambda m, x: m.sum(m.where(x < 1, m.arccos(x), 0.0 * x))),
    Case("exp(log(x))", [0.0], lambda m, x: m.sum(m.exp(m.log(x)))),
    Case("x * log(x)", [0.0], lambda m, x: m.sum(x * m.log(x))),
    Case("xlogy(x, x)", [0.0], lambda m, x: m.sum(m.xlogy(x, x))),
    Case("entr(x) = -x log(x)", [0.0], lambda m, x: m.sum(m.entr(x))),
    Case("sqrt(x * x)", [0.0], lambda m, x: m.sum(m.sqrt(x * x))),
    Case("sqrt(x) ** 2", [0.0], lambda m, x: m.sum(m.sqrt(x) ** 2)),
    Case("norm(x)", [0.0, 0.0], lambda m, x: m.norm(x)),
    Case("sqrt(sum(x ** 2))", [0.0, 0.0], lambda m, x: m.sqrt(m.sum(x ** 2))),
    Case("norm(x) ** 2, twice", [0.0, 0.0], lambda m, x: m.norm(x) ** 2, order=2),
    Case("std(x), constant", [1.0, 1.0], lambda m, x: m.std(x)),
    Case("hypot(a, b)", [0.0, 0.0], lambda m, x: m.hypot(x[0], x[1])),
    Case("arctan2(a, b)", [0.0, 0.0], lambda m, x: m.arctan2(x[0], x[1])),
    Case("sinc(x)", [0.0], lambda m, x: m.sum(m.sinc(x))),
    Case("sinc(x), twice", [0.0], lambda m, x: m.sum(m.sinc(x)), order=2),
    Case("x ** 0", [0.0], lambda m, x: m.sum(x ** 0.0)),
    Case("x ** 2", [0.0], lambda m, x: m.sum(x ** 2.0)),
    Case("x ** 0.5", [0.0], lambda m, x: m.sum(x ** 0.5)),
    Case("0 ** p by p", [2.0, 0.0], lambda m, x: m.sum(m.power(0.0 * x, x))),
    Case("sum(softmax(x) ** 2)", [-INF, -INF], lambda m, x: m.sum(m.softmax(x) ** 2)),
    Case("sum(softmax(x) ** 2), one masked", [0.0, 0.0, -INF],
         lambda m, x: m.sum(m.softmax(x) ** 2)),
    Case("logsumexp(x)", [-INF, -INF], lambda m, x: m.logsumexp(x)),
    Case("logaddexp(a, b)", [-INF, -INF], lambda m, x: m.logaddexp(x[0], x[1])),
    Case("floor(x)", [1.0], lambda m, x: m.sum(m.floor(x))),
    Case("where(x > 0, log(x), 0), twice", [0.0],
         lambda m, x: m.sum(m.where(x > 0, m.log(x), 0.0 * x)), order=2),
    Case("where(keep, a @ x, 0), a row not kept NaN", [1.0, 1.0],
         lambda m, x: m.sum(m.where(m.array(KEEP), m.matmul(m.array(ROWS), x), 0.0))),
    Case("where(keep, a @ x, 0) ** 2, twice", [1.0, 1.0],
         lambda m, x: m.sum(m.where(m.array(KEEP), m.matmul(m.array(ROWS), x), 0.0) ** 2), order=2),
    Case("relu(a @ x), a row −∞", [1.0, 1.0],
         lambda m, x: m.sum(m.relu(m.matmul(m.array(np.where(np.isnan(ROWS), -INF, ROWS)), x)))),
    Case("√A by eigh, its [0, 1]", UNIT, lambda m, x: by_eigh(m, x, m.sqrt)[0, 1]),
    Case("exp(A) by eigh, its [0, 1]", ZERO, lambda m, x: by_eigh(m, x, m.exp)[0, 1]),
    Case("(u * s) @ vt by svd, its [0, 1]", UNIT, lambda m, x: by_svd(m, x, lambda s: s)[0, 1]),
    Case("u @ vt by svd, its [0, 1]", UNIT, lambda m, x: by_svd(m, x, lambda s: 1.0)[0, 1]),
    Case("eigenvectors by eigh, their [1, 0]", UNIT, lambda m, x: m.eigh(m.matrix(x))[1][1, 0]),
    Case("det(A)", [1.0, 2.0, 2.0, 4.0], lambda m, x: m.det(m.matrix(x))),
    Case("det(A), twice", ZERO, lambda m, x: m.det(m.matrix(x)), order=2),
)


def derivative(case: Case) -> rlx.Graph:
    """The graph of the derivative, grad_x by x."""
    g = rlx.Graph("case")
    x = g.input("x", (len(case.at),), rlx.f64)
    names = SimpleNamespace(**{k: getattr(rlx, k) for k in rlx.__all__}, array=rlx.constant,
                            max_pool=lambda v: rlx.nn.max_pool1d(v.reshape(1, 1, -1), 2).sum(),
                            matrix=lambda v: v.reshape(2, 2), eigh=rlx.linalg.eigh,
                            svd=rlx.linalg.svd, det=rlx.linalg.det)
    g.output("y", case.function(names, x))
    for _ in range(case.order):
        g = rlx.grad(g, of="y", wrt="x")
        total = rlx.Graph("case")
        total.inputs, value = dict(g.inputs), g.outputs["grad_x"]
        total.output("grad_x", value)
        total.output("y", value.sum())
        g = total
    return g


def ours(case: Case) -> np.ndarray[Any, Any]:
    """The derivative in compiled code."""
    return rlx.compile(derivative(case))(x=np.array(case.at)).grad_x


def torch_gives(case: Case) -> np.ndarray[Any, Any]:
    """The derivative by PyTorch."""
    torch = importlib.import_module("torch")
    f = torch.nn.functional
    names = SimpleNamespace(
        sum=torch.sum, abs=torch.abs, relu=f.relu, leaky_relu=f.leaky_relu, clip=torch.clamp,
        maximum=torch.maximum, max=torch.amax, prod=torch.prod, sqrt=torch.sqrt, log=torch.log,
        exp=torch.exp, arccos=torch.acos, where=torch.where, xlogy=torch.xlogy,
        entr=torch.special.entr, norm=torch.linalg.vector_norm, hypot=torch.hypot,
        arctan2=torch.atan2, sinc=torch.sinc, power=torch.pow, floor=torch.floor,
        logaddexp=torch.logaddexp, cumprod=lambda v: torch.cumprod(v, 0),
        std=lambda v: torch.std(v, correction=0), softmax=lambda v: torch.softmax(v, 0),
        logsumexp=lambda v: torch.logsumexp(v, 0),
        max_pool=lambda v: f.max_pool1d(v.reshape(1, 1, -1), 2).sum(),
        array=torch.tensor, matmul=torch.matmul,
        matrix=lambda v: v.reshape(2, 2), eigh=torch.linalg.eigh, det=torch.linalg.det,
        svd=lambda a: torch.linalg.svd(a, full_matrices=False))
    x = torch.tensor(case.at, dtype=torch.float64, requires_grad=True)
    value = case.function(names, x)
    for _ in range(case.order):
        (gradient,) = torch.autograd.grad(value, x, create_graph=True)
        value = gradient.sum()
    return np.asarray(gradient.detach().numpy())


def jax_gives(case: Case) -> np.ndarray[Any, Any]:
    """The derivative by JAX."""
    jax = importlib.import_module("jax")
    jnp, special = jax.numpy, importlib.import_module("jax.scipy.special")
    n = jax.nn
    names = SimpleNamespace(
        sum=jnp.sum, abs=jnp.abs, relu=n.relu, leaky_relu=n.leaky_relu, clip=jnp.clip,
        maximum=jnp.maximum, max=jnp.max, prod=jnp.prod, sqrt=jnp.sqrt, log=jnp.log, exp=jnp.exp,
        arccos=jnp.arccos, where=jnp.where, xlogy=special.xlogy, entr=special.entr,
        norm=jnp.linalg.norm, hypot=jnp.hypot, arctan2=jnp.arctan2, sinc=jnp.sinc,
        power=jnp.power, floor=jnp.floor, logaddexp=jnp.logaddexp, cumprod=jnp.cumprod,
        std=jnp.std, softmax=n.softmax, logsumexp=special.logsumexp, array=jnp.array,
        matmul=jnp.matmul,
        max_pool=lambda v: jax.lax.reduce_window(
            v, -jnp.inf, jax.lax.max, (2,), (2,), "VALID").sum(),
        matrix=lambda v: v.reshape(2, 2), eigh=jnp.linalg.eigh, det=jnp.linalg.det,
        svd=lambda a: jnp.linalg.svd(a, full_matrices=False))
    with jax.enable_x64(True):
        derivative = case.function
        for order in range(case.order):
            derivative = _jax_gradient(jax, derivative, last=order == case.order - 1)
        return np.asarray(derivative(names, jnp.array(case.at, dtype=jnp.float64)))


def _jax_gradient(jax: Any, function: Callable[[Any, Any], Any], last: bool
                  ) -> Callable[[Any, Any], Any]:
    def derivative(names: Any, x: Any) -> Any:
        found = jax.grad(lambda v: function(names, v))(x)
        return found if last else found.sum()

    return derivative


SYSTEMS: dict[str, Callable[[Case], np.ndarray[Any, Any]]] = {
    "rlx-py": ours, "PyTorch": torch_gives, "JAX": jax_gives}


def shown(values: Iterable[float]) -> str:
    """Numbers as the table has them."""
    return ", ".join(_number(float(v)) for v in values)


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    return f"{value + 0.0:.4g}".replace("-", "−")


def row(case: Case, cells: Sequence[str]) -> str:
    """A line of the table."""
    return "| " + " | ".join((f"`{case.text}`", shown(case.at), *cells)) + " |"


def table() -> str:
    """The whole table."""
    head = f"| function | at | {' | '.join(SYSTEMS)} |"
    lines = [head, "|" + " --- |" * (2 + len(SYSTEMS))]
    lines += [row(c, [shown(give(c)) for give in SYSTEMS.values()]) for c in CASES]
    return "\n".join(lines) + "\n"


def written() -> dict[str, dict[str, str]]:
    """The cells of the page: {function: {system: text}}."""
    text = PAGE.read_text().split(START)[1].split(END)[0]
    lines = [re.split(r" *\| *", line.strip("| ")) for line in text.splitlines()[2:]]
    return {line[0].strip("`"): dict(zip(SYSTEMS, line[2:], strict=True)) for line in lines}


def main() -> None:
    """Write the table into the page."""
    before, rest = PAGE.read_text().split(START)
    PAGE.write_text(before + START + table() + END + rest.split(END)[1])


if __name__ == "__main__":
    main()
