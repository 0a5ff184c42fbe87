"""Every op with its arrays beside forbidden memory and its arena full of rubbish.

A read or write beyond an array ends the process; one of what no kernel has written shows as other
bits. `make sweep` runs every sample in every element type; the suite a fixed tenth.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from rlx_py.backends.llvm.backend import program_for
from rlx_py.backends.llvm.jit import compile_program
from rlx_py.backends.llvm.targets import host
from rlx_py.ir.base.types import DType
from rlx_py.ir.graph.evaluate import evaluate
from rlx_py.ir.graph.graph import Graph
from support.guarded import PAGE, Guarded, guarded, run_guarded
from support.samples.sample import add_sample
from support.sweep import assert_near, fresh, same_bits, with_gradients
from tests.sweep.test_sweep_surrounded import groups

GROUPS = groups(7)


@pytest.mark.parametrize("name,dtype", GROUPS, ids=str)
def test_nothing_beyond_the_arrays_is_touched(name: str, dtype: DType) -> None:
    g, feed = Graph(f"{name}_{dtype}"), {}
    for s in GROUPS[name, dtype]:
        add_sample(g, s, dtype, f"{s.name}.")
        feed.update(s.feed(dtype, f"{s.name}."))
    whole = with_gradients(g)
    feed.update(fresh(whole, g, np.random.default_rng(3)))
    compiled = compile_program(program_for(whole, host()), threads=2)
    first = run_guarded(compiled, feed, "end", 0xFF)  # NaN as a float
    assert_near(first, evaluate(whole, feed), f"{name} {dtype}")
    same_bits(first, run_guarded(compiled, feed, "start", 0x5A))


@pytest.mark.parametrize("at", ["end", "start"])
def test_guarded_arrays_lie_at_the_forbidden_page(at: str) -> None:
    with guarded(at) as memory:
        assert isinstance(memory, Guarded)
        array = memory.array(np.arange(5.0))
        place = array.ctypes.data + (array.nbytes if at == "end" else 0)
        edges = [p + (0 if at == "end" else PAGE) for p in memory.closed]
        assert any(place == edge for edge in edges)
        np.testing.assert_array_equal(array, np.arange(5.0))


@pytest.mark.parametrize("at,offset", [("end", 5), ("start", -1)])
def test_a_read_beyond_the_array_ends_the_process(at: str, offset: int) -> None:
    code = (f"import ctypes, numpy as np; from support.guarded import guarded\n"
            f"with guarded({at!r}) as memory:\n"
            f"    array = memory.array(np.arange(5.0))\n"
            f"    ctypes.c_double.from_address(array.ctypes.data + 8 * {offset}).value")
    done = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[1], check=False)
    assert done.returncode == -signal.SIGSEGV
