"""Sessions to take turns with: in this process, or each in a process of its own."""

import gc
import multiprocessing
from dataclasses import dataclass
from multiprocessing.connection import Connection
from time import perf_counter
from typing import Any, Protocol

from benchmarks.systems import open_session

WARM_SECONDS = 0.03
WARM_STEPS = 3


@dataclass(frozen=True)
class Compiled:
    """What opening a session told."""

    seconds: dict[str, float]
    arena_bytes: int | None


class WorkerError(Exception):
    """A worker process ended before it answered."""


class Worker(Protocol):
    """A session that takes one turn at a time."""

    compiled: Compiled

    def losses(self, count: int) -> list[float]: ...  # noqa: D102
    def turn(self, seconds: float) -> list[float]: ...  # noqa: D102
    def close(self) -> None: ...  # noqa: D102


class LocalWorker:
    """A session in this process."""

    def __init__(self, case: str, system: str, threads: int) -> None:
        self._session = open_session(case, system, threads)
        self.compiled = Compiled(self._session.compile_seconds, self._session.arena_bytes)

    def losses(self, count: int) -> list[float]:
        """The losses of the first `count` steps from the initial parameters."""
        self._session.reset()
        values = []
        for _ in range(count):
            self._session.step()
            values.append(self._session.loss())
        return values

    def turn(self, seconds: float) -> list[float]:
        """The duration of each step, for about `seconds` and at least 5 steps, after a warm-up."""
        session = self._session
        # Each turn trains the same first steps, so that drifting values never change the work.
        session.reset()
        self._warm_up()
        durations: list[float] = []
        gc.collect()
        gc.disable()
        end = perf_counter() + seconds
        while len(durations) < 5 or perf_counter() < end:
            start = perf_counter()
            session.step()
            durations.append(perf_counter() - start)
        gc.enable()
        return durations

    def _warm_up(self) -> None:
        # Wakes the system's threads, and outlasts the spinning of those that ran before.
        end = perf_counter() + WARM_SECONDS
        steps = 0
        while steps < WARM_STEPS or perf_counter() < end:
            self._session.step()
            steps += 1

    def close(self) -> None:
        """Let go of the session."""
        del self._session


class ProcessWorker:
    """A session in a process of its own, which sleeps on its pipe between turns."""

    def __init__(self, case: str, system: str, threads: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._name = f"{system} on {case}"
        self._pipe, other = context.Pipe()
        self._process = context.Process(target=_serve, args=(other, case, system, threads))
        self._process.start()
        other.close()  # so that the pipe ends when the worker does
        self.compiled: Compiled = self._answer()

    def losses(self, count: int) -> list[float]:
        """As `LocalWorker.losses`."""
        values: list[float] = self._call("losses", count)
        return values

    def turn(self, seconds: float) -> list[float]:
        """As `LocalWorker.turn`."""
        durations: list[float] = self._call("turn", seconds)
        return durations

    def close(self) -> None:
        """End the process."""
        self._pipe.close()
        self._process.join()

    def _call(self, method: str, argument: float) -> Any:
        self._pipe.send((method, argument))
        return self._answer()

    def _answer(self) -> Any:
        try:
            return self._pipe.recv()
        except EOFError:
            self._process.join()
            raise WorkerError(
                f"{self._name}: the worker ended with status {self._process.exitcode}; "
                "its own message stands above"
            ) from None


def _serve(pipe: Connection, case: str, system: str, threads: int) -> None:
    worker = LocalWorker(case, system, threads)
    pipe.send(worker.compiled)
    while True:
        try:
            method, argument = pipe.recv()
        except EOFError:
            return
        pipe.send(getattr(worker, method)(argument))
