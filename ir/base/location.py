"""The user's own file and line, which every typed error names."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

Location = tuple[str, int]
_PACKAGE = str(Path(__file__).parents[2]) + "/"


def user_location() -> Location | None:
    """File and line of the innermost frame outside this package."""
    frame: FrameType | None = sys._getframe(1)
    # What dataclass writes has no file; its module tells where it belongs.
    while frame is not None and (frame.f_code.co_filename.startswith(_PACKAGE)
                                 or str(frame.f_globals.get("__name__")).startswith("rlx_py.")):
        frame = frame.f_back
    return (frame.f_code.co_filename, frame.f_lineno) if frame else None


def at(loc: Location | None) -> str:
    """The tail of a message that names a source line."""
    return f"\n  at {loc[0]}:{loc[1]}" if loc else ""
