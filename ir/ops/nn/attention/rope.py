"""Rotary position embedding. Formula: Su et al. 2021; pairs as in GPT-NeoX or GPT-J."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlx_py.ir.base.bounds import Size
from rlx_py.ir.base.errors import ArgumentError, DTypeError, ShapeError
from rlx_py.ir.base.types import TensorType, Type, normalize_axis
from rlx_py.ir.graph.transforms import AD
from rlx_py.ir.nodes.node import Node
from rlx_py.ir.ops.making.arguments import integer, require_floats, require_shape
from rlx_py.ir.ops.making.beside import Positions
from rlx_py.ir.ops.making.constant import CONSTANT, iota
from rlx_py.ir.ops.making.families import composite
from rlx_py.ir.ops.making.located import located
from rlx_py.ir.ops.making.rows import before_last
from rlx_py.ir.ops.numpy.creation import arange
from rlx_py.ir.ops.numpy.indexing import take
from rlx_py.ir.ops.numpy.shaping import expand_dims
from rlx_py.ir.ops.operands.operand import as_node, operands
from rlx_py.ir.ops.operands.precision import in_compute_type
from rlx_py.ir.ops.primitive.compare import EQ
from rlx_py.ir.ops.primitive.elementwise import NEG, SELECT, fill
from rlx_py.ir.ops.primitive.movement import CONCAT, REVERSE, reshaped, sliced, spread
from rlx_py.ir.ops.primitive.reduce import total

STYLES = ("neox", "gptj")


def _infer(x: TensorType, cos: TensorType, sin: TensorType, *, axis: int, style: str) -> Type:
    require_floats("rope", x, cos, sin)
    if style not in STYLES:
        raise ArgumentError(f"style {style!r} is not one of {', '.join(STYLES)}")
    if x.rank < 2:
        raise ShapeError(f"rope needs an axis of positions and one of features, not {x}")
    if not 0 <= axis < x.rank - 1:
        raise ArgumentError(f"positions cannot lie along axis {axis} of {x}")
    length = x.shape[axis]
    if cos.rank == 3 and not axis:
        raise ShapeError(f"tables {cos} for each element of a batch need a batch axis in {x}")
    lead = (length,) if cos.rank != 3 else (x.shape[0], length)
    if cos.rank not in (2, 3) or cos.shape[:-1] != lead:
        raise ShapeError(f"cos must be [{', '.join(map(str, lead))}, n_rot/2], not {cos}")
    require_shape("sin", sin, cos.shape)
    if 2 * cos.shape[-1] > x.shape[-1]:
        raise ShapeError(f"{cos.shape[-1]} pairs do not fit the {x.shape[-1]} features of {x}")
    return x


def _table_axes(rank: int, axis: int) -> tuple[int, ...]:
    """The axes of x along which a table of this rank lies, but for the last of the table."""
    return (axis,) if rank == 2 else (0, axis)


class Pairs:
    """The first features of x, which rotate, as pairs: an axis of 2 before (neox) or behind (gptj)
    an axis that counts the pairs. Angles lie along some axes of x and count the pairs last."""

    def __init__(self, x: Node, pairs: int, axes: tuple[int, ...], style: str) -> None:
        self.lead, self.pairs = x.shape[:-1], pairs
        self.two = x.rank - 1 + (style == "gptj")
        self.shape = (*self.lead, *((2, pairs) if style == "neox" else (pairs, 2)))
        self.table = (*axes, x.rank - (style == "gptj"))

    def apart(self, x: Node) -> Node:
        """The features that rotate, as pairs."""
        stop = (*self.lead, 2 * self.pairs)
        return reshaped(sliced(x, (0,) * x.rank, stop, (1,) * x.rank), self.shape)

    def together(self, pairs: Node, x: Node) -> Node:
        """Pairs as features, with those of x that do not rotate."""
        turned = reshaped(pairs, (*self.lead, 2 * self.pairs))
        if turned.shape == x.shape:
            return turned
        start = (*(0,) * len(self.lead), 2 * self.pairs)
        return CONCAT(turned, sliced(x, start, x.shape, (1,) * x.rank), axis=x.rank - 1)

    def along(self, table: Node) -> Node:
        """cos or sin at every pair."""
        return spread(table, self.shape, self.table)

    def summed(self, x: Node) -> Node:
        """The transpose of `along`."""
        return total(x, tuple(i for i in range(x.rank) if i not in self.table))

    def crossed(self, pairs: Node) -> Node:
        """(a, b) as (−b, a): a quarter turn."""
        other = REVERSE(pairs, axes=(self.two,))
        first = iota(self.shape, self.two)
        return SELECT(EQ(first, fill(first, 0)), NEG(other), other)

    def turned(self, x: Node, cos: Node, sin: Node) -> Node:
        """(a, b) of a pair as (a·cos − b·sin, b·cos + a·sin)."""
        pairs = self.apart(x)
        return self.together(pairs * self.along(cos) + self.crossed(pairs) * self.along(sin), x)


@in_compute_type
def _rope(x: Node, cos: Node, sin: Node, *, axis: int, style: str) -> Node:
    return Pairs(x, cos.shape[-1], _table_axes(cos.rank, axis), style).turned(x, cos, sin)


@in_compute_type
def _table_gradients(dy: Node, x: Node, *, axis: int, style: str, table: tuple[int, ...]
                     ) -> tuple[Node, Node]:
    layout = Pairs(x, table[-1], _table_axes(len(table), axis), style)
    ct, p = layout.apart(dy), layout.apart(x)
    return layout.summed(ct * p), layout.summed(ct * layout.crossed(p))


def _vjp(node: Node, ct: Node, ad: AD) -> Sequence[Node | None]:
    """Rotation back, by −sin."""
    x, cos, sin = node.inputs
    return (ROPE(ct, cos, NEG(sin), **node.attrs),
            *_table_gradients(ct, x, table=cos.shape, **node.attrs))


ROPE = composite("rope", _infer, _rope, vjp=_vjp, rows=before_last)


@located
def rope(input: Any, cos: Any, sin: Any, *, head_dim: int | None = None, n_rot: int | None = None,
         style: str = "neox", axis: int = -2, positions: Positions = None,
         offset: Positions = 0) -> Node:
    """Each pair (a, b) of features at position s turned: (a·cos − b·sin, b·cos + a·sin).

    cos, sin: [S, n_rot/2], one entry a pair; S is the length of `axis`. The first n_rot features
    turn, the others are copied: "neox" pairs i with i + n_rot/2, "gptj" 2i with 2i + 1. With
    head_dim the last axis holds heads of that size one after another ([B, S, H·D], axis 1 or −2).

    Tables may be longer, [T, n_rot/2], where the elements along the axis are not positions 0 … S−1:
    offset (an int, or an integer scalar, [B] for each element of the first axis) is the position of
    the first; positions, integers [S] or [B, S], are those of all, to which offset is added. One
    known as the graph is built is checked against T, others are clipped to it.
    Raises ShapeError, DTypeError (not floats), ArgumentError.
    """
    x, c, s = operands(input, cos, sin)
    if c.rank == 2 and n_rot not in (None, 2 * c.shape[1]):
        raise ArgumentError(f"n_rot {n_rot} with tables of {c.shape[1]} pairs")
    place = normalize_axis(axis, x.rank)
    if positions is not None or isinstance(offset, Node) or offset != 0:
        if c.rank != 2 or c.shape != s.shape:
            raise ShapeError(f"tables of positions are [T, n_rot/2], not {c.type} and {s.type}")
        c, s = (_looked_up(t, x.shape[place], positions, offset) for t in (c, s))
    if head_dim is None:
        return ROPE(x, c, s, axis=place, style=style)
    depth = integer("head_dim", head_dim)
    if depth < 1 or not x.rank or x.shape[-1] % depth:
        raise ArgumentError(f"the last axis of {x.type} does not hold heads of {head_dim}")
    heads = reshaped(x, (*x.shape[:-1], x.shape[-1] // depth, depth))
    return reshaped(ROPE(heads, c, s, axis=place, style=style), x.shape)


def _looked_up(table: Node, length: Size, positions: Any, offset: Any) -> Node:
    """The entries of a table for [S], or for [B, S] positions."""
    if positions is None and isinstance(offset, int):
        if not 0 <= offset <= table.shape[0] - length:
            raise ShapeError(f"positions {offset} … {offset + length - 1} are not all in the table "
                             f"{table.type}")
        return sliced(table, (offset, 0), (offset + length, table.shape[1]), (1, 1))
    first = as_node(offset)
    where = arange(length) if positions is None else as_node(positions)
    for n in (where, first):
        if not n.dtype.is_int:
            raise DTypeError(f"positions and offsets are integers, not {n.type}")
    if where.rank not in (1, 2) or where.shape[-1] != length or first.rank > 1:
        raise ShapeError(f"positions are [{length}] or [B, {length}], and the offset [] or [B], "
                         f"not {where.type} and {first.type}")
    if where.op is CONSTANT and first.op is CONSTANT and not first.rank:
        _check_known(where.attrs["value"].array, first.attrs["value"].array, table)
    return take(table, where + (expand_dims(first, -1) if first.rank else first), 0, mode="clip")


def _check_known(positions: Any, offset: Any, table: Node) -> None:
    if not positions.size:
        return
    low, high = (int(v) + int(offset) for v in (positions.min(), positions.max()))
    if low < 0 or high >= table.shape[0]:
        raise ShapeError(f"positions {low} … {high} are not all in the table {table.type}")
