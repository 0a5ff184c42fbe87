"""Mistakes of users while a graph is built: the error's type, their own line, the fix by its name.

Those in calls of compiled graphs (5-13, 22-23, 31-32, 36, 42, 50) are in test_mistakes_calls.py, 4
(NumPy values beside a node) in test_beside_nodes.py, 35 (labels) in test_executables.py.
"""

from __future__ import annotations

import operator
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx_py as rlx
from rlx_py import nn

G = rlx.Graph("G")
X, Y, W = G.input("x", (8, 4)), G.input("y", (8,), rlx.i32), G.param("w", (4, 3))
B8, IMAGE = G.input("b", (8,)), G.input("image", (2, 8, 8, 3))
LOSS = G.output("loss", nn.cross_entropy(X @ W, Y))
KERNEL = G.param("k", (5, 3, 3, 3))
OTHER = rlx.Graph("H").input("other", (8, 4))
LEAKED: list[Any] = []


def leaking(x: Any, *_: Any) -> Any:
    """A function traced by an operation, that lets a node out."""
    LEAKED.append(rlx.tanh(x))
    return x


rlx.scan(lambda c, _: (leaking(c), None), X, length=2)
rlx.while_loop(lambda c: leaking(c).sum() > 0, lambda c: c, X)
rlx.cond(X.sum() > 0, leaking, lambda x: x, X)
rlx.checkpoint(leaking)(X)
rlx.custom_vjp(leaking, lambda x: (x, None), lambda _, ct: (ct,))(X)
rlx.custom_vjp(lambda x: x, lambda x: (x, None), lambda _, ct: (leaking(ct),))(X)
rlx.custom_jvp(leaking, lambda x, t: (x[0], t[0]))(X)
INSIDE = ("scan's body", "while_loop's", "cond's", "checkpoint's", "custom_vjp's",
          "custom_vjp's bwd", "custom_jvp's")
T: Any = type("Torch", (), {"__repr__": lambda self: "torch.float32"})()

SUB = rlx.Graph("sub")
SUB.output("y", SUB.input("x", (8, 4)) * 2)
OF_GRAPHS: Any = [rlx.grad, rlx.value_and_grad, rlx.vjp, rlx.jvp, rlx.hvp, rlx.linearize,
                  rlx.jacfwd, rlx.jacrev, rlx.hessian, rlx.vmap, rlx.simplify, rlx.decompose,
                  rlx.retype, rlx.autocast, rlx.verify, rlx.evaluate, rlx.bind, rlx.check_grads,
                  rlx.train_step]
MORE = {"bind": ({},), "evaluate": ({},), "check_grads": ({},), "retype": (rlx.f64,), "vmap": (0,),
        "train_step": ("loss", rlx.optim.sgd(0.1)), "grad": ("y",), "value_and_grad": ("y",),
        "hvp": ("y",), "jacfwd": ("y",), "jacrev": ("y",), "hessian": ("y",)}

