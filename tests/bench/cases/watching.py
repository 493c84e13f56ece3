"""Watching: how long an operator's looks take while very many keys wait, very many sessions are stored and a worker works.

Each figure is the slowest of several looks, each of them fresh: the pages are asked when what they share is too old. Pages and
/metrics are asked over HTTP; `top` and `status` are asked in this process, without the start of an interpreter. `live` is the CPU
time that one open page costs the dashboard and both stores, in percent of a core, while no worker runs.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import median

import httpx
import uvloop

from keyturn.cli.top.look import look
from keyturn.dashboard.access import Role
from keyturn.dashboard.watch import FRESH_SECONDS
from shared.pipeline import Pipeline, open_pipeline
from shared.reading.conversation_query import parse_query
from shared.reading.overview import overview
from shared.reading.status import status_of
from tests.bench.agent import SLEEP_VARIABLE
from tests.bench.board import Sample, Variant
from tests.bench.cases.latency import KEYTURN
from tests.bench.crowd import fill_sessions
from tests.bench.drain import wait_until_ready
from tests.bench.ground import Ground
from tests.bench.keyturn import SECRET, WORK, Deployment
from tests.bench.load import arrivals
from tests.bench.processes import TICKS, Measured
from tests.bench.record import VARIABLE, Watch
from tests.bench.sizes import Sizes
from tests.support.dashboard import Visitor

KINDS = {"SQLite": "sqlite", "PostgreSQL": "postgres"}
TURN_SECONDS, AT_ONCE = 0.1, 24  # 200 messages a second and a little more
BEGUN = 20  # messages that the worker has done before anybody looks
LOOKS = {
    "overview_ms": "/",
    "list_ms": "/conversations",
    "filter_ms": "/conversations?q=state:awake+age%3E1s",
    "sessions_ms": "/sessions",
    "search_ms": "/sessions?q=some+time+ago",
}
Look = Callable[[], Awaitable[object]]


def variants(ground: Ground, sizes: Sizes, _: bool) -> list[Variant]:
    return [Variant(name, partial(_measure, ground, sizes, kind)) for name, kind in KINDS.items()]


def _measure(ground: Ground, sizes: Sizes, kind: str) -> Sample:
    ground.fresh_redis()
    changes = (("WEBHOOK__SECRETS", SECRET), ("CONCURRENCY", str(AT_ONCE)))
    deployment = Deployment(ground, ground.fresh_database(kind), changes=changes)
    asyncio.run(fill_sessions(deployment.database_url, kind, sizes.stored_sessions))
    deployment.fill(arrivals(sizes.waiting_keys, 1))
    sample = uvloop.run(_looked_at(deployment, sizes))
    ground.drop_database(deployment.database_url)
    return sample


async def _looked_at(deployment: Deployment, sizes: Sizes) -> Sample:
    directory = deployment.ground.fresh_directory("watching")
    watch = Watch(directory / "record")
    env = deployment.environment(**{VARIABLE: str(directory / "record"), SLEEP_VARIABLE: str(TURN_SECONDS)})
    commands = {
        "work": WORK,
        "housekeep": (*KEYTURN, "housekeep"),
        "receive": (*KEYTURN, "receive", "--port", "0"),
        "dashboard": (*KEYTURN, "dashboard", "--port", "0"),
    }
    running = {name: Measured(command, env, directory / name, directory) for name, command in commands.items()}
    try:
        wait_until_ready(watch, [running["work"]])
        urls = [await asyncio.to_thread(running[name].ready_url) for name in ("dashboard", "receive")]
        async with (
            open_pipeline(deployment.settings()) as pipe,
            httpx.AsyncClient(base_url=urls[0], timeout=60) as client,
        ):
            visitor = Visitor(pipe, client)
            await visitor.enter(Role.ADMIN)
            looks = _looks(visitor, f"{urls[1]}/metrics")
            await _rounds(looks, 1)  # connections, templates
            watch.go()
            while watch.jobs() < min(BEGUN, sizes.waiting_keys):
                running["work"].check()
                await asyncio.sleep(0.01)
            began, before = time.monotonic(), watch.jobs()
            found = await _rounds(looks, sizes.looks)
            rate = (watch.jobs() - before) / (time.monotonic() - began)
            for name in ("work", "housekeep", "receive"):
                running[name].stop()
            live = await _cost_of_a_live_page(client, sizes.live_seconds)
    finally:
        for process in running.values():
            process.stop()
    slowest = max(times[-1] for times in found.values())
    return {"slowest_ms": slowest, **{name: times[-1] for name, times in found.items()}, "live": live, "rate": rate}


def _looks(visitor: Visitor, metrics_url: str) -> dict[str, Look]:
    async def page(path: str) -> None:
        answer = await visitor.client.get(path)
        answer.raise_for_status()

    pipe: Pipeline = visitor.pipe

    async def status() -> None:
        status_of(await overview(pipe), datetime.now(UTC))

    return {
        **{name: partial(page, path) for name, path in LOOKS.items()},
        "metrics_ms": partial(page, metrics_url),
        "top_ms": lambda: look(pipe, parse_query("")),
        "status_ms": status,
    }


async def _rounds(looks: dict[str, Look], rounds: int) -> dict[str, list[float]]:
    """How long each look took, in milliseconds, the fastest first."""
    found: dict[str, list[float]] = {name: [] for name in looks}
    for _ in range(rounds):
        for name, one in looks.items():
            if name == "overview_ms":
                await asyncio.sleep(FRESH_SECONDS * 1.1)
            begun = time.perf_counter()
            await one()
            found[name].append(1000 * (time.perf_counter() - begun))
    return {name: sorted(times) for name, times in found.items()}


async def _cost_of_a_live_page(client: httpx.AsyncClient, seconds: float) -> float:
    """Percent of a core: with the page open, less what the same processes need without it. The middle of three."""
    costs = []
    for _ in range(3):
        idle = await _used(seconds)
        async with client.stream("GET", "/live") as answer:
            answer.raise_for_status()
            reading = asyncio.create_task(_read(answer))
            busy = await _used(seconds)
            reading.cancel()
            await asyncio.wait([reading])
        costs.append(100 * (busy - idle) / seconds)
    return max(0.0, median(costs))


async def _read(answer: httpx.Response) -> None:
    async for _ in answer.aiter_raw():
        pass


async def _used(seconds: float) -> float:
    """CPU time that all processes below this one use in so long."""
    before = _cpu_below(os.getpid())
    await asyncio.sleep(seconds)
    return _cpu_below(os.getpid()) - before


def _cpu_below(root: int) -> float:
    parents: dict[int, list[int]] = {}
    used: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        pid = int(stat.parent.name)
        parents.setdefault(int(fields[1]), []).append(pid)
        used[pid] = sum(int(ticks) for ticks in fields[11:15])
    below, left = 0, list(parents.get(root, ()))
    while left:
        pid = left.pop()
        below += used[pid]
        left += parents.get(pid, ())
    return below / TICKS
