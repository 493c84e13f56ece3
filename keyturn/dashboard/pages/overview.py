"""The overview: the verdict, the numbers that lead to lists, workers and platforms."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from starlette.responses import Response

from keyturn.dashboard.chart import Chart, chart, stage_bars
from keyturn.dashboard.desk import Desk, Visit
from keyturn.dashboard.watch import Watch
from shared.lane_key import CONTROL, DELIVERIES, TURNS
from shared.pause_scope import platform_scope
from shared.platforms import facts_of
from shared.reading.overview import Overview
from shared.reading.stage_times import WHOLE
from shared.reading.verdict import verdict
from shared.settings import Settings

WORKERS_SHOWN = 12


async def show(desk: Desk, visit: Visit) -> Response:
    return desk.page("overview.html", visit, **numbers(await desk.watch.look(), desk))


def numbers(seen: Overview, desk: Desk) -> dict[str, Any]:
    """What the overview shows; the same for the whole page and for what follows it live."""
    return {
        "verdict": verdict(seen, datetime.now(UTC)),
        "seen": seen,
        "turns": seen.lane(TURNS),
        "deliveries": seen.lane(DELIVERIES),
        "control": seen.lane(CONTROL),
        "stored": seen.stored,
        "workers": seen.workers[:WORKERS_SHOWN],
        "more_workers": max(0, len(seen.workers) - WORKERS_SHOWN),
        "slots": sum(worker.capacity for worker in seen.workers if worker.alive),
        "platforms": platforms(desk.pipe.settings),
        "paused": desk.watch.pauses,
        "recent": desk.watch.recent,
        "charts": _charts(desk.watch),
        "stages": stage_bars(desk.watch.stages),
        "whole": next((stage for stage in desk.watch.stages if stage.stage == WHOLE), None),
        "rate": desk.watch.samples[-1].parts_per_second if desk.watch.samples else None,
    }


def platforms(settings: Settings) -> list[tuple[str, str, str]]:
    """The platforms that are on, how their messages come in, and the scope of a pause of each."""
    listening = settings.listening
    return [(facts_of(name).title, _way(name, listening), platform_scope(name).text) for name in settings.connected]


def _way(name: str, listening: tuple[str, ...]) -> str:
    if name in listening:
        return "held connection"
    return "HTTP request" if facts_of(name).receives else "terminal"


def _charts(watch: Watch) -> dict[str, Chart | None]:
    samples = list(watch.samples)
    return {
        "rate": chart([_rounded(one.parts_per_second) for one in samples], "Replies per second, last hour"),
        "running": chart([one.running for one in samples], "Turns running, last hour"),
        "ready": chart([one.ready for one in samples], "Conversations waiting for a worker, last hour"),
        "waiting": chart([one.waiting for one in samples], "Messages not ended, last hour"),
    }


def _rounded(rate: float | None) -> float | None:
    return None if rate is None else round(rate, 1)