# What is called, the error, what its message says.
AT_THE_LINE: dict[str, tuple[Callable[[], Any], type[rlx.RLXError], str]] = {
    "1 transposed": (lambda: X @ W.T, rlx.ShapeError, r"matmul.*f32\[8,4\].*f32\[3,4\]"),
    "2 bias": (lambda: X + B8, rlx.ShapeError, r"add.*f32\[8,4\].*f32\[8\].*do not broadcast"),
    "14 if": (lambda: bool(X.sum() > 0), rlx.ArgumentError, r"truth value.*where or cond"),
    "15 np.exp": (lambda: np.exp(X), rlx.ArgumentError, r"np\.exp.*use rlx\.exp"),
    "15 np.sum": (lambda: np.sum(X), rlx.ArgumentError, r"np\.sum.*use rlx\.sum"),
    "15 np.concatenate": (lambda: np.concatenate([X, X]), rlx.ArgumentError, r"rlx\.concatenate"),
    "15 np.add.reduce": (lambda: np.add.reduce(X), rlx.ArgumentError, r"np\.add"),
    "15 np.asarray": (lambda: np.asarray(X), rlx.ArgumentError, r"no values.*graph is built"),
    "16 float": (lambda: float(X.sum()), rlx.ArgumentError, r"exe\(\.\.\.\).*rlx\.Tape"),
    "16 int": (lambda: int(X.sum()), rlx.ArgumentError, r"exe\(\.\.\.\).*rlx\.Tape"),
    "16 index": (lambda: [1, 2][Y[0]], rlx.ArgumentError, r"an index.*rlx\.Tape"),
    "16 range": (lambda: range(Y[0]), rlx.ArgumentError, r"an index.*rlx\.Tape"),
    "19 twice": (lambda: G.param("w", (4, 3)), rlx.ArgumentError, r"name 'w' is taken"),
    "20 two graphs": (lambda: rlx.tanh(X) * OTHER, rlx.ArgumentError,
                      r"two graphs, 'G' .*tanh.* and 'H' .*leaf.*Graph\.call"),
    "20 in a loop": (lambda: rlx.scan(lambda c, _: (c + OTHER, None), X, length=2),
                     rlx.ArgumentError, r"two graphs, 'G'.*'H'"),
    "20 in a branch": (lambda: rlx.cond(X.sum() > 0, lambda x: x @ OTHER.T, lambda x: x @ x.T, X),
                       rlx.ArgumentError, r"two graphs, 'G'.*'H'"),
    "20 output": (lambda: G.output("c", OTHER), rlx.ArgumentError, r"of graph 'H', not of 'G'"),
    "20 update": (lambda: G.update("w", OTHER[:4, :3]), rlx.ArgumentError, r"'H', not of 'G'"),
    **{f"leaked from {name}": (lambda x=node: rlx.tanh(x), rlx.ArgumentError,
                               rf"tanh f32.* was made inside {name}.*return it")
       for name, node in zip(INSIDE, LEAKED, strict=True)},
    "leaked output": (lambda: G.output("c", LEAKED[0]), rlx.ArgumentError, r"inside scan's body"),
    "pickled node": (lambda: pickle.dumps(X), rlx.ArgumentError, r"pickle or save the graph"),
    "24 text rate": (lambda: rlx.optim.adam("1e-3"), rlx.ArgumentError, r"number.*not '1e-3'"),
    "24 negative rate": (lambda: rlx.optim.adam(-1), rlx.ArgumentError, r"not negative: -1"),
    "24 nan rate": (lambda: rlx.optim.sgd(float("nan")), rlx.ArgumentError, r"not negative: nan"),
    "24 optimizer": (lambda: rlx.train_step(G, of="loss", optimizer="adam"),
                     rlx.ArgumentError, r"rlx\.optim\.adam\(1e-3\), not 'adam'"),
    "24 optimizer class": (lambda: rlx.train_step(G, of="loss", optimizer=rlx.optim.adam),
                           rlx.ArgumentError, r"rlx\.optim\.adam\(1e-3\)"),
    "24 optimizer of a group": (
        lambda: rlx.train_step(G, of="loss", optimizer=rlx.optim.sgd(0.1), groups={"w": "adam"}),
        rlx.ArgumentError, r"rlx\.optim\.adam\(1e-3\), not 'adam'"),
    "26 another word": (lambda: X.sum(axs=1), rlx.ArgumentError, r"'axs'.*did you mean 'axis'"),
    "26 both words": (lambda: rlx.sum(X, axis=1, dim=1), rlx.ArgumentError, r"axis is given twice"),
    "27 view": (lambda: X.view(32), rlx.ArgumentError, r"no 'view'; use reshape"),
    "27 unsqueeze": (lambda: X.unsqueeze(0), rlx.ArgumentError, r"use rlx\.expand_dims"),
    "28 assignment": (lambda: operator.setitem(X, 0, 1), rlx.ArgumentError, r"rlx\.scatter_set"),
    "29 mask": (lambda: X[X > 0], rlx.ArgumentError, r"no static shape; use where"),
    "30 beyond": (lambda: X[9], rlx.ArgumentError, r"9"),
    "33 dropout": (lambda: nn.dropout(X), rlx.ArgumentError, r"rlx\.random\.key"),
    "34 float indices": (lambda: rlx.take(X, B8), rlx.DTypeError, r"f32"),
    "43 NHWC": (lambda: nn.conv2d(IMAGE, KERNEL), rlx.ShapeError, r"f32\[2,8,8,3\]"),
    "37 carry dtype": (lambda: rlx.scan(lambda s, _: (s > 0, None), X, length=2), rlx.ShapeError,
                       r"f32\[8,4\].*bool\[8,4\]|bool\[8,4\].*f32\[8,4\]"),
    "38 carry shape": (lambda: rlx.scan(lambda s, _: (s[0], None), X, length=2), rlx.ShapeError,
                       r"f32\[8,4\].*f32\[4\]|f32\[4\].*f32\[8,4\]"),
    "40 number": (lambda: G.output("c", 3.0), rlx.ArgumentError, r"'c' must be a node, not float"),
    "45 a name": (lambda: G.input("n1", ("B", 4)), rlx.ShapeError, r'rlx\.dim\("B"\)'),
    "48 minus one": (lambda: G.input("n2", (-1, 3)), rlx.ShapeError, r'rlx\.dim\("B"\)'),
    "49 none": (lambda: G.input("n3", (None, 3)), rlx.ShapeError, r'rlx\.dim\("B"\)'),
    "49 zeros": (lambda: rlx.zeros((None, 3)), rlx.ShapeError, r'rlx\.dim\("B"\)'),
    "padding": (lambda: nn.conv2d(IMAGE, KERNEL, padding="full"), rlx.ArgumentError,
                r"'full' is neither 'same' nor 'valid'"),
    "reserved out": (lambda: G.input("out", ()), rlx.ArgumentError, r"input 'out'"),
    "reserved flag": (lambda: G.input("discard_updates", ()), rlx.ArgumentError, r"input 'disc"),
    "reserved param": (lambda: G.param("discard_updates", ()), rlx.ArgumentError, r"param 'disc"),
    "call of nothing": (lambda: G.call(None), rlx.ArgumentError, r"takes a graph, not NoneType"),
    "call of text": (lambda: rlx.call("g"), rlx.ArgumentError, r"takes a graph, not str"),
    "compile of nothing": (lambda: rlx.compile(None), rlx.ArgumentError, r"takes a graph, not N"),
    "length": (lambda: len(W.sum()), rlx.ArgumentError, r"no length"),
    "rounded": (lambda: round(W.sum()), rlx.ArgumentError, r"round\(\) takes a value"),
    "formatted": (lambda: f"{W.sum():.3f}", rlx.ArgumentError, r"'\.3f' takes a value"),
    "27 exp": (lambda: X.exp(), rlx.ArgumentError, r"no 'exp'; use rlx\.exp"),
    "27 relu": (lambda: X.relu(), rlx.ArgumentError, r"no 'relu'"),
    "15 np.heaviside": (lambda: np.heaviside(X, 1), rlx.ArgumentError, r"use what rlx has"),
    "15 into an array": (lambda: np.add(X, 1, out=np.ones((8, 4))), rlx.ArgumentError, r"np\.add"),
    "24 frozen": (lambda: rlx.train_step(G, of="loss", optimizer=rlx.optim.sgd(0.1), frozen=3),
                  rlx.ArgumentError, r"frozen takes names"),
    "two graphs in a call": (lambda: rlx.Graph("b").call(SUB, x=X), rlx.ArgumentError,
                             r"'x' of 'sub'.*of graph 'G', not of 'b'"),
    "a leaked node in a call": (lambda: G.call(SUB, x=LEAKED[0]), rlx.ArgumentError,
                                r"'x' of 'sub'.*scan's body, which only its results leave"),
    "name": (lambda: rlx.Graph(3), rlx.ArgumentError, r"a graph's name is text, not 3"),
    "beyond f32": (lambda: X * 2**200, rlx.DTypeError, r"does not fit f32"),
    "np.linalg": (lambda: np.linalg.norm(W), rlx.ArgumentError, r"rlx\.linalg\.norm"),
    "no wrt": (lambda: rlx.grad(G, of="loss", wrt=3), rlx.ArgumentError, r"names of leaves, not 3"),
    "momentum": (lambda: rlx.optim.sgd(0.1, momentum="x"), rlx.ArgumentError, r"0 <= momentum"),
    "decay": (lambda: rlx.optim.adamw(0.1, weight_decay=-1), rlx.ArgumentError, r"weight_decay"),
    "eps": (lambda: rlx.optim.lamb(0.1, eps=None), rlx.ArgumentError, r"0 <= eps"),
    "coefficients": (lambda: rlx.optim.muon(0.1, coefficients=(1.0,)), rlx.ArgumentError, r"three"),
    "fallback": (lambda: rlx.optim.muon(0.1, fallback=rlx.optim.adam), rlx.ArgumentError, r"adam"),
    "peak": (lambda: rlx.optim.warmup_cosine(-1.0, 5, 10), rlx.ArgumentError, r"0 <= peak"),
    "factor": (lambda: rlx.optim.dynamic_loss_scale(factor="2"), rlx.ArgumentError, r"factor must"),
    **{f"{f.__name__} of no graph": (
        lambda f=f: f("g", *MORE.get(f.__name__, ())),
        rlx.ArgumentError, f"{f.__name__} takes a graph, not str") for f in OF_GRAPHS},
}


