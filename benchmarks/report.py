"""Rows as aligned text, as a Markdown table and as JSON."""

import json
from collections.abc import Sequence
from pathlib import Path

from benchmarks.measure import Row

HEADER = ("case", "system", "median", "min", "vs best peer", "compile", "arena")


def text_table(rows: Sequence[Row]) -> str:
    """An aligned table, each rlx row followed by the phases of its compile time."""
    lines = [HEADER, *map(_cells, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
    for i, row in reversed(list(enumerate(rows, start=1))):
        if len(row.compiled.seconds) > 1:
            phases = (f"{name} {_time(s)}" for name, s in row.compiled.seconds.items())
            text.insert(i + 1, " " * (widths[0] + 2) + "  compile: " + " + ".join(phases))
    return "\n".join(text)


def markdown_table(rows: Sequence[Row], machine: dict[str, str | int]) -> str:
    """The table for the README, under a line that says where it was measured."""
    where = ", ".join(f"{name} {value}" for name, value in machine.items())
    rule = ("---", "---", *["---:"] * (len(HEADER) - 2))
    lines = [HEADER, rule, *map(_cells, rows)]
    table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return f"Measured on: {where}.\n\n{table}"


def write_json(path: Path, rows: Sequence[Row], machine: dict[str, str | int]) -> None:
    """All figures, in seconds and bytes."""
    entries = [
        {
            "case": row.case,
            "system": row.system,
            "median_s": row.median,
            "min_s": row.minimum,
            "steps": row.steps,
            "ratio": row.ratio,
            "best_peer": row.best_peer,
            "compile_s": row.compiled.seconds,
            "arena_bytes": row.compiled.arena_bytes,
            "losses": row.losses,
        }
        for row in rows
    ]
    path.write_text(json.dumps({"machine": machine, "rows": entries}, indent=2) + "\n")


def _cells(row: Row) -> tuple[str, ...]:
    arena = row.compiled.arena_bytes
    return (
        row.case,
        row.system,
        _time(row.median),
        _time(row.minimum),
        "–" if row.ratio is None else f"{row.ratio:.2f}×",
        _time(sum(row.compiled.seconds.values())),
        "–" if arena is None else f"{arena / 2**20:.2f} MiB",
    )


def _time(seconds: float) -> str:
    if seconds < 1e-3:
        return f"{seconds * 1e6:.1f} µs"
    if seconds < 1:
        return f"{seconds * 1e3:.2f} ms"
    return f"{seconds:.2f} s"
