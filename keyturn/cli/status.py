"""`keyturn status`: how the deployment is, in one sentence, and the numbers behind it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import typer

from keyturn.cli import show
from keyturn.cli.deployment import ask

if TYPE_CHECKING:
    from shared.pipeline import Pipeline
    from shared.reading.stage_times import StageTimes
    from shared.reading.status import DeploymentStatus

NOT_KNOWN = "not known"


def status(json: show.Json = False) -> None:
    """Say how the deployment is and what to do about it. The exit code is 1 while it cannot answer, else 0."""
    from shared.reading.verdict import Mood

    found = ask(_status)
    if json:
        show.as_json(found)
    else:
        typer.echo(found.verdict)
        typer.echo()
        show.record(numbers(found))
    if found.mood is Mood.BAD:
        raise typer.Exit(1)


async def _status(pipe: Pipeline) -> DeploymentStatus:
    from datetime import UTC, datetime

    from shared.reading.drained import drained_now
    from shared.reading.overview import in_time, overview
    from shared.reading.stage_times import stage_times
    from shared.reading.status import status_of

    seen, stages, drained = await asyncio.gather(
        overview(pipe), in_time(stage_times(pipe.store)), in_time(drained_now(pipe))
    )
    return status_of(seen, datetime.now(UTC), stages, drained or ())


def numbers(found: DeploymentStatus) -> dict[str, str]:
    """The numbers for a person, by name."""
    oldest = f", the oldest {span(found.ready_seconds)}" if found.ready and found.ready_seconds is not None else ""
    silent = f", {found.workers_silent} silent" if found.workers_silent else ""
    slots = f" of {found.slots:,} slots" if found.slots is not None else ""
    alive = f"{_in_redis(found, found.workers_alive)} alive" if found.workers_alive is not None else NOT_KNOWN
    drained = {"Redis server drained": "; ".join(f"{one.name} {one.verdict}" for one in found.drained)}
    return {
        "wait for a worker": f"{_in_redis(found, found.ready)}{oldest}",
        "turns running": f"{_in_redis(found, found.running)}{slots}",
        "wait for their own conversation": f"{found.behind:,}" if found.behind is not None else NOT_KNOWN,
        "wait for their next attempt": _in_redis(found, found.delayed),
        "wait behind a pause": f"{_in_redis(found, found.paused)}, {_in_force(found.pauses)}",
        "messages not ended": found.messages_waiting.text if found.messages_waiting is not None else NOT_KNOWN,
        "replies not sent": found.replies_waiting.text if found.replies_waiting is not None else NOT_KNOWN,
        "questions to people": found.questions.text if found.questions is not None else NOT_KNOWN,
        "dead letters": found.dead_letters.text if found.dead_letters is not None else NOT_KNOWN,
        "workers": f"{alive}{silent}",
        "spent today": _spent(found),
        **(drained if found.drained else {}),
        **{f"stage: {one.stage}": _took(one) for one in found.stages or ()},
    }


def _in_redis(found: DeploymentStatus, count: int | None) -> str:
    """A number that Redis knows. Servers that do not answer may hold more."""
    if count is None:
        return NOT_KNOWN
    return f"at least {count:,}" if found.redis_away else f"{count:,}"


def _took(stage: StageTimes) -> str:
    return f"half within {short_span(stage.p50_ms)}, 95 % within {short_span(stage.p95_ms)}"


def short_span(ms: int) -> str:
    """A length of time that may be below a second: 12ms, 9.1s, 3m12s."""
    return f"{ms}ms" if ms < 1000 else span(ms / 1000)


def _in_force(pauses: int | None) -> str:
    if pauses is None:
        return "pauses not known"
    return "1 pause in force" if pauses == 1 else f"{pauses:,} pauses in force" if pauses else "nothing is paused"


def _spent(found: DeploymentStatus) -> str:
    if found.tokens_today is None:
        return NOT_KNOWN
    price = f", {found.cost_today_usd:.2f} USD" if found.cost_today_usd is not None else ""
    return f"{found.tokens_today:,} tokens{price}"


def span(seconds: float) -> str:
    """A length of time in its two largest units, in at most six characters: 9.1s, 41s, 3m12s, 2h05m, 3d04h."""
    whole = int(seconds)
    if whole < 60:
        return f"{seconds:.1f}s" if 0 < seconds < 10 else f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    if whole < 86_400:
        return f"{whole // 3600}h{whole % 3600 // 60:02}m"
    return f"{min(whole // 86_400, 99)}d{whole % 86_400 // 3600:02}h"
