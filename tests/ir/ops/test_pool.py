"""The team that runs parallel loops: every block once, numbers of threads, callers, fork, exit."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import llvmlite.binding as llvm
import pytest

from rlx_py.backends.llvm import parallel
from rlx_py.backends.llvm.pool import is_supported, source, team
from rlx_py.backends.llvm.targets import host, machine

pytestmark = pytest.mark.skipif(not is_supported(), reason="needs POSIX threads")

Body = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int32)
ParallelFor = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)

# i64 stress(parallel_for, threads, jobs, most, pause): runs `jobs` jobs of 1 ... `most` blocks and
# counts what is wrong: a block not run once, a job run when it is over, a thread's number that is
# too large or in use twice. Every job has its own context, on the stack: {open, errors, threads,
# pause, counts, users}.
STRESS = """
target triple = "{triple}"
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

define void @body(ptr %job, i64 %begin, i64 %end, i32 %number) {{
entry:
  %thread = sext i32 %number to i64
  %errors = getelementptr i64, ptr %job, i64 1
  %p_threads = getelementptr i64, ptr %job, i64 2
  %p_pause = getelementptr i64, ptr %job, i64 3
  %p_counts = getelementptr i64, ptr %job, i64 4
  %p_users = getelementptr i64, ptr %job, i64 5
  %threads = load i64, ptr %p_threads
  %pause = load i64, ptr %p_pause
  %counts = load ptr, ptr %p_counts
  %users = load ptr, ptr %p_users
  %open = load atomic i64, ptr %job acquire, align 8
  %is_closed = icmp ne i64 %open, 1
  %is_large = icmp uge i64 %thread, %threads
  %is_wrong = or i1 %is_closed, %is_large
  %wrong = zext i1 %is_wrong to i64
  %e1 = atomicrmw add ptr %errors, i64 %wrong monotonic
  %own = getelementptr i64, ptr %users, i64 %thread
  %user = atomicrmw add ptr %own, i64 1 acquire
  %e2 = atomicrmw add ptr %errors, i64 %user monotonic
  br label %block
block:
  %i = phi i64 [ %begin, %entry ], [ %next, %counted ]
  %is_all = icmp sge i64 %i, %end
  br i1 %is_all, label %out, label %work
work:
  %t = phi i64 [ 0, %block ], [ %t2, %work ]
  %t2 = add i64 %t, 1
  %x = load volatile i64, ptr %p_pause
  %is_over = icmp uge i64 %t2, %pause
  br i1 %is_over, label %counted, label %work
counted:
  %place = getelementptr i64, ptr %counts, i64 %i
  %c = atomicrmw add ptr %place, i64 1 monotonic
  %next = add i64 %i, 1
  br label %block
out:
  %left = atomicrmw sub ptr %own, i64 1 release
  ret void
}}

