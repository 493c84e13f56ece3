"""Sharing: two workers, each with room for all of it, and how much of the work the lesser of them gets."""

from __future__ import annotations

import asyncio
import time
from functools import partial

import uvloop

from tests.bench.board import Sample, Variant
from tests.bench.ground import Ground
from tests.bench.keyturn import Deployment
from tests.bench.load import arrivals
from tests.bench.processes import START_SECONDS
from tests.bench.record import Watch
from tests.bench.sizes import Sizes

WORKERS = 2
TURN_SECONDS = 1.0
STAGGER_SECONDS = 0.15  # two workers never are ready at the same moment
WAITING = "a backlog, one begins 0.15 s later"
COMING = "messages that come to both"


def variants(ground: Ground, sizes: Sizes, _: bool) -> list[Variant]:
    return [Variant(name, partial(_measure, ground, sizes.shared_keys, name)) for name in (WAITING, COMING)]


def _measure(ground: Ground, keys: int, which: str) -> Sample:
    ground.fresh_redis()
    deployment = Deployment(ground, ground.fresh_database("sqlite"))
    if which == WAITING:
        deployment.fill(arrivals(keys, 1))
    watched: list[Watch] = []

    def meanwhile(watch: Watch) -> None:
        watched.append(watch)
        if which == COMING:
            uvloop.run(_until_both_wait(ground, deployment))
            deployment.fill(arrivals(keys, 1))

    deployment.drain(
        keys,
        processes=WORKERS,
        seconds=TURN_SECONDS,
        stagger_seconds=STAGGER_SECONDS,
        options=("--concurrency", str(2 * keys)),
        meanwhile=meanwhile,
    )
    ground.drop_database(deployment.database_url)
    shares = watched[0].by_process()
    return {"least_share": min(shares) / sum(shares) if len(shares) == WORKERS else 0.0, "turns": sum(shares)}


async def _until_both_wait(ground: Ground, deployment: Deployment) -> None:
    """All fetchers of both workers wait for a wake."""
    fetchers = WORKERS * 2 * deployment.settings().partitions  # of turns and control messages
    deadline = time.monotonic() + START_SECONDS
    while ground.redis.info("clients")["blocked_clients"] < fetchers:
        if time.monotonic() > deadline:
            raise RuntimeError("the workers do not wait for wakes")
        await asyncio.sleep(0.01)
