"""Plant each fault of planted.py in a copy of the project; do the tests and random programs see it?

    python tests/tools/score.py [--seconds S] [NAME …]

--seconds: how long random programs may look for each. Ends with 1 unless the suite sees all faults
and the random programs nine tenths of them.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
sys.path.insert(0, str(TESTS))

from support.planted import FAULTS, Planted, copy_with  # noqa: E402


def main() -> int:
    """Print a row for each fault, and the two scores."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=400)
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    chosen = [f for f in FAULTS if not args.names or f.name in args.names]
    suite = programs = 0
    for fault in chosen:
        by_suite, by_programs = seen(fault, args.seconds)
        suite, programs = suite + by_suite, programs + by_programs
        print(f"{fault.name:45} suite {'sees' if by_suite else 'MISSES'} it, random programs "
              f"{'see' if by_programs else 'MISS'} it", flush=True)
    print(f"of {len(chosen)} faults the suite sees {suite}, random programs {programs}")
    return 0 if suite == len(chosen) and 10 * programs >= 9 * len(chosen) else 1


def seen(fault: Planted, seconds: int) -> tuple[bool, bool]:
    """Whether its tests fail in a copy with the fault, and whether random programs do."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        copy_with(fault, copy)
        tests = ["pytest", "-x", "-q", "-n0", "-p", "no:cacheprovider", *fault.tests]
        programs = ["fuzz", "--quick", "--seed", "0", "--seconds", str(seconds)]
        return fails(tests, copy, copy), fails(programs, copy / "tests", copy)


def fails(module: list[str], folder: Path, root: Path) -> bool:
    """Whether a Python module ends with 1, which is: found something."""
    done = subprocess.run([sys.executable, "-m", *module], cwd=folder, check=False,
                          env={**os.environ, "PYTHONPATH": str(root)},
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode not in (0, 1):
        raise SystemExit(f"{module} ended with {done.returncode}:\n{done.stdout[-2000:]}")
    return done.returncode == 1


if __name__ == "__main__":
    sys.exit(main())