define i64 @stress(ptr %run, i64 %threads, i64 %jobs, i64 %most, i64 %pause) {{
entry:
  %counts = alloca i64, i64 %most
  %users = alloca i64, i64 64
  %contexts = alloca [8 x i64], i64 16
  call void @llvm.memset.p0.i64(ptr %users, i8 0, i64 512, i1 0)
  call void @llvm.memset.p0.i64(ptr %contexts, i8 0, i64 1024, i1 0)
  %bytes = mul i64 %most, 8
  br label %job
job:
  %n = phi i64 [ 0, %entry ], [ %n2, %judged ]
  %sum = phi i64 [ 0, %entry ], [ %found, %judged ]
  call void @llvm.memset.p0.i64(ptr %counts, i8 0, i64 %bytes, i1 0)
  %slot = and i64 %n, 15
  %context = getelementptr [8 x i64], ptr %contexts, i64 %slot
  %p_errors = getelementptr i64, ptr %context, i64 1
  %p_threads = getelementptr i64, ptr %context, i64 2
  %p_pause = getelementptr i64, ptr %context, i64 3
  %p_counts = getelementptr i64, ptr %context, i64 4
  %p_users = getelementptr i64, ptr %context, i64 5
  store i64 0, ptr %p_errors
  store i64 %threads, ptr %p_threads
  store i64 %pause, ptr %p_pause
  store ptr %counts, ptr %p_counts
  store ptr %users, ptr %p_users
  store atomic i64 1, ptr %context release, align 8
  %mixed = mul i64 %n, 2654435761
  %high = lshr i64 %mixed, 7
  %small = urem i64 %high, %most
  %blocks = add i64 %small, 1
  call void %run(ptr @body, ptr %context, i64 %blocks)
  store atomic i64 0, ptr %context release, align 8
  %errors = load i64, ptr %p_errors
  %sum1 = add i64 %sum, %errors
  br label %judge
judge:
  %i = phi i64 [ 0, %job ], [ %i2, %judge ]
  %found0 = phi i64 [ %sum1, %job ], [ %found, %judge ]
  %place = getelementptr i64, ptr %counts, i64 %i
  %c = load i64, ptr %place
  %due = icmp slt i64 %i, %blocks
  %want = zext i1 %due to i64
  %is_wrong = icmp ne i64 %c, %want
  %wrong = zext i1 %is_wrong to i64
  %found = add i64 %found0, %wrong
  %i2 = add i64 %i, 1
  %is_all = icmp eq i64 %i2, %most
  br i1 %is_all, label %judged, label %judge
judged:
  %n2 = add i64 %n, 1
  %is_end = icmp eq i64 %n2, %jobs
  br i1 %is_end, label %end, label %job
end:
  ret i64 %found
}}
"""


@pytest.fixture(scope="module")
def stress() -> Callable[[int, int, int, int], int]:
    """errors(threads, jobs, most blocks, turns of a loop in each block)."""
    engine = compiled(STRESS.format(triple=host().triple))
    kind = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, *[ctypes.c_int64] * 4)
    native = kind(engine.get_function_address("stress"))

    def errors(threads: int, jobs: int, most: int, pause: int) -> int:
        assert engine
        return int(native(team(threads), threads, jobs, most, pause))

    return errors


def compiled(text: str) -> llvm.ExecutionEngine:
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(text), machine(host()))
    engine.finalize_object()
    return engine


def shares(run: Callable[..., None], blocks: int,
           each: Callable[[int], None] = lambda thread: None) -> list[tuple[int, int, int]]:
    """(begin, end, thread) of the calls of a Python body, in order of begin."""
    found: list[tuple[int, int, int]] = []

    def body(context: int | None, begin: int, end: int, thread: int) -> None:
        assert context == 12345
        found.append((begin, end, thread))
        each(thread)

    native = Body(body)
    run(ctypes.cast(native, ctypes.c_void_p), 12345, blocks)
    return sorted(found)


def assert_whole(found: list[tuple[int, int, int]], blocks: int, threads: int) -> None:
    ends = [0, *(end for _, end, _ in found)]
    assert [begin for begin, _, _ in found] == ends[:-1] and ends[-1] == blocks, found
    assert all(0 <= thread < threads for _, _, thread in found)


@pytest.mark.parametrize("threads", [2, 3, 8])
def test_blocks_are_cut_without_gap_or_overlap(threads: int) -> None:
    run = ParallelFor(team(threads))
    for blocks in (1, 2, 3, 7, 8, 9, 64, 1000, 2**40 + 1):
        assert_whole(shares(run, blocks), blocks, threads)


def test_no_block_is_no_work() -> None:
    assert all(begin == end for begin, end, _ in shares(ParallelFor(team(2)), 0))


def test_the_others_do_take_part() -> None:
    """They have as long as they need: the caller's first block lasts until another has begun."""
    seen = threading.Event()

    def each(thread: int) -> None:
        if thread:
            seen.set()
        else:
            assert seen.wait(60)

    found = shares(ParallelFor(team(2)), 64, each)
    assert_whole(found, 64, 2)
    assert {thread for _, _, thread in found} == {0, 1}


def test_a_team_that_never_starts_is_not_waited_for() -> None:
    engine = compiled(source(4))
    found = shares(ParallelFor(engine.get_function_address("parallel_for")), 100)
    assert_whole(found, 100, 4)
    assert {thread for _, _, thread in found} == {0}


