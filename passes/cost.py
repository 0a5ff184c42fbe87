"""Counts of a program: arithmetic and traffic."""

from __future__ import annotations

from collections.abc import Iterable

from rlx_py.ir.copying import walk
from rlx_py.ir.kernel import Apply, Buffer, For, Let, Load, Program, Scope, Set, Stmt, Store, Tile


def flops(program: Program) -> int:
    """Scalar arithmetic of one run; a multiply-add of a product counts two."""
    return sum(_flops(k.body) for k in program.kernels)


def _flops(body: Iterable[Stmt]) -> int:
    total = 0
    for s in body:
        if isinstance(s, For):
            total += s.var.extent * _flops(s.body)
        elif isinstance(s, Tile):
            total += 2 * s.rows * s.cols * s.depth
        elif (isinstance(s, Let) and isinstance(s.expr, Apply)) or (
                isinstance(s, Set) and s.combine):
            total += 1
    return total


def bytes_moved(program: Program) -> int:
    """Bytes of the buffers each kernel reads and writes, every buffer once a kernel."""
    total = 0
    for kernel in program.kernels:
        seen: set[Buffer] = set()
        for s in walk(kernel.body):
            if isinstance(s, Store):
                seen.add(s.buffer)
            elif isinstance(s, Let) and isinstance(s.expr, Load):
                seen.add(s.expr.buffer)
            elif isinstance(s, Tile):
                seen.update((s.a.buffer, s.b.buffer, s.out.buffer))
        total += sum(b.nbytes for b in seen if b.scope is not Scope.TILE)
    return total
