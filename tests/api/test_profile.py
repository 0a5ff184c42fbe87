"""exe.profile: every kernel once, in order, with the user's lines; nothing given is changed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx_py as rlx
from rlx_py.backends.base import Array, Cost, KernelTime
from rlx_py.profile import Profile


def arrays() -> dict[str, Array]:
    rng = np.random.default_rng(0)
    return {"w": rng.normal(size=(40, 30)).astype(np.float32),
            "x": rng.normal(size=(50, 40)).astype(np.float32)}


def graph() -> rlx.Graph:
    g = rlx.Graph("layer")
    h = g.input("x", (50, 40)) @ g.param("w", (40, 30))
    g.output("loss", (rlx.softmax(h) * h).sum())
    return g


def training() -> rlx.Graph:
    return rlx.train_step(graph(), of="loss", optimizer=rlx.optim.momentum(0.1))


@pytest.mark.parametrize("threads", [1, 2])
def test_every_kernel_is_timed_and_no_array_changes(threads: int) -> None:
    exe, given = rlx.compile(training(), threads=threads), arrays()
    before = {k: v.copy() for k, v in given.items()}
    profile = exe.profile(**given)
    assert len(profile.kernels) == exe.cost().kernels
    assert all(k.seconds >= 0 for k in profile.kernels)
    assert profile.seconds > 0
    assert sum(profile.share(k) for k in profile.kernels) == pytest.approx(1)
    for name, value in before.items():
        np.testing.assert_array_equal(given[name], value)


def test_kernels_add_up_to_the_cost() -> None:
    exe = rlx.compile(training())
    profile = exe.profile(**arrays())
    assert sum(k.flops for k in profile.kernels) == exe.cost().flops
    assert sum(k.bytes_moved for k in profile.kernels) == exe.cost().bytes_moved


@pytest.mark.parametrize("rows", [130, 132])
def test_products_in_blocks_of_unequal_rows_are_counted(rows: int) -> None:
    g = rlx.Graph("product")
    g.output("y", g.input("a", (rows, 96)) @ g.input("b", (96, 128)))
    product = 2 * rows * 96 * 128
    assert product <= rlx.compile(g).cost().flops <= 1.05 * product


def test_kernels_have_the_lines_of_the_user() -> None:
    profile = rlx.compile(training()).profile(**arrays())
    lines = {file for k in profile.kernels for file, _ in k.sources}
    assert lines == {__file__}
    assert "test_profile.py:" in str(profile)


def test_the_pieces_run_the_whole_step() -> None:
    exe, given = rlx.compile(training(), threads=1), arrays()
    runner: Any = exe._runner
    params = exe.init({"w": given["w"]})
    values = {"x": given["x"], **{k: v.copy() for k, v in (params.params | params.states).items()}}
    out = {"loss": np.empty((), np.float32)}
    runner.kernel_times(values, out)
    assert out["loss"] == exe.step(params, x=given["x"]).loss
    for name, value in (params.params | params.states).items():
        np.testing.assert_array_equal(values[name], value)


def test_the_reference_times_its_nodes() -> None:
    exe = rlx.compile(graph(), backend="reference")
    profile = exe.profile(**arrays())
    nodes = [n for n in exe.graph.nodes if n.op.name != "leaf"]
    assert [(k.name, k.sources) for k in profile.kernels] == [(n.op.name, (n.loc,)) for n in nodes]
    assert profile.seconds > 0


def test_a_graph_without_kernels() -> None:
    g = rlx.Graph("empty")
    g.output("y", g.input("x", (0,)) * 2)
    profile = rlx.compile(g).profile(x=np.zeros(0, np.float32))
    assert all(profile.share(k) >= 0 for k in profile.kernels)
    assert str(profile).startswith("empty: ")


def test_wrong_arguments_are_errors_of_a_call() -> None:
    exe = rlx.compile(graph())
    with pytest.raises(rlx.ArgumentError, match="missing"):
        exe.profile(x=arrays()["x"])
    with pytest.raises(rlx.ShapeError):
        exe.profile(**{**arrays(), "x": np.zeros((1, 2), np.float32)})


def test_a_runner_that_cannot_time_says_so() -> None:
    class Plain:
        def run(self, arrays: dict[str, Array], out: dict[str, Array]) -> None:
            raise AssertionError

        def cost(self) -> Cost:
            raise AssertionError

    exe = rlx.Executable(graph(), Plain())
    with pytest.raises(rlx.BackendError, match="can't profile"):
        exe.profile(**arrays())


def test_the_table() -> None:
    kernels = (KernelTime("fast", 2e-6, (), 4000, 0),
               KernelTime("slow", 0.9996e-3, tuple(("/a/b.py", n) for n in range(5)), 0, 10**6),
               KernelTime("none", 0.0, (), 0, 0))
    profile = Profile("step", kernels)
    assert [k.name for k in profile.slowest] == ["slow", "fast", "none"]
    assert str(profile).splitlines() == [
        "step: 1 ms in 3 kernels",
        "share  time  GFLOP/s  GB/s  kernel  lines",
        "99.8%  1 ms      0.0   1.0  slow    b.py:0 b.py:1 b.py:2 +2",
        " 0.2%  2 µs      2.0   0.0  fast",
        " 0.0%  0 µs        –     –  none",
    ]
    assert len(profile.table(1).splitlines()) == 3
    assert "… and 10 more" in str(Profile("many", kernels * 10))
