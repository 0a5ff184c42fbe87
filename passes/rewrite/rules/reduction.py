"""Reductions and products over fewer elements, and transposes taken into a contract."""

from __future__ import annotations

from math import prod

from rlx_py.ir.nodes.node import Node
from rlx_py.ir.ops.primitive.contract import CONTRACT, dims_of
from rlx_py.ir.ops.primitive.elementwise import MUL, NEG, fill
from rlx_py.ir.ops.primitive.movement import (
    BROADCAST,
    RESHAPE,
    TRANSPOSE,
    permuted,
    reshaped,
    spread,
)
from rlx_py.ir.ops.primitive.reduce import (
    ALL,
    ANY,
    REDUCE_MAX,
    REDUCE_MIN,
    REDUCE_PROD,
    REDUCE_SUM,
    kept_axes,
)
from rlx_py.passes.rewrite.rules.rule import largest_exact, rule


@rule(REDUCE_SUM, REDUCE_PROD, REDUCE_MAX, REDUCE_MIN, ANY, ALL)
def reduce_units(n: Node) -> Node | None:  # reducing no axis, or only sizes of 1 -> reshape
    x = n.inputs[0]
    return reshaped(x, n.shape) if all(x.shape[a] == 1 for a in n.attrs["axes"]) else None


@rule(REDUCE_SUM, REDUCE_PROD, REDUCE_MAX, REDUCE_MIN, ANY, ALL)
def merge_reductions(n: Node) -> Node | None:  # Σ_b Σ_a x -> Σ_{a,b} x
    x = n.inputs[0]
    if x.op is not n.op:
        return None
    source = x.inputs[0]
    kept = kept_axes(source.rank, x.attrs["axes"])
    axes = (*x.attrs["axes"], *(kept[a] for a in n.attrs["axes"]))
    return n.op(source, axes=tuple(sorted(axes)))


@rule(REDUCE_SUM, REDUCE_PROD, REDUCE_MAX, REDUCE_MIN, ANY, ALL)
def reduce_of_transpose(n: Node) -> Node | None:  # Σ xᵀ -> (Σ x)ᵀ
    x = n.inputs[0]
    if x.op is not TRANSPOSE:
        return None
    axes = x.attrs["axes"]
    left = [axes[a] for a in kept_axes(x.rank, n.attrs["axes"])]
    inner = n.op(x.inputs[0], axes=tuple(sorted(axes[a] for a in n.attrs["axes"])))
    return permuted(inner, tuple(sorted(left).index(a) for a in left))


@rule(REDUCE_SUM, REDUCE_PROD, REDUCE_MAX, REDUCE_MIN, ANY, ALL)
def reduce_all_of_reshape(n: Node) -> Node | None:  # Σ over all of reshape(x) -> Σ over all of x
    x = n.inputs[0]
    if x.op is not RESHAPE or len(n.attrs["axes"]) != x.rank:
        return None
    return n.op(x.inputs[0], axes=tuple(range(x.inputs[0].rank)))


@rule(REDUCE_SUM, REDUCE_MAX, REDUCE_MIN, ANY, ALL)
def reduce_of_broadcast(n: Node) -> Node | None:  # Σ over k copies of x -> k · x; max -> x
    x = n.inputs[0]
    if x.op is not BROADCAST:
        return None
    source, place = x.inputs[0], x.attrs["axes"]
    copies = prod(x.shape[a] for a in n.attrs["axes"] if a not in place)
    if not x.size or (n.op is REDUCE_SUM and copies > largest_exact(n.dtype)):
        return None
    kept = kept_axes(x.rank, n.attrs["axes"])
    inner = tuple(i for i, a in enumerate(place) if a in n.attrs["axes"])
    found = n.op(source, axes=inner) if inner else source
    found = spread(found, n.shape, tuple(kept.index(a) for a in place if a in kept))
    return MUL(found, fill(n, copies)) if n.op is REDUCE_SUM and copies != 1 else found


@rule(REDUCE_SUM)
def sum_of_neg(n: Node) -> Node | None:  # Σ −x -> −Σ x
    x = n.inputs[0]
    return NEG(REDUCE_SUM(x.inputs[0], axes=n.attrs["axes"])) if x.op is NEG else None


@rule(CONTRACT)
def contract_of_transpose(n: Node) -> Node | None:  # aᵀ·b -> a·b over a's own axes
    for side in (0, 1):
        x = n.inputs[side]
        if x.op is not TRANSPOSE:
            continue
        axes = x.attrs["axes"]
        used = {*n.attrs["batch"][side], *n.attrs["contract"][side]}
        free = [axes[i] for i in range(x.rank) if i not in used]
        if free != sorted(free):
            continue
        inputs, batch, contract = list(n.inputs), list(n.attrs["batch"]), list(n.attrs["contract"])
        inputs[side] = x.inputs[0]
        batch[side] = tuple(axes[i] for i in batch[side])
        contract[side] = tuple(axes[i] for i in contract[side])
        return CONTRACT(*inputs, batch=tuple(batch), contract=tuple(contract))
    return None


@rule(TRANSPOSE)
def transpose_of_contract(n: Node) -> Node | None:  # (a·b)ᵀ -> bᵀ·aᵀ, where m and n change places
    x = n.inputs[0]
    if x.op is not CONTRACT:
        return None
    a, b = x.inputs
    d = dims_of(a.rank, b.rank, x.attrs["batch"], x.attrs["contract"])
    lead, m = len(d.a_batch), len(d.a_free)
    swapped = (*range(lead), *range(lead + m, x.rank), *range(lead, lead + m))
    if n.attrs["axes"] != swapped:
        return None
    return CONTRACT(b, a, batch=(d.b_batch, d.a_batch), contract=(d.b_contract, d.a_contract))


RULES = (reduce_units, merge_reductions, reduce_of_transpose, reduce_all_of_reshape,
         reduce_of_broadcast, sum_of_neg, contract_of_transpose, transpose_of_contract)
