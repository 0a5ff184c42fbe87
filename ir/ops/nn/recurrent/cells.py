"""Recurrent cells and their scans over time: plain (tanh), gated (GRU) and long short-term memory.

The products of the inputs come precomputed: gates[B, S, G·H] = x Wᵢᵀ + bᵢ, one product for all
steps. A step then is one product W h + b and what its cell makes of both; the backward pass reads
what the forward one made of each step, and its sums over the steps are one product behind the loop.

Formulas: Elman 1990; Cho et al. 2014, with the bias of the candidate inside r·(…), as Appleyard et
al. 2016; Hochreiter and Schmidhuber 1997, with the forget gate of Gers et al. 2000.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from rlx_py.ir.base.errors import ShapeError
from rlx_py.ir.base.types import TensorType, TupleType, Type
from rlx_py.ir.graph.transforms import AD
from rlx_py.ir.nodes.node import Cotangent, Node, Op
from rlx_py.ir.ops.control.batched import merge_rows
from rlx_py.ir.ops.control.loops import scan
from rlx_py.ir.ops.control.region import filled_floats
from rlx_py.ir.ops.making.arguments import require_floats, require_shape
from rlx_py.ir.ops.making.families import composite
from rlx_py.ir.ops.making.rows import first_axis
from rlx_py.ir.ops.numpy.products import contracted
from rlx_py.ir.ops.numpy.shaping import window
from rlx_py.ir.ops.operands.precision import in_compute_type
from rlx_py.ir.ops.primitive.elementwise import TANH
from rlx_py.ir.ops.primitive.movement import CONCAT, permuted, reshaped, spread
from rlx_py.ir.ops.primitive.reduce import REDUCE_SUM
from rlx_py.ir.ops.primitive.special import LOGISTIC

Nodes = tuple[Node, ...]


@dataclass(frozen=True)
class Cell:
    """One step of a recurrence whose first state is what it gives.

    step(input gates, state gates, states): the next states, and what the backward pass reads.
    pull(cotangents of the next states, states, next states, what step kept): cotangents of the
    input gates, of the state gates, and of the states but for what the state gates hand on (None:
    nothing).
    """

    name: str
    gates: int
    states: int
    step: Callable[[Node, Node, Nodes], tuple[Nodes, Nodes]]
    pull: Callable[[Nodes, Nodes, Nodes, Nodes], tuple[Node, Node, tuple[Node | None, ...]]]


def _parts(gates: Node, count: int) -> list[Node]:
    """The gates of [B, G·H]."""
    size = gates.shape[-1] // count
    return [window(gates, gates.rank - 1, k * size, (k + 1) * size) for k in range(count)]


def _side_by_side(*gates: Node) -> Node:
    return CONCAT(*gates, axis=gates[0].rank - 1)


def _rnn_step(gi: Node, gh: Node, states: Nodes) -> tuple[Nodes, Nodes]:
    """h' = tanh(gi + gh)."""
    return (TANH(gi + gh),), ()


def _rnn_pull(d: Nodes, states: Nodes, after: Nodes, kept: Nodes
              ) -> tuple[Node, Node, tuple[Node | None, ...]]:
    """da = d(1 − h'²)."""
    (h,) = after
    da = d[0] * (1 - h * h)
    return da, da, (None,)


def _gru_step(gi: Node, gh: Node, states: Nodes) -> tuple[Nodes, Nodes]:
    """r = σ(gi_r + gh_r), z = σ(gi_z + gh_z), n = tanh(gi_n + r·gh_n), h' = (1 − z)n + z·h."""
    (h,) = states
    (ir, iz, i_n), (hr, hz, hn) = _parts(gi, 3), _parts(gh, 3)
    r, z = LOGISTIC(ir + hr), LOGISTIC(iz + hz)
    n = TANH(i_n + r * hn)
    return ((1 - z) * n + z * h,), (r, z, n, hn)


def _gru_pull(d: Nodes, states: Nodes, after: Nodes, kept: Nodes
              ) -> tuple[Node, Node, tuple[Node | None, ...]]:
    """da = d(1 − z)(1 − n²), dz = d(h − n)z(1 − z), dr = da·gh_n·r(1 − r)."""
    (h,), (r, z, n, hn), (dh,) = states, kept, d
    da = dh * (1 - z) * (1 - n * n)
    dz = dh * (h - n) * z * (1 - z)
    dr = da * hn * r * (1 - r)
    return _side_by_side(dr, dz, da), _side_by_side(dr, dz, da * r), (dh * z,)


def _lstm_step(gi: Node, gh: Node, states: Nodes) -> tuple[Nodes, Nodes]:
    """i, f, g, o = σ, σ, tanh, σ of gi + gh; c' = f·c + i·g, h' = o·tanh(c')."""
    i, f, g, o = _parts(gi + gh, 4)
    i, f, g, o = LOGISTIC(i), LOGISTIC(f), TANH(g), LOGISTIC(o)
    c = f * states[1] + i * g
    bounded = TANH(c)
    return (o * bounded, c), (i, f, g, o, bounded)


