"""The faults of the score can be planted: their lines are there, once."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.planted import FAULTS, Planted

ROOT = Path(__file__).parents[2]


def test_there_are_twenty() -> None:
    assert len(FAULTS) == len({f.name for f in FAULTS}) == 20


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.name)
def test_a_fault_can_be_planted(fault: Planted) -> None:
    assert (ROOT / fault.file).read_text().count(fault.right) == 1
    assert fault.wrong != fault.right
    assert all((ROOT / t).exists() for t in fault.tests if t.endswith(".py"))
