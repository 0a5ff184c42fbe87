"""Recurrent cells and layers against PyTorch: values, gradients and second order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from peers.peer import F64_F32, Row, check, normal, row, torch

GATES = {"rnn_tanh": 1, "gru": 3, "lstm": 4}
MODULES = {"rnn_tanh": torch.nn.RNN, "gru": torch.nn.GRU, "lstm": torch.nn.LSTM}
CELLS = {"rnn_tanh": torch.nn.RNNCell, "gru": torch.nn.GRUCell, "lstm": torch.nn.LSTMCell}


def weights(kind: str, inputs: int, size: int, bias: bool, seed: int) -> list[Any]:
    g = GATES[kind] * size
    found = [normal(g, inputs, seed=seed) / 2, normal(g, size, seed=seed + 1) / 2]
    return [*found, *([normal(g, seed=seed + 2), normal(g, seed=seed + 3)] if bias else [])]


def joined(m: Any, y: Any, state: Any) -> Any:
    """All results as one vector."""
    parts = [y, *(state if isinstance(state, tuple) else [state])]
    return m.concatenate([m.reshape(p, (-1,)) for p in parts if p is not None])


def hidden(kind: str, states: Sequence[Any]) -> Any:
    return tuple(states) if kind == "lstm" else states[0]


def cell(kind: str, bias: bool, lead: tuple[int, ...]) -> Row:
    count = 2 if kind == "lstm" else 1
    arrays = [normal(*lead, 3), *(normal(*lead, 4, seed=1 + k) for k in range(count)),
              *weights(kind, 3, 4, bias, 5)]

    def run(m: Any, f: Any, x: Any, *rest: Any) -> Any:
        found = f(x, hidden(kind, rest[:count]), *rest[count:])
        return joined(m, None, found)

    def by_cell(x: Any, *rest: Any) -> Any:
        module = CELLS[kind](3, 4, bias=bias).to(x.dtype)
        names = [name for name, _ in module.named_parameters()]
        given = dict(zip(names, rest[count:], strict=True))
        return run(torch, lambda *a: torch.func.functional_call(module, given, a[:2]), x, *rest)

    return row(f"{kind}_cell-{bias}-{lead}",
               lambda m, *x: run(m, getattr(m, f"{kind}_cell"), *x), *arrays,
               torch=by_cell, jax=None)


def layers(kind: str, steps: int, count: int, two: bool, bias: bool, batch_first: bool,
           batch: int | None = 2) -> Row:
    ways, states = 1 + two, 2 if kind == "lstm" else 1
    shape = (steps, 3) if batch is None else (
        (batch, steps, 3) if batch_first else (steps, batch, 3))
    lead = (count * ways, *([] if batch is None else [batch]), 4)
    per = [weights(kind, 3 if layer == 0 else 4 * ways, 4, bias, 10 * layer + 5 * way)
           for layer in range(count) for way in range(ways)]
    arrays = [normal(*shape), *(normal(*lead, seed=1 + k) for k in range(states)),
              *(w for one in per for w in one)]
    size = len(per[0])

    def run(m: Any, x: Any, *rest: Any) -> Any:
        flat = rest[states:]
        grouped = [flat[i:i + size] for i in range(0, len(flat), size)]
        return joined(m, *getattr(m, kind)(x, hidden(kind, rest[:states]), grouped,
                                           bidirectional=two, batch_first=batch_first))

    def by_module(x: Any, *rest: Any) -> Any:
        module = MODULES[kind](3, 4, num_layers=count, bidirectional=two, bias=bias,
                               batch_first=batch_first).to(x.dtype)
        names = [name for name, _ in module.named_parameters()]
        given = dict(zip(names, rest[states:], strict=True))
        found = torch.func.functional_call(module, given, (x, hidden(kind, rest[:states])))
        return joined(torch, *found)

    name = f"{kind}-{steps}-{count}-{two}-{bias}-{batch_first}-{batch}"
    return row(name, run, *arrays, torch=by_module, jax=None)


ROWS = [
    *(cell(kind, bias, lead) for kind in GATES
      for bias, lead in ((True, (2,)), (False, (3,)), (True, ()))),
    *(layers(kind, *case) for kind in GATES for case in (
        (5, 1, False, True, False), (3, 2, True, True, False), (2, 2, False, False, True),
        (1, 1, True, True, True), (4, 1, True, False, False, None))),
]


@pytest.mark.parametrize("case", ROWS, ids=str)
@F64_F32
def test_recurrent_layers_equal_pytorch(case: Row, dtype: Any) -> None:
    check(case, dtype)
