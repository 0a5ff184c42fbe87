"""Op and Node: immutable values of which every program is made."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import is_
from typing import Any, NoReturn

import numpy as np

from rlx_py.ir.base.errors import ArgumentError, RLXError, Undecided
from rlx_py.ir.base.literal import attr_key
from rlx_py.ir.base.location import Location as Location
from rlx_py.ir.base.location import at as at
from rlx_py.ir.base.location import user_location as user_location
from rlx_py.ir.base.types import DType, Precision, TensorType, TupleType, Type, check_size
from rlx_py.ir.loops.index import Index
from rlx_py.ir.loops.kernel import Expr
from rlx_py.ir.nodes.home import Home, inner
from rlx_py.ir.nodes.operators import Operators
from rlx_py.ir.nodes.signature import check_call

Cotangent = Any  # Node for a tensor result; a tuple of Node | None for a tuple result
InferRule = Callable[..., Type]
EvalRule = Callable[..., Any]
# The last argument is the transform that asks: AD and Batcher of `ir/graph/transforms.py`.
VJPRule = Callable[["Node", Cotangent, Any], Sequence["Node | None"]]
JVPRule = Callable[["Node", Sequence["Node | None"], Any], Any]
BatchRule = Callable[["Node", Sequence["Node"], Sequence[bool], Any], "Node"]
DecomposeRule = Callable[..., Any]
# A coroutine that returns a node's value at an index. It yields
#   (input position, index[, guard])   and is sent the value there (0 where the guard is false)
#   ("dynamic", value, extent)         and is sent the value as an Index, clamped to 0 … extent − 1
#   ("let", value)                     and is sent the value under a name, computed once
# Guards, values and what it returns may be nested trees of expressions.
Ask = (tuple[int, tuple[Index, ...]] | tuple[int, tuple[Index, ...], Expr]
       | tuple[str, Expr, int] | tuple[str, Expr])
ElementRule = Callable[["Node", tuple[Index, ...]], Generator[Ask, Any, Expr]]

OPS: dict[str, Op] = {}


class KernelRule:
    """How a result that must be stored is computed; the rules are in `stored.py`."""

    kind = ""  # in pictures: reduction, contraction, loops, composite


@dataclass(frozen=True, eq=False)
class Op:
    """Everything about one operation; passes ask it and never test its name.

    infer(*types, **attrs) -> Type          raises the typed error at the user's line
    eval(*arrays, **attrs)                  NumPy meaning; None: that of the decomposition
    vjp(node, ct, ad)                       a cotangent or None for each input
    onto(node, ct, ad, so_far)              vjp, with what had reached the inputs added
    jvp(node, tangents, ad)                 the tangent of the result, or None for zero
    decompose(*inputs, **attrs)             Node, or a tuple of Nodes for a tuple result
    element(node, index)                    value at an index, by index push-down (fusable)
    kernel                                  loops of an op whose result must be stored
    batch(node, inputs, batched, batcher)   the op where inputs marked so have a new first axis
    differentiable                          False: the derivative is zero by definition
    cost                                    scalar operations an element takes, for recomputation
    version                                 counts changes of meaning; files name the one they mean
    precision                               under autocast; None: that of what it is made of
    rows(node)                              along which axes its inputs' rows do not meet, for each
    doubt(*arrays, **attrs) -> str          what values mean nothing to it, though it computes on
    masks(node, here, ad)                   of an op that owns a body: which rows of each input have
                                            a cotangent, given those of its results
    """

    name: str
    infer: InferRule
    eval: EvalRule | None = None
    vjp: VJPRule | None = None
    jvp: JVPRule | None = None
    decompose: DecomposeRule | None = None
    element: ElementRule | None = None
    kernel: KernelRule | None = None
    batch: BatchRule | None = None
    differentiable: bool = True
    cost: int = 0
    version: int = 1
    precision: Precision | None = None
    onto: Callable[..., Sequence[Node | None]] | None = None
    rows: Callable[[Node], Sequence[Mapping[int, int]]] | None = None
    doubt: Callable[..., str] | None = None
    masks: Callable[..., Sequence[Any]] | None = None

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> str:
        raise TypeError("an Op is looked up by its name, not pickled")

    def __call__(self, *inputs: Node, **attrs: Any) -> Node:
        """A node of this op; its type is inferred here, at the caller's line."""
        return make(self, inputs, attrs)


def register(op: Op) -> Op:
    """Enter an op in the registry, once."""
    if op.name in OPS:
        raise ValueError(f"op {op.name} is declared twice")
    OPS[op.name] = op
    return op


