"""A whole Program: kernels, the arrays around them, and loops and branches over them.

The kernels of a program are one list, in the order in which they first run; a region is a part of
it, which runs several times, or only sometimes. So a pass that maps kernel to kernel need not know
of regions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rlx_py.ir.loops.kernel import Buffer, Kernel


@dataclass(frozen=True)
class Slice:
    """Where a SLICE buffer lies: `stride` elements further at each position of its loop."""

    of: Buffer
    stride: int
    start: int = 0


@dataclass(frozen=True, eq=False)
class Loop:
    """Kernels first … last − 1, once for each of `extent` positions, or for the first `count` (i64)
    of them, or while `condition` holds, which kernels first … test − 1 compute at each step.

    extent None: as long as the condition holds. slices: buffers that move from position to
    position. taken: where the number of steps is stored (i64) in the end.
    """

    first: int
    last: int
    extent: int | None
    reverse: bool = False
    slices: Mapping[Buffer, Slice] = field(default_factory=dict)
    count: Buffer | None = None
    condition: Buffer | None = None
    test: int = 0  # first, unless there is a condition
    taken: Buffer | None = None


@dataclass(frozen=True, eq=False)
class Branch:
    """Kernels first … middle − 1 where the condition (bool) holds, else middle … last − 1."""

    first: int
    middle: int
    last: int
    condition: Buffer


Region = Loop | Branch
Item = int | tuple[Region, "tuple[Item, ...]"]  # a kernel, or a region and what it holds


@dataclass(frozen=True)
class Port:
    """An external array of the step."""

    name: str
    buffer: Buffer
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Program:
    """Kernels in order over external, constant, arena and tile buffers.

    `inputs` (inputs, params, state: current values) are read, `outputs` are written. `updates` maps
    the name of a param or state to the buffer that holds its next value; where it is the input's
    own buffer the value is updated in place. `regions` are loops and branches over parts of the
    kernels, outer ones before those inside.
    """

    name: str
    kernels: tuple[Kernel, ...]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    updates: tuple[Port, ...] = ()
    offsets: dict[Buffer, int] = field(default_factory=dict)  # of ARENA and TILE buffers, bytes
    arena: int = 0  # bytes shared by all threads
    scratch: int = 0  # bytes a thread, after the arena
    regions: tuple[Region, ...] = ()


def items(program: Program) -> tuple[Item, ...]:
    """The outermost kernels and regions of a program, in order."""
    # Of regions with equal parts the one that was opened first is the outer one.
    order = sorted(program.regions, key=lambda r: (r.first, -r.last))
    waiting = iter(order)
    following = next(waiting, None)

    def until(start: int, stop: int) -> Iterator[Item]:
        nonlocal following
        here = start
        while True:
            region = following
            if region is not None and region.first == here and region.last <= stop:
                following = next(waiting, None)
                yield region, tuple(until(region.first, region.last))
                here = region.last
            elif here < stop:
                yield here
                here += 1
            else:
                return

    return tuple(until(0, len(program.kernels)))


def part(found: Sequence[Item], start: int, stop: int) -> tuple[Item, ...]:
    """Those items that lie in a range of kernels."""
    return tuple(i for i in found if start <= (i if isinstance(i, int) else i[0].first) < stop)


def moved(region: Region, by: int) -> Region:
    """The same region over kernels further on."""
    first, last = region.first + by, region.last + by
    if isinstance(region, Loop):
        return replace(region, first=first, test=region.test + by, last=last)
    return replace(region, first=first, middle=region.middle + by, last=last)


def part_of(program: Program, first: int, last: int) -> Program:
    """The program of some kernels alone, with the regions that lie in them."""
    inside = tuple(moved(r, -first) for r in program.regions if first <= r.first and r.last <= last)
    return replace(program, kernels=program.kernels[first:last], regions=inside)


def times(program: Program) -> list[int]:
    """How often each kernel runs, branches taken always and loops as often as they may."""
    found = [1] * len(program.kernels)
    for region in program.regions:
        if isinstance(region, Loop):
            for k in range(region.first, region.last):
                found[k] *= 1 if region.extent is None else region.extent
    return found