@pytest.mark.parametrize("name", AT_THE_LINE)
def test_it_is_told_at_its_own_line(name: str) -> None:
    call, kind, says = AT_THE_LINE[name]
    try:
        call()
    except rlx.RLXError as error:
        message = str(error)
        assert isinstance(error, kind), repr(error)
    else:
        raise AssertionError("it was accepted")
    assert re.search(says, message, re.DOTALL), message
    first = call.__code__.co_firstlineno
    lines = {line for *_, line in call.__code__.co_lines() if line is not None}
    assert any(f"{__file__}:{line}" in message for line in {first, *lines}), message


# What no line of a graph's makes.
ELSEWHERE: dict[str, tuple[Callable[[], Any], type[rlx.RLXError], str]] = {
    "17 no scalar": (lambda: rlx.grad(_vector(), of="y", wrt="x"), rlx.ShapeError, r"scalar"),
    "18 wrt": (lambda: rlx.grad(G, of="loss", wrt="ww"), rlx.ArgumentError, r"'ww'.*'w'"),
    "39 of": (lambda: rlx.grad(G, of="los", wrt="w"), rlx.ArgumentError, r"'los'.*'loss'"),
    "41 output": (lambda: G.find_output("lss"), rlx.ArgumentError, r"'lss'.*'loss'"),
    "44 by integers": (lambda: rlx.grad(G, of="loss", wrt="y"), rlx.RLXError, r"i32|'y'"),
    "21 no outputs": (lambda: rlx.compile(rlx.Graph("empty")), rlx.ArgumentError,
                      r"'empty' gives nothing.*g\.output"),
    "25 groups": (lambda: rlx.train_step(G, of="loss", optimizer=rlx.optim.sgd(0.1),
                                         groups={"v*": rlx.optim.sgd(1)}),
                  rlx.ArgumentError, r"no param matches 'v\*'"),
    "compile nothing": (lambda: rlx.compile(None), rlx.ArgumentError, r"a graph, not NoneType"),
    "compile a function": (lambda: rlx.compile(lambda x: x), rlx.ArgumentError, r"rlx\.trace"),
    "threads": (lambda: rlx.compile(G, threads="a"), rlx.ArgumentError, r"threads.*not 'a'"),
    "threads of a library": (lambda: rlx.load("x", threads="a"), rlx.ArgumentError, r"threads"),
    "empty path": (lambda: rlx.load(""), rlx.ArgumentError, r"''"),
    "path of NUL": (lambda: rlx.load("a\0b"), rlx.ArgumentError, r"a\\x00b"),
    "no path": (lambda: rlx.load(None), rlx.ArgumentError, r"None"),
    "no backend": (lambda: rlx.compile(G, backend=[]), rlx.ArgumentError, r"no backend"),
}


