"""Compiled graphs as Python callables: arrays are checked here, before any native code runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from rlx_py.backends.base import Array, Cost, Runner, TimedRunner
from rlx_py.backends.llvm.aot import Kind, export_program
from rlx_py.backends.llvm.backend import program_for
from rlx_py.backends.llvm.targets import chosen
from rlx_py.ir.bind import bind, names_of
from rlx_py.ir.errors import ArgumentError, BackendError, DTypeError, ShapeError, nearest
from rlx_py.ir.graph import Graph
from rlx_py.ir.interface import Interface, interface_of
from rlx_py.ir.nonfinite import NonFinite, find_nonfinite
from rlx_py.ir.types import TensorType, as_dtype
from rlx_py.profile import Profile


class Outputs(Mapping[str, Array]):
    """Named arrays: out.loss or out["loss"]."""

    __slots__ = ("_arrays",)

    def __init__(self, arrays: dict[str, Array]) -> None:
        self._arrays = arrays

    def __getitem__(self, name: str) -> Array:
        try:
            return self._arrays[name]
        except KeyError:
            raise ArgumentError(f"no output {name!r}{nearest(name, self._arrays)}; there are "
                                f"{list(self._arrays)}") from None

    def __getattr__(self, name: str) -> Array:
        if name.startswith("__"):
            raise AttributeError(name)
        return self[name]

    def __contains__(self, name: object) -> bool:
        return name in self._arrays

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __repr__(self) -> str:
        return f"Outputs({', '.join(self._arrays)})"


class State:
    """Arrays that a step updates in place: `params`, `states` (optimiser moments, averages …)."""

    def __init__(self, params: dict[str, Array], states: dict[str, Array]) -> None:
        self.params, self.states = params, states
        # By function, what it found right; a function that is gone keeps no place here.
        self._checked: WeakKeyDictionary[CompiledFunction, dict[str, Array]] = WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"State(params={list(self.params)}, states={list(self.states)})"

    def arrays_for(self, function: CompiledFunction) -> dict[str, Array]:
        """The arrays a function reads and writes, checked again only where one was exchanged."""
        checked = self._checked.setdefault(function, {})
        for table, kept in ((self.params, function.interface.params),
                            (self.states, function.interface.states)):
            for name, type in kept.items():
                array = table.get(name)
                if array is None or array is not checked.get(name):
                    checked[name] = _owned(name, array, type)
        return checked


def _owned(name: str, array: Array | None, type: TensorType) -> Array:
    if array is None:
        raise ArgumentError(f"the state has no {name!r} of type {type}; make it with init")
    if not isinstance(array, np.ndarray):
        raise ArgumentError(f"{name!r} of the state is {array.__class__.__name__}, not an array of "
                            f"{type}")
    if array.shape != type.shape:
        raise ShapeError(f"{name!r} of the state is {type}, not {_described(array)}")
    if array.dtype != type.dtype.numpy:
        raise DTypeError(f"{name!r} of the state is {type}, not {_described(array)}; init converts")
    if not array.flags.carray:
        raise ArgumentError(f"{name!r} of the state is written in place: it must be C-contiguous, "
                            "aligned and writable; np.ascontiguousarray or init copies it")
    return array


def as_array(name: str, value: Any, type: TensorType) -> Array:
    """The value as a C-contiguous, aligned array of exactly this type, copied only if it is laid
    out otherwise. Raises DTypeError, ShapeError or ArgumentError."""
    dtype = type.dtype.numpy
    array: Array = value if isinstance(value, np.ndarray) else _foreign(name, value, type)
    if array.dtype != dtype:
        raise DTypeError(f"{name!r} takes {type}, not {_described(array)}")
    if array.shape != type.shape:
        raise ShapeError(f"{name!r} takes {type}, not {_described(array)}")
    flags = array.flags
    if flags.c_contiguous and flags.aligned:
        return array
    return np.array(array, order="C", copy=True)


def _foreign(name: str, value: Any, type: TensorType) -> Array:
    if isinstance(value, bool | int | float):
        # A Python number takes the type of its place, where that holds it.
        number = np.asarray(value)
        if not np.can_cast(number.dtype, type.dtype.numpy, "same_kind"):
            raise DTypeError(f"{name!r} takes {type}, not the number {value!r}")
        if type.dtype.is_int and not (np.iinfo(type.dtype.numpy).min <= value
                                      <= np.iinfo(type.dtype.numpy).max):
            raise DTypeError(f"{name!r}: {value} does not fit {type.dtype}")
        return number.astype(type.dtype.numpy)
    if hasattr(value, "__dlpack__") and not isinstance(value, np.generic):
        return np.asarray(np.from_dlpack(value))
    if hasattr(value, "__array__") or isinstance(value, list | tuple):
        return np.asarray(value)
    raise ArgumentError(f"{name!r} takes an array of {type}, not {value.__class__.__name__}")


def check_threads(threads: Any) -> None:
    """Refuse what is no number of threads, with ArgumentError; None is all there are."""
    if threads is None:
        return
    if isinstance(threads, bool) or not isinstance(threads, int | np.integer) or threads < 1:
        raise ArgumentError(f"threads must be an integer of at least 1, not {threads!r}")


def _described(value: Array) -> str:
    try:
        return str(TensorType(as_dtype(value.dtype), value.shape))
    except DTypeError:
        return f"{value.dtype}{list(value.shape)}"


class CompiledFunction:
    """Native code behind an interface. Calling it is one foreign call; concurrent calls take
    separate arenas."""

    def __init__(self, interface: Interface, runner: Runner) -> None:
        self.interface = interface
        self._runner = runner
        self._leaves = interface.leaves
        self._inputs, self._outputs = interface.inputs, interface.outputs
        self._defaults, self._changed = interface.defaults, interface.changed

    # `out` maps names to arrays; typed Any, else type checkers refuse exe(**arrays).
    def __call__(self, /, *args: Any, out: Any = None, discard_updates: Any = False,
                 **arrays: Any) -> Outputs:
        """Run on arrays by name. Returns fresh outputs, or `out`'s arrays, filled. Nothing given is
        changed.

        discard_updates: run a graph with updates or next values too, which are lost; states that
        have next values may then be left out (their initial value). `step` keeps them. Raises
        ArgumentError (a missing or unknown name, such a graph without that), ShapeError,
        DTypeError before it runs.
        """
        self._check_call(args, discard_updates)
        values = self._own(arrays)
        found = self._allocate(out, values)
        self._runner.run(values, found)
        return Outputs(found)

    def init(self, params: Mapping[str, Any]) -> State:
        """State to train with: copies of the params, and every state at its initial value."""
        values = self._checked(params, self.interface.params, {})
        return State({k: v.copy() for k, v in values.items()},
                     {k: v.copy() for k, v in self._defaults.items()})

    def step(self, state: State, /, *args: Any, out: Any = None, **inputs: Any) -> Outputs:
        """Run once on the inputs by name, updating the state's arrays in place.

        Raises as a call does, and ArgumentError for a graph without updates or next values.
        """
        self._check_step(state, args)
        values = self._checked(inputs, self._inputs, {})
        held = state.arrays_for(self)
        for name, value in values.items():
            if self._aliases(value, held):
                values[name] = value.copy()
        values |= held
        found = self._allocate(out, values)
        self._runner.run(values, found)
        return Outputs(found)

    def cost(self) -> Cost:
        """What one call takes: flops, bytes moved, arena bytes, number of kernels."""
        return self._runner.cost()

    def _check_call(self, args: Sequence[Any], discard_updates: bool) -> None:
        """Refuse a call where a step is meant, and inputs without names."""
        called, changed = self.interface, self.interface.changed
        if args:
            raise ArgumentError(f"{called.name!r} takes arrays by name: "
                                f"exe({_blanks(called.leaves)})")
        if changed and not discard_updates:
            raise ArgumentError(
                f"{called.name!r} gives next values of {_some(called)}, which a call would lose: "
                f"run exe.step(state, …), or exe(…, discard_updates=True)")

    def _check_step(self, state: object, args: Sequence[Any]) -> None:
        """Refuse a step where a call is meant, what is no state, and inputs without names."""
        called = self.interface
        if not called.changed:
            raise ArgumentError(f"{called.name!r} has no updates or next values, which a step is "
                                f"for: call exe({_blanks(called.leaves)})")
        if not isinstance(state, State):
            raise ArgumentError(f"exe.step takes the state that exe.init(params) makes, not "
                                f"{state.__class__.__name__}")
        if args:
            raise ArgumentError(f"{called.name!r} takes inputs by name: "
                                f"exe.step(state, {_blanks(called.inputs)})")

    def _own(self, arrays: Mapping[str, Any]) -> dict[str, Array]:
        """Checked values of all leaves, those that a run changes copied."""
        values = self._checked(arrays, self._leaves, self._defaults)
        for name in self._changed:
            values[name] = values[name].copy()
        return values

    def _checked(self, given: Mapping[str, Any], types: Mapping[str, TensorType],
                 defaults: Mapping[str, Array]) -> dict[str, Array]:
        if given.keys() != types.keys():
            self._check_names(given, types)
        values = {name: as_array(name, value, types[name]) for name, value in given.items()}
        if len(values) != len(types):
            for name in types:
                if name not in values:
                    values[name] = defaults[name]
        return values

    def _check_names(self, given: Mapping[str, Any], types: Mapping[str, TensorType]) -> None:
        """Refuse unknown and missing names; states with next values may be missing."""
        called = self.interface
        for name in given:
            if name not in types:
                raise ArgumentError(f"{called.name!r} has no {name!r}{nearest(name, types)}; "
                                    f"it takes {list(types)}")
        for name in types:
            if name in given or (name in called.states and name in called.changed):
                continue
            hint = ("; it is a state: exe(…, **state.states) gives what training or exe.init left"
                    if name in called.states else "")
            raise ArgumentError(f"{called.name!r}: {name!r} is missing{hint}")

    def _aliases(self, value: Array, held: Mapping[str, Array]) -> bool:
        """Whether an input is memory that the step will change; only views can hide that."""
        if value.base is None:
            return any(value is a for a in held.values())
        return any(np.may_share_memory(value, held[k]) for k in self._changed)

    def _allocate(self, out: Mapping[str, Array] | None,
                  values: Mapping[str, Array]) -> dict[str, Array]:
        if out is None:
            return {k: np.empty(t.shape, t.dtype.numpy) for k, t in self._outputs.items()}
        if not isinstance(out, Mapping):
            raise ArgumentError(f"out maps names to arrays; it is not {out.__class__.__name__}")
        found: dict[str, Array] = {}
        for name in out:
            if name not in self._outputs:
                raise ArgumentError(f"no output {name!r}; there are {list(self._outputs)}")
        for name, type in self._outputs.items():
            if name not in out:
                found[name] = np.empty(type.shape, type.dtype.numpy)
                continue
            target = out[name]
            if not isinstance(target, np.ndarray) or not target.flags.writeable:
                raise ArgumentError(f"out[{name!r}] must be a writable array")
            if as_array(f"out[{name}]", target, type) is not target:
                raise ArgumentError(f"out[{name!r}] must be contiguous")
            others = [*values.items(), *found.items()]
            clash = next((k for k, v in others if np.may_share_memory(target, v)), None)
            if clash is not None:
                raise ArgumentError(f"out[{name!r}] shares memory with {clash!r}")
            found[name] = target
        return found


def _blanks(names: Iterable[str]) -> str:
    """How a call by name is written."""
    return ", ".join(f"{name}=…" for name in names)


def _some(called: Interface) -> str:
    """The first param or state that changes, and how many more do."""
    first, *rest = (name for name in called.leaves if name in called.changed)
    return f"{first!r} and {len(rest)} more" if rest else repr(first)


class Executable(CompiledFunction):
    """A compiled graph."""

    def __init__(self, graph: Graph, runner: Runner, *, fast_math: bool = False) -> None:
        super().__init__(interface_of(graph), runner)
        self.graph, self.fast_math = graph, fast_math

    def cost(self, /, **sizes: int) -> Cost:
        """What one call takes: flops, bytes moved, arena bytes, number of kernels.

        sizes: those of a dynamic graph, by name; ArgumentError for others.
        """
        if sizes:
            raise ArgumentError(f"{self.interface.name!r} has no size {next(iter(sizes))!r}")
        return super().cost()

    def find_nan(self, /, **arrays: Any) -> NonFinite | None:
        """The first node where a NaN or infinity appears, forward or backward, with the user's
        line; None if all is finite. It evaluates with NumPy, node by node."""
        return find_nonfinite(self.graph, arrays)

    def profile(self, /, **arrays: Any) -> Profile:
        """Time per kernel of a call on these arrays, with the user's source lines.

        Every kernel is run apart, in order, on the values that those before left; of some calls
        (about half a second) the fastest of each kernel counts. With one thread it is CPU time,
        else time on the clock. Nothing given is changed. The reference backend's kernels are nodes.
        Raises as a call does, and BackendError for a backend that can't time its kernels.
        """
        values = self._own(arrays)
        if not isinstance(self._runner, TimedRunner):
            raise BackendError(f"{self.interface.name!r} runs on a backend that can't profile")
        times = self._runner.kernel_times(values, self._allocate(None, values))
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
        same bytes. Raises BackendError for a target that LLVM lacks, or where a linker is needed
        and absent; ArgumentError where a size is missing or unknown.
        """
        machine = chosen(target, cpu)
        graph = bind(self.graph, sizes or {})
        missing = sorted(names_of(graph))
        if missing:
            raise ArgumentError(f"native code has sizes in numbers: give export "
                                f"sizes={{{missing[0]!r}: …}}")
        program = program_for(graph, machine, fast_math=self.fast_math)
        return export_program(program, interface_of(graph), path, kind=kind, name=name,
                              target=machine, lib=lib)
