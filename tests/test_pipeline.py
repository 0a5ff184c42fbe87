"""What RLX_* variables show and check."""

from pathlib import Path

import numpy as np
import pytest

import rlx_py as rlx
from rlx_py.ir.config import Config
from rlx_py.ir.graph import Graph
from rlx_py.passes.decompose import decompose
from rlx_py.passes.lower import lower
from rlx_py.passes.pipeline import run_steps
from rlx_py.passes.schedule import CpuTarget, schedule


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
