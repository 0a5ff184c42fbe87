"""CONTRACT, the general dot product: every matrix product, batched or not, is an instance."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from rlx_py.ir.base.errors import ArgumentError, DTypeError, ShapeError
from rlx_py.ir.base.types import TensorType, Type
from rlx_py.ir.graph.stored import ContractDims, ContractRule
from rlx_py.ir.graph.transforms import AD, Batcher
from rlx_py.ir.loops import pairs
from rlx_py.ir.nodes.node import Node, Op, register
from rlx_py.ir.ops.making.batching import Flags, moved
from rlx_py.ir.ops.making.families import Array, add_all, quiet
from rlx_py.ir.ops.making.rows import Rows
from rlx_py.ir.ops.primitive.movement import permuted

Sizes = tuple[int, ...]
Pair = tuple[Sizes, Sizes]


def dims_of(a_rank: int, b_rank: int, batch: Pair, contract: Pair) -> ContractDims:
    """The role of every axis; free axes keep their order."""
    used_a, used_b = {*batch[0], *contract[0]}, {*batch[1], *contract[1]}
    return ContractDims(
        batch[0], batch[1],
        tuple(i for i in range(a_rank) if i not in used_a),
        tuple(i for i in range(b_rank) if i not in used_b),
        contract[0], contract[1])


def _node_dims(node: Node) -> ContractDims:
    a, b = node.inputs
    return dims_of(a.rank, b.rank, node.attrs["batch"], node.attrs["contract"])


def _check_axes(name: str, x: TensorType, axes: Sizes) -> None:
    if len(set(axes)) != len(axes) or any(not 0 <= i < x.rank for i in axes):
        raise ArgumentError(f"{name} axes {axes} are not distinct axes of {x}")


def _infer_contract(a: TensorType, b: TensorType, *, batch: Pair, contract: Pair) -> Type:
    if a.dtype is not b.dtype:
        raise DTypeError(f"operands differ in element type: {a} and {b}")
    if a.dtype.kind == "bool":
        raise DTypeError("a product sums numbers, not bool")
    _check_axes("left", a, (*batch[0], *contract[0]))
    _check_axes("right", b, (*batch[1], *contract[1]))
    for kind, (left, right) in (("batch", batch), ("contracted", contract)):
        if [a.shape[i] for i in left] != [b.shape[i] for i in right]:
            raise ShapeError(f"{kind} axes {left} of {a} and {right} of {b} differ in size")
    dims = dims_of(a.rank, b.rank, batch, contract)
    return a.with_shape((*(a.shape[i] for i in (*dims.a_batch, *dims.a_free)),
                         *(b.shape[i] for i in dims.b_free)))


def _eval_contract(a: Array, b: Array, *, batch: Pair, contract: Pair) -> Array:
    dims = dims_of(a.ndim, b.ndim, batch, contract)
    lead = tuple(a.shape[i] for i in dims.a_batch)
    m = tuple(a.shape[i] for i in dims.a_free)
    n = tuple(b.shape[i] for i in dims.b_free)
    k = prod(a.shape[i] for i in dims.a_contract)
    left = np.transpose(a, (*dims.a_batch, *dims.a_free, *dims.a_contract))
    right = np.transpose(b, (*dims.b_batch, *dims.b_contract, *dims.b_free))
    found = pairs.product(left.reshape(*lead, prod(m), k), right.reshape(*lead, k, prod(n)))
    return found.reshape((*lead, *m, *n))


def _placed(node: Node, layout: Sizes) -> Node:
    """The node with the axis that stands for axis i of the target, layout[j] = i, moved to i."""
    return permuted(node, tuple(layout.index(i) for i in range(len(layout))))


def _contract_vjp(node: Node, ct: Node, ad: AD) -> Sequence[Node | None]:
    a, b = node.inputs
    d = _node_dims(node)
    lead = tuple(range(len(d.a_batch)))
    m = tuple(range(len(lead), len(lead) + len(d.a_free)))
    n = tuple(range(len(lead) + len(m), ct.rank))
    da = CONTRACT(ct, b, batch=(lead, d.b_batch), contract=(n, d.b_free))
    db = CONTRACT(a, ct, batch=(d.a_batch, lead), contract=(d.a_free, m))
    # The other operand's contracted axes come out in that operand's order.
    pairs = list(zip(d.a_contract, d.b_contract, strict=True))
    a_tail = tuple(i for i, _ in sorted(pairs, key=lambda p: p[1]))
    b_tail = tuple(j for _, j in sorted(pairs))
    return (_placed(da, (*d.a_batch, *d.a_free, *a_tail)),
            _placed(db, (*d.b_batch, *b_tail, *d.b_free)))


def _contract_jvp(node: Node, tangents: Sequence[Node | None], ad: AD) -> Node | None:
    (a, b), (ta, tb) = node.inputs, tangents
    return add_all([None if ta is None else CONTRACT(ta, b, **node.attrs),
                    None if tb is None else CONTRACT(a, tb, **node.attrs)])


def _contract_batch(node: Node, inputs: Sequence[Node], batched: Flags, batcher: Batcher) -> Node:
    """A batch axis of both sides is one of the product's; that of one side is a free axis."""
    left, right = (1 if is_batched else 0 for is_batched in batched)
    batch, contract = (
        (tuple(i + left for i in a), tuple(i + right for i in b))
        for a, b in (node.attrs["batch"], node.attrs["contract"]))
    if all(batched):
        return CONTRACT(*inputs, batch=((0, *batch[0]), (0, *batch[1])), contract=contract)
    d = _node_dims(node)
    place = len(d.a_batch) + (0 if batched[0] else len(d.a_free))
    return moved(CONTRACT(*inputs, batch=batch, contract=contract), place, 0)


def _contract_rows(node: Node) -> Sequence[Rows]:
    """Axes of the batch and free axes."""
    d = _node_dims(node)
    place = len(d.a_batch) + len(d.a_free)
    return (dict(enumerate((*d.a_batch, *d.a_free))),
            {**dict(enumerate(d.b_batch)), **dict(enumerate(d.b_free, place))})


CONTRACT = register(Op("contract", _infer_contract, quiet(_eval_contract), _contract_vjp,
                       _contract_jvp, kernel=ContractRule(_node_dims), batch=_contract_batch,
                       rows=_contract_rows))
