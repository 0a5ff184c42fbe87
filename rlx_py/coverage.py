"""What each op of the registry has: inference, meaning, derivatives, native code, element types."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, dataclass, fields

from rlx_py.ir.base.errors import ArgumentError
from rlx_py.ir.base.types import DTYPES
from rlx_py.ir.nodes.node import LEAF, OPS, PROJECT, TUPLE, Op

STRUCTURE = (LEAF, TUPLE, PROJECT)
ALL = "all"
# Operands whose element type may vary. Ops that no row names take floats.
ELEMENT_TYPES = {
    ALL: """leaf tuple project constant size eq ne select stop_gradient cast reshape transpose
        broadcast slice pad concat reverse windows gather take_along scatter_set argsort moe_gather
        barrier in_memory""",
    "float int uint": """neg abs sign add sub mul max min lt le gt ge rem fold reduce_sum
        reduce_prod reduce_max reduce_min argmax argmin cumsum cumsum_backward cumprod cumargmax
        cumargmin linear_recurrence gather_backward take_along_backward scatter_add
        scatter_add_along scatter_max scatter_min contract bitcast iota""",
    "bool int uint": "and or xor not",
    "int uint": "int_div shl shr",
    "bool": "any all",
    "i32": "expert_plan counting_sort",
    "u32": "random_bits random_keys",
}
_KINDS = {name: kinds for kinds, names in ELEMENT_TYPES.items() for name in names.split()}


@dataclass(frozen=True)
class Coverage:
    """A row of the table; each cell says how, or why not."""

    op: str
    infer: str
    eval: str
    vjp: str
    jvp: str
    decompose: str
    compiled: str
    dtypes: str


def coverage_of(op: Op) -> Coverage:
    """What an op has. "decomposed": by what it is made of; "zero": by definition, see `Op`."""
    made = "decomposed" if op.decompose is not None else "none: no rule"
    is_structure = op in STRUCTURE
    if is_structure:
        made = "none: structure of the graph"
    missing = made if op.differentiable else "zero"
    compiled = "fused" if op.element is not None else "loops" if op.kernel is not None else made
    return Coverage(op.name, "own", _own(op.eval is not None, made),
                    _own(op.vjp is not None, missing), _own(op.jvp is not None, missing),
                    "own" if op.decompose is not None else "primitive", compiled, dtypes_of(op))


def _own(has: bool, otherwise: str) -> str:
    return "own" if has else otherwise


def dtypes_of(op: Op) -> str:
    """The element types an op takes, where they may vary."""
    kinds = _KINDS.get(op.name, "float").split()
    if kinds == [ALL]:
        return ALL
    return " ".join(d.name for d in DTYPES.values() if d.kind in kinds or d.name in kinds)


def coverage(names: Iterable[str] = ()) -> list[Coverage]:
    """Rows of the named ops, or of all; ArgumentError for an unknown name."""
    chosen = list(names) or sorted(OPS)
    for name in chosen:
        if name not in OPS:
            raise ArgumentError(f"no op {name!r}")
    return [coverage_of(OPS[name]) for name in chosen]


def table(rows: Iterable[Coverage], *, markdown: bool = False) -> str:
    """The rows as aligned text, or as a Markdown table."""
    header = tuple(f.name for f in fields(Coverage))
    cells = [header, *map(astuple, rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    lines = [[c.ljust(w) for c, w in zip(row, widths, strict=True)] for row in cells]
    if markdown:
        lines.insert(1, ["-" * w for w in widths])
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return "\n".join("  ".join(line).rstrip() for line in lines)