def _vector() -> rlx.Graph:
    g = rlx.Graph("vector")
    g.output("y", g.input("x", (3,)) * 2)
    return g


@pytest.mark.parametrize("name", ELSEWHERE)
def test_it_is_a_typed_error_that_names_the_fix(name: str) -> None:
    call, kind, says = ELSEWHERE[name]
    with pytest.raises(kind, match=re.compile(says, re.DOTALL)):
        call()


def test_3_a_param_widened_by_a_constant_is_told_once() -> None:
    def graph(factor: Any, dtype: Any = rlx.f32) -> rlx.Graph:
        g = rlx.Graph("g")
        h = g.input("x", (8, 4), dtype) @ g.param("w", (4, 3), dtype)
        g.output("loss", (h * factor + h * factor).sum())
        return g

    wide, line = graph(rlx.constant(np.array(2.0))), graph.__code__.co_firstlineno + 3
    for h in (wide, rlx.train_step(wide, of="loss", optimizer=rlx.optim.sgd(0.1)),
              rlx.vmap(wide, in_axes={"x": 0}, size=2)):
        says = rf"(?s)param 'w' is f32, .*f64.*rlx\.constant\(…, f32\).*{__file__}:{line}"
        with pytest.warns(UserWarning, match=says) as found:
            rlx.compile(h)
        assert len(found) == 1 and found[0].filename == __file__
    # These say what they want; pytest makes a warning an error.
    for h in (graph(np.array(2.0)), graph(2.0), graph(rlx.constant(2.0)),
              graph(rlx.constant(np.array(2.0)), rlx.f64)):
        rlx.compile(h)