class Node(Operators):
    """One operation applied to inputs. Immutable.

    `==` is an element-wise operation; sets and keys know a node by its identity.
    """

    __slots__ = ("__weakref__", "attrs", "home", "inputs", "loc", "op", "origin", "type")
    op: Op
    inputs: tuple[Node, ...]
    attrs: Mapping[str, Any]
    type: Type
    loc: Location | None
    origin: Node | None
    home: Home | None

    def __init__(self, op: Op, inputs: tuple[Node, ...], attrs: Mapping[str, Any], type: Type,
                 loc: Location | None, origin: Node | None) -> None:
        self.op, self.inputs, self.attrs, self.type = op, inputs, attrs, type
        self.loc, self.origin, self.home = loc, origin, None

    @property
    def tensor(self) -> TensorType:
        """The type of a single-result node."""
        if isinstance(self.type, TupleType):
            raise ArgumentError(f"{self.op.name} gives {self.type}; take one result with [i]")
        return self.type

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the axes."""
        return self.tensor.shape

    @property
    def dtype(self) -> DType:
        """Element type."""
        return self.tensor.dtype

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)

    ndim = rank

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.tensor.size

    @property
    def key(self) -> tuple[Any, ...]:
        """What makes two nodes the same computation."""
        attrs = tuple((k, attr_key(self.attrs[k])) for k in sorted(self.attrs))
        return (self.op.name, tuple(map(id, self.inputs)), attrs)

    def __repr__(self) -> str:
        where = f" at {self.loc[0]}:{self.loc[1]}" if self.loc else ""
        return f"<{self.op.name} {self.type}{where}>"

    def __bool__(self) -> bool:
        raise ArgumentError(
            f"a node ({self.op.name} {self.type}) has no truth value while the graph is built; "
            "use where or cond" + at(user_location())
        )

    def __len__(self) -> int:
        sizes = self.type.elements if isinstance(self.type, TupleType) else self.type.shape
        if isinstance(self.type, TensorType) and not sizes:
            raise ArgumentError("a scalar node has no length" + at(user_location()))
        return len(sizes) if isinstance(self.type, TupleType) else self.type.shape[0]

    def __array__(self, *options: Any, **more: Any) -> NoReturn:
        raise ArgumentError(f"a node ({self.op.name} {self.type}) has no values while the graph is "
                            "built; join nodes with stack or concatenate" + at(user_location()))

    def __copy__(self) -> Node:
        return self  # it never changes, and is known by its identity

    def __deepcopy__(self, memo: Any) -> Node:
        return self

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise ArgumentError(f"a node ({self.op.name} {self.type}) is not pickled by itself: name "
                            "it with g.output and pickle or save the graph" + at(user_location()))

    def __float__(self) -> float: return self._refuse_value("float()")
    def __int__(self) -> int: return self._refuse_value("int()")
    def __complex__(self) -> complex: return self._refuse_value("complex()")
    def __index__(self) -> int: return self._refuse_value("an index")
    def __round__(self, digits: Any = None) -> NoReturn: self._refuse_value("round()")

    def __format__(self, spec: str) -> str:
        return self._refuse_value(f"the format {spec!r}") if spec else str(self)

    def _refuse_value(self, what: str) -> NoReturn:
        raise ArgumentError(f"{what} takes a value, which a node ({self.op.name} {self.type}) has "
                            "none of while the graph is built: name it with g.output and call "
                            "exe(...), or compute on a rlx.Tape" + at(user_location()))

    def __iter__(self) -> Iterator[Node]:
        return iter([self[i] for i in range(len(self))])

    def __getitem__(self, key: Any) -> Node:
        if isinstance(self.type, TupleType):
            return project(self, key)
        return self._of("getitem", self, key)

    def numpy(self) -> np.ndarray[Any, Any]:
        """The value of a node that a tape recorded (`rlx.Tape`); ArgumentError for any other."""
        raise ArgumentError(f"{self!r} has no value: no tape recorded it" + at(user_location()))

    def item(self) -> Any:
        """The value of a single element as a Python number, as `numpy`."""
        if self.size != 1:
            raise ArgumentError(f"item takes one element, not {self.type}" + at(user_location()))
        return self.numpy().item()


Recorder = Callable[..., Node]  # takes what Node takes


class _Making(threading.local):
    origin: Node | None = None
    recorder: Recorder | None = None


_MAKING = _Making()


def record_with(recorder: Recorder | None) -> Recorder | None:
    """Let `recorder` make this thread's nodes from now on (None: nobody records them); returns the
    one before."""
    before, _MAKING.recorder = _MAKING.recorder, recorder
    return before


def _new(op: Op, inputs: tuple[Node, ...], attrs: Mapping[str, Any], type: Type,
         loc: Location | None, origin: Node | None) -> Node:
    return (_MAKING.recorder or Node)(op, inputs, attrs, type, loc, origin)


@contextmanager
def origin(node: Node | None) -> Iterator[None]:
    """Nodes made inside were made for `node`, and carry its source line; so does the error where
    that depends on sizes not yet known."""
    outer, _MAKING.origin = _MAKING.origin, node
    try:
        yield
    except Undecided as error:
        if node is None or "\n  at " in str(error):
            raise
        raise Undecided(f"{node.op.name}: {error}{at(node.loc)}") from error
    finally:
        _MAKING.origin = outer


def make(op: Op, inputs: Sequence[Node], attrs: Mapping[str, Any]) -> Node:
    """The node op(*inputs, **attrs), typed; a typed error names op, types and the user's line."""
    source = _MAKING.origin
    loc = user_location() if source is None else source.loc
    try:
        types = [n.type for n in inputs]
        check_call(op, types, attrs)
        type = op.infer(*types, **attrs)
        home = _home(inputs) if source is None else None
        for t in type.elements if isinstance(type, TupleType) else (type,):
            check_size(t.shape)
    except RLXError as error:
        operands = ", ".join(str(n.type) for n in inputs)
        if "\n  at " in str(error):
            raise
        raise error.__class__(f"{op.name}({operands}): {error}{at(loc)}") from None
    node = _new(op, tuple(inputs), attrs, type, loc, source)
    node.home = home
    return node


