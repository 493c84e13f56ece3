"""Round trips: how often Redis hears of one message while nothing else goes on, so that no two share a round trip."""

from __future__ import annotations

import asyncio
import time

import uvloop

from shared.door import accept
from shared.pipeline import open_pipeline
from tests.bench.board import Sample, Variant
from tests.bench.drain import STILL_SECONDS
from tests.bench.ground import Ground
from tests.bench.keyturn import Deployment, an_inbound
from tests.bench.record import Watch
from tests.bench.sizes import Sizes

MOST = 200
IDLE_SECONDS = 2.0


def variants(ground: Ground, sizes: Sizes, _: bool) -> list[Variant]:
    return [Variant("Keyturn journal SQLite", lambda: _measure(ground, min(sizes.accepts, MOST)))]


def _measure(ground: Ground, messages: int) -> Sample:
    ground.fresh_redis()
    deployment = Deployment(ground, ground.fresh_database("sqlite"))
    accepting = uvloop.run(_accept_only(ground, deployment, messages))
    ground.drop_database(deployment.database_url)
    ground.fresh_redis()
    deployment = Deployment(ground, ground.fresh_database("sqlite"))
    counted: Sample = {}

    def meanwhile(watch: Watch) -> None:
        counted.update(uvloop.run(_one_by_one(ground, deployment, watch, messages)))

    deployment.drain(messages, meanwhile=meanwhile)
    ground.drop_database(deployment.database_url)
    return {"accept_trips": accepting, "run_trips": counted["trips"] - accepting, "ms": counted["ms"]}


async def _accept_only(ground: Ground, deployment: Deployment, messages: int) -> float:
    async with open_pipeline(deployment.settings()) as pipe:
        await accept(pipe, an_inbound(0, 0))  # connections and scripts
        before = ground.reads()
        for n in range(1, messages):
            await accept(pipe, an_inbound(n, 0))
        return (ground.reads() - before - 1) / (messages - 1)


async def _one_by_one(ground: Ground, deployment: Deployment, watch: Watch, messages: int) -> Sample:
    """Accept a message, wait until its turn is acknowledged, and so on. What the idle worker reads anyway is taken off."""
    async with open_pipeline(deployment.settings()) as pipe:
        await accept(pipe, an_inbound(0, 0))  # connections and scripts
        await _until_done(deployment, watch, 1)
        before = ground.reads()
        await asyncio.sleep(IDLE_SECONDS)
        idle_per_second = (ground.reads() - before) / IDLE_SECONDS
        before, begun, asked = ground.reads(), time.monotonic(), 0
        for n in range(1, messages):
            await accept(pipe, an_inbound(n, 0))
            asked += await _until_done(deployment, watch, n + 1)
        seconds = time.monotonic() - begun
        reads = ground.reads() - before - 1 - asked - idle_per_second * seconds
    done = messages - 1
    return {"trips": reads / done, "ms": 1000 * seconds / done}


async def _until_done(deployment: Deployment, watch: Watch, messages: int) -> int:
    """How often this itself asked Redis."""
    asked, deadline = 0, time.monotonic() + STILL_SECONDS
    while True:
        if watch.jobs() >= messages:
            asked += 1
            if deployment.idle():
                return asked
        if time.monotonic() > deadline:
            raise RuntimeError("the worker stands still")
        await asyncio.sleep(0.001)
