"""Random tests draw the same examples in every run; HYPOTHESIS_PROFILE=explore draws new ones.

The memory plan of every program that a test compiles in its own process is checked, and the
engine may not compare nodes (tests/support/identity.py).
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from rlx_py.ir.loops.program import Program
from rlx_py.passes import pipeline
from rlx_py.passes.loops.memory import plan_memory
from rlx_py.passes.loops.plan_check import check_plan
from support.identity import refuse_comparison_by_the_engine

settings.register_profile("suite", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "suite"))
refuse_comparison_by_the_engine()


@pytest.fixture(autouse=True, scope="session")
def _plans_are_checked() -> Iterator[None]:
    def checked(program: Program) -> Program:
        planned = plan_memory(program)
        check_plan(planned)
        return planned

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline, "plan_memory", checked)
        yield