def _lstm_pull(d: Nodes, states: Nodes, after: Nodes, kept: Nodes
               ) -> tuple[Node, Node, tuple[Node | None, ...]]:
    """dc' += d·o(1 − tanh²c'); di = dc'·g·i(1 − i), df = dc'·c·f(1 − f), dg = dc'·i(1 − g²),
    do = d·tanh(c')·o(1 − o); dc = dc'·f."""
    i, f, g, o, bounded = kept
    dh, dc = d
    dc = dc + dh * o * (1 - bounded * bounded)
    da = _side_by_side(dc * g * i * (1 - i), dc * states[1] * f * (1 - f), dc * i * (1 - g * g),
                       dh * bounded * o * (1 - o))
    return da, da, (None, dc * f)


RNN = Cell("rnn", 1, 1, _rnn_step, _rnn_pull)
GRU = Cell("gru", 3, 1, _gru_step, _gru_pull)
LSTM = Cell("lstm", 4, 2, _lstm_step, _lstm_pull)
CELLS = (RNN, GRU, LSTM)

# ---- types -----------------------------------------------------------------------------------


def _check(cell: Cell, op: str, gates: TensorType, w: TensorType, *rest: TensorType, bias: bool,
           rank: int) -> TensorType:
    """The type of a state [B, H]."""
    require_floats(op, gates, w, *rest)
    if gates.rank != rank or gates.shape[-1] % cell.gates:
        axes = "[B, S, " if rank == 3 else "[B, "
        raise ShapeError(f"gates must be {axes}{cell.gates}·H], not {gates}")
    size = gates.shape[-1] // cell.gates
    require_shape("weight", w, (cell.gates * size, size))
    if len(rest) != bias + cell.states:
        raise ShapeError(f"{len(rest)} operands beside gates and weight, with bias={bias} and "
                         f"{cell.states} states")
    if bias:
        require_shape("bias", rest[0], (cell.gates * size,))
    state = gates.with_shape((gates.shape[0], size))
    for t in rest[bias:]:
        require_shape("a state", t, state.shape)
    return state


def _joined(types: Sequence[TensorType]) -> Type:
    return types[0] if len(types) == 1 else TupleType(tuple(types))


def _check_cotangents(cts: Sequence[TensorType], results: Sequence[TensorType]) -> None:
    for ct, y in zip(cts, results, strict=True):
        if ct != y:
            raise ShapeError(f"a cotangent {ct} of a result {y}")


def _rows(cell: Cell, node: Node) -> tuple[bool, ...]:
    """Which inputs of an op have an axis of rows: gates and states."""
    return (True, *[False] * (len(node.inputs) - 1 - cell.states), *[True] * cell.states)


# ---- one step --------------------------------------------------------------------------------


def _product(h: Node, w: Node, bias: Sequence[Node]) -> Node:
    """h Wᵀ + b."""
    gates = contracted(h, w, (1,), (1,))
    return gates + spread(bias[0], gates.shape, (1,)) if bias else gates


def _handed_back(direct: Sequence[Node | None], dgates: Node, w: Node) -> Nodes:
    """The cotangents of the states: the first one has its share of the state gates."""
    through = contracted(dgates, w, (1,), (0,))
    first, *rest = direct
    return (through if first is None else first + through, *(d for d in rest if d is not None))


def _weight_gradients(dgates: Node, before: Node, bias: bool) -> list[Node]:
    """dW = Σ dgates hᵀ over all axes but the last, and db = Σ dgates."""
    axes = tuple(range(dgates.rank - 1))
    return [contracted(dgates, before, axes, axes),
            *([REDUCE_SUM(dgates, axes=axes)] if bias else [])]


def _cell_op(cell: Cell) -> Op:
    """The op of a step on gates [B, G·H], W[G·H, H], b where bias, and states [B, H]."""
    name = f"{cell.name}_cell"

    def infer(*types: TensorType, bias: bool) -> Type:
        state = _check(cell, name, *types, bias=bias, rank=2)
        return _joined([state] * cell.states)

    def infer_backward(*types: TensorType, bias: bool) -> Type:
        cts, inputs = types[:cell.states], types[cell.states:]
        state = _check(cell, f"{name}_backward", *inputs, bias=bias, rank=2)
        _check_cotangents(cts, [state] * cell.states)
        return TupleType(tuple(inputs))

    @in_compute_type
    def decompose(gates: Node, w: Node, *rest: Node, bias: bool) -> Any:
        after, _ = cell.step(gates, _product(rest[bias:][0], w, rest[:bias]), rest[bias:])
        return after if cell.states > 1 else after[0]

    @in_compute_type
    def decompose_backward(*nodes: Node, bias: bool) -> Nodes:
        cts, (gates, w, *rest) = nodes[:cell.states], nodes[cell.states:]
        states = tuple(rest[bias:])
        after, kept = cell.step(gates, _product(states[0], w, rest[:bias]), states)
        dgi, dgh, direct = cell.pull(cts, states, after, kept)
        return (dgi, *_weight_gradients(dgh, states[0], bias), *_handed_back(direct, dgh, w))

    def vjp(node: Node, ct: Cotangent, ad: AD) -> Sequence[Node | None]:
        cts = filled_floats(ct, node) if cell.states > 1 else [ct]
        return list(backward(*cts, *node.inputs, **node.attrs))

    flags = partial(_rows, cell)
    backward = composite(f"{name}_backward", infer_backward, decompose_backward)
    return composite(name, infer, decompose, vjp=vjp, batch=merge_rows(flags),
                     rows=first_axis(flags))


