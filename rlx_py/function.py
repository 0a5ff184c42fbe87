"""Compiled functions: arrays are checked here, before any native code runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from struct import unpack
from types import MappingProxyType
from typing import Any, Self

import numpy as np

from rlx_py.backends.base import Array, Cost, Runner
from rlx_py.intake import Buffers, Intake
from rlx_py.ir.base.arrays import as_array
from rlx_py.ir.base.errors import ArgumentError, nearest
from rlx_py.ir.base.types import TensorType
from rlx_py.ir.graph.interface import Interface
from rlx_py.outputs import Outputs
from rlx_py.state import Apart, Span, State

NO_PARAMS: Mapping[str, Any] = MappingProxyType({})


class CompiledFunction:
    """Native code behind an interface. Calling it is one foreign call; concurrent calls take
    separate arenas.

    What it takes is converted as `as_array` says, unless it is strict; what it writes never is.
    """

    def __init__(self, interface: Interface, runner: Runner, *, strict: bool = False) -> None:
        self.interface, self.strict = interface, strict
        self._runner = runner
        self._defaults, self._changed = interface.defaults, interface.changed
        self._called = Intake(interface.leaves, strict=strict)
        self._out_is_leaf = "out" in interface.leaves
        kept = {**interface.params, **interface.states}
        self._stepped = Intake({**interface.inputs, **kept}, strict=strict, held=kept.keys(),
                               written=self._changed)
        self._filled = Intake(interface.outputs, strict=strict, held=interface.outputs.keys(),
                              written=interface.outputs.keys(), held_as="out[{!r}]")
        self._results = [(k, t.shape, t.dtype.numpy) for k, t in interface.outputs.items()]
        # What was found apart last, by its addresses: of a state's arrays, of outputs and the rest.
        self._apart, self._out_apart = (b"", Apart(())), b""

    # `out` maps names to arrays; typed Any, else type checkers refuse exe(**arrays).
    def __call__(self, /, *args: Any, out: Any = None, discard_updates: Any = False,
                 **arrays: Any) -> Outputs:
        """Run on arrays by name. Returns fresh outputs, or `out`'s arrays, filled. Nothing given is
        changed.

        discard_updates: run a graph with updates or next values too, which are lost; states that
        have next values may then be left out (their initial value). `step` keeps them. Raises
        ArgumentError (a missing or unknown name, such a graph without that), ShapeError,
        DTypeError before it runs. Where a param or state is named `out`, that is what it means.
        """
        self._check_call(args, discard_updates)
        if self._out_is_leaf and out is not None:
            arrays, out = {**arrays, "out": out}, None
        return self._run(arrays, out)

    def _run(self, arrays: dict[str, Any], out: Any = None) -> Outputs:
        """A call, its arrays in a dict; next values are lost."""
        values, addresses, lent = self._own(arrays)
        found = self._fresh() if out is None else self._given(out, addresses, self._called)
        self._runner.run(values, found)
        self._called.give_back(lent)
        return Outputs(found)

    def init(self, params: Mapping[str, Any] = NO_PARAMS) -> State:
        """State to train with: copies of the params, and every state at its initial value."""
        return self._init(params, self.interface.params, self._defaults)

    def step(self, state: State | None = None, /, *args: Any, out: Any = None,
             **inputs: Any) -> Outputs:
        """Run once on the inputs by name, updating the state's arrays in place.

        Raises as a call does, and ArgumentError for a graph without updates or next values, and for
        a state whose arrays can't be written in place: of another type, read-only, in shared
        memory.
        """
        state = self._checked_state(state, args)
        if inputs.keys() != self.interface.inputs.keys():
            self._check_names(inputs, self.interface.inputs)
        try:
            values, addresses, lent = self._stepped.take(
                {**state.params, **state.states, **inputs})
        except KeyError as error:
            raise ArgumentError(f"the state has no {error.args[0]!r}: exe.init(params) makes one "
                                f"that has") from None
        self._keep_apart(values, addresses)
        found = self._fresh() if out is None else self._given(out, addresses, self._stepped)
        self._runner.run(values, found)
        self._stepped.give_back(lent)
        return Outputs(found)

    def __copy__(self) -> Self:
        return self  # it never changes

    def __deepcopy__(self, memo: Any) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        raise ArgumentError(f"{self.interface.name!r}: machine code is not pickled; pickle "
                            f"exe.graph and compile it there, or exe.export and rlx.load")

    def cost(self) -> Cost:
        """What one call takes: flops, bytes moved, arena bytes, number of kernels."""
        return self._runner.cost()

    def _init(self, params: Mapping[str, Any], types: Mapping[str, TensorType],
              states: Mapping[str, Array]) -> State:
        if not isinstance(params, Mapping):
            raise ArgumentError(f"exe.init takes params by name in a dict, not "
                                f"{params.__class__.__name__}")
        if params.keys() != types.keys():
            self._check_names(params, types)
        return State({k: np.array(as_array(k, params[k], t, strict=self.strict))
                      for k, t in types.items()}, {k: v.copy() for k, v in states.items()})

    def _check_call(self, args: Sequence[Any], discard_updates: Any) -> None:
        """Refuse a call where a step is meant, and inputs without names."""
        called, changed = self.interface, self.interface.changed
        self._check_named(args, "exe")
        check_flags(discard_updates=discard_updates)
        if changed and not discard_updates:
            raise ArgumentError(
                f"{called.name!r} gives next values of {_some(called)}, which a call would lose: "
                f"run exe.step(state, …), or exe(…, discard_updates=True)")

    def _checked_state(self, state: object, args: Sequence[Any]) -> State:
        """The state of a step; refused are a step where a call is meant, what is no state, and
        inputs without names."""
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
        return state

    def _check_named(self, args: Sequence[Any], call: str) -> None:
        """Refuse arrays without names."""
        if args:
            raise ArgumentError(f"{self.interface.name!r} takes arrays by name: "
                                f"{call}({_blanks(self.interface.leaves)})")

    def _own(self, arrays: dict[str, Any]) -> tuple[dict[str, Array], bytes, Buffers]:
        """What `take` gives for all leaves, those that a run changes copied."""
        if arrays.keys() != self._called.types.keys():
            self._check_names(arrays, self._called.types)
            arrays = {**self._defaults, **arrays}
        values, addresses, lent = self._called.take(arrays)
        for name in self._changed:
            values[name] = values[name].copy()
        return values, addresses, lent

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

    def _keep_apart(self, values: dict[str, Array], addresses: bytes) -> None:
        """Refuse arrays of a state that share memory; copy inputs that share it with them."""
        inputs, sizes = self.interface.inputs, self._stepped.sizes
        held, apart = self._apart
        if addresses[8 * len(inputs):] != held:
            spans = zip(_numbers(addresses), sizes, self._stepped.types, strict=True)
            apart = Apart(Span(start, size, f"{name!r} of the state", name in self._changed)
                          for start, size, name in list(spans)[len(inputs):])
            self._apart = addresses[8 * len(inputs):], apart
        for name, start, size in zip(inputs, _numbers(addresses[:8 * len(inputs)]), sizes,
                                     strict=False):
            if apart.touches(start, size):
                values[name] = values[name].copy()

    def _fresh(self) -> dict[str, Array]:
        return {name: np.empty(shape, dtype) for name, shape, dtype in self._results}

    def _given(self, out: Any, addresses: bytes, intake: Intake) -> dict[str, Array]:
        """The arrays for outputs that a call gives, checked, and fresh ones for the others.

        addresses: of what the call reads, which `intake` took.
        """
        types = self.interface.outputs
        if not isinstance(out, Mapping):
            raise ArgumentError(f"out maps names to arrays; it is not {out.__class__.__name__}")
        for name in out:
            if name not in types:
                raise ArgumentError(f"no output {name!r}{nearest(name, types)}; there are "
                                    f"{list(types)}")
        complete = len(out) == len(types)
        found, places, _ = self._filled.take({**out} if complete else {**self._fresh(), **out})
        if addresses + places != self._out_apart:
            reads = zip(_numbers(addresses), intake.sizes, map(repr, intake.types), strict=True)
            fills = zip(_numbers(places), self._filled.sizes, types, strict=True)
            Apart([*(Span(*read, False) for read in reads),
                   *(Span(start, size, f"out[{name!r}]", True) for start, size, name in fills)])
            self._out_apart = addresses + places
        return found


def _numbers(addresses: bytes) -> tuple[int, ...]:
    return unpack(f"={len(addresses) // 8}Q", addresses)


def check_flags(**flags: Any) -> None:
    """Refuse what is no bool, with ArgumentError: text such as "no" would count as true."""
    for name, value in flags.items():
        if not isinstance(value, bool | np.bool_):
            raise ArgumentError(f"{name} is True or False, not {value!r}")


def check_threads(threads: Any) -> None:
    """Refuse what is no number of threads, with ArgumentError; None is all there are."""
    if threads is None:
        return
    if isinstance(threads, bool) or not isinstance(threads, int | np.integer) or threads < 1:
        raise ArgumentError(f"threads must be an integer of at least 1, not {threads!r}")


def _blanks(names: Iterable[str]) -> str:
    """How a call by name is written."""
    return ", ".join(f"{name}=…" for name in names)


def _some(called: Interface) -> str:
    """The first param or state that changes, and how many more do."""
    first, *rest = (name for name in called.leaves if name in called.changed)
    return f"{first!r} and {len(rest)} more" if rest else repr(first)
