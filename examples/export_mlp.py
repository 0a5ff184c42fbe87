"""Export a training step as an object file and train with it from C, without Python.

    python examples/export_mlp.py [--epochs 20] [--folder build/c]

It writes mlp_step.o and mlp_eval.o with their headers, the data and first params as mlp.bin,
compiles examples/c/step.c with the system's C compiler and runs it.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
from pathlib import Path

import numpy as np
from train_digits import BATCH, HERE, load_digits, mlp

import rlx_py as rlx


def export(folder: Path) -> None:
    """Both programs, and what they work on."""
    data = load_digits()
    graph = mlp(BATCH)
    step = rlx.train_step(graph, of="loss", optimizer=rlx.optim.adamw(3e-3, weight_decay=0.05))
    written = [rlx.compile(step).export(folder / "mlp_step", kind="object"),
               rlx.compile(mlp(len(data.test_x))).export(folder / "mlp_eval", kind="object")]
    params = rlx.init.kaiming_uniform(graph, 0)
    arrays = [np.array([len(data.train_x), len(data.test_x)], np.int32), data.train_x, data.train_y,
              data.test_x, data.test_y, *(params[k] for k in ("w0", "b0", "w1", "b1", "w2", "b2"))]
    (folder / "mlp.bin").write_bytes(b"".join(a.tobytes() for a in arrays))
    for path in written:
        print(f"{path}: {path.stat().st_size} bytes of object file")


def main() -> None:
    """Export, compile, train."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--folder", type=Path, default=Path("build/c"))
    args = parser.parse_args()
    export(args.folder)
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        print("There is no C compiler here, so the C program is not built.")
        return
    program = args.folder / "train"
    sources = [HERE / "c" / "step.c", args.folder / "mlp_step.o", args.folder / "mlp_eval.o"]
    subprocess.run([compiler, "-std=c99", "-O2", "-Wall", "-Wextra", "-I", str(args.folder),
                    *map(str, sources), "-lm", "-o", str(program)], check=True)
    subprocess.run([program, args.folder / "mlp.bin", str(args.epochs)], check=True)


if __name__ == "__main__":
    main()
