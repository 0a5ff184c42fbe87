"""Nodes batched one by one, and BATCHED: a composite for each element, with its own derivative."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlx_py.ir.base.errors import ArgumentError, ShapeError, VerifyError
from rlx_py.ir.base.types import TensorType, TupleType, Type
from rlx_py.ir.graph.graph import Graph, rebuild
from rlx_py.ir.nodes.node import (
    OPS,
    PROJECT,
    TUPLE,
    Chain,
    Cotangent,
    Node,
    Op,
    at,
    leaf,
    make,
    origin,
    register,
    replaced,
    toposort,
)
from rlx_py.ir.ops.making.batching import repeated, size_of
from rlx_py.ir.ops.primitive.reduce import REDUCE_SUM
from rlx_py.passes.control.region import body_graph, parts
from rlx_py.passes.derive.differentiate import ChainRule, prepared
from rlx_py.passes.derive.jvp import lacks_jvp, pushforward
from rlx_py.passes.rewrite.decompose import expanded


@dataclass(frozen=True, eq=False)
class Value:
    """A node in the new graph, and whether it has the batch axis, first of its axes."""

    node: Node
    batched: bool

    def spread(self, size: int) -> Node:
        """The node with the batch axis."""
        return self.node if self.batched else repeated(self.node, size)


Found = Value | tuple[Value, ...]  # several for a tuple-typed node


def single(found: Found) -> Value:
    """The value of a tensor node."""
    assert isinstance(found, Value), "only tuple and project meet tuples"
    return found


def expand_batched(graph: Graph, leaves: Iterable[Node]) -> Graph:
    """Expand the composites that depend on batched leaves and bring no rule."""
    depends = set(leaves)

    def expand(node: Node) -> Node | None:
        if depends.isdisjoint(node.inputs):
            return None
        better = expanded(node) if node.op.batch is None else None
        if better is None:
            depends.add(node)
        return better

    return rebuild(graph, expand)


def batch_nodes(roots: Iterable[Node], given: Mapping[Node, Found], size: int) -> dict[Node, Found]:
    """What every node that the roots reach becomes, given the leaves. ArgumentError for an op that
    has no rule."""
    found = dict(given)
    for node in toposort(roots):
        if node not in found:
            found[node] = _batch(node, found, size)
    return found


def batched_results(graph: Graph, leaves: Mapping[Node, Value], size: int) -> list[Value]:
    """The results of a graph over other leaves, some with the batch axis."""
    source = expand_batched(graph, [x for x, v in leaves.items() if v.batched])
    found = batch_nodes(source.outputs.values(), dict(leaves), size)
    return [single(found[r]) for r in source.outputs.values()]


def _batch(node: Node, found: Mapping[Node, Found], size: int) -> Found:
    if node.op is PROJECT:
        several = found[node.inputs[0]]
        assert isinstance(several, tuple)
        part: Value = several[node.attrs["index"]]
        return part
    values = [single(found[x]) for x in node.inputs]
    if node.op is TUPLE:
        return tuple(values)
    inputs = tuple(v.node for v in values)
    if not any(v.batched for v in values):
        return _results(replaced(node, inputs), False)
    if node.op.batch is None:
        raise ArgumentError(f"vmap: {node.op.name} {node.type} has no batching rule" + at(node.loc))
    with origin(node if node.origin is None else node.origin):
        result = node.op.batch(node, inputs, [v.batched for v in values])
    if result.type != _with_axis(node.type, size):
        raise VerifyError(f"the batching of {node.op.name} gives {result.type} for elements of "
                          f"type {node.type}" + at(node.loc))
    return _results(result, True)


def _results(node: Node, batched: bool) -> Found:
    if isinstance(node.type, TupleType):
        return tuple(Value(part, batched) for part in parts(node))
    return Value(node, batched)


def _with_axis(type: Type, size: int) -> Type:
    if isinstance(type, TupleType):
        return TupleType(tuple(t.with_shape((size, *t.shape)) for t in type.elements))
    return type.with_shape((size, *type.shape))


# ---- a composite whose derivative is given ---------------------------------------------------


class _Element:
    """The composite of one element over leaves, and how what is made of these is batched."""

    def __init__(self, inputs: Sequence[Node], op: str, attrs: tuple[tuple[str, Any], ...],
                 batched: tuple[bool, ...]) -> None:
        self.size = size_of(inputs, batched)
        self.leaves: list[Node] = []
        self.given: dict[Node, Found] = {}
        for x, is_batched in zip(inputs, batched, strict=True):
            self.leaves.append(self.stand_in(x, is_batched))
        self.node = make(OPS[op], self.leaves, dict(attrs))

    def stand_in(self, x: Node, batched: bool) -> Node:
        """A leaf for one element of a node."""
        model = x.tensor.with_shape(x.shape[1:]) if batched else x.tensor
        fresh = leaf(f"x{len(self.given)}", "input", model)
        self.given[fresh] = Value(x, batched)
        return fresh

    def results(self) -> list[Node]:
        """The results in terms of what the composite is made of."""
        made = expanded(self.node)
        assert made is not None, "only composites are kept whole"
        return parts(made) if isinstance(made.type, TupleType) else [made]

    def batch(self, nodes: Sequence[Node]) -> list[Node]:
        """Nodes over the leaves, for all elements."""
        graph = body_graph(list(self.given), nodes)
        active = [n for n, v in self.given.items() if single(v).batched]
        roots = list(expand_batched(graph, active).outputs.values())
        found = batch_nodes(roots, self.given, self.size)
        return [single(found[r]).spread(self.size) for r in roots]


def _infer(*types: TensorType, op: str, attrs: tuple[tuple[str, Any], ...],
           batched: tuple[bool, ...]) -> Type:
    inner = OPS.get(op)
    if inner is None or inner.vjp is None or inner.decompose is None:
        raise ArgumentError(f"{op!r} is no composite with a derivative of its own")
    sizes = {t.shape[:1] for t, b in zip(types, batched, strict=True) if b}
    if len(batched) != len(types) or len(sizes) != 1 or () in sizes:
        raise ShapeError(f"the first axes differ in size: {', '.join(map(str, types))}")
    own = [t.with_shape(t.shape[1:]) if b else t for t, b in zip(types, batched, strict=True)]
    return _with_axis(inner.infer(*own, **dict(attrs)), sizes.pop()[0])


def _decompose(*inputs: Node, **attrs: Any) -> Node | tuple[Node, ...]:
    element = _Element(inputs, **attrs)
    found = element.batch(element.results())
    return tuple(found) if isinstance(element.node.type, TupleType) else found[0]


def _vjp(node: Node, ct: Cotangent, chain: Chain) -> Sequence[Node | None]:
    """The rule for one element, batched; an input that all share gets the sum."""
    element, inner = _Element(node.inputs, **node.attrs), _inner_chain(chain)
    several = isinstance(node.type, TupleType)
    own = [None if c is None else element.stand_in(c, True) for c in (ct if several else (ct,))]
    rule = element.node.op.vjp
    assert rule is not None
    made = rule(element.node, tuple(own) if several else own[0], inner)
    found = _batched_parts(element, made, inner, chain)
    return [g if g is None or b else REDUCE_SUM(g, axes=(0,))
            for g, b in zip(found, node.attrs["batched"], strict=True)]


def _jvp(node: Node, tangents: Sequence[Node | None], chain: Chain) -> Any:
    """The rule for one element, else the tangents of what it is made of, batched."""
    element, inner = _Element(node.inputs, **node.attrs), _inner_chain(chain)
    own = [None if t is None else element.stand_in(t, b)
           for t, b in zip(tangents, node.attrs["batched"], strict=True)]
    several = isinstance(node.type, TupleType)
    if element.node.op.jvp is not None:
        made = element.node.op.jvp(element.node, own, inner)
        made = made if several else (made,)
    else:
        seeds = {x: t for x, t in zip(element.leaves, own, strict=True) if t is not None}
        graph = prepared(body_graph(element.leaves, element.results()), seeds, lacks_jvp)
        roots = list(graph.outputs.values())
        floats = [r for r in roots if r.dtype.is_float]
        pushed = dict(zip(floats, pushforward(floats, seeds, inner), strict=True))
        made = [pushed.get(r) for r in roots]
    found = _batched_parts(element, made, inner, chain)
    return tuple(found) if several else found[0]


def _inner_chain(chain: Chain) -> Chain:
    return ChainRule(chain.singular) if isinstance(chain, ChainRule) else chain


def _batched_parts(element: _Element, made: Sequence[Node | None], inner: Chain,
                   chain: Chain) -> list[Node | None]:
    """What a rule gave, batched; counts of singular points go on to the outer chain, summed."""
    counts = inner.counts if isinstance(inner, ChainRule) else []
    present = [n for n in made if n is not None]
    found = element.batch([*present, *counts])
    if isinstance(chain, ChainRule):
        chain.counts += [REDUCE_SUM(c, axes=(0,)) for c in found[len(present):]]
    each = iter(found)
    return [None if n is None else next(each) for n in made]


def _batch_batched(node: Node, inputs: Sequence[Node], batched: Sequence[bool]) -> Node:
    return make(BATCHED, inputs, {"op": BATCHED.name, "attrs": tuple(sorted(node.attrs.items())),
                                  "batched": tuple(batched)})


BATCHED: Op = register(Op("batched", _infer, vjp=_vjp, jvp=_jvp, decompose=_decompose,
                          batch=_batch_batched))
