"""Products of a convolution with one input channel a group: as sums over broadcasts.

A contraction of so few rows would spend its time in laying windows out; these read each element
where it lies. Shapes: windows[N, C, P…, K…], w[C·M, 1, K…], dy[N, C·M, P…].
"""

from __future__ import annotations

from rlx_py.ir.nodes.node import Node
from rlx_py.ir.ops.operands.precision import in_compute_type
from rlx_py.ir.ops.primitive.elementwise import MUL
from rlx_py.ir.ops.primitive.movement import reshaped, spread
from rlx_py.ir.ops.primitive.reduce import total

Sizes = tuple[int, ...]

# Beyond this many outputs a channel a contraction reuses what it lays out.
MOST_OUTPUTS = 4


def depthwise(w: Sizes, groups: int) -> bool:
    """Whether a kernel of this shape has one input channel and few outputs a group."""
    return groups > 1 and w[1] == 1 and w[0] <= MOST_OUTPUTS * groups


def _axes(rank: int, first: int) -> tuple[Sizes, Sizes]:
    """Axes of P and of K when P starts at `first`."""
    return (tuple(range(first, first + rank)), tuple(range(first + rank, first + 2 * rank)))


def _repeated(windows: Node, outputs: int) -> Node:
    """The windows of each channel once for each of its outputs: [N, C·M, P…, K…]."""
    n, c, *rest = windows.shape
    if c == outputs:
        return windows
    wide = (n, c, outputs // c, *rest)
    spaced = spread(windows, wide, (0, 1, *range(3, len(wide))))
    return reshaped(spaced, (n, outputs, *rest))


def _by_channel(y: Node, groups: int) -> Node:
    """[N, C·M, …] as [N, C, M, …]."""
    return reshaped(y, (y.shape[0], groups, y.shape[1] // groups, *y.shape[2:]))


def _kernel(w: Node, groups: int, shape: Sizes) -> Node:
    """w along the axes C, M and K… of [N, C, M, P…, K…]."""
    size = w.shape[2:]
    taps = range(len(shape) - len(size), len(shape))
    return spread(reshaped(w, (groups, w.shape[0] // groups, *size)), shape, (1, 2, *taps))


@in_compute_type
def depthwise_over_taps(windows: Node, w: Node) -> Node:
    """Σ_k w[c·M + m, k]·windows[n, c, p, k], as [N, C·M, P…]."""
    _, taps = _axes(w.rank - 2, 2)
    lines = _repeated(windows, w.shape[0])
    kernel = spread(reshaped(w, (w.shape[0], *w.shape[2:])), lines.shape, (1, *taps))
    return total(MUL(lines, kernel), taps)


@in_compute_type
def depthwise_over_outputs(windows: Node, w: Node, *, groups: int) -> Node:
    """Σ_{m,k} w[c·M + m, k]·windows[n, c·M + m, p, k], as [N, C, P…]."""
    _, taps = _axes(w.rank - 2, 3)
    split = _by_channel(windows, groups)
    return total(MUL(split, _kernel(w, groups, split.shape)), (2, *taps))


@in_compute_type
def depthwise_columns(dy: Node, w: Node, *, groups: int) -> Node:
    """Σ_m w[c·M + m, k]·dy[n, c·M + m, p], as [N, C, P…, K…]."""
    split = _by_channel(dy, groups)
    shape = (*split.shape, *w.shape[2:])
    product = MUL(spread(split, shape, tuple(range(split.rank))), _kernel(w, groups, shape))
    if shape[2] == 1:
        return reshaped(product, (*shape[:2], *shape[3:]))
    return total(product, (2,))


@in_compute_type
def depthwise_backward_weight(windows: Node, dy: Node) -> Node:
    """Σ_{n,p} dy[n, c·M + m, p]·windows[n, c, p, k], as [C·M, 1, K…]."""
    places, taps = _axes(dy.rank - 2, 3)
    lines = _repeated(windows, dy.shape[1])
    shape = (*dy.shape[:2], 1, *lines.shape[2:])
    product = MUL(spread(lines, shape, (0, 1, *places, *taps)), spread(dy, shape, (0, 1, *places)))
    return total(product, (0, *places))
