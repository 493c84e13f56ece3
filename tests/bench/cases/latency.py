"""Latency: from a webhook request to the reply at the callback, through real processes, at a steady pace."""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import Sequence
from functools import partial
from urllib.parse import urlsplit

import uvloop
from pydantic import SecretStr

from shared import signing
from tests.bench.accepting import signed
from tests.bench.board import Sample, Variant
from tests.bench.callback import Callback, Sender, open_callback
from tests.bench.ground import Ground
from tests.bench.keyturn import SECRET, Deployment
from tests.bench.processes import Measured
from tests.bench.sizes import Sizes

KEYTURN = (sys.executable, "-m", "keyturn.cli")
CHATS = 500
WARM_UP = 20  # messages
LAST_SECONDS = 30.0  # for replies that are still on their way


def variants(ground: Ground, sizes: Sizes, _: bool) -> list[Variant]:
    return [
        Variant(f"{rate}/s, journal SQLite", partial(_measure, ground, sizes.rate_seconds, rate))
        for rate in sizes.rates
    ]


def _measure(ground: Ground, seconds: float, rate: int) -> Sample:
    ground.fresh_redis()
    url = ground.fresh_database("sqlite")
    sample = uvloop.run(through(ground, url, rate, seconds))
    ground.drop_database(url)
    return sample


async def through(
    ground: Ground, database_url: str, rate: int, seconds: float, work: Sequence[str] = KEYTURN
) -> Sample:
    """Start a receiver, a worker (`work` is how) and a housekeeper, and send at that pace for so long."""
    directory = ground.fresh_directory("latency")
    async with open_callback() as callback:
        changes = (("WEBHOOK__SECRETS", SECRET), ("WEBHOOK__CALLBACK_URL", callback.url), ("AGENT", "echo"))
        env = Deployment(ground, database_url, changes=changes).environment()
        roles = {"receive": ("--port", "0"), "work": (), "housekeep": ()}
        running = {
            role: Measured((*(work if role == "work" else KEYTURN), role, *args), env, directory / role, directory)
            for role, args in roles.items()
        }
        try:
            sender = Sender(urlsplit(await asyncio.to_thread(running["receive"].ready_url)).port or 0)
            await _send(sender, callback, "warm", WARM_UP, 10)
            before = {role: process.cpu_seconds() for role, process in running.items()}
            accepted: list[float] = []
            times = await _send(sender, callback, "evt", int(rate * seconds), rate, accepted)
            cpu = {role: process.cpu_seconds() - before[role] for role, process in running.items()}
            sender.close()
        finally:
            for process in running.values():
                process.stop()
    times.sort()
    accepted.sort()
    return {
        "p50_ms": 1000 * times[len(times) // 2],
        "p99_ms": 1000 * times[int(len(times) * 0.99)],
        "max_ms": 1000 * times[-1],
        "accept_p99_ms": 1000 * accepted[int(len(accepted) * 0.99)],
        "receive_cpu_ms": 1000 * cpu["receive"] / len(times),
        "work_cpu_ms": 1000 * cpu["work"] / len(times),
    }


async def _send(
    sender: Sender, callback: Callback, name: str, count: int, rate: int, accepted: list[float] | None = None
) -> list[float]:
    """Post so many at that pace, and give each one's time until its reply; `accepted` gets that until its 2xx."""
    key = signing.decode_secret(SecretStr(SECRET))
    chance = random.Random(1)
    start = time.perf_counter() + 0.05
    due: dict[str, float] = {}
    posts = []

    async def post(event: str, at: float) -> None:
        await sender.post(*signed(key, event, chance.randrange(CHATS), "hello"))
        if accepted is not None:
            accepted.append(time.perf_counter() - at)

    for n in range(count):
        at = start + n / rate
        await asyncio.sleep(max(0.0, at - time.perf_counter()))
        event = f"{name}_{n}"
        due[event] = at
        posts.append(asyncio.create_task(post(event, at)))
    await asyncio.gather(*posts)
    async with asyncio.timeout(LAST_SECONDS):
        while not due.keys() <= callback.came.keys():
            await asyncio.sleep(0.01)
    return [callback.came[event] - at for event, at in due.items()]
