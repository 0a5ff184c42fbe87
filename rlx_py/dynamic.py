"""Executables of dynamic graphs: a compiled specialisation for each set of sizes, on first use."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rlx_py.backends.base import Cost
from rlx_py.executable import Executable, Options
from rlx_py.function import NO_PARAMS
from rlx_py.ir.base.dim import names_in
from rlx_py.ir.base.errors import ArgumentError
from rlx_py.ir.base.forks import watch
from rlx_py.ir.base.types import TensorType
from rlx_py.ir.graph.bind import bind, bound_value, names_of, solve
from rlx_py.ir.graph.evaluate import initial, shapes_of
from rlx_py.ir.graph.graph import Graph
from rlx_py.ir.graph.interface import interface_of
from rlx_py.ir.graph.nonfinite import NonFinite
from rlx_py.outputs import Outputs
from rlx_py.profile import Profile
from rlx_py.state import State

MOST_SOLVED = 256  # combinations of shapes whose sizes are remembered
Shape = tuple[int, ...]
Sizes = Mapping[str, int]
Make = Callable[[Graph], Executable]


class _Entry:
    """A specialisation, or its place while one thread compiles it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.made: Executable | None = None


class Specializations:
    """The most recently used executables of a graph, at most so many; for any number of threads.

    Threads that ask for the same sizes wait for one compilation; others do not.
    """

    def __init__(self, graph: Graph, make: Make, most: int) -> None:
        self.graph, self.make, self.most = graph, make, most
        self._entries: OrderedDict[tuple[tuple[str, int], ...], _Entry] = OrderedDict()
        self._lock = threading.Lock()
        watch(self)

    def after_fork(self) -> None:
        """In a child: what other threads were compiling is compiled when it is asked for."""
        self._lock = threading.Lock()
        for key, entry in list(self._entries.items()):
            if entry.made is None:
                del self._entries[key]
            else:
                entry.lock = threading.Lock()

    def at(self, sizes: Sizes) -> Executable:
        """The executable of these sizes, compiled if it is not there."""
        key = tuple(sorted(sizes.items()))
        with self._lock:
            entry = self._entries.setdefault(key, _Entry())
            self._entries.move_to_end(key)
            if len(self._entries) > self.most:
                self._entries.popitem(last=False)
        with entry.lock:
            if entry.made is None:
                entry.made = self._made(key, entry)
            return entry.made

    def _made(self, key: tuple[tuple[str, int], ...], entry: _Entry) -> Executable:
        finished = False
        try:
            made = self.make(bind(self.graph, dict(key)))
            finished = True
        finally:
            if not finished:
                with self._lock:
                    if self._entries.get(key) is entry:
                        del self._entries[key]
        return made

    @property
    def sizes(self) -> list[dict[str, int]]:
        """The sizes that are there, the least recently used first."""
        with self._lock:
            return [dict(key) for key in self._entries]


class DynamicExecutable(Executable):
    """A compiled graph with named sizes, which each call reads off the shapes it is given.

    The first call at new sizes compiles. `specializations` holds what was compiled, up to a bound,
    beyond which the least recently used goes.
    """

    def __init__(self, graph: Graph, specializations: Specializations, options: Options) -> None:
        # What runs are the specialisations; the base class has what only asks for the graph.
        self.graph, self.options, self.strict = graph, options, options.strict
        self.interface = interface_of(graph)
        self._out_is_leaf = "out" in self.interface.leaves
        self.specializations = specializations
        self._varying = {k: t for k, t in self.interface.leaves.items() if names_in(t.shape)}
        self._solved: dict[tuple[tuple[str, Shape], ...], Sizes] = {}

    def at(self, /, **sizes: int) -> Executable:
        """The executable of these sizes alone, compiled if it is not there. Raises as `bind`, and
        ArgumentError where a size is missing."""
        missing = sorted(names_of(self.graph) - sizes.keys())
        if missing:
            raise ArgumentError(f"{self.interface.name!r}: the size {missing[0]!r} is missing")
        return self.specializations.at(sizes)

    def __call__(self, /, *args: Any, out: Any = None, discard_updates: Any = False,
                 **arrays: Any) -> Outputs:
        """Run at the sizes of the arrays. Raises also ShapeError where their shapes contradict each
        other, or leave a size open."""
        return super().__call__(*args, out=out, discard_updates=discard_updates, **arrays)

    def _run(self, arrays: dict[str, Any], out: Any = None) -> Outputs:
        """A call, its arrays in a dict; next values are lost."""
        return self._fitting(arrays, self.interface.leaves)._run(arrays, out)

    def init(self, params: Mapping[str, Any] = NO_PARAMS) -> State:
        """State to train with. Raises also ShapeError where a state has a size that no param has;
        bind the graph first."""
        kept = {**self.interface.params, **self.interface.states}
        if not isinstance(params, Mapping):
            raise ArgumentError(f"exe.init takes params by name in a dict, not "
                                f"{params.__class__.__name__}")
        sizes = solve(kept, shapes_of(params))
        bound = {k: bound_value(t, sizes) for k, t in kept.items()}
        states = {k: initial(k, s.init, bound[k]) for k, s in self.graph.states.items()}
        return self._init(params, {k: bound[k] for k in self.interface.params}, states)

    def step(self, state: State | None = None, /, *args: Any, out: Any = None,
             **inputs: Any) -> Outputs:
        """Run once at the sizes of the inputs and the state, updating the state in place."""
        state = self._checked_state(state, args)
        return self._fitting(inputs, self.interface.inputs, state.params, state.states).step(
            state, out=out, **inputs)

    def cost(self, /, **sizes: int) -> Cost:
        """What one call at these sizes takes."""
        return self.at(**sizes).cost()

    def profile(self, /, *args: Any, **arrays: Any) -> Profile:
        """Time per kernel of a call at the sizes of the arrays."""
        self._check_named(args, "exe.profile")
        return self._fitting(arrays, self.interface.leaves).profile(**arrays)

    def find_nan(self, /, *args: Any, **arrays: Any) -> NonFinite | None:
        """The first node where a NaN or infinity appears, at the sizes of the arrays."""
        self._check_named(args, "exe.find_nan")
        return self._fitting(arrays, self.interface.leaves).find_nan(**arrays)

    def check_inputs(self, /, *args: Any, **arrays: Any) -> None:
        """Raise ArgumentError for values without meaning, at the sizes of the arrays."""
        self._check_named(args, "exe.check_inputs")
        self._fitting(arrays, self.interface.leaves).check_inputs(**arrays)

    def _fitting(self, given: Mapping[str, Any], types: Mapping[str, TensorType],
                 *kept: Mapping[str, Any]) -> Executable:
        """The executable of the sizes that arrays have: those of a call, and what a state keeps."""
        shapes = {name: _shape(table[name])
                  for table in (given, *kept) for name in self._varying if name in table}
        key = tuple(shapes.items())
        sizes = self._solved.get(key)
        if sizes is None:
            self._check_names(given, types)
            sizes = solve(self._varying, shapes)
            if len(self._solved) >= MOST_SOLVED:
                self._solved.clear()
            self._solved[key] = sizes
        return self.specializations.at(sizes)


def _shape(value: Any) -> Shape:
    return value.shape if isinstance(value, np.ndarray) else np.shape(value)
