"""Twenty faults, each a line of the compiler changed, for the score of the tests.

`make score` plants one after the other in a copy of the project, and says whether the tests named
with it (a part of the suite) and the random programs see it.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]


class Planted(NamedTuple):
    """A fault: in `file` the text `right`, which is there once, becomes `wrong`.

    tests: arguments for pytest, tests of the suite that fail then.
    """

    name: str
    file: str
    right: str
    wrong: str
    tests: tuple[str, ...]


RULES = (
    Planted("slope of tanh", "ir/ops/primitive/elementwise.py",
            "SUB(fill(y, 1), MUL(y, y))", "SUB(fill(y, 1), MUL(y, x))",
            ("tests/ir/test_elementwise.py", "-k", "tanh")),
    Planted("slope of a quotient in its divisor", "ir/ops/primitive/elementwise.py",
            "lambda y, a, b: NEG(DIV(y, b)),", "lambda y, a, b: NEG(DIV(a, b)),",
            ("tests/ir/test_elementwise.py", "-k", "div")),
    Planted("gradient of a running sum", "ir/ops/primitive/cumulative.py",
            "CUMSUM(ct, axis=axis, exclusive=exclusive, reverse=not reverse)",
            "CUMSUM(ct, axis=axis, exclusive=exclusive, reverse=reverse)",
            ("tests/sweep/test_sweep_derivatives.py", "-k", "cumsum")),
    Planted("gradient of softmax", "ir/ops/nn/norm/softmax.py",
            "return y * (dy - row_sum(dy * y, axis))", "return y * (dy - row_sum(dy, axis))",
            ("tests/sweep/test_sweep_derivatives.py", "-k", "softmax")),
    Planted("kernel of a convolution's gradient", "ir/ops/nn/conv/conv.py",
            "flipped = REVERSE(w, axes=tuple(range(2, 2 + d)))", "flipped = w",
            ("tests/sweep/test_sweep_derivatives.py", "-k", "conv")),
    Planted("direction of a loop's gradient", "ir/ops/control/scan_rules.py",
            "reverse=not d.loop.reverse)", "reverse=d.loop.reverse)",
            ("tests/passes/test_scan.py",)),
    Planted("gradient of the other branch", "ir/ops/control/branch.py",
            'ad, reverse=True) for k in ("then", "orelse")]',
            'ad, reverse=True) for k in ("then", "then")]',
            ("tests/passes/test_cond.py",)),
    Planted("choice between batched branches", "ir/ops/control/branch.py",
            "a.shape, (0,)), a, b) for a, b in pairs)", "a.shape, (0,)), b, a) for a, b in pairs)",
            ("tests/passes/test_cond.py",)),
    Planted("axis of a batched line", "ir/ops/making/batching.py",
            '{**node.attrs, "axis": node.attrs["axis"] + 1}', "dict(node.attrs)",
            ("tests/passes/test_vmap.py",)),
)
EVALUATIONS = (
    Planted("place of a step's result", "ir/ops/control/scan.py",
            "stack[step] = y", "stack[taken] = y", ("tests/passes/test_scan.py",)),
    Planted("positions outside", "ir/ops/primitive/index.py",
            "return np.where(inside.reshape(shape), found, np.zeros((), found.dtype))",
            "return np.where(inside.reshape(shape) | True, found, np.zeros((), found.dtype))",
            ("tests/sweep/test_sweep_derivatives.py", "-k", "gather")),
)
REWRITES = (
    Planted("two permutations", "passes/rewrite/rules/movement.py",
            'tuple(x.attrs["axes"][a] for a in axes)', 'tuple(axes[a] for a in x.attrs["axes"])',
            ("tests/passes/test_simplify.py",)),
    Planted("a slice over two parts", "passes/rewrite/rules/movement.py",
            "if offset <= first and last < offset + part.shape[axis]:",
            "if offset <= first and first < offset + part.shape[axis]:",
            ("tests/passes/test_simplify.py",)),
    Planted("sum with a negative", "passes/rewrite/rules/arithmetic.py",
            "return SUB(b, a.inputs[0]) if a.op is NEG else None",
            "return SUB(a.inputs[0], b) if a.op is NEG else None",
            ("tests/passes/test_simplify.py",)),
)
SCHEDULES = (
    Planted("loops of two directions joined", "passes/lower/loop_fusion.py",
            "if (a.length, a.reverse, a.counted) != (b.length, b.reverse, b.counted):",
            "if (a.length, a.counted) != (b.length, b.counted):",
            ("tests/passes/test_join.py",)),
    Planted("an update in place that reads elsewhere", "passes/lower/lower.py",
            "m in nest.members and index == place(fusion.vars[m]) and domain(m)[1] is None",
            "m in nest.members and domain(m)[1] is None",
            ("tests/passes/test_in_place.py",)),
    Planted("rows joined that read others", "passes/lower/fuse.py",
            "i[depth] == full[depth] for _, i in inside\n", "True for _, i in inside\n",
            ("tests/passes/test_in_place.py",)),
    Planted("the rest behind chunks", "passes/loops/cpu_schedule.py",
            "{loop.var: as_index(tail) + count * CHUNK}",
            "{loop.var: as_index(tail) + (count - 1) * CHUNK}",
            ("tests/passes/loops/test_schedule.py",)),
    Planted("blocks of the last rows", "passes/loops/products/tiled.py",
            'op = "eq" if piece.steps == piece.cut.rest else "lt"', 'op = "lt"',
            ("tests/passes/loops/test_contract.py",)),
    Planted("memory given away in a loop", "passes/loops/memory.py",
            "first, last = min(first, start), max(last, stop)", "first = min(first, start)",
            ("tests/passes/loops/test_plan.py", "tests/passes/test_control_places.py")),
)
FAULTS = (*RULES, *EVALUATIONS, *REWRITES, *SCHEDULES)


def copy_with(fault: Planted, folder: Path) -> None:
    """A copy of the project, without what is made from it, with the fault in it."""
    shutil.copytree(ROOT, folder, symlinks=True, dirs_exist_ok=True, ignore=shutil.ignore_patterns(
        ".*", "build", "dist", "__pycache__", "*.egg-info"))
    path = folder / fault.file
    source = path.read_text()
    if source.count(fault.right) != 1:
        raise ValueError(f"{fault.file} has {fault.right!r} {source.count(fault.right)} times")
    path.write_text(source.replace(fault.right, fault.wrong))
