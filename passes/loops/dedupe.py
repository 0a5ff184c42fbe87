"""Equal kernels are scheduled and expanded once: twelve equal layers cost as much as one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from rlx_py.ir.loops.canonical import Canonical
from rlx_py.ir.loops.copying import walk, with_buffers
from rlx_py.ir.loops.kernel import Alloc, Buffer, Kernel, Let, Load, Scope, Store, Tile
from rlx_py.ir.loops.program import Program

PRIVATE = (Scope.ARENA, Scope.TILE, Scope.LOCAL)


def once_each(program: Program, passes: Callable[[Program], Program]) -> Program:
    """Run passes that map kernel to kernel on one kernel of each structure, and copy the rest."""
    first: dict[object, int] = {}
    canonicals = [Canonical(k.body) for k in program.kernels]
    patterns = [first.setdefault(c.key, n) for n, c in enumerate(canonicals)]
    distinct = [n for n, pattern in enumerate(patterns) if n == pattern]
    done = passes(replace(program, kernels=tuple(program.kernels[n] for n in distinct)))
    made = dict(zip(distinct, done.kernels, strict=True))
    private = {n: _private(made[n], canonicals[n]) for n in distinct}
    kernels: list[Kernel] = []
    for n, (kernel, pattern) in enumerate(zip(program.kernels, patterns, strict=True)):
        if n == pattern:
            kernels.append(made[n])
            continue
        buffers = dict(zip(canonicals[pattern].buffers, canonicals[n].buffers, strict=True))
        buffers |= {b: Buffer(b.name, b.dtype, b.size, b.scope) for b in private[pattern]}
        kernels.append(Kernel(kernel.name, with_buffers(made[pattern].body, buffers),
                              kernel.sources, made[pattern], buffers))
    return replace(done, kernels=tuple(kernels))


def _private(kernel: Kernel, before: Canonical) -> list[Buffer]:
    """Buffers that the passes gave a kernel for itself."""
    found: dict[Buffer, None] = {}
    for s in walk(kernel.body):
        if isinstance(s, Store | Alloc):
            found[s.buffer] = None
        elif isinstance(s, Let) and isinstance(s.expr, Load):
            found[s.expr.buffer] = None
        elif isinstance(s, Tile):
            found |= dict.fromkeys((s.a.buffer, s.b.buffer, s.out.buffer))
    return [b for b in found if b.scope in PRIVATE and b not in before.buffers]
