"""The command line: graphs as files are shown, differentiated, compiled and timed."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from functools import partial
from statistics import median
from typing import Any, get_args

import numpy as np

from rlx_py.backends.llvm.aot import Kind
from rlx_py.compiling import BACKENDS
from rlx_py.coverage import coverage, table
from rlx_py.executable import Executable, Options
from rlx_py.ir.base.config import CONFIG
from rlx_py.ir.base.errors import ArgumentError, RLXError
from rlx_py.ir.base.types import TensorType
from rlx_py.ir.graph.bind import bind, names_of
from rlx_py.ir.graph.graph import Graph
from rlx_py.ir.nodes.verify import verify
from rlx_py.passes.derive.vjp import grad, value_and_grad

FAILED = 1  # argparse exits with 2 where the command itself is wrong


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; 0, or 1 with one line on stderr that says what is wrong."""
    chosen = _parser().parse_args(arguments)
    try:
        chosen.run(chosen)
        sys.stdout.flush()
    except BrokenPipeError:  # as in `rlx show G | head`: what is left has nowhere to go
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except (RLXError, OSError, MemoryError) as error:
        said = " ".join(str(error).split()) or "there is not enough memory"
        print(f"rlx: {type(error).__name__}: {said}", file=sys.stderr)
        return FAILED
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="rlx", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: Any, about: str, takes_graph: bool = True
                ) -> argparse.ArgumentParser:
        found = commands.add_parser(name, help=about, description=about)
        found.set_defaults(run=run)
        if takes_graph:
            found.add_argument("graph", metavar="G", help="a file that Graph.save wrote")
        return found

    def sized(command: argparse.ArgumentParser) -> None:
        command.add_argument("--size", action="append", type=_size, default=[], metavar="NAME=N",
                             help="a size of a dynamic graph; once for each")

    command("show", _show, "print a graph as text")

    made = command("grad", _grad, "make the graph of gradients of a scalar output")
    made.add_argument("--of", required=True, metavar="OUTPUT", help="the output to differentiate")
    made.add_argument("--wrt", nargs="+", metavar="NAME", help="leaves (default: every param)")
    made.add_argument("--values", action="store_true", help="keep the graph's own outputs")
    made.add_argument("-o", "--output", metavar="OUT", help="the file to write (default: print)")

    made = command("compile", _compile, "write native code and a C header")
    made.add_argument("-o", "--output", required=True, metavar="OUT", help="path without suffix")
    made.add_argument("--kind", choices=get_args(Kind), default="shared")
    made.add_argument("--target", metavar="TRIPLE", help="an LLVM triple (default: this machine)")
    made.add_argument("--cpu", default="", help="an LLVM CPU name")
    made.add_argument("--lib", action="store_true", help="write libOUT.so or libOUT.a")
    made.add_argument("--fast-math", action="store_true")
    sized(made)

    made = command("bench", _bench, "time a graph on random inputs")
    made.add_argument("--repeat", type=_positive, default=30, help="calls to time (default: 30)")
    made.add_argument("--threads", type=_positive, help="the most to use (default: all cores)")
    made.add_argument("--seed", type=int, default=0, help="of the random inputs")
    made.add_argument("--backend", choices=sorted(BACKENDS), default="cpu")
    made.add_argument("--fast-math", action="store_true")
    sized(made)

    made = command("ops", _ops, "print what each op has", takes_graph=False)
    made.add_argument("names", nargs="*", metavar="OP", help="ops (default: all)")
    made.add_argument("--markdown", action="store_true")
    return parser


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is less than 1")
    return value


def _size(text: str) -> tuple[str, int]:
    name, _, value = text.partition("=")
    if not value:
        raise argparse.ArgumentTypeError(f"{text!r} is no NAME=N")
    return name, _positive(value)


# ---- commands --------------------------------------------------------------------------------


def _show(chosen: argparse.Namespace) -> None:
    print(Graph.load(chosen.graph))


def _grad(chosen: argparse.Namespace) -> None:
    make = value_and_grad if chosen.values else grad
    found = make(Graph.load(chosen.graph), chosen.of, chosen.wrt)
    if chosen.output is None:
        print(found)
    else:
        found.save(chosen.output)


def _compile(chosen: argparse.Namespace) -> None:
    exe, _ = _executable(chosen)
    print(exe.export(chosen.output, chosen.kind, target=chosen.target, cpu=chosen.cpu,
                     lib=chosen.lib))


def _bench(chosen: argparse.Namespace) -> None:
    exe, seconds = _executable(chosen, chosen.backend, chosen.threads)
    rng = np.random.default_rng(chosen.seed)
    inputs = {k: _random(t, rng) for k, t in exe.interface.inputs.items()}
    state = exe.init({k: _random(t, rng) for k, t in exe.interface.params.items()})
    run = (partial(exe.step, state, **inputs) if exe.interface.changed
           else partial(exe, **inputs, **state.params, **state.states))
    out = dict(run())  # the first call makes memory and threads
    times = []
    for _ in range(chosen.repeat):
        start = time.perf_counter()
        run(out=out)
        times.append(time.perf_counter() - start)
    cost = exe.cost()
    rows = {
        "compile": f"{seconds * 1e3:.1f} ms",
        "median": f"{median(times) * 1e6:.1f} us",
        "min": f"{min(times) * 1e6:.1f} us of {chosen.repeat} calls",
        "flops": f"{cost.flops} ({cost.flops / min(times) / 1e9:.2f} Gflop/s)",
        "bytes moved": f"{cost.bytes_moved} ({cost.bytes_moved / min(times) / 1e9:.2f} GB/s)",
        "arena": f"{cost.arena_bytes} bytes",
        "kernels": f"{cost.kernels}",
    }
    for name, value in rows.items():
        print(f"{name:12}{value}")


def _ops(chosen: argparse.Namespace) -> None:
    print(table(coverage(chosen.names), markdown=chosen.markdown))


def _executable(chosen: argparse.Namespace, backend: str = "cpu", threads: int | None = None
                ) -> tuple[Executable, float]:
    """The graph's executable by names, whatever nesting it was traced from; seconds it took."""
    graph = bind(Graph.load(chosen.graph), dict(chosen.size))
    missing = sorted(names_of(graph))
    if missing:
        raise ArgumentError(f"the size {missing[0]} has no number: give --size {missing[0]}=N")
    start = time.perf_counter()
    verify(graph)
    runner = BACKENDS[backend].compile(graph, threads=threads or CONFIG.threads,
                                       fast_math=chosen.fast_math)
    exe = Executable(graph, runner, Options(fast_math=chosen.fast_math,
                                            exports=BACKENDS[backend].exports))
    return exe, time.perf_counter() - start


def _random(type: TensorType, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """Small normal numbers; 0 or 1 for integers, which most uses as positions allow; any bits of
    u32, which random keys are."""
    if type.dtype.is_float:
        return np.asarray(0.1 * rng.standard_normal(type.shape)).astype(type.dtype.numpy)
    top = 2**32 if type.dtype.name == "u32" else 2
    return np.asarray(rng.integers(0, top, type.shape)).astype(type.dtype.numpy)


if __name__ == "__main__":
    sys.exit(main())
