"""Tape mode: a graph is recorded while the user computes, then `backward` goes through it once.

Values are NumPy's (the meaning that `evaluate` gives each op): those a user asks for when they are
asked for, the others at `backward`. Nothing is compiled; `Tape.graph` gives the graph for that.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from enum import Enum, auto
from itertools import pairwise
from types import MappingProxyType, TracebackType
from typing import Any, NoReturn

import numpy as np

from rlx_py.ir.base.arrays import as_array
from rlx_py.ir.base.errors import ArgumentError, DTypeError, ShapeError
from rlx_py.ir.base.types import TensorType, TupleType, as_dtype
from rlx_py.ir.graph.evaluate import Array, Value, evaluate_node, evaluate_nodes, toposort_from
from rlx_py.ir.graph.graph import Graph
from rlx_py.ir.nodes.node import (
    LEAF,
    Node,
    Recorder,
    at,
    make,
    origin,
    record_with,
    toposort,
    user_location,
)
from rlx_py.ir.ops.primitive.movement import filled
from rlx_py.passes.derive.derivation import Derivation
from rlx_py.passes.derive.differentiate import prepared
from rlx_py.passes.derive.pullback import lacks_vjp, pullback


class Parameter(Node):
    """A float array that training changes, and the gradient that tapes add up for it.

    It is a node: operators and functions take it, and a live tape records them. `value` is a
    read-only array; assigning another of the same type counts `version` up. `grad` is an array of
    the same type, zeros at first. A Python number becomes f32, an array keeps its element type
    unless `dtype` is given. Raises DTypeError for what is no float, ArgumentError for no array.
    """

    __slots__ = ("_value", "grad", "version")
    _value: Array
    grad: Array
    version: int

    def __init__(self, value: Any, dtype: Any = None, name: str = "param") -> None:
        array = _array_of(value, dtype)
        type = TensorType(as_dtype(array.dtype), array.shape)
        if not type.dtype.is_float:
            raise DTypeError(f"a parameter is an array of floats, not {type}"
                             + at(user_location()))
        if not isinstance(name, str) or not name:
            raise ArgumentError(f"a name must be a non-empty string, not {name!r}"
                                + at(user_location()))
        attrs = {"name": name, "kind": "param", "type": type}
        super().__init__(LEAF, (), attrs, type, user_location(), None)
        self._value, self.version = array, 0
        self.zero_grad()

    @property
    def value(self) -> Array:
        """The array it holds, read-only."""
        return self._value

    @value.setter
    def value(self, value: Any) -> None:
        """Copy an array of its shape, converted as an input of a call is, and count version up.

        Raises ShapeError, DTypeError. Tapes that have read the parameter can't go backward then.
        """
        self._value = _owned(as_array(self.attrs["name"], value, self.tensor))
        self.version += 1

    def numpy(self) -> Array:
        """The array it holds, read-only."""
        return self._value

    def zero_grad(self) -> None:
        """Set the gradient to zeros."""
        self.grad = np.zeros(self.shape, self.dtype.numpy)

    def __repr__(self) -> str:
        return f"<Parameter {self.attrs['name']!r} {self.type}, version {self.version}>"


class Variable(Node):
    """A node that a tape recorded: one operation on others, whose value can be asked for."""

    __slots__ = ("tape",)
    tape: Tape

    def numpy(self) -> Array:
        """The value, a read-only array, as NumPy computes it. What follows from that is not
        recorded. Raises ArgumentError where it rests on what this tape did not record."""
        tensor = self.tensor  # refuses several results
        found: Array = self.tape._value(self).view()
        found.setflags(write=False)
        assert found.shape == tensor.shape
        return found

    def __bool__(self) -> bool:
        return bool(self.item())

    # NumPy and math would go on with a plain number, and the gradient would end without a word.
    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        self._refuse("NumPy")

    def __float__(self) -> NoReturn:
        self._refuse("float()")

    def __int__(self) -> NoReturn:
        self._refuse("int()")

    def __index__(self) -> NoReturn:
        self._refuse("an index")

    def __complex__(self) -> NoReturn:
        self._refuse("complex()")

    def __round__(self, digits: Any = None) -> NoReturn:
        self._refuse("round()")

    def __format__(self, spec: str) -> str:
        # Text is no value to go on with.
        return format(self.item(), spec) if spec else str(self)

    def _refuse(self, what: str) -> NoReturn:
        raise ArgumentError(f"{what} records nothing of {self.op.name} {self.type}; use functions "
                            "of rlx, or .numpy() and .item() where the gradient is to end"
                            + at(user_location()))


class _Phase(Enum):
    READY = auto()
    OPEN = auto()
    CLOSED = auto()
    CONSUMED = auto()


class _Live(threading.local):
    def __init__(self) -> None:
        self.tapes: list[Tape] = []


_LIVE = _Live()


class Tape:
    """A recording of what this thread computes with nodes and parameters inside `with`.

    with rlx.Tape() as tape:
        loss = rlx.square(x @ w - y).mean()      # w is a Parameter; x and y are arrays
    tape.backward(loss)                          # w.grad has the gradient added

    Of nested tapes the innermost records. `backward_nodes` are the nodes that backward made, in
    order; `provenance` maps each recorded node that the gradient reached to the range of those made
    for it, and knows no other node.
    """

    def __init__(self) -> None:
        self._phase = _Phase.READY
        self._live: list[Tape] = []
        self._pins: dict[Parameter, int] = {}
        self._given: dict[Node, Array] = {}  # of inputs, and of parameters as they were read
        self._known: dict[Node, Value] = {}  # these, and whatever has been computed
        self._traversing = False
        self._inputs: list[Node] = []
        self.backward_nodes: tuple[Node, ...] = ()
        self.provenance: Mapping[Node, range] = MappingProxyType({})

    # ---- recording -----------------------------------------------------------------------------

    def __enter__(self) -> Tape:
        if self._phase is not _Phase.READY:
            raise ArgumentError("a tape records once; make another" + at(user_location()))
        self._phase, self._live = _Phase.OPEN, _LIVE.tapes
        self._live.append(self)
        record_with(self._record)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the recording before its `with` does; what was recorded stays, and `backward` takes
        it. Nothing changes where it does not record."""
        if self._phase is _Phase.OPEN:
            self._phase = _Phase.CLOSED
            self._live.remove(self)
            if self._live is _LIVE.tapes:
                _record_innermost()

    def _record(self, *parts: Any) -> Node:
        if self._phase is not _Phase.OPEN:  # another thread has closed it
            _record_innermost()
            return _LIVE.tapes[-1]._record(*parts) if _LIVE.tapes else Node(*parts)
        node = Variable(*parts)
        node.tape = self
        for x in node.inputs:
            if isinstance(x, Parameter):
                self._pin(x)
        return node

    def _pin(self, param: Parameter) -> None:
        if self._pins.setdefault(param, param.version) != param.version:
            raise ArgumentError(f"{param!r} has changed since this tape read version "
                                f"{self._pins[param]}" + at(user_location()))
        self._given[param] = self._known[param] = param.value

    def _require_open(self, what: str) -> None:
        if self._phase is not _Phase.OPEN:
            raise ArgumentError(f"{what}: this tape does not record" + at(user_location()))

    def watch(self, param: Parameter) -> Parameter:
        """Pin the parameter's version, as reading it does; returns it. Its gradient is that of its
        value, once, whether it was read, watched or both. Raises ArgumentError."""
        self._require_open("watch")
        if not isinstance(param, Parameter):
            raise ArgumentError(f"watch takes a Parameter, not {type(param).__name__}"
                                + at(user_location()))
        self._pin(param)
        return param

    def input(self, value: Any, dtype: Any = None) -> Node:
        """An array, copied, as a node without gradient: an input of `graph`, where plain arrays are
        constants. Types as those of Parameter. Raises ArgumentError, DTypeError."""
        self._require_open("input")
        array = _array_of(value, dtype)
        type = TensorType(as_dtype(array.dtype), array.shape)
        name = f"x{len(self._inputs)}"
        node = make(LEAF, (), {"name": name, "kind": "input", "type": type})
        self._given[node] = self._known[node] = array
        self._inputs.append(node)
        return node

    def graph(self, /, **outputs: Node) -> Graph:
        """What was recorded of the named outputs as a graph of its own: to compile, save or print.

        Inputs are x0, x1 … as `input` made them, params are named as the parameters are, with a
        number where two share a name. Raises ArgumentError for nodes that rest on something else.
        """
        with _unrecorded():
            graph = Graph("tape")
            for name, node in outputs.items():
                graph.output(name, node)
            order = toposort(outputs.values())
            self._admit(order)
            done = {n: graph.input(n.attrs["name"], n.shape, n.dtype) for n in self._inputs}
            for n in order:
                if isinstance(n, Parameter):
                    done[n] = graph.param(_free(n.attrs["name"], graph), n.shape, n.dtype)
                elif n not in done:
                    inputs = tuple(done[x] for x in n.inputs)
                    done[n] = Node(n.op, inputs, n.attrs, n.type, n.loc, None)
            return graph.derive({k: done[n] for k, n in outputs.items()})

    # ---- values --------------------------------------------------------------------------------

    def _value(self, root: Node) -> Value:
        if self._traversing:
            raise ArgumentError(f"backward only records: {root!r} has no value in a rule"
                                + at(user_location()))
        known = self._known
        if root not in known:
            order = toposort_from([root], known)
            self._admit(order)
            with _unrecorded():
                for node in order:
                    known[node] = evaluate_node(node, [known[x] for x in node.inputs])
        return known[root]

    def _admit(self, order: list[Node]) -> None:
        """Refuse leaves without a value here, and operations on others that were not recorded."""
        fixed = set[Node]()  # rests on no leaf, so that it matters to nobody who made it
        for node in order:
            if node.op is LEAF:
                if node not in self._given:
                    raise ArgumentError(f"{node!r} has no value on this tape"
                                        + at(user_location()))
            elif fixed.issuperset(node.inputs):
                fixed.add(node)
            elif not isinstance(node, Variable) or node.tape is not self:
                raise ArgumentError(f"{node!r} was computed while this tape did not record"
                                    + at(user_location()))

    # ---- backward ------------------------------------------------------------------------------

    def backward(self, root: Node) -> None:
        """Add the gradient of a float scalar, computed on this tape, to `grad` of every parameter
        that was read or watched. It closes the recording and can be done once.

        In this order: refused is a call while another tape is live on this thread (this one stays
        open); recording closes; a second call is refused; so is a root that is no float of rank 0
        made by this tape, and a parameter that has changed since it was read. None of these consume
        the tape: it can be tried again. A failure after that can't. Only nodes are made while the
        tape is traversed; their values follow. Raises ArgumentError, ShapeError, DTypeError,
        NotDifferentiable (an op that has no gradient), VerifyError (a rule that makes no node).
        """
        if any(t is not self for t in _LIVE.tapes):
            raise ArgumentError("backward: another tape is live on this thread"
                                + at(user_location()))
        self.close()
        if self._phase is _Phase.CONSUMED:
            raise ArgumentError("backward: this tape has been consumed; record another"
                                + at(user_location()))
        self._check_root(root)
        for param, version in self._pins.items():
            if param.version != version:
                raise ArgumentError(f"backward: {param!r} has changed since this tape read version "
                                    f"{version}" + at(user_location()))
        self._phase = _Phase.CONSUMED
        self._traversing = True
        try:
            found, images = self._traverse(root)
        finally:
            self._traversing = False
        values = self._given | {images[n]: v for n, v in self._known.items() if n in images}
        grads = evaluate_nodes(found, values)
        self._known = dict(self._given)
        for param, grad in zip(self._pins, grads, strict=True):
            param.grad = param.grad + grad

    def _check_root(self, root: Node) -> None:
        if not isinstance(root, Variable) or root.tape is not self or root.op is LEAF:
            raise ArgumentError(f"backward takes a node that this tape computed, not {root!r}"
                                + at(user_location()))
        if isinstance(root.type, TupleType) or root.rank:
            raise ShapeError(f"backward takes a scalar, not {root.type}" + at(user_location()))
        if not root.dtype.is_float:
            raise DTypeError(f"backward takes a float, not {root.type}" + at(user_location()))
        self._admit(toposort([root]))

    def _traverse(self, root: Node) -> tuple[list[Node], dict[Node, Node]]:
        """The gradients of the pinned parameters, and what each recorded node was simplified to."""
        forward = [n for n in toposort([root]) if n.op is not LEAF and isinstance(n, Variable)]
        everything = Graph("tape").derive({str(i): n for i, n in enumerate(forward)})
        params = list[Node](self._pins)
        primal = prepared(everything, params, lacks_vjp)
        images = dict[Node, Node](zip(forward, primal.outputs.values(), strict=True))
        made: list[Node] = []
        starts: list[tuple[Node, int]] = []
        reached = set[Node]()

        def visit(order: list[Node]) -> Iterator[Node]:
            for node, is_image in _grouped(order, set(images.values())):
                if is_image:
                    starts.append((node, len(made)))
                yield node
            starts.append((root, len(made)))

        def record(*parts: Any) -> Node:
            made.append(Node(*parts))
            return made[-1]

        target = images[root]
        with _recorded(record):
            with origin(target):
                seed = filled(1, target.tensor)
            found = pullback([(target, seed)], params, Derivation(), visit, reached.add)
        ranges = {n: range(a, b) for (n, a), (_, b) in pairwise(starts) if n in reached}
        self.backward_nodes = tuple(made)
        self.provenance = MappingProxyType(
            {n: ranges[f] for n, f in images.items() if f in ranges})
        return found, images