def _home(inputs: Sequence[Node]) -> Home | None:
    """The innermost home of nodes that a user's line joins; ArgumentError where they can't meet."""
    home, of = None, None
    for x in inputs:
        if x.home is None or x.home is home:
            continue
        if home is None or of is None:
            home, of = x.home, x
            continue
        found = inner(home, x.home)
        if found is None:
            raise ArgumentError(
                f"nodes of two graphs, {_graph(home)} ({of!r}) and {_graph(x.home)} ({x!r}); "
                "build both in one, or inline one in the other by Graph.call")
        home, of = (found, of) if found is home else (found, x)
    if home is not None and not home.open:
        raise ArgumentError(f"{of!r} was made inside {home.name}, which only its results leave; "
                            "return it from there")
    return home


def _graph(home: Home) -> str:
    return repr((home.graph or home).name)


def same(left: Sequence[Node], right: Sequence[Node]) -> bool:
    """Whether two sequences hold the same nodes; `==` of nodes is an operation."""
    return len(left) == len(right) and all(map(is_, left, right))


def replaced(node: Node, inputs: tuple[Node, ...]) -> Node:
    """The same operation on other inputs of the same types."""
    if same(node.inputs, inputs):
        return node
    if all(a.type == b.type for a, b in zip(node.inputs, inputs, strict=True)):
        return _new(node.op, inputs, node.attrs, node.type, node.loc, node.origin)
    fresh = node.op.infer(*[n.type for n in inputs], **node.attrs)
    return _new(node.op, inputs, node.attrs, fresh, node.loc, node.origin)


def _infer_leaf(*, name: str, kind: str, type: Type) -> Type:
    return type


def _infer_tuple(*types: TensorType) -> Type:
    if not types:
        raise ArgumentError("a tuple of no results")
    return TupleType(types)


def _infer_project(operand: TupleType, *, index: int) -> Type:
    if not 0 <= index < len(operand.elements):
        raise ArgumentError(f"{operand} has no result {index}")
    return operand.elements[index]


def _project_vjp(node: Node, ct: Node, ad: Any) -> tuple[Any]:
    count = len(node.inputs[0])
    return (tuple(ct if i == node.attrs["index"] else None for i in range(count)),)


LEAF = register(Op("leaf", _infer_leaf))
TUPLE = register(Op("tuple", _infer_tuple, eval=lambda *xs: xs,
                    vjp=lambda node, ct, ad: ct, jvp=lambda node, ts, ad: ts))
PROJECT = register(Op("project", _infer_project, eval=lambda xs, *, index: xs[index],
                      vjp=_project_vjp,
                      jvp=lambda node, ts, ad: ts[0] and ts[0][node.attrs["index"]]))


def leaf(name: str, kind: str, type: Type) -> Node:
    """An input, param or state; two leaves are never the same node."""
    return make(LEAF, (), {"name": name, "kind": kind, "type": type})


def pack(nodes: Iterable[Node]) -> Node:
    """Several results as one tuple-typed node."""
    return make(TUPLE, tuple(nodes), {})


def project(node: Node, index: int) -> Node:
    """Result `index` of a tuple-typed node."""
    count = len(node)
    if isinstance(index, bool) or not isinstance(index, int) or not -count <= index < count:
        raise ArgumentError(f"{node.op.name} has results 0..{count - 1}, not {index!r}")
    if node.op is TUPLE:
        return node.inputs[index]
    return make(PROJECT, (node,), {"index": index % count})


def toposort(roots: Iterable[Node]) -> list[Node]:
    """Every node the roots reach, inputs before users, in a stable order; depth is no limit."""
    order: list[Node] = []
    seen: set[int] = set()
    stack: list[tuple[Node, bool]] = [(r, False) for r in reversed(list(roots))]
    while stack:
        node, expanded = stack.pop()
        if expanded:
            order.append(node)
        elif id(node) not in seen:
            seen.add(id(node))
            stack.append((node, True))
            stack.extend((i, False) for i in reversed(node.inputs) if id(i) not in seen)
    return order
