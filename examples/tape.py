"""Tape mode: compute with values at hand, let Python branch on them, then go backward once.

    python examples/tape.py [--steps 300]

A square root by Newton's method, of numbers that a small network scales: how many rounds it takes
is decided by the values themselves. The same recording compiled gives the same loss.
"""

from __future__ import annotations

import argparse

import numpy as np

import rlx_py as rlx


def newton_root(a: rlx.Node) -> tuple[rlx.Node, int]:
    """√a of positive numbers, and the rounds until y² is within 1e-6 of a everywhere."""
    y, rounds = a * 0.5 + 0.5, 0
    while rlx.max(rlx.abs(y * y - a)) > 1e-6:  # a node of a tape has a truth value
        y, rounds = 0.5 * (y + a / y), rounds + 1
    return y, rounds


def main() -> None:
    """Learn the scale and exponent of y = √(s·xᵖ) from samples."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    steps = parser.parse_args().steps
    rng = np.random.default_rng(0)
    x = rng.uniform(0.5, 2.0, 64)
    y = np.sqrt(3.0 * x**1.5)
    scale = rlx.Parameter(np.array(1.0), name="scale")
    power = rlx.Parameter(np.array(0.0), name="power")
    counts = set()
    for step in range(steps):
        with rlx.Tape() as tape:
            found, rounds = newton_root(scale * rlx.exp(power * np.log(x)))
            loss = rlx.square(found - y).mean()
        tape.backward(loss)
        counts.add(rounds)
        if step % max(steps // 4, 1) == 0:
            print(f"step {step}: loss {loss.item():.6f}, {rounds} rounds, "
                  f"{len(tape.backward_nodes)} nodes backward")
        for p in (scale, power):
            p.value = p.value - 0.5 * p.grad
            p.zero_grad()
    print(f"scale {scale.value:.3f}, power {power.value:.3f}; rounds taken: {sorted(counts)}")

    last = tape.provenance[loss]
    names = [n.op.name for n in tape.backward_nodes[last.start:last.stop]]
    print(f"for {loss.op.name} backward made {names}")
    with rlx.Tape() as tape:
        found, _ = newton_root(scale * rlx.exp(power * tape.input(np.log(x))))
        recorded = tape.graph(root=found)
    compiled = rlx.compile(recorded)
    native = compiled(x0=np.log(x), scale=scale.value, power=power.value).root
    print("compiled agrees:", np.allclose(native, found.numpy(), rtol=1e-12))
    try:
        tape.backward(found)
    except rlx.ShapeError as error:
        print(f"refused: {error}".splitlines()[0])


if __name__ == "__main__":
    main()
