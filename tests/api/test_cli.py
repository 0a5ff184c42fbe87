"""The command line, and the coverage table against the samples."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import rlx_py as rlx
from rlx_py.cli import main
from rlx_py.coverage import Coverage, coverage, dtypes_of
from rlx_py.ir.base.types import DTYPES
from rlx_py.ir.nodes.node import OPS
from support.documents import ROOT, run_python
from support.native import needs_cc
from support.samples import SAMPLES, samples_of


def graph() -> rlx.Graph:
    g = rlx.Graph("small")
    x, y = g.input("x", (4, 3)), g.input("y", (4,), rlx.i32)
    logits = x @ g.param("w", (3, 2)) + g.param("b", (2,))
    g.output("loss", rlx.softmax_cross_entropy(logits, y).mean())
    g.output("logits", logits)
    return g


@pytest.fixture
def saved(tmp_path: Path) -> str:
    path = tmp_path / "small.rlx"
    graph().save(path)
    return str(path)


def test_show_prints_text_that_parses_back(saved: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", saved]) == 0
    assert str(rlx.parse(capsys.readouterr().out)) == str(graph())


def test_grad_writes_a_graph(saved: str, tmp_path: Path,
                             capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "grad.rlx")
    assert main(["grad", saved, "--of", "loss", "-o", out]) == 0
    assert str(rlx.Graph.load(out)) == str(rlx.grad(graph(), of="loss"))
    assert main(["grad", saved, "--of", "loss", "--wrt", "b", "--values"]) == 0
    printed = rlx.parse(capsys.readouterr().out)
    assert list(printed.outputs) == ["loss", "logits", "grad_b"]


def test_sizes_by_name_take_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    g = rlx.Graph("sized")
    g.output("y", g.input("x", (rlx.dim("B"), 3)).sum())
    path = str(tmp_path / "sized.rlx")
    g.save(path)
    out = str(tmp_path / "code")
    assert main(["show", path]) == 0
    assert "f32[B,3]" in capsys.readouterr().out
    assert main(["compile", path, "-o", out, "--kind", "object", "--size", "B=4"]) == 0
    assert Path(f"{out}.o").exists()
    assert main(["bench", path, "--repeat", "1", "--size", "B=4"]) == 0
    for sizes in ([], ["--size", "C=4"]):
        assert main(["bench", path, *sizes]) == 1
        assert "ArgumentError" in capsys.readouterr().err
    for size in ("B", "B=0", "B=x"):
        with pytest.raises(SystemExit):
            main(["bench", path, "--size", size])


@pytest.mark.parametrize("kind", ["object", pytest.param("shared", marks=needs_cc)])
def test_compile_writes_code_and_a_header(saved: str, kind: str, tmp_path: Path,
                                          capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "code" / "small"
    out.parent.mkdir()
    assert main(["compile", saved, "-o", str(out), "--kind", kind]) == 0
    path = Path(capsys.readouterr().out.strip())
    assert path.exists() and out.with_suffix(".h").exists()
    if kind == "shared":
        found = rlx.load(path)(x=np.ones((4, 3), np.float32), y=np.zeros(4, np.int32),
                               w=np.zeros((3, 2), np.float32), b=np.zeros(2, np.float32))
        np.testing.assert_allclose(found.loss, np.log(2), rtol=1e-6)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_bench_prints_times_and_cost(saved: str, tmp_path: Path, backend: str,
                                     capsys: pytest.CaptureFixture[str]) -> None:
    step = tmp_path / "step.rlx"
    rlx.train_step(graph(), of="loss", optimizer=rlx.optim.adam(1e-3)).save(step)
    for path in (saved, str(step)):
        assert main(["bench", path, "--repeat", "3", "--threads", "1", "--backend", backend]) == 0
        printed = capsys.readouterr().out
        for line in (r"compile +[\d.]+ ms", r"median +[\d.]+ us", r"min +[\d.]+ us of 3 calls",
                     r"flops +\d+", r"bytes moved +\d+", r"arena +\d+ bytes", r"kernels +\d+"):
            assert re.search(f"^{line}", printed, re.M), printed


def wrong(tmp_path: Path, saved: str) -> Iterator[tuple[list[str], str]]:
    """Commands that fail, and the error they name."""
    damaged = tmp_path / "damaged.rlx"
    damaged.write_bytes(b"\x08\0\0\0\0\0\0\0nonsense")
    yield ["show", str(tmp_path / "absent.rlx")], "FileNotFoundError"
    yield ["show", str(tmp_path)], "FileNotFoundError"
    yield ["show", str(damaged)], "FormatError"
    yield ["grad", saved, "--of", "los"], "ArgumentError"
    yield ["grad", saved, "--of", "logits"], "ShapeError"
    yield ["grad", saved, "--of", "loss", "--wrt", "y"], "DTypeError"
    yield ["grad", saved, "--of", "loss", "-o", str(tmp_path / "no" / "where")], "FileNotFoundError"
    yield ["compile", saved, "-o", str(tmp_path / "c"), "--kind", "object", "--target", "pdp11"], (
        "BackendError")
    yield ["ops", "convolve"], "ArgumentError"


def test_errors_are_one_line_and_an_exit_code(saved: str, tmp_path: Path,
                                              capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, error in wrong(tmp_path, saved):
        assert main(arguments) == 1, arguments
        printed = capsys.readouterr()
        assert printed.out == "" and printed.err.count("\n") == 1, arguments
        assert printed.err.startswith(f"rlx: {error}: "), (arguments, printed.err)


@pytest.mark.parametrize("arguments", [[], ["draw"], ["grad", "g"], ["compile", "g"],
                                       ["bench", "g", "--repeat", "0"]])
def test_a_wrong_command_exits_with_2(arguments: list[str],
                                      capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as info:
        main(arguments)
    assert info.value.code == 2 and "usage: rlx" in capsys.readouterr().err


def test_it_runs_as_a_program(saved: str, tmp_path: Path) -> None:
    assert run_python(["-m", "rlx_py.cli", "show", saved], ROOT) == f"{graph()}\n"
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert 'rlx = "rlx_py.cli:main"' in text and callable(sys.modules["rlx_py.cli"].main)


# ---- the coverage table ----------------------------------------------------------------------


def test_the_table_has_every_op(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ops"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["op", "infer", "eval", "vjp", "jvp", "decompose", "compiled",
                                "dtypes"]
    assert [line.split()[0] for line in lines[1:]] == sorted(OPS)
    assert main(["ops", "exp", "linear", "--markdown"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4 and set(lines[1]) == set("|- ")


def test_a_hole_has_its_reason() -> None:
    rows = {row.op: row for row in coverage()}
    assert not [r for r in rows.values() if "none: no rule" in vars(r).values()]
    assert rows["exp"] == Coverage("exp", "own", "own", "own", "own", "primitive", "fused",
                                   "f64 f32 f16 bf16")
    assert rows["contract"].compiled == "loops" and rows["linear"].vjp == "decomposed"
    assert rows["floor"].vjp == "zero" and rows["tuple"].compiled == "none: structure of the graph"


def test_the_element_types_are_those_the_samples_take() -> None:
    """An op that takes more than floats has its row in rlx_py.coverage."""
    for name in {s.op.name for s in SAMPLES}:
        varying = [s for s in samples_of(name) if any(a.dtype == np.float64 for a in s.arrays)]
        kinds = {d.kind for s in varying for d in s.dtypes()}
        if kinds:
            want = " ".join(d.name for d in DTYPES.values() if d.kind in kinds)
            assert dtypes_of(OPS[name]) in (want, "all" if len(kinds) == 4 else want), name
