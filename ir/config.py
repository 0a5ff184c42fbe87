"""Settings, read once from the environment and handed down as a frozen value."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Config:
    """What `RLX_*` variables ask for.

    debug: 1 a line per pass, 2 and graphs, 4 and loop programs, 5 and LLVM IR.
    dump_dir: the same as numbered files. disable: names of passes and rules to leave out.
    check: compare results before and after each pass on random inputs, and check the memory plan.
    """

    debug: int = 0
    dump_dir: Path | None = None
    disable: frozenset[str] = frozenset()
    check: bool = False
    threads: int | None = None


def read_config() -> Config:
    """The settings of this process."""
    names = os.environ.get("RLX_DISABLE", "")
    dump = os.environ.get("RLX_DUMP_DIR")
    threads = os.environ.get("RLX_THREADS")
    return Config(
        debug=int(os.environ.get("RLX_DEBUG", "0")),
        dump_dir=Path(dump) if dump else None,
        disable=frozenset(n.strip() for n in names.split(",") if n.strip()),
        check=os.environ.get("RLX_CHECK", "0") not in ("", "0"),
        threads=int(threads) if threads else None,
    )


CONFIG = read_config()
