"""Recurrent cells and layers for users, on inputs or on gates computed before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlx_py.ir.base.errors import ArgumentError, ShapeError
from rlx_py.ir.nodes.node import Node
from rlx_py.ir.ops.making.located import located
from rlx_py.ir.ops.nn.dense import LINEAR
from rlx_py.ir.ops.nn.recurrent.cells import CELL_OPS, GRU, LSTM, RNN, SCAN_OPS, Cell
from rlx_py.ir.ops.numpy.shaping import concatenate, moveaxis, stack
from rlx_py.ir.ops.operands.operand import operands
from rlx_py.ir.ops.primitive.movement import filled, reshaped

State = Any  # a node [B, H], or for long short-term memory a pair of them
Weights = Sequence[Sequence[Any]]


def _states(cell: Cell, state: Any) -> tuple[Any, ...]:
    """The states a cell takes."""
    if cell.states == 1:
        return (state,)
    if not isinstance(state, tuple | list) or len(state) != cell.states:
        raise ArgumentError(f"{cell.name} takes a pair of states (h, c), not {state!r}")
    return tuple(state)


def _given(*values: Any) -> list[Any]:
    return [v for v in values if v is not None]


def _state(cell: Cell, found: Sequence[Node]) -> State:
    return found[0] if cell.states == 1 else tuple(found)


def _step(cell: Cell, gates: Any, state: Any, weight: Any, bias: Any) -> State:
    nodes = operands(gates, weight, *_given(bias), *_states(cell, state))
    made = CELL_OPS[cell.name](*nodes, bias=bias is not None)
    return made if cell.states == 1 else tuple(made)


def _scan(cell: Cell, gates: Any, state: Any, weight: Any, bias: Any, reverse: bool
          ) -> tuple[Node, State]:
    nodes = operands(gates, weight, *_given(bias), *_states(cell, state))
    y, *last = SCAN_OPS[cell.name](*nodes, bias=bias is not None, reverse=bool(reverse))
    return y, _state(cell, last)


@located
def rnn_step(gates: Any, h: Any, weight_hh: Any, bias_hh: Any = None) -> Node:
    """tanh(gates + h Wᵀ + b) of gates[B, H], h[B, H], W[H, H], b[H] (Elman 1990).

    The gates hold what the input gives. Raises ShapeError, DTypeError (not floats).
    """
    return _node(_step(RNN, gates, h, weight_hh, bias_hh))


@located
def gru_step(gates: Any, h: Any, weight_hh: Any, bias_hh: Any = None) -> Node:
    """The next h of a gated recurrent unit, given what the input gives its gates.

    gates[B, 3H] and a = h Wᵀ + b, W[3H, H], b[3H], hold reset, update and candidate:
    r = σ(g_r + a_r), z = σ(g_z + a_z), n = tanh(g_n + r·a_n), h' = (1 − z)n + z·h
    (Cho et al. 2014). Raises ShapeError, DTypeError (not floats).
    """
    return _node(_step(GRU, gates, h, weight_hh, bias_hh))


@located
def lstm_step(gates: Any, state: Any, weight_hh: Any, bias_hh: Any = None) -> tuple[Node, Node]:
    """The next (h, c) of long short-term memory, given what the input gives its gates.

    gates[B, 4H] + h Wᵀ + b, W[4H, H], b[4H], hold input, forget, cell and output:
    c' = σ(f)·c + σ(i)·tanh(g), h' = σ(o)·tanh(c') (Hochreiter and Schmidhuber 1997). Raises
    ShapeError, DTypeError (not floats), ArgumentError (no pair).
    """
    return _pair(_step(LSTM, gates, state, weight_hh, bias_hh))


@located
def rnn_scan(gates: Any, h0: Any, weight_hh: Any, bias_hh: Any = None, reverse: bool = False
             ) -> tuple[Node, Node]:
    """`rnn_step` along gates[B, S, H] from h0[B, H]: h of each step, [B, S, H], and the last one.

    reverse runs from the last step to the first. S may be 0. Errors as `rnn_step`.
    """
    return _scan(RNN, gates, h0, weight_hh, bias_hh, reverse)


@located
def gru_scan(gates: Any, h0: Any, weight_hh: Any, bias_hh: Any = None, reverse: bool = False
             ) -> tuple[Node, Node]:
    """`gru_step` along gates[B, S, 3H] from h0[B, H]: h of each step, [B, S, H], and the last one.

    reverse runs from the last step to the first. S may be 0. Errors as `gru_step`.
    """
    return _scan(GRU, gates, h0, weight_hh, bias_hh, reverse)


@located
def lstm_scan(gates: Any, state: Any, weight_hh: Any, bias_hh: Any = None, reverse: bool = False
              ) -> tuple[Node, tuple[Node, Node]]:
    """`lstm_step` along gates[B, S, 4H] from (h0, c0): h of each step, [B, S, H], and the last
    (h, c).

    reverse runs from the last step to the first. S may be 0. Errors as `lstm_step`.
    """
    return _scan(LSTM, gates, state, weight_hh, bias_hh, reverse)


def _node(x: Any) -> Node:
    assert isinstance(x, Node)
    return x


def _pair(x: Any) -> tuple[Node, Node]:
    h, c = x
    return h, c


# ---- on inputs -------------------------------------------------------------------------------


def _cell(cell: Cell, x: Any, state: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any) -> State:
    """A step on x[B, I] or, without the axis of rows, x[I]."""
    nodes = operands(x, *_states(cell, state), w_ih, w_hh, *_given(b_ih, b_hh))
    n = 1 + cell.states
    rows, (wi, wh, *biases) = nodes[:n], nodes[n:]
    one = rows[0].rank == 1
    if one:
        rows = [reshaped(r, (1, *r.shape)) for r in rows]
    inputs, outputs = biases[:b_ih is not None], biases[b_ih is not None:]
    gates = LINEAR(rows[0], wi, *inputs)
    made = CELL_OPS[cell.name](gates, wh, *outputs, *rows[1:], bias=b_hh is not None)
    found = [made] if cell.states == 1 else list(made)
    return _state(cell, [reshaped(s, s.shape[1:]) for s in found] if one else found)


@located
def rnn_tanh_cell(input: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None
                  ) -> Node:
    """tanh(W_ih x + b_ih + W_hh h + b_hh) of x[B, I] and h[B, H], or x[I] and h[H].

    W_ih[H, I], W_hh[H, H] (Elman 1990). Raises ShapeError, DTypeError (not floats).
    """
    return _node(_cell(RNN, input, hx, w_ih, w_hh, b_ih, b_hh))


@located
def gru_cell(input: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None
             ) -> Node:
    """`gru_step` with gates W_ih x + b_ih of x[B, I] and h[B, H], or x[I] and h[H].

    W_ih[3H, I] and W_hh[3H, H] hold reset, update and candidate. Errors as `gru_step`.
    """
    return _node(_cell(GRU, input, hx, w_ih, w_hh, b_ih, b_hh))


@located
def lstm_cell(input: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None
              ) -> tuple[Node, Node]:
    """`lstm_step` with gates W_ih x + b_ih of x[B, I] and hx = (h[B, H], c[B, H]), or without B.

    W_ih[4H, I] and W_hh[4H, H] hold input, forget, cell and output. Errors as `lstm_step`.
    """
    return _pair(_cell(LSTM, input, hx, w_ih, w_hh, b_ih, b_hh))


def _layers(cell: Cell, x: Any, hx: Any, weights: Weights, bidirectional: bool, batch_first: bool
            ) -> tuple[Node, State]:
    directions = 2 if bidirectional else 1
    given = [list(w) for w in weights]
    if not given or len(given) % directions or any(
            len(w) not in (2, 4) or w[0] is None or w[1] is None for w in given):
        raise ArgumentError(
            f"weights hold (w_ih, w_hh) or (w_ih, w_hh, b_ih, b_hh) for each layer"
            f"{' and direction' if bidirectional else ''}; here are "
            f"{', '.join(str(len(w)) for w in given) or 'none'}")
    flat = [w for one in given for w in _given(*one)]
    first = [] if hx is None else list(_states(cell, hx))
    y, *nodes = operands(x, *first, *flat)
    one = y.rank == 2
    if y.rank not in (2, 3):
        raise ShapeError(f"the input is [S, B, I], or [S, I] of one row, not {y.type}")
    if one:
        y = reshaped(y, (1, *y.shape))
    elif not batch_first:
        y = moveaxis(y, 1, 0)
    found = iter(nodes[len(first):])
    taken = [((next(found), next(found)), [None if b is None else next(found) for b in w[2:]])
             for w in given]
    states = _first_states(cell, nodes[:len(first)], (len(taken), y.shape[0]), taken[0][0][1],
                           one)
    last: list[list[Node]] = [[] for _ in range(cell.states)]
    for k in range(0, len(taken), directions):
        ways = []
        for way in range(directions):
            (wi, wh), biases = taken[k + way]
            bi, bh = biases or (None, None)
            gates = LINEAR(y, wi, *_given(bi))
            made, *ends = SCAN_OPS[cell.name](
                gates, wh, *_given(bh), *(s[k + way] for s in states), bias=bh is not None,
                reverse=way == 1)
            ways.append(made)
            for kept, end in zip(last, ends, strict=True):
                kept.append(end)
        y = ways[0] if directions == 1 else concatenate(ways, axis=2)
    ends = [stack(kept) for kept in last]
    if one:
        y, ends = y[0], [moveaxis(e, 1, 0)[0] for e in ends]
    elif not batch_first:
        y = moveaxis(y, 1, 0)
    return y, _state(cell, ends)


def _first_states(cell: Cell, given: Sequence[Node], lead: tuple[int, int], w_hh: Node, one: bool
                  ) -> list[Node]:
    """Of each state, [layers·directions, B, H]; zeros where none is given."""
    if w_hh.rank != 2:
        raise ShapeError(f"w_hh is a matrix, not {w_hh.type}")
    shape = (*lead, w_hh.shape[1])
    if not given:
        return [filled(0, w_hh.tensor.with_shape(shape))] * cell.states
    wanted = (shape[0], shape[2]) if one else shape
    for s in given:
        if s.shape != wanted:
            raise ShapeError(f"a first state must have shape {wanted}, not {s.type}")
    return [reshaped(s, shape) for s in given]


@located
def rnn_tanh(input: Any, hx: Any, weights: Weights, bidirectional: bool = False,
             batch_first: bool = False) -> tuple[Node, Node]:
    """Layers of `rnn_tanh_cell` along a sequence: h of each step of the last layer, and the last
    states of all.

    input[S, B, I] ([B, S, I] with batch_first, [S, I] of one row); hx[L, B, H] ([L, H]), or None
    for zeros, L counting layers and, if bidirectional, their two directions; weights: for each of
    these (w_ih, w_hh) or (w_ih, w_hh, b_ih, b_hh) as of the cell. Both directions are concatenated
    along the last axis. Raises ShapeError, DTypeError (not floats), ArgumentError.
    """
    return _layers(RNN, input, hx, weights, bidirectional, batch_first)


@located
def gru(input: Any, hx: Any, weights: Weights, bidirectional: bool = False,
        batch_first: bool = False) -> tuple[Node, Node]:
    """Layers of `gru_cell` along a sequence; arguments, results and errors as `rnn_tanh`."""
    return _layers(GRU, input, hx, weights, bidirectional, batch_first)


@located
def lstm(input: Any, hx: Any, weights: Weights, bidirectional: bool = False,
         batch_first: bool = False) -> tuple[Node, tuple[Node, Node]]:
    """Layers of `lstm_cell` along a sequence, hx and the last states pairs (h, c); arguments,
    results and errors as `rnn_tanh`."""
    return _layers(LSTM, input, hx, weights, bidirectional, batch_first)
