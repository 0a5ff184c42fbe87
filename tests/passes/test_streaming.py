"""State-space models run piece by piece: the state that one piece gives starts the next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx_py as rlx
from rlx_py import nn

Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]
ROWS, STEPS, HEADS, GROUPS, WIDTH, DEPTH, ANGLES, RANK = 2, 6, 4, 2, 3, 4, 2, 2


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng([seed, *shape]).standard_normal(shape) * 0.5


def in_time(*shape: int, seed: int) -> Array:
    """[B, L, …]."""
    return normal(ROWS, STEPS, *shape, seed=seed)


SELECTIVE = {"u": in_time(WIDTH, seed=1), "delta": abs(in_time(WIDTH, seed=2)),
             "A": -abs(normal(WIDTH, DEPTH, seed=3)), "B": in_time(DEPTH, seed=4),
             "C": in_time(DEPTH, seed=5), "D": normal(WIDTH, seed=6), "z": in_time(WIDTH, seed=7)}
DUAL = {"x": in_time(HEADS, WIDTH, seed=1), "dt": abs(in_time(HEADS, seed=2)),
        "A": -abs(normal(HEADS, seed=3)), "B": in_time(GROUPS, DEPTH, seed=4),
        "C": in_time(GROUPS, DEPTH, seed=5), "D": normal(HEADS, seed=6),
        "z": in_time(HEADS, WIDTH, seed=7)}
DELTA = {"q": in_time(GROUPS, DEPTH, seed=1), "k": in_time(GROUPS, DEPTH, seed=2),
         "v": in_time(HEADS, WIDTH, seed=3), "g": -abs(in_time(HEADS, seed=4)),
         "beta": abs(in_time(HEADS, seed=5))}
MIXER = {"x": in_time(HEADS, WIDTH, seed=1), "adt": -abs(in_time(HEADS, seed=2)),
         "dt": abs(in_time(HEADS, seed=3)), "trap": in_time(HEADS, seed=4),
         "angle": in_time(ANGLES, seed=5), "d": normal(HEADS, seed=6),
         "z": in_time(HEADS, WIDTH, seed=7)}
SISO = {**MIXER, "C": in_time(GROUPS, DEPTH, seed=8), "B": in_time(GROUPS, DEPTH, seed=9),
        "c_bias": normal(HEADS, DEPTH, seed=10), "b_bias": normal(HEADS, DEPTH, seed=11)}
MIMO = {**MIXER, "C": in_time(RANK * GROUPS, DEPTH, seed=8),
        "B": in_time(RANK * GROUPS, DEPTH, seed=9), "norm_weight": normal(HEADS, WIDTH, seed=15),
        **{k: normal(HEADS, RANK, DEPTH, seed=s) for k, s in (("c_bias", 10), ("b_bias", 11))},
        **{k: normal(HEADS, RANK, WIDTH, seed=s)
           for k, s in (("mimo_x", 12), ("mimo_o", 13), ("mimo_z", 14))}}
MODELS: dict[str, tuple[Callable[..., Any], Arrays]] = {
    "selective_scan": (nn.selective_scan, SELECTIVE), "mamba2_ssd": (nn.mamba2_ssd, DUAL),
    "gated_delta_net": (nn.gated_delta_net, DELTA), "mamba3_siso": (nn.mamba3_siso, SISO),
    "mamba3_mimo": (nn.mamba3_mimo, MIMO)}
STATES = {"selective_scan": (ROWS, WIDTH, DEPTH),
          **dict.fromkeys(["mamba2_ssd", "gated_delta_net", "mamba3_siso", "mamba3_mimo"],
                          (ROWS, HEADS, WIDTH, DEPTH))}


def is_in_time(name: str) -> bool:
    """Whether an operand has an axis of steps."""
    return name not in ("A", "D", "d", "c_bias", "b_bias", "norm_weight") and "mimo" not in name


def piece(nodes: dict[str, Any], start: int, stop: int) -> dict[str, Any]:
    """The operands of some steps."""
    return {k: n[:, start:stop] if is_in_time(k) else n for k, n in nodes.items()}


def parts_of(state: Any) -> list[Any]:
    """The arrays of a state."""
    return list(state) if isinstance(state, tuple) else [state]


def outputs(model: str, cuts: tuple[int, ...] | None, options: dict[str, Any] | None = None
            ) -> tuple[rlx.Graph, Arrays]:
    """A graph of y, the parts of the last state, and a loss of both; cut into pieces."""
    function, arrays = MODELS[model]
    g = rlx.Graph(model)
    nodes = {k: g.param(k, a.shape, rlx.f64) for k, a in arrays.items()}
    if cuts is None:
        y, state = function(**nodes, return_state=True, **(options or {}))
    else:
        state, found = None, []
        for start, stop in zip((0, *cuts), (*cuts, STEPS), strict=True):
            one, state = function(**piece(nodes, start, stop), state=state, return_state=True,
                                  **(options or {}))
            found.append(one)
        y = rlx.concatenate(found, axis=1)
    g.output("y", y)
    loss = (y * y * normal(*y.shape, seed=20)).sum()
    for i, part in enumerate(parts_of(state)):
        g.output(f"state{i}", part)
        loss = loss + (part * part * normal(*part.shape, seed=21 + i)).sum()
    g.output("loss", loss)
    return g, arrays


def assert_same(found: dict[str, Array], wanted: dict[str, Array]) -> None:
    assert list(found) == list(wanted)
    for name, want in wanted.items():
        np.testing.assert_allclose(found[name], want, rtol=1e-10, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("cuts", [(), (3,), (1, 2, 5), (0, 2, 2, 6)], ids=str)
def test_pieces_are_the_whole(model: str, cuts: tuple[int, ...]) -> None:
    """In values, last states and all gradients, by the oracle and by native code."""
    whole, arrays = outputs(model, None)
    pieces, _ = outputs(model, cuts)
    want = rlx.evaluate(rlx.value_and_grad(whole, of="loss"), arrays)
    got = rlx.value_and_grad(pieces, of="loss")
    assert_same(rlx.evaluate(got, arrays), want)
    assert_same(dict(rlx.compile(got)(**arrays)), want)


@pytest.mark.parametrize("model", MODELS)
def test_the_result_without_a_state_is_that_of_the_op(model: str) -> None:
    function, arrays = MODELS[model]
    whole, _ = outputs(model, None)
    g = rlx.Graph()
    g.output("y", function(**{k: g.param(k, a.shape, rlx.f64) for k, a in arrays.items()}))
    np.testing.assert_allclose(rlx.evaluate(whole, arrays)["y"], rlx.evaluate(g, arrays)["y"],
                               rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("model", MODELS)
def test_derivatives_by_the_state_in_both_modes(model: str) -> None:
    function, arrays = MODELS[model]
    g = rlx.Graph(model)
    nodes = {k: rlx.constant(a) for k, a in arrays.items()}
    shapes = [STATES[model]] * 2 + [(ROWS, HEADS, ANGLES)] if "mamba3" in model else [STATES[model]]
    first = [g.param(f"s{i}", shape, rlx.f64) for i, shape in enumerate(shapes)]
    y, state = function(**nodes, state=tuple(first) if len(first) > 1 else first[0],
                        return_state=True)
    g.output("loss", (y * y).sum() + sum((p * p).sum() for p in parts_of(state)))
    feed = {f"s{i}": normal(*shape, seed=30 + i) for i, shape in enumerate(shapes)}
    rlx.check_grads(g, feed, of="loss", order=2)


def test_angles_go_on_too() -> None:
    options = {"angles": "pi_tanh"}
    whole, arrays = outputs("mamba3_siso", None, options)
    pieces, _ = outputs("mamba3_siso", (2, 3), options)
    assert_same(rlx.evaluate(pieces, arrays), rlx.evaluate(whole, arrays))


@pytest.mark.parametrize("model", MODELS)
def test_states_of_halves_are_f32(model: str) -> None:
    function, arrays = MODELS[model]
    nodes = {k: rlx.constant(a.astype(np.float16)) for k, a in arrays.items()}
    y, state = function(**nodes, return_state=True)
    assert y.dtype is rlx.f16 and all(p.dtype is rlx.f32 for p in parts_of(state))
    again, _ = function(**nodes, state=state, return_state=True)
    assert again.dtype is rlx.f16 and again.shape == y.shape


@pytest.mark.parametrize("model", MODELS)
def test_a_state_that_does_not_fit_is_refused(model: str) -> None:
    function, arrays = MODELS[model]
    right = np.zeros(STATES[model])
    angle = np.zeros((ROWS, HEADS, ANGLES))
    wrong: list[Any] = [np.zeros((1, 2)), right.astype(int)]
    if "mamba3" in model:
        wrong = [(w, right, angle) for w in wrong]
        wrong += [right, (right, right), (right, None, angle), (right, right, angle[..., :1])]
    for state in wrong:
        with pytest.raises(rlx.RLXError, match="test_streaming"):
            function(**arrays, state=state)
