"""Steps that are run in order, with what RLX_* variables show, leave out and check of them."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Collection, Sequence
from difflib import get_close_matches
from functools import wraps
from typing import Any, ParamSpec

from rlx_py.ir.base.config import CONFIG, Config
from rlx_py.ir.base.errors import ArgumentError
from rlx_py.ir.graph.graph import Graph
from rlx_py.ir.loops.listing import show
from rlx_py.ir.loops.program import Program
from rlx_py.passes.analysis.compare import compare

P = ParamSpec("P")
Step = tuple[str, Callable[[Any], Any]]  # of a graph or program, which it keeps or makes of a graph


def run_steps(value: Any, steps: Sequence[Step], config: Config = CONFIG) -> Any:
    """Apply passes in order; those that RLX_DISABLE names are left out."""
    for name, step in steps:
        if name in config.disable:
            continue
        start = time.perf_counter()
        before, value = value, step(value)
        if config.check:
            compare(name, before, value)
        if config.debug or config.dump_dir is not None:
            _report(name, before, value, time.perf_counter() - start, config)
    return value


def watched(transform: Callable[P, Graph]) -> Callable[P, Graph]:
    """A transformation of a graph, its first argument, that leaves a trace as a pass does."""
    if not (CONFIG.debug or CONFIG.dump_dir is not None):
        return transform

    @wraps(transform)
    def run(*args: P.args, **kwargs: P.kwargs) -> Graph:
        start = time.perf_counter()
        made = transform(*args, **kwargs)
        before = next((a for a in (*args, *kwargs.values()) if isinstance(a, Graph)), made)
        _report(transform.__name__, before, made, time.perf_counter() - start, CONFIG)
        return made

    return run


def require_known(disable: Collection[str], known: Collection[str]) -> None:
    """Raise ArgumentError for a name in RLX_DISABLE that no pass and no rule has."""
    for name in sorted(set(disable) - set(known)):
        near = get_close_matches(name, known, 1, 0.0)
        raise ArgumentError(f"RLX_DISABLE: no pass or rule is named {name!r}; did you mean "
                            f"{near[0]!r}?")


def size(value: Graph | Program) -> int:
    """Nodes of a graph, kernels of a program."""
    return len(value.nodes) if isinstance(value, Graph) else len(value.kernels)


def _report(name: str, before: Graph | Program, after: Graph | Program, seconds: float,
            config: Config) -> None:
    if config.debug:
        print(f"rlx {after.name}: {name} {size(before)} -> {size(after)}, "
              f"{seconds * 1e3:.1f} ms", file=sys.stderr)
    text = show(after) if isinstance(after, Program) else str(after)
    if after is before or (isinstance(before, Graph) and text == str(before)):
        return  # it was shown before
    report_text(f"{after.name}-{name}", text, 4 if isinstance(after, Program) else 2, config)


def report_text(name: str, text: str, level: int, config: Config = CONFIG) -> None:
    """Print a text from a debug level on, and write it where dumps go."""
    if config.debug >= level:
        print(text, file=sys.stderr)
    if config.dump_dir is not None:
        try:
            config.dump_dir.mkdir(parents=True, exist_ok=True)
            number = len(list(config.dump_dir.iterdir()))
            plain = re.sub(r"[^\w.-]", "_", name)[:100]  # graphs have names of the user's
            (config.dump_dir / f"{number:03d}-{plain}.txt").write_text(text + "\n")
        except OSError as error:
            raise ArgumentError(f"RLX_DUMP_DIR: nothing can be written there: {error}") from error
