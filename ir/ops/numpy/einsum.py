"""einsum: sums, diagonals, permutations and products, from left to right by CONTRACT."""

from __future__ import annotations

from collections import Counter
from typing import Any

from rlx_py.ir.base.errors import ArgumentError, ShapeError
from rlx_py.ir.base.types import bool_, i64
from rlx_py.ir.nodes.node import Node
from rlx_py.ir.ops.making.located import located
from rlx_py.ir.ops.numpy.products import diagonal
from rlx_py.ir.ops.operands.operand import operands
from rlx_py.ir.ops.primitive.contract import CONTRACT
from rlx_py.ir.ops.primitive.elementwise import cast
from rlx_py.ir.ops.primitive.movement import permuted, reshaped
from rlx_py.ir.ops.primitive.reduce import total

Term = tuple[Node, str]  # a node and the label of each of its axes


@located
def einsum(subscripts: str, *arrays: Any) -> Node:
    """Σ over the labels that the result lacks of the product of all operands, as NumPy's einsum.

    A label twice in one operand takes the diagonal, "..." stands for axes that broadcast, and
    without "->" the result has the labels met once, in alphabetical order.
    """
    nodes = [cast(n, i64) if n.dtype is bool_ else n for n in operands(*arrays)] if arrays else []
    inputs, output = _parse(subscripts, [n.rank for n in nodes])
    sizes = _sizes(nodes, inputs)
    terms = [_plain(n, labels, sizes) for n, labels in zip(nodes, inputs, strict=True)]
    found = terms[0]
    for k, term in enumerate(terms[1:], 2):
        needed = set(output).union(*(labels for _, labels in terms[k:]))
        found = _product(_summed(found, needed | set(term[1])),
                         _summed(term, needed | set(found[1])), needed)
    node, labels = _summed(found, set(output))
    return permuted(node, tuple(labels.index(c) for c in output))


def _parse(subscripts: str, ranks: list[int]) -> tuple[list[str], str]:
    """Labels of the axes of each operand and of the result; upper-case Greek stand for "..."."""
    text = subscripts.replace(" ", "")
    left, arrow, right = text.partition("->")
    parts = left.split(",")
    if len(parts) != len(ranks):
        raise ArgumentError(f"{subscripts!r} has {len(parts)} operands, not {len(ranks)}")
    widths = [rank - len(part.replace("...", "")) for part, rank in zip(parts, ranks, strict=True)]
    dots = [w for w, part in zip(widths, parts, strict=True) if "..." in part]
    batch = "".join(chr(0x391 + i) for i in range(max([0, *dots])))
    inputs = []
    for part, width, rank in zip(parts, widths, ranks, strict=True):
        if width < 0 or (width and "..." not in part):
            raise ArgumentError(f"{part!r} in {subscripts!r} does not fit rank {rank}")
        inputs.append(part.replace("...", batch[len(batch) - width:], 1))
    if not arrow:
        counts = Counter(left.replace("...", "").replace(",", ""))
        right = ("..." if batch else "") + "".join(sorted(c for c, n in counts.items() if n == 1))
    output = right.replace("...", batch, 1)
    labels = set("".join(inputs))
    bad = [c for c in "".join(inputs) + output if not (c.isalpha() and (c.isascii() or c in batch))]
    if bad or len(set(output)) != len(output) or not set(output) <= labels:
        raise ArgumentError(f"{subscripts!r} is not a valid einsum")
    return inputs, output


def _sizes(nodes: list[Node], inputs: list[str]) -> dict[str, int]:
    """The size of each label; a size of 1 stretches."""
    sizes: dict[str, int] = {}
    for node, labels in zip(nodes, inputs, strict=True):
        for label, size in zip(labels, node.shape, strict=True):
            known = sizes.get(label, 1)
            if 1 not in (known, size) and known != size:
                raise ShapeError(f"label {label!r} has sizes {known} and {size}")
            sizes[label] = size if known == 1 else known
    return sizes


def _plain(node: Node, labels: str, sizes: dict[str, int]) -> Term:
    """Each label once, and no axis of size 1 that another operand stretches."""
    kept = [i for i, c in enumerate(labels) if node.shape[i] == sizes[c]]
    node = reshaped(node, tuple(node.shape[i] for i in kept))
    labels = "".join(labels[i] for i in kept)
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            node = diagonal(node, 0, first, second)
            labels = labels[:first] + labels[first + 1:second] + labels[second + 1:] + label
    return node, labels


def _summed(term: Term, needed: set[str]) -> Term:
    """Without the labels that nothing needs."""
    node, labels = term
    axes = tuple(i for i, c in enumerate(labels) if c not in needed)
    return total(node, axes), "".join(c for c in labels if c in needed)


def _product(left: Term, right: Term, needed: set[str]) -> Term:
    """One contraction: shared labels are batch if needed later, else summed."""
    (a, x), (b, y) = left, right
    batch = [c for c in x if c in y and c in needed]
    inner = [c for c in x if c in y and c not in needed]
    node = CONTRACT(a, b, batch=_places(batch, x, y), contract=_places(inner, x, y))
    rest = [c for c in x if c not in y] + [c for c in y if c not in x]
    return node, "".join(batch + rest)


def _places(labels: list[str], x: str, y: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return tuple(x.index(c) for c in labels), tuple(y.index(c) for c in labels)
