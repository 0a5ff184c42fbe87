"""Building graphs: errors at the user's line, leaves that stay apart, depth that is no limit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlx_py.ir.base.errors import (
    ArgumentError,
    DTypeError,
    RLXError,
    ShapeError,
    VerifyError,
)
from rlx_py.ir.base.types import TensorType, bool_, f32, i32
from rlx_py.ir.graph.evaluate import evaluate, evaluate_all
from rlx_py.ir.graph.graph import Graph, Results, parse, rebuild
from rlx_py.ir.nodes.node import LEAF, Node, leaf, origin, pack, project, toposort
from rlx_py.ir.nodes.verify import verify
from rlx_py.ir.ops.making.constant import constant
from rlx_py.ir.ops.numpy import arrays as rnp
from rlx_py.ir.ops.numpy.pointwise import exp, where
from rlx_py.ir.ops.primitive.elementwise import ADD, MUL, NEG, SELECT

DEPTH = 20_000
HERE = str(Path(__file__))


def line_of(error: RLXError) -> int:
    """The line of this file that a message names."""
    tail = str(error).rsplit("\n  at ", 1)[1]
    file, line = tail.rsplit(":", 1)
    assert file == HERE
    return int(line)


def here() -> int:
    """The line of the caller."""
    with pytest.raises(ArgumentError) as caught:
        bool(leaf("x", "input", TensorType(f32, ())))
    assert caught.value.__traceback__ is not None
    frame = caught.value.__traceback__.tb_frame
    assert frame.f_back is not None
    return frame.f_back.f_lineno


# ---- errors at the user's line ---------------------------------------------------------------


def test_a_wrong_shape_names_op_types_and_line() -> None:
    g = Graph()
    x, w = g.input("x", (64, 784)), g.param("w", (783, 10))
    with pytest.raises(ShapeError) as caught:
        _ = x @ w
    assert line_of(caught.value) == here() - 1
    for word in ("matmul", "f32[64,784]", "f32[783,10]"):
        assert word in str(caught.value)


CALLS: dict[str, tuple[type[RLXError], Callable[[Graph, Node], Any], str]] = {
    "broadcast": (ShapeError, lambda g, x: x + g.input("z", (5,)), r"add: .*f32\[2,3\].*f32\[5\]"),
    "primitive": (ShapeError, lambda g, x: ADD(x, x.T), r"add\(f32\[2,3\], f32\[3,2\]\)"),
    "dtype": (DTypeError, lambda g, x: ADD(x, g.input("z", (2, 3), i32)), "i32"),
    "reshape": (ShapeError, lambda g, x: x.reshape(4, 2), r"f32\[2,3\]"),
    "axis": (ArgumentError, lambda g, x: x.sum(axis=2), "axis 2"),
    "index": ((RLXError), lambda g, x: x[5], "5"),
    "select": (DTypeError, lambda g, x: SELECT(x, x, x), "bool"),
    "name taken": (ArgumentError, lambda g, x: g.input("x", (1,)), "'x' is taken"),
    "name of a param": (ArgumentError, lambda g, x: g.param("x", (1,)), "'x' is taken"),
    "name of a state": (ArgumentError, lambda g, x: g.state("x", (1,)), "'x' is taken"),
    "output taken": (ArgumentError, lambda g, x: g.output("y", x), "'y' is taken"),
    "no name": (ArgumentError, lambda g, x: g.input("", (1,)), "non-empty"),
    "name of no kind": (ArgumentError, lambda g, x: g.input(3, (1,)), "non-empty"),  # type: ignore[arg-type]
    "output of no node": (ArgumentError, lambda g, x: g.output("z", 1.0), "float"),  # type: ignore[arg-type]
    "output of a tuple": (ArgumentError, lambda g, x: g.output("z", pack([x, x])), "one result"),
    "negative size": (ShapeError, lambda g, x: g.input("z", (2, -1)), "'z'.*-1"),
    "float size": (ShapeError, lambda g, x: g.input("z", (2.0,)), "'z'.*2.0"),
    "bool size": (ShapeError, lambda g, x: g.input("z", (True,)), "'z'.*True"),
    "no dtype": (RLXError, lambda g, x: g.input("z", (2,), "f31"), "f31"),
    "size beyond": (ShapeError, lambda g, x: g.input("z", (2**62, 2)), "'z'.*64-bit"),
    "size far beyond": (ShapeError, lambda g, x: g.param("z", (2**200,)), "'z'.*64-bit"),
    "size beyond of no elements": (ShapeError, lambda g, x: g.input("z", (0, 2**63)), "64-bit"),
    "result beyond": (ShapeError, lambda g, x: rnp.broadcast_to(x[0, 0], (2**40, 2**40)),
                      "64-bit"),
    "next of no state": (ArgumentError, lambda g, x: g.next("z", x), "'z'.*m"),
    "next of another type": (ShapeError, lambda g, x: g.next("m", x), r"f32\[2,3\].*f32\[3\]"),
    "update of no param": (ArgumentError, lambda g, x: g.update("x", x), "'x'.*w"),
    "update of another type": (ShapeError, lambda g, x: g.update("w", x), "'w'"),
    "truth": (ArgumentError, lambda g, x: 1 if x else 2, "where or cond"),
    "truth of a comparison": (ArgumentError, lambda g, x: 1 if x.sum() > 0 else 2, "where or cond"),
    "and": (ArgumentError, lambda g, x: (x > 0) and (x < 1), "where or cond"),
}


@pytest.mark.parametrize("name", CALLS)
def test_what_is_wrong_is_refused_where_it_is_written(name: str) -> None:
    error, call, message = CALLS[name]
    g = Graph("net")
    x = g.input("x", (2, 3))
    g.param("w", (3,))
    g.state("m", (3,))
    g.output("y", x)
    with pytest.raises(error, match=message) as caught:
        call(g, x)
    assert str(caught.value).count("\n  at ") == 1
    assert line_of(caught.value) in range(call.__code__.co_firstlineno,
                                          call.__code__.co_firstlineno + 2)


def test_a_refused_call_changes_nothing() -> None:
    g = Graph()
    x = g.input("x", (2, 3))
    g.output("y", x)
    before = str(g)
    calls: list[Callable[[], Any]] = [
        lambda: g.input("z", (-1,)), lambda: g.state("x", ()), lambda: g.output("y", x),
        lambda: g.param("z", 3, "f31")]
    for call in calls:
        with pytest.raises(RLXError):
            call()
    assert str(g) == before


def test_nodes_know_the_line_that_made_them() -> None:
    x = Graph().input("x", (2, 3)); line = here()  # noqa: E702
    assert x.loc == (HERE, line)
    y = (x * 2).sum(axis=0); line = here()  # noqa: E702
    assert {n.loc for n in toposort([y])} == {(HERE, line), x.loc}


# ---- calling a graph -------------------------------------------------------------------------


def layer() -> Graph:
    g = Graph("layer")
    x, w, m = g.input("x", (2,)), g.param("w", (2,)), g.state("m", (2,), init=3.0)
    g.output("y", x * w + m)
    g.next("m", m + x)
    return g


def test_a_call_shares_params_and_takes_over_states() -> None:
    g = Graph("net")
    x = g.input("x", (2,))
    out = g.call(layer(), x=x)
    g.output("y", out.y)
    assert list(g.params) == ["w"]
    assert list(g.states) == ["m"]
    verify(g)
    found = evaluate_all(g, {"x": np.array([1, 2], "f"), "w": np.array([5, 6], "f")})
    np.testing.assert_array_equal(found.outputs["y"], [8, 15])
    np.testing.assert_array_equal(found.states["m"], [4, 5])


def test_params_and_states_may_be_bound() -> None:
    g = Graph("net")
    x = g.input("x", (2,))
    out = g.call(layer(), x=x, w=x * x, m=x)
    g.output("y", out["y"])
    assert (g.params, g.states) == ({}, {})
    np.testing.assert_array_equal(evaluate(g, {"x": np.array([2, 3], "f")})["y"], [10, 30])


def test_two_calls_use_one_param_when_it_is_not_bound() -> None:
    g = Graph("net")
    x = g.input("x", (2,))
    sub = layer().derive({"y": layer().inputs["x"]})
    free = Graph("free")
    w = free.param("w", (2,))
    free.output("y", free.input("x", (2,)) * w)
    assert sub.name == "layer"
    y = g.call(free, x=g.call(free, x=x).y).y
    g.output("y", y)
    assert list(g.params) == ["w"]


@pytest.mark.parametrize(("bindings", "error", "message"), [
    (lambda x: {}, ArgumentError, "inputs .'x'. are not bound"),
    (lambda x: {"x": x, "z": x}, ArgumentError, "'z'"),
    (lambda x: {"x": 1.0}, ArgumentError, "'x' must be bound to a node, not float"),
    (lambda x: {"x": x.reshape(1, 2)}, ShapeError, r"'x' takes f32\[2\], not f32\[1,2\]"),
    (lambda x: {"x": x.astype(i32)}, ShapeError, r"i32\[2\]"),
    (lambda x: {"x": x, "w": x.sum()}, ShapeError, "'w'"),
])
def test_a_wrong_binding_is_refused(bindings: Any, error: type[RLXError], message: str) -> None:
    g = Graph("net")
    x = g.input("x", (2,))
    with pytest.raises(error, match=message):
        g.call(layer(), **bindings(x))


def test_a_param_of_another_type_under_the_same_name_is_refused() -> None:
    g = Graph("net")
    x = g.input("x", (2,))
    g.param("w", (3,))
    with pytest.raises(ShapeError, match="'w'"):
        g.call(layer(), x=x)


def test_results_are_found_by_name_or_refused_by_name() -> None:
    x = Graph().input("x", (2,))
    found = Results({"loss": x})
    assert found.loss is found["loss"] is x
    assert dict(found) == {"loss": x}
    with pytest.raises(ArgumentError, match="'los'.*loss"):
        _ = found.los


# ---- leaves and interning ----------------------------------------------------------------------


def test_leaves_never_merge() -> None:  # C39
    g = Graph()
    a, b = g.input("a", (2,)), g.input("b", (2,))
    p, q = g.param("p", (2,)), g.state("s", (2,))
    g.output("y", (a + b) * (p - q))
    found = rebuild(g)
    assert found.leaves == {"a": a, "b": b, "p": p, "s": q}
    assert {n for n in found.nodes if n.op is LEAF} == {a, b, p, q}
    same = leaf("a", "input", a.type)
    two = Graph()
    two.outputs["y"] = a + same
    assert len([n for n in rebuild(two).nodes if n.op is LEAF]) == 2
    assert evaluate(g, {"a": np.ones(2, "f"), "b": np.zeros(2, "f"),
                        "p": np.full(2, 5, "f")})["y"].tolist() == [5, 5]


def test_unused_leaves_stay() -> None:
    g = Graph()
    g.output("y", g.input("x", (2,)) * 2)
    g.input("unused", (3,))
    assert list(rebuild(g).inputs) == ["x", "unused"]


def test_equal_computations_become_one_and_dead_ones_go() -> None:
    g = Graph()
    x = g.input("x", (2,))
    exp(x)
    g.output("y", (x * 2 + 1) - (x * 2 + 1))
    found = rebuild(g)
    names = sorted(n.op.name for n in found.nodes if n.op is not LEAF)
    assert names == ["add", "broadcast", "broadcast", "constant", "constant", "mul", "sub"]
    y = found.outputs["y"]
    assert y.inputs[0] is y.inputs[1]


@pytest.mark.parametrize(("a", "b"), [
    (0.0, -0.0), (0.0, 0), (1.0, True), (float("nan"), 0.0),
    (np.float32(1), np.float64(1)), (np.zeros(2, "f"), np.zeros((2, 1), "f"))])
def test_constants_that_differ_in_any_bit_stay_apart(a: Any, b: Any) -> None:
    g = Graph()
    g.output("a", constant(a))
    g.output("b", constant(b))
    g.output("c", constant(a))
    found = rebuild(g).outputs
    assert found["a"] is not found["b"]
    assert found["a"] is found["c"]


def test_a_constant_is_a_copy() -> None:
    array = np.ones(2, np.float32)
    g = Graph()
    g.output("y", constant(array))
    array[:] = 7
    assert evaluate(g, {})["y"].tolist() == [1, 1]


def test_projections_of_a_packed_tuple_are_its_parts() -> None:
    g = Graph()
    x, y = g.input("x", (2,)), g.input("y", (3,))
    assert project(pack([x, y]), -1) is y
    for wrong in (2, -3, True, 0.0):
        with pytest.raises(ArgumentError, match="results 0..1"):
            project(pack([x, y]), wrong)  # type: ignore[arg-type]


def test_rewriting_reaches_a_fixed_point_or_says_that_it_does_not() -> None:
    g = Graph()
    x = g.input("x", (2,))
    y = x
    for _ in range(7):
        y = NEG(y)
    g.output("y", y)

    def double_neg(n: Node) -> Node | None:  # −−x -> x
        return n.inputs[0].inputs[0] if n.op is NEG and n.inputs[0].op is NEG else None

    assert rebuild(g, double_neg).outputs["y"].inputs == (x,)

    def swap(n: Node) -> Node | None:  # a + b -> b + a, for ever
        return ADD(n.inputs[1], n.inputs[0]) if n.op is ADD else None

    endless = Graph()
    endless.output("y", endless.input("a", 2) + endless.input("b", 2))
    with pytest.raises(VerifyError, match="does not end"):
        rebuild(endless, swap)


# ---- verify ------------------------------------------------------------------------------------


def broken() -> dict[str, Graph]:
    """Graphs that only code going past the builder can make."""
    g = Graph()
    x = g.input("x", (2,))
    found = {k: Graph(k) for k in ("type", "foreign", "kind", "name", "cycle", "tuple", "arity")}
    found["type"] = g.derive({"y": Node(NEG, (x,), {}, TensorType(f32, (3,)), None, None)})
    found["foreign"].outputs["y"] = x
    found["kind"].params["x"] = x
    found["name"].inputs["z"] = x
    loop = Node(NEG, (x,), {}, x.type, None, None)
    loop.inputs = (loop,)
    found["cycle"] = g.derive({"y": loop})
    found["tuple"] = g.derive({"y": pack([x, x])})
    found["arity"] = g.derive({"y": Node(MUL, (x, x.reshape(2, 1)), {}, x.type, None, None)})
    return found


@pytest.mark.parametrize("name", broken())
def test_verify_refuses_a_broken_graph(name: str) -> None:
    with pytest.raises(VerifyError):
        verify(broken()[name])


# ---- threads and depth -------------------------------------------------------------------------


def test_origin_belongs_to_its_thread() -> None:
    x = Graph().input("x", (2,))
    barrier = threading.Barrier(8)
    wrong: list[Any] = []

    def work(index: int) -> None:
        mine = x * index
        for _ in range(50):
            with origin(mine if index % 2 else None):
                barrier.wait()
                made = x + x
                barrier.wait()
            if made.origin is not (mine if index % 2 else None):
                wrong.append(index)
            if (x + x).origin is not None:
                wrong.append(-index)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_origin_is_restored_after_an_error() -> None:
    x = Graph().input("x", (2,))
    with pytest.raises(ShapeError), origin(x):
        ADD(x, x.reshape(2, 1))
    assert (x + x).origin is None


def deep(count: int) -> Graph:
    g = Graph("deep")
    x = y = g.input("x", (2,))
    for i in range(count):
        y = ADD(y, x) if i % 2 else MUL(y, y)
    g.output("y", y)
    return g


def test_depth_is_no_limit(tmp_path: Path) -> None:
    start = time.perf_counter()
    g = deep(DEPTH)
    assert len(toposort(g.roots)) == len(g.nodes) == DEPTH + 1
    verify(g)
    text = str(g)
    assert str(parse(text)) == text
    g.save(tmp_path / "g")
    assert str(Graph.load(tmp_path / "g")) == text
    assert len(rebuild(g).nodes) == DEPTH + 1
    g.draw(tmp_path / "g.dot")
    assert evaluate(g, {"x": np.zeros(2, np.float32)})["y"].tolist() == [0, 0]
    assert time.perf_counter() - start < 60


def test_a_deep_graph_is_freed_without_recursion() -> None:
    g = deep(200_000)
    del g


def test_two_runs_number_nodes_alike() -> None:
    def build() -> Graph:
        g = Graph()
        x, y = g.input("x", (2, 3)), g.input("y", (2, 3), bool_)
        g.output("a", where(y, exp(x), -x).sum(axis=1))
        g.output("b", x.mean() + 1)
        return g

    assert str(build()) == str(build())