@pytest.mark.parametrize("dtype", [
    np.float32, np.dtype("float32"), "float32", "f32", T, rlx.f32, float], ids=repr)
def test_46_47_dtypes_of_any_library(dtype: Any) -> None:
    assert rlx.Graph("g").input("x", (2,), dtype).dtype is rlx.f32
    assert X.astype(dtype).dtype is rlx.f32


def test_46_47_an_unknown_dtype_is_named() -> None:
    complex_: Any = type("Torch", (), {"__repr__": lambda self: "torch.complex64"})()
    for dtype in (complex_, "float33", np.complex64, object(), 3, None):
        with pytest.raises(rlx.DTypeError, match="element type"):
            rlx.Graph("g").input("x", (2,), dtype)


def test_26_both_words_work() -> None:
    for name in ("sum", "mean", "var", "std", "max", "min", "prod", "argmax", "argmin"):
        by_axis = getattr(X, name)(axis=1, keepdims=True)
        assert getattr(X, name)(dim=1, keepdim=True).type == by_axis.type
        assert getattr(rlx, name)(X, dim=1, keepdim=True).type == by_axis.type
        assert getattr(X, name)(1, True).type == by_axis.type
    with pytest.raises(rlx.ArgumentError, match="at most axis and keepdims"):
        X.sum(1, True, rlx.f32)
    assert X.cumsum(dim=1).shape == (8, 4)
    assert X[None].squeeze(dim=0).shape == (8, 4)
    assert rlx.concatenate([X, X], dim=1).shape == (8, 8)
    assert rlx.stack([X, X], dim=0).shape == (2, 8, 4)
    assert [n.shape for n in rlx.split(X, 2, dim=1)] == [(8, 2), (8, 2)]
    for function in (nn.softmax, nn.log_softmax, nn.softmin, nn.glu, nn.normalize):
        assert function(X, axis=1).type == function(X, dim=1).type


@pytest.mark.parametrize("name", ["self", "state", "sub", "args", "function", "path", "graph"])
def test_names_of_parameters_are_names_of_inputs_too(name: str) -> None:
    g = rlx.Graph("g")
    g.output("y", (g.input(name, (2,)) * g.param("w", ())).sum())
    given = {name: np.ones(2, np.float32), "w": np.float32(2)}
    assert rlx.evaluate(g, given)["y"] == 4
    exe = rlx.compile(g)
    assert exe(**given).y == 4 and exe.find_nan(**given) is None
    exe.profile(**given)
    outer = rlx.Graph("outer")
    x, w = outer.input("x", (2,)), outer.input("w", ())
    outer.output("a", outer.call(g, **{name: x, "w": w}).y)
    outer.output("b", rlx.call(g, **{name: x, "w": w}).y)
    assert rlx.compile(outer)(x=given[name], w=given["w"]).b == 4
    step = rlx.compile(rlx.train_step(g, of="y", optimizer=rlx.optim.sgd(0.5)))
    state = step.init({"w": 2.0})
    assert step.step(state, **{name: given[name]}).y == 4
    assert state.params["w"] == 1


def test_a_missing_attribute_is_none_to_hasattr() -> None:
    assert not hasattr(X, "view") and not hasattr(X, "_private") and hasattr(X, "shape")
    with pytest.raises(AttributeError, match="a node has no 'nothing'$|a node has no 'nothing'\n"):
        X.nothing  # noqa: B018


def test_arrays_in_place_become_nodes() -> None:
    a: Any = np.ones(4, np.float32)
    a += X
    assert isinstance(a, rlx.Node) and a.shape == (8, 4)


@pytest.mark.parametrize("key", [
    np.array(True), np.array(False), (np.array(True), slice(1)), (slice(1, 3), np.array(True)),
    (slice(1), np.array(False)), (Ellipsis, np.array(True)), (Ellipsis, np.array(False)),
    (None, np.array(False)), (np.array(False), None, Ellipsis)], ids=repr)
