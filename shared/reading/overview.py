"""The deployment at one glance. Every count stops at a bound, so a look costs the same however much waits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import TypeVar

import redis

from shared import keys
from shared.clock import moment, now_ms
from shared.errors import Unavailable
from shared.lane_key import TURNS
from shared.pause_scope import PauseScope, stored_scope
from shared.pipeline import Pipeline
from shared.reading.queues import QueueState, queues_of
from shared.reading.signs import no_housekeeper, sign_age
from shared.reading.workers import WorkerState, each_once, workers_of
from shared.redis_servers import RedisServer
from shared.store.usage import SpentInAll, day_of
from shared.value import value

BOUND = 10_000  # counts stop here
ANSWER_SECONDS = 3.0  # a store that takes longer counts as away
DELAYED_LOOKED_AT = 100  # keys from each end of those that are not idle, to say why they wait
OVERDUE = timedelta(seconds=5)  # a housekeeper looks twice a second
T = TypeVar("T")


@value
class BoundedCount:
    """A number of rows, counted up to BOUND, and the time of the oldest of all."""

    count: int
    oldest: datetime | None = None

    @property
    def text(self) -> str:
        return f"more than {BOUND:,}" if self.count > BOUND else f"{self.count:,}"


@value
class LaneNow:
    """A lane now. `ready` keys wait for a worker, `delayed` ones for their next attempt, `paused` ones for an operator."""

    lane: str
    ready: int
    ready_since: datetime | None
    running: int
    delayed: int
    paused: int = 0


@value
class DelayedTurns:
    """Why conversations wait for their next attempt, by those of them that a look found. `away_since`: the provider of a model
    does not answer one of them, on Redis' clock. `failed`: an attempt of one failed. Neither: they were asked to wait."""

    keys: int
    next_at: datetime  # when the first of them goes on
    away_since: datetime | None = None
    failed: bool = False


@value
class StoredNow:
    """What the database says waits, and what is paused. `newest_part` grows with every reply part."""

    messages: BoundedCount
    replies: BoundedCount
    dead_letters: BoundedCount
    newest_part: int
    today: SpentInAll
    pauses: tuple[PauseScope, ...] = ()  # in force
    questions: BoundedCount = BoundedCount(0)  # that wait for a person


@value
class Overview:
    """The deployment at a moment. `stored` is None while the database is away; Redis servers that are away and not drained are
    counted in `redis_away`, of `redis_servers` that are not drained, and what they hold is left out. `journaled`: a message is
    accepted when the database has it (DURABILITY)."""

    at: datetime
    lanes: tuple[LaneNow, ...]
    workers: tuple[WorkerState, ...]
    redis_away: int
    overdue: int  # keys that a housekeeper should have looked at
    stored: StoredNow | None
    queues: tuple[QueueState, ...] = ()
    redis_servers: int = 1
    journaled: bool = True
    delayed: DelayedTurns | None = None
    no_housekeeper: str | None = None  # that none runs, in words

    @property
    def redis_gone(self) -> bool:
        """Whether no Redis server answers: then nothing of what they hold is known."""
        return bool(self.redis_away) and self.redis_away >= self.redis_servers

    @property
    def paused(self) -> int:
        """Keys that wait behind a pause: conversations, and chats with replies."""
        return sum(lane.paused for lane in self.lanes)

    @property
    def behind(self) -> int | None:
        """Messages that wait for an earlier one of their own conversation. None: not known, for a store is away or more wait
        than are counted."""
        if self.stored is None or self.redis_away or self.stored.messages.count > BOUND:
            return None
        turns = self.lane(TURNS)
        return max(0, self.stored.messages.count - turns.ready - turns.running - turns.delayed - turns.paused)

    @property
    def ready_seconds(self) -> float:
        """How long the first conversation that is ready has waited for a worker."""
        since = self.lane(TURNS).ready_since
        return max(0.0, (self.at - since).total_seconds()) if since is not None else 0.0

    def lane(self, name: str) -> LaneNow:
        return next((lane for lane in self.lanes if lane.lane == name), LaneNow(name, 0, None, 0, 0))


async def overview(pipe: Pipeline) -> Overview:
    """A look at all stores at once. A store that does not answer within ANSWER_SECONDS is left out, and named."""
    looks = [in_time(_server(pipe, server)) for server in pipe.servers.all]
    *servers, stored = await asyncio.gather(*looks, in_time(stored_now(pipe)))
    there = [found for found in servers if isinstance(found, _ServerNow)]
    needed = [server not in pipe.servers.draining for server in pipe.servers.all]
    return Overview(
        at=moment(now_ms()),
        lanes=tuple(_lane(name, there) for name in (lane.name for lane in pipe.lanes)),
        workers=tuple(each_once(one for found in there for one in found.workers)),
        redis_away=sum(found is None and is_needed for found, is_needed in zip(servers, needed, strict=True)),
        overdue=sum(found.overdue for found in there),
        stored=stored if isinstance(stored, StoredNow) else None,
        queues=tuple(queue for found in there for queue in found.queues),
        redis_servers=sum(needed),
        journaled=pipe.settings.durability == "journal",
        delayed=_together([found.delayed for found in there if found.delayed is not None]),
        no_housekeeper=next((found.no_housekeeper for found in there if found.no_housekeeper is not None), None),
    )


