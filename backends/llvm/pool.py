"""A team of native threads that runs parallel loops and never waits for one that has not started.

The caller cuts a job into a part for each thread, takes blocks of its own part and then of the
others', and returns when every block is done. A thread of the team that gets to run takes from its
own part first, so that successive loops find a part's memory in the same cache. The caller waits
for those threads alone that hold blocks; on a busy machine it does the work itself.

Why a late thread can't run a job that is over: to take blocks of a part is one compare-and-swap of
the number left there, and what it takes depends on that number alone. If it succeeds, those blocks
belong to a job that is still open, whichever it is; it stays open until they are counted as done.
Only then is it looked up what the job is.

A waiting thread spins for a moment, in which it lets every other thread have its processor, and
then sleeps. It spins longer when it was woken soon after it slept the last time, as happens where a
program calls short steps in a loop. It sleeps at once if others took its processor: an operating
system looks for a free one when it wakes a thread, and moves one that only yields seldom.
"""

from __future__ import annotations

import ctypes
import os
import struct
import time
import warnings
from functools import cache

import llvmlite.binding as llvm

from rlx_py.backends.llvm.targets import host, machine

AWAY = 20_000  # ns without its processor after which a thread sleeps instead
SPIN = 50_000  # ns that a thread spins before it sleeps
LONG_SPIN = 200_000  # ns that it spins if it was woken within as long the last time
PATIENCE = 200  # looks at what the others have done before the caller lets other threads run
_ARM = ("declare void @llvm.aarch64.hint(i32)", "call void @llvm.aarch64.hint(i32 1)")
PAUSES = {
    "x86_64": ("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"),
    "aarch64": _ARM, "arm64": _ARM,
}
NEEDED = ("clock_gettime", "pthread_cond_init", "pthread_cond_signal", "pthread_cond_wait",
          "pthread_create", "pthread_mutex_init", "pthread_mutex_lock", "pthread_mutex_unlock",
          "sched_yield")

