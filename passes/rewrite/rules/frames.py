"""Products of eigenvectors or singular vectors with values between them, however they are spelled.

A product is read as a network: factors with a label on each axis, summed over the labels that the
result lacks. So `(V * f) @ V.T`, `V @ diag(f) @ V.T`, `einsum` and their transposes are one thing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from rlx_py.ir.nodes.node import PROJECT, Node, Op, project
from rlx_py.ir.ops.making.constant import IOTA
from rlx_py.ir.ops.matrices.factor import EIGH, SVD
from rlx_py.ir.ops.primitive.compare import EQ
from rlx_py.ir.ops.primitive.contract import CONTRACT, dims_of
from rlx_py.ir.ops.primitive.elementwise import CAST, DIV, MUL, NEG, SELECT, fill
from rlx_py.ir.ops.primitive.movement import BROADCAST, PAD, RESHAPE, REVERSE, SLICE, TRANSPOSE
from rlx_py.ir.ops.primitive.reduce import REDUCE_SUM
from rlx_py.passes.rewrite.rules.rule import is_const

# Of each factorisation, the results that hold vectors, and the axis that numbers them.
VECTORS: dict[tuple[Op, int], int] = {(EIGH, 1): -1, (SVD, 0): -1, (SVD, 2): -2}
LONGEST = 64  # nodes that one product is followed through
Label = int | None  # None: an axis of size 1
Labels = tuple[Label, ...]


@dataclass(frozen=True)
class View:
    """Neighbours among the vectors or values of a matrix, from `start` to before `stop`."""

    start: int
    stop: int
    backwards: bool = False

    @property
    def size(self) -> int:
        """How many."""
        return self.stop - self.start

    def turned(self) -> View:
        """The same in the other order."""
        return View(self.start, self.stop, not self.backwards)

    def part(self, start: int, stop: int) -> View:
        """Those at positions start … stop − 1."""
        if self.backwards:
            return View(self.stop - stop, self.stop - start, True)
        return View(self.start + start, self.start + stop)

    def around(self, start: int, size: int) -> View:
        """What is `size` long, and this from its position `start` on."""
        first = self.stop + start - size if self.backwards else self.start - start
        return View(first, first + size, self.backwards)


@dataclass(frozen=True)
class Frame:
    """Vectors in a network: which result of which factorisation, the part of it, its labels."""

    source: Node
    index: int
    view: View
    labels: Labels

    @property
    def axis(self) -> int:
        """The axis that numbers the vectors."""
        return VECTORS[self.source.op, self.index]

    @property
    def number(self) -> Label:
        """The label that numbers the vectors."""
        return self.labels[self.axis]

    @property
    def row(self) -> Label:
        """The label of a vector's elements."""
        return self.labels[-3 - self.axis]

    @property
    def batch(self) -> Labels:
        """The labels of the matrices."""
        return self.labels[:-2]


def viewed(node: Node, axis: int) -> tuple[Node, View, tuple[int, ...]]:
    """What a node takes of one axis of another, that other, and where its axes are in the node;
    parts, reversals and transposes alone count."""
    axis %= node.rank
    order, steps = tuple(range(node.rank)), list[tuple[Node, int]]()
    while node.op in (SLICE, REVERSE, TRANSPOSE):
        if node.op is TRANSPOSE:
            places = node.attrs["axes"]
            order = tuple(order[places.index(i)] for i in range(node.rank))
            axis = places[axis]
        elif not along_axis(node, axis):
            break
        else:
            steps.append((node, axis))
        node = node.inputs[0]
    view = View(0, node.shape[axis])
    for step, place in reversed(steps):
        view = view.turned() if step.op is REVERSE else view.part(
            step.attrs["start"][place], step.attrs["stop"][place])
    return node, view, order


def along_axis(node: Node, axis: int) -> bool:
    """Whether a slice or reversal leaves all axes but one as they are, and skips nothing there."""
    if node.op is REVERSE:
        found: bool = node.attrs["axes"] == (axis,)
        return found
    whole = node.inputs[0].shape
    return node.attrs["step"][axis] == 1 and all(
        n == whole[i] for i, n in enumerate(node.shape) if i != axis)


