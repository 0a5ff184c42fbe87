"""Whether a memory plan holds: liveness by dataflow over kernels and regions.

Nothing here is the planner's own, so that a fault of the planner's is seen. Memory is judged by
whole buffers. A value lives from the kernels that write it to those that read it, against the order
of the program and around its loops to a fixed point; what no kernel can have written holds nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from rlx_py.ir.base.errors import VerifyError
from rlx_py.ir.loops.kernel import Buffer, Kernel, Scope
from rlx_py.ir.loops.program import Branch, Item, Loop, Program, Slice, items, part
from rlx_py.passes.analysis.accesses import Accesses, fills, replaces

ALIGNMENT = 64


def check_plan(program: Program) -> None:
    """Raise VerifyError if a value lies in memory that something else may write while it is alive.

    Two buffers may share memory in the kernel that reads the one for the last time and writes the
    other, if each element is read before it is written. What a program reads without having
    written it is nobody's value, so the only kernel that writes a buffer writes all of it.
    """
    accesses = [Accesses(k.body) for k in program.kernels]
    _Liveness(program, accesses).check()
    for kernel, found in zip(program.kernels, accesses, strict=True):
        _check_tiles(program, kernel, found)


class _Liveness:
    """Sets of ARENA buffers as the bits of an integer, along a program."""

    def __init__(self, program: Program, accesses: Sequence[Accesses]) -> None:
        self.program, self.accesses = program, accesses
        self.slices: dict[Buffer, Slice] = {
            b: s for r in program.regions if isinstance(r, Loop) for b, s in r.slices.items()}
        self.bits: dict[Buffer, int] = {}
        kernels = Counter(self._root(b) for a in accesses for b in {*a.reads, *a.writes})
        kernels.update(self._root(b) for r in program.regions for b in _of_region(r) if b)
        # What a routine works in, and no other kernel knows, holds nothing between two of its runs.
        self.reads = [self._roots([b for b in a.exposed
                                   if b not in a.lent or kernels[self._root(b)] > 1])
                      for a in self.accesses]
        self.uses = [self._roots(a.reads) for a in self.accesses]
        self.writes = [self._roots(a.writes) for a in self.accesses]
        for region in program.regions:
            self._roots(_of_region(region))
        self.buffers = list(self.bits)
        self.meeting = self._meetings()
        self.writers = self._writers()
        self.kills = [self._killed(k) for k in range(len(program.kernels))]
        self.written = [0] * len(program.kernels)  # what may hold a value before a kernel
        self.taken: dict[Loop, int] = {}  # the same before the end of a loop
        self._forward(items(program), 0)

    def check(self) -> None:
        """Follow the live values backwards."""
        self._before(items(self.program), 0)

    # ---- sets ----------------------------------------------------------------------------------

    def _root(self, buffer: Buffer) -> Buffer:
        while buffer in self.slices:
            buffer = self.slices[buffer].of
        return buffer

    def _roots(self, buffers: Sequence[Buffer | None]) -> int:
        """The planned memory that buffers lie in."""
        found = 0
        for buffer in buffers:
            if buffer is None:
                continue
            root = self._root(buffer)
            if root.scope is Scope.ARENA:
                found |= 1 << self.bits.setdefault(root, len(self.bits))
        return found

    def _members(self, found: int) -> Iterator[Buffer]:
        while found:
            low = found & -found
            yield self.buffers[low.bit_length() - 1]
            found ^= low

    def _meetings(self) -> list[int]:
        """For each buffer those that it shares a byte with, itself excepted."""
        places = self.program.offsets
        for b in self.buffers:
            if b not in places:
                raise VerifyError(f"{b!r} has no place")
            if places[b] % ALIGNMENT or places[b] < 0 or places[b] + b.nbytes > self.program.arena:
                raise VerifyError(f"{b!r} lies outside the arena or is not aligned")
        start = np.array([places[b] for b in self.buffers], np.int64)
        stop = start + np.array([b.nbytes for b in self.buffers], np.int64)
        found = []
        for n in range(len(self.buffers)):
            row = (start < stop[n]) & (start[n] < stop)
            row[n] = False
            found.append(int.from_bytes(np.packbits(row, bitorder="little").tobytes(), "little"))
        return found

    # ---- what a kernel gives anew ----------------------------------------------------------------

    def _writers(self) -> dict[Buffer, int]:
        """How many places of the program write each buffer."""
        count: dict[Buffer, int] = {}
        taken = [r.taken for r in self.program.regions
                 if isinstance(r, Loop) and r.taken is not None]
        for buffer in (*(b for a in self.accesses for b in a.writes), *taken):
            root = self._root(buffer)
            count[root] = count.get(root, 0) + 1
        return count

    def _killed(self, k: int) -> int:
        """What a kernel writes from end to end."""
        body = self.program.kernels[k].body
        whole = [b for b in self.accesses[k].writes
                 if b not in self.slices and (self.writers[b] == 1 or fills(body, b))]
        return self._roots(whole) & ~self.reads[k]

    def _made(self, loop: Loop, inside: Sequence[Item]) -> int:
        """What a loop writes from end to end through slices."""
        written = 0
        for k in range(loop.first, loop.last):
            written |= self.writes[k]
        found = []
        for place in loop.slices.values():
            bit = 0 if place.of in self.slices else self._roots([place.of])
            if written & bit and (self.writers[place.of] == 1
                                  or self._fills(((loop, tuple(inside)),), place.of)):
                found.append(place.of)
        return self._roots(found)

    def _fills(self, found: Sequence[Item], buffer: Buffer) -> bool:
        """Whether items write every element of a buffer, whatever the branches."""
        for item in found:
            if isinstance(item, int):
                if (buffer in self.accesses[item].writes
                        and fills(self.program.kernels[item].body, buffer)):
                    return True
                continue
            region, inside = item
            if isinstance(region, Branch):
                if all(self._fills(part(inside, *side), buffer) for side in (
                        (region.first, region.middle), (region.middle, region.last))):
                    return True
            elif _always(region) and (self._fills(inside, buffer) or any(
                    place.of is buffer and _cover(region, moving, place)
                    and self._fills(inside, moving) for moving, place in region.slices.items())):
                return True
        return False

    # ---- along the program -----------------------------------------------------------------------

    def _forward(self, found: Sequence[Item], written: int) -> int:
        """Note what may hold a value before each kernel; what may after the last."""
        for item in found:
            if isinstance(item, int):
                self.written[item] = written
                written |= self.writes[item]
                continue
            region, inside = item
            if isinstance(region, Loop):
                for k in range(region.first, region.last):
                    written |= self.writes[k]
                written |= self._roots([r.taken for r, _ in _loops(inside)])
                self._forward(inside, written)
                self.taken[region] = written
                written |= self._roots([region.taken])
            else:
                then = self._forward(part(inside, region.first, region.middle), written)
                written = then | self._forward(part(inside, region.middle, region.last), written)
        return written

    def _before(self, found: Sequence[Item], live: int) -> int:
        """What is alive before items, given what is alive after them."""
        for item in reversed(found):
            if isinstance(item, int):
                live = self._before_kernel(item, live)
                continue
            branch, inside = item
            if isinstance(branch, Loop):
                live = self._before_loop(branch, inside, live)
            else:
                live = (self._before(part(inside, branch.first, branch.middle), live)
                        | self._before(part(inside, branch.middle, branch.last), live)
                        | self._roots([branch.condition]))
        return live

    def _before_kernel(self, k: int, live: int) -> int:
        writes, held = self.writes[k], self.written[k] | self.writes[k]
        for new in self._members(writes):
            near = self.meeting[self.bits[new]] & ((live & held) | self.uses[k] | writes)
            for old in self._members(near):
                bit = 1 << self.bits[old]
                if bit & (live | writes) or not self._replaces(k, old, new):
                    raise VerifyError(f"{self.program.kernels[k].name} writes {new!r} over {old!r},"
                                      " which is alive")
        return (live & ~self.kills[k]) | self.reads[k]

    def _replaces(self, k: int, old: Buffer, new: Buffer) -> bool:
        named = {*self.accesses[k].reads, *self.accesses[k].writes}
        apart = [b for b in named if b not in (old, new) and self._root(b) in (old, new)]
        places = self.program.offsets
        return (not apart and places[old] == places[new]
                and replaces(self.program.kernels[k].body, old, new))

    def _before_loop(self, loop: Loop, inside: Sequence[Item], live: int) -> int:
        done = live
        if loop.taken is not None:
            bit = self._roots([loop.taken])
            for new in self._members(bit):
                near = self.meeting[self.bits[new]] & live & self.taken[loop]
                for old in self._members(near):
                    raise VerifyError(f"the number of steps, {new!r}, is written over {old!r}, "
                                      "which is alive")
            done &= ~bit
        head, turned = 0, -1
        while head != turned:  # the live values at the beginning of a step, around the loop
            turned = head
            after = head | (done if loop.extent is not None else 0)
            after = self._before(part(inside, loop.test, loop.last), after)
            if loop.condition is not None:
                after |= done | self._roots([loop.condition])
            head |= self._before(part(inside, loop.first, loop.test), after)
        if loop.extent is not None and not _always(loop):
            head |= done
        elif loop.extent == 0:
            head = done
        return (head & ~self._made(loop, inside)) | self._roots([loop.count])


def _of_region(region: Loop | Branch) -> list[Buffer | None]:
    if isinstance(region, Branch):
        return [region.condition]
    return [region.count, region.condition, region.taken, *(s.of for s in region.slices.values())]


def _loops(found: Sequence[Item]) -> Iterator[tuple[Loop, Sequence[Item]]]:
    for item in found:
        if not isinstance(item, int):
            if isinstance(item[0], Loop):
                yield item[0], item[1]
            yield from _loops(item[1])


def _always(loop: Loop) -> bool:
    """Whether a loop runs all of its steps, of which there is one at least."""
    return loop.extent not in (None, 0) and loop.count is None and loop.condition is None


def _cover(loop: Loop, moving: Buffer, place: Slice) -> bool:
    """Whether a slice, in all positions, is all of its buffer."""
    seen = np.zeros(place.of.size, bool)
    for position in range(loop.extent or 0):
        start = place.start + position * place.stride
        seen[start:start + moving.size] = True
    return bool(seen.all())


def _check_tiles(program: Program, kernel: Kernel, found: Accesses) -> None:
    """A thread's own buffers lie apart in its scratch memory."""
    tiles = [b for b in dict.fromkeys((*found.reads, *found.writes)) if b.scope is Scope.TILE]
    for b in tiles:
        if b not in program.offsets:
            raise VerifyError(f"{b!r} has no place")
    tiles.sort(key=lambda b: program.offsets[b])
    end, last = 0, None
    for b in tiles:
        place = program.offsets[b]
        if place % ALIGNMENT or place < 0 or place + b.nbytes > program.scratch:
            raise VerifyError(f"{b!r} lies outside the scratch memory of {kernel.name}")
        if b.nbytes and place < end:
            raise VerifyError(f"{b!r} and {last!r} overlap in {kernel.name}")
        if place + b.nbytes > end:
            end, last = place + b.nbytes, b