# Each variable that some thread writes often has a pair of cache lines of its own: processors fetch
# lines in pairs. The order of stores is that of the proof above: a job, then its parts, then the
# epoch that the team watches.
SOURCE = """
target triple = "{triple}"

@epoch = internal global i64 0, align 128     ; jobs so far
; body, context, blocks, parts
@job = internal global {{ ptr, ptr, i64, i64 }} zeroinitializer, align 128
@done = internal global i64 0, align 128      ; blocks that the team has run, by threads that left
@left = internal global [{threads} x [16 x i64]] zeroinitializer, align 128 ; not taken, of a part
@busy = internal global i64 0, align 128      ; 1: some caller has the team
@asleep = internal global i64 0, align 128
@started = internal global i64 0
@mutex = internal global [32 x i64] zeroinitializer, align 128
@wake = internal global [32 x i64] zeroinitializer, align 128

declare i32 @clock_gettime(i32, ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_cond_signal(ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @sched_yield()
{declared}

; Make the team; the number of threads besides the caller.
define i64 @start() {{
entry:
  %id = alloca i64
  %m = call i32 @pthread_mutex_init(ptr @mutex, ptr null)
  %c = call i32 @pthread_cond_init(ptr @wake, ptr null)
  br label %next
next:
  %n = phi i64 [ 0, %entry ], [ %made, %create ]
  %all = icmp eq i64 %n, {workers}
  br i1 %all, label %end, label %create
create:
  %failed = call i32 @pthread_create(ptr %id, ptr null, ptr @worker, ptr null)
  %made = add i64 %n, 1
  %stop = icmp ne i32 %failed, 0
  br i1 %stop, label %end, label %next
end:
  ret i64 %n
}}

define void @parallel_for(ptr %body, ptr %context, i64 %blocks) {{
entry:
  %several = icmp sgt i64 %blocks, 1
  br i1 %several, label %try, label %alone
try:
  %pair = cmpxchg ptr @busy, i64 0, i64 1 acquire monotonic
  %is_mine = extractvalue {{ i64, i1 }} %pair, 1
  br i1 %is_mine, label %open, label %alone
alone:
  call void %body(ptr %context, i64 0, i64 %blocks, i32 0)
  ret void
open:
  %few = icmp slt i64 %blocks, {threads}
  %parts = select i1 %few, i64 %blocks, i64 {threads}
  store ptr %body, ptr @job
  store ptr %context, ptr getelementptr (i64, ptr @job, i64 1)
  store i64 %blocks, ptr getelementptr (i64, ptr @job, i64 2)
  store i64 %parts, ptr getelementptr (i64, ptr @job, i64 3)
  store atomic i64 0, ptr @done monotonic, align 8
  br label %cut
cut:
  %part = phi i64 [ 0, %open ], [ %after, %cut ]
  %begin = phi i64 [ 0, %open ], [ %end, %cut ]
  %after = add i64 %part, 1
  %scaled = mul i64 %blocks, %after
  %end = udiv i64 %scaled, %parts
  %size = sub i64 %end, %begin
  %place = getelementptr [16 x i64], ptr @left, i64 %part
  store atomic i64 %size, ptr %place release, align 8
  %is_last = icmp eq i64 %after, %parts
  br i1 %is_last, label %run, label %cut
run:
  %old = atomicrmw add ptr @epoch, i64 1 seq_cst
  %own = call i64 @share(i64 0)
  %others = sub i64 %blocks, %own
  br label %wait
wait:
  %tries = phi i64 [ 0, %run ], [ %tried, %again ]
  %done = load atomic i64, ptr @done acquire, align 8
  %is_done = icmp eq i64 %done, %others
  br i1 %is_done, label %close, label %pause
pause:
  {pause}
  %tried = add i64 %tries, 1
  %is_long = icmp ugt i64 %tried, {patience}
  br i1 %is_long, label %yield, label %again
yield:
  %y = call i32 @sched_yield()
  br label %again
again:
  br label %wait
close:
  store atomic i64 0, ptr @busy release, align 8
  ret void
}}

; Wake up to two threads if fewer are awake than the job has parts. Who takes its first blocks does
; so: the caller of a large team need not wake them all.
define internal void @rouse(i64 %parts) {{
entry:
  %asleep = load atomic i64, ptr @asleep seq_cst, align 8
  %awake = sub i64 {threads}, %asleep
  %missing = sub i64 %parts, %awake
  %some = icmp sgt i64 %missing, 0
  br i1 %some, label %one, label %end
one:
  %first = call i32 @pthread_cond_signal(ptr @wake)
  %more = icmp sgt i64 %missing, 1
  br i1 %more, label %two, label %end
two:
  %second = call i32 @pthread_cond_signal(ptr @wake)
  br label %end
end:
  ret void
}}

; Take and run blocks, own part first, until none is left; the number of them.
define internal i64 @share(i64 %thread) {{
entry:
  %number = trunc i64 %thread to i32
  br label %parts
parts:
  %step = phi i64 [ 0, %entry ], [ %next, %leave ]
  %had = phi i64 [ 0, %entry ], [ %have, %leave ]
  %turn = add i64 %thread, %step
  %over = icmp uge i64 %turn, {threads}
  %back = sub i64 %turn, {threads}
  %part = select i1 %over, i64 %back, i64 %turn
  %place = getelementptr [16 x i64], ptr @left, i64 %part
  br label %look
look:
  %have = phi i64 [ %had, %parts ], [ %have, %take ], [ %total, %run ]
  %n = load atomic i64, ptr %place monotonic, align 8
  %none = icmp eq i64 %n, 0
  br i1 %none, label %leave, label %take
take:
  %up = add i64 %n, 7
  %some = lshr i64 %up, 3
  %rest = sub i64 %n, %some
  %pair = cmpxchg ptr %place, i64 %n, i64 %rest acquire monotonic
  %taken = extractvalue {{ i64, i1 }} %pair, 1
  br i1 %taken, label %go, label %look
go:
  %body = load ptr, ptr @job
  %context = load ptr, ptr getelementptr (i64, ptr @job, i64 1)
  %blocks = load i64, ptr getelementptr (i64, ptr @job, i64 2)
  %count = load i64, ptr getelementptr (i64, ptr @job, i64 3)
  %after = add i64 %part, 1
  %scaled = mul i64 %blocks, %after
  %part_end = udiv i64 %scaled, %count
  %begin = sub i64 %part_end, %n
  %end = add i64 %begin, %some
  %is_first = icmp eq i64 %have, 0
  br i1 %is_first, label %call, label %run
call:
  call void @rouse(i64 %count)
  br label %run
run:
  call void %body(ptr %context, i64 %begin, i64 %end, i32 %number)
  %total = add i64 %have, %some
  br label %look
leave:
  %next = add i64 %step, 1
  %all = icmp eq i64 %next, {threads}
  br i1 %all, label %end_all, label %parts
end_all:
  ret i64 %have
}}

define internal i64 @now() {{
  %t = alloca [2 x i64]
  %e = call i32 @clock_gettime(i32 {clock}, ptr %t)
  %s = load i64, ptr %t
  %p = getelementptr i64, ptr %t, i64 1
  %ns = load i64, ptr %p
  %scaled = mul i64 %s, 1000000000
  %sum = add i64 %scaled, %ns
  ret i64 %sum
}}

; A thread of the team.
define internal ptr @worker(ptr %unused) {{
entry:
  %others = atomicrmw add ptr @started, i64 1 monotonic
  %thread = add i64 %others, 1
  br label %idle
idle:
  %seen = phi i64 [ 0, %entry ], [ %found, %work ], [ %found, %report ]
  %patience = phi i64 [ {spin}, %entry ], [ %spins, %work ], [ %spins, %report ]
  %since = call i64 @now()
  br label %spin
spin:
  %tries = phi i64 [ 0, %idle ], [ %tried, %pause ], [ 0, %yield ]
  %epoch = load atomic i64, ptr @epoch acquire, align 8
  %same = icmp eq i64 %epoch, %seen
  br i1 %same, label %pause, label %work
pause:
  {pause}
  %tried = add i64 %tries, 1
  %enough = icmp eq i64 %tried, 32
  br i1 %enough, label %clock, label %spin
clock:
  %time = call i64 @now()
  %spun = sub i64 %time, %since
  %is_over = icmp sgt i64 %spun, %patience
  br i1 %is_over, label %sleep, label %yield
yield:
  %y = call i32 @sched_yield()
  %back = call i64 @now()
  %away = sub i64 %back, %time
  %is_crowded = icmp sgt i64 %away, {away}
  br i1 %is_crowded, label %sleep, label %spin
sleep:
  %l = call i32 @pthread_mutex_lock(ptr @mutex)
  %a = atomicrmw add ptr @asleep, i64 1 seq_cst
  br label %check
check:
  %late = load atomic i64, ptr @epoch seq_cst, align 8
  %still = icmp eq i64 %late, %seen
  br i1 %still, label %wait, label %awake
wait:
  %w = call i32 @pthread_cond_wait(ptr @wake, ptr @mutex)
  br label %check
awake:
  %b = atomicrmw sub ptr @asleep, i64 1 seq_cst
  %u = call i32 @pthread_mutex_unlock(ptr @mutex)
  %woken = call i64 @now()
  %slept = sub i64 %woken, %since
  %is_short = icmp slt i64 %slept, {long_spin}
  %chosen = select i1 %is_short, i64 {long_spin}, i64 {spin}
  br label %work
work:
  %found = phi i64 [ %epoch, %spin ], [ %late, %awake ]
  %spins = phi i64 [ %patience, %spin ], [ %chosen, %awake ]
  %own = call i64 @share(i64 %thread)
  %is_idle = icmp eq i64 %own, 0
  br i1 %is_idle, label %idle, label %report
report:
  %before = atomicrmw add ptr @done, i64 %own release
  br label %idle
}}
"""


