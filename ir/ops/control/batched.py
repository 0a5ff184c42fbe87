"""BATCHED: a composite for each element of a batch, with its own derivative; and the batching rules
that make it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlx_py.ir.base.errors import ArgumentError, ShapeError
from rlx_py.ir.base.types import TensorType, TupleType, Type
from rlx_py.ir.graph.body import Body
from rlx_py.ir.graph.transforms import AD, Batcher, Value
from rlx_py.ir.nodes.node import (
    OPS,
    BatchRule,
    Cotangent,
    Node,
    Op,
    leaf,
    make,
    pack,
    project,
    register,
)
from rlx_py.ir.ops.control.region import applied, body_graph, placeholders, result_types
from rlx_py.ir.ops.making.batching import Flags, repeated, reshape, size_of, spread_out
from rlx_py.ir.ops.primitive.reduce import REDUCE_SUM

# ---- batching rules ----------------------------------------------------------------------------


def by_element(node: Node, inputs: Sequence[Node], batched: Flags, batcher: Batcher) -> Node:
    """Of composites whose derivative is given, not that of what they are made of: kept whole."""
    assert node.op.decompose is not None, "only composites are kept whole"
    own = placeholders("x", node.inputs)
    made = node.op.decompose(*own, **node.attrs)
    graph = body_graph(own, [made] if isinstance(made, Node) else list(made))
    leaves = placeholders("b", inputs)
    given = {x: Value(v, b) for x, v, b in zip(own, leaves, batched, strict=True)}
    size = size_of(inputs, batched)
    results = [spread_out(v, size) for v in batcher.results(graph, given, size)]
    return BATCHED(*inputs, op=node.op.name, attrs=tuple(sorted(node.attrs.items())),
                   batched=tuple(batched), primal=Body.of(body_graph(leaves, results)))


def merge_rows(rows: Callable[[Node], Flags]) -> BatchRule:
    """Of composites on rows that do not meet, the first axis of all results and of the inputs that
    rows(node) marks: the batch axis becomes more rows. By element where others have it.
    """

    def rule(node: Node, inputs: Sequence[Node], batched: Flags, batcher: Batcher) -> Node:
        own = rows(node)
        if any(b and not r for b, r in zip(batched, own, strict=True)):
            return by_element(node, inputs, batched, batcher)
        size = size_of(inputs, batched)
        merged = [_more_rows(x if b else repeated(x, size)) if r else x
                  for x, b, r in zip(inputs, batched, own, strict=True)]
        made = make(node.op, merged, node.attrs)
        if not isinstance(node.type, TupleType):
            return reshape(made, (size, *node.shape))
        return pack(reshape(project(made, k), (size, *t.shape))
                    for k, t in enumerate(node.type.elements))

    return rule


def _more_rows(x: Node) -> Node:
    return reshape(x, (x.shape[0] * x.shape[1], *x.shape[2:]))


# ---- the op ------------------------------------------------------------------------------------


class _Element:
    """The composite of one element over leaves, and how what is made of these is batched."""

    def __init__(self, node: Node) -> None:
        attrs = node.attrs
        self.size = size_of(node.inputs, attrs["batched"])
        self.given: dict[Node, Value] = {}
        leaves = [self.stand_in(x, b) for x, b in zip(node.inputs, attrs["batched"], strict=True)]
        self.leaves = leaves
        self.node = make(OPS[attrs["op"]], leaves, dict(attrs["attrs"]))

    def stand_in(self, x: Node, batched: bool) -> Node:
        """A leaf for one element of a node."""
        model = x.tensor.with_shape(x.shape[1:]) if batched else x.tensor
        fresh = leaf(f"x{len(self.given)}", "input", model)
        self.given[fresh] = Value(x, batched)
        return fresh

    def batch(self, nodes: Sequence[Node], batcher: Batcher) -> list[Node]:
        """Nodes over the leaves, for all elements."""
        graph = body_graph(list(self.given), nodes)
        return [spread_out(v, self.size) for v in batcher.results(graph, self.given, self.size)]


def _infer(*types: TensorType, op: str, attrs: tuple[tuple[str, Any], ...],
           batched: tuple[bool, ...], primal: str) -> Type:
    inner = OPS.get(op)
    if inner is None or inner.vjp is None or inner.decompose is None:
        raise ArgumentError(f"{op!r} is no composite with a derivative of its own")
    sizes = {t.shape[:1] for t, b in zip(types, batched, strict=True) if b}
    if len(batched) != len(types) or len(sizes) != 1 or () in sizes:
        raise ShapeError(f"the first axes differ in size: {', '.join(map(str, types))}")
    own = [t.with_shape(t.shape[1:]) if b else t for t, b in zip(types, batched, strict=True)]
    size, found = sizes.pop()[0], inner.infer(*own, **dict(attrs))
    several = found.elements if isinstance(found, TupleType) else (found,)
    wide = [t.with_shape((size, *t.shape)) for t in several]
    if result_types(primal, types) != wide:
        raise ShapeError(f"its body gives other types than {op} for each element")
    return TupleType(tuple(wide)) if isinstance(found, TupleType) else wide[0]


def _decompose(*inputs: Node, op: str, attrs: tuple[tuple[str, Any], ...],
               batched: tuple[bool, ...], primal: str) -> Node | tuple[Node, ...]:
    found = applied(primal, inputs)
    several = isinstance(OPS[op].infer(*[
        x.tensor.with_shape(x.shape[1:]) if b else x.tensor
        for x, b in zip(inputs, batched, strict=True)], **dict(attrs)), TupleType)
    return tuple(found) if several else found[0]


def _vjp(node: Node, ct: Cotangent, ad: AD) -> Sequence[Node | None]:
    """The rule for one element, batched; an input that all share gets the sum."""
    element, inside = _Element(node), ad.inside()
    several = isinstance(node.type, TupleType)
    own = [None if c is None else element.stand_in(c, True) for c in (ct if several else (ct,))]
    rule = element.node.op.vjp
    assert rule is not None
    made = rule(element.node, tuple(own) if several else own[0], inside)
    found = _batched_parts(element, made, inside, ad)
    return [g if g is None or b else REDUCE_SUM(g, axes=(0,))
            for g, b in zip(found, node.attrs["batched"], strict=True)]


def _jvp(node: Node, tangents: Sequence[Node | None], ad: AD) -> Any:
    """The rule for one element, else the tangents of what it is made of, batched."""
    element, inside = _Element(node), ad.inside()
    own = [None if t is None else element.stand_in(t, b)
           for t, b in zip(tangents, node.attrs["batched"], strict=True)]
    several = isinstance(node.type, TupleType)
    if element.node.op.jvp is not None:
        made = element.node.op.jvp(element.node, own, inside)
        made = made if several else (made,)
    else:
        made = _pushed(element, own, inside)
    found = _batched_parts(element, made, inside, ad)
    return tuple(found) if several else found[0]


def _pushed(element: _Element, tangents: Sequence[Node | None], ad: AD) -> list[Node | None]:
    """The tangents of one element's results, by those of what the composite is made of."""
    assert element.node.op.decompose is not None
    made = element.node.op.decompose(*element.leaves, **element.node.attrs)
    seeds: Mapping[Node, Node] = {
        x: t for x, t in zip(element.leaves, tangents, strict=True) if t is not None}
    body = body_graph(element.leaves, [made] if isinstance(made, Node) else list(made))
    roots = list(ad.prepared(body, seeds, reverse=False).outputs.values())
    floats = [r for r in roots if r.dtype.is_float]
    pushed = dict(zip(floats, ad.push(floats, seeds), strict=True))
    return [pushed.get(r) for r in roots]


def _batched_parts(element: _Element, made: Sequence[Node | None], inside: AD,
                   ad: AD) -> list[Node | None]:
    """What a rule gave, batched; counts of singular points go on outward, summed."""
    present = [n for n in made if n is not None]
    found = element.batch([*present, *inside.counts], ad.batcher)
    ad.counts += [REDUCE_SUM(c, axes=(0,)) for c in found[len(present):]]
    each = iter(found)
    return [None if n is None else next(each) for n in made]


BATCHED: Op = register(Op("batched", _infer, vjp=_vjp, jvp=_jvp, decompose=_decompose,
                          batch=by_element))
