"""The one measurement that every contestant goes through: the messages wait, the workers may begin, until all is done."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.bench.board import Sample
from tests.bench.ground import Ground
from tests.bench.processes import START_SECONDS, Measured
from tests.bench.record import VARIABLE, Watch

LOOK_SECONDS = 0.005
LIMIT_SECONDS = 900.0
STILL_SECONDS = 30.0  # without a single job
PROGRESS_SECONDS = 1.0  # between two looks for one: a look takes time from the worker under measurement


@dataclass(frozen=True, slots=True)
class Contest:
    """Worker processes and what they are to do. `idle` says, after the last job, whether nothing is left to record."""

    command: Sequence[str]
    env: Mapping[str, str]
    messages: int
    processes: int = 1
    limit_seconds: float = LIMIT_SECONDS
    idle: Callable[[], bool] = lambda: True
    meanwhile: Callable[[Watch], None] | None = None  # called once, when the workers may begin


@dataclass(frozen=True, slots=True)
class Drained:
    messages: int
    seconds: float
    cpu_seconds: float
    reads: int
    peak_mb: float
    violations: int
    retries: int

    def sample(self) -> Sample:
        done = max(self.messages, 1)
        return {
            "rate": self.messages / self.seconds,
            "cpu_ms": 1000 * self.cpu_seconds / done,
            "trips": self.reads / done,
            "violations": self.violations,
            "retries": self.retries,
            "peak_mb": self.peak_mb,
            "seconds": self.seconds,
        }


def drain(ground: Ground, contest: Contest, directory: Path) -> Drained:
    """Run the workers until every message has its line and they are idle, or the time is over."""
    watch = Watch(directory / "record")
    env = {**contest.env, VARIABLE: str(directory / "record")}
    workers = [
        Measured(contest.command, env, directory / f"worker-{number}.log", directory)
        for number in range(contest.processes)
    ]
    try:
        wait_until_ready(watch, workers)
        reads, cpu = ground.reads(), sum(worker.cpu_seconds() for worker in workers)
        begun = time.monotonic()
        watch.go()
        if contest.meanwhile is not None:
            contest.meanwhile(watch)
        progress = Progress(watch)
        while not (watch.jobs() >= contest.messages and contest.idle()):
            for worker in workers:
                worker.check()
            if time.monotonic() - begun > contest.limit_seconds:
                break
            progress.check(workers[0])
            time.sleep(LOOK_SECONDS)
        ended = time.monotonic()
        return Drained(
            messages=watch.jobs(),
            seconds=ended - begun,
            cpu_seconds=sum(worker.cpu_seconds() for worker in workers) - cpu,
            reads=ground.reads() - reads,
            peak_mb=max(worker.peak_mb() for worker in workers),
            violations=watch.violations(),
            retries=watch.retries(),
        )
    finally:
        for worker in workers:
            worker.process.kill()
            worker.process.wait()


class Progress:
    """Notices a standstill: nobody is there to mend it, as a housekeeper would, so waiting on is no use."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._signs, self._moved = watch.signs_of_life(), time.monotonic()
        self._looked = self._moved

    def check(self, worker: Measured | None = None) -> None:
        """RuntimeError when no job has come for long."""
        now = time.monotonic()
        if now - self._looked < PROGRESS_SECONDS:
            return
        self._looked, signs = now, self._watch.signs_of_life()
        if signs != self._signs:
            self._signs, self._moved = signs, now
        elif now - self._moved > STILL_SECONDS:
            words = worker.last_words() if worker is not None else ""
            raise RuntimeError(f"stands still after {self._watch.jobs()} messages: {words}")


def wait_until_ready(watch: Watch, workers: Sequence[Measured]) -> None:
    """Start-up ends here: every worker stands at its start."""
    deadline = time.monotonic() + START_SECONDS
    while watch.ready() < len(workers):
        for worker in workers:
            worker.check()
        if time.monotonic() > deadline:
            raise RuntimeError(f"not ready within {START_SECONDS:.0f} s: {workers[0].last_words()}")
        time.sleep(LOOK_SECONDS)
