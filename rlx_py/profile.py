"""What exe.profile finds, as a table."""

from __future__ import annotations

from dataclasses import dataclass
from os.path import basename

from rlx_py.backends.base import KernelTime
from rlx_py.ir.nodes.node import Location

SHOWN = 20
LINES = 3
UNITS = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6))


@dataclass(frozen=True)
class Profile:
    """Kernels in the order in which they run, with what each takes. Printed, it is a table of the
    slowest."""

    name: str
    kernels: tuple[KernelTime, ...]

    @property
    def seconds(self) -> float:
        """All kernels together."""
        return sum(k.seconds for k in self.kernels)

    @property
    def slowest(self) -> tuple[KernelTime, ...]:
        """The kernels by falling time."""
        return tuple(sorted(self.kernels, key=lambda k: -k.seconds))

    def share(self, kernel: KernelTime) -> float:
        """A kernel's part of the time, 0 … 1."""
        return kernel.seconds / self.seconds if self.seconds else 0.0

    def table(self, count: int | None = None) -> str:
        """A line for each of the `count` slowest kernels (None: all): share, time, arithmetic and
        traffic a second, name, the user's lines."""
        rows = [("share", "time", "GFLOP/s", "GB/s", "kernel", "lines")]
        for k in self.slowest[:count]:
            rows.append((f"{self.share(k):.1%}", _duration(k.seconds), _rate(k.flops, k.seconds),
                         _rate(k.bytes_moved, k.seconds), k.name, _lines(k.sources)))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        text = ["  ".join((*(c.rjust(w) for c, w in zip(row[:4], widths, strict=False)),
                           row[4].ljust(widths[4]), row[5])).rstrip() for row in rows]
        title = f"{self.name}: {_duration(self.seconds)} in {len(self.kernels)} kernels"
        return "\n".join([title, *text])

    def __str__(self) -> str:
        rest = len(self.kernels) - SHOWN
        return self.table(SHOWN) + (f"\n… and {rest} more" if rest > 0 else "")


def _duration(seconds: float) -> str:
    unit, size = next((u for u in UNITS if seconds >= 0.9995 * u[1]), UNITS[-1])
    value = seconds / size
    return f"{value:.3g} {unit}" if value < 999.5 else f"{value:.0f} {unit}"


def _rate(count: int, seconds: float) -> str:
    return f"{count / seconds * 1e-9:.1f}" if seconds else "–"


def _lines(sources: tuple[Location, ...]) -> str:
    """The user's lines, files by their last name, and how many were left out."""
    shown = [f"{basename(file)}:{line}" for file, line in sources[:LINES]]
    return " ".join([*shown, f"+{len(sources) - LINES}"] if len(sources) > LINES else shown)
