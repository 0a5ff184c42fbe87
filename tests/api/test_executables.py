"""What every executable has: outputs by name, copies and pickles, the methods of the plain one."""

from __future__ import annotations

import copy
import inspect
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx_py as rlx

X, W = np.arange(12.0).reshape(4, 3), {"w": np.ones(3)}


def model(batch: Any = 4) -> rlx.Graph:
    g = rlx.Graph("model")
    x = g.input("x", (batch, 3))
    m = g.state("m", (3,), init=0.5)
    g.next("m", 0.9 * m + 0.1 * x.mean(0))
    g.output("loss", ((x - m) @ g.param("w", (3,))).mean())
    g.output("shift", x.mean(0) * rlx.constant(np.arange(3, dtype=np.float32)))
    return rlx.train_step(g, of="loss", optimizer=rlx.optim.momentum(0.1))


def traced() -> rlx.Graph:
    g = rlx.trace(lambda p, x: {"loss": (x @ p["w"]).mean(), "shift": x.mean(0)},
                  {"w": rlx.spec((3,))}, rlx.spec((4, 3)))
    return rlx.train_step(g, of="loss", optimizer=rlx.optim.momentum(0.1))


MADE = {"plain": model, "dynamic": lambda: model(rlx.dim("B")), "nested": traced}
each_kind = pytest.mark.parametrize("make", MADE.values(), ids=MADE)
each_backend = pytest.mark.parametrize("backend", ["cpu", "reference"])


# ---- outputs -----------------------------------------------------------------------------------


def outputs() -> rlx.Outputs:
    exe = rlx.compile(model())
    return exe.step(exe.init(W), x=X)


def test_outputs_answer_as_objects_and_as_mappings() -> None:
    out = outputs()
    assert hasattr(out, "loss") and not hasattr(out, "aux") and not hasattr(out, "_repr_html_")
    assert getattr(out, "aux", 3) == 3 and out.get("aux") is None and "loss" in dir(out)
    with pytest.raises(rlx.ArgumentError, match=r"no output 'los' \(did you mean 'loss'\?\)"):
        _ = out.los
    with pytest.raises(AttributeError):
        _ = out.los
    with pytest.raises(rlx.ArgumentError, match="no output"):
        out["los"]
    assert out._asdict() == dict(out) and type(out._asdict()) is dict
    with pytest.raises(AttributeError):
        rlx.Outputs.__new__(rlx.Outputs).loss  # noqa: B018


def test_outputs_are_printed_with_types_and_values() -> None:
    assert repr(outputs()) == "Outputs(loss=f32[] 15., shift=f32[3] [ 0. 5.5 13. ])"
    large = repr(rlx.Outputs({"y": np.zeros((100, 100))}))
    assert large.startswith("Outputs(y=f64[100,100] [[0. 0. ... 0. 0.]") and len(large) < 200


def test_outputs_are_no_array() -> None:
    out = outputs()
    for use in (np.asarray, np.array, np.mean, lambda o: np.ones(2) + np.asarray(o)):
        with pytest.raises(rlx.ArgumentError, match=r"np\.asarray\(out\['loss'\]\)"):
            use(out)
    exe = rlx.compile(model())
    with pytest.raises(rlx.ArgumentError, match="arrays by name"):
        exe.step(exe.init(W), x=out)


def test_results_of_a_called_graph_answer_likewise() -> None:
    g, sub = rlx.Graph("outer"), rlx.Graph("sub")
    sub.output("y", sub.input("x", (2,)) * 2)
    found = g.call(sub, x=g.input("x", (2,)))
    assert hasattr(found, "y") and not hasattr(found, "z") and found.get("z") is None
    with pytest.raises(rlx.ArgumentError, match="no output 'z'"):
        _ = found.z


# ---- copies and pickles ------------------------------------------------------------------------


