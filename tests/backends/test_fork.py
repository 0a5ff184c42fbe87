"""Children forked while other threads compile: nothing that these hold is missed."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")

START = """
import gc, os, signal, sys, threading, time
import numpy as np
import rlx_py as rlx

def network(depth, rows=4):
    g = rlx.Graph("network")
    x = g.input("x", (rows, 8))
    for k in range(depth):
        x = rlx.tanh(x @ g.param(f"w{k}", (8, 8)) + k)
    g.output("y", x.sum())
    return rlx.grad(g, "y")

def result(child, seconds=60):
    '''The status of a child; one that hangs is killed.'''
    end = time.time() + seconds
    while time.time() < end:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "hangs"

def forked(work):
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    return child
"""

COMPILES = START + """
stop = threading.Event()
def compiles():
    while not stop.is_set():
        rlx.compile(network(12), cache=False)
threads = [threading.Thread(target=compiles) for _ in range(2)]
for t in threads:
    t.start()

def work():
    assert gc.isenabled()
    g = rlx.Graph(); x = g.input("x", (5,)); g.output("y", rlx.exp(x) * 3)
    y = rlx.compile(g, cache=False)(x=np.zeros(5, np.float32)).y
    assert (y == 3).all()

found = []
for k in range(12):
    time.sleep(0.03 + 0.011 * k)
    found.append(result(forked(work)))
stop.set()
for t in threads:
    t.join()
assert found == [0] * 12, found
"""

SPECIALISES = START + """
n = rlx.dim("n")
g = rlx.Graph("loader")
x, w = g.input("x", (n, 8)), g.param("w", (8, 8))
for k in range(12):
    x = rlx.tanh(x @ w + k)
g.output("y", x.sum())
exe = rlx.compile(rlx.value_and_grad(g, "y"), threads=1)
w = np.eye(8, dtype=np.float32) * 0.5

def run(rows):
    return exe(x=np.ones((rows, 8), np.float32), w=w)

def work():
    # The sizes that the other thread is compiling, sizes that are there, and new ones.
    for rows in (9, 2, 40):
        assert np.isfinite(run(rows).y)

run(2)
found = []
for k in range(6):
    exe = rlx.compile(rlx.value_and_grad(g, "y"), threads=1, cache=False)
    run(2)
    thread = threading.Thread(target=run, args=(9,))
    thread.start()
    time.sleep(0.01 + 0.04 * k)
    found.append(result(forked(work)))
    thread.join()
    assert np.isfinite(run(9).y)
assert found == [0] * 6, found
"""


@pytest.mark.parametrize("source", [COMPILES, SPECIALISES], ids=["compiles", "specialises"])
def test_a_child_forked_while_a_thread_compiles_compiles(source: str) -> None:
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", source], capture_output=True,
                          text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
