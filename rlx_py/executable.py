"""Compiled graphs as Python callables: arrays are checked here, before any native code runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from rlx_py.backends.base import Array, Cost, Runner
from rlx_py.ir.errors import ArgumentError, DTypeError, ShapeError
from rlx_py.ir.evaluate import initial
from rlx_py.ir.graph import Graph
from rlx_py.ir.nonfinite import NonFinite, find_nonfinite
from rlx_py.ir.types import TensorType, as_dtype


class Outputs(Mapping[str, Array]):
    """Named arrays: out.loss or out["loss"]."""

    __slots__ = ("_arrays",)

    def __init__(self, arrays: dict[str, Array]) -> None:
        self._arrays = arrays

    def __getitem__(self, name: str) -> Array:
        try:
            return self._arrays[name]
        except KeyError:
            raise ArgumentError(f"no output {name!r}; there are {list(self._arrays)}") from None

    def __getattr__(self, name: str) -> Array:
        if name.startswith("__"):
            raise AttributeError(name)
        return self[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __repr__(self) -> str:
        return f"Outputs({', '.join(self._arrays)})"


class State:
    """Arrays that a step updates in place: `params` and `states` (optimiser moments, averages …)."""

    def __init__(self, params: dict[str, Array], states: dict[str, Array]) -> None:
        self.params, self.states = params, states
        self.arrays = {**params, **states}

    def __repr__(self) -> str:
        return f"State(params={list(self.params)}, states={list(self.states)})"


def as_array(name: str, value: Any, type: TensorType) -> Array:
    """The value as a C-contiguous, aligned array of exactly this type; copied only if it is laid out
    otherwise. Raises DTypeError, ShapeError or ArgumentError."""
    dtype = type.dtype.numpy
    if not isinstance(value, np.ndarray):
        value = _foreign(name, value, type)
    if value.dtype != dtype:
        raise DTypeError(f"{name!r} takes {type}, not {_described(value)}")
    if value.shape != type.shape:
        raise ShapeError(f"{name!r} takes {type}, not {_described(value)}")
    flags = value.flags
    if flags.c_contiguous and flags.aligned:
        return value
    return np.array(value, order="C", copy=True)


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
        return np.from_dlpack(value)
    if hasattr(value, "__array__") or isinstance(value, list | tuple):
        return np.asarray(value)
    raise ArgumentError(f"{name!r} takes an array of {type}, not {value.__class__.__name__}")


def _described(value: Array) -> str:
    try:
        return str(TensorType(as_dtype(value.dtype), value.shape))
    except DTypeError:
        return f"{value.dtype}{list(value.shape)}"


class Executable:
    """A compiled graph. Calling it is one foreign call; concurrent calls take separate arenas."""

    def __init__(self, graph: Graph, runner: Runner) -> None:
        self.graph = graph
        self._runner = runner
        self._leaves = {k: n.tensor for k, n in graph.leaves.items()}
        self._inputs = {k: n.tensor for k, n in graph.inputs.items()}
        self._outputs = {k: n.tensor for k, n in graph.outputs.items()}
        self._defaults = {k: initial(k, s.init, s.node.tensor) for k, s in graph.states.items()}
        self._changed = {*graph.updates, *(k for k, s in graph.states.items() if s.next is not None)}

    def __call__(self, *, out: Mapping[str, Array] | None = None, **arrays: Any) -> Outputs:
        """Run on arrays by name, states optional (their initial value). Returns fresh outputs, or
        `out`'s arrays, filled. Nothing given is changed: new values of params and state are dropped.

        Raises ArgumentError (a missing or unknown name), ShapeError, DTypeError before it runs.
        """
        values = self._checked(arrays, self._leaves, self._defaults)
        for name in self._changed:
            values[name] = values[name].copy()
        found = self._allocate(out, values)
        self._runner.run(values, found)
        return Outputs(found)

    def init(self, params: Mapping[str, Any]) -> State:
        """State to train with: copies of the params, and every state at its initial value."""
        types = {k: n.tensor for k, n in self.graph.params.items()}
        values = self._checked(params, types, {})
        return State({k: v.copy() for k, v in values.items()},
                     {k: v.copy() for k, v in self._defaults.items()})

    def step(self, state: State, *, out: Mapping[str, Array] | None = None,
             **inputs: Any) -> Outputs:
        """Run once on the inputs by name, updating the state's arrays in place."""
        values = self._checked(inputs, self._inputs, {})
        for name, value in values.items():
            if self._aliases(value, state):
                values[name] = value.copy()
        held = state.arrays
        for name, type in self._leaves.items():
            if name in self._inputs:
                continue
            value = held.get(name)
            if value is None or value.shape != type.shape or value.dtype != type.dtype.numpy:
                raise ArgumentError(f"the state has no {name!r} of type {type}; make it with init")
            values[name] = value
        found = self._allocate(out, values)
        self._runner.run(values, found)
        return Outputs(found)

    def cost(self) -> Cost:
        """What one call takes: flops, bytes moved, arena bytes, number of kernels."""
        return self._runner.cost()

    def find_nan(self, **arrays: Any) -> NonFinite | None:
        """The first node where a NaN or infinity appears, with the user's line, forward or backward;
        None if all is finite. It evaluates with NumPy, node by node."""
        return find_nonfinite(self.graph, arrays)

    def _checked(self, given: Mapping[str, Any], types: Mapping[str, TensorType],
                 defaults: Mapping[str, Array]) -> dict[str, Array]:
        values: dict[str, Array] = {}
        for name, value in given.items():
            type = types.get(name)
            if type is None:
                raise ArgumentError(f"{self.graph.name!r} has no {name!r}; it takes {list(types)}")
            values[name] = as_array(name, value, type)
        if len(values) != len(types):
            for name in types:
                if name not in values:
                    if name not in defaults:
                        raise ArgumentError(f"{self.graph.name!r}: {name!r} is missing")
                    values[name] = defaults[name]
        return values

    def _aliases(self, value: Array, state: State) -> bool:
        """Whether an input is memory that the step will change; only views can hide that."""
        changed = (state.arrays[k] for k in self._changed if k in state.arrays)
        if value.base is None:
            return any(value is a for a in changed)
        return any(np.may_share_memory(value, a) for a in changed)

    def _allocate(self, out: Mapping[str, Array] | None,
                  values: Mapping[str, Array]) -> dict[str, Array]:
        if out is None:
            return {k: np.empty(t.shape, t.dtype.numpy) for k, t in self._outputs.items()}
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
