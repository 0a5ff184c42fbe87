"""Paths of files, as users give them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from rlx_py.ir.base.errors import ArgumentError
from rlx_py.ir.base.location import at, user_location


def file_path(path: Any) -> Path:
    """A path of a file. ArgumentError for what can be none: another type, no name, a NUL in it."""
    try:
        text = os.fsdecode(path)
        usable = b"\0" not in os.fsencode(text) and bool(Path(text).name)
    except (TypeError, UnicodeError):
        usable = False
    if not usable:
        raise ArgumentError(f"{path!r} is no path of a file" + at(user_location()))
    return Path(text)
