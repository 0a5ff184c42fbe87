"""Samples of what keeps regions apart."""

from __future__ import annotations

from rlx_py.ir.ops.primitive.barrier import BARRIER, IN_MEMORY
from support.samples.sample import hostile, reals, sample

SAMPLES = (
    sample(BARRIER, "alone", reals(3, 2)),
    sample(BARRIER, "after", reals(2, 3), reals(4)),
    sample(BARRIER, "after-two", reals(), reals(0, 2), reals(2)),
    sample(IN_MEMORY, "matrix", reals(3, 2)),
    sample(IN_MEMORY, "scalar", reals()),
    sample(IN_MEMORY, "empty", reals(0, 2)),
    sample(BARRIER, "hostile", hostile(12), reals(), smooth=False),
)
