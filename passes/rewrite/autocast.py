"""Mixed precision: products in f16 or bf16, everything that sums or is steep in f32."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rlx_py.ir.base.errors import DTypeError
from rlx_py.ir.base.literal import attr_key
from rlx_py.ir.base.types import DType, Precision, TupleType, as_dtype, bf16, f16, f32
from rlx_py.ir.graph.body import Body, graph_of, is_body
from rlx_py.ir.graph.graph import Graph, Rebuilder
from rlx_py.ir.graph.stored import ContractRule, ReduceRule
from rlx_py.ir.nodes.graph_base import require_graph
from rlx_py.ir.nodes.node import (
    LEAF,
    PROJECT,
    TUPLE,
    Node,
    Op,
    leaf,
    origin,
    replaced,
    toposort,
)
from rlx_py.ir.ops.control.branch import COND
from rlx_py.ir.ops.control.checkpoint import CHECKPOINT
from rlx_py.ir.ops.control.region import body_graph
from rlx_py.ir.ops.control.scan_rules import SCAN
from rlx_py.ir.ops.making.families import POLYNOMIAL
from rlx_py.ir.ops.primitive.elementwise import CAST, cast
from rlx_py.passes.analysis.steps import watched
from rlx_py.passes.rewrite.decompose import expanded, named_op

PICKS = ("max", "min")  # folds whose result is one of their elements, exact in any type
STRUCTURE = (TUPLE, PROJECT)


@watched
def autocast(graph: Graph, dtype: Any = bf16, keep: Iterable[Op | str] = ()) -> Graph:
    """The graph in mixed precision: same leaves and outputs, f32 values narrow where that is safe.

    Products (matrix products, convolutions, attention) take operands and give results in `dtype`,
    and add up in f32. Sums, norms, softmax, losses, exponentials and their like take and give f32.
    What moves, picks or adds a few values (reshape, relu, residual sums) is narrow where all its
    operands are narrow or depend on no data. Params stay f32 and are cast where they are used, so
    their gradients are f32; f64, integers and what is narrow already stay as they are. Inside of
    loops, branches and regions it is as outside; what goes in and carries are f32. `keep` names ops
    to leave in f32. Apply it to the loss graph, then `grad` or `train_step`. Raises DTypeError for
    another dtype, ArgumentError for an unknown op.
    """
    require_graph("autocast", graph)
    target = as_dtype(dtype)
    if target not in (f16, bf16):
        raise DTypeError(f"autocast takes f16 or bf16, not {target}")
    caster = _Caster(target, frozenset(map(named_op, keep)))
    for node in graph.nodes:
        caster.convert(node)
    return graph.map_roots(lambda n: caster.typed(n, n.dtype))


def precision_of(node: Node) -> Precision:
    """What mixed precision does with a node: as its op says, or by what the op is made of.

    A composite of products alone is a product, one that only moves and adds is neutral; with a sum
    or a steep function inside it is wide.
    """
    if node.op.precision is not None:
        return node.op.precision
    if node.op.decompose is None:
        return _primitive(node.op)
    found = {precision_of(n) for n in _primitives(node) if _has_float(n)}
    if Precision.WIDE in found:
        return Precision.WIDE
    return Precision.NARROW if Precision.NARROW in found else Precision.NEUTRAL


def _primitive(op: Op) -> Precision:
    if op.element is not None:
        return Precision.WIDE if op.cost >= POLYNOMIAL else Precision.NEUTRAL
    if isinstance(op.kernel, ContractRule):
        return Precision.NARROW
    if isinstance(op.kernel, ReduceRule) and op.kernel.combine in PICKS:
        return Precision.NEUTRAL
    return Precision.WIDE


def _primitives(node: Node) -> list[Node]:
    """What a composite decomposes into, on leaves in place of its inputs."""
    leaves = tuple(leaf(str(i), "input", n.type) for i, n in enumerate(node.inputs))
    alone = Node(node.op, leaves, node.attrs, node.type, node.loc, node.origin)
    root = Rebuilder(expanded).node(alone)
    return [n for n in toposort([root]) if n.op is not LEAF and n.op not in STRUCTURE]


def _has_float(node: Node) -> bool:
    """Whether an operand is a float of any width (results of comparisons are not)."""
    return any(not isinstance(n.type, TupleType) and n.dtype.is_float for n in node.inputs)


class _Caster:
    """What each node became, and each conversion once."""

    def __init__(self, target: DType, keep: frozenset[Op]) -> None:
        self.target, self.keep = target, keep
        self.done: dict[Node, Node] = {}
        self.casts: dict[tuple[Node, DType], Node] = {}
        self.constant: set[Node] = set()  # what depends on params and constants alone
        self.precisions: dict[tuple[Any, ...], Precision] = {}  # equal layers are asked once

    def typed(self, node: Node, dtype: DType) -> Node:
        """The new form of a node of the old graph, in an element type."""
        found = self.done[node]
        if found.dtype is dtype:
            return found
        if found.op is CAST and found.inputs[0].dtype is dtype and dtype is self.target:
            return found.inputs[0]  # narrow, widened and narrow again
        if (found, dtype) not in self.casts:
            with origin(node):
                self.casts[found, dtype] = cast(found, dtype)
        return self.casts[found, dtype]

    def convert(self, node: Node) -> None:
        """Add the new form of a node whose inputs have theirs."""
        if node.op is LEAF:
            self.done[node] = node
            if node.attrs["kind"] == "param":
                self.constant.add(node)
            return
        if all(n in self.constant for n in node.inputs):
            self.constant.add(node)
        if node.op in STRUCTURE:
            self.done[node] = replaced(node, tuple(self.done[n] for n in node.inputs))
            return
        dtype = f32 if any(map(_holds_body, node.attrs.values())) else self._dtype_for(node)
        inputs = tuple(self.typed(n, dtype) if _is_f32(n) else self.done[n] for n in node.inputs)
        attrs = {k: self._body(node, graph_of(v)) if is_body(v) and node.op not in self.keep else v
                 for k, v in node.attrs.items()}
        type = node.op.infer(*[n.type for n in inputs], **attrs)
        self.done[node] = Node(node.op, inputs, attrs, type, node.loc, node.origin)

    def _body(self, node: Node, graph: Graph) -> Body:
        """A body in mixed precision: of the same leaves, and results of the same types but where an
        op takes others."""
        inner = _Caster(self.target, self.keep)
        leaves = list(graph.inputs.values())
        if node.op in (SCAN, COND, CHECKPOINT):
            # The last leaves are the last inputs, but for carries, which change.
            still = len(leaves) - (node.attrs["carries"] if node.op is SCAN else 0)
            pairs = zip(leaves[::-1][:still], node.inputs[::-1], strict=False)
            inner.constant |= {x for x, given in pairs if given in self.constant}
        for n in graph.nodes:
            inner.convert(n)
        results = [inner.done[y] if _any_type(node, k) else inner.typed(y, y.dtype)
                   for k, y in enumerate(graph.outputs.values())]
        return Body.of(body_graph(leaves, results))

    def _dtype_for(self, node: Node) -> DType:
        """The type that the f32 operands of a node take."""
        operands = [n for n in node.inputs if _is_f32(n)]
        if not operands or not _gives_f32(node) or node.op in self.keep:
            return f32
        precision = self._precision(node)
        if precision is Precision.NARROW:
            return self.target
        narrow = [n for n in operands if self.done[n].dtype is self.target]
        others = [n for n in operands
                  if self.done[n].dtype is not self.target and n not in self.constant]
        is_narrow = precision is Precision.NEUTRAL and narrow and not others
        return self.target if is_narrow else f32

    def _precision(self, node: Node) -> Precision:
        attrs = tuple((k, attr_key(v)) for k, v in sorted(node.attrs.items()))
        key = (node.op, *[n.type for n in node.inputs], attrs)
        if key not in self.precisions:
            self.precisions[key] = precision_of(node)
        return self.precisions[key]


def _holds_body(value: Any) -> bool:
    return is_body(value) or (isinstance(value, tuple) and any(map(_holds_body, value)))


def _any_type(node: Node, result: int) -> bool:
    """Whether a result of a node's body may be of another float type: what a loop stacks, what a
    region keeps."""
    if node.op is SCAN:
        return bool(result >= node.attrs["carries"])
    return node.op is CHECKPOINT and result in node.attrs["kept"]


def _is_f32(node: Node) -> bool:
    return not isinstance(node.type, TupleType) and node.dtype is f32


def _gives_f32(node: Node) -> bool:
    types = node.type.elements if isinstance(node.type, TupleType) else (node.type,)
    return any(t.dtype is f32 for t in types)
