"""Implicit MAML: the gradient of an inner optimum, without going back through how it was found.

    python examples/implicit_maml.py [--steps 600] [--inner 50]

Each task (a sine, 10 points) minimises its loss plus λ/2·‖φ − θ‖² by gradient descent in a
`rlx.scan`. At the optimum dφ/dθ = (I + H/λ)⁻¹, so the cotangent of θ solves a linear system:
conjugate gradient on `rlx.hvp` in a `rlx.while_loop`, given as the rule of a `rlx.custom_vjp`. The
memory of a step does not grow with the inner steps. Tasks are batched by `rlx.vmap`, and the whole
step with Adam is one native function. Rajeswaran et al. 2019.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from tqdm import tqdm

import rlx_py as rlx

Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]
Nodes = dict[str, rlx.Node]
POINTS, TASKS, HIDDEN = 10, 16, 32
SHAPES = {"w0": (1, HIDDEN), "b0": (HIDDEN,), "w1": (HIDDEN, HIDDEN), "b1": (HIDDEN,),
          "w2": (HIDDEN, 1), "b2": (1,)}


def regression(dtype: rlx.DType) -> rlx.Graph:
    """The squared error of a tanh network on one task's points."""
    g = rlx.Graph("regression")
    x, y = g.input("x", (POINTS, 1), dtype), g.input("y", (POINTS, 1), dtype)
    p = {k: g.param(k, shape, dtype) for k, shape in SHAPES.items()}
    h = rlx.tanh(x @ p["w0"] + p["b0"])
    h = rlx.tanh(h @ p["w1"] + p["b1"])
    g.output("loss", rlx.nn.mse_loss(h @ p["w2"] + p["b2"], y))
    return g


class Adaptation:
    """θ and a task's points to the φ that gradient descent finds, with the derivative of the
    optimum."""

    def __init__(self, dtype: rlx.DType, pull: float, steps: int, products: int) -> None:
        self.pull, self.steps, self.products = pull, steps, products
        self.gradient = rlx.value_and_grad(regression(dtype), of="loss")
        self.curvature = rlx.hvp(regression(dtype), of="loss")
        self.implicit = rlx.custom_vjp(self.descend, self.forward, self.backward)

    def descend(self, theta: Nodes, x: rlx.Node, y: rlx.Node) -> Nodes:
        """`steps` trials of φ − rate·g from θ, g the gradient of L(φ) + λ/2·‖φ − θ‖². One that
        lowers it is taken, and the rate grows; else the rate is halved."""
        def at(phi: Nodes) -> tuple[rlx.Node, Nodes]:
            found = rlx.call(self.gradient, x=x, y=y, **phi)
            away = {k: p - theta[k] for k, p in phi.items()}
            return (found.loss + 0.5 * self.pull * dot(away, away),
                    {k: found[f"grad_{k}"] + self.pull * away[k] for k in phi})

        def step(carry: Any, _: Any) -> Any:
            phi, loss, g, rate = carry
            trial = {k: p - rate * g[k] for k, p in phi.items()}
            new_loss, new_g = at(trial)
            lower = new_loss < loss
            new = {k: rlx.where(lower, trial[k], p) for k, p in phi.items()}
            return (new, rlx.where(lower, new_loss, loss),
                    {k: rlx.where(lower, new_g[k], n) for k, n in g.items()},
                    rlx.where(lower, 1.2 * rate, 0.5 * rate)), None

        first = (theta, *at(theta), rlx.constant(0.02, x.dtype))
        phi: Nodes = rlx.scan(step, first, length=self.steps)[0][0]
        return phi

    def forward(self, theta: Nodes, x: rlx.Node, y: rlx.Node) -> tuple[Nodes, Any]:
        """What `descend` gives, and what `backward` reads."""
        phi = self.descend(theta, x, y)
        return phi, (phi, x, y)

    def backward(self, kept: Any, ct: Nodes) -> tuple[Nodes, None, None]:
        """z with (I + H/λ) z = ct, H the Hessian of the loss at φ."""
        phi, x, y = kept

        def times(v: Nodes) -> Nodes:
            found = rlx.call(self.curvature, x=x, y=y, **phi,
                                     **{f"v_{k}": n for k, n in v.items()})
            return {k: n + found[f"hvp_{k}"] / self.pull for k, n in v.items()}
        return conjugate_gradient(times, ct, self.products), None, None


def dot(a: Nodes, b: Nodes) -> rlx.Node:
    """The inner product over all params."""
    return rlx.stack([(a[k] * b[k]).sum() for k in a]).sum()


