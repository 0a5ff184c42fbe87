"""Compiled graphs as Python callables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlx_py.backends.base import Cost, Runner, TimedRunner
from rlx_py.backends.llvm.aot import Kind, export_program
from rlx_py.backends.llvm.backend import program_for
from rlx_py.backends.llvm.targets import chosen
from rlx_py.function import CompiledFunction
from rlx_py.ir.base.errors import ArgumentError, BackendError
from rlx_py.ir.graph.bind import bind, names_of
from rlx_py.ir.graph.graph import Graph
from rlx_py.ir.graph.interface import interface_of
from rlx_py.ir.graph.nonfinite import NonFinite, check_values, find_nonfinite
from rlx_py.profile import Profile


@dataclass(frozen=True)
class Options:
    """What `compile` was told; exports: whether its backend's code can be written to files."""

    fast_math: bool = False
    strict: bool = False
    exports: bool = True


DEFAULT = Options()


class Executable(CompiledFunction):
    """A compiled graph, with the options it was compiled with."""

    def __init__(self, graph: Graph, runner: Runner, options: Options = DEFAULT) -> None:
        super().__init__(interface_of(graph), runner, strict=options.strict)
        self.graph, self.options = graph, options

    def cost(self, /, **sizes: int) -> Cost:
        """What one call takes: flops, bytes moved, arena bytes, number of kernels.

        sizes: those of a dynamic graph, by name; ArgumentError for others.
        """
        if sizes:
            raise ArgumentError(f"{self.interface.name!r} has no size {next(iter(sizes))!r}")
        return super().cost()

    def find_nan(self, /, *args: Any, **arrays: Any) -> NonFinite | None:
        """The first node where a NaN or infinity appears, forward or backward, with the user's
        line; None if all is finite. It evaluates with NumPy, node by node."""
        self._check_named(args, "exe.find_nan")
        values, _, lent = self._own(arrays)
        found = find_nonfinite(self.graph, values)
        self._called.give_back(lent)
        return found

    def check_inputs(self, /, *args: Any, **arrays: Any) -> None:
        """Evaluate with NumPy, node by node, and raise ArgumentError with the user's line where
        compiled code would compute on: a label that is no class, a position outside an axis."""
        self._check_named(args, "exe.check_inputs")
        values, _, lent = self._own(arrays)
        check_values(self.graph, values)
        self._called.give_back(lent)

    def profile(self, /, *args: Any, **arrays: Any) -> Profile:
        """Time per kernel of a call on these arrays, with the user's source lines.

        Every kernel is run apart, in order, on the values that those before left; of some calls
        (about half a second) the fastest of each kernel counts. With one thread it is CPU time,
        else time on the clock. Nothing given is changed. The reference backend's kernels are nodes.
        Raises as a call does, and BackendError for a backend that can't time its kernels.
        """
        self._check_named(args, "exe.profile")
        values, _, lent = self._own(arrays)
        if not isinstance(self._runner, TimedRunner):
            raise BackendError(f"{self.interface.name!r} runs on a backend that can't profile")
        times = self._runner.kernel_times(values, self._fresh())
        self._called.give_back(lent)
        return Profile(self.interface.name, times)

    def export(self, path: str | Path, kind: Kind = "shared", *, name: str | None = None,
               target: str | None = None, cpu: str = "", lib: bool = False,
               sizes: Mapping[str, int] | None = None) -> Path:
        """Write the graph as native code for C programs, and for rlx.load; returns the code's path.

        kind: "shared" (path.so, linked by the system's C compiler), "object" (path.o) or "static"
        (path.a). Beside it goes path.h, which says how to call it. name: how its symbols begin
        (None: as the file's name). target: an LLVM triple (None: this machine with its CPU's
        features); cpu: an LLVM CPU name such as "x86-64-v3"; where the machine has no fused
        multiply-add, products and sums round each. lib: write libNAME.so or libNAME.a, which
        linkers find as -lNAME. sizes: those of a dynamic graph, by name. The same graph gives the
        same bytes. Raises BackendError for a target that LLVM lacks, a backend without native
        code, or where a linker is needed and absent; ArgumentError where a size is missing or
        unknown.
        """
        if not self.options.exports:
            raise BackendError(f"{self.interface.name!r} runs on a backend that has no native code "
                               f"to export: compile it with backend='cpu'")
        machine = chosen(target, cpu)
        graph = bind(self.graph, sizes or {})
        missing = sorted(names_of(graph))
        if missing:
            raise ArgumentError(f"native code has sizes in numbers: give export "
                                f"sizes={{{missing[0]!r}: …}}")
        program = program_for(graph, machine, fast_math=self.options.fast_math)
        return export_program(program, interface_of(graph), path, kind=kind, name=name,
                              target=machine, lib=lib)