@value
class _ServerNow:
    queues: tuple[QueueState, ...]
    awake: dict[str, int]  # keys that are not idle and not paused, by lane
    paused: dict[str, int]
    workers: tuple[WorkerState, ...]
    overdue: int
    delayed: DelayedTurns | None
    no_housekeeper: str | None


async def in_time(look: Awaitable[T], seconds: float = ANSWER_SECONDS) -> T | None:
    """What a look finds; None where its store does not answer in time."""
    try:
        async with asyncio.timeout(seconds):
            return await look
    except (Unavailable, redis.RedisError, TimeoutError):
        return None


async def _server(pipe: Pipeline, server: RedisServer) -> _ServerNow:
    queues = await queues_of(pipe, server)
    seconds, _ = await server.asked(server.client.time())
    latest = (seconds - OVERDUE.total_seconds()) * 1000
    pipeline = server.client.pipeline(transaction=False)
    for lane in pipe.lanes:
        pipeline.zcard(keys.due(lane.name))
        pipeline.zcount(keys.due(lane.name), "-inf", latest)
        pipeline.zcard(keys.parked(lane.name))
    pipeline.pttl(keys.HOUSEKEEPER)
    *counts, sign_ttl_ms = await server.asked(pipeline.execute())
    awake = {lane.name: count for lane, count in zip(pipe.lanes, counts[::3], strict=True)}
    paused = {lane.name: count for lane, count in zip(pipe.lanes, counts[2::3], strict=True)}
    workers = tuple(await workers_of(server))
    at_work = sum(queue.waiting + queue.running for queue in queues if queue.lane == TURNS)
    delayed = await _delayed(server, awake[TURNS], at_work) if awake[TURNS] > at_work else None
    gone = no_housekeeper(sign_age(sign_ttl_ms))
    return _ServerNow(tuple(queues), awake, paused, workers, sum(counts[1::3]), delayed, gone)


async def _delayed(server: RedisServer, awake: int, at_work: int) -> DelayedTurns | None:
    """The delayed keys of one server. Where more than twice DELAYED_LOOKED_AT are not idle, the first and the last of them by their
    time stand for all: short delays are among the first, long ones among the last."""
    pipeline = server.client.pipeline(transaction=False)
    pipeline.zrange(keys.due(TURNS), 0, DELAYED_LOOKED_AT - 1)
    pipeline.zrange(keys.due(TURNS), -DELAYED_LOOKED_AT, -1)
    names = [name.decode(errors="replace") for name in {*chain(*await server.asked(pipeline.execute()))}]
    for name in names:
        pipeline.hmget(keys.state(TURNS, name), ["token", "until", "outage", "failed"])
    held = await server.asked(pipeline.execute())
    delayed = [(int(until), away, failed) for token, until, away, failed in held if token is None and _is_time(until)]
    if not delayed:
        return None
    return DelayedTurns(
        keys=len(delayed) if len(names) == awake else max(len(delayed), awake - at_work),
        next_at=moment(min(until for until, _, _ in delayed)),
        away_since=min((moment(int(away)) for _, away, _ in delayed if _is_time(away)), default=None),
        failed=any(failed not in (None, b"0") for _, _, failed in delayed),
    )


def _is_time(text: bytes | None) -> bool:
    """Whether it is a time that our scripts wrote, and not what a stranger may have put there."""
    return text is not None and text.isdigit() and len(text) < 15


def _together(found: list[DelayedTurns]) -> DelayedTurns | None:
    """What the servers found, as one."""
    if not found:
        return None
    return DelayedTurns(
        keys=sum(one.keys for one in found),
        next_at=min(one.next_at for one in found),
        away_since=min((one.away_since for one in found if one.away_since is not None), default=None),
        failed=any(one.failed for one in found),
    )


def _lane(name: str, servers: list[_ServerNow]) -> LaneNow:
    queues = [queue for found in servers for queue in found.queues if queue.lane == name]
    ready, running = sum(queue.waiting for queue in queues), sum(queue.running for queue in queues)
    awake = sum(found.awake[name] for found in servers)
    since = min((queue.oldest for queue in queues if queue.oldest is not None), default=None)
    paused = sum(found.paused[name] for found in servers)
    return LaneNow(name, ready, since, running, max(0, awake - ready - running), paused)


async def stored_now(pipe: Pipeline) -> StoredNow:
    """What the database says waits, counted up to BOUND, and what is paused."""
    row = await pipe.store.overview.counts(BOUND + 1)
    messages, replies = (
        BoundedCount(row[f"{what}_waiting"], moment(oldest) if (oldest := row[f"{what}_oldest"]) is not None else None)
        for what in ("inbound", "outbox")
    )
    today = await pipe.store.usage.of_all_lately(day_of(int(datetime.now(UTC).timestamp() * 1000)))
    paused = tuple(stored_scope(pause["scope"]) for pause in (await pipe.store.pauses.now()).rows)
    dead, asked = BoundedCount(row["dead_open"]), BoundedCount(row["asks_open"])
    return StoredNow(messages, replies, dead, row["newest_part"], today, paused, asked)
