"""How soon things went on: after a worker's death, after a crash of a turn's own process, after Redis came back."""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence

from tests.faults.evidence import Evidence
from tests.support.cluster import Cluster, Process

WINDOW_SECONDS = 1.0  # over which throughput is measured
BEFORE_SECONDS = 5.0  # of which the mean is what throughput has to come back to
ENOUGH = 0.9
CLOCK_WRONG_SECONDS = 30.0  # by so much the worker's wall clock cannot be late for its own commit


def commits(evidence: Evidence) -> dict[str, list[tuple[float, int]]]:
    """Each key's commits in order: when, on CLOCK_MONOTONIC, and at which attempt."""
    wall_minus_monotonic = time.time() - time.monotonic()
    ends = {note.turn: note for note in evidence.noted if note.event == "end"}
    found: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for turn in evidence.turns:
        at, end = turn["committed_at"] / 1000 - wall_minus_monotonic, ends.get(turn["id"])
        if end is not None and abs(end.at - at) > CLOCK_WRONG_SECONDS:
            at = end.at  # its worker's clock was stepped
        found[turn["session_key"]].append((at, end.attempt if end is not None else 0))
    return {key: sorted(times) for key, times in found.items()}


def after_kills(cluster: Cluster, evidence: Evidence) -> tuple[list[float], list[float]]:
    """For every key whose turn a worker was running when it was killed: how long until its next commit.

    All of them, and those of keys that lost no second worker while they waited.
    """
    made = commits(evidence)
    every, once = [], []
    for life in (life for life in cluster.lives if life.member.role == "work" and life.status == -9):
        for key in running_when_killed(life, evidence):
            after = [(at, attempt) for at, attempt in made.get(key, []) if at > died(life)]
            if after:
                every.append(after[0][0] - died(life))
                if after[0][1] <= 2:
                    once.append(every[-1])
    return sorted(every), sorted(once)


def after_child_crashes(evidence: Evidence) -> list[float]:
    """For every turn that took its own process down, and nothing else: how long until the key's next attempt or commit."""
    made = commits(evidence)
    times = []
    for crash in (note for note in evidence.noted if note.event == "crash" and note.pid != note.worker):
        begins = [note.at for note in evidence.noted if note.key == crash.key and note.event == "begin"]
        next_ones = [at for at in [*begins, *(at for at, _ in made.get(crash.key, []))] if at > crash.at]
        if next_ones:
            times.append(min(next_ones) - crash.at)
    return sorted(times)


def back_to_speed(evidence: Evidence, redis_away: Sequence[tuple[float, float]], load_ends: float) -> list[float]:
    """After each return of Redis, while load lasted: how long until as much was committed per second as before, or nearly."""
    times = sorted(at for key_times in commits(evidence).values() for at, _ in key_times)

    def rate(start: float, end: float) -> float:
        return (bisect_right(times, end) - bisect_left(times, start)) / (end - start)

    found = []
    for went, back in redis_away:
        before = rate(went - BEFORE_SECONDS, went)
        if not before:
            continue
        at = back + WINDOW_SECONDS
        while at < load_ends and rate(at - WINDOW_SECONDS, at) < ENOUGH * before:
            at += 0.05
        if at < load_ends:
            found.append(at - back)
    return sorted(found)


def throughput(evidence: Evidence, start: float, end: float) -> float:
    """Commits per second between two times."""
    times = [at for key_times in commits(evidence).values() for at, _ in key_times]
    return sum(start <= at <= end for at in times) / (end - start)


def running_when_killed(life: Process, evidence: Evidence) -> set[str]:
    mine = [note for note in evidence.noted if note.worker == life.pid and life.started_at <= note.at <= died(life)]
    over = {note.turn for note in mine if note.over}
    return {note.key for note in mine if note.event == "begin" and note.turn not in over}


def died(life: Process) -> float:
    assert life.ended_at is not None
    return life.ended_at
