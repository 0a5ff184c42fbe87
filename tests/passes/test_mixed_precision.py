"""Mixed precision: what autocast makes narrow, its gradients, and the dynamic loss scale."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx_py as rlx
from rlx_py.backends.llvm.backend import program_for
from rlx_py.backends.llvm.layout import arena_bytes
from rlx_py.backends.llvm.targets import Target
from rlx_py.ir.base.types import DType, Precision
from rlx_py.ir.loops.kernel import Scope
from rlx_py.passes.analysis.cost import bytes_moved
from rlx_py.passes.rewrite.autocast import precision_of
from support.machines import MACHINES
from support.samples import SAMPLES, samples_of
from support.sweep import with_gradients

Arrays = dict[str, Any]
NARROW = pytest.mark.parametrize("dtype", [rlx.bf16, rlx.f16], ids=str)
ROUNDING = {rlx.bf16: 2.0**-8, rlx.f16: 2.0**-11}


def network() -> tuple[rlx.Graph, Arrays, Arrays]:
    """Convolution, norm, attention, linear layers and a residual sum."""
    g = rlx.Graph("net")
    x, y = g.input("x", (4, 3, 6, 6)), g.input("y", (4,), rlx.i32)
    h = rlx.relu(rlx.conv2d(x, g.param("k", (8, 3, 3, 3)), g.param("kb", (8,)), padding=1))
    h = rlx.nn.group_norm(h, 2).reshape(4, 8, 36).transpose(0, 2, 1)
    q = (h @ g.param("q", (8, 8))).reshape(4, 1, 36, 8)
    a = rlx.nn.scaled_dot_product_attention(q, q, q).reshape(4, 36, 8) + h
    a = rlx.gelu(rlx.nn.linear(a.mean(1), g.param("w", (16, 8)), g.param("b", (16,))))
    g.output("logits", a @ g.param("v", (16, 5)))
    g.output("loss", rlx.softmax_cross_entropy(g.outputs["logits"], y).mean())
    rng = np.random.default_rng(3)
    params = {k: (0.4 * rng.normal(size=n.shape)).astype(np.float32) for k, n in g.params.items()}
    feed = {"x": rng.normal(size=x.shape).astype(np.float32),
            "y": rng.integers(0, 5, 4).astype(np.int32)}
    return g, params, feed


def dtypes_of(graph: rlx.Graph, op: str) -> set[str]:
    return {n.inputs[0].dtype.name for n in graph.nodes if n.op.name == op}


@NARROW
def test_products_are_narrow_and_sums_wide(dtype: DType) -> None:
    g, _, _ = network()
    a = rlx.autocast(g, dtype)
    rlx.verify(a)
    assert {k: n.type for k, n in a.outputs.items()} == {k: n.type for k, n in g.outputs.items()}
    assert list(a.leaves.values()) == list(g.leaves.values())
    for op in ("conv", "relu", "contract", "linear", "attention"):
        assert dtypes_of(a, op) == {dtype.name}, op
    for op in ("group_norm", "gelu", "softmax_cross_entropy", "reduce_sum"):
        assert dtypes_of(a, op) == {"f32"}, op
    assert str(rlx.autocast(a, dtype)) == str(a)
    assert str(rlx.autocast(g, dtype, keep=["conv"])) != str(a)
    assert dtypes_of(rlx.autocast(g, dtype, keep=["conv"]), "conv") == {"f32"}


@NARROW
def test_gradients_are_those_of_f32_to_rounding(dtype: DType) -> None:
    g, params, feed = network()
    want = rlx.compile(rlx.value_and_grad(g, of="loss"))(**params, **feed)
    mixed = rlx.value_and_grad(rlx.autocast(g, dtype), of="loss")
    found, oracle = rlx.compile(mixed)(**params, **feed), rlx.evaluate(mixed, {**params, **feed})
    for name, array in want.items():
        assert found[name].dtype == np.float32
        scale = np.abs(array).max()
        np.testing.assert_allclose(found[name], array, atol=20 * ROUNDING[dtype] * scale)
        np.testing.assert_allclose(found[name], oracle[name], atol=8 * ROUNDING[dtype] * scale)


def test_a_gradient_graph_is_cast_too() -> None:
    g, params, feed = network()
    both = rlx.autocast(rlx.value_and_grad(g, of="loss"), rlx.bf16)
    assert dtypes_of(both, "conv_backward_weight") == {"bf16"}
    rlx.verify(both)
    want = rlx.evaluate(rlx.value_and_grad(g, of="loss"), {**params, **feed})
    for name, array in rlx.compile(both)(**params, **feed).items():
        np.testing.assert_allclose(array, want[name], atol=0.1 * np.abs(want[name]).max())


def test_only_f32_is_cast() -> None:
    g = rlx.Graph()
    x, w = g.input("x", (4, 4), rlx.f64), g.param("w", (4, 4), rlx.f64)
    h, u = g.input("h", (4, 4), rlx.f16), g.input("u", (4, 4), rlx.i32)
    for name, node in {"wide": x @ w, "half": h @ h, "whole": u @ u}.items():
        g.output(name, node)
    assert str(rlx.autocast(g, rlx.bf16)) == str(g)


def test_residual_sums_and_comparisons_stay_wide() -> None:
    g = rlx.Graph()
    x, w, b = g.input("x", (4, 4)), g.param("w", (4, 4)), g.param("b", (4,))
    product = x @ w
    g.output("biased", product * 2.0 + b)  # narrow: b is a param, 2 a constant
    g.output("residual", product + x)
    g.output("above", product > 0.1)
    a = rlx.autocast(g)
    assert a.outputs["biased"].inputs[0].dtype is rlx.bf16
    assert a.outputs["residual"].op.name == "add"
    assert a.outputs["above"].inputs[0].dtype is rlx.f32


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
def test_less_is_stored_and_moved(machine: Target) -> None:
    g = rlx.Graph()
    x = g.input("x", (2048, 64), rlx.f32)
    for i in range(6):
        x = rlx.relu(x @ g.param(f"w{i}", (64, 64)))
    g.output("loss", x.sum())
    wide, narrow = (program_for(rlx.grad(h, of="loss"), machine) for h in (g, rlx.autocast(g)))
    assert arena_bytes(narrow, threads=2) < 0.9 * arena_bytes(wide, threads=2)
    assert bytes_moved(narrow) < 0.75 * bytes_moved(wide)


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
@pytest.mark.parametrize("shape", [(512, 512, 512), (2048, 64, 64), (4096, 128, 1000),
                                   (300, 2000, 700), (256, 64, 4096), (128, 4096, 256)])
def test_no_operand_has_a_wide_twin(shape: tuple[int, int, int], machine: Target) -> None:
    m, n, k = shape
    for dtype in (rlx.bf16, rlx.f16):
        g = rlx.Graph()
        g.output("y", g.input("x", (m, k), dtype) @ g.input("w", (k, n), dtype))
        program = program_for(g, machine)
        # A block's own copies lie in the scratch of its thread.
        shared = [b.nbytes for b in program.offsets if b.name == "copy" and b.scope is Scope.ARENA]
        assert sum(shared) <= 64 << 10
        assert program.scratch < 2 << 20


@pytest.mark.parametrize("name", dict.fromkeys(s.op.name for s in SAMPLES))
def test_every_op_and_its_gradient_can_be_cast(name: str) -> None:
    for s in [s for s in samples_of(name) if rlx.f32 in s.dtypes()][:3]:
        g = s.graph(rlx.f32)
        both = with_gradients(g) if s.op.differentiable else g
        mixed = rlx.autocast(both, rlx.bf16)
        rlx.verify(mixed)
        assert {k: n.type for k, n in mixed.outputs.items()} == {
            k: n.type for k, n in both.outputs.items()}


@pytest.mark.parametrize(("precision", "names"), [
    (Precision.NARROW, "contract linear conv conv_backward_input conv_backward_weight attention"),
    (Precision.NEUTRAL, "add mul select relu reshape concat gather reduce_max dropout"),
    (Precision.WIDE, "reduce_sum cumsum exp div layer_norm softmax_cross_entropy gelu solve fft"),
], ids=str)
def test_an_op_says_what_it_does(precision: Precision, names: str) -> None:
    for name in names.split():
        s = samples_of(name)[0]
        found = {precision_of(n) for n in s.graph(rlx.f32).nodes if n.op is s.op}
        assert found == {precision}, name


def test_typed_errors() -> None:
    g, _, _ = network()
    with pytest.raises(rlx.DTypeError, match="f16 or bf16"):
        rlx.autocast(g, rlx.f32)
    with pytest.raises(rlx.ArgumentError, match="no op 'convolve'"):
        rlx.autocast(g, keep=["convolve"])
    for wrong in ({"factor": 1.0}, {"init": 0.0}, {"growth_interval": 0}, {"init": np.inf},
                  {"factor": np.nan}):
        with pytest.raises(rlx.ArgumentError):
            rlx.optim.dynamic_loss_scale(**wrong)


@pytest.mark.parametrize(("of", "error"), [("y", rlx.ShapeError), ("n", rlx.DTypeError),
                                           ("z", rlx.ArgumentError)])
def test_the_loss_is_checked_under_its_own_name(of: str, error: type[rlx.RLXError]) -> None:
    g = rlx.Graph()
    w = g.param("w", (3,))
    g.output("y", w * 2.0)
    g.output("n", w.argmax())
    with pytest.raises(error, match=f"'{of}'"):
        rlx.train_step(g, of=of, optimizer=rlx.optim.sgd(0.1),
                       loss_scale=rlx.optim.dynamic_loss_scale())


# ---- the loss scale --------------------------------------------------------------------------


def scalar_step(optimizer: Any, clip: float | None = None, **scale: Any) -> rlx.Graph:
    """A step whose gradient is its input."""
    g = rlx.Graph("line")
    g.output("loss", (g.input("x", (3,)) * g.param("w", (3,))).sum())
    return rlx.train_step(g, of="loss", optimizer=optimizer, clip_norm=clip,
                          loss_scale=rlx.optim.dynamic_loss_scale(**scale))


def test_a_step_that_overflows_changes_nothing_but_the_scale() -> None:
    exe = rlx.compile(scalar_step(rlx.optim.adam(0.1), clip=1.0, init=8.0, growth_interval=2))
    state = exe.init({"w": np.ones(3, np.float32)})
    good = np.array([1, 2, 3], np.float32)
    exe.step(state, x=good)
    for bad in (np.inf, -np.inf, np.nan, 1e38):  # the last overflows only when scaled
        before = {k: v.copy() for k, v in {**state.params, **state.states}.items()}
        out = exe.step(state, x=np.array([1, bad, 3], np.float32))
        after = {**state.params, **state.states}
        assert after["loss_scale"] == before["loss_scale"] / 2 and after["good_steps"] == 0
        for name in after:
            if name not in ("loss_scale", "good_steps"):
                np.testing.assert_array_equal(after[name], before[name], err_msg=name)
        assert out.loss.dtype == np.float32
        state.states["loss_scale"][()] = 8.0
    assert state.states["step"] == 1
    exe.step(state, x=good)
    assert state.states["step"] == 2 and np.isfinite(state.params["w"]).all()


def test_the_scale_moves_as_pytorchs() -> None:
    torch = pytest.importorskip("torch")
    exe = rlx.compile(scalar_step(rlx.optim.momentum(0.1), init=2.0**124, growth_interval=3))
    state = exe.init({"w": np.ones(3, np.float32)})
    w = torch.ones(3, requires_grad=True)
    other = torch.optim.SGD([w], 0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**124, growth_interval=3)
    rng = np.random.default_rng(0)
    for i in range(40):
        x = (1e-3 * rng.normal(size=3)).astype(np.float32)
        if i in (7, 8, 21):
            x[i % 3] = np.inf
        exe.step(state, x=x)
        other.zero_grad()
        scaler.scale((torch.tensor(x) * w).sum()).backward()
        scaler.step(other)
        scaler.update()
        assert float(state.states["loss_scale"]) == scaler.get_scale(), i
        np.testing.assert_allclose(state.params["w"], w.detach().numpy(), rtol=1e-6)


def test_scaling_keeps_gradients_that_f16_flushes_to_zero() -> None:
    g = rlx.Graph()
    x, w = g.input("x", (8, 4)), g.param("w", (4, 4))
    g.output("loss", rlx.tanh(x @ w).sum() * 1e-9)
    mixed = rlx.autocast(g, rlx.f16)
    rng = np.random.default_rng(0)
    feed = {"x": rng.normal(size=(8, 4)).astype(np.float32)}
    params = {"w": rng.normal(size=(4, 4)).astype(np.float32)}
    want = rlx.evaluate(rlx.grad(g, of="loss"), {**feed, **params})["grad_w"]
    moved = []
    for scale in (None, rlx.optim.dynamic_loss_scale(2.0**24)):
        exe = rlx.compile(rlx.train_step(mixed, of="loss", optimizer=rlx.optim.sgd(1e8),
                                         loss_scale=scale))
        state = exe.init(params)
        exe.step(state, **feed)
        moved.append((params["w"] - state.params["w"]) / 1e8)
    assert not moved[0].any()
    np.testing.assert_allclose(moved[1], want, atol=0.01 * np.abs(want).max())


def test_frozen_params_and_own_states_are_left_alone() -> None:
    g = rlx.Graph()
    x, w, s = g.input("x", (3,)), g.param("w", (3,)), g.state("seen", (), rlx.i64, 0)
    g.next("seen", s + 1)
    g.output("loss", (x * w * g.param("fixed", (3,))).sum())
    step = rlx.train_step(g, of="loss", optimizer=rlx.optim.sgd(0.1), frozen=["fixed"],
                          loss_scale=rlx.optim.dynamic_loss_scale())
    assert list(step.outputs) == ["loss"] and list(step.updates) == ["w"]
    exe = rlx.compile(step)
    state = exe.init({"w": np.ones(3, np.float32), "fixed": np.ones(3, np.float32)})
    exe.step(state, x=np.full(3, np.nan, np.float32))
    assert state.states["seen"] == 1 and state.states["step"] == 0
    assert state.params["w"].tolist() == [1, 1, 1]


@pytest.mark.parametrize("checkpoint", [None, rlx.every(2)], ids=["kept", "segments"])
@NARROW
def test_bodies_are_cast_too(dtype: DType, checkpoint: Any) -> None:
    """Loops, branches, regions and rules: what goes in and out of them is f32, what is kept is
    not."""
    g = rlx.Graph()
    xs, p = g.input("xs", (5, 6, 8)), g.input("p", (), rlx.bool_)
    w, b, h = g.param("w", (8, 8)), g.param("b", (8,)), g.param("h", (6, 8))
    product = rlx.custom_vjp(lambda a, w: a @ w, lambda a, w: (a @ w, (a, w)),
                             lambda kept, ct: (ct @ kept[1].T, kept[0].T @ ct))
    c, ys = rlx.scan(lambda c, x: (rlx.tanh(c @ w + b + x), c @ w), h, xs, checkpoint=checkpoint)
    c = rlx.cond(p, lambda c: c @ w + b, rlx.exp, c)
    c = rlx.checkpoint(lambda c: rlx.tanh(c @ w + b) @ w, policy="products")(c)
    _, c = rlx.while_loop(lambda q: q[0] < 2, lambda q: (q[0] + 1, rlx.tanh(product(q[1], w))),
                          (rlx.constant(0, rlx.i32), c), max_steps=3)
    g.output("ys", ys)
    g.output("loss", (c * c).sum() + (ys * ys).mean())
    a = rlx.autocast(g, dtype)
    rlx.verify(a)
    assert str(rlx.autocast(a, dtype)) == str(a)
    assert {k: n.type for k, n in a.outputs.items()} == {k: n.type for k, n in g.outputs.items()}
    bodies = [v for n in a.nodes for k, v in n.attrs.items() if k in ("body", "then")]
    assert len(bodies) >= 4 and all(dtype.name in v for v in bodies)
    rng = np.random.default_rng(0)
    feed = {k: np.asarray(rng.standard_normal(n.shape) / 2).astype(n.dtype.numpy)
            for k, n in g.leaves.items()}
    want = rlx.evaluate(rlx.value_and_grad(g, of="loss"), feed)
    mixed = rlx.value_and_grad(a, of="loss")
    found, oracle = rlx.compile(mixed)(**feed), rlx.evaluate(mixed, feed)
    for name, array in want.items():
        scale = np.abs(array).max()
        np.testing.assert_allclose(found[name], array, atol=40 * ROUNDING[dtype] * scale)
        np.testing.assert_allclose(found[name], oracle[name], atol=20 * ROUNDING[dtype] * scale)
