"""Newton's method on real digits: a gradient of 1e-10 in a few steps, without any Hessian.

    python examples/newton.py [--steps 12]

A step is one native function: the gradient, conjugate gradient on products with the curvature (a
`rlx.while_loop` that ends where the residual is small enough), a line search (another), the update.
A softmax regression uses its Hessian, `rlx.hvp`. A network, whose Hessian has negative curvature,
uses the Gauss-Newton matrix JᵀHJ, with J of the logits (`rlx.jvp`, `rlx.vjp`) and H the Hessian of
the loss by the logits. Data: examples/data. Martens 2010; Nocedal and Wright 2006, chapter 7.
"""

from __future__ import annotations

import argparse
import gzip
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

import rlx_py as rlx

Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]
Nodes = dict[str, rlx.Node]
Product = Callable[[rlx.Graph, Nodes, Nodes], Nodes]
DATA = Path(__file__).parent / "data" / "digits.csv.gz"
DECAY = 1e-3
MOST = 250  # iterations of conjugate gradient in a step


def load_digits() -> Arrays:
    """Images [n, 64] in 0 … 1 and labels."""
    with gzip.open(DATA, "rt") as file:
        table = np.loadtxt(file, delimiter=",")
    return {"x": table[:, :64] / 16, "y": table[:, 64].astype(np.int32)}


def model(rows: int, sizes: tuple[int, ...]) -> rlx.Graph:
    """Logits of a tanh network; of sizes (64, 10) a linear one."""
    g = rlx.Graph("model")
    h = g.input("x", (rows, 64), rlx.f64)
    for i, (n, m) in enumerate(zip(sizes, sizes[1:], strict=False)):
        w, b = g.param(f"w{i}", (n, m), rlx.f64), g.param(f"b{i}", (m,), rlx.f64)
        h = (rlx.tanh(h) if i else h) @ w + b
    g.output("logits", h)
    return g


def entropy(logits: rlx.Node, y: rlx.Node) -> rlx.Node:
    """The mean cross-entropy."""
    return rlx.softmax_cross_entropy(logits, y).mean()


def loss_graph(logits: rlx.Graph) -> rlx.Graph:
    """Cross-entropy plus DECAY/2 times the squares of all params."""
    g = rlx.Graph("loss")
    x = g.input("x", logits.inputs["x"].shape, rlx.f64)
    y = g.input("y", x.shape[:1], rlx.i32)
    loss = entropy(g.call(logits, x=x).logits, y)
    for p in g.params.values():
        loss = loss + 0.5 * DECAY * (p * p).sum()
    g.output("loss", loss)
    return g


def hessian(logits: rlx.Graph) -> Product:
    """Products with the Hessian of the whole loss."""
    graph = rlx.hvp(loss_graph(logits), of="loss")

    def product(g: rlx.Graph, given: Nodes, v: Nodes) -> Nodes:
        found = g.call(graph, **given, **{f"v_{k}": n for k, n in v.items()})
        return {k: found[f"hvp_{k}"] for k in v}
    return product


def gauss_newton(logits: rlx.Graph) -> Product:
    """Products with JᵀHJ + DECAY."""
    forward, backward = rlx.jvp(logits, wrt=list(logits.params)), rlx.vjp(logits)
    outer = rlx.Graph("outer")
    u = outer.input("u", logits.outputs["logits"].shape, rlx.f64)
    outer.output("loss", entropy(u, outer.input("y", u.shape[:1], rlx.i32)))
    curvature = rlx.hvp(outer, of="loss", wrt=["u"])

    def product(g: rlx.Graph, given: Nodes, v: Nodes) -> Nodes:
        inputs = {k: n for k, n in given.items() if k != "y"}
        found = g.call(forward, **inputs, **{f"t_{k}": n for k, n in v.items()})
        ct = g.call(curvature, u=found.logits, y=given["y"], v_u=found.t_logits).hvp_u
        back = g.call(backward, **inputs, ct_logits=ct)
        return {k: back[f"grad_{k}"] + DECAY * n for k, n in v.items()}
    return product


def dot(a: Nodes, b: Nodes) -> rlx.Node:
    """The inner product over all params."""
    return rlx.stack([(a[k] * b[k]).sum() for k in a]).sum()


def plus(a: Nodes, scale: Any, b: Nodes) -> Nodes:
    """a + scale·b."""
    return {k: a[k] + scale * b[k] for k in a}


