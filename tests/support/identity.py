"""The engine asks which node it has by identity: `==` of nodes makes an operation.

`in`, `index`, `remove` and `==` of tuples that hold nodes compare too. So in every test a
comparison of nodes by a file of the engine is an error.
"""

from __future__ import annotations

import sys
import weakref
from pathlib import Path
from types import FrameType

import rlx_py as rlx
from rlx_py.ir.nodes import operators

LIBRARY = str(Path(weakref.__file__).parent) + "/"
ENGINE = str(Path(rlx.__file__).parent) + "/"


def is_engine(frame: FrameType) -> bool:
    """Whether a frame runs the engine's code, or what dataclass wrote for it."""
    return (frame.f_code.co_filename.startswith(ENGINE)
            or str(frame.f_globals.get("__name__")).startswith("rlx_py."))


def refuse_comparison_by_the_engine() -> None:
    """Let `==` and `!=` of nodes raise AssertionError from now on where the engine's code asks.

    They ask `compares_with` first. It is replaced rather than they, because a frame of this file
    beneath them would be taken for the user's line.
    """
    compares_with = operators.compares_with

    def guarded(value: object) -> bool:
        asking = sys._getframe(2)
        while asking.f_back is not None and asking.f_code.co_filename.startswith(LIBRARY):
            asking = asking.f_back  # a weak dictionary's, a heap's
        if is_engine(asking):
            raise AssertionError(f"nodes are compared, not identified, at "
                                 f"{asking.f_code.co_filename}:{asking.f_lineno}")
        return compares_with(value)

    operators.compares_with = guarded