# ---- all steps -------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Run:
    """What a scan made: states after the last step, and of each step, time first, its states and
    what the cell kept."""

    last: Nodes
    after: Nodes
    kept: Nodes


def _by_time(x: Node) -> Node:
    """[B, S, …] as [S, B, …], and back."""
    return permuted(x, (1, 0, *range(2, x.rank)))


def _run(cell: Cell, gates: Node, w: Node, bias: Sequence[Node], states: Nodes,
         reverse: bool) -> _Run:
    """The scan of forward and backward pass: equal computations are one."""

    def body(carry: Nodes, gi: Node) -> tuple[Nodes, tuple[Nodes, Nodes]]:
        after, kept = cell.step(gi, _product(carry[0], w, bias), carry)
        return after, (after, kept)

    last, (after, kept) = scan(body, states, _by_time(gates), reverse=reverse)
    return _Run(last, after, kept)


def _before(first: Node, after: Node, reverse: bool) -> Node:
    """The state before each step, of the first one and those after the steps."""
    edge = reshaped(first, (1, *first.shape))
    steps = after.shape[0]
    if reverse:
        return window(CONCAT(after, edge, axis=0), 0, 1, steps + 1)
    return window(CONCAT(edge, after, axis=0), 0, 0, steps)


def _pulled_back(cell: Cell, cts: Nodes, w: Node, first: Nodes, run: _Run, reverse: bool
                 ) -> tuple[Nodes, Node, Node]:
    """Cotangents of the first states, and of each step's input gates and state gates."""
    before = tuple(_before(s, a, reverse) for s, a in zip(first, run.after, strict=True))

    def body(carry: Nodes, step: Any) -> Any:
        dy, states, after, kept = step
        dgi, dgh, direct = cell.pull((carry[0] + dy, *carry[1:]), states, after, kept)
        return _handed_back(direct, dgh, w), (dgi,) if dgi is dgh else (dgi, dgh)

    steps = (_by_time(cts[0]), before, run.after, run.kept)
    found, dgates = scan(body, cts[1:], steps, reverse=not reverse)
    return found, dgates[0], dgates[-1]


def _scan_op(cell: Cell) -> Op:
    """The op of all steps on gates [B, S, G·H], W[G·H, H], b where bias, and states [B, H]: what
    each step gives, [B, S, H], and the last states."""
    name = f"{cell.name}_scan"

    def results(state: TensorType, gates: TensorType) -> list[TensorType]:
        return [gates.with_shape((*gates.shape[:2], *state.shape[1:])), *[state] * cell.states]

    def infer(*types: TensorType, bias: bool, reverse: bool) -> Type:
        state = _check(cell, name, *types, bias=bias, rank=3)
        return TupleType(tuple(results(state, types[0])))

    def infer_backward(*types: TensorType, bias: bool, reverse: bool) -> Type:
        cts, inputs = types[:cell.states + 1], types[cell.states + 1:]
        state = _check(cell, f"{name}_backward", *inputs, bias=bias, rank=3)
        _check_cotangents(cts, results(state, inputs[0]))
        return TupleType(tuple(inputs))

    @in_compute_type
    def decompose(gates: Node, w: Node, *rest: Node, bias: bool, reverse: bool) -> Nodes:
        run = _run(cell, gates, w, rest[:bias], rest[bias:], reverse)
        return (_by_time(run.after[0]), *run.last)

    @in_compute_type
    def decompose_backward(*nodes: Node, bias: bool, reverse: bool) -> Nodes:
        cts, (gates, w, *rest) = nodes[:cell.states + 1], nodes[cell.states + 1:]
        first = tuple(rest[bias:])
        run = _run(cell, gates, w, rest[:bias], first, reverse)
        dfirst, dgi, dgh = _pulled_back(cell, cts, w, first, run, reverse)
        before = _before(first[0], run.after[0], reverse)
        return (_by_time(dgi), *_weight_gradients(dgh, before, bias), *dfirst)

    def vjp(node: Node, ct: Cotangent, ad: AD) -> Sequence[Node | None]:
        return list(backward(*filled_floats(ct, node), *node.inputs, **node.attrs))

    flags = partial(_rows, cell)
    backward = composite(f"{name}_backward", infer_backward, decompose_backward)
    return composite(name, infer, decompose, vjp=vjp, batch=merge_rows(flags),
                     rows=first_axis(flags))


CELL_OPS = {cell.name: _cell_op(cell) for cell in CELLS}
SCAN_OPS = {cell.name: _scan_op(cell) for cell in CELLS}
