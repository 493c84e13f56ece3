"""NothingNew for the answer to one message: what is said meanwhile, and how it ended.

The journal says how a message ended, whatever Redis says or loses: the channels only tell when to look. Goes on by itself
when Redis or the database comes back.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import redis
import redis.asyncio as aioredis
from redis.asyncio.client import PubSub

from shared import keys
from shared.context.tokens import estimate
from shared.errors import Malformed, Unavailable
from shared.live_text import LiveRecord, TokensUsed, decode_live
from shared.messages import Inbound, State
from shared.part_record import decode_part
from shared.pipeline import Pipeline
from shared.store.database import Row
from shared.value import value

LOOK_SECONDS = 1.0  # between two looks at the journal while nobody tells of anything
FIRST_LOOK_SECONDS = 0.02  # after a worker said that it is about to commit; doubled with each look
KEEP_ALIVE_SECONDS = 10.0
CONNECT_SECONDS = 5.0


@value
class AnswerEnded:
    """The message has ended, with this text. `failed`: it is a dead letter, and the text says so."""

    text: str
    failed: bool
    usage: TokensUsed


@value
class NothingNew:
    """Nothing has happened for a while."""


@value
class GaveUp:
    """No answer within the time, or the receiver is about to stop: nobody knows yet how it ends."""

    is_stopping: bool


AnswerNews = LiveRecord | AnswerEnded | NothingNew | GaveUp


class AnswerWatch:
    """Hears what becomes of one message. Open it before the message is accepted, so that nothing is missed; close it."""

    def __init__(self, pipe: Pipeline, inbound: Inbound, session_key: str) -> None:
        self._pipe = pipe
        self._inbound = inbound
        self._server = pipe.servers.of_key(session_key)
        self._channels = (keys.events(session_key), keys.live_text(inbound.id))
        self._client: aioredis.Redis | None = None
        self._heard: PubSub | None = None
        self._usage: TokensUsed | None = None
        self._look_after = LOOK_SECONDS

    async def open(self) -> None:
        """Listen. A Redis that is away costs the live text: the journal is looked at all the same."""
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                self._client = self._server.connect()
                self._heard = self._client.pubsub()
                await self._heard.subscribe(*self._channels)
        except (redis.RedisError, OSError, TimeoutError):
            await self._hang_up()

    async def close(self) -> None:
        await self._hang_up()

    async def news(self, seconds: float, stopping: asyncio.Event) -> AsyncGenerator[AnswerNews]:
        """What happens until it has ended: the last one is `AnswerEnded` or `GaveUp`."""
        clock = asyncio.get_running_loop().time
        until, quiet_since, look_at = clock() + seconds, clock(), clock()
        while True:
            if clock() >= look_at:
                if (ended := await self._ended()) is not None:
                    yield ended
                    return
                look_at = clock() + self._look_after
                self._look_after = min(2 * self._look_after, LOOK_SECONDS)
            if stopping.is_set() or clock() >= until:
                yield GaveUp(stopping.is_set())
                return
            heard = await self._hear(max(0.0, min(look_at, until) - clock()))
            if heard is None:
                if clock() - quiet_since >= KEEP_ALIVE_SECONDS:
                    quiet_since = clock()
                    yield NothingNew()
                continue
            quiet_since = clock()
            if isinstance(heard, LiveRecord):
                yield heard
                if not heard.is_last:
                    continue
                self._look_after = FIRST_LOOK_SECONDS
            look_at = clock() + (self._look_after if isinstance(heard, LiveRecord) else 0.0)

    async def _hear(self, seconds: float) -> LiveRecord | bool | None:
        """The next live text; True when a reply was put out; None when nothing came in that time."""
        if self._heard is None:
            await asyncio.sleep(seconds)
            return None
        try:
            said: Any = await self._heard.get_message(ignore_subscribe_messages=True, timeout=seconds)
        except (redis.RedisError, OSError):
            await self._hang_up()
            return None
        if said is None or said["type"] != "message":
            return None
        if said["channel"].decode() == self._channels[0]:
            return True
        record = decode_live(said["data"])
        if record is not None and record.is_last:
            self._usage = record.usage
        return record

    async def _ended(self) -> AnswerEnded | None:
        """How the message ended; None while it has not, or while the database is away."""
        try:
            row, parts = await asyncio.shield(asyncio.ensure_future(self._look()))
        except Unavailable:
            return None
        if row is None:
            return None
        text = "\n\n".join(filter(None, map(_text, parts)))
        asked = sum(map(estimate, (self._inbound.text, *(entry.text for entry in self._history))))
        usage = self._usage or TokensUsed(asked, estimate(text))
        return AnswerEnded(text, row["state"] == State.DEAD, usage)

    @property
    def _history(self) -> tuple[Any, ...]:
        terms = self._inbound.terms
        return terms.history if terms is not None and terms.history is not None else ()

    async def _look(self) -> tuple[Row | None, list[Row]]:
        store = self._pipe.store
        row = await store.journal.find(self._inbound.id)
        if row is None or row["state"] == State.PENDING:
            return None, []
        return row, await store.outbox.of_turn(row["turn_id"]) if row["turn_id"] else []

    async def _hang_up(self) -> None:
        heard, client, self._heard, self._client = self._heard, self._client, None, None
        if heard is not None:
            await heard.aclose()  # type: ignore[no-untyped-call]
        if client is not None:
            await client.aclose()


def _text(row: Row) -> str:
    """What a part says here: its text, and its files by their addresses. A part that goes to another chat says nothing here."""
    try:
        part = decode_part(row["payload"])
    except Malformed:  # or of a newer version
        return ""
    if part.to is not None:
        return ""
    files = [f"[{item.name or item.url}]({item.url})" for item in part.media]
    return "\n\n".join(filter(None, (part.text, *files)))
