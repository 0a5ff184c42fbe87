"""Attention for users: PyTorch's function, and the general ones."""

from __future__ import annotations

from math import prod, sqrt
from typing import Any, NamedTuple

from rlx_py.ir.base.errors import ArgumentError, ShapeError
from rlx_py.ir.base.types import u32
from rlx_py.ir.nodes.node import Node
from rlx_py.ir.ops.making.arguments import integer, real
from rlx_py.ir.ops.making.beside import Key
from rlx_py.ir.ops.making.located import located
from rlx_py.ir.ops.nn.attention.attention import ATTENTION, FLASH_ATTENTION
from rlx_py.ir.ops.nn.attention.heads import heads_apart, heads_together
from rlx_py.ir.ops.nn.attention.scores import GIVEN, MASKS, ORDERS
from rlx_py.ir.ops.operands.operand import as_node, broadcast_shape, broadcast_to, convert, operands
from rlx_py.ir.ops.primitive.compare import AND, GE
from rlx_py.ir.ops.primitive.elementwise import fill
from rlx_py.ir.ops.primitive.movement import reshaped

# ---- the general functions -------------------------------------------------------------------


@located
def attention(q: Any, k: Any, v: Any, attn_mask: Any = None, *, mask: str = "none",
              bias: Any = None, key_mask: Any = None, window: int | None = None,
              rlx_window: bool = False, causal_align: str = "bottom_right",
              scale: float | None = None, softcap: float | None = None,
              num_heads: int | None = None, dropout_p: float = 0.0,
              dropout_key: Key = None) -> Node:
    """softmax(mask(scale·Q Kᵀ))·V of q[B, H, Sq, D], k[B, Hkv, Sk, D], v[B, Hkv, Sk, Dv].

    Query head h reads head h // (H/Hkv) of k and v. With num_heads = H all three are [B, S, H·D]
    (Hkv·D), and so is the result. scale None is 1/√D. softcap c makes c·tanh(u/c) of u = scale·QKᵀ.

    mask: "none"; "causal": query i sees keys up to i + Sk − Sq (causal_align="top_left": up to i);
    "sliding_window": of those the last `window` (one more with rlx_window); "custom": where
    attn_mask is true, or ≥ 0.5 if it is numbers; "bias": attn_mask is added and has a gradient.
    Beside the first three attn_mask may be bools, with any bias is added, and key_mask[B, Sk] is
    true for keys that count: a key is seen where all of them let it. attn_mask and bias broadcast
    to [B, H, Sq, Sk]; one of shape [B, Sk] is for keys alone, unless it could be [Sq, Sk] too. A
    query that sees no key gives 0 and receives gradient 0. dropout_p drops elements of the softmax,
    by a key (u32[2]) of its own. f16 and bf16 compute in f32.

    Raises ShapeError, DTypeError, ArgumentError (attributes; a mask that is missing or unused).
    """
    nodes, attrs = _prepared(q, k, v, num_heads, _Masks(attn_mask, mask, bias, key_mask),
                             _window(window, rlx_window), causal_align, scale, softcap, dropout_p,
                             dropout_key)
    y = ATTENTION(*nodes, **attrs)
    return y if num_heads is None else heads_together(y)


@located
def flash_attention(q: Any, k: Any, v: Any, attn_mask: Any = None, *, mask: str = "none",
                    bias: Any = None, key_mask: Any = None, window: int | None = None,
                    rlx_window: bool = False, causal_align: str = "bottom_right",
                    scale: float | None = None, softcap: float | None = None,
                    num_heads: int | None = None, dropout_p: float = 0.0,
                    dropout_key: Key = None) -> tuple[Node, Node]:
    """(O, LSE): `attention`, and log Σ exp of the masked scores, [B, H, Sq] (f32 for f16, bf16).

    The backward pass computes the probabilities again from LSE: they are not kept from the forward
    to the backward pass. LSE is −inf, with gradient 0, for a query that sees no key.
    """
    nodes, attrs = _prepared(q, k, v, num_heads, _Masks(attn_mask, mask, bias, key_mask),
                             _window(window, rlx_window), causal_align, scale, softcap, dropout_p,
                             dropout_key)
    y, lse = FLASH_ATTENTION(*nodes, **attrs)
    return (y if num_heads is None else heads_together(y)), lse


