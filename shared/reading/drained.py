"""The Redis servers: which take keys, which are drained, what those still hold, and when they may be taken out of REDIS_URL."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta

from shared import keys
from shared.clock import moment, now_ms
from shared.door import SEEN_TTL_S
from shared.draining import SETTLED_SECONDS
from shared.pipeline import Pipeline
from shared.reading.overview import in_time
from shared.redis_servers import RedisServer
from shared.store.database import Row
from shared.value import value


@value
class KeysLeft:
    """Keys of all lanes that are not idle on one server: conversations, chats with replies, control messages."""

    at_work: int
    paused: int


@value
class RedisServerNow:
    """A server of REDIS_URL, or one that is drained and listed no more."""

    name: str
    draining: bool
    is_listed: bool
    who: str | None
    since: datetime | None  # when it was drained
    left: KeysLeft | None  # None: it does not answer, or is not listed
    may_go: bool  # it is empty, and every process knows that it is drained
    verdict: str  # one sentence without its subject


async def servers_now(pipe: Pipeline) -> tuple[RedisServerNow, ...]:
    """All servers in the order of REDIS_URL, then those that are only remembered; Unavailable where the database is away."""
    marks = {row["name"]: row for row in await pipe.store.draining.now()}
    left = await asyncio.gather(*(in_time(_left(pipe, server)) for server in pipe.servers.all))
    found = [
        _described(pipe, server, marks.get(server.name), keys)
        for server, keys in zip(pipe.servers.all, left, strict=True)
    ]
    listed = {server.name for server in pipe.servers.all}
    text = "is listed no more: `keyturn redis undrain` forgets it"
    gone = [
        RedisServerNow(name, True, False, row["who"], moment(row["since"]), None, may_go=True, verdict=text)
        for name, row in marks.items()
        if name not in listed
    ]
    return (*found, *gone)


async def drained_now(pipe: Pipeline) -> tuple[RedisServerNow, ...]:
    """Those that are drained. A deployment with one server has none, and is not asked."""
    if len(pipe.servers.all) == 1:
        return ()
    return tuple(server for server in await servers_now(pipe) if server.draining)


async def _left(pipe: Pipeline, server: RedisServer) -> KeysLeft:
    pipeline = server.client.pipeline(transaction=False)
    for lane in pipe.lanes:
        pipeline.zcard(keys.due(lane.name))
        pipeline.zcard(keys.parked(lane.name))
    counts: Sequence[int] = await server.asked(pipeline.execute())
    return KeysLeft(sum(counts[::2]), sum(counts[1::2]))


def _described(pipe: Pipeline, server: RedisServer, mark: Row | None, left: KeysLeft | None) -> RedisServerNow:
    if mark is None:
        text = "takes keys" if left is not None else "takes keys and does not answer"
        return RedisServerNow(server.name, False, True, None, None, left, may_go=False, verdict=text)
    since = moment(mark["since"])
    age = moment(now_ms()) - since
    is_empty = left == KeysLeft(0, 0) and server in pipe.servers.draining
    may_go = is_empty and age.total_seconds() >= SETTLED_SECONDS
    text = _verdict(pipe, server, left) if not may_go else "is empty: take it out of REDIS_URL"
    if may_go and pipe.settings.durability == "redis" and age < timedelta(seconds=SEEN_TTL_S):
        text += _remembers(since)
    return RedisServerNow(server.name, True, True, mark["who"], since, left, may_go, text)


def _verdict(pipe: Pipeline, server: RedisServer, left: KeysLeft | None) -> str:
    if server not in pipe.servers.draining:
        return "takes keys, because every server is drained: `keyturn redis undrain` one that shall stay"
    if left is None:
        return "does not answer: journaled messages go on elsewhere, and it is not known whether it is empty"
    count = left.at_work + left.paused
    if not count:
        return f"holds nothing; wait {SETTLED_SECONDS:.0f} seconds until every process knows that it is drained"
    paused = f", {left.paused:,} of them paused" if left.paused else ""
    return f"still holds {count:,} {'key' if count == 1 else 'keys'}{paused}: leave it in REDIS_URL"


def _remembers(since: datetime) -> str:
    """With durability = redis the server itself remembers which messages were received."""
    until = since + timedelta(seconds=SEEN_TTL_S)
    return f"; before {until:%Y-%m-%d}, a message that a platform sends again may then be answered again"
