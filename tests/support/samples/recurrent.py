"""Samples of recurrent cells and their scans."""

from __future__ import annotations

from rlx_py.ir.nodes.node import OPS
from rlx_py.ir.ops.nn.recurrent.cells import CELLS, Cell
from support.samples.sample import Sample, reals, sample

# B, S, H, bias, reverse.
SCANS = (("plain", 2, 5, 3, True, False), ("no_bias", 3, 2, 2, False, True),
         ("one_step", 2, 1, 3, True, True), ("no_steps", 2, 0, 3, True, False),
         ("reverse", 1, 3, 2, True, True), ("no_rows", 0, 2, 2, False, False))
STEPS = (("plain", 2, 3, True), ("no_bias", 3, 2, False), ("one", 1, 1, True),
         ("no_rows", 0, 2, True))


def samples_of_cell(cell: Cell) -> list[Sample]:
    found = []
    for case, b, h, bias in STEPS:
        inputs = [0.5 * reals(b, cell.gates * h), reals(cell.gates * h, h, seed=1),
                  *([reals(cell.gates * h, seed=2)] if bias else []),
                  *(reals(b, h, seed=3 + k) for k in range(cell.states))]
        cts = [reals(b, h, seed=7 + k) for k in range(cell.states)]
        found += [sample(OPS[f"{cell.name}_cell"], case, *inputs, bias=bias),
                  sample(OPS[f"{cell.name}_cell_backward"], case, *cts, *inputs, bias=bias)]
    for case, b, s, h, bias, reverse in SCANS:
        inputs = [0.5 * reals(b, s, cell.gates * h), reals(cell.gates * h, h, seed=1),
                  *([reals(cell.gates * h, seed=2)] if bias else []),
                  *(reals(b, h, seed=3 + k) for k in range(cell.states))]
        cts = [reals(b, s, h, seed=6), *(reals(b, h, seed=7 + k) for k in range(cell.states))]
        attrs = {"bias": bias, "reverse": reverse}
        found += [sample(OPS[f"{cell.name}_scan"], case, *inputs, **attrs),
                  sample(OPS[f"{cell.name}_scan_backward"], case, *cts, *inputs, **attrs)]
    return found


SAMPLES = tuple(s for cell in CELLS for s in samples_of_cell(cell))