class _Masks(NamedTuple):
    """What a user gave to mask scores."""

    attn_mask: Any
    mask: str
    bias: Any
    key_mask: Any

    def operands(self, q: Node, k: Node) -> tuple[str, list[Node]]:
        """The kinds of an attention op's mask, and its operands: a custom mask, a bias."""
        if self.mask not in MASKS:
            raise ArgumentError(f"mask {self.mask!r} is not one of {', '.join(MASKS)}")
        kinds = [self.mask] if self.mask in ORDERS else []
        keep, bias = self._given(q)
        tail = (q.shape[0], q.shape[1], q.shape[2], k.shape[2])
        kept = [] if keep is None else [_of_four_axes("attn_mask", keep, tail)]
        if self.key_mask is not None:
            keys = _keep(as_node(self.key_mask))
            if keys.shape != (tail[0], tail[3]):
                raise ShapeError(f"key_mask must be {(tail[0], tail[3])}, not {keys.type}")
            kept.append(reshaped(keys, (tail[0], 1, 1, tail[3])))
        found = [_both(*kept)] if len(kept) == 2 else kept
        kinds += ["custom"] * len(found)
        if bias is not None:
            kinds.append("bias")
            found.append(_of_four_axes("bias", bias, tail))
        return "+".join(kinds) or "none", found

    def _given(self, q: Node) -> tuple[Node | None, Node | None]:
        """The mask that keeps, and the bias."""
        keep, bias = self.attn_mask, self.bias
        if self.mask in GIVEN and keep is None:
            raise ArgumentError(f"mask={self.mask!r} needs attn_mask")
        if self.mask == "bias":
            if bias is not None:
                raise ArgumentError("mask='bias' takes attn_mask as the bias: give one of the two")
            keep, bias = None, keep
        m = None if keep is None else as_node(keep)
        if m is not None and self.mask != "custom" and m.dtype.kind != "bool":
            raise ArgumentError(f"attn_mask of {m.dtype} beside mask={self.mask!r}: bools keep "
                                "keys; numbers to add are bias=")
        return (None if m is None else _keep(m),
                None if bias is None else convert(as_node(bias, q.dtype), q.dtype))


def _of_four_axes(what: str, m: Node, full: tuple[int, ...]) -> Node:
    """A mask as [B or 1, H or 1, Sq or 1, Sk or 1]."""
    batch, _, queries, keys = full
    if m.shape == (batch, keys) and batch != 1:
        if batch == queries:
            raise ShapeError(f"{what} {m.type} may be [B, Sk] or [Sq, Sk], which are alike here: "
                             f"give it four axes, or key_mask=")
        return reshaped(m, (batch, 1, 1, keys))
    if m.rank > 4 or any(a not in (1, b) for a, b in zip(m.shape[::-1], full[::-1], strict=False)):
        raise ShapeError(f"{what} {m.type} does not broadcast to the scores {full}")
    return reshaped(m, (1,) * (4 - m.rank) + m.shape)


def _both(a: Node, b: Node) -> Node:
    shape = broadcast_shape(a.shape, b.shape)
    return AND(broadcast_to(a, shape), broadcast_to(b, shape))


def _window(window: int | None, rlx_window: bool) -> int | None:
    return None if window is None else integer("window", window) + bool(rlx_window)


def _prepared(q: Any, k: Any, v: Any, num_heads: int | None, masks: _Masks, window: int | None,
              causal_align: str, scale: float | None, softcap: float | None, dropout_p: float,
              dropout_key: Key) -> tuple[list[Node], dict[str, Any]]:
    """The operands and attributes of an attention op."""
    q, k, v = operands(q, k, v)
    if num_heads is not None:
        q, k, v = _with_heads(q, k, v, integer("num_heads", num_heads))
    for n in (q, k):
        if n.rank != 4:
            raise ShapeError(f"attention takes [B, H, S, D], or [B, S, H·D] with num_heads, not "
                             f"{n.type}")
    kinds, given = masks.operands(q, k)
    attrs: dict[str, Any] = {
        "mask": kinds, "window": window, "causal_align": causal_align,
        "scale": 1 / sqrt(max(q.shape[3], 1)) if scale is None else real("scale", scale),
        "softcap": None if softcap is None else real("softcap", softcap),
        "dropout": real("dropout_p", dropout_p)}
    return [q, k, v, *given, *_dropout_keys(attrs["dropout"], dropout_key)], attrs


def _dropout_keys(p: float, key: Key) -> list[Node]:
    if not p:
        return []
    if key is None:
        raise ArgumentError("dropout needs dropout_key: rlx.random.key(seed), or "
                            "rlx.random.key_state")
    return [as_node(key, u32)]


