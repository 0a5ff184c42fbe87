"""Attention scores: scaled, capped and masked products of queries and keys, in two orders of axes.

Query heads lie as [B, Hkv, G, Sq, D], G of them to a head of the keys [B, Hkv, Sk, D] and values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite
from typing import TypeVar

from rlx_py.ir.base.errors import ArgumentError, DTypeError, ShapeError
from rlx_py.ir.base.types import TensorType, require_rank, u32
from rlx_py.ir.nodes.node import Node
from rlx_py.ir.ops.making.arguments import require_floats
from rlx_py.ir.ops.making.constant import iota
from rlx_py.ir.ops.nn.dropout import DROPOUT
from rlx_py.ir.ops.operands.operand import broadcast_to
from rlx_py.ir.ops.primitive.compare import AND, GT, LE
from rlx_py.ir.ops.primitive.contract import CONTRACT
from rlx_py.ir.ops.primitive.elementwise import SELECT, TANH, fill
from rlx_py.ir.ops.primitive.movement import permuted, reshaped, spread
from rlx_py.ir.ops.primitive.reduce import total

T = TypeVar("T")
ORDERS = ("causal", "sliding_window")  # which keys a query may see by their positions
GIVEN = ("custom", "bias")  # masks that are operands
MASKS = ("none", *ORDERS, *GIVEN)
COMBINED = tuple("+".join(kinds) for order in ((), *((o,) for o in ORDERS))
                 for given in ((), ("custom",), ("bias",), GIVEN) if (kinds := (*order, *given)))
ALIGNMENTS = ("bottom_right", "top_left")
BATCH = ((0, 1), (0, 1))


@dataclass(frozen=True)
class Scoring:
    """The attributes of an attention op: how scores, and the weights of values, are made.

    mask: "none", or kinds joined by "+": an order, then "custom", then "bias", as in
    "causal+custom"; a key counts where all of them let it.
    """

    mask: str
    window: int | None
    causal_align: str
    scale: float
    softcap: float | None
    dropout: float

    def check(self) -> None:
        """Raise ArgumentError for values that have no meaning."""
        if self.mask != "none" and self.mask not in COMBINED:
            raise ArgumentError(f"mask {self.mask!r} is not one of {', '.join(MASKS)}, nor several "
                                "of them in this order joined by '+'")
        if self.causal_align not in ALIGNMENTS:
            raise ArgumentError(
                f"causal_align {self.causal_align!r} is not one of {', '.join(ALIGNMENTS)}")
        if (self.window is not None) != self.has("sliding_window"):
            raise ArgumentError("a window belongs to mask='sliding_window', which needs one")
        if self.window is not None and self.window < 1:
            raise ArgumentError(f"a window holds at least 1 key, not {self.window}")
        if not isfinite(self.scale):
            raise ArgumentError(f"scale must be finite, not {self.scale}")
        if self.softcap is not None and not (isfinite(self.softcap) and self.softcap > 0):
            raise ArgumentError(f"softcap must be positive and finite, not {self.softcap}")
        if not 0 <= self.dropout <= 1:
            raise ArgumentError(f"a probability is in 0 … 1, not {self.dropout}")

    def has(self, kind: str) -> bool:
        """Whether the mask is of this kind, among others."""
        return kind in self.mask.split("+")

    @property
    def ordered(self) -> bool:
        """Whether positions decide which keys a query may see."""
        return any(map(self.has, ORDERS))

    def split(self, rest: Sequence[T]) -> tuple[T | None, T | None, T | None]:
        """(custom mask, bias, key of dropout) among the operands behind q, k and v; None where
        there is none."""
        present = (self.has("custom"), self.has("bias"), self.dropout > 0)
        if len(rest) != sum(present):
            raise ArgumentError(f"mask={self.mask!r} and dropout={self.dropout} take "
                                f"{sum(present)} further operands, not {len(rest)}")
        given = iter(rest)
        custom, bias, key = (next(given) if there else None for there in present)
        return custom, bias, key


@dataclass(frozen=True)
class Order:
    """Where the axes G, Sq and Sk of the scores lie, behind B and Hkv."""

    queries: tuple[int, int]
    keys: int

    def product(self, x: Node, y: Node) -> Node:
        """⟨x, y⟩ over the last axis of every x[B, Hkv, G, Sq, :] and y[B, Hkv, Sk, :]."""
        if self is QUERIES_FIRST:
            return CONTRACT(x, y, batch=BATCH, contract=((4,), (3,)))
        return CONTRACT(y, x, batch=BATCH, contract=((3,), (4,)))

    def over_keys(self, w: Node, y: Node) -> Node:
        """[B, Hkv, G, Sq, D] of weights in this order and y[B, Hkv, Sk, D]."""
        return CONTRACT(w, y, batch=BATCH, contract=((self.keys,), (2,)))

    def over_queries(self, w: Node, x: Node) -> Node:
        """[B, Hkv, Sk, D] of weights in this order and x[B, Hkv, G, Sq, D]."""
        return CONTRACT(w, x, batch=BATCH, contract=(self.queries, (2, 3)))

    def along_queries(self, x: Node, like: Node) -> Node:
        """x[B, Hkv, G, Sq] repeated for every key."""
        return spread(x, like.shape, (0, 1, *self.queries))

    def arranged(self, x: Node) -> Node:
        """[B, Hkv, G, Sq, Sk] in this order."""
        return x if self is QUERIES_FIRST else permuted(x, (0, 1, 4, 2, 3))

    def restored(self, x: Node) -> Node:
        """[B, Hkv, G, Sq, Sk] of what lies in this order."""
        return x if self is QUERIES_FIRST else permuted(x, (0, 1, 3, 4, 2))


QUERIES_FIRST = Order((2, 3), 4)
KEYS_FIRST = Order((3, 4), 2)


def _grouped_shape(shape: tuple[int, ...], heads: int) -> tuple[int, ...]:
    batch, count, *rest = shape
    split = (1, 1) if count == 1 else (heads, count // max(heads, 1))
    return (batch, *split, *rest)


def grouped(x: Node, heads: int) -> Node:
    """[B, H, …] as [B, heads, H/heads, …]; an operand with one head for all as [B, 1, 1, …]."""
    return reshaped(x, _grouped_shape(x.shape, heads))


def merged(x: Node) -> Node:
    """[B, Hkv, G, …] as [B, H, …]."""
    batch, heads, group, *rest = x.shape
    return reshaped(x, (batch, heads * group, *rest))


def scores(q: Node, k: Node, rest: Sequence[Node], scoring: Scoring, order: Order
           ) -> tuple[Node, Node | None]:
    """Masked scores, and the slope of the cap where there is one; rest: the further operands.

    u = scale·⟨q, k⟩; capped c·tanh(u/c), of slope 1 − tanh²(u/c); then + bias, then −∞ where
    masked.
    """
    s = order.product(q, k)
    if scoring.softcap is None:
        return _masked(s * scoring.scale, rest, scoring, order), None
    t = TANH(s * (scoring.scale / scoring.softcap))
    return _masked(t * scoring.softcap, rest, scoring, order), 1 - t * t


def _masked(s: Node, rest: Sequence[Node], scoring: Scoring, order: Order) -> Node:
    custom, bias = (
        None if x is None else broadcast_to(order.arranged(grouped(x, s.shape[1])), s.shape)
        for x in scoring.split(rest)[:2])
    if bias is not None:
        s = s + bias
    if scoring.ordered:
        seen = _kept(s, scoring, order)
        custom = seen if custom is None else AND(seen, custom)
    return s if custom is None else SELECT(custom, s, fill(s, -inf))


def _kept(s: Node, scoring: Scoring, order: Order) -> Node:
    """Query i sees the keys up to i + Sk − Sq, or up to i; of those the last `window`."""
    query, key = iota(s.shape, order.queries[1]), iota(s.shape, order.keys)
    right = scoring.causal_align == "bottom_right"
    last = query + (s.shape[order.keys] - s.shape[order.queries[1]] if right else 0)
    seen = LE(key, last)
    return seen if scoring.window is None else AND(seen, GT(key, last - scoring.window))


def bias_gradient(ds: Node, shape: tuple[int, ...], order: Order) -> Node:
    """The cotangent of the scores summed over the axes along which a bias was repeated."""
    ds = order.restored(ds)
    mine = _grouped_shape(shape, ds.shape[1])
    spare = tuple(i for i, (a, b) in enumerate(zip(mine, ds.shape, strict=True)) if a != b)
    return reshaped(total(ds, spare), shape)


def dropped(weights: Node, key: Node | None, scoring: Scoring, order: Order) -> Node:
    """Weights kept with probability 1 − dropout and scaled by its inverse, alike in both orders."""
    if key is None:
        return weights
    kept = DROPOUT(order.restored(weights), key, p=scoring.dropout, shared=())
    return order.arranged(kept)


def check_operands(op: str, q: TensorType, k: TensorType, v: TensorType,
                   rest: Sequence[TensorType], scoring: Scoring) -> tuple[int, ...]:
    """The shape of the result, [B, H, Sq, Dv]; a typed error for operands that do not fit."""
    scoring.check()
    require_floats(op, q, k, v)
    for t in (q, k, v):
        require_rank(op, t, 4)
    batch, heads, queries, depth = q.shape
    shared, keys = k.shape[1:3]
    if k.shape[:1] != (batch,) or k.shape[3] != depth:
        raise ShapeError(f"keys {k} do not have the batch and head size of queries {q}")
    if v.shape[:3] != k.shape[:3]:
        raise ShapeError(f"values {v} do not have the batch, heads and length of keys {k}")
    if heads % shared if shared else heads:
        raise ShapeError(f"{heads} query heads are no multiple of {shared} heads of keys")
    custom, bias, key = scoring.split(rest)
    if custom is not None and custom.dtype.kind != "bool":
        raise DTypeError(f"a custom mask must be bool, not {custom}")
    if bias is not None:
        require_floats("bias", q, bias)
    for m in (custom, bias):
        if m is not None:
            _check_mask(m, (batch, heads, queries, keys))
    if key is not None and (key.dtype is not u32 or key.shape != (2,)):
        raise DTypeError(f"a key is u32[2], not {key}")
    return batch, heads, queries, v.shape[3]


def _check_mask(m: TensorType, shape: tuple[int, ...]) -> None:
    if m.rank != 4 or any(a not in (1, b) for a, b in zip(m.shape, shape, strict=True)):
        raise ShapeError(f"the mask {m} does not broadcast to the scores {shape}")
