"""Whether some test notices a mutant.

The tests run in two rounds, so that most mutants, which the nearest few tests notice, cost little. A failing test says
something only if it passes without the mutant: each is tried so once, and every time when it failed by running out of time.
So a slow machine catches no mutants, and a mutant that makes a test wait for ever is told from one that met a busy moment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from tests.mutants.mutant import Mutant
from tests.mutants.tree_copy import Run

FIRST_ROUND_SECONDS = 4.0


class Fate(Enum):
    CAUGHT = "caught"
    SURVIVED = "SURVIVED"
    TIMEOUT = "TIMEOUT"  # a test ran out of time, and without the mutant it did so, too: nobody knows


@dataclass(frozen=True, slots=True)
class Verdict:
    mutant: Mutant
    group: str
    fate: Fate
    why: str  # the test that failed, or why none did


class Runs(Protocol):
    def run(self, tests: Mapping[str, float], mutant: Mutant | None) -> Run:
        """Run tests with a mutant, or without any."""


class Judge:
    """Judges one mutant after the other, in one copy of the tree."""

    def __init__(self, copy: Runs) -> None:
        self._copy = copy
        self._sound: set[str] = set()  # tests that passed here at least once
        self._unsound: set[str] = set()  # tests that fail here without any mutant

    def judge(self, mutant: Mutant, group: str, tests: Mapping[str, float]) -> Verdict:
        """Each test is given with the seconds that it takes; they run in this order."""
        left = {test: seconds for test, seconds in tests.items() if test not in self._unsound}
        if not left:
            return Verdict(mutant, group, Fate.SURVIVED, "no test reaches it")
        passed, out_of_time = 0, list[str]()
        while left:
            round_of = left if passed else first_round(left)
            run = self._copy.run(round_of, mutant)
            passed += len(run.passed)
            self._sound |= {*run.passed}
            blamed = {test: tests[test] for test in run.blamed}
            if blamed and self._pass_without_mutant(blamed, again=run.out_of_time):
                why = "comes to no end: " if run.out_of_time else ""
                return Verdict(mutant, group, Fate.CAUGHT, why + next(iter(blamed)))
            if blamed and run.out_of_time:
                out_of_time += blamed
            done = {*run.passed, *blamed} if blamed else {*round_of}
            left = {test: seconds for test, seconds in left.items() if test not in done}
        if out_of_time:
            return Verdict(mutant, group, Fate.TIMEOUT, f"{out_of_time[0]} ran out of time, without the mutant too")
        return Verdict(mutant, group, Fate.SURVIVED, f"{passed} tests passed")

    def _pass_without_mutant(self, tests: Mapping[str, float], again: bool) -> bool:
        if self._sound >= tests.keys() and not again:
            return True
        run = self._copy.run(tests, None)
        self._sound |= {*run.passed}
        if run.blamed and not run.out_of_time:
            self._unsound |= {*run.blamed}
        return not run.blamed


def first_round(tests: Mapping[str, float]) -> dict[str, float]:
    """The first few, one at least."""
    chosen: dict[str, float] = {}
    for test, seconds in tests.items():
        if chosen and sum(chosen.values()) + seconds > FIRST_ROUND_SECONDS:
            break
        chosen[test] = seconds
    return chosen