def _with_heads(q: Node, k: Node, v: Node, heads: int) -> tuple[Node, Node, Node]:
    for n in (q, k, v):
        if n.rank != 3:
            raise ShapeError(f"with num_heads the operands are [B, S, heads·D], not {n.type}")
    q = heads_apart(q, heads)
    depth = q.shape[3]
    shared = k.shape[2] // depth if depth else heads
    if shared * depth != k.shape[2]:
        raise ShapeError(f"{k.type} does not split into heads of {depth}")
    return q, heads_apart(k, shared), heads_apart(v, shared)


def _keep(m: Node) -> Node:
    """Where a mask of bools is true, or one of numbers ≥ 0.5."""
    if m.dtype.kind == "bool":
        return m
    # No integer lies between 0 and 1.
    return GE(m, fill(m, 0.5 if m.dtype.is_float else 1))


# ---- PyTorch's -------------------------------------------------------------------------------


@located
def scaled_dot_product_attention(query: Any, key: Any, value: Any, attn_mask: Any = None,
                                 dropout_p: float = 0.0, is_causal: bool = False,
                                 scale: float | None = None, enable_gqa: bool = False, *,
                                 dropout_key: Key = None) -> Node:
    """softmax(scale·Q Kᵀ + mask)·V of query[…, H, L, E], key[…, Hkv, S, E], value[…, Hkv, S, Ev].

    Leading axes broadcast; with enable_gqa query head h reads head h // (H/Hkv). attn_mask,
    broadcastable to [… , H, L, S]: bool is true where a key takes part, float is added. is_causal:
    query i sees keys up to i (top left), of those that attn_mask keeps (PyTorch takes one of the
    two). A query that sees no key gives 0. See `attention` for other masks. dropout_p needs
    dropout_key. Raises ShapeError, DTypeError, ArgumentError (no key).
    """
    q, k, v = operands(query, key, value)
    for n in (q, k, v):
        if n.rank < 2:
            raise ShapeError(f"attention takes at least [L, E], not {n.type}")
    if enable_gqa and min(q.rank, k.rank, v.rank) < 3:
        raise ShapeError(f"enable_gqa needs an axis of heads: {q.type}, {k.type}, {v.type}")
    batch, heads, shared = _leading(q, k, v, enable_gqa)
    q4, k4, v4 = (_four_axes(n, batch, count)
                  for n, count in ((q, heads), (k, shared), (v, shared)))
    keep = bias = None
    if attn_mask is not None:
        m = as_node(attn_mask, q.dtype)
        m4 = _mask_of_four_axes(m, batch, heads, (q.shape[-2], k.shape[-2]))
        keep, bias = (m4, None) if m.dtype.kind == "bool" else (None, m4)
    y = attention(q4, k4, v4, keep, mask="causal" if is_causal else "none", bias=bias,
                  causal_align="top_left", scale=scale, dropout_p=dropout_p,
                  dropout_key=dropout_key)
    return reshaped(y, (*batch, *heads, *y.shape[2:]))


Sizes = tuple[int, ...]


def _leading(q: Node, k: Node, v: Node, enable_gqa: bool) -> tuple[Sizes, Sizes, Sizes]:
    """Sizes before the heads, of the query's heads and of the key's; heads () where there are none.
    """
    if enable_gqa:
        batch = broadcast_shape(*(n.shape[:-3] for n in (q, k, v)))
        return batch, q.shape[-3:-2], broadcast_shape(k.shape[-3:-2], v.shape[-3:-2])
    lead = broadcast_shape(*(n.shape[:-2] for n in (q, k, v)))
    heads = lead[-1:] if len(lead) > 1 else ()
    return lead[:len(lead) - len(heads)], heads, heads


def _four_axes(x: Node, batch: Sizes, heads: Sizes) -> Node:
    whole = broadcast_to(x, (*batch, *heads, *x.shape[-2:]))
    return reshaped(whole, (prod(batch), prod(heads), *x.shape[-2:]))


def _mask_of_four_axes(m: Node, batch: Sizes, heads: Sizes, tail: Sizes) -> Node:
    """[B or 1, H or 1, L or 1, S or 1], repeated only where its batch axes are neither all there
    nor all of size 1."""
    full = (*batch, *heads, *tail)
    if m.rank > len(full) or broadcast_shape(m.shape, full) != full:
        raise ShapeError(f"attn_mask {m.type} does not broadcast to {full}")
    shape = (1,) * (len(full) - m.rank) + m.shape
    lead, rest = shape[:len(batch)], shape[len(batch):]
    rest = rest if heads else (1, *rest)
    if any(d != 1 for d in lead):
        m = broadcast_to(m, (*batch, *shape[len(batch):]))
        return reshaped(m, (prod(batch), *rest))
    return reshaped(m, (1, *rest))
