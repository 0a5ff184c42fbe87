"""The passes in the order they run, with what RLX_* variables show of them."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from rlx_py.ir.config import CONFIG, Config
from rlx_py.ir.graph import Graph
from rlx_py.ir.kernel import Program
from rlx_py.ir.listing import show
from rlx_py.passes.compare import compare

T = TypeVar("T", Graph, Program)
Step = tuple[str, Callable[[T], T]]


def run_steps(value: T, steps: Sequence[Step[T]], config: Config = CONFIG) -> T:
    """Apply passes in order; those that RLX_DISABLE names are left out."""
    for name, step in steps:
        if name in config.disable:
            continue
        start = time.perf_counter()
        before, value = value, step(value)
        if config.check:
            compare(name, before, value)
        if config.debug or config.dump_dir:
            _report(name, before, value, time.perf_counter() - start, config)
    return value


def size(value: Graph | Program) -> int:
    """Nodes of a graph, kernels of a program."""
    return len(value.nodes) if isinstance(value, Graph) else len(value.kernels)


def _report(name: str, before: Graph | Program, after: Graph | Program, seconds: float,
            config: Config) -> None:
    if config.debug:
        print(f"rlx {after.name}: {name} {size(before)} -> {size(after)}, "
              f"{seconds * 1e3:.1f} ms", file=sys.stderr)
    text = show(after) if isinstance(after, Program) else str(after)
    report_text(f"{after.name}-{name}", text, 4 if isinstance(after, Program) else 2, config)


def report_text(name: str, text: str, level: int, config: Config = CONFIG) -> None:
    """Print a text from a debug level on, and write it where dumps go."""
    if config.debug >= level:
        print(text, file=sys.stderr)
    if config.dump_dir:
        config.dump_dir.mkdir(parents=True, exist_ok=True)
        number = len(list(config.dump_dir.iterdir()))
        (config.dump_dir / f"{number:03d}-{name}.txt").write_text(text + "\n")
