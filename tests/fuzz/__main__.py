"""`python -m fuzz [--seconds S] [--seed N] [--size SIZE] [--workers W]`, in the tests' folder.

Without --seed it goes on from the seed in record.json, and adds its counts there. Each failing
program is written, made small, to the folder `found`: as Python to read, and as JSON to keep as a
test (in `kept`). A program that crashes or hangs ends its worker, and is a fault of its seed.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import subprocess
import sys
import time
import warnings
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from tempfile import TemporaryFile
from threading import Lock
from typing import Any

import numpy as np

from fuzz.generate import Faulty, generate
from fuzz.laws import fault_of, laws_of
from fuzz.program import Program, to_json
from fuzz.shrink import shrink

HERE = Path(__file__).parent
RECORD, FOUND = HERE / "record.json", HERE / "found"
HANG = 240  # seconds for a program under a law


def main() -> int:
    """Run the workers; 1 if there was a fault."""
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--size", choices=["small", "medium", "large"])
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--quick", action="store_true",
                        help="end at the first fault, and leave its program large")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        return work(args.size, args.quick)
    record = Counter(json.loads(RECORD.read_text())) if RECORD.exists() else Counter()
    run = Run(args.seed if args.seed is not None else record["next_seed"], args)
    with ThreadPoolExecutor(args.workers) as pool:
        list(pool.map(run.worker, range(args.workers)))
    if args.seed is None:
        record.update(run.counts)
        record["next_seed"] = next(run.seeds)
        RECORD.write_text(json.dumps(dict(sorted(record.items())), indent=1) + "\n")
    print(f"{run.counts['programs']} programs, {run.counts['controlled']} with loops or branches, "
          f"{run.counts['laws']} laws tried, {run.counts['faults']} faults")
    return 1 if run.counts["faults"] else 0


class Run:
    """Seeds handed to workers until the time is over."""

    def __init__(self, seed: int, args: argparse.Namespace) -> None:
        self.seeds, self.end = count(seed), time.monotonic() + args.seconds
        self.quick = args.quick
        self.command = [sys.executable, "-m", "fuzz", "--worker"]
        self.command += ["--size", args.size] if args.size else []
        self.command += ["--quick"] if args.quick else []
        self.counts: Counter[str] = Counter()
        self.lock = Lock()

    def worker(self, _: int) -> None:
        """One worker process after another; a new one where the last has died."""
        while time.monotonic() < self.end:
            self._process()

    def _process(self) -> None:
        with TemporaryFile("w+") as errors, subprocess.Popen(
                self.command, cwd=HERE.parent, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=errors, text=True) as process:
            assert process.stdin is not None and process.stdout is not None
            while time.monotonic() < self.end:
                with self.lock:
                    seed = next(self.seeds)
                try:
                    print(seed, file=process.stdin, flush=True)
                    answer = process.stdout.readline()
                except BrokenPipeError:
                    answer = ""
                if not answer:
                    errors.seek(0)
                    self._count(seed, {"faults": [f"seed {seed} ended its process:\n"
                                                  + errors.read()[-3000:]]})
                    return
                self._count(seed, json.loads(answer))
            process.stdin.close()

    def _count(self, seed: int, answer: dict[str, Any]) -> None:
        with self.lock:
            self.counts.update(programs=1, controlled=int(answer.get("controlled", 0)),
                               laws=answer.get("laws", 0), faults=len(answer["faults"]))
            for fault in answer["faults"]:
                print(fault, "\n", flush=True)
                if self.quick:
                    self.end = time.monotonic()


def work(size: str | None, quick: bool) -> int:
    """Answer seeds on standard input with what was found, a line of JSON each."""
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    for line in sys.stdin:
        faulthandler.dump_traceback_later(HANG, exit=True)
        try:
            program = generate(int(line), size=size)
        except Faulty as fault:
            print(json.dumps({"faults": [str(fault)]}), flush=True)
            continue
        print(json.dumps(examined(program, quick)), flush=True)
    return 0


def examined(program: Program, quick: bool) -> dict[str, Any]:
    """What the laws say of a program; what fails is made small and written, unless quick."""
    faults, laws = [], laws_of(program.seed)
    for law in laws:
        faulthandler.dump_traceback_later(HANG, exit=True)
        fault = fault_of(program, law)
        if fault is None:
            continue
        if quick:
            faults.append(f"seed {program.seed}: {law.__name__}: {fault}")
            break
        faulthandler.dump_traceback_later(2 * HANG, exit=True)
        small = shrink(program, law)
        text = f"# seed {program.seed}: {law.__name__}\n# {fault_of(small, law)}\n{small.text()}\n"
        FOUND.mkdir(exist_ok=True)
        (FOUND / f"{law.__name__}_{program.seed}.py").write_text(text)
        (FOUND / f"{law.__name__}_{program.seed}.json").write_text(to_json(small))
        faults.append(text)
    return {"controlled": program.controlled, "laws": len(laws), "faults": faults}


if __name__ == "__main__":
    sys.exit(main())