def _grouped(order: list[Node], images: set[Node]) -> Iterator[tuple[Node, bool]]:
    """An order the other way round, users first, and whether each node is an image; those that are
    not come right behind the image they are a part of."""
    users = Counter(x for n in order for x in n.inputs)
    done = set[Node]()
    for node in reversed(order):
        ready = [node]
        while ready:
            n = ready.pop()
            if n in done:
                continue
            done.add(n)
            yield n, n in images
            for x in n.inputs:
                users[x] -= 1
                if not users[x] and x not in images:
                    ready.append(x)


def _record_innermost() -> None:
    record_with(_LIVE.tapes[-1]._record if _LIVE.tapes else None)


@contextmanager
def _recorded(recorder: Recorder | None) -> Iterator[None]:
    before = record_with(recorder)
    try:
        yield
    finally:
        record_with(before)


def _unrecorded() -> AbstractContextManager[None]:
    return _recorded(None)


def _array_of(value: Any, dtype: Any) -> Array:
    """A read-only copy of an array or of numbers."""
    if isinstance(value, Node):
        raise ArgumentError(f"{value!r} is a node, not an array" + at(user_location()))
    if dtype is None and isinstance(value, bool | int | float):
        dtype = as_dtype(type(value))
    try:
        array = np.asarray(value)
        return _owned(array.astype(as_dtype(array.dtype if dtype is None else dtype).numpy))
    except DTypeError as error:
        raise DTypeError(f"{error}{at(user_location())}") from None
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"not an array of numbers: {type(value).__name__} ({error})"
                            + at(user_location())) from error


def _owned(array: Array) -> Array:
    copy = np.array(array, order="C", copy=True)
    copy.setflags(write=False)
    return copy


def _free(name: str, graph: Graph) -> str:
    found, count = name, 1
    while found in graph.leaves:
        count += 1
        found = f"{name}{count}"
    return found
