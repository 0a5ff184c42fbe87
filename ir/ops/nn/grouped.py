"""Products of rows that lie in groups, each group with a matrix of its own (a mixture's experts).

Group e has rows offsets[e] … offsets[e + 1] − 1, known only at run time. The lowering, whose code
does not grow with rows or groups: every group is cut into blocks of B rows, the last one padded
with zeros. With B = R/(2E) rounded up there are at most 3E blocks, whatever the sizes of the
groups, so their number is static, and each product is one batched contraction over blocks, which
costs about half more than the rows alone. Memory is O(R·K + R·N + E·N·K), never R·N·K.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from rlx_py.ir.base.errors import DTypeError, ShapeError
from rlx_py.ir.base.types import TensorType, Type, i64, require_rank
from rlx_py.ir.graph.transforms import AD
from rlx_py.ir.nodes.node import Node, Op
from rlx_py.ir.ops.making.arguments import require_floats, require_shape
from rlx_py.ir.ops.making.constant import iota
from rlx_py.ir.ops.making.families import add_all, composite
from rlx_py.ir.ops.making.located import located
from rlx_py.ir.ops.numpy.shaping import window
from rlx_py.ir.ops.operands.operand import as_node, operands
from rlx_py.ir.ops.operands.precision import in_compute_type
from rlx_py.ir.ops.primitive.compare import AND, EQ, LE, LT, OR
from rlx_py.ir.ops.primitive.contract import CONTRACT
from rlx_py.ir.ops.primitive.cumulative import CUMSUM
from rlx_py.ir.ops.primitive.elementwise import INT_DIV, SELECT, cast, fill
from rlx_py.ir.ops.primitive.index import GATHER, SCATTER_ADD
from rlx_py.ir.ops.primitive.movement import filled, permuted, reshaped, spread
from rlx_py.ir.ops.primitive.reduce import REDUCE_SUM


def _check_offsets(offsets: TensorType, groups: int) -> None:
    if not offsets.dtype.is_int:
        raise DTypeError(f"offsets must be integers, not {offsets.dtype}")
    require_shape("offsets", offsets, (groups + 1,))


def _infer(x: TensorType, weight: TensorType, offsets: TensorType) -> Type:
    require_floats("grouped_gemm_m", x, weight)
    require_rank("grouped_gemm_m", x, 2)
    require_rank("grouped_gemm_m", weight, 3)
    if x.shape[1] != weight.shape[2]:
        raise ShapeError(f"rows {x} must have the {weight.shape[2]} inputs of {weight}")
    _check_offsets(offsets, weight.shape[0])
    return x.with_shape((x.shape[0], weight.shape[1]))


def _infer_backward_weight(dy: TensorType, x: TensorType, offsets: TensorType, *,
                           groups: int) -> Type:
    require_floats("grouped_gemm_m_backward_weight", dy, x)
    require_rank("grouped_gemm_m_backward_weight", dy, 2)
    require_rank("grouped_gemm_m_backward_weight", x, 2)
    if dy.shape[0] != x.shape[0]:
        raise ShapeError(f"{dy} and {x} differ in rows")
    _check_offsets(offsets, groups)
    return x.with_shape((groups, dy.shape[1], x.shape[1]))


# ---- blocks ----------------------------------------------------------------------------------


class Blocks(NamedTuple):
    """Groups cut into blocks of one size; i64 throughout."""

    size: int  # rows a block
    group: Node  # [blocks], the group of each; of an unused block, the last
    rows: Node  # [blocks·size], the row at each place, or −1
    place: Node  # [rows], the place of each row, or −1


def _covering(value: Node, ends: Node) -> Node:
    """How many groups end at or before each value: the group that covers it, if any does."""
    shape = (value.size, ends.size)
    before = LE(spread(ends, shape, (1,)), spread(value, shape, (0,)))
    return REDUCE_SUM(cast(before, i64), axes=(1,))


def _group_of_rows(bounds: Node, rows: int) -> Node:
    """The group of each row; −1 where it has none."""
    line = iota((rows,), 0, i64)
    group = _covering(line, window(bounds, 0, 1, bounds.size))
    first = spread(window(bounds, 0, 0, 1).reshape(()), line.shape, ())
    none = OR(LT(line, first), EQ(group, fill(group, bounds.size - 1)))
    return SELECT(none, fill(group, -1), group)


def _at(line: Node, idx: Node) -> Node:
    return GATHER(line, idx, axis=0, mode="clip")


def cut(offsets: Node, rows: int) -> Blocks:
    """The blocks of groups that have at least one row and one group."""
    groups = offsets.size - 1
    size = -(-rows // (2 * groups))
    # Whatever the groups' sizes: each ends in at most one partial block, and takes a row to do so.
    most = (rows - min(rows, groups)) // size + min(rows, groups)
    bounds = cast(offsets, i64)
    starts, ends = window(bounds, 0, 0, groups), window(bounds, 0, 1, groups + 1)
    sizes = ends - starts
    counts = INT_DIV(sizes + (size - 1), fill(sizes, size))
    last = CUMSUM(counts, axis=0, exclusive=False, reverse=False)
    first = last - counts

    block = iota((most,), 0, i64)
    own = _covering(block, last)
    offset = reshaped(spread((block - _at(first, own)) * size, (most, size), (0,))
                      + iota((most, size), 1, i64), (most * size,))
    wide = reshaped(spread(own, (most, size), (0,)), (most * size,))
    row = _at(starts, wide) + offset
    used = AND(LT(wide, fill(wide, groups)), LT(row, _at(ends, wide)))

    group = _group_of_rows(bounds, rows)
    place = _at(first, group) * size + iota((rows,), 0, i64) - _at(starts, group)
    return Blocks(size, own, SELECT(used, row, fill(row, -1)),
                  SELECT(LT(group, fill(group, 0)), group, place))


def _blocked(x: Node, blocks: Blocks) -> Node:
    """The rows in their blocks [blocks, size, …], zeros where there is none."""
    laid = GATHER(x, blocks.rows, axis=0, mode="fill")
    return reshaped(laid, (blocks.group.size, blocks.size, *x.shape[1:]))


@in_compute_type
def _product(x: Node, weight: Node, offsets: Node) -> Node:
    """y[r] = W[e(r)]·x[r]; a row of no group gives 0."""
    groups, n, _ = weight.shape
    if not groups or not x.shape[0]:
        return filled(0, x.tensor.with_shape((x.shape[0], n)))
    blocks = cut(offsets, x.shape[0])
    matrices = GATHER(weight, blocks.group, axis=0, mode="clip")
    y = CONTRACT(_blocked(x, blocks), matrices, batch=((0,), (0,)), contract=((2,), (2,)))
    return GATHER(reshaped(y, (blocks.rows.size, n)), blocks.place, axis=0, mode="fill")


@in_compute_type
def _backward_weight(dy: Node, x: Node, offsets: Node, *, groups: int) -> Node:
    """dW[e] = Σ_{r ∈ e} dy[r]·x[r]ᵀ: block by block, then the blocks of a group in order. An empty
    group has no block, so its gradient is 0."""
    zeros = filled(0, x.tensor.with_shape((groups, dy.shape[1], x.shape[1])))
    if not groups or not x.shape[0]:
        return zeros
    blocks = cut(offsets, x.shape[0])
    parts = CONTRACT(_blocked(dy, blocks), _blocked(x, blocks), batch=((0,), (0,)),
                     contract=((1,), (1,)))
    return SCATTER_ADD(zeros, blocks.group, parts, axis=0, mode="fill")


def _flipped(weight: Node) -> Node:
    return permuted(weight, (0, 2, 1))


def _vjp(node: Node, ct: Node, ad: AD) -> Sequence[Node | None]:
    x, weight, offsets = node.inputs
    return (GROUPED_GEMM_M(ct, _flipped(weight), offsets),
            GROUPED_GEMM_M_BACKWARD_WEIGHT(ct, x, offsets, groups=weight.shape[0]), None)


def _backward_vjp(node: Node, ct: Node, ad: AD) -> Sequence[Node | None]:
    dy, x, offsets = node.inputs
    return GROUPED_GEMM_M(x, ct, offsets), GROUPED_GEMM_M(dy, _flipped(ct), offsets), None


def _bilinear_jvp(node: Node, tangents: Sequence[Node | None], ad: AD) -> Node | None:
    (a, b, offsets), (ta, tb, _) = node.inputs, tangents
    return add_all([None if ta is None else node.op(ta, b, offsets, **node.attrs),
                    None if tb is None else node.op(a, tb, offsets, **node.attrs)])


GROUPED_GEMM_M: Op = composite("grouped_gemm_m", _infer, _product, vjp=_vjp, jvp=_bilinear_jvp)
GROUPED_GEMM_M_BACKWARD_WEIGHT: Op = composite(
    "grouped_gemm_m_backward_weight", _infer_backward_weight, _backward_weight,
    vjp=_backward_vjp, jvp=_bilinear_jvp)

# ---- with a bias -----------------------------------------------------------------------------


def _infer_linear(x: TensorType, weight: TensorType, offsets: TensorType, *bias: TensorType
                  ) -> Type:
    for b in bias:
        require_floats("grouped_linear_m", x, b)
        require_shape("bias", b, weight.shape[:2])
    return _infer(x, weight, offsets)


@in_compute_type
def _linear(x: Node, weight: Node, offsets: Node, *bias: Node) -> Node:
    y = GROUPED_GEMM_M(x, weight, offsets)
    if not bias or not y.size or not weight.shape[0]:
        return y
    group = _group_of_rows(cast(offsets, i64), x.shape[0])
    return y + GATHER(bias[0], group, axis=0, mode="fill")


GROUPED_LINEAR_M = composite("grouped_linear_m", _infer_linear, _linear)


@located
def grouped_gemm_m(x: Any, weight: Any, offsets: Any) -> Node:
    """y[r] = W[e(r)]·x[r] of rows x[R, K] sorted by group and matrices W[E, N, K].

    offsets[E + 1], integers that do not decrease: group e has rows offsets[e] … offsets[e + 1] − 1,
    possibly none, and then its gradient is 0. A row of no group gives 0. Raises ShapeError,
    DTypeError.
    """
    rows, matrices = operands(x, weight)
    return GROUPED_GEMM_M(rows, matrices, as_node(offsets))


@located
def grouped_linear_m(x: Any, weight: Any, offsets: Any, bias: Any = None) -> Node:
    """`grouped_gemm_m` plus bias[e(r)], bias[E, N]."""
    given = () if bias is None else (bias,)
    rows, matrices, *shifts = operands(x, weight, *given)
    return GROUPED_LINEAR_M(rows, matrices, as_node(offsets), *shifts)
