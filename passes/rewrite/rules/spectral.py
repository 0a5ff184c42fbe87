"""Functions of a matrix, written with its eigenvectors or singular vectors, as ops that are
differentiable where the vectors are not.

Applied before differentiation only: a backend expands the ops again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from string import ascii_letters

from rlx_py.ir.base.types import TensorType, TupleType, bool_
from rlx_py.ir.graph.activity import dependents
from rlx_py.ir.nodes.node import LEAF, PROJECT, Node, leaf, make, project, toposort
from rlx_py.ir.ops.making.constant import constant
from rlx_py.ir.ops.making.families import scalar_element
from rlx_py.ir.ops.making.rows import same_axes
from rlx_py.ir.ops.matrices.factor import EIGH
from rlx_py.ir.ops.matrices.factor_gradients import turned
from rlx_py.ir.ops.matrices.scalar_body import opened, scalar_body
from rlx_py.ir.ops.matrices.spectral import SINGULAR, SPECTRAL
from rlx_py.ir.ops.numpy.einsum import einsum
from rlx_py.ir.ops.numpy.products import matmul
from rlx_py.ir.ops.numpy.shaping import window
from rlx_py.ir.ops.operands.operand import broadcast_to
from rlx_py.ir.ops.primitive.compare import EQ
from rlx_py.ir.ops.primitive.contract import CONTRACT
from rlx_py.ir.ops.primitive.elementwise import ADD, CAST, MUL, SELECT, SQRT, STOP_GRADIENT, fill
from rlx_py.ir.ops.primitive.movement import (
    BROADCAST,
    PAD,
    RESHAPE,
    REVERSE,
    SLICE,
    TRANSPOSE,
    padded,
    permuted,
    reshaped,
)
from rlx_py.ir.ops.primitive.reduce import REDUCE_SUM
from rlx_py.passes.rewrite.rules.frames import (
    Frame,
    Labels,
    Network,
    View,
    along_axis,
    is_squeeze,
    network_of,
    squeezed,
    viewed,
)
from rlx_py.passes.rewrite.rules.rule import is_const, number_of, rule


@rule(CONTRACT, REDUCE_SUM)
def function_of_matrix(n: Node) -> Node | None:  # V f(λ) Vᵀ, U f(σ) Vᵀ -> functions of a
    if not n.dtype.is_float:
        return None
    network, output = network_of(n)
    pair = _pair(network)
    if pair is None or network.find(pair[0].number) in network.resolved(output):
        return None
    found = _Match(network, *pair).function()
    if found is None:
        return None
    value, labels, rest = found
    names: dict[int, str] = {}
    terms = [(value, labels), *((x, network.resolved(c)) for x, c in rest)]
    wanted = network.resolved(output)
    kept = [c for c in wanted if c is not None]
    if len(set(kept)) != len(kept):
        return None
    known = {c for _, labels in terms for c in labels} | {network.find(pair[0].number)}
    if not set(kept) <= known:
        return None
    text = ",".join(_letters(c, names) for _, c in terms) + "->" + _letters(wanted, names)
    # What is summed, and held by no factor, is added as often as it is repeated.
    times = prod(size for c, size in network.sizes.items()
                 if c == network.find(c) and c not in known)
    whole = einsum(text, *[_without_units(x, c) for x, c in terms])
    return reshaped(whole if times == 1 else whole * times, n.shape)


def _letters(labels: Labels, names: dict[int, str]) -> str:
    return "".join(names.setdefault(c, ascii_letters[len(names)]) for c in labels if c is not None)


def _without_units(x: Node, labels: Labels) -> Node:
    return reshaped(x, tuple(d for d, c in zip(x.shape, labels, strict=True) if c is not None))


def _pair(network: Network) -> tuple[Frame, Frame] | None:
    """The two frames of one factorisation that share the label of their vectors."""
    frames = network.frames
    for a in frames:
        number = network.find(a.number)
        alike = [b for b in frames if network.find(b.number) == number]
        if number is None or len(alike) != 2 or a is not alike[0]:
            continue
        b = alike[1]
        if (a.source is b.source and a.view == b.view
                and network.resolved(a.batch) == network.resolved(b.batch)):
            return (a, b)
    return None


class _Unknown(Exception):
    """The values between the vectors are no function of each λ."""


@dataclass
class _Match:
    """Two frames, and what lies between them."""

    network: Network
    first: Frame
    second: Frame
    params: list[Node] = field(default_factory=list)
    leaves: list[Node] = field(default_factory=list)
    known: dict[tuple[Node, Labels, View], Node] = field(default_factory=dict)

    def function(self) -> tuple[Node, Labels, list[tuple[Node, Labels]]] | None:
        """The function of the matrix, its labels, and the factors that it leaves."""
        network = self.network
        self.number = network.find(self.first.number)
        self.batch = network.resolved(self.first.batch)
        factors = [(x, network.resolved(c)) for x, c in network.rest]
        between = [(x, c) for x, c in factors if self.number in c]
        rest = [(x, c) for x, c in factors if self.number not in c]
        rest += [(self._vectors(f), network.resolved(f.labels)) for f in network.frames
                 if f is not self.first and f is not self.second]
        rows = [network.find(f.row) for f in (self.first, self.second)]
        seen = {c for _, labels in between for c in labels} - {None, self.number}
        if self.number in {*rows, *self.batch} or not seen.isdisjoint(set(rows) - {None}):
            return None
        self.extra = tuple(sorted(c for c in seen if c is not None and c not in self.batch))
        try:
            body = self._body(between)
        except _Unknown:
            return None
        return self._made(body), (*self.extra, *self.batch, *rows), rest

    def _vectors(self, frame: Frame) -> Node:
        x = project(frame.source, frame.index)
        return _seen(x, frame.view, frame.axis)

    # ---- the function between the vectors ------------------------------------------------------

    def _body(self, between: list[tuple[Node, Labels]]) -> str:
        source = self.first.source
        values = project(source, 0 if source.op is EIGH else 1)
        self.values = values
        self.depends = {source}
        order = toposort([x for x, _ in between])
        for node in order:
            if not self.depends.isdisjoint(node.inputs):
                self.depends.add(node)
        # What moves with the matrix and comes with the places may be its values by another way.
        self.moving = dependents(order, (n for n in toposort([source]) if n.op is LEAF))
        self.x = leaf("x", "input", TensorType(values.dtype, ()))
        view = self.first.view
        parts = [self._scalar(node, labels, view) for node, labels in between]
        value: Node | None = None
        # σ·σ comes together, which _of_squares looks for.
        for part in sorted(parts, key=lambda p: p is not self.x):
            value = part if value is None else MUL(value, part)
        if value is None:
            value = fill(self.x, 1)
        # What is left out of the vectors counts 0.
        value = self._within(value, view, View(0, values.shape[-1]))
        return scalar_body([self.x, *self.leaves], value)

    def _within(self, value: Node, view: View, outer: View) -> Node:
        """The value in a part, 0 in the rest of an outer one."""
        if view.size == outer.size:
            return value
        n = self.values.shape[-1]
        kept = _unseen(broadcast_to(constant(True), (view.size,)), view, n)
        return SELECT(self._param(_seen(kept, outer, -1), (self.number,), outer), value,
                      fill(value, 0))

    def _scalar(self, node: Node, labels: Labels, view: View) -> Node:
        """The value at one λ of a node that holds those of a part."""
        key = (node, labels, view)
        if key not in self.known:
            self.known[key] = self._made_scalar(node, labels, view)
        return self.known[key]

    def _made_scalar(self, node: Node, labels: Labels, view: View) -> Node:
        op, attrs, number = node.op, node.attrs, number_of(node)
        if number is not None:
            return constant(number, node.dtype)
        if self.number not in labels:
            return self._param(node, labels, view)
        if node not in self.depends and not _uniform(node, labels.index(self.number)):
            if node in self.moving:
                raise _Unknown
            return self._param(node, labels, view)
        if self._holds_values(node, labels, view):
            return self.x
        if op is STOP_GRADIENT or not node.inputs:
            raise _Unknown
        x = node.inputs[0]
        if op is BROADCAST:
            return self._scalar(x, tuple(labels[i] for i in attrs["axes"]), view)
        if op is TRANSPOSE:
            order = attrs["axes"]
            return self._scalar(x, tuple(labels[order.index(i)] for i in range(x.rank)), view)
        if op is RESHAPE and is_squeeze(node):
            return self._scalar(x, squeezed(node, labels), view)
        axis = labels.index(self.number)
        if op is REVERSE and attrs["axes"] == (axis,):
            return self._scalar(x, labels, view.turned())
        if op is SLICE and along_axis(node, axis):
            return self._scalar(x, labels, view.around(attrs["start"][axis], x.shape[axis]))
        if op is PAD and _pads(node, axis):
            start = attrs["low"][axis]
            inner = view.part(start, start + x.shape[axis])
            return self._within(self._scalar(x, labels, inner), inner, view)
        return self._elementwise(node, labels, view)

    def _holds_values(self, node: Node, labels: Labels, view: View) -> bool:
        base, found, _ = viewed(node, -1)
        values = self.values
        return (base.op is PROJECT and base.inputs[0] is values.inputs[0]
                and base.attrs["index"] == values.attrs["index"]
                and found == view and labels == (*self.batch, self.number))

    def _elementwise(self, node: Node, labels: Labels, view: View) -> Node:
        op = node.op
        smooth = op.vjp is not None or not op.differentiable
        if _is_elementwise(node) and smooth:
            return make(op, [self._scalar(x, labels, view) for x in node.inputs], node.attrs)
        if op.decompose is None:
            raise _Unknown
        inner = op.decompose(*node.inputs, **node.attrs)
        if not isinstance(inner, Node):
            raise _Unknown
        for n in toposort([inner]):
            if not self.depends.isdisjoint(n.inputs):
                self.depends.add(n)
        return self._scalar(inner, labels, view)

    def _param(self, node: Node, labels: Labels, view: View) -> Node:
        """A leaf of the body for one value of each matrix, or of each λ."""
        sizes, own = self.network.sizes, self.number in labels
        place = (*self.extra, *self.batch)
        order = [*place, *([self.number] if own else [])]
        present = [c for c in labels if c is not None]
        if len(set(present)) != len(present) or not set(present) <= set(order):
            raise _Unknown
        x = _without_units(node, labels)
        x = permuted(x, tuple(present.index(c) for c in order if c is not None and c in present))
        shape = dict(zip(sorted(present, key=order.index), x.shape, strict=True))
        x = reshaped(x, (*(shape.get(c, 1) if c is not None else 1 for c in order),
                         *([] if own else [1])))
        x = broadcast_to(x, (*(1 if c is None else sizes[c] for c in place), x.shape[-1]))
        if own and (view.start < 0 or view.stop > self.values.shape[-1]):
            raise _Unknown
        self.params.append(_unseen(x, view, self.values.shape[-1]) if own else x)
        self.leaves.append(leaf(f"p{len(self.leaves)}", "input", TensorType(node.dtype, ())))
        return self.leaves[-1]

    # ---- the op ----------------------------------------------------------------------------------

    def _made(self, body: str) -> Node:
        source = self.first.source
        lead = tuple(self.network.sizes[c] for c in self.extra)

        def wide(x: Node) -> Node:
            return broadcast_to(x, (*lead, *x.shape)) if lead else x

        a = wide(source.inputs[0])
        factors = [wide(project(source, i)) for i in range(len(source))]
        if source.op is EIGH:
            return SPECTRAL(a, *factors, *self.params, body=body, order=0)
        return _of_singular_values(a, factors, self.params, body,
                                   (self.first.index, self.second.index))


def _of_singular_values(a: Node, factors: Sequence[Node], params: Sequence[Node], body: str,
                        sides: tuple[int, int]) -> Node:
    """U f(σ) Vᵀ, V f(σ) Uᵀ, U f(σ) Uᵀ or V f(σ) Vᵀ."""
    u, s, vt = factors
    if a.shape[-2] < a.shape[-1]:
        flipped = (2 - sides[0], 2 - sides[1])
        return _of_singular_values(turned(a), (turned(vt), s, turned(u)), params, body, flipped)
    if sides[0] != sides[1]:
        found = SINGULAR(a, u, s, vt, *params, body=body, order=0)
        return found if sides[0] == 0 else turned(found)
    if sides[0] == 2 or a.shape[-2] == a.shape[-1]:
        # The vectors are all there: a function of the eigenvalues σ² of aᵀa or aaᵀ.
        v = turned(vt) if sides[0] == 2 else u
        gram = matmul(turned(a), a) if sides[0] == 2 else matmul(a, turned(a))
        return SPECTRAL(gram, s * s, v, *params, body=_of_squares(body), order=0)
    one = scalar_body(_leaves(body)[:1], fill(_leaves(body)[0], 1))
    return matmul(SINGULAR(a, u, s, vt, *params, body=body, order=0),
                  turned(SINGULAR(a, u, s, vt, body=one, order=0)))


def _uniform(node: Node, axis: int) -> bool:
    """Whether a node is made of what is repeated along an axis."""
    if node.op is BROADCAST:
        return axis not in node.attrs["axes"]
    return _is_elementwise(node) and all(_uniform(x, axis) for x in node.inputs)


def _is_elementwise(node: Node) -> bool:
    """Whether each element is that of a function of scalars, as of an op that keeps all axes apart.
    """
    if not node.inputs or any(isinstance(x.type, TupleType) or x.shape != node.shape
                              for x in (node, *node.inputs)):
        return False
    op, apart = node.op, same_axes(node.rank)
    return op.element is scalar_element or op is CAST or (
        op.rows is not None and all(own == apart for own in op.rows(node)))


def _leaves(body: str) -> list[Node]:
    return opened(body)[0]


def _of_squares(body: str) -> str:
    """f(√x). Its slope at 0 is infinite, whatever f is, unless f is written with x² alone."""
    (old, *others), y = opened(body)
    x = leaf("x", "input", old.tensor)
    done: dict[Node, Node] = {n: n for n in others}
    root = SQRT(x)
    for node in toposort([y]):
        if node is old:
            done[node] = root
        elif node.op is MUL and all(n is old for n in node.inputs):
            done[node] = x
        elif node not in done:
            done[node] = make(node.op, [done[n] for n in node.inputs], node.attrs)
    value = done[y]
    if any(n is root for n in toposort([value])):
        value = ADD(value, SELECT(EQ(x, fill(x, 0)), root, fill(x, 0)))
    return scalar_body([x, *others], value)


# ---- parts of vectors --------------------------------------------------------------------------


def _seen(x: Node, view: View, axis: int) -> Node:
    """The part of one axis, as the vectors have it."""
    axis %= x.rank
    x = window(x, axis, view.start, view.stop)
    return REVERSE(x, axes=(axis,)) if view.backwards else x


def _unseen(x: Node, view: View, size: int) -> Node:
    """The last axis with zeros where the part lacks it."""
    axis = x.rank - 1
    x = REVERSE(x, axes=(axis,)) if view.backwards else x
    rest = (0,) * axis
    zero = constant(False) if x.dtype is bool_ else constant(0, x.dtype)
    return padded(x, zero, (*rest, view.start), (*rest, size - view.stop), (*rest, 0))


def _pads(node: Node, axis: int) -> bool:
    """Whether zeros are put around one axis, and nothing else."""
    low, high, interior = (node.attrs[k] for k in ("low", "high", "interior"))
    others = [a for i in range(node.rank) if i != axis for a in (low[i], high[i])]
    return (is_const(node.inputs[1], 0) and not any(interior) and not any(others)
            and low[axis] >= 0 and high[axis] >= 0)


RULES = (function_of_matrix,)
