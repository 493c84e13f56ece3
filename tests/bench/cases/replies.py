"""Replies: from the outbox to the platform's receipt, while turns of one to four seconds fill the worker."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial

from shared import keys
from shared.lane_key import DELIVERIES, TURNS
from tests.bench.agent import SLEEP_VARIABLE, SPREAD_VARIABLE
from tests.bench.board import Sample, Variant
from tests.bench.callback import open_callback
from tests.bench.drain import Contest, drain
from tests.bench.ground import Ground
from tests.bench.keyturn import SECRET, WORK_ALL, Deployment
from tests.bench.load import arrivals
from tests.bench.sizes import Sizes

ROOMS = {"default concurrency": 200, "concurrency 10": 10}


def variants(ground: Ground, sizes: Sizes, _: bool) -> list[Variant]:
    return [Variant(name, partial(_measure, ground, sizes.busy_chats, room)) for name, room in ROOMS.items()]


def _measure(ground: Ground, chats: int, room: int) -> Sample:
    ground.fresh_redis()
    chats = min(chats, 3 * room)  # so that the rounds of a small room end
    with _callback() as url:
        changes = (("WEBHOOK__SECRETS", SECRET), ("WEBHOOK__CALLBACK_URL", url), ("CONCURRENCY", str(room)))
        deployment = Deployment(ground, ground.fresh_database("sqlite"), changes=changes)
        deployment.fill(arrivals(chats, 1))
        contest = Contest(
            command=WORK_ALL,
            env=deployment.environment(**{SLEEP_VARIABLE: "1", SPREAD_VARIABLE: "3"}),
            messages=chats,
            idle=lambda: not any(ground.redis.zcard(keys.due(lane)) for lane in (TURNS, DELIVERIES)),
        )
        drain(ground, contest, ground.fresh_directory("replies"))
    waits = _waits(deployment.database_url)
    ground.drop_database(deployment.database_url)
    return {
        "p50_ms": waits[len(waits) // 2],
        "p95_ms": waits[int(len(waits) * 0.95)],
        "max_ms": waits[-1],
        "replies": len(waits),
    }


def _waits(database_url: str) -> list[float]:
    """For each reply, the milliseconds from its commit to its receipt."""
    with closing(sqlite3.connect(database_url.removeprefix("sqlite:///"))) as database:
        found = database.execute("SELECT sent_at - created_at FROM outbox WHERE state = 'sent'").fetchall()
    return sorted(float(wait) for (wait,) in found)


@contextmanager
def _callback() -> Iterator[str]:
    """A platform that takes everything, in a thread of its own."""
    ready, over = threading.Event(), threading.Event()
    urls: list[str] = []

    async def serve() -> None:
        async with open_callback() as callback:
            urls.append(callback.url)
            ready.set()
            await asyncio.to_thread(over.wait)

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    ready.wait()
    try:
        yield urls[0]
    finally:
        over.set()
        thread.join()