@cache
def is_supported() -> bool:
    """Whether this system has the threads, conditions and clock of POSIX, and 64-bit pointers."""
    if os.name != "posix" or struct.calcsize("P") != 8:
        return False
    process = ctypes.CDLL(None)
    return all(hasattr(process, name) for name in NEEDED)


@cache
def team(threads: int) -> int:
    """The address of a parallel_for (see layout) on a team of `threads`, the caller being one.

    Threads start once and live as long as the process. Several callers may call at once: one gets
    the team, the others run their jobs alone. Not to be called in a child of fork, where the team
    is gone. For systems that are supported.
    """
    module = llvm.parse_assembly(source(threads))
    module.verify()
    engine = llvm.create_mcjit_compiler(module, machine(host()))
    engine.finalize_object()
    start = engine.get_function_address("start")
    parallel_for: int = engine.get_function_address("parallel_for")
    engine.detach()  # the team runs in this code until the process ends
    started = ctypes.CFUNCTYPE(ctypes.c_int64)(start)()
    if started < threads - 1:
        warnings.warn(f"only {started + 1} of {threads} threads could be started", RuntimeWarning,
                      stacklevel=2)
    return parallel_for


def source(threads: int) -> str:
    """The LLVM assembly of a team: int64_t start(void), and parallel_for."""
    architecture = host().triple.split("-")[0]
    declared, pause = PAUSES.get(architecture, ("", ""))
    return SOURCE.format(
        triple=host().triple, threads=threads, workers=threads - 1, clock=time.CLOCK_MONOTONIC,
        away=AWAY, spin=SPIN, long_spin=LONG_SPIN, patience=PATIENCE, declared=declared,
        pause=pause)
