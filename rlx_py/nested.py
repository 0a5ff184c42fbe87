"""Executables of traced functions: they take and return what the function does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlx_py.backends.base import Array, Cost
from rlx_py.executable import Executable
from rlx_py.function import NO_PARAMS
from rlx_py.ir.base.errors import ArgumentError
from rlx_py.ir.base.tree import Nesting
from rlx_py.ir.graph.nonfinite import NonFinite
from rlx_py.outputs import Outputs
from rlx_py.profile import Profile
from rlx_py.state import State


class NestedExecutable(Executable):
    """A compiled graph that came from `trace`, called as exe(params, *inputs).

    An argument may also be given by its name, or leaf by leaf by path. What a transform added is
    taken under its prefix, nested as the params (hvp: exe(params, x, v=direction)) or by name.
    """

    def __init__(self, inner: Executable, nesting: Nesting) -> None:
        # What is called is `inner`, by names; the base class has what only asks for the graph.
        self.inner, self.nesting = inner, nesting
        self.graph, self.interface = inner.graph, inner.interface
        self.options, self.strict = inner.options, inner.strict
        self._out_is_leaf = "out" in inner.interface.leaves
        self._params = nesting.argument_names(nesting.arguments[0][0])

    def __call__(self, /, *args: Any, out: Any = None, discard_updates: Any = False,
                 **arrays: Any) -> Any:
        """Run, and return the function's own nesting; of a derived graph, Outputs in which what
        it has for the params is nested as they are (.grad, .hvp), None where there is none.

        Without positional arguments it takes and returns names, as every executable. Raises
        ArgumentError (another nesting), ShapeError, DTypeError before it runs.
        """
        given = self._placed(args, arrays)
        self._check_call((), discard_updates)
        if not args and self._out_is_leaf and out is not None:
            arrays, out = {**arrays, "out": out}, None
        found = self.inner._run(self._flat(given | arrays), out)
        return self._nested(dict(found)) if args else found

    def init(self, params: Any = NO_PARAMS) -> State:
        """State to train with, from params nested as the function takes them or by path."""
        root, tree = self.nesting.arguments[0]
        if isinstance(params, Mapping) and set(params) == set(self._params):
            return self.inner.init(params)
        return self.inner.init(dict(zip(self._params, tree.leaves(params, root), strict=True)))

    def step(self, state: State | None = None, /, *args: Any, out: Any = None,
             **inputs: Any) -> Outputs:
        """Run once on the inputs, nested or by name, updating the state in place."""
        roots = list(self.nesting.roots)[1:]
        if len(args) > len(roots):
            raise ArgumentError(f"{self.interface.name!r} takes {len(roots)} inputs, "
                                f"not {len(args)}")
        given = dict(zip(roots, args, strict=False))
        return self.inner.step(state, out=out, **self._flat({**given, **inputs}))

    def cost(self, /, **sizes: int) -> Cost:
        """What one call takes."""
        return self.inner.cost(**sizes)

    def profile(self, /, *args: Any, **arrays: Any) -> Profile:
        """Time per kernel of a call on arrays, nested as a call takes them or by name."""
        return self.inner.profile(**self._flat(self._placed(args, arrays) | arrays))

    def find_nan(self, /, *args: Any, **arrays: Any) -> NonFinite | None:
        """The first node where a NaN or infinity appears, on arrays as `profile` takes them."""
        return self.inner.find_nan(**self._flat(self._placed(args, arrays) | arrays))

    def check_inputs(self, /, *args: Any, **arrays: Any) -> None:
        """Raise ArgumentError for values without meaning, among arrays as `profile` takes them."""
        self.inner.check_inputs(**self._flat(self._placed(args, arrays) | arrays))

    def _placed(self, args: tuple[Any, ...], arrays: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments by position under their names. Raises ArgumentError."""
        roots = list(self.nesting.roots)
        if len(args) > len(roots):
            raise ArgumentError(f"{self.interface.name!r} takes {len(roots)} arguments, "
                                f"not {len(args)}")
        given = dict(zip(roots, args, strict=False))
        twice = [k for k in given if k in arrays]
        if twice:
            raise ArgumentError(f"{self.interface.name!r}: {twice[0]!r} is given twice")
        return given

    def _flat(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Arrays by leaf name."""
        leaves, roots = self.interface.leaves, self.nesting.roots
        tree = self.nesting.arguments[0][1]
        found: dict[str, Any] = {}
        for name, value in given.items():
            if name in roots and (name not in leaves or roots[name].kind is not None):
                found |= zip(self.nesting.argument_names(name), roots[name].leaves(value, name),
                             strict=True)
            elif name not in leaves and any(f"{name}_{p}" in leaves for p in self._params):
                # Integers among the params have no such input.
                found |= {k: v for p, v in zip(self._params, tree.leaves(value, name), strict=True)
                          if (k := f"{name}_{p}") in leaves}
            else:
                found[name] = value
        return found

    def _nested(self, found: Mapping[str, Array]) -> Any:
        """Outputs by name, put back into the nesting of the result and of the params."""
        own, result = self.nesting.result_names, self.nesting.result
        whole = set(own) <= set(found)
        value: Any = result.build([found[k] for k in own]) if whole else None
        if whole and len(found) == len(own):
            return value
        nested: dict[str, Any] = {}
        if whole:
            nested = {str(k): v for k, v in value.items()} if result.kind is dict else {
                "out": value}
        tree = self.nesting.arguments[0][1]
        for name, array in found.items():
            if whole and name in own:
                continue
            prefix = self._prefix(name)
            if prefix is None:
                nested[name] = array
            elif prefix not in nested:
                nested[prefix] = tree.build(found.get(f"{prefix}_{p}") for p in self._params)
        return Outputs(nested)

    def _prefix(self, name: str) -> str | None:
        """What a transform put before the path of a param."""
        prefix, _, path = name.partition("_")
        return prefix if path in self._params else None
