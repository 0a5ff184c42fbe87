"""Where buffers live: lifetimes, then offsets in one arena, and an independent check of both."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import replace

from rlx_py.ir.copying import walk
from rlx_py.ir.errors import VerifyError
from rlx_py.ir.index import Index
from rlx_py.ir.kernel import (
    Alloc,
    Buffer,
    Call,
    For,
    Kernel,
    Let,
    Load,
    Program,
    Scope,
    Stmt,
    Store,
    Tile,
)
from rlx_py.ir.regions import Branch, Loop

ALIGNMENT = 64


def plan_memory(program: Program) -> Program:
    """Give every ARENA and TILE buffer an offset; live buffers never overlap.

    A buffer written where another is read for the last time, element by element, takes its place.
    """
    spans = lifetimes(program)
    heap = _Heap()
    offsets: dict[Buffer, int] = {}
    starting: dict[int, list[Buffer]] = {}
    ending: dict[int, list[Buffer]] = {}
    for buffer, (first, last) in spans.items():
        starting.setdefault(first, []).append(buffer)
        ending.setdefault(last, []).append(buffer)
    for step in sorted({*starting, *ending}):
        dying = ending.get(step, [])
        kernel = _kernel_at(program, step)
        taken: set[Buffer] = set()
        for buffer in starting.get(step, []):
            heir = None if kernel is None else next(
                (d for d in dying if d not in taken and spans[d][0] < step
                 and _aligned(d.nbytes) == _aligned(buffer.nbytes)
                 and overwrites(kernel, d, buffer)), None)
            if heir is None:
                offsets[buffer] = heap.take(_aligned(buffer.nbytes))
            else:
                taken.add(heir)
                offsets[buffer] = offsets[heir]
        for buffer in dying:
            if buffer not in taken:
                heap.give(offsets[buffer], _aligned(buffer.nbytes))
    scratch = 0
    for kernel in program.kernels:
        used = 0
        for buffer in dict.fromkeys(_buffers(kernel.body)):
            if buffer.scope is Scope.TILE:
                offsets[buffer] = used
                used += _aligned(buffer.nbytes)
        scratch = max(scratch, used)
    return replace(program, offsets=offsets, arena=heap.top, scratch=scratch)


def lifetimes(program: Program) -> dict[Buffer, tuple[int, int]]:
    """The first and last step at which each ARENA buffer is in use.

    Kernel k runs at step 2k + 1, and a region of kernels a … b − 1 begins at step 2a and ends at
    2b. What is used both inside and outside of a loop is in use during all of it; what is used
    inside alone is written anew at each of the loop's steps.
    """
    uses: dict[Buffer, set[int]] = {}
    owner = {b: s.of for r in program.regions if isinstance(r, Loop) for b, s in r.slices.items()}

    def use(buffer: Buffer | None, step: int) -> None:
        while buffer in owner:
            buffer = owner[buffer]
        if buffer is not None and buffer.scope is Scope.ARENA:
            uses.setdefault(buffer, set()).add(step)

    for k, kernel in enumerate(program.kernels):
        for buffer in _buffers(kernel.body):
            use(buffer, 2 * k + 1)
    for region in program.regions:
        if isinstance(region, Branch):
            use(region.condition, 2 * region.first)
        else:
            # A stack without elements has kernels that neither read nor write it.
            for place in region.slices.values():
                use(place.of, 2 * region.first)
            use(region.count, 2 * region.first)
            use(region.condition, 2 * region.test)
            use(region.taken, 2 * region.last)
    loops = [(2 * r.first, 2 * r.last) for r in program.regions if isinstance(r, Loop)]
    return {buffer: _span(steps, loops) for buffer, steps in uses.items()}


def _span(steps: set[int], loops: Iterable[tuple[int, int]]) -> tuple[int, int]:
    first, last = min(steps), max(steps)
    for start, stop in loops:
        inside = [s for s in steps if start < s < stop]
        if inside and (len(inside) < len(steps)):
            first, last = min(first, start), max(last, stop)
    return first, last


def _kernel_at(program: Program, step: int) -> Kernel | None:
    return program.kernels[step // 2] if step % 2 else None


def _aligned(size: int) -> int:
    return max(-(-size // ALIGNMENT) * ALIGNMENT, ALIGNMENT)


def _buffers(body: Iterable[Stmt]) -> list[Buffer]:
    found: list[Buffer] = []
    for s in walk(body):
        if isinstance(s, Let):
            if isinstance(s.expr, Load):
                found.append(s.expr.buffer)
        elif isinstance(s, Store | Alloc):
            found.append(s.buffer)
        elif isinstance(s, Tile):
            found += [s.a.buffer, s.b.buffer, s.out.buffer]
        elif isinstance(s, Call):
            found += [a for a in s.args if isinstance(a, Buffer)]
    return found


def overwrites(kernel: Kernel, old: Buffer, new: Buffer) -> bool:
    """Whether the kernel reads `old` only at the very element of `new` that it then writes, in the
    same iteration and not after it, so that both may share memory."""
    if old.dtype is not new.dtype:
        return False
    found: list[tuple[int, Index]] = []
    stack: list[tuple[tuple[Stmt, ...], int]] = [(kernel.body, 0)]
    bodies, written = 0, False
    while stack:
        body, here = stack.pop()
        for s in body:
            if isinstance(s, Let):
                if isinstance(s.expr, Load) and s.expr.buffer in (old, new):
                    if written and s.expr.buffer is old:
                        return False
                    found.append((here, s.expr.index))
            elif isinstance(s, For):
                bodies += 1
                stack.append((s.body, bodies))
            elif isinstance(s, Store) and s.buffer in (old, new):
                if s.buffer is old or s.combine:
                    return False
                written = True
                found.append((here, s.index))
            elif not isinstance(s, Store) and {old, new} & set(_buffers((s,))):
                return False
    return len(set(found)) == 1


class _Heap:
    """Best-fit addresses: the smallest hole that holds a buffer, else the end."""

    def __init__(self) -> None:
        self.top = 0
        self.holes: list[tuple[int, int]] = []  # (offset, size), by offset, never adjacent

    def take(self, size: int) -> int:
        """An address for `size` bytes."""
        fit = min((h for h in self.holes if h[1] >= size), key=lambda h: h[1], default=None)
        if fit is None:
            if self.holes and sum(self.holes[-1]) == self.top:
                offset, _ = self.holes.pop()
            else:
                offset = self.top
            self.top = offset + size
            return offset
        self.holes.remove(fit)
        if fit[1] > size:
            insort(self.holes, (fit[0] + size, fit[1] - size))
        return fit[0]

    def give(self, offset: int, size: int) -> None:
        """Take an address back."""
        at = bisect_left(self.holes, (offset, 0))
        if at < len(self.holes) and self.holes[at][0] == offset + size:
            size += self.holes.pop(at)[1]
        if at and sum(self.holes[at - 1]) == offset:
            offset, before = self.holes.pop(at - 1)
            size += before
        insort(self.holes, (offset, size))


def check_plan(program: Program) -> None:
    """Raise VerifyError if two buffers that are live at once share a byte.

    It derives lifetimes from the kernels alone. Two buffers may share memory inside one kernel only
    if the kernel overwrites the one by the other element by element.
    """
    missing = [b for k in program.kernels for b in _buffers(k.body)
               if b.scope in (Scope.ARENA, Scope.TILE) and b not in program.offsets]
    if missing:
        raise VerifyError(f"{missing[0]!r} has no place")
    spans = lifetimes(program)
    for b, _ in spans.items():
        if program.offsets[b] % ALIGNMENT or program.offsets[b] + b.nbytes > program.arena:
            raise VerifyError(f"{b!r} lies outside the arena or is not aligned")
    by_start = sorted(spans, key=lambda b: spans[b][0])
    live: list[Buffer] = []
    for b in by_start:
        first = spans[b][0]
        live = [o for o in live if spans[o][1] >= first]
        for o in live:
            if _meet(program.offsets[b], b, program.offsets[o], o) and not (
                spans[o][1] == first and (kernel := _kernel_at(program, first)) is not None
                and overwrites(kernel, o, b)
            ):
                raise VerifyError(f"{b!r} and {o!r} are live at once and overlap")
        live.append(b)
    for kernel in program.kernels:
        tiles = [b for b in dict.fromkeys(_buffers(kernel.body)) if b.scope is Scope.TILE]
        for i, b in enumerate(tiles):
            if program.offsets[b] + b.nbytes > program.scratch:
                raise VerifyError(f"{b!r} lies outside the scratch memory of {kernel.name}")
            for o in tiles[:i]:
                if _meet(program.offsets[b], b, program.offsets[o], o):
                    raise VerifyError(f"{b!r} and {o!r} overlap in {kernel.name}")


def _meet(a: int, left: Buffer, b: int, right: Buffer) -> bool:
    return a < b + right.nbytes and b < a + left.nbytes

