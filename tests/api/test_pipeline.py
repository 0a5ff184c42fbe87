"""What RLX_* variables show and check."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import rlx_py as rlx
from rlx_py.ir.base.config import Config, read_config
from rlx_py.ir.graph.graph import Graph
from rlx_py.passes.analysis.steps import run_steps
from rlx_py.passes.loops.cpu_schedule import CpuTarget, schedule
from rlx_py.passes.lower.lower import lower
from rlx_py.passes.rewrite.decompose import decompose


def example() -> Graph:
    g = rlx.Graph("example")
    x = g.input("x", (4, 5))
    g.output("y", rlx.softmax(x, 1) * 2.0)
    return g


def wrong(graph: Graph) -> Graph:
    return graph.map_roots(lambda n: n + 1.0)


def test_check_accepts_what_keeps_the_meaning() -> None:
    config = Config(check=True)
    graph = run_steps(example(), (("decompose", decompose),), config)
    run_steps(lower(graph), (("schedule", lambda p: schedule(p, CpuTarget())),), config)


def test_check_names_the_pass_that_changed_a_result() -> None:
    with pytest.raises(rlx.VerifyError, match="example: wrong changed 'y'"):
        run_steps(example(), (("wrong", wrong),), Config(check=True))


def test_a_disabled_pass_is_left_out() -> None:
    graph = run_steps(example(), (("wrong", wrong),), Config(disable=frozenset({"wrong"})))
    x = np.ones((4, 5), np.float32)
    np.testing.assert_allclose(rlx.evaluate(graph, {"x": x})["y"], 0.4)


def test_debug_prints_and_dumps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_steps(example(), (("decompose", decompose),), Config(debug=2, dump_dir=tmp_path))
    printed = capsys.readouterr().err
    assert "rlx example: decompose" in printed
    assert "reduce_max" in printed
    assert [p.name for p in tmp_path.iterdir()] == ["000-example-decompose.txt"]


LOOP = """
import rlx_py as rlx
g = rlx.Graph("twice/a loop")
x, m = g.param("x", (4,)), g.input("m", (3,), rlx.bool_)
def body(c, holds):
    for _ in range(2):  # equal branches: one kernel stands for two
        c = rlx.cond(holds, rlx.sin, lambda v: v * 0.5, c)
    return c, None
y, _ = rlx.scan(body, rlx.cumsum(x, 0), m)
g.output("y", (y * y).sum())
rlx.compile(rlx.value_and_grad(g, "y"))
"""


def run(source: str, **settings: str) -> "subprocess.CompletedProcess[str]":
    """A program in a process with settings."""
    return subprocess.run([sys.executable, "-c", source], env={**os.environ, **settings},
                          capture_output=True, text=True, check=False, timeout=120)


def test_a_loop_with_branches_is_compared_shown_and_dumped(tmp_path: Path) -> None:
    done = run(LOOP, RLX_CHECK="1", RLX_DEBUG="4", RLX_DUMP_DIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "loop steps 3:" in done.stderr
    for step in ("schedule", "expand_contract", "expand_math", "plan_memory"):
        assert any(p.name.endswith(f"{step}.txt") for p in tmp_path.iterdir())


def test_names_to_leave_out_are_names_that_there_are() -> None:
    assert run("import rlx_py", RLX_DISABLE="mul_one, fold,,schedule").returncode == 0
    done = run("import rlx_py", RLX_DISABLE="fold,simplfy")
    assert done.stderr.splitlines()[-1] == (
        "rlx_py.ir.base.errors.ArgumentError: RLX_DISABLE: no pass or rule is named 'simplfy'; "
        "did you mean 'simplify'?")


@pytest.mark.parametrize(("name", "value"), [
    ("RLX_DEBUG", "x"), ("RLX_DEBUG", "-1"), ("RLX_DEBUG", "1.5"), ("RLX_DEBUG", "²"),
    ("RLX_THREADS", "two"), ("RLX_THREADS", "0"), ("RLX_THREADS", "9" * 5000),
    ("RLX_CHECK", "yes"), ("RLX_CHECK", "2"), ("RLX_DUMP_DIR", __file__)])
def test_a_bad_setting_is_a_typed_error(name: str, value: str) -> None:
    with pytest.raises(rlx.ArgumentError, match=f"^{name} is "):
        read_config({name: value})


def test_settings() -> None:
    assert read_config({}) == read_config(dict.fromkeys(
        ("RLX_DEBUG", "RLX_THREADS", "RLX_CHECK", "RLX_DUMP_DIR", "RLX_DISABLE"), " ")) == Config()
    assert read_config({"RLX_DEBUG": "4", "RLX_THREADS": "3", "RLX_CHECK": "1",
                        "RLX_DUMP_DIR": "out", "RLX_DISABLE": "fold"}) == Config(
        4, Path("out"), frozenset({"fold"}), True, 3)


def test_what_cannot_be_dumped_is_a_typed_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    config = Config(dump_dir=tmp_path / "file" / "below")
    with pytest.raises(rlx.ArgumentError, match="RLX_DUMP_DIR"):
        run_steps(example(), (("decompose", decompose),), config)


def test_check_compares_a_graph_with_its_program() -> None:
    graph, config = decompose(example()), Config(check=True)
    run_steps(graph, (("lower", lower),), config)
    with pytest.raises(rlx.VerifyError, match="example: lower changed 'y'"):
        run_steps(graph, (("lower", lambda g: lower(decompose(wrong(g)))),), config)


TRACED = """
import rlx_py as rlx
g = rlx.Graph("traced")
x = g.param("x", (4, 5))
g.output("y", rlx.sum(x * 3.0))
rlx.compile(rlx.grad(g, of="y"))
"""


def test_transforms_and_lower_leave_a_trace_and_what_is_the_same_is_shown_once() -> None:
    done = run(TRACED, RLX_DEBUG="4")
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    names = [line.split()[2] for line in lines if line.startswith("rlx traced: ")]
    assert names[0] == "grad" and names.index("lower") < names.index("schedule")
    assert any(line.startswith("group 0: ") for line in lines)
    # The gradient is simple already: it is shown when it is made, and with its groups.
    assert len([line for line in lines if line.startswith('graph "traced"')]) == 2
