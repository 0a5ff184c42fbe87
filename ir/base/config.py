"""Settings, read once from the environment and handed down as a frozen value."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rlx_py.ir.base.errors import ArgumentError


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

    @property
    def watches(self) -> bool:
        """Whether anyone looks at what passes make."""
        return bool(self.debug or self.dump_dir or self.check)


def read_config(variables: Mapping[str, str] = os.environ) -> Config:
    """The settings of this process; an empty one is none. Raises ArgumentError for a bad value."""
    given = {k: v.strip() for k, v in variables.items() if v.strip()}
    check = given.get("RLX_CHECK", "0")
    if check not in ("0", "1"):
        raise ArgumentError(f"RLX_CHECK is 0 or 1, not {check!r}")
    dump = Path(given["RLX_DUMP_DIR"]) if "RLX_DUMP_DIR" in given else None
    if dump is not None and dump.exists() and not dump.is_dir():
        raise ArgumentError(f"RLX_DUMP_DIR is a directory, and {str(dump)!r} is none")
    names = given.get("RLX_DISABLE", "").split(",")
    return Config(
        debug=_whole(given, "RLX_DEBUG", 0) or 0,
        dump_dir=dump,
        disable=frozenset(n.strip() for n in names if n.strip()),
        check=check == "1",
        threads=_whole(given, "RLX_THREADS", 1),
    )


def _whole(given: Mapping[str, str], name: str, least: int) -> int | None:
    text = given.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit()) or len(text) > 9 or int(text) < least:
        raise ArgumentError(f"{name} is a whole number from {least} on, not {text!r}")
    return int(text)


CONFIG = read_config()
