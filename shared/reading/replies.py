"""Following a session: its reply parts, old and new, as they are written down."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import redis
import redis.asyncio as aioredis
from redis.asyncio.client import PubSub

from shared import keys
from shared.errors import TooNew, Unavailable
from shared.messages import Media
from shared.part_record import decode_part
from shared.pipeline import Pipeline
from shared.redis_servers import RedisServer
from shared.store.database import Row
from shared.value import value

KEEP_ALIVE_SECONDS = 15.0
AT_ONCE = 10  # parts that are read ahead of a slow reader
RETRY_SECONDS = 1.0  # between looks while a store is away
CONNECT_SECONDS = 5.0


@value
class ReplyPart:
    """One part of a reply, as its reader sees it."""

    id: int  # grows from part to part: a reader that was away goes on after the last one it has
    turn_id: str
    in_reply_to: tuple[str, ...]
    part: int
    parts: int
    text: str
    media: tuple[Media, ...]


async def replies(pipe: Pipeline, session_key: str, after: int) -> AsyncGenerator[ReplyPart | None]:
    """The reply parts of a session, old and new, in order. None now and then, so that a reader sees the line is alive.

    Goes on by itself when Redis or the database comes back. Close it: it holds a connection of its own.
    """
    async with Bell(pipe.servers.of_key(session_key), keys.events(session_key)) as bell:
        while True:
            try:
                rows = await pipe.store.outbox.of_session(session_key, after=after, limit=AT_ONCE)
            except Unavailable:
                yield None
                await asyncio.sleep(RETRY_SECONDS)
                continue
            for row in rows:
                try:
                    part = _part(row)
                except TooNew:  # this process is too old for it, and nothing behind it may come first
                    yield None
                    await asyncio.sleep(RETRY_SECONDS)
                    break
                after = row["id"]
                yield part
            if not rows and not await bell.rings():
                yield None


def _part(row: Row) -> ReplyPart:
    record = decode_part(row["payload"])
    return ReplyPart(
        id=row["id"],
        turn_id=row["turn_id"],
        in_reply_to=record.in_reply_to,
        part=record.part,
        parts=record.parts,
        text=record.text,
        media=record.media,
    )


class Bell:
    """Rings when a channel does. While Redis is away it stays silent, and it listens again by itself."""

    def __init__(self, server: RedisServer, channel: str) -> None:
        self._server = server
        self._channel = channel
        self._client: aioredis.Redis | None = None
        self._listening: PubSub | None = None

    async def __aenter__(self) -> Bell:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._hang_up()

    async def rings(self) -> bool:
        """True when it rang. False after a while, and as soon as it begins to listen: look again then."""
        try:
            if self._listening is None:
                async with asyncio.timeout(CONNECT_SECONDS):
                    await self._listen()
            assert self._listening is not None
            heard: Any = await self._listening.get_message(timeout=KEEP_ALIVE_SECONDS)
            if heard is None:  # nobody rang, or the connection is dead: find out
                async with asyncio.timeout(CONNECT_SECONDS):
                    await self._listening.ping()
                    heard = await self._listening.get_message(timeout=None)
        except (redis.RedisError, OSError, TimeoutError):
            await self._hang_up()
            await asyncio.sleep(RETRY_SECONDS)
            return False
        return heard is not None and heard["type"] == "message"

    async def _listen(self) -> None:
        self._client = self._server.connect()
        self._listening = self._client.pubsub()
        await self._listening.subscribe(self._channel)

    async def _hang_up(self) -> None:
        listening, client, self._listening, self._client = self._listening, self._client, None, None
        if listening is not None:
            await listening.aclose()  # type: ignore[no-untyped-call]
        if client is not None:
            await client.aclose()
