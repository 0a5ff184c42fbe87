"""What the pages say is so: their code runs and prints what they show, their links exist."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import rlx_py as rlx
from support.documents import ROOT, blocks, run_blocks
from tools import singularities as s

FOLDERS = ("ir", "passes", "backends", "rlx_py", "tests", "examples", "benchmarks", "docs")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "python")], ids=lambda p: p.name)
def test_code_runs_as_printed(page: Path, tmp_path: Path) -> None:
    printed = run_blocks(blocks(page, "python"), tmp_path)
    for shown in blocks(page, "text"):
        assert shown in printed, f"{shown!r} is not in {printed!r}"


def test_the_first_example_of_the_readme_stands_alone(tmp_path: Path) -> None:
    run_blocks(blocks(ROOT / "README.md", "python")[:1], tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#:]+)\)", page.read_text())
    assert all((page.parent / t).exists() for t in targets), targets


def test_files_and_names_on_the_pages_exist() -> None:
    for page in PAGES:
        text = page.read_text()
        paths = re.findall(rf"`((?:{'|'.join(FOLDERS)})/[\w./]*)`", text)
        missing = [p for p in paths if not (ROOT / p).exists() and not (ROOT / f"{p}.py").exists()]
        assert not missing, f"{page.name} names {missing}"
        for name in re.findall(r"`rlx\.(\w+)", text):
            assert hasattr(rlx, name), f"{page.name} names rlx.{name}"


@pytest.mark.parametrize("case", s.CASES, ids=lambda c: c.text)
def test_singular_points_are_as_the_table_says(case: s.Case) -> None:
    assert s.written()[case.text]["rlx-py"] == s.shown(s.ours(case))


def test_the_table_has_every_case() -> None:
    assert list(s.written()) == [c.text for c in s.CASES]


@pytest.mark.parametrize("case", s.CASES, ids=lambda c: c.text)
def test_singular_points_are_the_same_without_compilation(case: s.Case) -> None:
    found = rlx.evaluate(s.derivative(case), {"x": np.array(case.at)})["grad_x"]
    assert s.shown(found) == s.shown(s.ours(case))
