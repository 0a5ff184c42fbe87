"""Mistakes of users in calls of compiled graphs: the error's type, and the fix by its name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx_py as rlx

Array = np.ndarray[Any, Any]


def model(batch: Any = 4) -> rlx.Graph:
    """The graph of a regression."""
    g = rlx.Graph("model")
    x, y = g.input("x", (batch, 3)), g.input("y", (batch,))
    g.output("loss", ((x @ g.param("w", (3,)) - y) ** 2).mean())
    return g


def nested() -> rlx.Graph:
    """The same, traced of a function."""
    return rlx.trace(lambda p, x, y: {"loss": ((x @ p["w"] - y) ** 2).mean()},
                     {"w": rlx.spec((3,))}, rlx.spec((4, 3)), rlx.spec((4,)))


def step_of(g: rlx.Graph) -> rlx.Graph:
    return rlx.train_step(g, of="loss", optimizer=rlx.optim.sgd(0.1))


W = {"w": np.ones(3, np.float32)}
BATCH = {"x": np.ones((4, 3), np.float32), "y": np.zeros(4, np.float32)}
MODELS = {"plain": model, "dynamic": lambda: model(rlx.dim("B")), "nested": nested}
each_model = pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
each_backend = pytest.mark.parametrize("backend", ["cpu", "reference"])


# ---- a step that is called, a call that is stepped ---------------------------------------------


@each_model
@each_backend
def test_a_step_is_not_called(make: Any, backend: str) -> None:
    exe: Any = rlx.compile(step_of(make()), backend)
    with pytest.raises(rlx.ArgumentError, match=r"'w'.*exe\.step\(.*discard_updates=True"):
        exe(**W, **BATCH)
    kept = {k: v.copy() for k, v in W.items()}
    assert exe(**kept, **BATCH, discard_updates=True).loss == 9
    assert (kept["w"] == 1).all()
    state = exe.init(W)
    assert exe.step(state, **BATCH).loss == 9
    assert exe.step(state, **BATCH).loss < 9


@each_model
@each_backend
def test_a_graph_without_updates_is_not_stepped(make: Any, backend: str) -> None:
    exe: Any = rlx.compile(make(), backend)
    state = exe.init(W)
    with pytest.raises(rlx.ArgumentError, match=r"no updates.*call exe\(x=…, y=…, w=…\)"):
        exe.step(state, **BATCH)
    assert exe(**state.params, **BATCH).loss == 9


def test_next_values_of_a_state_alone_are_not_lost_either() -> None:
    g = rlx.Graph("counter")
    n = g.state("n", (), rlx.i32)
    g.next("n", n + 1)
    g.output("n", n + 0)
    exe = rlx.compile(g)
    with pytest.raises(rlx.ArgumentError, match=r"'counter'.*'n'.*discard_updates"):
        exe()
    assert exe(discard_updates=True).n == 0


def test_a_dropout_mask_is_not_lost() -> None:
    g = rlx.Graph("drop")
    g.output("y", rlx.nn.dropout(g.input("x", (4, 3)), key=rlx.random.key_state(g)))
    with pytest.raises(rlx.ArgumentError, match=r"'key'.*discard_updates"):
        rlx.compile(g)(x=BATCH["x"])


def normalised(training: bool) -> rlx.Graph:
    g = rlx.Graph("norm")
    y = rlx.nn.batch_norm_with_state(g, "bn", g.input("x", (4, 3)), training=training)
    g.output("y", y)
    g.output("loss", (y * g.param("w", (3,))).mean())
    return g


@each_backend
def test_batch_norm_is_not_evaluated_without_its_statistics(backend: str) -> None:
    with pytest.raises(rlx.ArgumentError, match=r"'bn.running_mean'.*discard_updates"):
        rlx.compile(normalised(True), backend)(**W, x=BATCH["x"])
    evaluate = rlx.compile(normalised(False), backend)
    with pytest.raises(rlx.ArgumentError, match=r"'bn.running_mean' is missing.*\*\*state.states"):
        evaluate(**W, x=BATCH["x"])
    train = rlx.compile(step_of(normalised(True)), backend)
    state = train.init(W)
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    for _ in range(200):
        train.step(state, x=x)
    kept = {k: v for k, v in state.states.items() if k.startswith("bn.")}
    found = evaluate(**state.params, **kept, x=x)
    np.testing.assert_allclose(found.y.mean(0), 0, atol=1e-5)


@each_model
def test_a_step_takes_a_state(make: Any) -> None:
    exe: Any = rlx.compile(step_of(make()))
    for wrong in ({"w": W["w"]}, None, exe):
        with pytest.raises(rlx.ArgumentError, match=r"exe\.init\(params\)"):
            exe.step(wrong, **BATCH)


def test_inputs_go_by_name() -> None:
    for make in (model, MODELS["dynamic"]):
        exe: Any = rlx.compile(make())
        with pytest.raises(rlx.ArgumentError, match=r"by name: exe\(x=…, y=…, w=…\)"):
            exe(BATCH["x"], BATCH["y"], W["w"])
        train: Any = rlx.compile(step_of(make()))
        with pytest.raises(rlx.ArgumentError, match=r"by name: exe\.step\(state, x=…, y=…\)"):
            train.step(train.init(W), BATCH["x"], BATCH["y"])


# ---- names -------------------------------------------------------------------------------------


@each_model
def test_wrong_names_are_told_with_the_nearest(make: Any) -> None:
    exe: Any = rlx.compile(make())
    with pytest.raises(rlx.ArgumentError, match="'y' is missing"):
        exe(x=BATCH["x"], **W)
    with pytest.raises(rlx.ArgumentError, match="no 'label'; it takes"):
        exe(**BATCH, **W, label=BATCH["y"])
    train: Any = rlx.compile(step_of(make()))
    with pytest.raises(rlx.ArgumentError, match="'x' is missing"):
        train.step(train.init(W), y=BATCH["y"])


def test_a_mistyped_name_is_told_with_the_nearest() -> None:
    g = rlx.Graph("model")
    g.output("mean", g.input("pixels", (3,)).mean())
    exe = rlx.compile(g)
    with pytest.raises(rlx.ArgumentError, match=r"no 'pixel' \(did you mean 'pixels'\?\)"):
        exe(pixel=W["w"])
    with pytest.raises(rlx.ArgumentError, match=r"no output 'meen' \(did you mean 'mean'\?\)"):
        exe(pixels=W["w"])["meen"]


def test_inputs_may_have_the_names_of_parameters() -> None:
    g = rlx.Graph("odd")
    x = g.input("self", (2,)) + g.input("state", (2,)) * g.param("w", ())
    g.output("y", x)
    g.update("w", x.sum())
    exe, two = rlx.compile(g), np.full(2, 2, np.float32)
    given: Any = {"self": two, "state": two}
    assert (exe.step(exe.init({"w": np.float32(3)}), **given).y == 8).all()
    assert (exe(**given, w=np.float32(4), discard_updates=True).y == 10).all()


# ---- what is compiled, and arrays of others -----------------------------------------------------


def test_a_function_is_not_compiled() -> None:
    wrong: Any
    for wrong in (lambda x: x, None, "graph", rlx.compile(model())):
        with pytest.raises(rlx.ArgumentError, match=r"takes a graph, not .*rlx\.trace"):
            rlx.compile(wrong)


@each_model
def test_params_go_by_name_into_init(make: Any) -> None:
    exe: Any = rlx.compile(step_of(make()))
    for wrong in (None, [W["w"]], W["w"]):
        with pytest.raises(rlx.ArgumentError, match="params|takes dict"):
            exe.init(wrong)


@each_backend
@pytest.mark.parametrize("batch", [4, rlx.dim("B")], ids=["plain", "dynamic"])
@pytest.mark.parametrize("name", ["out", "self", "state", "sub", "args", "arrays", "params"])
def test_params_and_states_of_any_name_are_passed(name: str, batch: Any, backend: str) -> None:
    g = rlx.Graph("model")
    x = g.input("x", (batch, 3))
    g.output("loss", ((x @ g.param(name, (3,))) ** 2).mean())
    exe = rlx.compile(g, backend)
    given: dict[str, Any] = {name: W["w"], "x": BATCH["x"]}
    assert exe(**given).loss == 9
    assert exe.find_nan(**given) is None
    exe.check_inputs(**given)
    step = rlx.compile(step_of(g), backend)
    state = step.init({name: W["w"]})
    assert step.step(state, x=BATCH["x"]).loss == 9
    assert exe(**state.params, x=BATCH["x"]).loss < 9
    kept = rlx.Graph("state")
    kept.next(name, kept.state(name, (3,), init=1.0) + kept.input("x", (batch, 3)).sum(0))
    kept.output("y", kept.states[name].node * 2)
    exe = rlx.compile(kept, backend)
    np.testing.assert_array_equal(
        exe(**given, discard_updates=True).y, [2, 2, 2])


@each_backend
@pytest.mark.parametrize("batch", [4, rlx.dim("B")], ids=["plain", "dynamic"])
def test_a_traced_param_named_out_is_passed(batch: Any, backend: str) -> None:
    g = rlx.trace(lambda p, x: {"loss": ((x @ p["out"]) ** 2).mean()},
                  {"out": rlx.spec((3,))}, rlx.spec((batch, 3)))
    exe: Any = rlx.compile(g, backend)
    params, x = {"out": W["w"]}, BATCH["x"]
    assert exe(params, x)["loss"] == 9 and exe(out=W["w"], x=x).loss == 9
    filled = np.zeros((), np.float32)
    assert exe(params, x, out={"loss": filled})["loss"] is filled and filled == 9
    grads: Any = rlx.compile(rlx.value_and_grad(g, of="loss"), backend)
    np.testing.assert_array_equal(grads(params, x).grad["out"], [6, 6, 6])
    step: Any = rlx.compile(step_of(g), backend)
    state = step.init(params)
    assert step.step(state, x).loss == 9 and state.params["out"][0] < 1


@each_model
def test_31_32_init_with_missing_or_further_params(make: Any) -> None:
    exe: Any = rlx.compile(step_of(make()))
    for given, word in (({}, "'w'"), ({**W, "v": W["w"]}, "'v'"), ({"W": W["w"]}, "'w'")):
        with pytest.raises(rlx.ArgumentError, match=word):
            exe.init(given)


def test_36_arrays_in_any_layout_are_taken() -> None:
    exe = rlx.compile(model())
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    want = exe(**W, x=x[:, ::2].copy(), y=BATCH["y"]).loss
    for laid in (x[:, ::2], np.asfortranarray(x[:, ::2]), x[::-1, ::2][::-1]):
        assert not laid.flags.c_contiguous
        assert exe(**W, x=laid, y=BATCH["y"]).loss == want


def test_arrays_of_other_systems_are_taken() -> None:
    class Foreign:
        """What torch and JAX arrays have."""

        def __init__(self, array: Array) -> None:
            self.array = array

        def __dlpack__(self, **options: Any) -> Any:
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self) -> Any:
            return self.array.__dlpack_device__()

    exe = rlx.compile(model())
    wide = {k: Foreign(v.astype(np.float64)) for k, v in {**W, **BATCH}.items()}
    assert exe(**wide).loss == 9
    assert exe(**{k: Foreign(v) for k, v in {**W, **BATCH}.items()}).loss == 9


@pytest.mark.parametrize(("changed", "error", "words"), [
    ({"x": np.ones((3, 4))}, rlx.ShapeError, r"'x' takes f32\[4,3\], not f64\[3,4\]"),
    ({"y": np.zeros(4, int)}, rlx.DTypeError, r"'y' takes f32\[4\], not i64.*astype\('float32'\)"),
    ({"y": np.full(4, 1e39)}, rlx.DTypeError, "'y': a finite .* becomes infinite in f32"),
    ({"y": None}, rlx.ArgumentError, r"'y' takes an array of f32\[4\], not NoneType")])
def test_mis_shaped_and_mistyped_inputs(changed: dict[str, Any], error: type[rlx.RLXError],
                                        words: str) -> None:
    with pytest.raises(error, match=words):
        rlx.compile(model())(**{**W, **BATCH, **changed})


def test_a_state_array_in_fortran_order_says_so() -> None:
    g = rlx.Graph("matrix")
    g.output("loss", (g.param("w0", (4, 3)) ** 2).sum())
    exe = rlx.compile(step_of(g))
    state = exe.init({"w0": np.ones((4, 3))})
    state.params["w0"] = np.asfortranarray(state.params["w0"])
    with pytest.raises(rlx.ArgumentError, match=r"'w0' of the state .*C-contiguous.*\.copy\(\)"):
        exe.step(state)
    del state.params["w0"]
    with pytest.raises(rlx.ArgumentError, match=r"the state has no 'w0'.*exe\.init"):
        exe.step(state)


# ---- arguments of another kind ------------------------------------------------------------------


@each_model
@each_backend
def test_a_step_without_a_state_says_what_makes_one(make: Any, backend: str) -> None:
    exe: Any = rlx.compile(step_of(make()), backend)
    with pytest.raises(rlx.ArgumentError, match=r"the state that exe\.init\(params\) makes"):
        exe.step(**BATCH)


def test_a_graph_of_states_alone_needs_no_params() -> None:
    g = rlx.Graph("count")
    count = g.state("count", (), rlx.f32)
    g.next("count", count + 1.0)
    g.output("before", count * 1.0)
    exe = rlx.compile(g)
    state = exe.init()
    assert [float(exe.step(state).before) for _ in range(3)] == [0, 1, 2]


@each_model
@pytest.mark.parametrize("ask", ["profile", "find_nan", "check_inputs"])
def test_what_is_asked_of_a_call_takes_what_the_call_does(make: Any, ask: str) -> None:
    exe: Any = rlx.compile(make())
    exe(**W, **BATCH)
    getattr(exe, ask)(**W, **BATCH)
    if make is nested:
        getattr(exe, ask)(W, *BATCH.values())
    else:
        with pytest.raises(rlx.ArgumentError, match=rf"by name: exe\.{ask}\("):
            getattr(exe, ask)(W["w"], *BATCH.values())


@pytest.mark.parametrize("flags", [{"strict": "yes"}, {"fast_math": "x"}, {"cache": 1}], ids=str)
def test_flags_are_bools(flags: Any) -> None:
    with pytest.raises(rlx.ArgumentError, match="is True or False, not"):
        rlx.compile(model(), **flags)
    with pytest.raises(rlx.ArgumentError, match="discard_updates is True or False, not 'no'"):
        rlx.compile(step_of(model()))(**W, **BATCH, discard_updates="no")


def test_a_machine_is_named_by_text() -> None:
    exe: Any = rlx.compile(model())
    for machine in ({"target": 3}, {"cpu": 3}):
        with pytest.raises(rlx.ArgumentError, match="is a name of LLVM's, not 3"):
            exe.export("/nowhere/step", **machine)


def test_both_backends_count_arithmetic() -> None:
    plain, cpu = (rlx.compile(model(), b).cost().flops for b in ("reference", "cpu"))
    assert plain >= 2 * 4 * 3 and cpu <= plain <= 2 * cpu  # a fused multiply-add of a loop is one
