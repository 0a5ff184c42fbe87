"""`python -m benchmarks.derivatives [case …]`: Hessian times vector against the gradient, in rlx.

For the loss of each case of `python -m benchmarks`, both take turns in short rounds; the ratio is
the median over the rounds. A layer's gradient takes three products, x·w, g·wᵀ and xᵀ·g. Forward
over reverse takes the first two and the two tangents of each of the three: 8/3 of it, less in a
first layer, which has no g·wᵀ. On a busy machine use `--cpu-time --threads 1`.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import numpy as np

import rlx_py as rlx
from benchmarks.case import Data, case_names, load_case
from benchmarks.machine import available_cpus, bind_to_cpus, restart_without_overrides

MOST = 3.0  # times the gradient that a product may take
Clock = Callable[[], float]


def calls(graph: rlx.Graph, data: Data, threads: int
          ) -> tuple[Callable[[], Any], Callable[[], Any], float]:
    """The gradient and the product as calls without allocation; the ratio of their operations."""
    found = []
    rng = np.random.default_rng(0)
    directions = {f"v_{k}": rng.standard_normal(a.shape).astype(a.dtype)
                  for k, a in data.params.items()}
    for derived, given in ((rlx.value_and_grad(graph, of="loss"), {}),
                           (rlx.hvp(graph, of="loss"), directions)):
        exe = rlx.compile(derived, threads=threads)
        arrays = {**data.batch, **data.params, **given}
        out = dict(exe(**arrays))
        found.append((exe, lambda exe=exe, arrays=arrays, out=out: exe(**arrays, out=out)))
    (gradient, call), (product, other) = found
    return call, other, product.cost().flops / gradient.cost().flops


def seconds(call: Callable[[], Any], times: int, clock: Clock) -> float:
    """Mean time of a call."""
    start = clock()
    for _ in range(times):
        call()
    return (clock() - start) / times


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; 1 if a product takes more than MOST times the gradient."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.derivatives", description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="case", help=", ".join(case_names()))
    parser.add_argument("--threads", type=int, default=2, help="threads (2)")
    parser.add_argument("--rounds", type=int, default=15, help="turns (15)")
    parser.add_argument("--seconds", type=float, default=0.05, help="length of a turn (0.05)")
    parser.add_argument("--cpu-time", action="store_true", help="processor time, not wall clock")
    options = parser.parse_args(arguments)
    restart_without_overrides()
    threads = min(options.threads, available_cpus())
    bind_to_cpus(threads)
    clock = time.process_time if options.cpu_time else time.perf_counter
    print(f"{'best us':10} {'gradient':>10} {'hvp':>10} {'ratio':>6} {'operations':>11}")
    worst = 0.0
    for name in options.cases or case_names():
        case = load_case(name)
        data = case.data()
        spec = case.rlx_step(rlx, data)
        if spec.optimizer is None:  # a step of its own making, not a loss to derive
            continue
        gradient, product, operations = calls(spec.graph, data, threads)
        times = max(1, int(options.seconds / max(seconds(gradient, 1, clock), 1e-6)))
        turns = [(seconds(gradient, times, clock), seconds(product, times, clock))
                 for _ in range(options.rounds)]
        ratio = median(b / a for a, b in turns)
        worst = max(worst, ratio)
        best = [min(t[k] for t in turns) * 1e6 for k in (0, 1)]
        print(f"{name:10} {best[0]:10.1f} {best[1]:10.1f} {ratio:6.2f} {operations:11.2f}",
              flush=True)
    return int(worst > MOST)


if __name__ == "__main__":
    sys.exit(main())
