"""`python -m benchmarks [case …]`: time whole training steps of rlx, JAX and PyTorch.

All systems train on the same data with the same number of threads, and take turns (A B C A B C …),
so that slow spells of the machine hit all alike. By default each runs in a process of its own,
because in one process the systems change each other: they share one malloc and perhaps one OpenMP
runtime, whose idle threads spin. Seen on two cores: a step of PyTorch's cnn page-faults 435 times
alone and never in a process where JAX ran before; there its median is 0.78 of that alone, its
minimum 0.95.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.case import case_names
from benchmarks.machine import (
    available_cpus,
    bind_to_cpus,
    describe,
    is_busy,
    restart_without_overrides,
)
from benchmarks.measure import Disagreement, Row, run_case
from benchmarks.report import markdown_table, text_table, write_json
from benchmarks.systems import installed
from benchmarks.worker import LocalWorker, ProcessWorker, Worker, WorkerError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; 1 if the systems disagree or one fails."""
    options = _parser().parse_args(arguments)
    restart_without_overrides()
    threads = min(options.threads, available_cpus())
    if not bind_to_cpus(threads):
        print("processes cannot be bound to CPUs here: jax uses all of them", file=sys.stderr)
    if is_busy():
        print("the machine is busy: compare min, not median", file=sys.stderr)
    systems = _systems(options)
    if not systems:
        print("benchmarks: no system to measure", file=sys.stderr)
        return 1
    worker_type = ProcessWorker if options.isolate else LocalWorker

    def open_worker(case: str, system: str) -> Worker:
        return worker_type(case, system, threads)

    rows: list[Row] = []
    for case in options.cases or case_names():
        try:
            measured = run_case(case, systems, open_worker, options.rounds, options.seconds)
        except (Disagreement, WorkerError) as error:
            print(f"benchmarks: {error}", file=sys.stderr)
            return 1
        rows.extend(measured)
        if not options.markdown:
            print(text_table(measured), flush=True)
    machine = describe(threads)
    if options.markdown:
        print(markdown_table(rows, machine))
    if options.json:
        write_json(options.json, rows, machine)
    return 0


def _systems(options: argparse.Namespace) -> list[str]:
    wanted = [*options.peers, *(["torch.compile"] if options.compile_torch else [])]
    for peer in wanted:
        if not installed(peer):
            print(f"{peer}: not installed, left out", file=sys.stderr)
    return [*(["rlx"] if options.rlx else []), *filter(installed, wanted)]


def _peers(text: str) -> list[str]:
    peers = [peer for peer in text.split(",") if peer]
    if unknown := set(peers) - {"jax", "torch"}:
        raise argparse.ArgumentTypeError(f"unknown peers {sorted(unknown)}; there are jax, torch")
    return peers


def _case(name: str) -> str:
    if name not in case_names():
        raise argparse.ArgumentTypeError(f"no case {name!r}; there are {', '.join(case_names())}")
    return name


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not positive")
    return value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    flag = argparse.BooleanOptionalAction
    parser.add_argument(
        "cases", nargs="*", type=_case, metavar="case", help=", ".join(case_names())
    )
    parser.add_argument("--peers", type=_peers, default=["jax", "torch"], help="jax,torch")
    parser.add_argument("--rlx", action=flag, default=True, help="measure rlx itself")
    parser.add_argument("--compile-torch", action="store_true", help="add a torch.compile row")
    parser.add_argument("--rounds", type=_positive, default=8, help="turns per system (8)")
    parser.add_argument("--seconds", type=float, default=0.25, help="length of a turn (0.25)")
    parser.add_argument("--threads", type=_positive, default=2, help="threads per system (2)")
    parser.add_argument("--isolate", action=flag, default=True, help="a process per system")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to FILE")
    parser.add_argument("--markdown", action="store_true", help="print the table for the README")
    return parser


if __name__ == "__main__":
    sys.exit(main())