def test_a_bool_array_of_rank_0_adds_an_axis(key: Any) -> None:
    values = np.arange(32, dtype=np.float32).reshape(8, 4)
    g = rlx.Graph("g")
    g.output("y", g.input("x", (8, 4))[key])
    found = rlx.evaluate(g, {"x": values})["y"]
    np.testing.assert_array_equal(found, values[key])
    assert found.shape == values[key].shape


def test_same_and_valid_in_any_case() -> None:
    g = rlx.Graph("g")
    x, kernel = g.input("x", (2, 3, 8, 8)), g.param("k", (5, 3, 3, 3))
    for same in ("same", "SAME"):
        assert nn.conv2d(x, kernel, padding=same).shape == (2, 5, 8, 8)
    for valid in ("valid", "VALID"):
        assert nn.conv2d(x, kernel, padding=valid).shape == (2, 5, 6, 6)


@pytest.mark.parametrize(("put", "kind", "says"), [
    (lambda a: np.asfortranarray(np.ones((4, 3), np.float32)), rlx.ArgumentError, r"C-contiguous"),
    (lambda a: a.astype(np.float64), rlx.DTypeError, r"f32\[4,3\], not f64\[4,3\]"),
    (lambda a: a[:2], rlx.ShapeError, r"f32\[4,3\], not f32\[2,3\]"),
    (lambda a: a.tolist(), rlx.ArgumentError, r"list, not an array"),
], ids=["layout", "dtype", "shape", "list"])
def test_a_wrong_array_of_a_state_says_what_is_wrong(put: Any, kind: Any, says: str) -> None:
    exe = rlx.compile(rlx.train_step(_model(), of="loss", optimizer=rlx.optim.sgd(0.1)))
    state = exe.init({"w": np.ones((4, 3), np.float32)})
    state.params["w"] = put(state.params["w"])
    with pytest.raises(kind, match=f"'w' of the state.*{says}"):
        exe.step(state, x=np.ones((8, 4), np.float32))


def _model() -> rlx.Graph:
    g = rlx.Graph("model")
    g.output("loss", (g.input("x", (8, 4)) @ g.param("w", (4, 3))).sum())
    return g


def test_a_hostile_description_of_a_library_is_a_format_error(tmp_path: Path) -> None:
    path = rlx.compile(_model()).export(tmp_path / "model")
    content = path.read_bytes()
    start = content.index(b'{"rlx_interface"')
    size = content.index(b"\0", start) - start
    deep = b'{"rlx_interface":' + b"[" * (size - 17)
    for text in (deep, b'{"rlx_interface":[]}'.ljust(size)):
        path.write_bytes(content[:start] + text + content[start + size:])
        with pytest.raises(rlx.FormatError, match="damaged|format"):
            rlx.load(path)


PATHS: dict[str, Callable[[Any], Any]] = {
    "load": rlx.load, "save": G.save, "Graph.load": rlx.Graph.load, "draw": G.draw,
    "export": lambda path: rlx.compile(_model()).export(path),
    "save_arrays": lambda path: rlx.save_arrays(path, {}), "load_arrays": rlx.load_arrays}


@pytest.mark.parametrize("name", PATHS)
@pytest.mark.parametrize("path", [None, "", ".", "/", "a\0b", b"a\0b", 3, [], object(), "\ud800"],
                         ids=range(10))
def test_what_is_no_path_is_told_at_the_line(name: str, path: Any) -> None:
    with pytest.raises(rlx.ArgumentError, match="no path of a file") as error:
        PATHS[name](path)
    assert repr(path) in str(error.value) and f"{__file__}:" in str(error.value)


@pytest.mark.parametrize("name", PATHS)
def test_a_path_that_leads_nowhere_is_told(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file" / "below.svg", tmp_path / ("x" * 300 + ".svg")):
        with pytest.raises((OSError, rlx.ArgumentError)) as error:
            PATHS[name](path)
        assert path.name[:9] in str(error.value) or "file" in str(error.value)


def test_a_linker_that_can_not_be_run_is_told(tmp_path: Path,
                                              monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*args: Any, **options: Any) -> Any:
        raise BlockingIOError(11, "Resource temporarily unavailable")  # the limit of processes

    exe = rlx.compile(_model())
    monkeypatch.setattr("subprocess.run", refused)
    with pytest.raises(rlx.BackendError, match="can't be run to link.*temporarily unavailable"):
        exe.export(tmp_path / "model")
    assert not list(tmp_path.iterdir())
    assert exe.export(tmp_path / "model", kind="object").is_file()
