"""Random programs of fixed seeds under every law, and programs that once failed.

`make fuzz` runs other seeds by the hour; what fails there is kept in fuzz/kept.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx_py as rlx
from fuzz.generate import generate
from fuzz.judge import Judge, wide
from fuzz.laws import LAWS, Case, fault_of, laws_of
from fuzz.program import Program, from_json, to_json
from fuzz.shrink import shrink

KEPT = sorted(Path(__file__).parents[1].glob("fuzz/kept/*.json"))
SEEDS, CHUNK = 60, 5
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def check(program: Program, laws: Any) -> None:
    """Every law holds."""
    for law in laws:
        fault = fault_of(program, law)
        assert fault is None, f"{law.__name__}: {fault}\n{program.text()}"


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_random_programs_obey_the_laws(first: int) -> None:
    for seed in range(first, first + CHUNK):
        check(generate(seed), laws_of(seed))


@pytest.mark.parametrize("path", KEPT, ids=lambda p: p.stem)
def test_what_once_failed_holds(path: Path) -> None:
    check(from_json(path.read_text()), LAWS)


def test_a_program_is_the_same_for_its_seed_and_as_text_and_as_json() -> None:
    controlled = 0
    for seed in range(20):
        program = generate(seed, size="small")
        controlled += program.controlled
        assert generate(seed, size="small") == program
        assert to_json(from_json(to_json(program))) == to_json(program)
        assert from_json(to_json(program)) == program
        scope: dict[str, Any] = {}
        exec(program.text(), scope)
        assert str(scope["g"]) == str(program.build()[0])
    assert controlled >= 18


def test_a_fault_is_seen_and_made_small() -> None:
    """A law that forbids tanh finds a program of one line or one loop."""
    def no_tanh(case: Any) -> str | None:
        return "there is a tanh" if "tanh(" in case.program.text() else None

    for seed in range(8):
        program = generate(seed, size="small")
        if fault_of(program, no_tanh):
            small = shrink(program, no_tanh, seconds=20)
            assert fault_of(small, no_tanh) and len(small.body) == 1
            assert len(list(small.statements())) <= 5
            return
    raise AssertionError("no program has a tanh")


def test_values_that_are_wrong_are_found() -> None:
    """The judge sees a result that is off by more than rounding, and one that is not a number."""
    found = 0
    for seed in range(10):
        case = Case(generate(seed, size="small"))
        for name, value in case.graph.outputs.items():
            wanted = case.judge.wanted["output", name]
            known = wanted.sure.all() and np.isfinite(wanted.tolerance + wide(wanted.value)).all()
            if value.dtype.is_float and value.size and known:
                wrong = wanted.value + 2 * wanted.tolerance + 0.01 * (1 + np.abs(wanted.value))
                assert case.judge.fault("output", {name: wanted.value}) is None
                assert case.judge.fault("output", {name: wrong.astype(wanted.value.dtype)})
                found += 1
    assert found > 10


def test_a_comparison_of_sums_that_rounding_makes_equal_is_left_open() -> None:
    line = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    g = rlx.Graph("g")
    a, b = g.input("a", line.shape), g.input("b", line.shape)
    g.output("less", rlx.sum(a) < rlx.sum(b))
    feed = {"a": line, "b": line[::-1].copy()}
    other = {"less": ~np.asarray(rlx.evaluate(g, feed)["less"])}
    assert all(Judge(g, feed, seed).fault("output", other) is None for seed in range(32))
    feed["b"] = line + np.float32(1)
    assert Judge(g, feed, 0).fault("output", {"less": np.asarray(False)})
