"""The order of kernels: those that free more memory than they take run as soon as they can."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

K = TypeVar("K")


def freeing_first(order: Sequence[K], waits: Mapping[K, set[K]],
                  reads: Mapping[K, Mapping[int, int]], writes: Mapping[K, int]) -> list[K]:
    """The order, but that a kernel which frees more bytes than it takes runs once it can.

    A weight's gradient is such: it is the last to read a layer's input and its cotangent, and no
    kernel waits for it. `waits` are those that must come before; `reads` the bytes of each value
    read; `writes` the bytes kept of what is written.
    """
    missing = {k: len(waits[k]) for k in order}
    followers: dict[K, list[K]] = {k: [] for k in order}
    readers: dict[int, set[K]] = {}
    for k in order:
        for w in waits[k]:
            followers[w].append(k)
        for value in reads[k]:
            readers.setdefault(value, set()).add(k)
    found: dict[K, None] = {}

    def run(k: K) -> list[K]:
        """Run one; those that may now be worth running."""
        found[k] = None
        for follower in followers[k]:
            missing[follower] -= 1
        near: dict[K, None] = dict.fromkeys(followers[k])
        for value in reads[k]:
            readers[value].discard(k)
            if len(readers[value]) == 1:
                near |= dict.fromkeys(readers[value])
        return list(near)

    def frees(k: K) -> bool:
        last = sum(size for value, size in reads[k].items() if len(readers[value]) == 1)
        return last > writes[k]

    for first in order:
        work = [first]
        while work:
            k = work.pop()
            if k not in found and not missing[k] and (k is first or frees(k)):
                work += reversed(run(k))
    return list(found)
