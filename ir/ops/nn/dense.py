"""Linear layers and embeddings."""

from __future__ import annotations

from typing import Any

from rlx_py.ir.base.errors import ArgumentError, ShapeError
from rlx_py.ir.base.types import TensorType, Type, require_rank
from rlx_py.ir.nodes.node import Node
from rlx_py.ir.ops.making.arguments import require_floats, require_shape
from rlx_py.ir.ops.making.families import composite
from rlx_py.ir.ops.making.located import located
from rlx_py.ir.ops.operands.operand import as_node, operands
from rlx_py.ir.ops.primitive.compare import EQ
from rlx_py.ir.ops.primitive.contract import CONTRACT
from rlx_py.ir.ops.primitive.elementwise import SELECT, STOP_GRADIENT
from rlx_py.ir.ops.primitive.index import GATHER
from rlx_py.ir.ops.primitive.movement import filled, spread


def _infer_linear(x: TensorType, w: TensorType, *bias: TensorType) -> Type:
    require_floats("linear", x, w, *bias)
    require_rank("linear", w, 2)
    if not x.rank or x.shape[-1] != w.shape[1]:
        raise ShapeError(f"the last axis of {x} must be the {w.shape[1]} inputs of {w}")
    for b in bias:
        require_shape("bias", b, w.shape[:1])
    return x.with_shape((*x.shape[:-1], w.shape[0]))


def _linear(x: Node, w: Node, *bias: Node) -> Node:
    y = CONTRACT(x, w, batch=((), ()), contract=((x.rank - 1,), (1,)))
    return y + spread(bias[0], y.shape, (y.rank - 1,)) if bias else y


LINEAR = composite("linear", _infer_linear, _linear)


@located
def linear(input: Any, weight: Any, bias: Any = None) -> Node:
    """input[…, I]·weight[O, I]ᵀ + bias[O]. Raises ShapeError, DTypeError (not floats)."""
    return LINEAR(*operands(input, weight, *(() if bias is None else (bias,))))


@located
def embedding(input: Any, weight: Any, padding_idx: int | None = None) -> Node:
    """Rows of weight[V, D] at integer positions of any shape: [… , D].

    The gradient of repeated rows adds; row padding_idx receives none. A position outside 0 … V − 1
    is an ArgumentError on the reference backend and reads the nearest row in compiled code. Raises
    ShapeError, DTypeError (positions not integers), ArgumentError.
    """
    table, positions = as_node(weight), as_node(input)
    if table.rank != 2:
        raise ShapeError(f"weight must be [V, D], not {table.type}")
    rows = GATHER(table, positions, axis=0, mode="error")
    if padding_idx is None:
        return rows
    count = table.shape[0]
    if isinstance(padding_idx, bool) or not -count <= padding_idx < count:
        raise ArgumentError(f"padding_idx {padding_idx} is not a row of {table.type}"
                           )
    padding = EQ(positions, filled(padding_idx % count, positions.tensor))
    frozen = spread(padding, rows.shape, tuple(range(padding.rank)))
    return SELECT(frozen, STOP_GRADIENT(rows), rows)
