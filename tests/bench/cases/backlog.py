"""Backlog: a mountain of waiting messages, and how long somebody waits who comes along while it is drained."""

from __future__ import annotations

import asyncio
import time

import uvloop

from shared.door import accept
from shared.pipeline import open_pipeline
from tests.bench.board import Sample, Variant
from tests.bench.drain import Progress
from tests.bench.ground import Ground
from tests.bench.keyturn import Deployment, an_inbound
from tests.bench.load import arrivals
from tests.bench.record import Watch
from tests.bench.sizes import Sizes

FRESH = 10_000_000  # the first number of keys that never spoke before
EVERY_SECONDS = 0.1


def variants(ground: Ground, sizes: Sizes, _: bool) -> list[Variant]:
    return [Variant("Keyturn journal SQLite", lambda: _measure(ground, sizes))]


def _measure(ground: Ground, sizes: Sizes) -> Sample:
    ground.fresh_redis()
    deployment = Deployment(ground, ground.fresh_database("sqlite"))
    waiting = sizes.backlog_keys * sizes.backlog_per_key
    deployment.fill(arrivals(sizes.backlog_keys, sizes.backlog_per_key))
    came: dict[int, float] = {}
    watched: list[Watch] = []

    def meanwhile(watch: Watch) -> None:
        watched.append(watch)
        came.update(uvloop.run(_come_along(deployment, watch, waiting)))

    drained = deployment.drain(waiting, meanwhile=meanwhile)
    ground.drop_database(deployment.database_url)
    waits = sorted(line.at - came[line.key] for line in watched[0].lines() if line.key in came)
    return {
        "p50_s": waits[len(waits) // 2],
        "p95_s": waits[int(len(waits) * 0.95)],
        "max_s": waits[-1],
        "newcomers": len(waits),
        "rate": drained.messages / drained.seconds,
        "violations": drained.violations,
    }


async def _come_along(deployment: Deployment, watch: Watch, waiting: int) -> dict[int, float]:
    """A message of a fresh key now and again, until the mountain is gone. When each came."""
    came: dict[int, float] = {}
    progress = Progress(watch)
    async with open_pipeline(deployment.settings()) as pipe:
        while watch.jobs() < waiting:
            progress.check()
            key = FRESH + len(came)
            came[key] = time.monotonic()
            await accept(pipe, an_inbound(key, 0))
            await asyncio.sleep(EVERY_SECONDS)
    return came