def again(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


def test_outputs_and_states_are_copied_and_pickled() -> None:
    out = outputs()
    for found in (again(out), copy.deepcopy(out), copy.copy(out)):
        assert list(found) == list(out) and found.loss == out.loss
    exe = rlx.compile(model())
    state = exe.init(W)
    exe.step(state, x=X)
    for make in (again, copy.copy, copy.deepcopy):
        other, kept = make(state), make(state)
        want = exe.step(kept, x=X)
        assert exe.step(other, x=X).loss == want.loss
        for table in ("params", "states"):
            for name, array in getattr(other, table).items():
                assert not np.shares_memory(array, getattr(state, table)[name])
                np.testing.assert_array_equal(array, getattr(kept, table)[name])


@each_kind
@pytest.mark.parametrize("make_again", [again, copy.copy, copy.deepcopy])
def test_graphs_are_copied_and_pickled(make: Any, make_again: Any) -> None:
    g = make()
    found = make_again(g)
    assert str(found) == str(g) and found.nesting == g.nesting
    states = {k: s.init for k, s in g.states.items()}
    exe, other = rlx.compile(g), rlx.compile(found)
    assert states.keys() == found.states.keys()
    assert exe.step(exe.init(W), x=X).loss == other.step(other.init(W), x=X).loss
    found.output("more", next(iter(found.outputs.values())) * 2)
    assert "more" not in g.outputs


@each_kind
def test_executables_are_copied_and_say_how_to_be_pickled(make: Any, tmp_path: Path) -> None:
    exe = rlx.compile(make())
    runs: list[Any] = [exe]
    if make is model:
        runs.append(rlx.load(exe.export(tmp_path / "step")))
    for run in runs:
        assert copy.copy(run) is run and copy.deepcopy({"exe": run})["exe"] is run
        with pytest.raises(rlx.ArgumentError, match=r"pickle exe\.graph.*rlx\.load"):
            pickle.dumps(run)


# ---- methods -----------------------------------------------------------------------------------


def methods(kind: type) -> set[str]:
    return {k for k, v in inspect.getmembers(kind, inspect.isfunction)
            if not k.startswith("_") or k == "__call__"}


ARRAYS = {"x": X, **W}
CALLS: dict[str, Any] = {
    "__call__": lambda exe, folder: exe(**ARRAYS, discard_updates=True).loss,
    "init": lambda exe, folder: exe.init(W).params["w"].sum(),
    "step": lambda exe, folder: exe.step(exe.init(W), x=X).loss,
    "cost": lambda exe, folder: exe.cost(**sizes(exe)).kernels > 0,
    "find_nan": lambda exe, folder: (exe.find_nan(**ARRAYS),
                                     exe.find_nan(**{**ARRAYS, "x": X * np.nan}).kind),
    "check_inputs": lambda exe, folder: exe.check_inputs(**ARRAYS),
    "profile": lambda exe, folder: len(exe.profile(**ARRAYS).kernels) > 0,
    "export": lambda exe, folder: exe.export(folder / "step", "object", sizes=sizes(exe)).suffix,
}


def sizes(exe: rlx.Executable) -> dict[str, int]:
    return {"B": 4} if isinstance(exe, rlx.DynamicExecutable) else {}


def test_the_calls_are_those_of_the_plain_executable() -> None:
    assert CALLS.keys() == methods(rlx.Executable)
    for kind in (type(rlx.compile(make())) for make in MADE.values()):
        assert methods(kind) >= methods(rlx.Executable)


@pytest.mark.parametrize("name", CALLS)
def test_every_executable_has_every_method(name: str, tmp_path: Path) -> None:
    plain, dynamic, nested = (CALLS[name](rlx.compile(make()), tmp_path)
                              for make in MADE.values())
    assert plain == dynamic
    assert np.shape(nested) == np.shape(plain) and type(nested) is type(plain)


@each_kind
def test_the_reference_answers_too_and_exports_nothing(make: Any, tmp_path: Path) -> None:
    exe = rlx.compile(make(), "reference")
    for name, call in CALLS.items():
        if name != "export":
            call(exe, tmp_path)
    with pytest.raises(rlx.BackendError, match="backend='cpu'"):
        exe.export(tmp_path / "step", "object", sizes=sizes(exe))


def test_the_reference_counts_loops_and_results_of_several_arrays() -> None:
    g = rlx.Graph("loops")
    x = g.input("x", (5,))
    g.output("top", rlx.top_k(x, 2)[0])
    f, _ = rlx.scan(lambda s, m: (rlx.cond(m, lambda v: rlx.sin(v) + 2.0, lambda v: v * 3.0, s),
                                  None), x.sum(), x > 0.0)
    g.output("f", f)
    g.output("w", rlx.while_loop(lambda v: v < 9.0, lambda v: v * 2.0, abs(f) + 1.0))
    exe = rlx.compile(g, "reference")
    cost = exe.cost()
    assert cost.kernels == len(g.nodes) and cost.bytes_moved > 0
    assert exe.profile(x=np.ones(5)).kernels


# ---- values without meaning --------------------------------------------------------------------


@each_backend
def test_labels_and_positions_out_of_range_are_reported(backend: str) -> None:
    g = rlx.Graph("labels")
    x, y = g.input("x", (4, 3)), g.input("y", (4,), rlx.i32)
    g.output("loss", rlx.softmax_cross_entropy(x, y).mean())
    line = inspect.currentframe().f_lineno - 1  # type: ignore[union-attr]
    exe, x0 = rlx.compile(g, backend), np.ones((4, 3))
    exe.check_inputs(x=x0, y=[0, 1, 2, 2])
    for wrong in (3, -1, -100):
        assert np.isfinite(exe(x=x0, y=[0, 1, wrong, 2]).loss)
        with pytest.raises(rlx.ArgumentError,
                           match=rf"label {wrong} is none of the 3 classes\n.*{__file__}:{line}"):
            exe.check_inputs(x=x0, y=[0, 1, wrong, 2])
    h = rlx.Graph("ignored")
    x, y = h.input("x", (4, 3)), h.input("y", (4,), rlx.i32)
    h.output("loss", rlx.nn.cross_entropy(x, y))
    exe = rlx.compile(h, backend)
    exe.check_inputs(x=x0, y=[0, 1, -100, 2])
    with pytest.raises(rlx.ArgumentError, match="label 7 is none"):
        exe.check_inputs(x=x0, y=[0, 1, 7, 2])
    for loss in (rlx.nn.nll_loss, rlx.nn.multi_margin_loss,
                 lambda x, y: rlx.nn.cross_entropy(x, y, np.ones(3, np.float32)),
                 lambda x, y: rlx.scan(lambda c, y: (c + rlx.nn.nll_loss(x[0], y), c),
                                       rlx.constant(0.0), y)[0],
                 lambda x, y: rlx.cond(x.sum() > 0, rlx.nn.nll_loss, lambda x, y: x.sum(), x, y),
                 rlx.checkpoint(rlx.nn.cross_entropy)):
        h = rlx.Graph("losses")
        x, y = h.input("x", (4, 3)), h.input("y", (4,), rlx.i32)
        h.output("loss", loss(x, y))
        for graph in (h, rlx.value_and_grad(h, of="loss", wrt="x")):
            exe = rlx.compile(graph, backend)
            exe.check_inputs(x=x0, y=[0, 1, 2, 2])
            with pytest.raises(rlx.ArgumentError, match=rf"label 7 is none.*\n.*{__file__}"):
                exe.check_inputs(x=x0, y=[0, 1, 7, 2])
    e = rlx.Graph("rows")
    e.output("y", rlx.nn.embedding(e.input("i", (2,), rlx.i32), e.param("w", (5, 3))))
    with pytest.raises(rlx.ArgumentError, match=rf"index 5 is out of range .*\n.*{__file__}"):
        rlx.compile(e, backend).check_inputs(i=[0, 5], w=np.ones((5, 3)))
