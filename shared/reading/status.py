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
    """The verdict and the numbers behind it. None: the database is away, so the number is not known."""

    mood: Mood
    verdict: str
    at: datetime
    ready: int  # conversations that wait for a worker
    ready_seconds: float  # how long the first of them has waited
    running: int  # turns
    delayed: int  # conversations that wait for their next attempt
    behind: int | None  # messages that wait for an earlier one of their own conversation
    deliveries_ready: int
    deliveries_running: int
    messages_waiting: BoundedCount | None
    replies_waiting: BoundedCount | None
    dead_letters: BoundedCount | None
    workers_alive: int
    workers_silent: int
    slots: int
    overdue: int
    redis_away: int
    database_away: bool
    tokens_today: int | None
    cost_today_usd: Decimal | None  # None also where no price is known
    paused: int = 0  # keys that wait behind a pause: conversations, and chats with replies
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
    said = verdict(seen, now)
    alive = [worker for worker in seen.workers if worker.alive]
    at_head = turns.ready + turns.running + turns.delayed + turns.paused
    return DeploymentStatus(
        mood=said.mood,
        verdict=said.text,
        at=seen.at,
        ready=turns.ready,
        ready_seconds=ready_seconds(seen),
        running=turns.running,
        delayed=turns.delayed,
        behind=max(0, stored.messages.count - at_head) if stored is not None else None,
        deliveries_ready=deliveries.ready,
        deliveries_running=deliveries.running,
        messages_waiting=stored.messages if stored is not None else None,
        replies_waiting=stored.replies if stored is not None else None,
        dead_letters=stored.dead_letters if stored is not None else None,
        workers_alive=len(alive),
        workers_silent=len(seen.workers) - len(alive),
        slots=sum(worker.capacity for worker in alive),
        overdue=seen.overdue,
        redis_away=seen.redis_away,
        database_away=stored is None,
        tokens_today=stored.today.total if stored is not None else None,
        cost_today_usd=stored.today.cost_usd if stored is not None and stored.today.cost != "unknown" else None,
        paused=seen.paused,
        pauses=len(stored.pauses) if stored is not None else None,
        questions=stored.questions if stored is not None else None,
        stages=stages,
        drained=drained,
    )


def ready_seconds(seen: Overview) -> float:
    """How long the first conversation that is ready has waited for a worker."""
    since = seen.lane(TURNS).ready_since
    return max(0.0, (seen.at - since).total_seconds()) if since is not None else 0.0
