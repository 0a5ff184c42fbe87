"""Heads laid out for attention, and batched products of three axes."""

from __future__ import annotations

from typing import Any

from rlx_py.ir.base.errors import ArgumentError, ShapeError
from rlx_py.ir.base.types import require_rank
from rlx_py.ir.nodes.node import Node
from rlx_py.ir.ops.making.arguments import integer
from rlx_py.ir.ops.making.located import located
from rlx_py.ir.ops.operands.operand import as_node, operands
from rlx_py.ir.ops.primitive.contract import CONTRACT
from rlx_py.ir.ops.primitive.movement import permuted, reshaped


def _parts(what: str, size: int, count: int) -> int:
    if count < 1 or size % count:
        raise ArgumentError(f"{size} {what} do not split into {count}")
    return size // count


def heads_apart(x: Node, heads: int) -> Node:
    """[B, S, H·D] as [B, H, S, D]."""
    batch, length, width = x.shape
    depth = _parts("features", width, heads)
    return permuted(reshaped(x, (batch, length, heads, depth)), (0, 2, 1, 3))


def heads_together(x: Node) -> Node:
    """[B, H, S, D] as [B, S, H·D]."""
    batch, heads, length, depth = x.shape
    return reshaped(permuted(x, (0, 2, 1, 3)), (batch, length, heads * depth))


@located
def split_heads(input: Any, num_heads: int, batch: int | None = None) -> Node:
    """[B, S, D] as [B·H, S, D/H]: out[b·H + h, s, p] = in[b, s, h·D/H + p].

    An input of rank 2 is [B·S, D] and needs `batch`, B. Raises ShapeError, ArgumentError (sizes
    that do not split).
    """
    x, heads = as_node(input), integer("num_heads", num_heads)
    if x.rank == 2:
        if batch is None:
            raise ArgumentError(f"{x.type} holds rows of several sequences: give batch")
        count = integer("batch", batch)
        x = reshaped(x, (count, _parts("rows", x.shape[0], count), x.shape[1]))
    if x.rank != 3:
        raise ShapeError(f"heads are split from [B, S, D] or [B·S, D], not {x.type}")
    if batch not in (None, x.shape[0]):
        raise ArgumentError(f"{x.type} is not a batch of {batch}")
    apart = heads_apart(x, heads)
    return reshaped(apart, (x.shape[0] * heads, *apart.shape[2:]))


@located
def merge_heads(input: Any, num_heads: int) -> Node:
    """[B·H, S, P] as [B·S, H·P], the inverse of `split_heads` of rows.

    Raises ShapeError, ArgumentError (sizes that do not split).
    """
    x, heads = as_node(input), integer("num_heads", num_heads)
    if x.rank != 3:
        raise ShapeError(f"heads are merged from [B·H, S, P], not {x.type}")
    rows, length, depth = x.shape
    batch = _parts("matrices", rows, heads)
    whole = heads_together(reshaped(x, (batch, heads, length, depth)))
    return reshaped(whole, (batch * length, heads * depth))


def _batched(a: Any, b: Any, left: int, right: int) -> Node:
    x, y = operands(a, b)
    for n in (x, y):
        require_rank("a batched product", n.tensor, 3)
    return CONTRACT(x, y, batch=((0,), (0,)), contract=((left,), (right,)))


@located
def bmm(input: Any, mat2: Any) -> Node:
    """A[N, M, K]·B[N, K, P] of each of N pairs. Raises ShapeError, DTypeError (bool)."""
    return _batched(input, mat2, 2, 1)


@located
def bmm_nt(input: Any, mat2: Any) -> Node:
    """A[N, M, K]·B[N, P, K]ᵀ; otherwise as `bmm`."""
    return _batched(input, mat2, 2, 2)


@located
def bmm_tn(input: Any, mat2: Any) -> Node:
    """A[N, K, M]ᵀ·B[N, K, P]; otherwise as `bmm`."""
    return _batched(input, mat2, 1, 1)