def frame_of(node: Node, labels: Labels) -> Frame | None:
    """The frame that a node is."""
    for axis in (-1, -2):
        if node.rank < 2:
            return None
        base, view, order = viewed(node, axis)
        if base.op is PROJECT:
            key = (base.inputs[0].op, base.attrs["index"])
            number = VECTORS.get(key)
            if number is not None and order[number] == axis % node.rank:
                return Frame(base.inputs[0], base.attrs["index"], view,
                             tuple(labels[i] for i in order))
    return None


def squeezed(node: Node, labels: Labels) -> Labels:
    """The labels of what a reshape takes sizes of 1 from or gives them to."""
    kept = iter([c for c, size in zip(labels, node.shape, strict=True) if size != 1])
    return tuple(None if size == 1 else next(kept) for size in node.inputs[0].shape)


def is_squeeze(node: Node) -> bool:
    """Whether a reshape only adds or takes sizes of 1."""
    return [d for d in node.inputs[0].shape if d != 1] == [d for d in node.shape if d != 1]


@dataclass
class Network:
    """Factors with labels; equal labels that were found to be one are merged."""

    frames: list[Frame] = field(default_factory=list)
    rest: list[tuple[Node, Labels]] = field(default_factory=list)
    merged: dict[int, int] = field(default_factory=dict)
    singles: dict[tuple[Node, View], Label] = field(default_factory=dict)
    sizes: dict[int, int] = field(default_factory=dict)

    def label(self, size: int) -> Label:
        """A fresh label of an axis."""
        return None if size == 1 else self._fresh(size)

    def _fresh(self, size: int) -> int:
        self.sizes[len(self.sizes)] = size
        return len(self.sizes) - 1

    def _numbered(self, frame: Frame) -> Frame:
        """A frame of a single vector with a label for its number, which the next such one shares:
        whatever two of them are summed over it."""
        if frame.number is not None or project(frame.source, 0).shape[-1] == 1:
            return frame
        key = frame.source, frame.view
        label = self.singles.pop(key, None)
        if label is None:
            label = self.singles[key] = self._fresh(1)
        place = frame.axis % len(frame.labels)
        return replace(frame, labels=(*frame.labels[:place], label, *frame.labels[place + 1:]))

    def find(self, label: Label) -> Label:
        """The label that stands for all merged with it."""
        while label is not None and label in self.merged:
            label = self.merged[label]
        return label

    def resolved(self, labels: Labels) -> Labels:
        """Labels after all mergers."""
        return tuple(self.find(x) for x in labels)

    def add(self, node: Node, labels: Labels) -> None:
        """The factors of a node, as far as vectors and diagonals lie behind products."""
        work = [(node, labels)]
        while work:
            node, labels = work.pop()
            frame = frame_of(node, labels)
            if frame is not None:
                self.frames.append(self._numbered(frame))
            elif _leads(node):
                work += self._parts(node, labels)
            elif node.op is BROADCAST:
                work.append((node.inputs[0], tuple(labels[i] for i in node.attrs["axes"])))
            else:
                self.rest.append((node, labels))

    def _parts(self, node: Node, labels: Labels) -> list[tuple[Node, Labels]]:
        op, attrs = node.op, node.attrs
        if _is_unit(node):
            return self._merge(labels)
        diagonal = _padded_diagonal(node)
        if diagonal is not None:
            self._merge(labels)
            return [(diagonal, labels[:1])]
        if op is CONTRACT:
            return self._contract_parts(node, labels)
        x = node.inputs[0]
        if op is REDUCE_SUM:
            left = iter(labels)
            return [(x, tuple(self.label(size) if i in attrs["axes"] else next(left)
                              for i, size in enumerate(x.shape)))]
        if op is TRANSPOSE:
            order = attrs["axes"]
            return [(x, tuple(labels[order.index(i)] for i in range(x.rank)))]
        if op is BROADCAST:
            return [(x, tuple(labels[i] for i in attrs["axes"]))]
        if op is RESHAPE:
            return [(x, squeezed(node, labels))]
        if op is NEG:
            return [(x, labels), (fill(node, -1), labels)]
        if op is DIV:
            below, kept = node.inputs[1], labels
            if below.op is BROADCAST:
                kept = tuple(labels[i] for i in below.attrs["axes"])
                below = below.inputs[0]
            return [(x, labels), (DIV(fill(below, 1), below), kept)]
        return [(x, labels), (node.inputs[1], labels)]  # MUL, or SELECT by the unit matrix

    def _merge(self, labels: Labels) -> list[tuple[Node, Labels]]:
        a, b = (self.find(x) for x in labels[-2:])
        if a is not None and b is not None and a != b:
            self.merged[a] = b
        return []

    def _contract_parts(self, node: Node, labels: Labels) -> list[tuple[Node, Labels]]:
        a, b = node.inputs
        d = dims_of(a.rank, b.rank, node.attrs["batch"], node.attrs["contract"])
        left: list[Label] = [None] * a.rank
        right: list[Label] = [None] * b.rank
        count, free = len(d.a_batch), len(d.a_batch) + len(d.a_free)
        for i, (x, y) in enumerate(zip(d.a_batch, d.b_batch, strict=True)):
            left[x] = right[y] = labels[i]
        for i, x in enumerate(d.a_free):
            left[x] = labels[count + i]
        for i, y in enumerate(d.b_free):
            right[y] = labels[free + i]
        for x, y in zip(d.a_contract, d.b_contract, strict=True):
            left[x] = right[y] = self.label(a.shape[x])
        return [(a, tuple(left)), (b, tuple(right))]


