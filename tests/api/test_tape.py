"""Tape mode: what is recorded, what backward refuses and in which order, where gradients go."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx_py as rlx
from rlx_py.ir.base.types import DType
from rlx_py.ir.nodes.node import Op

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(6, 3)), RNG.normal(size=(6, 2))
PARAMS = {"w": RNG.normal(size=(3, 2)), "b": RNG.normal(size=(2,))}


def params(dtype: DType = rlx.f64) -> dict[str, rlx.Parameter]:
    return {k: rlx.Parameter(v, dtype, name=k) for k, v in PARAMS.items()}


def network(w: Any, b: Any, x: Any = X) -> Any:
    h = rlx.nn.layer_norm(rlx.gelu(x @ w + b), (2,), b, w[0])
    return (rlx.norm(h - Y, axis=1) + rlx.sort(h, axis=0)[0].sum()).mean()


def want() -> Any:
    """The same by way of a graph."""
    g = rlx.Graph()
    g.output("loss", network(*(g.param(k, v.shape, rlx.f64) for k, v in PARAMS.items())))
    return rlx.evaluate(rlx.value_and_grad(g, of="loss"), PARAMS)


def refused(tape: rlx.Tape, root: Any, match: str, kind: Any = rlx.ArgumentError) -> None:
    with pytest.raises(kind, match=match) as caught:
        tape.backward(root)
    assert "test_tape.py:" in str(caught.value)


# ---- values and gradients ------------------------------------------------------------------------


def test_values_and_gradients_are_those_of_the_graph() -> None:
    p = params()
    with rlx.Tape() as tape:
        loss = network(**p)
        np.testing.assert_allclose(loss.numpy(), want()["loss"], rtol=1e-12)
    tape.backward(loss)
    for name in PARAMS:
        np.testing.assert_allclose(p[name].grad, want()[f"grad_{name}"], rtol=1e-10)
    assert loss.item() == pytest.approx(want()["loss"])


def test_gradients_are_those_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    p = params()
    with rlx.Tape() as tape:
        h = rlx.tanh(X @ p["w"] + p["b"])
        loss = rlx.nn.mse_loss(rlx.softmax(h @ p["w"].T, -1) @ X.T, rlx.constant(Y @ Y.T))
    tape.backward(loss)
    w, b = (torch.tensor(PARAMS[k], requires_grad=True) for k in "wb")
    x, y = torch.tensor(X), torch.tensor(Y @ Y.T)
    other = torch.nn.functional.mse_loss(
        torch.softmax(torch.tanh(x @ w + b) @ w.T, -1) @ x.T, y)
    other.backward()
    np.testing.assert_allclose(loss.numpy(), other.detach().numpy(), rtol=1e-12)
    for name, tensor in (("w", w), ("b", b)):
        np.testing.assert_allclose(p[name].grad, tensor.grad.numpy(), rtol=1e-10)


@pytest.mark.parametrize("dtype", [rlx.f64, rlx.f32, rlx.f16, rlx.bf16], ids=str)
def test_gradients_have_the_type_of_the_parameter(dtype: DType) -> None:
    p = rlx.Parameter([1.0, 2.0], dtype)
    with rlx.Tape() as tape:
        loss = (p * p).sum()
    tape.backward(loss)
    assert p.grad.dtype == p.value.dtype == dtype.numpy
    np.testing.assert_array_equal(p.grad.astype(float), [2, 4])


def test_singular_points_are_as_in_graphs() -> None:
    p = rlx.Parameter(np.zeros(3))
    with rlx.Tape() as tape:
        loss = rlx.sqrt((p * p).sum())
    tape.backward(loss)
    np.testing.assert_array_equal(p.grad, np.zeros(3))


def test_values_steer_python_and_are_read_only() -> None:
    p = rlx.Parameter([3.0, -1.0])
    with rlx.Tape() as tape:
        y = p * 2.0
        while (y.sum() < 100.0):
            y = y * p
        loss = y.sum()
        assert isinstance(y, rlx.Variable)
        with pytest.raises(ValueError, match="read-only"):
            y.numpy()[0] = 0
        with pytest.raises(rlx.ArgumentError, match=r"(?s)item takes one.*test_tape.py"):
            y.item()
        assert loss.item() == 2 * 81 + -2 * -1
    tape.backward(loss)
    np.testing.assert_allclose(p.grad, [2 * 4 * 27, 2 * 4 * -1])


def test_other_nodes_have_no_value() -> None:
    for node in (rlx.constant(1.0) * 2.0, rlx.Graph().input("x", ())):
        for ask in (node.numpy, node.item):
            with pytest.raises(rlx.ArgumentError, match=r"(?s)no tape recorded it.*test_tape.py"):
                ask()


def test_accumulates_until_zeroed() -> None:
    p = rlx.Parameter(2.0)
    assert p.dtype is rlx.f32
    for total in (4.0, 8.0):
        with rlx.Tape() as tape:
            loss = p * p
        tape.backward(loss)
        assert p.grad == total
    p.zero_grad()
    assert p.grad == 0
    with rlx.Tape() as tape:
        loss = p * p * p
    tape.backward(loss)
    assert p.grad == 12


# ---- parameters ----------------------------------------------------------------------------------


def test_one_route_whether_read_or_watched() -> None:
    read, both, unused, only_read = (rlx.Parameter([1.0, 2.0]) for _ in range(4))
    with rlx.Tape() as tape:
        assert tape.watch(both) is both
        tape.watch(unused)
        loss = (both * read).sum() + 0.0 * rlx.stop_gradient(only_read).sum()
    tape.backward(loss)
    np.testing.assert_array_equal(both.grad, [1, 2])
    np.testing.assert_array_equal(read.grad, [1, 2])
    np.testing.assert_array_equal(unused.grad, [0, 0])
    np.testing.assert_array_equal(only_read.grad, [0, 0])


def test_a_parameter_is_an_array_with_a_version() -> None:
    given = np.array([1.0, 2.0])
    p = rlx.Parameter(given, name="weight")
    given[0] = 9
    np.testing.assert_array_equal(p.value, [1, 2])
    with pytest.raises(ValueError, match="read-only"):
        p.value[0] = 3
    assert p.version == 0 and p.numpy() is p.value
    p.value = p.value - 1
    p.value = [5, 6]
    assert p.version == 2 and repr(p) == "<Parameter 'weight' f64[2], version 2>"
    for wrong, kind in ((np.zeros(3), rlx.ShapeError), (np.zeros(2, int), rlx.DTypeError)):
        with pytest.raises(kind):
            p.value = wrong
    assert p.version == 2
    p.value = np.array([0.5, 1], np.float32)  # within a kind, as inputs of calls
    assert p.version == 3 and p.value.dtype == np.float64 and p.value[0] == 0.5


@pytest.mark.parametrize(("value", "dtype", "kind"), [
    (np.arange(3), None, rlx.DTypeError), (1.0, rlx.i32, rlx.DTypeError),
    (np.zeros(2, complex), None, rlx.DTypeError), ("text", None, rlx.DTypeError),
    ([[1.0], [1.0, 2.0]], None, rlx.ArgumentError), (rlx.constant(1.0), None, rlx.ArgumentError),
])
def test_what_is_no_parameter(value: Any, dtype: Any, kind: Any) -> None:
    with pytest.raises(kind, match=r"test_tape.py:"):
        rlx.Parameter(value, dtype)
    with pytest.raises(rlx.ArgumentError):
        rlx.Parameter(1.0, name="")


@pytest.mark.parametrize("read", [lambda tape, p: p * 1.5, lambda tape, p: tape.watch(p)],
                         ids=["read", "watched"])
def test_versions_are_pinned(read: Callable[[rlx.Tape, Any], Any]) -> None:
    p, q = rlx.Parameter(2.0), rlx.Parameter(3.0)
    with rlx.Tape() as tape:
        read(tape, p)
        loss = q * q
        p.value = 4.0
        with pytest.raises(rlx.ArgumentError, match="changed since this tape read version 0"):
            tape.watch(p)
        with pytest.raises(rlx.ArgumentError, match="changed since"):
            p * 2.0
    for _ in range(2):  # refused, not consumed
        refused(tape, loss, "changed since this tape read version 0")
    assert q.grad == 0


def test_values_are_those_of_the_pinned_version() -> None:
    p = rlx.Parameter(2.0)
    with rlx.Tape():
        y = p * p
        p.value = 5.0
        assert y.item() == 4


# ---- what backward refuses -----------------------------------------------------------------------


def test_another_live_tape_is_refused_and_this_one_stays_open() -> None:
    p = rlx.Parameter(2.0)
    with rlx.Tape() as tape:
        loss = p * p
        with rlx.Tape():
            refused(tape, loss, "another tape is live")
            refused(tape, "no root", "another tape is live")  # before anything else
        loss = loss * p  # it still records
        assert isinstance(loss, rlx.Variable) and loss.tape is tape
    with rlx.Tape():
        refused(tape, loss, "another tape is live")
    tape.backward(loss)
    assert p.grad == 12


def test_a_tape_of_another_thread_is_no_matter() -> None:
    p = rlx.Parameter(2.0)
    failed: list[BaseException] = []

    def work() -> None:
        try:
            with rlx.Tape() as inner:
                y = p * 3.0
            inner.backward(y)
        except BaseException as error:
            failed.append(error)
            raise

    with rlx.Tape() as tape:
        loss = p * p
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    tape.backward(loss)
    assert not failed and p.grad == 7


def test_another_thread_may_go_backward_while_the_outer_tape_records_on() -> None:
    p = rlx.Parameter(2.0)
    with rlx.Tape() as outer:
        with rlx.Tape() as inner:
            y = p * p
            thread = threading.Thread(target=inner.backward, args=(y,))
            thread.start()
            thread.join()
            assert p.grad == 4
            loss = p * 3.0
        assert isinstance(loss, rlx.Variable) and loss.tape is outer
    assert not isinstance(p * 1.5, rlx.Variable)
    outer.backward(loss)
    assert p.grad == 7


def test_recording_closes_before_the_root_is_looked_at() -> None:
    p = rlx.Parameter(2.0)
    with rlx.Tape() as tape:
        loss = p * p
        refused(tape, None, "a node that this tape computed")
        late = loss * p
        assert not isinstance(late, rlx.Variable)
        refused(tape, late, "a node that this tape computed")
        tape.backward(loss)
    assert p.grad == 4


def test_a_consumed_tape_is_refused_before_its_root() -> None:
    p = rlx.Parameter(2.0)
    with rlx.Tape() as tape:
        loss = p * p
    tape.backward(loss)
    refused(tape, loss, "consumed")
    p.value = 3.0
    refused(tape, None, "consumed")
    assert p.grad == 4


def test_roots() -> None:
    p = rlx.Parameter([2.0])
    with rlx.Tape() as other:
        foreign = (p * p).sum()
    before = (p * p).sum()
    with rlx.Tape() as tape:
        given = tape.input(1.0)
        one = p * p
        loss = one.sum()
        several = rlx.top_k(one, 1)[0].inputs[0]
        roots: list[tuple[Any, str, Any]] = [
            (one, r"a scalar, not f64\[1\]", rlx.ShapeError),
            (several, "a scalar, not", rlx.ShapeError),
            (rlx.argmax(one), "a float, not i64", rlx.DTypeError),
            (loss > 1.0, "a float, not bool", rlx.DTypeError),
            (loss * before, "did not record", rlx.ArgumentError),
            (loss * foreign, "did not record", rlx.ArgumentError),
        ]
    roots += [(root, "a node that this tape computed", rlx.ArgumentError)
              for root in (foreign, before, given, p, rlx.constant(1.0), 3.0)]
    for root, match, kind in roots:
        refused(tape, root, match, kind)
    tape.backward(loss)
    np.testing.assert_array_equal(p.grad, [4])
    other.backward(foreign)
    np.testing.assert_array_equal(p.grad, [8])


def same(x: Any) -> Any:
    return x


OPAQUE = Op("opaque", same, same)
ARRAY = Op("array_rule", same, same, vjp=lambda node, ct, ad: (np.ones(node.shape),))
PEEK = Op("peek", same, same, vjp=lambda node, ct, ad: (ct * node.inputs[0].numpy(),))


@pytest.mark.parametrize(("op", "kind", "match"), [
    (OPAQUE, rlx.NotDifferentiable, r"opaque f64\[\] has no reverse-mode rule"),
    (ARRAY, rlx.VerifyError, "array_rule gives a ndarray, which records nothing"),
    (PEEK, rlx.ArgumentError, "backward only records"),
], ids=str)
def test_a_failed_traversal_consumes(op: Op, kind: Any, match: str) -> None:
    p = rlx.Parameter(np.array(2.0))
    with rlx.Tape() as tape:
        loss = op(p * p) * 2.0
        assert loss.item() == 8
    refused(tape, loss, match, kind)
    refused(tape, loss, "consumed")
    assert p.grad == 0 and not tape.provenance and loss.item() == 8


def test_tapes_record_once_and_only_inside() -> None:
    tape = rlx.Tape()
    p = rlx.Parameter(1.0)
    for use in (lambda: tape.watch(p), lambda: tape.input(1.0)):
        with pytest.raises(rlx.ArgumentError, match="does not record"):
            use()
    refused(tape, p * p, "a node that this tape computed")
    for _ in range(2):
        with tape:
            with pytest.raises(rlx.ArgumentError, match="records once"):
                tape.__enter__()
            wrong: Any = 1.0
            with pytest.raises(rlx.ArgumentError, match="watch takes a Parameter, not float"):
                tape.watch(wrong)
        with pytest.raises(rlx.ArgumentError, match="records once"):
            tape.__enter__()
        tape = rlx.Tape()


def test_an_error_inside_ends_the_recording() -> None:
    with pytest.raises(KeyError), rlx.Tape():
        raise KeyError
    assert not isinstance(rlx.constant(1.0), rlx.Variable)


@pytest.mark.parametrize("use", [
    np.asarray, math.sin, float, int, complex, lambda y: [0, 1][y],
    lambda y: np.dot(np.ones(()), y), lambda y: rlx.constant([y, y]),
], ids=["asarray", "sin", "float", "int", "complex", "index", "dot", "list"])
def test_what_would_end_the_gradient_silently_is_refused(use: Callable[[Any], Any]) -> None:
    p = rlx.Parameter(2.0)
    with rlx.Tape():
        y = p * p
        with pytest.raises(rlx.ArgumentError, match=r"(?s)records nothing.*test_tape.py"):
            use(y)


# ---- provenance ----------------------------------------------------------------------------------


def made_for(tape: rlx.Tape, node: Any) -> list[str]:
    found = tape.provenance[node]
    return [n.op.name for n in tape.backward_nodes[found.start:found.stop]]


def test_each_reached_node_has_its_range() -> None:
    p, q = rlx.Parameter([0.5, 0.25]), rlx.Parameter([1.0, 2.0])
    with rlx.Tape() as tape:
        a = rlx.exp(p)
        b = rlx.nn.softmax(q, dim=0)
        product = a * b
        loss = product.sum()
        unreached = a * 2.0
        stopped = rlx.stop_gradient(a)
        fixed = rlx.sin(rlx.constant(np.ones(2)))
        root = loss + (stopped * fixed).sum()
    assert not tape.provenance and not tape.backward_nodes
    tape.backward(root)
    for node in (unreached, stopped, fixed, p, q):
        assert node not in tape.provenance
    assert len(made_for(tape, product)) == 2 and made_for(tape, a)
    assert tape.provenance[root] == range(tape.provenance[root].start,
                                          tape.provenance[root].start)  # it hands on what it gets
    ranges = sorted(tape.provenance.values(), key=lambda r: (r.start, r.stop))
    assert ranges[0].start == 1 and ranges[-1].stop == len(tape.backward_nodes)  # behind the seed
    assert all(r.stop == s.start for r, s in zip(ranges, ranges[1:], strict=False))
    for node, found in tape.provenance.items():
        assert all(n.loc == node.loc for n in tape.backward_nodes[found.start:found.stop])


def test_a_composite_without_a_rule_has_one_range_and_what_is_recognised_none() -> None:
    p = rlx.Parameter(np.array([0.5, 0.25, 2.0]))
    with rlx.Tape() as tape:
        several = rlx.silu(p)
        square = p * p
        total = square.sum()
        root = rlx.sqrt(total)  # the norm of p
        loss = several.sum() + root
    assert several.op.vjp is None
    tape.backward(loss)
    assert len(made_for(tape, several)) > 3 and made_for(tape, root)
    assert square not in tape.provenance and total not in tape.provenance


@pytest.mark.parametrize("used", [(0,), (1,), (0, 1), ()])
def test_a_node_of_several_results_runs_once(used: tuple[int, ...]) -> None:
    p = rlx.Parameter(np.array([[2.0, 0.5], [0.5, 1.0]]))
    with rlx.Tape() as tape:
        both = rlx.linalg.eigh(p)
        loss = sum(((i + 1.0) * (both[i][0] * both[i][0]).sum() for i in used), p[0, 0] * 1.5)
    tape.backward(loss)
    node = both[0].inputs[0]
    assert (node in tape.provenance) is bool(used)
    g = rlx.Graph()
    w = g.param("w", (2, 2), rlx.f64)
    pair = rlx.linalg.eigh(w)
    g.output("y", sum(((i + 1.0) * (pair[i][0] * pair[i][0]).sum() for i in used),
                      w[0, 0] * 1.5))
    found = rlx.evaluate(rlx.grad(g, of="y"), {"w": p.value})["grad_w"]
    np.testing.assert_allclose(p.grad, found, atol=1e-12)


def test_equal_nodes_share_a_range() -> None:
    p = rlx.Parameter(2.0)
    with rlx.Tape() as tape:
        a, b = rlx.sin(p), rlx.sin(p)
        loss = a * b
    tape.backward(loss)
    assert tape.provenance[a] == tape.provenance[b] and made_for(tape, a)
    assert p.grad == pytest.approx(2 * math.sin(2) * math.cos(2))


# ---- graphs --------------------------------------------------------------------------------------


def test_the_recorded_graph_is_an_ordinary_one() -> None:
    w, b = rlx.Parameter(PARAMS["w"], name="w"), rlx.Parameter(PARAMS["b"], name="w")
    with rlx.Tape() as tape:
        loss = network(w, b, tape.input(X))
        g = tape.graph(loss=loss, twice=loss + loss)
    assert list(g.inputs) == ["x0"] and list(g.params) == ["w", "w2"]
    point = {"x0": X, "w": w.value, "w2": b.value}
    assert not any(isinstance(n, rlx.Variable) for n in g.nodes)
    np.testing.assert_allclose(rlx.compile(g)(**point).loss, loss.numpy(), rtol=1e-9)
    rlx.check_grads(rlx.parse(str(g)), point, of="loss")
    assert list(tape.graph(loss=loss).outputs) == ["loss"]
    with pytest.raises(rlx.ArgumentError, match="did not record"):
        tape.graph(late=loss * 2.0)
    with pytest.raises(rlx.ArgumentError, match="must be a node"):
        wrong: Any = 1.0
        tape.graph(x=wrong)


def test_regions_rules_and_constants_inside_and_across_tapes() -> None:
    p = rlx.Parameter(np.array([0.5, 2.0]))
    region = rlx.checkpoint(lambda x: rlx.exp(rlx.sin(x) * np.arange(2.0)))
    clipped = rlx.custom_vjp(lambda x: x * 1.0, lambda x: (x * 1.0, ()),
                             lambda kept, ct: (rlx.clip(ct, -0.1, 0.1),))
    for total in (1, 2):
        with rlx.Tape() as tape:
            loss = clipped(region(p)).sum()
        tape.backward(loss)
        slope = np.exp(np.sin(p.value) * np.arange(2.0)) * np.arange(2.0) * np.cos(p.value)
        np.testing.assert_allclose(p.grad, total * 0.1 * slope)


def test_functions_that_branch_on_values_cannot_be_traced_inside() -> None:
    with rlx.Tape(), pytest.raises(rlx.ArgumentError, match="no value on this tape"):
        rlx.trace(lambda x: x if x > 0.0 else -x, rlx.spec(()))


def loops(p: Any) -> Any:
    last, seen = rlx.scan(lambda c, x: (rlx.sin(c) * x + p, c * c), p * 2.0,
                          np.arange(12.0).reshape(4, 3), checkpoint=rlx.every(2))
    chosen = rlx.cond(last.sum() > 0.0, rlx.exp, rlx.square, last)
    grown = rlx.while_loop(lambda a: a.sum() < 50.0, lambda a: a * 1.5 + p, chosen, max_steps=30)
    return grown.sum() + seen.mean()


def test_loops_and_branches_are_recorded_as_single_operations() -> None:
    p = rlx.Parameter(np.array([0.5, 0.2, 0.1]))
    with rlx.Tape() as tape:
        loss = loops(p)
    tape.backward(loss)
    assert [n.op.name for n in tape.provenance].count("scan") == 2
    g = rlx.Graph()
    g.output("loss", loops(g.param("p", (3,), rlx.f64)))
    found = rlx.evaluate(rlx.value_and_grad(g, of="loss"), {"p": p.value})
    assert np.isfinite(loss.item()) and loss.item() == found["loss"]
    np.testing.assert_allclose(p.grad, found["grad_p"], rtol=1e-12)


def test_a_tape_closed_inside_its_block_records_no_more_and_goes_backward() -> None:
    w = rlx.Parameter(np.array(3.0))
    with rlx.Tape() as tape:
        y = rlx.square(w)
        tape.close()
        tape.close()
        later = rlx.square(w)
    assert not hasattr(later, "tape") and y.item() == 9.0
    tape.backward(y)
    assert w.grad == 6.0
    with rlx.Tape() as outer, rlx.Tape() as inner:
        inner.close()
        z = w * 2.0  # recorded by the outer one
    outer.backward(z)
    assert w.grad == 8.0
