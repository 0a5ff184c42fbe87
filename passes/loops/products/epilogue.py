"""What happens to a finished sum: the statements that were fused behind a product."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlx_py.ir.base.types import DType
from rlx_py.ir.loops.copying import Copier
from rlx_py.ir.loops.index import Index, Var, as_index, row_major
from rlx_py.ir.loops.kernel import Apply, Cast, Contract, For, Let, Load, Read, Set, Stmt, Strided
from rlx_py.ir.loops.local import Local
from rlx_py.passes.loops.products.operand import nest
from rlx_py.passes.loops.products.shape import Binding, Body, body_indices, extents, merged
from rlx_py.passes.lower.block import zero


@dataclass(frozen=True)
class Sums:
    """Finished sums; row 0 is row `first` of the block. Where k ran in parts, each part's sums lie
    `apart` elements after those of the part before."""

    at: Strided
    first: Index
    parts: int = 1
    apart: int = 0

    def load(self, row: Index, col: Index, part: Index) -> Load:
        """The sum at a row and column of the block."""
        index = self.at.start + (row - self.first) * self.at.row + col + part * self.apart
        return Load(self.at.buffer, index)


def epilogue(c: Contract, dtype: DType, binding: Binding, i: Var, row: Index, j: Sequence[Var],
             sums: Sums) -> Body:
    """For all i and j: the sum of that row and column, then the contract's epilogue on it."""
    col = row_major(map(as_index, j), extents(j))
    body, total = _total(sums, row, col, dtype)
    if c.acc.dtype is not dtype:
        narrow = Local(c.acc.dtype)
        body += (Let(narrow, Cast(Read(total), c.acc.dtype)),)
        total = narrow
    body += Copier(binding, {c.acc: total}).body(c.epilogue)
    found, change = merged(j, body_indices(body))
    return nest((i, *found), Copier(change).body(body))


def _total(sums: Sums, row: Index, col: Index, dtype: DType) -> tuple[Body, Local]:
    if sums.parts == 1:
        total = Local(dtype)
        return (Let(total, sums.load(row, col, Index(0))),), total
    total, part, grown = (Local(dtype) for _ in range(3))
    s = Var("part", sums.parts)
    step: tuple[Stmt, ...] = (
        Let(part, sums.load(row, col, as_index(s))),
        Let(grown, Apply("add", (Read(total), Read(part)), dtype)),
        Set(total, Read(grown)),
    )
    return (Set(total, zero(dtype)), For(s, step)), total