def network_of(node: Node) -> tuple[Network, Labels]:
    """A product as a network, and the labels of its axes."""
    network = Network()
    labels = tuple(network.label(size) for size in node.shape)
    network.add(node, labels)
    return network, labels


def _structural(node: Node) -> Sequence[Node]:
    """The inputs that a product can be followed into; () where it ends."""
    op = node.op
    if op is CONTRACT or op is MUL:
        return node.inputs
    if op in (TRANSPOSE, BROADCAST, REDUCE_SUM, NEG, DIV):
        return node.inputs[:1]
    if op is RESHAPE:
        return node.inputs if is_squeeze(node) else ()
    if op is SELECT and is_const(node.inputs[2], 0):
        return node.inputs[:1]
    return ()


def _leads(node: Node) -> bool:
    """Whether vectors or a diagonal lie behind structural nodes."""
    seen, stack = set[Node](), [node]
    while stack and len(seen) < LONGEST:
        n = stack.pop()
        if n in seen:
            continue
        seen.add(n)
        if _is_unit(n) or _padded_diagonal(n) is not None:
            return True
        if n.rank >= 2 and frame_of(n, (None,) * n.rank) is not None:
            return True
        stack += _structural(n)
    return False


def _is_unit(node: Node) -> bool:
    """Whether it is the unit matrix as `eye` makes it, or where that is not 0."""
    x = node.inputs[0] if node.op is CAST else node
    if x.op is not EQ or x.rank != 2:
        return False
    places = x.inputs
    return (all(p.op is IOTA for p in places)
            and sorted(p.attrs["axis"] for p in places) == [0, 1])


def _padded_diagonal(node: Node) -> Node | None:
    """The vector of which `diag` makes a matrix."""
    if node.op is not RESHAPE or node.rank != 2 or node.inputs[0].op is not PAD:
        return None
    x, value = node.inputs[0].inputs
    n = x.size
    attrs = {"low": (0,), "high": (0,), "interior": (n,)}
    fits = x.rank == 1 and node.shape == (n, n) and is_const(value, 0)
    return x if fits and dict(node.inputs[0].attrs) == attrs else None
