"""What a product asks of a processor, and the register tile that suits its shape."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from rlx_py.ir.base.errors import ArgumentError
from rlx_py.ir.base.types import DType, f32, f64

# More rows gain nothing, and rows of A a power of two apart share one set of an 8-way L1 cache
# (14 rows of 1024 floats: 82 GFLOP/s, 8 rows: 109).
MAX_ROWS = 8
# Estimated cycles of a loop from which a second thread pays: on two cores loops of 2 us gained a
# third, those of 1 us nothing; to wake a thread that sleeps costs the caller 2 to 3 us.
THREAD_CYCLES = 10_000


@dataclass(frozen=True)
class Limits:
    """From which size on a measure pays; those of sums change bits, so no machine has its own."""

    thread_cycles: int = THREAD_CYCLES
    block_cycles: int = 2_000  # of the least block that a thread takes
    blocks: int = 16  # blocks a product is cut into, so that as many threads have work
    depth_bytes: int = 2048  # of a row of A in a block of k: 8 rows, a panel of B fit L1
    block_bytes: int = 512 << 10  # of a block of B: half of a second-level cache
    repaid: int = 96  # products with an element that let each block widen its own copy
    pack_rows: int = 256  # rows that must reuse a copy of B that only makes its reads one stream
    pack_bytes: int = 512 << 10  # of B that caches hold without such a copy
    split_outputs: int = 1 << 15  # results up to which parts of k run in parallel
    split_depth: int = 1024  # k from which they do
    part_depth: int = 256  # k of the least part
    chain_depth: int = 1024  # k up to which a sum is one chain, beyond which so many k are in order
    vector_depth: int = 64  # k from which a product with one vector has its sums in lanes
    short: int = 4  # k below which a tile spends its time on loading and storing its sums


@dataclass(frozen=True)
class TileTarget:
    """Bytes of a vector register, number of registers, and when what pays.

    fma: whether it multiplies and adds in one instruction; else a product and a sum round each.
    """

    vector_bytes: int = 64
    registers: int = 32
    limits: Limits = Limits()
    fma: bool = True

    def lanes(self, dtype: DType) -> int:
        """Elements in a vector."""
        return self.vector_bytes // dtype.itemsize

    def has_tile(self, dtype: DType) -> bool:
        """Whether there is a register tile of this element type."""
        return dtype is f32 or dtype is f64

    def tile(self, m: int, n: int, dtype: DType) -> tuple[int, int]:
        """(rows, columns) of the best register tile of an m x n block."""
        return choose_tile(m, n, self.lanes(dtype), self.registers)

    def cycles(self, m: int, n: int, dtype: DType) -> float:
        """Estimated cycles of one step of k over an m x n block in its best tiles."""
        lanes = self.lanes(dtype)
        mr, nr = choose_tile(m, n, lanes, self.registers)
        return _time(max(m, 1), max(1, -(-n // lanes)), mr, nr // lanes)


@lru_cache(maxsize=4096)
def choose_tile(m: int, n: int, lanes: int, registers: int) -> tuple[int, int]:
    """The (mr, nr) with the least time for an m x n product, nr a multiple of `lanes`.

    The caller makes the last rows and columns with tiles of m % mr rows and n % nr columns; their
    time is counted. Accumulators, a row of B and an element of A fit in `registers`. Raises
    ArgumentError for a number of lanes that no register has.
    """
    if lanes not in (1, 2, 4, 8, 16):
        raise ArgumentError(f"no register tile has {lanes} lanes")
    m, vectors = max(m, 1), max(1, -(-n // lanes))
    tiles = [
        (mr, nv)
        for nv in range(1, min(vectors, registers) + 1)
        for mr in range(1, min(MAX_ROWS, m) + 1)
        if mr * nv + nv + 1 <= registers
    ]
    mr, nv = min(tiles, key=lambda tile: _time(m, vectors, *tile))
    return mr, nv * lanes


def _time(m: int, vectors: int, mr: int, nv: int) -> float:
    return sum(a * b * _cycles(r, v) for r, a in _pieces(m, mr) for v, b in _pieces(vectors, nv))


def _pieces(total: int, size: int) -> Iterator[tuple[int, int]]:
    """(size, how often) of the pieces that `total` is cut into."""
    if total >= size:
        yield size, total // size
    if total % size:
        yield total % size, 1


def _cycles(rows: int, vectors: int) -> float:
    """Time of a step of k, in multiply-adds of a vector; fitted to measured tiles of 1x1 to 30x1.

    Fewer than 8 chains can't hide the latency of 4 cycles on two pipes; B comes from L2 at half the
    speed it is used; loads and the call are what is left.
    """
    return max(rows * vectors, 2 * vectors, 8) + 0.05 * (rows + vectors) + 0.12
