"""Where buffers live: lifetimes, then offsets in one arena. `plan_check` judges the result."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from dataclasses import replace

from rlx_py.ir.loops.copying import walk
from rlx_py.ir.loops.index import Index
from rlx_py.ir.loops.kernel import (
    Alloc,
    Buffer,
    Call,
    For,
    Kernel,
    Let,
    Load,
    Scope,
    Stmt,
    Store,
    Tile,
)
from rlx_py.ir.loops.program import Item, Loop, Program, items, part

ALIGNMENT = 64


def plan_memory(program: Program) -> Program:
    """Give every ARENA and TILE buffer an offset; live buffers never overlap.

    A buffer written where another is read for the last time, element by element, takes its place.
    """
    timeline = _Timeline(program)
    spans = timeline.spans()
    heap = _Heap()
    offsets: dict[Buffer, int] = {}
    starting: dict[int, list[Buffer]] = {}
    ending: dict[int, list[Buffer]] = {}
    for buffer, (first, last) in spans.items():
        starting.setdefault(first, []).append(buffer)
        ending.setdefault(last, []).append(buffer)
    for step in sorted({*starting, *ending}):
        dying = ending.get(step, [])
        kernel = timeline.kernels.get(step)
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


class _Timeline:
    """The steps of a program in order, and those at which each ARENA buffer is in use.

    A kernel, the condition of a branch, the beginning of a loop, its test and its end are a step
    each, so that what a loop needs at once is apart from what its first kernel or region needs.
    """

    def __init__(self, program: Program) -> None:
        self.program, self.now = program, 0
        self.kernels: dict[int, Kernel] = {}
        self.loops: list[tuple[int, int]] = []
        self.uses: dict[Buffer, set[int]] = {}
        self.owner = {b: s.of for r in program.regions if isinstance(r, Loop)
                      for b, s in r.slices.items()}
        self._visit(items(program))

    def spans(self) -> dict[Buffer, tuple[int, int]]:
        """The first and last step at which each buffer is in use.

        What is used both inside and outside of a loop is in use during all of it; what is used
        inside alone is written anew at each of the loop's steps.
        """
        return {buffer: self._span(steps) for buffer, steps in self.uses.items()}

    def _span(self, steps: set[int]) -> tuple[int, int]:
        first, last = min(steps), max(steps)
        for start, stop in self.loops:
            inside = sum(start < s < stop for s in steps)
            if 0 < inside < len(steps):
                first, last = min(first, start), max(last, stop)
        return first, last

    def _visit(self, found: Sequence[Item]) -> None:
        for item in found:
            if isinstance(item, int):
                kernel = self.program.kernels[item]
                self._step(*_buffers(kernel.body))
                self.kernels[self.now] = kernel
            elif isinstance(item[0], Loop):
                self._loop(item[0], item[1])
            else:
                self._step(item[0].condition)
                self._visit(item[1])

    def _loop(self, loop: Loop, inside: Sequence[Item]) -> None:
        # A stack without elements has kernels that neither read nor write it.
        self._step(loop.count, *(place.of for place in loop.slices.values()))
        start = self.now
        self._visit(part(inside, loop.first, loop.test))
        self._step(loop.condition)
        self._visit(part(inside, loop.test, loop.last))
        self._step(loop.taken)
        self.loops.append((start, self.now))

    def _step(self, *used: Buffer | None) -> None:
        self.now += 1
        for buffer in used:
            while buffer in self.owner:
                buffer = self.owner[buffer]
            if buffer is not None and buffer.scope is Scope.ARENA:
                self.uses.setdefault(buffer, set()).add(self.now)


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
