"""Rounds of turns, the check that the systems compute the same thing, and the summary."""

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median

from benchmarks.worker import Compiled, Worker

CHECKED_STEPS = 3
LOSS_RTOL = 1e-3
PROGRESS_RTOL = 1e-2


class Disagreement(Exception):
    """Two systems were given the same step and computed different losses."""


@dataclass(frozen=True)
class Row:
    """One system's figures on one case, in seconds per step.

    `ratio` is the median over the rounds of its median step over that of `best_peer` in the same
    round, so slow spells of the machine cancel; both are None where no peer was measured.
    """

    case: str
    system: str
    median: float
    minimum: float
    steps: int
    compiled: Compiled
    losses: list[float]
    ratio: float | None
    best_peer: str | None


def run_case(
    case: str,
    systems: Sequence[str],
    open_worker: Callable[[str, str], Worker],
    rounds: int,
    turn_seconds: float,
) -> list[Row]:
    """Open all systems, check that they agree, and let them take turns for some rounds."""
    workers: dict[str, Worker] = {}
    with ExitStack() as stack:
        for system in systems:
            workers[system] = open_worker(case, system)
            stack.callback(workers[system].close)
        losses = {name: worker.losses(CHECKED_STEPS + 1) for name, worker in workers.items()}
        check_agreement(case, losses)
        turns: dict[str, list[list[float]]] = {name: [] for name in workers}
        for _ in range(rounds):
            for name, worker in workers.items():
                turns[name].append(worker.turn(turn_seconds))
        compiled = {name: worker.compiled for name, worker in workers.items()}
    return summarize(case, turns, compiled, losses)


def check_agreement(case: str, losses: dict[str, list[float]]) -> None:
    """Compare every system's first losses with the first system's.

    The loss after 3 steps must agree to 1e-3. A step that forgets its update could pass that, so
    the progress made by the 3 steps must agree to 1e-2 as well. Raises Disagreement.
    """
    reference, *_ = losses
    expected = losses[reference]
    progress = expected[-1] - expected[0]
    # Both losses are float32 sums, so their difference is known to some of its rounding only.
    slack = PROGRESS_RTOL * abs(progress) + 1e-5 * abs(expected[0])
    for system, values in losses.items():
        same = (
            all(map(math.isfinite, values))
            and math.isclose(values[-1], expected[-1], rel_tol=LOSS_RTOL)
            and abs(values[-1] - values[0] - progress) <= slack
        )
        if not same:
            raise Disagreement(
                f"{case}: losses of the first steps differ:\n"
                f"  {reference}: {expected}\n  {system}: {values}"
            )


def summarize(
    case: str,
    turns: dict[str, list[list[float]]],
    compiled: dict[str, Compiled],
    losses: dict[str, list[float]],
) -> list[Row]:
    """A row per system from the step durations of its turns."""
    steps = {name: [step for turn in system for step in turn] for name, system in turns.items()}
    peers = [name for name in turns if name != "rlx"]
    best = min(peers, key=lambda name: median(steps[name]), default=None)

    def ratio(name: str) -> float | None:
        if best is None:
            return None
        pairs = zip(turns[name], turns[best], strict=True)
        return median(median(own) / median(other) for own, other in pairs)

    return [
        Row(
            case=case,
            system=name,
            median=median(steps[name]),
            minimum=min(steps[name]),
            steps=len(steps[name]),
            compiled=compiled[name],
            losses=losses[name],
            ratio=ratio(name),
            best_peer=best,
        )
        for name in turns
    ]