def conjugate_gradient(times: Any, b: Nodes, most: int) -> Nodes:
    """x with A x = b to a relative residual of 1e-6, by at most so many products. Far from an
    optimum A may be indefinite: the first direction of no curvature ends it."""
    rr = dot(b, b)
    first = {"x": {k: 0.0 * n for k, n in b.items()}, "r": b, "p": b, "rr": rr,
             "count": rlx.constant(0)}

    def body(s: Any) -> Any:
        ap = times(s["p"])
        bend = dot(s["p"], ap)
        scale = rlx.where(bend > 0.0, s["rr"] / bend, 0.0)
        r = {k: s["r"][k] - scale * ap[k] for k in b}
        left = rlx.where(bend > 0.0, dot(r, r), 0.0)
        return {"x": {k: s["x"][k] + scale * s["p"][k] for k in b}, "r": r,
                "p": {k: r[k] + left / s["rr"] * s["p"][k] for k in b}, "rr": left,
                "count": s["count"] + 1}

    found: Nodes = rlx.while_loop(
        lambda s: rlx.logical_and(s["rr"] > 1e-12 * rr, s["count"] < most), body, first)["x"]
    return found


def meta_graph(adaptation: Adaptation, tasks: int, dtype: rlx.DType, implicit: bool = True
               ) -> rlx.Graph:
    """The mean error on the query points of tasks, after each adapted to its support points."""
    loss = regression(dtype)
    task = rlx.Graph("task")
    given = {f"{part}_{k}": task.input(f"{part}_{k}", (POINTS, 1), dtype)
             for part in ("support", "query") for k in "xy"}
    theta = {k: task.param(k, shape, dtype) for k, shape in SHAPES.items()}
    adapt = adaptation.implicit if implicit else adaptation.descend
    phi = adapt(theta, given["support_x"], given["support_y"])
    task.output("loss", task.call(loss, x=given["query_x"], y=given["query_y"], **phi).loss)

    g = rlx.Graph("implicit_maml")
    inputs = {k: g.input(k, (tasks, POINTS, 1), dtype) for k in given}
    each = g.call(rlx.vmap(task, in_axes=0, size=tasks), **inputs)
    g.output("loss", each.loss.mean())
    return g


def sines(rng: np.random.Generator, tasks: int, dtype: Any = np.float32) -> Arrays:
    """Points of sines of random amplitude and phase."""
    amplitude, phase = rng.uniform(0.1, 5.0, (tasks, 1, 1)), rng.uniform(0, np.pi, (tasks, 1, 1))
    batch = {}
    for part in ("support", "query"):
        x = rng.uniform(-5, 5, (tasks, POINTS, 1))
        batch[f"{part}_x"] = x.astype(dtype)
        batch[f"{part}_y"] = (amplitude * np.sin(x + phase)).astype(dtype)
    return batch


def compare(steps: int) -> None:
    """The implicit gradient against the derivative of the inner loop, and what each stores."""
    batch, params = sines(np.random.default_rng(2), 2, np.float64), start(rlx.f64)
    adaptation, found, arenas = Adaptation(rlx.f64, 5.0, steps, 200), [], []
    for implicit in (True, False):
        exe = rlx.compile(rlx.grad(meta_graph(adaptation, 2, rlx.f64, implicit), of="loss"))
        found.append(exe(**batch, **params))
        arenas.append(exe.cost().arena_bytes)
    apart = np.sqrt(sum(((found[0][k] - a) ** 2).sum() for k, a in found[1].items()))
    length = np.sqrt(sum((a ** 2).sum() for a in found[1].values()))
    print(f"{steps:4d} inner steps: relative difference to the loop's own gradient "
          f"{apart / length:.1e}; {arenas[0] // 1024} KiB against {arenas[1] // 1024}")


def start(dtype: rlx.DType) -> Arrays:
    """First params."""
    return rlx.init.xavier_uniform(regression(dtype), seed=0)


def main() -> None:
    """Compare gradients, then meta-train and measure on new tasks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--inner", type=int, default=50)
    parser.add_argument("--products", type=int, default=20, help="of conjugate gradient, at most")
    args = parser.parse_args()
    for steps in (10, 100, 1000):
        compare(steps)

    adaptation = Adaptation(rlx.f32, 1.0, args.inner, args.products)
    step = rlx.compile(rlx.train_step(
        meta_graph(adaptation, TASKS, rlx.f32), of="loss",
        optimizer=rlx.optim.adam(2e-3), clip_norm=1.0))
    state, rng = step.init(start(rlx.f32)), np.random.default_rng(0)
    bar = tqdm(range(args.steps), unit="step")
    for n in bar:
        out = step.step(state, **sines(rng, TASKS))
        if n % 20 == 0:
            bar.set_postfix(loss=f"{out.loss:.3f}")

    batch = sines(np.random.default_rng(1), 200)
    test = rlx.compile(meta_graph(adaptation, 200, rlx.f32))
    for name, params in (("random", start(rlx.f32)), ("trained", state.params)):
        error = test(**batch, **params).loss
        print(f"squared error on new sines, adapted from a {name} start: {error:.3f}")


if __name__ == "__main__":
    main()
