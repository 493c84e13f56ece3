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


def commits(evidence: Evidence) -> dict[str, float]:
    """When each turn was committed, on CLOCK_MONOTONIC."""
    wall_minus_monotonic = time.time() - time.monotonic()
    ends = {note.turn: note.at for note in evidence.noted if note.event == "end"}
    found = {}
    for turn in evidence.turns:
        at = turn["committed_at"] / 1000 - wall_minus_monotonic
        ended = ends.get(turn["id"], at)
        found[turn["id"]] = ended if abs(ended - at) > CLOCK_WRONG_SECONDS else at  # its worker's clock was stepped
    return found


def reply_seconds(evidence: Evidence) -> dict[str, float]:
    """By part: how long after the end of its turn it arrived, less the time in which a server or the platform was away."""
    ended = {note.turn: note.at for note in evidence.noted if note.event == "end"}
    arrived: dict[str, float] = {}
    for callback in evidence.platform.callbacks:
        if callback.taken:
            arrived.setdefault(callback.id, callback.at)
    found = {}
    for row in evidence.outbox:
        if row["turn_id"] in ended and row["idempotency_key"] in arrived:
            began, at = ended[row["turn_id"]], arrived[row["idempotency_key"]]
            found[row["idempotency_key"]] = at - began - _covered(evidence.away, began, at)
    return found


def _covered(spans: Sequence[tuple[float, float]], start: float, end: float) -> float:
    """How much of the time between start and end lies in spans that are sorted and may overlap."""
    covered, reached = 0.0, start
    for went, back in spans:
        covered += max(0.0, min(back, end) - max(went, reached))
        reached = max(reached, min(back, end))
    return covered


def after_kills(
    cluster: Cluster, evidence: Evidence, away: Sequence[tuple[float, float]] = ()
) -> tuple[list[float], list[float]]:
    """For every message whose turn a worker was running when it was killed: how long until its commit.

    All of them, and those that lost no second worker and waited for no server that was `away`. Not counted is what was
    committed before: the worker had been paused, and ran a turn that another had taken over.
    """
    at = commits(evidence)
    done = {row["id"]: at[row["turn_id"]] for row in evidence.inbox if row["turn_id"] in at}
    lost: dict[str, list[float]] = defaultdict(list)
    for life in (life for life in cluster.lives if life.member.role == "work" and life.status == -9):
        for message in running_when_killed(life, evidence):
            if done.get(message, 0.0) > died(life):
                lost[message].append(died(life))
    every = [done[message] - death for message, deaths in lost.items() for death in deaths]
    once = [
        done[message] - deaths[0]
        for message, deaths in lost.items()
        if len(deaths) == 1 and not any(went < done[message] and deaths[0] < back for went, back in away)
    ]
    return sorted(every), sorted(once)


def after_child_crashes(evidence: Evidence, away: Sequence[tuple[float, float]] = ()) -> list[float]:
    """For every turn that took its own process down, and nothing else: how long until the message's next attempt."""
    begins: dict[str, list[float]] = defaultdict(list)
    for note in evidence.noted:
        if note.event == "begin":
            begins[note.message].append(note.at)
    times = []
    for crash in (note for note in evidence.noted if note.event == "crash" and note.pid != note.worker):
        again = min((at for at in begins[crash.message] if at > crash.at), default=None)
        if again is not None and not any(went < again and crash.at < back for went, back in away):
            times.append(again - crash.at)
    return sorted(times)


def back_to_speed(evidence: Evidence, redis_away: Sequence[tuple[float, float]], load_ends: float) -> list[float]:
    """After each return of Redis, while load lasted: how long until as much was committed per second as before, or nearly."""
    times = sorted(commits(evidence).values())

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
    return sum(start <= at <= end for at in commits(evidence).values()) / (end - start)


def running_when_killed(life: Process, evidence: Evidence) -> set[str]:
    """The messages whose turns it had begun and not ended."""
    mine = [note for note in evidence.noted if note.worker == life.pid and life.started_at <= note.at <= died(life)]
    over = {note.turn for note in mine if note.over}
    return {note.message for note in mine if note.event == "begin" and note.turn not in over}


def died(life: Process) -> float:
    assert life.ended_at is not None
    return life.ended_at