def conjugate_gradient(times: Callable[[Nodes], Nodes], b: Nodes, tolerance: rlx.Node
                       ) -> tuple[Nodes, rlx.Node]:
    """x with A x = b to a residual of tolerance·‖b‖, and the number of products it took."""
    rr = dot(b, b)
    first = {"x": {k: 0.0 * n for k, n in b.items()}, "r": b, "p": b, "rr": rr,
             "count": rlx.constant(0)}

    def goes_on(s: Any) -> rlx.Node:
        return rlx.logical_and(s["rr"] > tolerance * tolerance * rr, s["count"] < MOST)

    def body(s: Any) -> Any:
        ap = times(s["p"])
        alpha = s["rr"] / dot(s["p"], ap)
        r = plus(s["r"], -alpha, ap)
        left = dot(r, r)
        return {"x": plus(s["x"], alpha, s["p"]), "r": r, "p": plus(r, left / s["rr"], s["p"]),
                "rr": left, "count": s["count"] + 1}

    last = rlx.while_loop(goes_on, body, first)
    return last["x"], last["count"]


def newton_step(logits: rlx.Graph, product: Product, damping: float) -> rlx.Graph:
    """Params move by Newton's direction, halved until the loss falls as the slope promises.

    What is added to the curvature's diagonal grows after a step that was halved, else it shrinks.
    """
    loss, gradient = loss_graph(logits), rlx.value_and_grad(loss_graph(logits), of="loss")
    g = rlx.Graph("newton")
    x = g.input("x", loss.inputs["x"].shape, rlx.f64)
    y = g.input("y", x.shape[:1], rlx.i32)
    now = g.call(gradient, x=x, y=y)
    params, grads = dict(g.params), {k: now[f"grad_{k}"] for k in g.params}
    given = {"x": x, "y": y, **params}
    norm = rlx.sqrt(dot(grads, grads))
    extra = g.state("damping", (), rlx.f64, init=damping)
    direction, count = conjugate_gradient(
        lambda v: plus(product(g, given, v), extra, v), {k: -n for k, n in grads.items()},
        rlx.minimum(0.1, norm))
    slope = dot(grads, direction)

    def too_far(t: Any) -> rlx.Node:
        there = g.call(loss, x=x, y=y, **plus(params, t, direction)).loss
        # Below 1e-12 of the loss, what is measured is rounding.
        enough = now.loss + 1e-4 * t * slope + 1e-12 * now.loss
        return rlx.logical_and(there > enough, t > 1e-6)

    length = rlx.while_loop(too_far, lambda t: 0.5 * t, rlx.constant(1.0, rlx.f64))
    g.next("damping", rlx.where(length < 1.0, 3.0 * extra, extra / 3.0))
    for k, n in plus(params, length, direction).items():
        g.update(k, n)
    for name, node in (("loss", now.loss), ("norm", norm), ("products", count),
                       ("length", length)):
        g.output(name, node)
    return g


def minimize(title: str, logits: rlx.Graph, product: Product, damping: float, digits: Arrays,
             steps: int) -> None:
    """Take Newton steps, then as many of gradient descent as they took products."""
    start = rlx.init.xavier_uniform(logits, seed=0)
    exe = rlx.compile(newton_step(logits, product, damping))
    state = exe.init(start)
    begin, products = time.perf_counter(), 0
    for n in tqdm(range(steps), desc=title, unit="step"):
        out = exe.step(state, **digits)
        products += int(out.products)
        tqdm.write(f"  {title} {n:2d}: loss {out.loss:.12f}, gradient {out.norm:.1e}, "
                   f"{out.products} products, length {out.length:.3g}")
        if out.norm < 1e-10:
            break
    seconds = time.perf_counter() - begin
    accuracy = np.mean(rlx.compile(logits)(x=digits["x"], **state.params).logits.argmax(1)
                       == digits["y"])
    print(f"{title}: loss {out.loss:.4f}, gradient {out.norm:.1e} after {n} steps and {products} "
          f"products ({seconds:.2f} s), training accuracy {accuracy:.4f}")

    plain = rlx.train_step(loss_graph(logits), of="loss", optimizer=rlx.optim.sgd(0.5))
    descent = rlx.compile(plain)
    state = descent.init(start)
    for _ in range(products):
        descent.step(state, **digits)
    slopes = rlx.compile(rlx.value_and_grad(loss_graph(logits), of="loss"))
    found = slopes(**digits, **state.params)
    norm = np.sqrt(sum(float((found[f"grad_{k}"] ** 2).sum()) for k in start))
    print(f"{title}: loss {found.loss:.4f}, gradient {norm:.1e} after {products} steps of gradient "
          "descent")


def main() -> None:
    """Both models."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=15)
    steps = parser.parse_args().steps
    digits = load_digits()
    linear, network = (model(len(digits["y"]), s) for s in ((64, 10), (64, 16, 10)))
    minimize("regression", linear, hessian(linear), 0.0, digits, steps)
    minimize("network", network, gauss_newton(network), 0.1, digits, 2 * steps)


if __name__ == "__main__":
    main()
