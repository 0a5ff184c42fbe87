"""The columns of docs/singularities.md that speak of PyTorch and JAX."""

from __future__ import annotations

import pytest

from tools import singularities as s

PACKAGES = {"PyTorch": "torch", "JAX": "jax"}


@pytest.mark.parametrize("system", PACKAGES)
@pytest.mark.parametrize("case", s.CASES, ids=lambda c: c.text)
def test_the_table_says_what_peers_give(system: str, case: s.Case) -> None:
    pytest.importorskip(PACKAGES[system])
    assert s.written()[case.text][system] == s.shown(s.SYSTEMS[system](case))
