"""Rules of sliding windows."""

from __future__ import annotations

from rlx_py.ir.base.types import TensorType
from rlx_py.ir.nodes.node import Node
from rlx_py.ir.ops.primitive.movement import filled, padded, permuted, reshaped
from rlx_py.ir.ops.primitive.windows import FOLD
from rlx_py.passes.rewrite.rules.rule import rule


@rule(FOLD)
def disjoint_fold(n: Node) -> Node | None:  # windows that never overlap only move their elements
    size, stride, dilation = (n.attrs[k] for k in ("size", "stride", "dilation"))
    if any(k > 1 and (d != 1 or s < k) for k, s, d in zip(size, stride, dilation, strict=True)):
        return None
    spatial = len(size)
    x = n.inputs[0]
    lead = x.rank - 2 * spatial
    zero = filled(0, TensorType(n.dtype, ()))
    none = (0,) * x.rank
    gaps = (0,) * (lead + spatial) + tuple(s - k for s, k in zip(stride, size, strict=True))
    spread = padded(x, zero, none, gaps, none)
    pairs = tuple(a for i in range(spatial) for a in (lead + i, lead + spatial + i))
    woven = permuted(spread, (*range(lead), *pairs))
    counts = x.shape[lead: lead + spatial]
    covered = tuple(c * s for c, s in zip(counts, stride, strict=True))
    flat = reshaped(woven, (*x.shape[:lead], *covered))
    rest = (0,) * lead + tuple(
        d - c for d, c in zip(n.attrs["shape"], covered, strict=True))
    none = (0,) * (lead + spatial)
    return padded(flat, zero, none, rest, none)


RULES = (disjoint_fold,)