def test_the_caller_waits_for_blocks_that_others_hold() -> None:
    seen = threading.Event()
    done: list[int] = []

    def each(thread: int) -> None:
        if thread:
            seen.set()
            time.sleep(0.1)
        else:
            assert seen.wait(60)
        done.append(thread)

    found = shares(ParallelFor(team(2)), 16, each)
    assert len(done) == len(found)


@pytest.mark.parametrize("threads", [2, 5])
@pytest.mark.parametrize("pause", [1, 50])
def test_many_small_jobs(stress: Callable[..., int], threads: int, pause: int) -> None:
    assert stress(threads, 100_000, 20, pause) == 0


def test_few_jobs_of_many_blocks(stress: Callable[..., int]) -> None:
    assert stress(3, 300, 5000, 20) == 0


@pytest.mark.parametrize("gap", [3e-5, 1e-4, 1e-3])
def test_jobs_with_gaps_in_which_threads_sleep(stress: Callable[..., int], gap: float) -> None:
    for _ in range(200):
        assert stress(3, 3, 30, 300) == 0
        time.sleep(gap)


def test_many_callers_at_once(stress: Callable[..., int]) -> None:
    with ThreadPoolExecutor(6) as callers:
        jobs = [callers.submit(stress, threads, 5_000, 20, 20) for threads in (2, 2, 2, 3, 3, 5)]
        assert [job.result() for job in jobs] == [0] * 6


def test_a_second_caller_does_not_wait_for_the_first() -> None:
    run = ParallelFor(team(2))
    begun, over = threading.Event(), threading.Event()

    def each(thread: int) -> None:
        begun.set()
        assert over.wait(60)

    first = threading.Thread(target=shares, args=(run, 8, each))
    first.start()
    assert begun.wait(60)
    assert shares(run, 100) == [(0, 100, 0)]
    over.set()
    first.join()


def test_a_loop_in_a_loop_runs_alone() -> None:
    run = ParallelFor(team(2))
    inner: list[list[tuple[int, int, int]]] = []
    outer = shares(run, 10, lambda thread: inner.append(shares(run, 30)))
    assert_whole(outer, 10, 2)
    assert inner == [[(0, 30, 0)]] * len(outer)


def test_numbers_of_threads() -> None:
    assert parallel.team_size(1) == 1 and parallel.parallel_for(1) == 0
    assert parallel.team_size(3) == 3 and parallel.parallel_for(3) == team(3)
    assert parallel.team_size(None) == parallel.processors() >= 1


SCRIPT = """
import ctypes, os, sys, time
from rlx_py.backends.llvm import parallel
from rlx_py.backends.llvm.pool import team
Body = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int32)
kind = ctypes.CFUNCTYPE(None, Body, ctypes.c_void_p, ctypes.c_int64)
runs = [kind(team(threads)) for threads in (2, 3, 8)]
body = Body(lambda *_: None)
def work():
    for run in runs:
        run(body, None, 50)
work()
"""
ENDS = {
    "at once": "",
    "asleep": "time.sleep(0.1)",
    "sys.exit": "sys.exit(0)",
    "os._exit": "os._exit(0)",
    "while busy": """
import threading
def always():
    while True:
        work()
threading.Thread(target=always, daemon=True).start()
time.sleep(0.05)""",
}


@pytest.mark.parametrize("end", ENDS)
def test_a_process_ends_with_its_team(end: str) -> None:
    done = subprocess.run([sys.executable, "-X", "dev", "-W", "error", "-c", SCRIPT + ENDS[end]],
                          capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


FORK = """
child = os.fork()
if child == 0:
    alone = parallel.team_size(4) == 1 and parallel.parallel_for(4) == 0
    os._exit(0 if alone and not parallel.may_use_threads() else 3)
status = os.waitpid(child, 0)[1]
assert parallel.may_use_threads()
work()
sys.exit(os.waitstatus_to_exitcode(status))
"""


def test_a_child_of_fork_has_no_team() -> None:
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", SCRIPT + FORK],
                          capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


IDLE = """
time.sleep(0.05)
start = time.process_time()
time.sleep(0.5)
print(time.process_time() - start)
"""


def test_an_idle_team_sleeps() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT + IDLE], capture_output=True, text=True,
                          timeout=60, check=True)
    assert float(done.stdout) < 0.01
