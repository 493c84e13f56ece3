"""The deployment as a list of numbers under its verdict: what `status` and `top` show, and what their JSON holds."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from shared.lane_key import DELIVERIES, TURNS
from shared.reading.drained import RedisServerNow
from shared.reading.overview import BoundedCount, Overview
from shared.reading.stage_times import StageTimes
from shared.reading.verdict import Mood, verdict
from shared.value import value


@value
class DeploymentStatus:
    """The verdict and the numbers behind it. None: its store is away, so the number is not known. While some of several Redis servers
    are away, what Redis knows is as much as is given, or more."""

    mood: Mood
    verdict: str
    at: datetime
    ready: int | None  # conversations that wait for a worker
    ready_seconds: float | None  # how long the first of them has waited
    running: int | None  # turns
    delayed: int | None  # conversations that wait for their next attempt
    # Messages that wait for an earlier one of their own conversation. None also where too many wait to be counted.
    behind: int | None
    deliveries_ready: int | None
    deliveries_running: int | None
    messages_waiting: BoundedCount | None
    replies_waiting: BoundedCount | None
    dead_letters: BoundedCount | None
    workers_alive: int | None
    workers_silent: int | None
    slots: int | None
    overdue: int | None
    redis_away: int
    database_away: bool
    tokens_today: int | None
    cost_today_usd: Decimal | None  # None also where no price is known
    paused: int | None = 0  # keys that wait behind a pause: conversations, and chats with replies
    pauses: int | None = 0  # in force
    questions: BoundedCount | None = None  # that wait for a person
    stages: tuple[StageTimes, ...] | None = None  # of the messages that were answered last
    drained: tuple[RedisServerNow, ...] = ()  # Redis servers that get no keys


def status_of(
    seen: Overview,
    now: datetime,
    stages: tuple[StageTimes, ...] | None = None,
    drained: tuple[RedisServerNow, ...] = (),
) -> DeploymentStatus:
    """The status that an overview, the times of the stages and the drained servers stand for."""
    turns, deliveries, stored = seen.lane(TURNS), seen.lane(DELIVERIES), seen.stored
    said, gone = verdict(seen, now), seen.redis_gone
    alive = [worker for worker in seen.workers if worker.alive]
    return DeploymentStatus(
        mood=said.mood,
        verdict=said.text,
        at=seen.at,
        ready=None if gone else turns.ready,
        ready_seconds=None if gone else seen.ready_seconds,
        running=None if gone else turns.running,
        delayed=None if gone else turns.delayed,
        behind=seen.behind,
        deliveries_ready=None if gone else deliveries.ready,
        deliveries_running=None if gone else deliveries.running,
        messages_waiting=stored.messages if stored is not None else None,
        replies_waiting=stored.replies if stored is not None else None,
        dead_letters=stored.dead_letters if stored is not None else None,
        workers_alive=None if gone else len(alive),
        workers_silent=None if gone else len(seen.workers) - len(alive),
        slots=None if gone else sum(worker.capacity for worker in alive),
        overdue=None if gone else seen.overdue,
        redis_away=seen.redis_away,
        database_away=stored is None,
        tokens_today=stored.today.total if stored is not None else None,
        cost_today_usd=stored.today.cost_usd if stored is not None and stored.today.cost != "unknown" else None,
        paused=None if gone else seen.paused,
        pauses=len(stored.pauses) if stored is not None else None,
        questions=stored.questions if stored is not None else None,
        stages=stages,
        drained=drained,
    )
