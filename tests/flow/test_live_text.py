"""The text of answers that are being written, on its way through a real Valkey to whoever waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from redis.asyncio.client import PubSub

from shared import keys
from shared.agent.events import Delta, Event, Row, Thought
from shared.live_text import LiveRecord, SaidText, SaidThought, decode_live
from shared.messages import Entry
from tests.support.pipe import Rig
from workers.turn.live_text import LiveText


class Watching:
    """Somebody who waits for one answer."""

    def __init__(self, channel: str, pubsub: PubSub) -> None:
        self.channel = channel
        self._pubsub = pubsub

    async def records(self, count: int) -> list[LiveRecord]:
        """The next so many records."""
        found: list[LiveRecord] = []
        async with asyncio.timeout(60):
            while len(found) < count:
                message = await self._pubsub.get_message(ignore_subscribe_messages=True, timeout=1.0)
                if message is not None and (record := decode_live(message["data"])) is not None:
                    found.append(record)
        return found


@asynccontextmanager
async def watching(rig: Rig, message: str) -> AsyncIterator[Watching]:
    channel = keys.live_text(message)
    pubsub = rig.pipe.servers.of_key("k").client.pubsub()
    await pubsub.subscribe(channel)
    try:
        yield Watching(channel, pubsub)
    finally:
        await pubsub.aclose()  # type: ignore[no-untyped-call]


async def test_N92_pieces_of_one_stream_are_joined_up_to_the_next_row_and_pieces_of_two_streams_are_not(
    rig: Rig,
) -> None:
    server = rig.pipe.servers.of_key("k")
    async with watching(rig, "in_a") as one, watching(rig, "in_b") as other:
        first, second = LiveText([server], one.channel, 1), LiveText([server], other.channel, 1)
        said: list[Event] = [Delta("Let "), Delta("me "), Delta("look."), Row(Entry("assistant", "Let me look."))]
        for event in [*said, Delta("It "), Thought("hm"), Delta("is.")]:
            first.take(event)
            if isinstance(event, Delta):
                second.take(Delta("x"))
        [of_first] = await one.records(1)
        [of_second] = await other.records(1)
        first.close()
        second.close()
    assert [*of_first.said] == [
        SaidText(0, 0, "Let me look."),
        SaidText(1, 0, "It "),
        SaidThought("hm"),
        SaidText(1, 3, "is."),
    ]
    assert [*of_second.said] == [SaidText(0, 0, "xxxxx")]
